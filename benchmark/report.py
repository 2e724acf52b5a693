"""The report of a benchmark: one HTML file that needs nothing else, and no network."""

from __future__ import annotations

import html
import math
import re
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import jinja2
import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure
from omegaconf import OmegaConf

from bbrgym.benchmark import plots
from bbrgym.benchmark.paper_figures import INTERVALS, paper_figure
from bbrgym.benchmark.published import Compared, Paper, PaperFigure, compare
from bbrgym.benchmark.run import BenchmarkResult, load_benchmark, load_trace
from bbrgym.benchmark.tables import (
    HEADINGS,
    METRICS,
    METRICS_OF_FLOWS,
    SORTED_BY,
    cells,
    league_table,
    overall_table,
    percent,
    with_interval,
)
from bbrgym.envs.scenario import Scenario
from bbrgym.envs.trace import Trace
from bbrgym.files import write_text

MOST_SCENARIOS_OVER_TIME: Final = 4
"""Of so many scenarios a report shows runs over time, which are nearly all of its size."""


def write_report(directory: Path) -> Path:
    """Write `report.html` of what is there of a benchmark, finished or not.

    Args:
        directory: the benchmark's directory, as `run_benchmark` makes it.

    Returns:
        The report's path.

    Raises:
        FileNotFoundError: the directory has no benchmark.
    """
    result = load_benchmark(directory)
    config = result.plan["config"]
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("bbrgym.benchmark"), autoescape=True, trim_blocks=True, lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )  # fmt: skip
    page = environment.get_template("report.html.j2").render(
        name=config["name"],
        planned=len(result.plan["runs"]),
        done=result.results["key"].nunique() if not result.results.empty else 0,
        failures=result.failures,
        missing=result.missing,
        started=datetime.fromisoformat(result.plan["started"]).strftime("%Y-%m-%d %H:%M UTC"),
        provenance=result.plan["provenance"],
        config=config,
        config_yaml=OmegaConf.to_yaml(OmegaConf.create(config)),
        seeds=", ".join(str(seed) for seed in config["seeds"]),
        headings=HEADINGS,
        sorted_by=SORTED_BY,
        paper=_paper(result),
        overall=_overall(result.results),
        scenarios=[
            _scenario(name, plain, result, is_over_time=place < MOST_SCENARIOS_OVER_TIME)
            for place, (name, plain) in enumerate(config["scenarios"].items())
        ],
        over_time=MOST_SCENARIOS_OVER_TIME,
        metrics=METRICS | {f"{name}[i]": f"of flow i: {meaning}" for name, meaning in METRICS_OF_FLOWS.items()},
    )
    path = directory / "report.html"
    write_text(path, page)
    return path


def paper_of(result: BenchmarkResult) -> Paper | None:
    """The experiment of a paper that the benchmark is; None if it is another.

    Raises:
        ValueError: what is written of the paper is not possible.
    """
    config = result.plan["config"]
    if not config.get("paper"):
        return None
    return Paper.from_dict(
        config["paper"], list(config["scenarios"]), [entry["name"] for entry in config["competitors"]]
    )


def drawn(figure: PaperFigure, paper: Paper, result: BenchmarkResult) -> Figure | None:
    """A figure of a paper, of what is there of its runs; None if that is nothing."""
    results = result.results
    if figure.scenario is not None:
        results = results[results["scenario"] == figure.scenario]
    if results.empty:
        return None
    scenarios = {name: Scenario.from_dict(plain) for name, plain in result.plan["config"]["scenarios"].items()}
    traces = None
    if figure.kind == "time":
        competitors = [str(name) for name in results["competitor"].unique()]
        traces = _traces_of_one_seed(results, competitors, result.directory)
    return paper_figure(figure, result.results, scenarios, paper.published, traces)


def caption(figure: PaperFigure, result: BenchmarkResult) -> str:
    """What the lines and bars of a paper's figure are."""
    if figure.kind != "time":
        return INTERVALS
    results = result.results
    return f"One run, seed {results.loc[results['scenario'] == figure.scenario, 'seed'].min()}."


def reason(row: Compared) -> str:
    """Why a published entry and the measurement disagree; empty if they do not."""
    if row.because or row.agrees is not False:
        return row.because
    return f"Measured {row.measured} instead of {row.published}; the cause is not isolated yet."


def ratio(row: Compared) -> str:
    """Measured over published value; a dash if there is none."""
    return f"{row.ratio:.2f}" if math.isfinite(row.ratio) else "-"


def _paper(result: BenchmarkResult) -> dict[str, Any] | None:
    paper = paper_of(result)
    if paper is None:
        return None
    figures = [
        (_svg(shown, figure.title), caption(figure, result))
        for figure in paper.figures
        if (shown := drawn(figure, paper, result)) is not None
    ]
    return {
        "paper": paper,
        "has_link": paper.url.startswith(("https://", "http://")),
        "figures": figures,
        "rows": [
            {
                "what": row.what,
                "published": row.published,
                "wording": row.claim.wording,
                "measured": row.measured,
                "agreement": row.agreement,
                "is_bad": row.agrees is False,
                "ratio": ratio(row),
                "reason": reason(row),
            }
            for row in compare(paper, result.results)
        ],
    }


