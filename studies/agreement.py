"""Measure how closely the native engine agrees with ns-3: `python -m studies.agreement [--write FILE]`.

Both engines simulate a grid of scenarios (`grid`) and the experiments of the papers that ns-3 has finished, with the
same seeds. ns-3's runs of the grid are kept in `runs/benchmark/agreement-<engine>/`, so an interrupted command can be
resumed; they are repeated when ns-3 gives other results in a few short runs (`_code`). Native's runs take a minute and
are not kept.

Each difference above its limit gets a cause by a rule (`cause`).
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import NormalDist
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd
from rich.console import Console
from rich.progress import track

from bbrgym import Flow, Scenario, Trace, make_engine, simulate
from bbrgym.agents.provenance import source_tags
from bbrgym.baselines.registry import COMPARATORS
from bbrgym.benchmark.metrics import measure
from bbrgym.benchmark.plan import Benchmark, version_of
from bbrgym.benchmark.results import load_benchmark
from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.trace_file import load_trace, save_trace
from bbrgym.executors import run_in_chunks
from bbrgym.files import replace_file
from bbrgym.interruption import run_interruptible
from bbrgym.processes import ProcessExecutor
from studies import page
from studies.experiments import STAND_INS
from studies.papers.published import Paper, compare
from studies.papers.report import paper_of

ROOT: Final = Path(__file__).resolve().parent.parent
MARK: Final = "studies/agreement.py"
NOT_EXPLAINED: Final = "not explained"
Key = TypeVar("Key")
Value = TypeVar("Value")

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
NATIVE: Final = {"name": "native"}

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
    def of_trace(cls, trace: Trace) -> Figures:
        """Return the values of a trace."""
        timeouts = float(trace.flows[:, :, FLOW_COLUMNS.index("rto_count")].sum())
        rows = measure(trace, after_s=WARMUP * trace.scenario.duration_s)
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
    """A metric in which engines are compared."""

    title: str
    values: Callable[[Figures], Sequence[float]]
    limit: float = 0.15
    """A larger difference needs a cause."""
    is_relative: bool = True
    """Whether differences are relative to ns-3's value."""
    floor: Callable[[Scenario], float] = lambda scenario: 0.0
    """Returns the smallest value to which a difference is relative."""

    def of(self, runs: Sequence[Figures]) -> npt.NDArray[np.float64]:
        """Return the values in several runs, shape (runs, values)."""
        return np.array([self.values(run) for run in runs], dtype=np.float64)

    def scale(self, reference: float, scenario: Scenario) -> float:
        """Return what a difference from the reference's value is divided by."""
        return max(abs(reference), self.floor(scenario)) if self.is_relative else 1.0


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
    """The difference of an engine from a reference in one metric of a scenario, of the means over the seeds."""

    metric: Metric
    place: int
    """Index among the metric's values; of shares, the one that differs most."""
    reference: float
    native: float
    size: float
    """The difference, in the metric's terms."""
    from_neighbours: float
    """The difference of the reference from the mean of native's neighbours."""
    chance: float
    """How far those two differ by chance: two standard errors, or more for the worst of several flows."""

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
    """Return how much two engines differ in runs with the same seeds.

    The standard deviation of native's `neighbours` stands for that of the reference too, in which equal runs count
    once. With fewer than two neighbours, chance is NaN.
    """
    ours, theirs = metric.of(native).mean(axis=0), metric.of(reference).mean(axis=0)
    place = int(np.argmax(np.abs(ours - theirs)))
    scale = metric.scale(float(theirs[place]), scenario)

    def apart(value: float) -> float:
        gap = abs(value - float(theirs[place]))
        return gap / scale if gap else 0.0

    near = metric.of(neighbours)[:, place] if neighbours else np.array([math.nan])
    chance = math.nan
    if near.size > 1:
        variance = 1 / len({run.trace_hash for run in reference}) + 1 / near.size
        chance = _standard_errors(len(ours)) * float(near.std(ddof=1)) * math.sqrt(variance) / (scale or 1.0)
    return Difference(
        metric,
        place,
        reference=float(theirs[place]),
        native=float(ours[place]),
        size=apart(float(ours[place])),
        from_neighbours=apart(float(near.mean())),
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
    """A scenario in all engines."""

    scenario: Scenario
    runs: Mapping[str, Sequence[Figures]]
    """{engine: runs with `SEEDS`}, including `native`."""
    neighbours: Sequence[Figures] = ()
    """Runs of native that differ by chance."""
    others_neighbours: Mapping[str, Sequence[Figures]] = field(default_factory=dict)
    """{engine: runs of the neighbours}, where the other runs show no cause."""

    def difference(self, metric: Metric, reference: str, other: str) -> Difference:
        """Return the difference of one engine from another."""
        return difference(metric, self.scenario, self.runs[reference], self.runs[other], self.neighbours)

    def differences(self, reference: str) -> list[Difference]:
        """Return the differences of native from an engine, one per metric."""
        return [self.difference(metric, reference, "native") for metric in METRICS]

    def between_neighbours(self, found: Difference, reference: str, other: str) -> tuple[float, float]:
        """Return how much the means over the neighbours differ in two engines, and how much they may by chance."""
        runs = {"native": self.neighbours, **self.others_neighbours}
        a, b = (found.metric.of(runs[engine]) for engine in (reference, other))
        errors = _standard_errors(a.shape[1])
        a, b = a[:, found.place], b[:, found.place]
        scale = found.metric.scale(float(a.mean()), self.scenario)
        error = math.sqrt(a.var(ddof=1) / len(a) + b.var(ddof=1) / len(b))
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
    """Return why native differs from ns-3's TCP, by the first rule that fits.

    1. Chance: ns-3's mean is as close to native's neighbours as chance allows.
    2. Transport: with native's transport over UDP in ns-3's network, the difference is within the limit or chance.
    3. Network: those runs are within the limit of ns-3's TCP, and native is not.
    4. The same three rules for the means over all neighbours in every engine, if there are such runs.
    5. Otherwise the difference is not explained.
    """
    if found.is_chance:
        return "chance"
    from_udp = compared.difference(found.metric, "ns3-quic", "native")
    if from_udp.is_chance or not from_udp.is_above_limit:
        return "transport"
    if not compared.difference(found.metric, "ns3", "ns3-quic").is_above_limit:
        return "network"
    pairs = {"chance": ("ns3", "native"), "transport": ("ns3-quic", "native"), "network": ("ns3", "ns3-quic")}
    for name, pair in pairs.items() if compared.others_neighbours else ():
        size, by_chance = compared.between_neighbours(found, *pair)
        # Chance explains no more than its own size; a difference within the limit needs no cause.
        if size <= max(by_chance, 0.0 if name == "chance" else found.metric.limit):
            return name
    return NOT_EXPLAINED


def _in_terms(metric: Metric, size: float) -> str:
    return f"{100 * size:.1f} %" if metric.is_relative else f"{100 * size:.1f} points"


@dataclass(frozen=True)
class Task:
    """A run: scenario, seed and engine, and the file that keeps its trace."""

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
    directory: Path,
    console: Console,
    seeds: Sequence[int] = SEEDS,
    count: int = NEIGHBOURS,
) -> list[Compared]:
    """Simulate every scenario and `count` neighbours in native, and in `ENGINES` unless the runs are kept in a folder.

    Raises:
        RuntimeError: a run failed.
    """
    tasks: dict[tuple[str, str], list[Task]] = {}
    for name, scenario in scenarios.items():
        for engine in ENGINES:
            tasks[name, engine] = [_kept(scenario, seed, engine, directory) for seed in seeds]
        tasks[name, "native"] = [Task(scenario, seed, NATIVE) for seed in seeds]
        tasks[name, "neighbours"] = [Task(*near, NATIVE) for near in neighbours(scenario, count)]
    done = _run_all(tasks, Figures.of_trace, console)
    return [
        Compared(scenario, {engine: done[name, engine] for engine in (*ENGINES, "native")}, done[name, "neighbours"])
        for name, scenario in scenarios.items()
    ]


