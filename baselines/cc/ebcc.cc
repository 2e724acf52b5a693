// eBCC.
//
//   diff = cwnd (1 - min_rtt / RTT)                                    packets in the queue, as Vegas and CTCP estimate
//   ProbeBW, once a round without loss:  diff <  30: cwnd = (cwnd + cwnd_max) / 2
//                                        diff >= 30: cwnd = (target + last cwnd with diff < 30) / 2
//   a loss while diff >= 30:             to ProbeRTT at cwnd / 2; in ProbeRTT, cwnd / 2 again
//
// Source: the article (Wireless Communications and Mobile Computing 2022, 7222030, section 3.3). The text available
// to us lacks the equations: they are reconstructed from its words and from the algorithms that it names (CTCP, BIC,
// NewReno). Ours too: which rounds count, what the window does between them, and when a loss is forgotten;
// docs/algorithms/ebcc.md.

#include "baselines/cc/ebcc.h"

#include <algorithm>

namespace bbrgym {

void EbccParameters::Describe(ParameterReader& reader) {
  BbrParameters::Describe(reader);
  reader.Field("queue_threshold_packets", queue_threshold_packets, 0, 1'000'000);
  reader.Field("beta", beta, 0.01, 1.0);
  reader.Field("is_eq7_operand_cwnd", is_eq7_operand_cwnd);
}

EbccController::EbccController(const Connection& connection, const EbccParameters& parameters)
    : BbrController(connection, parameters), queue_aware_(parameters) {}

void EbccController::Observe(const AckEvent& ack) {
  if (ack.rtt > 0) rtt_ = ack.rtt;
  is_calm_round_over_ = false;
  if (mode() != Mode::kProbeBw || recovery() != Recovery::kOpen || ack.bytes_lost > 0) {
    calm_rounds_.Restart(ack.delivered);
  } else if (ack.sample.is_valid) {
    is_calm_round_over_ = calm_rounds_.OnDelivered(ack.sample.prior_delivered, ack.delivered);
  }
  if (ack.bytes_lost > 0) AnswerLoss(ack);
}

void EbccController::AnswerLoss(const AckEvent& ack) {
  if (mode() == Mode::kProbeBw) {
    if (is_entering_recovery()) loss_cwnd_ = cwnd_;
    if (!IsQueueLong()) return;
    EnterProbeRtt(ReducedCwnd());
    delivered_at_reduction_ = ack.delivered;
  } else if (mode() == Mode::kProbeRtt) {
    // Once per round: ignore losses of packets that were sent before the last reduction.
    const bool is_new = ack.sample.is_valid && ack.sample.prior_delivered >= delivered_at_reduction_;
    if (!is_new || !IsQueueLong()) return;
    probe_rtt_cwnd_ = ReducedCwnd();
    delivered_at_reduction_ = ack.delivered;
  }
}

void EbccController::MoveCwnd(const AckEvent& ack, Bytes target) {
  if (mode() != Mode::kProbeBw || recovery() != Recovery::kOpen || ack.bytes_lost > 0) {
    BbrController::MoveCwnd(ack, target);
    return;
  }
  if (is_calm_round_over_) cwnd_ = ChooseCwnd(target);
  cwnd_ = std::min(cwnd_, target);
}

Bytes EbccController::ChooseCwnd(Bytes target) {
  // BIC's search ends at the window of the last loss. The window stays there for a round and then grows beyond it.
  const Bytes limit = loss_cwnd_ > 0 ? std::min(target, std::max(loss_cwnd_, cwnd_)) : target;
  if (cwnd_ >= loss_cwnd_) loss_cwnd_ = 0;
  Bytes sum = 0;
  if (IsQueueLong()) {
    const Bytes last = short_queue_cwnd_ > 0 ? short_queue_cwnd_ : cwnd_;
    sum = (queue_aware_.is_eq7_operand_cwnd ? cwnd_ : target) + last;
  } else {
    short_queue_cwnd_ = cwnd_;
    sum = cwnd_ + limit;
  }
  // Round the mean up to whole packets: otherwise the search would stop one packet below its end.
  const Bytes pair = 2 * connection().packet_bytes;
  return (sum + pair - 1) / pair * connection().packet_bytes;
}

bool EbccController::IsQueueLong() const {
  if (rtt_ <= 0 || min_rtt() <= 0) return false;
  const double queued = static_cast<double>(cwnd_) * (1.0 - static_cast<double>(min_rtt()) / static_cast<double>(rtt_));
  return queued >= static_cast<double>(queue_aware_.queue_threshold_packets * connection().packet_bytes);
}

Bytes EbccController::ReducedCwnd() const {
  return std::max(static_cast<Bytes>(queue_aware_.beta * static_cast<double>(cwnd_)), MinCwnd());
}

}  // namespace bbrgym
