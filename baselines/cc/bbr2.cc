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
#include <utility>

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
  ProbeParameters::Describe(reader);
  reader.Field("pacing_margin", pacing_margin, 0.0, 0.5);
  reader.Field("extra_acked_gain", extra_acked_gain, 0.0, 10.0);
  reader.Field("burst_packets", burst_packets, 1, 1000);
  reader.Field("has_lower_bounds", has_lower_bounds);
}

Bbr2Controller::Bbr2Controller(const Connection& connection, const Bbr2Parameters& parameters)
    : connection_(connection),
      parameters_(parameters),
      model_(connection, parameters),
      gains_{.cwnd = parameters.startup_gain, .pacing = parameters.startup_gain},
      full_pipe_(parameters.full_pipe_growth, parameters.full_pipe_rounds),
      cwnd_(connection.initial_cwnd),
      pacing_rate_(connection, parameters.pacing_margin, parameters.startup_gain) {}

void Bbr2Controller::OnAck(const AckEvent& ack) {
  Observe(ack);
  model_.delivered = ack.delivered;
  model_.UpdateRoundsAndBandwidth(ack);
  UpdateLowerBounds(ack);
  if (ack.sample.is_valid && ack.bytes_acked > 0) {
    extra_acked_.OnAck(ack.now, ack.bytes_acked, model_.Bandwidth(), cwnd_, model_.is_round_start);
  }
  UpdateStartupLoss(ack);
  if (model_.is_round_start && !ack.sample.is_app_limited) full_pipe_.OnRound(model_.max_bandwidth.Best());
  UpdateDrain(ack);
  UpdateCycle(ack);
  model_.UpdateMinRtt(ack, /*is_renewed_by_equal=*/true);
  UpdateProbeRtt(ack);
  gains_ = ChooseGains();
  pacing_rate_.OnAck(model_.min_rtt, model_.Bandwidth(), gains_.pacing, IsPipeFull());
  UpdateCwnd(ack);
}

void Bbr2Controller::OnRecovery(Recovery state, Nanoseconds /*now*/, Bytes in_flight) {
  if (state != Recovery::kOpen && recovery_ == Recovery::kOpen) {
    SaveCwnd();
    bounds_before_recovery_ = model_.bounds();
  }
  if (state == Recovery::kLoss) {
    full_pipe_.ForgetBandwidth();
    if (!model_.IsProbingBandwidth() && model_.inflight_lo == ProbingModel::kNoBound) {
      model_.inflight_lo = std::max(cwnd_, cwnd_before_recovery_);
    }
    cwnd_ = std::max(in_flight, Bytes{0}) + connection_.packet_bytes;
  } else if (recovery_ == Recovery::kLoss) {
    RestoreCwnd();
  }
  recovery_ = state;
}

bool Bbr2Controller::OnSpuriousRecovery() {
  // v2alpha's bbr2_undo_cwnd.
  full_pipe_.ForgetGrowth();
  model_.has_loss_in_round = false;
  model_.RaiseTo(bounds_before_recovery_);
  RestoreCwnd();
  recovery_ = Recovery::kOpen;
  return true;
}

void Bbr2Controller::OnRestart(Nanoseconds now) {
  is_idle_restart_ = true;
  extra_acked_.Restart();
  if (model_.mode == Mode::kProbeBw) {
    pacing_rate_.Set(model_.Bandwidth(), 1.0, IsPipeFull());
  } else if (model_.mode == Mode::kProbeRtt && model_.probe_rtt.IsTimeOver(now)) {
    EndProbeRtt(now);
  }
}

Decision Bbr2Controller::decision() const {
  return {.cwnd = cwnd_,
          .pacing_rate = pacing_rate_.value(),
          .send_quantum = parameters_.burst_packets * connection_.packet_bytes,
          .is_paced = true,
          .is_app_limited = is_held_back_};
}

Metrics Bbr2Controller::metrics() const {
  return model_.MakeMetrics(gains_, IsPipeFull(), extra_acked_.Most());
}

