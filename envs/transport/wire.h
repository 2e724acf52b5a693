#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "envs/model/packet.h"

/// The wire format of the transport over UDP, version 1 (docs/wire.md). Integers are big-endian.
///
///     byte 0        version (high four bits), kind (low four bits)
///     byte 1        flags: bit 0 of a data packet is "retransmission"; all others are 0
///     bytes 2-3     connection id
///     hello         8 bytes of the sender's time, 16 bytes of token (zeros without one)
///     retry         the 8 bytes of the hello again, 16 bytes of token
///     welcome       the 8 bytes of the hello again
///     data          packet number and segment, the low 32 bits of each; then the payload, at least one byte
///     ack           the number of ranges, 1 to 8; 3 bytes of 0; then low and high end of each, 64 bits, newest first
///     end           nothing more
///
/// With IPv4's and UDP's headers a data packet has 40 bytes beside its payload, as one of TCP without options has.
/// No answer is longer than what it answers, so a receiver cannot be used to amplify traffic.
namespace bbrgym::wire {

inline constexpr std::size_t kDataHeaderBytes = 12;
inline constexpr std::size_t kMaxControlBytes = 8 + 16 * AckPacket::kMaxRanges;

enum class Kind : std::uint8_t { kHello = 1, kRetry, kWelcome, kData, kAck, kEnd };

using Token = std::array<std::uint8_t, 16>;

/// A datagram as it was read. Which members mean something depends on its kind.
struct Datagram {
  Kind kind = Kind::kEnd;
  std::uint16_t connection = 0;
  std::uint64_t time = 0;     ///< hello, retry, welcome
  Token token{};              ///< hello, retry
  std::uint32_t number = 0;   ///< data: the low 32 bits
  std::uint32_t segment = 0;  ///< data: the low 32 bits
  std::int32_t bytes = 0;     ///< data: of the payload
  bool is_retransmission = false;
  AckPacket ack{};
};

/// Reads a datagram; nothing if it is not one of this version, whatever its bytes.
std::optional<Datagram> Read(std::span<const std::uint8_t> bytes);

/// Writes a datagram of any kind into `buffer` (for data, only the header, which the payload follows); returns its
/// length, for data including the payload. `buffer` has room for kMaxControlBytes.
std::size_t Write(const Datagram& datagram, std::span<std::uint8_t> buffer);

/// The number whose low 32 bits these are and which is closest to `expected` (RFC 9000, appendix A.3).
std::uint64_t Expand(std::uint32_t low, std::uint64_t expected);

}  // namespace bbrgym::wire
