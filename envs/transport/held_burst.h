#pragma once

#include <algorithm>

#include "baselines/cc/units.h"

namespace bbrgym {

/// What decides whether a burst that the window cuts waits for room. Its packets are new ones, outside of recovery, and
/// others are in flight.
struct NextBurst {
  Bytes room = 0;  ///< in the window
  Bytes cwnd = 0;
  Bytes bytes = 0;              ///< the burst
  Nanoseconds may_leave = 0;    ///< when the pace let it leave
  Nanoseconds oldest_sent = 0;  ///< of the packets in flight
  Nanoseconds smoothed_rtt = 0;
};

/// Returns whether the burst waits for the next ACK, as in the kernel's TCP: Linux net/ipv4/tcp_output.c,
/// tcp_tso_should_defer (6.18). It waits if the last burst has just left and the next ACK is near; a third of the
/// window (sysctl tcp_tso_win_divisor) is room enough.
inline bool IsBurstHeld(const NextBurst& next, Nanoseconds now) {
  constexpr Nanoseconds kNear = kMillisecond;
  constexpr Bytes kWindowDivisor = 3;
  if (next.room >= std::min(next.bytes, next.cwnd / kWindowDivisor)) return false;
  if (now > next.may_leave + kNear) return false;
  return next.oldest_sent + next.smoothed_rtt - now <= std::min(next.smoothed_rtt / 2, kNear);
}

}  // namespace bbrgym
