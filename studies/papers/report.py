"""The section that a paper's experiment has in its benchmark's report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import jinja2
from matplotlib.figure import Figure

from bbrgym.benchmark.report import svg, traces_of_one_seed
from bbrgym.benchmark.results import BenchmarkResult
from bbrgym.envs.scenario import Scenario
from studies.papers.figures import INTERVALS, paper_figure
from studies.papers.published import CLAIMS, Paper, PaperFigure, PublishedComparison, compare, load_paper


def paper_sections(result: BenchmarkResult, claims: Path = CLAIMS) -> Sequence[str]:
    """Return the paper's section of a report, as HTML: for `bbrgym.benchmark.report.write_report`.

    Raises:
        ValueError: the benchmark is not the experiment of a paper.
    """
    paper = paper_of(result, claims)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    section = environment.get_template("section.html.j2").render(
        paper=paper,
        has_link=paper.url.startswith(("https://", "http://")),
        figures=[
            (svg(shown, figure.title), caption(figure, result))
            for figure in paper.figures
            if (shown := drawn(figure, paper, result)) is not None
        ],
        rows=compare(paper, result.results),
        ratio=ratio,
        reason=reason,
    )
    return [section]


def paper_of(result: BenchmarkResult, claims: Path = CLAIMS) -> Paper:
    """Return the paper whose experiment a benchmark is, by the benchmark's name `<group>-<preset>/<experiment>`.

    Raises:
        ValueError: there is no such paper, or its claims are not valid.
    """
    config = result.plan["config"]
    group, _, name = config["name"].partition("/")
    return load_paper(
        f"{group.rpartition('-')[0]}/{name}",
        {name: Scenario.from_dict(plain) for name, plain in config["scenarios"].items()},
        [entry["name"] for entry in config["competitors"]],
        claims,
    )


def drawn(figure: PaperFigure, paper: Paper, result: BenchmarkResult) -> Figure | None:
    """Draw a figure of a paper from the runs that are done; None if there are none."""
    results = result.results
    if figure.scenario is not None:
        results = results[results["scenario"] == figure.scenario]
    if results.empty:
        return None
    scenarios = {name: Scenario.from_dict(plain) for name, plain in result.plan["config"]["scenarios"].items()}
    traces = None
    if figure.kind == "time":
        competitors = [str(name) for name in results["competitor"].unique()]
        traces = traces_of_one_seed(results, competitors, result.directory)
    return paper_figure(figure, result.results, scenarios, paper.published, traces)


def caption(figure: PaperFigure, result: BenchmarkResult) -> str:
    """Return what the lines and bars of a paper's figure are."""
    if figure.kind != "time":
        return INTERVALS
    results = result.results
    return f"One run, seed {results.loc[results['scenario'] == figure.scenario, 'seed'].min()}."


def reason(row: PublishedComparison) -> str:
    """Return why a published entry and the measurement disagree; empty if they do not."""
    if row.because or row.agrees is not False:
        return row.because
    return f"Measured {row.measured} instead of {row.published}; the cause is not isolated yet."


def ratio(row: PublishedComparison) -> str:
    """Return measured over published value; a dash if there is none."""
    return f"{row.ratio:.2f}" if math.isfinite(row.ratio) else "-"
