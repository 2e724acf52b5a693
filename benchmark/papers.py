"""The figures of papers: `bbrgym papers` lists them, runs the experiment of one, and compares it with the paper.

A figure is an experiment of conf/experiment/paper, or of conf/experiment/ablation. What its paper published is in
`bbrgym.benchmark.published`.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any, Final

from omegaconf import OmegaConf
from rich.console import Console

from bbrgym import conf
from bbrgym.benchmark.experiments import compose_experiment, fit_to_engine
from bbrgym.benchmark.paper_verdicts import MEANING, PaperVerdicts
from bbrgym.benchmark.plan import Benchmark
from bbrgym.benchmark.published import Paper, PublishedComparison, compare, load_paper
from bbrgym.benchmark.run import run_benchmark
from bbrgym.benchmark.tables import Heading, print_table
from bbrgym.checks import check_name
from bbrgym.cores import available_cores
from bbrgym.envs.engine import EngineError, check_is_available
from bbrgym.interruption import SAME_COMMAND, resumed_by
from bbrgym.options import OptionParser
from bbrgym.terminal import make_console

GROUPS: Final = ("paper", "ablation")
"""Folders of conf/experiment with the experiments of papers."""
ENGINES: Final = ("native", "ns3")
FOLDER: Final = Path("runs/papers")
PAGES: Final = {"acd": "bbr-acd", "acw": "bbr-acw", "dabbr": "da-bbr", "fbbr2": "f-bbr2"}
"""The algorithm of a paper by what the names of its figures begin with, where these differ."""


def figures() -> list[str]:
    """Return the names of all figures: `acw-jain`, and for ablations `ablation/da-bbr`."""
    named = [name for name in conf.choices("experiment") if name.partition("/")[0] in GROUPS]
    return sorted((name.removeprefix("paper/") for name in named), key=lambda name: ("/" in name, name))


class PaperExperiment:
    """The experiment of a figure.

    Args:
        name: one of `figures`.
        engine: one of `ENGINES`.
        is_full: whether it has the durations and repeats of the paper.
        settings: Hydra overrides.

    Raises:
        ValueError: there is no such figure or engine, or the settings are not valid.
    """

    def __init__(self, name: str, engine: str = "ns3", *, is_full: bool = False, settings: Sequence[str] = ()) -> None:
        self.name = name.removeprefix("paper/")
        self.is_full = is_full
        self.settings = settings
        check_name("figure", self.name, figures())
        check_name("engine", engine, ENGINES)
        config = self._compose(engine) if settings else {**self._outline, "engine": {"name": engine}}
        self.config, self.changes = fit_to_engine(config)

    def _compose(self, engine: str) -> dict[str, Any]:
        preset = f"preset={'full' if self.is_full else 'quick'}"
        composed = compose_experiment(self.experiment, [f"engine={engine}", preset, "tracking=none", *self.settings])
        config: dict[str, Any] = composed["benchmark"]
        return config

    @cached_property
    def _outline(self) -> dict[str, Any]:
        """The configuration by its file and that of all papers, without an engine and without Hydra's second."""
        root = resources.files(conf)
        files = [root / "benchmark" / "paper.yaml", root / "experiment" / f"{self.experiment}.yaml"]
        loaded = [OmegaConf.create(file.read_text(encoding="utf-8")) for file in files]
        merged = OmegaConf.merge(*loaded, {"preset": "full" if self.is_full else "quick"})
        plain: Any = OmegaConf.to_container(merged, resolve=True)
        return {**plain["benchmark"], "name": plain["name"]}

    @property
    def experiment(self) -> str:
        """Its name in conf/experiment."""
        return self.name if "/" in self.name else f"paper/{self.name}"

    @property
    def is_ablation(self) -> bool:
        """Whether it is the ablation of an algorithm."""
        return "/" in self.name

    @cached_property
    def benchmark(self) -> Benchmark:
        """Competitors, scenarios and seeds."""
        return Benchmark.from_dict(self.config)

    @cached_property
    def paper(self) -> Paper:
        """What the paper published of it."""
        entries = self._outline["competitors"]  # settings may leave some out
        competitors = [entry if isinstance(entry, str) else entry["name"] for entry in entries]
        return load_paper(self.experiment, self.benchmark.scenarios, competitors)

    def seconds(self) -> float:
        """Return about how long all its runs take on this machine, if nothing else runs."""
        return sum(self.benchmark.cost_s(run) for run in self.benchmark.runs()) / available_cores()


def page_of(name: str) -> str:
    """Return what the page of a figure's paper is called, after the algorithm that the paper introduced."""
    prefix = name.partition("-")[0]
    return PAGES.get(prefix, prefix)


def papers_parser() -> OptionParser:
    """Return the parser of `bbrgym papers`."""
    parser = OptionParser("papers")
    parser.add_argument(
        "figures", nargs="*", metavar="FIGURE", help="what to run, and key=value for settings; without it, a list"
    )
    parser.add_argument(
        "--engine", default="native", metavar="NAME", help="native takes a minute; ns3 is that of the page of results"
    )
    parser.add_argument("--full", action="store_true", help="the durations and repeats of the paper")
    return parser


