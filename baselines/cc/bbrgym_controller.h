/* A congestion controller in one C file (C99), for bbrgym: docs/score.md. `bbrgym header` prints where this file lies.
 *
 * Define `bbrgym_controller` at the end of your file, and run it as
 *     bbrgym score mine.c          Flow("file", file="mine.c", parameters={"alpha": 2.0})
 *
 * Bytes are payload; times are simulated. Callbacks must return, and must not keep the pointers that they get. They
 * need no allocation: bbrgym gives each flow `state_bytes` of zeroed memory. Their only input is what they are given:
 * no clock, file or global variable, so that equal seeds give equal runs. */
#ifndef BBRGYM_CONTROLLER_H
#define BBRGYM_CONTROLLER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BBRGYM_CONTROLLER_VERSION 1

/* What a flow begins with, when its handshake is done. */
struct bbrgym_connection {
  int64_t packet_bytes;     /* of a full packet */
  int64_t initial_window;   /* ten packets, in bytes (RFC 6928) */
  int64_t rtt_ns;           /* of the handshake; 0 if it is not known */
  uint64_t seed;            /* of everything random */
  const double* parameters; /* a value per entry of `parameters` below, in its order; valid as long as the flow */
};

/* An ACK by which anything is delivered. */
struct bbrgym_ack {
  int64_t now_ns;
  int64_t rtt_ns;                                /* of the newest packet that it acknowledges; 0 if there is none */
  int64_t bytes_acked, bytes_lost, bytes_marked; /* newly, on this ACK; marked: CE (ECN), a part of bytes_acked */
  int64_t prior_in_flight, in_flight;            /* before and after it */
  int64_t delivered, sent;                       /* in total, including this ACK; sent: with retransmissions */
  int64_t delivery_rate;                         /* of the newest packet's flight, in bit/s; 0 if there is no sample */
  int64_t prior_delivered;   /* `delivered` when that packet was sent: a round trip ends when it passes the last */
  int32_t is_app_limited;    /* the application, not the path, may limit delivery_rate */
  int32_t is_window_limited; /* the window limited what was in flight, at some time in the last round trip */
};

enum bbrgym_loss_kind {
  BBRGYM_LOSS = 1,      /* recovery begins: at most once per round trip */
  BBRGYM_TIMEOUT = 2,   /* everything that was sent for long is lost */
  BBRGYM_RECOVERED = 3, /* what was in flight when recovery began is delivered */
  BBRGYM_SPURIOUS = 4   /* all that was marked lost has arrived: a larger window then ends recovery */
};

struct bbrgym_loss {
  int64_t now_ns;
  int64_t in_flight;
  int32_t kind; /* enum bbrgym_loss_kind */
};

/* What the sender does until the next call. Both must be finite and in [0, 1e15]: anything else ends the flow's run
 * with an error. The sender keeps the window between one packet and 64 MiB. */
struct bbrgym_decision {
  double window;      /* bytes that may be in flight */
  double pacing_rate; /* bit/s; 0: not paced */
};

/* A number that others may set, by its name. The default is within the bounds. */
struct bbrgym_parameter {
  const char* name;
  double value, low, high; /* the default, and the bounds */
};

struct bbrgym_controller {
  uint32_t version;                          /* BBRGYM_CONTROLLER_VERSION */
  size_t state_bytes;                        /* at most 1 MiB */
  const struct bbrgym_parameter* parameters; /* ends with a name of NULL; NULL: there are none */
  void (*create)(void* state, const struct bbrgym_connection* connection);
  void (*on_ack)(void* state, const struct bbrgym_ack* ack);             /* after on_loss, if the ACK reveals a loss */
  void (*on_loss)(void* state, const struct bbrgym_loss* loss);          /* may be NULL */
  void (*decision)(const void* state, struct bbrgym_decision* decision); /* after each of the above */
  void (*destroy)(void* state);                                          /* may be NULL */
};

extern const struct bbrgym_controller bbrgym_controller;

#ifdef __cplusplus
}
#endif

#endif
