"""The report of a benchmark: one HTML file that needs no other file and no network."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pandas as pd
from omegaconf import OmegaConf

from bbrgym.baselines import registry
from bbrgym.benchmark import page, plots, style
from bbrgym.benchmark.metrics import FLOW_METRICS, METRICS, OPTIONAL
from bbrgym.benchmark.results import BenchmarkResult
from bbrgym.benchmark.tables import (
    has_several_flows,
    identical_texts,
    listed,
    missing_scenarios,
    overall_rows,
    overall_table,
    run_table,
    short_note,
    sorted_text,
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
    marks = marks_of_report(config)
    text = environment.get_template("report.html.j2").render(
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
        sorted_by=sorted_text(result.results),
        page_style=Markup(page.STYLE),
        page_script=Markup(page.SCRIPT),
        headline=headline(result, list(others)),
        identical=identical_texts(result.results),
        verdicts=_verdicts(Verdicts.of(result), environment) if in_suites else "",
        overall=_overall(result.results, list(others)),
        scenarios=[
            _scenario(name, plain, result, marks, is_over_time=place < MOST_SCENARIOS_OVER_TIME)
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
    write_text(path, text)
    return path


def marks_of_report(config: Mapping[str, Any]) -> dict[str, style.Mark]:
    """Return the mark of each competitor and of each other algorithm in a benchmark's scenarios."""
    competitors = [str(competitor["name"]) for competitor in config["competitors"]]
    rivals = [flow["algorithm"] for plain in config["scenarios"].values() for flow in plain["flows"]]
    names = dict.fromkeys([*competitors, *(name for name in rivals if name in registry.controllers())])
    return style.marks_of([name for name in names if name != "agent" or name in competitors])


def _scenario(
    name: str, plain: dict[str, Any], result: BenchmarkResult, marks: plots.Marks, is_over_time: bool
) -> dict[str, Any]:
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
    section["short_note"] = short_note(table)
    traces = traces_of_one_seed(results, list(table.index), result.directory) if is_over_time else {}
    section["seed"] = int(results["seed"].min())
    given = result.plan["config"]["roles"]
    roles = range(len(scenario.flows)) if given == "all" else given
    section["figures"] = [
        (
            svg(plots.throughput_against_delay(results, marks=marks), f"Throughput against delay, {name}"),
            "Throughput against queueing delay; better is up and to the right. Small points are runs, large points "
            "their means, ellipses one standard deviation (for three or more seeds).",
        )
    ]
    if has_several_flows(results):
        section["figures"] += [
            (
                svg(plots.jain_intervals(results, marks=marks), f"Jain's index, {name}"),
                "Fairness: mean over the seeds, 95 % bootstrap interval (bar), and every run (ticks).",
            ),
            (
                svg(plots.shares(results, marks=marks, roles=roles), f"Shares of the throughput, {name}"),
                "Mean share of each flow, labelled with its base RTT.",
            ),
        ]
    if traces:
        section["overview"] = svg(plots.over_time(traces, marks=marks, roles=roles), f"Throughput over time, {name}")
        for competitor, trace in traces.items():
            flows = plots.flow_names(trace, competitor, roles)
            drawn = [
                svg(
                    plots.delay_over_time(trace, names=flows, marks=marks),
                    f"RTT and queueing delay over time, {competitor}, {name}",
                ),
                svg(
                    plots.control_over_time(trace, names=flows, marks=marks),
                    f"Congestion window, pacing and gains over time, {competitor}, {name}",
                ),
            ]
            section["runs"].append((competitor, drawn))
    return section


def headline(result: BenchmarkResult, scenarios: Sequence[str]) -> str:
    """Return what a benchmark shows, in a sentence or two; empty without runs.

    Args:
        result: what `bbrgym.benchmark.results.load_benchmark` returns.
        scenarios: those that belong to no suite.
    """
    if result.results.empty:
        return ""
    if not scenarios:
        verdicts = Verdicts.of(result)
        shown = verdicts.competitors[:MOST_IN_HEADLINE]
        return "; ".join(f"{name}: {verdicts.counts(name)}" for name in shown) + "."
    results = result.results[result.results["scenario"].isin(scenarios)]
    if results.empty:
        return ""
    missing = missing_scenarios(results)
    complete = [name for name, lacks in missing.items() if not lacks]
    if not complete:
        return f"No competitor has runs in all {len(scenarios)} scenarios."
    results = results[results["competitor"].isin(complete)]
    overall = overall_table(results)
    means = run_table(results).groupby(level="competitor", sort=False)[[*_LEADERS]].mean()
    means["link_jain"] = overall["link_jain", "mean"]
    found = [_leaders(means, name, *how) for name, how in _LEADERS.items()]
    if has_several_flows(results):
        found.insert(0, _leaders(means, "link_jain", "shares most equally", "share most equally", "Jain {:.2f}", True))
    is_whole = len(complete) == len(missing)
    every = f"{len(scenarios)} scenarios" if is_whole else f"all {len(scenarios)} scenarios"
    where = f"in {every}" if len(scenarios) > 1 else f"in {scenarios[0]}"
    some = f"{len(means)} competitors" if is_whole else f"the {len(means)} of {len(missing)} competitors with runs"
    sentence = f"Of {some} {where}, {', '.join(found[:-1])}, and {found[-1]}."
    if len(means) == 1:
        jain = [f"Jain {means['link_jain'].iloc[0]:.2f}"] if has_several_flows(results) else []
        link, queue = (text.format(means[name].iloc[0]) for name, (_, _, text, _) in _LEADERS.items())
        sentence = f"{means.index[0]} {where}: {', '.join([*jain, link, queue])}."
    agent = "agent"
    if agent not in means.index or len(means) == 1:
        return sentence
    place = list(overall.index).index(agent) + 1
    return f"{sentence} {agent} is number {place} of {len(overall)}, {sorted_text(results)}."


MOST_IN_HEADLINE: Final = 3
"""How many names or verdicts a headline has."""

_LEADERS: Final = {
    "link_utilisation": ("uses most of the link", "use most of the link", "{:.1%}", True),
    "link_queue_mean_ms": ("has the shortest queue", "have the shortest queue", "{:.1f} ms", False),
}
"""Metric: what the best competitor does, and what several do; how the value is written; whether most is best."""


def _leaders(means: pd.DataFrame, metric: str, one: str, several: str, form: str, is_most_best: bool) -> str:
    """Return who is best by a metric; equal are those whose values read the same."""
    values = means[metric]
    text = form.format(values.max() if is_most_best else values.min())
    names = [str(name) for name, value in values.items() if form.format(value) == text]
    if len(names) > MOST_IN_HEADLINE:
        return f"{names[0]} and {len(names) - 1} others {several} ({text})"
    return f"{listed(names)} {several if len(names) > 1 else one} ({text})"


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


def _overall(results: pd.DataFrame, scenarios: list[str]) -> dict[str, Any]:
    """Return the table over these scenarios; empty for a single scenario."""
    results = results[results["scenario"].isin(scenarios)]
    if results.empty or results["scenario"].nunique() < 2:
        return {}
    headings, rows = overall_rows(results)
    return {"headings": headings, "rows": rows}


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