def run_papers(arguments: Sequence[str]) -> int:
    """Run the command `bbrgym papers`, and return its exit status."""
    options = papers_parser().parse_intermixed_args(list(arguments))
    settings = [one for one in options.figures if "=" in one]
    named = [one for one in options.figures if "=" not in one]
    check_name("engine", options.engine, ENGINES)
    if not named:
        if settings:
            raise ValueError(f"{settings[0]} is for the experiment of a figure: name one, as in bbrgym papers acw-jain")
        list_figures(make_console(), is_full=options.full)
        return 0
    experiments = [PaperExperiment(name, options.engine, is_full=options.full, settings=settings) for name in named]
    check_is_available(options.engine)
    if failed := sum(run_figure(experiment, FOLDER, make_console()) for experiment in experiments):
        raise EngineError(f"{failed} runs failed; the same command tries these again")
    return 0


def list_figures(console: Console, *, is_full: bool = False) -> None:
    """Print every figure by its paper: what it shows, and about how long it takes in each engine."""
    titles: dict[str, list[list[str]]] = {}
    for name in figures():
        native, ns3 = (PaperExperiment(name, engine, is_full=is_full) for engine in ENGINES)
        paper = ns3.paper
        shows = paper.figure.title if paper.figure is not None else ""
        title = f"{paper.title}. {paper.reference}" if paper.reference else paper.title
        titles.setdefault(title, []).append([name, shows, _minutes(native.seconds()), _minutes(ns3.seconds())])
    for title, rows in titles.items():
        print_table(console, [Heading("figure", kind="key"), "shows", "native", "ns-3"], rows, title)
    console.print(
        f"Times are about those of {available_cores()} idle cores. `bbrgym papers acw-jain` runs one by native, with "
        "--engine ns3 by ns-3.",
        highlight=False,
    )


def run_figure(experiment: PaperExperiment, root: Path, console: Console) -> int:
    """Run what is missing of a figure's experiment, print it beside the paper, and draw both.

    Args:
        experiment: the figure.
        root: what is written goes to <root>/<figure>: the benchmark's folder <engine>, and the picture <engine>.png.
        console: shows progress and the table.

    Returns:
        How many runs failed.
    """
    from bbrgym.benchmark.paper_figures import write_picture  # imports matplotlib, an optional dependency

    engine, folder = experiment.benchmark.engine["name"], root / experiment.name
    shown = experiment.paper.figure.title if experiment.paper.figure is not None else experiment.name
    other = next(one for one in ENGINES if one != engine)
    others = PaperExperiment(experiment.name, other, is_full=experiment.is_full, settings=experiment.settings)
    console.print(
        f"{experiment.name}: {shown}\n{len(experiment.benchmark.runs())} runs by {engine}, about "
        f"{_minutes(experiment.seconds())} if the machine is idle; by {other} about {_minutes(others.seconds())} "
        f"(--engine {other}).",
        highlight=False,
        markup=False,
    )
    for change in experiment.changes:
        console.print(f"Of the experiment: {change}.", highlight=False, markup=False)
    full = ["--full"] if experiment.is_full else []
    command = shlex.join(["bbrgym", "papers", experiment.name, "--engine", engine, *full, *experiment.settings])
    with resumed_by(SAME_COMMAND):
        result = run_benchmark(experiment.config, folder / engine, console, command=command, has_report=False)
    if not result.results.empty:
        rows = compare(experiment.paper, result.results)
        print_comparison(rows, console)
        picture = folder / f"{engine}.png"
        write_picture(picture, experiment.paper.figure, rows, result.results, experiment.benchmark.scenarios)
        console.print(f"Picture: {picture}", highlight=False, markup=False, soft_wrap=True)
    return len(result.failures)


def print_comparison(rows: Sequence[PublishedComparison], console: Console) -> None:
    """Print what was published and measured, with two verdicts on each entry and their counts."""
    verdicts = [PaperVerdicts.of(row) for row in rows]
    table = [
        [short_what(row), row.published, row.measured, verdict.order.removesuffix(" pairs"), verdict.value]
        for row, verdict in zip(rows, verdicts, strict=True)
    ]
    print_table(console, ["quantity", "published", "measured", "order", "value"], table)
    counts = [_count([getattr(verdict, kind) for verdict in verdicts], kind) for kind in ("order", "value")]
    console.print(f"Verdicts: {'; '.join(counts)}.\n{MEANING}", highlight=False, markup=False)


def short_what(row: PublishedComparison) -> str:
    """Return the quantity of a row, with the first and the last of three scenarios or more."""
    scenarios = row.claim.scenarios
    if len(scenarios) < 3:
        return row.what
    return row.what.replace(", ".join(scenarios), f"{scenarios[0]} … {scenarios[-1]} ({len(scenarios)})")


def _count(verdicts: Sequence[str], kind: str) -> str:
    judged = [verdict for verdict in verdicts if verdict != "-"]
    return f"{kind}: {judged.count('yes')} of {len(judged)} agree"


def _minutes(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
