#pragma once

#include <algorithm>
#include <array>
#include <utility>

#include "baselines/cc/controller.h"
#include "baselines/cc/units.h"

namespace bbrgym {

/// Measures by how much the RTT becomes longer from one packet to the next beyond what a queue can grow meanwhile.
class RttRise {
 public:
  /// Returns it of this ACK; if not above 0, a queue or noise is enough.
  Nanoseconds Unexplained(const AckEvent& ack) {
    if (ack.rtt <= 0) return 0;
    const Nanoseconds sent = ack.now - ack.rtt;
    const Nanoseconds gap = sent - std::exchange(last_sent_, sent);
    const Nanoseconds rise = ack.rtt - std::exchange(last_rtt_, ack.rtt);
    return gap >= 0 && gap < kLongestGap ? rise - kMillisecond - ack.rtt / 128 - gap : 0;
  }

 private:
  /// After a longer one a rise says nothing.
  static constexpr Nanoseconds kLongestGap = 100 * kMillisecond;

  Nanoseconds last_sent_ = 0;
  Nanoseconds last_rtt_ = 0;
};

/// Notices when RTTs keep jumping: from one packet to the next they become longer than a queue can grow meanwhile. So
/// do paths over satellites. A queue jumps as well, when flows begin with a burst, but not again and again.
class RttJumps {
 public:
  /// Adds a jump to the present span of time.
  void Add() { spans_.back() = true; }

  /// Ends the span, and begins the next one.
  void EndSpan() {
    std::rotate(spans_.begin(), spans_.begin() + 1, spans_.end());
    spans_.back() = false;
  }

  /// Whether RTTs have jumped in half of the last spans that are over.
  bool are_frequent() const {
    return 2 * std::count(spans_.begin(), spans_.end() - 1, true) >= static_cast<std::ptrdiff_t>(spans_.size() - 1);
  }

 private:
  static constexpr std::size_t kSpans = 12;

  /// Whether RTTs have jumped; the present span is the last one.
  std::array<bool, kSpans + 1> spans_ = {};
};

}  // namespace bbrgym
