"""The processes that a process has started."""

from __future__ import annotations

import contextlib
import glob
from pathlib import Path


def children_of(pid: int) -> list[int]:
    """Return the running descendants of a process that still have their parents."""
    found: list[int] = []
    for task in glob.iglob(f"/proc/{pid}/task/*/children"):
        with contextlib.suppress(OSError):  # it has ended
            for child in map(int, Path(task).read_text().split()):
                found += [child, *children_of(child)]
    return found
