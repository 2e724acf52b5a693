"""Regret: the fair power that the learned competitor lacks in a scenario, and what it lacks it by."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pandas as pd

from bbrgym.benchmark.scores import SCORE
from bbrgym.benchmark.statistics import Estimate, estimate

MOST_REGRET: Final = 0.05
"""No scenario may have more: the goal of the learned competitor."""

LEAST_BEST: Final = 0.9
"""The fraction of the scenarios in which it must be the best: the other half of that goal."""

PARTS: Final = ("jain", "utilisation", "delay")
"""The scores that make `SCORE`."""


@dataclass(frozen=True)
class Regret:
    """How far the learned competitor is behind the best of all others in a scenario.

    Attributes:
        scenario: name of the scenario.
        best: the other competitor, yardsticks included, with the highest mean of `SCORE` over the seeds.
        regret: its score less the learned competitor's, mean over the seeds; below 0 the learned one is the best.
        own: means of `SCORE` and `PARTS` of the learned competitor.
        other: those of the best other one.
    """

    scenario: str
    best: str
    regret: Estimate
    own: Mapping[str, float]
    other: Mapping[str, float]

    @property
    def losses(self) -> dict[str, float]:
        """How much each factor of the score loses: its logarithm for the best less that of the learned competitor."""
        of_own, of_other = (
            {
                "fairness": math.log(max(side["jain"], 1e-9)),
                "utilisation": math.log(max(side["utilisation"], 1e-9)),
                "delay": -math.log1p(side["delay"]),
            }
            for side in (self.own, self.other)
        )
        return {factor: of_other[factor] - of_own[factor] for factor in of_own}

    @property
    def cause(self) -> str:
        """The factor that loses most: `fairness`, `utilisation` or `delay`."""
        return max(self.losses, key=self.losses.__getitem__)


def regrets(table: pd.DataFrame, name: str) -> list[Regret]:
    """Return the regret of a competitor in each scenario in which it and another one have runs, the largest first."""
    of_runs = table[SCORE].unstack("competitor")
    if name not in of_runs:
        return []
    found = []
    for scenario, runs in of_runs[of_runs[name].notna()].groupby(level="scenario"):
        others = runs.drop(columns=name).mean().dropna()
        if others.empty:
            continue
        best = str(others.idxmax())
        own, other = (_means(table, scenario, side) for side in (name, best))
        found.append(Regret(str(scenario), best, estimate(runs[best] - runs[name]), own, other))
    return sorted(found, key=lambda one: -one.regret.value)


def _means(table: pd.DataFrame, scenario: Hashable, name: str) -> dict[str, float]:
    return {
        score: float(table[score].xs(scenario, level="scenario").xs(name, level="competitor").mean())
        for score in (SCORE, *PARTS)
    }


@dataclass(frozen=True)
class RegretVerdict:
    """The verdict on the regrets in the scenarios of a suite.

    Attributes:
        scenarios: how many there are.
        best_in: the fraction of them in which the learned competitor is the best or equal to it; the interval is over
            the scenarios, so it says what other scenarios of this kind would give.
        above: how many have a regret above `MOST_REGRET`.
        mean: the mean regret, where it is the best 0; the interval is over the scenarios.
        worst: the largest regret.
    """

    scenarios: int
    best_in: Estimate
    above: int
    mean: Estimate
    worst: Regret

    @property
    def is_reached(self) -> bool:
        """Whether it is the best in `LEAST_BEST` of the scenarios, and behind by more than `MOST_REGRET` in none."""
        return self.best_in.value >= LEAST_BEST and not self.above


def regret_verdict(found: Sequence[Regret]) -> RegretVerdict:
    """Return the verdict on the regrets in at least one scenario, as `regrets` returns them."""
    values = [one.regret.value for one in found]
    return RegretVerdict(
        scenarios=len(found),
        best_in=estimate([value <= 0 for value in values]),
        above=sum(value > MOST_REGRET for value in values),
        mean=estimate([max(value, 0.0) for value in values]),
        worst=found[0],
    )
