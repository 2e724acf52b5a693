"""The league: every algorithm, and what was made by hand or learned, in the scenarios of `bbrgym score bbr --full`.

All flows of a scenario have the same competitor, or the competitor is beside one flow of CUBIC or BBR.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bbrgym.benchmark.code import code_hash
from bbrgym.benchmark.families import VICTIMS, WARMUP, Draw, alone, draw_scenarios
from bbrgym.benchmark.ledger import Rows
from bbrgym.benchmark.plan import Competitor
from bbrgym.benchmark.regret import Regret, regrets
from bbrgym.benchmark.run_scores import SCORE
from bbrgym.benchmark.score import yardsticks
from bbrgym.benchmark.score_measures import SHARING, measure_policy, measure_sharing
from bbrgym.benchmark.statistics import estimate
from bbrgym.envs.engine import identity_of
from bbrgym.envs.scenario import Scenario
from studies import page

SEED: Final = 11
"""Decides the scenarios. Nothing was trained or chosen by them."""
LEARNED: Final = "policy"
WORST: Final = 15
"""How many of the scenarios with the largest regret the page has."""
ROOT: Final = Path(__file__).parents[1]
RULE: Final = Competitor.from_dict({"name": "backlog", "agent": "scripted:backlog"})
MORE: Final = (
    RULE,
    Competitor("linear", "policy", policy=str(ROOT / "agents" / "linear")),
    *(Competitor(path.name, "file", file=str(path)) for path in sorted((ROOT / "examples").glob("*.c"))),
)
"""Competitors beside the yardsticks of a score: a rule, a small policy, and the controllers in C."""


@dataclass(frozen=True)
class LeagueRun:
    """A competitor in a scenario; the victim of a scenario alone, if there is no competitor."""

    draw: Draw
    competitor: Competitor | None

    @property
    def scenario(self) -> Scenario:
        """What is simulated."""
        return (
            alone(self.draw) if self.competitor is None else self.competitor.takes(self.draw.scenario, self.draw.roles)
        )

    @property
    def name(self) -> str:
        """What the ledger calls it."""
        return f"{self.draw.name}/{'alone' if self.competitor is None else self.competitor.name}"

    @property
    def code(self) -> str:
        """The hash of what decides its result."""
        agent = None if self.competitor is None else self.competitor.load()
        decisive = {
            "scenario": identity_of(self.scenario),
            "seed": self.draw.seed,
            "warmup": WARMUP,
            "agent": None if agent is None else agent.content_hash,
        }
        return code_hash("native", also=json.dumps(decisive, sort_keys=True))


@cache
def draws() -> tuple[Draw, ...]:
    """Return the scenarios."""
    return tuple(draw_scenarios(SEED, 2))


def competitors() -> list[Competitor]:
    """Return all competitors."""
    return [*yardsticks(), *MORE]


def jobs() -> list[LeagueRun]:
    """Return every scenario with every competitor, and each victim alone."""
    return [
        LeagueRun(draw, competitor)
        for draw in draws()
        for competitor in (competitors() if draw.victim is None else [*competitors(), None])
    ]


def work(job: LeagueRun) -> Rows:
    """Simulate and measure."""
    agent = None if job.competitor is None else job.competitor.load()
    if agent is None:
        (run,) = measure_sharing([job.scenario], [job.draw.seed], WARMUP)
    else:
        scenario = agent.spec.action.on(job.scenario)
        run = measure_policy(
            scenario,
            seed=job.draw.seed,
            warmup=WARMUP,
            policy=agent.policy(scenario),
            step_ms=agent.spec.interval_ms(scenario),
        )
    if "error" in run:
        raise ValueError(run["error"])
    return [{name: run[name] for name in (*SHARING, "throughputs_mbps")}]


def view(results: Mapping[str, Rows], figure: page.AddFigure) -> Mapping[str, object]:
    """Return the tables of the page."""
    table = scores_of(results)
    found = regrets(table, LEARNED)
    return {
        "seed": SEED,
        "alike": sum(draw.victim is None for draw in draws()),
        "beside": sum(draw.victim == VICTIMS[0] for draw in draws()),
        "standings": standings(table, results),
        "regret": regret_summary(found),
        "worst": worst(found),
        "worst_count": WORST,
    }


def family_of(scenario: str) -> str:
    """Return the family of a scenario by its name: `<family>-<number>`."""
    return scenario.rpartition("-")[0]


def families_alike() -> list[str]:
    """Return the families of scenarios in which all flows have the same competitor."""
    return list(dict.fromkeys(family_of(draw.name) for draw in draws() if draw.victim is None))


def scores_of(results: Mapping[str, Rows]) -> pd.DataFrame:
    """Return `SHARING` of the runs in which all flows have the same competitor, index (scenario, competitor, seed)."""
    rows = [
        {"scenario": draw.name, "competitor": one.name, "seed": draw.seed, **results[LeagueRun(draw, one).name][0]}
        for draw in draws()
        if draw.victim is None
        for one in competitors()
    ]
    return pd.DataFrame(rows).set_index(["scenario", "competitor", "seed"])[list(SHARING)]


def standings(table: pd.DataFrame, results: Mapping[str, Rows]) -> str:
    """Return a row per competitor: its score against all others, fair power, its families, and its harm to others."""
    power = table[SCORE].droplevel("seed").unstack("competitor")
    family = power.index.map(family_of)
    families = families_alike()
    ratios = {str(name): ratio_to_best(power, str(name)) for name in power}
    rows = []
    for name in sorted(ratios, key=lambda name: -ratios[name].mean()):
        own = power[name]
        rows.append(
            [
                page.cell(name),
                estimate(ratios[name]).text(".3f"),
                estimate(own).text(".3f"),
                *(f"{own[family == of].mean():.3f}" for of in families),
                *(f"{np.mean(harm(results, name, victim)):.2f}" for victim in VICTIMS),
            ]
        )
    headings = ["", "score", "fair power", *families, *(f"harm to {victim}" for victim in VICTIMS)]
    return page.table(headings, rows, range(1, len(headings)))


def ratio_to_best(power: pd.DataFrame, name: str) -> pd.Series:
    """Return a competitor's fair power over that of the best other one, at most 1, in each scenario."""
    return (power[name] / power.drop(columns=name).max(axis=1)).clip(upper=1.0)


