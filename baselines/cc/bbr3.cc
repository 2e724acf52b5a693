// BBR version 3.
//
//   bandwidth = min(max over 2 cycles, bandwidth_lo)      cwnd <= inflight_hi (less 15 % while cruising), inflight_lo
//   loss rate > 2 % in a probe: inflight_hi = max(tx_in_flight, 0.7 BDP)    probing without it: inflight_hi grows
//   a loss in a round, when not probing: bandwidth_lo, inflight_lo x 0.7, but not below what was just delivered
//
//   Startup --(plateau, or 6 losses and > 2 %)--> Drain --> ProbeBW: Down -> Cruise -> Refill -> Up -> Down …
//                                                              <--(every 5 s without a smaller RTT)--> ProbeRTT
//
// What differs from BBRv2: a probe goes on until the bandwidth stops growing, and the gains.
//
// Source: draft-ietf-ccwg-bbr-06, which decides where it differs from google/bbr v3, net/ipv4/tcp_bbr.c at 001a430b.

#include "baselines/cc/bbr3.h"

#include <utility>

#include "baselines/cc/elementary.h"

namespace bbrgym {

void Bbr3Parameters::Describe(ParameterReader& reader) {
  reader.Field("startup_gain", startup_gain, 1.0, 10.0);
  reader.Field("drain_gain", drain_gain, 0.01, 1.0);
  reader.Field("drain_rounds", drain_rounds, 0, 1'000'000);
  reader.Field("cwnd_gain", cwnd_gain, 0.1, 100.0);
  reader.Field("probe_up_gain", probe_up_gain, 1.0, 10.0);
  reader.Field("probe_up_cwnd_gain", probe_up_cwnd_gain, 0.1, 100.0);
  reader.Field("probe_down_gain", probe_down_gain, 0.01, 1.0);
  reader.Field("loss_threshold", loss_threshold, 0.0001, 0.99);
  reader.Field("beta", beta, 0.01, 1.0);
  reader.Field("headroom", headroom, 0.0, 0.99);
  reader.Field("startup_loss_events", startup_loss_events, 1, 1000);
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
  reader.Field("full_pipe_every_ack", full_pipe_every_ack);
  reader.Field("pacing_margin", pacing_margin, 0.0, 0.5);
  reader.Field("extra_acked_gain", extra_acked_gain, 0.0, 10.0);
  reader.Field("extra_acked_rounds", extra_acked_rounds, 1, 1000);
  reader.Field("extra_acked_limit_ms", extra_acked_limit_ms, 0.0, 10'000.0);
  reader.Field("burst_packets", burst_packets, 0, 1000);
  reader.Field("restores_cwnd", restores_cwnd);
  reader.Field("drain_forgets_losses", drain_forgets_losses);
  reader.Field("timeout_sets_bound", timeout_sets_bound);
  reader.Field("ecn_factor", ecn_factor, 0.0, 1.0);
  reader.Field("ecn_alpha_gain", ecn_alpha_gain, 0.0, 1.0);
  reader.Field("ecn_threshold", ecn_threshold, 0.0001, 1.0);
  reader.Field("startup_ecn_rounds", startup_ecn_rounds, 1, 1000);
  reader.Field("ecn_reprobe_gain", ecn_reprobe_gain, 0.0, 1.0);
  reader.Field("ecn_max_rtt_ms", ecn_max_rtt_ms, 0.0, 100'000.0);
}

Bbr3Controller::Bbr3Controller(const Connection& connection, const Bbr3Parameters& parameters)
    : connection_(connection),
      parameters_(parameters),
      random_(connection.seed),
      marked_(parameters.ecn_alpha_gain),
      full_pipe_(parameters.full_pipe_growth, parameters.full_pipe_rounds),
      min_rtt_(connection.initial_rtt),
      probe_rtt_min_(static_cast<Nanoseconds>(parameters.probe_rtt_interval_s * kSecond)),
      cwnd_(connection.initial_cwnd) {
  gains_ = ChooseGains();
  has_rtt_ = connection.initial_rtt > 0;
  SetPacingRate(RateOf(connection.initial_cwnd, has_rtt_ ? connection.initial_rtt : kMillisecond), gains_.pacing);
}

void Bbr3Controller::OnAck(const AckEvent& ack) {
  delivered_ = ack.delivered;
  UpdateEcnUse();
  UpdateLoss(ack);
  UpdateLatestDelivery(ack);
  UpdateRoundsAndBandwidth(ack);
  UpdateMarks(ack);
  if (is_loss_round_start_) UpdateLowerBounds();
  UpdateExtraAcked(ack);
  UpdateFullPipe(ack);
  UpdateStartup(ack);
  UpdateDrain(ack);
  UpdateCycle(ack);
  UpdateMinRtt(ack);
  UpdateProbeRtt(ack);
  if (is_loss_round_start_) {
    bandwidth_latest_ = ack.sample.delivery_rate;
    inflight_latest_ = ack.sample.delivered;
  }
  gains_ = ChooseGains();
  if (!has_rtt_ && min_rtt_ > 0) {
    has_rtt_ = true;
    pacing_rate_ = 0;
    SetPacingRate(RateOf(connection_.initial_cwnd, min_rtt_), parameters_.startup_gain);
  }
  SetPacingRate(Bandwidth(), gains_.pacing);
  UpdateCwnd(ack);
}

void Bbr3Controller::OnRecovery(Recovery state, Nanoseconds /*now*/, Bytes in_flight) {
  if (state == Recovery::kOpen) {
    if (parameters_.restores_cwnd || recovery_ == Recovery::kLoss) RestoreCwnd();
    is_undo_saved_ = false;
  } else {
    SaveStateUponLoss();
  }
  if (state == Recovery::kLoss) {
    if (parameters_.timeout_sets_bound && !IsProbingBandwidth() && inflight_lo_ == kNoBound) {
      inflight_lo_ = std::max(cwnd_, cwnd_before_recovery_);
    }
    cwnd_ = std::max(in_flight, Bytes{0}) + connection_.packet_bytes;
  }
  recovery_ = state;
}

void Bbr3Controller::OnSpuriousRecovery() {
  RestoreCwnd();
  has_loss_in_round_ = false;
  full_pipe_.Restart();
  bandwidth_lo_ = std::max(bandwidth_lo_, undo_.bandwidth_lo);
  inflight_lo_ = std::max(inflight_lo_, undo_.inflight_lo);
  inflight_hi_ = std::max(inflight_hi_, undo_.inflight_hi);
  if (undo_.is_startup && mode_ != Mode::kStartup) {
    is_pipe_full_ = false;
    if (mode_ != Mode::kProbeRtt) mode_ = Mode::kStartup;
  } else if (undo_.is_up && !IsInPhase(Phase::kUp) && mode_ != Mode::kProbeRtt) {
    StartRefill(delivered_);
  }
  undo_ = {};
}

void Bbr3Controller::OnRestart(Nanoseconds now) {
  is_idle_restart_ = true;
  ack_burst_.Restart();
  if (mode_ == Mode::kProbeBw) {
    SetPacingRate(Bandwidth(), 1.0);
  } else if (mode_ == Mode::kProbeRtt) {
    EndProbeRttIfDue(now);
  }
}

Decision Bbr3Controller::decision() const {
  return {.cwnd = cwnd_,
          .pacing_rate = pacing_rate_,
          .send_quantum = BurstBytes(),
          .is_paced = true,
          .is_app_limited = is_held_back_};
}

Metrics Bbr3Controller::metrics() const {
  const auto packet_bytes = static_cast<double>(connection_.packet_bytes);
  const BitsPerSecond max_bandwidth = max_bandwidth_.Best();
  Metrics metrics;
  metrics.Set(Metric::mode, static_cast<double>(mode_));
  metrics.Set(Metric::round, static_cast<double>(rounds_.count()));
  metrics.Set(Metric::max_bandwidth_mbps, static_cast<double>(max_bandwidth) / 1e6);
  if (min_rtt_ > 0) {
    metrics.Set(Metric::min_rtt_ms, static_cast<double>(min_rtt_) / kMillisecond);
    metrics.Set(Metric::bdp_packets, BdpBytes(max_bandwidth) / packet_bytes);
  }
  metrics.Set(Metric::cwnd_gain, gains_.cwnd);
  metrics.Set(Metric::pacing_gain, gains_.pacing);
  metrics.Set(Metric::is_full_pipe, is_pipe_full_ ? 1.0 : 0.0);
  if (mode_ == Mode::kProbeBw) metrics.Set(Metric::cycle_index, static_cast<double>(phase_));
  metrics.Set(Metric::extra_acked_packets, static_cast<double>(extra_acked_.Best()) / packet_bytes);
  if (bandwidth_lo_ != kNoRateBound) metrics.Set(Metric::bandwidth_lo_mbps, static_cast<double>(bandwidth_lo_) / 1e6);
  if (inflight_hi_ != kNoBound) {
    metrics.Set(Metric::inflight_hi_packets, static_cast<double>(inflight_hi_) / packet_bytes);
  }
  if (inflight_lo_ != kNoBound) {
    metrics.Set(Metric::inflight_lo_packets, static_cast<double>(inflight_lo_) / packet_bytes);
  }
  return metrics;
}

void Bbr3Controller::UpdateEcnUse() {
  // For good, once the path is short enough.
  const auto longest = static_cast<Nanoseconds>(parameters_.ecn_max_rtt_ms * kMillisecond);
  uses_ecn_ |= parameters_.ecn_factor > 0.0 && (longest == 0 || (min_rtt_ > 0 && min_rtt_ <= longest));
}

void Bbr3Controller::UpdateLoss(const AckEvent& ack) {
  if (ack.bytes_lost > 0) {
    ++loss_events_in_round_;
    has_loss_in_cycle_ = true;
    if (!has_loss_in_round_) {
      // The first loss begins a round; at the end of that round the bounds react.
      has_loss_in_round_ = true;
      loss_rounds_.Restart(ack.delivered);
      SaveStateUponLoss();
    }
  }
  if (has_probe_samples_ && IsInflightTooHigh(ack)) OnInflightTooHigh(ack);
}

void Bbr3Controller::UpdateLatestDelivery(const AckEvent& ack) {
  is_loss_round_start_ = false;
  if (!ack.sample.is_valid) return;
  bandwidth_latest_ = std::max(bandwidth_latest_, ack.sample.delivery_rate);
  inflight_latest_ = std::max(inflight_latest_, ack.sample.delivered);
  is_loss_round_start_ = loss_rounds_.OnDelivered(ack.sample.prior_delivered, ack.delivered);
}

void Bbr3Controller::UpdateRoundsAndBandwidth(const AckEvent& ack) {
  is_round_start_ = ack.sample.is_valid && rounds_.OnDelivered(ack.sample.prior_delivered, ack.delivered);
  if (is_round_start_) {
    probe_timer_.OnRound();
    was_cwnd_limited_ = std::exchange(is_cwnd_limited_, false);
  }
  is_cwnd_limited_ |= ack.is_cwnd_limited;
  // An application-limited rate is only a lower bound of what the path can deliver.
  if (ack.sample.is_valid && (!ack.sample.is_app_limited || ack.sample.delivery_rate >= max_bandwidth_.Best())) {
    max_bandwidth_.Update(ack.sample.delivery_rate);
  }
}

void Bbr3Controller::UpdateMarks(const AckEvent& ack) {
  if (!uses_ecn_) return;
  marked_.OnAck(ack.bytes_acked, ack.bytes_marked);
  if (ack.bytes_marked > 0) has_mark_in_round_ = has_mark_in_cycle_ = true;
  if (!is_round_start_) return;
  marked_rounds_ = marked_.EndRound() >= parameters_.ecn_threshold ? marked_rounds_ + 1 : 0;
  if (!is_pipe_full_ && marked_rounds_ >= parameters_.startup_ecn_rounds) OnStartupTooHigh();
}

void Bbr3Controller::UpdateLowerBounds() {
  const bool has_loss = std::exchange(has_loss_in_round_, false);
  const bool has_mark = std::exchange(has_mark_in_round_, false);
  // While probing, losses and marks are the result of the probe and concern the upper bound.
  if ((has_loss || has_mark) && !IsProbingBandwidth()) {
    if (inflight_lo_ == kNoBound) inflight_lo_ = cwnd_;
    const auto inflight_lo = static_cast<double>(inflight_lo_);
    if (has_loss) {
      if (bandwidth_lo_ == kNoRateBound) bandwidth_lo_ = max_bandwidth_.Best();
      const double beta = parameters_.beta;
      bandwidth_lo_ =
          std::max(bandwidth_latest_, static_cast<BitsPerSecond>(beta * static_cast<double>(bandwidth_lo_)));
      inflight_lo_ = std::max(inflight_latest_, static_cast<Bytes>(beta * inflight_lo));
    }
    if (has_mark) {
      const double kept = 1.0 - parameters_.ecn_factor * marked_.average();
      inflight_lo_ = std::min(inflight_lo_, static_cast<Bytes>(kept * inflight_lo));
    }
  }
  if (recovery_ == Recovery::kOpen) is_undo_saved_ = false;
}

void Bbr3Controller::UpdateExtraAcked(const AckEvent& ack) {
  if (!ack.sample.is_valid || ack.bytes_acked <= 0) return;
  // In Startup the bandwidth is still too low, and each round measures the excess anew.
  extra_acked_.SetWindow(is_pipe_full_ ? parameters_.extra_acked_rounds : 1);
  extra_acked_.Update(rounds_.count(), ack_burst_.OnAck(ack.now, ack.bytes_acked, Bandwidth(), cwnd_));
}

void Bbr3Controller::UpdateFullPipe(const AckEvent& ack) {
  if (!ack.sample.is_valid || ack.sample.is_app_limited) return;
  if (is_round_start_) {
    full_pipe_.OnRound(ack.sample.delivery_rate);
  } else if (parameters_.full_pipe_every_ack && !full_pipe_.is_full()) {
    full_pipe_.TakeGrowth(ack.sample.delivery_rate);
  }
  is_pipe_full_ |= full_pipe_.is_full();
}

void Bbr3Controller::UpdateStartup(const AckEvent& ack) {
  if (is_loss_round_start_) {
    const bool has_many_events = std::exchange(loss_events_in_round_, 0) >= parameters_.startup_loss_events;
    if (!is_pipe_full_ && has_many_events && HasManyLosses(ack) && recovery_ == Recovery::kRecovery) {
      undo_.is_startup = true;
      OnStartupTooHigh();
    }
  }
  if (mode_ == Mode::kStartup && is_pipe_full_) {
    mode_ = Mode::kDrain;
    drain_start_ = rounds_.count();
    if (parameters_.drain_forgets_losses) ResetCongestionSignals();
  }
}

void Bbr3Controller::OnStartupTooHigh() {
  is_pipe_full_ = true;
  inflight_hi_ = std::max(BdpMultiple(Bandwidth(), 1.0), inflight_latest_);
}

void Bbr3Controller::UpdateDrain(const AckEvent& ack) {
  if (mode_ != Mode::kDrain) return;
  const bool is_overdue = parameters_.drain_rounds > 0 && rounds_.count() > drain_start_ + parameters_.drain_rounds;
  if (ack.in_flight <= InflightTarget(Bandwidth()) || is_overdue) {
    mode_ = Mode::kProbeBw;
    StartDown(ack.now, ack.delivered);
  }
}

void Bbr3Controller::UpdateCycle(const AckEvent& ack) {
  if (!is_pipe_full_ || UpdateUpperBound(ack) || mode_ != Mode::kProbeBw) return;
  switch (phase_) {
    case Phase::kDown:
      if (!ProbeIfTime(ack) &&
          ack.in_flight <= std::min(InflightTarget(max_bandwidth_.Best()), InflightWithHeadroom())) {
        phase_ = Phase::kCruise;
      }
      break;
    case Phase::kCruise:
      ProbeIfTime(ack);
      break;
    case Phase::kRefill:
      // One round at the bandwidth refills the pipe, so that losses after it are due to the probe.
      if (is_round_start_) {
        has_probe_samples_ = true;
        StartUp(ack);
      }
      break;
    case Phase::kUp:
      if (IsTimeToGoDown(ack)) {
        was_probe_too_high_ = false;
        StartDown(ack.now, ack.delivered);
      }
      break;
  }
}

bool Bbr3Controller::UpdateUpperBound(const AckEvent& ack) {
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
  if (inflight_hi_ == kNoBound || !ack.sample.is_valid || IsInflightTooHigh(ack)) return false;
  inflight_hi_ = std::max(inflight_hi_, ack.sample.tx_in_flight);
  if (IsInPhase(Phase::kUp) && IsBoundReached()) {
    inflight_hi_ += growth_.OnAck(ack.bytes_acked) * connection_.packet_bytes;
    if (is_round_start_) growth_.StartRound(cwnd_, connection_.packet_bytes);
  }
  return false;
}

bool Bbr3Controller::IsInflightTooHigh(const AckEvent& ack) const {
  return HasManyLosses(ack) || HasManyMarks(ack);
}

bool Bbr3Controller::HasManyLosses(const AckEvent& ack) const {
  return ack.sample.is_valid && static_cast<double>(ack.sample.lost_since_send) >
                                    parameters_.loss_threshold * static_cast<double>(ack.sample.tx_in_flight);
}

bool Bbr3Controller::HasManyMarks(const AckEvent& ack) const {
  return uses_ecn_ && ack.sample.is_valid &&
         static_cast<double>(ack.sample.marked_since_send) >
             parameters_.ecn_threshold * static_cast<double>(ack.sample.delivered);
}

Bytes Bbr3Controller::InflightAtLoss(const AckEvent& ack) const {
  // The bytes marked on this ACK are one burst; with which part of it did the losses pass the threshold? With none, if
  // those before it had passed it already.
  const auto before = static_cast<double>(ack.sample.tx_in_flight - ack.bytes_lost);
  const auto lost_before = static_cast<double>(ack.sample.lost_since_send - ack.bytes_lost);
  const double threshold = parameters_.loss_threshold;
  return static_cast<Bytes>(before + std::max(0.0, (threshold * before - lost_before) / (1.0 - threshold)));
}

void Bbr3Controller::OnInflightTooHigh(const AckEvent& ack) {
  was_probe_too_high_ = true;
  has_probe_samples_ = false;  // once per probe
  if (!ack.sample.is_app_limited) {
    const auto reduced = static_cast<Bytes>(parameters_.beta * static_cast<double>(TargetInflight()));
    inflight_hi_ = std::max(HasManyLosses(ack) ? InflightAtLoss(ack) : ack.sample.tx_in_flight, reduced);
  }
  if (IsInPhase(Phase::kUp)) {
    undo_.is_up = HasManyLosses(ack);
    StartDown(ack.now, ack.delivered);
  }
}

bool Bbr3Controller::ProbeIfTime(const AckEvent& ack) {
  const bool has_marks_only = has_mark_in_cycle_ && !has_loss_in_cycle_ && recovery_ == Recovery::kOpen;
  if (has_marks_only && parameters_.ecn_reprobe_gain > 0.0) {
    // Other flows' traffic may have gone. While the upper bound is not set, nothing raises it.
    const double packets = parameters_.ecn_reprobe_gain * static_cast<double>(inflight_hi_) /
                           static_cast<double>(connection_.packet_bytes);
    StartRefill(ack.delivered, inflight_hi_ == kNoBound ? 0 : static_cast<std::int64_t>(Log2(std::max(packets, 1.0))));
    return true;
  }
  const std::int64_t packets = TargetInflight() / connection_.packet_bytes;
  const bool is_time = probe_timer_.IsOver(ack.now, packets, parameters_.reno_rounds);
  if (is_time) StartRefill(ack.delivered);
  return is_time;
}

bool Bbr3Controller::IsTimeToGoDown(const AckEvent& ack) {
  if (was_probe_too_high_ && ack.in_flight >= inflight_hi_) {
    is_risky_probe_stopped_ = true;
    return true;
  }
  if (IsBoundReached()) {
    full_pipe_.Restart(ack.sample.delivery_rate);  // the bound limits the bandwidth, not the path
    return false;
  }
  return full_pipe_.is_full();
}

void Bbr3Controller::StartRefill(Bytes delivered, std::int64_t growth_rounds) {
  ResetLowerBounds();
  growth_.Restart(growth_rounds);
  is_risky_probe_stopped_ = false;
  ack_phase_ = AckPhase::kRefilling;
  rounds_.Restart(delivered);
  phase_ = Phase::kRefill;
}

void Bbr3Controller::StartUp(const AckEvent& ack) {
  ack_phase_ = AckPhase::kProbeStarting;
  rounds_.Restart(ack.delivered);
  full_pipe_.Restart(ack.sample.delivery_rate);
  phase_ = Phase::kUp;
  growth_.StartRound(cwnd_, connection_.packet_bytes);
}

void Bbr3Controller::StartDown(Nanoseconds now, Bytes delivered) {
  ResetCongestionSignals();
  growth_.Stop();
  probe_timer_.Start(now, parameters_.probe_wait_s, parameters_.probe_wait_random_s, random_);
  ack_phase_ = AckPhase::kProbeStopping;
  rounds_.Restart(delivered);
  phase_ = Phase::kDown;
}

void Bbr3Controller::UpdateMinRtt(const AckEvent& ack) {
  is_probe_rtt_due_ = probe_rtt_min_.OnAck(ack.now, ack.rtt);
  if (!probe_rtt_min_.has_sample()) return;
  if (min_rtt_stamp_ < 0) min_rtt_stamp_ = ack.now;  // of the handshake
  const auto window = static_cast<Nanoseconds>(parameters_.min_rtt_window_s * kSecond);
  if (min_rtt_ == 0 || probe_rtt_min_.value() < min_rtt_ || ack.now > min_rtt_stamp_ + window) {
    min_rtt_ = probe_rtt_min_.value();
    min_rtt_stamp_ = probe_rtt_min_.stamp();
  }
}

void Bbr3Controller::UpdateProbeRtt(const AckEvent& ack) {
  if (is_probe_rtt_due_ && !is_idle_restart_ && mode_ != Mode::kProbeRtt) {
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

void Bbr3Controller::EndProbeRttIfDue(Nanoseconds now) {
  if (probe_rtt_end_ == 0 || now <= probe_rtt_end_) return;
  probe_rtt_min_.Refresh(now);
  RestoreCwnd();
  ResetLowerBounds();
  if (is_pipe_full_) {
    mode_ = Mode::kProbeBw;
    StartDown(now, delivered_);
    phase_ = Phase::kCruise;  // what is in flight is below the BDP already
  } else {
    mode_ = Mode::kStartup;
  }
}

Gains Bbr3Controller::ChooseGains() const {
  switch (mode_) {
    case Mode::kStartup:
      return {.cwnd = parameters_.cwnd_gain, .pacing = parameters_.startup_gain};
    case Mode::kDrain:
      return {.cwnd = parameters_.cwnd_gain, .pacing = parameters_.drain_gain};
    case Mode::kProbeBw:
      if (phase_ == Phase::kUp) return {.cwnd = parameters_.probe_up_cwnd_gain, .pacing = parameters_.probe_up_gain};
      return {.cwnd = parameters_.cwnd_gain, .pacing = phase_ == Phase::kDown ? parameters_.probe_down_gain : 1.0};
    default:
      return {.cwnd = parameters_.probe_rtt_gain, .pacing = 1.0};
  }
}

void Bbr3Controller::SetPacingRate(BitsPerSecond bandwidth, double gain) {
  const auto rate =
      static_cast<BitsPerSecond>(static_cast<double>(bandwidth) * gain * (1.0 - parameters_.pacing_margin));
  // Until the pipe is full the rate only rises, because early samples of a few packets are too low.
  if (is_pipe_full_ || rate > pacing_rate_) pacing_rate_ = std::max(rate, BitsPerSecond{1});
}

void Bbr3Controller::UpdateCwnd(const AckEvent& ack) {
  if (ack.bytes_acked > 0) {
    double extra = parameters_.extra_acked_gain * static_cast<double>(extra_acked_.Best());
    if (parameters_.extra_acked_limit_ms > 0.0) {
      const auto limit = static_cast<Nanoseconds>(parameters_.extra_acked_limit_ms * kMillisecond);
      extra = std::min(extra, BytesIn(Bandwidth(), limit));
    }
    const Bytes target = WithRoomForBursts(BdpMultiple(Bandwidth(), gains_.cwnd) + static_cast<Bytes>(extra));
    if (is_pipe_full_) {
      cwnd_ = std::min(cwnd_ + ack.bytes_acked, target);
    } else if (cwnd_ < target || ack.delivered < connection_.initial_cwnd) {
      cwnd_ += ack.bytes_acked;
    }
    cwnd_ = std::max(cwnd_, MinCwnd());
  }
  if (mode_ == Mode::kProbeRtt) cwnd_ = std::min(cwnd_, ProbeRttCwnd());
  Bytes bound = inflight_lo_;
  if (mode_ == Mode::kProbeRtt || IsInPhase(Phase::kCruise)) {
    bound = std::min(bound, InflightWithHeadroom());
  } else if (mode_ == Mode::kProbeBw) {
    bound = std::min(bound, inflight_hi_);
  }
  cwnd_ = std::min(cwnd_, std::max(bound, MinCwnd()));
}

void Bbr3Controller::ResetCongestionSignals() {
  has_loss_in_round_ = has_mark_in_round_ = false;
  has_loss_in_cycle_ = has_mark_in_cycle_ = false;
  bandwidth_latest_ = 0;
  inflight_latest_ = 0;
}

void Bbr3Controller::ResetLowerBounds() {
  bandwidth_lo_ = kNoRateBound;
  inflight_lo_ = kNoBound;
}

void Bbr3Controller::SaveCwnd() {
  const bool is_normal = recovery_ == Recovery::kOpen && mode_ != Mode::kProbeRtt;
  cwnd_before_recovery_ = is_normal ? cwnd_ : std::max(cwnd_before_recovery_, cwnd_);
}

void Bbr3Controller::SaveStateUponLoss() {
  SaveCwnd();
  // Once per recovery: its first loss may already have changed the state when the transport enters it.
  if (std::exchange(is_undo_saved_, true)) return;
  undo_ = {.bandwidth_lo = bandwidth_lo_, .inflight_lo = inflight_lo_, .inflight_hi = inflight_hi_};
}

bool Bbr3Controller::IsProbingBandwidth() const {
  return mode_ == Mode::kStartup || IsInPhase(Phase::kRefill) || IsInPhase(Phase::kUp);
}

Bytes Bbr3Controller::BdpMultiple(BitsPerSecond bandwidth, double gain) const {
  return min_rtt_ == 0 ? connection_.initial_cwnd : static_cast<Bytes>(gain * BdpBytes(bandwidth));
}

Bytes Bbr3Controller::WithRoomForBursts(Bytes in_flight) const {
  // One burst in the card, one in the queue discipline, one in the receiver.
  const Bytes room = std::max({in_flight, 3 * BurstBytes(), MinCwnd()});
  return IsInPhase(Phase::kUp) ? room + 2 * connection_.packet_bytes : room;  // so that 1.25 is more on a small BDP
}

Bytes Bbr3Controller::InflightWithHeadroom() const {
  if (inflight_hi_ == kNoBound) return kNoBound;
  const auto room = static_cast<Bytes>(parameters_.headroom * static_cast<double>(inflight_hi_));
  return std::max(inflight_hi_ - std::max(room, connection_.packet_bytes), MinCwnd());
}

Bytes Bbr3Controller::BurstBytes() const {
  if (parameters_.burst_packets > 0) return parameters_.burst_packets * connection_.packet_bytes;
  constexpr Bytes kMostBytes = 65'536;
  const auto burst = std::min(static_cast<Bytes>(BytesIn(pacing_rate_, kMillisecond)), kMostBytes);
  return std::max(burst, 2 * connection_.packet_bytes);
}

}  // namespace bbrgym