def settle(compared: Sequence[Compared], directory: Path, console: Console, count: int = NEIGHBOURS) -> list[Compared]:
    """Simulate the neighbours in the other engines too, where a difference from ns-3's TCP is otherwise unexplained."""
    tasks = {
        (place, engine): [_kept(*near, engine, directory) for near in neighbours(one.scenario, count)]
        for place, one in enumerate(compared)
        if any(d.is_above_limit and cause(one, d) == NOT_EXPLAINED for d in one.differences("ns3"))
        for engine in ENGINES
    }
    done = _run_all(tasks, Figures.of_trace, console)
    return [
        replace(one, others_neighbours={engine: runs for (at, engine), runs in done.items() if at == place})
        for place, one in enumerate(compared)
    ]


def _kept(scenario: Scenario, seed: int, engine: str, directory: Path) -> Task:
    """Return a task of ns-3 whose trace is kept."""
    folder = directory / f"agreement-{engine}"
    folder.mkdir(parents=True, exist_ok=True)
    return Task(scenario, seed, ENGINES[engine], folder / f"{_key(scenario, seed, engine)}.parquet")


def _run_all(
    tasks: Mapping[Key, Sequence[Task]], value: Callable[[Trace], Value], console: Console
) -> dict[Key, list[Value]]:
    """Return {key: values of its tasks' traces, in their order}.

    Raises:
        RuntimeError: a run failed.
    """
    # Seed by seed, so that an interrupted command has all scenarios of the first seeds.
    places = [(key, place) for key, of_key in tasks.items() for place in range(len(of_key))]
    order = sorted(((at, tasks[at[0]][at[1]]) for at in places), key=lambda entry: entry[1].seed)
    results = {}
    with ProcessExecutor() as executor:
        outcomes = run_in_chunks(functools.partial(_run, value), order, executor, chunk_s=0, retries=0)
        for outcome in track(outcomes, "runs", len(order), console=console):
            at, task = outcome.task
            if outcome.error is not None:
                raise RuntimeError(f"{task.scenario.describe()}, seed {task.seed}: {outcome.error}")
            results[at] = outcome.value
    return {key: [results[key, place] for place in range(len(of_key))] for key, of_key in tasks.items()}


