"""How closely the native engine agrees with ns-3: `python studies/agreement.py [--write docs/results/agreement.md]`.

A grid of scenarios (`grid`) and the experiments of the papers, as far as ns-3's runs of them are there, in both
engines with the same seeds. ns-3's runs of the grid are kept in `runs/benchmark/agreement-<engine>/`, so that an
interrupted command goes on where it was, and are made again when ns-3 makes something else of a few short runs
(`_code`). Native's are always made afresh: all of them take a minute.

A difference above its limit gets a cause, by a rule and with the numbers that it rests on (`cause`).
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import math
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import NormalDist
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
from rich.console import Console

from bbrgym import Flow, Scenario, Trace, make_engine, simulate
from bbrgym.baselines.registry import COMPARATORS
from bbrgym.benchmark.metrics import measure
from bbrgym.benchmark.plan import Benchmark, Run, version_of
from bbrgym.benchmark.run import load_benchmark
from bbrgym.benchmark.storage import load_trace, replace_file, save_trace, write_block
from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.processes import run_in_processes
from studies.papers.published import Paper, compare
from studies.papers.report import paper_of

ROOT: Final = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- begin: studies/agreement.py -->", "<!-- end: studies/agreement.py -->"

SEEDS: Final = (1, 2, 3)
NEIGHBOURS: Final = 12
"""Runs of native that tell how far chance alone moves a figure."""
WARMUP: Final = 0.25
STEP_MS: Final = 100.0
COUNT: Final = 64
ENGINES: Final[dict[str, dict[str, Any]]] = {
    "ns3": {"name": "ns3"},
    "ns3-quic": {"name": "ns3", "transport": "quic"},
}
"""What native is compared with: ns-3's TCP, and native's own transport over UDP in ns-3's network."""

ALGORITHMS: Final = (
    "bbr", "bbr-acw", "bbr-acd", "bbq", "da-bbr", "ebcc", "bbr2", "f-bbr2", "cubic", "newreno", "agent",
    "bbr-acd-ns3-published",
)  # fmt: skip
"""Of the grid. Another one draws other scenarios, so what is registered later goes to the end."""


