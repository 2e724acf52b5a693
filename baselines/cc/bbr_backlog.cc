// BBR's model with a constant backlog.
//
//   ProbeBW:  cwnd = max_bandwidth x base_rtt + backlog + correction,    pacing_rate = 1.1 x max_bandwidth
//   base_rtt = min_rtt + 0.3 ms of noise;   the window grows while RTTs show no queue
//   Startup, Drain, ProbeRTT: those of bbr_model.h
//
// Source: our own, unpublished. With the delivery rate for max_bandwidth and without the correction it would be TCP
// Vegas's and FAST TCP's window (Wei, Jin, Low and Hegde, IEEE/ACM Transactions on Networking 14(6), 2006, equation 2).

#include "baselines/cc/bbr_backlog.h"

#include <algorithm>

namespace bbrgym {
namespace {

// On a free link. Slower, the flow would not fill its window while the rate grows.
constexpr double kFreePacing = 1.5;

}  // namespace

void BbrBacklogParameters::Describe(ParameterReader& reader) {
  reader.Field("backlog_packets", backlog_packets, 0.0, 1000.0);
  reader.Field("pacing_gain", pacing_gain, 0.25, 4.0);
  reader.Field("correction_rounds", correction_rounds, 0.0, 1000.0);
  reader.Field("ignored_delay_ms", ignored_delay_ms, 0.0, 1000.0);
  reader.Field("fills_free_link", fills_free_link);
  BbrModelParameters::Describe(reader);
}

BbrBacklogController::BbrBacklogController(const Connection& connection, const BbrBacklogParameters& parameters)
    : BbrModelController(connection, parameters),
      backlog_(parameters),
      correction_(connection.packet_bytes, parameters.correction_rounds),
      free_link_(connection.packet_bytes) {}

Nanoseconds BbrBacklogController::BaseRtt() const {
  return min_rtt() + std::min(static_cast<Nanoseconds>(backlog_.ignored_delay_ms * kMillisecond), min_rtt() / 20);
}

double BbrBacklogController::CwndGain() const {
  const double bdp = BdpBytes(1.0, max_bandwidth());
  return bdp > 0.0 ? 1.0 + BacklogBytes() / bdp : 1.0;
}

void BbrBacklogController::Observe(const AckEvent& ack) {
  NoticeFreeLink(ack);
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

void BbrBacklogController::NoticeFreeLink(const AckEvent& ack) {
  // A quarter of the backlog is no queue.
  const double most_rtt = (1.0 + 0.25 * (CwndGain() - 1.0)) * static_cast<double>(BaseRtt());
  free_link_.OnAck(ack, most_rtt, backlog_.fills_free_link && mode() == Mode::kProbeBw);
}

Gains BbrBacklogController::ChooseGains() const {
  if (mode() != Mode::kProbeBw) return BbrController::ChooseGains();
  const double pacing = free_link_.is_free() ? std::max(backlog_.pacing_gain, kFreePacing) : backlog_.pacing_gain;
  return {.cwnd = CwndGain(), .pacing = pacing};
}

void BbrBacklogController::MoveCwnd(const AckEvent& ack, Bytes target) {
  const double bdp = BdpBytes(1.0, max_bandwidth());
  const double window = bdp + BacklogBytes() + correction_.bytes() + free_link_.room(bdp);
  BbrController::MoveCwnd(ack, mode() == Mode::kProbeBw ? static_cast<Bytes>(window) : target);
}

}  // namespace bbrgym
