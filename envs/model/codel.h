#pragma once

#include <cstddef>
#include <cstdint>

#include "baselines/cc/units.h"
#include "envs/model/packet.h"
#include "envs/model/ring.h"

namespace bbrgym {

/// A packet in a queue, and its flow.
struct QueuedPacket {
  DataPacket packet;
  std::uint32_t flow = 0;
};

/// A queue with controlled delay (RFC 8289). It drops packets as they leave, or marks them if they are ECN-capable,
/// once every packet has waited longer than `target` for at least `interval`. Its length is not limited.
class CodelQueue {
 public:
  /// `packet_bytes` is the size of a full packet on the wire, the RFC's maxpacket_. A packet that leaves after more
  /// than `ce_threshold` is marked.
  void Reset(Nanoseconds target, Nanoseconds interval, Bytes packet_bytes, Nanoseconds ce_threshold);

  void Push(Nanoseconds now, const QueuedPacket& packet, Bytes bytes);
  /// Takes the next packet that may leave, and drops those before it. Returns false if there is none.
  bool Pop(Nanoseconds now, QueuedPacket& packet);

  std::size_t size() const { return entries_.size(); }
  Bytes bytes() const { return bytes_; }
  /// Packets dropped, and marked, since the reset.
  std::uint64_t drops() const { return drops_; }
  std::uint64_t marks() const { return marks_; }

 private:
  struct Entry {
    QueuedPacket packet;
    Nanoseconds arrival = 0;
    Bytes bytes = 0;
  };
  struct Taken {
    bool has_packet;
    bool is_ok_to_drop;
    Nanoseconds sojourn;
  };

  Taken Take(Nanoseconds now, QueuedPacket& packet);
  /// Returns false if the packet is not ECN-capable.
  bool Mark(QueuedPacket& packet);
  Nanoseconds ControlLaw(Nanoseconds time) const;

  Nanoseconds target_ = 0;
  Nanoseconds interval_ = 0;
  Bytes packet_bytes_ = 0;
  Nanoseconds ce_threshold_ = kNever;

  Ring<Entry> entries_;
  Bytes bytes_ = 0;
  std::uint64_t drops_ = 0;
  std::uint64_t marks_ = 0;

  // Names and values of the RFC.
  Nanoseconds first_above_time_ = 0;
  Nanoseconds drop_next_ = 0;
  std::uint32_t count_ = 0;
  std::uint32_t lastcount_ = 0;
  bool dropping_ = false;
};

}  // namespace bbrgym
