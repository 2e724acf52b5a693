#pragma once

#include <algorithm>

#include "baselines/cc/controller.h"
#include "baselines/cc/rtt_sample.h"
#include "baselines/cc/units.h"

namespace bbrgym {

/// A part of the window that brings a flow's backlog, the bytes that it has in the queue, to its target sooner.
///
/// A window of bandwidth x base_rtt + target has the right backlog in the end, but each round moves the flow's rate by
/// the share q = queueing delay / RTT only: where the queue is short and the path long, flows need minutes to share
/// evenly. And the bandwidth, a maximum, is too high by a little, which is many packets of a large BDP. In both cases
/// the backlog stays away from its target for many rounds. So each round adds a part of the difference, and forgets a
/// part of what it has added before:
///   correction = (1 - forgotten) x correction + g x (target - backlog),    g = min(0.3, forgotten^2 / (4 q))
/// Flows then converge 1 + g / forgotten times as fast. The bound 0.3 is for a lone flow, whose backlog follows its
/// window by one to one after a round; the other one is the critical damping of flows among each other.
class BacklogCorrection {
 public:
  struct State {
    bool is_probe_bw = false;
    RttSample rtts;  // of the round that is over
    Nanoseconds base_rtt = 0;
    double bdp = 0.0;     // bytes
    double target = 0.0;  // bytes
  };

  /// With a memory of 0 there is no correction.
  explicit BacklogCorrection(double memory_rounds)
      : forgotten_(memory_rounds > 0.0 ? 1.0 / std::max(memory_rounds, 1.0) : 0.0) {}

  /// Ends a round with the ACK that begins the next one.
  void OnRoundStart(const AckEvent& ack, const State& state) {
    if (state.is_probe_bw && state.rtts.count > 0 && ack.now > begin_) Correct(ack, state);
    begin_ = ack.now;
    delivered_ = ack.delivered;
  }

  /// What the window has beyond bandwidth x base_rtt + target.
  double bytes() const { return bytes_; }

 private:
  static constexpr double kMaxGain = 0.3;
  /// In BDPs: where the backlog cannot reach its target, as behind a rival's queue, the gain alone decides.
  static constexpr double kMost = 0.1;

  void Correct(const AckEvent& ack, const State& state) {
    if (forgotten_ == 0.0) return;
    const double rtt = static_cast<double>(state.rtts.sum) / static_cast<double>(state.rtts.count);
    const double queueing = std::max(rtt - static_cast<double>(state.base_rtt), 0.0);
    const double rate = static_cast<double>(ack.delivered - delivered_) / static_cast<double>(ack.now - begin_);
    const double gain =
        std::min(kMaxGain, queueing > 0.0 ? forgotten_ * forgotten_ * rtt / (4.0 * queueing) : kMaxGain);
    bytes_ = (1.0 - forgotten_) * bytes_ + gain * (state.target - rate * queueing);
    bytes_ = std::clamp(bytes_, -kMost * state.bdp, kMost * state.bdp);
  }

  double forgotten_;
  double bytes_ = 0.0;

  // When the present round began.
  Nanoseconds begin_ = 0;
  Bytes delivered_ = 0;
};

}  // namespace bbrgym
