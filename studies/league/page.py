"""Write the page of the league: standings with intervals, and the goals of the learned policy."""

from __future__ import annotations

import dataclasses
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bbrgym.benchmark.plots import over_time
from bbrgym.benchmark.statistics import Estimate, estimate, number_text, performance_profile
from bbrgym.benchmark.style import (
    MOST_HIGHLIGHTED,
    OTHERS,
    UNREGISTERED,
    Mark,
    empty_figure,
    fit_y,
    marks_of,
    name_lines,
    name_points,
    panels,
    styled,
)
from bbrgym.envs.scenario import Flow, Scenario
from bbrgym.envs.trace import Trace
from bbrgym.envs.trace_file import load_trace
from studies import page
from studies.league.regret import LEAST_BEST, MOST_REGRET, PARTS, Regret, regret_verdict, regrets
from studies.league.scores import SCORE, SCORES, ScoreComparison, compare_scores, standings
from studies.league.suites import ALONE, CHANGING, DRAWN, FOUND, REDRAWN, League, outside_of
from studies.league.verdicts import (
    HARMS,
    PaperVerdict,
    Worse,
    best_settings,
    harm_verdict,
    harms,
    metric_of,
    paper_verdicts,
)

SHOWN: Final = ("jain", "utilisation", "delay", "retransmission_rate", "rtt_p95", "utility")
"""The scores beside `SCORE` in a table of standings."""

WORST: Final = 10
"""How many of the scenarios with the largest regret a table has."""

DRAWN_OVER_TIME: Final = 4
"""How many of all suites' scenarios with the largest regret the figure has."""


@dataclass(frozen=True)
class Goal:
    """A goal of the learned competitor, what was measured, and whether the goal is reached."""

    wanted: str
    measured: str
    is_reached: bool


def goals(league: League) -> list[Goal]:
    """Return the goals that the league has results for."""
    name, rival = league.plan.learned, league.plan.rival
    found = []
    table = league.scores.get("generalisation")
    if table is not None:
        standing = standings(table)[SCORE]
        best = _best_algorithm(league, "generalisation", standing)
        compared = compare_scores(table, name, best)
        found.append(
            Goal(
                "highest interquartile mean of fair power in the generalisation suite",
                f"{_iqm(standing.loc[name])}, the best algorithm ({best}) "
                f"{_iqm(standing.loc[best])}; difference {_signed(compared)}",
                standing.loc[name, "iqm"] > standing.loc[best, "iqm"],
            )
        )
    for suite, of_suite in _regrets(league).items():
        on_regret = regret_verdict(of_suite)
        found.append(
            Goal(
                f"regret in the suite {suite}: best in at least {LEAST_BEST:.0%} of the scenarios, and more than "
                f"{MOST_REGRET} behind the best competitor, rules included, in none",
                f"best in {_best_in(of_suite)}; above {MOST_REGRET} in {on_regret.above}; largest "
                f"{on_regret.worst.regret.text('.3f')} ({on_regret.worst.scenario})",
                on_regret.is_reached,
            )
        )
    for suite in CHANGING:
        table = league.scores.get(suite)
        if table is not None:
            standing = standings(table)[SCORE]
            best = _best_algorithm(league, suite, standing)
            found.append(
                Goal(
                    f"interval of fair power in the suite {suite} above that of every algorithm",
                    f"{_iqm(standing.loc[name])}, the best algorithm ({best}) {_iqm(standing.loc[best])}",
                    bool(standing.loc[name, "low"] > standing.loc[best, "high"]),
                )
            )
    verdicts = paper_verdicts(league)
    if verdicts:
        first, reached = (sum(flag) for flag in zip(*((v.is_first, v.is_reached) for v in verdicts), strict=True))
        found.append(
            Goal(
                "in each paper's experiment, an interval of the paper's main metric above that of every hand-coded "
                "algorithm, and no other metric more than 2 % worse",
                f"{reached} of {len(verdicts)} experiments; main metric above every algorithm in {first}; "
                f"compared with the algorithms that the paper compares in "
                f"{sum(v.is_reached_against_compared for v in verdicts)}, with the paper's own alone in "
                f"{sum(v.is_reached_against_own for v in verdicts)}"
                f"{_with_best_settings(league)}",
                reached == len(verdicts),
            )
        )
    of_harm = harms(league)
    if not of_harm.empty and {name, rival} <= set(of_harm.index.unique("competitor")):
        verdict = harm_verdict(of_harm, "cubic", name, rival)
        found.append(
            Goal(
                f"harm to CUBIC's throughput no greater than {rival}'s",
                f"{verdict.own:.3f}, {rival} {verdict.other:.3f}; difference "
                f"{_text(verdict.own - verdict.other, verdict.low, verdict.high, '+.3f')}",
                verdict.is_reached,
            )
        )
    return found


