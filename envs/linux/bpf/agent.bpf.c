// SPDX-License-Identifier: GPL-2.0-only
// A congestion control of the kernel's TCP with BBR's model of the path and gains from outside: baselines/cc/agent.cc
// with `model: bbr`, on the kernel's own BBR. On every ACK the kernel's bbr_main does its work. Then, in ProbeBW,
//   cwnd = cwnd_gain x BDP    and    pacing_rate = pacing_gain x max_bandwidth
// replace its window and rate, the window in whole bursts (bursts.h). The gains of a socket come from user space
// (agent_maps.h), or from a policy that this program runs itself (fixed_policy.h, as baselines/cc/policy.cc).
//
// The kernel offers the functions of its BBR to such programs (net/ipv4/tcp_bbr.c, tcp_bbr_check_kfunc_ids). Types have
// the members that are used here: the loader finds their places in the running kernel (CO-RE).

#define BPF_MAP_TYPE_SK_STORAGE 24
#define BPF_F_NO_PREALLOC 1
#define BPF_SK_STORAGE_GET_F_CREATE 1

#include "agent_maps.h"
#include "bursts.h"
#include "kernel_tcp.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct sock {
  unsigned long sk_pacing_rate;
  __u8 sk_pacing_shift;
};
struct inet_connection_sock {
  __u8 icsk_ca_state : 5;
  __u64 icsk_ca_priv[13];
};
struct tcp_sock {
  __u32 mss_cache;
  __u32 lost;
  __u32 data_segs_out;
  __u64 tcp_mstamp;
  __u32 snd_cwnd;
  __u32 snd_cwnd_clamp;
  __u32 delivered;
};
struct rate_sample {
  long rtt_us;
  int losses;
  __u32 acked_sacked;
};
struct minmax_sample {
  __u32 t;
  __u32 v;
};
struct minmax {
  struct minmax_sample s[3];
};
struct bbr {
  __u32 min_rtt_us;
  struct minmax bw;
  __u32 rtt_cnt;
  __u32 mode : 3;
  __u32 prev_ca_state : 3;
  __u32 packet_conservation : 1;
  __u32 pacing_gain : 10;
  __u32 cwnd_gain : 10;
  __u32 full_bw_reached : 1;
  __u32 prior_cwnd;
};
#pragma clang attribute pop

extern void bbr_init(struct sock* sk) __ksym;
extern void bbr_main(struct sock* sk, __u32 ack, int flag, const struct rate_sample* rs) __ksym;

enum { MODE_PROBE_BW = 2, MODE_PROBE_RTT = 3 };  // enum bbr_mode
enum { CA_RECOVERY = 3 };                        // enum tcp_ca_state
enum { LEAST_CWND = 4 };                         // bbr_cwnd_min_target

#define PER_SOCKET(record)                 \
  struct {                                 \
    __uint(type, BPF_MAP_TYPE_SK_STORAGE); \
    __uint(map_flags, BPF_F_NO_PREALLOC);  \
    __type(key, int);                      \
    __type(value, struct record);          \
  }

PER_SOCKET(agent_input) inputs SEC(".maps");
PER_SOCKET(fixed_policy) policies SEC(".maps");
PER_SOCKET(agent_state) states SEC(".maps");

static __always_inline void add_rtt(struct agent_rtts* rtts, __u64 rtt) {
  if (rtts->count == 0) {
    rtts->least = rtt;
    rtts->most = rtt;
    rtts->last = rtt;
    rtts->sum = 0;
    rtts->differences = 0;
  }
  if (rtt < rtts->least) rtts->least = rtt;
  if (rtt > rtts->most) rtts->most = rtt;
  rtts->sum += rtt;
  rtts->differences += rtt > rtts->last ? rtt - rtts->last : rtts->last - rtt;
  rtts->last = rtt;
  rtts->count++;
}

