/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * A policy in integers: features (baselines/cc/policy/features.cc), a network that is linear or has a hidden layer of
 * tanh, and gains (baselines/cc/policy/gains.h). It has no floats and no tables, and every loop has a bound. So the
 * BPF program agent.bpf.c runs it in the kernel, and a test runs it as plain C (tests/unit/test_kernel_agent.py).
 *
 * `q20` and so on are fixed-point numbers with so many bits behind the point. Logarithms and exponentials are shifts
 * and short series, with errors of some 1e-6.
 */
#ifndef BBRGYM_FIXED_POLICY_H
#define BBRGYM_FIXED_POLICY_H

typedef long long fixed;
typedef unsigned long long natural;

#define ONE_Q20 (1LL << 20)
#define ONE_Q24 (1LL << 24)
#define ONE_Q30 (1LL << 30)
/* In place of a logarithm that does not exist. */
#define NONE (-(1LL << 62))

/* What a flow measured since its last decision; 0 where there is no value. Rates are in packets per us, q32. */
struct policy_row {
  natural send_rate;
  natural delivery_rate;
  natural max_bandwidth;
  natural highest_bandwidth;
  natural sent_packets;
  natural lost_packets;
  natural cwnd_packets;
  natural rtt_min_ns;
  natural rtt_mean_ns;
  natural rtt_jitter_ns;
  natural rtt_last_ns;
  natural min_rtt_ns;
  natural lowest_rtt_ns;
  natural standing_rtt_ns;
  natural packet_bits;
  natural is_probe_bw;
  natural cwnd_gain_q24; /* chosen last */
  natural pacing_gain_q24;
};

/* FEATURE(name, lowest, highest, neutral, value in q20): neutral is for a value that does not exist. */
#define POLICY_FEATURES(FEATURE)                                                                        \
  FEATURE(log_delivery_rate_ratio, -5, 1, 0, policy_log2_ratio(row->delivery_rate, row->max_bandwidth)) \
  FEATURE(send_rate_ratio, 0, 4, 1, policy_ratio(row->send_rate, row->delivery_rate))                   \
  FEATURE(log_rtt_ratio, 0, 5, 0, policy_log2_ratio(row->rtt_mean_ns, row->min_rtt_ns))                 \
  FEATURE(log_rtt_last_ratio, 0, 5, 0, policy_log2_ratio(row->rtt_last_ns, row->min_rtt_ns))            \
  FEATURE(log_cwnd_ratio, -4, 4, 1, policy_minus(policy_log2(row->cwnd_packets), policy_log2_bdp(row))) \
  FEATURE(log_backlog, 0, 12, 0, policy_backlog(row, row->rtt_mean_ns, row->min_rtt_ns))                \
  FEATURE(log_standing_backlog, 0, 12, 0, policy_backlog(row, row->rtt_mean_ns, row->lowest_rtt_ns))    \
  FEATURE(log_least_backlog, 0, 12, 0, policy_backlog(row, row->rtt_min_ns, row->min_rtt_ns))           \
  FEATURE(log_jitter_backlog, 0, 12, 0, policy_backlog(row, row->rtt_jitter_ns, 0))                     \
  FEATURE(log_stale_rtt_ratio, 0, 5, 0, policy_log2_ratio(row->min_rtt_ns, row->lowest_rtt_ns))         \
  FEATURE(log_standing_rtt_ratio, 0, 5, 0, policy_log2_ratio(row->standing_rtt_ns, row->lowest_rtt_ns)) \
  FEATURE(log_rate_decline, 0, 7, 0, policy_log2_ratio(row->highest_bandwidth, row->delivery_rate))     \
  FEATURE(log_queueing_delay, -2, 4, -2, policy_log10(policy_queueing_ns(row), LOG2_1E6_Q20))           \
  FEATURE(log_loss_rate, -4, 0, -4, policy_loss(row))                                                   \
  FEATURE(log_bdp, -1, 6, 0, policy_log10_of(policy_log2_bdp(row)))                                     \
  FEATURE(log_min_rtt, -1, 4, 0, policy_log10(row->min_rtt_ns, LOG2_1E6_Q20))                           \
  FEATURE(log_delivery_rate, -3, 4, -3, policy_log10(row->delivery_rate, policy_log2_rate_unit(row)))   \
  FEATURE(log_max_bandwidth, -3, 4, -3, policy_log10(row->max_bandwidth, policy_log2_rate_unit(row)))   \
  FEATURE(log_cwnd_gain, -4, 5, 0, policy_minus(policy_log2(row->cwnd_gain_q24), 24 * ONE_Q20))         \
  FEATURE(log_pacing_gain, -4, 4, 0, policy_minus(policy_log2(row->pacing_gain_q24), 24 * ONE_Q20))     \
  FEATURE(asinh_excess_window, -8, 8, 0, policy_excess(row))                                            \
  FEATURE(is_probe_bw, 0, 1, 0, row->is_probe_bw ? ONE_Q20 : 0)

