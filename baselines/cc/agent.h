#pragma once

#include <optional>

#include "baselines/cc/ack_compression.h"
#include "baselines/cc/agent_round.h"
#include "baselines/cc/backlog_correction.h"
#include "baselines/cc/bbr.h"
#include "baselines/cc/free_link.h"
#include "baselines/cc/lone_pacing.h"
#include "baselines/cc/path_doubt.h"
#include "baselines/cc/rate_changes.h"
#include "baselines/cc/rtt_jumps.h"
#include "baselines/cc/rtt_sample.h"
#include "baselines/cc/shrinking_path.h"
#include "baselines/cc/slower_link.h"
#include "baselines/cc/standing_rtt.h"
#include "baselines/cc/windowed_min.h"

namespace bbrgym {

struct AgentParameters {
  /// What the flow prefers, for an agent that sees it: from 0, the least delay, and rivals may take their share, to 1,
  /// its own share beside rivals that fill the buffer. The controller itself uses it for `recalls_rivals` alone.
  double preference = 0.25;
  /// The gains until the first ones come from outside: those of BBR while it cruises.
  double cwnd_gain = 2.0;
  double pacing_gain = 1.0;
  /// Bounds of gains from outside. A window of a small part of a BDP starves the flow, one of many BDPs only fills
  /// buffers…
  double min_cwnd_gain = 0.25;
  double max_cwnd_gain = 64.0;
  /// …and a pacing gain far from 1 empties or floods the queue within one decision interval.
  double min_pacing_gain = 0.25;
  double max_pacing_gain = 4.0;
  /// Whether the gains from outside apply in every mode, not only in ProbeBW.
  bool is_always_steered = false;
  /// Share of the bandwidth that pacing leaves unused, as in BBR.
  double pacing_margin = 0.0;
  /// Window of max_bandwidth, at least two and at most ten rounds; BBR's is ten, for a cycle that probes in one of
  /// eight, which an agent has not. A flow on a long path would keep a rate that it has to leave to others for seconds.
  double bandwidth_window_ms = 300.0;
  /// The smallest window. With BBR's four packets, a few flows on a slow link fill any buffer.
  std::int64_t min_cwnd_packets = 2;
  /// Startup ends when the smallest RTT of a round is above base_rtt (by 4 ms) and by this share of it: what
  /// BBR's Startup queues until the bandwidth has not grown for three rounds, all flows have to wait for. 0: it does
  /// not…
  double startup_rtt_rise = 0.25;
  /// …or when the flow has this many packets in the queue, which on a long path is a smaller share of its RTT. 0: it
  /// does not.
  std::int64_t startup_queue_packets = 20;
  /// Window of ProbeRTT, in BDPs, enough to empty the short queues that an agent keeps; BBRv2's is 0.5.
  /// 0 means BBR's window of four packets, which costs more throughput (docs/algorithms/agent.md).
  double probe_rtt_cwnd_gain = 0.8;
  /// The same where RTTs are within 0.6 ms and a tenth of the lowest one: there is next to nothing to drain. If the RTT
  /// falls nevertheless, the path has become shorter, and the window becomes that of the others.
  double light_probe_rtt_cwnd_gain = 0.95;
  /// An RTT below this share of min_rtt at the start of ProbeBW starts ProbeRTT at once: other flows are emptying the
  /// queue, and flows can empty it only together. 0 means that only the age of min_rtt starts ProbeRTT.
  double probe_rtt_join = 0.95;
  /// Window of the lowest RTT, from which the BDP is computed: until two ProbeRTTs have failed to find it again. BBR's
  /// ten seconds often end while newcomers have just built a queue. A flow that takes this queue for a part of the path
  /// keeps it.
  double base_rtt_window_s = 20.0;
  /// A flow whose max_bandwidth is below this share of its highest tests whether base_rtt is too short for its path:
  /// the path has become longer, or RTTs vary without a queue (PathDoubt). 0: it learns of a longer path only when the
  /// lowest RTT is out of its window, and the window has no room for jitter.
  double doubt_below = 0.5;
  /// Whether a flow that prefers its share, and loses its bandwidth, recalls the rivals that a ProbeRTT found and the
  /// next one did not (StandingRtt).
  bool recalls_rivals = true;
  /// Whether packets that ACK compression shows to be held up count as jitter (AckCompression).
  bool notices_ack_compression = true;
  /// RTTs above the lowest one by this much, and by a twentieth of it at most, do not count as a queue: they are noise
  /// of hosts and of the path's lower layers. On a fast link it is more packets than the flow keeps in the queue.
  double ignored_delay_ms = 0.3;
  /// How many rounds a correction of the window lasts (BacklogCorrection). 0: there is none.
  double correction_rounds = 10.0;
  /// The most by which this makes the window smaller because max_bandwidth is a maximum. 0: the window counts all of
  /// it.
  std::int64_t surplus_packets = 8;
  /// Whether the same makes the window larger by the packets that get lost, as long as there is no backlog.
  bool makes_up_for_losses = true;
  /// Whether the same makes up for the part of the window that is not in flight also where ACKs are not compressed.
  bool counts_unused_window = true;
  /// Whether a flow whose link has become slower (SlowerLink) goes by the rate of the last moment until the queue has
  /// drained, and not by the highest one of the last round trips.
  bool notices_slower_link = true;
  /// Whether the window grows for as long as RTTs show no queue (FreeLink), on a link that has become faster or that
  /// others have left.
  bool fills_free_link = true;
  /// Whether a flow that has the link alone sends just below the link's rate (LonePacing), not just above it until the
  /// window is full.
  bool paces_lone_flow = true;

