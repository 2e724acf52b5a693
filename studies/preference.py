"""What the policy's preference buys: its share beside CUBIC, and the queue of flows of its own kind.

Measures conf/experiment/preference.yaml in two engines, beside CUBIC and beside flows of the competitor's own kind.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from bbrgym import Flow, Scenario, make_engine, simulate
from bbrgym.baselines.policy_file import REFERENCE, read_policy
from bbrgym.benchmark.code import code_hash
from bbrgym.benchmark.experiments import compose_experiment
from bbrgym.benchmark.ledger import Rows
from bbrgym.benchmark.plan import Benchmark
from bbrgym.benchmark.statistics import Estimate, estimate
from bbrgym.benchmark.style import MOST_HIGHLIGHTED, OTHERS, Mark, mark_of, name_points, panels, styled
from studies import page
from studies.experiments import SeedRuns, measure_seeds, seed_runs, table_of_runs

ENGINES: Final[Mapping[str, Sequence[str]]] = {"native": (), "ns3": ("engine=ns3", "benchmark.seeds=[1,2]")}
"""The engines, and how the experiment is changed for them: ns-3 takes much longer."""
ROLES: Final[Mapping[str, list[int] | None]] = {"cubic": [0], "kind": None}
METRICS: Final = {"cubic": ("throughput_mbps[0]", "throughput_mbps[1]"), "kind": ("link_queue_mean_ms",)}
"""What is kept of the runs of a role."""
POLICY: Final = "policy "
"""What the names of the policy's settings begin with."""

FAIR_SHARE: Final = 0.5
"""An equal share beside one rival: a point with more of the link counts as one with this."""

MIXED: Final = ((0.0, 1.0), (0.0, 1.0, 1.0, 1.0), (0.0, 0.0, 0.0, 1.0), (0.0, 0.25, 0.5, 0.75, 1.0))
"""Preferences of flows on one link."""
MIXED_LINK: Final = Scenario(rate_mbps=20, buffer_bdp=2, duration_s=60)
MIXED_SEEDS: Final = range(1, 11)
MIXED_WARMUP: Final = 0.25
"""The part of such a run that does not count."""


@dataclass(frozen=True)
class Point:
    """A competitor on one link.

    Attributes:
        share: of the throughput, beside CUBIC.
        queue_ms: mean queueing delay, beside a flow of its own kind.
    """

    share: Estimate
    queue_ms: Estimate

    def is_within(self, front: Sequence[Point]) -> bool:
        """Whether one of these has as much of the link, up to the fair share, and no longer queue."""
        wanted = min(self.share.value, FAIR_SHARE)
        return any(point.share.value >= wanted and point.queue_ms.value <= self.queue_ms.value for point in front)


Points = Mapping[str, Mapping[str, Point]]
"""{scenario: {competitor: point}}."""


@cache
def jobs() -> Sequence[SeedRuns | MixedRun]:
    """Return the runs in every engine and role, and those of flows with different preferences."""
    pairs = [job for engine in ENGINES for role in ROLES for job in pair_runs(engine, role)]
    return [*pairs, *mixed_runs()]


@cache
def _experiment(engine: str) -> Mapping[str, Any]:
    """Return the benchmark of the experiment in an engine, as plain types; Hydra takes seconds."""
    composed: Mapping[str, Any] = compose_experiment("preference", ENGINES[engine])["benchmark"]
    return composed


@cache
def pair_runs(engine: str, role: str) -> Sequence[SeedRuns]:
    """Return the runs in an engine, beside CUBIC or beside flows of the competitor's own kind."""
    benchmark = Benchmark.from_dict({**_experiment(engine), "roles": ROLES[role]})
    return seed_runs(benchmark, lambda _: METRICS[role], f"{engine}/{role}")


def work(job: SeedRuns | MixedRun) -> Rows:
    """Simulate and measure."""
    return measure_seeds(job) if isinstance(job, SeedRuns) else [{"lowest": lowest_share(job)}]


def view(results: Mapping[str, Rows], figure: page.AddFigure) -> Mapping[str, object]:
    """Return the figure and the tables of each engine, and the table of flows with different preferences."""
    context: dict[str, object] = {"mixed": mixed_table(results)}
    for engine in ENGINES:
        runs = {role: pair_runs(engine, role) for role in ROLES}
        found = points({role: table_of_runs(of_role, results) for role, of_role in runs.items()})
        context[engine] = {
            "seeds": len(runs["kind"][0].runs),
            "summary": summary(found),
            "figure": figure(engine, partial(front_figure, found)),
            "table": point_table(found),
        }
    return context


def points(tables: Mapping[str, pd.DataFrame]) -> Points:
    """Return where each competitor is on each link, given the runs by role, as `table_of_runs` has them."""
    cubic, kind = (tables[role] for role in ROLES)
    first, second = (cubic[metric] for metric in METRICS["cubic"])
    table = pd.DataFrame({"share": first / (first + second), "queue_ms": kind[METRICS["kind"][0]]})
    return {
        str(scenario): {
            str(name): Point(estimate(runs["share"].to_numpy()), estimate(runs["queue_ms"].to_numpy()))
            for name, runs in of_scenario.groupby(level="competitor", sort=False)
        }
        for scenario, of_scenario in table.groupby(level="scenario", sort=False)
    }


def beyond(found: Points) -> dict[str, list[str]]:
    """Return the algorithms that are not within the policy's front, by scenario."""
    return {
        scenario: [name for name in _algorithms(of_scenario) if not of_scenario[name].is_within(_front(of_scenario))]
        for scenario, of_scenario in found.items()
    }


