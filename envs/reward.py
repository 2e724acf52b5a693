"""What an agent is rewarded for: named terms of a step, each bounded, with weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.engine import Rows
from bbrgym.envs.observation import ONE, TOOK_PART, tabulate, took_part
from bbrgym.envs.scenario import HEADER_BYTES, Scenario

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Conditions:
    """What of their scenarios rewards depend on, for M flows.

    Attributes:
        payload: share of the link's bytes that is payload, shape (M,).
        rtt_ms: the flow's base RTT, shape (M,).
        longest_rtt_ms: the longest base RTT on its link, shape (M,).
    """

    payload: Array
    rtt_ms: Array
    longest_rtt_ms: Array

    @classmethod
    def of(cls, scenario: Scenario, flows: tuple[int, ...]) -> Conditions:
        """Of these flows of a scenario."""
        return cls(
            np.full(len(flows), scenario.packet_bytes / (scenario.packet_bytes + HEADER_BYTES)),
            np.array([scenario.flows[flow].rtt_ms for flow in flows], dtype=np.float64),
            np.full(len(flows), max(flow.rtt_ms for flow in scenario.flows), dtype=np.float64),
        )

    def set(self, flows: slice, others: Conditions) -> None:
        """Put others in the place of these flows'."""
        self.payload[flows] = others.payload
        self.rtt_ms[flows] = others.rtt_ms
        self.longest_rtt_ms[flows] = others.longest_rtt_ms


class Step:
    """A step of M flows on N links, M / N on each, as rewards see it: also what no sender knows.

    Args:
        table: of the flows, see `bbrgym.envs.observation.tabulate`; a link's flows lie together.
        flows: shape (N, F, `FLOW_COLUMNS`): all flows of the links, NaN where one has fewer than F.
        link: shape (N, `LINK_COLUMNS`).
        conditions: of the flows.
    """

    def __init__(self, table: Array, flows: Array, link: Array, conditions: Conditions) -> None:
        self.conditions = conditions
        self._table = table
        self._flows = flows
        self._link = link
        self._took_part: Array | None = None
        self._count: Array | None = None

    def flow(self, column: int) -> Array:
        """A column of the flows, shape (M,)."""
        values: Array = self._table[column]
        return values

    def link(self, column: int) -> Array:
        """A column of the links, for each flow, shape (M,)."""
        return self.of_flows(self._link[:, column])

    @property
    def link_rate(self) -> Array:
        """The links' rates in payload, in Mbit/s, shape (N,)."""
        per_link = len(self.conditions.payload) // len(self._link)
        rate: Array = self._link[:, _RATE] * self.conditions.payload[::per_link]
        return rate

    def all_flows(self, column: int) -> Array:
        """A column of all flows of each link, shape (N, F)."""
        values: Array = self._flows[:, :, column]
        return values

    @property
    def took_part(self) -> Array:
        """Which of all flows took part in the step, 1 or 0, shape (N, F)."""
        if self._took_part is None:
            links, flows, _ = self._flows.shape
            if self._table.shape[1] == links * flows:  # they are the flows of the table
                self._took_part = self._table[TOOK_PART].reshape(links, flows)
            else:
                columns = map(self.all_flows, (_IS_ACTIVE, _SENT, _DELIVERED))
                self._took_part = took_part(*columns).astype(np.float64)
        return self._took_part

    @property
    def count(self) -> Array:
        """How many flows of each link took part in the step, at least 1, shape (N,)."""
        if self._count is None:
            self._count = np.maximum(self.sum(self.took_part), ONE)
        return self._count

    @staticmethod
    def sum(of_all_flows: Array) -> Array:
        """Over the flows of each link, from shape (N, F) to (N,).

        One after the other: a sum by NumPy's order would depend on how many flows other links have.
        """
        if of_all_flows.shape[1] == 1:
            return of_all_flows[:, 0]
        total: Array = np.add.accumulate(of_all_flows, axis=1)[:, -1]
        return total

    def of_flows(self, of_links: Array) -> Array:
        """Values of the links, shape (N,), for each flow, shape (M,)."""
        times = self._table.shape[1] // len(of_links)
        return of_links if times == 1 else np.repeat(of_links, times)


