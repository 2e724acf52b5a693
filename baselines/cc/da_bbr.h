#pragma once

#include "baselines/cc/bbr.h"

namespace bbrgym {

struct DaBbrParameters : PapersBbrParameters {
  /// The authors' reaction to losses: drain at 0.75, and do not restore the window from before. Off: as in BBR.
  bool has_loss_response = true;
  /// ProbeRTT at a third of the window, "for enhancing throughput". Off: BBR's four packets.
  bool has_probe_rtt_third = true;
  /// A min_rtt that has grown by more than this factor since the last window switches the reduction off: the path may
  /// have changed.
  double min_rtt_growth = 1.2;

  void Describe(ParameterReader& reader);
};

/// DA-BBR (Kim, Cho, IEEE Access 2020): in ProbeBW the BDP is multiplied by RTT / (RTT + min_rtt), which is lower for
/// flows with a long min_rtt; docs/algorithms/da-bbr.md.
class DaBbrController final : public BbrController {
 public:
  DaBbrController(const Connection& connection, const DaBbrParameters& parameters);

 private:
  void Observe(const AckEvent& ack) override;
  Gains ChooseGains() const override;
  double BdpBytes(double gain, BitsPerSecond bandwidth) const override;
  bool RecoverOrRestoreCwnd(const AckEvent& ack) override;
  Bytes ChooseProbeRttCwnd() const override;

  DaBbrParameters delay_aware_;
  Nanoseconds rtt_ = 0;
  Nanoseconds previous_min_rtt_ = 0;
  Nanoseconds drained_phase_ = -1;
};

}  // namespace bbrgym