// What the kernel's BBR does not keep of its model (baselines/cc/bbr_model.cc).
static __always_inline void observe(struct agent_state* state, const struct bbr* bbr, __u32 prior_mode, long rtt_us) {
  state->mode = BPF_CORE_READ_BITFIELD(bbr, mode);
  state->round = bbr->rtt_cnt;
  state->is_full_pipe = BPF_CORE_READ_BITFIELD(bbr, full_bw_reached);
  state->cwnd_gain_q24 = BPF_CORE_READ_BITFIELD(bbr, cwnd_gain) << 16;
  state->pacing_gain_q24 = BPF_CORE_READ_BITFIELD(bbr, pacing_gain) << 16;
  state->min_rtt_us = bbr->min_rtt_us == ~0U ? 0 : bbr->min_rtt_us;
  state->max_bandwidth = bbr->bw.s[0].v;
  if (state->max_bandwidth > state->highest_bandwidth) state->highest_bandwidth = state->max_bandwidth;
  if (prior_mode != MODE_PROBE_RTT && state->probe_rtt_least_us) {
    state->standing_rtt_us = state->probe_rtt_least_us;
    state->probe_rtt_least_us = 0;
  }
  if (rtt_us <= 0) return;
  if (!state->lowest_rtt_us || rtt_us < state->lowest_rtt_us) state->lowest_rtt_us = rtt_us;
  if (prior_mode == MODE_PROBE_RTT && (!state->probe_rtt_least_us || rtt_us < state->probe_rtt_least_us)) {
    state->probe_rtt_least_us = rtt_us;
  }
  add_rtt(&state->rtts, rtt_us);
  add_rtt(&state->decision_rtts, rtt_us);
}

// What bbr_set_cwnd does, with this target: upwards by what is acknowledged, downwards at once.
static __always_inline __u32 moved_cwnd(__u32 cwnd, const struct rate_sample* rs, __u32 restored, __u64 target) {
  if (rs->losses > 0) {
    const __u32 losses = rs->losses;
    cwnd = cwnd > losses ? cwnd - losses : 1;
  }
  if (cwnd < restored) cwnd = restored;
  cwnd += rs->acked_sacked;
  if (cwnd > target) cwnd = target;
  return cwnd < LEAST_CWND ? LEAST_CWND : cwnd;
}

// Decides if it is time (baselines/cc/policy.cc).
static __always_inline void decide(struct agent_state* state, const struct fixed_policy* policy, struct tcp_sock* tp) {
  const __u64 now = tp->tcp_mstamp;
  struct policy_row* row = &state->memory.row;
  const struct agent_rtts* rtts = &state->decision_rtts;
  const __u64 interval = policy->interval_us;
  __u64 us;
  if (!interval) return;
  if (!state->begin_us) {
    // The first decision sees no more than the first gains. Its step began with the first packet.
    policy_decide(policy, &state->memory);
    state->begin_us = now - rtts->last;
    state->next_us = state->begin_us + interval;
  }
  if (now < state->next_us) return;
  us = now > state->begin_us ? now - state->begin_us : 1;
  row->sent_packets = tp->data_segs_out - state->sent_before;
  row->lost_packets = tp->lost - state->lost_before;
  row->send_rate = (row->sent_packets << 32) / us;
  row->delivery_rate = ((__u64)(tp->delivered - state->delivered_before) << 32) / us;
  row->max_bandwidth = state->max_bandwidth << 8;
  row->highest_bandwidth = state->highest_bandwidth << 8;
  row->cwnd_packets = tp->snd_cwnd;
  row->rtt_min_ns = row->rtt_mean_ns = row->rtt_jitter_ns = 0;
  if (rtts->count) {
    row->rtt_min_ns = rtts->least * 1000;
    row->rtt_mean_ns = rtts->sum * 1000 / rtts->count;
    row->rtt_last_ns = rtts->last * 1000;
  }
  if (rtts->count > 1) row->rtt_jitter_ns = rtts->differences * 1000 / (rtts->count - 1);
  row->min_rtt_ns = (__u64)state->min_rtt_us * 1000;
  row->lowest_rtt_ns = (__u64)state->lowest_rtt_us * 1000;
  row->standing_rtt_ns = (__u64)state->standing_rtt_us * 1000;
  row->packet_bits = (__u64)tp->mss_cache * 8;
  row->is_probe_bw = state->mode == MODE_PROBE_BW;
  policy_decide(policy, &state->memory);
  state->decisions++;
  state->begin_us = now;
  state->next_us += ((now - state->next_us) / interval + 1) * interval;
  state->sent_before = tp->data_segs_out;
  state->delivered_before = tp->delivered;
  state->lost_before = tp->lost;
  state->decision_rtts.count = 0;
}

