"""The generated parts of the league's page: standings with intervals, and the goals of the learned policy."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bbrgym.benchmark.plots import over_time
from bbrgym.benchmark.statistics import Estimate, estimate, number_text
from bbrgym.envs.scenario import Flow, Scenario
from bbrgym.envs.trace import Trace
from bbrgym.envs.trace_file import load_trace
from studies import page
from studies.league.regret import LEAST_BEST, MOST_REGRET, PARTS, Regret, regret_verdict, regrets
from studies.league.scores import SCORE, compare_scores, standings
from studies.league.suites import ALONE, CHANGING, FOUND, OF_ONE_KIND, League
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

MARK: Final = "studies/league"
"""What the names of the page's blocks begin with."""

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
                f"{_iqm(standing.loc[best])}; difference {compared.difference.text('+.3f')}",
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
        first, reached = (
            sum(flag) for flag in zip(*((v.all.is_first, v.all.is_reached) for v in verdicts), strict=True)
        )
        found.append(
            Goal(
                "in each paper's experiment, an interval of the paper's main metric above that of every hand-coded "
                "algorithm, and no other metric more than 2 % worse",
                f"{reached} of {len(verdicts)} experiments; main metric above every algorithm in {first}; "
                f"compared with the algorithms that the paper compares in "
                f"{sum(v.compared.is_reached for v in verdicts)}, with the paper's own alone in "
                f"{sum(v.own.is_reached for v in verdicts)}"
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
                f"{verdict.own:.3f}, {rival} {verdict.other:.3f}; difference {verdict.difference.text('+.3f')}",
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
        f"; with the best setting of each: {sum(v.all.is_reached for v in best)}, "
        f"above every algorithm in {sum(v.all.is_first for v in best)}"
    )


def print_league_goals(league: League, console: Console) -> None:
    """Print the standings of the suites in which all flows are of one kind, and the goals."""
    for suite, table in league.scores.items():
        rows = [[str(name), *_standing_cells(row)] for name, row in standings(table).iterrows()]
        _print_table(suite, ["competitor", "fair power", *SHOWN], rows, console)
    rows = [[goal.wanted, goal.measured, "yes" if goal.is_reached else "no"] for goal in goals(league)]
    _print_table("goals", ["goal", "measured", "reached"], rows, console)


def _print_table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]], console: Console) -> None:
    printed = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        printed.add_column(heading)
    for row in rows:
        printed.add_row(*map(escape, row))
    console.print(printed)


def write_league_page(league: League, path: Path, part: League | None = None) -> None:
    """Write the blocks of the page, and its figure to a folder beside it that has its name.

    Equal results give equal files, so the page has no date.

    Args:
        league: its finished runs.
        path: the page, with the marks of `league_blocks`.
        part: the part that another engine has simulated, if there is one.

    Raises:
        ValueError: no suite has results, or the page lacks marks.
    """
    if all(result.results.empty for result in league.results.values()):
        raise ValueError(f"the league {league.plan.name} has no results: run `python -m studies.league`")
    page.write_blocks(path, MARK, league_blocks(league, path, part))


def league_blocks(league: League, path: Path, part: League | None = None) -> dict[str, str]:
    """Return the blocks of the page by name, and write its figure."""
    blocks = {
        "runs": _runs(league),
        "goals": _goals(league),
        "regret": _regret(league, path),
        **{suite: _suite(league, suite) for suite in OF_ONE_KIND if suite != FOUND},
        "papers": _papers(league),
        "friendliness": _friendliness(league),
        "ns-3": [] if part is None else _part(part, league),
    }
    return {name: "\n\n".join(block) or "Not run yet." for name, block in blocks.items()}


