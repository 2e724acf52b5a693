"""Measure how closely the native engine agrees with ns-3: `python -m studies.agreement [--write FILE]`.

Both engines simulate a grid of scenarios (`grid`) and the experiments of the papers that ns-3 has finished, with the
same seeds. ns-3's runs of the grid are kept in `runs/benchmark/agreement-<engine>/`, so an interrupted command can be
resumed; they are repeated when ns-3 gives other results in a few short runs (`_code`). Native's runs take a minute and
are not kept.

Each difference above its limit gets a cause by a rule (`cause`).
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
from bbrgym.benchmark.results import load_benchmark
from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.trace_file import load_trace, save_trace
from bbrgym.files import replace_file
from bbrgym.processes import run_in_processes
from studies import page
from studies.papers.published import Paper, compare
from studies.papers.report import paper_of

ROOT: Final = Path(__file__).resolve().parent.parent
MARK: Final = "studies/agreement.py"

SEEDS: Final = (1, 2, 3)
NEIGHBOURS: Final = 12
"""Runs of native that show how far chance alone moves a value."""
WARMUP: Final = 0.25
STEP_MS: Final = 100.0
COUNT: Final = 64
ENGINES: Final[dict[str, dict[str, Any]]] = {
    "ns3": {"name": "ns3"},
    "ns3-quic": {"name": "ns3", "transport": "quic"},
}
"""The references: ns-3's TCP, and native's transport over UDP in ns-3's network."""

ALGORITHMS: Final = (
    "bbr", "bbr-acw", "bbr-acd", "bbq", "da-bbr", "ebcc", "bbr2", "f-bbr2", "cubic", "newreno", "agent",
    "bbr-acd-ns3-published",
)  # fmt: skip
"""The algorithms of the grid. The list is fixed: the draws depend on it, and kept runs depend on the draws."""


