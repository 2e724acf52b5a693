"""What an agent observes: named features of its own flow's row, bounded and always finite."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from bbrgym import _controllers
from bbrgym._native import took_part
from bbrgym.baselines import registry
from bbrgym.checks import check_name, explains_fields, keep_integers
from bbrgym.envs.columns import FLOW_COLUMNS
from bbrgym.envs.scenario import Scenario

Array = npt.NDArray[np.float64]

GAIN_COLUMNS: Final = ("steered_cwnd_gain", "steered_pacing_gain")
"""Columns beside the engine's `FLOW_COLUMNS`: the gains that the agent chose last."""

PREFERENCE: Final = "preference"
"""Another one: the parameter of the flow, in [0, 1], that says what the agent should prefer; NaN without it."""


@dataclass(frozen=True)
class Feature:
    """One number of an observation; baselines/cc/policy/features.cc has them all, with their formulas.

    Args:
        name: its name in a configuration.
        columns: the columns that it is computed from (`FLOW_COLUMNS`, `GAIN_COLUMNS` or `PREFERENCE`), all of which a
            sender knows about its own flow.
        low: smallest value; smaller ones are clipped.
        high: largest value; larger ones are clipped.
        neutral: its value while the flow is inactive, or where the formula has none: a column is NaN, a division by
            zero, the logarithm of 0.
        code: its formula in C99, before clipping: parameters, one per column, and body.
        meaning: one line about it.
    """

    name: str
    columns: tuple[str, ...]
    low: float
    high: float
    neutral: float
    code: str
    meaning: str


FEATURES: Final[dict[str, Feature]] = {
    name: Feature(name=name, columns=tuple(columns), low=low, high=high, neutral=neutral, code=code, meaning=meaning)
    for name, columns, low, high, neutral, code, meaning in _controllers.policy_features()
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


@explains_fields
@dataclass(frozen=True)
class Observation:
    """Which features an agent observes, and of how many steps.

    Args:
        features: names of `FEATURES`.
        history: how many steps are stacked, the latest last. Steps before the first are neutral.

    Raises:
        ValueError: an unknown feature, none at all, one twice, or a history that is not in [1, 1000].
    """

    features: tuple[str, ...] = DEFAULT_FEATURES
    history: int = 1

    def __post_init__(self) -> None:
        if isinstance(self.features, str) or not isinstance(self.features, Iterable):
            raise ValueError(f"observation.features must be a list of names, got {self.features!r}")
        object.__setattr__(self, "features", tuple(self.features))
        check_features("feature", self.features, FEATURES)
        keep_integers(self, "history", prefix="observation.", at_least=1, at_most=1000)

    @cached_property
    def space(self) -> spaces.Box[np.float32]:
        """Return a Box of shape (history x number of features,), float32, with the features' bounds."""
        low, high = np.array([(FEATURES[name].low, FEATURES[name].high) for name in self.features]).T
        return spaces.Box(np.tile(low, self.history).astype(np.float32), np.tile(high, self.history).astype(np.float32))

    @property
    def neutral(self) -> npt.NDArray[np.float32]:
        """Return the observation of a flow that has not started: every feature at its neutral value."""
        return np.array([FEATURES[name].neutral for name in self.features] * self.history, dtype=np.float32)

    def evaluate(self, table: Array) -> npt.NDArray[np.float32]:
        """Return the features of M flows in one step.

        A flow that took no part in the step (it has not started, or has ended) has neutral features.

        Args:
            table: of the flows, see `tabulate`.

        Returns:
            Shape (M, number of features), within the features' bounds.
        """
        return self.table.evaluate(table)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Observation, (self.features, self.history))  # without the table, which does not pickle

    @cached_property
    def table(self) -> _controllers.PolicyTable:
        """Computes the features in C++, of the columns that `tabulate` has."""
        return _controllers.PolicyTable(self.features, (*_COLUMNS, "took_part"))


def check_features(what: str, names: Sequence[str], known: Iterable[str]) -> None:
    """Check that `names` has at least one name, each of them known, and none twice.

    Raises:
        ValueError: naming the bad one and the good ones.
    """
    for name in names:
        check_name(what, name, known)
    if not names or len(set(names)) < len(names):
        raise ValueError(f"features must have at least one name and none twice, got {list(names)}")


def standardisation(observations: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return what standardises observations, `(x - mean) * scale`: mean and 1 / standard deviation of each number.

    One whose standard deviation is below 0.01 is only centred, so as not to amplify noise.

    Args:
        observations: shape (n, length of an observation).
    """
    mean = observations.mean(axis=0, dtype=np.float64).astype(np.float32)
    deviation = observations.std(axis=0, dtype=np.float64)
    return mean, np.where(deviation < 0.01, 1.0, 1.0 / np.maximum(deviation, 0.01)).astype(np.float32)


def tabulate(rows: Array, gains: Array, preferences: Array | float = math.nan) -> Array:
    """Return what observations are computed from, column by column.

    Args:
        rows: shape (M, `FLOW_COLUMNS`), one row per flow.
        gains: shape (2, M), the cwnd_gain and the pacing_gain chosen last.
        preferences: shape (M,), or of all flows.

    Returns:
        Shape (`FLOW_COLUMNS`, `GAIN_COLUMNS`, `PREFERENCE`, and whether the flow took part in the step, M).
    """
    table = np.empty((len(_COLUMNS) + 1, len(rows)))
    table[: len(FLOW_COLUMNS)] = rows.T
    table[len(FLOW_COLUMNS) : _PREFERENCE] = gains
    table[_PREFERENCE] = preferences
    table[-1] = took_part(rows)
    return table


class History:
    """The last steps of M flows."""

    def __init__(self, observation: Observation, flows: int) -> None:
        self.observation = observation
        self._features = len(observation.features)
        self._neutral = observation.neutral
        self._steps = np.tile(self._neutral, (flows, 1))

    def add(
        self, features: npt.NDArray[np.float32], flows: slice | npt.NDArray[np.intp] = slice(None)
    ) -> npt.NDArray[np.float32]:
        """Add a step of these flows and return their observations.

        Args:
            features: shape (flows, number of features), of `Observation.evaluate`.
            flows: which.

        Returns:
            A new array of shape (flows, history x number of features).
        """
        if self._steps.shape[1] == self._features:
            return features
        observations = np.concatenate([self._steps[flows, self._features :], features], axis=1)
        self._steps[flows] = observations
        return observations


def first_gains(scenario: Scenario, flow: int) -> tuple[float, float]:
    """Return the cwnd_gain and pacing_gain of a flow before its first action: its parameters, or NaN without them."""
    return _parameter(scenario, flow, "cwnd_gain"), _parameter(scenario, flow, "pacing_gain")


def preference(scenario: Scenario, flow: int) -> float:
    """Return what a flow prefers: its parameter, or NaN without it."""
    return _parameter(scenario, flow, PREFERENCE)


def _parameter(scenario: Scenario, flow: int, name: str) -> float:
    chosen = scenario.flows[flow]
    return chosen.parameters.get(name, registry.defaults(chosen.algorithm).get(name, math.nan))


_COLUMNS: Final = (*FLOW_COLUMNS, *GAIN_COLUMNS, PREFERENCE)
_PREFERENCE: Final = _COLUMNS.index(PREFERENCE)
