"""What the policy's preference buys: `python -m studies.preference [key=value …]`.

Runs conf/experiment/preference.yaml twice, beside CUBIC and beside flows of the competitor's own kind, in the folders
runs/benchmark/preference-<engine>. Finished runs are kept.

    engine=ns3                           in ns-3, which takes much longer than native
    write=docs/results/preference.md     write the page, of every engine that has run
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from rich.console import Console

from bbrgym import Flow, Scenario, make_engine, simulate
from bbrgym.benchmark.results import BenchmarkResult, load_benchmark
from bbrgym.benchmark.run import run_benchmark
from bbrgym.benchmark.statistics import Estimate, estimate
from bbrgym.benchmark.style import MOST_HIGHLIGHTED, OTHERS, Mark, mark_of, name_points, panels, styled
from bbrgym.benchmark.tables import run_table
from bbrgym.cli import BENCHMARKS
from studies import page
from studies.command import check_failures, run_command, split_settings
from studies.experiments import compose_experiment

MARK: Final = "studies/preference.py"
ENGINES: Final = ("native", "ns3")
ROLES: Final[Mapping[str, list[int] | None]] = {"cubic": [0], "kind": None}
POLICY: Final = "policy "
"""What the names of the policy's settings begin with."""

FAIR_SHARE: Final = 0.5
"""An equal share beside one rival: a point with more of the link counts as one with this."""

MIXED: Final = ((0.0, 1.0), (0.0, 1.0, 1.0, 1.0), (0.0, 0.0, 0.0, 1.0), (0.0, 0.25, 0.5, 0.75, 1.0))
"""Preferences of flows on one link."""
MIXED_LINK: Final = Scenario(rate_mbps=20, buffer_bdp=2, duration_s=60)


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


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit status."""
    return run_command("preference", __doc__, _run, arguments)


def _run(arguments: Sequence[str], console: Console) -> None:
    own, others = split_settings(arguments, {"write": None})
    results = {}
    for role, roles in ROLES.items():
        config = compose_experiment("preference", others)
        folder = BENCHMARKS / f"preference-{config['engine']['name']}" / role
        results[role] = run_benchmark(
            config["benchmark"] | {"roles": roles}, folder, console, beside=BENCHMARKS, has_report=False
        )
        check_failures(len(results[role].failures))
    print(summary(points(results)))
    if own["write"] is not None:
        write(Path(own["write"]))
        print(f"Page: {own['write']}")


def points(results: Mapping[str, BenchmarkResult]) -> Points:
    """Return where each competitor is on each link."""
    cubic, kind = (run_table(results[role].results) for role in ROLES)
    first = cubic["throughput_mbps[0]"]
    table = pd.DataFrame(
        {"share": first / (first + cubic["throughput_mbps[1]"]), "queue_ms": kind["link_queue_mean_ms"]}
    )
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


def mixed(preferences: Sequence[float], seeds: Sequence[int]) -> Estimate:
    """Return the lowest share of flows with these preferences on one link, in equal shares."""
    flows = tuple(Flow("policy", 40, jitter_ms=0.5, parameters={"preference": value}) for value in preferences)
    scenario = replace(MIXED_LINK, flows=flows)
    engine = make_engine("native")
    lowest = []
    for seed in seeds:
        rates = [
            flow.throughput_mbps
            for flow in simulate(scenario, engine, seed).summary(after_s=0.25 * scenario.duration_s).flows
        ]
        lowest.append(min(rates) / sum(rates) * len(rates))
    return estimate(lowest)


def write(path: Path) -> None:
    """Write the blocks of the page: of every engine that has run, and of flows with different preferences."""
    blocks = {}
    for engine in ENGINES:
        folders = {role: BENCHMARKS / f"preference-{engine}" / role for role in ROLES}
        if not all((folder / "benchmark.json").is_file() for folder in folders.values()):
            continue
        results = {role: load_benchmark(folder) for role, folder in folders.items()}
        found = points(results)
        link = page.write_figure(_figure(found), path, engine)
        blocks[engine] = [
            f"{len(results['kind'].plan['config']['seeds'])} seeds.",
            summary(found),
            f"![Share beside CUBIC over the queueing delay among its own kind]({link})",
            _table(found),
            *page.provenance(result.plan for result in results.values()),
        ]
    rows = [
        [", ".join(f"{value:g}" for value in preferences), mixed(preferences, range(1, 11)).text(".2f")]
        for preferences in MIXED
    ]
    blocks["mixed"] = [page.table(["preferences of the flows", "lowest share, in equal shares"], rows, [1])]
    page.write_blocks(path, MARK, blocks)


def _table(found: Points) -> str:
    """Return the share and the queue of each competitor on each link."""
    rows = [
        [name, *(f"{of[name].share.text('.2f')}, {of[name].queue_ms.text('.1f')} ms" for of in found.values())]
        for name in next(iter(found.values()))
    ]
    return page.table(["share beside CUBIC, queue among its own kind", *found], rows, range(1, 1 + len(found)))


@styled
def _figure(found: Points) -> Figure:
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