  void Describe(ParameterReader& reader);
};

/// BBR's model of the path with its Startup, Drain and ProbeRTT. In ProbeBW, by option in every mode, the two gains are
/// the last ones from outside.
class AgentController : public BbrController {
 public:
  AgentController(const Connection& connection, const AgentParameters& parameters);

  void OnAck(const AckEvent& ack) override;
  bool Steer(double cwnd_gain, double pacing_gain) override;
  Metrics metrics() const override;
  double preference() const { return agent_.preference; }

 private:
  void Observe(const AckEvent& ack) override;
  Gains ChooseGains() const override;
  /// There is no cycle: the agent decides when to probe and drain.
  bool IsPhaseOver(const AckEvent& /*ack*/) const override { return false; }
  /// Of a packet that meets no queue: the lowest RTT, and the mean jitter.
  Nanoseconds BaseRtt() const override { return WithJitter(base_rtt_.Least()); }
  Bytes ChooseProbeRttCwnd() const override;
  /// The agent's. A lone flow that is paced has no queue, for which an agent would look in vain with a larger window.
  double CwndGain() const { return lone_pacing_.is_alone() ? std::min(steered_.cwnd, lone_cwnd_gain_) : steered_.cwnd; }
  void MoveCwnd(const AckEvent& ack, Bytes target) override;
  /// By how much packets are held up in the mean, as far as ACK compression shows it. At most as long as the lowest
  /// RTT, as is the jitter.
  Nanoseconds HeldUp() const {
    return agent_.notices_ack_compression ? std::min(compression_.delay(), lowest_rtt_) : 0;
  }
  /// The same, if that is jitter.
  Nanoseconds CompressionJitter() const { return HeldUp() > PathDoubt::LeastJitter(lowest_rtt_) ? HeldUp() : 0; }
  Nanoseconds Jitter() const { return std::max(std::min(doubt_.jitter(), lowest_rtt_), CompressionJitter()); }
  /// Returns an RTT with what does not count as a queue.
  Nanoseconds WithJitter(Nanoseconds rtt) const { return rtt + std::max(Jitter(), Ignored(rtt)); }
  /// What of a delay beyond this RTT does not count, jitter aside.
  Nanoseconds Ignored(Nanoseconds rtt) const {
    return std::min(static_cast<Nanoseconds>(agent_.ignored_delay_ms * kMillisecond), rtt / 20);
  }
  /// In rounds.
  std::int64_t ChooseBandwidthWindow() const;
  void NoticeSlowerLink(const AckEvent& ack);
  void NoticeFreeLink(const AckEvent& ack);
  void PaceLoneFlow(const AckEvent& ack, const AgentRound& round);
  void MeasureStandingRtt(const AckEvent& ack);
  void LookForShorterPath(const AckEvent& ack);
  void DoubtPath(const AckEvent& ack, const std::optional<RttRise>& rise);
  void JoinProbeRtt(const AckEvent& ack);
  bool IsBehindQueue() const;

  AgentParameters agent_;
  Gains steered_;
  WindowedMin<Nanoseconds> base_rtt_;
  PathDoubt doubt_;
  ShrinkingPath shrinking_path_;
  BacklogCorrection correction_;
  LonePacing lone_pacing_;
  StandingRtt standing_rtt_;
  RateChanges rate_changes_;
  SlowerLink slower_link_;
  FreeLink free_link_;
  double lone_cwnd_gain_ = 0.0;          // of before the flow was paced
  Nanoseconds min_rtt_at_probe_bw_ = 0;  // 0 in the other modes
  Nanoseconds min_rtt_before_ = 0;       // the present ProbeRTT
  Nanoseconds base_rtt_before_ = 0;      // the same
  bool has_short_queue_ = false;         // in the last round of ProbeBW, and the present ProbeRTT has found none
  // Since the flow began, beyond the windows of max_bandwidth and min_rtt; 0 before the first sample.
  BitsPerSecond highest_bandwidth_ = 0;
  /// The window of before a test of the path, or what was in flight if that was more.
  Bytes undoubted_cwnd_ = 0;
  Nanoseconds lowest_rtt_ = 0;
  RttSample round_rtts_;
  RttRises rises_;
  AckCompression compression_;
  RttSample rtts_since_jump_;
  Nanoseconds last_sample_ = 0;
};

}  // namespace bbrgym
