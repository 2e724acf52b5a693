#include "envs/model/queue_discipline.h"

#include "envs/model/codel.h"
#include "envs/model/dualpi2.h"
#include "envs/model/fq_codel.h"
#include "envs/model/pie.h"

namespace bbrgym {

namespace {

/// Droptail whose packets are marked by the time that they have waited.
class FifoQueue final : public QueueDiscipline {
 public:
  FifoQueue(const Scenario& scenario, QueueTally& tally) : QueueDiscipline(scenario, tally) {}

  void Push(Nanoseconds now, const QueuedPacket& packet) override { fifo_.Push(now, packet); }
  std::size_t size() const override { return fifo_.size(); }
  Bytes bytes() const override { return fifo_.bytes(); }

 private:
  bool Take(Nanoseconds /*now*/, TimedPacket& packet) override { return fifo_.Pop(packet); }

  PacketFifo fifo_;
};

}  // namespace

std::unique_ptr<QueueDiscipline> MakeQueueDiscipline(const Scenario& scenario, std::uint64_t seed, QueueTally& tally) {
  switch (scenario.Queue()) {
    case QueueKind::kDroptail:
      if (!scenario.ce_threshold_ms) return nullptr;
      return std::make_unique<FifoQueue>(scenario, tally);
    case QueueKind::kCodel:
      return std::make_unique<CodelQueue>(scenario, tally);
    case QueueKind::kPie:
      return std::make_unique<PieQueue>(scenario, seed, tally);
    case QueueKind::kFqCodel:
      return std::make_unique<FqCodelQueue>(scenario, tally);
    case QueueKind::kDualPi2:
      return std::make_unique<DualPi2Queue>(scenario, tally);
  }
  return nullptr;  // not reached: the switch has every kind
}

QueueDiscipline::QueueDiscipline(const Scenario& scenario, QueueTally& tally)
    : tally_(tally),
      limit_(static_cast<std::size_t>(scenario.QueuePackets())),
      ce_threshold_(scenario.ce_threshold_ms ? FromMilliseconds(*scenario.ce_threshold_ms) : kNever) {}

bool QueueDiscipline::Pop(Nanoseconds now, QueuedPacket& packet) {
  TimedPacket taken;
  if (!Take(now, taken)) return false;
  if (now - taken.arrival > ce_threshold_) tally_.Mark(taken.queued);
  packet = taken.queued;
  return true;
}

void QueueTally::Drop(const QueuedPacket& packet) {
  ++drops;
  if (dropped) dropped->push_back(packet);
}

bool QueueTally::Mark(QueuedPacket& packet) {
  Ecn& ecn = packet.packet.ecn;
  if (ecn == Ecn::kNotEct) return false;
  if (ecn != Ecn::kCe) ++marks;
  ecn = Ecn::kCe;
  return true;
}

void PacketFifo::Push(Nanoseconds now, const QueuedPacket& packet) {
  TimedPacket& entry = packets_.PushSlot();
  entry.queued = packet;
  entry.arrival = now;
  bytes_ += packet.bytes();
}

bool PacketFifo::Pop(TimedPacket& packet) {
  if (packets_.IsEmpty()) return false;
  packet = packets_.Front();
  packets_.Pop();
  bytes_ -= packet.queued.bytes();
  return true;
}

}  // namespace bbrgym
