"""Runs of cases: Linux's, which are measured in real time, and simulated ones."""

from __future__ import annotations

import json
import math
import os
import platform
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Final

import numpy as np
import pandas as pd

from bbrgym import Trace, make_engine, simulate
from bbrgym.agents.policy import load_agent
from bbrgym.benchmark.code import code_hash, metrics_hash
from bbrgym.benchmark.ledger import Rows
from bbrgym.benchmark.metrics import measure
from bbrgym.benchmark.single_run import attempts
from bbrgym.envs.columns import FLOW_COLUMNS
from studies.linux.cases import DUEL, GRID, WARMUP, Case, all_cases, league_cases
from studies.linux.comparison import VARIANTS

MOST_REPEATS: Final = 2
"""Of a run of Linux with a flaw (`Engine.flaw`)."""

SEEDS: Final[Mapping[str, Sequence[int]]] = {"native": (1, 2, 3, 4, 5), "ns3": (1, 2, 3)}
"""Of the simulations that are compared with Linux, by engine."""
LEAGUE_SEEDS: Final = tuple(range(1, 11))
"""Of the league in native."""

COLUMNS: Final = (
    "flow",
    "rtt_ms",
    "active_s",
    "throughput_mbps",
    "share",
    "received_bytes",
    "rtt_mean_ms",
    "rtt_p95_ms",
    "loss_rate",
    "retransmission_rate",
    "link_queue_mean_ms",
    "link_queue_p95_ms",
)
"""What is kept of a run's rows: what the page needs of `bbrgym.benchmark.metrics.measure`."""

TIMING: Final = ("late_mean_ms", "late_p999_ms", "late_max_ms")
"""What is kept of `Trace.timing`."""

OVER_TIME: Final = "throughput_over_time_mbps"
"""Only the duel has it: the throughput of a flow in every step."""

Labelled = Mapping[tuple[str, str], Case]
"""{(scenario, competitor): case}: the labels of its runs in a frame like `BenchmarkResult.results`."""


@dataclass(frozen=True)
class CaseRun:
    """A case in an engine with a seed.

    A run of Linux is measured again only if its case is another one, and not with every change of the code: all of them
    take two hours and a half of real time, on an otherwise idle machine. So they can be older than the simulations.
    """

    case: Case
    engine: str
    seed: int

    @property
    def name(self) -> str:
        """What the ledger calls it."""
        return f"{self.engine}/{self.case.key}/{self.seed}"

    @property
    def code(self) -> str:
        """The hash of what decides its result."""
        decisive = json.dumps([self.case.key, self.case.step_ms, WARMUP])
        if self.engine == "linux":
            return sha256(decisive.encode()).hexdigest()[:16]
        agent = "" if self.case.agent is None else load_agent(self.case.agent).content_hash
        return f"{code_hash(self.engine, also=decisive + agent)}-{metrics_hash()}"


def jobs() -> list[CaseRun]:
    """Return all runs: Linux's seed by seed, then the simulated ones."""
    on_linux = [CaseRun(case, "linux", seed) for case in all_cases() for seed in range(1, case.runs + 1)]
    every = [*sorted(on_linux, key=lambda run: run.seed), *_simulated()]
    return list({run.name: run for run in every}.values())  # competitors may be one algorithm in native


def _simulated() -> Iterator[CaseRun]:
    for engine, seeds in SEEDS.items():
        yield from (CaseRun(case.simulated(), engine, seed) for case in GRID for seed in seeds)
        yield CaseRun(DUEL.simulated(), engine, 1)
    changed = [variant.of(case) for case in GRID for variant in VARIANTS if variant.changes(case)]
    yield from (CaseRun(case, "native", seed) for case in changed for seed in SEEDS["native"])
    yield from (CaseRun(case.simulated(), "native", seed) for case in league_cases() for seed in LEAGUE_SEEDS)


def work(run: CaseRun) -> Rows:
    """Run and measure. A run of Linux that is late is repeated, and the most punctual one counts."""
    if run.engine != "linux":
        return rows_of(run, simulate_case(run))
    host = {
        "load": os.getloadavg()[0],
        "kernel": re.sub(r"[^\d.].*", "", platform.release()),  # without a distribution's suffix
        "day": datetime.now(UTC).date().isoformat(),
        "order": time.time(),
    }
    made = list(attempts(lambda: simulate_case(run), MOST_REPEATS))
    best = min(made, key=lambda trace: (trace.flaw is not None, trace.timing["late_p999_ms"]))
    timing = {name: best.timing[name] for name in TIMING}
    of_run = {**timing, "has_flaw": best.flaw is not None, **host, "attempts": len(made)}
    return [{**row, **of_run} for row in rows_of(run, best)]


def simulate_case(run: CaseRun) -> Trace:
    """Run a case once, from start to end."""
    case = run.case
    policy = None if case.agent is None else load_agent(case.agent).policy(case.scenario)
    # A lossy step of ns-3 takes long on a busy machine, and nobody waits for it.
    patience = {"timeout_s": 300.0} if run.engine == "ns3" else {}
    with closing(make_engine(run.engine, **patience)) as engine:
        return simulate(case.scenario, engine, seed=run.seed, step_ms=case.step_ms, policy=policy)


def rows_of(run: CaseRun, trace: Trace) -> Rows:
    """Return what is kept of a run, one row per flow."""
    rows = [{name: row[name] for name in COLUMNS} for row in measure(trace, after_s=WARMUP * trace.scenario.duration_s)]
    if run.case.name == DUEL.name:
        throughput = trace.flows[:, :, FLOW_COLUMNS.index("throughput_mbps")]
        active = np.where(trace.flows[:, :, FLOW_COLUMNS.index("is_active")] > 0, throughput, np.nan)
        rows = [{**row, OVER_TIME: active[:, row["flow"]].tolist()} for row in rows]
    return rows


def frame_of(
    labelled: Labelled, engine: str, results: Mapping[str, Rows], seeds: Sequence[int] | None = None
) -> pd.DataFrame:
    """Return runs of cases as `BenchmarkResult.results`: `scenario`, `competitor`, `seed`, and `COLUMNS`.

    Args:
        labelled: the cases.
        engine: where they ran.
        results: all results, by the names of the runs.
        seeds: which runs; None for as many as Linux has.

    Raises:
        ValueError: as `kept_runs`.
    """
    rows: list[dict[str, Any]] = []
    for (scenario, competitor), case in labelled.items():
        runs = [*kept_runs(case, engine, seeds or range(1, case.runs + 1), results).items()]
        if engine == "linux":
            # As they were measured: a bootstrap interval depends on the order of its sample.
            runs.sort(key=lambda run: float(run[1][0]["order"]))
        for seed, of_run in runs:
            label = {"scenario": scenario, "competitor": competitor, "seed": seed}
            for row in of_run:
                # Older code kept no `active_s`.
                active_s = row["received_bytes"] * 8e-6 / (row["throughput_mbps"] or math.nan)
                rows.append({**label, **{name: row.get(name, active_s) for name in COLUMNS}})
    return pd.DataFrame(rows)


def kept_runs(case: Case, engine: str, seeds: Sequence[int], results: Mapping[str, Rows]) -> dict[int, Rows]:
    """Return {seed: rows} of the runs of a case: all of them, of Linux those that are measured.

    Raises:
        ValueError: a simulated run is not measured yet, or none of Linux.
    """
    found = {seed: results[name] for seed in seeds if (name := CaseRun(case, engine, seed).name) in results}
    if len(found) < (1 if engine == "linux" else len(seeds)):
        raise ValueError(f"{case.name!r} is not measured in {engine} yet: add --measure")
    return found
