"""What a critic may see in training beside its actor's observation: facts about the link that no sender knows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from bbrgym import _native
from bbrgym.envs.observation import check_features
from bbrgym.envs.reward import RewardContext


@dataclass(frozen=True)
class PrivilegedFeature:
    """One number that a critic sees of a flow's step; envs/model/reward.cc has them all, with their formulas.

    Args:
        low: smallest value; smaller ones are clipped.
        high: largest value; larger ones are clipped.
        meaning: one line about it.
    """

    low: float
    high: float
    meaning: str


PRIVILEGED: Final[dict[str, PrivilegedFeature]] = {
    name: PrivilegedFeature(*entry) for name, entry in _native.privileged_features().items()
}
"""Every privileged feature by name."""


@dataclass(frozen=True)
class Privileged:
    """Which privileged features a critic sees, of the last step.

    Args:
        features: names of `PRIVILEGED`, at least one.

    Raises:
        ValueError: an unknown feature, none at all, or one twice.
    """

    features: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "features", tuple(self.features))
        check_features("critic feature", self.features, PRIVILEGED)

    def space_with(self, observation: spaces.Box[np.float32]) -> spaces.Box[np.float32]:
        """Return the space of observations with these features appended."""
        low, high = np.array([(PRIVILEGED[name].low, PRIVILEGED[name].high) for name in self.features], np.float32).T
        return spaces.Box(np.concatenate([observation.low, low]), np.concatenate([observation.high, high]))

    def evaluate(self, context: RewardContext) -> npt.NDArray[np.float32]:
        """Return the features of M flows in one step, shape (M, number of features), within their bounds."""
        values = np.empty((len(context.flows), len(self.features)), dtype=np.float32)
        self._compiled.evaluate(*context, values)
        return values

    def __reduce__(self) -> tuple[Any, ...]:
        return Privileged, (self.features,)  # without what is compiled, which does not pickle

    @cached_property
    def _compiled(self) -> _native.Privileged:
        return _native.Privileged(self.features)
