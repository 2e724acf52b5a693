#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace bbrgym {

struct SipKey {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
};

/// SipHash-2-4 (Aumasson and Bernstein, 2012): without the key nobody can tell the hash of any message.
constexpr std::uint64_t SipHash(const SipKey& key, std::span<const std::uint8_t> message) {
  std::uint64_t v0 = key.low ^ 0x736F6D6570736575U;
  std::uint64_t v1 = key.high ^ 0x646F72616E646F6DU;
  std::uint64_t v2 = key.low ^ 0x6C7967656E657261U;
  std::uint64_t v3 = key.high ^ 0x7465646279746573U;
  const auto round = [&] {
    v0 += v1;
    v1 = std::rotl(v1, 13) ^ v0;
    v0 = std::rotl(v0, 32);
    v2 += v3;
    v3 = std::rotl(v3, 16) ^ v2;
    v0 += v3;
    v3 = std::rotl(v3, 21) ^ v0;
    v2 += v1;
    v1 = std::rotl(v1, 17) ^ v2;
    v2 = std::rotl(v2, 32);
  };
  // Blocks of 8 bytes, little-endian. The last one is padded, and ends with the length.
  for (std::size_t at = 0; at <= message.size(); at += 8) {
    std::uint64_t block = at + 8 > message.size() ? std::uint64_t{message.size()} << 56U : 0;
    for (std::size_t i = at; i < message.size() && i < at + 8; ++i) block |= std::uint64_t{message[i]} << 8 * (i - at);
    v3 ^= block;
    round();
    round();
    v0 ^= block;
  }
  v2 ^= 0xFFU;
  for (int i = 0; i < 4; ++i) round();
  return v0 ^ v1 ^ v2 ^ v3;
}

}  // namespace bbrgym
