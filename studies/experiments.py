"""Measure an experiment of conf/experiment or of studies/conf for a study."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, Final

import pandas as pd

from bbrgym.benchmark import derived_metrics
from bbrgym.benchmark.experiments import compose_experiment
from bbrgym.benchmark.ledger import Rows
from bbrgym.benchmark.metrics import find_metric
from bbrgym.benchmark.plan import Benchmark, Run
from bbrgym.benchmark.results import BenchmarkResult
from bbrgym.benchmark.single_run import rows_of
from bbrgym.benchmark.statistics import Estimate
from bbrgym.benchmark.tables import run_table, summary_table
from bbrgym.benchmark.verdicts import metrics_of_runs
from studies import page

CONF: Final = Path(__file__).parent / "conf"
"""Experiments of studies; those of the package are found, too."""


class MeasuredExperiment:
    """An experiment as what a study measures: all runs of its benchmark.

    Its page uses `compare(metric)`, a table with one row per competitor and one column per scenario; `seeds`, how many
    there are; and `result`, the `BenchmarkResult`.
    """

    def __init__(self, experiment: str, overrides: Sequence[str] = ()) -> None:
        self._config = compose_experiment(experiment, overrides, CONF)["benchmark"]

    @cached_property
    def benchmark(self) -> Benchmark:
        """Competitors, scenarios and seeds."""
        return Benchmark.from_dict(self._config)

    @cached_property
    def _runs(self) -> Sequence[Run]:
        return self.benchmark.runs()

    def jobs(self) -> Sequence[Run]:
        """Return all runs."""
        return self._runs

    @property
    def work(self) -> Callable[[Run], Rows]:
        """The function that simulates a run and measures it."""
        return partial(
            rows_of, engine=self.benchmark.engine, warmup=self.benchmark.warmup, retries=self.benchmark.retries
        )

    def view(self, results: Mapping[str, Rows], figure: page.AddFigure) -> Mapping[str, object]:
        """Return the names that the page uses."""
        rows = [row for run in self.jobs() for row in results.get(run.name, [])]
        plan = {"config": self.benchmark.to_dict(), "runs": [run.names() for run in self.jobs()]}
        result = BenchmarkResult(pd.DataFrame(rows), failures=[], missing=[], directory=Path(), plan=plan)
        return {"compare": partial(compare, result), "seeds": len(self.benchmark.seeds), "result": result}


def compare(result: BenchmarkResult, metric: str) -> str:
    """Return a metric's table: one row per competitor, one column per scenario, means with 95 % intervals."""
    described = find_metric(metric)
    if described is None:
        raise ValueError(f"unknown metric {metric!r}")
    table = summary_table(result.results)[metric]
    scenarios = list(dict.fromkeys(table.index.get_level_values("scenario")))
    rows = []
    for name in dict.fromkeys(table.index.get_level_values("competitor")):
        cells = [Estimate(*table.loc[(scenario, name)]).text(described.form) for scenario in scenarios]
        rows.append([page.cell(name), *cells])
    unit = f", {described.unit}" if described.unit else ""
    return page.table([f"{described.label}{unit}", *scenarios], rows, range(1, 1 + len(scenarios)))


@dataclass(frozen=True)
class SeedRuns:
    """The runs of a competitor in a scenario, one per seed, of which some metrics are kept.

    A benchmark of thousands of runs is so kept in a small file.

    Attributes:
        group: tells it from the runs of other benchmarks of its study; empty if there is one only.
        runs: the runs.
        metrics: what is kept of each, as for `metrics_of_runs`.
        engine: what simulates them.
        warmup: the share of a run that is not measured.
        retries: how often a run with a flaw is simulated again.
    """

    group: str
    runs: Sequence[Run]
    metrics: Sequence[str]
    engine: Mapping[str, Any]
    warmup: float
    retries: int

    @property
    def name(self) -> str:
        """What the ledger calls it."""
        run = self.runs[0]
        return "/".join(filter(None, [self.group, run.scenario_name, run.competitor]))

    @property
    def code(self) -> str:
        """The hash of what decides its result."""
        keys = [run.code for run in self.runs]
        return hashlib.sha256(json.dumps([keys, list(self.metrics), tables_code()]).encode()).hexdigest()[:16]


@cache
def tables_code() -> list[str]:
    """Return the code by which a table of runs has its metrics (`metrics_of_runs`), for the hash of a job."""
    return [inspect.getsource(derived_metrics), inspect.getsource(run_table)]


def seed_runs(benchmark: Benchmark, metrics_in: Callable[[str], Sequence[str]], group: str = "") -> list[SeedRuns]:
    """Return the runs of a benchmark by scenario and competitor; `metrics_in` names what is kept in a scenario."""
    runs: dict[tuple[str, str], list[Run]] = {}
    for run in benchmark.runs():
        runs.setdefault((run.scenario_name, run.competitor), []).append(run)
    return [
        SeedRuns(
            group=group,
            runs=of_seeds,
            metrics=metrics_in(scenario),
            engine=benchmark.engine,
            warmup=benchmark.warmup,
            retries=benchmark.retries,
        )
        for (scenario, _), of_seeds in runs.items()
    ]


def measure_seeds(job: SeedRuns) -> Rows:
    """Simulate all runs of a job, and return a row for each: its seed, its metrics, and which of its traces are equal.

    `trace` is the number of the first run that has the same trace.
    """
    rows = [row for run in job.runs for row in rows_of(run, job.engine, job.warmup, job.retries)]
    run = job.runs[0]
    measured = metrics_of_runs(pd.DataFrame(rows), job.metrics, {run.scenario_name: run.scenario})
    hashes = list({row["seed"]: row["trace_hash"] for row in rows}.values())
    return [
        {"seed": run.seed, "trace": hashes.index(hash), **{name: float(measured[name].iloc[i]) for name in job.metrics}}
        for i, (run, hash) in enumerate(zip(job.runs, hashes, strict=True))
    ]


def table_of_runs(jobs: Sequence[SeedRuns], results: Mapping[str, Rows]) -> pd.DataFrame:
    """Return what is kept of some jobs.

    Returns:
        Index (scenario, competitor, seed); columns `trace` and the metrics, NaN where a job does not keep them. Jobs
        without results are left out.
    """
    rows = [
        {"scenario": job.runs[0].scenario_name, "competitor": job.runs[0].competitor, **row}
        for job in jobs
        for row in results.get(job.name, [])
    ]
    return pd.DataFrame(rows).set_index(["scenario", "competitor", "seed"])
