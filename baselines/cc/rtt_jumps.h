#pragma once

#include <algorithm>
#include <array>
#include <utility>

#include "baselines/cc/controller.h"
#include "baselines/cc/units.h"

namespace bbrgym {

/// Notices when RTTs keep jumping: from one packet to the next they become longer than a queue can grow meanwhile. So
/// do paths over satellites. A queue jumps as well, when flows begin with a burst, but not again and again.
class RttJumps {
 public:
  /// Takes an ACK of a flow that has had at most this bandwidth.
  void OnAck(const AckEvent& ack, BitsPerSecond highest_bandwidth, Bytes packet_bytes) {
    if (ack.rtt <= 0) return;
    const Nanoseconds sent = ack.now - ack.rtt;
    const Nanoseconds gap = sent - std::exchange(last_sent_, sent);
    const Nanoseconds rise = ack.rtt - std::exchange(last_rtt_, ack.rtt);
    if (gap < 0 || gap >= kLongestGap) return;
    const Nanoseconds unexplained = rise - kMillisecond - ack.rtt / 128 - gap;
    if (BytesIn(highest_bandwidth, unexplained) > static_cast<double>(kBurstPackets * packet_bytes)) {
      spans_.back() = true;
    }
  }

  /// Ends a span of time, and begins the next one.
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
  /// After a longer one a rise says nothing.
  static constexpr Nanoseconds kLongestGap = 100 * kMillisecond;
  /// Of a rival.
  static constexpr std::int64_t kBurstPackets = 4;

  Nanoseconds last_sent_ = 0;
  Nanoseconds last_rtt_ = 0;
  /// Whether RTTs have jumped; the present span is the last one.
  std::array<bool, kSpans + 1> spans_ = {};
};

}  // namespace bbrgym