def _algorithms(of_scenario: Mapping[str, Point]) -> list[str]:
    return [name for name in of_scenario if not name.startswith(POLICY)]


def _front(of_scenario: Mapping[str, Point]) -> list[Point]:
    return [point for name, point in of_scenario.items() if name.startswith(POLICY)]


def summary(found: Points) -> str:
    """Return how many algorithms are within the policy's front, and name those beyond it."""
    outside = beyond(found)
    count = sum(len(_algorithms(of_scenario)) for of_scenario in found.values())
    within = count - sum(map(len, outside.values()))
    listed = "; ".join(f"{scenario}: {', '.join(names)}" for scenario, names in outside.items() if names)
    return (
        "At some preference the policy has at least an algorithm's share beside CUBIC (half of the link is enough) "
        f"and no longer queue among its own kind: in {within} of {count} points."
        f"{f' Beyond it: {listed}.' if listed else ''}"
    )


@dataclass(frozen=True)
class MixedRun:
    """A run of flows with these preferences on one link."""

    preferences: tuple[float, ...]
    seed: int

    @property
    def scenario(self) -> Scenario:
        """What is simulated."""
        flows = (Flow("policy", 40, jitter_ms=0.5, parameters={"preference": value}) for value in self.preferences)
        return replace(MIXED_LINK, flows=tuple(flows))

    @property
    def name(self) -> str:
        """What the ledger calls it."""
        return f"mixed/{preferences_text(self.preferences)}/{self.seed}"

    @property
    def code(self) -> str:
        """The hash of what decides its result."""
        decided_by = [self.scenario.to_dict(), read_policy(REFERENCE).content_hash, MIXED_WARMUP]
        return code_hash("native", also=json.dumps(decided_by))


def mixed_runs() -> list[MixedRun]:
    """Return the runs of flows with different preferences."""
    return [MixedRun(preferences, seed) for preferences in MIXED for seed in MIXED_SEEDS]


def lowest_share(job: MixedRun) -> float:
    """Return the lowest share of the flows, in equal shares."""
    with closing(make_engine("native")) as engine:
        trace = simulate(job.scenario, engine, job.seed)
    rates = [flow.throughput_mbps for flow in trace.summary(after_s=MIXED_WARMUP * job.scenario.duration_s).flows]
    return min(rates) / sum(rates) * len(rates)


def mixed_table(results: Mapping[str, Rows]) -> str:
    """Return the lowest share of flows with different preferences."""
    rows = []
    for preferences in MIXED:
        lowest = [results[MixedRun(preferences, seed).name][0]["lowest"] for seed in MIXED_SEEDS]
        rows.append([preferences_text(preferences), estimate(lowest).text(".2f")])
    return page.table(["preferences of the flows", "lowest share, in equal shares"], rows, [1])


def preferences_text(preferences: Sequence[float]) -> str:
    """Return `0, 0.25, 1`."""
    return ", ".join(f"{value:g}" for value in preferences)


def point_table(found: Points) -> str:
    """Return the share and the queue of each competitor on each link."""
    rows = [
        [name, *(f"{of[name].share.text('.2f')}, {of[name].queue_ms.text('.1f')} ms" for of in found.values())]
        for name in next(iter(found.values()))
    ]
    return page.table(["share beside CUBIC, queue among its own kind", *found], rows, range(1, 1 + len(found)))


@styled
def front_figure(found: Points) -> Figure:
    """Draw the share over the queue: a panel per link, with the front of the policy's preferences."""
    figure, grid = panels(len(found), 2, 2.9, sharex=True, sharey=True)
    for axes, (scenario, of_scenario) in zip(grid, found.items(), strict=True):
        places = {name: (point.queue_ms.value, point.share.value) for name, point in of_scenario.items()}
        front = np.array([place for name, place in places.items() if name.startswith(POLICY)])
        first = _named(of_scenario)
        marks = {
            name: mark_of(name) if name in first else Mark(OTHERS.colour, "o") for name in _algorithms(of_scenario)
        }
        marks["policy"] = Mark("#000000", "o")
        for name, mark in marks.items():
            mark.line(axes, *np.reshape(places.get(name, front), (-1, 2)).T)
        axes.axhline(FAIR_SHARE, color="#888888", linestyle="--", linewidth=0.8)
        axes.set_xscale("log")
        axes.margins(0.1)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_title(f"{scenario.removesuffix('bdp')} BDP; grey: {len(marks) - len(first) - 1} others")
        ends = {"policy, 0": front[0], "1": front[-1]}
        name_points(axes, ends | {name: places[name] for name in first}, marks | dict.fromkeys(ends, marks["policy"]))
    for axes in grid[::2]:
        axes.set_ylabel("share beside CUBIC")
    for axes in grid[-2:]:
        axes.set_xlabel("queue among its own kind (ms)")
    return figure


def _named(of_scenario: Mapping[str, Point]) -> list[str]:
    """Return the algorithms that no other one beats in both, then well-known ones: as many as can be told apart."""
    names = _algorithms(of_scenario)
    best = [n for n in names if not of_scenario[n].is_within([of_scenario[other] for other in names if other != n])]
    known = [name for name in ("cubic", "bbr", "bbr2", "copa") if name in names]
    return list(dict.fromkeys([*best, *known]))[: MOST_HIGHLIGHTED - 1]
