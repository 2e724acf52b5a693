#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "baselines/cc/controller.h"
#include "baselines/cc/extra_acked.h"
#include "baselines/cc/full_pipe.h"
#include "baselines/cc/parameters.h"
#include "baselines/cc/probe_growth.h"
#include "baselines/cc/probe_timer.h"
#include "baselines/cc/random.h"
#include "baselines/cc/round_counter.h"
#include "baselines/cc/two_cycle_max.h"

namespace bbrgym {

struct Bbr2Parameters {
  /// Gains of Startup and Drain, as in BBR v1.
  double startup_gain = 739.0 / 256.0;
  double drain_gain = 88.0 / 256.0;
  /// Window in ProbeBW, in BDPs.
  double cwnd_gain = 2.0;
  /// Pacing gains of the ProbeBW phases that are not 1: probing up, and draining what it queued.
  double probe_up_gain = 1.25;
  double probe_down_gain = 0.75;
  /// A loss rate above this means that too much is in flight: above random losses, below those of a full queue.
  double loss_threshold = 0.02;
  /// The share by which congestion lowers the bounds: 0.3, as for CUBIC's window.
  double beta = 0.3;
  /// Share of the upper bound that cruising leaves free, so that other flows can grow.
  double headroom = 0.15;
  /// This many loss events in a round of Startup end it if the loss rate is above the threshold.
  std::int64_t startup_loss_events = 8;
  /// Time between probes for bandwidth: this plus a random time of up to a second…
  double probe_wait_s = 2.0;
  double probe_wait_random_s = 1.0;
  /// …or, if that is less, the rounds that Reno needs to regain the window: its packets in flight, at most this many.
  std::int64_t reno_rounds = 63;
  /// Time without a smaller RTT after which ProbeRTT begins, and the window of the RTT filter.
  double probe_rtt_interval_s = 5.0;
  double min_rtt_window_s = 10.0;
  double probe_rtt_ms = 200.0;
  /// The window in ProbeRTT, in BDPs; at least `min_cwnd_packets`.
  double probe_rtt_gain = 0.5;
  std::int64_t min_cwnd_packets = 4;
  /// The pipe is full after this many rounds with less growth than this.
  double full_pipe_growth = 1.25;
  std::int64_t full_pipe_rounds = 3;
  /// Share of the bandwidth that pacing leaves unused.
  double pacing_margin = 0.01;
  /// Weight of measured ACK aggregation in the window.
  double extra_acked_gain = 1.0;
  /// Packets that may leave back to back; 1 as in ns-3.
  std::int64_t burst_packets = 1;
  /// The short-term bounds (bw_lo, inflight_lo), which losses outside a probe lower.
  bool has_lower_bounds = true;

  void Describe(ParameterReader& reader);
};

/// BBR version 2 (google/bbr v2alpha): BBR that also keeps the bytes in flight below the amount at which it lost more
/// than 2 %; docs/algorithms/bbr2.md.
class Bbr2Controller : public Controller {
 public:
  Bbr2Controller(const Connection& connection, const Bbr2Parameters& parameters);

  void OnAck(const AckEvent& ack) override;
  void OnRecovery(Recovery state, Nanoseconds now, Bytes in_flight) override;
  void OnRestart(Nanoseconds now) override;
  Decision decision() const override;
  Metrics metrics() const override;

 protected:
  /// Hook: returns the gains in the current mode and phase.
  virtual Gains ChooseGains() const;
  /// Hook: takes an ACK before every other hook. Nothing of the model includes it yet.
  virtual void Observe(const AckEvent& /*ack*/) {}
  /// Hook: returns the share of the upper bound that cruising leaves free.
  virtual double Headroom() const { return parameters_.headroom; }

  Mode mode() const { return mode_; }
  Nanoseconds min_rtt() const { return min_rtt_; }

 private:
  /// Phases of ProbeBW, numbered as in v2alpha.
  enum class Phase : std::uint8_t { kUp = 0, kDown = 1, kCruise = 2, kRefill = 3 };
  /// The phase in which the packets were sent that are acknowledged now, a round later.
  enum class AckPhase : std::uint8_t { kInit, kRefilling, kProbeStarting, kProbeFeedback, kProbeStopping };

