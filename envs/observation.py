"""What an agent sees: named features of its own flow's row, bounded and always finite."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from bbrgym.baselines import registry
from bbrgym.envs.columns import FLOW_COLUMNS
from bbrgym.envs.engine import Rows
from bbrgym.envs.scenario import Scenario

Array = npt.NDArray[np.float64]

# For few flows the time goes into the calls of NumPy; with a number of Python's they take half as long again.
ZERO: Final = np.array(0.0)
ONE: Final = np.array(1.0)
_LEAST_LOSS: Final = np.array(1e-4)
_STARTUP, _PROBE_BW, _PROBE_RTT = np.array(0.0), np.array(2.0), np.array(3.0)  # metrics.def

GAIN_COLUMNS: Final = ("steered_cwnd_gain", "steered_pacing_gain")
"""The gains that the agent chose last, beside the engine's `FLOW_COLUMNS`."""

Formula = Callable[..., Array]
"""From arrays of the columns' values, in their order, to one of the feature's, element by element."""


@dataclass(frozen=True)
class Feature:
    """One number of an observation.

    Args:
        name: how a configuration calls it.
        columns: the columns that it is computed from (`FLOW_COLUMNS` or `GAIN_COLUMNS`): nothing but what a sender
            knows about its own flow.
        low: smallest value; a smaller one is clipped.
        high: largest value; a larger one is clipped.
        neutral: its value while the flow is not active, or where the formula has none: a column is NaN, a division
            by zero, a logarithm of nothing.
        formula: computes it from the columns' values, for many flows at once; features of the same formula are computed
            together.
        meaning: one line about it.
        log: of what the formula gives; features of the same logarithm have it taken together.
    """

    name: str
    columns: tuple[str, ...]
    low: float
    high: float
    neutral: float
    formula: Formula
    meaning: str
    log: np.ufunc | None = None


def _ratio(x: Array, y: Array) -> Array:
    return x / y


def _itself(x: Array) -> Array:
    return x


def _one_and_backlog(rate: Array, max_rate: Array, bdp: Array, rtt: Array, low: Array) -> Array:
    one_and_backlog: Array = ONE + rate / max_rate * bdp * (rtt / low - ONE)
    return one_and_backlog


