"""The report of a benchmark: one HTML file that needs no other file and no network."""

from __future__ import annotations

import html
import math
import re
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pandas as pd
from omegaconf import OmegaConf

from bbrgym.benchmark import plots, style
from bbrgym.benchmark.metrics import FLOW_METRICS, METRICS, OPTIONAL
from bbrgym.benchmark.results import BenchmarkResult
from bbrgym.benchmark.tables import (
    OVERALL_METRICS,
    short_note,
    SORTED_BY,
    estimate_text,
    overall_table,
    summary_table,
    views,
)
from bbrgym.benchmark.verdicts import MEANING, Verdicts, roles_text, scenario_text, short
from bbrgym.envs.scenario import Scenario
from bbrgym.envs.trace import Trace
from bbrgym.envs.trace_file import load_trace
from bbrgym.extras import optional
from bbrgym.files import write_text

with optional("a report"):
    import jinja2
    from markupsafe import Markup
    from matplotlib.figure import Figure

MOST_SCENARIOS_OVER_TIME: Final = 4
"""How many scenarios have runs over time, which are most of a report's size."""
LEAST_SCALE: Final = 0.85
"""Of a figure on a narrow screen, which then scrolls: text of 9 points is 10 pixels high."""


def write_report(result: BenchmarkResult) -> Path:
    """Write `report.html` of a benchmark, finished or not.

    Scenarios of suites are in the verdicts, and have no section of their own.

    Args:
        result: what `bbrgym.benchmark.results.load_benchmark` returns; the traces are in its directory.

    Returns:
        The report's path, in the benchmark's directory.
    """
    config = result.plan["config"]
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("bbrgym.benchmark"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    in_suites = [name for suite in config.get("suites", {}).values() for name in suite["scenarios"]]
    others = {name: plain for name, plain in config["scenarios"].items() if name not in in_suites}
    page = environment.get_template("report.html.j2").render(
        name=config["name"],
        planned=len(result.plan["runs"]),
        done=result.results["key"].nunique() if not result.results.empty else 0,
        failures=result.failures,
        missing=result.missing,
        flaws=list(dict.fromkeys(result.flaws.values())),
        flawed=len(result.flaws),
        started=datetime.fromisoformat(result.plan["started"]).strftime("%Y-%m-%d %H:%M UTC"),
        provenance=result.plan["provenance"],
        config=config,
        config_yaml=OmegaConf.to_yaml(OmegaConf.create(config)),
        seeds=", ".join(str(seed) for seed in config["seeds"]),
        sorted_by=SORTED_BY,
        short_note=SHORT_NOTE,
        verdicts=_verdicts(Verdicts.of(result), environment) if in_suites else "",
        overall=_overall(result.results, list(others)),
        scenarios=[
            _scenario(name, plain, result, is_over_time=place < MOST_SCENARIOS_OVER_TIME)
            for place, (name, plain) in enumerate(others.items())
        ],
        over_time=MOST_SCENARIOS_OVER_TIME,
        metrics={
            name: metric.description
            for name, metric in METRICS.items()
            if name not in OPTIONAL or _has_values(result.results, name)
        }
        | {f"{name}[i]": f"of flow i: {metric.description}" for name, metric in FLOW_METRICS.items()},
    )
    path = result.directory / "report.html"
    write_text(path, page)
    return path


def _scenario(name: str, plain: dict[str, Any], result: BenchmarkResult, is_over_time: bool) -> dict[str, Any]:
    scenario = Scenario.from_dict(plain)
    section: dict[str, Any] = {
        "name": name,
        "description": scenario.describe(),
        "tables": [],
        "figures": [],
        "runs": [],
    }
    results = result.results
    if results.empty or (results["scenario"] != name).all():
        return section
    results = results[results["scenario"] == name]
    table = summary_table(results).droplevel("scenario")
    section["tables"] = views(table)
    traces = traces_of_one_seed(results, list(table.index), result.directory) if is_over_time else {}
    section["seed"] = int(results["seed"].min())
    section["figures"] = [
        (
            svg(plots.throughput_against_delay(results), f"Throughput against delay, {name}"),
            "Throughput against queueing delay; better is up and to the right. Small points are runs, large points "
            "their means, ellipses one standard deviation (for three or more seeds).",
        ),
        (
            svg(plots.jain_intervals(results), f"Jain's index, {name}"),
            "Fairness: mean over the seeds, 95 % bootstrap interval (bar), and every run (ticks).",
        ),
        (
            svg(plots.shares(results), f"Shares of the throughput, {name}"),
            "Mean share of each flow, labelled with its base RTT.",
        ),
    ]
    if traces:
        section["overview"] = svg(plots.over_time(traces), f"Throughput over time, {name}")
        for competitor, trace in traces.items():
            flows = plots.flow_names(trace, competitor)
            drawn = [
                svg(
                    plots.delay_over_time(trace, names=flows),
                    f"RTT and queueing delay over time, {competitor}, {name}",
                ),
                svg(
                    plots.control_over_time(trace, names=flows),
                    f"Congestion window, pacing and gains over time, {competitor}, {name}",
                ),
            ]
            section["runs"].append((competitor, drawn))
    return section


def _verdicts(verdicts: Verdicts, environment: jinja2.Environment) -> Markup:
    plain = verdicts.result.plan["config"]["scenarios"]
    return Markup(
        environment.get_template("verdicts.html.j2").render(
            verdicts=verdicts,
            meaning=MEANING,
            scenarios={name: Scenario.from_dict(scenario) for name, scenario in plain.items()},
            roles_text=roles_text,
            scenario_text=scenario_text,
            short=short,
        )
    )


def _has_values(results: pd.DataFrame, column: str) -> bool:
    return column in results and bool(results[column].notna().any())


def _overall(results: pd.DataFrame, scenarios: list[str]) -> list[tuple[str, list[str]]]:
    """Return the rows of the table over these scenarios; none for a single scenario."""
    results = results[results["scenario"].isin(scenarios)]
    if results.empty or results["scenario"].nunique() < 2:
        return []
    return [
        (str(competitor), [estimate_text(row, metric) for metric in OVERALL_METRICS])
        for competitor, row in overall_table(results).iterrows()
    ]


def traces_of_one_seed(results: pd.DataFrame, competitors: list[str], directory: Path) -> dict[str, Trace]:
    """Return one trace per competitor, in their order, all with the lowest seed."""
    first = results[results["seed"] == results["seed"].min()].drop_duplicates("competitor").set_index("competitor")
    return {
        competitor: load_trace(directory / "runs" / first.loc[competitor, "key"] / "trace.parquet")
        for competitor in competitors
        if competitor in first.index
    }


def svg(figure: Figure, label: str) -> Markup:
    """Return the figure as an inline SVG element; it scales with the page as far as its text stays readable."""
    width_px = math.ceil(96 * figure.get_size_inches()[0])
    svg = style.svg_text(figure)
    head, body = svg.split(">", 1)
    head = re.sub(r'\s(width|height)="[^"]*"', "", head)
    head += f' role="img" aria-label="{html.escape(label, quote=True)}"'
    head += f' style="width:clamp({round(LEAST_SCALE * width_px)}px,100%,{width_px}px)"'
    return Markup(f"{head}>{body}")
