/* A controller with a model of the path: the bandwidth and the shortest RTT, as BBR (draft-cardwell-iccrg-bbr-00), without
 * its less important parts. It is right as it stands; each DEFECT_… that is defined makes one mistake in it. */
#include "bbrgym_controller.h"

#define ROUNDS 10
#define SECOND 1000000000LL

enum state { STARTUP, DRAIN, PROBE_BANDWIDTH, PROBE_RTT };

struct model {
  int64_t packet, now, min_rtt, min_rtt_at, probe_rtt_until, last_ack_at, cycle_at;
  int64_t round_end, rounds;
  double rates[ROUNDS]; /* the largest of each of the last round trips, in bit/s */
  double bandwidth, full_bandwidth, extra;
  double window_before; /* a timeout; 0 without one */
  double window;
  int64_t extra_at, extra_bytes;
  int full_rounds, has_loss_in_round, cycle, is_full;
  enum state state;
};

static const double kCycle[8] = {1.25, 0.75, 1, 1, 1, 1, 1, 1};

static void create(void *memory, const struct bbrgym_connection *c) {
  struct model *s = memory;
  s->packet = c->packet_bytes;
  s->min_rtt = c->rtt_ns;
  s->window = (double)c->initial_window;
}

static double bdp(const struct model *s) {
#ifdef DEFECT_RTT_IN_MILLISECONDS
  int64_t rtt = s->min_rtt / 1000000 * 1000000;
#else
  int64_t rtt = s->min_rtt;
#endif
#ifdef DEFECT_BYTES_IN_32_BITS
  uint32_t kilobits = (uint32_t)(s->bandwidth / 1e3), microseconds = (uint32_t)(rtt / 1000);
  return (double)(kilobits * microseconds / 8000);
#endif
  return s->bandwidth * (double)rtt / 8e9;
}

static double gain(const struct model *s) {
  if (s->state == STARTUP) return 2.885;
  if (s->state == DRAIN) return 1 / 2.885;
  if (s->state == PROBE_RTT) return 1;
#ifdef DEFECT_NEVER_ABOVE_THE_ESTIMATE
  if (kCycle[s->cycle] > 1) return 1;
#endif
  return kCycle[s->cycle];
}

static void observe_rate(struct model *s, const struct bbrgym_ack *ack, int is_round) {
  double rate = (double)ack->delivery_rate;
#ifdef DEFECT_AGGREGATION_IS_BANDWIDTH
  int64_t between = ack->now_ns - s->last_ack_at;
  if (s->last_ack_at > 0 && between > 0) rate = (double)ack->bytes_acked * 8e9 / (double)between;
#endif
#ifdef DEFECT_RATE_WITHOUT_RTT
  rate = (double)s->window * 8e9 / (double)ack->rtt_ns;
  if (rate > (double)ack->delivery_rate && ack->rtt_ns > 0) rate = (double)ack->delivery_rate;
#endif
#ifdef DEFECT_BELIEVES_THE_APPLICATION
  if (ack->is_app_limited && rate > 0)
    for (int i = 0; i < ROUNDS; i++) s->rates[i] = rate;
  int is_sample = rate > 0, is_new_round = is_round;
#else
  int is_sample = rate > 0 && (!ack->is_app_limited || rate > s->bandwidth);
  int is_new_round = is_round && !ack->is_app_limited;
#endif
  if (is_new_round) {
    s->rounds++;
    s->rates[s->rounds % ROUNDS] = 0;
  }
  if (is_sample && rate > s->rates[s->rounds % ROUNDS]) s->rates[s->rounds % ROUNDS] = rate;
#ifndef DEFECT_BANDWIDTH_NEVER_EXPIRES
  s->bandwidth = 0;
#endif
  for (int i = 0; i < ROUNDS; i++)
    if (s->rates[i] > s->bandwidth) s->bandwidth = s->rates[i];
}

static void observe_rtt(struct model *s, const struct bbrgym_ack *ack) {
  if (ack->rtt_ns <= 0) return;
  int is_expired = s->now - s->min_rtt_at > 10 * SECOND;
  if (s->min_rtt == 0 || ack->rtt_ns <= s->min_rtt) {
    s->min_rtt = ack->rtt_ns;
    s->min_rtt_at = s->now;
    return;
  }
#ifdef DEFECT_MIN_RTT_NEVER_EXPIRES
  return;
#endif
#ifdef DEFECT_MIN_RTT_OF_THE_QUEUE
  if (is_expired) s->min_rtt = ack->rtt_ns, s->min_rtt_at = s->now;
  return;
#endif
  if (is_expired && s->state != PROBE_RTT) {
    s->state = PROBE_RTT;
    s->probe_rtt_until = 0;
  }
}

