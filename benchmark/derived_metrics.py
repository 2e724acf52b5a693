"""Metrics of a run for claims that are no column of a table, or differ from it.

It imports no tables, so that a worker starts quickly.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from bbrgym.benchmark.metrics import METRICS, Metric
from bbrgym.envs.scenario import HEADER_BYTES, Scenario
from bbrgym.envs.sharing import FairShares, Sharing

FlowRows = Sequence[Mapping[Any, Any]]
"""The rows of a run that `bbrgym.benchmark.metrics.measure` returns, one per flow."""


@dataclass(frozen=True)
class DerivedMetric:
    """A metric of a run for claims, and how it follows from the rows of the flows."""

    metric: Metric
    measure: Callable[[FlowRows, Scenario], float]


def _rest_s(scenario: Scenario, metric: str) -> float:
    """Return the time from the origin of `convergence_s` or `equilibrium_s` to the end of the run, in s."""
    starts = [flow.start_s for flow in scenario.flows]
    origin_s = max(starts) if metric == "convergence_s" else min(starts[len(starts) // 2 :])
    return scenario.duration_s - origin_s


def _or_rest_s(metric: str, rows: FlowRows, scenario: Scenario) -> float:
    time_s = float(rows[0][metric])
    return _rest_s(scenario, metric) if math.isnan(time_s) else time_s


def _evenness(rows: FlowRows, scenario: Scenario) -> float:
    low, high = sorted((float(rows[0]["throughput_mbps"]), float(rows[-1]["throughput_mbps"])))
    return low / high if high else math.nan


def _smallest_share(rows: FlowRows, scenario: Scenario) -> float:
    return min(float(row["share"]) for row in rows) * len(rows)


def _completion_s(rows: FlowRows, scenario: Scenario) -> float:
    times = []
    for row, flow in zip(rows, scenario.flows, strict=True):
        if flow.size_bytes is None:
            continue
        time_s = float(row["completion_time_ms"]) / 1e3
        times.append(scenario.duration_s - flow.start_s if math.isnan(time_s) else time_s)
    return sum(times) / len(times) if times else math.nan


def _packets_per_rtt(rows: FlowRows, scenario: Scenario) -> float:
    per_flow = sum(float(row["sent_packets"] * row["rtt_ms"]) for row in rows) / len(rows)
    return per_flow / (1e3 * float(rows[0]["link_duration_s"]))


def _send_ratio(rows: FlowRows, scenario: Scenario) -> float:
    payload = scenario.packet_bytes / (scenario.packet_bytes + HEADER_BYTES)
    sent_mbit = sum(row["send_rate_mbps"] * row["active_s"] for row in rows)
    sendable_mbit = payload * rows[0]["link_rate_mbps"] * rows[0]["link_active_s"]
    return float(sent_mbit / sendable_mbit) if sendable_mbit else math.nan


def _fair_power(rows: FlowRows, scenario: Scenario) -> float:
    warmup = 1 - float(rows[0]["link_duration_s"]) / scenario.duration_s
    measured = (np.array([row[name] for row in rows]) for name in ("received_bytes", "active_s", "rtt_mean_ms"))
    return Sharing.of(FairShares.of(scenario, warmup), *measured).fair_power


def _first_flow_delay_ms(rows: FlowRows, scenario: Scenario) -> float:
    packet_ms = 8e-3 * (scenario.packet_bytes + HEADER_BYTES) / rows[0]["link_rate_mbps"]
    return float(rows[0]["rtt_mean_ms"] - rows[0]["rtt_ms"] - packet_ms)


def _total_retransmission_rate(rows: FlowRows, scenario: Scenario) -> float:
    sent_packets = sum(float(row["sent_packets"]) for row in rows)
    return sum(float(row["retransmissions"]) for row in rows) / sent_packets if sent_packets else math.nan


def _over_tcp(rows: FlowRows, scenario: Scenario) -> float:
    # RFC 8083, section 4.3: X = s / (Tr sqrt(2 b p / 3)), with an ACK per packet, b = 1.
    ratios = []
    for row in rows:
        tcp_mbps = math.inf
        if row["loss_rate"] > 0:
            tcp_mbps = scenario.packet_bytes * 8e-3 / (row["rtt_mean_ms"] * math.sqrt(2 * row["loss_rate"] / 3))
        ratios.append(row["send_rate_mbps"] / tcp_mbps)
    return float(sum(ratios) / len(rows))


DERIVED: Final[dict[str, DerivedMetric]] = {
    "convergence_s": DerivedMetric(
        dataclasses.replace(
            METRICS["convergence_s"],
            meaning="time from the last flow's start to a lasting fair share, or to the end if there is none",
        ),
        partial(_or_rest_s, "convergence_s"),
    ),
    "equilibrium_s": DerivedMetric(
        dataclasses.replace(
            METRICS["equilibrium_s"],
            meaning="time to lastingly equal shares of the two halves of the flows, or to the end if there is none",
        ),
        partial(_or_rest_s, "equilibrium_s"),
    ),
    "evenness": DerivedMetric(
        Metric("evenness", "", "smaller over larger of the first and the last flow's throughput", True), _evenness
    ),
    "smallest_share": DerivedMetric(
        Metric("smallest share over the equal share", "", "smallest of the flows' shares over the equal share", True),
        _smallest_share,
    ),
    "completion_s": DerivedMetric(
        Metric(
            "completion time",
            unit="s",
            meaning="time from start to end of the flows with a size, or to the end of the run; mean",
            is_more_better=False,
        ),
        _completion_s,
    ),
    "packets_per_rtt": DerivedMetric(
        Metric("packets sent per base RTT", "", "packets that a flow sends per base RTT, mean of the flows", None),
        _packets_per_rtt,
    ),
    "send_ratio": DerivedMetric(
        Metric("sending rate over the link's rate", "", "payload sent over what the link can carry", None), _send_ratio
    ),
    "fair_power": DerivedMetric(
        Metric(
            "fair power",
            unit="",
            meaning="jain x utilisation / (1 + delay), in [0, 1] (bbrgym.envs.sharing)",
            is_more_better=True,
            form=".3f",
        ),
        _fair_power,
    ),
    "first_flow_delay_ms": DerivedMetric(
        Metric(
            "mean queueing delay of the first flow",
            unit="ms",
            meaning="mean RTT of the first flow, less its base RTT and the transmission of a packet",
            is_more_better=False,
            form=".1f",
        ),
        _first_flow_delay_ms,
    ),
    "total_retransmission_rate": DerivedMetric(
        Metric(
            "retransmitted over sent packets, all flows together",
            unit="",
            meaning="retransmitted over sent packets, all flows together",
            is_more_better=False,
            form=".2%",
        ),
        _total_retransmission_rate,
    ),
    "over_tcp": DerivedMetric(
        Metric(
            "sending rate over that of the TCP equation",
            unit="",
            meaning="payload sent over s / (RTT sqrt(2 p / 3)), p being the loss rate; mean of the flows",
            is_more_better=None,
        ),
        _over_tcp,
    ),
}
"""Metrics of claims that are no column of a table, or differ from it."""
