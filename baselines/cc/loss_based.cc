#include "baselines/cc/loss_based.h"

#include <algorithm>

namespace bbrgym {

LossBasedController::LossBasedController(const Connection& connection, const Options& options)
    : cwnd_(connection.initial_cwnd), connection_(connection), options_(options) {
  UpdateRtt(connection.initial_rtt);
  UpdatePacingRate();
}

void LossBasedController::OnAck(const AckEvent& ack) {
  UpdateRtt(ack.rtt);
  delivered_ = ack.delivered;
  if (ack.is_cwnd_limited) limited_time_ += ack.now - last_ack_;
  last_ack_ = ack.now;
  Observe(ack);
  if (recovery_ == Recovery::kRecovery) {
    if (!is_prr_started_) {
      // The first ACK of recovery says how much had been sent by then. RecoverFS is the window, as in Linux.
      prr_.Start(cwnd_at_loss_, ack.sent);
      is_prr_started_ = true;
    }
    cwnd_ = prr_.Cwnd(ack.bytes_acked, ack.in_flight, ack.sent, ssthresh_, packet_bytes());
  } else if (options_.is_mark_congestion_event && ack.bytes_marked > 0 && recovery_ == Recovery::kOpen &&
             !IsMarkAnswered()) {
    ssthresh_ = MarkedThreshold();
    cwnd_ = std::min(cwnd_, ssthresh_);
    mark_end_ = ack.delivered + ack.in_flight;
  } else if (ack.is_cwnd_limited && ack.bytes_acked > 0 && !IsMarkAnswered()) {
    if (IsSlowStart()) {
      Bytes growth = ack.bytes_acked;
      // HyStart++ acts in the first slow start only; after a loss the threshold is known (RFC 9406, section 4.3).
      if (options_.has_hystart && ssthresh_ == kNoThreshold && ack.sample.is_valid) {
        growth = hystart_.OnAck(ack.rtt, ack.bytes_acked, ack.sample.prior_delivered, ack.delivered);
        if (hystart_.IsDone()) ssthresh_ = cwnd_;
      }
      cwnd_ = std::min(cwnd_ + growth, std::max(ssthresh_, cwnd_));
    } else {
      GrowInAvoidance(ack);
    }
  }
  UpdatePacingRate();
}

void LossBasedController::OnRecovery(Recovery state, Nanoseconds /*now*/, Bytes /*in_flight*/) {
  const bool is_new_event = state != Recovery::kOpen && recovery_ == Recovery::kOpen;
  if (is_new_event) {
    cwnd_at_loss_ = cwnd_;
    ssthresh_at_loss_ = ssthresh_;
    // Marks and losses of one round trip are one event (RFC 3168, section 6.1.2).
    is_reduced_ = !IsMarkAnswered();
    if (is_reduced_) ssthresh_ = ReducedThreshold();
    mark_end_ = kNoMark;
  }
  if (state == Recovery::kRecovery && is_new_event) is_prr_started_ = false;
  if (state == Recovery::kLoss) {
    cwnd_ = packet_bytes();  // RFC 5681, section 3.1: the loss window
    OnTimeout();
  }
  if (state == Recovery::kOpen && recovery_ == Recovery::kRecovery) cwnd_ = ssthresh_;  // RFC 6937: end of recovery
  recovery_ = state;
  UpdatePacingRate();
}

bool LossBasedController::OnSpuriousRecovery() {
  // RFC 9438, section 4.9; Linux tcp_undo_cwnd_reduction.
  cwnd_ = std::max(cwnd_, cwnd_at_loss_);
  ssthresh_ = ssthresh_at_loss_;
  if (is_reduced_) UndoReduction();
  recovery_ = Recovery::kOpen;
  UpdatePacingRate();
  return true;
}

Decision LossBasedController::decision() const {
  return {.cwnd = cwnd_,
          .pacing_rate = pacing_rate_,
          .send_quantum = connection_.packet_bytes,
          .is_paced = options_.is_paced,
          .is_app_limited = false};
}

Metrics LossBasedController::metrics() const {
  Metrics metrics;
  const Mode mode = recovery_ == Recovery::kRecovery ? Mode::kRecovery
                    : IsSlowStart()                  ? Mode::kSlowStart
                                                     : Mode::kCongestionAvoidance;
  metrics.Set(Metric::mode, static_cast<double>(mode));
  if (ssthresh_ != kNoThreshold) {
    metrics.Set(Metric::ssthresh_packets, static_cast<double>(ssthresh_) / static_cast<double>(packet_bytes()));
  }
  return metrics;
}

void LossBasedController::UpdateRtt(Nanoseconds rtt) {
  if (rtt <= 0) return;
  // RFC 6298, equation (2.3): SRTT with alpha = 1/8.
  smoothed_rtt_ = smoothed_rtt_ == 0 ? rtt : smoothed_rtt_ + (rtt - smoothed_rtt_) / 8;
}

void LossBasedController::UpdatePacingRate() {
  // Linux tcp_update_pacing_rate: twice the rate in early slow start; 1 ms until there is an RTT.
  const double factor = cwnd_ < ssthresh_ / 2 ? 2.0 : options_.pacing_gain;
  const Nanoseconds rtt = smoothed_rtt_ > 0 ? smoothed_rtt_ : kMillisecond;
  pacing_rate_ = static_cast<BitsPerSecond>(factor * static_cast<double>(RateOf(cwnd_, rtt)));
}

}  // namespace bbrgym
