#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "baselines/cc/units.h"
#include "envs/model/packet.h"
#include "envs/model/ring.h"
#include "envs/model/scenario.h"

namespace bbrgym {

/// A packet in a queue, and its flow.
struct QueuedPacket {
  DataPacket packet;
  std::uint32_t flow = 0;

  /// What it occupies on the link.
  Bytes bytes() const { return packet.bytes + kHeaderBytes; }
};

/// A packet in a queue that measures how long it waits.
struct TimedPacket {
  QueuedPacket queued;
  Nanoseconds arrival = 0;
};

/// Packets in the order in which they came.
class PacketFifo {
 public:
  void Push(Nanoseconds now, const QueuedPacket& packet);
  /// Takes the first packet. Returns false if there is none.
  bool Pop(TimedPacket& packet);
  /// The first packet; there must be one.
  const TimedPacket& Front() const { return packets_.Front(); }

  std::size_t size() const { return packets_.size(); }
  Bytes bytes() const { return bytes_; }

 private:
  Ring<TimedPacket> packets_;
  Bytes bytes_ = 0;
};

/// How many packets a link has dropped and marked.
struct QueueTally {
  std::uint64_t drops = 0;
  std::uint64_t marks = 0;
  /// Gets every packet that is dropped, if it is not null.
  std::vector<QueuedPacket>* dropped = nullptr;

  void Drop(const QueuedPacket& packet);
  /// Returns false if the packet is not ECN-capable.
  bool Mark(QueuedPacket& packet);
};

/// What a queue does with packets beyond keeping them in order: when it drops or marks them, and which one leaves next
/// (active queue management and scheduling). Each discipline is a class in a file of its own, a `QueueKind`, and a line
/// of `MakeQueueDiscipline`.
///
/// It has neither clock nor timer: what is due between two calls happens at the beginning of the second.
class QueueDiscipline {
 public:
  virtual ~QueueDiscipline() = default;

  /// Whether the buffer has no place for an arriving packet, which is then dropped instead of pushed.
  virtual bool IsFull() const { return size() >= limit_; }
  /// Takes an arriving packet, or drops it.
  virtual void Push(Nanoseconds now, const QueuedPacket& packet) = 0;
  /// Gives the packet that leaves next, and drops those that have to be dropped before it. Returns false if there is
  /// none.
  bool Pop(Nanoseconds now, QueuedPacket& packet);

  virtual std::size_t size() const = 0;
  virtual Bytes bytes() const = 0;

 protected:
  /// `tally` counts what it drops and marks, and must outlive it.
  QueueDiscipline(const Scenario& scenario, QueueTally& tally);

  /// The size of the buffer in packets.
  std::size_t limit() const { return limit_; }

  QueueTally& tally_;

 private:
  virtual bool Take(Nanoseconds now, TimedPacket& packet) = 0;

  std::size_t limit_;
  Nanoseconds ce_threshold_;
};

/// The discipline of the scenario's queue; null if it needs none, because it only drops what arrives at a full buffer.
/// Its random numbers follow from `seed`, the link's. It adds to `tally`, the link's as well.
std::unique_ptr<QueueDiscipline> MakeQueueDiscipline(const Scenario& scenario, std::uint64_t seed, QueueTally& tally);

}  // namespace bbrgym
