"""Measure how closely the native engine agrees with ns-3.

All engines simulate a grid of scenarios (`grid`) with the same seeds. Each difference above its limit gets a cause by a
rule (`cause`).
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from statistics import NormalDist
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from bbrgym import Flow, Scenario, make_engine, simulate
from bbrgym.benchmark.code import code_hash, metrics_hash
from bbrgym.benchmark.ledger import Rows
from bbrgym.benchmark.metrics import measure
from bbrgym.benchmark.style import SMALL, panels, styled
from bbrgym.envs.scenario import HEADER_BYTES
from studies import page

NOT_EXPLAINED: Final = "not explained"

SEEDS: Final = (1, 2, 3)
NEIGHBOURS: Final = tuple(range(1000, 1012))
"""Seeds of the runs that show how far chance alone moves a value (`neighbour`)."""
WARMUP: Final = 0.25
STEP_MS: Final = 100.0
COUNT: Final = 64
NATIVE: Final = "native"
REFERENCES: Final = {"ns3": "ns-3's TCP", "ns3-quic": "native's transport over UDP in ns-3"}
ENGINES: Final[dict[str, dict[str, Any]]] = {
    "ns3": {"name": "ns3"},
    "ns3-quic": {"name": "ns3", "transport": "quic"},
    NATIVE: {"name": "native"},
}

ALGORITHMS: Final = (
    "bbr",
    "bbr-acw",
    "bbr-acd",
    "bbq",
    "da-bbr",
    "ebcc",
    "bbr2",
    "f-bbr2",
    "cubic",
    "newreno",
    "agent",
    "bbr-acd-ns3-published",
)
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
        packets_per_s = rate_mbps * 1e6 / 8 / (packet_bytes + HEADER_BYTES)
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
        trace_hash: equal for equal runs.
    """

    shares: tuple[float, ...]
    utilisation: float
    queue_ms: float
    retransmission_rate: float
    jain: float
    loss_rate: float = math.nan
    trace_hash: str = ""

    @classmethod
    def of_rows(cls, rows: Sequence[Mapping[str, Any]]) -> Figures:
        """Return the values of a run's rows in `BenchmarkResult.results`."""
        sent = sum(row["sent_packets"] for row in rows)
        return cls(
            shares=tuple(row["share"] for row in rows),
            utilisation=rows[0]["link_utilisation"],
            queue_ms=rows[0]["link_queue_mean_ms"],
            retransmission_rate=sum(row["retransmissions"] for row in rows) / sent if sent else math.nan,
            jain=rows[0]["link_jain"],
            loss_rate=(rows[0]["link_drops"] + rows[0]["link_random_losses"]) / sent if sent else math.nan,
            trace_hash=rows[0]["trace_hash"],
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
        floor=lambda s: max(
            (s.packet_bytes + HEADER_BYTES) * 8e-3 / s.rate_mbps, 0.05 * max(flow.rtt_ms for flow in s.flows)
        ),
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


def neighbour(scenario: Scenario, seed: int) -> Scenario:
    """Return a nearly equal scenario.

    RTTs are longer by up to 0.2 %, and each flow starts up to 5 % of an RTT later. Runs without losses hardly depend on
    the seed, yet a single packet can decide which flow loses the next one.
    """
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
    return replace(scenario, flows=flows, buffer_bdp=None, buffer_packets=scenario.queue_packets)


@dataclass(frozen=True)
class Compared:
    """A scenario in all engines."""

    name: str
    scenario: Scenario
    runs: Mapping[str, Sequence[Figures]]
    """{engine: runs with `SEEDS`}, including `native`."""
    neighbours: Sequence[Figures] = ()
    """Runs of native that differ by chance."""
    others_neighbours: Mapping[str, Sequence[Figures]] = field(default_factory=dict)
    """{engine: runs of the neighbours}, where the other runs show no cause."""

    def difference(self, metric: Metric, reference: str, other: str) -> Difference:
        """Return the difference of one engine from another."""
        return difference(
            metric, self.scenario, reference=self.runs[reference], native=self.runs[other], neighbours=self.neighbours
        )

    def differences(self, reference: str) -> list[Difference]:
        """Return the differences of native from an engine, one per metric."""
        return [self.difference(metric, reference, NATIVE) for metric in METRICS]

    def between_neighbours(self, found: Difference, reference: str, other: str) -> tuple[float, float]:
        """Return how much the means over the neighbours differ in two engines, and how much they may by chance."""
        runs = {NATIVE: self.neighbours, **self.others_neighbours}
        a, b = (found.metric.of(runs[engine]) for engine in (reference, other))
        errors = _standard_errors(a.shape[1])
        a, b = a[:, found.place], b[:, found.place]
        scale = found.metric.scale(float(a.mean()), self.scenario)
        error = math.sqrt(a.var(ddof=1) / len(a) + b.var(ddof=1) / len(b))
        return abs(float(a.mean() - b.mean())) / scale, errors * error / scale


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
    from_udp = compared.difference(found.metric, "ns3-quic", NATIVE)
    if from_udp.is_chance or not from_udp.is_above_limit:
        return "transport"
    if not compared.difference(found.metric, "ns3", "ns3-quic").is_above_limit:
        return "network"
    pairs = {"chance": ("ns3", NATIVE), "transport": ("ns3-quic", NATIVE), "network": ("ns3", "ns3-quic")}
    for name, pair in pairs.items() if compared.others_neighbours else ():
        size, by_chance = compared.between_neighbours(found, *pair)
        # Chance explains no more than its own size; a difference within the limit needs no cause.
        if size <= max(by_chance, 0.0 if name == "chance" else found.metric.limit):
            return name
    return NOT_EXPLAINED


def _in_terms(metric: Metric, size: float) -> str:
    return f"{100 * size:.1f} %" if metric.is_relative else f"{100 * size:.1f} points"


@dataclass(frozen=True)
class GridRun:
    """A run of a scenario of the grid, or of a neighbour of it, in an engine."""

    scenario_name: str
    engine: str
    seed: int

    @property
    def is_neighbour(self) -> bool:
        """Whether a neighbour of the scenario runs (`neighbour`)."""
        return self.seed in NEIGHBOURS

    @property
    def scenario(self) -> Scenario:
        """What is simulated."""
        scenario = _grid()[self.scenario_name]
        return neighbour(scenario, self.seed) if self.is_neighbour else scenario

    @property
    def name(self) -> str:
        """What the ledger calls it."""
        return f"{self.scenario_name}/{self.engine}/{'neighbour ' * self.is_neighbour}{self.seed}"

    @property
    def code(self) -> str:
        """The hash of what decides its result."""
        decides = [self.scenario.to_dict(), self.seed, WARMUP, STEP_MS, metrics_hash()]
        return code_hash(ENGINES[self.engine], also=json.dumps(decides))


@cache
def _grid() -> Mapping[str, Scenario]:
    return grid()


def jobs() -> list[GridRun]:
    """Return every scenario in every engine, and its neighbours in native."""
    runs = [GridRun(name, engine, seed) for engine in (NATIVE, *REFERENCES) for name in _grid() for seed in SEEDS]
    return [*runs, *(GridRun(name, NATIVE, seed) for name in _grid() for seed in NEIGHBOURS)]


def further(results: Mapping[str, Rows]) -> list[GridRun]:
    """Return the neighbours in the other engines, where a difference from ns-3's TCP is otherwise unexplained."""
    unsettled = [
        one.name
        for one in compare(results)
        if any(d.is_above_limit and cause(one, d) == NOT_EXPLAINED for d in one.differences("ns3"))
    ]
    return [GridRun(name, engine, seed) for engine in REFERENCES for name in unsettled for seed in NEIGHBOURS]


def work(job: GridRun) -> Rows:
    """Simulate and measure."""
    scenario = job.scenario
    with closing(make_engine(**ENGINES[job.engine])) as engine:
        trace = simulate(scenario, engine, seed=job.seed, step_ms=STEP_MS)
    rows = measure(trace, after_s=WARMUP * scenario.duration_s)
    return [asdict(Figures.of_rows([{**row, "trace_hash": trace.hash} for row in rows]))]


def compare(results: Mapping[str, Rows]) -> list[Compared]:
    """Return every scenario whose runs are all there, in all engines."""

    def figures_of(name: str, engine: str, seeds: Sequence[int]) -> list[Figures]:
        rows = [results.get(GridRun(name, engine, seed).name) for seed in seeds]
        return [Figures(**of[0]) for of in rows if of] if all(rows) else []

    compared = []
    for name, scenario in _grid().items():
        runs = {engine: figures_of(name, engine, SEEDS) for engine in ENGINES}
        near = {engine: figures_of(name, engine, NEIGHBOURS) for engine in ENGINES}
        others = {engine: near[engine] for engine in REFERENCES if near[engine]}
        if all(runs.values()) and near[NATIVE]:
            compared.append(
                Compared(
                    name=name,
                    scenario=scenario,
                    runs=runs,
                    neighbours=near[NATIVE],
                    others_neighbours=others if len(others) == len(REFERENCES) else {},
                )
            )
    return compared


@dataclass(frozen=True)
class Spread:
    """How much native differs from a reference in a metric, over the scenarios of a group."""

    reference: str
    metric: str
    group: str
    scenarios: int
    median: float
    p90: float
    largest: float
    above: int
    """Differences above the metric's limit."""
    beyond_chance: int
    """Those of them that chance does not explain."""


@dataclass(frozen=True)
class Retransmissions:
    """What an engine retransmits, over the scenarios in which any engine does."""

    engine: str
    lost: float
    """Lost over sent packets."""
    spurious: float
    """Spurious retransmissions over sent packets."""
    apart: float | None
    """Median difference of native; None for native."""


@dataclass(frozen=True)
class Summary:
    """What the page says.

    Attributes:
        scenarios: how many are compared.
        spreads: by reference, metric and group.
        causes: {metric: {cause: differences from ns-3's TCP above the limit}}; a cause that explains most comes first.
        retransmitting: scenarios in which any engine retransmits.
        retransmissions: of each engine in these.
    """

    scenarios: int
    spreads: tuple[Spread, ...]
    causes: Mapping[str, Mapping[str, int]]
    retransmitting: int
    retransmissions: tuple[Retransmissions, ...]

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Summary:
        """Return the summary of a plain mapping, as `dataclasses.asdict` makes it."""
        records = {
            "spreads": tuple(Spread(**one) for one in plain["spreads"]),
            "retransmissions": tuple(Retransmissions(**one) for one in plain["retransmissions"]),
        }
        return cls(**{**plain, **records})

    def spread(self, reference: str, metric: Metric, group: str = "all") -> Spread:
        """Return one of `spreads`."""
        wanted = (reference, metric.title, group)
        return next(one for one in self.spreads if (one.reference, one.metric, one.group) == wanted)

    def of_cause(self, name: str) -> int:
        """Return how many differences a cause explains."""
        return sum(of_metric.get(name, 0) for of_metric in self.causes.values())


def summarise(compared: Sequence[Compared]) -> Summary:
    """Return what the page says of compared scenarios."""
    spreads = [
        spread
        for reference in REFERENCES
        for metric in METRICS
        for group, members in _groups(compared, reference).items()
        if (spread := _spread(members, reference, metric, group)) is not None
    ]
    above = [(one, found) for one in compared for found in one.differences("ns3") if found.is_above_limit]
    counts = Counter((found.metric.title, cause(one, found)) for one, found in above)
    names = [name for name, _ in Counter(name for _, name in counts.elements()).most_common()]
    members = [one for one in compared if _retransmits(one, tuple(ENGINES))]
    return Summary(
        scenarios=len(compared),
        spreads=tuple(spreads),
        causes={metric.title: {name: counts[metric.title, name] for name in names} for metric in METRICS},
        retransmitting=len(members),
        retransmissions=tuple(_retransmissions(members, engine) for engine in ENGINES if members),
    )


def _groups(compared: Sequence[Compared], engine: str) -> dict[str, list[Compared]]:
    lossless = [one for one in compared if one.scenario.loss == 0]
    return {
        "all": list(compared),
        "nothing retransmitted": [one for one in lossless if not _retransmits(one, (engine, NATIVE))],
        "losses of a full buffer only": [one for one in lossless if _retransmits(one, (engine, NATIVE))],
        "random losses": [one for one in compared if one.scenario.loss > 0],
    }


def _spread(members: Sequence[Compared], reference: str, metric: Metric, group: str) -> Spread | None:
    found = [d for one in members if not math.isnan((d := one.difference(metric, reference, NATIVE)).size)]
    if not found:
        return None
    median, p90, largest = (float(size) for size in np.percentile([d.size for d in found], (50, 90, 100)))
    beyond = [d for d in found if d.is_above_limit]
    return Spread(
        reference=reference,
        metric=metric.title,
        group=group,
        scenarios=len(found),
        median=median,
        p90=p90,
        largest=largest,
        above=len(beyond),
        beyond_chance=sum(not d.is_chance for d in beyond),
    )


def _retransmits(compared: Compared, engines: Sequence[str]) -> bool:
    return any(run.retransmission_rate > 0 for engine in engines for run in compared.runs[engine])


def _retransmissions(members: Sequence[Compared], engine: str) -> Retransmissions:
    runs = [run for one in members for run in one.runs[engine]]
    apart = np.median([one.difference(METRICS[3], engine, NATIVE).size for one in members])
    return Retransmissions(
        engine=engine,
        lost=float(np.mean([run.loss_rate for run in runs])),
        spurious=float(np.mean([run.unnecessary_rate for run in runs])),
        apart=None if engine == NATIVE else float(apart),
    )


def view(results: Mapping[str, Rows], figure: page.AddFigure) -> Mapping[str, object]:
    """Return the summary, its tables and its figure.

    Until every scenario is measured, all of them are of older code (`page.load_older`).
    """
    is_older = not all(job.name in results for job in jobs())
    summary = Summary.from_dict(page.load_older("agreement")) if is_older else summarise(compare(results))
    return {
        "is_older": is_older,
        "summary": summary,
        "above": sum(sum(of_metric.values()) for of_metric in summary.causes.values()),
        "differences": summary.scenarios * len(METRICS),
        "over_udp": {
            key: sum(getattr(summary.spread("ns3-quic", metric), key) for metric in METRICS)
            for key in ("above", "beyond_chance")
        },
        "spread": lambda place, reference="ns3": summary.spread(reference, METRICS[place]),
        "terms": lambda place, size: _in_terms(METRICS[place], size),
        "figure": figure("differences", lambda: differences_figure(summary)),
        "in_short": _short_table(summary),
        "groups": {title: _spread_table(summary, reference) for reference, title in REFERENCES.items()},
        "causes": _causes_table(summary),
        "retransmissions": _retransmissions_table(summary),
    }


def _short_table(summary: Summary) -> str:
    """Return median and 90th percentile of all scenarios, beside both references."""
    rows = []
    for metric in METRICS:
        spreads = [summary.spread(reference, metric) for reference in REFERENCES]
        sizes = [_in_terms(metric, size) for spread in spreads for size in (spread.median, spread.p90)]
        rows.append([metric.title, *sizes])
    head = ["difference from", "ns-3's TCP: median", "p90", "UDP in ns-3: median", "p90"]
    return page.table(head, rows, range(1, len(head)))


def _spread_table(summary: Summary, reference: str) -> str:
    metrics = {metric.title: metric for metric in METRICS}
    rows = []
    for spread in summary.spreads:
        if spread.reference != reference:
            continue
        metric = metrics[spread.metric]
        kind = "relative" if metric.is_relative else "absolute"
        rows.append(
            [
                f"{metric.title}, {kind}" if spread.group == "all" else "",
                f"{spread.group} ({spread.scenarios})",
                *(_in_terms(metric, size) for size in (spread.median, spread.p90, spread.largest)),
                f"{spread.above} above {100 * metric.limit:g} %",
                str(spread.beyond_chance),
            ]
        )
    head = ["difference of", "scenarios", "median", "p90", "largest", "above the limit", "of these beyond chance"]
    return page.table(head, rows)


def _causes_table(summary: Summary) -> str:
    """Return how many differences above the limit each cause explains, by metric."""
    names = list(next(iter(summary.causes.values())))
    rows = [[metric, *(str(count) for count in of.values())] for metric, of in summary.causes.items()]
    return page.table(["metric", *names], rows, range(1, 1 + len(names))) if names else "None."


def _retransmissions_table(summary: Summary) -> str:
    """Return lost packets and spurious retransmissions of each engine, where any retransmits."""
    rows = [
        [
            REFERENCES.get(one.engine, one.engine),
            f"{100 * one.lost:.2f} %",
            f"{100 * one.spurious:.2f} %",
            "" if one.apart is None else _in_terms(METRICS[3], one.apart),
        ]
        for one in summary.retransmissions
    ]
    head = ["", "lost, of sent packets", "spurious retransmissions", "median difference of native"]
    return page.table(head, rows, range(1, 4))


@styled
def differences_figure(summary: Summary) -> Figure:
    """Draw each metric's differences from both references, over its limit: median, 90th percentile and largest."""
    drawn, grid = panels(len(REFERENCES), 1, height=1.75, title="Differences of native, over the limit", sharex=True)
    least = 0.01
    for axes, (reference, title) in zip(grid, REFERENCES.items(), strict=True):
        for place, metric in enumerate(METRICS):
            spread = summary.spread(reference, metric)
            sizes = [max(least, size / metric.limit) for size in (spread.median, spread.p90, spread.largest)]
            axes.plot(sizes, [place] * 3, color="#0072B2", linewidth=1.2, alpha=0.6)
            for size, marker, filled in zip(sizes, "osD", ("#0072B2", "#56B4E9", "white"), strict=True):
                axes.plot(size, place, marker, color="#0072B2", markerfacecolor=filled, markersize=6)
        axes.axvline(1, color="#D55E00", linewidth=1.2, linestyle=(0, (5, 1.6)))
        axes.set_xscale("log")
        axes.set_xlim(0.8 * least, 30)
        axes.set_xticks([0.01, 0.1, 1, 10], ["≤ 0.01", "0.1", "the limit", "10 times"])
        axes.set_yticks(range(len(METRICS)), [f"{metric.title} ({100 * metric.limit:g} %)" for metric in METRICS])
        axes.set_ylim(len(METRICS) - 0.5, -0.5)
        axes.set_title(f"from {title}")
    for marker, filled, name in zip("osD", ("#0072B2", "#56B4E9", "white"), ("median", "p90", "largest"), strict=True):
        grid[0].plot([], [], marker, color="#0072B2", markerfacecolor=filled, label=name)
    drawn.legend(loc="outside lower center", ncols=3, fontsize=SMALL)
    return drawn