def _best_algorithm(league: League, suite: str, standing: Any) -> str:
    algorithms = league.algorithms(suite)
    return next(str(other) for other in standing.index if other in algorithms)


def _with_best_settings(league: League) -> str:
    """Return how many experiments the best setting of each reaches, if there are settings."""
    if not league.plan.settings:
        return ""
    best = best_settings(league)
    return (
        f"; with the best setting of each: {sum(v.is_reached for v in best)}, "
        f"above every algorithm in {sum(v.is_first for v in best)}"
    )


def print_league_goals(league: League, console: Console) -> None:
    """Print the standings of the suites in which all flows are of one kind, and the goals."""
    for suite, table in league.scores.items():
        printed = _rich_table(suite, ["competitor", "fair power", *SHOWN])
        for name, row in standings(table).iterrows():
            printed.add_row(escape(str(name)), *(escape(text) for text in _standing_cells(row)))
        console.print(printed)
    verdicts = paper_verdicts(league)
    if verdicts:
        headings = ["experiment", "metric", league.plan.learned, "best algorithm", "above", "others > 2 % worse"]
        printed = _rich_table("the papers' main metrics", headings)
        for verdict in verdicts:
            printed.add_row(*(escape(text) for text in _verdict_cells(verdict, league.plan.learned)))
        console.print(printed)
    printed = _rich_table("goals", ["goal", "measured", "reached"])
    for goal in goals(league):
        printed.add_row(escape(goal.wanted), escape(goal.measured), "yes" if goal.is_reached else "no")
    console.print(printed)


def _rich_table(title: str, headings: Sequence[str]) -> Table:
    printed = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        printed.add_column(heading)
    return printed


def write_league_page(league: League, path: Path, part: League | None = None) -> None:
    """Write the page, and its figures to a folder beside it that has its name.

    Equal results give equal files, so the page has no date.

    Args:
        league: its finished runs.
        path: the page, in docs/results: it links to `../../studies`.
        part: the part that another engine has simulated, if there is one.

    Raises:
        ValueError: no suite has results.
    """
    if all(result.results.empty for result in league.results.values()):
        raise ValueError(f"the league {league.plan.name} has no results: run `python -m studies.league`")
    blocks = [
        "# The league",
        *_introduction(league),
        "## Goals",
        *_goals(league),
        "## Scores",
        *_definitions(league),
        "## Regret",
        *_regret(league, path),
        "## Generalisation",
        *_suite(league, "generalisation", path),
        "## Fresh draws",
        *_suite(league, "fresh", path),
        "## Wireless links",
        *_suite(league, "wireless", path),
        "## The experiments of the papers",
        *_papers(league),
        "## Beside CUBIC and BBR",
        *_friendliness(league, path),
        "## Varying links",
        *_suite(league, "varying", path),
        "## Rates and RTTs that are drawn anew",
        *_suite(league, REDRAWN, path),
        "## Satellites, and RTTs that change",
        *_suite(league, "paths", path),
    ]
    if FOUND in league.plan.suites:
        blocks += ["## Found by the adversary", *_suite(league, FOUND, path)]
    if part is not None and any(not result.results.empty for result in part.results.values()):
        blocks += ["## A part in ns-3", *_part(part, league)]
    page.write_page(blocks, path)


