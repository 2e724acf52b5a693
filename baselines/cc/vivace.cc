// PCC Vivace.
//
//   u(x) = x^t - b x dRTT/dT - c x L              x in Mbit/s, L the loss rate of the interval
//   starting: x doubles until u falls
//   then:     gamma = (u(x (1 + eps)) - u(x (1 - eps))) / (2 eps x),   x += m theta_0 gamma,   |change| <= omega x
//   m grows with decisions in one direction, omega with changes that reach it
//   pacing_rate = x, cwnd = 2 x RTT, which does not bind
//
// Source: Dong et al., "PCC Vivace: Online-Learning Congestion Control", NSDI 2018, sections 3 and 4; constants as in
// WebRTC's modules/congestion_controller/pcc.

#include "baselines/cc/vivace.h"

#include <algorithm>
#include <cmath>

#include "baselines/cc/elementary.h"

namespace bbrgym {
namespace {

constexpr double kMegabit = 1e6;
constexpr double kMinPacketsPerRtt = 2.0;  // as the smallest window of TCP (RFC 5681)
constexpr double kMaxRate = 1e12;          // keeps rates and windows far from the limits of 64 bits
constexpr double kCwndGain = 2.0;          // twice what is in flight without a queue, so that the window does not bind
constexpr double kTimeoutFactor = 0.5;     // WebRTC: half the rate when feedback fails to come

}  // namespace

void VivaceParameters::Describe(ParameterReader& reader) {
  reader.Field("throughput_exponent", throughput_exponent, 0.01, 1.0);
  reader.Field("rtt_gradient_coefficient", rtt_gradient_coefficient, 0.0, 1e6);
  reader.Field("loss_coefficient", loss_coefficient, 0.0, 1e6);
  reader.Field("trial_step", trial_step, 0.001, 0.5);
  reader.Field("conversion_factor", conversion_factor, 1e-6, 1e6);
  reader.Field("change_boundary", change_boundary, 0.001, 0.5);
  reader.Field("change_boundary_step", change_boundary_step, 0.0, 0.5);
  reader.Field("rtt_gradient_threshold", rtt_gradient_threshold, 0.0, 1.0);
  reader.Field("min_interval_packets", min_interval_packets, 2, 100'000);
  reader.Field("has_double_check", has_double_check);
}

void MonitorInterval::OnAck(const AckEvent& ack) {
  const RateSample& sample = ack.sample;
  if (!sample.is_valid || sample.prior_delivered < first_delivered_ || sample.prior_delivered >= end_delivered_) return;
  acked_ += ack.bytes_acked;
  lost_ += ack.bytes_lost;
  is_app_limited_ |= sample.is_app_limited;
  if (ack.rtt <= 0) return;
  const double time = static_cast<double>(ack.now - ack.rtt - start_) / kSecond;
  const double rtt = static_cast<double>(ack.rtt) / kSecond;
  count_ += 1.0;
  sum_time_ += time;
  sum_rtt_ += rtt;
  sum_time_rtt_ += time * rtt;
  sum_time_time_ += time * time;
}

double MonitorInterval::LossRate() const {
  const Bytes all = acked_ + lost_;
  return all > 0 ? static_cast<double>(lost_) / static_cast<double>(all) : 0.0;
}

double MonitorInterval::RttGradient() const {
  const double spread = count_ * sum_time_time_ - sum_time_ * sum_time_;
  return spread > 0.0 ? (count_ * sum_time_rtt_ - sum_time_ * sum_rtt_) / spread : 0.0;
}

VivaceController::VivaceController(const Connection& connection, const VivaceParameters& parameters)
    : connection_(connection), parameters_(parameters), random_(connection.seed) {
  UpdateRtt(connection.initial_rtt);
}

void VivaceController::OnAck(const AckEvent& ack) {
  UpdateRtt(ack.rtt);
  if (smoothed_rtt_ == 0) return;
  for (std::size_t i = 0; i < std::min(trials_sent_ + 1, trial_count_); ++i) trials_[i].OnAck(ack);
  if (trial_count_ == 0) {
    StartTrials(ack);
  } else if (trials_sent_ < trial_count_) {
    const Bytes min_bytes = parameters_.min_interval_packets * connection_.packet_bytes;
    if (!trials_[trials_sent_].IsOver(ack.now, smoothed_rtt_, ack.sent, min_bytes)) return;
    trials_[trials_sent_++].End(ack.delivered);
    if (trials_sent_ < trial_count_) StartInterval(ack, trial_rates_[trials_sent_]);
  } else if (trials_[trial_count_ - 1].IsMeasured(ack.sample)) {
    EndTrials();
    StartTrials(ack);
  }
}

void VivaceController::OnRecovery(Recovery state, Nanoseconds /*now*/, Bytes /*in_flight*/) {
  if (state != Recovery::kLoss) return;
  SetRate(kTimeoutFactor * rate_);
  trial_count_ = 0;
}

Decision VivaceController::decision() const {
  if (smoothed_rtt_ == 0) {
    return {.cwnd = connection_.initial_cwnd,
            .pacing_rate = RateOf(connection_.initial_cwnd, kMillisecond),
            .send_quantum = connection_.packet_bytes,
            .is_paced = true,
            .is_app_limited = false};
  }
  const bool is_trial = trials_sent_ < trial_count_;
  const auto rate = static_cast<BitsPerSecond>(is_trial ? trials_[trials_sent_].rate() : rate_);
  return {.cwnd = static_cast<Bytes>(kCwndGain * BytesIn(rate, smoothed_rtt_)) + connection_.packet_bytes,
          .pacing_rate = std::max(rate, BitsPerSecond{1}),
          .send_quantum = connection_.packet_bytes,
          .is_paced = true,
          .is_app_limited = false};
}

Metrics VivaceController::metrics() const {
  Metrics metrics;
  const Mode mode = is_starting_ ? Mode::kSlowStart : Mode::kCongestionAvoidance;
  metrics.Set(Metric::mode, static_cast<double>(mode));
  return metrics;
}

void VivaceController::UpdateRtt(Nanoseconds rtt) {
  if (rtt <= 0) return;
  // RFC 6298, equation (2.3): SRTT with alpha = 1/8.
  smoothed_rtt_ = smoothed_rtt_ == 0 ? rtt : smoothed_rtt_ + (rtt - smoothed_rtt_) / 8;
  if (rate_ == 0.0) SetRate(static_cast<double>(RateOf(connection_.initial_cwnd, smoothed_rtt_)));
}

void VivaceController::StartTrials(const AckEvent& ack) {
  if (is_starting_) {
    trial_rates_[0] = rate_;
    trial_count_ = 1;
  } else {
    const double step = random_.Below(2) == 0 ? parameters_.trial_step : -parameters_.trial_step;
    trial_rates_ = {rate_ * (1.0 + step), rate_ * (1.0 - step)};
    trial_count_ = 2;
  }
  trials_sent_ = 0;
  StartInterval(ack, trial_rates_[0]);
}

void VivaceController::StartInterval(const AckEvent& ack, double rate) {
  trials_[trials_sent_] = MonitorInterval(rate, ack.now, ack.delivered, ack.sent);
}

void VivaceController::EndTrials() {
  const auto trials_end = trials_.begin() + static_cast<std::ptrdiff_t>(trial_count_);
  if (std::any_of(trials_.begin(), trials_end, [](const MonitorInterval& trial) { return trial.is_app_limited(); })) {
    return;  // the rates were not those of the trials
  }
  if (is_starting_) {
    const double utility = Utility(trials_[0]);
    if (utility > last_utility_) {
      last_utility_ = utility;
      SetRate(2.0 * rate_);
    } else {
      is_starting_ = false;
      SetRate(rate_ / 2.0);
    }
    return;
  }
  const MonitorInterval& faster = trials_[trials_[0].rate() > trials_[1].rate() ? 0 : 1];
  const MonitorInterval& slower = trials_[trials_[0].rate() > trials_[1].rate() ? 1 : 0];
  // A faster trial that loses less may have been disturbed by others.
  is_repeated_ = parameters_.has_double_check && !is_repeated_ && faster.LossRate() < slower.LossRate();
  if (is_repeated_) return;
  const double distance_mbps = (faster.rate() - slower.rate()) / kMegabit;
  SetRate(rate_ + RateChange((Utility(faster) - Utility(slower)) / distance_mbps));
}

double VivaceController::Utility(const MonitorInterval& interval) const {
  const double mbps = interval.rate() / kMegabit;
  double gradient = interval.RttGradient();
  if (std::abs(gradient) < parameters_.rtt_gradient_threshold) gradient = 0.0;
  return Pow(mbps, parameters_.throughput_exponent) - parameters_.rtt_gradient_coefficient * mbps * gradient -
         parameters_.loss_coefficient * mbps * interval.LossRate();
}

double VivaceController::RateChange(double gradient) {
  if (gradient == 0.0) {
    same_direction_ = cut_changes_ = 0;
    return 0.0;
  }
  const std::int64_t sign = gradient > 0.0 ? 1 : -1;
  if (sign * same_direction_ < 0) same_direction_ = cut_changes_ = 0;
  same_direction_ += sign;
  const std::int64_t decisions = std::abs(same_direction_);
  // The confidence amplifier m.
  const std::int64_t amplifier = decisions <= 3 ? decisions : 2 * decisions - 3;
  const double change = static_cast<double>(amplifier) * parameters_.conversion_factor * std::abs(gradient) * kMegabit;
  const auto boundary = [this](std::int64_t cuts) {
    return rate_ * (parameters_.change_boundary + static_cast<double>(cuts) * parameters_.change_boundary_step);
  };
  if (change > boundary(cut_changes_)) return static_cast<double>(sign) * boundary(cut_changes_++);
  // The smallest boundary that allows this change.
  while (cut_changes_ > 0 && change <= boundary(cut_changes_ - 1)) --cut_changes_;
  return static_cast<double>(sign) * change;
}

void VivaceController::SetRate(double rate) {
  const auto least = static_cast<double>(RateOf(connection_.packet_bytes, smoothed_rtt_)) * kMinPacketsPerRtt;
  rate_ = std::clamp(rate, std::min(least, kMaxRate), kMaxRate);
}

}  // namespace bbrgym
