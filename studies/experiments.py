"""Compose the experiments of conf/experiment and of studies/conf, and measure one for a study."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import pandas as pd
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from bbrgym.benchmark.ledger import Rows
from bbrgym.benchmark.metrics import find_metric
from bbrgym.benchmark.plan import Benchmark, Run
from bbrgym.benchmark.results import BenchmarkResult
from bbrgym.benchmark.statistics import Estimate
from bbrgym.benchmark.tables import summary_table
from bbrgym.benchmark.worker import rows_of
from bbrgym.overrides import value_of
from studies import page

CONF: Final = Path(__file__).parent / "conf"
"""Experiments of studies; those of the package are found, too."""

STAND_INS: Final = {"bbr-stock": "bbr", "cubic-stock": "cubic", "newreno-stock": "newreno"}
"""Algorithms that only ns-3 has, and this project's algorithms that replace them in other engines."""


def compose_experiment(experiment: str, overrides: Sequence[str] = (), folder: Path | None = None) -> dict[str, Any]:
    """Return the whole plain configuration of an experiment."""
    path = [] if folder is None else [f"hydra.searchpath=[{value_of(f'file://{folder}')}]"]
    with initialize_config_module("bbrgym.conf", version_base="1.3"):
        config = compose("config", overrides=[*path, f"experiment={experiment}", *overrides])
    plain = OmegaConf.to_container(config, resolve=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


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
