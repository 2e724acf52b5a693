"""Waits that say what they wait for."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

LOGGER: Final = logging.getLogger(__name__)

PATIENCE_S: float = 4.0
"""How long a wait may be silent."""


@contextmanager
def announcing(what: str) -> Iterator[None]:
    """Log a warning that names what is waited for, if the block takes longer than `PATIENCE_S`."""
    # As a daemon, so that it never holds up the end of the process.
    timer = threading.Timer(PATIENCE_S, LOGGER.warning, ("Waiting for %s …", what))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
