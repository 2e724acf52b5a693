#pragma once

#include <cstdint>

namespace bbrgym {

/// Amounts of payload.
using Bytes = std::int64_t;
/// Times since the start of the connection or simulation, and their differences.
using Nanoseconds = std::int64_t;
/// Rates of payload.
using BitsPerSecond = std::int64_t;

inline constexpr Nanoseconds kMillisecond = 1'000'000;
inline constexpr Nanoseconds kSecond = 1'000'000'000;

/// Returns the rate of `bytes` in an `interval` above 0, in bits per second.
constexpr double ExactRateOf(double bytes, Nanoseconds interval) {
  return bytes * 8e9 / static_cast<double>(interval);
}

/// Returns the rate of `bytes` in `interval`; 0 for an empty interval.
constexpr BitsPerSecond RateOf(Bytes bytes, Nanoseconds interval) {
  if (interval <= 0) return 0;
  // In double precision: bytes x 8e9 exceeds 2^63 beyond 1 GB. 53 bits are exact to 1 part in 10^15.
  return static_cast<BitsPerSecond>(ExactRateOf(static_cast<double>(bytes), interval));
}

/// Returns the bytes that `rate` carries in `interval`.
constexpr double BytesIn(BitsPerSecond rate, Nanoseconds interval) {
  return static_cast<double>(rate) * static_cast<double>(interval) / 8e9;
}

}  // namespace bbrgym
