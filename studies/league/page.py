"""The generated parts of the league's page: standings with intervals, and the goals of the learned policy."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pandas as pd
from rich.console import Console

from bbrgym.benchmark.regret import LEAST_BEST, MOST_REGRET, Regret, regret_verdict, regrets
from bbrgym.benchmark.scores import SCORE, compare_scores, standings
from bbrgym.benchmark.statistics import Estimate, estimate, number_text
from bbrgym.benchmark.tables import print_table
from bbrgym.envs.scenario import Scenario
from studies import page
from studies.league.suites import ALONE, CHANGING, League
from studies.league.verdicts import HARMS, Worse, harm_verdict, harms, metric_of, paper_verdicts

MARK: Final = "studies/league"
"""What the names of the page's blocks begin with."""

SHOWN: Final = ("jain", "utilisation", "delay", "retransmission_rate", "rtt_p95")
"""The scores beside `SCORE` in a table of standings."""

WORST: Final = 15
"""How many of the scenarios with the largest regret the page has."""


@dataclass(frozen=True)
class Goal:
    """A goal of the learned competitor, what was measured, and whether the goal is reached."""

    wanted: str
    measured: str
    is_reached: bool


def goals(league: League) -> list[Goal]:
    """Return the goals that the league has results for."""
    return list(_goals_of(league))


def _goals_of(league: League) -> Iterator[Goal]:
    name, rival = league.plan.learned, league.plan.rival
    if "generalisation" in league.scores:
        table = league.scores["generalisation"]
        standing, best, measured = _against_best(league, "generalisation")
        yield Goal(
            "highest interquartile mean of fair power in the generalisation suite",
            f"{measured}; difference {compare_scores(table, name, best).difference.text('+.3f')}",
            standing.loc[name, "iqm"] > standing.loc[best, "iqm"],
        )
    for suite, of_suite in _regrets(league).items():
        verdict = regret_verdict(of_suite)
        yield Goal(
            f"regret in the suite {suite}: best in at least {LEAST_BEST:.0%} of the scenarios, and more than "
            f"{MOST_REGRET} behind the best competitor, rules included, in none",
            f"best in {_best_in(of_suite)}; above {MOST_REGRET} in {verdict.above}; largest "
            f"{verdict.worst.regret.text('.3f')} ({verdict.worst.scenario})",
            verdict.is_reached,
        )
    for suite in CHANGING:
        if suite in league.scores:
            standing, best, measured = _against_best(league, suite)
            yield Goal(
                f"interval of fair power in the suite {suite} above that of every algorithm",
                measured,
                bool(standing.loc[name, "low"] > standing.loc[best, "high"]),
            )
    if verdicts := paper_verdicts(league):
        reached = sum(verdict.all.is_reached for verdict in verdicts)
        yield Goal(
            "in each paper's experiment, an interval of the paper's main metric above that of every hand-coded "
            "algorithm, and no other metric more than 2 % worse",
            f"{reached} of {len(verdicts)} experiments; main metric above every algorithm in "
            f"{sum(verdict.all.is_first for verdict in verdicts)}; compared with the paper's own alone in "
            f"{sum(verdict.own.is_reached for verdict in verdicts)}",
            reached == len(verdicts),
        )
    of_harm = harms(league)
    if {name, rival} <= set(of_harm.index.unique("competitor")):
        own, other, difference = harm_verdict(of_harm, "cubic", name, rival)
        yield Goal(
            f"harm to CUBIC's throughput no greater than {rival}'s",
            f"{own:.3f}, {rival} {other:.3f}; difference {difference.text('+.3f')}",
            own <= other,
        )


def _against_best(league: League, suite: str) -> tuple[Any, str, str]:
    """Return the fair power of a suite's competitors, the best algorithm, and a text on it and the learned one."""
    standing, algorithms = standings(league.scores[suite])[SCORE], league.algorithms(suite)
    best = next(str(other) for other in standing.index if other in algorithms)
    learned = _iqm(standing.loc[league.plan.learned])
    return standing, best, f"{learned}, the best algorithm ({best}) {_iqm(standing.loc[best])}"


def print_league_goals(league: League, console: Console) -> None:
    """Print the standings of the suites in which all flows are of one kind, and the goals."""
    for suite, table in league.scores.items():
        rows = [[str(name), *_standing_cells(row)] for name, row in standings(table).iterrows()]
        print_table(console, ["competitor", "fair power", *SHOWN], rows, suite)
    rows = [[goal.wanted, goal.measured, "yes" if goal.is_reached else "no"] for goal in goals(league)]
    print_table(console, ["goal", "measured", "reached"], rows, "goals")


def write_league_page(league: League, path: Path, part: League | None = None) -> None:
    """Write the blocks of the page. Equal results give equal files, so the page has no date."""
    if not any(map(league.has_runs, league.results)):
        raise ValueError(f"the league {league.plan.name} has no results: run `python -m studies.league`")
    blocks = {
        "runs": _runs(league),
        "goals": _goals(league),
        "regret": _regret(league),
        "generalisation": _standings(league, "generalisation"),
        "suites": _suites(league),
        "papers": _papers(league),
        "friendliness": _friendliness(league),
        "ns-3": [] if part is None else _part(part, league),
    }
    page.write_blocks(path, MARK, blocks)


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


