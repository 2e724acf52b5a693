#pragma once

#include <cstddef>
#include <cstdint>

#include "baselines/cc/random.h"
#include "baselines/cc/units.h"
#include "envs/model/queue_discipline.h"

namespace bbrgym {

/// Proportional integral controller enhanced (PIE, RFC 8033). It drops packets as they arrive, or marks them if they
/// are ECN-capable, with a probability that a controller of the queueing delay updates every 15 ms.
class PieQueue final : public QueueDiscipline {
 public:
  PieQueue(const Scenario& scenario, std::uint64_t seed, QueueTally& tally);

  void Push(Nanoseconds now, const QueuedPacket& packet) override;
  std::size_t size() const override { return fifo_.size(); }
  Bytes bytes() const override { return fifo_.bytes(); }

  /// The probability that an arriving packet is dropped, as of the last call.
  double drop_probability() const { return drop_prob_; }

 private:
  bool Take(Nanoseconds now, TimedPacket& packet) override;
  void RunUpdates(Nanoseconds now);
  void UpdateDropProbability();
  bool IsDroppedEarly();

  PacketFifo fifo_;
  Nanoseconds qdelay_ref_;
  Bytes packet_bytes_;  // of a full packet on the wire, the RFC's MEAN_PKTSIZE
  Random random_;
  Nanoseconds next_update_;

  // Names of the RFC.
  double drop_prob_ = 0.0;
  Nanoseconds current_qdelay_ = 0;
  Nanoseconds qdelay_old_ = 0;
  Nanoseconds burst_allowance_;
};

}  // namespace bbrgym