def _scenario(name: str, plain: dict[str, Any], result: BenchmarkResult, is_over_time: bool) -> dict[str, Any]:
    scenario = Scenario.from_dict(plain)
    section: dict[str, Any] = {"name": name, "description": describe(scenario), "rows": [], "figures": [], "runs": []}
    results = result.results
    if results.empty or (results["scenario"] != name).all():
        return section
    results = results[results["scenario"] == name]
    table = league_table(results).loc[name]
    section["rows"] = [(competitor, cells(row)) for competitor, row in table.iterrows()]
    traces = _traces_of_one_seed(results, list(table.index), result.directory) if is_over_time else {}
    section["seed"] = int(results["seed"].min())
    section["figures"] = [
        (
            _svg(plots.throughput_against_delay(results), f"Throughput against delay, {name}"),
            "Throughput against queueing delay; better is up and to the right. Small points are runs, large ones their "
            "means, ellipses one standard deviation (from three seeds on).",
        ),
        (
            _svg(plots.jain_intervals(results), f"Jain's index, {name}"),
            "Fairness: mean over the seeds, 95 % bootstrap interval (bar), and every run (ticks).",
        ),
        (
            _svg(plots.shares(results), f"Shares of the throughput, {name}"),
            "Who gets what: mean share of each flow, labelled with its base RTT.",
        ),
    ]
    if traces:
        section["overview"] = _svg(plots.throughput_panels(traces), f"Throughput over time, {name}")
        section["runs"] = [
            (
                competitor,
                [
                    _svg(draw(trace, names=plots.flow_names(trace, competitor)), f"{what}, {competitor}, {name}")
                    for draw, what in (
                        (plots.delay_over_time, "RTT and queueing delay over time"),
                        (plots.control_over_time, "Congestion window, pacing and gains over time"),
                    )
                ],
            )
            for competitor, trace in traces.items()
        ]
    return section


def _overall(results: pd.DataFrame) -> list[tuple[str, list[str]]]:
    """Rows of the table over all scenarios; none if there is one scenario only."""
    if results.empty or results["scenario"].nunique() < 2:
        return []
    table = overall_table(results).rename(columns={"iqm": "mean"}, level="statistic")
    return [
        (
            str(competitor),
            [
                with_interval(row, "link_jain", "{:.2f}"),
                with_interval(row, "link_utilisation", "{:.2f}"),
                with_interval(row, "queue_ratio", "{:.2f}"),
                percent(row["retransmission_rate", "mean"], digits=2),
            ],
        )
        for competitor, row in table.iterrows()
    ]


def _traces_of_one_seed(results: pd.DataFrame, competitors: list[str], directory: Path) -> dict[str, Trace]:
    """A trace of each competitor, in their order, all of the lowest seed that there is."""
    first = results[results["seed"] == results["seed"].min()].drop_duplicates("competitor").set_index("competitor")
    return {
        competitor: load_trace(directory / "runs" / first.loc[competitor, "key"] / "trace.parquet")
        for competitor in competitors
        if competitor in first.index
    }


def describe(scenario: Scenario) -> str:
    """One sentence that says what is simulated."""
    buffer = (
        f"{scenario.buffer_packets} packets"
        if scenario.buffer_packets is not None
        else f"{1.0 if scenario.buffer_bdp is None else scenario.buffer_bdp:g} BDP ({scenario.queue_packets} packets)"
    )
    parts = [f"{scenario.rate_mbps:g} Mbit/s", f"{_queue(scenario)} buffer of {buffer}", f"{scenario.duration_s:g} s"]
    if scenario.loss:
        bursts = scenario.loss_burst_packets
        parts.append(f"{scenario.loss:.2%} random loss" + (f" in bursts of {bursts:g} packets" if bursts else ""))
    if len(scenario.rate_schedule) > 6:
        rates = [rate for _, rate in scenario.rate_schedule]
        parts.append(f"{len(rates)} changes of the rate, {min(rates):g} to {max(rates):g} Mbit/s")
    elif scenario.rate_schedule:
        changes = ", ".join(f"{rate:g} Mbit/s at {time:g} s" for time, rate in scenario.rate_schedule)
        parts.append(f"rate changes to {changes}")
    flows = []
    for index, flow in enumerate(scenario.flows):
        detail = f"flow {index}: {flow.rtt_ms:g} ms"
        if flow.start_s:
            detail += f" from {flow.start_s:g} s"
        if flow.stop_s is not None:
            detail += f" to {flow.stop_s:g} s"
        if flow.size_bytes is not None:
            detail += f", {flow.size_bytes / 1e6:g} MB"
        if flow.jitter_ms:
            detail += f", jitter of up to {flow.jitter_ms:g} ms"
        flows.append(detail)
    return f"{', '.join(parts)}; {'; '.join(flows)}."


def _queue(scenario: Scenario) -> str:
    if scenario.queue == "droptail":
        return "droptail"
    return f"CoDel ({scenario.codel_target_ms:g} ms in {scenario.codel_interval_ms:g} ms)"


def _svg(figure: Figure, label: str) -> Markup:
    """The figure as an inline SVG element that grows with the page up to its own size."""
    width_in = figure.get_size_inches()[0]
    svg = plots.svg_text(figure)
    head, body = svg.split(">", 1)
    head = re.sub(r'\s(width|height)="[^"]*"', "", head)
    head += f' role="img" aria-label="{html.escape(label, quote=True)}" style="max-width:{math.ceil(width_in * 96)}px"'
    return Markup(f"{head}>{body}")
