"""Jobs in processes, each with a process group of its own: so many at a time, with a time limit, tried again."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, Final

LOGGER = logging.getLogger(__name__)

RESULT: Final = "result.json"
"""In the folder of a job that has ended by itself: what it gave."""

OUTPUT: Final = "output.log"
"""In the folder of a job: what it printed, of all attempts."""

GRACE_S: Final = 15.0
"""Between SIGTERM and SIGKILL. A training writes a checkpoint in it."""


@dataclass(frozen=True)
class Job:
    """What to run.

    Attributes:
        folder: of its own, which nobody else writes to.
        payload: pickle of the arguments of `_worker.run`.
    """

    folder: Path
    payload: bytes


@dataclass(frozen=True)
class Ending:
    """How a job ended.

    Attributes:
        status: `done`; `failed` by an exception of its own; `killed` by a signal or gone without a word; `timeout`.
        seconds: that its last attempt took.
        attempts: how often it was started; 0 if it had been done before.
        value: what it returned.
        error: what ended it, None if it is done.
    """

    status: str
    seconds: float
    attempts: int
    value: Any = None
    error: str | None = None


def run_jobs(
    jobs: Iterable[Job], n_jobs: int, timeout_s: float | None, retries: int
) -> Generator[tuple[Job, Ending], None, None]:
    """Run each job in a fresh Python process, and kill all that is left of its process group when it has ended.

    A job that was killed or took too long is started again; one that failed by an exception is not, for it would again.
    When this process dies, even by SIGKILL, the jobs end too.

    Args:
        jobs: what to run.
        n_jobs: how many at a time, at least 1.
        timeout_s: after which an attempt is ended, SIGTERM first; None for no limit.
        retries: how often a job is started again.

    Yields:
        Each job as it ends for good. Closing the generator ends the others.
    """
    waiting = deque((job, 1) for job in jobs)
    running: list[_Process] = []
    try:
        while waiting or running:
            while waiting and len(running) < n_jobs:
                running.append(_Process(*waiting.popleft(), timeout_s))
            soonest = min(process.deadline for process in running)
            wait(
                [process.pidfd for process in running],
                None if soonest == float("inf") else max(0.0, soonest - time.monotonic()),
            )
            for process in list(running):
                if process.is_over():
                    running.remove(process)
                    ending = process.end()
                    if ending.status in ("killed", "timeout") and ending.attempts <= retries:
                        LOGGER.warning(f"\t{process.job.folder.name}: {ending.error}; it is started again")
                        waiting.appendleft((process.job, ending.attempts + 1))
                    else:
                        yield process.job, ending
                elif time.monotonic() >= process.deadline:
                    process.press()
    finally:
        for process in running:
            process.press()
        last = time.monotonic() + GRACE_S
        while any(not process.is_over() for process in running) and time.monotonic() < last:
            time.sleep(0.05)
        for process in running:
            process.end()


def read_result(folder: Path) -> dict[str, Any] | None:
    """What a job that ended by itself left; None if there is nothing."""
    try:
        result: dict[str, Any] = json.loads((folder / RESULT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return result


def write_result(folder: Path, result: dict[str, Any]) -> None:
    """Write `RESULT`, whole or not at all."""
    partial = folder / f".{RESULT}.{os.getpid()}.partial"
    partial.write_text(json.dumps(result, indent=1, default=_plain) + "\n", encoding="utf-8")
    partial.replace(folder / RESULT)


class _Process:
    def __init__(self, job: Job, attempt: int, timeout_s: float | None) -> None:
        self.job = job
        self._attempt = attempt
        self._pressed = 0
        job.folder.mkdir(parents=True, exist_ok=True)
        (job.folder / RESULT).unlink(missing_ok=True)
        with tempfile.TemporaryFile() as given, (job.folder / OUTPUT).open("ab") as output:
            given.write(pickle.dumps(sys.path) + job.payload)
            given.seek(0)
            self._process = subprocess.Popen(
                [sys.executable, "-u", "-m", "hydra_plugins.bbrgym._worker", str(given.fileno())],
                stdin=subprocess.PIPE,  # only we hold its other end: its end of file is our death
                stdout=output,
                stderr=output,
                pass_fds=(given.fileno(),),
                start_new_session=True,
            )
        self.pidfd = os.pidfd_open(self._process.pid)
        self._started = time.monotonic()
        self.deadline = float("inf") if timeout_s is None else self._started + timeout_s

    def is_over(self) -> bool:
        """It has ended, but its id, which is that of its group, is not given away yet."""
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def press(self) -> None:
        """Have it end: by SIGTERM, and if it was told before, by SIGKILL."""
        self._signal(signal.SIGKILL if self._pressed else signal.SIGTERM)
        self._pressed += 1
        self.deadline = time.monotonic() + GRACE_S

    def end(self) -> Ending:
        """Kill what is left of it, and say how it ended."""
        is_by_us = self._pressed > 0 or not self.is_over()
        self._signal(signal.SIGKILL)
        code = self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        os.close(self.pidfd)
        seconds = round(time.monotonic() - self._started, 3)
        result = read_result(self.job.folder)
        if result is not None and result["status"] == "done":
            return Ending("done", seconds, self._attempt, result["value"])
        if is_by_us:
            return Ending("timeout", seconds, self._attempt, error=f"stopped after {seconds:.0f} s")
        if result is not None:
            return Ending("failed", seconds, self._attempt, error=result["error"])
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code} and no result"
        return Ending("killed", seconds, self._attempt, error=how)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def _plain(value: object) -> Any:
    """A NumPy scalar as Python's."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"a job has to return what JSON has, not a {type(value).__name__}")
