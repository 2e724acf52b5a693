// CoDel: once packets have waited longer than target for an interval, one packet is dropped, and then another one after
//
//     interval / sqrt(count),        count = 1, 2, …
//
// each time, until a packet has waited for less than target. Functions and variables are those of RFC 8289, section 5.
// The variants of section 5.5 and the fixed-point square root of implementations are left out. ECN is as in Linux
// (include/net/codel_impl.h): where a packet would be dropped, an ECN-capable one is marked, and leaves the queue.

#include "envs/model/codel.h"

#include <cmath>

namespace bbrgym {

Codel::Codel(const Scenario& scenario)
    : target_(FromMilliseconds(scenario.codel_target_ms)),
      interval_(FromMilliseconds(scenario.codel_interval_ms)),
      packet_bytes_(scenario.packet_bytes + kHeaderBytes) {}

bool Codel::Pop(Nanoseconds now, PacketFifo& queue, QueueTally& tally, TimedPacket& packet) {
  Taken taken = Take(now, queue, packet);
  if (dropping_) {
    if (!taken.is_ok_to_drop) dropping_ = false;
    // When many packets wait, several drops may be due now.
    while (dropping_ && now >= drop_next_) {
      ++count_;
      if (tally.Mark(packet.queued)) {
        drop_next_ = ControlLaw(drop_next_);
        break;
      }
      tally.Drop(packet.queued);
      taken = Take(now, queue, packet);
      if (taken.is_ok_to_drop) {
        drop_next_ = ControlLaw(drop_next_);
      } else {
        dropping_ = false;
      }
    }
  } else if (taken.is_ok_to_drop) {
    if (!tally.Mark(packet.queued)) {
      tally.Drop(packet.queued);
      taken = Take(now, queue, packet);
    }
    dropping_ = true;
    // Soon after the last dropping state, start with the drop rate that controlled the queue then.
    const std::uint32_t delta = count_ - lastcount_;
    count_ = delta > 1 && now - drop_next_ < 16 * interval_ ? delta : 1;
    drop_next_ = ControlLaw(now);
    lastcount_ = count_;
  }
  return taken.has_packet;
}

Codel::Taken Codel::Take(Nanoseconds now, PacketFifo& queue, TimedPacket& packet) {
  if (!queue.Pop(packet)) {
    first_above_time_ = 0;
    return {.has_packet = false, .is_ok_to_drop = false};
  }
  // On a link so slow that one packet takes longer than target, one waiting packet is not a standing queue.
  if (now - packet.arrival < target_ || queue.bytes() <= packet_bytes_) {
    first_above_time_ = 0;
    return {.has_packet = true, .is_ok_to_drop = false};
  }
  if (first_above_time_ == 0) {
    first_above_time_ = now + interval_;
    return {.has_packet = true, .is_ok_to_drop = false};
  }
  return {.has_packet = true, .is_ok_to_drop = now >= first_above_time_};
}

Nanoseconds Codel::ControlLaw(Nanoseconds time) const {
  return time + static_cast<Nanoseconds>(static_cast<double>(interval_) / std::sqrt(static_cast<double>(count_)));
}

}  // namespace bbrgym