def grid(count: int = COUNT, seed: int = 2026) -> dict[str, Scenario]:
    """Return scenarios that cover the usual ranges, by a Latin hypercube.

    Each range is cut into `count` equal parts with one scenario each. Rate (2 to 200 Mbit/s), longest RTT (5 to 200 ms)
    and buffer (0.25 to 8 BDP) are log-uniform, the number of flows (1 to 8) is uniform. Half of the scenarios have
    random losses, log-uniform from 0.05 to 6 %. In every second scenario all flows have the same algorithm, otherwise
    each flow draws one. In every second pair of scenarios the other flows' RTTs are shorter by a factor of up to four.
    In every second group of four the flows start within the first tenth of the run, otherwise together. Packets have
    1000 or 1448 bytes. A run lasts for 300,000 packets (80,000 with losses above 0.5 %), at least 10 s and 50 RTTs, and
    at most 60 s.

    Draws use `random.Random.random` only, which gives the same numbers in every version of Python.
    """
    uniform = random.Random(seed).random

    def stratified() -> list[float]:
        """Return `count` values in [0, 1), one in each of `count` equal parts, in random order."""
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
    """The compared values of a run, after its warm-up.

    Attributes:
        shares: of each flow in the sum of the throughputs.
        utilisation: used fraction of the link's capacity.
        queue_ms: mean queueing delay.
        retransmission_rate: retransmitted over sent packets, of all flows.
        jain: Jain's index of the throughputs.
        loss_rate: packets that the link or its queue lost, over sent packets.
        timeouts: retransmission (in QUIC: probe) timeouts of all flows in the whole run.
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
        """Return the values of a trace; `warmup` is the fraction that is not measured."""
        rows = measure(trace, after_s=warmup * trace.scenario.duration_s)
        timeouts = float(trace.flows[:, :, FLOW_COLUMNS.index("rto_count")].sum())
        return replace(cls.of_rows(rows), timeouts=timeouts, trace_hash=trace.hash)

    @classmethod
    def of_rows(cls, rows: Sequence[Mapping[str, Any]]) -> Figures:
        """Return the values of the rows of `bbrgym.benchmark.metrics.measure`."""
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
        """Spurious retransmissions over sent packets."""
        return max(0.0, self.retransmission_rate - self.loss_rate)


@dataclass(frozen=True)
class Metric:
    """A metric in which engines are compared.

    Attributes:
        title: its name for a reader.
        values: returns its value or values in a run.
        limit: a larger difference needs a cause.
        is_relative: whether differences are relative to ns-3's value.
        floor: returns the smallest value to which a difference is relative.
    """

    title: str
    values: Callable[[Figures], Sequence[float]]
    limit: float = 0.15
    is_relative: bool = True
    floor: Callable[[Scenario], float] = lambda scenario: 0.0

    def means(self, runs: Sequence[Figures]) -> npt.NDArray[np.float64]:
        """Return the means over runs with different seeds."""
        means: npt.NDArray[np.float64] = np.array([self.values(run) for run in runs], dtype=np.float64).mean(axis=0)
        return means


METRICS: Final = (
    Metric("share of a flow", lambda run: run.shares, limit=0.05, is_relative=False),
    Metric("utilisation", lambda run: [run.utilisation]),
    Metric(
        "queueing delay",
        lambda run: [run.queue_ms],
        # One packet on the link, or a twentieth of the RTT: less does not matter.
        floor=lambda s: max((s.packet_bytes + 40) * 8e-3 / s.rate_mbps, 0.05 * max(flow.rtt_ms for flow in s.flows)),
    ),
    Metric("retransmission rate", lambda run: [run.retransmission_rate], floor=lambda scenario: 0.005),
    Metric("Jain's index", lambda run: [run.jain]),
)


@dataclass(frozen=True)
class Difference:
    """The difference of an engine from a reference in one metric of a scenario, of the means over the seeds.

    Attributes:
        metric: the metric.
        place: index among the metric's values; of shares, the one that differs most.
        reference: the reference's value.
        native: the other engine's value.
        size: the difference, in the metric's terms.
        from_neighbours: the difference of the reference from the mean of native's neighbours.
        chance: how far those two differ by chance: two standard errors of their difference, corrected for the worst of
            several flows (`_standard_errors`).
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
        """Whether the difference needs a cause."""
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
    """Return how much two engines differ.

    Args:
        metric: the metric.
        scenario: the scenario of the runs.
        reference: runs of one engine.
        native: runs of the other engine with the same seeds.
        neighbours: runs of native with other seeds in nearly equal scenarios. Their standard deviation stands for that
            of the reference too, in which equal runs count once. With fewer than two, chance is NaN.
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
    """Return how many standard errors a mean may be off: two, or more for the worst of several values (Bonferroni).

    Shares add up to one, so one of them is redundant.
    """
    unlikely = 1 - NormalDist().cdf(2)
    return NormalDist().inv_cdf(1 - unlikely / max(1, values - 1))


def neighbours(scenario: Scenario, count: int = NEIGHBOURS) -> Iterator[tuple[Scenario, int]]:
    """Yield nearly equal scenarios, with seeds that are not in `SEEDS`.

    RTTs are longer by up to 0.2 %, and each flow starts up to 5 % of an RTT later. Runs without losses hardly depend on
    the seed, yet a single packet can decide which flow loses the next one.
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
        # A buffer in BDP would follow the RTT, so it is given in packets.
        yield replace(scenario, flows=flows, buffer_bdp=None, buffer_packets=scenario.queue_packets), seed


@dataclass(frozen=True)
class Compared:
    """A scenario in all engines.

    Attributes:
        name: name of the scenario.
        scenario: the scenario.
        runs: {engine: runs with `SEEDS`}, including `native`.
        neighbours: runs of native that differ by chance.
        others_neighbours: {engine: runs of the neighbours}, where the other runs show no cause.
    """

    name: str
    scenario: Scenario
    runs: Mapping[str, Sequence[Figures]]
    neighbours: Sequence[Figures] = ()
    others_neighbours: Mapping[str, Sequence[Figures]] = field(default_factory=dict)

    def difference(self, metric: Metric, reference: str, other: str) -> Difference:
        """Return the difference of one engine from another."""
        return difference(metric, self.scenario, self.runs[reference], self.runs[other], self.neighbours)

    def differences(self, reference: str) -> list[Difference]:
        """Return the differences of native from an engine, one per metric."""
        return [self.difference(metric, reference, "native") for metric in METRICS]

    def between_neighbours(self, found: Difference, reference: str, other: str) -> tuple[float, float]:
        """Return how much the means over the neighbours differ in two engines, and how much they may by chance."""
        runs = {"native": self.neighbours, **self.others_neighbours}
        a, b = (np.array([found.metric.values(run)[found.place] for run in runs[e]]) for e in (reference, other))
        scale = max(abs(float(a.mean())), found.metric.floor(self.scenario)) if found.metric.is_relative else 1.0
        error = math.sqrt(a.var(ddof=1) / len(a) + b.var(ddof=1) / len(b))
        errors = _standard_errors(len(found.metric.values(runs[reference][0])))
        return abs(float(a.mean() - b.mean())) / scale, errors * error / scale

    def timeouts(self, engine: str) -> float:
        """Return the timeouts of all flows in a run, on average."""
        return float(np.mean([run.timeouts for run in self.runs[engine]]))

    def timeout_rate(self, engine: str) -> float:
        """Return the timeouts over the packets that the link could have carried."""
        s = self.scenario
        packets = s.rate_mbps * 1e6 / 8 / (s.packet_bytes + 40) * s.duration_s
        return self.timeouts(engine) / packets


