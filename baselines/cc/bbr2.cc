// BBR version 2 (v2alpha).
//
//   bandwidth = min(max over 2 cycles, bandwidth_lo)      cwnd <= inflight_hi (less 15 % while cruising), inflight_lo
//   loss rate > 2 %: inflight_hi = max(tx_in_flight, 0.7 BDP)         probing without it: inflight_hi grows, slowly
//   first loss in a round, when not probing: bandwidth_lo, inflight_lo x 0.7, but not below what was just delivered
//
//   Startup --(plateau, or 8 losses and > 2 %)--> Drain --> ProbeBW: Down -> Cruise -> Refill -> Up -> Down …
//                                                              <--(every 5 s without a smaller RTT)--> ProbeRTT
//
// Source: google/bbr v2alpha, net/ipv4/tcp_bbr2.c at 0487ade5; draft-cardwell-iccrg-bbr-congestion-control-01. Without
// ECN.

#include "baselines/cc/bbr2.h"

#include <algorithm>
#include <cmath>

namespace bbrgym {

void Bbr2Parameters::Describe(ParameterReader& reader) {
  reader.Field("startup_gain", startup_gain, 1.0, 10.0);
  reader.Field("drain_gain", drain_gain, 0.01, 1.0);
  reader.Field("cwnd_gain", cwnd_gain, 0.1, 100.0);
  reader.Field("probe_up_gain", probe_up_gain, 1.0, 10.0);
  reader.Field("probe_down_gain", probe_down_gain, 0.01, 1.0);
  reader.Field("loss_threshold", loss_threshold, 0.0001, 1.0);
  reader.Field("beta", beta, 0.0, 0.99);
  reader.Field("headroom", headroom, 0.0, 0.99);
  reader.Field("startup_loss_events", startup_loss_events, 1, 15);
  reader.Field("probe_wait_s", probe_wait_s, 0.01, 3600.0);
  reader.Field("probe_wait_random_s", probe_wait_random_s, 0.0, 3600.0);
  reader.Field("reno_rounds", reno_rounds, 1, 1'000'000);
  reader.Field("probe_rtt_interval_s", probe_rtt_interval_s, 0.1, 3600.0);
  reader.Field("min_rtt_window_s", min_rtt_window_s, 0.1, 3600.0);
  reader.Field("probe_rtt_ms", probe_rtt_ms, 1.0, 10'000.0);
  reader.Field("probe_rtt_gain", probe_rtt_gain, 0.0, 1.0);
  reader.Field("min_cwnd_packets", min_cwnd_packets, 1, 1000);
  reader.Field("full_pipe_growth", full_pipe_growth, 1.0, 10.0);
  reader.Field("full_pipe_rounds", full_pipe_rounds, 1, 1000);
  reader.Field("pacing_margin", pacing_margin, 0.0, 0.5);
  reader.Field("extra_acked_gain", extra_acked_gain, 0.0, 10.0);
  reader.Field("burst_packets", burst_packets, 1, 1000);
  reader.Field("has_lower_bounds", has_lower_bounds);
}

Bbr2Controller::Bbr2Controller(const Connection& connection, const Bbr2Parameters& parameters)
    : connection_(connection),
      parameters_(parameters),
      random_(connection.seed),
      full_pipe_(parameters.full_pipe_growth, parameters.full_pipe_rounds),
      cwnd_(connection.initial_cwnd) {
  gains_ = {.cwnd = parameters.startup_gain, .pacing = parameters.startup_gain};
  has_rtt_ = connection.initial_rtt > 0;
  SetPacingRate(RateOf(connection.initial_cwnd, has_rtt_ ? connection.initial_rtt : kMillisecond), gains_.pacing);
}

void Bbr2Controller::OnAck(const AckEvent& ack) {
  Observe(ack);
  delivered_ = ack.delivered;
  UpdateRoundsAndBandwidth(ack);
  UpdateLowerBounds(ack);
  if (ack.sample.is_valid && ack.bytes_acked > 0) {
    extra_acked_.OnAck(ack.now, ack.bytes_acked, Bandwidth(), cwnd_, is_round_start_);
  }
  UpdateStartupLoss(ack);
  UpdateFullPipe(ack);
  UpdateDrain(ack);
  UpdateCycle(ack);
  UpdateMinRtt(ack);
  gains_ = ChooseGains();
  if (!has_rtt_ && min_rtt_ > 0) {
    has_rtt_ = true;
    pacing_rate_ = 0;
    SetPacingRate(RateOf(connection_.initial_cwnd, min_rtt_), parameters_.startup_gain);
  }
  SetPacingRate(Bandwidth(), gains_.pacing);
  UpdateCwnd(ack);
}

void Bbr2Controller::OnRecovery(Recovery state, Nanoseconds /*now*/, Bytes in_flight) {
  if (state != Recovery::kOpen && recovery_ == Recovery::kOpen) SaveCwnd();
  if (state == Recovery::kLoss) {
    full_pipe_.ForgetBandwidth();
    if (!IsProbingBandwidth() && inflight_lo_ == kNoBound) inflight_lo_ = std::max(cwnd_, cwnd_before_recovery_);
    cwnd_ = std::max(in_flight, Bytes{0}) + connection_.packet_bytes;
  } else if (recovery_ == Recovery::kLoss) {
    cwnd_ = std::max(cwnd_, cwnd_before_recovery_);
  }
  recovery_ = state;
}

void Bbr2Controller::OnRestart(Nanoseconds now) {
  is_idle_restart_ = true;
  extra_acked_.Restart();
  if (mode_ == Mode::kProbeBw) {
    SetPacingRate(Bandwidth(), 1.0);
  } else if (mode_ == Mode::kProbeRtt) {
    EndProbeRttIfDue(now);
  }
}

Decision Bbr2Controller::decision() const {
  return {.cwnd = cwnd_,
          .pacing_rate = pacing_rate_,
          .send_quantum = parameters_.burst_packets * connection_.packet_bytes,
          .is_paced = true,
          .is_app_limited = is_held_back_};
}

Metrics Bbr2Controller::metrics() const {
  const auto packet_bytes = static_cast<double>(connection_.packet_bytes);
  Metrics metrics;
  metrics.Set(Metric::mode, static_cast<double>(mode_));
  metrics.Set(Metric::round, static_cast<double>(rounds_.count()));
  metrics.Set(Metric::max_bandwidth_mbps, static_cast<double>(max_bandwidth_.Best()) / 1e6);
  if (min_rtt_ > 0) {
    metrics.Set(Metric::min_rtt_ms, static_cast<double>(min_rtt_) / kMillisecond);
    metrics.Set(Metric::bdp_packets, BdpBytes(max_bandwidth_.Best()) / packet_bytes);
  }
  metrics.Set(Metric::cwnd_gain, gains_.cwnd);
  metrics.Set(Metric::pacing_gain, gains_.pacing);
  metrics.Set(Metric::is_full_pipe, IsPipeFull() ? 1.0 : 0.0);
  if (mode_ == Mode::kProbeBw) metrics.Set(Metric::cycle_index, static_cast<double>(phase_));
  metrics.Set(Metric::extra_acked_packets, static_cast<double>(extra_acked_.Most()) / packet_bytes);
  if (bandwidth_lo_ != kNoRateBound) metrics.Set(Metric::bandwidth_lo_mbps, static_cast<double>(bandwidth_lo_) / 1e6);
  if (inflight_hi_ != kNoBound) {
    metrics.Set(Metric::inflight_hi_packets, static_cast<double>(inflight_hi_) / packet_bytes);
  }
  if (inflight_lo_ != kNoBound) {
    metrics.Set(Metric::inflight_lo_packets, static_cast<double>(inflight_lo_) / packet_bytes);
  }
  return metrics;
}

Gains Bbr2Controller::ChooseGains() const {
  switch (mode_) {
    case Mode::kStartup:
      return {.cwnd = parameters_.startup_gain, .pacing = parameters_.startup_gain};
    case Mode::kDrain:
      return {.cwnd = parameters_.startup_gain, .pacing = parameters_.drain_gain};
    case Mode::kProbeBw:
      return {.cwnd = parameters_.cwnd_gain,
              .pacing = phase_ == Phase::kUp     ? parameters_.probe_up_gain
                        : phase_ == Phase::kDown ? parameters_.probe_down_gain
                                                 : 1.0};
    default:
      return {.cwnd = 1.0, .pacing = 1.0};
  }
}

void Bbr2Controller::UpdateRoundsAndBandwidth(const AckEvent& ack) {
  is_round_start_ = false;
  if (!ack.sample.is_valid) return;
  if (rounds_.OnDelivered(ack.sample.prior_delivered, ack.delivered)) {
    is_round_start_ = true;
    probe_timer_.OnRound();
  }
  if (!ack.sample.is_app_limited || ack.sample.delivery_rate >= max_bandwidth_.Best()) {
    max_bandwidth_.Update(ack.sample.delivery_rate);
  }
}

void Bbr2Controller::UpdateLowerBounds(const AckEvent& ack) {
  is_loss_round_start_ = false;
  if (ack.bytes_lost > 0 && !has_loss_in_round_) {
    // The first loss begins a round; at the end of that round the bounds react.
    has_loss_in_round_ = true;
    loss_rounds_.Restart(ack.delivered);
  }
  if (!ack.sample.is_valid) return;
  bandwidth_latest_ = std::max(bandwidth_latest_, ack.sample.delivery_rate);
  inflight_latest_ = std::max(inflight_latest_, ack.sample.delivered);
  is_loss_round_start_ = loss_rounds_.OnDelivered(ack.sample.prior_delivered, ack.delivered);
  if (!is_loss_round_start_) return;
  // While probing, losses are the result of the probe and concern the upper bound.
  if (has_loss_in_round_ && parameters_.has_lower_bounds && !IsProbingBandwidth()) {
    if (bandwidth_lo_ == kNoRateBound) bandwidth_lo_ = max_bandwidth_.Best();
    if (inflight_lo_ == kNoBound) inflight_lo_ = cwnd_;
    const double kept = 1.0 - parameters_.beta;
    bandwidth_lo_ = std::max(bandwidth_latest_, static_cast<BitsPerSecond>(kept * static_cast<double>(bandwidth_lo_)));
    inflight_lo_ = std::max(inflight_latest_, static_cast<Bytes>(kept * static_cast<double>(inflight_lo_)));
  }
  has_loss_in_round_ = false;
  bandwidth_latest_ = ack.sample.delivery_rate;
  inflight_latest_ = ack.sample.delivered;
}

void Bbr2Controller::UpdateStartupLoss(const AckEvent& ack) {
  if (IsPipeFull()) return;
  if (ack.bytes_lost > 0) ++loss_events_in_round_;
  if (!is_loss_round_start_) return;
  if (recovery_ == Recovery::kRecovery && loss_events_in_round_ >= parameters_.startup_loss_events &&
      IsInflightTooHigh(ack)) {
    is_full_by_loss_ = true;
    inflight_hi_ = std::max(InflightTarget(max_bandwidth_.Best(), 1.0), MinCwnd());
  }
  loss_events_in_round_ = 0;
}

void Bbr2Controller::UpdateFullPipe(const AckEvent& ack) {
  if (is_round_start_ && !ack.sample.is_app_limited) full_pipe_.OnRound(max_bandwidth_.Best());
}

void Bbr2Controller::UpdateDrain(const AckEvent& ack) {
  if (mode_ == Mode::kStartup && IsPipeFull()) {
    mode_ = Mode::kDrain;
    ResetCongestionSignals();  // the losses of Startup must not lower the bounds later
  }
  if (mode_ == Mode::kDrain && ack.in_flight <= InflightTarget(max_bandwidth_.Best(), 1.0)) {
    mode_ = Mode::kProbeBw;
    StartDown(ack.now, ack.delivered);
  }
}

void Bbr2Controller::UpdateCycle(const AckEvent& ack) {
  if (!IsPipeFull()) return;
  if (UpdateUpperBound(ack) || mode_ != Mode::kProbeBw) return;
  switch (phase_) {
    case Phase::kCruise:
      if (IsTimeToProbe(ack.now)) StartRefill(ack.delivered);
      break;
    case Phase::kRefill:
      // One round at the bandwidth refills the pipe, so that losses after it are due to the probe.
      if (is_round_start_) {
        has_probe_samples_ = true;
        StartUp(ack);
      }
      break;
    case Phase::kUp: {
      const bool is_risky = was_probe_too_high_ && ack.prior_in_flight >= inflight_hi_;
      if (is_risky) is_risky_probe_stopped_ = true;
      const bool has_lasted_min_rtt = ack.now - up_start_ > min_rtt_;
      if (is_risky || (has_lasted_min_rtt &&
                       ack.prior_in_flight >= InflightTarget(max_bandwidth_.Best(), parameters_.probe_up_gain))) {
        was_probe_too_high_ = false;
        StartDown(ack.now, ack.delivered);
      }
      break;
    }
    case Phase::kDown:
      if (IsTimeToProbe(ack.now)) {
        StartRefill(ack.delivered);
      } else if (ack.prior_in_flight <= std::min(InflightTarget(max_bandwidth_.Best(), 1.0), InflightWithHeadroom())) {
        StartCruise();
      }
      break;
  }
}

bool Bbr2Controller::UpdateUpperBound(const AckEvent& ack) {
  if (ack_phase_ == AckPhase::kProbeStarting && is_round_start_) ack_phase_ = AckPhase::kProbeFeedback;
  if (ack_phase_ == AckPhase::kProbeStopping && is_round_start_) {
    // The last packets of the probe are acknowledged: the cycle is over.
    has_probe_samples_ = false;
    ack_phase_ = AckPhase::kInit;
    if (mode_ == Mode::kProbeBw && !ack.sample.is_app_limited) max_bandwidth_.Advance();
    if (mode_ == Mode::kProbeBw && is_risky_probe_stopped_ && !was_probe_too_high_) {
      StartRefill(ack.delivered);  // the probe stopped out of caution, and nothing was lost: probe again
      return true;
    }
  }
  if (IsInflightTooHigh(ack)) {
    if (has_probe_samples_) OnInflightTooHigh(ack);
    return false;
  }
  if (inflight_hi_ == kNoBound || !ack.sample.is_valid) return false;
  inflight_hi_ = std::max(inflight_hi_, ack.sample.tx_in_flight);
  if (mode_ == Mode::kProbeBw && phase_ == Phase::kUp) RaiseUpperBound(ack);
  return false;
}

bool Bbr2Controller::IsInflightTooHigh(const AckEvent& ack) const {
  return ack.sample.is_valid && static_cast<double>(ack.sample.lost_since_send) >
                                    parameters_.loss_threshold * static_cast<double>(ack.sample.tx_in_flight);
}

void Bbr2Controller::OnInflightTooHigh(const AckEvent& ack) {
  was_probe_too_high_ = true;
  has_probe_samples_ = false;  // once per probe
  if (!ack.sample.is_app_limited) {
    // In whole packets, so that the bytes in flight can reach it.
    const auto packets = static_cast<std::int64_t>((1.0 - parameters_.beta) * static_cast<double>(TargetInflight()) /
                                                   static_cast<double>(connection_.packet_bytes));
    const Bytes reduced = packets * connection_.packet_bytes;
    inflight_hi_ = std::max({ack.sample.tx_in_flight, reduced, MinCwnd()});
  }
  if (mode_ == Mode::kProbeBw && phase_ == Phase::kUp) StartDown(ack.now, ack.delivered);
}

void Bbr2Controller::RaiseUpperBound(const AckEvent& ack) {
  if (!ack.is_cwnd_limited || cwnd_ < inflight_hi_) {
    growth_.ForgetAcked();
    return;
  }
  inflight_hi_ += growth_.OnAck(ack.bytes_acked) * connection_.packet_bytes;
  if (is_round_start_) growth_.StartRound(cwnd_, connection_.packet_bytes);
}

bool Bbr2Controller::IsTimeToProbe(Nanoseconds now) const {
  return probe_timer_.IsOver(now, TargetInflight() / connection_.packet_bytes, parameters_.reno_rounds);
}

void Bbr2Controller::StartRefill(Bytes delivered) {
  ResetLowerBounds();
  growth_.Restart();
  is_risky_probe_stopped_ = false;
  ack_phase_ = AckPhase::kRefilling;
  rounds_.Restart(delivered);
  phase_ = Phase::kRefill;
}

void Bbr2Controller::StartUp(const AckEvent& ack) {
  ack_phase_ = AckPhase::kProbeStarting;
  rounds_.Restart(ack.delivered);
  up_start_ = ack.now;
  phase_ = Phase::kUp;
  growth_.StartRound(cwnd_, connection_.packet_bytes);
}

void Bbr2Controller::StartDown(Nanoseconds now, Bytes delivered) {
  ResetCongestionSignals();
  growth_.Stop();
  probe_timer_.Start(now, parameters_.probe_wait_s, parameters_.probe_wait_random_s, random_);
  ack_phase_ = AckPhase::kProbeStopping;
  rounds_.Restart(delivered);
  phase_ = Phase::kDown;
}

void Bbr2Controller::StartCruise() {
  if (inflight_lo_ != kNoBound) inflight_lo_ = std::min(inflight_lo_, inflight_hi_);
  phase_ = Phase::kCruise;
}

void Bbr2Controller::UpdateMinRtt(const AckEvent& ack) {
  const auto interval = static_cast<Nanoseconds>(parameters_.probe_rtt_interval_s * kSecond);
  const auto window = static_cast<Nanoseconds>(parameters_.min_rtt_window_s * kSecond);
  const bool is_probe_due = probe_rtt_min_ > 0 && ack.now > probe_rtt_min_stamp_ + interval;
  if (ack.rtt > 0 && (probe_rtt_min_ == 0 || ack.rtt < probe_rtt_min_ || is_probe_due)) {
    probe_rtt_min_ = ack.rtt;
    probe_rtt_min_stamp_ = ack.now;
  }
  if (probe_rtt_min_ > 0 && (min_rtt_ == 0 || probe_rtt_min_ <= min_rtt_ || ack.now > min_rtt_stamp_ + window)) {
    min_rtt_ = probe_rtt_min_;
    min_rtt_stamp_ = probe_rtt_min_stamp_;
  }
  if (is_probe_due && !is_idle_restart_ && mode_ != Mode::kProbeRtt) {
    SaveCwnd();
    mode_ = Mode::kProbeRtt;
    probe_rtt_end_ = 0;
    ack_phase_ = AckPhase::kProbeStopping;
    rounds_.Restart(ack.delivered);
  }
  // On its last ACK, too: what is in flight then is as little.
  is_held_back_ = mode_ == Mode::kProbeRtt;
  if (is_held_back_) {
    if (probe_rtt_end_ == 0) {
      if (ack.in_flight <= ProbeRttCwnd()) {
        probe_rtt_end_ = ack.now + static_cast<Nanoseconds>(parameters_.probe_rtt_ms * kMillisecond);
        is_probe_rtt_round_over_ = false;
        rounds_.Restart(ack.delivered);
      }
    } else {
      if (is_round_start_) is_probe_rtt_round_over_ = true;
      if (is_probe_rtt_round_over_) EndProbeRttIfDue(ack.now);
    }
  }
  if (ack.sample.is_valid) is_idle_restart_ = false;
}

void Bbr2Controller::EndProbeRttIfDue(Nanoseconds now) {
  if (probe_rtt_end_ == 0 || now <= probe_rtt_end_) return;
  probe_rtt_min_stamp_ = now;
  cwnd_ = std::max(cwnd_, cwnd_before_recovery_);
  ResetLowerBounds();
  if (IsPipeFull()) {
    mode_ = Mode::kProbeBw;
    StartDown(now, delivered_);
    StartCruise();
  } else {
    mode_ = Mode::kStartup;
  }
}

void Bbr2Controller::UpdateCwnd(const AckEvent& ack) {
  const bool is_full = IsPipeFull();
  if (ack.bytes_acked > 0) {
    Bytes extra = 0;
    if (is_full) {
      const double limit = BytesIn(Bandwidth(), 100 * kMillisecond);
      extra =
          static_cast<Bytes>(std::min(parameters_.extra_acked_gain * static_cast<double>(extra_acked_.Most()), limit));
    }
    const Bytes target = InflightTarget(Bandwidth(), gains_.cwnd, extra);
    if (is_full) {
      cwnd_ = std::min(cwnd_ + ack.bytes_acked, target);
    } else if (cwnd_ < target || cwnd_ < 2 * connection_.initial_cwnd) {
      cwnd_ += ack.bytes_acked;
    }
    cwnd_ = std::max(cwnd_, MinCwnd());
  }
  if (mode_ == Mode::kProbeRtt) cwnd_ = std::min(cwnd_, ProbeRttCwnd());
  if (!is_full) return;
  Bytes bound = kNoBound;
  if (mode_ == Mode::kProbeBw && phase_ != Phase::kCruise) {
    bound = inflight_hi_;
  } else if (mode_ == Mode::kProbeBw || mode_ == Mode::kProbeRtt) {
    bound = InflightWithHeadroom();
  }
  cwnd_ = std::min(cwnd_, std::max(std::min(bound, inflight_lo_), MinCwnd()));
}

void Bbr2Controller::SetPacingRate(BitsPerSecond bandwidth, double gain) {
  const auto rate =
      static_cast<BitsPerSecond>(static_cast<double>(bandwidth) * gain * (1.0 - parameters_.pacing_margin));
  const bool is_full = IsPipeFull();
  if (is_full || rate > pacing_rate_) pacing_rate_ = std::max(rate, BitsPerSecond{1});
}

void Bbr2Controller::ResetCongestionSignals() {
  has_loss_in_round_ = false;
  bandwidth_latest_ = 0;
  inflight_latest_ = 0;
}

void Bbr2Controller::ResetLowerBounds() {
  bandwidth_lo_ = kNoRateBound;
  inflight_lo_ = kNoBound;
}

void Bbr2Controller::SaveCwnd() {
  const bool is_normal = recovery_ == Recovery::kOpen && mode_ != Mode::kProbeRtt;
  cwnd_before_recovery_ = is_normal ? cwnd_ : std::max(cwnd_before_recovery_, cwnd_);
}

bool Bbr2Controller::IsProbingBandwidth() const {
  return mode_ == Mode::kStartup || (mode_ == Mode::kProbeBw && (phase_ == Phase::kRefill || phase_ == Phase::kUp));
}

Bytes Bbr2Controller::InflightTarget(BitsPerSecond bandwidth, double gain, Bytes extra) const {
  if (min_rtt_ == 0) return connection_.initial_cwnd;
  const auto packet_bytes = static_cast<double>(connection_.packet_bytes);
  auto packets = static_cast<std::int64_t>(std::ceil(gain * BdpBytes(bandwidth) / packet_bytes));
  packets += extra / connection_.packet_bytes;
  packets = std::max(packets, 3 * parameters_.burst_packets);
  if (mode_ == Mode::kProbeBw && phase_ == Phase::kUp) packets += 2;  // so that 1.25 is more than 1 on a small BDP
  return packets * connection_.packet_bytes;
}

Bytes Bbr2Controller::InflightWithHeadroom() const {
  if (inflight_hi_ == kNoBound) return kNoBound;
  const auto room = static_cast<Bytes>(Headroom() * static_cast<double>(inflight_hi_));
  return std::max(inflight_hi_ - std::max(room, connection_.packet_bytes), MinCwnd());
}

Bytes Bbr2Controller::TargetInflight() const {
  return std::min(InflightTarget(Bandwidth(), 1.0), cwnd_);
}

Bytes Bbr2Controller::ProbeRttCwnd() const {
  const auto half = static_cast<Bytes>(parameters_.probe_rtt_gain * BdpBytes(Bandwidth()));
  return std::max(half, MinCwnd());
}

}  // namespace bbrgym
