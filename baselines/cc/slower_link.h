#pragma once

#include <algorithm>
#include <limits>

#include "baselines/cc/controller.h"
#include "baselines/cc/units.h"
#include "baselines/cc/windowed_max.h"

namespace bbrgym {

/// Notices by a long queue that the link has become slower, and bounds the bandwidth by what has lately arrived until
/// the queue is short.
///
/// When a link becomes slower, the window is still that of the faster link. It fills the buffer, and the round trips
/// after which max_bandwidth forgets the faster link are now the longest: a second each where 430 packets wait for a
/// link of 5 Mbit/s. The rates that are measured fall sooner, since they are those of the slower link after one path's
/// length.
class SlowerLink {
 public:
  /// Takes an ACK; only some count, in which neither the rate nor the queue is about to change by itself.
  void OnAck(const AckEvent& ack, Nanoseconds base_rtt, BitsPerSecond max_bandwidth, bool counts) {
    if (ack.rtt <= 0) return;
    rates_.SetWindow(std::max(kRecent, 2 * base_rtt));
    rates_.Update(ack.now, ack.sample.delivery_rate);
    const bool begins = ack.rtt > 3 * base_rtt + kQueue && max_bandwidth >= kSlower * rates_.Best();
    const bool goes_on = is_slower_ && ack.rtt > base_rtt + base_rtt / 10 + kQueue;
    is_slower_ = counts && (begins || goes_on);
  }

  /// The highest rate of the last moment while the queue of the faster link drains; else no bound.
  BitsPerSecond most() const { return is_slower_ ? rates_.Best() : std::numeric_limits<BitsPerSecond>::max(); }

 private:
  /// At least: a cellular link stops for shorter times, and is as fast as before then.
  static constexpr Nanoseconds kRecent = kSecond;
  /// On a short path less is no queue.
  static constexpr Nanoseconds kQueue = 2 * kMillisecond;
  /// A link that is less slow fills no buffer.
  static constexpr int kSlower = 2;

  WindowedMax<BitsPerSecond> rates_{kRecent};
  bool is_slower_ = false;
};

}  // namespace bbrgym
