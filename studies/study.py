"""Studies: what is measured once, and a page of docs/results that says what came out.

A study is a page, `studies/<name>.md.j2` (Markdown with Jinja marks), and what it measures. That is an experiment,
which the page's front matter names, or a module `studies/<name>.py` with three functions:

    jobs() -> Sequence[Job]             what is measured (`bbrgym.benchmark.ledger`)
    work(job) -> Rows                   measures one of them, on a worker
    view(results, figure) -> Mapping    the names that the page uses, from {job's name: rows}; `figure(name, draw)`
                                        returns the address of a figure
    further(results), parts(results, figure)    only in some: `Further`, `Parts`

or, if it is about one agent, a function `of_agent(folder)` that returns an object with these; the shipped policy is the
agent, or the one of `--agent`.

`studies.experiments` has the names that the page of an experiment uses. Every page can use `table`, `cell`, and
`kept`, a sentence that links to the results. The front matter has the fields of `FrontMatter`. Results are kept beside
the page, in docs/results/<name>/runs.parquet.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Protocol

import jinja2
import yaml
from rich.console import Console

from bbrgym.baselines.policy_file import REFERENCE, find_policy
from bbrgym.benchmark.ledger import Entry, Job, ParquetLedger, Rows, measure, unmeasured
from bbrgym.checks import check_integer, check_name, check_number, read_record
from bbrgym.files import write_text
from bbrgym.processes import ProcessExecutor
from studies import page
from studies.experiments import MeasuredExperiment

PROGRAM: Final = str(Path(sys.executable).with_name("bbrgym"))
"""The command `bbrgym` of this environment, for studies that run what a user would."""

FOLDER: Final = Path(__file__).parent
SUFFIX: Final = ".md.j2"
FENCE: Final = "---\n"
OF_AGENTS: Final = Path("runs/studies")
"""Where pages about other agents than the shipped policy are."""


@dataclass(frozen=True)
class FrontMatter:
    """The settings of a study, at the top of its page.

    Attributes:
        minutes: how long it takes on two idle cores, if nothing is kept.
        experiment: the experiment that it measures, of studies/conf or of the package; None for a module.
        overrides: Hydra overrides of the experiment.
        workers: how many jobs run at a time; None for one per core.
        is_partial: whether the page can be made before all jobs are measured.
        part: the template of further pages, in studies; the module says which (`Parts`).
    """

    minutes: float
    experiment: str | None = None
    overrides: Sequence[str] = ()
    workers: int | None = None
    is_partial: bool = False
    part: str | None = None

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


Further = Callable[[Mapping[str, Rows]], Sequence[Job]]
"""A function `further(results)` of a module returns the jobs that the results of `jobs()` call for."""
Parts = Callable[[Mapping[str, Rows], page.AddFigure], Mapping[str, Mapping[str, object]]]
"""A function `parts(results, figure)` of a module returns the names of further pages, and the names that each uses."""


OfAgent = Callable[[Path], Measured]
"""A function `of_agent(folder)` of a module returns what the study measures of the agent in this folder."""


class Study:
    """A study by its name.

    Args:
        name: its name.
        folder: where its page's template is.
        pages: where its page and its results are; None is docs/results, or `OF_AGENTS` with an `agent`.
        agent: the folder of the agent that it is about; None is the shipped policy.

    Raises:
        ValueError: there is no such study, its page has no valid front matter, or it is not about an agent.
        FileNotFoundError: there is no such agent.
    """

    def __init__(self, name: str, folder: Path = FOLDER, pages: Path | None = None, agent: Path | None = None) -> None:
        check_name("study", name, names(folder))
        self.name = name
        self._folder = folder
        self._agent = REFERENCE if agent is None else find_policy(agent)
        pages = pages or (page.RESULTS if agent is None else OF_AGENTS)
        self.page = pages / f"{name}.md"
        self.ledger = ParquetLedger(pages / name / "runs.parquet")
        _, front, self._template = (folder / f"{name}{SUFFIX}").read_text(encoding="utf-8").split(FENCE, 2)
        self.settings = read_record(FrontMatter, f"the front matter of {name}{SUFFIX}", yaml.safe_load(front))
        if agent is not None and (self.settings.experiment is not None or self._of_agent is None):
            raise ValueError(f"the study {name!r} is not about one agent, so it takes no --agent")

    @cached_property
    def measured(self) -> Measured:
        """What it measures."""
        if self.settings.experiment is not None:
            return MeasuredExperiment(self.settings.experiment, self.settings.overrides)
        if self._of_agent is not None:
            return self._of_agent(self._agent)
        measured: Measured = self._module
        return measured

    @property
    def _module(self) -> Any:
        return importlib.import_module(f"studies.{self.name}")

    @property
    def _of_agent(self) -> OfAgent | None:
        found: OfAgent | None = getattr(self._module, "of_agent", None)
        return found

    @property
    def jobs(self) -> Sequence[Job]:
        """What is measured; with what the results of these call for, once all have one."""
        first = self._first
        further: Further | None = getattr(self.measured, "further", None)
        if further is None or len(kept := self.ledger.load(first)) < len(first):
            return first
        return [*first, *further({name: entry.rows for name, entry in kept.items()})]

    @cached_property
    def _first(self) -> Sequence[Job]:
        return self.measured.jobs()

    def left(self) -> list[Job]:
        """Return the jobs that have no result of this code yet."""
        jobs = self.jobs
        return unmeasured(jobs, self.ledger.load(jobs))

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
        before: list[Job] = []
        # Twice, if the results call for further jobs.
        while (left := [job for job in self.left() if only in job.name]) and left != before:
            with ProcessExecutor(self.settings.workers) as executor:
                # A job at a time, for some are trainings that take hours.
                measure(self.measured.work, left, self.ledger, executor, chunk_s=0, console=console, what=self.name)
            before = left

    def results(self) -> dict[str, Rows]:
        """Return what is kept, of this or other code, by the names of the jobs."""
        return {name: entry.rows for name, entry in self.ledger.load(self.jobs).items()}

    def render(self, *, has_figures: bool = False) -> str:
        """Return the page from what is kept, of this or other code; with figures, write these too.

        Raises:
            ValueError: jobs are not measured yet.
        """
        results, shared, figure = self._context(f"{self.name}/", has_figures)
        return self._made(self._template, {**shared, **self.measured.view(results, figure)})

    def parts(self, *, has_figures: bool = False) -> dict[Path, str]:
        """Return the further pages, in the folder of the results, as `render` returns the page."""
        if self.settings.part is None:
            return {}
        results, shared, figure = self._context("", has_figures)
        module: Any = self.measured
        parts: Parts = module.parts
        template = (self._folder / self.settings.part).read_text(encoding="utf-8")
        return {
            self.page.with_suffix("") / f"{name}.md": self._made(template, {**shared, **names})
            for name, names in parts(results, figure).items()
        }

    def _context(
        self, folder: str, has_figures: bool
    ) -> tuple[Mapping[str, Rows], Mapping[str, object], page.AddFigure]:
        """Return what is kept, the names that every page uses, and what adds figures.

        Args:
            folder: the folder of the results, from the page.
            has_figures: whether figures are written.
        """
        jobs = self.jobs
        kept: Mapping[str, Entry] = self.ledger.load(jobs)
        if (missing := len(jobs) - len(kept)) and not self.settings.is_partial:
            raise ValueError(f"{missing} of {len(jobs)} jobs are not measured yet: add --measure")
        shared = {"table": page.table, "cell": page.cell, "kept": self._kept(kept, folder)}
        figure = page.figures_of(self.page, is_written=has_figures)
        return {name: entry.rows for name, entry in kept.items()}, shared, figure

    @staticmethod
    def _made(template: str, context: Mapping[str, object]) -> str:
        environment = jinja2.Environment(
            undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
        )
        return environment.from_string(template).render(context)

    @staticmethod
    def _kept(kept: Mapping[str, Entry], folder: str) -> str:
        """Return what every page says of its results."""
        found = {entry.made_with for entry in kept.values()}
        made = "; ".join(sorted(found - {""}))
        some = "some of them " if "" in found else ""  # of the others it is not known
        return f"[All results]({folder}runs.parquet)" + (f", {some}made with {made}." if made else ".")

    def write(self) -> None:
        """Write the page, its figures and the further pages."""
        write_text(self.page, self.render(has_figures=True))
        for path, text in self.parts(has_figures=True).items():
            write_text(path, text)


def names(folder: Path = FOLDER) -> list[str]:
    """Return the names of all studies."""
    return sorted(path.name.removesuffix(SUFFIX) for path in folder.glob(f"*{SUFFIX}"))
