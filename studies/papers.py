"""The figures of papers in ns-3: what was published and what comes out, on a page per paper.

Figures share runs, each of which is one job. A figure that is not measured yet is shown as older code measured it
(`page.load_older`).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import pandas as pd

from bbrgym.benchmark.ledger import Rows
from bbrgym.benchmark.paper_figures import paper_figure
from bbrgym.benchmark.paper_verdicts import MEANING, PaperVerdicts
from bbrgym.benchmark.papers import PaperExperiment, figures, page_of
from bbrgym.benchmark.plan import Benchmark, Run
from bbrgym.benchmark.published import AXES, VERDICTS, Paper, PublishedComparison, compare
from bbrgym.benchmark.single_run import rows_of
from bbrgym.benchmark.tables import summary_table
from studies import page

ENGINE: Final = "ns3"
HEADINGS: Final = ("quantity", "published", "measured", "order", "value", "ratio")
COLUMNS: Final = (
    "flow",
    "algorithm",
    "rtt_ms",
    "active_s",
    "throughput_mbps",
    "send_rate_mbps",
    "arrived_mbps",
    "inorder_goodput_mbps",
    "received_bytes",
    "sent_packets",
    "retransmissions",
    "rtt_mean_ms",
    "rtt_p95_ms",
    "rtt_peak_ms",
    "share",
    "link_duration_s",
    "link_active_s",
    "link_rate_mbps",
    "link_jain",
    "link_queue_mean_ms",
    "link_drops",
    "link_random_losses",
    "convergence_s",
    "equilibrium_s",
)
"""What is kept of a flow: what the pages need, of `bbrgym.benchmark.metrics.MEASURED`."""


@dataclass(frozen=True)
class PaperRun:
    """A run that some figures have.

    Attributes:
        figures: their names; the run is called as in the first.
        run: what runs.
        engine: of the benchmark.
        warmup: fraction of its duration that is not measured.
    """

    figures: tuple[str, ...]
    run: Run
    engine: Mapping[str, Any]
    warmup: float

    @property
    def name(self) -> str:
        """What the ledger calls it."""
        return f"{' '.join(self.figures)}: {self.run.name}"

    @property
    def code(self) -> str:
        """The hash of what decides its result."""
        return f"{self.run.code}-{hashlib.sha256(' '.join(COLUMNS).encode()).hexdigest()[:8]}"


@cache
def experiments() -> Mapping[str, PaperExperiment]:
    """Return the experiment of each figure."""
    return {name: PaperExperiment(name, ENGINE) for name in figures()}


@cache
def _runs_of(name: str) -> Sequence[Run]:
    return experiments()[name].benchmark.runs()


@cache
def _jobs() -> Mapping[str, PaperRun]:
    """Return the jobs by the keys of their runs."""
    jobs: dict[str, PaperRun] = {}
    for name, experiment in experiments().items():
        for run in _runs_of(name):
            if run.key in jobs:
                before = jobs[run.key]
                figures = tuple(dict.fromkeys([*before.figures, name]))
                jobs[run.key] = replace(before, figures=figures)
            else:
                jobs[run.key] = PaperRun((name,), run, experiment.benchmark.engine, experiment.benchmark.warmup)
    return jobs


def jobs() -> Sequence[PaperRun]:
    """Return every run of every figure, once."""
    return list(_jobs().values())


def work(job: PaperRun) -> Rows:
    """Simulate and measure; which scenario it is, a figure knows."""
    rows = rows_of(job.run, engine=job.engine, warmup=job.warmup)
    return [
        {"trace": row["trace_hash"][:8], **{column: row[column] for column in COLUMNS if column in row}} for row in rows
    ]


def results_of(name: str, results: Mapping[str, Rows]) -> pd.DataFrame | None:
    """Return the results of a figure, as `BenchmarkResult.results`; None if not all are measured."""
    rows = []
    for run in _runs_of(name):
        of_run = results.get(_jobs()[run.key].name)
        if of_run is None:
            return None
        rows += [{**row, **run.names(), "trace_hash": row["trace"]} for row in of_run]
    return pd.DataFrame(rows)


@dataclass(frozen=True)
class Entry:
    """What a paper published about a figure, beside what was measured, as cells of a table of Markdown.

    Attributes:
        what: the quantity.
        published: what was published, with the paper's words.
        measured: what was measured.
        agreement: as of `PublishedComparison`: `yes`, `no`, `5 of 6 pairs`, `unclear`, or `-`.
        order: verdict on the order.
        value: verdict on the value.
        ratio: measured over published value.
    """

    what: str
    published: str
    measured: str
    agreement: str
    order: str
    value: str
    ratio: str

    @classmethod
    def of(cls, row: PublishedComparison) -> Entry:
        """Return the entry of a comparison."""
        verdicts = PaperVerdicts.of(row)
        return cls(
            what=page.cell(row.what),
            published=page.cell(row.published + (f" (“{row.claim.wording}”)" if row.claim.wording else "")),
            measured=page.cell(row.measured),
            agreement=row.agreement,
            order=verdicts.order,
            value=verdicts.value,
            ratio=f"{row.ratio:.2f}" if math.isfinite(row.ratio) else "-",
        )

    @property
    def verdict(self) -> str:
        """One of `VERDICTS`."""
        known = {"yes": "agrees", "unclear": "unclear", "-": "not judged"}
        return known.get(self.agreement, "disagrees")


@dataclass(frozen=True)
class Section:
    """What the page says of a figure: of runs that are kept, or of older code.

    Attributes:
        settings: what all scenarios together are, in one line.
        entries: what was published and measured.
        reasons: why entries disagree, as Markdown.
        variants: of an ablation, the table of its competitors; empty otherwise.
        largest: the largest disagreement.
        is_older: whether older code measured it, which kept no runs.
    """

    settings: str
    entries: tuple[Entry, ...]
    reasons: str
    variants: str
    largest: str
    is_older: bool = False

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Section:
        """Return the section of a plain mapping, as `dataclasses.asdict` makes it."""
        return cls(**{**plain, "entries": tuple(Entry(**entry) for entry in plain["entries"])})

    @classmethod
    def of(cls, experiment: PaperExperiment, results: pd.DataFrame) -> Section:
        """Return the section of a figure that is measured."""
        rows = compare(experiment.paper, results)
        return cls(
            settings=_settings(experiment.benchmark),
            entries=tuple(Entry.of(row) for row in rows),
            reasons=_reasons(rows),
            variants=_variants(experiment.benchmark, results) if experiment.is_ablation else "",
            largest=_largest_disagreement(rows),
        )

    @property
    def table(self) -> str:
        """What was published and measured, as a table of Markdown."""
        rows = [[getattr(entry, _FIELDS.get(name, name)) for name in HEADINGS] for entry in self.entries]
        return page.table(HEADINGS, rows, numbers=(len(HEADINGS) - 1,))

    def values(self) -> str:
        """Return how many values agree: `5 of 14`."""
        judged = [entry.value for entry in self.entries if entry.value != "-"]
        return f"{judged.count('yes')} of {len(judged)}" if judged else "-"


_FIELDS: Final = {"quantity": "what"}


def sections(results: Mapping[str, Rows]) -> dict[str, Section]:
    """Return every figure's section: of kept results if all of its runs have one, and else of older code."""
    older: dict[str, Any] = page.load_older("papers").get("figures", {})
    found = {}
    for name, experiment in experiments().items():
        measured = results_of(name, results)
        if measured is not None:
            found[name] = Section.of(experiment, measured)
        elif name in older:
            found[name] = Section.from_dict(older[name])
    return found


