/* SPDX-License-Identifier: GPL-2.0-only */
/* What a congestion control in BPF takes from the kernel, for agent.bpf.c and studies/kernel/plain.bpf.c. */
#ifndef BBRGYM_KERNEL_TCP_H
#define BBRGYM_KERNEL_TCP_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;

#include <bpf/bpf_helpers.h>
/* After the types and helpers. */
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

struct sock;
struct rate_sample;
struct ack_sample;
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

char bpf_license[] SEC("license") = "GPL";

/* Defines pass_NAME, which calls the kernel's function NAME. */
#define PASS(result, name, arguments, values)      \
  extern result name arguments __ksym;             \
  SEC("struct_ops/pass_" #name)                    \
  result BPF_PROG(pass_##name, UNPACK arguments) { \
    return name values;                            \
  }
#define UNPACK(...) __VA_ARGS__

PASS(__u32, bbr_sndbuf_expand, (struct sock * sk), (sk))
PASS(__u32, bbr_undo_cwnd, (struct sock * sk), (sk))
PASS(void, bbr_cwnd_event, (struct sock * sk, enum tcp_ca_event event), (sk, event))
PASS(__u32, bbr_ssthresh, (struct sock * sk), (sk))
PASS(__u32, bbr_min_tso_segs, (struct sock * sk), (sk))
PASS(void, bbr_set_state, (struct sock * sk, __u8 state), (sk, state))

/* A congestion control that does what the kernel's BBR does, but for these two. */
#define BBR_WITH(init_function, cong_control_function)                                    \
  .init = (void*)(init_function), .cong_control = (void*)(cong_control_function),         \
  .sndbuf_expand = (void*)pass_bbr_sndbuf_expand, .undo_cwnd = (void*)pass_bbr_undo_cwnd, \
  .cwnd_event = (void*)pass_bbr_cwnd_event, .ssthresh = (void*)pass_bbr_ssthresh,         \
  .min_tso_segs = (void*)pass_bbr_min_tso_segs, .set_state = (void*)pass_bbr_set_state

#endif
