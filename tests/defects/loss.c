/* A controller that answers losses: slow start and congestion avoidance (RFC 5681), an undo (RFC 4015), ECN (RFC 3168),
 * pacing at twice the window per RTT. It is right as it stands; each DEFECT_… that is defined makes one mistake in it. */
#include "bbrgym_controller.h"

struct loss_based {
  double window, ssthresh, packet;
  double window_before, ssthresh_before; /* the last reduction */
  int64_t rtt, reduced_at, now;
  int32_t is_recovering; /* from a loss, not from a timeout */
};

static void create(void *memory, const struct bbrgym_connection *c) {
  struct loss_based *s = memory;
  s->packet = (double)c->packet_bytes;
  s->window = (double)c->initial_window;
  s->ssthresh = 1e15;
  s->rtt = c->rtt_ns;
}

static void reduce(struct loss_based *s, double factor) {
  s->window_before = s->window;
  s->ssthresh_before = s->ssthresh;
  s->window *= factor;
#ifndef DEFECT_NO_FLOOR
  if (s->window < 2 * s->packet) s->window = 2 * s->packet;
#endif
#ifndef DEFECT_SSTHRESH_NEVER_FALLS
  s->ssthresh = s->window;
#endif
  s->reduced_at = s->now;
}

static void on_ack(void *memory, const struct bbrgym_ack *ack) {
  struct loss_based *s = memory;
  s->now = ack->now_ns;
  if (ack->rtt_ns > 0) s->rtt = s->rtt == 0 ? ack->rtt_ns : (7 * s->rtt + ack->rtt_ns) / 8;
#ifdef DEFECT_BURST_COUNTED_BY_PACKETS
  for (int64_t lost = 0; lost < ack->bytes_lost; lost += (int64_t)s->packet) reduce(s, 0.5);
#endif
  if (ack->bytes_marked > 0) {
#ifdef DEFECT_ECN_ANSWERED_PER_ACK
    reduce(s, 0.5);
#else
    if (s->now - s->reduced_at > s->rtt) reduce(s, 0.5);
#endif
    return;
  }
  if (s->is_recovering) return;
#ifndef DEFECT_GROWS_WITHOUT_DATA
  if (!ack->is_window_limited) return;
#endif
  double acked = (double)ack->bytes_acked;
  if (s->window < s->ssthresh)
    s->window += acked;
  else
    s->window += s->packet * acked / s->window;
#ifdef DEFECT_WINDOW_IN_16_BITS
  if (s->window > 65535) s->window = 65535;
#endif
}

static void on_loss(void *memory, const struct bbrgym_loss *loss) {
  struct loss_based *s = memory;
  s->now = loss->now_ns;
  s->is_recovering = loss->kind == BBRGYM_LOSS;
#ifdef DEFECT_IGNORES_LOSS
  return;
#endif
  if (loss->kind == BBRGYM_LOSS) {
#ifndef DEFECT_BURST_COUNTED_BY_PACKETS
    reduce(s, 0.5);
#endif
  } else if (loss->kind == BBRGYM_TIMEOUT) {
    reduce(s, 0.5);
    s->window = s->packet;
#ifdef DEFECT_NO_SLOW_START_AFTER_A_TIMEOUT
    s->ssthresh = s->packet;
#endif
  } else if (loss->kind == BBRGYM_SPURIOUS) {
#ifndef DEFECT_NO_UNDO
    if (s->window < s->window_before) s->window = s->window_before;
    if (s->ssthresh < s->ssthresh_before) s->ssthresh = s->ssthresh_before;
#endif
  }
}

static void decision(const void *memory, struct bbrgym_decision *chosen) {
  const struct loss_based *s = memory;
  chosen->window = s->window;
  chosen->pacing_rate = s->rtt > 0 ? 2 * s->window * 8e9 / (double)s->rtt : 0;
}

const struct bbrgym_controller bbrgym_controller = {
    BBRGYM_CONTROLLER_VERSION, sizeof(struct loss_based), NULL, create, on_ack, on_loss, decision, NULL};