def view(results: Mapping[str, Rows], figure: page.AddFigure) -> Mapping[str, object]:
    """Return the tables of all figures and of all ablations."""
    found = sections(results)
    return {
        "meaning": MEANING,
        "figures": _summary({name: section for name, section in found.items() if "/" not in name}),
        "ablations": _summary({name: section for name, section in found.items() if "/" in name}),
        "older": [name for name, section in found.items() if section.is_older],
        "missing": [name for name in experiments() if name not in found],
        "older_runs": page.load_older("papers").get("runs", ""),
        "is_measured": any(not section.is_older for section in found.values()),
    }


def parts(results: Mapping[str, Rows], figure: page.AddFigure) -> Mapping[str, Mapping[str, object]]:
    """Return the names that the page of each paper uses."""
    found = sections(results)
    pages: dict[str, list[str]] = {}
    for name in found:
        pages.setdefault(_page(name), []).append(name)
    return {
        paper: {
            "paper": experiments()[names[0]].paper,
            "reference": _reference(replace(experiments()[names[0]].paper, where="")),
            "sections": {title_of(name): found[name] for name in names},
            "places": {title_of(name): page.cell(experiments()[name].paper.where) for name in names},
            "commands": {title_of(name): f"bbrgym papers {name}" for name in names},
            "pictures": {title_of(name): _picture(name, results, figure) for name in names},
            "older": any(found[name].is_older for name in names),
            "is_measured": any(not found[name].is_older for name in names),
        }
        for paper, names in pages.items()
    }


def _page(name: str) -> str:
    """Return the page of a figure: that of its paper, which has the same title."""
    title = experiments()[name].paper.title
    of_paper = (other for other in experiments() if "/" not in other and experiments()[other].paper.title == title)
    return page_of(next(of_paper, name.rpartition("/")[2]))


def title_of(name: str) -> str:
    """Return the heading of a figure; the address of its section follows from it."""
    _, is_ablation, algorithm = name.partition("/")
    return f"{algorithm}: which part has the effect?" if is_ablation else name


