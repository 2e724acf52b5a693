#pragma once

#include <algorithm>
#include <cstdint>

#include "baselines/cc/controller.h"
#include "baselines/cc/extra_acked.h"
#include "baselines/cc/full_pipe.h"
#include "baselines/cc/marked_share.h"
#include "baselines/cc/pacing_rate.h"
#include "baselines/cc/parameters.h"
#include "baselines/cc/probing_model.h"
#include "baselines/cc/windowed_max.h"

namespace bbrgym {

struct Bbr3Parameters : ProbeParameters {
  /// Pacing gain of Startup: 4 ln 2, the smallest that doubles the rate each round while the window is 2 BDP.
  double startup_gain = 2.77;
  /// Pacing gain of Drain: the inverse of Startup's window drains its queue in one round. Linux: 0.347.
  double drain_gain = 0.5;
  /// Drain ends after this many rounds if the queue does not, because Startup overestimated the bandwidth. 0: it does
  /// not, as in Linux.
  std::int64_t drain_rounds = 3;
  /// Window in BDPs, in all states but the two below.
  double cwnd_gain = 2.0;
  /// Pacing and window while probing for bandwidth: more than before, even if the window was the limit.
  double probe_up_gain = 1.25;
  double probe_up_cwnd_gain = 2.25;
  /// Pacing after a probe: the least that lets flows converge to equal shares beside a gain of 1.25. Linux: 0.91.
  double probe_down_gain = 0.9;
  /// A loss rate above this means that too much is in flight: above random losses, below those of a full queue.
  double loss_threshold = 0.02;
  /// The factor by which a congested round reduces the bounds: 0.7, as for CUBIC's window.
  double beta = 0.7;
  /// Share of the upper bound that cruising leaves free, so that other flows can grow.
  double headroom = 0.15;
  /// This many loss events in a round of Startup end it if the loss rate is above the threshold.
  std::int64_t startup_loss_events = 6;
  /// Whether the growth of every ACK counts, as in Linux, and not only of the one that begins a round.
  bool full_pipe_every_ack = false;
  /// Share of the bandwidth that pacing leaves unused.
  double pacing_margin = 0.01;
  /// Weight of measured ACK aggregation in the window, the rounds over which its maximum counts once the pipe is full,
  /// and the most that it adds, in time at the bandwidth. 0: no limit; Linux: 100 ms.
  double extra_acked_gain = 1.0;
  std::int64_t extra_acked_rounds = 10;
  double extra_acked_limit_ms = 0.0;
  /// Packets that may leave back to back; 1 as in ns-3. 0: as many as leave in 1 ms, at least 2 and at most 64 KB.
  std::int64_t burst_packets = 1;
  /// Whether the end of fast recovery restores the window from before, as that of a timeout does. Linux: no.
  bool restores_cwnd = true;
  /// Whether Drain forgets the losses of Startup's last round, so that they lower no bound. Linux: yes.
  bool drain_forgets_losses = false;
  /// Whether a timeout outside a probe sets the short-term bound to the window before it. Linux: yes.
  bool timeout_sets_bound = false;
  /// ECN, which the draft leaves open, as in Linux. A round with CE marks outside a probe reduces the short-term bound
  /// by this much of the average share of marked packets. 0: marks are ignored.
  double ecn_factor = 1.0 / 3.0;
  /// Weight of a round in the average share of marked packets.
  double ecn_alpha_gain = 1.0 / 16.0;
  /// A probe goes too far if a larger share than this of its packets is marked.
  double ecn_threshold = 0.5;
  /// Startup goes too far if the share is larger in so many rounds in a row.
  std::int64_t startup_ecn_rounds = 2;
  /// After marks and no losses the next probe follows at once, and first raises the upper bound by this share of it. 0:
  /// it does not.
  double ecn_reprobe_gain = 0.5;
  /// The largest min_rtt with which marks count. 0: any, since the draft asks for an answer to marks; Linux: 5 ms.
  double ecn_max_rtt_ms = 0.0;

  void Describe(ParameterReader& reader);
};

/// BBR version 3 (draft-ietf-ccwg-bbr-06): docs/algorithms/bbr3.md.
class Bbr3Controller final : public Controller {
 public:
  Bbr3Controller(const Connection& connection, const Bbr3Parameters& parameters);

