// SPDX-License-Identifier: GPL-2.0-only
// The kernel's BBR and CUBIC through a BPF program that does nothing else: what agent.bpf.c costs is compared with
// this.

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;

#include <bpf/bpf_helpers.h>
// After the types.
#include <bpf/bpf_tracing.h>

// Only their names matter here.
struct sock {};
struct rate_sample {};
struct ack_sample {};
enum tcp_ca_event { CA_EVENT_TX_START };
struct tcp_congestion_ops {
  __u32 (*ssthresh)(struct sock*);
  void (*cong_avoid)(struct sock*, __u32, __u32);
  void (*set_state)(struct sock*, __u8);
  void (*cwnd_event)(struct sock*, enum tcp_ca_event);
  void (*pkts_acked)(struct sock*, const struct ack_sample*);
  __u32 (*min_tso_segs)(struct sock*);
  void (*cong_control)(struct sock*, __u32, int, const struct rate_sample*);
  __u32 (*undo_cwnd)(struct sock*);
  __u32 (*sndbuf_expand)(struct sock*);
  char name[16];
  void (*init)(struct sock*);
};

char plain_license[] SEC("license") = "GPL";

#define PASS(result, name, arguments, values)       \
  extern result name arguments __ksym;              \
  SEC("struct_ops/plain_" #name)                    \
  result BPF_PROG(plain_##name, UNPACK arguments) { \
    return name values;                             \
  }
#define UNPACK(...) __VA_ARGS__

PASS(void, bbr_init, (struct sock * sk), (sk))
PASS(void, bbr_main, (struct sock * sk, __u32 ack, int flag, const struct rate_sample* rs), (sk, ack, flag, rs))
PASS(__u32, bbr_sndbuf_expand, (struct sock * sk), (sk))
PASS(__u32, bbr_undo_cwnd, (struct sock * sk), (sk))
PASS(void, bbr_cwnd_event, (struct sock * sk, enum tcp_ca_event event), (sk, event))
PASS(__u32, bbr_ssthresh, (struct sock * sk), (sk))
PASS(__u32, bbr_min_tso_segs, (struct sock * sk), (sk))
PASS(void, bbr_set_state, (struct sock * sk, __u8 state), (sk, state))
PASS(void, cubictcp_init, (struct sock * sk), (sk))
PASS(__u32, cubictcp_recalc_ssthresh, (struct sock * sk), (sk))
PASS(void, cubictcp_cong_avoid, (struct sock * sk, __u32 ack, __u32 acked), (sk, ack, acked))
PASS(void, cubictcp_state, (struct sock * sk, __u8 state), (sk, state))
PASS(void, cubictcp_cwnd_event, (struct sock * sk, enum tcp_ca_event event), (sk, event))
PASS(void, cubictcp_acked, (struct sock * sk, const struct ack_sample* sample), (sk, sample))
PASS(__u32, tcp_reno_undo_cwnd, (struct sock * sk), (sk))

SEC(".struct_ops")
struct tcp_congestion_ops plain_bbr = {
    .init = (void*)plain_bbr_init,
    .cong_control = (void*)plain_bbr_main,
    .sndbuf_expand = (void*)plain_bbr_sndbuf_expand,
    .undo_cwnd = (void*)plain_bbr_undo_cwnd,
    .cwnd_event = (void*)plain_bbr_cwnd_event,
    .ssthresh = (void*)plain_bbr_ssthresh,
    .min_tso_segs = (void*)plain_bbr_min_tso_segs,
    .set_state = (void*)plain_bbr_set_state,
    .name = "bbrgym_bbr",
};

SEC(".struct_ops")
struct tcp_congestion_ops plain_cubic = {
    .init = (void*)plain_cubictcp_init,
    .ssthresh = (void*)plain_cubictcp_recalc_ssthresh,
    .cong_avoid = (void*)plain_cubictcp_cong_avoid,
    .set_state = (void*)plain_cubictcp_state,
    .undo_cwnd = (void*)plain_tcp_reno_undo_cwnd,
    .cwnd_event = (void*)plain_cubictcp_cwnd_event,
    .pkts_acked = (void*)plain_cubictcp_acked,
    .name = "bbrgym_cubic",
};
