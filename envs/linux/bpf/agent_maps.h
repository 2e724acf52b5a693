/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What the BPF program agent.bpf.c and its loader exchange, per socket. */
#ifndef BBRGYM_AGENT_MAPS_H
#define BBRGYM_AGENT_MAPS_H

#include "fixed_policy.h"

/* What the loader replaces by a name that no other program of this machine has: the kernel's are of up to 15 letters.
 */
#define AGENT_NAME "bbrgym_00000000"

/* The RTTs of some ACKs, in us (baselines/cc/rtt_sample.h). */
struct agent_rtts {
  natural count;
  natural least;
  natural most;
  natural last;
  natural sum;
  natural differences; /* of neighbours, without signs */
};

/* Map `inputs`: what user space says. A socket with a value in the map `policies`, of the type `fixed_policy`, chooses
   its gains itself. */
struct agent_input {
  unsigned cwnd_gain_q24;
  unsigned pacing_gain_q24;
  unsigned step; /* another one begins the RTTs anew */
};

/* Map `states`: what the program says, and what it remembers. */
struct agent_state {
  unsigned mode; /* 0 Startup, 1 Drain, 2 ProbeBW, 3 ProbeRTT */
  unsigned round;
  unsigned is_full_pipe;
  unsigned min_rtt_us; /* 0 before the first sample */
  unsigned lowest_rtt_us;
  unsigned standing_rtt_us;
  unsigned lost_packets; /* in all */
  unsigned decisions;
  natural max_bandwidth; /* packets per us, q24 */
  natural highest_bandwidth;
  unsigned cwnd_gain_q24; /* in force */
  unsigned pacing_gain_q24;
  struct agent_rtts rtts; /* of the step of user space */
  unsigned step;
  unsigned probe_rtt_least_us; /* in the ProbeRTT that goes on */
  /* Since the last decision. */
  natural begin_us; /* 0 before the first ACK */
  natural next_us;
  unsigned sent_before;
  unsigned delivered_before;
  unsigned lost_before;
  struct agent_rtts decision_rtts;
  struct policy_memory memory;
};

#endif
