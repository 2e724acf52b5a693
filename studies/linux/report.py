"""The parts of docs/results/linux.md: simulations beside Linux, the league on Linux, a duel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from bbrgym import Scenario, Trace
from bbrgym.baselines.registry import COUNTERPARTS
from bbrgym.benchmark.ledger import Rows
from bbrgym.benchmark.plots import over_time
from bbrgym.benchmark.results import BenchmarkResult
from bbrgym.benchmark.run_scores import SCORE, scores, standings
from bbrgym.benchmark.statistics import Estimate, estimate
from bbrgym.benchmark.style import COLOURS, SMALL, empty_figure, styled
from bbrgym.benchmark.tables import run_table
from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from studies import page
from studies.linux.cases import (
    ALIKE,
    ALONE,
    BESIDE,
    COMPETITORS,
    DUEL,
    GRID,
    GRID_RUNS,
    LEAGUE_RUNS,
    WARMUP,
    Case,
    league_case,
    over_udp,
)
from studies.linux.comparison import (
    LINUX,
    NATIVE,
    NS3,
    OVER_UDP,
    QUEUES,
    VARIANTS,
    WITHIN,
    Cell,
    cells,
    judged,
    mean,
    percents,
    signed,
)
from studies.linux.runs import LEAGUE_SEEDS, MOST_REPEATS, OVER_TIME, SEEDS, Labelled, frame_of, jobs, kept_runs

ENGINES: Final = {"native": NATIVE, "ns3": NS3}


def view(results: Mapping[str, Rows], figure: page.AddFigure) -> Mapping[str, object]:
    """Return the sentences, lists and tables of the page, and its figures."""
    table = _grid_runs(results)
    found = list(cells(GRID, table))
    on_linux = league_of(lambda labelled: frame_of(labelled, "linux", results), lambda case: case)
    in_native = league_of(lambda labelled: frame_of(labelled, "native", results, LEAGUE_SEEDS), Case.simulated)
    rank, places = _standings(on_linux, in_native)
    harm, harm_table = _harm(on_linux, in_native)
    first, second = DUEL.scenario.flows
    return {
        "verdict": " ".join(_verdict(found)),
        "differences": figure("differences", lambda: _differences_figure(found)),
        "causes": _causes(found),
        "values": _values(GRID, table, found),
        "scenarios": len(GRID),
        "grid_runs": {"linux": GRID_RUNS, "native": len(SEEDS["native"]), "ns3": len(SEEDS["ns3"])},
        "league": {
            "alike": len(ALIKE),
            "beside": len(BESIDE),
            "runs": {"linux": LEAGUE_RUNS, "native": len(LEAGUE_SEEDS)},
            "rank": rank,
            "places": places,
            "harm": harm,
            "harm_table": harm_table,
        },
        "duel": {
            "link": DUEL.scenario.describe_link(),
            "rtt_ms": f"{first.rtt_ms:g}",
            "flows": f"{first.algorithm} and {second.algorithm}",
            "figure": figure("duel", lambda: _duel_figure(results)),
        },
        "runs": _runs(results),
        "left": sum(name not in results for name in _names_on_linux()),
    }


def _runs(results: Mapping[str, Rows]) -> str:
    """Return how punctual the runs of Linux were, and when and where they were measured."""
    on_linux = _names_on_linux()
    of_runs = pd.DataFrame([results[name][0] for name in on_linux if name in results])
    days = sorted(of_runs["day"].unique())
    rows = [
        ["kernel", ", ".join(sorted(of_runs["kernel"].unique()))],
        ["days", days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"],
        ["runs", f"{len(of_runs)} of {len(on_linux)}"],
        ["load average before a run", _quartiles(of_runs["load"], ".1f")],
        ["lateness of departures, mean", _quartiles(of_runs["late_mean_ms"], ".3f") + " ms"],
        ["lateness of departures, p99.9", _quartiles(of_runs["late_p999_ms"], ".2f") + " ms"],
        [f"runs with a flaw, after up to {MOST_REPEATS} repeats", str(int(of_runs["has_flaw"].sum()))],
    ]
    return page.table(["measured with", "median (quartiles)"], rows)


def _names_on_linux() -> list[str]:
    """Return the names of all runs of Linux."""
    return [run.name for run in jobs() if run.engine == "linux"]


def _quartiles(values: pd.Series, form: str) -> str:
    low, middle, high = np.percentile(values.astype(float), (25, 50, 75))
    return f"{middle:{form}} ({low:{form}} to {high:{form}})"


def _grid_runs(results: Mapping[str, Rows]) -> pd.DataFrame:
    """Return `run_table` of all runs of `GRID`: Linux's, those over UDP, the simulated ones and their variants."""
    variants = {(c.name, variant.name): variant.of(c) for c in GRID for variant in VARIANTS if variant.changes(c)}
    over = {(case.name, OVER_UDP): over_udp(case) for case in GRID if case.is_of_kernel}
    frames = [
        frame_of({(case.name, LINUX): case for case in GRID}, "linux", results),
        frame_of(over, "linux", results),
        frame_of(variants, "native", results, SEEDS["native"]),
    ]
    for engine, title in ENGINES.items():
        frames.append(frame_of({(case.name, title): case.simulated() for case in GRID}, engine, results, SEEDS[engine]))
    return run_table(pd.concat(frames, ignore_index=True))


