/* A small delay-based controller with five parameters to search (search.py): it aims at some packets in the queue, moves
 * its window by a part of the difference once per round trip, and answers losses. */
#include "bbrgym_controller.h"

struct five {
  double window, packet, least_rtt, smoothed_rtt; /* bytes, bytes, ns, ns */
  int64_t round_end;                              /* bytes delivered */
  int is_starting;
  const double *parameters;
};
enum { TARGET, STEP, START, LOSS, PACING };

static void create(void *state, const struct bbrgym_connection *c) {
  struct five begin = {c->initial_window, c->packet_bytes, c->rtt_ns, c->rtt_ns, 0, 1, c->parameters};
  *(struct five *)state = begin;
}

static void on_ack(void *state, const struct bbrgym_ack *ack) {
  struct five *s = state;
  if (ack->rtt_ns > 0) {
    if (s->least_rtt == 0 || ack->rtt_ns < s->least_rtt) s->least_rtt = ack->rtt_ns;
    s->smoothed_rtt += s->smoothed_rtt == 0 ? ack->rtt_ns : (ack->rtt_ns - s->smoothed_rtt) / 8;
  }
  if (s->smoothed_rtt == 0) return;
  double queued = s->window / s->packet * (1.0 - s->least_rtt / s->smoothed_rtt);
  if (s->is_starting) {
    s->window += s->parameters[START] * ack->bytes_acked;
    if (queued > s->parameters[TARGET]) s->is_starting = 0;
  }
  if (ack->prior_delivered < s->round_end) return; /* the round trip goes on */
  s->round_end = ack->delivered;
  if (!s->is_starting) s->window += s->parameters[STEP] * (s->parameters[TARGET] - queued) * s->packet;
  if (s->window < 2 * s->packet) s->window = 2 * s->packet;
}

static void on_loss(void *state, const struct bbrgym_loss *loss) {
  struct five *s = state;
  if (loss->kind == BBRGYM_LOSS) s->window *= s->parameters[LOSS];
  if (loss->kind == BBRGYM_TIMEOUT) s->window = 2 * s->packet;
}

static void decision(const void *state, struct bbrgym_decision *chosen) {
  const struct five *s = state;
  chosen->window = s->window;
  if (s->smoothed_rtt > 0) chosen->pacing_rate = s->parameters[PACING] * s->window * 8e9 / s->smoothed_rtt;
}

static const struct bbrgym_parameter parameters[] = {
    {"target", 3.0, 0.5, 50.0}, {"step", 0.5, 0.02, 1.0},    {"start", 0.5, 0.05, 1.0},
    {"loss", 0.7, 0.3, 1.0},    {"pacing", 1.2, 0.8, 3.0}, {NULL, 0, 0, 0}};

const struct bbrgym_controller bbrgym_controller = {
    BBRGYM_CONTROLLER_VERSION, sizeof(struct five), parameters, create, on_ack, on_loss, decision, NULL};
