"""Fair power: how evenly, how fully and with how short a queue the flows of a run share the link, in one number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bbrgym.envs.scenario import HEADER_BYTES, Scenario
from bbrgym.envs.trace import Trace, jain_index

Array = npt.NDArray[np.float64]


def check_measured(scenario: Scenario, warmup: float) -> None:
    """Check that a flow can send after the warm-up, the first fraction `warmup` of the scenario's duration.

    Raises:
        ValueError: all flows stop before.
    """
    measured_s = warmup * scenario.duration_s
    last_s = max(math.inf if flow.stop_s is None else flow.stop_s for flow in scenario.flows)
    if last_s <= measured_s:
        raise ValueError(
            f"no flow sends after the warm-up: warmup={warmup:g} of duration_s={scenario.duration_s:g} is "
            f"{measured_s:g} s, and the last stop_s is {last_s:g}: give a later stop_s or a smaller warmup"
        )


@dataclass(frozen=True)
class FairShares:
    """What each flow of a scenario would have if all were equal, in the measured time.

    Attributes:
        mbps: shape (flows,), the fair share of each flow in Mbit/s of payload, NaN for a flow that is not active: the
            payload that the link can carry over the number of active flows, averaged over the measured time in which
            the flow is active.
        capacity_mbit: the payload in Mbit that the link can carry while any flow is active.
        base_ms: shape (flows,), the mean base RTT of the packets of each flow, NaN for a flow that is not active.
    """

    mbps: Array
    capacity_mbit: float
    base_ms: Array

    @classmethod
    def of(cls, scenario: Scenario, warmup: float, until: float = 1.0) -> FairShares:
        """Return the fair shares of a scenario's flows.

        Args:
            scenario: a scenario with endless flows.
            warmup: fraction of its duration that is not measured.
            until: fraction of its duration at which the measured time ends.

        Raises:
            ValueError: a flow has a `size_bytes`.
        """
        if any(flow.size_bytes is not None for flow in scenario.flows):
            raise ValueError("flows must be endless, got a flow with size_bytes, whose end depends on its throughput")
        end_s = until * scenario.duration_s
        spans = [(flow.start_s, end_s if flow.stop_s is None else min(flow.stop_s, end_s)) for flow in scenario.flows]
        measured_s = warmup * scenario.duration_s
        schedules = (scenario.rate_schedule, *(flow.rtt_schedule for flow in scenario.flows))
        changes = (time for schedule in schedules for time, _ in schedule)
        edges = {measured_s, end_s, *(time for span in spans for time in span), *changes}
        times = np.array(sorted(edge for edge in edges if measured_s <= edge <= end_s))
        begins, lengths = times[:-1], np.diff(times)
        payload = scenario.packet_bytes / (scenario.packet_bytes + HEADER_BYTES)
        capacity = payload * _values(scenario.rate_mbps, scenario.rate_schedule, begins) * lengths
        is_active = np.array([(begins >= start) & (begins < stop) for start, stop in spans])
        active = is_active.sum(axis=0)
        shares = is_active * (capacity / np.maximum(active, 1))
        rtts = np.array([_values(flow.rtt_ms, flow.rtt_schedule, begins) for flow in scenario.flows])
        with np.errstate(invalid="ignore"):
            mbps = shares.sum(axis=1) / (is_active @ lengths)
            base_ms = (shares * rtts).sum(axis=1) / shares.sum(axis=1)
        return cls(mbps, float(capacity[active > 0].sum()), base_ms)


def _values(first: float, schedule: Sequence[tuple[float, float]], times: Array) -> Array:
    """Return what a schedule has at each time, before its first entry `first`."""
    values = np.array([first, *(value for _, value in schedule)])
    return values[np.searchsorted([time for time, _ in schedule], times, side="right")]


@dataclass(frozen=True)
class Sharing:
    """How the flows of a run share the link in the measured time.

    Attributes:
        shares: throughput over the fair share of each flow that is active then.
        delays: mean RTT less the base RTT over the longest base RTT of each of these flows, NaN for one that delivers
            nothing. It is the delay of packets: the time to drain the queue means nothing on a link that nearly stops.
        utilisation: payload received in order over what the link can carry while a flow is active; 0 if none is.
    """

    shares: Array
    delays: Array
    utilisation: float

    @classmethod
    def of(cls, fair: FairShares, received_bytes: Array, active_s: Array, rtts_ms: Array) -> Sharing:
        """Return how a run shares the link.

        Args:
            fair: of its scenario.
            received_bytes: shape (flows,), payload received in order, also what a queue delivers after a flow's end.
            active_s: shape (flows,), time in which each flow was active.
            rtts_ms: shape (flows,), mean RTTs; NaN without packets.
        """
        is_there = ~np.isnan(fair.mbps)
        with np.errstate(divide="ignore", invalid="ignore"):
            throughputs_mbps = received_bytes * 8e-6 / active_s
        return cls(
            np.nan_to_num(throughputs_mbps[is_there]) / fair.mbps[is_there],
            np.maximum((rtts_ms[is_there] - fair.base_ms[is_there]) / fair.base_ms[is_there].max(initial=0.0), 0.0),
            min(1.0, float(received_bytes.sum()) * 8e-6 / fair.capacity_mbit) if fair.capacity_mbit else 0.0,
        )

    @classmethod
    def of_trace(cls, trace: Trace, warmup: float) -> Sharing:
        """Return how a run shares the link after the first fraction `warmup` of its scenario's duration.

        Raises:
            ValueError: a flow has a `size_bytes`.
        """
        flows = trace.summary(after_s=warmup * trace.scenario.duration_s).flows
        return cls.of(
            FairShares.of(trace.scenario, warmup),
            np.array([flow.received_bytes for flow in flows]),
            np.array([flow.active_s for flow in flows]),
            np.array([flow.rtt_mean_ms for flow in flows]),
        )

    @property
    def jain(self) -> float:
        """Jain's index of `shares`; 0 if there is no throughput."""
        return jain_index(self.shares) if self.shares.any() else 0.0

    @property
    def delay(self) -> float:
        """The mean of `delays`; 0 without packets."""
        return float(np.nanmean(self.delays)) if not np.isnan(self.delays).all() else 0.0

    @property
    def fair_power(self) -> float:
        """`jain` x `utilisation` / (1 + `delay`), in [0, 1]: throughput over delay (Kleinrock 1979) times fairness.

        No algorithm and no reward was designed for it.
        """
        return self.fair_power_at(1.0)

    def fair_power_at(self, delay_weight: float) -> float:
        """Return `fair_power` with the delay counted so many times."""
        return self.jain * self.utilisation / (1 + delay_weight * self.delay)