#define POLICY_INDEX(name, lowest, highest, neutral, value) FEATURE_##name,
enum policy_feature { POLICY_FEATURES(POLICY_INDEX) POLICY_FEATURE_COUNT };
#undef POLICY_INDEX

enum { POLICY_UNITS = 16 }; /* of the hidden layer, at most */
/* Every feature, and every feature times what the flow's preference has above its default, 1/4 (`…_by_preference`). */
enum { POLICY_INPUTS = 2 * POLICY_FEATURE_COUNT };
enum policy_scale { SCALE_RATIO, SCALE_PACKETS, SCALE_EXCESS };

/* Weights are in q20. Features that a policy does not observe have the weight 0. */
struct fixed_policy {
  natural interval_us;
  int preference; /* less the default */
  int units;      /* of the hidden layer; 0: the first two rows of the first layer are the actions */
  int weights[POLICY_UNITS][POLICY_INPUTS];
  int bias[POLICY_UNITS];
  int output_weights[2][POLICY_UNITS];
  int output_bias[2];
  /* A gain is 2^(low + (action + 1) / 2 x span), in q20; with SCALE_EXCESS, of cwnd_gain, what it has above 1. */
  int cwnd_low;
  int cwnd_span;
  int pacing_low;
  int pacing_span;
  int cwnd_scale;
  unsigned cwnd_gain_q24[2]; /* the bounds */
  unsigned pacing_gain_q24[2];
};

/* What a decision needs and leaves, outside of a small stack. */
struct policy_memory {
  struct policy_row row;
  fixed features[POLICY_INPUTS];
  fixed hidden[POLICY_UNITS];
  fixed action[2];
};

/* The kernel's verifier follows all paths of a program. It takes functions that are not static one at a time, whatever
   calls them: their arguments and results are then just numbers, and memory that may be NULL. */
#ifdef __bpf__
#define POLICY_FUNCTION __attribute__((noinline))
#else
#define POLICY_FUNCTION static inline
#endif

#define LOG2_1E3_Q20 10449882LL
#define LOG2_1E6_Q20 20899764LL

static inline fixed policy_clamp(fixed value, fixed low, fixed high) {
  return value < low ? low : value > high ? high : value;
}

/* a / b of a signed and a positive number: BPF divides natural numbers only. */
static inline fixed policy_quotient(fixed a, natural b) {
  return a < 0 ? -(fixed)((natural)-a / b) : (fixed)((natural)a / b);
}

/* In q20. x = 2^k m with m in [1, 2); log2(m) = 1/2 + 2 / ln 2 (s + s^3/3 + ...) with s = (m - root) / (m + root),
   root = sqrt 2. */
POLICY_FUNCTION fixed policy_log2(natural x) {
  const fixed root = 1518500250;
  natural k;
  natural m = x;
  fixed s, square, series;
  if (x == 0) return NONE;
  k = (natural)(m > 0xFFFFFFFF) << 5;
  m >>= k & 63;
#define POLICY_STEP(limit, bit)                            \
  {                                                        \
    const natural shift = (natural)(m > (limit)) << (bit); \
    m >>= shift & 63;                                      \
    k += shift;                                            \
  }
  POLICY_STEP(0xFFFF, 4)
  POLICY_STEP(0xFF, 3)
  POLICY_STEP(0xF, 2)
  POLICY_STEP(0x3, 1)
  POLICY_STEP(0x1, 0)
#undef POLICY_STEP
  m = k > 30 ? x >> ((k - 30) & 63) : x << ((30 - k) & 63);
  s = policy_quotient(((fixed)m - root) * ONE_Q30, m + (natural)root);
  square = (s * s) >> 30;
  series = ONE_Q30 / 7 + ((square * (ONE_Q30 / 9)) >> 30);
  series = ONE_Q30 / 5 + ((square * series) >> 30);
  series = ONE_Q30 / 3 + ((square * series) >> 30);
  series = ONE_Q30 + ((square * series) >> 30);
  return (fixed)(k << 20) + ONE_Q20 / 2 + ((((s * series) >> 30) * 3098164009LL) >> 40);
}

