"""Run controllers of unknown quality in child processes with limits, and get their measurements or what went wrong."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import queue
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from types import TracebackType
from typing import Any, Final, Literal, Self

from bbrgym.cores import available_cores
from bbrgym.envs.engine import EngineError
from bbrgym.envs.scenario import Scenario

Confinement = Literal["none", "c", "python"]
"""What a job's code is: the project's own, a shared object, or a Python callable."""

SECONDS: Final = 8.0
MEBIBYTES: Final = 512
"""What a job may take, by default."""

_END_SECONDS: Final = 1.0
"""How long a process may take to end by itself: to kill its fork."""


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
        seconds: the processor time that it may take, and its wall time over `WALL`.
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
            "warmup": self.warmup,
            "measure": self.measure,
            "confinement": self.confinement,
            "library": self.library,
            "function": self.function,
            "seconds": self.seconds,
            "mebibytes": self.mebibytes,
            "seeds": list(self.seeds),
            "folder": os.getcwd(),
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
            worker.start()  # all at once, and before they are needed
            self._idle.put(worker)

    @property
    def workers(self) -> int:
        """How many jobs run at once."""
        return len(self._workers)

    def run(self, jobs: Sequence[Job]) -> list[Reply]:
        """Run jobs, and return their replies in the same order.

        Whatever ends the call early, as Ctrl-C does, also ends its jobs at once.

        Raises:
            EngineError: a worker itself has ended.
        """
        replies: dict[int, Reply] = {}
        waiting = deque(enumerate(jobs))
        busy: dict[int, tuple[int, _Worker]] = {}
        try:
            while waiting or busy:
                while waiting and (worker := self._take(is_patient=not busy)) is not None:
                    index, job = waiting.popleft()
                    busy[id(worker)] = index, worker
                    worker.send(job.to_dict())
                ready = wait([worker.output for _, worker in busy.values()])
                for key, (index, worker) in list(busy.items()):
                    if worker.output in ready and (reply := worker.receive()) is not None:
                        replies[index] = reply
                        del busy[key]
                        self._idle.put(worker)
        finally:
            for _, worker in busy.values():
                worker.end()  # the next job starts it again
                self._idle.put(worker)
        return [replies[index] for index in range(len(jobs))]

    def _take(self, is_patient: bool) -> _Worker | None:
        """Return a worker that is idle; None if there is none, and nobody waits for one."""
        try:
            return self._idle.get(block=is_patient)
        except queue.Empty:
            return None

    def close(self) -> None:
        """End the workers; calling it twice is fine."""
        for worker in self._workers:
            worker.stop()
        for worker in self._workers:
            worker.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class _Worker:
    """A process of `bbrgym.benchmark.sandbox_worker`. It starts again after its end, if it gets a job."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._received = b""

    @property
    def output(self) -> int:
        """The descriptor that its reply comes from."""
        assert self._process is not None
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def start(self) -> None:
        # A fork of a process with threads can hang, so that libraries must start none.
        single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        self._received = b""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bbrgym.benchmark.sandbox_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # nothing is left to be written when it ends
            env={**os.environ, **single},
            start_new_session=True,  # Ctrl-C ends it by the end of its input
        )

    def send(self, request: Mapping[str, Any]) -> None:
        if self._process is None:
            self.start()
        assert self._process is not None
        assert self._process.stdin is not None
        rest = memoryview(json.dumps(request).encode() + b"\n")
        with contextlib.suppress(BrokenPipeError):  # `receive` says it
            while rest:
                rest = rest[os.write(self._process.stdin.fileno(), rest) :]

    def receive(self) -> Reply | None:
        """Return the reply; None if only a part of it has come."""
        part = os.read(self.output, 2**20)
        if not part:
            assert self._process is not None
            raise EngineError(f"a sandbox's process has ended with the exit status {self._process.wait()}")
        self._received += part
        if not self._received.endswith(b"\n"):
            return None
        reply, self._received = Reply(**json.loads(self._received)), b""
        return reply

    def stop(self) -> None:
        """Close its input, by which it kills its fork and ends."""
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()

    def end(self) -> None:
        """Wait until it has ended; it is killed if it does not end soon."""
        if self._process is None:
            return
        self.stop()
        try:
            self._process.wait(timeout=_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process = None
