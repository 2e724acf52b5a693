#pragma once

#include <cstdint>

#include "baselines/cc/units.h"
#include "envs/model/packet.h"
#include "envs/model/ring.h"

namespace bbrgym {

/// The receiving half of the transport. It has no clock and does no I/O: packets and times go in, acknowledgements come
/// out.
///
/// It acknowledges as TCP does (RFC 5681, section 4.2; RFC 9293): every second packet, after `kMaxAckDelay` at the
/// latest, and at once while a segment is missing. It also acknowledges the first packet at once, as ns-3 does (Linux
/// acknowledges the first few so), and a CE-marked packet after one that is not (RFC 8257, section 3.2).
class Receiver {
 public:
  static constexpr Nanoseconds kMaxAckDelay = 40 * kMillisecond;  // Linux TCP_DELACK_MIN
  static constexpr int kAckEvery = 2;

  /// Totals in bytes of payload.
  struct Counts {
    Bytes received = 0;  ///< delivered to the application, in order
    Bytes arrived = 0;   ///< of all data packets, including duplicates
    Bytes inorder = 0;   ///< of the packets that were expected next
  };

  /// Takes a packet; returns whether it must be acknowledged now.
  bool OnPacket(Nanoseconds now, const DataPacket& packet);

  /// When a delayed acknowledgement is due; `kNever` if there is none.
  Nanoseconds AckDue() const { return ack_due_; }

  /// Writes the acknowledgement of everything that has arrived.
  void WriteAck(AckPacket& ack);

  const Counts& counts() const { return counts_; }
  /// Payload of the packets that came with a CE mark.
  Bytes marked() const { return ack_.marked; }
  /// The lowest segment that has not arrived.
  std::uint64_t next_segment() const { return segments_.begin(); }
  /// Whether segments are missing below the highest one that has arrived.
  bool HasHole() const { return !segments_.IsEmpty(); }

 private:
  void Record(PacketNumber number);
  void TakeMark(const DataPacket& packet);

  AckPacket ack_;  // of everything that has arrived
  // Bytes of the segments from the next expected one on; 0 for those that have not arrived.
  Window<std::int32_t> segments_;
  PacketNumber after_mark_ = 0;  // what follows the latest marked packet
  int unacknowledged_ = kAckEvery - 1;
  Nanoseconds ack_due_ = kNever;
  Counts counts_;
};

}  // namespace bbrgym
