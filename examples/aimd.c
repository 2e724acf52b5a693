/* AIMD: a packet more per window that is acknowledged, half the window after a loss (RFC 5681 without slow start). */
#include "bbrgym_controller.h"

struct aimd { double window, packet; const double *parameters; };
enum { INCREASE, DECREASE };

static void create(void *state, const struct bbrgym_connection *connection) {
  *(struct aimd *)state = (struct aimd){connection->initial_window, connection->packet_bytes, connection->parameters};
}

static void on_ack(void *state, const struct bbrgym_ack *ack) {
  struct aimd *s = state;
  if (ack->is_window_limited) s->window += s->parameters[INCREASE] * s->packet * ack->bytes_acked / s->window;
}

static void on_loss(void *state, const struct bbrgym_loss *loss) {
  struct aimd *s = state;
  if (loss->kind == BBRGYM_LOSS) s->window *= s->parameters[DECREASE];
  if (loss->kind == BBRGYM_TIMEOUT) s->window = s->packet;
}

static void decision(const void *state, struct bbrgym_decision *chosen) {
  chosen->window = ((const struct aimd *)state)->window;
}

static const struct bbrgym_parameter parameters[] = {
    {"increase", 1.0, 0.01, 100.0}, {"decrease", 0.5, 0.01, 0.99}, {NULL, 0, 0, 0}};

const struct bbrgym_controller bbrgym_controller = {
    BBRGYM_CONTROLLER_VERSION, sizeof(struct aimd), parameters, create, on_ack, on_loss, decision, NULL};
