#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "baselines/cc/controller.h"
#include "baselines/cc/min_rtt.h"
#include "baselines/cc/parameters.h"
#include "baselines/cc/probe_growth.h"
#include "baselines/cc/probe_rtt.h"
#include "baselines/cc/probe_timer.h"
#include "baselines/cc/random.h"
#include "baselines/cc/round_counter.h"
#include "baselines/cc/two_cycle_max.h"
#include "baselines/cc/units.h"

namespace bbrgym {

/// When BBR probes for bandwidth and for min_rtt since version 2, and for how long.
struct ProbeParameters {
  /// Time between probes for bandwidth, to which a random time of up to `probe_wait_random_s` is added.
  double probe_wait_s = 2.0;
  double probe_wait_random_s = 1.0;
  /// A probe also begins after the rounds that Reno needs to regain the window, if that is sooner: as many as there are
  /// packets in flight, at most this many.
  std::int64_t reno_rounds = 63;
  /// Time without a smaller RTT after which ProbeRTT begins, and the window of the RTT filter: twice that, so that it
  /// remembers the last ProbeRTT.
  double probe_rtt_interval_s = 5.0;
  double min_rtt_window_s = 10.0;
  double probe_rtt_ms = 200.0;
  /// The window in ProbeRTT, in BDPs; at least `min_cwnd_packets`.
  double probe_rtt_gain = 0.5;
  std::int64_t min_cwnd_packets = 4;
  /// The pipe is full after this many rounds with less growth than this.
  double full_pipe_growth = 1.25;
  std::int64_t full_pipe_rounds = 3;

  void Describe(ParameterReader& reader) {
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
  }
};

/// BBR's model of the path since version 2, and the state of the probes that measure it: what v2alpha and
/// draft-ietf-ccwg-bbr-06 have in common. The controller decides when a state begins and when a bound moves. Names are
/// v2alpha's; the draft says longterm for hi and shortterm for lo.
struct ProbingModel {
  /// Phases of ProbeBW, numbered as in v2alpha.
  enum class Phase : std::uint8_t { kUp = 0, kDown = 1, kCruise = 2, kRefill = 3 };

  static constexpr std::int64_t kNoBound = std::numeric_limits<std::int64_t>::max();

  ProbingModel(const Connection& connection, const ProbeParameters& parameters_given)
      : parameters(parameters_given),
        packet_bytes(connection.packet_bytes),
        random(connection.seed),
        probe_rtt_min(static_cast<Nanoseconds>(parameters.probe_rtt_interval_s * kSecond)),
        probe_rtt(parameters.probe_rtt_ms) {}

  ProbeParameters parameters;
  Bytes packet_bytes;
  Random random;

  Mode mode = Mode::kStartup;
  Phase phase = Phase::kDown;
  RoundCounter rounds;
  bool is_round_start = false;
  Bytes delivered = 0;  // so far, by the connection; the controller sets it

  // The bandwidth of the path, and its short-term bound.
  TwoCycleMax max_bandwidth;
  BitsPerSecond bandwidth_lo = kNoBound;
  // The bounds of the bytes in flight: long-term and short-term.
  Bytes inflight_hi = kNoBound;
  Bytes inflight_lo = kNoBound;
  // The round of losses, at whose end the bounds react, and what its samples delivered at most.
  RoundCounter loss_rounds;
  bool is_loss_round_start = false;
  bool has_loss_in_round = false;
  std::int64_t loss_events_in_round = 0;
  BitsPerSecond bandwidth_latest = 0;
  Bytes inflight_latest = 0;

  Nanoseconds min_rtt = 0;
  Nanoseconds min_rtt_stamp = -1;
  MinRtt probe_rtt_min;
  bool is_probe_rtt_due = false;
  ProbeRtt probe_rtt;

  ProbeTimer probe_timer;
  ProbeGrowth growth;
  bool has_probe_samples = false;  // what is acknowledged now is of a probe that has not gone too high
  bool is_probe_stopping = false;  // the one value of ack_phase, in the sources, that has an effect
  bool was_probe_too_high = false;
  bool is_risky_probe_stopped = false;

  /// Takes an ACK with losses. The first loss begins a round; returns whether it is that one.
  bool OnLosses() {
    ++loss_events_in_round;
    if (std::exchange(has_loss_in_round, true)) return false;
    loss_rounds.Restart(delivered);
    return true;
  }

