#pragma once

#include <algorithm>

#include "baselines/cc/controller.h"
#include "baselines/cc/rtt_sample.h"
#include "baselines/cc/units.h"

namespace bbrgym {

/// The RTT of a path without a queue, as the last ProbeRTT showed it: the mean of the packets that left once no more
/// than the small window was in flight. A minimum of RTTs lacks the path's jitter, and the length that a path has
/// gained.
class DrainedRtt {
 public:
  explicit DrainedRtt(bool is_used) : is_used_(is_used) {}

  /// What is known of the flow with an ACK.
  struct State {
    bool is_probe_rtt = false;
    bool is_probe_bw = false;
    Bytes probe_rtt_cwnd = 0;
    BitsPerSecond max_bandwidth = 0;
  };

  /// Takes an ACK. Returns whether ProbeRTT should begin: the flow has lost half of its bandwidth since the last one,
  /// so others have taken it, or the path is not what it was.
  bool OnAck(const AckEvent& ack, const State& state) {
    if (!is_used_) return false;
    if (state.is_probe_rtt) {
      Measure(ack, state.probe_rtt_cwnd);
      return false;
    }
    if (is_probing_) {
      is_probing_ = false;
      if (sample_.count >= kFewest) value_ = sample_.mean();
      ended_ = ack.now;
      highest_ = 0;
    }
    if (!state.is_probe_bw) return false;
    highest_ = std::max(highest_, state.max_bandwidth);
    return 2 * state.max_bandwidth < highest_ && ack.now - ended_ >= kPause;
  }

  /// Ends a round of ProbeBW: a path cannot be longer than the mean of its RTTs.
  void OnRound(const RttSample& rtts) {
    if (value_ > 0 && rtts.is_enough()) value_ = std::min(value_, rtts.mean());
  }

  /// 0: not known.
  Nanoseconds value() const { return value_; }

 private:
  static constexpr std::int64_t kFewest = 2;
  static constexpr Nanoseconds kPause = kSecond;

  void Measure(const AckEvent& ack, Bytes window) {
    if (!is_probing_) {
      is_probing_ = true;
      drained_at_ = 0;
      sample_ = {};
    }
    if (drained_at_ == 0) {
      if (ack.in_flight <= window) drained_at_ = ack.now;
    } else if (ack.rtt > 0 && ack.now - ack.rtt >= drained_at_) {
      sample_.Add(ack.rtt);
    }
  }

  bool is_used_;
  bool is_probing_ = false;
  Nanoseconds drained_at_ = 0;  // 0: not yet
  RttSample sample_;            // of the packets that left since then
  Nanoseconds value_ = 0;
  Nanoseconds ended_ = 0;
  BitsPerSecond highest_ = 0;  // since then
};

}  // namespace bbrgym
