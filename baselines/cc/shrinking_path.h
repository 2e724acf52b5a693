#pragma once

#include <algorithm>

#include "baselines/cc/units.h"

namespace bbrgym {

/// Says when to look for a shorter path although min_rtt is not old. While a path becomes shorter, a constant window
/// fills the difference: the RTT stays the same, comes near its minimum all the time, and does not show the queue.
///
/// A flow that sees no queue but its own should drain it from time to time. If it then finds a shorter path, the path
/// may go on to shrink, and the next time comes sooner.
class ShrinkingPath {
 public:
  explicit ShrinkingPath(Nanoseconds longest_interval) : longest_(longest_interval), interval_(longest_interval) {}

  /// Ends a round of ProbeBW. In a queue of others RTTs say more.
  void OnRound(Nanoseconds now, bool is_alone) {
    if (since_ == 0 || !is_alone) Begin(now, longest_);
  }
  void OnProbeRttEnd(Nanoseconds now, bool has_found_shorter_path) {
    const bool was_alone = now - since_ >= kAlone;
    Begin(now, was_alone && has_found_shorter_path ? std::max(interval_ / 2, longest_ / 4)
                                                   : std::min(2 * interval_, longest_));
  }
  /// Whether ProbeRTT should begin.
  bool is_due(Nanoseconds now) const { return since_ > 0 && now - since_ >= interval_; }

 private:
  /// For how long a flow has to see no queue but its own, so that the path is what was shorter.
  static constexpr Nanoseconds kAlone = 2 * kSecond;

  void Begin(Nanoseconds now, Nanoseconds interval) {
    since_ = now;
    interval_ = interval;
  }

  Nanoseconds longest_;
  Nanoseconds interval_;
  Nanoseconds since_ = 0;  // 0 before the first round
};

}  // namespace bbrgym
