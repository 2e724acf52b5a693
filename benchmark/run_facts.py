"""What is measured of a run to say how it is broken, in plain types that can leave a confined process as JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from contextlib import closing
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from bbrgym.benchmark.decider import Decider
from bbrgym.checks import check_number
from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.engine import Engine, EngineError, check_algorithms, describe_engine, make_engine
from bbrgym.envs.scenario import HEADER_BYTES, Flow, Scenario
from bbrgym.envs.sharing import FairShares, Sharing
from bbrgym.envs.trace import Trace, simulate

Facts = dict[str, Any]
"""Of a run: `fair_power`, `jain`, `utilisation`, `delay`, `queue_bdp`, and per flow `throughputs_mbps`, `shares`,
`starved_s`, `stalled_s` and `swings`; or `error`, why there is nothing."""

Array = npt.NDArray[np.float64]

WARMUP: Final = 0.25
"""The fraction of a run that throughput, delay and queue leave out. All flows that come have started by then."""

_STEPS_MS: Final = (50.0, 100.0)
"""The shortest and the longest step: two RTTs, so that the swings of a rate are seen."""

_LEAST_S: Final = 2e-3 * _STEPS_MS[1]
"""How long a run is at least: if it had one step alone, none would follow the warm-up."""

_STARVED_SHARE: Final = 0.1
"""Below this part of its fair share a flow starves."""

_DELIVERING_MBPS: Final = 0.1
"""A slower link does not deliver: a packet of 1000 bytes takes 0.1 s."""

_BIN_S: Final = 0.25
"""Spans of time are multiples of this."""

_SWING_BINS: Final = 10
"""A swing is looked for in windows of so many bins of two RTTs."""


def check_measurable(scenario: Scenario) -> None:
    """Check that a run of a scenario has facts.

    Raises:
        ValueError: naming the bad value: a flow is finite, or the run is too short.
    """
    for index, flow in enumerate(scenario.flows):
        if flow.size_bytes is not None:
            raise ValueError(
                f"flows[{index}].size_bytes must be null, got {flow.size_bytes}: only endless flows are measured here"
            )
    check_number("duration_s", scenario.duration_s, at_least=_LEAST_S)


def measure_facts(
    scenarios: Sequence[Scenario], seeds: Sequence[int], warmup: float, decider: Decider | None = None
) -> list[Facts]:
    """Return the facts of each run in the engine native; of one that its controllers end, the `error`.

    Args:
        scenarios: with endless flows.
        seeds: one per scenario.
        warmup: fraction of each run that is not measured.
        decider: steers the agent flows, every 100 ms.

    Raises:
        ValueError: the engine does not have a scenario, or nothing can be measured of it.
    """
    faults = (EngineError,) if decider is None else (EngineError, ValueError)  # the latter: what a callable chose
    found: list[Facts] = []
    with closing(make_engine("native")) as engine:
        for scenario, seed in zip(scenarios, seeds, strict=True):
            check_algorithms(scenario, describe_engine("native"))
            try:
                trace = run(scenario, seed, engine, decider)
            except faults as error:
                found.append({"error": str(error)})
            else:
                found.append(facts_of(trace, warmup))
    return found


def run(scenario: Scenario, seed: int, engine: Engine | str, decider: Decider | None = None) -> Trace:
    """Run a scenario in steps of about two of its shortest RTTs."""
    shortest_ms = min(flow.rtt_ms for flow in scenario.flows)
    step_ms = _STEPS_MS[1] if decider is not None else min(max(2 * shortest_ms, _STEPS_MS[0]), _STEPS_MS[1])
    policy = None if decider is None else decider.policy()
    return simulate(scenario, engine, seed=seed, step_ms=step_ms, policy=policy)


def facts_of(trace: Trace, warmup: float = WARMUP) -> Facts:
    """Return the facts of a run."""
    scenario = trace.scenario
    fair = FairShares.of(carried(scenario), warmup)
    summary = trace.summary(after_s=warmup * scenario.duration_s)
    flows = summary.flows
    throughputs = np.array([flow.throughput_mbps for flow in flows])
    sharing = Sharing.of(
        fair,
        np.array([flow.received_bytes for flow in flows]),
        np.array([flow.active_s for flow in flows]),
        np.array([flow.rtt_mean_ms for flow in flows]),
    )
    series = _Series.of(trace)
    return {
        "fair_power": sharing.fair_power,
        "jain": sharing.jain,
        "utilisation": sharing.utilisation,
        "delay": sharing.delay,
        "queue_bdp": _queue_ms(trace, warmup) / max(flow.rtt_ms for flow in scenario.flows),
        "throughputs_mbps": np.nan_to_num(throughputs).tolist(),
        "shares": np.nan_to_num(throughputs / fair.mbps).tolist(),
        "starved_s": [series.starved_s(index) for index in range(len(flows))],
        "stalled_s": [series.stalled_s(index) for index in range(len(flows))],
        "swings": [series.swing(index, flow.rtt_mean_ms) for index, flow in enumerate(flows)],
    }


def _queue_ms(trace: Trace, warmup: float) -> float:
    """Return the mean time to drain the queues of the forward links, while the first one delivers."""

    def column(name: str) -> Array:
        return np.nan_to_num(trace.link[:, LINK_COLUMNS.index(name)])

    is_measured = (trace.time_s > warmup * trace.scenario.duration_s) & (column("rate_mbps") >= _DELIVERING_MBPS)
    queue_ms = (column("queue_mean_ms") + column("second_queue_mean_ms"))[is_measured]
    return float(queue_ms.mean()) if len(queue_ms) else 0.0


def carried(scenario: Scenario) -> Scenario:
    """Return the scenario with the rate that its flows can have: that of the policer, second link or application."""
    wire = (scenario.packet_bytes + HEADER_BYTES) / scenario.packet_bytes
    most_mbps = min(_behind_mbps(scenario), wire * sum(map(_app_mbps, scenario.flows)))
    return dataclasses.replace(
        scenario,
        rate_mbps=max(min(scenario.rate_mbps, most_mbps), 0.01),
        rate_schedule=tuple((time, max(min(rate, most_mbps), 0.01)) for time, rate in scenario.rate_schedule),
    )


def _behind_mbps(scenario: Scenario) -> float:
    """Return the rate of what is behind the first link, a policer or a second link; infinite without them."""
    limits = (scenario.policer_mbps, scenario.second_rate_mbps)
    return min((limit for limit in limits if limit is not None), default=math.inf)


def _app_mbps(flow: Flow) -> float:
    """Return what an application writes on average; infinite without a limit."""
    if flow.app_rate_mbps is None:
        return math.inf
    if flow.on_s is None or flow.off_s is None:
        return flow.app_rate_mbps
    return flow.app_rate_mbps * flow.on_s / (flow.on_s + flow.off_s)


@dataclasses.dataclass(frozen=True)
class _Series:
    """A run step by step: shapes (steps,) and (steps, flows)."""

    scenario: Scenario
    lengths_s: Array
    rate_mbps: Array
    active: Array
    received_mbit: Array
    delivered: Array
    sent: Array

    @classmethod
    def of(cls, trace: Trace) -> _Series:
        def column(name: str) -> Array:
            return np.nan_to_num(trace.flows[:, :, FLOW_COLUMNS.index(name)])

        return cls(
            scenario=trace.scenario,
            lengths_s=np.diff(trace.time_s, prepend=0.0),
            rate_mbps=np.minimum(trace.link[:, LINK_COLUMNS.index("rate_mbps")], _behind_mbps(trace.scenario)),
            active=column("is_active"),
            received_mbit=column("received_bytes") * 8e-6,
            delivered=column("delivered_packets"),
            sent=column("sent_packets"),
        )

    def starved_s(self, flow: int) -> float:
        """Return the longest time in which a flow has received less than `_STARVED_SHARE` of its fair share."""
        payload = self.scenario.packet_bytes / (self.scenario.packet_bytes + HEADER_BYTES)
        fair = payload * self.rate_mbps / np.maximum((self.active > 0).sum(axis=1), 1)
        fair = np.minimum(fair, _app_mbps(self.scenario.flows[flow])) * self.lengths_s
        lacking = np.where(self.active[:, flow] >= 1, self.received_mbit[:, flow] - _STARVED_SHARE * fair, 1e9)
        ends_s = np.cumsum(self.lengths_s)
        count = max(1, round(float(ends_s[-1]) / _BIN_S))
        bins = np.minimum((ends_s / ends_s[-1] * count).astype(int), count - 1)
        total = np.concatenate([[0.0], np.cumsum(np.bincount(bins, weights=lacking, minlength=count))])
        spans = np.subtract.outer(np.arange(count + 1), np.arange(count + 1))
        is_starved = np.subtract.outer(total, total) < 0
        return float(np.max(spans * is_starved, initial=0) * ends_s[-1] / count)

    def stalled_s(self, flow: int) -> float:
        """Return the longest time in which a flow delivers nothing, although the link could and there is data."""
        off_s = self.scenario.flows[flow].off_s or 0.0
        is_idle = (self.delivered[:, flow] == 0) & (self.received_mbit[:, flow] == 0)
        is_idle &= (self.active[:, flow] >= 1) & (self.rate_mbps >= _DELIVERING_MBPS)
        longest = current = 0.0
        for idle, length in zip(is_idle.tolist(), self.lengths_s.tolist(), strict=True):
            current = current + length if idle else 0.0
            longest = max(longest, current)
        return max(0.0, longest - off_s)

    def swing(self, flow: int, rtt_ms: float) -> float:
        """Return by which factor the sending rate both rises and falls in 20 RTTs, the median over windows as long.

        A rate is that of two RTTs. That of a flow which starts, and only rises, and those of others, which only fall
        then, do not swing. 1 where the path or the application moves the rate, and for less than two windows.
        """
        scenario = self.scenario
        moves = scenario.rate_schedule or any(
            each.rtt_schedule or each.stop_s is not None or each.app_rate_mbps is not None for each in scenario.flows
        )
        if moves or not math.isfinite(rtt_ms):
            return 1.0
        is_measured = np.cumsum(self.lengths_s) > WARMUP * scenario.duration_s + 1e-6
        sent = self.sent[is_measured, flow]
        step_s = float(np.median(self.lengths_s))
        per_bin = max(1, math.ceil(2e-3 * rtt_ms / step_s))
        count = len(sent) // (per_bin * _SWING_BINS)
        if count < 2:
            return 1.0
        bins = np.maximum(sent[: count * _SWING_BINS * per_bin].reshape(count, _SWING_BINS, per_bin).sum(axis=2), 1)
        rises = (bins / np.minimum.accumulate(bins, axis=1)).max(axis=1)
        falls = (np.maximum.accumulate(bins, axis=1) / bins).max(axis=1)
        return float(np.median(np.minimum(rises, falls)))
