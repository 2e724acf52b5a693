"""Measure how closely the native engine agrees with ns-3: `python -m studies.agreement [--write FILE]`.

All engines simulate a grid of scenarios (`grid`) with the same seeds, as benchmarks in runs/benchmark/agreement, so an
interrupted command can be resumed. Each difference above its limit gets a cause by a rule (`cause`).
"""

from __future__ import annotations

import math
import random
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import NormalDist
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from rich.console import Console

from bbrgym import Flow, Scenario
from bbrgym.benchmark.run import run_benchmark
from bbrgym.cli import BENCHMARKS
from bbrgym.interruption import SAME_COMMAND, run_interruptible
from studies import page
from studies.command import check_failures

MARK: Final = "studies/agreement.py"
NOT_EXPLAINED: Final = "not explained"

SEEDS: Final = (1, 2, 3)
NEIGHBOURS: Final = tuple(range(1000, 1012))
"""Seeds of the runs that show how far chance alone moves a value (`neighbour`)."""
WARMUP: Final = 0.25
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


def compare_grid(scenarios: Mapping[str, Scenario], root: Path, console: Console) -> list[Compared]:
    """Simulate every scenario in all engines, and its neighbours in native."""
    runs = {engine: _run(engine, scenarios, seeds=SEEDS, root=root, console=console) for engine in ENGINES}
    near = _run_neighbours(NATIVE, scenarios, root, console)
    return [
        Compared(name, scenario, {engine: of_engine[name] for engine, of_engine in runs.items()}, near[name])
        for name, scenario in scenarios.items()
    ]


def settle(compared: Sequence[Compared], root: Path, console: Console) -> list[Compared]:
    """Simulate the neighbours in the other engines too, where a difference from ns-3's TCP is otherwise unexplained."""
    open_ones = {
        one.name: one.scenario
        for one in compared
        if any(d.is_above_limit and cause(one, d) == NOT_EXPLAINED for d in one.differences("ns3"))
    }
    near = {engine: _run_neighbours(engine, open_ones, root, console) for engine in REFERENCES if open_ones}
    return [
        replace(one, others_neighbours={engine: runs[one.name] for engine, runs in near.items() if one.name in runs})
        for one in compared
    ]


def _run_neighbours(
    engine: str, scenarios: Mapping[str, Scenario], root: Path, console: Console
) -> dict[str, list[Figures]]:
    runs = [
        _run(
            engine,
            {name: neighbour(scenario, seed) for name, scenario in scenarios.items()},
            seeds=[seed],
            root=root,
            console=console,
        )
        for seed in NEIGHBOURS
    ]
    return {name: [figures for of_seed in runs for figures in of_seed[name]] for name in scenarios}


def _run(
    engine: str, scenarios: Mapping[str, Scenario], seeds: Sequence[int], root: Path, console: Console
) -> dict[str, list[Figures]]:
    """Run the missing runs of scenarios in an engine, and return {scenario: figures, in the order of the seeds}."""
    name = f"{engine}-{seeds[0]}"
    plan = {
        "name": f"agreement/{name}",
        "engine": ENGINES[engine],
        "scenarios": {key: scenario.to_dict() for key, scenario in scenarios.items()},
        "competitors": [{"name": "grid", "algorithm": "cubic"}],
        "roles": [],  # the scenarios have their algorithms
        "seeds": list(seeds),
        "warmup": WARMUP,
    }
    result = run_benchmark(plan, root / "agreement" / name, console, command=MARK, has_report=False)
    check_failures(len(result.failures))
    return {
        str(key): [
            Figures.of_rows([dict(row) for _, row in rows.iterrows()]) for _, rows in of_scenario.groupby("seed")
        ]
        for key, of_scenario in result.results.groupby("scenario")
    }


def summarise(compared: Sequence[Compared]) -> str:
    """Return the tables of the page."""
    parts = [f"{len(compared)} scenarios, {len(SEEDS)} seeds each."]
    for engine, title in REFERENCES.items():
        parts += [f"### Compared with {title}", _summary_table(compared, engine)]
    parts += ["### Causes of the differences from ns-3's TCP above a limit", _causes_table(compared)]
    parts += ["### Retransmissions", _retransmissions_table(compared)]
    return "\n\n".join(parts)


def _summary_table(compared: Sequence[Compared], engine: str) -> str:
    lossless = [one for one in compared if one.scenario.loss == 0]
    groups = {
        "all": compared,
        "nothing retransmitted": [one for one in lossless if not _retransmits(one, (engine, NATIVE))],
        "losses of a full buffer only": [one for one in lossless if _retransmits(one, (engine, NATIVE))],
        "random losses": [one for one in compared if one.scenario.loss > 0],
    }
    rows = []
    for index, metric in enumerate(METRICS):
        for group, members in groups.items():
            found = [d for one in members if not math.isnan((d := one.differences(engine)[index]).size)]
            if not found:
                continue
            beyond = [d for d in found if d.is_above_limit]
            sizes = [float(size) for size in np.percentile([d.size for d in found], (50, 90, 100))]
            title = f"{metric.title}, {'relative' if metric.is_relative else 'absolute'}" if group == "all" else ""
            rows.append(
                [
                    title,
                    f"{group} ({len(found)})",
                    *(_in_terms(metric, size) for size in sizes),
                    f"{len(beyond)} above {100 * metric.limit:g} %",
                    str(sum(not d.is_chance for d in beyond)),
                ]
            )
    head = ["difference of", "scenarios", "median", "p90", "largest", "above the limit", "of these beyond chance"]
    return page.table(head, rows)


def _retransmits(compared: Compared, engines: Sequence[str]) -> bool:
    return any(run.retransmission_rate > 0 for engine in engines for run in compared.runs[engine])


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
    """Return lost packets and spurious retransmissions of each engine, where any retransmits."""
    members = [one for one in compared if _retransmits(one, tuple(ENGINES))]
    rows = []
    for engine in ENGINES if members else ():
        runs = [run for one in members for run in one.runs[engine]]
        rates = [np.mean([run.loss_rate for run in runs]), np.mean([run.unnecessary_rate for run in runs])]
        apart = np.median([one.difference(METRICS[3], engine, NATIVE).size for one in members])
        rows.append(
            [
                REFERENCES.get(engine, engine),
                *(f"{100 * rate:.2f} %" for rate in rates),
                "" if engine == NATIVE else _in_terms(METRICS[3], float(apart)),
            ]
        )
    head = ["", "lost, of sent packets", "spurious retransmissions", "median difference of native"]
    return f"{len(members)} scenarios in which any engine retransmits:\n\n{page.table(head, rows, range(1, 4))}"


def main(argv: Sequence[str] | None = None) -> int:
    """Simulate what is missing, compare and print; with --write, write the tables into the page."""
    options = page.parser(__doc__, MARK).parse_args(argv)
    console = Console(stderr=True)
    compared = settle(compare_grid(grid(), BENCHMARKS, console), BENCHMARKS, console)
    page.publish(summarise(compared), MARK, options.write)
    return 0


if __name__ == "__main__":
    sys.exit(run_interruptible("agreement", main, SAME_COMMAND))
