"""The demonstration of `make run`: train an agent for a few minutes, then compare it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from bbrgym.agents.train import train
from bbrgym.benchmark.breaking.curriculum import Breaker
from bbrgym.benchmark.results import BenchmarkResult
from bbrgym.benchmark.run import read_benchmark, run_benchmark
from bbrgym.benchmark.tables import print_summary
from bbrgym.benchmark.yardsticks import measure_yardsticks
from bbrgym.envs.engine import check_is_available
from bbrgym.interruption import resumed_by
from bbrgym.overrides import command


def run_demo(
    config: Mapping[str, Any], directory: Path, benchmark_directory: Path, console: Console | None = None
) -> BenchmarkResult:
    """Train an agent for at most `train.max_minutes`, and compare it with the competitors of `benchmark`."""
    console = console or Console()
    benchmark, _ = read_benchmark(config["benchmark"])  # before minutes of training
    check_is_available(**benchmark.engine)
    minutes = (config.get("train") or {}).get("max_minutes")
    console.rule("1. Training" + (f", {minutes:g} minutes" if minutes else ""))
    with resumed_by(f"`{command('bbrgym train', {'train.resume': directory})}` resumes its training"):
        trained = train(config, directory, console, partial(measure_yardsticks, console=console), Breaker())
    console.rule("2. Benchmark")
    with resumed_by(f"`{_benchmark_command(config, trained.directory)}` resumes its benchmark"):
        result = run_benchmark({**config["benchmark"], "agent": str(trained.directory)}, benchmark_directory, console)
    print_summary(result.results, console)
    console.print(
        f"`agent` was trained with {trained.steps} decisions"
        + (f" in {minutes:g} minutes: it is a demonstration, not a result.\n" if minutes else ".\n")
        + f"Report:   {benchmark_directory / 'report.html'}\n"
        f"Training: {trained.directory} (training_curve.png)\n"
        "MLflow:   make ui",
        highlight=False,
        soft_wrap=True,
    )
    return result


def _benchmark_command(config: Mapping[str, Any], agent: Path) -> str:
    """Return the command that runs the same benchmark, in the same folder."""
    given = (config.get("composition") or {}).get("overrides") or ()
    kept = [one for one in given if one.partition("=")[0] not in ("experiment", "output_dir", "benchmark.agent")]
    return command(shlex.join(["bbrgym", "benchmark", "experiment=demo", *kept]), {"benchmark.agent": agent})