/* What ACKs bring beyond the bandwidth: the window needs as much more. */
static void observe_extra(struct model *s, const struct bbrgym_ack *ack) {
  double expected = s->bandwidth * (double)(s->now - s->extra_at) / 8e9;
  if ((double)s->extra_bytes <= expected || s->extra_at == 0) {
    s->extra_at = s->now;
    s->extra_bytes = 0;
    expected = 0;
  }
  s->extra_bytes += ack->bytes_acked;
  double extra = (double)s->extra_bytes - expected;
  s->extra = s->extra * 0.999 > extra ? s->extra * 0.999 : extra;
  if (s->extra > bdp(s)) s->extra = bdp(s);
}

static void move_state(struct model *s, const struct bbrgym_ack *ack, int is_round) {
  if (s->state == STARTUP && is_round && !ack->is_app_limited) {
    int is_checked = 1;
#ifdef DEFECT_STARTUP_LASTS_WITH_LOSS
    is_checked = !s->has_loss_in_round;
#endif
    if (s->bandwidth >= 1.25 * s->full_bandwidth) {
      s->full_bandwidth = s->bandwidth;
      s->full_rounds = 0;
    } else if (is_checked && ++s->full_rounds >= 3) {
      s->is_full = 1;
      s->state = DRAIN;
    }
    s->has_loss_in_round = 0;
  }
  if (s->state == DRAIN && (double)ack->in_flight <= bdp(s)) {
    s->state = PROBE_BANDWIDTH;
    s->cycle = 2;
    s->cycle_at = s->now;
  }
  if (s->state == PROBE_BANDWIDTH) {
    int is_over = s->now - s->cycle_at > s->min_rtt;
    if (s->cycle == 1 && (double)ack->in_flight <= bdp(s)) is_over = 1;
    if (is_over) {
      s->cycle = (s->cycle + 1) % 8;
      s->cycle_at = s->now;
    }
  }
  if (s->state == PROBE_RTT) {
    if (s->probe_rtt_until == 0) {
      if (ack->in_flight <= 4 * s->packet) {
        s->probe_rtt_until = s->now + 200000000 + s->min_rtt;
        s->min_rtt = ack->rtt_ns > 0 ? ack->rtt_ns : s->min_rtt;
      }
    } else if (s->now > s->probe_rtt_until) {
      s->min_rtt_at = s->now;
      s->state = s->is_full ? PROBE_BANDWIDTH : STARTUP;
      s->cycle = 2;
      s->cycle_at = s->now;
    }
  }
}

static void on_ack(void *memory, const struct bbrgym_ack *ack) {
  struct model *s = memory;
  s->now = ack->now_ns;
  if (s->min_rtt_at == 0) s->min_rtt_at = s->now;
  int is_round = ack->prior_delivered >= s->round_end;
  if (is_round) s->round_end = ack->delivered;
  if (ack->bytes_lost > 0) s->has_loss_in_round = 1;
  observe_rate(s, ack, is_round);
  observe_rtt(s, ack);
  observe_extra(s, ack);
  move_state(s, ack, is_round);
  s->last_ack_at = s->now;
  double target = (s->state == STARTUP || s->state == DRAIN ? 2.885 : 2.0) * bdp(s) + s->extra;
  if (s->is_full)
    s->window = s->window + (double)ack->bytes_acked < target ? s->window + (double)ack->bytes_acked : target;
  else if (s->window < target || ack->delivered < 10 * s->packet)
    s->window += (double)ack->bytes_acked;
  if (s->window < 4 * (double)s->packet) s->window = 4 * (double)s->packet;
}

static void on_loss(void *memory, const struct bbrgym_loss *loss) {
  struct model *s = memory;
  if (loss->kind == BBRGYM_TIMEOUT && s->window_before == 0) {
    s->window_before = s->window;
    s->window = 4 * (double)s->packet;
  }
  if ((loss->kind == BBRGYM_RECOVERED || loss->kind == BBRGYM_SPURIOUS) && s->window_before > 0) {
    if (s->window < s->window_before) s->window = s->window_before;
    s->window_before = 0;
  }
}

static void decision(const void *memory, struct bbrgym_decision *chosen) {
  const struct model *s = memory;
  chosen->window = s->state == PROBE_RTT ? 4 * (double)s->packet : s->window;
  chosen->pacing_rate = gain(s) * s->bandwidth;
#ifdef DEFECT_NO_PACING
  chosen->pacing_rate = 0;
#endif
}

const struct bbrgym_controller bbrgym_controller = {
    BBRGYM_CONTROLLER_VERSION, sizeof(struct model), NULL, create, on_ack, on_loss, decision, NULL};