_SMALLEST_SHARE: Final = np.array(0.05)
"""Of a fair share: below it a flow is as badly off as at it, where logarithms would say -infinity."""


def throughput(step: Step) -> Array:
    """The flow's share of the link, `delivery_rate / capacity`, in [0, 1]; capacity is the link's rate in payload."""
    return step.flow(_DELIVERY_RATE) / (step.link(_RATE) * step.conditions.payload)


def log_throughput(step: Step) -> Array:
    """Proportional fairness up to the fair share, `ln(delivery_rate / fair_share)`, in [ln 0.05, 0].

    The fair share is the link's rate in payload over the number of flows that took part in the step, so the agent is
    judged with knowledge that no sender has; it trains with it and runs without. The sum of `ln x` is the alpha-fair
    utility with alpha = 1 (Kelly 1997; Mo and Walrand 2000). It ends at the fair share because every flow minds its
    own reward only: with nothing to gain above its share, no flow has a reason to take another's, and the point where
    all have theirs is the best for each of them too.
    """
    flows = step.of_flows(step.count)
    return np.log(throughput(step) * flows)


def alpha_fair(step: Step) -> Array:
    """Proportional fairness of the whole link: the mean of `ln(delivery_rate / fair_share)` over its flows.

    Over those that took part in the step, those included that no agent drives; each at least ln 0.05. This is the
    alpha-fair utility with alpha = 1 (Kelly 1997; Mo and Walrand 2000) less its value at the equal shares of a full
    link, so that it is at most 0 there and nowhere else (Jensen). Unlike `log_throughput` it pays a flow for leaving
    others their share, and for using what they cannot.
    """
    shares = step.all_flows(_DELIVERY_RATE) * (step.count / step.link_rate)[:, np.newaxis]
    utilities = np.log(np.fmax(shares, _SMALLEST_SHARE))  # fmax: a flow that is not there is NaN
    utilities *= step.took_part
    return step.of_flows(step.sum(utilities) / step.count)


def delay(step: Step) -> Array:
    """Minus the flow's queueing delay in RTTs, `-(rtt_mean - base_rtt) / longest_base_rtt`, in [-4, 0].

    `longest_base_rtt` is that of the scenario's flows, so that a millisecond of queue costs all of them the same. In a
    step without RTT samples it is 0.
    """
    return (step.conditions.rtt_ms - step.flow(_RTT_MEAN)) / step.conditions.longest_rtt_ms


def loss(step: Step) -> Array:
    """Minus the flow's loss rate, `-lost_packets / sent_packets`, in [-1, 0]."""
    rate: Array = step.flow(_LOST) / np.maximum(step.flow(_SENT), ONE)
    return -rate


def fairness(step: Step) -> Array:
    """Jain's index of the delivery rates of the flows that took part in the step, in [0, 1]: link-wide, for a team."""
    rates = np.where(step.took_part, step.all_flows(_DELIVERY_RATE), 0.0)
    total, squares = step.sum(rates), step.sum(rates * rates)
    return step.of_flows(np.where(squares > 0, total * total / (step.count * squares), 0.0))


def utilisation(step: Step) -> Array:
    """Share of the link's capacity that was used in the step, in [0, 1]: link-wide, for a team."""
    return step.link(_UTILISATION)


@dataclass(frozen=True)
class Term:
    """One term of a reward. More is better: a cost is negative.

    Args:
        low: smallest value; a smaller one is clipped.
        high: largest value; a larger one is clipped.
        formula: from a step to the term of each flow, shape (M,); where it is NaN, the term is 0.
    """

    low: float
    high: float
    formula: Callable[[Step], Array]


