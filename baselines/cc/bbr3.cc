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
  ProbeParameters::Describe(reader);
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
      model_(connection, parameters),
      marked_(parameters.ecn_alpha_gain),
      full_pipe_(parameters.full_pipe_growth, parameters.full_pipe_rounds),
      cwnd_(connection.initial_cwnd),
      pacing_rate_(connection, parameters.pacing_margin, parameters.startup_gain) {
  model_.min_rtt = connection.initial_rtt;
  gains_ = ChooseGains();
}

void Bbr3Controller::OnAck(const AckEvent& ack) {
  model_.delivered = ack.delivered;
  UpdateEcnUse();
  UpdateLoss(ack);
  model_.UpdateLatestDelivery(ack);
  model_.UpdateRoundsAndBandwidth(ack);
  UpdateMarks(ack);
  if (model_.is_loss_round_start) UpdateLowerBounds();
  UpdateExtraAcked(ack);
  UpdateFullPipe(ack);
  UpdateStartup(ack);
  UpdateDrain(ack);
  UpdateCycle(ack);
  model_.UpdateMinRtt(ack, /*is_renewed_by_equal=*/false);
  UpdateProbeRtt(ack);
  if (model_.is_loss_round_start) model_.ResetCongestionSignals(ack.sample);
  gains_ = ChooseGains();
  pacing_rate_.OnAck(model_.min_rtt, model_.Bandwidth(), gains_.pacing, is_pipe_full_);
  UpdateCwnd(ack);
  RememberCycle(ack.sample);
}

void Bbr3Controller::OnRecovery(Recovery state, Nanoseconds /*now*/, Bytes in_flight) {
  if (state == Recovery::kOpen) {
    if (parameters_.restores_cwnd || recovery_ == Recovery::kLoss) RestoreCwnd();
    is_undo_saved_ = false;
  } else {
    SaveStateUponLoss();
  }
  if (state == Recovery::kLoss) {
    if (parameters_.timeout_sets_bound && !model_.IsProbingBandwidth() &&
        model_.inflight_lo == ProbingModel::kNoBound) {
      model_.inflight_lo = std::max(cwnd_, cwnd_before_recovery_);
    }
    cwnd_ = std::max(in_flight, Bytes{0}) + connection_.packet_bytes;
  }
  recovery_ = state;
}

bool Bbr3Controller::OnSpuriousRecovery() {
  RestoreCwnd();
  model_.has_loss_in_round = false;
  full_pipe_.Restart();
  model_.RaiseTo(undo_.bounds);
  if (undo_.is_startup && model_.mode != Mode::kStartup) {
    is_pipe_full_ = false;
    if (model_.mode != Mode::kProbeRtt) model_.mode = Mode::kStartup;
  } else if (undo_.is_up && !model_.IsInPhase(Phase::kUp) && model_.mode != Mode::kProbeRtt) {
    model_.StartRefill();
  }
  undo_ = {};
  return false;
}

void Bbr3Controller::OnRestart(Nanoseconds now) {
  is_idle_restart_ = true;
  ack_burst_.Restart();
  if (model_.mode == Mode::kProbeBw) {
    pacing_rate_.Set(model_.Bandwidth(), 1.0, is_pipe_full_);
  } else if (model_.mode == Mode::kProbeRtt && model_.probe_rtt.IsTimeOver(now)) {
    EndProbeRtt(now);
  }
}

Decision Bbr3Controller::decision() const {
  return {.cwnd = cwnd_,
          .pacing_rate = pacing_rate_.value(),
          .send_quantum = BurstBytes(),
          .is_paced = true,
          .is_app_limited = is_held_back_};
}

Metrics Bbr3Controller::metrics() const {
  return model_.MakeMetrics(gains_, is_pipe_full_, extra_acked_.Best());
}

void Bbr3Controller::UpdateEcnUse() {
  // For good, once the path is short enough.
  const auto longest = static_cast<Nanoseconds>(parameters_.ecn_max_rtt_ms * kMillisecond);
  uses_ecn_ |= parameters_.ecn_factor > 0.0 && (longest == 0 || (model_.min_rtt > 0 && model_.min_rtt <= longest));
}

void Bbr3Controller::UpdateLoss(const AckEvent& ack) {
  if (ack.bytes_lost > 0) {
    has_loss_in_cycle_ = true;
    if (model_.OnLosses()) SaveStateUponLoss();
  }
  if (model_.has_probe_samples && IsInflightTooHigh(ack)) OnInflightTooHigh(ack);
}

