"""The page of the league: who is best where, by how much, with intervals, and which goals are reached."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
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

from bbrgym.benchmark.plots import empty_figure, lighter, marks_of, styled
from bbrgym.benchmark.statistics import bootstrap_interval, performance_profile
from bbrgym.envs.scenario import Scenario
from studies import markdown
from studies.league.scores import SCORE, SCORES, Comparison, compare_scores, scores, standings
from studies.league.suites import ALONE, League, outside_of
from studies.league.verdicts import (
    AIMS,
    HARMS,
    Estimate,
    PaperVerdict,
    Worse,
    aim_of,
    harm_verdict,
    harms,
    paper_verdicts,
)

SHOWN: Final = ("jain", "utilisation", "delay", "retransmission_rate", "rtt_p95", "utility")
"""The scores that stand beside `SCORE` in a table of standings."""


@dataclass(frozen=True)
class Goal:
    """A goal of the learned competitor: what was wanted, what was measured, and whether it is reached."""

    wanted: str
    measured: str
    is_reached: bool


def goals(league: League) -> list[Goal]:
    """The goals that the league has results for."""
    name, rival = league.plan.learned, league.plan.rival
    found = []
    table = _scores_of(league, "generalisation")
    if table is not None:
        algorithms = league.algorithms("generalisation")
        standing = standings(table)[SCORE]
        best = next(str(other) for other in standing.index if other in algorithms)
        compared = compare_scores(table, name, best)
        found.append(
            Goal(
                "first by the interquartile mean of fair power in the generalisation suite",
                f"{_with_interval(standing.loc[name])}, the best algorithm ({best}) "
                f"{_with_interval(standing.loc[best])}; difference {_signed(compared)}",
                standing.loc[name, "iqm"] > standing.loc[best, "iqm"],
            )
        )
    verdicts = paper_verdicts(league)
    if verdicts:
        first, reached = (sum(flag) for flag in zip(*((v.is_first, v.is_reached) for v in verdicts), strict=True))
        found.append(
            Goal(
                "on each paper's own metric and experiment an interval above every hand-coded algorithm's, with no "
                "other metric of the experiment more than 2 % worse",
                f"{reached} of {len(verdicts)} experiments; above every algorithm on the own metric in {first}; "
                f"against the paper's own algorithm alone in {sum(v.is_reached_against_own for v in verdicts)}",
                reached == len(verdicts),
            )
        )
    of_harm = harms(league)
    if not of_harm.empty and {name, rival} <= set(of_harm.index.unique("competitor")):
        verdict = harm_verdict(of_harm, "cubic", name, rival)
        found.append(
            Goal(
                f"harm to CUBIC's throughput no greater than {rival}'s",
                f"{verdict.own:.3f}, {rival} {verdict.other:.3f}; difference {verdict.own - verdict.other:+.3f}"
                f"{_ends(verdict.low, verdict.high, '{:+.3f}')}",
                verdict.is_reached,
            )
        )
    return found


def print_league_goals(league: League, console: Console) -> None:
    """Print the standings in the generalisation suite, and whether the goals are reached."""
    table = _scores_of(league, "generalisation")
    if table is not None:
        printed = _rich_table("generalisation", ["competitor", "fair power", *SHOWN])
        for name, row in standings(table).iterrows():
            printed.add_row(escape(str(name)), *(escape(text) for text in _standing_cells(row)))
        console.print(printed)
    verdicts = paper_verdicts(league)
    if verdicts:
        printed = _rich_table("the papers' own metrics", ["experiment", "metric", league.plan.learned, "best algorithm",
                                                          "above", "others > 2 % worse"])  # fmt: skip
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
    """Write the page, with its figures in a folder beside it that has its name.

    Equal results give equal files: there is no date on the page.

    Args:
        league: all of it, as far as it is there.
        path: where the page goes; `docs/results/league.md`, for it has links to `../conf`.
        part: the part of it that another engine has simulated, if there is one.

    Raises:
        ValueError: no suite has results.
    """
    if all(result.results.empty for result in league.results.values()):
        raise ValueError(f"the league {league.plan.name} has no results: run `python -m studies.league`")
    place = path.with_suffix("")
    place.mkdir(parents=True, exist_ok=True)
    blocks = [
        "# The league",
        *_introduction(league),
        "## Are the goals reached?",
        *_goals(league),
        "## How is it measured?",
        *_definitions(league),
        "## Generalisation",
        *_suite(league, "generalisation", place),
        "## The experiments of the papers",
        *_papers(league),
        "## Beside CUBIC and BBR",
        *_friendliness(league, place),
        "## Links that vary",
        *_suite(league, "varying", place),
    ]
    if part is not None and any(not result.results.empty for result in part.results.values()):
        blocks += ["## A part of it in ns-3", *_part(part, league)]
    markdown.write_blocks(blocks, path)


def _introduction(league: League) -> list[str]:
    results = [result for result in league.results.values() if not result.results.empty]
    first = results[0]
    # A run that several suites have was made once.
    runs = pd.concat([result.results[["key", "wall_s"]] for result in results]).drop_duplicates("key")
    planned = {run["key"] for result in league.results.values() for run in result.plan["runs"]}
    lost = len(planned) - len(runs)
    absent = [suite for suite in league.plan.suites if suite not in league.results]
    seeds = first.plan["config"]["seeds"]
    blocks = [
        f"The learned policy (`{league.plan.learned}`) and every hand-coded algorithm, in the same scenarios with the "
        "same seeds. Nothing on this page is written by hand: it is made of the results, by",
        textwrap.indent(first.plan["provenance"]["command"], "    "),
        f"Competitors: {', '.join(_names(league))}. {_yardsticks(league)}Engine "
        f"{first.plan['config']['engine']['name']}, {len(seeds)} seeds ({seeds[0]} to {seeds[-1]}): {len(runs)} runs, "
        f"{markdown.duration(float(runs['wall_s'].sum()))} of wall time in sum. All settings are in "
        "[league.yaml](../../studies/league/conf/experiment/league.yaml).",
        *markdown.made_with(result.plan for result in results),
    ]
    if lost:
        failed = f", {league.failures} of them failed" if league.failures else ""
        blocks.append(f"**Unfinished: {lost} of {len(planned)} runs are missing{failed}.**")
    if absent:
        blocks.append(f"**Not run yet: {', '.join(absent)}.**")
    return blocks


def _names(league: League) -> list[str]:
    config = next(result.plan["config"] for suite, result in league.results.items() if suite != ALONE)
    return [f"`{entry['name']}`" for entry in config["competitors"]]


def _yardsticks(league: League) -> str:
    names = ", ".join(f"`{name}`" for name in league.plan.yardsticks)
    return f"No verdict is about {names}: neither learned nor published. " if names else ""


def _goals(league: League) -> list[str]:
    rows = [
        [markdown.cell(goal.wanted), markdown.cell(goal.measured), "**reached**" if goal.is_reached else "not reached"]
        for goal in goals(league)
    ]
    return [markdown.table(["goal", "measured", ""], rows)]


def _definitions(league: League) -> list[str]:
    lines = [f"* `{name}`: {markdown.cell(meaning)}" for name, meaning in SCORES.items()]
    return [
        "Where all flows run one competitor, a run has these scores; the league is ranked by the first. `utility` "
        "has the form of the reward that agents train with, so it says how well one has learned; no competitor was "
        "made for `fair_power`. A flow's fair share is what the link can carry over the number of active flows, in "
        "the mean over the time in which the flow is active and measured.",
        "\n".join(lines),
        "* Interquartile means (IQM) leave out the lowest and the highest quarter of the runs.\n"
        "* [Brackets] are 95 % percentile bootstrap intervals from resampling the seeds within each scenario: what "
        "other seeds would give in the same scenarios. What other scenarios of the same kind would give stands "
        "beside it where it says so, from resampling the scenarios.\n"
        "* The probability of improvement is the share of pairs (same scenario, same seed) in which the learned policy "
        "scores more, a tie counting half, in the mean over the scenarios.\n"
        "* Harm is that of Ware et al. (HotNets 2019): the part that a flow takes of what a victim has alone.",
    ]


def _scores_of(league: League, suite: str) -> pd.DataFrame | None:
    result = league.results.get(suite)
    return None if result is None or result.results.empty else scores(result)


def _suite(league: League, suite: str, place: Path) -> list[str]:
    table = _scores_of(league, suite)
    if table is None:
        return ["Not run yet."]
    config = league.results[suite].plan["config"]
    scenarios = {name: Scenario.from_dict(plain) for name, plain in config["scenarios"].items()}
    outside = {name: outside_of(scenario, league.plan.training) for name, scenario in scenarios.items()}
    blocks = [_described(suite, config, outside)]
    blocks += [_standings_table(table)]
    if suite == "generalisation":
        for is_inside, title in ((True, "inside"), (False, "outside")):
            names = [name for name, reasons in outside.items() if (not reasons) is is_inside]
            part = table[table.index.get_level_values("scenario").isin(names)]
            if not part.empty:
                blocks += [f"The {len(names)} scenarios {title} of the training ranges:", _standings_table(part)]
    figure = markdown.write_figure(_profiles(table, league), place / f"{suite}-profile")
    blocks.append(f"![Performance profile: the share of runs above a fair power]({place.name}/{figure.name})")
    blocks += _improvements(table, league, suite)
    blocks.append(_scenario_table(table, league, suite, scenarios, outside))
    return blocks


def _described(suite: str, config: dict[str, Any], outside: dict[str, list[str]]) -> str:
    measured = f"the first {100 * config['warmup']:.0f} % of each run are not measured"
    if suite != "generalisation":
        return f"{len(outside)} scenarios, all flows of one competitor; {measured}."
    inside = sum(not reasons for reasons in outside.values())
    return (
        f"{len(outside)} scenarios that were drawn once, all flows of one competitor: {inside} inside of the ranges "
        f"that an agent trains on, {len(outside) - inside} outside of them in rate, RTT, buffer, loss or number of "
        f"flows; {measured}."
    )


def _standings_table(table: pd.DataFrame) -> str:
    rows = [
        [str(place), markdown.cell(name), *(markdown.cell(text) for text in _standing_cells(row))]
        for place, (name, row) in enumerate(standings(table).iterrows(), start=1)
    ]
    headings = ["", "competitor", "fair power, IQM", *SHOWN]
    return markdown.table(headings, rows, numbers=(0, *range(2, len(headings))))


def _standing_cells(row: pd.Series) -> list[str]:
    return [
        _with_interval(row[SCORE]),
        *(_percent(row[name, "iqm"]) if name == "retransmission_rate" else markdown.number(row[name, "iqm"])
          for name in SHOWN),
    ]  # fmt: skip


def _improvements(table: pd.DataFrame, league: League, suite: str) -> list[str]:
    name = league.plan.learned
    others = [str(other) for other in standings(table).index if other != name]
    rows = []
    for other in others:
        compared = compare_scores(table, name, other)
        better = compared.improvement
        rows.append(
            [
                markdown.cell(other),
                f"{better.probability:.2f}{_ends(better.low, better.high, '{:.2f}')}",
                _signed(compared),
                _ends(compared.scenarios_low, compared.scenarios_high, "{:+.3f}").strip() or "-",
                f"{compared.better_in} of {compared.scenarios}",
            ]
        )
    headings = ["against", "probability of improvement", "difference of IQM", "other scenarios", "better in"]
    return [
        f"`{name}` against each, by fair power:",
        markdown.table(headings, rows, numbers=range(1, len(headings))),
    ]


def _signed(compared: Comparison) -> str:
    return f"{compared.difference:+.3f}{_ends(compared.low, compared.high, '{:+.3f}')}"


def _scenario_table(
    table: pd.DataFrame, league: League, suite: str, scenarios: dict[str, Scenario], outside: dict[str, list[str]]
) -> str:
    learned, algorithms = league.plan.learned, league.algorithms(suite)
    means = table[SCORE].groupby(level=["scenario", "competitor"], sort=False).mean().unstack("competitor")
    rows = []
    for name, row in means.iterrows():
        scenario = scenarios[str(name)]
        best = str(row.reindex(algorithms).idxmax())
        rows.append(
            [
                markdown.cell(name),
                _setting(scenario),
                markdown.cell(", ".join(outside[str(name)])),
                markdown.number(float(row.get(learned, math.nan))),
                f"{markdown.number(float(row[best]))} ({markdown.cell(best)})",
            ]
        )
    headings = ["scenario", "setting", "outside in", f"`{learned}`", "best algorithm"]
    body = markdown.table(headings, rows, numbers=(3, 4))
    return f"<details><summary>Mean fair power in each scenario</summary>\n\n{body}\n\n</details>"


def _setting(scenario: Scenario) -> str:
    parts = [f"{scenario.rate_mbps:g} Mbit/s", f"{scenario.queue_packets / scenario.bdp_packets:.2g} BDP"]
    if scenario.rate_schedule:
        changes = len(scenario.rate_schedule)
        parts[0] = f"{scenario.rate_mbps:g} Mbit/s, {changes} change{'s' if changes > 1 else ''} of it"
    if scenario.loss:
        parts.append(f"loss {100 * scenario.loss:.2g} %")
    flows = []
    for flow in scenario.flows:
        ends = f"{flow.start_s:g} to {flow.stop_s:g} s" if flow.stop_s is not None else f"from {flow.start_s:g} s"
        flows.append(f"{flow.rtt_ms:.3g} ms" + (f" ({ends})" if flow.start_s or flow.stop_s is not None else ""))
    return markdown.cell("; ".join([*parts, f"{len(flows)} flow{'s' if len(flows) > 1 else ''}: {', '.join(flows)}"]))


@styled
def _profiles(table: pd.DataFrame, league: League) -> Figure:
    """The share of runs above a score; the learned one's with its interval."""
    figure = empty_figure(7.2, 3.6)
    axes = figure.subplots()
    thresholds = np.linspace(0, 1, 51)
    names = [str(name) for name in standings(table).index]
    marks = marks_of(names)
    for name in names:
        values = table[SCORE].xs(name, level="competitor")
        profile = performance_profile(values, thresholds, values.index.get_level_values("scenario").tolist())
        is_learned = name == league.plan.learned
        colour = "#000000" if is_learned else marks[name].colour
        axes.plot(thresholds, profile.share, color=colour, linewidth=2.4 if is_learned else 1.1, label=name,
                  zorder=3 if is_learned else 2, marker=marks[name].marker, markevery=(names.index(name) % 5, 5),
                  markersize=3.5)  # fmt: skip
        if is_learned:
            axes.fill_between(
                thresholds, profile.low, profile.high, color=lighter("#000000", 0.7), linewidth=0, zorder=1
            )
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.01)
    axes.set_xlabel("fair power")
    axes.set_ylabel("share of the runs above it")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _papers(league: League) -> list[str]:
    verdicts = paper_verdicts(league)
    if not verdicts:
        return ["Not run yet."]
    return [
        "Each experiment of [benchmark.md](benchmark.md) with its preset quick (most last 60 s, of which the first "
        "15 s are not measured), with all competitors. The own metric is what its paper set out to improve; the "
        "others are all that the paper has numbers or figures of. Means over all scenarios of an experiment; without "
        "brackets each seed gives the same run, and that value stands for its interval. *Above*: of how many "
        "hand-coded algorithms the whole interval is on the better side. *Others worse than any*: the other metrics "
        "in which the best hand-coded algorithm of that metric is better by more than 2 % (and by more than one "
        "packet a second, or a tenth of a percent of the packets). Where an algorithm of ns-3 itself is in the "
        "experiment, the project's own takes its place.",
        _verdict_table(verdicts, league.plan.learned),
        "\n".join(f"* `{metric}`: {markdown.cell(aim_of(metric).meaning)}" for metric in _metrics_of(verdicts)),
        *(_estimates_table(verdict) for verdict in verdicts),
    ]