def _run(value: Callable[[Trace], Value], entry: tuple[Any, Task]) -> Value:
    return value(trace_of(entry[1]))


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


def compare_papers(root: Path, console: Console) -> list[list[str]]:
    """Repeat ns-3's runs of the papers' experiments in native, and return a row of the page's table per experiment.

    Args:
        root: the folder of the benchmarks of `python -m studies.papers`. Unfinished ones are left out, and so are
            competitors that only ns-3 has. Where a rival is one (`STAND_INS`), ns-3 repeats the runs against this
            project's algorithm; these runs are kept beside `root` like the grid's.
        console: shows progress.
    """
    rows = []
    for directory in sorted(path.parent for path in root.glob("*/benchmark.json")):
        reference = load_benchmark(directory)
        plan = Benchmark.from_dict(reference.plan["config"])
        if reference.missing or reference.failures or plan.engine["name"] != "ns3" or reference.results.empty:
            console.print(f"left out: {directory} is unfinished or not of ns-3", highlight=False)
            continue
        plan = replace(plan, competitors=tuple(c for c in plan.competitors if c.algorithm not in COMPARATORS))
        ns3 = reference.results
        if has_stand_in := any(flow.algorithm in STAND_INS for s in plan.scenarios.values() for flow in s.flows):
            ns3 = _paper_results(plan, root.parent, console)
        native = _paper_results(plan, None, console)
        commit = (source_tags() if has_stand_in else reference.plan["provenance"]).get("git.commit", "-")
        name = f"{directory.name}, with this project's CUBIC" if has_stand_in else directory.name
        rows.append([name, commit[:7], *_paper_cells(plan, paper_of(reference), ns3, native)])
    return rows