def _introduction(league: League) -> list[str]:
    results = [result for result in league.results.values() if not result.results.empty]
    first = results[0]
    # Suites share runs, each of which was simulated once.
    wall_s = {key: seconds for result in results for key, seconds in result.wall_s().items()}
    planned = {run["key"] for result in league.results.values() for run in result.plan["runs"]}
    lost = len(planned) - len(wall_s)
    absent = [suite for suite in league.plan.suites if suite not in league.results]
    seeds = first.plan["config"]["seeds"]
    config = next(result.plan["config"] for suite, result in league.results.items() if suite != ALONE)
    names = [f"`{entry['name']}`" for entry in config["competitors"]]
    yardsticks = ", ".join(f"`{name}`" for name in league.plan.yardsticks)
    if yardsticks:
        yardsticks += " are yardsticks, neither learned nor published, and are not judged. "
    blocks = [
        f"The learned policy (`{league.plan.learned}`) and every hand-coded algorithm in the same scenarios with the "
        "same seeds. This page is generated from the results by",
        textwrap.indent(first.plan["provenance"]["command"], "    "),
        f"Competitors: {', '.join(names)}. {yardsticks}Engine "
        f"{first.plan['config']['engine']['name']}, {len(seeds)} seeds ({seeds[0]} to {seeds[-1]}): "
        f"{len(wall_s)} runs, {page.duration(sum(wall_s.values()))} of wall time in total. All settings are in "
        "[league.yaml](../../studies/league/conf/experiment/league.yaml).",
        *page.provenance(result.plan for result in results),
    ]
    if lost:
        failed = f", {league.failures} of them failed" if league.failures else ""
        blocks.append(f"**Unfinished: {lost} of {len(planned)} runs are missing{failed}.**")
    if absent:
        blocks.append(f"**Not run yet: {', '.join(absent)}.**")
    return blocks


def _goals(league: League) -> list[str]:
    rows = [
        [page.cell(goal.wanted), page.cell(goal.measured), "**reached**" if goal.is_reached else "not reached"]
        for goal in goals(league)
    ]
    return [page.table(["goal", "measured", ""], rows)]


def _definitions(league: League) -> list[str]:
    lines = [f"* `{name}`: {page.cell(meaning)}" for name, meaning in SCORES.items()]
    return [
        "A run in which all flows have the same competitor gets these scores, and `fair_power` ranks the competitors. "
        "`utility` has the form of the training reward, so it shows how well an agent has learned; no competitor was "
        "designed for `fair_power`. A flow's fair share is the link's capacity over the number of active flows, "
        "averaged over the measured time in which the flow is active.",
        "\n".join(lines),
        "* An interquartile mean (IQM) leaves out the lowest and the highest quarter of the runs.\n"
        "* [Brackets] are 95 % percentile bootstrap intervals over the seeds within each scenario. *Other scenarios* "
        "are intervals over the scenarios.\n"
        "* The probability of improvement is the fraction of pairs (same scenario, same seed) in which the learned "
        "policy scores higher, averaged over the scenarios; a tie counts half.\n"
        "* Regret is the mean fair power of the best of all other competitors in a scenario, yardsticks included, less "
        "the learned policy's; below 0 the policy is the best. Its cause is the factor of fair power whose logarithm "
        "loses most.\n"
        "* Harm (Ware et al., HotNets 2019) is the fraction that a flow takes of what a victim has alone.",
    ]


def _regrets(league: League) -> dict[str, list[Regret]]:
    """Return the learned competitor's regrets in each suite that has some."""
    found = {suite: regrets(table, league.plan.learned) for suite, table in league.scores.items()}
    return {suite: of_suite for suite, of_suite in found.items() if of_suite}


def _best_in(found: Sequence[Regret]) -> str:
    verdict = regret_verdict(found)
    count = round(verdict.best_in.value * verdict.scenarios)
    return f"{count} of {verdict.scenarios} ({verdict.best_in.text('.0%')})"


