"""Measure how well a benchmark uses several workers: `python -m studies.scaling [--write docs/benchmarks.md]`.

The same benchmark runs on 1, 2, … workers of each executor, in turn, and all of it is repeated. Efficiency is
t(1) / (n t(n)), with the wall times of one repetition: after start-up, when every worker has executed a run, and with
it. CPU times are those of this process and all processes below it, and show what costs on a machine that is not idle.

A plan of many native runs is made, its results are written (as copies of one run's) and read again. With the measured
costs of a run, this estimates the whole on many workers.
"""

from __future__ import annotations

import io
import math
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import psutil
from rich.console import Console

from bbrgym.benchmark.plan import Benchmark
from bbrgym.benchmark.run import run_benchmark
from bbrgym.benchmark.worker import execute
from bbrgym.envs.engine import make_engine
from bbrgym.envs.trace import simulate
from bbrgym.executors import EXECUTORS, ExecutorConfig, TaskExecutor, make_executor
from bbrgym.interruption import run_interruptible
from bbrgym.processes import ProcessExecutor
from studies import page

MARK: Final = "studies/scaling.py"
SCENARIO: Final = {"rate_mbps": 100, "duration_s": 60, "flows": [{"rtt_ms": 20}, {"rtt_ms": 40}, {"rtt_ms": 60}]}
COMPETITORS: Final = ["bbr", "cubic", "bbr2", "newreno"]
MANY: Final = (100, ["bbr", "bbr-acd", "bbr-acw", "bbr2", "bbq", "cubic", "da-bbr", "ebcc", "f-bbr2", "newreno"])
"""Scenarios and competitors of the large plan; seeds make it as large as it should be."""
Case = tuple[str, int]
"""An executor and its workers."""


@dataclass(frozen=True)
class Sample:
    """A benchmark on some workers.

    Attributes:
        start_s: until the executor had started and every worker had executed a run.
        start_cpu_s: CPU time of that.
        work_s: of the benchmark then: planning, runs, results.
        cpu_s: CPU time of that, of all processes.
        driver_cpu_s: the part of this process.
    """

    start_s: float
    start_cpu_s: float
    work_s: float
    cpu_s: float
    driver_cpu_s: float

    @property
    def whole_s(self) -> float:
        """With start-up."""
        return self.start_s + self.work_s


@dataclass(frozen=True)
class Cost:
    """CPU seconds and bytes of a run in this process.

    Attributes:
        simulation_s: of its simulation.
        execution_s: of everything that a worker does for it.
        bytes: of its files.
    """

    simulation_s: float
    execution_s: float
    bytes: float