def _verdict_table(verdicts: Sequence[PaperVerdict], learned: str) -> str:
    headings = ["experiment", "own metric", f"`{learned}`", "best algorithm", "above", "others worse than any",
                "others worse than the paper's", "reached", "against the paper's alone"]  # fmt: skip
    rows = [
        [
            *(markdown.cell(text) for text in _verdict_cells(verdict, learned)),
            markdown.cell(_worse(verdict.worse_than_own)),
            "**yes**" if verdict.is_reached else "no",
            f"{'**yes**' if verdict.is_reached_against_own else 'no'} ({markdown.cell(verdict.algorithm)})",
        ]
        for verdict in verdicts
    ]
    return markdown.table(headings, rows)


def _metrics_of(verdicts: Sequence[PaperVerdict]) -> list[str]:
    named = [
        name for v in verdicts for name in (v.metric, *(w.metric for w in (*v.worse_than_best, *v.worse_than_own)))
    ]
    return [metric for metric in dict.fromkeys(named) if metric in AIMS or "[" in metric]


def _verdict_cells(verdict: PaperVerdict, learned: str) -> list[str]:
    return [
        verdict.experiment,
        f"{verdict.metric} {'↑' if aim_of(verdict.metric).is_more_better else '↓'}",
        _estimate(verdict.estimates[learned]),
        f"{_estimate(verdict.estimates[verdict.best])} ({verdict.best})",
        f"{len(verdict.above)} of {len(verdict.algorithms)}",
        _worse(verdict.worse_than_best),
    ]