def _regret(league: League, path: Path) -> list[str]:
    found = _regrets(league)
    if not found:
        return ["Not run yet."]
    rows = []
    for suite, of_suite in found.items():
        verdict = regret_verdict(of_suite)
        causes = [one.cause for one in of_suite if one.regret.value > 0]
        rows.append(
            [
                suite,
                _best_in(of_suite),
                str(verdict.above),
                verdict.mean.text(".3f"),
                f"{verdict.worst.regret.text('.3f')} ({verdict.worst.scenario})",
                ", ".join(f"{cause} {causes.count(cause)}" for cause in dict.fromkeys(causes)) or "-",
            ]
        )
    headings = ["suite", "best in", f"above {MOST_REGRET} in", "mean", "largest", "causes"]
    every = [(suite, one) for suite, of_suite in found.items() for one in of_suite if one.regret.value > 0]
    worst = sorted(every, key=lambda entry: -entry[1].regret.value)[:DRAWN_OVER_TIME]
    blocks = [
        f"How far `{league.plan.learned}` is behind the best of all others in a scenario. The mean counts scenarios in "
        "which it is the best as 0. Intervals of the columns *best in* and *mean* are over the scenarios. The sections "
        "of the suites have tables of their worst scenarios.",
        page.table(headings, rows, numbers=range(1, 5)),
    ]
    if worst:
        runs = {
            f"{one.scenario}: {name}": trace
            for suite, one in worst
            for name, trace in _traces(league, suite, one).items()
        }
        link = page.write_figure(over_time(runs, ("throughput_mbps", "link_queue_mean_ms")), path, "regret")
        blocks.append(f"![The scenarios with the largest regret over time: throughputs and queueing delay]({link})")
    return blocks


def _traces(league: League, suite: str, regret: Regret) -> dict[str, Trace]:
    """Return the run of the learned competitor and that of the best one, with the first seed that both have."""
    result = league.results[suite]
    keys = result.results[result.results["scenario"] == regret.scenario].groupby(["competitor", "seed"])["key"].first()
    names = (league.plan.learned, regret.best)
    seed = min(set(keys[names[0]].index) & set(keys[names[1]].index))
    return {name: load_trace(result.directory / "runs" / keys[name, seed] / "trace.parquet") for name in names}


def _worst(found: Sequence[Regret], scenarios: Mapping[str, Scenario], learned: str) -> list[str]:
    """Return a table of the scenarios with the largest regret above 0."""
    worst = [one for one in found if one.regret.value > 0][:WORST]
    if not worst:
        return []
    rows = [
        [
            page.cell(one.scenario),
            scenarios[one.scenario].describe_link(),
            "; ".join(_without_jitter(flow).describe() for flow in scenarios[one.scenario].flows),
            one.regret.text(".3f"),
            page.cell(one.best),
            *(f"{number_text(one.own[part], '.3f')}, {number_text(one.other[part], '.3f')}"
              for part in (SCORE, *PARTS)),
            one.cause,
        ]
        for one in worst
    ]  # fmt: skip
    headings = ["scenario", "link", "flows", "regret", "best", "fair power", *PARTS, "cause"]
    return [
        f"The scenarios with the largest regret, with the scores of `{learned}` and of the best competitor:",
        page.table(headings, rows, numbers=(3, *range(5, 6 + len(PARTS)))),
    ]


def _without_jitter(flow: Flow) -> Flow:
    """Return the flow as a table has it: where all have the same jitter, none needs to say so."""
    return dataclasses.replace(flow, jitter_ms=0.0)


def _suite(league: League, suite: str, path: Path) -> list[str]:
    table = league.scores.get(suite)
    if table is None:
        return ["Not run yet."]
    config = league.results[suite].plan["config"]
    scenarios = {name: Scenario.from_dict(plain) for name, plain in config["scenarios"].items()}
    outside = {name: outside_of(scenario, league.plan.training) for name, scenario in scenarios.items()}
    parts = {}
    if suite in DRAWN:
        is_outside = np.array([bool(outside[name]) for name in table.index.get_level_values("scenario")])
        parts = {"inside": table[~is_outside], "outside": table[is_outside]}
    link = page.write_figure(_profiles(table, league), path, f"{suite}-profile")
    return [
        _described(suite, config, outside),
        _standings_table(table, parts),
        f"![Performance profile: fraction of runs above a fair power]({link})",
        *_improvements(table, league),
        *_worst(regrets(table, league.plan.learned), scenarios, league.plan.learned),
    ]


def _described(suite: str, config: dict[str, Any], outside: dict[str, list[str]]) -> str:
    measured = f"the first {100 * config['warmup']:.0f} % of each run are not measured"
    if suite not in DRAWN:
        return f"{len(outside)} scenarios in which all flows have the same competitor; {measured}."
    inside = sum(not reasons for reasons in outside.values())
    return (
        f"{len(outside)} scenarios, drawn once, in which all flows have the same competitor: {inside} inside the "
        f"ranges that agents train on, {len(outside) - inside} outside in rate, RTT, buffer, loss or number of flows; "
        f"{measured}."
    )