def grid(count: int = COUNT, seed: int = 2026) -> dict[str, Scenario]:
    """Scenarios that cover what is usual, by a Latin hypercube.

    Every range is cut into `count` equal parts, each of which has one scenario. The logarithms of rate (2 to
    200 Mbit/s), longest RTT (5 to 200 ms), and buffer (0.25 to 8 BDP) are uniform, and so is the number of flows (1 to
    8). Half of the scenarios have random losses, log-uniform from 0.05 to 6 %. In every second one all flows have the
    same algorithm (each gets its turn), else each its own; in every second pair the other flows' RTTs are shorter, by
    up to four; in every second four flows start within the first tenth of the run, else together. Packets have 1000 or
    1448 bytes. A run lasts for 300,000 packets (80,000 with losses above 0.5 %), but 10 s and 50 RTTs at least, and
    60 s at most.

    Only `random.Random.random` is drawn from, which gives the same numbers in every version of Python.
    """
    uniform = random.Random(seed).random

    def stratified() -> list[float]:
        """`count` values in [0, 1), one in each of as many equal parts, in random order."""
        order = sorted(range(count), key=[uniform() for _ in range(count)].__getitem__)
        return [(place + uniform()) / count for place in order]

    rates, rtts, buffers, flows, losses, sizes = (stratified() for _ in range(6))
    scenarios = {}
    for index in range(count):
        rate_mbps = float(f"{_between(2, 200, rates[index]):.3g}")
        longest_ms = float(f"{_between(5, 200, rtts[index]):.3g}")
        packet_bytes = 1448 if sizes[index] < 0.5 else 1000
        loss = float(f"{_between(0.0005, 0.06, 2 * losses[index] - 1):.2g}") if losses[index] >= 0.5 else 0.0
        packets_per_s = rate_mbps * 1e6 / 8 / (packet_bytes + 40)
        wanted_s = (80_000 if loss > 0.005 else 300_000) / packets_per_s
        duration_s = float(round(min(60.0, max(wanted_s, 10.0, 0.05 * longest_ms))))
        is_equal, has_one_rtt, start_together = (index // 2**bit % 2 == 0 for bit in range(3))
        chosen = [
            Flow(
                algorithm=ALGORITHMS[index // 2 % len(ALGORITHMS) if is_equal else int(draw * len(ALGORITHMS))],
                rtt_ms=longest_ms if has_one_rtt or place == 0 else float(f"{longest_ms * 4 ** -uniform():.3g}"),
                start_s=0.0 if start_together or place == 0 else float(f"{0.1 * duration_s * uniform():.3g}"),
            )
            for place, draw in enumerate(uniform() for _ in range(1 + int(8 * flows[index])))
        ]
        scenarios[f"g{index:02d}"] = Scenario(
            rate_mbps=rate_mbps,
            buffer_bdp=float(f"{_between(0.25, 8, buffers[index]):.2g}"),
            duration_s=duration_s,
            packet_bytes=packet_bytes,
            loss=loss,
            flows=tuple(chosen),
        )
    return scenarios


def _between(low: float, high: float, part: float) -> float:
    return float(low * (high / low) ** part)


@dataclass(frozen=True)
class Figures:
    """What is compared of a run, after its warm-up.

    Attributes:
        shares: of the flows, of the sum of their throughputs.
        utilisation: share of the link's capacity that was used.
        queue_ms: mean queueing delay.
        retransmission_rate: retransmitted over sent packets, of all flows.
        jain: Jain's index of the throughputs.
        loss_rate: packets that the link or its queue lost, over sent packets.
        timeouts: retransmission (in QUIC: probe) timeouts of all flows, in the whole run.
        trace_hash: equal for equal runs.
    """

    shares: tuple[float, ...]
    utilisation: float
    queue_ms: float
    retransmission_rate: float
    jain: float
    loss_rate: float = math.nan
    timeouts: float = math.nan
    trace_hash: str = ""

    @classmethod
    def of_trace(cls, trace: Trace, warmup: float = WARMUP) -> Figures:
        """Of a run whose warm-up is this part of it."""
        rows = measure(trace, after_s=warmup * trace.scenario.duration_s)
        timeouts = float(trace.flows[:, :, FLOW_COLUMNS.index("rto_count")].sum())
        return replace(cls.of_rows(rows), timeouts=timeouts, trace_hash=trace.hash)

    @classmethod
    def of_rows(cls, rows: Sequence[Mapping[str, Any]]) -> Figures:
        """Of the rows of `bbrgym.benchmark.metrics.measure`."""
        sent = sum(row["sent_packets"] for row in rows)
        return cls(
            shares=tuple(row["share"] for row in rows),
            utilisation=rows[0]["link_utilisation"],
            queue_ms=rows[0]["link_queue_mean_ms"],
            retransmission_rate=sum(row["retransmissions"] for row in rows) / sent if sent else math.nan,
            jain=rows[0]["link_jain"],
            loss_rate=(rows[0]["link_drops"] + rows[0]["link_random_losses"]) / sent if sent else math.nan,
        )

    @property
    def unnecessary_rate(self) -> float:
        """Packets that were sent again though nothing had been lost, over sent packets."""
        return max(0.0, self.retransmission_rate - self.loss_rate)


@dataclass(frozen=True)
class Metric:
    """How far apart two engines are in something.

    Attributes:
        title: what it is, for a reader.
        values: its value or values in a run.
        limit: what is above it is listed with its cause.
        is_relative: differences are relative to ns-3's value, else absolute.
        floor: the smallest value that a difference is taken relative to.
    """

    title: str
    values: Callable[[Figures], Sequence[float]]
    limit: float = 0.15
    is_relative: bool = True
    floor: Callable[[Scenario], float] = lambda scenario: 0.0

    def means(self, runs: Sequence[Figures]) -> npt.NDArray[np.float64]:
        """Of the runs with different seeds."""
        means: npt.NDArray[np.float64] = np.array([self.values(run) for run in runs], dtype=np.float64).mean(axis=0)
        return means


METRICS: Final = (
    Metric("share of a flow", lambda run: run.shares, limit=0.05, is_relative=False),
    Metric("utilisation", lambda run: [run.utilisation]),
    Metric(
        "queueing delay",
        lambda run: [run.queue_ms],
        # A packet on the link, or a twentieth of the RTT: nobody cares for less.
        floor=lambda s: max((s.packet_bytes + 40) * 8e-3 / s.rate_mbps, 0.05 * max(flow.rtt_ms for flow in s.flows)),
    ),
    Metric("retransmission rate", lambda run: [run.retransmission_rate], floor=lambda scenario: 0.005),
    Metric("Jain's index", lambda run: [run.jain]),
)


@dataclass(frozen=True)
class Difference:
    """Native, or another engine, against a reference, in one metric of a scenario, of the means over the seeds.

    Attributes:
        metric: in what.
        place: of which of the metric's values: of shares, of the one that differs most.
        reference: its value in the reference.
        native: and in the other.
        size: how far apart they are, in the metric's terms.
        from_neighbours: how far the reference is from the mean of native's neighbours, likewise.
        chance: how far those two are apart by chance: two standard errors of their difference, or what is as unlikely
            for the worst of several flows (`_standard_errors`).
    """

    metric: Metric
    place: int
    reference: float
    native: float
    size: float
    from_neighbours: float
    chance: float

    @property
    def is_above_limit(self) -> bool:
        """Whether it needs a cause."""
        return self.size > self.metric.limit

    @property
    def is_chance(self) -> bool:
        """Whether the reference could be a run of native."""
        return self.from_neighbours <= self.chance


def difference(
    metric: Metric,
    scenario: Scenario,
    reference: Sequence[Figures],
    native: Sequence[Figures],
    neighbours: Sequence[Figures] = (),
) -> Difference:
    """How far two engines are apart.

    Args:
        metric: in what.
        scenario: where.
        reference: runs of the one engine.
        native: runs of the other, with the same seeds.
        neighbours: runs of native with other seeds, in scenarios that hardly differ. Their standard deviation is taken
            for that of the reference too, in which a seed that changes nothing does not make the mean more certain.
            Fewer than two tell nothing of chance: NaN.
    """
    ours, theirs = metric.means(native), metric.means(reference)
    place = int(np.argmax(np.abs(ours - theirs)))
    scale = max(abs(theirs[place]), metric.floor(scenario)) if metric.is_relative else 1.0

    def apart(value: float) -> float:
        gap = abs(value - float(theirs[place]))
        return gap / scale if gap else 0.0

    near = [metric.values(run)[place] for run in neighbours]
    chance = math.nan
    if len(near) > 1:
        variance = 1 / len({run.trace_hash for run in reference}) + 1 / len(near)
        chance = _standard_errors(len(ours)) * float(np.std(near, ddof=1)) * math.sqrt(variance) / (scale or 1.0)
    return Difference(
        metric=metric,
        place=place,
        reference=float(theirs[place]),
        native=float(ours[place]),
        size=apart(float(ours[place])),
        from_neighbours=apart(float(np.mean(near))) if near else math.nan,
        chance=chance,
    )


def _standard_errors(values: int) -> float:
    """How many a mean may be off: two, or for the worst of several as many as are as unlikely (Bonferroni).

    Shares add up to one, so that one of them says nothing new.
    """
    unlikely = 1 - NormalDist().cdf(2)
    return NormalDist().inv_cdf(1 - unlikely / max(1, values - 1))


def neighbours(scenario: Scenario, count: int = NEIGHBOURS) -> Iterator[tuple[Scenario, int]]:
    """Scenarios that nobody would tell from this one, with seeds that are not `SEEDS`.

    RTTs are longer by up to 0.2 %, and each flow starts up to 5 % of an RTT later. Runs without losses hardly depend
    on a seed, yet a packet more or less can decide who loses the next one.
    """
    for seed in range(1000, 1000 + count):
        uniform = random.Random(seed).random
        flows = tuple(
            replace(
                flow,
                rtt_ms=flow.rtt_ms * (1 + 0.002 * uniform()),
                start_s=flow.start_s + 5e-5 * flow.rtt_ms * uniform(),
            )
            for flow in scenario.flows
        )
        # The buffer follows the RTT: it stays as it was.
        yield replace(scenario, flows=flows, buffer_bdp=None, buffer_packets=scenario.queue_packets), seed


@dataclass(frozen=True)
class Compared:
    """A scenario in all engines.

    Attributes:
        name: the scenario's.
        scenario: it itself.
        runs: {engine: its runs with `SEEDS`}, `native` among them.
        neighbours: runs of native that differ by chance.
        others_neighbours: {engine: its runs of these neighbours}, where the others do not tell a cause.
    """

    name: str
    scenario: Scenario
    runs: Mapping[str, Sequence[Figures]]
    neighbours: Sequence[Figures] = ()
    others_neighbours: Mapping[str, Sequence[Figures]] = field(default_factory=dict)

    def difference(self, metric: Metric, reference: str, other: str) -> Difference:
        """Of an engine against another."""
        return difference(metric, self.scenario, self.runs[reference], self.runs[other], self.neighbours)

    def differences(self, reference: str) -> list[Difference]:
        """Of native against an engine, one a metric."""
        return [self.difference(metric, reference, "native") for metric in METRICS]

    def between_neighbours(self, found: Difference, reference: str, other: str) -> tuple[float, float]:
        """How far the means over the neighbours are apart in two engines, and how far they may be by chance."""
        runs = {"native": self.neighbours, **self.others_neighbours}
        a, b = (np.array([found.metric.values(run)[found.place] for run in runs[e]]) for e in (reference, other))
        scale = max(abs(float(a.mean())), found.metric.floor(self.scenario)) if found.metric.is_relative else 1.0
        error = math.sqrt(a.var(ddof=1) / len(a) + b.var(ddof=1) / len(b))
        errors = _standard_errors(len(found.metric.values(runs[reference][0])))
        return abs(float(a.mean() - b.mean())) / scale, errors * error / scale

    def timeouts(self, engine: str) -> float:
        """In a run, all flows together."""
        return float(np.mean([run.timeouts for run in self.runs[engine]]))

    def timeout_rate(self, engine: str) -> float:
        """Over the packets that the link could have carried."""
        s = self.scenario
        packets = s.rate_mbps * 1e6 / 8 / (s.packet_bytes + 40) * s.duration_s
        return self.timeouts(engine) / packets


def cause(compared: Compared, found: Difference) -> str:
    """Why native differs from ns-3's TCP there, by the first rule that fits, with the numbers that say so.

    1. Chance: ns-3's mean is as near to native's neighbours as the mean of so many of them would be.
    2. Transport: with native's transport over UDP in ns-3's network, the difference is within the limit or chance.
    3. Network: those runs are within the limit of ns-3's TCP, and native is not.
    4. The same three by the means over all neighbours in every engine, where there are such runs.
    5. Timeouts, where there are no runs over UDP: ns-3's TCP has at least one more than native in a run.
    6. Else there is none: it is not explained.
    """
    if found.is_chance:
        return (
            f"chance: {_in_terms(found.metric, found.from_neighbours)} from native's neighbours, "
            f"which by chance are ±{_in_terms(found.metric, found.chance)} apart"
        )
    counts = (
        f"timeouts a run: {compared.timeouts('ns3'):.1f} in ns-3's TCP, {compared.timeouts('native'):.1f} in native"
    )
    if "ns3-quic" not in compared.runs:
        return counts if compared.timeouts("ns3") >= compared.timeouts("native") + 1 else f"not explained ({counts})"
    from_udp = compared.difference(found.metric, "ns3-quic", "native")
    from_tcp = compared.difference(found.metric, "ns3", "ns3-quic")
    sizes = f"over UDP it is {_in_terms(found.metric, from_udp.size)} from native, "
    sizes += f"{_in_terms(found.metric, from_tcp.size)} from TCP; {counts}"
    if from_udp.is_chance or not from_udp.is_above_limit:
        return f"transport ({sizes})"
    if not from_tcp.is_above_limit:
        return f"network ({sizes})"
    return _cause_by_neighbours(compared, found) or f"not explained ({sizes})"


def _cause_by_neighbours(compared: Compared, found: Difference) -> str:
    if not compared.others_neighbours:
        return ""
    pairs = {"chance": ("ns3", "native"), "transport": ("ns3-quic", "native"), "network": ("ns3", "ns3-quic")}
    gaps = {name: compared.between_neighbours(found, *pair) for name, pair in pairs.items()}
    shown = {name: f"{_in_terms(found.metric, size)} ± {_in_terms(found.metric, by_chance)}"
             for name, (size, by_chance) in gaps.items()}  # fmt: skip
    text = (
        f"{len(compared.neighbours)} neighbours in each engine: native is {shown['chance']} from TCP and "
        f"{shown['transport']} from UDP, these are {shown['network']} apart"
    )
    for name, (size, by_chance) in gaps.items():
        # Chance explains only what it can make; a difference within the limit needs no cause.
        if size <= max(by_chance, 0.0 if name == "chance" else found.metric.limit):
            return f"{name} ({text})"
    return ""


def _in_terms(metric: Metric, size: float) -> str:
    return f"{100 * size:.1f} %" if metric.is_relative else f"{100 * size:.1f} points"


@dataclass(frozen=True)
class Task:
    """A run of the grid: where, with which seed, and by which engine."""

    scenario: Scenario
    seed: int
    engine: Mapping[str, Any]
    file: Path | None = None


def trace_of(task: Task) -> Trace:
    """Make a run; its trace is kept in the task's file, and taken from there if it is."""
    if task.file is not None and task.file.is_file():
        return load_trace(task.file)
    with closing(make_engine(**task.engine)) as engine:
        trace = replace(simulate(task.scenario, engine, task.seed, STEP_MS), engine=task.engine["name"])
    if task.file is not None:
        replace_file(task.file, lambda path: save_trace(trace, path))
    return trace


def compare_grid(
    scenarios: Mapping[str, Scenario],
    engines: Sequence[str],
    directory: Path,
    console: Console,
    processes: int,
    seeds: Sequence[int] = SEEDS,
    neighbours_count: int = NEIGHBOURS,
) -> list[Compared]:
    """Run every scenario in the engines, as far as it is not there yet, and in native.

    Args:
        scenarios: by their names.
        engines: of `ENGINES`.
        directory: the runs of an engine are in `agreement-<engine>` there.
        console: where progress is shown.
        processes: how many runs at a time.
        seeds: one run each.
        neighbours_count: how many more of native.

    Raises:
        RuntimeError: a run failed.
    """
    tasks: dict[tuple[str, str], list[Task]] = {}
    for name, scenario in scenarios.items():
        for engine in engines:
            tasks[name, engine] = [_kept(scenario, seed, engine, directory) for seed in seeds]
        tasks[name, "native"] = [Task(scenario, seed, {"name": "native"}) for seed in seeds]
        tasks[name, "neighbours"] = [Task(*near, {"name": "native"}) for near in neighbours(scenario, neighbours_count)]
    done = _run_all([(key, task) for key, of_key in tasks.items() for task in of_key], console, processes)
    return [
        Compared(
            name, scenario, {engine: done[name, engine] for engine in (*engines, "native")}, done[name, "neighbours"]
        )
        for name, scenario in scenarios.items()
    ]


def settle(
    compared: Sequence[Compared],
    directory: Path,
    console: Console,
    processes: int,
    count: int = NEIGHBOURS,
) -> list[Compared]:
    """Run the neighbours in the other engines too, where a difference from ns-3's TCP has no cause without that.

    Args:
        compared: of `compare_grid`.
        directory: as there.
        console: as there.
        processes: as there.
        count: how many neighbours, as there.
    """
    tasks = {
        (place, engine): [_kept(*near, engine, directory) for near in neighbours(one.scenario, count)]
        for place, one in enumerate(compared)
        if any(d.is_above_limit and cause(one, d).startswith("not explained") for d in one.differences("ns3"))
        for engine in one.runs
        if engine != "native"
    }
    done = _run_all([(key, task) for key, of_key in tasks.items() for task in of_key], console, processes)
    return [
        replace(one, others_neighbours={engine: runs for (at, engine), runs in done.items() if at == place})
        for place, one in enumerate(compared)
    ]


def _kept(scenario: Scenario, seed: int, engine: str, directory: Path) -> Task:
    """A run of ns-3, whose trace is kept."""
    folder = directory / f"agreement-{engine}"
    folder.mkdir(parents=True, exist_ok=True)
    return Task(scenario, seed, ENGINES[engine], folder / f"{_key(scenario, seed, engine)}.parquet")


def _run_all(tasks: Sequence[tuple[Any, Task]], console: Console, processes: int) -> dict[Any, list[Figures]]:
    """{key: the figures of its tasks, in their order}."""
    # The longest first would be shorter by seconds; seeds first makes an interrupted command more useful.
    order = sorted(range(len(tasks)), key=lambda number: (tasks[number][1].seed, number))
    results: dict[int, Figures] = {}
    began = last = time.monotonic()
    with closing(run_in_processes(_run_numbered, [(n, tasks[n][1]) for n in order], processes)) as outcomes:
        for outcome in outcomes:
            number, task = outcome.task
            if outcome.error is not None:
                raise RuntimeError(f"{tasks[number][0]}, seed {task.seed}: {outcome.error}")
            results[number] = outcome.value
            if time.monotonic() > last + 10:
                last = time.monotonic()
                console.print(f"{len(results)} of {len(tasks)} runs ({last - began:.0f} s)", highlight=False)
    figures: dict[Any, list[Figures]] = {}
    for number, (key, _) in enumerate(tasks):
        figures.setdefault(key, []).append(results[number])
    return figures


def _run_numbered(numbered: tuple[int, Task]) -> Figures:
    return Figures.of_trace(trace_of(numbered[1]))


def _key(scenario: Scenario, seed: int, engine: str) -> str:
    """Of all that decides what ns-3 simulates."""
    identity = [scenario.to_dict(), seed, ENGINES[engine], STEP_MS, _code(engine)]
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:20]


@functools.cache
def _code(engine: str) -> str:
    """Identifies an engine of ns-3 by what it makes of a few short runs with every algorithm.

    What it is built of changes more often than what it does, and runs that take an hour are to outlive that.
    """
    digest = hashlib.sha256(str(version_of("ns3")).encode())
    flows = tuple(Flow(algorithm, rtt_ms=15 + 5 * place) for place, algorithm in enumerate(ALGORITHMS))
    with closing(make_engine(**ENGINES[engine])) as running:
        for buffer_bdp, loss in ((4.0, 0.0), (0.3, 0.0), (1.0, 0.01)):
            scenario = Scenario(rate_mbps=20, buffer_bdp=buffer_bdp, duration_s=5, loss=loss, flows=flows)
            trace = simulate(scenario, running, 1, STEP_MS)
            for name in ("sent_packets", "rto_count", "received_bytes", "rtt_mean_ms", "cwnd_packets"):
                digest.update(np.nan_to_num(trace.flows[:, :, FLOW_COLUMNS.index(name)]).tobytes())
            for name in ("utilisation", "queue_mean_ms", "drops"):
                digest.update(trace.link[:, LINK_COLUMNS.index(name)].tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class PaperCompared:
    """An experiment of a paper in both engines.

    Attributes:
        experiment: its name.
        commit: of this project, with which ns-3's runs were made.
        runs: how many there are in each engine.
        sizes: of every metric, the differences of all pairs of a scenario and a competitor.
        same: how many published entries have the same verdict from both engines.
        entries: how many there are.
        others: {what is published: (verdict with ns-3, verdict with native)} of those that do not.
    """

    experiment: str
    commit: str
    runs: int
    sizes: Mapping[str, Sequence[float]]
    same: int
    entries: int
    others: Mapping[str, tuple[str, str]] = field(default_factory=dict)


def compare_papers(root: Path, console: Console, processes: int) -> list[PaperCompared]:
    """Make the runs again in native that ns-3 has made of the papers' experiments.

    Args:
        root: the folder with their benchmarks, as `python -m studies.papers` leaves it. Unfinished ones are left out.
            Competitors and rivals that only ns-3 has are so, too: where a rival is one (`STAND_INS`), ns-3 makes its
            runs again against this project's, which are kept beside `root` as the grid's are.
        console: where progress is shown.
        processes: how many runs at a time.
    """
    compared = []
    for directory in sorted(path.parent for path in root.glob("*/benchmark.json")):
        reference = load_benchmark(directory)
        plan = Benchmark.from_dict(reference.plan["config"])
        if reference.missing or reference.failures or plan.engine["name"] != "ns3" or reference.results.empty:
            console.print(f"left out: {directory} is not finished, or not ns-3's", highlight=False)
            continue
        plan = replace(plan, competitors=tuple(c for c in plan.competitors if c.algorithm not in COMPARATORS))
        wanted = {(run.scenario_name, run.competitor, run.seed): run for run in plan.runs()}
        ns3 = reference.results
        if has_stand_in := any(flow.algorithm in STAND_INS for s in plan.scenarios.values() for flow in s.flows):
            ns3 = _paper_results(plan, wanted.values(), root.parent, processes)
        native = _paper_results(plan, wanted.values(), None, processes)
        commit = _commit() if has_stand_in else str(reference.plan["provenance"].get("git.commit", "-"))
        name = f"{directory.name}, with this project's CUBIC" if has_stand_in else directory.name
        paper = paper_of(reference)
        compared.append(_compare_results(name, commit[:7], plan, paper, ns3, native))
        console.print(f"{directory.name}: {len(wanted)} runs", highlight=False)
    return compared


STAND_INS: Final = {"cubic-stock": "cubic", "newreno-stock": "newreno"}
"""For rivals that only ns-3 has."""


def _paper_results(plan: Benchmark, runs: Iterable[Run], kept: Path | None, processes: int) -> pd.DataFrame:
    """Rows as a benchmark has them, of runs with the stand-ins: of ns-3, below the folder `kept`, or of native."""
    tasks = []
    for planned in runs:
        flows = tuple(replace(f, algorithm=STAND_INS.get(f.algorithm, f.algorithm)) for f in planned.scenario.flows)
        scenario = replace(planned.scenario, flows=flows)
        assert planned.step_ms == STEP_MS, "it decides the key of a kept run"
        task = Task(scenario, planned.seed, {"name": "native"})
        tasks.append((plan.warmup, planned, task if kept is None else _kept(scenario, planned.seed, "ns3", kept)))
    rows: list[list[dict[str, Any]]] = [[] for _ in tasks]
    with closing(run_in_processes(_paper_rows, list(enumerate(tasks)), processes)) as outcomes:
        for outcome in outcomes:
            place, (_, planned, _) = outcome.task
            if outcome.error is not None:
                raise RuntimeError(f"{planned.names()}: {outcome.error}")
            rows[place] = outcome.value
    return pd.DataFrame([row for of_run in rows for row in of_run])


def _paper_rows(numbered: tuple[int, tuple[float, Run, Task]]) -> list[dict[str, Any]]:
    _, (warmup, planned, task) = numbered
    trace = trace_of(task)
    rows = measure(trace, after_s=warmup * planned.scenario.duration_s)
    return [planned.names() | {"trace_hash": trace.hash, "wall_s": 0.0} | row for row in rows]


def _commit() -> str:
    command = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _compare_results(
    name: str, commit: str, plan: Benchmark, paper: Paper, reference: pd.DataFrame, native: pd.DataFrame
) -> PaperCompared:
    sizes: dict[str, list[float]] = {metric.title: [] for metric in METRICS}
    competitors = {competitor.name: competitor for competitor in plan.competitors}
    reference = reference[reference["competitor"].isin(list(competitors))]
    for (scenario, competitor), ours in native.groupby(["scenario", "competitor"], sort=False):
        theirs = reference[(reference["scenario"] == scenario) & (reference["competitor"] == competitor)]
        of_seeds = [
            [Figures.of_rows([dict(row) for _, row in rows.iterrows()]) for _, rows in frame.groupby("seed")]
            for frame in (theirs, ours)
        ]
        for metric in METRICS:
            size = difference(metric, plan.scenarios[str(scenario)], *of_seeds).size
            if not math.isnan(size):
                sizes[metric.title].append(size)
    pairs = list(zip(compare(paper, reference), compare(paper, native), strict=True))
    return PaperCompared(
        experiment=name,
        commit=commit,
        runs=len(reference.groupby(["scenario", "competitor", "seed"])),
        sizes=sizes,
        same=sum(a.agreement == b.agreement for a, b in pairs),
        entries=len(pairs),
        others={
            f"{a.what}: {a.published}": (f"{a.measured} ({a.agreement})", f"{b.measured} ({b.agreement})")
            for a, b in pairs
            if a.agreement != b.agreement
        },
    )


def markdown(compared: Sequence[Compared], papers: Sequence[PaperCompared]) -> str:
    """Everything, for the document."""
    engines = [engine for engine in ENGINES if all(engine in one.runs for one in compared)]
    parts = [f"{len(compared)} scenarios, {len(SEEDS)} seeds each."]
    for engine in engines:
        title = {"ns3": "Against ns-3's TCP", "ns3-quic": "Against native's transport over UDP in ns-3"}[engine]
        parts += [f"### {title}", _summary_table(compared, engine)]
    parts += ["### Above a limit", _listed(compared)]
    parts += ["### Packets that are sent again", _retransmissions_table(compared, engines)]
    if papers:
        parts += ["### The papers' experiments", _papers_table(papers)]
        if any(paper.others for paper in papers):
            parts += ["Published entries whose verdict depends on the engine:", _verdicts(papers)]
    parts += ["### All scenarios", _all_table(compared, engines)]
    return "\n\n".join(parts)


def _summary_table(compared: Sequence[Compared], engine: str) -> str:
    groups = {
        "all": compared,
        "nothing retransmitted": [one for one in compared if not any(_retransmits(one, e) for e in (engine, "native"))],
        "losses of a full buffer only": [
            one for one in compared if one.scenario.loss == 0 and any(_retransmits(one, e) for e in (engine, "native"))
        ],
        "random losses": [one for one in compared if one.scenario.loss > 0],
    }
    rows = []
    for index, metric in enumerate(METRICS):
        for group, members in groups.items():
            found = [one.differences(engine)[index] for one in members]
            found = [d for d in found if not math.isnan(d.size)]
            if not found:
                continue
            sizes = np.array([d.size for d in found])
            beyond = sum(d.is_above_limit for d in found)
            unlucky = sum(d.is_above_limit and d.is_chance for d in found)
            cells = [_in_terms(metric, float(np.percentile(sizes, p))) for p in (50, 25, 75, 90)]
            rows.append(
                [f"{metric.title}, {'absolute' if not metric.is_relative else 'relative'}" if group == "all" else "",
                 f"{group} ({len(found)})", cells[0], f"{cells[1]} to {cells[2]}", cells[3],
                 _in_terms(metric, float(sizes.max())), f"{beyond} of {len(found)} above {100 * metric.limit:g} %",
                 str(beyond - unlucky)]
            )  # fmt: skip
    head = ["difference of", "scenarios", "median", "quartiles", "90th percentile", "largest", "above the limit",
            "of them beyond chance"]  # fmt: skip
    return _table(head, rows)


def _retransmits(compared: Compared, engine: str) -> bool:
    return any(run.retransmission_rate > 0 or run.timeouts > 0 for run in compared.runs[engine])


def _listed(compared: Sequence[Compared]) -> str:
    rows = []
    for one in compared:
        for found in one.differences("ns3"):
            if found.is_above_limit:
                values = [_value(found.metric, value) for value in (found.reference, found.native)]
                rows.append(
                    [one.name, found.metric.title, *values, _in_terms(found.metric, found.size), cause(one, found)]
                )  # fmt: skip
    head = ["scenario", "metric", "ns-3", "native", "difference", "cause"]
    counts = Counter(row[-1].partition(" (")[0].partition(":")[0] for row in rows)
    summary = ", ".join(f"{count} x {name}" for name, count in counts.most_common())
    return f"{len(rows)} of {len(compared) * len(METRICS)}: {summary}.\n\n{_table(head, rows)}" if rows else "None."


def _value(metric: Metric, value: float) -> str:
    return f"{value:.1f} ms" if metric.title == "queueing delay" else f"{value:.4f}"


def _retransmissions_table(compared: Sequence[Compared], engines: Sequence[str]) -> str:
    """Of each engine: what the network lost, and what was sent again without that; by ns-3's timeouts."""
    names = {"ns3": "TCP", "ns3-quic": "UDP", "native": "native"}
    metric = next(metric for metric in METRICS if metric.title == "retransmission rate")
    members = [one for one in compared if any(_retransmits(one, engine) for engine in (*engines, "native"))]
    groups = {
        "no timeout in ns-3's TCP": [one for one in members if one.timeouts("ns3") == 0],
        "up to one in 1000 packets": [one for one in members if 0 < one.timeout_rate("ns3") <= 0.001],
        "more": [one for one in members if one.timeout_rate("ns3") > 0.001],
        "all in which any engine retransmits": members,
    }
    rows = []
    for name, of_group in groups.items():
        if not of_group:
            continue
        differences = [np.median([one.difference(metric, e, "native").size for one in of_group]) for e in engines]
        cells = [" / ".join(_in_terms(metric, float(size)) for size in differences)]
        for attribute in ("loss_rate", "unnecessary_rate"):
            means = [
                np.mean([getattr(run, attribute) for one in of_group for run in one.runs[engine]])
                for engine in (*engines, "native")
            ]
            cells.append(" / ".join(f"{100 * mean:.2f}" for mean in means))
        rows.append([f"{name} ({len(of_group)})", *cells])
    shown = " / ".join(names[engine] for engine in (*engines, "native"))
    head = ["timeouts", f"median difference of native from {' / '.join(names[e] for e in engines)}",
            f"lost, % of the packets sent: {shown}", f"sent again, but not lost, %: {shown}"]  # fmt: skip
    return _table(head, rows)


def _papers_table(papers: Sequence[PaperCompared]) -> str:
    rows = [
        [
            paper.experiment,
            paper.commit,
            str(paper.runs),
            str(max(len(sizes) for sizes in paper.sizes.values())),
            *(_median_and_largest(metric, paper.sizes[metric.title]) for metric in METRICS),
            f"{paper.same} of {paper.entries}",
        ]
        for paper in papers
    ]
    head = ["experiment", "ns-3's runs of", "runs", "pairs", *(metric.title for metric in METRICS), "same verdicts"]
    return _table(head, rows)


def _median_and_largest(metric: Metric, sizes: Sequence[float]) -> str:
    if not sizes:
        return "-"
    return " / ".join(_in_terms(metric, size) for size in (float(np.median(sizes)), max(sizes)))


def _verdicts(papers: Sequence[PaperCompared]) -> str:
    rows = [[paper.experiment, what, *pair] for paper in papers for what, pair in paper.others.items()]
    return _table(["experiment", "published", "ns-3", "native"], rows)


def _all_table(compared: Sequence[Compared], engines: Sequence[str]) -> str:
    rows = []
    for one in compared:
        s = one.scenario
        flows = ", ".join(f"{flow.algorithm} {flow.rtt_ms:g}" for flow in s.flows)
        if len({(flow.algorithm, flow.rtt_ms) for flow in s.flows}) == 1 and len(s.flows) > 1:
            flows = f"{len(s.flows)} x {s.flows[0].algorithm} {s.flows[0].rtt_ms:g}"
        setting = (
            f"{s.rate_mbps:g} Mbit/s, {s.buffer_bdp:g} BDP, {100 * s.loss:g} %, {s.packet_bytes} B, "
            f"{s.duration_s:g} s: {flows}"
        )
        sizes = [
            " / ".join(_in_terms(d.metric, d.size).removesuffix(" points") for d in pair)
            for pair in zip(*(one.differences(engine) for engine in engines), strict=True)
        ]
        counts = " / ".join(f"{one.timeouts(engine):.1f}" for engine in (*engines, "native"))
        rows.append([one.name, setting, *sizes, counts])
    settings = "rate, buffer, loss, packets, duration: flows and their RTTs in ms"
    counts = "timeouts " + " / ".join((*engines, "native"))
    return _table(["", settings, *(metric.title for metric in METRICS), counts], rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is missing, compare, print; with --write, put it between the marks of a document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, metavar="FILE", help="document to put the tables into")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "benchmark", help="folder of the runs")
    parser.add_argument("--quic", action="store_true", help="also with native's transport over UDP in ns-3")
    parser.add_argument("--scenarios", nargs="+", metavar="NAME", help="only these of the grid (g00 and so on)")
    parser.add_argument("--papers", default="paper-quick", help="folder below --runs with ns-3's runs of the papers")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="runs at a time")
    options = parser.parse_args(argv)
    document: Path | None = options.write
    if document is not None and not (
        document.exists() and BEGIN in document.read_text() and END in document.read_text()
    ):
        parser.error(f"{document} has no lines {BEGIN} and {END} to write between")
    console, began = Console(stderr=True), time.monotonic()
    scenarios = grid()
    if options.scenarios:
        if unknown := [name for name in options.scenarios if name not in scenarios]:
            parser.error(f"no scenario {unknown[0]!r}; known: {', '.join(scenarios)}")
        scenarios = {name: scenarios[name] for name in options.scenarios}
    engines = ["ns3", "ns3-quic"] if options.quic else ["ns3"]
    compared = compare_grid(scenarios, engines, options.runs, console, options.processes)
    compared = settle(compared, options.runs, console, options.processes)
    papers = compare_papers(options.runs / options.papers, console, options.processes)
    text = markdown(compared, papers)
    print(text)
    console.print(f"{time.monotonic() - began:.0f} s")
    if document is not None:
        write_block(document, f"\n{text}\n", BEGIN, END)
    return 0


if __name__ == "__main__":
    sys.exit(main())