  void OnAck(const AckEvent& ack) override;
  void OnRecovery(Recovery state, Nanoseconds now, Bytes in_flight) override;
  bool OnSpuriousRecovery() override;
  void OnRestart(Nanoseconds now) override;
  Decision decision() const override;
  Metrics metrics() const override;

 private:
  using Phase = ProbingModel::Phase;

  /// The state from before the losses changed it. It is restored if the recovery turns out to be spurious.
  struct Undo {
    ProbingModel::Bounds bounds;
    // The state that the losses ended, if any.
    bool is_startup = false;
    bool is_up = false;
  };

  // The steps of an ACK, in their order.
  void UpdateEcnUse();
  void UpdateLoss(const AckEvent& ack);
  void UpdateMarks(const AckEvent& ack);
  void RememberCycle(const RateSample& sample);
  void UpdateLowerBounds();
  void UpdateExtraAcked(const AckEvent& ack);
  void UpdateFullPipe(const AckEvent& ack);
  void UpdateStartup(const AckEvent& ack);
  void UpdateDrain(const AckEvent& ack);
  void UpdateCycle(const AckEvent& ack);
  void UpdateProbeRtt(const AckEvent& ack);
  void UpdateCwnd(const AckEvent& ack);

  /// Returns whether a new probe has begun.
  bool UpdateUpperBound(const AckEvent& ack);
  bool IsInflightTooHigh(const AckEvent& ack) const;
  bool HasManyLosses(const AckEvent& ack) const {
    return ProbingModel::HasManyLosses(ack.sample, parameters_.loss_threshold);
  }
  bool HasManyMarks(const AckEvent& ack) const;
  Bytes InflightAtLoss(const AckEvent& ack) const;
  void OnInflightTooHigh(const AckEvent& ack);
  void OnStartupTooHigh();
  /// Returns whether a new probe has begun.
  bool ProbeIfTime(const AckEvent& ack);
  bool IsPathFull(const AckEvent& ack);

  void StartDown(Nanoseconds now);
  void EndProbeRtt(Nanoseconds now);
  void ResetCongestionSignals();
  void SaveCwnd();
  void SaveStateUponLoss();
  void RestoreCwnd() { cwnd_ = std::max(cwnd_, cwnd_before_recovery_); }

  Gains ChooseGains() const;
  /// Whether the upper bound, through the window, has kept the flow from sending more in the last round.
  bool IsBoundReached(const AckEvent& ack) const { return ack.is_cwnd_limited && cwnd_ >= model_.inflight_hi; }
  Bytes BdpMultiple(BitsPerSecond bandwidth, double gain) const;
  Bytes WithRoomForBursts(Bytes in_flight) const;
  Bytes InflightTarget(BitsPerSecond bandwidth) const { return WithRoomForBursts(BdpMultiple(bandwidth, 1.0)); }
  Bytes TargetInflight() const { return std::min(BdpMultiple(model_.Bandwidth(), 1.0), cwnd_); }
  Bytes ProbeRttCwnd() const {
    return std::max(BdpMultiple(model_.Bandwidth(), parameters_.probe_rtt_gain), model_.MinCwnd());
  }
  Bytes BurstBytes() const;

  Connection connection_;
  Bbr3Parameters parameters_;
  ProbingModel model_;
  Gains gains_;
  bool has_loss_in_cycle_ = false;
  MarkedShare marked_;
  bool uses_ecn_ = false;
  bool has_mark_in_round_ = false;
  bool has_mark_in_cycle_ = false;
  std::int64_t marked_rounds_ = 0;  // of Startup, in a row, above the threshold

  FullPipe full_pipe_;            // of this Startup or probe
  bool is_pipe_full_ = false;     // at any time so far
  std::int64_t drain_start_ = 0;  // in rounds
  AckBurst ack_burst_;
  WindowedMax<Bytes> extra_acked_{1};
  bool is_held_back_ = false;  // by ProbeRTT

  Recovery recovery_ = Recovery::kOpen;
  bool is_idle_restart_ = false;
  Bytes cwnd_before_recovery_ = 0;
  Undo undo_;
  bool is_undo_saved_ = false;
  Bytes cwnd_;
  PacingRate pacing_rate_;
};

}  // namespace bbrgym