def _paper_results(plan: Benchmark, kept: Path | None, console: Console) -> pd.DataFrame:
    """Return a benchmark's rows with the stand-ins: of ns-3, kept in a folder, or of native."""
    runs = list({(run.scenario_name, run.competitor, run.seed): run for run in plan.runs()}.values())
    tasks = []
    for planned in runs:
        flows = tuple(replace(f, algorithm=STAND_INS.get(f.algorithm, f.algorithm)) for f in planned.scenario.flows)
        scenario = replace(planned.scenario, flows=flows)
        assert planned.step_ms == STEP_MS, "it decides the key of a kept run"
        if kept is None:
            tasks.append(Task(scenario, planned.seed, NATIVE))
        else:
            tasks.append(_kept(scenario, planned.seed, "ns3", kept))
    done = _run_all({plan.name: tasks}, functools.partial(_rows, plan.warmup), console)[plan.name]
    return pd.DataFrame([planned.names() | row for planned, rows in zip(runs, done, strict=True) for row in rows])


def _rows(warmup: float, trace: Trace) -> list[dict[str, Any]]:
    rows = measure(trace, after_s=warmup * trace.scenario.duration_s)
    return [{"trace_hash": trace.hash} | row for row in rows]


def _paper_cells(plan: Benchmark, paper: Paper, reference: pd.DataFrame, native: pd.DataFrame) -> list[str]:
    """Return numbers of runs and pairs, median and largest difference in each metric, and equal verdicts."""
    reference = reference[reference["competitor"].isin([competitor.name for competitor in plan.competitors])]
    pairs = []
    for (scenario, competitor), ours in native.groupby(["scenario", "competitor"], sort=False):
        theirs = reference[(reference["scenario"] == scenario) & (reference["competitor"] == competitor)]
        of_seeds = [
            [Figures.of_rows([dict(row) for _, row in rows.iterrows()]) for _, rows in frame.groupby("seed")]
            for frame in (theirs, ours)
        ]
        pairs.append([difference(metric, plan.scenarios[str(scenario)], *of_seeds).size for metric in METRICS])
    known = [[size for size in sizes if not math.isnan(size)] for sizes in zip(*pairs, strict=True)]
    verdicts = list(zip(compare(paper, reference), compare(paper, native), strict=True))
    return [
        str(len(reference.groupby(["scenario", "competitor", "seed"]))),
        str(max(map(len, known))),
        *(
            f"{_in_terms(metric, float(np.median(sizes)))} / {_in_terms(metric, max(sizes))}" if sizes else "-"
            for metric, sizes in zip(METRICS, known, strict=True)
        ),
        f"{sum(a.agreement == b.agreement for a, b in verdicts)} of {len(verdicts)}",
    ]


def summarise(compared: Sequence[Compared], papers: Sequence[Sequence[str]]) -> str:
    """Return the tables of the page; `papers` are rows of `compare_papers`."""
    parts = [f"{len(compared)} scenarios, {len(SEEDS)} seeds each."]
    parts += ["### Compared with ns-3's TCP", _summary_table(compared, "ns3")]
    parts += ["### Compared with native's transport over UDP in ns-3", _summary_table(compared, "ns3-quic")]
    parts += ["### Causes of the differences above a limit", _causes_table(compared)]
    parts += ["### Retransmissions", _retransmissions_table(compared)]
    if papers:
        head = ["experiment", "commit of ns-3's runs", "runs", "pairs", *(m.title for m in METRICS), "same verdicts"]
        parts += [
            "### The papers' experiments",
            "Differences as median / largest over the pairs of a scenario and a competitor.",
            page.table(head, papers),
        ]
    return "\n\n".join(parts)


