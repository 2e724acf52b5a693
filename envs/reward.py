"""What an agent is rewarded for: named terms of a step, each bounded, with weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.engine import Rows
from bbrgym.envs.scenario import HEADER_BYTES, Scenario

Formula = Callable[[Rows], float]


@dataclass(frozen=True)
class Term:
    """One term of a reward. More is better: a cost is negative.

    Args:
        low: smallest value; a smaller one is clipped.
        high: largest value; a larger one is clipped.
        begin: from the scenario of an episode and a flow of it to the term's formula, which takes the rows of a step
            in which the flow took part; where it is NaN, the term is 0.
    """

    low: float
    high: float
    begin: Callable[[Scenario, int], Formula]


def throughput(scenario: Scenario, flow: int) -> Formula:
    """The flow's share of the link, `delivery_rate / capacity`, in [0, 1]; capacity is the link's rate in payload."""
    payload = _payload(scenario)
    return lambda rows: float(rows.flows[flow, _DELIVERY_RATE]) / (float(rows.link[_RATE]) * payload)


def log_throughput(scenario: Scenario, flow: int) -> Formula:
    """Proportional fairness up to the fair share, `ln(delivery_rate / fair_share)`, in [ln 0.05, 0].

    The fair share is the link's rate in payload over the number of flows that took part in the step, so the agent is
    judged with knowledge that no sender has; it trains with it and runs without. The sum of `ln x` is the alpha-fair
    utility with alpha = 1 (Kelly 1997; Mo and Walrand 2000). It ends at the fair share because every flow minds its
    own reward only: with nothing to gain above its share, no flow has a reason to take another's, and the point where
    all have theirs is the best for each of them too.
    """
    payload = _payload(scenario)

    def formula(rows: Rows) -> float:
        fair_share = float(rows.link[_RATE]) * payload / max(1, int(_took_part(rows).sum()))
        share = float(rows.flows[flow, _DELIVERY_RATE]) / fair_share
        return math.log(share) if share > 0 else -math.inf

    return formula


def delay(scenario: Scenario, flow: int) -> Formula:
    """Minus the flow's queueing delay in RTTs, `-(rtt_mean - base_rtt) / longest_base_rtt`, in [-4, 0].

    `longest_base_rtt` is that of the scenario's flows, so that a millisecond of queue costs all of them the same. In a
    step without RTT samples it is 0.
    """
    base_rtt_ms = scenario.flows[flow].rtt_ms
    longest_rtt_ms = max(other.rtt_ms for other in scenario.flows)
    return lambda rows: (base_rtt_ms - float(rows.flows[flow, _RTT_MEAN])) / longest_rtt_ms


def loss(scenario: Scenario, flow: int) -> Formula:
    """Minus the flow's loss rate, `-lost_packets / sent_packets`, in [-1, 0]."""
    return lambda rows: -float(rows.flows[flow, _LOST]) / max(1.0, float(rows.flows[flow, _SENT]))


def fairness(scenario: Scenario, flow: int) -> Formula:
    """Jain's index of the delivery rates of the flows that took part in the step, in [0, 1]: link-wide, for a team."""

    def formula(rows: Rows) -> float:
        rates = rows.flows[_took_part(rows), _DELIVERY_RATE]
        total, squares = float(rates.sum()), float((rates * rates).sum())
        return total * total / (rates.size * squares) if squares > 0 else 0.0

    return formula


def utilisation(scenario: Scenario, flow: int) -> Formula:
    """Share of the link's capacity that was used in the step, in [0, 1]: link-wide, for a team."""
    return lambda rows: float(rows.link[_UTILISATION])


TERMS: Final[dict[str, Term]] = {
    "throughput": Term(0.0, 1.0, throughput),
    "log_throughput": Term(math.log(0.05), 0.0, log_throughput),
    "delay": Term(-4.0, 0.0, delay),
    "loss": Term(-1.0, 0.0, loss),
    "fairness": Term(0.0, 1.0, fairness),
    "utilisation": Term(0.0, 1.0, utilisation),
}
"""Every term by name; the functions of the same names have the formulas."""

