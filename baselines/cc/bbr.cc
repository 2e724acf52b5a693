// BBR version 1.
//
//   bandwidth = windowed_max(delivery_rate, 10 rounds)     min_rtt = windowed_min(RTT, 10 s)
//   pacing_rate = pacing_gain x bandwidth                  cwnd = cwnd_gain x bandwidth x min_rtt + room for bursts
//
//   Startup --(bandwidth stops growing)--> Drain --(queue empty)--> ProbeBW
//   ProbeBW <--(every 10 s without a new min_rtt)--> ProbeRTT
//
// Source: Linux net/ipv4/tcp_bbr.c (4.14, and by default the later pacing margin and ACK aggregation);
// draft-cardwell-iccrg-bbr-congestion-control-00. Largest deviation: long-term ("policer") bandwidth sampling is an
// option that is off by default; it acts only after 20 % loss over many rounds. docs/algorithms/bbr.md lists the
// others.

#include "baselines/cc/bbr.h"

#include <algorithm>
#include <cmath>

namespace bbrgym {

void BbrParameters::Describe(ParameterReader& reader) {
  reader.Field("startup_gain", startup_gain, 1.0, 10.0);
  reader.Field("drain_gain", drain_gain, 0.01, 1.0);
  reader.Field("cwnd_gain", cwnd_gain, 0.1, 100.0);
  reader.Field("probe_up_gain", probe_up_gain, 1.0, 10.0);
  reader.Field("probe_down_gain", probe_down_gain, 0.01, 1.0);
  reader.Field("bandwidth_window_rounds", bandwidth_window_rounds, 1, 1000);
  reader.Field("min_rtt_window_s", min_rtt_window_s, 0.1, 3600.0);
  reader.Field("probe_rtt_ms", probe_rtt_ms, 1.0, 10'000.0);
  reader.Field("min_cwnd_packets", min_cwnd_packets, 1, 1000);
  reader.Field("full_pipe_growth", full_pipe_growth, 1.0, 10.0);
  reader.Field("full_pipe_rounds", full_pipe_rounds, 1, 1000);
  reader.Field("pacing_margin", pacing_margin, 0.0, 0.5);
  reader.Field("extra_acked_gain", extra_acked_gain, 0.0, 10.0);
  reader.Field("burst_packets", burst_packets, 0, 1000);
  reader.Field("long_term_sampling", long_term_sampling);
}

BbrController::BbrController(const Connection& connection, const BbrParameters& parameters)
    : cwnd_(connection.initial_cwnd),
      connection_(connection),
      parameters_(parameters),
      random_(connection.seed),
      bandwidth_(parameters.bandwidth_window_rounds),
      full_pipe_(parameters.full_pipe_growth, parameters.full_pipe_rounds),
      min_rtt_(static_cast<Nanoseconds>(parameters.min_rtt_window_s * kSecond)),
      gains_{.cwnd = parameters.startup_gain, .pacing = parameters.startup_gain},
      probe_rtt_(parameters.probe_rtt_ms),
      pacing_rate_(connection, parameters.pacing_margin, parameters.startup_gain) {}

void BbrController::OnAck(const AckEvent& ack) {
  last_ack_ = ack.now;
  delivered_ = ack.delivered;
  lost_ += ack.bytes_lost;
  UpdateBandwidth(ack);
  Observe(ack);
  UpdateExtraAcked(ack);
  UpdateCyclePhase(ack);
  UpdateFullPipe(ack);
  UpdateDrain(ack);
  UpdateMinRtt(ack);
  gains_ = ChooseGains();
  pacing_rate_.OnAck(min_rtt_.value(), UsedBandwidth(), gains_.pacing, full_pipe_.is_full());
  UpdateCwnd(ack);
}

void BbrController::OnRecovery(Recovery state, Nanoseconds /*now*/, Bytes in_flight) {
  if (state != Recovery::kOpen && recovery_ == Recovery::kOpen) SaveCwnd();
  if (state == Recovery::kLoss) {
    // After a timeout the earlier plateau no longer counts, and the window restarts from what is in flight.
    full_pipe_.ForgetBandwidth();
    is_round_start_ = true;
    UpdateLongTermBandwidth(/*has_loss=*/true, /*is_app_limited=*/false);
    cwnd_ = std::max(in_flight, Bytes{0}) + connection_.packet_bytes;
    recovery_at_last_ack_ = Recovery::kLoss;
    is_packet_conservation_ = false;
  }
  recovery_ = state;
}

bool BbrController::OnSpuriousRecovery() {
  // Linux bbr_undo_cwnd. The window returns with the next ACK, as at the end of every recovery.
  full_pipe_.ForgetGrowth();
  long_term_ = {};
  recovery_ = Recovery::kOpen;
  return true;
}

void BbrController::OnRestart(Nanoseconds now) {
  is_idle_restart_ = true;
  extra_acked_.Restart();
  if (mode_ == Mode::kProbeBw) {
    // Pace at the bandwidth itself: with nothing in flight there is nothing to probe or drain.
    pacing_rate_.Set(UsedBandwidth(), 1.0, full_pipe_.is_full());
  } else if (mode_ == Mode::kProbeRtt && probe_rtt_.IsTimeOver(now)) {
    EndProbeRtt(now);
  }
}

Decision BbrController::decision() const {
  return {.cwnd = cwnd_,
          .pacing_rate = pacing_rate_.value(),
          .send_quantum = BurstPackets() * connection_.packet_bytes,
          .is_burst_whole = parameters_.burst_packets == 0,
          .is_paced = true,
          .is_app_limited = is_held_back_};
}

Metrics BbrController::metrics() const {
  Metrics metrics;
  metrics.Set(Metric::mode, static_cast<double>(mode_));
  metrics.Set(Metric::round, static_cast<double>(rounds_.count()));
  metrics.Set(Metric::max_bandwidth_mbps, static_cast<double>(bandwidth_.Best()) / 1e6);
  if (min_rtt_.has_sample()) {
    metrics.Set(Metric::min_rtt_ms, static_cast<double>(min_rtt_.value()) / kMillisecond);
    metrics.Set(Metric::bdp_packets,
                BbrController::BdpBytes(1.0, max_bandwidth()) / static_cast<double>(connection_.packet_bytes));
  }
  metrics.Set(Metric::cwnd_gain, gains_.cwnd);
  metrics.Set(Metric::pacing_gain, gains_.pacing);
  metrics.Set(Metric::is_full_pipe, full_pipe_.is_full() ? 1.0 : 0.0);
  if (mode_ == Mode::kProbeBw) metrics.Set(Metric::cycle_index, cycle_index_);
  if (long_term_.is_used()) {
    metrics.Set(Metric::long_term_bandwidth_mbps, static_cast<double>(long_term_.value()) / 1e6);
  }
  metrics.Set(Metric::extra_acked_packets,
              static_cast<double>(extra_acked_.Most()) / static_cast<double>(connection_.packet_bytes));
  return metrics;
}

Gains BbrController::ChooseGains() const {
  switch (mode_) {
    case Mode::kStartup:
      return {.cwnd = parameters_.startup_gain, .pacing = parameters_.startup_gain};
    case Mode::kDrain:
      return {.cwnd = parameters_.startup_gain, .pacing = parameters_.drain_gain};
    case Mode::kProbeBw:
      return {.cwnd = parameters_.cwnd_gain,
              .pacing = long_term_.is_used() ? 1.0
                        : cycle_index_ == 0  ? parameters_.probe_up_gain
                        : cycle_index_ == 1  ? parameters_.probe_down_gain
                                             : 1.0};
    default:
      return {.cwnd = 1.0, .pacing = 1.0};
  }
}

bool BbrController::IsPhaseOver(const AckEvent& ack) const {
  const bool has_lasted_min_rtt = ack.now - phase_start_ > min_rtt_.value();
  if (gains_.pacing > 1.0) {
    // Probe until the extra data is in flight, or until a loss shows that it does not fit.
    return has_lasted_min_rtt &&
           (ack.bytes_lost > 0 || ack.prior_in_flight >= InflightTarget(gains_.pacing, max_bandwidth()));
  }
  if (gains_.pacing < 1.0) return has_lasted_min_rtt || ack.prior_in_flight <= InflightTarget(1.0, max_bandwidth());
  return has_lasted_min_rtt;
}

void BbrController::UpdateBandwidth(const AckEvent& ack) {
  is_round_start_ = false;
  if (!ack.sample.is_valid) return;
  if (rounds_.OnDelivered(ack.sample.prior_delivered, ack.delivered)) {
    is_round_start_ = true;
    is_packet_conservation_ = false;
  }
  UpdateLongTermBandwidth(ack.bytes_lost > 0, ack.sample.is_app_limited);
  // An application-limited rate is only a lower bound of what the path can deliver.
  if (!ack.sample.is_app_limited || ack.sample.delivery_rate >= bandwidth_.Best()) {
    bandwidth_.Update(rounds_.count(), ack.sample.delivery_rate);
  }
}

void BbrController::UpdateExtraAcked(const AckEvent& ack) {
  if (!ack.sample.is_valid || ack.bytes_acked <= 0) return;
  extra_acked_.OnAck(ack.now, ack.bytes_acked, UsedBandwidth(), cwnd_, is_round_start_);
}

void BbrController::UpdateCyclePhase(const AckEvent& ack) {
  if (mode_ == Mode::kProbeBw && IsPhaseOver(ack)) StartPhase((cycle_index_ + 1) % kCycleLength, ack.now);
}

void BbrController::UpdateFullPipe(const AckEvent& ack) {
  if (is_round_start_ && !ack.sample.is_app_limited) full_pipe_.OnRound(bandwidth_.Best());
}

void BbrController::UpdateDrain(const AckEvent& ack) {
  if (mode_ == Mode::kStartup && full_pipe_.is_full()) mode_ = Mode::kDrain;
  if (mode_ == Mode::kDrain && ack.in_flight <= InflightTarget(1.0, max_bandwidth())) EnterProbeBw(ack.now);
}

void BbrController::UpdateMinRtt(const AckEvent& ack) {
  const bool is_expired = min_rtt_.OnAck(ack.now, ack.rtt);
  if (is_expired && !is_idle_restart_ && mode_ != Mode::kProbeRtt) EnterProbeRtt(ChooseProbeRttCwnd());
  // On its last ACK, too: the packets in flight are still as few.
  is_held_back_ = mode_ == Mode::kProbeRtt;
  if (is_held_back_ && probe_rtt_.OnAck(ack, probe_rtt_cwnd_, rounds_, is_round_start_)) EndProbeRtt(ack.now);
  if (ack.sample.is_valid) is_idle_restart_ = false;
}

void BbrController::UpdateCwnd(const AckEvent& ack) {
  // The order matters for the ACK that ends recovery: first restore the window, then grow it.
  bool is_done = ack.bytes_acked <= 0;
  if (!is_done) {
    if (ack.bytes_lost > 0) cwnd_ = std::max(cwnd_ - ack.bytes_lost, connection_.packet_bytes);
    is_done = RecoverOrRestoreCwnd(ack);
    recovery_at_last_ack_ = recovery_;
  }
  if (!is_done) {
    const Bytes extra =
        full_pipe_.is_full() ? extra_acked_.Allowance(parameters_.extra_acked_gain, UsedBandwidth()) : 0;
    MoveCwnd(ack, InflightTarget(gains_.cwnd, UsedBandwidth(), extra));
    cwnd_ = std::max(cwnd_, MinCwnd());
  }
  if (mode_ == Mode::kProbeRtt) cwnd_ = std::min(cwnd_, probe_rtt_cwnd_);
}

bool BbrController::RecoverOrRestoreCwnd(const AckEvent& ack) {
  if (is_entering_recovery()) {
    // In the first round of recovery, send one packet per delivered packet: the queue that overflowed must not grow.
    is_packet_conservation_ = true;
    rounds_.Restart(ack.delivered);
    cwnd_ = ack.in_flight + ack.bytes_acked;
  } else if (is_leaving_recovery()) {
    cwnd_ = std::max(cwnd_, cwnd_before_recovery_);
    is_packet_conservation_ = false;
  }
  if (!is_packet_conservation_) return false;
  cwnd_ = std::max(cwnd_, ack.in_flight + ack.bytes_acked);
  return true;
}

void BbrController::MoveCwnd(const AckEvent& ack, Bytes target) {
  if (full_pipe_.is_full()) {
    cwnd_ = std::min(cwnd_ + ack.bytes_acked, target);
  } else if (cwnd_ < target || delivered_ < connection_.initial_cwnd) {
    cwnd_ += ack.bytes_acked;
  }
}

BitsPerSecond BbrController::UsedBandwidth() const {
  return long_term_.is_used() ? long_term_.value() : max_bandwidth();
}

void BbrController::UpdateLongTermBandwidth(bool has_loss, bool is_app_limited) {
  if (!parameters_.long_term_sampling) return;
  const bool was_used = long_term_.is_used();
  long_term_.Update({.now = last_ack_,
                     .delivered = delivered_,
                     .lost = lost_,
                     .has_loss = has_loss,
                     .is_app_limited = is_app_limited,
                     .is_round_start = is_round_start_,
                     .is_probe_bw = mode_ == Mode::kProbeBw});
  if (was_used && !long_term_.is_used()) EnterProbeBw(last_ack_);  // restart the cycle
}

void BbrController::EnterProbeBw(Nanoseconds now) {
  mode_ = Mode::kProbeBw;
  // Start in a random phase, except the draining one, so that flows that start together do not probe together.
  const auto skipped = static_cast<int>(random_.Below(kCycleLength - 1));
  StartPhase((kCycleLength - skipped) % kCycleLength, now);
}

void BbrController::StartPhase(int index, Nanoseconds now) {
  cycle_index_ = index;
  phase_start_ = now;
}

void BbrController::EnterProbeRtt(Bytes cwnd) {
  mode_ = Mode::kProbeRtt;
  SaveCwnd();  // the larger one of now and before: Linux, too, is in ProbeRTT by then
  probe_rtt_cwnd_ = cwnd;
  probe_rtt_.Start();
}

void BbrController::EndProbeRtt(Nanoseconds now) {
  min_rtt_.Refresh(now);
  RestoreCwndAfterProbeRtt();
  if (full_pipe_.is_full()) {
    EnterProbeBw(now);
  } else {
    mode_ = Mode::kStartup;
  }
}

void BbrController::RestoreCwndAfterProbeRtt() {
  cwnd_ = std::max(cwnd_, cwnd_before_recovery_);
}

void BbrController::SaveCwnd() {
  // In recovery and in ProbeRTT the window is small on purpose: keep the one from before.
  const bool is_normal = recovery_at_last_ack_ == Recovery::kOpen && mode_ != Mode::kProbeRtt;
  cwnd_before_recovery_ = is_normal ? cwnd_ : std::max(cwnd_before_recovery_, cwnd_);
}

double BbrController::BdpBytes(double gain, BitsPerSecond bandwidth) const {
  return gain * BytesIn(bandwidth, BaseRtt());
}

Bytes BbrController::InflightTarget(double gain, BitsPerSecond bandwidth, Bytes extra) const {
  if (!min_rtt_.has_sample()) return connection_.initial_cwnd;
  const auto packet_bytes = static_cast<double>(connection_.packet_bytes);
  auto packets = static_cast<std::int64_t>(std::ceil(BdpBytes(gain, bandwidth) / packet_bytes));
  packets += extra / connection_.packet_bytes;
  packets += 3 * BurstPackets();          // one burst in the card, one in the queue discipline, one in the receiver
  packets = (packets + 1) & ~INT64_C(1);  // even: receivers acknowledge every second packet
  const bool is_probing = gains_.pacing > 1.0 || (long_term_.is_used() && cycle_index_ == 0);
  if (mode_ == Mode::kProbeBw && is_probing) packets += 2;  // so that 1.25 is more than 1 on a small BDP
  return packets * connection_.packet_bytes;
}

std::int64_t BbrController::BurstPackets() const {
  if (parameters_.burst_packets > 0) return parameters_.burst_packets;
  // Linux bbr_tso_segs_goal: about 1 ms of the pacing rate, at most 64 KB; below 1.2 Mbit/s single packets.
  constexpr BitsPerSecond kSinglePacketRate = 1'200'000;
  constexpr Bytes kMaxBurst = 65'536;
  const Bytes burst = std::min<Bytes>(pacing_rate_.value() / 8 / 1024, kMaxBurst);
  const std::int64_t least = pacing_rate_.value() < kSinglePacketRate ? 1 : 2;
  return std::max<std::int64_t>(burst / connection_.packet_bytes, least);
}

Bytes BbrController::InWholeBursts(Bytes window) const {
  if (parameters_.burst_packets > 0) return window;
  const Bytes burst = BurstPackets() * connection_.packet_bytes;
  return (window + burst - 1) / burst * burst;
}

}  // namespace bbrgym