/* 2^x of x in q20, in q24, from 0 to 2^38: 2^whole e^r. */
POLICY_FUNCTION natural policy_exp2(fixed x) {
  const fixed bound = policy_clamp(x, -30 * ONE_Q20, 38 * ONE_Q20 - 1);
  const natural shift = (natural)((bound >> 20) + 30);
  const natural r = ((natural)(bound & (ONE_Q20 - 1)) * 744261118) >> 20; /* times ln 2, in q30 */
  natural sum = ONE_Q30;
  natural term;
  for (term = 8; term > 0; --term) sum = ONE_Q30 + ((r * sum) >> 30) / term;
  return shift > 36 ? sum << ((shift - 36) & 63) : sum >> ((36 - shift) & 63);
}

static inline fixed policy_minus(fixed a, fixed b) {
  return a == NONE || b == NONE ? NONE : a - b;
}

static inline fixed policy_log2_ratio(natural a, natural b) {
  return policy_minus(policy_log2(a), policy_log2(b));
}

/* log10(x) from log2(x). */
static inline fixed policy_log10_of(fixed log2) {
  return log2 == NONE ? NONE : (log2 * 323228496) >> 30;
}

/* log10(x / unit); the unit by its log2. */
static inline fixed policy_log10(natural x, fixed log2_unit) {
  return policy_log10_of(policy_minus(policy_log2(x), log2_unit));
}

static inline fixed policy_ratio(natural a, natural b) {
  return b == 0 || a >> 43 ? NONE : (fixed)((a << 20) / b);
}

/* The log2 of 1 Mbit/s as a rate in packets per us, q32: as many bits per us. */
static inline fixed policy_log2_rate_unit(const struct policy_row* row) {
  return policy_minus(32 * ONE_Q20, policy_log2(row->packet_bits));
}

/* log2 of the BDP in packets. */
static inline fixed policy_log2_bdp(const struct policy_row* row) {
  const fixed time = policy_minus(policy_log2(row->min_rtt_ns), LOG2_1E3_Q20 + 32 * ONE_Q20);
  const fixed rate = policy_log2(row->max_bandwidth);
  return time == NONE || rate == NONE ? NONE : rate + time;
}

/* rate x time, in packets in q24, for a rate below 16 packets per us and a time below 16 s. */
static inline natural policy_packets(natural rate, natural ns) {
  return (rate >> 8) * (ns >> 34 ? 1ULL << 34 : ns) / 1000;
}

/* log2(1 + packets between these RTTs) by Little's law. */
static inline fixed policy_backlog(const struct policy_row* row, natural rtt_ns, natural base_ns) {
  if (rtt_ns <= base_ns || row->min_rtt_ns == 0) return 0;
  return policy_log2(ONE_Q24 + policy_packets(row->delivery_rate, rtt_ns - base_ns)) - 24 * ONE_Q20;
}

static inline natural policy_queueing_ns(const struct policy_row* row) {
  return row->rtt_mean_ns > row->min_rtt_ns ? row->rtt_mean_ns - row->min_rtt_ns : 0;
}

static inline fixed policy_loss(const struct policy_row* row) {
  if (row->sent_packets == 0) return NONE;
  return row->lost_packets == 0 ? -4 * ONE_Q20
                                : policy_log10_of(policy_log2_ratio(row->lost_packets, row->sent_packets));
}

/* asinh(x) = ln(x + sqrt(x^2 + 1)) for x = (cwnd_gain - 1) BDP. */
POLICY_FUNCTION fixed policy_excess_window(natural cwnd_gain_q24, natural bdp_q24) {
  const fixed excess_q24 = (fixed)cwnd_gain_q24 - ONE_Q24;
  const natural size_q24 = (natural)(excess_q24 < 0 ? -excess_q24 : excess_q24);
  natural bdp_q12 = bdp_q24 >> 12;
  natural x, root;
  fixed value;
  if (bdp_q12 >> 32) bdp_q12 = 1ULL << 32;
  x = (size_q24 * bdp_q12) >> 16; /* q20 */
  if (x > 1ULL << 31) x = 1ULL << 31;
  root = policy_exp2((policy_log2(x * x + (1ULL << 40)) - 40 * ONE_Q20) >> 1) >> 4;
  value = ((policy_log2(x + root) - 20 * ONE_Q20) * 744261118) >> 30;
  return excess_q24 < 0 ? -value : value;
}

static inline fixed policy_excess(const struct policy_row* row) {
  if (row->min_rtt_ns == 0) return NONE;
  return policy_excess_window(row->cwnd_gain_q24, policy_packets(row->max_bandwidth, row->min_rtt_ns));
}

