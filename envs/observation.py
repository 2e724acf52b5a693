"""What an agent sees: named features of its own flow's row, bounded and always finite."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from bbrgym import _controllers
from bbrgym.baselines import registry
from bbrgym.envs.columns import FLOW_COLUMNS
from bbrgym.envs.engine import Rows
from bbrgym.envs.scenario import Scenario

Array = npt.NDArray[np.float64]

# For few flows the time goes into the calls of NumPy; with a number of Python's they take half as long again.
ZERO: Final = np.array(0.0)
ONE: Final = np.array(1.0)

GAIN_COLUMNS: Final = ("steered_cwnd_gain", "steered_pacing_gain")
"""The gains that the agent chose last, beside the engine's `FLOW_COLUMNS`."""


@dataclass(frozen=True)
class Feature:
    """One number of an observation; baselines/cc/policy/features.cc has them all, with their formulas.

    Args:
        name: how a configuration calls it.
        columns: the columns that it is computed from (`FLOW_COLUMNS` or `GAIN_COLUMNS`): nothing but what a sender
            knows about its own flow.
        low: smallest value; a smaller one is clipped.
        high: largest value; a larger one is clipped.
        neutral: its value while the flow is not active, or where the formula has none: a column is NaN, a division
            by zero, a logarithm of nothing.
        meaning: one line about it.
    """

    name: str
    columns: tuple[str, ...]
    low: float
    high: float
    neutral: float
    meaning: str


FEATURES: Final[dict[str, Feature]] = {
    name: Feature(name, tuple(columns), low, high, neutral, meaning)
    for name, columns, low, high, neutral, meaning in _controllers.policy_features()
}
"""Every feature by name."""

DEFAULT_FEATURES: Final[tuple[str, ...]] = (
    "log_delivery_rate_ratio",
    "send_rate_ratio",
    "log_rtt_ratio",
    "log_rtt_last_ratio",
    "log_cwnd_ratio",
    "log_backlog",
    "log_standing_backlog",
    "log_stale_rtt_ratio",
    "log_rate_decline",
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
        ValueError: a feature that does not exist, none or the same twice, or a history below 1.
    """

    features: tuple[str, ...] = DEFAULT_FEATURES
    history: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", tuple(self.features))
        for name in self.features:
            if name not in FEATURES:
                raise ValueError(f"no feature {name!r}; known: {', '.join(FEATURES)}")
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

    def evaluate(self, table: Array) -> npt.NDArray[np.float32]:
        """The features of M flows in one step.

        A flow that took no part in the step (it has not started, or has ended) is observed as neutral.

        Args:
            table: of the flows, see `tabulate`.

        Returns:
            Shape (M, number of features), inside of the features' bounds.
        """
        return self._table.evaluate(table)

    def observer(self, scenario: Scenario, flow: int) -> Observer:
        """Begin to observe one flow of an episode."""
        return Observer(self, scenario, flow)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Observation, (self.features, self.history))  # without what computes them, which does not pickle

    @cached_property
    def _table(self) -> _controllers.PolicyTable:
        return _controllers.PolicyTable(self.features, (*_COLUMNS, "took_part"))


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
TOOK_PART: Final = len(_COLUMNS)
"""The row of `tabulate`'s table that is 1 for flows that took part in the step, else 0."""
_IS_ACTIVE, _SENT, _DELIVERED = map(FLOW_COLUMNS.index, ("is_active", "sent_packets", "delivered_packets"))