def _standings_table(table: pd.DataFrame, parts: Mapping[str, pd.DataFrame] | None = None) -> str:
    """Return the standings; `parts` add a column each with the fair power in other runs."""
    others = {name: standings(part)[SCORE, "iqm"] for name, part in (parts or {}).items() if not part.empty}
    rows = []
    for place, (name, row) in enumerate(standings(table).iterrows(), start=1):
        first, *rest = map(page.cell, _standing_cells(row))
        of_parts = [number_text(float(iqm.get(name, math.nan))) for iqm in others.values()]
        rows.append([str(place), page.cell(name), first, *of_parts, *rest])
    headings = ["", "competitor", "fair power, IQM", *others, *SHOWN]
    return page.table(headings, rows, numbers=(0, *range(2, len(headings))))


def _standing_cells(row: pd.Series) -> list[str]:
    return [
        _iqm(row[SCORE]),
        *(number_text(row[name, "iqm"], ".2%" if name == "retransmission_rate" else "")
          for name in SHOWN),
    ]  # fmt: skip


def _improvements(table: pd.DataFrame, league: League) -> list[str]:
    name = league.plan.learned
    others = [str(other) for other in standings(table).index if other != name]
    rows = []
    for other in others:
        compared = compare_scores(table, name, other)
        better, low = compared.improvement, compared.scenarios_low
        rows.append(
            [
                page.cell(other),
                _text(*better, ".2f"),
                _signed(compared),
                "-" if math.isnan(low) else f"[{low:+.3f} {compared.scenarios_high:+.3f}]",
                f"{compared.better_in} of {compared.scenarios}",
            ]
        )
    headings = ["competitor", "probability of improvement", "difference of IQM", "other scenarios", "better in"]
    return [
        f"`{name}` compared with each competitor, by fair power:",
        page.table(headings, rows, numbers=range(1, len(headings))),
    ]


def _signed(compared: ScoreComparison) -> str:
    return _text(compared.difference, compared.low, compared.high, "+.3f")


@styled
def _profiles(table: pd.DataFrame, league: League) -> Figure:
    """Draw the fraction of runs above each score, for the learned competitor with its interval."""
    figure = empty_figure(4.0)
    axes = figure.subplots()
    thresholds = np.linspace(0, 1, 51)
    marks = _marks([str(name) for name in standings(table).index], league)
    shares: dict[str, Any] = {}
    for name, mark in marks.items():
        values = table[SCORE].xs(name, level="competitor")
        profile = performance_profile(values, thresholds, values.index.get_level_values("scenario").tolist())
        mark.line(axes, thresholds, profile.share, markevery=(len(shares) % 5, 5))
        if mark != OTHERS:
            points = np.column_stack([thresholds, profile.share])
            is_apart = (points[:, 1] > 0.15) & (points[:, 1] < 0.85)  # lines begin and end together
            shares[name] = points[is_apart] if is_apart.any() else points
        if name == league.plan.learned:
            axes.fill_between(thresholds, profile.low, profile.high, color="#b2b2b2", linewidth=0, zorder=1)
    axes.set(xlim=(0, 1), ylim=(0, 1.02), xlabel=f"fair power{_grey(marks)}", ylabel="fraction of runs above it")
    name_points(axes, shares, marks)
    return figure


def _marks(names: Sequence[str], league: League) -> dict[str, Mark]:
    """Return a mark per name; the learned competitor is black, and some of the names, the first ones, have colours."""
    first = sorted(names, key=lambda name: name != league.plan.learned)
    marks = marks_of(first, MOST_HIGHLIGHTED)
    return {name: UNREGISTERED if name == league.plan.learned else mark for name, mark in marks.items()}


def _grey(marks: Mapping[str, Mark]) -> str:
    count = list(marks.values()).count(OTHERS)
    return f"; grey: {count} others" if count else ""


