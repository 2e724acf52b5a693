// SPDX-License-Identifier: GPL-2.0-only
// The kernel's BBR and CUBIC through a BPF program that does nothing else: what agent.bpf.c costs is compared with
// this.

#include "kernel_tcp.h"

// Only their names matter here.
struct sock {};
struct rate_sample {};
struct ack_sample {};

PASS(void, bbr_init, (struct sock * sk), (sk))
PASS(void, bbr_main, (struct sock * sk, __u32 ack, int flag, const struct rate_sample* rs), (sk, ack, flag, rs))
PASS(void, cubictcp_init, (struct sock * sk), (sk))
PASS(__u32, cubictcp_recalc_ssthresh, (struct sock * sk), (sk))
PASS(void, cubictcp_cong_avoid, (struct sock * sk, __u32 ack, __u32 acked), (sk, ack, acked))
PASS(void, cubictcp_state, (struct sock * sk, __u8 state), (sk, state))
PASS(void, cubictcp_cwnd_event, (struct sock * sk, enum tcp_ca_event event), (sk, event))
PASS(void, cubictcp_acked, (struct sock * sk, const struct ack_sample* sample), (sk, sample))
PASS(__u32, tcp_reno_undo_cwnd, (struct sock * sk), (sk))

SEC(".struct_ops")
struct tcp_congestion_ops plain_bbr = {BBR_WITH(pass_bbr_init, pass_bbr_main), .name = "bbrgym_bbr"};

SEC(".struct_ops")
struct tcp_congestion_ops plain_cubic = {
    .init = (void*)pass_cubictcp_init,
    .ssthresh = (void*)pass_cubictcp_recalc_ssthresh,
    .cong_avoid = (void*)pass_cubictcp_cong_avoid,
    .set_state = (void*)pass_cubictcp_state,
    .undo_cwnd = (void*)pass_tcp_reno_undo_cwnd,
    .cwnd_event = (void*)pass_cubictcp_cwnd_event,
    .pkts_acked = (void*)pass_cubictcp_acked,
    .name = "bbrgym_cubic",
};
