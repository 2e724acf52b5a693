/* Vegas (Brakmo and Peterson, 1995): once per round trip, compare what the window would bring without a queue with
 * what it brings, and keep two to four packets in the queue. */
#include "bbrgym_controller.h"

struct vegas {
  double window, packet;
  int64_t least_rtt, round_rtt, round_end; /* ns, ns, and bytes delivered */
  int is_slow_start;
  const double *parameters;
};
enum { ALPHA, BETA };

static void create(void *state, const struct bbrgym_connection *c) {
  struct vegas start = {c->initial_window, c->packet_bytes, c->rtt_ns, 0, 0, 1, c->parameters};
  *(struct vegas *)state = start;
}

static void on_ack(void *state, const struct bbrgym_ack *ack) {
  struct vegas *s = state;
  if (ack->rtt_ns > 0) {
    if (s->least_rtt == 0 || ack->rtt_ns < s->least_rtt) s->least_rtt = ack->rtt_ns;
    if (s->round_rtt == 0 || ack->rtt_ns < s->round_rtt) s->round_rtt = ack->rtt_ns;
  }
  if (s->is_slow_start) s->window += 0.5 * ack->bytes_acked;
  if (ack->prior_delivered < s->round_end || s->round_rtt == 0) return; /* the round trip goes on */
  double queued = s->window / s->packet * (1.0 - (double)s->least_rtt / s->round_rtt);
  if (queued > s->parameters[ALPHA]) s->is_slow_start = 0;
  if (queued < s->parameters[ALPHA]) s->window += s->packet;
  if (queued > s->parameters[BETA]) s->window -= s->packet;
  s->round_end = ack->delivered;
  s->round_rtt = 0;
}

static void on_loss(void *state, const struct bbrgym_loss *loss) {
  struct vegas *s = state;
  if (loss->kind != BBRGYM_LOSS && loss->kind != BBRGYM_TIMEOUT) return;
  s->is_slow_start = 0;
  s->window *= loss->kind == BBRGYM_LOSS ? 0.75 : 0.25;
  if (s->window < 2 * s->packet) s->window = 2 * s->packet;
}

static void decision(const void *state, struct bbrgym_decision *chosen) {
  chosen->window = ((const struct vegas *)state)->window;
}

static const struct bbrgym_parameter parameters[] = {
    {"alpha", 2.0, 0.1, 1000.0}, {"beta", 4.0, 0.1, 1000.0}, {NULL, 0, 0, 0}};

const struct bbrgym_controller bbrgym_controller = {
    BBRGYM_CONTROLLER_VERSION, sizeof(struct vegas), parameters, create, on_ack, on_loss, decision, NULL};