def _runs(league: League) -> list[str]:
    results = [result for result in league.results.values() if not result.results.empty]
    first = results[0]
    # Suites share runs, each of which was simulated once.
    wall_s = {key: seconds for result in results for key, seconds in result.wall_s().items()}
    planned = {run["key"] for result in league.results.values() for run in result.plan["runs"]}
    lost = len(planned) - len(wall_s)
    absent = [suite for suite in league.plan.suites if suite not in league.results]
    seeds = first.plan["config"]["seeds"]
    config = next(result.plan["config"] for suite, result in league.results.items() if suite != ALONE)
    blocks = [
        f"`{first.plan['provenance']['command']}`: {', '.join(entry['name'] for entry in config['competitors'])}; "
        f"yardsticks: {', '.join(league.plan.yardsticks) or 'none'}. Engine {first.plan['config']['engine']['name']}, "
        f"{len(seeds)} seeds ({seeds[0]} to {seeds[-1]}): {len(wall_s)} runs, {page.duration(sum(wall_s.values()))} of "
        "wall time in total.",
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
    blocks = [page.table(headings, rows, numbers=range(1, 5))] if rows else []
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


def _suite(league: League, suite: str) -> list[str]:
    table = league.scores.get(suite)
    if table is None:
        return []
    scenarios = {
        name: Scenario.from_dict(plain) for name, plain in league.results[suite].plan["config"]["scenarios"].items()
    }
    return [
        _standings_table(table, league),
        *_worst(regrets(table, league.plan.learned), scenarios, league.plan.learned),
    ]


def _standings_table(table: pd.DataFrame, league: League, elsewhere: pd.DataFrame | None = None) -> str:
    """Return the standings, with the fair power in other runs, and how the learned competitor compares."""
    learned = league.plan.learned
    others = {} if elsewhere is None else {"in native": standings(elsewhere)[SCORE, "iqm"]}
    rows = []
    for place, (name, row) in enumerate(standings(table).iterrows(), start=1):
        first, *rest = map(page.cell, _standing_cells(row))
        of_others = [number_text(float(iqm.get(name, math.nan))) for iqm in others.values()]
        lead = ["", ""]
        if name != learned:
            compared = compare_scores(table, learned, str(name))
            lead = [compared.in_other_scenarios.text("+.3f"), f"{compared.better_in} of {compared.scenarios}"]
        rows.append([str(place), page.cell(name), first, *of_others, *rest, *lead])
    headings = ["", "competitor", "fair power, IQM", *others, *SHOWN, f"lead of {learned}", "better in"]
    return page.table(headings, rows, numbers=(0, *range(2, len(headings))))


def _standing_cells(row: pd.Series) -> list[str]:
    return [
        _iqm(row[SCORE]),
        *(number_text(row[name, "iqm"], ".2%" if name == "retransmission_rate" else "")
          for name in SHOWN),
    ]  # fmt: skip


def _papers(league: League) -> list[str]:
    verdicts = paper_verdicts(league)
    if not verdicts:
        return []
    learned = league.plan.learned
    settings = {verdict.experiment: verdict for verdict in best_settings(league) if league.plan.settings}
    headings = ["experiment", "main metric", f"`{learned}`", "best algorithm", "above", "worse than any",
                "worse than the paper's", "reached", "compared with those in the paper",
                "compared with the paper's alone", *(["with its best setting"] if settings else [])]  # fmt: skip
    rows = [
        [
            verdict.experiment,
            f"{page.cell(verdict.metric)} {'↑' if metric_of(verdict.metric).is_more_better else '↓'}",
            _four_digits(verdict.estimates[learned]),
            f"{_four_digits(verdict.estimates[verdict.best])} ({page.cell(verdict.best)})",
            f"{len(verdict.all.above)} of {len(verdict.all.algorithms)}",
            page.cell(_worse(verdict.all.worse)),
            page.cell(_worse(verdict.own.worse)),
            _yes(verdict.all.is_reached),
            _yes(verdict.compared.is_reached),
            f"{_yes(verdict.own.is_reached)} ({page.cell(verdict.algorithm)})",
            *(_setting_cell(settings[verdict.experiment], learned) for _ in range(bool(settings))),
        ]
        for verdict in verdicts
    ]
    return [page.table(headings, rows)]


def _setting_cell(verdict: PaperVerdict, learned: str) -> str:
    name = verdict.learned.removeprefix(f"{learned}, ")
    return f"{_yes(verdict.all.is_reached)} ({page.cell(name)}: {_four_digits(verdict.estimates[verdict.learned])})"


def _yes(is_so: bool) -> str:
    return "**yes**" if is_so else "no"


def _worse(entries: Sequence[Worse]) -> str:
    texts = (
        f"{entry.metric} {number_text(entry.own)} against {number_text(entry.other)} ({entry.competitor})"
        for entry in entries
    )
    return "; ".join(texts) or "none"


def _friendliness(league: League) -> list[str]:
    table = harms(league)
    if table.empty:
        return []
    config = league.results["friendliness"].plan["config"]
    buffers = {name: float(plain["buffer_bdp"]) for name, plain in config["scenarios"].items()}
    rates_mbps = {plain["flows"][1]["algorithm"]: plain["rate_mbps"] for plain in config["scenarios"].values()}
    blocks = []
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
    return blocks


def _part(part: League, league: League) -> list[str]:
    results = [result for result in part.results.values() if not result.results.empty]
    if not results:
        return []
    config = results[0].plan["config"]
    seeds = ", ".join(str(seed) for seed in config["seeds"])
    which = "; ".join(
        f"{suite}: {', '.join(result.plan['config']['scenarios'])}"
        for suite, result in part.results.items()
        if suite != ALONE
    )
    runs = sum(result.results["key"].nunique() for result in results)
    blocks = [
        f"Engine {config['engine']['name']}, seeds {seeds}, {runs} runs of these scenarios: {page.cell(which)}.",
        *_goals(part),
        *_papers(part),
    ]
    table, native = part.scores.get("generalisation"), league.scores.get("generalisation")
    if table is not None:
        if native is not None:
            native = native[native.index.get_level_values("scenario").isin(table.index.unique("scenario"))]
        blocks.append(_standings_table(table, part, native))
    return blocks


def _four_digits(found: Estimate) -> str:
    """Return four significant digits with the interval, without an exponent for numbers from 0.0001."""
    size = abs(found.value)
    return found.text(f".{min(6, max(0, 3 - math.floor(math.log10(size)))) if size and math.isfinite(size) else 0}f")


def _iqm(row: pd.Series) -> str:
    return Estimate(row["iqm"], row["low"], row["high"], math.nan).text(".3f")