/* tanh(x) = 1 - 2 / (e^2x + 1), in q20. */
POLICY_FUNCTION fixed policy_tanh(fixed x) {
  const fixed size = x < 0 ? -x : x;
  const natural power = policy_exp2(((size > 12 * ONE_Q20 ? 12 * ONE_Q20 : size) * 3098164009LL) >> 30);
  const fixed value = ONE_Q20 - (fixed)((2ULL << 44) / (power + ONE_Q24));
  return x < 0 ? -value : value;
}

static inline void policy_observe(const struct fixed_policy* policy, struct policy_memory* memory) {
  const struct policy_row* row = &memory->row;
  const fixed preference = policy->preference;
#define POLICY_VALUE(name, lowest, highest, neutral, value)                                              \
  {                                                                                                      \
    const fixed q20 = value;                                                                             \
    const fixed low = 3 * (lowest) < -(highest) ? 3 * (lowest) : -(highest);                             \
    const fixed high = 3 * (highest) > -(lowest) ? 3 * (highest) : -(lowest);                            \
    memory->features[FEATURE_##name] =                                                                   \
        q20 == NONE ? (neutral) * ONE_Q20 : policy_clamp(q20, (lowest) * ONE_Q20, (highest) * ONE_Q20);  \
    memory->features[POLICY_FEATURE_COUNT + FEATURE_##name] =                                            \
        q20 == NONE ? 0 : policy_clamp((q20 * preference) >> 20, low * ONE_Q20 / 4, high * ONE_Q20 / 4); \
  }
  POLICY_FEATURES(POLICY_VALUE)
#undef POLICY_VALUE
}

/* Actions, in [-1, 1]. */
static inline void policy_act(const struct fixed_policy* policy, struct policy_memory* memory) {
  int unit, input, output;
  for (unit = 0; unit < POLICY_UNITS; ++unit) {
    fixed sum = (fixed)policy->bias[unit] * ONE_Q20;
    for (input = 0; input < POLICY_INPUTS; ++input) {
      sum += policy->weights[unit][input] * memory->features[input];
    }
    memory->hidden[unit] = sum >> 20;
  }
  for (output = 0; output < 2; ++output) {
    fixed sum = (fixed)policy->output_bias[output] * ONE_Q20;
    for (unit = 0; unit < POLICY_UNITS; ++unit) {
      if (unit >= policy->units) break;
      if (output == 0) memory->hidden[unit] = policy_tanh(memory->hidden[unit]);
      sum += policy->output_weights[output][unit] * memory->hidden[unit];
    }
    memory->action[output] = policy_clamp(policy->units ? sum >> 20 : memory->hidden[output], -ONE_Q20, ONE_Q20);
  }
}

/* 2^(low + (action + 1) / 2 x span), in q24. */
static inline fixed policy_gain(fixed action, int low, int span) {
  return (fixed)policy_exp2(low + (((action + ONE_Q20) * span) >> 21));
}

/* sinh(8 x action) packets above one BDP, as a gain in q24. */
static inline fixed policy_gain_in_packets(const struct policy_row* row, fixed action) {
  const fixed exponent = (action * 4 * 3098164009LL) >> 30; /* 8 / ln 2 */
  const fixed packets_q24 = ((fixed)policy_exp2(exponent) - (fixed)policy_exp2(-exponent)) >> 1;
  const natural bdp_q24 = policy_packets(row->max_bandwidth, row->min_rtt_ns);
  const natural least = ONE_Q24 / 1000;
  if (row->min_rtt_ns == 0) return ONE_Q24;
  return ONE_Q24 + policy_quotient(packets_q24 * ONE_Q24, bdp_q24 < least ? least : bdp_q24);
}

/* Decides: takes the row of the last step, and sets its gains. Returns whether it did. */
POLICY_FUNCTION int policy_decide(const struct fixed_policy* policy, struct policy_memory* memory) {
  struct policy_row* row;
  fixed cwnd, pacing;
  if (!policy || !memory) return 0;
  row = &memory->row;
  policy_observe(policy, memory);
  policy_act(policy, memory);
  cwnd = policy->cwnd_scale == SCALE_PACKETS ? policy_gain_in_packets(row, memory->action[0])
                                             : policy_gain(memory->action[0], policy->cwnd_low, policy->cwnd_span);
  if (policy->cwnd_scale == SCALE_EXCESS) cwnd += ONE_Q24;
  pacing = policy_gain(memory->action[1], policy->pacing_low, policy->pacing_span);
  row->cwnd_gain_q24 = (natural)policy_clamp(cwnd, policy->cwnd_gain_q24[0], policy->cwnd_gain_q24[1]);
  row->pacing_gain_q24 = (natural)policy_clamp(pacing, policy->pacing_gain_q24[0], policy->pacing_gain_q24[1]);
  return 1;
}

#endif
