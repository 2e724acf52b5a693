#pragma once

#include <array>
#include <cstdint>

#include "baselines/cc/units.h"
#include "envs/transport/siphash.h"
#include "envs/transport/wire.h"

/// Tokens prove that a sender receives what is sent to its address (RFC 9000, section 8.1.2). The receiver stores none:
/// a token holds the time when it was made, and a hash of this time and the address under the receiver's key.
namespace bbrgym {

/// An address and port in network order; IPv4 is mapped to IPv6 (RFC 4291, section 2.5.5.2).
using PeerAddress = std::array<std::uint8_t, 18>;

/// A token is for one handshake, and outlasts several repeated hellos.
inline constexpr Nanoseconds kTokenLifetime = 10 * kSecond;

wire::Token MakeToken(const SipKey& key, const PeerAddress& peer, Nanoseconds now);

/// Whether the token was made with this key for this peer, at most `kTokenLifetime` ago.
bool IsTokenValid(const wire::Token& token, const SipKey& key, const PeerAddress& peer, Nanoseconds now);

/// The id of the connection that this token opens: nobody else can tell it.
std::uint16_t ConnectionOf(const wire::Token& token);

}  // namespace bbrgym
