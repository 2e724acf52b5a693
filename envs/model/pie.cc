// PIE: an arriving packet is dropped with probability p. Every T_UPDATE
//
//     p += k (alpha (qdelay - QDELAY_REF) + beta (qdelay - qdelay_old)),
//
// where k is the smaller, the smaller p is. Functions, names and constants are those of RFC 8033, section 4 and
// appendix A. It has two of the RFC's options, ECN (section 5.1) and the cap on a step of p (5.5). Choices and
// deviations, all as in ns-3, and all but the last as in Linux (net/sched/sch_pie.c):
//
// * The delay is that of the packet which left last (section 4.3). An estimate of the departure rate (5.2) needs 16 KiB
//   in the queue, which some buffers have no room for.
// * It is 0 if that packet left an empty queue behind: else its delay would hold until another packet leaves.
// * p decays while the delay is 0 (section 4.2 and appendix A; B has: less than half of QDELAY_REF).
// * It is always active (5.3).
// * Drops are independent of each other: there is no derandomization (5.4).

#include "envs/model/pie.h"

#include <algorithm>

namespace bbrgym {

namespace {

constexpr Nanoseconds kTUpdate = 15 * kMillisecond;
constexpr Nanoseconds kMaxBurst = 150 * kMillisecond;
constexpr double kAlpha = 0.125;        // per s
constexpr double kBeta = 1.25;          // per s
constexpr double kMarkThreshold = 0.1;  // section 5.1: from here on congestion is too much for marks

// So that drops do not depend on how many packets the link loses.
constexpr std::uint64_t kStream = 0x5049450000000000U;

/// How much of a change a probability takes: 1/2 below 0.1, 1/8 below 0.01, …
double Scale(double drop_prob) {
  if (drop_prob < 0.000001) return 1.0 / 2048;
  if (drop_prob < 0.00001) return 1.0 / 512;
  if (drop_prob < 0.0001) return 1.0 / 128;
  if (drop_prob < 0.001) return 1.0 / 32;
  if (drop_prob < 0.01) return 1.0 / 8;
  if (drop_prob < 0.1) return 1.0 / 2;
  return 1.0;
}

}  // namespace

PieQueue::PieQueue(const Scenario& scenario, std::uint64_t seed, QueueTally& tally)
    : QueueDiscipline(scenario, tally),
      qdelay_ref_(FromMilliseconds(scenario.pie_target_ms)),
      packet_bytes_(scenario.packet_bytes + kHeaderBytes),
      random_(seed ^ kStream),
      next_update_(kTUpdate),
      burst_allowance_(kMaxBurst) {}

void PieQueue::Push(Nanoseconds now, const QueuedPacket& packet) {
  RunUpdates(now);
  if (drop_prob_ == 0.0 && current_qdelay_ < qdelay_ref_ / 2 && qdelay_old_ < qdelay_ref_ / 2) {
    burst_allowance_ = kMaxBurst;
  }
  QueuedPacket admitted = packet;
  if (burst_allowance_ == 0 && IsDroppedEarly() && (drop_prob_ >= kMarkThreshold || !tally_.Mark(admitted))) {
    tally_.Drop(packet);
    return;
  }
  fifo_.Push(now, admitted);
}

bool PieQueue::Take(Nanoseconds now, TimedPacket& packet) {
  RunUpdates(now);
  if (!fifo_.Pop(packet)) return false;
  current_qdelay_ = fifo_.bytes() > 0 ? now - packet.arrival : 0;
  return true;
}

bool PieQueue::IsDroppedEarly() {
  const bool is_short = qdelay_old_ < qdelay_ref_ / 2 && drop_prob_ < 0.2;
  if (is_short || fifo_.bytes() <= 2 * packet_bytes_) return false;
  return random_.Uniform() < drop_prob_;
}

void PieQueue::RunUpdates(Nanoseconds now) {
  for (; next_update_ <= now; next_update_ += kTUpdate) UpdateDropProbability();
}

void PieQueue::UpdateDropProbability() {
  const auto seconds = [](Nanoseconds ns) { return static_cast<double>(ns) / 1e9; };
  double p = kAlpha * seconds(current_qdelay_ - qdelay_ref_) + kBeta * seconds(current_qdelay_ - qdelay_old_);
  p *= Scale(drop_prob_);
  if (drop_prob_ >= 0.1) p = std::min(p, 0.02);
  drop_prob_ += p;
  if (current_qdelay_ == 0 && qdelay_old_ == 0) drop_prob_ *= 0.98;
  drop_prob_ = std::clamp(drop_prob_, 0.0, 1.0);
  qdelay_old_ = current_qdelay_;
  burst_allowance_ = std::max<Nanoseconds>(0, burst_allowance_ - kTUpdate);
}

}  // namespace bbrgym
