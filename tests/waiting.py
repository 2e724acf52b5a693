"""Waiting for events in tests."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

HANG_S = 300.0
"""A wait as long as this is a hang, on however busy a machine."""


def wait_for(condition: Callable[[], object], what: str = "the event") -> None:
    """Wait until `condition` holds; fail if it never does."""
    deadline = time.monotonic() + HANG_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {HANG_S:g} s for {what}"
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