def _papers(league: League) -> list[str]:
    verdicts = paper_verdicts(league)
    if not verdicts:
        return ["Not run yet."]
    return [
        "Each experiment of [papers.md](papers.md) in its preset quick (most last 60 s, of which the first 15 s are "
        "not measured), with all competitors. The main metric is what the paper set out to improve; the others are "
        "all metrics of the paper's numbers and figures. Values are means over all scenarios of an experiment; a "
        "value without brackets is the same for every seed and stands for its interval. A time that is never reached "
        "counts as the rest of the run. *Above* counts the hand-coded algorithms whose whole interval is worse. "
        "*Worse than any* lists the other metrics in which the best hand-coded algorithm is better by more than 2 % "
        "(and by more than one packet per second, or 0.1 % of the packets). Algorithms of ns-3 itself are replaced by "
        "this project's. The last two columns compare with the algorithms of the paper's own experiment, and with its "
        "main one alone.",
        _verdict_table(verdicts, league.plan.learned),
        *_best_settings(league),
        "\n".join(f"* `{metric}`: {page.cell(metric_of(metric).description)}" for metric in _metrics_of(verdicts)),
    ]


def _verdict_table(verdicts: Sequence[PaperVerdict], learned: str) -> str:
    headings = ["experiment", "main metric", f"`{learned}`", "best algorithm", "above", "worse than any",
                "worse than the paper's", "reached", "compared with those in the paper",
                "compared with the paper's alone"]  # fmt: skip
    rows = [
        [
            *(page.cell(text) for text in _verdict_cells(verdict, learned)),
            page.cell(_worse(verdict.worse_than_own)),
            "**yes**" if verdict.is_reached else "no",
            "**yes**" if verdict.is_reached_against_compared else "no",
            f"{'**yes**' if verdict.is_reached_against_own else 'no'} ({page.cell(verdict.algorithm)})",
        ]
        for verdict in verdicts
    ]
    return page.table(headings, rows)


def _best_settings(league: League) -> list[str]:
    """Return a table of the best setting of each experiment, if there are settings."""
    if not league.plan.settings:
        return []
    rows = [
        [
            *(page.cell(text) for text in (verdict.experiment, verdict.learned)),
            *(page.cell(text) for text in _verdict_cells(verdict, verdict.learned)[1:]),
            "**yes**" if verdict.is_reached else "no",
        ]
        for verdict in best_settings(league)
    ]
    headings = [
        "experiment",
        "setting",
        "main metric",
        "its value",
        "best algorithm",
        "above",
        "worse than any",
        "reached",
    ]
    return [
        f"With one setting of `{league.plan.learned}` chosen for each experiment, by these results themselves:",
        page.table(headings, rows),
    ]


def _metrics_of(verdicts: Sequence[PaperVerdict]) -> list[str]:
    named = [
        name for v in verdicts for name in (v.metric, *(w.metric for w in (*v.worse_than_best, *v.worse_than_own)))
    ]
    return list(dict.fromkeys(named))


def _verdict_cells(verdict: PaperVerdict, learned: str) -> list[str]:
    return [
        verdict.experiment,
        f"{verdict.metric} {'↑' if metric_of(verdict.metric).is_more_better else '↓'}",
        _four_digits(verdict.estimates[learned]),
        f"{_four_digits(verdict.estimates[verdict.best])} ({verdict.best})",
        f"{len(verdict.above)} of {len(verdict.algorithms)}",
        _worse(verdict.worse_than_best),
    ]


def _worse(entries: Sequence[Worse]) -> str:
    texts = (
        f"{entry.metric} {number_text(entry.own)} against {number_text(entry.other)} ({entry.competitor})"
        for entry in entries
    )
    return "; ".join(texts) or "none"


