"""Run controllers of unknown quality in child processes with limits, and get their measurements or what went wrong."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from concurrent.futures import wait
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np

from bbrgym.benchmark.confined import run_confined, warm_up
from bbrgym.benchmark.ledger import Rows
from bbrgym.benchmark.score_measures import STEP_MS
from bbrgym.envs.engine import EngineError
from bbrgym.envs.scenario import Scenario
from bbrgym.envs.trace import Trace
from bbrgym.processes import ProcessExecutor, WorkerLostError

Confinement = Literal["none", "c", "python"]
"""What a job's code is: the project's own, a shared object, or a Python callable."""

SECONDS: Final = 8.0
MEBIBYTES: Final = 512
"""What a job may take, by default."""


@dataclass(frozen=True)
class ConfinedJob:
    """Runs that a fork measures, one after the other.

    Attributes:
        scenarios: with the flows' algorithms; the file of a flow is a shared object (`compile_controller`).
        seeds: one per scenario.
        warmup: fraction of each run that is not measured.
        measure: `sharing` (`bbrgym.benchmark.score_measures.measure_sharing`), `rows` (`measure_rows`) or `trace`
            (`measure_trace`, of which `trace_of` makes a trace); or `facts` (`bbrgym.benchmark.run_facts`).
        confinement: of the fork.
        library: the shared object of a job in C.
        function: the callable of a job in Python, `module:name`.
        seconds: the processor time that it may take, and its wall time over `WALL`.
        mebibytes: the memory that it may take.
    """

    scenarios: Sequence[Scenario]
    seeds: Sequence[int]
    warmup: float
    measure: Literal["sharing", "rows", "trace", "facts"] = "sharing"
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


def trace_of(job: ConfinedJob, reply: Reply) -> Trace | None:
    """Return the trace of the only run of a job that measures `trace`; None if it failed."""
    if reply.error is not None or "error" in reply.results[0]:
        return None
    time_s, flows, link = (np.array(reply.results[0][name], dtype=np.float64) for name in ("time_s", "flows", "link"))
    return Trace(job.scenarios[0], job.seeds[0], "native", STEP_MS, time_s, flows, link)


class Sandbox(ProcessExecutor):
    """Child processes that run jobs in confined forks of themselves, one per core by default; a context manager.

    It is an executor: a task that calls `run_confined` may run code of unknown quality. It can be used from several
    threads.

    Raises:
        ValueError: this system is not Linux.
    """

    def __init__(self, workers: int | None = None) -> None:
        if (system := platform.system()) != "Linux":
            raise ValueError(f"C files and Python callables are scored in a sandbox, which needs Linux, got {system}")
        # A fork of a process with threads can hang, so that libraries must start none.
        single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        super().__init__(workers, has_main=False, environment=single)
        for _ in range(self.workers):
            self.submit(warm_up)  # all processes start at once, and before they are needed

    def run(self, jobs: Sequence[ConfinedJob]) -> list[Reply]:
        """Run jobs, and return their replies in the same order.

        Whatever ends the call early, as Ctrl-C does, also ends its jobs at once.

        Raises:
            EngineError: the process of one of these jobs has ended.
        """
        futures = [self.submit(run_confined, job.to_dict()) for job in jobs]
        try:
            return [Reply(**future.result()) for future in futures]
        except WorkerLostError as error:
            self.stop(futures)
            raise EngineError(f"a process of the sandbox was lost: {error}") from None
        except BaseException:
            self.stop(futures)
            wait(futures)
            raise

    def close(self) -> None:
        """End the processes; calling it twice is fine."""
        self.shutdown(cancel_futures=True)

    def __exit__(self, *_: object) -> None:
        self.close()


def measure_confined(job: NamedJob) -> Rows:
    """Return what a job measures, one row per scenario, as the work of a ledger: in a process of a sandbox.

    Raises:
        EngineError: something ended it.
    """
    reply = Reply(**run_confined(job.job.to_dict()))
    if reply.error is not None:
        raise EngineError(reply.error)
    return reply.results


@dataclass(frozen=True)
class NamedJob:
    """A job of a ledger.

    Attributes:
        name: what the ledger calls it.
        code: the hash of what decides its results.
        job: what is run.
    """

    name: str
    code: str
    job: ConfinedJob
