"""Runs of cases: Linux's, which are measured one at a time and kept, and simulated ones."""

from __future__ import annotations

import contextlib
import os
import platform
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import pandas as pd
from rich.console import Console
from rich.progress import track

from bbrgym import Trace, make_engine, simulate
from bbrgym.agents.policy import load_agent
from bbrgym.benchmark.metrics import measure
from bbrgym.envs.trace_file import save_trace
from bbrgym.files import replace_file
from studies import page
from studies.linux.cases import DUEL, WARMUP, Case

FOLDER: Final = Path(__file__).resolve().parent
RUNS: Final = FOLDER / "runs.parquet"
"""One row per run of Linux and flow: what `bbrgym.benchmark.metrics.measure` returns, and how punctual the run was."""
DUEL_TRACE: Final = FOLDER / "duel.parquet"

MOST_REPEATS: Final = 2
"""Of a run with a flaw (`Engine.flaw`)."""
OVERHEAD_S: Final = 0.5
"""Of a run: a new worker, two namespaces."""

Labelled = Mapping[tuple[str, str], Case]
"""{(scenario, competitor): case}: the labels of its runs in a frame like `BenchmarkResult.results`."""


def load_runs(path: Path = RUNS) -> pd.DataFrame:
    """Return the kept runs of Linux: `key` of the case, `seed`, `flow`, …; empty if there are none."""
    return pd.read_parquet(path) if path.is_file() else pd.DataFrame(columns=["key", "seed", "flow"])


def missing(cases: Iterable[Case], runs: pd.DataFrame) -> list[tuple[Case, int]]:
    """Return the cases and seeds that have no run yet, one seed of all cases before the next."""
    has = set(zip(runs["key"], runs["seed"], strict=True))
    wanted = {(case.key, seed): (case, seed) for case in cases for seed in range(1, case.runs + 1)}
    return sorted((one for found, one in wanted.items() if found not in has), key=lambda one: one[1])


def flawed(cases: Iterable[Case], runs: pd.DataFrame) -> list[tuple[Case, int]]:
    """Return the cases and seeds whose runs have a flaw and may be repeated, the latest first."""
    if runs.empty:
        return []
    of_key = {case.key: case for case in cases}
    may_repeat = (runs["flow"] == 0) & runs["has_flaw"] & (runs["attempts"] <= MOST_REPEATS)
    found = runs[may_repeat & runs["key"].isin(of_key)].sort_values("late_p999_ms", ascending=False, kind="stable")
    return [(of_key[key], int(seed)) for key, seed in zip(found["key"], found["seed"], strict=True)]


def measure_linux(
    cases: Sequence[Case], console: Console, path: Path = RUNS, run: Callable[[Case, int], Trace] | None = None
) -> None:
    """Measure the missing runs of Linux one at a time, then repeat those with a flaw; the most punctual one is kept.

    Every run is written at once, so the command can be stopped and started again.

    Raises:
        EngineError: Linux cannot be measured here, with the reason.
    """
    runs = load_runs(path)
    while True:
        left = missing(cases, runs) or flawed(cases, runs)
        if not left:
            return
        case, seed = left[0]
        expected_s = sum(other.scenario.duration_s + OVERHEAD_S for other, _ in left[1:])
        host = {
            "load": os.getloadavg()[0],
            "kernel": re.sub(r"[^\d.].*", "", platform.release()),  # without a distribution's suffix
            "day": datetime.now(UTC).date().isoformat(),
        }
        trace = (run or _run_linux)(case, seed)
        runs = _with_run(runs, case, seed=seed, trace=trace, host=host)
        replace_file(path, partial(runs.to_parquet, index=False, compression="zstd"))
        if case == DUEL:
            replace_file(path.with_name(DUEL_TRACE.name), partial(save_trace, trace))
        console.print(
            f"{case.name}, seed {seed}: {trace.flaw or 'punctual'}; {len(left) - 1} runs left, "
            f"{page.duration(expected_s)}",
            highlight=False,
            markup=False,
        )


def _with_run(runs: pd.DataFrame, case: Case, seed: int, trace: Trace, host: Mapping[str, Any]) -> pd.DataFrame:
    """Return the kept runs with one more, unless the one that it repeats was more punctual."""
    is_same = (runs["key"] == case.key) & (runs["seed"] == seed)
    before = runs[is_same]
    attempts = 1 if before.empty else 1 + int(before["attempts"].iloc[0])
    timing = {name: trace.timing[name] for name in TIMING} | {"has_flaw": trace.flaw is not None}
    if not before.empty and trace.flaw is not None and before["late_p999_ms"].iloc[0] <= timing["late_p999_ms"]:
        return runs.assign(attempts=runs["attempts"].where(~is_same, attempts))
    rows = measure(trace, after_s=WARMUP * trace.scenario.duration_s)
    made = pd.DataFrame(
        [{"key": case.key, "seed": seed, **row, **timing, **host, "attempts": attempts} for row in rows]
    )
    floats = made.select_dtypes("float64").columns
    made = made.astype(dict.fromkeys(floats, "float32"))
    return made if runs.empty else pd.concat([runs[~is_same], made], ignore_index=True)


TIMING: Final = ("late_mean_ms", "late_p999_ms", "late_max_ms")
"""What is kept of `Trace.timing`."""


def _run_linux(case: Case, seed: int) -> Trace:
    return run_once(case, "linux", seed)


def run_once(case: Case, engine: str, seed: int) -> Trace:
    """Run a case from start to end."""
    policy = None if case.agent is None else load_agent(case.agent).policy(case.scenario)
    # A lossy step of ns-3 takes long on a busy machine, and nobody waits for it.
    patience = {"timeout_s": 300.0} if engine == "ns3" else {}
    with contextlib.closing(make_engine(engine, **patience)) as running:
        return simulate(case.scenario, running, seed=seed, step_ms=case.step_ms, policy=policy)


def simulated(labelled: Labelled, engine: str, seeds: Sequence[int], console: Console) -> pd.DataFrame:
    """Simulate cases with several seeds each.

    Returns:
        As `BenchmarkResult.results`: `scenario`, `competitor`, `seed`, and the columns of `measure`.
    """

    def rows(scenario: str, competitor: str, case: Case, seed: int) -> list[dict[str, Any]]:
        trace = run_once(case, engine, seed)
        label = {"scenario": scenario, "competitor": competitor, "seed": seed}
        return [label | row for row in measure(trace, after_s=WARMUP * case.scenario.duration_s)]

    with ThreadPoolExecutor(2) as pool:  # native releases Python's lock, and ns-3 has its own processes
        futures = [pool.submit(rows, *label, case, seed) for label, case in labelled.items() for seed in seeds]
        try:
            of_runs = [future.result() for future in track(futures, engine, console=console, transient=True)]
        finally:
            pool.shutdown(cancel_futures=True)
    return pd.DataFrame([row for of_run in of_runs for row in of_run])


def measured(labelled: Labelled, runs: pd.DataFrame) -> pd.DataFrame:
    """Return the kept runs of Linux of some cases, as `simulated` does."""
    frames = [
        runs[(runs["key"] == case.key) & (runs["seed"] <= case.runs)].assign(scenario=scenario, competitor=competitor)
        for (scenario, competitor), case in labelled.items()
    ]
    return pd.concat(frames, ignore_index=True)
