"""`engine=linux`: real time on this machine's kernel, in a worker process for each engine."""

from __future__ import annotations

import platform
from typing import Any

from bbrgym.baselines.registry import LINUX_PREFIX, linux_controls
from bbrgym.envs.engine import EngineDescription
from bbrgym.envs.worker.engine import WorkerEngine


class LinuxEngine(WorkerEngine):
    """Runs a scenario in real time on this machine's network stack.

    Senders and receivers are in two network namespaces; an emulator between them has the native engine's link. Our
    controllers run over UDP, with the native engine's sender and receiver; `linux-cubic` and the like are the kernel's
    own TCP. A step takes as long as it says, and no two runs are equal.

    Args:
        timeout_s: how long an answer may take, in s, in addition to the duration of the step.
        start_limit_s: see `WorkerEngine`.

    Raises:
        EngineError: bbrgym was built without this engine.
        ValueError: an argument is bad.
    """

    limit_per_simulated_s = 1.0

    @classmethod
    def describe(cls, **options: Any) -> EngineDescription:
        """Return the description on this machine: its kernel decides the numbers and has the comparators."""
        return EngineDescription(
            title="Linux",
            comparators=tuple(LINUX_PREFIX + name for name in linux_controls()),
            options={"kernel": platform.release()},
            extensions=("bbrgym._linux",),
            is_real_time=True,
        )

    def __init__(self, timeout_s: float = 10.0, start_limit_s: float = 10.0) -> None:
        super().__init__(self.describe(), (), timeout_s, start_limit_s)
