#pragma once

#include <cstddef>
#include <cstdint>

#include "baselines/cc/units.h"
#include "envs/model/queue_discipline.h"

namespace bbrgym {

/// Controlled delay (RFC 8289). It drops packets as they leave a queue, or marks them if they are ECN-capable, once
/// every packet has waited longer than the scenario's `codel_target_ms` for at least `codel_interval_ms`.
class Codel {
 public:
  explicit Codel(const Scenario& scenario);

  /// Takes the next packet of the queue that may leave, and drops those before it. Returns false if there is none.
  bool Pop(Nanoseconds now, PacketFifo& queue, QueueTally& tally, TimedPacket& packet);

 private:
  struct Taken {
    bool has_packet;
    bool is_ok_to_drop;
  };

  Taken Take(Nanoseconds now, PacketFifo& queue, TimedPacket& packet);
  Nanoseconds ControlLaw(Nanoseconds time) const;

  Nanoseconds target_;
  Nanoseconds interval_;
  Bytes packet_bytes_;  // of a full packet on the wire, the RFC's maxpacket_

  // Names and values of the RFC.
  Nanoseconds first_above_time_ = 0;
  Nanoseconds drop_next_ = 0;
  std::uint32_t count_ = 0;
  std::uint32_t lastcount_ = 0;
  bool dropping_ = false;
};

/// One queue with CoDel.
class CodelQueue final : public QueueDiscipline {
 public:
  CodelQueue(const Scenario& scenario, QueueTally& tally) : QueueDiscipline(scenario, tally), codel_(scenario) {}

  void Push(Nanoseconds now, const QueuedPacket& packet) override { fifo_.Push(now, packet); }
  std::size_t size() const override { return fifo_.size(); }
  Bytes bytes() const override { return fifo_.bytes(); }

 private:
  bool Take(Nanoseconds now, TimedPacket& packet) override { return codel_.Pop(now, fifo_, tally_, packet); }

  PacketFifo fifo_;
  Codel codel_;
};

}  // namespace bbrgym