  static constexpr Bytes kNoBound = std::numeric_limits<Bytes>::max();
  static constexpr BitsPerSecond kNoRateBound = std::numeric_limits<BitsPerSecond>::max();

  // The steps of an ACK, in their order.
  void UpdateRoundsAndBandwidth(const AckEvent& ack);
  void UpdateLowerBounds(const AckEvent& ack);
  void UpdateStartupLoss(const AckEvent& ack);
  void UpdateFullPipe(const AckEvent& ack);
  void UpdateDrain(const AckEvent& ack);
  void UpdateCycle(const AckEvent& ack);
  void UpdateMinRtt(const AckEvent& ack);
  void UpdateCwnd(const AckEvent& ack);
  void SetPacingRate(BitsPerSecond bandwidth, double gain);

  /// Returns whether a new probe has begun.
  bool UpdateUpperBound(const AckEvent& ack);
  bool IsInflightTooHigh(const AckEvent& ack) const;
  void OnInflightTooHigh(const AckEvent& ack);
  void RaiseUpperBound(const AckEvent& ack);
  bool IsTimeToProbe(Nanoseconds now) const;

  void StartRefill(Bytes delivered);
  void StartUp(const AckEvent& ack);
  void StartDown(Nanoseconds now, Bytes delivered);
  void StartCruise();
  void EndProbeRttIfDue(Nanoseconds now);
  void ResetLowerBounds();
  void ResetCongestionSignals();
  void SaveCwnd();
  bool IsProbingBandwidth() const;
  bool IsPipeFull() const { return full_pipe_.is_full() || is_full_by_loss_; }

  BitsPerSecond Bandwidth() const { return std::min(max_bandwidth_.Best(), bandwidth_lo_); }
  double BdpBytes(BitsPerSecond bandwidth) const { return BytesIn(bandwidth, min_rtt_); }
  Bytes InflightTarget(BitsPerSecond bandwidth, double gain, Bytes extra = 0) const;
  Bytes InflightWithHeadroom() const;
  Bytes TargetInflight() const;
  Bytes ProbeRttCwnd() const;
  Bytes MinCwnd() const { return parameters_.min_cwnd_packets * connection_.packet_bytes; }

  Connection connection_;
  Bbr2Parameters parameters_;
  Random random_;

  Mode mode_ = Mode::kStartup;
  Phase phase_ = Phase::kDown;
  AckPhase ack_phase_ = AckPhase::kInit;
  Gains gains_;

  RoundCounter rounds_;
  bool is_round_start_ = false;
  RoundCounter loss_rounds_;
  bool is_loss_round_start_ = false;
  bool has_loss_in_round_ = false;
  std::int64_t loss_events_in_round_ = 0;

  // The bandwidth of the path, and its short-term bound.
  TwoCycleMax max_bandwidth_;
  BitsPerSecond bandwidth_lo_ = kNoRateBound;
  BitsPerSecond bandwidth_latest_ = 0;
  // The bounds of the bytes in flight: long-term and short-term.
  Bytes inflight_hi_ = kNoBound;
  Bytes inflight_lo_ = kNoBound;
  Bytes inflight_latest_ = 0;

  FullPipe full_pipe_;
  bool is_full_by_loss_ = false;
  ExtraAcked extra_acked_;

  Nanoseconds min_rtt_ = 0;
  Nanoseconds min_rtt_stamp_ = 0;
  Nanoseconds probe_rtt_min_ = 0;
  Nanoseconds probe_rtt_min_stamp_ = 0;
  Nanoseconds probe_rtt_end_ = 0;
  bool is_probe_rtt_round_over_ = false;
  bool is_held_back_ = false;  // by ProbeRTT

  ProbeTimer probe_timer_;
  Nanoseconds up_start_ = 0;
  bool has_probe_samples_ = false;
  bool was_probe_too_high_ = false;
  bool is_risky_probe_stopped_ = false;
  ProbeGrowth growth_;

  Recovery recovery_ = Recovery::kOpen;
  bool is_idle_restart_ = false;
  Bytes cwnd_before_recovery_ = 0;
  Bytes cwnd_;
  BitsPerSecond pacing_rate_ = 0;
  bool has_rtt_ = false;
  Bytes delivered_ = 0;
};

}  // namespace bbrgym
