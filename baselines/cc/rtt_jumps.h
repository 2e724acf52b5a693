#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "baselines/cc/controller.h"
#include "baselines/cc/units.h"

namespace bbrgym {

/// By how much the RTT is longer than that of the packet before it.
struct RttRise {
  /// Between sending the two.
  Nanoseconds gap = 0;
  /// More than this gap. A queue grows by less, unless others send bursts.
  Nanoseconds beyond_gap = 0;
  /// More than noise adds, too; if not above 0, a queue or noise is enough.
  Nanoseconds unexplained = 0;
};

class RttRises {
 public:
  /// Returns nothing after a long gap, and for packets in another order, where a rise says nothing.
  std::optional<RttRise> OnAck(const AckEvent& ack) {
    if (ack.rtt <= 0) return std::nullopt;
    const Nanoseconds sent = ack.now - ack.rtt;
    const Nanoseconds gap = sent - std::exchange(last_sent_, sent);
    const Nanoseconds rise = ack.rtt - std::exchange(last_rtt_, ack.rtt);
    if (gap < 0 || gap >= kLongestGap) return std::nullopt;
    return RttRise{.gap = gap, .beyond_gap = rise - gap, .unexplained = rise - gap - kMillisecond - ack.rtt / 128};
  }

 private:
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
