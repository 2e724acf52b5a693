#include "envs/transport/receiver.h"

#include <algorithm>

namespace bbrgym {

bool Receiver::OnPacket(Nanoseconds now, const DataPacket& packet) {
  Record(packet.number);
  counts_.arrived += packet.bytes;
  if (packet.ecn == Ecn::kCe) TakeMark(packet);

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
  if (!is_expected || had_hole || unacknowledged_ >= kAckEvery) return true;
  ack_due_ = now + kMaxAckDelay;
  return false;
}

[[gnu::noinline]] void Receiver::TakeMark(const DataPacket& packet) {
  ack_.marked += packet.bytes;
  if (packet.number != after_mark_) unacknowledged_ = kAckEvery;
  after_mark_ = packet.number + 1;
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
  // What is older than all the ranges that are kept takes the place of the last: as of TCP's blocks (RFC 2018, section
  // 4), the latest arrival is always among them.
  at = std::min(at, AckPacket::kMaxRanges - 1);
  if (ack_.count < AckPacket::kMaxRanges) ++ack_.count;
  for (std::uint32_t i = ack_.count - 1; i > at; --i) ack_.ranges[i] = ack_.ranges[i - 1];
  ack_.ranges[at] = {number, number};
}

}  // namespace bbrgym
