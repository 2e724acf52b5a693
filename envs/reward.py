"""Rewards of agents: named terms of a step, each bounded, with weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from bbrgym import _controllers, _native
from bbrgym.baselines import registry
from bbrgym.checks import check_name, check_number, explains_fields
from bbrgym.envs.engine import Rows
from bbrgym.envs.observation import PREFERENCE, preference
from bbrgym.envs.scenario import HEADER_BYTES, Scenario

Array = npt.NDArray[np.float64]

CONDITIONS: Final = ("payload", "rtt_ms", "longest_rtt_ms", "delay_weight")
"""What rewards need to know of the scenario of a flow: share of the link's bytes that is payload; the flow's base RTT;
the longest base RTT on its link; and the weight of `delay` by the flow's preference p, 9^(1/2 - 2 p): 3 at 0, 1 at
0.25, the default, and 0.04 at 1."""


def conditions_of(scenario: Scenario, flows: Sequence[int]) -> Array:
    """Return the conditions of these flows of a scenario, shape (flows, `CONDITIONS`)."""
    # A flow without the parameter counts as an agent with its default.
    default = registry.defaults("agent")[PREFERENCE]
    preferences = np.nan_to_num([preference(scenario, flow) for flow in flows], nan=default)
    conditions = np.empty((len(flows), len(CONDITIONS)))
    conditions[:, 0] = scenario.packet_bytes / (scenario.packet_bytes + HEADER_BYTES)
    conditions[:, 1] = [scenario.flows[flow].rtt_ms for flow in flows]
    conditions[:, 2] = max(flow.rtt_ms for flow in scenario.flows)
    conditions[:, 3] = [_controllers.pow(9.0, 0.5 - 2.0 * one) for one in preferences]
    return conditions


def fair_share_mbps(scenario: Scenario, rows: Rows) -> float:
    """Return the link's rate in payload over the flows that took part in a step, in Mbit/s, as rewards take it."""
    payload = scenario.packet_bytes / (scenario.packet_bytes + HEADER_BYTES)
    count = int(np.count_nonzero(_native.took_part(rows.flows)))
    return rows.link_row()["rate_mbps"] * payload / max(count, 1)


class RewardContext(NamedTuple):
    """One step of M flows on N links, M / N on each: all that rewards depend on, more than a sender knows.

    Attributes:
        rows: shape (N, F, `FLOW_COLUMNS`): all flows of the links; NaN where a link has fewer than F.
        link: shape (N, `LINK_COLUMNS`).
        flows: which of a link's flows each of the M is, shape (M,), int64; those of a link are adjacent.
        conditions: of the M flows, shape (M, `CONDITIONS`).
    """

    rows: Array
    link: Array
    flows: npt.NDArray[np.int64]
    conditions: Array


@dataclass(frozen=True)
class Term:
    """One term of a reward; envs/model/reward.cc has them all, with their formulas. More is better: a cost is negative.

    Args:
        low: smallest value; a smaller one is clipped.
        high: largest value; a larger one is clipped.
        meaning: one line about it. Where its formula gives NaN, the term is 0.
    """

    low: float
    high: float
    meaning: str


TERMS: Final[dict[str, Term]] = {name: Term(*entry) for name, entry in _native.reward_terms().items()}
"""Every term by name."""

DEFAULT_TERMS: Final[Mapping[str, float]] = MappingProxyType({"alpha_fair": 1.0, "delay": 0.5, "loss": 1.0})


@explains_fields
@dataclass(frozen=True)
class Reward:
    """The weighted sum of terms; 0 in steps in which the flow takes no part.

    The default is

        mean(ln(rate / fair_share)) - 0.5 * (rtt_mean - base_rtt) / longest_base_rtt - lost / sent

    with the mean over all flows of the link, and delay and losses of the flow itself. Its maximum, 0, is a full link
    that is shared equally, without queue and loss. With these weights a queue of a fifth of an RTT costs as much as a
    tenth of the throughput, and so does one lost packet in ten.

    Args:
        terms: weights, at least 0, by the name of the term (`TERMS`).

    Raises:
        ValueError: an unknown term, a weight that is not a finite number >= 0, or no weight > 0.
    """

    terms: Mapping[str, float] = field(default_factory=lambda: DEFAULT_TERMS)

    def __post_init__(self) -> None:
        if not isinstance(self.terms, Mapping):
            raise ValueError(f"reward.terms must be a mapping of weights by name, got {self.terms!r}")
        for name, weight in self.terms.items():
            check_name("reward term", name, TERMS)
            check_number(f"reward.terms.{name} (a cost is negative by itself)", weight, at_least=0)
        terms = {name: float(weight) for name, weight in self.terms.items()}
        if not any(terms.values()):
            raise ValueError(f"reward.terms must have a weight > 0, got {terms}; known: {', '.join(TERMS)}")
        object.__setattr__(self, "terms", terms)

    def evaluate(self, context: RewardContext) -> Array:
        """Return the rewards of M flows in one step, shape (M,): finite, and 0 for a flow that took no part in it."""
        rewards = np.empty(len(context.flows))
        self.compiled.evaluate(*context, rewards)
        return rewards

    def over_steps(self, scenario: Scenario, flows: Sequence[int], rows: Array, link: Array) -> Array:
        """Return the rewards of some flows of a scenario in each of S steps, as in training.

        Args:
            scenario: what was simulated.
            flows: indices of the flows, rising.
            rows: shape (S, number of the scenario's flows, `FLOW_COLUMNS`), as `Trace.flows`.
            link: shape (S, `LINK_COLUMNS`), as `Trace.link`.

        Returns:
            Shape (S, number of `flows`).
        """
        steps = len(rows)
        context = RewardContext(
            np.ascontiguousarray(rows),
            np.ascontiguousarray(link),
            np.tile(np.array(flows, dtype=np.int64), steps),
            np.tile(conditions_of(scenario, flows), (steps, 1)),
        )
        return self.evaluate(context).reshape(steps, len(flows))

    def mean_over_steps(self, scenario: Scenario, flows: Sequence[int], rows: Array, link: Array) -> Array:
        """Return each flow's mean reward over the steps in which it takes part, by the arguments of `over_steps`.

        Returns:
            Shape (number of `flows`,); NaN for a flow that takes part in none.
        """
        rewards = self.over_steps(scenario, flows, rows, link)
        part = _native.took_part(np.ascontiguousarray(rows))[:, list(flows)]
        count = part.sum(axis=0)
        total = np.where(part, rewards, 0.0).sum(axis=0)
        return np.where(count > 0, total / np.maximum(count, 1), np.nan)

    def __reduce__(self) -> tuple[Any, ...]:
        return Reward, (self.terms,)  # without what is compiled, which does not pickle

    @cached_property
    def compiled(self) -> _native.Reward:
        """The same in C++."""
        return _native.Reward([(name, weight) for name, weight in self.terms.items() if weight])

    def __hash__(self) -> int:
        return hash(tuple(self.terms.items()))
