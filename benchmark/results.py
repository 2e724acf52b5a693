"""What the directory of a benchmark holds."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from bbrgym.benchmark.single_run import is_sound, load_metrics
from bbrgym.files import DAMAGES, check_object, damage


@dataclass(frozen=True)
class Failure:
    """A run that has no result, and why."""

    scenario: str
    competitor: str
    seed: int
    key: str
    error: str


@dataclass(frozen=True)
class BenchmarkResult:
    """What a benchmark's directory holds.

    Attributes:
        results: one row per run and flow, but for those in `flawed`: `scenario`, `competitor`, `seed`, `key`,
            `trace_hash`, and the columns of `bbrgym.benchmark.metrics.measure`. No rows if no run is done.
        failures: the runs that failed.
        missing: the runs without a result or a failure, because the benchmark was interrupted.
        directory: the benchmark's directory.
        plan: the content of benchmark.json.
        flawed: the rows of runs whose numbers cannot be trusted (`Engine.flaw`), with the reason in one more column,
            `flaw`. Only real time has such runs.
    """

    results: pd.DataFrame
    failures: list[Failure]
    missing: list[dict[str, Any]]
    directory: Path
    plan: dict[str, Any]
    flawed: pd.DataFrame = field(default_factory=pd.DataFrame)

    @property
    def flaws(self) -> dict[str, str]:
        """Why runs are in `flawed`, by their keys."""
        return {} if self.flawed.empty else dict(zip(self.flawed["key"], self.flawed["flaw"], strict=True))

    def wall_s(self) -> dict[str, float]:
        """Return the seconds that each run's simulation took, by its key; 0 if they are unknown."""
        return {str(key): _load_wall_s(self.directory / "runs" / str(key)) for key in self.results["key"].unique()}


def load_benchmark(directory: Path, measured: Mapping[str, Mapping[str, Any]] | None = None) -> BenchmarkResult:
    """Load a benchmark, whether it is finished, running or interrupted.

    Args:
        directory: the benchmark's directory.
        measured: what `load_metrics` has returned for some of its runs, by their keys. They are not loaded again.

    Raises:
        FileNotFoundError: the directory has no benchmark.
        ValueError: its benchmark.json or failures.json is damaged.
    """
    plan = read_plan(directory)
    failures_path = directory / "failures.json"
    failures = _load(failures_path, _failures) if failures_path.is_file() else []
    failed = {failure.key for failure in failures}
    known = measured or {}
    rows: list[dict[str, Any]] = []
    flawed: list[dict[str, Any]] = []
    missing = []
    for run in plan["runs"]:
        metrics = known.get(run["key"]) or load_metrics(directory / "runs" / run["key"])
        if metrics is not None and not is_sound(metrics):
            names = run | {"flaw": metrics["flaw"], "trace_hash": metrics["trace_hash"]}
            flawed += [names | row for row in metrics["rows"]]
        elif metrics is not None:
            rows += [run | {"trace_hash": metrics["trace_hash"]} | row for row in metrics["rows"]]
        elif run["key"] not in failed:
            missing.append(run)
    results = pd.DataFrame(rows) if rows else pd.DataFrame(columns=["scenario", "competitor", "seed", "key"])
    return BenchmarkResult(
        results, failures=failures, missing=missing, directory=directory, plan=plan, flawed=pd.DataFrame(flawed)
    )


def read_plan(directory: Path) -> dict[str, Any]:
    """Return the content of a benchmark's benchmark.json; `load_benchmark` explains the errors."""
    path = directory / "benchmark.json"
    if not path.is_file():
        raise FileNotFoundError(f"{directory} is not a benchmark: it has no benchmark.json")
    plan: dict[str, Any] = _load(path, _plan)
    return plan


def _load(path: Path, read: Callable[[Any], Any]) -> Any:
    """Return what `read` makes of the JSON in a file."""
    try:
        return read(json.loads(path.read_text(encoding="utf-8")))
    except DAMAGES as error:
        raise ValueError(f"'{path}' is damaged: {damage(error)}") from error


def _plan(content: Any) -> dict[str, Any]:
    plan = check_object(content, "the plan", config=dict, runs=list)
    check_object(plan["config"], "its config", name=str, scenarios=dict, suites=dict)
    plan["runs"] = [
        {**check_object(run, "a run", scenario=str, competitor=str, seed=int), "key": str(run["key"])}
        for run in plan["runs"]
    ]
    return plan


def _failures(content: Any) -> list[Failure]:
    if not isinstance(content, list):
        raise ValueError(f"it must be a list, got a {type(content).__name__}")
    return [Failure(**one) for one in content]


def _load_wall_s(directory: Path) -> float:
    try:
        return float(json.loads((directory / "timing.json").read_text(encoding="utf-8"))["wall_s"])
    except DAMAGES:
        return 0.0
