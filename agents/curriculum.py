"""A curriculum: paths on which the agent of a training was broken join the scenarios that it is trained on.

Who breaks it is handed in from above (`bbrgym.benchmark.breaking.curriculum.Breaker`). What was found is drawn with a
weight: its regret, times how much can be learned from it. Half of the episodes stay of the plain distribution.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np

from bbrgym.agents.config import CurriculumConfig
from bbrgym.agents.policy import Agent
from bbrgym.checks import check_integer, check_number
from bbrgym.envs.distribution import ABSENT, Distribution
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.envs.scenario import Flow, Scenario

_CURRICULUM: Final = 5
"""What random numbers are for: the second entry of a generator's seed, after the seed of the training. Searches have
those below (`bbrgym.agents.draws`)."""

_LEAST_WEIGHT: Final = 0.01
"""A path that counts less is forgotten."""


@dataclass(frozen=True)
class Broken:
    """A path on which an agent fails.

    Attributes:
        scenario: its agent flows are those of algorithm `agent`.
        seed: of the engine.
        best: fair power of the best yardstick.
        regret: how much less the agent has.
    """

    scenario: Scenario
    seed: int
    best: float
    regret: float


@dataclass(frozen=True)
class Quest:
    """Which paths are looked for.

    Attributes:
        agents: most agent flows.
        flows: most flows.
        duration_s: of every path; None for any.
        candidates: how many are judged.
        regret: least regret.
        space: lines of the box of paths.
    """

    agents: int
    flows: int
    duration_s: float | None
    candidates: int
    regret: float
    space: Mapping[str, Any]


class Breaks(Protocol):
    """Breaks agents."""

    def check(self, quest: Quest) -> None:
        """Check that there are such paths.

        Raises:
            ValueError: there are none.
        """
        ...

    def regrets(self, agent: Agent, known: Sequence[Broken]) -> list[float]:
        """Return an agent's regret on paths that are known."""
        ...

    def find(self, agent: Agent, quest: Quest, seed: int) -> list[Broken]:
        """Return different paths on which an agent fails, which follow from the seed."""
        ...


@dataclass(frozen=True)
class Held:
    """A path of a curriculum.

    Attributes:
        path: with the regret of the last agent that was judged on it.
        learnability: 1 for a new path. Then the part of the regret that the training has removed since the search
            before, but at least `forgetting` times what it was.
    """

    path: Broken
    learnability: float = 1.0

    @property
    def weight(self) -> float:
        """How often it is drawn, beside others."""
        return self.path.regret * self.learnability