void Bbr3Controller::UpdateMarks(const AckEvent& ack) {
  if (!uses_ecn_) return;
  marked_.OnAck(ack.bytes_acked, ack.bytes_marked);
  if (ack.bytes_marked > 0) has_mark_in_round_ = has_mark_in_cycle_ = true;
  if (!model_.is_round_start) return;
  marked_rounds_ = marked_.EndRound() >= parameters_.ecn_threshold ? marked_rounds_ + 1 : 0;
  if (!is_pipe_full_ && marked_rounds_ >= parameters_.startup_ecn_rounds) OnStartupTooHigh();
}

/// Losses and marks of a flight that began before this cycle count for it, too, as in Linux (bbr_main): a probe that
/// they have ended is not repeated before its time.
void Bbr3Controller::RememberCycle(const RateSample& sample) {
  if (!sample.is_valid) return;
  has_loss_in_cycle_ |= sample.lost_since_send > 0;
  has_mark_in_cycle_ |= uses_ecn_ && sample.marked_since_send > 0;
}

void Bbr3Controller::UpdateLowerBounds() {
  const bool has_mark = std::exchange(has_mark_in_round_, false);
  // While probing, losses and marks are the result of the probe and concern the upper bound.
  if ((model_.has_loss_in_round || has_mark) && !model_.IsProbingBandwidth()) {
    if (model_.inflight_lo == ProbingModel::kNoBound) model_.inflight_lo = cwnd_;
    const auto inflight_lo = static_cast<double>(model_.inflight_lo);
    if (model_.has_loss_in_round) model_.LowerUponLoss(parameters_.beta, cwnd_);
    if (has_mark) {
      const double kept = 1.0 - parameters_.ecn_factor * marked_.average();
      model_.inflight_lo = std::min(model_.inflight_lo, static_cast<Bytes>(kept * inflight_lo));
    }
  }
  if (recovery_ == Recovery::kOpen) is_undo_saved_ = false;
}

void Bbr3Controller::UpdateExtraAcked(const AckEvent& ack) {
  if (!ack.sample.is_valid || ack.bytes_acked <= 0) return;
  // In Startup the bandwidth is still too low, and each round measures the excess anew.
  extra_acked_.SetWindow(is_pipe_full_ ? parameters_.extra_acked_rounds : 1);
  extra_acked_.Update(model_.rounds.count(), ack_burst_.OnAck(ack.now, ack.bytes_acked, model_.Bandwidth(), cwnd_));
}

void Bbr3Controller::UpdateFullPipe(const AckEvent& ack) {
  if (!ack.sample.is_valid || ack.sample.is_app_limited) return;
  if (model_.is_round_start) {
    full_pipe_.OnRound(ack.sample.delivery_rate);
  } else if (parameters_.full_pipe_every_ack && !full_pipe_.is_full()) {
    full_pipe_.TakeGrowth(ack.sample.delivery_rate);
  }
  is_pipe_full_ |= full_pipe_.is_full();
}

void Bbr3Controller::UpdateStartup(const AckEvent& ack) {
  if (model_.is_loss_round_start) {
    const bool has_many_events = std::exchange(model_.loss_events_in_round, 0) >= parameters_.startup_loss_events;
    if (!is_pipe_full_ && has_many_events && HasManyLosses(ack) && recovery_ == Recovery::kRecovery) {
      undo_.is_startup = true;
      OnStartupTooHigh();
    }
  }
  if (model_.mode == Mode::kStartup && is_pipe_full_) {
    model_.mode = Mode::kDrain;
    drain_start_ = model_.rounds.count();
    if (parameters_.drain_forgets_losses) ResetCongestionSignals();
  }
}

void Bbr3Controller::OnStartupTooHigh() {
  is_pipe_full_ = true;
  model_.inflight_hi = std::max(BdpMultiple(model_.Bandwidth(), 1.0), model_.inflight_latest);
}

void Bbr3Controller::UpdateDrain(const AckEvent& ack) {
  if (model_.mode != Mode::kDrain) return;
  const bool is_overdue =
      parameters_.drain_rounds > 0 && model_.rounds.count() > drain_start_ + parameters_.drain_rounds;
  if (ack.in_flight <= InflightTarget(model_.Bandwidth()) || is_overdue) StartDown(ack.now);
}