@dataclass(frozen=True)
class Plan:
    """A large benchmark without its simulations.

    Attributes:
        runs: how many.
        planning_s: CPU seconds from its configuration to its runs.
        reading_s: CPU seconds of repeating it when everything is done.
        memory_bytes: the most that this took.
    """

    runs: int
    planning_s: float
    reading_s: float
    memory_bytes: float


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and with --write write the block of the page."""
    parser = page.parser(__doc__, MARK)
    parser.add_argument("--executors", nargs="+", default=["local", "ray", "dask"], choices=list(EXECUTORS))
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2], help="the first one is compared with")
    parser.add_argument("--work", type=float, default=120.0, help="CPU seconds of the benchmark")
    parser.add_argument("--chunk", type=float, default=10.0, help="seconds of work in a call of the executor")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--planned", type=int, default=100_000, help="runs of the large benchmark")
    parser.add_argument("--on", type=int, default=64, help="workers of the large benchmark")
    options = parser.parse_args(argv)
    cost = measure_cost()
    config = benchmark(max(1, round(options.work / cost.execution_s / len(COMPETITORS))))
    samples: dict[tuple[str, int], list[Sample]] = {}
    for repetition in range(1, options.repetitions + 1):
        for name in options.executors:
            for workers in options.workers:
                print(f"repetition {repetition}: {name}, {workers} workers", file=sys.stderr)
                executor = {"name": name, "workers": workers, "chunk_s": options.chunk}
                samples.setdefault((name, workers), []).append(measure(config, executor))
    print(f"a plan of {options.planned} runs", file=sys.stderr)
    plan = measure_plan(options.planned)
    runs = len(COMPETITORS) * len(config["seeds"])
    blocks = [
        f"{runs} native runs of three flows for 60 s (100 Mbit/s); each takes {1e3 * cost.execution_s:.0f} ms of CPU "
        f"time, {1e3 * cost.simulation_s:.0f} of them for the simulation. Chunks of {options.chunk:g} s; medians of "
        f"{options.repetitions}; {len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f} at the end.",
        efficiencies(samples, runs, cost),
        f"### {plan.runs:,} native runs on {options.on} workers",
        estimate(samples, runs, cost, plan, options.on),
    ]
    page.publish("\n\n".join(blocks), MARK, options.write)
    return 0


def benchmark(seeds: int) -> dict[str, Any]:
    """Return the configuration of the measured benchmark."""
    return {"name": "scaling", "scenarios": {"three": SCENARIO}, "competitors": COMPETITORS, "engine": "native"} | {
        "seeds": list(range(1, seeds + 1))
    }


def measure_cost(seeds: int = 3) -> Cost:
    """Measure what a run costs in this process, where nothing is in its way."""
    planned = Benchmark.from_dict(benchmark(seeds))
    runs = planned.runs()
    engine = dict(planned.engine)
    with tempfile.TemporaryDirectory() as folder:

        def simulate_all() -> None:
            for run in runs:
                simulator = make_engine(**engine)
                simulate(run.scenario, simulator, run.seed, run.step_ms, None)
                simulator.close()

        def execute_all(repetition: int) -> None:
            for run in runs:
                execute(run, Path(folder) / str(repetition), engine, planned.warmup, planned.retries, make_engine)

        execute_all(0)  # loads what is only loaded once
        simulation_s = median(_cpu_s(simulate_all) for _ in range(3))
        execution_s = median(_cpu_s(partial(execute_all, repetition)) for repetition in (1, 2, 3))
        size = sum(path.stat().st_size for path in (Path(folder) / "0").rglob("*") if path.is_file())
    return Cost(simulation_s / len(runs), execution_s / len(runs), size / len(runs))


def measure(config: Mapping[str, Any], executor: Mapping[str, Any]) -> Sample:
    """Run a benchmark on an executor that is started for it."""
    times = [_times_s()]
    started = make_executor(ExecutorConfig.of(executor))
    try:
        short = {
            "scenarios": {"short": dict(SCENARIO, duration_s=1)},
            "seeds": list(range(1, 1 + 2 * started.workers)),
            "executor": dict(executor) | {"chunk_s": 0.001},
        }
        for change in (short, {"executor": dict(executor)}):
            with tempfile.TemporaryDirectory() as folder:
                _run(dict(config) | change, Path(folder), started)
                times.append(_times_s())
    finally:
        started.shutdown(cancel_futures=True)
    (start_s, start_cpu_s, _), (work_s, cpu_s, driver_cpu_s) = np.diff(times, axis=0).tolist()
    return Sample(start_s, start_cpu_s, work_s, cpu_s, driver_cpu_s)


def _times_s() -> tuple[float, float, float]:
    """Return the wall time, the CPU time of all processes, and that of this one."""
    return time.perf_counter(), tree_cpu_s(), time.process_time()


def measure_plan(planned: int) -> Plan:
    """Plan many runs, write what they would have measured, and repeat the benchmark, in a process of its own."""
    with ProcessExecutor(1) as executor, tempfile.TemporaryDirectory() as folder:
        return Plan(*executor.submit(_plan_and_read, planned, Path(folder)).result())


def _plan_and_read(planned: int, folder: Path) -> tuple[int, float, float, float]:
    scenarios, competitors = MANY
    config = {
        "name": "many",
        "scenarios": {f"rate {rate}": {**SCENARIO, "rate_mbps": rate} for rate in range(1, scenarios + 1)},
        "competitors": competitors,
        "seeds": list(range(1, 1 + math.ceil(planned / scenarios / len(competitors)))),
        "engine": "native",
    }
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    whole = Benchmark.from_dict(config)
    runs = whole.runs()
    planning_s = time.process_time() - began
    execute(runs[0], folder / "one", {"name": "native"}, whole.warmup, whole.retries, make_engine)
    content = (folder / "one" / "runs" / runs[0].key / "metrics.json").read_bytes()
    for run in runs:
        of_run = folder / "runs" / run.key
        of_run.mkdir(parents=True)
        (of_run / "metrics.json").write_bytes(content)
        (of_run / "trace.parquet").touch()  # only its existence is looked at
    began = time.process_time()
    _run(config, folder, None)
    reading_s = time.process_time() - began
    return len(runs), planning_s, reading_s, 1024.0 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)


def _run(config: Mapping[str, Any], folder: Path, executor: TaskExecutor | None) -> None:
    quiet = Console(file=io.StringIO())
    result = run_benchmark(config, folder, quiet, command=MARK, has_report=False, executor=executor)
    if result.failures or result.missing:
        raise RuntimeError(f"{len(result.failures)} runs failed: {result.failures[:1]}")


def efficiencies(samples: Mapping[Case, Sequence[Sample]], runs: int, cost: Cost) -> str:
    """Return the table of what was measured on each executor."""
    first = min(workers for _, workers in samples)
    rows = []
    for (name, workers), taken in samples.items():
        pairs = list(zip(samples[name, first], taken, strict=True))
        after = median(first * one.work_s / (workers * many.work_s) for one, many in pairs)
        whole = median(first * one.whole_s / (workers * many.whole_s) for one, many in pairs)
        overhead_s = median(each.cpu_s / runs - cost.simulation_s for each in taken)
        rows.append(
            [
                name,
                str(workers),
                f"{median(each.work_s for each in taken):.1f}",
                f"{after:.2f}",
                f"{whole:.2f}",
                f"{median(each.start_s for each in taken):.1f}",
                f"{median(each.start_cpu_s for each in taken):.1f}",
                f"{1e3 * overhead_s:.1f}",
                f"{1e3 * median(each.driver_cpu_s / runs for each in taken):.1f}",
            ]
        )
    headings = [
        *("executor", "workers", "s", "efficiency", "with start-up", "start-up, s", "start-up, CPU s"),
        *("overhead per run, CPU ms", "of it this process"),
    ]
    return page.table(headings, rows, range(1, len(headings)))


def estimate(samples: Mapping[Case, Sequence[Sample]], runs: int, cost: Cost, plan: Plan, workers: int) -> str:
    """Return the table of what the large benchmark takes on each executor, by its costs with the most workers."""
    most = max(count for _, count in samples)
    rows = []
    for (name, count), taken in samples.items():
        if count != most:
            continue
        run_s = median((each.cpu_s - each.driver_cpu_s) / runs for each in taken)
        # What this process does per run while the workers run.
        result_s = max(0.0, median(each.driver_cpu_s / runs for each in taken) - plan.reading_s / plan.runs)
        work_s, busy_s = plan.runs * run_s / workers, plan.runs * result_s
        start_s = median(each.start_s for each in taken)
        total_s = plan.planning_s + start_s + max(work_s, busy_s) + run_s + plan.reading_s
        figures = [page.duration(work_s), f"{busy_s / max(work_s, busy_s):.1%}", page.duration(total_s)]
        rows.append([name, f"{run_s:.2f}", *figures, f"{work_s / total_s:.3f}"])
    headings = ["executor", "CPU s per run", "runs / workers", "load of this process", "t", "efficiency"]
    return (
        f"Planning takes {plan.planning_s:.1f} s of CPU time. The files of all runs are "
        f"{plan.runs * cost.bytes / 1e9:.1f} GB. Repeating the benchmark when all are done takes {plan.reading_s:.1f} "
        f"s and {plan.memory_bytes / 1e6:.0f} MB.\n\n{page.table(headings, rows, range(1, len(headings)))}"
    )


def tree_cpu_s() -> float:
    """Return the CPU seconds of this process and of all processes below it, so far."""
    total = 0.0
    this = psutil.Process()
    for process in [this, *this.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:4])  # user and system, its own and of children that have ended
    return total


def _cpu_s(do: Callable[[], object]) -> float:
    began = time.process_time()
    do()
    return time.process_time() - began


if __name__ == "__main__":
    sys.exit(run_interruptible("scaling", main))
