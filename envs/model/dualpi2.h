#pragma once

#include <cstddef>

#include "baselines/cc/units.h"
#include "envs/model/queue_discipline.h"

namespace bbrgym {

/// The coupled dual queue with PI2 (RFC 9332): a short queue for L4S packets beside one for classic packets. The delay
/// of the classic queue decides how often packets of both are marked or dropped.
class DualPi2Queue final : public QueueDiscipline {
 public:
  DualPi2Queue(const Scenario& scenario, QueueTally& tally);

  void Push(Nanoseconds now, const QueuedPacket& packet) override;
  std::size_t size() const override { return lq_.fifo.size() + cq_.fifo.size(); }
  Bytes bytes() const override { return lq_.fifo.bytes() + cq_.fifo.bytes(); }

  /// p', as of the last call.
  double base_probability() const { return base_probability_; }

 private:
  struct Queue {
    PacketFifo fifo;
    double count = 0.0;  // what `Recur` has not yet decided

    Nanoseconds Delay(Nanoseconds now) const { return fifo.size() > 0 ? now - fifo.Front().arrival : 0; }
  };

  bool Take(Nanoseconds now, TimedPacket& packet) override;
  bool IsLowLatencyNext() const;
  bool TakeLowLatency(Nanoseconds now, TimedPacket& packet);
  bool TakeClassic(TimedPacket& packet);
  static bool Recur(Queue& queue, double likelihood);
  void RunUpdates(Nanoseconds now);
  double CoupledProbability() const { return coupling_ * base_probability_; }
  double ClassicProbability() const { return base_probability_ * base_probability_; }
  bool IsOverloaded() const { return CoupledProbability() >= 1.0; }

  Nanoseconds target_;
  Nanoseconds step_;
  double coupling_;
  Bytes first_credit_;
  // Names of the RFC's pseudo-code.
  Queue lq_;
  Queue cq_;
  double base_probability_ = 0.0;  // p'
  Nanoseconds prevq_ = 0;
  Nanoseconds next_update_;
  /// The classic queue is next while this is positive and both wait, in hundredths of bytes.
  Bytes classic_credit_;
};

}  // namespace bbrgym