class Curriculum:
    """The paths of a training.

    Args:
        config: of the curriculum.
        spec: of the environment.
        breaks: who finds them.
        seed: of the training; with the number of a search it decides what is found.

    Raises:
        ValueError: there are no such paths.
    """

    def __init__(self, config: CurriculumConfig, spec: EpisodeSpec, breaks: Breaks, seed: int) -> None:
        plain = spec.distribution
        self.share = config.share
        self.held: list[Held] = []
        self._config = config
        self._agents = plain.agents
        self._breaks = breaks
        self._seed = seed
        self._searches = 0
        self._searched_at = 0
        self._quest = Quest(
            agents=plain.agents,
            flows=plain.max_flows,
            duration_s=plain.duration_s,
            candidates=config.candidates,
            regret=config.regret,
            space=config.space or {},
        )
        breaks.check(self._quest)

    def on(self, spec: EpisodeSpec) -> EpisodeSpec:
        """Return the environment whose episodes are drawn from this, too."""
        return dataclasses.replace(spec, scenario=CurriculumDistribution(spec.distribution, self))

    def draw(self, rng: np.random.Generator) -> Broken | None:
        """Draw the path of an episode, with as many agent flows as all have; None for one of the plain distribution."""
        if not self.held or rng.random() >= self.share:
            return None
        weights = np.array([one.weight for one in self.held])
        path = self.held[rng.choice(len(self.held), p=weights / weights.sum())].path
        return dataclasses.replace(path, scenario=_with_agents(path.scenario, self._agents))

    def is_due(self, steps: int) -> bool:
        """Return whether the agent is to be broken after so many steps."""
        return steps - self._searched_at >= self._config.every

    def update(self, agent: Agent, steps: int) -> dict[str, float]:
        """Judge the agent on the paths that are held, break it on others, and choose what stays.

        Returns:
            Metrics: `curriculum/worst`, the largest regret of all, `curriculum/regret`, the mean of those that were
            held, `curriculum/found`, how many were found, and `curriculum/held`, how many stay.
        """
        known = [one.path for one in self.held]
        again = self._breaks.regrets(agent, known)
        kept = [_judged(one, regret, self._config.forgetting) for one, regret in zip(self.held, again, strict=True)]
        rng = np.random.default_rng([self._seed, _CURRICULUM, self._searches])
        found = self._breaks.find(agent, self._quest, int(rng.integers(2**31)))
        new = [Held(path) for path in found if path.scenario not in {one.scenario for one in known}]
        every = sorted([*kept, *new], key=lambda one: -one.weight)
        self.held = [one for one in every if one.weight >= _LEAST_WEIGHT][: self._config.most]
        self._searches += 1
        self._searched_at = steps
        metrics = {"curriculum/found": float(len(new)), "curriculum/held": float(len(self.held))}
        if again:
            metrics["curriculum/regret"] = float(np.mean(again))
        return {"curriculum/worst": max([0.0, *again, *(one.path.regret for one in new)])} | metrics

    def to_dict(self) -> dict[str, Any]:
        """Return its state in plain types, for `restore`."""
        held = [
            {
                "scenario": one.path.scenario.to_dict(),
                "seed": one.path.seed,
                "best": one.path.best,
                "regret": one.path.regret,
                "learnability": one.learnability,
            }
            for one in self.held
        ]
        return {"searches": self._searches, "searched_at": self._searched_at, "held": held}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take the state that `to_dict` returned.

        Raises:
            One of `bbrgym.files.DAMAGES`: it is none.
        """
        held = []
        for one in state["held"]:
            numbers = {name: float(one[name]) for name in ("best", "regret", "learnability")}
            for name, number in numbers.items():
                check_number(name, number, at_least=-1, at_most=2)
            path = Broken(Scenario.from_dict(one["scenario"]), int(one["seed"]), numbers["best"], numbers["regret"])
            held.append(Held(path, numbers["learnability"]))
        self.held = held
        self._searches, self._searched_at = (
            check_integer(name, state[name], at_least=0) for name in ("searches", "searched_at")
        )


@dataclass(frozen=True, eq=False)
class CurriculumDistribution(Distribution):
    """A plain distribution, and the paths of a curriculum beside it. What it is in plain types has no paths."""

    plain: Mapping[str, Any] = field(init=False, repr=False)
    base: Distribution
    curriculum: Curriculum

    def __init__(self, base: Distribution, curriculum: Curriculum) -> None:
        for one in dataclasses.fields(Distribution):
            object.__setattr__(self, one.name, getattr(base, one.name))
        object.__setattr__(self, "is_drawn", True)
        object.__setattr__(self, "base", base)
        object.__setattr__(self, "curriculum", curriculum)

    def sample(self, rng: np.random.Generator) -> Scenario:
        """See `Distribution`."""
        path = self.curriculum.draw(rng)
        return self.base.sample(rng) if path is None else path.scenario


def curriculum_of(spec: EpisodeSpec) -> Curriculum | None:
    """Return the curriculum of an environment; None if it has none."""
    drawn = spec.distribution
    return drawn.curriculum if isinstance(drawn, CurriculumDistribution) else None


def without_curriculum(spec: EpisodeSpec) -> EpisodeSpec:
    """Return the environment with its plain distribution."""
    drawn = spec.distribution
    return dataclasses.replace(spec, scenario=drawn.base) if isinstance(drawn, CurriculumDistribution) else spec


def _judged(one: Held, regret: float, forgetting: float) -> Held:
    """Return a path after the agent has been judged on it again."""
    progress = min(max((one.path.regret - regret) / one.path.regret, 0.0), 1.0)
    path = dataclasses.replace(one.path, regret=max(regret, 0.0))
    return Held(path, max(progress, forgetting * one.learnability))


def _with_agents(scenario: Scenario, agents: int) -> Scenario:
    """Return a scenario with so many agent flows: those that it lacks are absent."""
    lacking = agents - len(scenario.agent_flows)
    if not lacking:
        return scenario
    absent = Flow(**ABSENT)
    absent = dataclasses.replace(absent, rtt_ms=min(absent.rtt_ms, *(flow.rtt_ms for flow in scenario.flows)))
    return dataclasses.replace(scenario, flows=(*scenario.flows, *[absent] * lacking))
