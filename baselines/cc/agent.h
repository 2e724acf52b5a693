#pragma once

#include "baselines/cc/bbr.h"

namespace bbrgym {

struct AgentParameters {
  /// The gains until the first ones come from outside: BBR's window, and its cruise.
  double cwnd_gain = 2.0;
  double pacing_gain = 1.0;
  /// Gains from outside are clamped to these: with a small part of a BDP the flow starves, with many it only fills
  /// buffers…
  double min_cwnd_gain = 0.25;
  double max_cwnd_gain = 8.0;
  /// …and a pacing gain far from 1 empties or floods the queue within one decision.
  double min_pacing_gain = 0.25;
  double max_pacing_gain = 4.0;
  /// Whether the gains hold in every mode, not only in ProbeBW.
  bool is_always_steered = false;
  /// BBR's pacing margin, for the agent's model too.
  double pacing_margin = 0.0;
  /// Window of ProbeRTT, in BDPs, as in BBRv2: an agent that keeps short queues empties them with half a BDP, and does
  /// not pay two percent of its throughput for it. 0 is BBR's window of four packets.
  double probe_rtt_cwnd_gain = 0.5;
  /// An RTT below this part of what min_rtt was when ProbeBW began starts ProbeRTT at once: others are emptying the
  /// queue, and only together do flows empty it. 0 leaves it to the ten seconds of min_rtt.
  double probe_rtt_join = 0.95;
  /// For how long the BDP is that of the lowest RTT: until two ProbeRTTs have not found it again. BBR's ten seconds
  /// often end behind a queue that newcomers have just built, and a flow that takes this queue for its path keeps it
  /// up.
  double base_rtt_window_s = 20.0;

  void Describe(ParameterReader& reader);
};

/// BBR's model of the path and its Startup, Drain and ProbeRTT; in ProbeBW (by option always) the two gains are
/// the last ones given from outside. The work of every ACK stays here, a decision from outside comes once an interval.
class AgentController : public BbrController {
 public:
  AgentController(const Connection& connection, const AgentParameters& parameters);

  void OnAck(const AckEvent& ack) override;
  bool Steer(double cwnd_gain, double pacing_gain) override;
  Metrics metrics() const override;

 private:
  void Observe(const AckEvent& ack) override;
  Gains ChooseGains() const override;
  bool IsPhaseOver(const AckEvent& ack) const override;
  Nanoseconds BaseRtt() const override { return base_rtt_.value(); }
  Bytes ChooseProbeRttCwnd() const override;
  void MoveCwnd(const AckEvent& ack, Bytes target) override;

  AgentParameters agent_;
  Gains steered_;
  MinRtt base_rtt_;
  Nanoseconds min_rtt_at_probe_bw_ = 0;  // 0 in the other modes
  // What the windows of max_bandwidth and min_rtt have forgotten; 0 before the first sample.
  BitsPerSecond highest_bandwidth_ = 0;
  Nanoseconds lowest_rtt_ = 0;
};

}  // namespace bbrgym
