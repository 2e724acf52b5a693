"""How far a simulation is from Linux, and which single change of it explains a difference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bbrgym import Scenario
from bbrgym.baselines.registry import COUNTERPARTS
from bbrgym.benchmark.statistics import Estimate, bootstrap_interval, estimate
from bbrgym.envs.scenario import HEADER_BYTES
from studies.linux.cases import BURSTS, Case

WITHIN: Final = 0.1
"""A value of the simulation within this of Linux's counts as equal."""

LINUX: Final = "Linux"
NATIVE: Final = "native"
NS3: Final = "ns-3"
OVER_UDP: Final = "Linux, ours over UDP"

QUEUES: Final = ("link_queue_mean_ms", "link_queue_p95_ms")


@dataclass(frozen=True)
class Variant:
    """A change of the simulation that brings in one thing that Linux has.

    Attributes:
        name: what it brings in.
        parameters: of the algorithm in place of the kernel's, {kernel's algorithm: parameters}.
        jitter_ms: largest delay of each ACK.
    """

    name: str
    parameters: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    jitter_ms: float = 0.0

    def changes(self, case: Case) -> bool:
        """Return whether the case is another one with it."""
        return self.jitter_ms > 0 or any(flow.algorithm in self.parameters for flow in case.scenario.flows)

    def of(self, case: Case) -> Case:
        """Return the simulated case with this change."""
        flows = tuple(
            replace(
                flow,
                algorithm=COUNTERPARTS.get(flow.algorithm, flow.algorithm),
                parameters=self.parameters.get(flow.algorithm, flow.parameters),
                jitter_ms=max(self.jitter_ms, flow.jitter_ms),
            )
            for flow in case.scenario.flows
        )
        return replace(case, scenario=replace(case.scenario, flows=flows))


VARIANTS: Final = (
    Variant("bursts as with segmentation offload", {"linux-bbr": BURSTS}),
    Variant("ACKs up to 0.3 ms late, as a host's", jitter_ms=0.3),
    Variant("BBR with long-term sampling", {"linux-bbr": {"long_term_sampling": 1.0}}),
    Variant("BBR without pacing margin", {"linux-bbr": {"pacing_margin": 0.0}}),
    Variant("CUBIC without HyStart++", {"linux-cubic": {"has_hystart": 0.0}}),
    Variant("CUBIC that is paced", {"linux-cubic": {"is_paced": 1.0}}),
)
"""One thing at a time."""


def scale(metric: str, linux: float, scenario: Scenario) -> float:
    """Return what a difference in a metric is divided by.

    Of shares, it is the equal share. Of queues, it is Linux's queue, but at least one packet or a twentieth of the RTT.
    """
    if metric.startswith("share"):
        return 1 / len(scenario.flows)
    packet_ms = 8e-3 * (scenario.packet_bytes + HEADER_BYTES) / scenario.rate_mbps
    return max(linux, packet_ms, 0.05 * max(flow.rtt_ms for flow in scenario.flows))


def judged(scenario: Scenario) -> list[str]:
    """Return the metrics in which a scenario is compared: columns of `run_table`."""
    shares = [f"share[{index}]" for index in range(len(scenario.flows))]
    return [*shares, *QUEUES] if len(shares) > 1 else [*QUEUES]


def difference(ours: npt.ArrayLike, theirs: npt.ArrayLike) -> Estimate:
    """Return the difference of the means of two samples, with its 95 % bootstrap interval."""
    x, y = (np.asarray(side, dtype=np.float64) for side in (ours, theirs))

    def gap(values: npt.NDArray[np.float64], axis: int) -> Any:
        first, second = np.split(values, [len(x)], axis)
        return first.mean(axis) - second.mean(axis)

    low, high = bootstrap_interval(np.concatenate([x, y]), gap, strata=[0] * len(x) + [1] * len(y))
    return Estimate(float(x.mean() - y.mean()), low, high, len(x) + len(y))


@dataclass(frozen=True)
class Cell:
    """A metric of a case in Linux and in simulations.

    Attributes:
        case: what was run.
        metric: a column of `run_table`.
        of: {what ran it: the values of its runs}.
    """

    case: Case
    metric: str
    of: Mapping[str, npt.NDArray[np.float64]]

    def relative(self, name: str, to: str = LINUX) -> Estimate:
        """Return the difference of one from another, in units of the metric's `scale`."""
        found = difference(self.of[name], self.of[to])
        unit = scale(self.metric, float(self.of[to].mean()), self.case.scenario)
        return Estimate(found.value / unit, found.low / unit, found.high / unit, found.n)

    def is_within(self, name: str = NATIVE, to: str = LINUX) -> bool:
        """Return whether the means differ by at most `WITHIN`."""
        return abs(self.relative(name, to).value) <= WITHIN

    def is_chance(self) -> bool:
        """Whether the interval of native's difference reaches into the allowed range."""
        own = self.relative(NATIVE)
        return own.low <= WITHIN and own.high >= -WITHIN

    def cause(self) -> str:
        """Return why native differs from Linux, by the first rule that fits.

        1. Chance: the interval of the difference reaches into the allowed range.
        2. A variant of native, the first one that is within the range; one thing was varied.
        3. TCP of the kernel: with ours over UDP instead, Linux is within the range of native.
        4. The host: ours over UDP, or flows that were ours anyway, differ too.
        """
        if self.is_chance():
            return f"chance: {signed(self.relative(NATIVE))}"
        variants = [variant.name for variant in VARIANTS if variant.name in self.of]
        for name in variants:
            if self.is_within(name):
                return f"{name}: {percents(self.relative(name).value, '+')}"
        best = min(variants, key=lambda name: abs(self.relative(name).value), default=None)
        closest = "" if best is None else f"; closest is {best}: {percents(self.relative(best).value, '+')}"
        if OVER_UDP not in self.of:
            return ("not known" if self.case.is_of_kernel else "the host") + closest
        over_udp = self.relative(NATIVE, OVER_UDP)
        where = "the kernel's TCP" if abs(over_udp.value) <= WITHIN else "the host"
        return f"{where}: with ours over UDP {percents(over_udp.value, '+')}{closest}"


def cells(cases: Sequence[Case], runs: pd.DataFrame) -> Iterator[Cell]:
    """Yield the judged metrics of the cases that Linux and native have run."""
    for case in cases:
        if case.name not in runs.index.get_level_values("scenario"):
            continue
        of_case = dict(iter(runs.xs(case.name, level="scenario").groupby(level="competitor", sort=False)))
        if LINUX not in of_case or NATIVE not in of_case:
            continue
        for metric in judged(case.scenario):
            values = {str(name): frame[metric].to_numpy(dtype=np.float64) for name, frame in of_case.items()}
            yield Cell(case, metric, values)


def percents(value: float, sign: str = "") -> str:
    """Return `12 %`, or `+12 %` with the sign `+`."""
    return f"{100 * value:{sign}.0f} %"


def signed(found: Estimate) -> str:
    """Return `+12 % [+3 % +20 %]`."""
    ends = "" if np.isnan(found.low) else f" [{percents(found.low, '+')} {percents(found.high, '+')}]"
    return percents(found.value, "+") + ends


def mean(values: Any, form: str) -> str:
    """Return a mean with its 95 % bootstrap interval, of runs that differ."""
    return estimate(values, is_sample=len(set(np.asarray(values).tolist())) > 1).text(form)