SEC("struct_ops/agent_init")
void BPF_PROG(agent_init, struct sock* sk) {
  struct tcp_sock* tp = (struct tcp_sock*)sk;
  struct bbr* bbr = (struct bbr*)((struct inet_connection_sock*)sk)->icsk_ca_priv;
  const struct agent_input first = {2 * ONE_Q24, ONE_Q24, 0};
  struct agent_input* input = bpf_sk_storage_get(&inputs, sk, (void*)&first, BPF_SK_STORAGE_GET_F_CREATE);
  struct agent_state* state = bpf_sk_storage_get(&states, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
  bbr_init(sk);
  // As ours: the handshake's packets are shorter than those with data, and so is the time that a link takes for them.
  bbr->min_rtt_us = ~0U;
  if (!input || !state) return;
  state->sent_before = tp->data_segs_out;
  state->delivered_before = tp->delivered;
  state->lost_before = tp->lost;
  state->memory.row.cwnd_gain_q24 = input->cwnd_gain_q24;
  state->memory.row.pacing_gain_q24 = input->pacing_gain_q24;
}

SEC("struct_ops/agent_main")
void BPF_PROG(agent_main, struct sock* sk, __u32 ack, int flag, const struct rate_sample* rs) {
  struct tcp_sock* tp = (struct tcp_sock*)sk;
  struct inet_connection_sock* icsk = (struct inet_connection_sock*)sk;
  const struct bbr* bbr = (const struct bbr*)icsk->icsk_ca_priv;
  const __u32 prior_cwnd = tp->snd_cwnd;
  const __u32 prior_mode = BPF_CORE_READ_BITFIELD(bbr, mode);
  const __u32 prior_ca_state = BPF_CORE_READ_BITFIELD(bbr, prev_ca_state);
  struct agent_input* input;
  struct agent_state* state;
  const struct fixed_policy* policy;
  __u64 cwnd_gain, pacing_gain, bandwidth;

  bbr_main(sk, ack, flag, rs);

  input = bpf_sk_storage_get(&inputs, sk, 0, 0);
  state = bpf_sk_storage_get(&states, sk, 0, 0);
  if (!input || !state) return;
  if (input->step != state->step) {
    state->step = input->step;
    state->rtts.count = 0;
  }
  observe(state, bbr, prior_mode, rs->rtt_us);
  state->lost_packets = tp->lost;
  policy = bpf_sk_storage_get(&policies, sk, 0, 0);
  cwnd_gain = policy ? state->memory.row.cwnd_gain_q24 : input->cwnd_gain_q24;
  pacing_gain = policy ? state->memory.row.pacing_gain_q24 : input->pacing_gain_q24;
  bandwidth = state->max_bandwidth;
  if (state->mode == MODE_PROBE_BW && bandwidth) {
    const __u64 bdp_q12 = bandwidth * state->min_rtt_us >> 12;
    const int is_restored = prior_mode == MODE_PROBE_RTT || (prior_ca_state >= CA_RECOVERY &&
                                                             BPF_CORE_READ_BITFIELD(icsk, icsk_ca_state) < CA_RECOVERY);
    // The rate in bytes per s, q8, times the gain in q16.
    sk->sk_pacing_rate = ((bandwidth * tp->mss_cache >> 4) * 1000000 >> 12) * (pacing_gain >> 8) >> 24;
    if (rs->acked_sacked && !BPF_CORE_READ_BITFIELD(bbr, packet_conservation)) {
      const __u64 burst = burst_packets(sk->sk_pacing_rate, sk->sk_pacing_shift, tp->mss_cache, bbr_min_tso_segs(sk));
      const __u64 target = window_in_bursts(bdp_q12, cwnd_gain, burst);
      const __u32 cwnd = moved_cwnd(prior_cwnd, rs, is_restored ? bbr->prior_cwnd : 0, target);
      tp->snd_cwnd = cwnd > tp->snd_cwnd_clamp ? tp->snd_cwnd_clamp : cwnd;
    }
    state->cwnd_gain_q24 = cwnd_gain;
    state->pacing_gain_q24 = pacing_gain;
  }
  if (policy) decide(state, policy, tp);
}

SEC(".struct_ops")
struct tcp_congestion_ops agent = {BBR_WITH(agent_init, agent_main), .name = AGENT_NAME};
