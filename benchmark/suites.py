"""Suites of a benchmark: scenarios, and criteria that a competitor must meet in each of them.

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

from bbrgym.baselines import registry
from bbrgym.benchmark.metrics import METRICS, Metric, find_metric
from bbrgym.checks import check_integer, check_keys, check_name, check_number, read_record
from bbrgym.envs.scenario import HEADER_BYTES, Scenario
from bbrgym.envs.sharing import FairShares, Sharing

FlowRows = Sequence[Mapping[Any, Any]]
"""The rows of a run that `bbrgym.benchmark.metrics.measure` returns, one per flow."""


@dataclass(frozen=True)
class Criterion:
    """What a metric must be in each scenario of a suite.

    Attributes:
        metric: a column of `bbrgym.benchmark.tables.run_table`, or one of `DERIVED`.
        because: why this is the threshold, with the source.
        at_least: what the metric must at least be; None if only `at_most` is given.
        at_most: what it must at most be.
        than: a controller. The metric is then divided by that of the run with the same scenario and seed in which this
            controller has the flows of the competitor.
    """

    metric: str
    because: str
    at_least: float | None = None
    at_most: float | None = None
    than: str | None = None

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Criterion:
        """Make a criterion of plain types."""
        criterion = read_record(cls, "a criterion", {"metric": "", "because": ""} | dict(plain))
        if criterion.metric not in DERIVED and find_metric(criterion.metric) is None:
            check_name("metric of a criterion", criterion.metric, [*METRICS, *DERIVED])
        for name in ("at_least", "at_most"):
            check_number(name, getattr(criterion, name), or_none=True)
        if criterion.at_least is None and criterion.at_most is None:
            raise ValueError(f"a criterion must have at_least or at_most, got {dict(plain)!r}")
        if not criterion.because:
            raise ValueError(f"a criterion must say in `because` why it has its threshold, got {dict(plain)!r}")
        if criterion.than is not None:
            check_name("than of a criterion", criterion.than, [*registry.controllers(), *registry.COMPARATORS])
        return criterion

    @property
    def described(self) -> Metric:
        """The metric's label, unit and format, before it is divided."""
        metric = DERIVED[self.metric].metric if self.metric in DERIVED else find_metric(self.metric)
        assert metric is not None
        return metric

    @property
    def label(self) -> str:
        """`link utilisation over newreno's`, with the unit if there is one."""
        if self.than is not None:
            return f"{self._name} over that with {self.than}"
        return f"{self._name} ({self.described.unit})" if self.described.unit else self._name

    @property
    def _name(self) -> str:
        flow = self.metric[self.metric.find("[") :] if self.metric.endswith("]") else ""
        return f"{self.described.label} of flow {flow[1:-1]}" if flow else self.described.label

    @property
    def form(self) -> str:
        """How values are written, for `bbrgym.benchmark.statistics.number_text`."""
        return "" if self.than is not None else self.described.form

    @property
    def thresholds(self) -> list[float]:
        """What the metric must be at least and at most."""
        return [bound for bound in (self.at_least, self.at_most) if bound is not None]

    @property
    def needed(self) -> str:
        """`>= 0.95`."""
        bounds = ((">=", self.at_least), ("<=", self.at_most))
        return " and ".join(
            f"{sign} {bound:.12g}" if not self.form.endswith("%") else f"{sign} {100 * bound:.12g}%"
            for sign, bound in bounds
            if bound is not None
        )


@dataclass(frozen=True)
class Suite:
    """Scenarios and the criteria that a competitor must meet in them.

    Attributes:
        title: what the suite is about.
        section: of the document that demands it.
        asks: what the document demands, in our words.
        roles: indices of the flows that the competitor takes; None for all.
        scenarios: names of the benchmark's scenarios: `<suite>/<scenario>`.
        criteria: what must hold.
        needs: what is missing to test it, if there are no scenarios.
        is_pooled: whether a criterion is about the mean over the scenarios instead of each of them.
    """

    title: str
    section: str
    asks: str
    roles: tuple[int, ...] | None = None
    scenarios: tuple[str, ...] = ()
    criteria: tuple[Criterion, ...] = ()
    needs: str | None = None
    is_pooled: bool = False

    @classmethod
    def from_dict(cls, name: str, plain: Mapping[str, Any]) -> tuple[Suite, dict[str, Any]]:
        """Make a suite of plain types; `scenarios` are names, or {name: scenario}.

        Returns:
            The suite, and the given scenarios by their names in the benchmark.
        """
        check_keys(f"suite {name!r}", plain, [f.name for f in dataclasses.fields(cls)])
        fields = {"title": name, "section": "", "asks": ""} | dict(plain)
        given = fields.get("scenarios") or []
        own = {f"{name}/{key}": value for key, value in given.items()} if isinstance(given, Mapping) else {}
        fields["scenarios"] = tuple(own) if own else tuple(given)
        fields["criteria"] = tuple(Criterion.from_dict(one) for one in fields.get("criteria") or ())
        fields["roles"] = read_roles(fields.get("roles"))
        suite = cls(**fields)
        if bool(suite.scenarios and suite.criteria) == (suite.needs is not None):
            raise ValueError(f"suite {name!r} must have either scenarios and criteria, or `needs`")
        return suite, own

    def to_dict(self) -> dict[str, Any]:
        """Return plain types, of which `from_dict` makes an equal suite."""
        plain = dataclasses.asdict(self)
        return plain | {
            "roles": write_roles(self.roles),
            "scenarios": list(self.scenarios),
            "criteria": list(plain["criteria"]),
        }

    @property
    def references(self) -> tuple[str, ...]:
        """The controllers that competitors are compared with."""
        return tuple(dict.fromkeys(criterion.than for criterion in self.criteria if criterion.than is not None))


def read_roles(roles: Any) -> tuple[int, ...] | None:
    """Return the flows of the competitor; None for `all`."""
    if not (roles in (None, "all") or isinstance(roles, list | tuple)):
        raise ValueError(f"roles must be all or a list of flows, got {roles!r}")
    return None if roles in (None, "all") else tuple(check_integer("each of roles", role) for role in roles)


def write_roles(roles: tuple[int, ...] | None) -> list[int] | str:
    """Return plain types, of which `read_roles` makes equal roles."""
    return "all" if roles is None else list(roles)


@dataclass(frozen=True)
class DerivedMetric:
    """A metric of a run for criteria, and how it follows from the rows of the flows."""

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
    throughputs, rtts = (np.array([row[name] for row in rows]) for name in ("throughput_mbps", "rtt_mean_ms"))
    received_bytes = sum(float(row["received_bytes"]) for row in rows)
    return Sharing.of(FairShares.of(scenario, warmup), throughputs, rtts, received_bytes).fair_power


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
"""Metrics of criteria that are no column of a table, or differ from it."""