def _friendliness(league: League, path: Path) -> list[str]:
    table = harms(league)
    if table.empty:
        return ["Not run yet."]
    config = league.results["friendliness"].plan["config"]
    buffers = {name: float(plain["buffer_bdp"]) for name, plain in config["scenarios"].items()}
    rates_mbps = {plain["flows"][1]["algorithm"]: plain["rate_mbps"] for plain in config["scenarios"].values()}
    blocks = [
        "One flow of the competitor and one victim on the same link with the same RTT. *Harm* is the fraction that the "
        "victim loses of what it has alone; an equal share costs it 0.5 of its throughput. *Against its own kind* is "
        "the fraction that it loses of what it has beside a flow of its own kind: above 0 the competitor harms it "
        "more than its own kind does. *Share* is the competitor's fraction of the throughput. All values are means "
        "over the buffers; the last columns are the harm to throughput for each buffer.",
    ]
    for victim in table.index.unique("victim"):
        of_victim = table.xs(victim, level="victim")
        by_name = of_victim.groupby(level="competitor", sort=False)
        order = by_name["throughput"].mean().sort_values(kind="stable").index
        of_buffers = of_victim["throughput"].groupby(level=["competitor", "scenario"], sort=False).mean().unstack()
        rows = []
        for name in order:
            frame = of_victim.xs(name, level="competitor")
            strata = frame.index.get_level_values("scenario").tolist()
            cells = []
            for column in HARMS:
                has_interval = column in ("throughput", "throughput_of_own", "delay")
                cells.append(estimate(frame[column], strata=strata, is_sample=has_interval).text(".3f"))
            rows.append([page.cell(name), *cells, *(f"{value:.2f}" for value in of_buffers.loc[name])])
        of_all = ["harm to throughput", "against its own kind", "harm to delay", "against its own kind", "share"]
        headings = ["competitor", *of_all, *(f"{buffers[str(name)]:g} BDP" for name in of_buffers.columns)]
        blocks += [
            f"Beside {page.cell(str(victim))}, on a link of {rates_mbps[str(victim)]:g} Mbit/s:",
            page.table(headings, rows, numbers=range(1, len(headings))),
        ]
    link = page.write_figure(_harm_figure(table, buffers, league), path, "harm")
    blocks.append(f"![Harm to throughput over the buffer]({link})")
    return blocks


@styled
def _harm_figure(table: pd.DataFrame, buffers: dict[str, float], league: League) -> Figure:
    victims = [str(victim) for victim in table.index.unique("victim")]
    figure, grid = panels(len(victims), 2, 3.4, sharey=True)
    order = table["throughput"].groupby(level="competitor").mean().sort_values(kind="stable").index
    # The rival and the victims, then those that harm least.
    marks = _marks(sorted(map(str, order), key=lambda name: name not in (league.plan.rival, *victims)), league)
    for axes, victim in zip(grid, victims, strict=True):
        means = (
            table.xs(victim, level="victim")["throughput"].groupby(level=["competitor", "scenario"], sort=False).mean()
        )
        for name, mark in marks.items():
            own = means.xs(name, level="competitor")
            mark.line(axes, [buffers[str(scenario)] for scenario in own.index], own.to_numpy(),
                      label=None if mark == OTHERS else name)  # fmt: skip
        axes.axhline(0.5, color="#888888", linestyle="--", linewidth=0.8)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_xlabel("buffer (BDP)")
        axes.set_title(f"beside {victim}{_grey(marks)}")
        fit_y(axes)
    grid[0].set_ylabel("harm to its throughput")
    name_lines(figure)
    return figure


def _part(part: League, league: League) -> list[str]:
    results = [result for result in part.results.values() if not result.results.empty]
    config = results[0].plan["config"]
    seeds = ", ".join(str(seed) for seed in config["seeds"])
    which = "; ".join(
        f"{suite}: {', '.join(result.plan['config']['scenarios'])}"
        for suite, result in part.results.items()
        if suite != ALONE
    )
    runs = sum(result.results["key"].nunique() for result in results)
    blocks = [
        f"Engine {config['engine']['name']}, seeds {seeds}, {runs} runs of these scenarios: {page.cell(which)}. "
        "With so few seeds the intervals are too narrow to rest a claim on.",
        *_goals(part),
    ]
    if verdicts := paper_verdicts(part):
        blocks.append(_verdict_table(verdicts, part.plan.learned))
    table, native = part.scores.get("generalisation"), league.scores.get("generalisation")
    if table is not None:
        same = native
        if native is not None:
            same = native[native.index.get_level_values("scenario").isin(table.index.unique("scenario"))]
        blocks.append(_standings_table(table, {} if same is None else {"in native": same}))
    return blocks


def _four_digits(found: Estimate) -> str:
    """Return four significant digits with the interval, without an exponent for numbers from 0.0001."""
    size = abs(found.value)
    return found.text(f".{min(6, max(0, 3 - math.floor(math.log10(size)))) if size and math.isfinite(size) else 0}f")


def _iqm(row: pd.Series) -> str:
    return _text(row["iqm"], row["low"], row["high"], ".3f")


def _text(value: float, low: float, high: float, form: str) -> str:
    return Estimate(value, low, high, math.nan).text(form)