def cause(compared: Compared, found: Difference) -> str:
    """Return why native differs from ns-3's TCP, by the first rule that fits, and the numbers behind it.

    1. Chance: ns-3's mean is as close to native's neighbours as chance allows.
    2. Transport: with native's transport over UDP in ns-3's network, the difference is within the limit or chance.
    3. Network: those runs are within the limit of ns-3's TCP, and native is not.
    4. The same three rules for the means over all neighbours in every engine, if there are such runs.
    5. Timeouts, if there are no runs over UDP: ns-3's TCP has at least one more than native per run.
    6. Otherwise the difference is not explained.
    """
    if found.is_chance:
        return (
            f"chance: {_in_terms(found.metric, found.from_neighbours)} from native's neighbours, "
            f"which differ by ±{_in_terms(found.metric, found.chance)} by chance"
        )
    counts = (
        f"timeouts per run: {compared.timeouts('ns3'):.1f} in ns-3's TCP, {compared.timeouts('native'):.1f} in native"
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
        # Chance explains no more than its own size; a difference within the limit needs no cause.
        if size <= max(by_chance, 0.0 if name == "chance" else found.metric.limit):
            return f"{name} ({text})"
    return ""


def _in_terms(metric: Metric, size: float) -> str:
    return f"{100 * size:.1f} %" if metric.is_relative else f"{100 * size:.1f} points"


@dataclass(frozen=True)
class Task:
    """A run of the grid: scenario, seed and engine, and the file that keeps its trace."""

    scenario: Scenario
    seed: int
    engine: Mapping[str, Any]
    file: Path | None = None


def trace_of(task: Task) -> Trace:
    """Return the trace of a run, from the task's file if it is there."""
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
    """Simulate every scenario in native, and in the engines unless the runs are kept.

    Args:
        scenarios: by name.
        engines: names in `ENGINES`.
        directory: runs are kept in `agreement-<engine>` there.
        console: shows progress.
        processes: runs at a time.
        seeds: one run per seed.
        neighbours_count: additional runs of native.

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
    """Simulate the neighbours in the other engines too, where a difference from ns-3's TCP is otherwise unexplained.

    Args:
        compared: result of `compare_grid`, whose other arguments are the same.
        directory: runs are kept there.
        console: shows progress.
        processes: runs at a time.
        count: number of neighbours.
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
    """Return a task of ns-3 whose trace is kept."""
    folder = directory / f"agreement-{engine}"
    folder.mkdir(parents=True, exist_ok=True)
    return Task(scenario, seed, ENGINES[engine], folder / f"{_key(scenario, seed, engine)}.parquet")


def _run_all(tasks: Sequence[tuple[Any, Task]], console: Console, processes: int) -> dict[Any, list[Figures]]:
    """Return {key: values of its tasks, in their order}."""
    # Seed by seed, so that an interrupted command has all scenarios of the first seeds.
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
    """Return a hash of everything that decides what ns-3 simulates."""
    identity = [scenario.to_dict(), seed, ENGINES[engine], STEP_MS, _code(engine)]
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:20]


@functools.cache
def _code(engine: str) -> str:
    """Return a hash of what ns-3 gives in a few short runs with every algorithm.

    A hash of its code would change more often, and would discard runs that took an hour.
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
        commit: this project's commit of ns-3's runs.
        runs: number of runs in each engine.
        sizes: {metric: differences of all pairs of a scenario and a competitor}.
        same: number of published entries with the same verdict in both engines.
        entries: number of published entries.
    """

    experiment: str
    commit: str
    runs: int
    sizes: Mapping[str, Sequence[float]]
    same: int
    entries: int


def compare_papers(root: Path, console: Console, processes: int) -> list[PaperCompared]:
    """Repeat ns-3's runs of the papers' experiments in native.

    Args:
        root: the folder of the benchmarks of `python -m studies.papers`. Unfinished ones are left out, and so are
            competitors that only ns-3 has. Where a rival is one (`STAND_INS`), ns-3 repeats the runs against this
            project's algorithm; these runs are kept beside `root` like the grid's.
        console: shows progress.
        processes: runs at a time.
    """
    compared = []
    for directory in sorted(path.parent for path in root.glob("*/benchmark.json")):
        reference = load_benchmark(directory)
        plan = Benchmark.from_dict(reference.plan["config"])
        if reference.missing or reference.failures or plan.engine["name"] != "ns3" or reference.results.empty:
            console.print(f"left out: {directory} is unfinished or not of ns-3", highlight=False)
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
"""This project's algorithms in place of rivals that only ns-3 has."""


