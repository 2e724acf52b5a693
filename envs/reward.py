"""Rewards of agents: named terms of a step, each bounded, with weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from bbrgym.baselines import registry
from bbrgym.checks import check_name, check_number
from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.observation import ONE, PREFERENCE, TOOK_PART, preference, tabulate, took_part
from bbrgym.envs.scenario import HEADER_BYTES, Scenario

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Conditions:
    """What rewards need to know of the scenarios of M flows.

    Attributes:
        payload: share of the link's bytes that is payload, shape (M,).
        rtt_ms: the flow's base RTT, shape (M,).
        longest_rtt_ms: the longest base RTT on its link, shape (M,).
        delay_weight: of `delay`, by the flow's preference p: 3^(1 - 2 p), from 3 to 1/3; shape (M,).
    """

    payload: Array
    rtt_ms: Array
    longest_rtt_ms: Array
    delay_weight: Array

    @classmethod
    def of(cls, scenario: Scenario, flows: Sequence[int], steps: int = 1) -> Conditions:
        """Return the conditions of these flows of a scenario, repeated for every step."""
        count = steps * len(flows)
        # A flow without the parameter counts as an agent with its default.
        default = registry.defaults("agent")[PREFERENCE]
        preferences = np.tile(np.nan_to_num([preference(scenario, flow) for flow in flows], nan=default), steps)
        return cls(
            np.full(count, scenario.packet_bytes / (scenario.packet_bytes + HEADER_BYTES)),
            np.tile(np.array([scenario.flows[flow].rtt_ms for flow in flows], dtype=np.float64), steps),
            np.full(count, max(flow.rtt_ms for flow in scenario.flows), dtype=np.float64),
            3.0 ** (1.0 - 2.0 * preferences),
        )

    def set(self, flows: slice, others: Conditions) -> None:
        """Replace the conditions of these flows."""
        for name, values in vars(self).items():
            values[flows] = getattr(others, name)


class Columns(Protocol):
    """A table of M flows of which each column can be taken, shape (M,): an array, or what computes them."""

    def __getitem__(self, column: int, /) -> Array: ...


class RewardContext:
    """One step of M flows on N links, M / N on each: all that rewards depend on, more than a sender knows.

    Args:
        table: columns of the flows, see `bbrgym.envs.observation.tabulate`; the flows of a link are adjacent.
        flows: shape (N, F, `FLOW_COLUMNS`): all flows of the links; NaN where a link has fewer than F.
        link: shape (N, `LINK_COLUMNS`).
        conditions: of the flows.
    """

    def __init__(self, table: Columns, flows: Array, link: Array, conditions: Conditions) -> None:
        self.conditions = conditions
        self._table = table
        self._flows = flows
        self._link = link
        self._took_part: Array | None = None
        self._count: Array | None = None

    def flow(self, column: int) -> Array:
        """Return a column of the flows, shape (M,)."""
        values: Array = self._table[column]
        return values

    def link(self, column: int) -> Array:
        """Return a column of the links for each flow, shape (M,)."""
        return self.of_flows(self._link[:, column])

    @property
    def link_rate(self) -> Array:
        """The links' rates in payload, in Mbit/s, shape (N,)."""
        per_link = len(self.conditions.payload) // len(self._link)
        rate: Array = self._link[:, _RATE] * self.conditions.payload[::per_link]
        return rate

    def all_flows(self, column: int) -> Array:
        """Return a column of all flows of each link, shape (N, F)."""
        values: Array = self._flows[:, :, column]
        return values

    @property
    def took_part(self) -> Array:
        """Which of all flows took part in the step, 1 or 0, shape (N, F)."""
        if self._took_part is None:
            links, flows, _ = self._flows.shape
            if len(self.conditions.rtt_ms) == links * flows:  # they are the M flows
                self._took_part = self.flow(TOOK_PART).reshape(links, flows)
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
        """Return the sum over the flows of each link, from shape (N, F) to (N,).

        It adds one flow after the other. NumPy's own order depends on F, so on the flows of other links.
        """
        if of_all_flows.shape[1] == 1:
            return of_all_flows[:, 0]
        total: Array = np.add.accumulate(of_all_flows, axis=1)[:, -1]
        return total

    def of_flows(self, of_links: Array) -> Array:
        """Return values of the links, shape (N,), for each flow, shape (M,)."""
        times = len(self.conditions.rtt_ms) // len(of_links)
        return of_links if times == 1 else np.repeat(of_links, times)


_SMALLEST_SHARE: Final = np.array(0.05)
"""Fraction of a fair share below which utilities no longer fall; the logarithm of 0 would be -infinity."""


def throughput(context: RewardContext) -> Array:
    """Return the flow's share of the link, `delivery_rate / capacity`, in [0, 1]; capacity is the rate in payload."""
    return context.flow(_DELIVERY_RATE) / (context.link(_RATE) * context.conditions.payload)


