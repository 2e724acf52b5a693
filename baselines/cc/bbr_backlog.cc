// BBR's model with a constant backlog.
//
//   ProbeBW:  cwnd = max_bandwidth x base_rtt + backlog + correction,    pacing_rate = 1.1 x max_bandwidth
//   Startup, Drain, ProbeRTT: those of bbr_model.h
//
// Source: our own, unpublished. With the delivery rate for max_bandwidth and without the correction it would be TCP
// Vegas's and FAST TCP's window (Wei, Jin, Low and Hegde, IEEE/ACM Transactions on Networking 14(6), 2006, equation 2).

#include "baselines/cc/bbr_backlog.h"

namespace bbrgym {

void BbrBacklogParameters::Describe(ParameterReader& reader) {
  reader.Field("backlog_packets", backlog_packets, 0.0, 1000.0);
  reader.Field("pacing_gain", pacing_gain, 0.25, 4.0);
  reader.Field("correction_rounds", correction_rounds, 0.0, 1000.0);
  BbrModelParameters::Describe(reader);
}

BbrBacklogController::BbrBacklogController(const Connection& connection, const BbrBacklogParameters& parameters)
    : BbrModelController(connection, parameters),
      backlog_(parameters),
      correction_(connection.packet_bytes, parameters.correction_rounds) {}

void BbrBacklogController::Observe(const AckEvent& ack) {
  if (is_round_start()) {
    correction_.OnRoundStart(ack,
                             {.rtts = round_rtts(),
                              .base_rtt = BaseRtt(),
                              .bdp = BdpBytes(1.0, max_bandwidth()),
                              .target = BacklogBytes(),
                              .cwnd = cwnd_},
                             mode() == Mode::kProbeBw);
  }
  BbrModelController::Observe(ack);
}

Gains BbrBacklogController::ChooseGains() const {
  if (mode() != Mode::kProbeBw) return BbrController::ChooseGains();
  const double bdp = BdpBytes(1.0, max_bandwidth());
  return {.cwnd = bdp > 0.0 ? 1.0 + BacklogBytes() / bdp : 1.0, .pacing = backlog_.pacing_gain};
}

void BbrBacklogController::MoveCwnd(const AckEvent& ack, Bytes target) {
  const double window = BdpBytes(1.0, max_bandwidth()) + BacklogBytes() + correction_.bytes();
  BbrController::MoveCwnd(ack, mode() == Mode::kProbeBw ? static_cast<Bytes>(window) : target);
}

}  // namespace bbrgym