def _paper_results(plan: Benchmark, runs: Iterable[Run], kept: Path | None, processes: int) -> pd.DataFrame:
    """Return a benchmark's rows of runs with the stand-ins: of ns-3, kept in a folder, or of native."""
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
    )


def summarise(compared: Sequence[Compared], papers: Sequence[PaperCompared]) -> str:
    """Return the tables of the page."""
    engines = [engine for engine in ENGINES if all(engine in one.runs for one in compared)]
    parts = [f"{len(compared)} scenarios, {len(SEEDS)} seeds each."]
    for engine in engines:
        title = {"ns3": "Compared with ns-3's TCP", "ns3-quic": "Compared with native's transport over UDP in ns-3"}
        parts += [f"### {title[engine]}", _summary_table(compared, engine)]
    parts += ["### Causes of the differences above a limit", _causes_table(compared)]
    parts += ["### Retransmissions", _retransmissions_table(compared, engines)]
    if papers:
        parts += ["### The papers' experiments", _papers_table(papers)]
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
            "of these beyond chance"]  # fmt: skip
    return page.table(head, rows)


def _retransmits(compared: Compared, engine: str) -> bool:
    return any(run.retransmission_rate > 0 or run.timeouts > 0 for run in compared.runs[engine])


def _causes_table(compared: Sequence[Compared]) -> str:
    """Return how many differences above the limit each cause explains, by metric."""
    causes = [
        (found.metric.title, cause(one, found).partition(" (")[0].partition(":")[0])
        for one in compared
        for found in one.differences("ns3")
        if found.is_above_limit
    ]
    if not causes:
        return "None."
    counts, names = Counter(causes), [name for name, _ in Counter(name for _, name in causes).most_common()]
    rows = [[metric.title, *(str(counts[metric.title, name]) for name in names)] for metric in METRICS]
    text = page.table(["metric", *names], rows, range(1, 1 + len(names)))
    return f"{len(causes)} of {len(compared) * len(METRICS)} differences are above their limit:\n\n{text}"


def _retransmissions_table(compared: Sequence[Compared], engines: Sequence[str]) -> str:
    """Return lost packets and spurious retransmissions of each engine, by ns-3's timeouts."""
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
            f"lost, % of sent packets: {shown}", f"spurious retransmissions, %: {shown}"]  # fmt: skip
    return page.table(head, rows)


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
    head = ["experiment", "commit of ns-3's runs", "runs", "pairs", *(m.title for m in METRICS), "same verdicts"]
    return f"Differences as median / largest over the pairs of a scenario and a competitor.\n\n{page.table(head, rows)}"


def _median_and_largest(metric: Metric, sizes: Sequence[float]) -> str:
    if not sizes:
        return "-"
    return " / ".join(_in_terms(metric, size) for size in (float(np.median(sizes)), max(sizes)))


def main(argv: Sequence[str] | None = None) -> int:
    """Simulate what is missing, compare and print; with --write, write the tables into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=page.marked(MARK), metavar="FILE", help="page to write the tables into")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "benchmark", help="folder of the runs")
    parser.add_argument("--quic", action="store_true", help="also compare with native's transport over UDP in ns-3")
    parser.add_argument(
        "--scenarios", nargs="+", metavar="NAME", help="only these scenarios of the grid (g00 and so on)"
    )
    parser.add_argument("--papers", default="paper-quick", help="folder below --runs with ns-3's runs of the papers")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="runs at a time")
    options = parser.parse_args(argv)
    console, began = Console(stderr=True), time.monotonic()
    scenarios = grid()
    if options.scenarios:
        if unknown := [name for name in options.scenarios if name not in scenarios]:
            parser.error(f"unknown scenario {unknown[0]!r}; known: {', '.join(scenarios)}")
        scenarios = {name: scenarios[name] for name in options.scenarios}
    engines = ["ns3", "ns3-quic"] if options.quic else ["ns3"]
    compared = compare_grid(scenarios, engines, options.runs, console, options.processes)
    compared = settle(compared, options.runs, console, options.processes)
    papers = compare_papers(options.runs / options.papers, console, options.processes)
    text = summarise(compared, papers)
    print(text)
    console.print(f"{time.monotonic() - began:.0f} s")
    if options.write is not None:
        page.write_block(options.write, MARK, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