def _worse(entries: Sequence[Worse]) -> str:
    texts = (
        f"{entry.metric} {markdown.number(entry.own)} against {markdown.number(entry.other)} ({entry.competitor})"
        for entry in entries
    )
    return "; ".join(texts) or "none"


def _estimates_table(verdict: PaperVerdict) -> str:
    is_more_better = aim_of(verdict.metric).is_more_better
    ranked = sorted(verdict.estimates.items(), key=lambda entry: entry[1].mean * (-1 if is_more_better else 1))
    rows = [[markdown.cell(name), _estimate(estimate)] for name, estimate in ranked]
    body = markdown.table(["competitor", verdict.metric], rows, numbers=(1,))
    return f"<details><summary>{verdict.experiment}: {verdict.metric} of all</summary>\n\n{body}\n\n</details>"


def _friendliness(league: League, place: Path) -> list[str]:
    table = harms(league)
    if table.empty:
        return ["Not run yet."]
    config = league.results["friendliness"].plan["config"]
    buffers = {name: float(plain["buffer_bdp"]) for name, plain in config["scenarios"].items()}
    blocks = [
        "One flow of the competitor beside one victim, on the same link and with the same RTT. Of what the victim "
        "has alone, *harm* is the part that it loses: 0.5 of its throughput is what an equal share costs it. "
        "*Against its own kind* is what it loses of what it has beside a flow of its own kind: above 0 the "
        "competitor is worse to it than it is to itself, below 0 better. *Share* is the competitor's part of the "
        "throughput. All in the mean over the buffers; the last columns have the harm to throughput with each.",
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
                low, high = bootstrap_interval(frame[column], np.mean, strata=strata)
                ends = _ends(low, high, "{:.3f}") if column in ("throughput", "throughput_of_own", "delay") else ""
                cells.append(f"{frame[column].mean():.3f}{ends}")
            rows.append([markdown.cell(name), *cells, *(f"{value:.2f}" for value in of_buffers.loc[name])])
        of_all = ["harm to throughput", "against its own kind", "harm to delay", "against its own kind", "share"]
        headings = ["competitor", *of_all, *(f"{buffers[str(name)]:g} BDP" for name in of_buffers.columns)]
        blocks += [
            f"Beside {markdown.cell(str(victim))} ({_setting(_first_of(config, str(victim)))}):",
            markdown.table(headings, rows, numbers=range(1, len(headings))),
        ]
    figure = markdown.write_figure(_harm_figure(table, buffers, league), place / "harm")
    blocks.append(f"![Harm to throughput over the buffer]({place.name}/{figure.name})")
    return blocks


def _first_of(config: dict[str, Any], victim: str) -> Scenario:
    return next(
        Scenario.from_dict(plain) for plain in config["scenarios"].values() if plain["flows"][1]["algorithm"] == victim
    )


@styled
def _harm_figure(table: pd.DataFrame, buffers: dict[str, float], league: League) -> Figure:
    victims = [str(victim) for victim in table.index.unique("victim")]
    figure = empty_figure(7.2, 3.2)
    panels = figure.subplots(1, len(victims), sharey=True, squeeze=False)[0]
    names = [str(name) for name in table.index.unique("competitor")]
    marks = marks_of(names)
    for axes, victim in zip(panels, victims, strict=True):
        means = (
            table.xs(victim, level="victim")["throughput"].groupby(level=["competitor", "scenario"], sort=False).mean()
        )
        for name in names:
            own = means.xs(name, level="competitor")
            is_learned = name == league.plan.learned
            axes.plot([buffers[str(scenario)] for scenario in own.index], own.to_numpy(), label=name,
                      marker=marks[name].marker, markersize=4, color="#000000" if is_learned else marks[name].colour,
                      linewidth=2.4 if is_learned else 1.1, zorder=3 if is_learned else 2)  # fmt: skip
        axes.axhline(0.5, color="#888888", linestyle="--", linewidth=0.8)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_xlabel("buffer (BDP)")
        axes.set_title(f"beside {victim}")
    panels[0].set_ylabel("harm to its throughput")
    panels[-1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
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
        f"Engine {config['engine']['name']}, seeds {seeds}, {runs} runs, of these scenarios: {markdown.cell(which)}. "
        "With so few seeds the intervals are too narrow to rest a claim on.",
        *_goals(part),
    ]
    if verdicts := paper_verdicts(part):
        blocks.append(_verdict_table(verdicts, part.plan.learned))
    table, native = _scores_of(part, "generalisation"), _scores_of(league, "generalisation")
    if table is not None:
        blocks.append(_standings_table(table))
        if native is not None:
            names = table.index.unique("scenario")
            same = native[native.index.get_level_values("scenario").isin(names)]
            blocks += ["The same scenarios in the native engine:", _standings_table(same)]
    return blocks


def _estimate(estimate: Estimate) -> str:
    form = f"{{:.{_decimals(estimate.mean)}f}}"
    return "-" if math.isnan(estimate.mean) else form.format(estimate.mean) + _ends(estimate.low, estimate.high, form)


def _decimals(value: float) -> int:
    """As many as show four significant figures, of numbers from 0.0001 on."""
    return min(6, max(0, 3 - math.floor(math.log10(abs(value))))) if value and math.isfinite(value) else 0


def _with_interval(row: pd.Series) -> str:
    return f"{row['iqm']:.3f}{_ends(row['low'], row['high'], '{:.3f}')}"


def _ends(low: float, high: float, form: str) -> str:
    return "" if math.isnan(low) else f" [{form.format(low)} {form.format(high)}]"


def _percent(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2%}"
