"""Run controllers of unknown quality in child processes with limits, and get their measurements or what went wrong."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import queue
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Literal, Self

from bbrgym.cores import available_cores
from bbrgym.envs.engine import EngineError
from bbrgym.envs.scenario import Scenario

Confinement = Literal["none", "c", "python"]
"""What a job's code is: the project's own, a shared object, or a Python callable."""

SECONDS: Final = 20.0
MEBIBYTES: Final = 512
"""What a job may take, by default."""


@dataclass(frozen=True)
class Job:
    """Runs that a fork measures, one after the other.

    Attributes:
        scenarios: with the flows' algorithms; the file of a flow is a shared object (`compile_controller`).
        seeds: one per scenario.
        warmup: fraction of each run that is not measured.
        measure: `sharing` (`bbrgym.benchmark.score_runs.measure_sharing`) or `rows` (`measure_rows`).
        confinement: of the fork.
        library: the shared object of a job in C.
        function: the callable of a job in Python, `module:name`.
        seconds: the time that it may take.
        mebibytes: the memory that it may take.
    """

    scenarios: Sequence[Scenario]
    seeds: Sequence[int]
    warmup: float
    measure: Literal["sharing", "rows"] = "sharing"
    confinement: Confinement = "none"
    library: str | None = None
    function: str | None = None
    seconds: float = SECONDS
    mebibytes: int = MEBIBYTES

    def to_dict(self) -> dict[str, Any]:
        """Return plain types."""
        return {
            **{name: getattr(self, name) for name in ("warmup", "measure", "confinement", "library", "function")},
            **{"seconds": self.seconds, "mebibytes": self.mebibytes, "seeds": list(self.seeds), "folder": os.getcwd()},
            "scenarios": [scenario.to_dict() for scenario in self.scenarios],
        }


@dataclass(frozen=True)
class Reply:
    """What came of a job.

    Attributes:
        results: what its measure returns; [] after an error.
        error: what ended it, in words.
        is_refused: whether it was refused, as a bad parameter of a C file is.
        missing: what this system does not contain, one sentence each.
        seconds: how long it took.
    """

    results: list[dict[str, Any]] = field(default_factory=list)
    error: str | None = None
    is_refused: bool = False
    missing: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Sandbox:
    """Child processes that run jobs, one per core by default; a context manager.

    Only processes that it started are ever killed. It can be used from several threads.

    Raises:
        ValueError: this system is not Linux.
    """

    def __init__(self, workers: int | None = None) -> None:
        if (system := platform.system()) != "Linux":
            raise ValueError(f"C files and Python callables are scored in a sandbox, which needs Linux, got {system}")
        self._workers = [_Worker() for _ in range(workers or available_cores())]
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        for worker in self._workers:
            self._idle.put(worker)
        self._threads = ThreadPoolExecutor(len(self._workers), thread_name_prefix="bbrgym-sandbox")

    @property
    def workers(self) -> int:
        """How many jobs run at once."""
        return len(self._workers)

    def run(self, jobs: Sequence[Job]) -> list[Reply]:
        """Run jobs, and return their replies in the same order.

        Raises:
            EngineError: a worker itself has ended.
        """
        return list(self._threads.map(self._call, jobs))

    def _call(self, job: Job) -> Reply:
        worker = self._idle.get()
        try:
            return worker.call(job.to_dict())
        finally:
            self._idle.put(worker)

    def close(self) -> None:
        """End the workers; calling it twice is fine."""
        self._threads.shutdown(cancel_futures=True)
        for worker in self._workers:
            worker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class _Worker:
    """A process of `bbrgym.benchmark.sandbox_worker`."""

    def __init__(self) -> None:
        # A fork of a process with threads can hang, so that libraries must start none.
        single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bbrgym.benchmark.sandbox_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **single},
            start_new_session=True,  # Ctrl-C ends it by the end of its input
        )
        self._is_ready = False

    def call(self, request: Mapping[str, Any]) -> Reply:
        if not self._is_ready:
            self._read()
            self._is_ready = True
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # `_read` says it
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        return Reply(**self._read())

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise EngineError(f"a sandbox's process has ended with the exit status {self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
