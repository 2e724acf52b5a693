"""What an agent sees: named features of its own flow's row, bounded and always finite."""

from __future__ import annotations

import math
from collections.abc import Callable
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

GAIN_COLUMNS: Final = ("steered_cwnd_gain", "steered_pacing_gain")
"""The gains that the agent chose last, beside the engine's `FLOW_COLUMNS`."""

Formula = Callable[..., float]


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
            by zero.
        formula: computes it from the columns' values, in their order.
        meaning: one line about it.
    """

    name: str
    columns: tuple[str, ...]
    low: float
    high: float
    neutral: float
    formula: Formula
    meaning: str


def _ratio(x: float, y: float) -> float:
    return x / y


_ALL = (
    Feature("delivery_rate_ratio", ("delivery_rate_mbps", "max_bandwidth_mbps"), 0.0, 2.0, 1.0, _ratio,
            "delivery_rate / max_bandwidth: 1 where the path gives what the model believes"),
    Feature("send_rate_ratio", ("send_rate_mbps", "delivery_rate_mbps"), 0.0, 4.0, 1.0, _ratio,
            "send_rate / delivery_rate: above 1 while a queue builds or packets are lost"),
    Feature("queueing_ratio", ("rtt_mean_ms", "min_rtt_ms"), 0.0, 10.0, 0.0, lambda rtt, low: rtt / low - 1.0,
            "rtt_mean / min_rtt - 1: queueing delay in RTTs"),
    Feature("log_rtt_ratio", ("rtt_mean_ms", "min_rtt_ms"), 0.0, 5.0, 0.0, lambda rtt, low: math.log2(rtt / low),
            "log2(rtt_mean / min_rtt): the same where queues of many RTTs matter"),
    Feature("rtt_last_ratio", ("rtt_last_ms", "min_rtt_ms"), 1.0, 11.0, 1.0, _ratio,
            "rtt_last / min_rtt: where the queue is now"),
    Feature("log_rtt_last_ratio", ("rtt_last_ms", "min_rtt_ms"), 0.0, 5.0, 0.0, lambda rtt, low: math.log2(rtt / low),
            "log2(rtt_last / min_rtt)"),
    Feature("in_flight_ratio", ("in_flight_packets", "bdp_packets"), 0.0, 8.0, 0.0, _ratio, "in_flight / bdp"),
    Feature("cwnd_ratio", ("cwnd_packets", "bdp_packets"), 0.0, 8.0, 2.0, _ratio,
            "cwnd / bdp; neutral is BBR's window"),
    Feature("loss_rate", ("lost_packets", "sent_packets"), 0.0, 1.0, 0.0, _ratio,
            "lost / sent packets; the packets marked lost may have been sent in earlier steps"),
    Feature("log_bdp", ("bdp_packets",), -1.0, 6.0, 0.0, math.log10, "log10(bdp in packets): the scale of the path"),
    Feature("log_min_rtt", ("min_rtt_ms",), -1.0, 4.0, 0.0, math.log10, "log10(min_rtt in ms): for RTT fairness"),
    Feature("log_delivery_rate", ("delivery_rate_mbps",), -3.0, 4.0, -3.0, math.log10,
            "log10(delivery_rate in Mbit/s)"),
    Feature("log_max_bandwidth", ("max_bandwidth_mbps",), -3.0, 4.0, -3.0, math.log10,
            "log10(max_bandwidth in Mbit/s)"),
    Feature("log_cwnd_gain", GAIN_COLUMNS[:1], -4.0, 4.0, 0.0, math.log2, "log2 of the cwnd_gain chosen last"),
    Feature("log_pacing_gain", GAIN_COLUMNS[1:], -4.0, 4.0, 0.0, math.log2, "log2 of the pacing_gain chosen last"),
    Feature("is_startup", ("mode",), 0.0, 1.0, 0.0, lambda mode: float(mode == 0), "1 in Startup, else 0"),
    Feature("is_probe_bw", ("mode",), 0.0, 1.0, 0.0, lambda mode: float(mode == 2),
            "1 in ProbeBW, where the agent's gains are in force, else 0"),
    Feature("is_probe_rtt", ("mode",), 0.0, 1.0, 0.0, lambda mode: float(mode == 3), "1 in ProbeRTT, else 0"),
)  # fmt: skip
FEATURES: Final[dict[str, Feature]] = {feature.name: feature for feature in _ALL}
"""Every feature by name."""

DEFAULT_FEATURES: Final[tuple[str, ...]] = (
    "delivery_rate_ratio",
    "send_rate_ratio",
    "log_rtt_ratio",
    "log_rtt_last_ratio",
    "in_flight_ratio",
    "cwnd_ratio",
    "loss_rate",
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

    def observer(self, scenario: Scenario, flow: int) -> Observer:
        """Begin to observe one flow of an episode."""
        return Observer(self, scenario, flow)


class Observer:
    """Observes one flow for one episode; it remembers the history.

    Args:
        observation: what to observe.
        scenario: of the episode.
        flow: index of the flow.
    """

    def __init__(self, observation: Observation, scenario: Scenario, flow: int) -> None:
        self._flow = flow
        features = [FEATURES[name] for name in observation.features]
        self._plan: list[tuple[Formula, tuple[int, ...], float, float, float]] = [
            (f.formula, tuple(map(_COLUMNS.index, f.columns)), f.low, f.high, f.neutral) for f in features
        ]
        self._neutral = [f.neutral for f in features]
        self._history = self._neutral * observation.history
        algorithm = scenario.flows[flow].algorithm
        chosen: dict[str, Any] = {**registry.defaults(algorithm), **scenario.flows[flow].parameters}
        self.first_gains: tuple[float, float] = chosen.get("cwnd_gain", math.nan), chosen.get("pacing_gain", math.nan)
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
        values = [*rows.flows[self._flow].tolist(), *gains]
        if values[_IS_ACTIVE] or values[_SENT] or values[_DELIVERED]:
            step = [_evaluate(values, *plan) for plan in self._plan]
        else:
            step = self._neutral
        self._history = self._history[len(step) :] + step
        return np.array(self._history, dtype=np.float32)


_COLUMNS: Final = (*FLOW_COLUMNS, *GAIN_COLUMNS)
_IS_ACTIVE, _SENT, _DELIVERED = map(FLOW_COLUMNS.index, ("is_active", "sent_packets", "delivered_packets"))


def _evaluate(
    values: list[float], formula: Formula, columns: tuple[int, ...], low: float, high: float, neutral: float
) -> float:
    try:
        value = formula(*[values[i] for i in columns])
    except (ZeroDivisionError, ValueError):  # ValueError: the logarithm of nothing
        return neutral
    if value != value:  # NaN; math.isnan costs a call
        return neutral
    return low if value < low else high if value > high else value