def _summary_table(compared: Sequence[Compared], engine: str) -> str:
    both = (engine, "native")
    groups = {
        "all": compared,
        "nothing retransmitted": [one for one in compared if not _retransmits(one, both)],
        "losses of a full buffer only": [one for one in compared if one.scenario.loss == 0 and _retransmits(one, both)],
        "random losses": [one for one in compared if one.scenario.loss > 0],
    }
    rows = []
    for index, metric in enumerate(METRICS):
        for group, members in groups.items():
            found = [d for one in members if not math.isnan((d := one.differences(engine)[index]).size)]
            if not found:
                continue
            sizes = [d.size for d in found]
            beyond = sum(d.is_above_limit for d in found)
            unlucky = sum(d.is_above_limit and d.is_chance for d in found)
            cells = [_in_terms(metric, float(size)) for size in np.percentile(sizes, (50, 25, 75, 90, 100))]
            rows.append(
                [f"{metric.title}, {'absolute' if not metric.is_relative else 'relative'}" if group == "all" else "",
                 f"{group} ({len(found)})", cells[0], f"{cells[1]} to {cells[2]}", cells[3],
                 cells[4], f"{beyond} of {len(found)} above {100 * metric.limit:g} %",
                 str(beyond - unlucky)]
            )  # fmt: skip
    head = ["difference of", "scenarios", "median", "quartiles", "90th percentile", "largest", "above the limit",
            "of these beyond chance"]  # fmt: skip
    return page.table(head, rows)


def _retransmits(compared: Compared, engines: Sequence[str]) -> bool:
    return any(run.retransmission_rate > 0 or run.timeouts > 0 for e in engines for run in compared.runs[e])


def _causes_table(compared: Sequence[Compared]) -> str:
    """Return how many differences above the limit each cause explains, by metric."""
    above = [(one, found) for one in compared for found in one.differences("ns3") if found.is_above_limit]
    if not above:
        return "None."
    counts = Counter((found.metric.title, cause(one, found)) for one, found in above)
    names = [name for name, _ in Counter(name for _, name in counts.elements()).most_common()]
    rows = [[metric.title, *(str(counts[metric.title, name]) for name in names)] for metric in METRICS]
    text = page.table(["metric", *names], rows, range(1, 1 + len(names)))
    return f"{len(above)} of {len(compared) * len(METRICS)} differences are above their limit:\n\n{text}"


def _retransmissions_table(compared: Sequence[Compared]) -> str:
    """Return lost packets and spurious retransmissions of each engine, by ns-3's timeouts."""
    engines, metric = (*ENGINES, "native"), METRICS[3]
    members = [one for one in compared if _retransmits(one, engines)]
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
        differences = [np.median([one.difference(metric, e, "native").size for one in of_group]) for e in ENGINES]
        cells = [" / ".join(_in_terms(metric, float(size)) for size in differences)]
        for attribute in ("loss_rate", "unnecessary_rate"):
            means = [
                np.mean([getattr(run, attribute) for one in of_group for run in one.runs[engine]]) for engine in engines
            ]
            cells.append(" / ".join(f"{100 * mean:.2f}" for mean in means))
        rows.append([f"{name} ({len(of_group)})", *cells])
    head = ["timeouts", "median difference of native from TCP / UDP", "lost, % of sent packets: TCP / UDP / native",
            "spurious retransmissions, %: TCP / UDP / native"]  # fmt: skip
    return page.table(head, rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Simulate what is missing, compare and print; with --write, write the tables into the page."""
    parser = page.parser(__doc__, MARK)
    parser.add_argument("--runs", type=Path, default=ROOT / "runs" / "benchmark", help="folder of the runs")
    options = parser.parse_args(argv)
    console = Console(stderr=True)
    compared = settle(compare_grid(grid(), options.runs, console), options.runs, console)
    papers = compare_papers(options.runs / "paper-quick", console)
    text = summarise(compared, papers)
    page.publish(text, MARK, options.write)
    return 0


if __name__ == "__main__":
    sys.exit(run_interruptible("agreement", main))
