"""Regret: the fair power that a competitor lacks in a scenario, and what it lacks it by."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Final

import pandas as pd

from bbrgym.benchmark.run_scores import SCORE
from bbrgym.benchmark.statistics import Estimate, estimate

PARTS: Final = ("jain", "utilisation", "delay")
"""The scores that make `SCORE`."""


@dataclass(frozen=True)
class Regret:
    """How far a competitor is behind the best of all others in a scenario.

    Attributes:
        scenario: name of the scenario.
        best: the other competitor, yardsticks included, with the highest mean of `SCORE` over the seeds.
        regret: its score less the competitor's, mean over the seeds; below 0 the competitor is the best.
        own: means of `SCORE` and `PARTS` of the competitor.
        other: those of the best other one.
    """

    scenario: str
    best: str
    regret: Estimate
    own: Mapping[str, float]
    other: Mapping[str, float]

    @property
    def losses(self) -> dict[str, float]:
        """How much each factor of the score loses: its logarithm for the best less that of the competitor."""
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

    @property
    def reason(self) -> str:
        """Both scores, and what the learned competitor lacks."""
        return f"fair power {self.own[SCORE]:.3f}, {self.best} {self.other[SCORE]:.3f}; lacks {self.cause}"


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
        found.append(
            Regret(scenario=str(scenario), best=best, regret=estimate(runs[best] - runs[name]), own=own, other=other)
        )
    return sorted(found, key=lambda one: -one.regret.value)


def _means(table: pd.DataFrame, scenario: Hashable, name: str) -> dict[str, float]:
    return {
        score: float(table[score].xs(scenario, level="scenario").xs(name, level="competitor").mean())
        for score in (SCORE, *PARTS)
    }