TERMS: Final[dict[str, Term]] = {
    "throughput": Term(0.0, 1.0, throughput),
    "log_throughput": Term(math.log(_SMALLEST_SHARE), 0.0, log_throughput),
    "alpha_fair": Term(math.log(_SMALLEST_SHARE), 0.0, alpha_fair),
    "delay": Term(-4.0, 0.0, delay),
    "loss": Term(-1.0, 0.0, loss),
    "fairness": Term(0.0, 1.0, fairness),
    "utilisation": Term(0.0, 1.0, utilisation),
}
"""Every term by name; the functions of the same names have the formulas."""

DEFAULT_TERMS: Final[Mapping[str, float]] = MappingProxyType({"alpha_fair": 1.0, "delay": 0.5, "loss": 1.0})


@dataclass(frozen=True)
class Reward:
    """The weighted sum of terms, 0 in steps in which the flow takes no part.

    The default is

        mean(ln(rate / fair_share)) - 0.5 * (rtt_mean - base_rtt) / longest_base_rtt - lost / sent

    with the mean over all flows of the link. Its best value, 0, is a full link, shared equally, without queue and
    without loss. With these weights a queue of a fifth of an RTT costs as much as a tenth of the throughput, and so
    does one lost packet in ten.

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

    @np.errstate(all="ignore")
    def evaluate(self, step: Step) -> Array:
        """The rewards of M flows in one step, shape (M,): finite, and 0 for a flow that took no part in it."""
        values = np.empty((len(self._formulas), len(step.conditions.rtt_ms)))
        for row, formula in enumerate(self._formulas):
            values[row] = formula(step)
        is_nan = np.isnan(values)
        np.maximum(values, self._low, out=values)
        np.minimum(values, self._high, out=values)
        values *= self._weights
        if np.count_nonzero(is_nan):
            np.copyto(values, 0.0, where=is_nan)
        # NumPy adds up to seven in their order, so that a reward is the same to the last bit for any number of flows.
        total: Array = np.add.reduce(values)
        if np.count_nonzero(step.flow(TOOK_PART)) < len(total):
            total[step.flow(TOOK_PART) == 0] = 0.0
        return total

    def rewarder(self, scenario: Scenario, flow: int) -> Rewarder:
        """Begin to reward one flow of an episode."""
        return Rewarder(self, scenario, flow)

    @cached_property
    def _formulas(self) -> list[Callable[[Step], Array]]:
        return [TERMS[name].formula for name, weight in self.terms.items() if weight]

    @cached_property
    def _weights(self) -> Array:
        return np.array([[weight] for weight in self.terms.values() if weight])

    @cached_property
    def _low(self) -> Array:
        return np.array([[TERMS[name].low] for name, weight in self.terms.items() if weight])

    @cached_property
    def _high(self) -> Array:
        return np.array([[TERMS[name].high] for name, weight in self.terms.items() if weight])

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
        self._reward = reward
        self._flow = flow
        self._course = Conditions.of(scenario, (flow,))

    def reward(self, rows: Rows) -> float:
        """The reward of a step; finite, and 0 if the flow took no part in it."""
        table = tabulate(rows.flows[self._flow, np.newaxis], _NO_GAINS)
        step = Step(table, rows.flows[np.newaxis], rows.link[np.newaxis], self._course)
        return float(self._reward.evaluate(step)[0])


DEFAULT_REWARD: Final = Reward()


def default_reward(scenario: Scenario) -> Callable[[Rows], float]:
    """The default reward of a whole step: the mean over the agent flows, or over all if none is an agent's."""
    flows = scenario.agent_flows or range(len(scenario.flows))
    rewarders = [DEFAULT_REWARD.rewarder(scenario, flow) for flow in flows]
    return lambda rows: sum(rewarder.reward(rows) for rewarder in rewarders) / len(rewarders)


_NO_GAINS: Final = np.full((2, 1), math.nan)  # no term asks for them
_IS_ACTIVE, _SENT, _DELIVERED, _LOST, _DELIVERY_RATE, _RTT_MEAN = map(
    FLOW_COLUMNS.index,
    ("is_active", "sent_packets", "delivered_packets", "lost_packets", "delivery_rate_mbps", "rtt_mean_ms"),
)
_RATE, _UTILISATION = map(LINK_COLUMNS.index, ("rate_mbps", "utilisation"))
