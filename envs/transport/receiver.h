#pragma once

#include <cstdint>

#include "baselines/cc/units.h"
#include "envs/model/packet.h"
#include "envs/model/ring.h"

namespace bbrgym {

/// The receiving half of the transport. It has no clock and does no input or output: packets and times in,
/// acknowledgements out.
///
/// It acknowledges as TCP does (RFC 5681, section 4.2; RFC 9293): every second packet, at the latest after
/// `kMaxAckDelay`, and at once while something is missing. The first packet is acknowledged at once too, as in ns-3
/// and, with some more, in Linux.
class Receiver {
 public:
  static constexpr Nanoseconds kMaxAckDelay = 40 * kMillisecond;  // Linux TCP_DELACK_MIN
  static constexpr int kAckEvery = 2;

  /// Totals since the beginning, in bytes.
  struct Counts {
    Bytes received = 0;  ///< that the application has got in order
    Bytes arrived = 0;   ///< of all data packets, duplicates included
    Bytes inorder = 0;   ///< of those that were expected next
  };

  /// Takes a packet; returns whether it must be acknowledged now.
  bool OnPacket(Nanoseconds now, const DataPacket& packet);

  /// When an acknowledgement is due that no packet has caused yet; `kNever` if none is.
  Nanoseconds AckDue() const { return ack_due_; }

  /// Writes the acknowledgement of all that has come.
  void WriteAck(AckPacket& ack);

  const Counts& counts() const { return counts_; }
  /// Whether segments are missing below the highest that has come.
  bool HasHole() const { return !segments_.IsEmpty(); }

  static constexpr Nanoseconds kNever = INT64_MAX;

 private:
  void Record(PacketNumber number);

  // Received packet numbers, the newest range first.
  AckPacket ranges_;
  // Segments from the next expected one on: their bytes once they have come, else 0.
  Window<std::int32_t> segments_;
  int unacknowledged_ = kAckEvery - 1;
  Nanoseconds ack_due_ = kNever;
  Counts counts_;
};

}  // namespace bbrgym