_ALL = (
    Feature("delivery_rate_ratio", ("delivery_rate_mbps", "max_bandwidth_mbps"), 0.0, 2.0, 1.0, _ratio,
            "delivery_rate / max_bandwidth: 1 where the path gives what the model believes"),
    Feature("log_delivery_rate_ratio", ("delivery_rate_mbps", "max_bandwidth_mbps"), -5.0, 1.0, 0.0, _ratio,
            "log2(delivery_rate / max_bandwidth)", np.log2),
    Feature("send_rate_ratio", ("send_rate_mbps", "delivery_rate_mbps"), 0.0, 4.0, 1.0, _ratio,
            "send_rate / delivery_rate: above 1 while a queue builds or packets are lost"),
    Feature("queueing_ratio", ("rtt_mean_ms", "min_rtt_ms"), 0.0, 10.0, 0.0, lambda rtt, low: rtt / low - ONE,
            "rtt_mean / min_rtt - 1: queueing delay in RTTs"),
    Feature("log_rtt_ratio", ("rtt_mean_ms", "min_rtt_ms"), 0.0, 5.0, 0.0, _ratio,
            "log2(rtt_mean / min_rtt): the same where queues of many RTTs matter", np.log2),
    Feature("rtt_last_ratio", ("rtt_last_ms", "min_rtt_ms"), 1.0, 11.0, 1.0, _ratio,
            "rtt_last / min_rtt: where the queue is now"),
    Feature("log_rtt_last_ratio", ("rtt_last_ms", "min_rtt_ms"), 0.0, 5.0, 0.0, _ratio,
            "log2(rtt_last / min_rtt)", np.log2),
    Feature("in_flight_ratio", ("in_flight_packets", "bdp_packets"), 0.0, 8.0, 0.0, _ratio, "in_flight / bdp"),
    Feature("cwnd_ratio", ("cwnd_packets", "bdp_packets"), 0.0, 8.0, 2.0, _ratio,
            "cwnd / bdp; neutral is BBR's window"),
    Feature("log_in_flight_ratio", ("in_flight_packets", "bdp_packets"), -4.0, 4.0, 0.0, _ratio,
            "log2(in_flight / bdp)", np.log2),
    Feature("log_cwnd_ratio", ("cwnd_packets", "bdp_packets"), -4.0, 4.0, 1.0, _ratio,
            "log2(cwnd / bdp)", np.log2),
    Feature("log_backlog", ("delivery_rate_mbps", "max_bandwidth_mbps", "bdp_packets", "rtt_mean_ms", "min_rtt_ms"),
            0.0, 12.0, 0.0, _one_and_backlog,
            "log2(1 + delivery_rate x (rtt_mean - min_rtt) in packets): what the flow has in the queue (Little's law)",
            np.log2),
    Feature("log_queueing_delay", ("rtt_mean_ms", "min_rtt_ms"), -2.0, 4.0, -2.0, lambda rtt, low: rtt - low,
            "log10(rtt_mean - min_rtt in ms): the same for all flows of a link", np.log10),
    Feature("loss_rate", ("lost_packets", "sent_packets"), 0.0, 1.0, 0.0, _ratio,
            "lost / sent packets; the packets marked lost may have been sent in earlier steps"),
    Feature("log_loss_rate", ("lost_packets", "sent_packets"), -4.0, 0.0, -4.0,
            lambda lost, sent: np.maximum(lost / sent, _LEAST_LOSS), "log10(lost / sent packets), at least -4",
            np.log10),
    Feature("log_bdp", ("bdp_packets",), -1.0, 6.0, 0.0, _itself,
            "log10(bdp in packets): the scale of the path", np.log10),
    Feature("log_min_rtt", ("min_rtt_ms",), -1.0, 4.0, 0.0, _itself,
            "log10(min_rtt in ms): for RTT fairness", np.log10),
    Feature("log_delivery_rate", ("delivery_rate_mbps",), -3.0, 4.0, -3.0, _itself,
            "log10(delivery_rate in Mbit/s)", np.log10),
    Feature("log_max_bandwidth", ("max_bandwidth_mbps",), -3.0, 4.0, -3.0, _itself,
            "log10(max_bandwidth in Mbit/s)", np.log10),
    Feature("log_cwnd_gain", GAIN_COLUMNS[:1], -4.0, 4.0, 0.0, _itself, "log2 of the cwnd_gain chosen last", np.log2),
    Feature("log_pacing_gain", GAIN_COLUMNS[1:], -4.0, 4.0, 0.0, _itself,
            "log2 of the pacing_gain chosen last", np.log2),
    Feature("is_startup", ("mode",), 0.0, 1.0, 0.0, lambda mode: mode == _STARTUP, "1 in Startup, else 0"),
    Feature("is_probe_bw", ("mode",), 0.0, 1.0, 0.0, lambda mode: mode == _PROBE_BW,
            "1 in ProbeBW, where the agent's gains are in force, else 0"),
    Feature("is_probe_rtt", ("mode",), 0.0, 1.0, 0.0, lambda mode: mode == _PROBE_RTT, "1 in ProbeRTT, else 0"),
)  # fmt: skip
FEATURES: Final[dict[str, Feature]] = {feature.name: feature for feature in _ALL}
"""Every feature by name."""

DEFAULT_FEATURES: Final[tuple[str, ...]] = (
    "log_delivery_rate_ratio",
    "send_rate_ratio",
    "log_rtt_ratio",
    "log_rtt_last_ratio",
    "log_cwnd_ratio",
    "log_backlog",
    "log_queueing_delay",
    "log_loss_rate",
    "log_bdp",
    "log_min_rtt",
    "log_delivery_rate",
    "log_cwnd_gain",
    "log_pacing_gain",
    "is_probe_bw",
)