Gains Bbr2Controller::ChooseGains() const {
  switch (model_.mode) {
    case Mode::kStartup:
      return {.cwnd = parameters_.startup_gain, .pacing = parameters_.startup_gain};
    case Mode::kDrain:
      return {.cwnd = parameters_.startup_gain, .pacing = parameters_.drain_gain};
    case Mode::kProbeBw:
      return {.cwnd = parameters_.cwnd_gain,
              .pacing = model_.phase == Phase::kUp     ? parameters_.probe_up_gain
                        : model_.phase == Phase::kDown ? parameters_.probe_down_gain
                                                       : 1.0};
    default:
      return {.cwnd = 1.0, .pacing = 1.0};
  }
}

void Bbr2Controller::UpdateLowerBounds(const AckEvent& ack) {
  if (ack.bytes_lost > 0) model_.OnLosses();
  model_.UpdateLatestDelivery(ack);
  if (!model_.is_loss_round_start) return;
  // While probing, losses are the result of the probe and concern the upper bound.
  if (model_.has_loss_in_round && parameters_.has_lower_bounds && !model_.IsProbingBandwidth()) {
    model_.LowerUponLoss(1.0 - parameters_.beta, cwnd_);
  }
  model_.ResetCongestionSignals(ack.sample);
}

void Bbr2Controller::UpdateStartupLoss(const AckEvent& ack) {
  if (!model_.is_loss_round_start) return;
  const bool has_many_events = std::exchange(model_.loss_events_in_round, 0) >= parameters_.startup_loss_events;
  if (!IsPipeFull() && has_many_events && recovery_ == Recovery::kRecovery && IsInflightTooHigh(ack)) {
    is_full_by_loss_ = true;
    model_.inflight_hi = std::max(InflightTarget(model_.max_bandwidth.Best(), 1.0), model_.MinCwnd());
  }
}

void Bbr2Controller::UpdateDrain(const AckEvent& ack) {
  if (model_.mode == Mode::kStartup && IsPipeFull()) {
    model_.mode = Mode::kDrain;
    model_.ResetCongestionSignals();  // the losses of Startup must not lower the bounds later
  }
  if (model_.mode == Mode::kDrain && ack.in_flight <= InflightTarget(model_.max_bandwidth.Best(), 1.0)) {
    model_.StartDown(ack.now);
  }
}

void Bbr2Controller::UpdateCycle(const AckEvent& ack) {
  if (!IsPipeFull()) return;
  if (UpdateUpperBound(ack) || model_.mode != Mode::kProbeBw) return;
  switch (model_.phase) {
    case Phase::kCruise:
      if (IsTimeToProbe(ack.now)) model_.StartRefill();
      break;
    case Phase::kRefill:
      // One round at the bandwidth refills the pipe, so that losses after it are due to the probe.
      if (model_.is_round_start) {
        model_.StartUp(cwnd_);
        up_start_ = ack.now;
      }
      break;
    case Phase::kUp: {
      const bool is_risky = model_.was_probe_too_high && ack.prior_in_flight >= model_.inflight_hi;
      const bool has_lasted_min_rtt = ack.now - up_start_ > model_.min_rtt;
      if (is_risky || (has_lasted_min_rtt &&
                       ack.prior_in_flight >= InflightTarget(model_.max_bandwidth.Best(), parameters_.probe_up_gain))) {
        model_.is_risky_probe_stopped = is_risky;
        model_.was_probe_too_high = false;
        model_.StartDown(ack.now);
      }
      break;
    }
    case Phase::kDown:
      if (IsTimeToProbe(ack.now)) {
        model_.StartRefill();
      } else if (ack.prior_in_flight <=
                 std::min(InflightTarget(model_.max_bandwidth.Best(), 1.0), model_.InflightWithHeadroom(Headroom()))) {
        StartCruise();
      }
      break;
  }
}

bool Bbr2Controller::UpdateUpperBound(const AckEvent& ack) {
  if (model_.EndCycleIfDue(ack)) return true;
  if (IsInflightTooHigh(ack)) {
    if (model_.has_probe_samples) OnInflightTooHigh(ack);
    return false;
  }
  if (model_.inflight_hi == ProbingModel::kNoBound || !ack.sample.is_valid) return false;
  model_.inflight_hi = std::max(model_.inflight_hi, ack.sample.tx_in_flight);
  if (!model_.IsInPhase(Phase::kUp)) return false;
  if (ack.is_cwnd_limited && cwnd_ >= model_.inflight_hi) {
    model_.RaiseUpperBound(ack.bytes_acked, cwnd_);
  } else {
    model_.growth.ForgetAcked();
  }
  return false;
}

