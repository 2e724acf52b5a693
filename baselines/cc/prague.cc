// TCP Prague.
//
//   each rtt_virt:      alpha += (marked share - alpha) / 16
//   mark:               cwnd -= cwnd alpha / 2                        at most once per rtt_virt
//   unmarked ACKs:      cwnd += (acked / cwnd) (srtt / rtt_virt)^2    packets, after marks, too
//   loss:               cwnd / 2                                      pacing rate: cwnd / srtt
//   rtt_virt = max(srtt, 25 ms)
//
// Source: draft-briscoe-iccrg-prague-congestion-control, sections 2.3.2 and 2.4 (version 00), and L4STeam's
// net/ipv4/tcp_prague.c, whose functions are named; docs/algorithms/prague.md.

#include "baselines/cc/prague.h"

#include <algorithm>

namespace bbrgym {

void PragueParameters::Describe(ParameterReader& reader) {
  reader.Field("ecn_alpha_gain", ecn_alpha_gain, 0.0001, 1.0);
  reader.Field("ecn_factor", ecn_factor, 0.01, 0.99);
  reader.Field("beta", beta, 0.01, 0.99);
  reader.Field("rtt_virt_min_ms", rtt_virt_min_ms, 0.0, 10'000.0);
  reader.Field("rtt_independence_rounds", rtt_independence_rounds, 0, 1'000'000'000);
}

PragueController::PragueController(const Connection& connection, const PragueParameters& parameters)
    : LossBasedController(
          connection, {.has_hystart = false, .is_paced = true, .pacing_gain = 1.0, .is_mark_congestion_event = false}),
      parameters_(parameters),
      marked_share_(parameters.ecn_alpha_gain) {}

Metrics PragueController::metrics() const {
  Metrics metrics = LossBasedController::metrics();
  metrics.Set(Metric::ecn_alpha, marked_share_.average());
  return metrics;
}

void PragueController::Observe(const AckEvent& ack) {
  const Nanoseconds least = IsRttIndependent() ? VirtualRtt() : 0;
  has_marks_ |= ack.bytes_marked > 0;
  if (ack.bytes_marked > 0 && recovery() == Recovery::kOpen) {
    if (answer_.IsOver(ack, least)) AnswerMark(ack);
    EndSlowStart();
  }
  marked_share_.OnAck(ack.bytes_acked, ack.bytes_marked);
  if (!alpha_period_.IsOver(ack, least)) return;
  if (has_marks_) {
    marked_share_.EndRound();
  } else {
    // alpha stays 1 until there is a queue that marks (prague_update_alpha).
    marked_share_ = MarkedShare(parameters_.ecn_alpha_gain);
  }
  alpha_period_.Begin(ack);
  if (!IsSlowStart()) ++rounds_;
}

void PragueController::AnswerMark(const AckEvent& ack) {
  const Bytes before = cwnd_;
  const double share = 1.0 - parameters_.ecn_factor * marked_share_.average();
  cwnd_ = std::min(before, std::max(static_cast<Bytes>(share * static_cast<double>(before)), MinCwnd()));
  reduction_ = before - cwnd_;
  answer_.Begin(ack);
}

void PragueController::GrowInAvoidance(const AckEvent& ack) {
  double per_round = static_cast<double>(packet_bytes());
  if (IsRttIndependent()) {
    // The rate of a flow whose RTT is rtt_virt grows by a packet per rtt_virt and rtt_virt.
    const double scale = static_cast<double>(smoothed_rtt()) / static_cast<double>(VirtualRtt());
    per_round *= scale * scale;
  }
  const auto unmarked = static_cast<double>(ack.bytes_acked - ack.bytes_marked);
  const double growth = cwnd_fraction_ + per_round * unmarked / static_cast<double>(cwnd_);
  const auto whole = static_cast<Bytes>(growth);
  cwnd_fraction_ = growth - static_cast<double>(whole);
  cwnd_ += whole;
}

Bytes PragueController::ReducedThreshold() {
  // What marks have taken in the same round trip counts towards the answer to the loss.
  const Bytes before = delivered() <= answer_.end ? cwnd_ + reduction_ : cwnd_;
  reduction_ = 0;
  return std::max(static_cast<Bytes>(parameters_.beta * static_cast<double>(before)), MinCwnd());
}

Nanoseconds PragueController::VirtualRtt() const {
  return std::max(
      {smoothed_rtt(), static_cast<Nanoseconds>(parameters_.rtt_virt_min_ms * kMillisecond), Nanoseconds{1}});
}

}  // namespace bbrgym
