#pragma once

#include <array>
#include <cstdint>

#include "baselines/cc/units.h"

/// What sender and receiver exchange: the fields of a packet and of an acknowledgement, without a wire format.
namespace bbrgym {

using PacketNumber = std::uint64_t;

/// A time that never comes.
inline constexpr Nanoseconds kNever = INT64_MAX;

/// The ECN field of a packet's IP header (RFC 3168, section 5). ECT(1) is that of L4S (RFC 9331).
enum class Ecn : std::uint8_t {
  kNotEct = 0,  ///< the transport is not ECN-capable: congestion drops the packet
  kEct1 = 1,
  kEct0 = 2,
  kCe = 3,  ///< congestion was experienced: the packet is marked
};

/// A data packet. The stream is divided into segments once. A retransmission sends a segment again under a new packet
/// number (RFC 9000, section 13.3), so an acknowledgement is never ambiguous.
struct DataPacket {
  PacketNumber number = 0;
  std::uint64_t segment = 0;
  std::int32_t bytes = 0;
  bool is_retransmission = false;
  Ecn ecn = Ecn::kNotEct;
};

/// A range of received packet numbers, including both ends.
struct PacketRange {
  PacketNumber low = 0;
  PacketNumber high = 0;
};

/// An acknowledgement: the newest ranges of received packet numbers, newest first (RFC 9000, section 19.3), the last of
/// which may be older and the latest arrival, and how much was marked. As in Accurate ECN (RFC 9768), a lost
/// acknowledgement loses no mark: the next one has the total.
struct AckPacket {
  static constexpr std::uint32_t kMaxRanges = 8;

  std::uint32_t count = 0;
  std::array<PacketRange, kMaxRanges> ranges;
  Bytes marked = 0;  ///< payload of all CE-marked packets so far

  AckPacket() {}
  // Copies only the ranges in use: most acknowledgements have one.
  AckPacket(const AckPacket& other) { *this = other; }
  AckPacket& operator=(const AckPacket& other) {
    count = other.count;
    marked = other.marked;
    for (std::uint32_t i = 0; i < count; ++i) ranges[i] = other.ranges[i];
    return *this;
  }
};

}  // namespace bbrgym
