// Copa.
//
//   target rate = 1 / (delta dq)      dq = RTTstanding - RTTmin      current rate = cwnd / RTTstanding
//   per packet acknowledged: cwnd += v / (delta cwnd) while the current rate is at most the target, else -=
//   v doubles each round trip once the window has moved in one direction for three, else v = 1
//   no nearly empty queue in 5 round trips: competitive mode, 1/delta += 1 a round trip, halved by a loss
//   pacing_rate = 2 cwnd / RTTstanding
//
// Source: Arun and Balakrishnan, "Copa: Practical Delay-Based Congestion Control for the Internet", NSDI 2018, section
// 2; constants that it leaves open from the authors' genericCC and from mvfst.

#include "baselines/cc/copa.h"

#include <algorithm>
#include <utility>

namespace bbrgym {
namespace {

constexpr double kMinCwndPackets = 2.0;       // genericCC
constexpr std::int64_t kRoundsToDouble = 3;   // section 2.1: v doubles after three round trips in one direction
constexpr double kNearlyEmptyShare = 0.1;     // section 2.2: dq below a tenth of RTTmax - RTTmin
constexpr std::int64_t kRoundsWithEmpty = 5;  // section 2.2: Copa alone empties the queue once in five round trips
constexpr std::int64_t kRoundsOfMaxRtt = 4;   // section 2.2

}  // namespace

void CopaParameters::Describe(ParameterReader& reader) {
  reader.Field("delta", delta, 0.001, 100.0);
  reader.Field("has_competitive_mode", has_competitive_mode);
  reader.Field("has_early_velocity_reset", has_early_velocity_reset);
  reader.Field("min_rtt_window_s", min_rtt_window_s, 0.1, 3600.0);
}

CopaController::CopaController(const Connection& connection, const CopaParameters& parameters)
    : connection_(connection),
      parameters_(parameters),
      min_rtt_(static_cast<Nanoseconds>(parameters.min_rtt_window_s * kSecond)),
      standing_rtt_(0),
      max_rtt_(0),
      smoothed_rtt_(connection.initial_rtt),
      inverse_delta_(1.0 / parameters.delta),
      cwnd_packets_(static_cast<double>(connection.initial_cwnd) / static_cast<double>(connection.packet_bytes)),
      cwnd_at_round_start_(cwnd_packets_) {}

void CopaController::OnAck(const AckEvent& ack) {
  if (ack.rtt > 0) UpdateRtt(ack.now, ack.rtt);
  if (standing_rtt() == 0) return;
  UpdateMode(ack.now);
  is_limited_in_round_ |= ack.is_cwnd_limited;
  has_loss_in_round_ |= ack.bytes_lost > 0;
  if (ack.sample.is_valid && rounds_.OnDelivered(ack.sample.prior_delivered, ack.delivered)) EndRound();
  MoveCwnd(ack);
}

void CopaController::OnRecovery(Recovery state, Nanoseconds /*now*/, Bytes /*in_flight*/) {
  if (state != Recovery::kOpen && recovery_ == Recovery::kOpen && is_competitive_) {
    // AIMD on 1/delta, once per loss event. delta is at most that of the default mode (section 2.2).
    inverse_delta_ = std::max(inverse_delta_ / 2.0, 1.0 / parameters_.delta);
  }
  if (state == Recovery::kLoss) {
    cwnd_packets_ = kMinCwndPackets;  // as mvfst after persistent congestion
    is_slow_start_ = true;
    ResetVelocity();
  }
  recovery_ = state;
}

Decision CopaController::decision() const {
  const auto cwnd = static_cast<Bytes>(cwnd_packets_ * static_cast<double>(connection_.packet_bytes));
  const Nanoseconds known = standing_rtt() > 0 ? standing_rtt() : connection_.initial_rtt;
  return {.cwnd = cwnd,
          .pacing_rate = 2 * RateOf(cwnd, known > 0 ? known : kMillisecond),
          .send_quantum = connection_.packet_bytes,
          .is_paced = true,
          .is_app_limited = false};
}

Metrics CopaController::metrics() const {
  Metrics metrics;
  const Mode mode = is_slow_start_    ? Mode::kSlowStart
                    : is_competitive_ ? Mode::kCompetitive
                                      : Mode::kCongestionAvoidance;
  metrics.Set(Metric::mode, static_cast<double>(mode));
  metrics.Set(Metric::round, static_cast<double>(rounds_.count()));
  metrics.Set(Metric::delta, 1.0 / inverse_delta_);
  metrics.Set(Metric::velocity, velocity_);
  if (standing_rtt() > 0) {
    metrics.Set(Metric::min_rtt_ms, static_cast<double>(min_rtt()) / kMillisecond);
    metrics.Set(Metric::standing_rtt_ms, static_cast<double>(standing_rtt()) / kMillisecond);
  }
  return metrics;
}

void CopaController::UpdateRtt(Nanoseconds now, Nanoseconds rtt) {
  // RFC 6298, equation (2.3): SRTT with alpha = 1/8.
  smoothed_rtt_ = smoothed_rtt_ == 0 ? rtt : smoothed_rtt_ + (rtt - smoothed_rtt_) / 8;
  if (standing_rtt() == 0) last_empty_ = now;
  standing_rtt_.SetWindow(smoothed_rtt_ / 2);  // section 2.1
  max_rtt_.SetWindow(kRoundsOfMaxRtt * smoothed_rtt_);
  min_rtt_.Update(now, rtt);
  standing_rtt_.Update(now, rtt);
  max_rtt_.Update(now, rtt);
}

void CopaController::UpdateMode(Nanoseconds now) {
  const auto queueing_delay = static_cast<double>(standing_rtt() - min_rtt());
  // Not strictly below: without any queue both sides are 0.
  if (queueing_delay <= kNearlyEmptyShare * static_cast<double>(max_rtt() - min_rtt())) last_empty_ = now;
  const bool was_competitive = is_competitive_;
  is_competitive_ =
      parameters_.has_competitive_mode && !is_slow_start_ && now - last_empty_ > kRoundsWithEmpty * smoothed_rtt_;
  if (was_competitive && !is_competitive_) inverse_delta_ = 1.0 / parameters_.delta;
}

void CopaController::EndRound() {
  const bool is_upwards = cwnd_packets_ > cwnd_at_round_start_;
  const bool is_limited = std::exchange(is_limited_in_round_, false);
  if (!is_limited) {
    ResetVelocity();  // a window that the flow does not use moves in no direction
  } else if (is_upwards != is_upwards_) {
    ResetVelocity();
    is_upwards_ = is_upwards;
  } else if (!is_slow_start_ && ++rounds_in_direction_ >= kRoundsToDouble) {
    velocity_ *= 2.0;
  }
  cwnd_at_round_start_ = cwnd_packets_;
  if (is_competitive_ && is_limited && !has_loss_in_round_) inverse_delta_ += 1.0;
  has_loss_in_round_ = false;
}

void CopaController::MoveCwnd(const AckEvent& ack) {
  const double acked = static_cast<double>(ack.bytes_acked) / static_cast<double>(connection_.packet_bytes);
  const auto queueing_delay = static_cast<double>(standing_rtt() - min_rtt());
  // cwnd / RTTstanding <= 1 / (delta dq), without a division by zero.
  const bool is_growing = cwnd_packets_ * queueing_delay <= inverse_delta_ * static_cast<double>(standing_rtt());
  if (is_slow_start_ && !is_growing) {
    is_slow_start_ = false;
    ResetVelocity();
    is_upwards_ = false;
  }
  if (parameters_.has_early_velocity_reset && is_growing != is_upwards_ && velocity_ > 1.0) {
    ResetVelocity();
    is_upwards_ = is_growing;
    cwnd_at_round_start_ = cwnd_packets_;
  }
  // With more, the window would change by more than its size in a round trip.
  velocity_ = std::min(velocity_, std::max(cwnd_packets_ / inverse_delta_, 1.0));
  const double step = is_slow_start_ ? acked : acked * velocity_ * inverse_delta_ / cwnd_packets_;
  if (!is_growing) {
    cwnd_packets_ = std::max(cwnd_packets_ - step, kMinCwndPackets);
  } else if (ack.is_cwnd_limited) {
    cwnd_packets_ += step;
  }
}

void CopaController::ResetVelocity() {
  velocity_ = 1.0;
  rounds_in_direction_ = 0;
}

}  // namespace bbrgym
