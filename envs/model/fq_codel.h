#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "baselines/cc/units.h"
#include "envs/model/codel.h"
#include "envs/model/queue_discipline.h"
#include "envs/model/ring.h"

namespace bbrgym {

/// FlowQueue-CoDel (RFC 8290): a queue with CoDel for each flow. Flows take turns by the bytes that they send, and one
/// that has just begun to send goes first. A full buffer drops packets of the flow that fills it most.
class FqCodelQueue final : public QueueDiscipline {
 public:
  FqCodelQueue(const Scenario& scenario, QueueTally& tally);

  /// There is always a place: `Push` drops what is too much.
  bool IsFull() const override { return false; }
  void Push(Nanoseconds now, const QueuedPacket& packet) override;
  std::size_t size() const override { return size_; }
  Bytes bytes() const override { return bytes_; }

 private:
  struct FlowQueue {
    PacketFifo fifo;
    Codel codel;
    Bytes deficit = 0;  // what it may send before its turn ends
    bool is_listed = false;
  };

  bool Take(Nanoseconds now, TimedPacket& packet) override;
  bool TakeFrom(FlowQueue& flow, Nanoseconds now, TimedPacket& packet);
  void DropFromFattest();

  Bytes quantum_;
  std::vector<FlowQueue> flows_;
  // Indices of flows.
  Ring<std::uint32_t> new_flows_;
  Ring<std::uint32_t> old_flows_;
  // The packets and bytes of all flows together.
  std::size_t size_ = 0;
  Bytes bytes_ = 0;
};

}  // namespace bbrgym