@dataclass(frozen=True)
class Observation:
    """Which features an agent sees, and of how many steps.

    Args:
        features: names of `FEATURES`.
        history: how many steps are stacked, the latest last. Steps before the first are neutral.

    Raises:
        ValueError: a feature that does not exist or that needs a column that the engines do not have, none or the
            same twice, or a history below 1.
    """

    features: tuple[str, ...] = DEFAULT_FEATURES
    history: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", tuple(self.features))
        for name in self.features:
            if name not in FEATURES:
                raise ValueError(f"no feature {name!r}; known: {', '.join(FEATURES)}")
            for column in FEATURES[name].columns:
                if column not in _COLUMNS:
                    usable = [f.name for f in FEATURES.values() if set(f.columns) <= set(_COLUMNS)]
                    raise ValueError(
                        f"feature {name!r} needs the column {column!r}, which no engine has; known: {', '.join(usable)}"
                    )
        if not self.features or len(set(self.features)) < len(self.features):
            raise ValueError(f"features={list(self.features)} is not possible: name at least one, and none twice")
        if isinstance(self.history, bool) or not isinstance(self.history, int) or not 1 <= self.history <= 1000:
            raise ValueError(f"history={self.history!r} is not possible: history must be a whole number from 1 to 1000")

    @cached_property
    def space(self) -> spaces.Box[np.float32]:
        """Box of shape (history x number of features,), float32, with the features' bounds."""
        low, high = np.array([(FEATURES[name].low, FEATURES[name].high) for name in self.features]).T
        return spaces.Box(np.tile(low, self.history).astype(np.float32), np.tile(high, self.history).astype(np.float32))

    @property
    def neutral(self) -> npt.NDArray[np.float32]:
        """The observation of a flow that has not begun: every feature at its neutral value."""
        return np.array([FEATURES[name].neutral for name in self.features] * self.history, dtype=np.float32)

    @np.errstate(all="ignore")
    def evaluate(self, table: Array) -> npt.NDArray[np.float32]:
        """The features of M flows in one step.

        A flow that took no part in the step (it has not started, or has ended) is observed as neutral.

        Args:
            table: of the flows, see `tabulate`.

        Returns:
            Shape (M, number of features), inside of the features' bounds.
        """
        plan = self._plan
        values = table.take(plan.first_columns, axis=0)
        columns = table.take(plan.other_columns, axis=0)
        for formula, arguments, rows in plan.groups:
            values[rows] = formula(values[rows], *map(columns.__getitem__, arguments))
        for log, rows in plan.logs:
            log(values[rows], out=values[rows])
        has_value = np.isfinite(values)
        np.maximum(values, plan.low, out=values)
        np.minimum(values, plan.high, out=values)
        if np.count_nonzero(has_value) < has_value.size:
            np.copyto(values, plan.neutral, where=~has_value)
        features = values.take(plan.order, axis=0).T.astype(np.float32, order="C")
        if np.count_nonzero(table[TOOK_PART]) < len(features):
            features[table[TOOK_PART] == 0] = self.neutral[: len(self.features)]
        return features

    def observer(self, scenario: Scenario, flow: int) -> Observer:
        """Begin to observe one flow of an episode."""
        return Observer(self, scenario, flow)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Observation, (self.features, self.history))  # without the plan, whose formulas do not pickle

    @cached_property
    def _plan(self) -> _Plan:
        features = [FEATURES[name] for name in self.features]
        formulas = list(dict.fromkeys(feature.formula for feature in features))
        of_log = {at: {f.formula for f in features if f.log is log} for at, log in enumerate(_LOGS)}

        def place(feature: Feature) -> tuple[int, int, int]:
            # Those of a logarithm lie together; and of a formula too, if it is in two neighbouring logarithms.
            log = _LOGS.index(feature.log)
            before, after = (feature.formula in of_log.get(log + step, ()) for step in (-1, 1))
            return log, after - before, formulas.index(feature.formula)

        placed = sorted(features, key=place)
        columns: list[int] = []
        groups: list[tuple[Formula, list[slice], slice]] = []
        first = 0
        for formula, run in itertools.groupby(placed, key=lambda feature: feature.formula):
            group = list(run)
            arguments = []
            for names in zip(*[feature.columns[1:] for feature in group], strict=True):
                arguments.append(slice(len(columns), len(columns) + len(names)))
                columns += [_COLUMNS.index(name) for name in names]
            if formula is not _itself:
                groups.append((formula, arguments, slice(first, first + len(group))))
            first += len(group)
        logs = []
        for log in _LOGS:
            rows = [row for row, feature in enumerate(placed) if feature.log is log]
            if log is not None and rows:
                logs.append((log, slice(rows[0], rows[-1] + 1)))
        low, high, neutral = np.array([(f.low, f.high, f.neutral) for f in placed]).T[:, :, np.newaxis]
        order = np.array([placed.index(feature) for feature in features])
        first_columns = np.array([_COLUMNS.index(feature.columns[0]) for feature in placed])
        return _Plan(first_columns, np.array(columns, dtype=np.intp), groups, logs, low, high, neutral, order)


@dataclass(frozen=True)
class _Plan:
    """How the features are computed.

    Attributes:
        first_columns: of the table, each feature's first column, in the order of the groups.
        other_columns: the others that the groups need, in their order.
        groups: a formula each, with the rows of its other arguments among `other_columns`, and of its first argument,
            and then of its features, among the values.
        logs: a logarithm each, with the rows of its features among the values.
        low: shape (number of features, 1), as `high` and `neutral` in the order of the groups.
        high: see `low`.
        neutral: see `low`.
        order: leads from the order of the groups to the observation's.
    """

    first_columns: npt.NDArray[np.intp]
    other_columns: npt.NDArray[np.intp]
    groups: Sequence[tuple[Formula, Sequence[slice], slice]]
    logs: Sequence[tuple[np.ufunc, slice]]
    low: Array
    high: Array
    neutral: Array
    order: npt.NDArray[np.intp]


