#pragma once

#include <bit>
#include <cstdint>

namespace bbrgym {

/// SipHash-2-4 (Aumasson and Bernstein, 2012) of one 8-byte word under a key of two: without the key nobody can tell
/// the hash of any word.
constexpr std::uint64_t SipHash(std::uint64_t key0, std::uint64_t key1, std::uint64_t word) {
  std::uint64_t v0 = key0 ^ 0x736F6D6570736575U;
  std::uint64_t v1 = key1 ^ 0x646F72616E646F6DU;
  std::uint64_t v2 = key0 ^ 0x6C7967656E657261U;
  std::uint64_t v3 = key1 ^ 0x7465646279746573U;
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
  for (const std::uint64_t block : {word, std::uint64_t{8} << 56U}) {  // the last block holds the length
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
