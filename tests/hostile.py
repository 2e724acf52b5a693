"""Controllers in C that do what a controller must not do: the table of docs/score.md."""

from pathlib import Path
from typing import Final

_TEMPLATE: Final = """
#include "bbrgym_controller.h"
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
int kill(pid_t, int); /* POSIX, which -std=c99 leaves out */
static void create(void *state, const struct bbrgym_connection *connection) {{
  (void)connection;
  *(double *)state = 20000;
}}
static void on_ack(void *state, const struct bbrgym_ack *ack) {{
  (void)ack;
  {on_ack}
  (void)state;
}}
static void decision(const void *state, struct bbrgym_decision *chosen) {{ chosen->window = *(const double *)state; }}
{more}
const struct bbrgym_controller bbrgym_controller = {{1, 8, 0, create, on_ack, 0, decision, 0}};
"""

HOSTILE: Final[dict[str, str]] = {
    "endless loop": "for (;;) (void)*(volatile int *)state;",
    # Bounded, so that it is harmless where nothing contains it.
    "fork bomb": "for (int i = 0; i < 20; ++i) if (fork() == 0) _exit(0);",
    "10 GB": (
        "for (int i = 0; i < 100; ++i) { volatile char *p = malloc(100000000); "
        "for (int j = 0; j < 100000000; j += 4096) p[j] = 1; }"
    ),
    "reads a file": 'if (open("/etc/passwd", O_RDONLY) >= 0) *(double *)state = 0;',
    "writes beside": 'if (open("beside.txt", O_WRONLY | O_CREAT, 0600) >= 0) *(double *)state = 0;',
    "kills its parent": "if (kill(getppid(), 0) == 0) *(double *)state = 0;",  # signal 0: harmless if it arrives
    "NaN": "*(double *)state = NAN;",
    "negative": "*(double *)state = -1;",
    "huge": "*(double *)state = 1e300;",
    "random": "*(double *)state = rand() % 100000;",
}
"""The body of `on_ack`, by what it does."""

CRASHES: Final[dict[str, str]] = {
    "null pointer": "*(volatile int *)0 = 1;",
    "abort": "abort();",
    "exit": "exit(0);",
    "closes every descriptor": "for (int i = 0; i < 100; ++i) close(i);",
    "writes to every descriptor": 'for (int i = 0; i < 20; ++i) if (write(i, "{}", 2) < 0) continue;',
}

CONSTRUCTOR: Final = """
__attribute__((constructor)) static void load(void) {
  if (open("beside.txt", O_WRONLY | O_CREAT, 0600) >= 0) abort();
  if (fork() == 0) _exit(0);
}
"""
"""Runs when the file is loaded."""


def write_hostile(folder: Path, on_ack: str, more: str = "") -> str:
    """Write a controller with this body of `on_ack`, and return its path."""
    path = folder / "hostile.c"
    path.write_text(_TEMPLATE.format(on_ack=on_ack, more=more), encoding="utf-8")
    return str(path)
