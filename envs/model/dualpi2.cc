// DualPI2: every 16 ms
//
//     p' += alpha (delay - target) + beta (delay - delay of the last update)
//
// A classic packet is dropped, or marked if it is ECN-capable, with the probability p'^2. An L4S packet is marked with
// the probability k p', and once it has waited longer than a step. So flows that answer marks by 1/p have the rate of
// flows that answer them by 1/sqrt(p).
//
// Functions and names are those of RFC 9332, appendix A.2 (figures 7 and 8). Where it leaves a choice, and where this
// differs from Linux (net/sched/sch_dualpi2.c):
//
// * Probabilities recur instead of being drawn (figure 4; Linux draws): a sum of likelihoods marks a packet when it
//   exceeds 1.
// * A step at `dualpi2_step_ms` (Linux), which is the ramp with a range of 0 (A.1, note c). The RFC recommends a ramp
//   from 0.8 to 1.2 ms.
// * In overload L4S packets are dropped with p'^2, and all others are marked, as the text of A.2 says. Figure 7 adds
//   the likelihood of the mark to the sum that decides about drops, and so drops more: 47 % instead of 36 % at
//   p' = 0.6.
// * p' also applies while less than two MTUs wait; in Linux it does not (A.1, not in the pseudo-code).

#include "envs/model/dualpi2.h"

#include <algorithm>

namespace bbrgym {

namespace {

// RFC 9332, A.1 and figure 2, with Linux's period: alpha = 0.1 kTUpdate / (100 ms)^2, beta = 0.3 / 100 ms, rounded.
constexpr Nanoseconds kTUpdate = 16 * kMillisecond;
constexpr double kAlpha = 0.16;  // per s
constexpr double kBeta = 3.2;    // per s

// At least this percentage of what the link sends is classic while both queues wait (Linux's c_protection). The
// RFC recommends such a weighted round robin, with for example 1/16, over a time-shifted FIFO (A.2): there L4S packets
// wait once classic ones have waited for longer than a time, so an overload of the classic queue delays L4S flows.
constexpr Bytes kClassicWeight = 10;
constexpr Bytes kLowLatencyWeight = 100 - kClassicWeight;

// A packet that leaves so few behind is not marked by the step: on a slow link one takes longer than that.
constexpr std::size_t kThLen = 1;

}  // namespace

DualPi2Queue::DualPi2Queue(const Scenario& scenario, QueueTally& tally)
    : QueueDiscipline(scenario, tally),
      target_(FromMilliseconds(scenario.dualpi2_target_ms)),
      step_(FromMilliseconds(scenario.dualpi2_step_ms)),
      coupling_(scenario.dualpi2_coupling),
      first_credit_((kClassicWeight - kLowLatencyWeight) * (scenario.packet_bytes + kHeaderBytes)),
      next_update_(kTUpdate),
      classic_credit_(first_credit_) {}

void DualPi2Queue::Push(Nanoseconds now, const QueuedPacket& packet) {
  RunUpdates(now);
  const Ecn ecn = packet.packet.ecn;
  // A packet that a queue before this one has marked could be either: the RFC's default is L4S.
  const bool is_low_latency = ecn == Ecn::kEct1 || ecn == Ecn::kCe;
  (is_low_latency ? lq_ : cq_).fifo.Push(now, packet);
}

bool DualPi2Queue::Take(Nanoseconds now, TimedPacket& packet) {
  RunUpdates(now);
  while (size() > 0) {
    if (IsLowLatencyNext() ? TakeLowLatency(now, packet) : TakeClassic(packet)) return true;
  }
  classic_credit_ = first_credit_;
  return false;
}

bool DualPi2Queue::IsLowLatencyNext() const {
  return lq_.fifo.size() > 0 && (cq_.fifo.size() == 0 || classic_credit_ <= 0);
}

bool DualPi2Queue::TakeLowLatency(Nanoseconds now, TimedPacket& packet) {
  lq_.fifo.Pop(packet);
  if (cq_.fifo.size() > 0) classic_credit_ += kClassicWeight * packet.queued.bytes();
  if (IsOverloaded()) {
    // Marks are not enough: classic drops keep the delay low.
    if (Recur(lq_, ClassicProbability())) {
      tally_.Drop(packet.queued);
      return false;
    }
    tally_.Mark(packet.queued);
    return true;
  }
  const bool is_above_step = lq_.fifo.size() > kThLen && now - packet.arrival > step_;
  if (Recur(lq_, is_above_step ? 1.0 : CoupledProbability())) tally_.Mark(packet.queued);
  return true;
}

bool DualPi2Queue::TakeClassic(TimedPacket& packet) {
  cq_.fifo.Pop(packet);
  if (lq_.fifo.size() > 0) classic_credit_ -= kLowLatencyWeight * packet.queued.bytes();
  if (!Recur(cq_, ClassicProbability())) return true;
  if (!IsOverloaded() && tally_.Mark(packet.queued)) return true;
  tally_.Drop(packet.queued);
  return false;
}

bool DualPi2Queue::Recur(Queue& queue, double likelihood) {
  queue.count += likelihood;
  if (queue.count <= 1.0) return false;
  queue.count -= 1.0;
  return true;
}

void DualPi2Queue::RunUpdates(Nanoseconds now) {
  const auto seconds = [](Nanoseconds ns) { return static_cast<double>(ns) / 1e9; };
  for (; next_update_ <= now; next_update_ += kTUpdate) {
    const Nanoseconds curq = std::max(lq_.Delay(next_update_), cq_.Delay(next_update_));
    base_probability_ += kAlpha * seconds(curq - target_) + kBeta * seconds(curq - prevq_);
    base_probability_ = std::clamp(base_probability_, 0.0, 1.0);
    prevq_ = curq;
  }
}

}  // namespace bbrgym
