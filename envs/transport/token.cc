#include "envs/transport/token.h"

#include <algorithm>
#include <cstddef>
#include <span>

namespace bbrgym {

namespace {

constexpr std::size_t kTimeBytes = 8;

std::uint64_t Get(std::span<const std::uint8_t> bytes) {
  std::uint64_t value = 0;
  for (const std::uint8_t byte : bytes) value = value << 8U | byte;
  return value;
}

void Put(std::span<std::uint8_t> bytes, std::uint64_t value) {
  for (std::size_t i = bytes.size(); i-- > 0; value >>= 8U) bytes[i] = static_cast<std::uint8_t>(value);
}

}  // namespace

wire::Token MakeToken(const SipKey& key, const PeerAddress& peer, Nanoseconds now) {
  wire::Token token;
  const std::span all(token);
  Put(all.first(kTimeBytes), static_cast<std::uint64_t>(now));
  std::array<std::uint8_t, kTimeBytes + std::tuple_size_v<PeerAddress>> hashed;
  std::copy_n(token.begin(), kTimeBytes, hashed.begin());
  std::copy(peer.begin(), peer.end(), hashed.begin() + kTimeBytes);
  Put(all.subspan(kTimeBytes), SipHash(key, hashed));
  return token;
}

bool IsTokenValid(const wire::Token& token, const SipKey& key, const PeerAddress& peer, Nanoseconds now) {
  const std::uint64_t made = Get(std::span(token).first(kTimeBytes));
  const auto latest = static_cast<std::uint64_t>(now);
  if (made > latest || latest - made > static_cast<std::uint64_t>(kTokenLifetime)) return false;
  return token == MakeToken(key, peer, static_cast<Nanoseconds>(made));
}

std::uint16_t ConnectionOf(const wire::Token& token) {
  return static_cast<std::uint16_t>(Get(std::span(token).last(2)));
}

}  // namespace bbrgym