def tabulate(rows: Array, gains: Array) -> Array:
    """What observations and rewards are computed from, column by column.

    Args:
        rows: shape (M, `FLOW_COLUMNS`), one row a flow.
        gains: shape (2, M), the cwnd_gain and the pacing_gain chosen last.

    Returns:
        Shape (`FLOW_COLUMNS`, `GAIN_COLUMNS` and `TOOK_PART`, M).
    """
    table = np.empty((len(_COLUMNS) + 1, len(rows)))
    table[: len(FLOW_COLUMNS)] = rows.T
    table[len(FLOW_COLUMNS) : TOOK_PART] = gains
    table[TOOK_PART] = took_part(table[_IS_ACTIVE], table[_SENT], table[_DELIVERED])
    return table


def took_part(is_active: Array, sent: Array, delivered: Array) -> npt.NDArray[np.bool_]:
    """Whether flows took part in a step, from these columns; NaN is no.

    Not `is_active` alone: a flow that ended within the step still had its part of it.
    """
    return is_active + sent + delivered > ZERO


class History:
    """The last steps of M flows.

    Args:
        observation: what is observed.
        flows: how many.
    """

    def __init__(self, observation: Observation, flows: int) -> None:
        self._features = len(observation.features)
        self._neutral = observation.neutral
        self._steps = np.tile(self._neutral, (flows, 1))

    def clear(self, flows: slice | Sequence[int] | npt.NDArray[np.intp] = slice(None)) -> None:
        """Forget what these flows had."""
        self._steps[flows] = self._neutral

    def add(
        self, features: npt.NDArray[np.float32], flows: slice | npt.NDArray[np.intp] = slice(None)
    ) -> npt.NDArray[np.float32]:
        """The observations with one step more of these flows, shape (flows, history x number of features), a new array.

        Args:
            features: shape (flows, number of features), of `Observation.evaluate`.
            flows: which.
        """
        if self._steps.shape[1] == self._features:
            return features
        observations = np.concatenate([self._steps[flows, self._features :], features], axis=1)
        self._steps[flows] = observations
        return observations


class Observer:
    """Observes one flow for one episode; it remembers the history.

    Args:
        observation: what to observe.
        scenario: of the episode.
        flow: index of the flow.
    """

    def __init__(self, observation: Observation, scenario: Scenario, flow: int) -> None:
        self._observation = observation
        self._flow = flow
        self._history = History(observation, 1)
        self.first_gains = first_gains(scenario, flow)
        """The gains in force before the first action: the flow's parameters."""

    def observe(self, rows: Rows, gains: tuple[float, float]) -> npt.NDArray[np.float32]:
        """The observation after a step.

        A flow that took no part in the step (it has not started, or has ended) is observed as neutral.

        Args:
            rows: of the last step, or of the reset.
            gains: the cwnd_gain and pacing_gain chosen for that step, or `first_gains`.

        Returns:
            A new array of shape (history x number of features,), inside of the observation's space.
        """
        table = tabulate(rows.flows[self._flow, np.newaxis], np.array(gains)[:, np.newaxis])
        observation: npt.NDArray[np.float32] = self._history.add(self._observation.evaluate(table))[0]
        return observation


def first_gains(scenario: Scenario, flow: int) -> tuple[float, float]:
    """The cwnd_gain and pacing_gain of a flow before the first action: its parameters, or NaN if it has none."""
    algorithm = scenario.flows[flow].algorithm
    chosen: dict[str, Any] = {**registry.defaults(algorithm), **scenario.flows[flow].parameters}
    return chosen.get("cwnd_gain", math.nan), chosen.get("pacing_gain", math.nan)


_COLUMNS: Final = (*FLOW_COLUMNS, *GAIN_COLUMNS)
_LOGS: Final = (np.log10, np.log2, None)
TOOK_PART: Final = len(_COLUMNS)
"""The row of `tabulate`'s table that is 1 for flows that took part in the step, else 0."""
_IS_ACTIVE, _SENT, _DELIVERED = map(FLOW_COLUMNS.index, ("is_active", "sent_packets", "delivered_packets"))
