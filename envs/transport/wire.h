#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "envs/model/packet.h"

/// The wire format of the transport over UDP, version 3. docs/wire.md has its tables, the handshake and the reasons.
namespace bbrgym::wire {

inline constexpr std::size_t kDataHeaderBytes = 12;
inline constexpr std::size_t kMaxControlBytes = 16 + 16 * AckPacket::kMaxRanges;

enum class Kind : std::uint8_t { kHello = 1, kRetry, kWelcome, kData, kAck, kEnd, kReport, kBusy };

using Token = std::array<std::uint8_t, 16>;

/// What a sender has sent.
struct Sent {
  std::uint64_t packets = 0;
  std::uint64_t bytes = 0;  ///< of payload
};

/// What a receiver has of it.
struct Report {
  std::uint64_t received_bytes = 0;     ///< payload in order, without a gap
  std::uint64_t arrived_bytes = 0;      ///< payload of all data packets, including duplicates
  std::uint64_t arrived_packets = 0;    ///< including duplicates
  std::uint64_t reordered_packets = 0;  ///< that arrived after a later one (RFC 4737, section 3.3)
};

/// A datagram as it was read. Which members mean something depends on its kind.
struct Datagram {
  Kind kind = Kind::kEnd;
  std::uint16_t connection = 0;
  std::uint64_t time = 0;          ///< hello, retry, welcome, busy
  Token token{};                   ///< hello, retry, end
  std::uint32_t number = 0;        ///< data: the low 32 bits
  std::uint32_t segment = 0;       ///< data: the low 32 bits
  std::int32_t bytes = 0;          ///< data: of the payload
  bool is_retransmission = false;  ///< data
  AckPacket ack{};
  bool is_last = false;  ///< end: the report has arrived
  Sent sent{};           ///< end
  Report report{};
};

/// Reads a datagram; nothing if it is not one of this version, whatever its bytes.
std::optional<Datagram> Read(std::span<const std::uint8_t> bytes);

/// Writes a datagram of any kind into `buffer` (for data, only the header, which the payload follows); returns its
/// length, for data including the payload. `buffer` has room for kMaxControlBytes.
std::size_t Write(const Datagram& datagram, std::span<std::uint8_t> buffer);

/// The number whose low 32 bits these are and which is closest to `expected` (RFC 9000, appendix A.3).
std::uint64_t Expand(std::uint32_t low, std::uint64_t expected);

}  // namespace bbrgym::wire
