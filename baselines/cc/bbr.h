#pragma once

#include <cstdint>

#include "baselines/cc/controller.h"
#include "baselines/cc/extra_acked.h"
#include "baselines/cc/full_pipe.h"
#include "baselines/cc/long_term_bandwidth.h"
#include "baselines/cc/min_rtt.h"
#include "baselines/cc/pacing_rate.h"
#include "baselines/cc/parameters.h"
#include "baselines/cc/probe_rtt.h"
#include "baselines/cc/random.h"
#include "baselines/cc/round_counter.h"
#include "baselines/cc/windowed_max.h"

namespace bbrgym {

struct BbrParameters {
  /// Gain of Startup: 2/ln 2, the smallest that doubles the rate each round, rounded up to 1/256 as in Linux.
  double startup_gain = 739.0 / 256.0;
  /// Pacing gain of Drain: the inverse, rounded down to 1/256. It empties the queue of Startup in one round.
  double drain_gain = 88.0 / 256.0;
  /// Window in ProbeBW: 2 BDP, so that delayed and aggregated ACKs do not stall the flow.
  double cwnd_gain = 2.0;
  /// Pacing gain of the first phase of the cycle, which probes for a quarter more bandwidth.
  double probe_up_gain = 1.25;
  /// Pacing gain of the second phase, which drains what the first queued if there was no more bandwidth.
  double probe_down_gain = 0.75;
  /// Window of the bandwidth filter: one gain cycle of 8 rounds and two more.
  std::int64_t bandwidth_window_rounds = 10;
  /// Window of the RTT filter: in most windows of this length a queue empties by itself at some time.
  double min_rtt_window_s = 10.0;
  /// How long ProbeRTT keeps the window small: long enough for the ProbeRTTs of flows with different RTTs to overlap.
  double probe_rtt_ms = 200.0;
  /// The window in ProbeRTT, and the smallest one elsewhere: two pairs of packets, one delayed ACK per pair.
  std::int64_t min_cwnd_packets = 4;
  /// The pipe is full when `full_pipe_rounds` in a row raise the bandwidth by less than this factor.
  double full_pipe_growth = 1.25;
  /// Rounds without such growth that fill the pipe: one for the growth of the receive window, one for the probe, one
  /// to be sure.
  std::int64_t full_pipe_rounds = 3;
  /// Share of the bandwidth that pacing leaves unused, to shrink a standing queue. In Linux since 4.20; 0 in the
  /// kernels of the papers.
  double pacing_margin = 0.01;
  /// Weight of measured ACK aggregation in the window. In Linux since 5.1; 0 in the kernels of the papers.
  double extra_acked_gain = 1.0;
  /// Packets that may leave back to back; the window has room for three such bursts. 1: no segmentation offload, as in
  /// ns-3 and in the papers' simulations; 0: as many as Linux hands to the card at once (tso_segs_goal).
  std::int64_t burst_packets = 1;
  /// Whether to take a rate on which two lossy intervals agree for the rate of a policer, and keep to it for 48 rounds,
  /// as Linux does.
  bool long_term_sampling = false;

  void Describe(ParameterReader& reader);
};

/// BBR v1 as in Linux 4.14 to 4.17, on which the variants were published: without the two later additions.
struct PapersBbrParameters : BbrParameters {
  PapersBbrParameters() {
    pacing_margin = 0.0;
    extra_acked_gain = 0.0;
  }
};

/// BBR version 1 with Linux's semantics; docs/algorithms/bbr.md has the equations and their sources.
///
/// A variant that changes a few decisions derives from it and overrides the hooks below.
class BbrController : public Controller {
 public:
  BbrController(const Connection& connection, const BbrParameters& parameters);

  void OnAck(const AckEvent& ack) override;
  void OnRecovery(Recovery state, Nanoseconds now, Bytes in_flight) override;
  bool OnSpuriousRecovery() override;
  void OnRestart(Nanoseconds now) override;
  Decision decision() const override;
  Metrics metrics() const override;

 protected:
  /// Hook: takes an ACK before every other hook. The bandwidth and the round include it, the rest of the model not yet.
  virtual void Observe(const AckEvent& /*ack*/) {}
  /// Hook: returns the gains in the current mode.
  virtual Gains ChooseGains() const;
  /// Hook: returns whether the current phase of the ProbeBW cycle is over.
  virtual bool IsPhaseOver(const AckEvent& ack) const;
  /// Hook: returns `gain` times the product of this bandwidth and the delay, in bytes. The window and the marks of the
  /// cycle are computed from it.
  virtual double BdpBytes(double gain, BitsPerSecond bandwidth) const;
  /// Hook: returns the RTT of the BDP, that of the path without queues; 0 before the first sample.
  virtual Nanoseconds BaseRtt() const { return min_rtt(); }
  /// Hook: sets the window on entering recovery, in it and on leaving it, after lost packets have reduced it. Returns
  /// whether this ACK must not move the window any further.
  virtual bool RecoverOrRestoreCwnd(const AckEvent& ack);
  /// Hook: returns the window of the ProbeRTT that begins now.
  virtual Bytes ChooseProbeRttCwnd() const { return MinCwnd(); }
  /// Hook: sets the window when ProbeRTT ends.
  virtual void RestoreCwndAfterProbeRtt();
  /// Hook: moves the window towards its target, on every ACK for which `RecoverOrRestoreCwnd` returns false.
  virtual void MoveCwnd(const AckEvent& ack, Bytes target);