def _verdict(found: Sequence[Cell]) -> list[str]:
    inside = sum(cell.is_within() for cell in found)
    chance = sum(not cell.is_within() and cell.is_chance() for cell in found)
    kinds = {
        "shares": [cell for cell in found if cell.metric not in QUEUES],
        "mean queue": [cell for cell in found if cell.metric == QUEUES[0]],
        "p95 of the queue": [cell for cell in found if cell.metric == QUEUES[1]],
    }
    by_kind = [
        f"{kind}: {sum(cell.is_within() for cell in of_kind)} of {len(of_kind)}" for kind, of_kind in kinds.items()
    ]
    ns3 = [cell for cell in found if NS3 in cell.of]
    return [
        f"Native is within {percents(WITHIN)} of Linux in {inside} of {len(found)} cells ({'; '.join(by_kind)}). "
        f"{chance} of the others could be chance.",
        f"ns-3 is within {percents(WITHIN)} of Linux in {sum(cell.is_within(NS3) for cell in ns3)} of "
        f"{len(ns3)} cells, and of native in {sum(cell.is_within(NS3, NATIVE) for cell in ns3)}.",
    ]


@styled
def _differences_figure(found: Sequence[Cell]) -> Figure:
    """Draw how far native and ns-3 are from Linux: a row per scenario, a panel per kind of cell."""
    cases = list(dict.fromkeys(cell.case.name for cell in found))
    labels = {cell.case.name: _short(cell.case.scenario) for cell in found}
    panels: dict[str, list[Cell]] = {"shares": [], "mean queue": [], "p95 of the queue": []}
    for cell in found:
        panels[{QUEUES[0]: "mean queue", QUEUES[1]: "p95 of the queue"}.get(cell.metric, "shares")].append(cell)
    figure = empty_figure(1.0 + 0.37 * len(cases))
    for axes, (title, of_panel) in zip(figure.subplots(1, len(panels), sharey=True), panels.items(), strict=True):
        axes.axvspan(-WITHIN, WITHIN, color="#e8e8e8", linewidth=0)
        axes.axvline(0, color="#999999", linewidth=0.8)
        for who, colour, marker, lift in ((NATIVE, COLOURS[0], "o", -0.15), (NS3, COLOURS[1], "D", 0.15)):
            shown = [cell for cell in of_panel if who in cell.of]
            differences = [cell.relative(who).value for cell in shown]
            rows = [cases.index(cell.case.name) + lift for cell in shown]
            axes.plot(differences, rows, marker, color=colour, markersize=4, label=who, clip_on=False)
        axes.set_title(title)
        axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_yticks(range(len(cases)), [labels[name] for name in cases])
    axes.set_ylim(len(cases) - 0.4, -0.6)
    figure.supxlabel(f"difference from Linux; grey: within {percents(WITHIN)}", fontsize=SMALL)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=2)
    return figure


