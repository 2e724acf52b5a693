#pragma once

#include <cstdint>

#include "baselines/cc/bbr.h"
#include "baselines/cc/parameters.h"
#include "baselines/cc/rtt_sample.h"

namespace bbrgym {

/// Options of BBR's model of the path, for controllers that choose their gains without BBR's cycle.
/// docs/algorithms/agent.md has them beside BBR's own values.
struct BbrModelParameters {
  /// Whether the options have BBR's own values, except those that are given.
  bool is_bbr_model = false;
  /// Window of max_bandwidth: at least two and at most ten rounds. 0: ten rounds, BBR's, for a cycle that probes in one
  /// of eight. A flow on a long path would keep for seconds a rate that it has to leave to others.
  double bandwidth_window_ms = 300.0;
  /// The smallest window. With BBR's four packets, a few flows on a slow link fill any buffer.
  std::int64_t min_cwnd_packets = 2;
  /// Startup ends when the smallest RTT of a round is above min_rtt by 4 ms and by this share of it. 0: it does not,
  /// as in BBR: all flows wait for the queue that its Startup builds until the bandwidth has not grown for three
  /// rounds.
  double startup_rtt_rise = 0.25;
  /// Startup also ends when the flow has this many packets in the queue, which on a long path is a smaller share of its
  /// RTT. 0: it does not.
  std::int64_t startup_queue_packets = 20;
  /// Window of ProbeRTT in BDPs, enough to empty a short queue. 0: `min_cwnd_packets`, BBR's, which costs throughput.
  double probe_rtt_cwnd_gain = 0.8;
  /// An RTT below this share of the min_rtt with which ProbeBW began starts ProbeRTT at once: other flows are emptying
  /// the queue, and flows can empty it only together. 0: only the age of min_rtt starts ProbeRTT, as in BBR.
  double probe_rtt_join = 0.95;
  /// Packets that leave back to back (`BbrParameters::burst_packets`). 0: as many as in the kernel's TCP.
  std::int64_t burst_packets = 1;

  /// BBR's own values.
  static BbrModelParameters OfBbr();

  void Describe(ParameterReader& reader);
};

/// BBR's model of the path, its Startup, Drain and ProbeRTT, and a ProbeBW without a cycle: there a subclass chooses
/// the gains.
class BbrModelController : public BbrController {
 public:
  void OnAck(const AckEvent& ack) override;
  Metrics metrics() const override;

 protected:
  BbrModelController(const Connection& connection, const BbrModelParameters& parameters);

  /// Hook: takes an ACK before every other hook. The bandwidth and the round include it, the rest of the model not yet.
  /// An override calls this one.
  void Observe(const AckEvent& ack) override;
  bool IsPhaseOver(const AckEvent& /*ack*/) const final { return false; }
  Bytes ChooseProbeRttCwnd() const final;
  /// The RTTs of the round that goes on; in `Observe`, of the one that ends with this ACK.
  const RttSample& round_rtts() const { return round_rtts_; }

 private:
  void ChooseBandwidthWindow();
  bool IsBehindQueue() const;
  void JoinProbeRtt(const AckEvent& ack);
  void MeasureStandingRtt(const AckEvent& ack);

  BbrModelParameters model_;
  RttSample round_rtts_;
  Nanoseconds last_sample_ = 0;
  Nanoseconds min_rtt_at_probe_bw_ = 0;  // 0 in the other modes
  // 0 before the first sample.
  Nanoseconds lowest_rtt_ = 0;           // since the flow began
  BitsPerSecond highest_bandwidth_ = 0;  // the same
  Nanoseconds probe_rtt_least_ = 0;      // in the ProbeRTT that goes on
  Nanoseconds standing_rtt_ = 0;         // the smallest of the last ProbeRTT
};

}  // namespace bbrgym
