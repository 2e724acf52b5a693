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

void CodelQueue::Reset(Nanoseconds target, Nanoseconds interval, Bytes packet_bytes, Nanoseconds ce_threshold) {
  target_ = target;
  interval_ = interval;
  packet_bytes_ = packet_bytes;
  ce_threshold_ = ce_threshold;
  entries_.Clear();
  bytes_ = 0;
  drops_ = marks_ = 0;
  first_above_time_ = drop_next_ = 0;
  count_ = lastcount_ = 0;
  dropping_ = false;
}

void CodelQueue::Push(Nanoseconds now, const QueuedPacket& packet, Bytes bytes) {
  Entry& entry = entries_.PushSlot();
  entry.packet = packet;
  entry.arrival = now;
  entry.bytes = bytes;
  bytes_ += bytes;
}

bool CodelQueue::Pop(Nanoseconds now, QueuedPacket& packet) {
  Taken taken = Take(now, packet);
  if (dropping_) {
    if (!taken.is_ok_to_drop) dropping_ = false;
    // When many packets wait, several drops may be due now.
    while (dropping_ && now >= drop_next_) {
      ++count_;
      if (Mark(packet)) {
        drop_next_ = ControlLaw(drop_next_);
        break;
      }
      ++drops_;
      taken = Take(now, packet);
      if (taken.is_ok_to_drop) {
        drop_next_ = ControlLaw(drop_next_);
      } else {
        dropping_ = false;
      }
    }
  } else if (taken.is_ok_to_drop) {
    if (!Mark(packet)) {
      ++drops_;
      taken = Take(now, packet);
    }
    dropping_ = true;
    // Soon after the last dropping state, start with the drop rate that controlled the queue then.
    const std::uint32_t delta = count_ - lastcount_;
    count_ = delta > 1 && now - drop_next_ < 16 * interval_ ? delta : 1;
    drop_next_ = ControlLaw(now);
    lastcount_ = count_;
  }
  if (taken.sojourn > ce_threshold_) Mark(packet);
  return taken.has_packet;
}

CodelQueue::Taken CodelQueue::Take(Nanoseconds now, QueuedPacket& packet) {
  if (entries_.IsEmpty()) {
    first_above_time_ = 0;
    return {.has_packet = false, .is_ok_to_drop = false, .sojourn = 0};
  }
  const Entry& entry = entries_.Front();
  const Nanoseconds sojourn = now - entry.arrival;
  packet = entry.packet;
  bytes_ -= entry.bytes;
  entries_.Pop();
  // On a link so slow that one packet takes longer than target, one waiting packet is not a standing queue.
  if (sojourn < target_ || bytes_ <= packet_bytes_) {
    first_above_time_ = 0;
    return {.has_packet = true, .is_ok_to_drop = false, .sojourn = sojourn};
  }
  if (first_above_time_ == 0) {
    first_above_time_ = now + interval_;
    return {.has_packet = true, .is_ok_to_drop = false, .sojourn = sojourn};
  }
  return {.has_packet = true, .is_ok_to_drop = now >= first_above_time_, .sojourn = sojourn};
}

bool CodelQueue::Mark(QueuedPacket& packet) {
  if (packet.packet.ecn == Ecn::kNotEct) return false;
  if (packet.packet.ecn != Ecn::kCe) ++marks_;
  packet.packet.ecn = Ecn::kCe;
  return true;
}

Nanoseconds CodelQueue::ControlLaw(Nanoseconds time) const {
  return time + static_cast<Nanoseconds>(static_cast<double>(interval_) / std::sqrt(static_cast<double>(count_)));
}

}  // namespace bbrgym