  void UpdateLatestDelivery(const AckEvent& ack) {
    is_loss_round_start = false;
    if (!ack.sample.is_valid) return;
    bandwidth_latest = std::max(bandwidth_latest, ack.sample.delivery_rate);
    inflight_latest = std::max(inflight_latest, ack.sample.delivered);
    is_loss_round_start = loss_rounds.OnDelivered(ack.sample.prior_delivered, ack.delivered);
  }

  void UpdateRoundsAndBandwidth(const AckEvent& ack) {
    is_round_start = ack.sample.is_valid && rounds.OnDelivered(ack.sample.prior_delivered, ack.delivered);
    if (is_round_start) probe_timer.OnRound();
    if (!ack.sample.is_valid) return;
    // An application-limited rate is only a lower bound of what the path can deliver.
    if (!ack.sample.is_app_limited || ack.sample.delivery_rate >= max_bandwidth.Best()) {
      max_bandwidth.Update(ack.sample.delivery_rate);
    }
  }

  /// An RTT that equals min_rtt renews it in v2alpha, but not in the draft.
  void UpdateMinRtt(const AckEvent& ack, bool is_renewed_by_equal) {
    is_probe_rtt_due = probe_rtt_min.OnAck(ack.now, ack.rtt);
    if (!probe_rtt_min.has_sample()) return;
    if (min_rtt_stamp < 0) min_rtt_stamp = ack.now;  // of the handshake
    const Nanoseconds rtt = probe_rtt_min.value();
    const bool is_old = ack.now > min_rtt_stamp + static_cast<Nanoseconds>(parameters.min_rtt_window_s * kSecond);
    if (min_rtt == 0 || rtt < min_rtt || (is_renewed_by_equal && rtt == min_rtt) || is_old) {
      min_rtt = rtt;
      min_rtt_stamp = probe_rtt_min.stamp();
    }
  }

  /// Lowers the short-term bounds to this share, but not below what was just delivered.
  void LowerUponLoss(double share, Bytes cwnd) {
    if (bandwidth_lo == kNoBound) bandwidth_lo = max_bandwidth.Best();
    if (inflight_lo == kNoBound) inflight_lo = cwnd;
    bandwidth_lo = std::max(bandwidth_latest, static_cast<BitsPerSecond>(share * static_cast<double>(bandwidth_lo)));
    inflight_lo = std::max(inflight_latest, static_cast<Bytes>(share * static_cast<double>(inflight_lo)));
  }

  struct Bounds {
    BitsPerSecond bandwidth_lo = 0;
    Bytes inflight_lo = 0;
    Bytes inflight_hi = 0;
  };

  Bounds bounds() const { return {bandwidth_lo, inflight_lo, inflight_hi}; }
  /// Raises the bounds to what they were before, where losses that were none have lowered them.
  void RaiseTo(const Bounds& before) {
    bandwidth_lo = std::max(bandwidth_lo, before.bandwidth_lo);
    inflight_lo = std::max(inflight_lo, before.inflight_lo);
    inflight_hi = std::max(inflight_hi, before.inflight_hi);
  }
  void ResetLowerBounds() { bandwidth_lo = inflight_lo = kNoBound; }

  /// Forgets losses and deliveries, but for this sample.
  void ResetCongestionSignals(const RateSample& sample = {}) {
    has_loss_in_round = false;
    bandwidth_latest = sample.delivery_rate;
    inflight_latest = sample.delivered;
  }

  /// Ends the cycle with the ACK of its probe's last packets. Returns whether a new probe has begun.
  bool EndCycleIfDue(const AckEvent& ack) {
    if (!is_probe_stopping || !is_round_start) return false;
    is_probe_stopping = has_probe_samples = false;
    if (mode != Mode::kProbeBw) return false;
    if (!ack.sample.is_app_limited) max_bandwidth.Advance();
    if (!is_risky_probe_stopped || was_probe_too_high) return false;
    StartRefill();  // the probe stopped out of caution, and nothing was lost: probe again
    return true;
  }

  void StartRefill(std::int64_t growth_rounds = 0) {
    ResetLowerBounds();
    growth.Restart(growth_rounds);
    is_risky_probe_stopped = is_probe_stopping = false;
    rounds.Restart(delivered);
    phase = Phase::kRefill;
  }

  void StartUp(Bytes cwnd) {
    has_probe_samples = true;
    rounds.Restart(delivered);
    phase = Phase::kUp;
    growth.StartRound(cwnd, packet_bytes);
  }

