"""What tests ask of the operating system: events, processes and ports."""

import socket
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


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nobody uses now."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])