void Bbr3Controller::UpdateCycle(const AckEvent& ack) {
  if (!is_pipe_full_ || UpdateUpperBound(ack) || model_.mode != Mode::kProbeBw) return;
  switch (model_.phase) {
    case Phase::kDown:
      if (!ProbeIfTime(ack) && ack.in_flight <= std::min(InflightTarget(model_.max_bandwidth.Best()),
                                                         model_.InflightWithHeadroom(parameters_.headroom))) {
        model_.phase = Phase::kCruise;
      }
      break;
    case Phase::kCruise:
      ProbeIfTime(ack);
      break;
    case Phase::kRefill:
      // One round at the bandwidth refills the pipe, so that losses after it are due to the probe.
      if (model_.is_round_start) {
        model_.StartUp(cwnd_);
        full_pipe_.Restart(ack.sample.delivery_rate);
      }
      break;
    case Phase::kUp: {
      const bool is_risky = model_.was_probe_too_high && ack.in_flight >= model_.inflight_hi;
      if (is_risky || IsPathFull(ack)) {
        model_.is_risky_probe_stopped = is_risky;
        model_.was_probe_too_high = false;
        StartDown(ack.now);
      }
      break;
    }
  }
}

bool Bbr3Controller::UpdateUpperBound(const AckEvent& ack) {
  if (model_.EndCycleIfDue(ack)) return true;
  if (model_.inflight_hi == ProbingModel::kNoBound || !ack.sample.is_valid || IsInflightTooHigh(ack)) return false;
  model_.inflight_hi = std::max(model_.inflight_hi, ack.sample.tx_in_flight);
  if (model_.IsInPhase(Phase::kUp) && IsBoundReached(ack)) model_.RaiseUpperBound(ack.bytes_acked, cwnd_);
  return false;
}

bool Bbr3Controller::IsInflightTooHigh(const AckEvent& ack) const {
  return HasManyLosses(ack) || HasManyMarks(ack);
}

bool Bbr3Controller::HasManyMarks(const AckEvent& ack) const {
  return uses_ecn_ && ack.sample.is_valid &&
         static_cast<double>(ack.sample.marked_since_send) >
             parameters_.ecn_threshold * static_cast<double>(ack.sample.delivered);
}

Bytes Bbr3Controller::InflightAtLoss(const AckEvent& ack) const {
  // The bytes marked on this ACK are one burst. The losses pass the threshold within a part of it; that part is empty
  // if the losses before it had passed the threshold already.
  const auto before = static_cast<double>(ack.sample.tx_in_flight - ack.bytes_lost);
  const auto lost_before = static_cast<double>(ack.sample.lost_since_send - ack.bytes_lost);
  const double threshold = parameters_.loss_threshold;
  return static_cast<Bytes>(before + std::max(0.0, (threshold * before - lost_before) / (1.0 - threshold)));
}

void Bbr3Controller::OnInflightTooHigh(const AckEvent& ack) {
  model_.was_probe_too_high = true;
  model_.has_probe_samples = false;  // once per probe
  if (!ack.sample.is_app_limited) {
    const auto reduced = static_cast<Bytes>(parameters_.beta * static_cast<double>(TargetInflight()));
    model_.inflight_hi = std::max(HasManyLosses(ack) ? InflightAtLoss(ack) : ack.sample.tx_in_flight, reduced);
  }
  if (model_.IsInPhase(Phase::kUp)) {
    undo_.is_up = HasManyLosses(ack);
    StartDown(ack.now);
  }
}

bool Bbr3Controller::ProbeIfTime(const AckEvent& ack) {
  const bool has_marks_only = has_mark_in_cycle_ && !has_loss_in_cycle_ && recovery_ == Recovery::kOpen;
  if (has_marks_only && parameters_.ecn_reprobe_gain > 0.0) {
    // Other flows' traffic may have gone. While the upper bound is not set, nothing raises it.
    const double packets = parameters_.ecn_reprobe_gain * static_cast<double>(model_.inflight_hi) /
                           static_cast<double>(connection_.packet_bytes);
    const bool is_set = model_.inflight_hi != ProbingModel::kNoBound;
    model_.StartRefill(is_set ? static_cast<std::int64_t>(Log2(std::max(packets, 1.0))) : 0);
    return true;
  }
  const bool is_time = model_.IsTimeToProbe(ack.now, TargetInflight());
  if (is_time) model_.StartRefill();
  return is_time;
}

bool Bbr3Controller::IsPathFull(const AckEvent& ack) {
  if (!IsBoundReached(ack)) return full_pipe_.is_full();
  full_pipe_.Restart(ack.sample.delivery_rate);  // the bound limits the bandwidth, not the path
  return false;
}

void Bbr3Controller::StartDown(Nanoseconds now) {
  ResetCongestionSignals();
  model_.StartDown(now);
}

void Bbr3Controller::UpdateProbeRtt(const AckEvent& ack) {
  if (model_.is_probe_rtt_due && !is_idle_restart_ && model_.mode != Mode::kProbeRtt) {
    SaveCwnd();
    model_.StartProbeRtt();
  }
  // On its last ACK, too: the packets in flight are still as few.
  is_held_back_ = model_.mode == Mode::kProbeRtt;
  if (is_held_back_ && model_.EndsProbeRtt(ack, ProbeRttCwnd())) EndProbeRtt(ack.now);
  if (ack.sample.is_valid) is_idle_restart_ = false;
}