  void StartDown(Nanoseconds now) {
    ResetCongestionSignals();
    growth.Stop();
    probe_timer.Start(now, parameters.probe_wait_s, parameters.probe_wait_random_s, random);
    is_probe_stopping = true;
    rounds.Restart(delivered);
    mode = Mode::kProbeBw;
    phase = Phase::kDown;
  }

  void StartProbeRtt() {
    mode = Mode::kProbeRtt;
    probe_rtt.Start();
    is_probe_stopping = true;
    rounds.Restart(delivered);
  }

  /// Returns whether this ACK, in ProbeRTT, ends it.
  bool EndsProbeRtt(const AckEvent& ack, Bytes cwnd) { return probe_rtt.OnAck(ack, cwnd, rounds, is_round_start); }

  void RaiseUpperBound(Bytes acked, Bytes cwnd) {
    inflight_hi += growth.OnAck(acked) * packet_bytes;
    if (is_round_start) growth.StartRound(cwnd, packet_bytes);
  }

  bool IsInPhase(Phase wanted) const { return mode == Mode::kProbeBw && phase == wanted; }
  bool IsProbingBandwidth() const {
    return mode == Mode::kStartup || IsInPhase(Phase::kRefill) || IsInPhase(Phase::kUp);
  }
  bool IsTimeToProbe(Nanoseconds now, Bytes target) const {
    return probe_timer.IsOver(now, target / packet_bytes, parameters.reno_rounds);
  }
  /// Whether the loss rate of the sample is above the threshold.
  static bool HasManyLosses(const RateSample& sample, double threshold) {
    const auto in_flight = static_cast<double>(sample.tx_in_flight);
    return sample.is_valid && static_cast<double>(sample.lost_since_send) > threshold * in_flight;
  }
  BitsPerSecond Bandwidth() const { return std::min(max_bandwidth.Best(), bandwidth_lo); }
  double BdpBytes(BitsPerSecond bandwidth) const { return BytesIn(bandwidth, min_rtt); }
  Bytes MinCwnd() const { return parameters.min_cwnd_packets * packet_bytes; }

  /// Returns the upper bound less this share of it, at least a packet, which is left to other flows.
  Bytes InflightWithHeadroom(double headroom) const {
    if (inflight_hi == kNoBound) return kNoBound;
    const auto room = static_cast<Bytes>(headroom * static_cast<double>(inflight_hi));
    return std::max(inflight_hi - std::max(room, packet_bytes), MinCwnd());
  }

  /// Returns the most that the bounds allow the window to be.
  Bytes MaxCwnd(double headroom) const {
    Bytes bound = inflight_lo;
    if (mode == Mode::kProbeRtt || IsInPhase(Phase::kCruise)) {
      bound = std::min(bound, InflightWithHeadroom(headroom));
    } else if (mode == Mode::kProbeBw) {
      bound = std::min(bound, inflight_hi);
    }
    return std::max(bound, MinCwnd());
  }

  Metrics MakeMetrics(const Gains& gains, bool is_pipe_full, Bytes extra_acked) const {
    const auto packets = [this](double bytes) { return bytes / static_cast<double>(packet_bytes); };
    Metrics metrics;
    metrics.Set(Metric::mode, static_cast<double>(mode));
    if (mode == Mode::kProbeBw) metrics.Set(Metric::cycle_index, static_cast<double>(phase));
    metrics.Set(Metric::round, static_cast<double>(rounds.count()));
    metrics.Set(Metric::max_bandwidth_mbps, static_cast<double>(max_bandwidth.Best()) / 1e6);
    if (min_rtt > 0) {
      metrics.Set(Metric::min_rtt_ms, static_cast<double>(min_rtt) / kMillisecond);
      metrics.Set(Metric::bdp_packets, packets(BdpBytes(max_bandwidth.Best())));
    }
    if (bandwidth_lo != kNoBound) metrics.Set(Metric::bandwidth_lo_mbps, static_cast<double>(bandwidth_lo) / 1e6);
    if (inflight_hi != kNoBound) metrics.Set(Metric::inflight_hi_packets, packets(static_cast<double>(inflight_hi)));
    if (inflight_lo != kNoBound) metrics.Set(Metric::inflight_lo_packets, packets(static_cast<double>(inflight_lo)));
    metrics.Set(Metric::cwnd_gain, gains.cwnd);
    metrics.Set(Metric::pacing_gain, gains.pacing);
    metrics.Set(Metric::is_full_pipe, is_pipe_full ? 1.0 : 0.0);
    metrics.Set(Metric::extra_acked_packets, packets(static_cast<double>(extra_acked)));
    return metrics;
  }
};

}  // namespace bbrgym