def address_of(name: str) -> str:
    """Return the address of a figure's section, from the page of all papers."""
    anchor = re.sub(r"[^\w\- ]", "", title_of(name).lower()).replace(" ", "-")  # as GitHub makes it
    return f"papers/{_page(name)}.md#{anchor}"


def _picture(name: str, results: Mapping[str, Rows], figure: page.AddFigure) -> str:
    """Return the link to the picture of a figure, which shows published numbers too; empty without one."""
    experiment, measured = experiments()[name], results_of(name, results)
    shown, scenarios = experiment.paper.figure, experiment.benchmark.scenarios
    if shown is None:
        return ""
    file = name.replace("/", "-")
    if measured is None:
        address = f"papers/{file}.png"  # as older code has drawn it
    else:
        address = figure(file, lambda: paper_figure(shown, measured, scenarios, experiment.paper.published))
    title = page.cell(shown.title).replace("[", "\\[").replace("]", "\\]")
    return f"![{title}]({Path(address).name})"


def _summary(found: Mapping[str, Section]) -> str:
    rows = []
    for name, section in found.items():
        verdicts = [entry.verdict for entry in section.entries]
        counts = [str(verdicts.count(verdict)) for verdict in VERDICTS]
        link = f"[{name.rpartition('/')[2]}]({address_of(name)})"
        paper = _reference(experiments()[name].paper)
        rows.append([link, paper, *counts, section.values(), section.largest])
    headings = ["experiment", "paper", *VERDICTS, "values near", "largest disagreement"]
    return page.table(headings, rows, numbers=range(2, 7))


def _largest_disagreement(rows: Sequence[PublishedComparison]) -> str:
    if wrong := [row for row in rows if row.agrees is False]:
        # An order has no ratio: it ranks behind all entries that have one.
        worst = max(wrong, key=lambda row: abs(math.log(row.ratio)) if 0 < row.ratio < math.inf else -1.0)
        return page.cell(f"{worst.what}: published {worst.published}, measured {worst.measured}")
    return "none" if any(row.agrees for row in rows) else "nothing could be judged"


def _reasons(rows: Sequence[PublishedComparison]) -> str:
    """Return why entries disagree: one line per reason, and one for the entries without a known reason."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        if row.because:
            reasons.setdefault(row.because, []).append(row.what)
    lines = [f"* {page.cell('; '.join(what))}: {page.cell(_sentence(text))}" for text, what in reasons.items()]
    unexplained = list(dict.fromkeys(row.what for row in rows if row.agrees is False and not row.because))
    if unexplained:
        lines.append(f"* The cause is not isolated yet: {page.cell('; '.join(unexplained))}.")
    return "\n".join(lines)


def _variants(benchmark: Benchmark, results: pd.DataFrame) -> str:
    """Return a table of the competitors: their parameters, and fairness and queue in each scenario."""
    table = summary_table(results)
    names = [str(name) for name in table.index.unique("scenario")]
    rows = []
    for competitor in benchmark.competitors:
        parameters = ", ".join(f"`{name}={value:g}`" for name, value in competitor.parameters.items())
        of_scenarios = [table.loc[[(name, competitor.name)]].iloc[0] for name in names]
        cells = [f"{row['link_jain', 'mean']:.2f}, {row['link_queue_mean_ms', 'mean']:.1f} ms" for row in of_scenarios]
        what = f"`{competitor.algorithm}`" + (f" with {parameters}" if parameters else "")
        rows.append([page.cell(competitor.name), what, *cells])
    return page.table(["competitor", "algorithm", *map(page.cell, names)], rows, numbers=range(2, 2 + len(names)))


def _settings(benchmark: Benchmark) -> str:
    """Return what all scenarios together are, in one line: `Scenario.describe` would need a line for each."""
    scenarios = list(benchmark.scenarios.values())
    parts = []
    for name in ("rate_mbps", "n_flows", "rtt_ratio", "rtt_long_ms", "buffer_bdp", "loss"):
        values = sorted({AXES[name].value(scenario) for scenario in scenarios})
        if (name, values) not in (("loss", [0.0]), ("rtt_ratio", [1.0])):
            parts.append(AXES[name].text(*values))
    durations = ", ".join(f"{duration_s:g}" for duration_s in sorted({s.duration_s for s in scenarios}))
    warmup = f", the first {100 * benchmark.warmup:g} % not measured" if benchmark.warmup else ""
    seeds = ", ".join(str(seed) for seed in benchmark.seeds)
    parts += [f"{durations} s{warmup}", f"seeds {seeds}", f"engine {benchmark.engine['name']}"]
    return page.cell("; ".join(parts))


def _reference(paper: Paper) -> str:
    reference = page.cell(paper.reference or paper.title)
    if re.fullmatch(r"https?://[^\s()<>|]+", paper.url):
        reference = f"[{reference}]({paper.url})"
    return f"{reference}, {page.cell(paper.where)}" if paper.where else reference


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
