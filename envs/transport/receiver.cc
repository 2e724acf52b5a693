#include "envs/transport/receiver.h"

#include <utility>

namespace bbrgym {

bool Receiver::OnPacket(Nanoseconds now, const DataPacket& packet) {
  Record(packet.number);
  counts_.arrived += packet.bytes;
  const bool was_marked = std::exchange(is_marked_, packet.ecn == Ecn::kCe);
  if (is_marked_) ack_.marked += packet.bytes;

  const std::uint64_t expected = segments_.begin();
  const bool is_expected = packet.segment == expected;
  const bool had_hole = HasHole();
  if (is_expected && !had_hole) {
    // The usual case: no segment is missing.
    segments_.Skip();
    counts_.inorder += packet.bytes;
    counts_.received += packet.bytes;
  } else if (packet.segment >= expected) {
    while (segments_.end() <= packet.segment) segments_.PushSlot() = 0;
    std::int32_t& bytes = segments_[packet.segment];
    if (is_expected && bytes == 0) counts_.inorder += packet.bytes;
    bytes = packet.bytes;
    while (HasHole() && segments_.Front() != 0) {
      counts_.received += segments_.Front();
      segments_.Pop();
    }
  }

  ++unacknowledged_;
  const bool is_first_mark = is_marked_ && !was_marked;
  if (!is_expected || had_hole || is_first_mark || unacknowledged_ >= kAckEvery) return true;
  ack_due_ = now + kMaxAckDelay;
  return false;
}

void Receiver::WriteAck(AckPacket& ack) {
  ack = ack_;
  unacknowledged_ = 0;
  ack_due_ = kNever;
}

void Receiver::Record(PacketNumber number) {
  if (ack_.count > 0 && number == ack_.ranges[0].high + 1) {
    ++ack_.ranges[0].high;
    return;
  }
  // Its place: the first range that is not entirely above it.
  std::uint32_t at = 0;
  while (at < ack_.count && ack_.ranges[at].low > number + 1) ++at;
  if (at < ack_.count && number + 1 >= ack_.ranges[at].low && number <= ack_.ranges[at].high + 1) {
    PacketRange& range = ack_.ranges[at];
    if (number + 1 == range.low) range.low = number;
    if (number == range.high + 1) range.high = number;
    // It may close the gap to the range below.
    if (at + 1 < ack_.count && ack_.ranges[at + 1].high + 1 >= range.low) {
      range.low = ack_.ranges[at + 1].low;
      for (std::uint32_t i = at + 1; i + 1 < ack_.count; ++i) ack_.ranges[i] = ack_.ranges[i + 1];
      --ack_.count;
    }
    return;
  }
  if (at == AckPacket::kMaxRanges) return;  // older than all the ranges that are kept
  if (ack_.count < AckPacket::kMaxRanges) ++ack_.count;
  for (std::uint32_t i = ack_.count - 1; i > at; --i) ack_.ranges[i] = ack_.ranges[i - 1];
  ack_.ranges[at] = {number, number};
}

}  // namespace bbrgym