def _short(scenario: Scenario) -> str:
    """Return two lines: the flows' algorithms, and the link."""
    counts = Counter(flow.algorithm for flow in scenario.flows)
    flows = " + ".join(name if count == 1 else f"{count} {name}" for name, count in counts.items())
    loss = f", {100 * scenario.loss:g} % loss" if scenario.loss else ""
    return f"{flows}\n{scenario.rate_mbps:g} Mbit/s, {scenario.buffer_bdp:g} BDP{loss}"


def _values(cases: Sequence[Case], table: pd.DataFrame, found: Sequence[Cell]) -> str:
    """Return a row per cell of each scenario, with Linux, native and ns-3 side by side."""
    missed = {(cell.case.name, cell.metric) for cell in found if not cell.is_within()}
    rows = []
    for case in cases:
        of_case = dict(iter(table.xs(case.name, level="scenario").groupby(level="competitor", sort=False)))
        name = page.cell(case.name)
        for metric in judged(case.scenario):
            form = ".1f" if metric in QUEUES else ".2f"
            texts = {who: mean(of_case[who][metric], form) for who in (LINUX, NATIVE, NS3)}
            if (case.name, metric) in missed:
                texts[NATIVE] += " **x**"
            rows.append([name, _metric_name(metric) + (", ms" if metric in QUEUES else ""), *texts.values()])
            name = ""  # once per scenario
    return page.table(["scenario", "cell", LINUX, NATIVE, NS3], rows, range(2, 5))


def _causes(found: Sequence[Cell]) -> str:
    """Return a list of the scenarios with cells that are not within, and of these cells with their causes."""
    missed: dict[str, list[Cell]] = {}
    for cell in found:
        if not cell.is_within():
            missed.setdefault(cell.case.name, []).append(cell)
    lines = []
    for name, of_case in missed.items():
        lines.append(f"* {page.cell(name)}")
        for cell in of_case:
            cause = "chance" if cell.is_chance() else cell.cause()  # whose numbers are here already
            lines.append(f"    * {_metric_name(cell.metric)}, {signed(cell.relative(NATIVE))}: {page.cell(cause)}")
    return "\n".join(lines)


def _metric_name(metric: str) -> str:
    names = {QUEUES[0]: "queue", QUEUES[1]: "p95 of the queue"}
    return names.get(metric, metric.replace("share[", "share of flow ").removesuffix("]"))


class League(NamedTuple):
    """The results of the league somewhere.

    Attributes:
        alike: all flows have the same competitor.
        beside: the competitor has the first flow, CUBIC the second.
        alone: CUBIC has the links of `beside` to itself; its only competitor is `alone`.
    """

    alike: BenchmarkResult
    beside: BenchmarkResult
    alone: BenchmarkResult


def league_of(frame_of: Callable[[Labelled], pd.DataFrame], made: Callable[[Case], Case]) -> League:
    """Return the league of cases that are run somewhere."""

    def result(scenarios: Mapping[str, Scenario], labelled: Labelled) -> BenchmarkResult:
        plain = {name: made(Case(name, scenario, 1)).scenario.to_dict() for name, scenario in scenarios.items()}
        cases = {label: made(case) for label, case in labelled.items()}
        return BenchmarkResult(
            frame_of(cases),
            failures=[],
            missing=[],
            directory=Path(),
            plan={"config": {"scenarios": plain, "warmup": WARMUP}},
        )

    def of(scenarios: Mapping[str, Scenario]) -> BenchmarkResult:
        return result(
            scenarios, {(name, who.name): league_case(name, who) for name in scenarios for who in COMPETITORS}
        )

    alone = {(name, "alone"): Case(name, scenario, LEAGUE_RUNS) for name, scenario in ALONE.items()}
    return League(of(ALIKE), of(BESIDE), result(ALONE, alone))


