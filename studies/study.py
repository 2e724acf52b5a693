"""Studies: what is measured once, and a page of docs/results that says what came out.

A study is a page, `studies/<name>.md.j2` (Markdown with Jinja marks), and what it measures. That is an experiment,
which the page's front matter names, or a module `studies/<name>.py` with three functions:

    jobs() -> Sequence[Job]             what is measured (`bbrgym.benchmark.ledger`)
    work(job) -> Rows                   measures one of them, on a worker
    view(results, figure) -> Mapping    the names that the page uses, from {job's name: rows}; `figure(name, draw)`
                                        returns the address of a figure

`studies.experiments` has the names that the page of an experiment uses. Every page can use `table`, `cell`, and
`kept`, a sentence that links to the results. The front matter has the fields of `FrontMatter`. Results are kept beside
the page, in docs/results/<name>/runs.parquet.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Protocol

import jinja2
import yaml
from rich.console import Console

from bbrgym.benchmark.ledger import Entry, Job, ParquetLedger, Rows, measure, unmeasured
from bbrgym.checks import check_integer, check_name, check_number, read_record
from bbrgym.files import write_text
from bbrgym.processes import ProcessExecutor
from studies import page
from studies.experiments import MeasuredExperiment

FOLDER: Final = Path(__file__).parent
PAGES: Final = FOLDER.parent / "docs" / "results"
SUFFIX: Final = ".md.j2"
FENCE: Final = "---\n"


@dataclass(frozen=True)
class FrontMatter:
    """The settings of a study, at the top of its page.

    Attributes:
        minutes: how long it takes on two idle cores, if nothing is kept.
        experiment: the experiment that it measures, of studies/conf or of the package; None for a module.
        overrides: Hydra overrides of the experiment.
        workers: how many jobs run at a time; None for one per core.
        is_partial: whether the page can be made before all jobs are measured.
    """

    minutes: float
    experiment: str | None = None
    overrides: Sequence[str] = ()
    workers: int | None = None
    is_partial: bool = False

    def __post_init__(self) -> None:
        check_number("minutes", self.minutes, above=0)
        if self.workers is not None:
            check_integer("workers", self.workers, at_least=1)


class Measured(Protocol):
    """What a study measures: a module, or an experiment."""

    def jobs(self) -> Sequence[Job]:
        """Return what is measured."""

    @property
    def work(self) -> Callable[[Any], Rows]:
        """The function that measures a job."""

    def view(self, results: Mapping[str, Rows], figure: page.AddFigure) -> Mapping[str, object]:
        """Return the names that the page uses."""


class Study:
    """A study by its name.

    Raises:
        ValueError: there is no such study, or its page has no valid front matter.
    """

    def __init__(self, name: str, folder: Path = FOLDER, pages: Path = PAGES) -> None:
        check_name("study", name, names(folder))
        self.name = name
        self.page = pages / f"{name}.md"
        self.ledger = ParquetLedger(pages / name / "runs.parquet")
        _, front, self._template = (folder / f"{name}{SUFFIX}").read_text(encoding="utf-8").split(FENCE, 2)
        self.settings = read_record(FrontMatter, f"the front matter of {name}{SUFFIX}", yaml.safe_load(front))

    @cached_property
    def measured(self) -> Measured:
        """What it measures."""
        if self.settings.experiment is not None:
            return MeasuredExperiment(self.settings.experiment, self.settings.overrides)
        module: Any = importlib.import_module(f"studies.{self.name}")
        measured: Measured = module
        return measured

    @cached_property
    def jobs(self) -> Sequence[Job]:
        """What is measured."""
        return self.measured.jobs()

    def left(self) -> list[Job]:
        """Return the jobs that have no result of this code yet."""
        return unmeasured(self.jobs, self.ledger.load(self.jobs))

    def measure(self, console: Console, only: str = "") -> None:
        """Measure what is left; results are kept as they come, so that the same call resumes.

        Args:
            console: shows the progress.
            only: measure no job whose name does not contain this.

        Raises:
            ValueError: no job has this in its name.
            EngineError: some jobs failed; the others are kept.
        """
        if not any(only in job.name for job in self.jobs):
            shown = ", ".join(repr(job.name) for job in self.jobs[:3])
            raise ValueError(f"no job has {only!r} in its name; the first of {len(self.jobs)} jobs: {shown}")
        if left := [job for job in self.left() if only in job.name]:
            with ProcessExecutor(self.settings.workers) as executor:
                # A job at a time, for some are trainings that take hours.
                measure(self.measured.work, left, self.ledger, executor, chunk_s=0, console=console, what=self.name)

    def results(self) -> dict[str, Rows]:
        """Return what is kept, of this or other code, by the names of the jobs."""
        return {name: entry.rows for name, entry in self.ledger.load(self.jobs).items()}

    def render(self, *, has_figures: bool = False) -> str:
        """Return the page from what is kept, of this or other code; with figures, write these too.

        Raises:
            ValueError: jobs are not measured yet.
        """
        kept: Mapping[str, Entry] = self.ledger.load(self.jobs)
        if (missing := len(self.jobs) - len(kept)) and not self.settings.is_partial:
            raise ValueError(f"{missing} of {len(self.jobs)} jobs are not measured yet: add --measure")
        results = {name: entry.rows for name, entry in kept.items()}
        figure = page.figures_of(self.page, is_written=has_figures)
        environment = jinja2.Environment(
            undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
        )
        shared = {"table": page.table, "cell": page.cell, "kept": self._kept(kept)}
        context = {**shared, **self.measured.view(results, figure)}
        return environment.from_string(self._template).render(context)

    def _kept(self, kept: Mapping[str, Entry]) -> str:
        """Return what every page says of its results."""
        found = {entry.made_with for entry in kept.values()}
        made = "; ".join(sorted(found - {""}))
        some = "some of them " if "" in found else ""  # of the others it is not known
        return f"[All results]({self.name}/runs.parquet)" + (f", {some}made with {made}." if made else ".")

    def write(self) -> None:
        """Write the page and its figures."""
        write_text(self.page, self.render(has_figures=True))


def names(folder: Path = FOLDER) -> list[str]:
    """Return the names of all studies."""
    return sorted(path.name.removesuffix(SUFFIX) for path in folder.glob(f"*{SUFFIX}"))
