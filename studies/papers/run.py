"""Run the experiments of the papers and the ablations of their algorithms, and print what agrees."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bbrgym.benchmark.plan import Benchmark
from bbrgym.benchmark.results import BenchmarkResult
from bbrgym.benchmark.run import run_benchmark
from bbrgym.checks import check_name
from studies.experiments import compose_experiment
from studies.papers.published import VERDICTS, Paper, PublishedComparison, compare, paper_of

PRESETS: Final = ("quick", "full")
GROUPS: Final = ("paper", "ablation")
"""Folders of conf/experiment with the experiments of papers."""


@dataclass(frozen=True)
class Experiment:
    """The results of a paper's experiment, or of the ablation of an algorithm."""

    group: str
    name: str
    result: BenchmarkResult
    paper: Paper
    rows: Sequence[PublishedComparison]

    @property
    def is_ablation(self) -> bool:
        """Whether it is the ablation of an algorithm."""
        return self.group == "ablation"


def experiments() -> list[str]:
    """Return the names in conf/experiment of all experiments of papers: `paper/acw-jain`, `ablation/da-bbr` etc."""
    root = resources.files("bbrgym.conf") / "experiment"
    return [
        f"{group}/{name.removesuffix('.yaml')}"
        for group in GROUPS
        if (root / group).is_dir()
        for name in sorted(entry.name for entry in (root / group).iterdir())
        if name.endswith(".yaml")
    ]


def run_papers(
    root: Path,
    preset: str = "quick",
    only: Sequence[str] | None = None,
    overrides: Sequence[str] = (),
    console: Console | None = None,
) -> list[Experiment]:
    """Run the missing runs of the papers' experiments, each a benchmark, one after the other.

    A run that two experiments share is simulated once. Failed runs do not stop the others.

    Args:
        root: the benchmarks go to `<root>/<name of the benchmark>`.
        preset: `quick`, or `full` for the durations and repeats of the papers.
        only: names of experiments, those in `paper/` also without this prefix; None for all.
        overrides: Hydra overrides for every experiment, as `benchmark.executor.workers=1`. Runs are tracked in MLflow
            only with `tracking=mlflow`.
        console: shows progress; None is standard output.
    """
    console = console or Console()
    if preset not in PRESETS:
        raise ValueError(f"preset must be one of {', '.join(PRESETS)}, got {preset!r}")
    changes = [f"preset={preset}", *overrides]
    chosen = _chosen(only)
    configs = {name: compose_experiment(name, ["tracking=none", *changes])["benchmark"] for name in chosen}
    plans = {name: Benchmark.from_dict(config) for name, config in configs.items()}  # Refuses before anything runs.
    done = []
    for count, (name, plan) in enumerate(plans.items(), start=1):
        console.print(f"[bold]{escape(name)}[/bold] ({count} of {len(plans)})", highlight=False)
        command = shlex.join(["bbrgym", "benchmark", f"experiment={name}", *changes])
        result = run_benchmark(configs[name], root / plan.name, console, beside=root, command=command)
        paper, (group, _, short) = paper_of(result), name.partition("/")
        done.append(
            Experiment(group=group, name=short, result=result, paper=paper, rows=compare(paper, result.results))
        )
    return done


def print_papers(experiments: Sequence[Experiment], console: Console) -> None:
    """Print a line per experiment: how many of its published entries agree, and where its report is."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("experiment", no_wrap=True)
    for heading in (*VERDICTS, "failed runs"):
        table.add_column(heading.replace(" ", "\n"), justify="right", no_wrap=True)
    table.add_column("report in", no_wrap=True)
    for experiment in experiments:
        verdicts = [row.verdict for row in experiment.rows]
        table.add_row(
            escape(f"{experiment.group}/{experiment.name}"),
            *(str(verdicts.count(verdict)) for verdict in VERDICTS),
            str(len(experiment.result.failures)),
            escape("/".join(experiment.result.directory.parts[-2:])),
        )
    console.print(table)
    root = experiments[0].result.directory.parents[1]
    console.print(f"Reports: {root}/…/report.html", markup=False, highlight=False, style="dim")


def _chosen(only: Sequence[str] | None) -> list[str]:
    known = experiments()
    if only is None:
        return known
    if not only:
        raise ValueError("only must name at least one experiment, got []")
    names = [name if "/" in name else f"paper/{name}" for name in only]
    for name in names:
        check_name("experiment", name, known)
    return [name for name in known if name in names]