def _standings(on_linux: League, in_native: League) -> tuple[str, str]:
    """Return how the ranks agree, and a row per competitor."""
    linux, native = (standings(scores(league.alike))[SCORE] for league in (on_linux, in_native))
    # The kernel's own have the scores of ours in native, and share their places.
    places = {
        str(name): place for place, name in enumerate((n for n in native.index if n not in COUNTERPARTS), start=1)
    }
    rows = []
    for place, (name, row) in enumerate(linux.iterrows(), start=1):
        of_native = native.loc[name]
        rows.append(
            [
                str(place),
                page.cell(name),
                Estimate(*row).text(".3f"),
                Estimate(*of_native).text(".3f"),
                str(places[COUNTERPARTS.get(str(name), str(name))]),
                f"{row['iqm'] - of_native['iqm']:+.3f}",
            ]
        )
    ours = [str(name) for name in linux.index if name not in COUNTERPARTS]
    rank = pd.Series(range(len(ours)), ours).corr(pd.Series({name: places[name] for name in ours}), method="spearman")
    headings = ["", "competitor", "fair power on Linux, IQM", "in native", "place in native", "difference"]
    return (
        f"the rank correlation (Spearman) of our {len(ours)} competitors on Linux and in native is {rank:.2f}",
        page.table(headings, rows, (0, 2, 3, 4, 5)),
    )


def _harm(on_linux: League, in_native: League) -> tuple[str, str]:
    """Return how far native is from Linux in the harm to CUBIC, and a row per competitor."""
    linux, native = (harms(league.beside, league.alone) for league in (on_linux, in_native))
    rows, gaps = [], []
    for name in linux.groupby(level="competitor").mean().sort_values(kind="stable").index:
        sides = [side.xs(name, level="competitor") for side in (linux, native)]
        found = [estimate(side, strata=side.index.get_level_values("scenario").tolist()) for side in sides]
        gap = found[1].value - found[0].value
        gaps.append(abs(gap))
        rows.append([page.cell(name), *(one.text(".3f") for one in found), f"{gap:+.3f}"])
    return (
        f"native differs from Linux by at most {max(gaps):.3f}",
        page.table(["competitor", "on Linux", "in native", "native less Linux"], rows, (1, 2, 3)),
    )


def harms(beside: BenchmarkResult, alone: BenchmarkResult) -> pd.Series:
    """Return the harm to the throughput of each run's second flow, index (scenario, competitor, seed).

    Harm (Ware et al., "Beyond Jain's Fairness Index: Setting the Bar For The Deployment of Congestion Control
    Algorithms", HotNets 2019) is the fraction that another flow takes of what a victim has alone. Runs of the same
    scenario and seed are compared.
    """
    runs = run_table(beside.results)["throughput_mbps[1]"]
    free = run_table(alone.results)["throughput_mbps[0]"].droplevel("competitor").to_dict()
    alone_mbps = [free[scenario, seed] for scenario, _, seed in runs.index]
    return pd.Series(1 - runs.to_numpy() / alone_mbps, runs.index)


def _duel_figure(results: Mapping[str, Rows]) -> Figure:
    """Draw the throughput of both flows in each engine."""
    runs = {title: kept_runs(DUEL.simulated(), engine, [1], results) for engine, title in ENGINES.items()}
    runs[LINUX] = kept_runs(DUEL, "linux", [1], results)
    return over_time({title: _over_time(of_seeds[1]) for title, of_seeds in runs.items()})


def _over_time(rows: Rows) -> Trace:
    """Return a trace of the duel that has only throughputs, and both flows in every step."""
    # With the simulated scenario, so that CUBIC has one name and colour.
    scenario = DUEL.simulated().scenario
    throughputs = np.array([row[OVER_TIME] for row in rows]).T
    steps = len(throughputs)
    flows = np.full((steps, len(rows), len(FLOW_COLUMNS)), np.nan)
    flows[:, :, FLOW_COLUMNS.index("throughput_mbps")] = throughputs
    flows[:, :, FLOW_COLUMNS.index("is_active")] = 1.0
    link = np.full((steps, len(LINK_COLUMNS)), np.nan)
    link[:, LINK_COLUMNS.index("rate_mbps")] = scenario.rate_mbps
    time_s = 1e-3 * DUEL.step_ms * np.arange(1, steps + 1, dtype=np.float64)
    return Trace(scenario, seed=1, engine="", step_ms=DUEL.step_ms, time_s=time_s, flows=flows, link=link)
