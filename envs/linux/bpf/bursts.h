/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The window of agent.bpf.c in the bursts that the kernel keeps whole, as baselines/cc/bbr.cc has them (BurstPackets,
 * InWholeBursts). A test runs it as plain C (tests/unit/test_kernel_agent.py).
 */
#ifndef BBRGYM_BURSTS_H
#define BBRGYM_BURSTS_H

#include "fixed_policy.h"

/* How many packets the kernel hands to the device at once: what the pacing rate, in bytes per s, sends in 2^-shift s,
   at most 64 KB, and at least `least` (net/ipv4/tcp_bbr.c, bbr_tso_segs_goal and bbr_min_tso_segs). */
static inline natural burst_packets(natural pacing_rate, unsigned shift, unsigned mss, natural least) {
  const natural most = 65536;
  natural bytes = pacing_rate >> (shift & 63);
  natural packets;
  if (bytes > most) bytes = most;
  packets = mss ? bytes / mss : 0;
  return packets > least ? packets : least;
}

/* cwnd_gain x BDP, rounded up to whole bursts. The kernel waits until the window has room for a whole one
   (net/ipv4/tcp_output.c, tcp_tso_should_defer), so less than that is no room. Downwards, a gain of 1 would be a part
   of a packet less than the path delivers, and the flow would slow down round by round (bbr_bdp rounds up, too). */
static inline natural window_in_bursts(natural bdp_q12, natural cwnd_gain_q24, natural burst) {
  const natural packets = (bdp_q12 * cwnd_gain_q24 + (1ULL << 36) - 1) >> 36;
  return burst ? (packets + burst - 1) / burst * burst : packets;
}

#endif