void Bbr2Controller::OnInflightTooHigh(const AckEvent& ack) {
  model_.was_probe_too_high = true;
  model_.has_probe_samples = false;  // once per probe
  if (!ack.sample.is_app_limited) {
    // In whole packets, so that the bytes in flight can reach it.
    const auto packets = static_cast<std::int64_t>((1.0 - parameters_.beta) * static_cast<double>(TargetInflight()) /
                                                   static_cast<double>(connection_.packet_bytes));
    const Bytes reduced = packets * connection_.packet_bytes;
    model_.inflight_hi = std::max({ack.sample.tx_in_flight, reduced, model_.MinCwnd()});
  }
  if (model_.IsInPhase(Phase::kUp)) model_.StartDown(ack.now);
}

void Bbr2Controller::StartCruise() {
  if (model_.inflight_lo != ProbingModel::kNoBound) {
    model_.inflight_lo = std::min(model_.inflight_lo, model_.inflight_hi);
  }
  model_.phase = Phase::kCruise;
}

void Bbr2Controller::UpdateProbeRtt(const AckEvent& ack) {
  if (model_.is_probe_rtt_due && !is_idle_restart_ && model_.mode != Mode::kProbeRtt) {
    SaveCwnd();
    model_.StartProbeRtt();
  }
  // On its last ACK, too: the packets in flight are still as few.
  is_held_back_ = model_.mode == Mode::kProbeRtt;
  if (is_held_back_ && model_.EndsProbeRtt(ack, ProbeRttCwnd())) EndProbeRtt(ack.now);
  if (ack.sample.is_valid) is_idle_restart_ = false;
}

void Bbr2Controller::EndProbeRtt(Nanoseconds now) {
  model_.probe_rtt_min.Refresh(now);
  RestoreCwnd();
  model_.ResetLowerBounds();
  if (IsPipeFull()) {
    model_.StartDown(now);
    StartCruise();
  } else {
    model_.mode = Mode::kStartup;
  }
}

void Bbr2Controller::UpdateCwnd(const AckEvent& ack) {
  const bool is_full = IsPipeFull();
  if (ack.bytes_acked > 0) {
    const Bytes extra = is_full ? extra_acked_.Allowance(parameters_.extra_acked_gain, model_.Bandwidth()) : 0;
    const Bytes target = InflightTarget(model_.Bandwidth(), gains_.cwnd, extra);
    if (is_full) {
      cwnd_ = std::min(cwnd_ + ack.bytes_acked, target);
    } else if (cwnd_ < target || cwnd_ < 2 * connection_.initial_cwnd) {
      cwnd_ += ack.bytes_acked;
    }
    cwnd_ = std::max(cwnd_, model_.MinCwnd());
  }
  if (model_.mode == Mode::kProbeRtt) cwnd_ = std::min(cwnd_, ProbeRttCwnd());
  if (is_full) cwnd_ = std::min(cwnd_, model_.MaxCwnd(Headroom()));
}

void Bbr2Controller::SaveCwnd() {
  const bool is_normal = recovery_ == Recovery::kOpen && model_.mode != Mode::kProbeRtt;
  cwnd_before_recovery_ = is_normal ? cwnd_ : std::max(cwnd_before_recovery_, cwnd_);
}

Bytes Bbr2Controller::InflightTarget(BitsPerSecond bandwidth, double gain, Bytes extra) const {
  if (model_.min_rtt == 0) return connection_.initial_cwnd;
  const auto packet_bytes = static_cast<double>(connection_.packet_bytes);
  auto packets = static_cast<std::int64_t>(std::ceil(gain * model_.BdpBytes(bandwidth) / packet_bytes));
  packets += extra / connection_.packet_bytes;
  packets = std::max(packets, 3 * parameters_.burst_packets);
  if (model_.IsInPhase(Phase::kUp)) packets += 2;  // so that 1.25 is more than 1 on a small BDP
  return packets * connection_.packet_bytes;
}

Bytes Bbr2Controller::ProbeRttCwnd() const {
  const auto half = static_cast<Bytes>(parameters_.probe_rtt_gain * model_.BdpBytes(model_.Bandwidth()));
  return std::max(half, model_.MinCwnd());
}

}  // namespace bbrgym