  /// Enters ProbeRTT with this window. The base does so when min_rtt is too old; a variant may have other reasons.
  void EnterProbeRtt(Bytes cwnd);

  /// Changes the window of max_bandwidth from the next ACK on.
  void SetBandwidthWindow(std::int64_t rounds) { bandwidth_.SetWindow(rounds); }
  /// Ends Startup, if that is not over, as if the bandwidth had stopped growing. To be called by `Observe`.
  void EndStartup() { full_pipe_.Fill(); }

  /// Returns the bytes in flight that `gain` BDPs and room for bursts ask for: the mark of the cycle and of Drain, and
  /// the target of the window.
  Bytes InflightTarget(double gain, BitsPerSecond bandwidth, Bytes extra = 0) const;
  /// Rounds a window up to whole bursts if those are the kernel's, which keeps them whole; else it stays as it is.
  Bytes InWholeBursts(Bytes window) const;
  Bytes MinCwnd() const { return parameters_.min_cwnd_packets * connection_.packet_bytes; }

  // Variants read these.
  Mode mode() const { return mode_; }
  const BbrParameters& parameters() const { return parameters_; }
  const Connection& connection() const { return connection_; }
  const Gains& gains() const { return gains_; }
  Recovery recovery() const { return recovery_; }
  bool is_entering_recovery() const {
    return recovery_ == Recovery::kRecovery && recovery_at_last_ack_ != Recovery::kRecovery;
  }
  bool is_leaving_recovery() const { return recovery_ == Recovery::kOpen && recovery_at_last_ack_ != Recovery::kOpen; }
  bool is_round_start() const { return is_round_start_; }
  std::int64_t round() const { return rounds_.count(); }
  BitsPerSecond max_bandwidth() const { return bandwidth_.Best(); }
  Nanoseconds phase_start() const { return phase_start_; }
  Bytes cwnd_before_recovery() const { return cwnd_before_recovery_; }
  /// 0 before the first sample.
  Nanoseconds min_rtt() const { return min_rtt_.value(); }
  bool IsMinRttExpired(Nanoseconds now) const { return min_rtt_.IsExpired(now); }

  // Variants set these in RecoverOrRestoreCwnd and MoveCwnd.
  Bytes cwnd_;
  bool is_packet_conservation_ = false;
  /// Extends packet conservation until everything sent so far is delivered.
  void RestartRound(Bytes delivered) { rounds_.Restart(delivered); }
  // Variants set this in ProbeRTT: the upper bound of the window.
  Bytes probe_rtt_cwnd_ = 0;

 private:
  static constexpr int kCycleLength = 8;

  // The steps of an ACK, in their order.
  void UpdateBandwidth(const AckEvent& ack);
  void UpdateExtraAcked(const AckEvent& ack);
  void UpdateCyclePhase(const AckEvent& ack);
  void UpdateFullPipe(const AckEvent& ack);
  void UpdateDrain(const AckEvent& ack);
  void UpdateMinRtt(const AckEvent& ack);
  void UpdateCwnd(const AckEvent& ack);

  /// Returns the bandwidth that the flow uses: the maximum, or the long-term bandwidth while that is in use.
  BitsPerSecond UsedBandwidth() const;
  void UpdateLongTermBandwidth(bool has_loss, bool is_app_limited);
  void EnterProbeBw(Nanoseconds now);
  void StartPhase(int index, Nanoseconds now);
  void EndProbeRtt(Nanoseconds now);
  void SaveCwnd();
  std::int64_t BurstPackets() const;

  Connection connection_;
  BbrParameters parameters_;
  Random random_;

  WindowedMax<BitsPerSecond> bandwidth_;
  LongTermBandwidth long_term_;
  RoundCounter rounds_;
  FullPipe full_pipe_;
  MinRtt min_rtt_;
  ExtraAcked extra_acked_;

  Mode mode_ = Mode::kStartup;
  Gains gains_;
  int cycle_index_ = 0;
  Nanoseconds phase_start_ = 0;
  bool is_round_start_ = false;
  bool is_idle_restart_ = false;

  ProbeRtt probe_rtt_;
  bool is_held_back_ = false;  // by ProbeRTT

  Recovery recovery_ = Recovery::kOpen;
  Recovery recovery_at_last_ack_ = Recovery::kOpen;
  Bytes cwnd_before_recovery_ = 0;

  PacingRate pacing_rate_;
  Nanoseconds last_ack_ = 0;
  Bytes delivered_ = 0;
  Bytes lost_ = 0;
};

}  // namespace bbrgym