def _regret(league: League) -> list[str]:
    rows, behind = [], []
    for suite, of_suite in _regrets(league).items():
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
        scenarios = league.results[suite].plan["config"]["scenarios"]
        behind += [(one, Scenario.from_dict(scenarios[one.scenario])) for one in of_suite if one.regret.value > 0]
    headings = ["suite", "best in", f"above {MOST_REGRET} in", "mean", "largest", "causes"]
    worst = [
        [
            page.cell(one.scenario),
            scenario.describe_link(),
            # All have the same jitter.
            "; ".join(dataclasses.replace(flow, jitter_ms=0.0).describe() for flow in scenario.flows),
            one.regret.text(".3f"),
            page.cell(one.best),
            f"{one.own[SCORE]:.3f}, {one.other[SCORE]:.3f}",
            one.cause,
        ]
        for one, scenario in sorted(behind, key=lambda each: -each[0].regret.value)[:WORST]
    ]
    return [
        page.table(headings, rows, numbers=range(1, 5)),
        f"The scenarios with the largest regret, with the fair power of `{league.plan.learned}` and of the best:",
        page.table(["scenario", "link", "flows", "regret", "best", "fair power", "cause"], worst, numbers=(3, 5)),
    ]


def _suites(league: League) -> list[str]:
    """Return the fair power of every competitor in every suite in which all flows are of one kind."""
    of_suites = {suite: standings(table)[SCORE] for suite, table in league.scores.items()}
    names = dict.fromkeys(str(name) for standing in of_suites.values() for name in standing.index)
    rows = [
        [page.cell(name), *(_iqm(of.loc[name]) if name in of.index else "-" for of in of_suites.values())]
        for name in names
    ]
    return [page.table(["competitor", *of_suites], rows, numbers=range(1, 1 + len(of_suites)))] if rows else []


def _standings(league: League, suite: str, elsewhere: pd.DataFrame | None = None) -> list[str]:
    """Return the standings, with the fair power in other runs, and how the learned competitor compares."""
    if suite not in league.scores:
        return []
    learned, table = league.plan.learned, league.scores[suite]
    others = {} if elsewhere is None else {"in native": standings(elsewhere)[SCORE, "iqm"]}
    rows = []
    for place, (name, row) in enumerate(standings(table).iterrows(), start=1):
        first, *rest = map(page.cell, _standing_cells(row))
        of_others = [number_text(float(iqm.get(name, math.nan))) for iqm in others.values()]
        lead = ["", ""]
        if name != learned:
            compared = compare_scores(table, learned, str(name))
            lead = [compared.difference.text("+.3f"), f"{compared.better_in} of {compared.scenarios}"]
        rows.append([str(place), page.cell(name), first, *of_others, *rest, *lead])
    headings = ["", "competitor", "fair power, IQM", *others, *SHOWN, f"lead of {learned}", "better in"]
    return [page.table(headings, rows, numbers=(0, *range(2, len(headings))))]


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
    headings = ["experiment", "main metric", f"`{learned}`", "best algorithm", "above", "worse than any", "reached",
                "compared with the paper's alone"]  # fmt: skip
    rows = [
        [
            verdict.experiment,
            f"{page.cell(verdict.metric)} {'↑' if metric_of(verdict.metric).is_more_better else '↓'}",
            _four_digits(verdict.estimates[learned]),
            f"{_four_digits(verdict.estimates[verdict.best])} ({page.cell(verdict.best)})",
            f"{len(verdict.all.above)} of {len(verdict.all.algorithms)}",
            page.cell(_worse(verdict.all.worse)),
            _yes(verdict.all.is_reached),
            f"{_yes(verdict.own.is_reached)} ({page.cell(verdict.algorithm)})",
        ]
        for verdict in verdicts
    ]
    return [page.table(headings, rows)]


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
    scenarios = league.results["friendliness"].plan["config"]["scenarios"]
    blocks = []
    for victim in table.index.unique("victim"):
        of_victim = table.xs(victim, level="victim")
        of_buffers = of_victim["throughput"].groupby(level=["competitor", "scenario"], sort=False).mean().unstack()
        rows = []
        for name in of_buffers.mean(axis=1).sort_values(kind="stable").index:
            frame = of_victim.xs(name, level="competitor")
            strata = frame.index.get_level_values("scenario").tolist()
            cells = [estimate(frame[column], strata=strata).text(".3f") for column in HARMS]
            rows.append([page.cell(name), *cells, *(f"{value:.2f}" for value in of_buffers.loc[name])])
        buffers = [f"{scenarios[str(name)]['buffer_bdp']:g} BDP" for name in of_buffers.columns]
        headings = ["competitor", "harm to throughput", "harm to delay", *buffers]
        rate_mbps = scenarios[str(of_buffers.columns[0])]["rate_mbps"]
        blocks += [
            f"Beside {page.cell(str(victim))}, on a link of {rate_mbps:g} Mbit/s:",
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
    native = league.scores.get("generalisation")
    if native is not None and "generalisation" in part.scores:
        of_part = part.scores["generalisation"].index.unique("scenario")
        native = native[native.index.get_level_values("scenario").isin(of_part)]
    return [
        f"Engine {config['engine']['name']}, seeds {seeds}, {runs} runs of these scenarios: {page.cell(which)}.",
        *_goals(part),
        *_papers(part),
        *_standings(part, "generalisation", native),
    ]


def _four_digits(found: Estimate) -> str:
    """Return four significant digits with the interval, without an exponent for numbers from 0.0001."""
    size = abs(found.value)
    return found.text(f".{min(6, max(0, 3 - math.floor(math.log10(size)))) if size and math.isfinite(size) else 0}f")


def _iqm(row: pd.Series) -> str:
    return Estimate(row["iqm"], row["low"], row["high"], math.nan).text(".3f")
