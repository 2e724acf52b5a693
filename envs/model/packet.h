#pragma once

#include <array>
#include <cstdint>

#include "baselines/cc/units.h"

/// What sender and receiver exchange: the fields of a packet and of an acknowledgement, without a wire format.
namespace bbrgym {

using PacketNumber = std::uint64_t;

/// A time that never comes.
inline constexpr Nanoseconds kNever = INT64_MAX;

/// A data packet. The stream is divided into segments once. A retransmission sends a segment again under a new packet
/// number (RFC 9000, section 13.3), so an acknowledgement is never ambiguous.
struct DataPacket {
  PacketNumber number = 0;
  std::uint64_t segment = 0;
  std::int32_t bytes = 0;
  bool is_retransmission = false;
};

/// A range of received packet numbers, including both ends.
struct PacketRange {
  PacketNumber low = 0;
  PacketNumber high = 0;
};

/// An acknowledgement: the newest ranges of received packet numbers, newest first (RFC 9000, section 19.3).
struct AckPacket {
  static constexpr std::uint32_t kMaxRanges = 8;

  std::uint32_t count = 0;
  std::array<PacketRange, kMaxRanges> ranges;

  AckPacket() {}
  // Copies only the ranges in use: most acknowledgements have one.
  AckPacket(const AckPacket& other) { *this = other; }
  AckPacket& operator=(const AckPacket& other) {
    count = other.count;
    for (std::uint32_t i = 0; i < count; ++i) ranges[i] = other.ranges[i];
    return *this;
  }
};

}  // namespace bbrgym
