#pragma once

#include <algorithm>

#include "baselines/cc/units.h"

/// The handshake of this transport: a hello, repeated with a doubling timeout until its answer arrives; and at the end
/// of a flow the sender's end in the same way.
namespace bbrgym {

inline constexpr Nanoseconds kFirstHelloTimeout = 1'000 * kMillisecond;  // as TCP's SYN: RFC 6298, section 2.1

/// The timeout after the next hello, at most a minute.
inline Nanoseconds NextHelloTimeout(Nanoseconds timeout) {
  return std::min(2 * timeout, 64 * kFirstHelloTimeout);
}

/// The end is repeated faster: a person waits for the report. The longest timeout is shorter than the receiver waits.
inline constexpr Nanoseconds kFirstEndTimeout = 250 * kMillisecond;
inline constexpr Nanoseconds kLongestEndTimeout = 1'000 * kMillisecond;

}  // namespace bbrgym