def log_throughput(context: RewardContext) -> Array:
    """Return the proportional fairness up to the fair share, `ln(delivery_rate / fair_share)`, in [ln 0.05, 0].

    The fair share is the link's rate in payload over the number of flows that took part in the step. No sender knows
    it; only the reward in training does. The sum of `ln x` is the alpha-fair utility with alpha = 1 (Kelly 1997; Mo
    and Walrand 2000). The term is capped at the fair share because every flow maximises its own reward only: a flow
    gains nothing by taking more than its share, so equal shares are best for each flow too.
    """
    flows = context.of_flows(context.count)
    return np.log(throughput(context) * flows)


def alpha_fair(context: RewardContext) -> Array:
    """Return the proportional fairness of the whole link: the mean of `ln(delivery_rate / fair_share)` of its flows.

    The mean is over the flows that took part in the step, whoever drives them; each counts at least ln 0.05. This is
    the alpha-fair utility with alpha = 1 (Kelly 1997; Mo and Walrand 2000) minus its value for equal shares of a full
    link. So it is 0 there, its maximum, and negative everywhere else (Jensen). Unlike `log_throughput` it rewards a
    flow for leaving others their share, and for using what they cannot.
    """
    shares = context.all_flows(_DELIVERY_RATE) * (context.count / context.link_rate)[:, np.newaxis]
    utilities = np.log(np.fmax(shares, _SMALLEST_SHARE))  # fmax: the row of a missing flow is NaN
    utilities *= context.took_part
    return context.of_flows(context.sum(utilities) / context.count)


def delay(context: RewardContext) -> Array:
    """Return minus the flow's queueing delay in RTTs, `-(rtt_mean - base_rtt) / longest_base_rtt`, in [-4, 0].

    `longest_base_rtt` is the longest of all flows of the scenario, so that a millisecond of queue costs each of them
    the same. The flow's preference multiplies it by `Conditions.delay_weight`. A step without RTT samples has 0.
    """
    conditions = context.conditions
    return (conditions.rtt_ms - context.flow(_RTT_MEAN)) / conditions.longest_rtt_ms * conditions.delay_weight


def loss(context: RewardContext) -> Array:
    """Return minus the flow's loss rate, `-lost_packets / sent_packets`, in [-1, 0]."""
    rate: Array = context.flow(_LOST) / np.maximum(context.flow(_SENT), ONE)
    return -rate


def fairness(context: RewardContext) -> Array:
    """Return Jain's index of the delivery rates of the flows that took part, in [0, 1]; the same for all flows."""
    rates = np.where(context.took_part, context.all_flows(_DELIVERY_RATE), 0.0)
    total, squares = context.sum(rates), context.sum(rates * rates)
    return context.of_flows(np.where(squares > 0, total * total / (context.count * squares), 0.0))


def utilisation(context: RewardContext) -> Array:
    """Return the share of the link's capacity that was used, in [0, 1]; the same for all flows."""
    return context.link(_UTILISATION)


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
    formula: Callable[[RewardContext], Array]


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
    """The weighted sum of terms; 0 in steps in which the flow takes no part.

    The default is

        mean(ln(rate / fair_share)) - 0.5 * (rtt_mean - base_rtt) / longest_base_rtt - lost / sent

    with the mean over all flows of the link. Its maximum, 0, is a full link that is shared equally, without queue and
    loss. With these weights a queue of a fifth of an RTT costs as much as a tenth of the throughput, and so does one
    lost packet in ten.

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

    @np.errstate(all="ignore")
    def evaluate(self, context: RewardContext) -> Array:
        """Return the rewards of M flows in one step, shape (M,): finite, and 0 for a flow that took no part in it."""
        values = np.empty((len(self._formulas), len(context.conditions.rtt_ms)))
        for row, formula in enumerate(self._formulas):
            values[row] = formula(context)
        is_nan = np.isnan(values)
        np.maximum(values, self._low, out=values)
        np.minimum(values, self._high, out=values)
        values *= self._weights
        if np.count_nonzero(is_nan):
            np.copyto(values, 0.0, where=is_nan)
        # NumPy adds up to seven rows in their order, so a reward is bit-identical for any number of flows.
        total: Array = np.add.reduce(values)
        if np.count_nonzero(context.flow(TOOK_PART)) < len(total):
            total[context.flow(TOOK_PART) == 0] = 0.0
        return total

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
        shape = (len(rows), len(flows))
        no_gains = np.full((2, shape[0] * shape[1]), math.nan)  # no term depends on them
        table = tabulate(rows[:, list(flows)].reshape(-1, len(FLOW_COLUMNS)), no_gains)
        conditions = Conditions.of(scenario, flows, steps=shape[0])
        return self.evaluate(RewardContext(table, rows, link, conditions)).reshape(shape)

    @cached_property
    def _formulas(self) -> list[Callable[[RewardContext], Array]]:
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


_IS_ACTIVE, _SENT, _DELIVERED, _LOST, _DELIVERY_RATE, _RTT_MEAN = map(
    FLOW_COLUMNS.index,
    ("is_active", "sent_packets", "delivered_packets", "lost_packets", "delivery_rate_mbps", "rtt_mean_ms"),
)
_RATE, _UTILISATION = map(LINK_COLUMNS.index, ("rate_mbps", "utilisation"))