def harm(results: Mapping[str, Rows], name: str, victim: str) -> npt.NDArray[np.float64]:
    """Return the fraction of its throughput alone that a victim loses to a competitor, in each scenario."""
    shares = []
    for draw in draws():
        if draw.victim == victim:
            beside = results[f"{draw.name}/{name}"][0]["throughputs_mbps"][1]
            shares.append(beside / results[LeagueRun(draw, None).name][0]["throughputs_mbps"][0])
    return 1 - np.array(shares)


def regret_summary(found: Sequence[Regret]) -> str:
    """Return how far the learned competitor is behind the best other one, by family."""
    rows = []
    families = families_alike()
    for name in (*families, "all"):
        of = [one for one in found if name in ("all", family_of(one.scenario))]
        behind = [one for one in of if one.regret.value > 0]
        causes = [one.cause for one in behind]
        rows.append(
            [
                name,
                f"{len(of) - len(behind)} of {len(of)}",
                estimate([max(one.regret.value, 0.0) for one in of]).text(".3f"),
                f"{max(one.regret.value for one in of):.3f}",
                ", ".join(f"{cause} {causes.count(cause)}" for cause in sorted(set(causes))) or "-",
            ]
        )
    return page.table(["family", "best in", "mean regret", "largest", "it lacks"], rows, (1, 2, 3))


def worst(found: Sequence[Regret]) -> str:
    """Return the scenarios with the largest regret."""
    scenarios = {draw.name: draw.scenario for draw in draws()}
    rows = []
    for one in found[:WORST]:
        scenario = scenarios[one.scenario]
        rows.append(
            [
                page.cell(one.scenario),
                scenario.describe_link(),
                "; ".join(flow.describe() for flow in scenario.flows),
                f"{one.regret.value:.3f}",
                page.cell(one.best),
                f"{one.own[SCORE]:.3f}, {one.other[SCORE]:.3f}",
                one.cause,
            ]
        )
    return page.table(["scenario", "link", "flows", "regret", "best", "fair power", "it lacks"], rows, (3, 5))
