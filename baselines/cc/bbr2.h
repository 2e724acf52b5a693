#pragma once

#include <algorithm>
#include <cstdint>

#include "baselines/cc/controller.h"
#include "baselines/cc/extra_acked.h"
#include "baselines/cc/full_pipe.h"
#include "baselines/cc/pacing_rate.h"
#include "baselines/cc/parameters.h"
#include "baselines/cc/probing_model.h"

namespace bbrgym {

struct Bbr2Parameters : ProbeParameters {
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
  bool OnSpuriousRecovery() override;
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

  Mode mode() const { return model_.mode; }
  Nanoseconds min_rtt() const { return model_.min_rtt; }

 private:
  using Phase = ProbingModel::Phase;

  // The steps of an ACK, in their order.
  void UpdateLowerBounds(const AckEvent& ack);
  void UpdateStartupLoss(const AckEvent& ack);
  void UpdateDrain(const AckEvent& ack);
  void UpdateCycle(const AckEvent& ack);
  void UpdateProbeRtt(const AckEvent& ack);
  void UpdateCwnd(const AckEvent& ack);

  /// Returns whether a new probe has begun.
  bool UpdateUpperBound(const AckEvent& ack);
  bool IsInflightTooHigh(const AckEvent& ack) const {
    return ProbingModel::HasManyLosses(ack.sample, parameters_.loss_threshold);
  }
  void OnInflightTooHigh(const AckEvent& ack);
  bool IsTimeToProbe(Nanoseconds now) const { return model_.IsTimeToProbe(now, TargetInflight()); }
  void StartCruise();
  void EndProbeRtt(Nanoseconds now);
  void SaveCwnd();
  void RestoreCwnd() { cwnd_ = std::max(cwnd_, cwnd_before_recovery_); }

  bool IsPipeFull() const { return full_pipe_.is_full() || is_full_by_loss_; }
  Bytes InflightTarget(BitsPerSecond bandwidth, double gain, Bytes extra = 0) const;
  Bytes TargetInflight() const { return std::min(InflightTarget(model_.Bandwidth(), 1.0), cwnd_); }
  Bytes ProbeRttCwnd() const;

  Connection connection_;
  Bbr2Parameters parameters_;
  ProbingModel model_;
  Gains gains_;
  FullPipe full_pipe_;
  bool is_full_by_loss_ = false;
  ExtraAcked extra_acked_;
  Nanoseconds up_start_ = 0;
  bool is_held_back_ = false;  // by ProbeRTT

  Recovery recovery_ = Recovery::kOpen;
  bool is_idle_restart_ = false;
  // From before the recovery.
  Bytes cwnd_before_recovery_ = 0;
  ProbingModel::Bounds bounds_before_recovery_;
  Bytes cwnd_;
  PacingRate pacing_rate_;
};

}  // namespace bbrgym
