"""What a critic may see in training beside its actor's observation: facts about the link that no sender knows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.observation import check_features
from bbrgym.envs.reward import RewardContext, throughput

Array = npt.NDArray[np.float64]

_RATE, _QUEUE, _UTILISATION = map(LINK_COLUMNS.index, ("rate_mbps", "queue_mean_ms", "utilisation"))
_IS_ACTIVE: Final = FLOW_COLUMNS.index("is_active")


@dataclass(frozen=True)
class PrivilegedFeature:
    """One number that a critic sees of a flow's step.

    Args:
        low: smallest value; smaller ones are clipped, and NaN becomes this.
        high: largest value; larger ones are clipped.
        formula: from a step to the feature of each flow, shape (M,).
        meaning: one line about it.
    """

    low: float
    high: float
    formula: Callable[[RewardContext], Array]
    meaning: str


def _flows(context: RewardContext) -> Array:
    return context.of_flows(context.count)


PRIVILEGED: Final[dict[str, PrivilegedFeature]] = {
    "log_link_rate": PrivilegedFeature(-3.0, 4.0, lambda context: np.log10(context.link(_RATE)),
        "log10(the link's rate in Mbit/s)"),
    "log_flows": PrivilegedFeature(0.0, 10.0, lambda context: np.log2(_flows(context)),
        "log2(number of flows that took part in the step)"),
    "log_share": PrivilegedFeature(-5.0, 5.0, lambda context: np.log2(throughput(context) * _flows(context)),
        "log2(delivery_rate / fair share of the link)"),
    "link_queue": PrivilegedFeature(0.0, 10.0,
        lambda context: context.link(_QUEUE) / context.conditions.longest_rtt_ms,
        "mean queueing delay in RTTs of the flow with the longest"),
    "utilisation": PrivilegedFeature(0.0, 1.0, lambda context: context.link(_UTILISATION),
        "share of the step in which the link was sending"),
    "log_base_rtt": PrivilegedFeature(-1.0, 4.0, lambda context: np.log10(context.conditions.rtt_ms),
        "log10(the flow's RTT in ms without a queue)"),
    "log_longest_rtt": PrivilegedFeature(-1.0, 4.0, lambda context: np.log10(context.conditions.longest_rtt_ms),
        "log10(the longest of the flows' RTTs in ms without a queue)"),
    "is_active": PrivilegedFeature(0.0, 1.0, lambda context: context.flow(_IS_ACTIVE),
        "share of the step between the flow's start and its end"),
}  # fmt: skip
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
        low, high = self._bounds.T.astype(np.float32)
        return spaces.Box(np.concatenate([observation.low, low]), np.concatenate([observation.high, high]))

    def evaluate(self, context: RewardContext) -> npt.NDArray[np.float32]:
        """Return the features of M flows in one step, shape (M, number of features), within their bounds."""
        with np.errstate(all="ignore"):
            values = np.array([PRIVILEGED[name].formula(context) for name in self.features])
        low, high = self._bounds.T[:, :, np.newaxis]
        clipped: Array = np.where(np.isnan(values), low, values).clip(low, high)
        return clipped.T.astype(np.float32)

    @cached_property
    def _bounds(self) -> Array:
        return np.array([(PRIVILEGED[name].low, PRIVILEGED[name].high) for name in self.features])
