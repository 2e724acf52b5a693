#pragma once

#include <algorithm>

#include "baselines/cc/controller.h"
#include "baselines/cc/elementary.h"
#include "baselines/cc/units.h"

namespace bbrgym {

/// Notices that a link has room: a flow that wants a queue meets none for a moment. Its window then grows, slowly at
/// first and soon as fast as in Startup, until there is a queue again.
///
/// A window of one BDP and a few packets gains these few packets in a round trip. Where a link has become faster, or
/// others have left it, that would take dozens of round trips. All flows of a link meet the same queue, so all of them
/// get the same number of packets.
class FreeLink {
 public:
  explicit FreeLink(Bytes packet_bytes) : packet_bytes_(packet_bytes) {}

  /// Takes an ACK. RTTs up to `most_rtt` show no queue; only some ACKs count, in which the window is the limit.
  void OnAck(const AckEvent& ack, double most_rtt, bool counts) {
    lost_ += ack.bytes_lost;
    acked_ += ack.bytes_acked;
    // A policer, and a buffer of few packets, drop before there is a queue.
    const bool is_overflowing = lost_ > 2 * packet_bytes_ + acked_ / 16;
    const bool has_queue = ack.rtt > 0 && static_cast<double>(ack.rtt) > most_rtt;
    if (!counts || ack.sample.is_app_limited || has_queue || is_overflowing) {
      since_ = ack.now;
      lost_ = 0;
      acked_ = 0;
    }
    free_for_ = ack.now - since_;
  }

  bool is_free() const { return free_for_ > kPatience; }

  /// How much larger the window is, in bytes, for a flow with this BDP.
  double room(double bdp) const {
    if (!is_free()) return 0.0;
    const double doublings = static_cast<double>(free_for_ - kPatience) / static_cast<double>(kDoubling);
    const double packets = kPackets * (Exp2(doublings) - 1.0);
    return std::min(packets * static_cast<double>(packet_bytes_), kMost * bdp);
  }

 private:
  /// The queue of a few packets comes and goes; a link is free if there is none for as long as this.
  static constexpr Nanoseconds kPatience = 100 * kMillisecond;
  static constexpr Nanoseconds kDoubling = 100 * kMillisecond;
  /// So many after the first doubling.
  static constexpr double kPackets = 4.0;
  /// In BDPs.
  static constexpr double kMost = 0.25;

  Bytes packet_bytes_;
  Nanoseconds since_ = 0;
  Nanoseconds free_for_ = 0;
  // Since then.
  Bytes lost_ = 0;
  Bytes acked_ = 0;
};

}  // namespace bbrgym