DEFAULT_TERMS: Final[Mapping[str, float]] = MappingProxyType({"log_throughput": 1.0, "delay": 1.0, "loss": 1.0})


@dataclass(frozen=True)
class Reward:
    """The weighted sum of terms, 0 in steps in which the flow takes no part.

    The default is

        ln(min(1, delivery_rate / fair_share)) - (rtt_mean - base_rtt) / longest_base_rtt - lost / sent

    whose best value, 0, is a full link, shared equally, without queue and without loss. With these weights a queue of
    a fifth of an RTT costs as much as a tenth of the fair share, and so does one lost packet in ten.

    Args:
        terms: weights, at least 0, by the name of the term (`TERMS`).

    Raises:
        ValueError: an unknown term, a weight that is negative or not a number, or no term at all.
    """

    terms: Mapping[str, float] = field(default_factory=lambda: DEFAULT_TERMS)

    def __post_init__(self) -> None:
        for name, weight in self.terms.items():
            if name not in TERMS:
                raise ValueError(f"no reward term {name!r}; known: {', '.join(TERMS)}")
            if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < math.inf:
                raise ValueError(
                    f"terms.{name}={weight!r} is not possible: a weight must be a number of at least 0 (a term that is "
                    "a cost is negative itself)"
                )
        terms = {name: float(weight) for name, weight in self.terms.items()}
        if not any(terms.values()):
            raise ValueError(
                f"terms={terms} is not possible: at least one weight must be above 0; known: {', '.join(TERMS)}"
            )
        object.__setattr__(self, "terms", MappingProxyType(terms))

    def rewarder(self, scenario: Scenario, flow: int) -> Rewarder:
        """Begin to reward one flow of an episode."""
        return Rewarder(self, scenario, flow)

    def __hash__(self) -> int:
        return hash(tuple(self.terms.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        return (Reward, (dict(self.terms),))  # a mapping proxy does not pickle


class Rewarder:
    """Rewards one flow for one episode.

    Args:
        reward: the terms and weights.
        scenario: of the episode.
        flow: index of the flow.
    """

    def __init__(self, reward: Reward, scenario: Scenario, flow: int) -> None:
        self._flow = flow
        terms = [(weight, TERMS[name]) for name, weight in reward.terms.items() if weight]
        self._terms = [(weight, term.low, term.high, term.begin(scenario, flow)) for weight, term in terms]

    def reward(self, rows: Rows) -> float:
        """The reward of a step; finite, and 0 if the flow took no part in it."""
        row = rows.flows[self._flow]
        if not (row[_IS_ACTIVE] or row[_SENT] or row[_DELIVERED]):
            return 0.0
        total = 0.0
        for weight, low, high, formula in self._terms:
            value = formula(rows)
            if value == value:  # not NaN
                total += weight * min(max(value, low), high)
        return total


DEFAULT_REWARD: Final = Reward()


def default_reward(scenario: Scenario) -> Callable[[Rows], float]:
    """The default reward of a whole step: the mean over the agent flows, or over all if none is an agent's."""
    flows = scenario.agent_flows or range(len(scenario.flows))
    rewarders = [DEFAULT_REWARD.rewarder(scenario, flow) for flow in flows]
    return lambda rows: sum(rewarder.reward(rows) for rewarder in rewarders) / len(rewarders)


_IS_ACTIVE, _SENT, _DELIVERED, _LOST, _DELIVERY_RATE, _RTT_MEAN = map(
    FLOW_COLUMNS.index,
    ("is_active", "sent_packets", "delivered_packets", "lost_packets", "delivery_rate_mbps", "rtt_mean_ms"),
)
_RATE, _UTILISATION = map(LINK_COLUMNS.index, ("rate_mbps", "utilisation"))


def _payload(scenario: Scenario) -> float:
    return scenario.packet_bytes / (scenario.packet_bytes + HEADER_BYTES)


def _took_part(rows: Rows) -> npt.NDArray[np.bool_]:
    # Not is_active alone: a flow that ended within the step still had its part of it.
    flows = rows.flows
    return (flows[:, _IS_ACTIVE] + flows[:, _SENT] + flows[:, _DELIVERED]) > 0
