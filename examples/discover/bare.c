/* The least that works: a packet more per round trip, half the window after a loss. */
#include "bbrgym_controller.h"
struct bare { double window, packet; int64_t round_end; };

static void create(void *state, const struct bbrgym_connection *c) {
  *(struct bare *)state = (struct bare){c->initial_window, c->packet_bytes, 0};
}
static void on_ack(void *state, const struct bbrgym_ack *ack) {
  struct bare *s = state;
  if (ack->prior_delivered < s->round_end) return; /* the round trip goes on */
  s->round_end = ack->delivered;
  s->window += s->packet;
}
static void on_loss(void *state, const struct bbrgym_loss *loss) {
  struct bare *s = state;
  if (loss->kind == BBRGYM_LOSS || loss->kind == BBRGYM_TIMEOUT) s->window /= 2;
}
static void decision(const void *state, struct bbrgym_decision *chosen) {
  chosen->window = ((const struct bare *)state)->window;
}
const struct bbrgym_controller bbrgym_controller = {
    BBRGYM_CONTROLLER_VERSION, sizeof(struct bare), NULL, create, on_ack, on_loss, decision, NULL};