void Bbr3Controller::EndProbeRtt(Nanoseconds now) {
  model_.probe_rtt_min.Refresh(now);
  RestoreCwnd();
  model_.ResetLowerBounds();
  if (is_pipe_full_) {
    StartDown(now);
    model_.phase = Phase::kCruise;  // what is in flight is below the BDP already
  } else {
    model_.mode = Mode::kStartup;
  }
}

Gains Bbr3Controller::ChooseGains() const {
  switch (model_.mode) {
    case Mode::kStartup:
      return {.cwnd = parameters_.cwnd_gain, .pacing = parameters_.startup_gain};
    case Mode::kDrain:
      return {.cwnd = parameters_.cwnd_gain, .pacing = parameters_.drain_gain};
    case Mode::kProbeBw:
      return {.cwnd = model_.phase == Phase::kUp ? parameters_.probe_up_cwnd_gain : parameters_.cwnd_gain,
              .pacing = model_.phase == Phase::kUp     ? parameters_.probe_up_gain
                        : model_.phase == Phase::kDown ? parameters_.probe_down_gain
                                                       : 1.0};
    default:
      return {.cwnd = parameters_.probe_rtt_gain, .pacing = 1.0};
  }
}

void Bbr3Controller::UpdateCwnd(const AckEvent& ack) {
  if (ack.bytes_acked > 0) {
    double extra = parameters_.extra_acked_gain * static_cast<double>(extra_acked_.Best());
    if (parameters_.extra_acked_limit_ms > 0.0) {
      const auto limit = static_cast<Nanoseconds>(parameters_.extra_acked_limit_ms * kMillisecond);
      extra = std::min(extra, BytesIn(model_.Bandwidth(), limit));
    }
    const Bytes target = WithRoomForBursts(BdpMultiple(model_.Bandwidth(), gains_.cwnd) + static_cast<Bytes>(extra));
    if (is_pipe_full_) {
      cwnd_ = std::min(cwnd_ + ack.bytes_acked, target);
    } else if (cwnd_ < target || ack.delivered < connection_.initial_cwnd) {
      cwnd_ += ack.bytes_acked;
    }
    cwnd_ = std::max(cwnd_, model_.MinCwnd());
  }
  if (model_.mode == Mode::kProbeRtt) cwnd_ = std::min(cwnd_, ProbeRttCwnd());
  cwnd_ = std::min(cwnd_, model_.MaxCwnd(parameters_.headroom));
}

void Bbr3Controller::ResetCongestionSignals() {
  model_.ResetCongestionSignals();
  has_mark_in_round_ = false;
  has_loss_in_cycle_ = has_mark_in_cycle_ = false;
}

void Bbr3Controller::SaveCwnd() {
  const bool is_normal = recovery_ == Recovery::kOpen && model_.mode != Mode::kProbeRtt;
  cwnd_before_recovery_ = is_normal ? cwnd_ : std::max(cwnd_before_recovery_, cwnd_);
}

void Bbr3Controller::SaveStateUponLoss() {
  SaveCwnd();
  // Once per recovery: its first loss may already have changed the state when the transport enters it.
  if (std::exchange(is_undo_saved_, true)) return;
  undo_ = {.bounds = model_.bounds()};
}

Bytes Bbr3Controller::BdpMultiple(BitsPerSecond bandwidth, double gain) const {
  return model_.min_rtt == 0 ? connection_.initial_cwnd : static_cast<Bytes>(gain * model_.BdpBytes(bandwidth));
}

Bytes Bbr3Controller::WithRoomForBursts(Bytes in_flight) const {
  // One burst in the card, one in the queue discipline, one in the receiver.
  const Bytes room = std::max({in_flight, 3 * BurstBytes(), model_.MinCwnd()});
  // Two packets more in Up, so that 1.25 is more on a small BDP.
  return model_.IsInPhase(Phase::kUp) ? room + 2 * connection_.packet_bytes : room;
}

Bytes Bbr3Controller::BurstBytes() const {
  if (parameters_.burst_packets > 0) return parameters_.burst_packets * connection_.packet_bytes;
  constexpr Bytes kMostBytes = 65'536;
  const auto burst = std::min(static_cast<Bytes>(BytesIn(pacing_rate_.value(), kMillisecond)), kMostBytes);
  return std::max(burst, 2 * connection_.packet_bytes);
}

}  // namespace bbrgym
