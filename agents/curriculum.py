"""A curriculum: scenarios in which another does better than the agent, so that there is something left to learn.

Genet's idea (Xia et al., "Automatic Curriculum Generation for Learning Adaptation in Networking", SIGCOMM 2022): the
scenarios worth most are not the hardest, for in many of them nobody does better, but those with the largest gap between
the agent and the best of some baselines. Candidates are drawn from the training's distribution here, where Genet
searches by Bayesian optimisation: simulating them natively is cheap.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from bbrgym.agents.policy import Agent, scripted_agent
from bbrgym.agents.scripted import RULES
from bbrgym.baselines import registry
from bbrgym.baselines.policy_file import SCRIPTED
from bbrgym.envs.distribution import Distribution
from bbrgym.envs.episode import Episodes, EpisodeSpec
from bbrgym.envs.scenario import Scenario


@dataclass(frozen=True)
class CurriculumConfig:
    """What a curriculum is made of.

    Args:
        every: steps between looks; the first is after so many.
        candidates: scenarios that are drawn at each look, from what the training draws from.
        keep: how many of them at most join those kept before: the ones with the largest gap, if it is above 0.
        share: probability that an episode of the training has one of the kept scenarios, each as likely, instead of a
            new draw; it begins with the first that is kept.
        baselines: whom the agent is compared with: controllers, with their default parameters, and scripted agents.

    Raises:
        ValueError: naming the bad value and the good ones.
    """

    every: int = 100_000
    candidates: int = 64
    keep: int = 8
    share: float = 0.5
    baselines: tuple[str, ...] = (f"{SCRIPTED}backlog", "da-bbr", "bbr2", "cubic")

    def __post_init__(self) -> None:
        for name in ("every", "candidates", "keep"):
            value = getattr(self, name)
            is_whole = isinstance(value, int) and not isinstance(value, bool)
            _check(name, value, "a whole number of at least 1", is_whole and value >= 1)
        _check("keep", self.keep, f"at most candidates={self.candidates}", self.keep <= self.candidates)
        is_number = isinstance(self.share, int | float) and not isinstance(self.share, bool)
        _check("share", self.share, "a number in (0, 1]", is_number and 0 < self.share <= 1)
        given = self.baselines
        _check("baselines", given, "a list of at least one", isinstance(given, list | tuple) and len(given) > 0)
        object.__setattr__(self, "baselines", tuple(given))
        # `agent` would be an agent whose gains nobody chooses, and the comparators are in ns-3 only.
        known = [*(name for name in registry.controllers() if name != "agent"), *(SCRIPTED + name for name in RULES)]
        for name in self.baselines:
            if name not in known:
                raise ValueError(f"train.curriculum.baselines: no baseline {name!r}; known: {', '.join(known)}")
        _check("baselines", list(given), "each only once", len(set(self.baselines)) == len(self.baselines))

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> CurriculumConfig:
        """From plain types; an unknown key is refused by name."""
        _check("", plain, "a mapping of its fields, or null", isinstance(plain, Mapping))
        known = [f.name for f in dataclasses.fields(cls)]
        for key in plain:
            if key not in known:
                raise ValueError(f"train.curriculum has no key {key!r}; known: {', '.join(known)}")
        return cls(**plain)


@dataclass(frozen=True)
class Candidate:
    """A scenario, and what came of it.

    Attributes:
        scenario: that was simulated.
        agent: the agent's mean reward per decision.
        baselines: that of each baseline which drove the same flows, with the same seed.
    """

    scenario: Scenario
    agent: float
    baselines: Mapping[str, float]

    @property
    def best(self) -> str:
        """The best baseline; of equals the first."""
        return max(self.baselines, key=self.baselines.__getitem__)

    @property
    def gap(self) -> float:
        """How much better the best baseline is than the agent."""
        return self.baselines[self.best] - self.agent

    def to_dict(self) -> dict[str, Any]:
        """Plain types only."""
        return {
            "gap": self.gap,
            "best": self.best,
            "agent": self.agent,
            "baselines": dict(self.baselines),
            "scenario": self.scenario.to_dict(),
        }


class Contest:
    """The agent against baselines in scenarios of its training.

    Args:
        config: of the curriculum.
        spec: of the environment: its distribution, observation, action, reward, step and engine.
        engines: how many work at once.

    Raises:
        ValueError: a scripted agent that does not see what it needs.
    """

    def __init__(self, config: CurriculumConfig, spec: EpisodeSpec, engines: int) -> None:
        self.config = config
        self.spec = spec
        self._engines = engines
        self._baselines = {name: _driver(name, spec) for name in config.baselines}

    def hold(self, agent: Agent, rng: np.random.Generator) -> list[Candidate]:
        """Draw scenarios, and simulate each once with the agent and once with each baseline.

        Args:
            agent: drives its flows as in an evaluation, without exploring.
            rng: of the scenarios and the engines' seeds; nothing else decides what happens.

        Raises:
            EngineError: an engine failed.
        """
        drawn = [(self.spec.distribution.sample(rng), int(rng.integers(2**63))) for _ in range(self.config.candidates)]
        of_agent = self._rewards(agent, drawn)
        of_baselines = {name: self._rewards(driver, drawn) for name, driver in self._baselines.items()}
        return [
            Candidate(scenario, of_agent[index], {name: rewards[index] for name, rewards in of_baselines.items()})
            for index, (scenario, _) in enumerate(drawn)
        ]

    def _rewards(self, driver: Agent | str, drawn: Sequence[tuple[Scenario, int]]) -> list[float]:
        rewards: list[float] = []
        for first in range(0, len(drawn), self._engines):
            rewards += mean_rewards(self.spec, driver, drawn[first : first + self._engines])
        return rewards


def mean_rewards(spec: EpisodeSpec, driver: Agent | str, drawn: Sequence[tuple[Scenario, int]]) -> list[float]:
    """The mean reward per decision of the agent flows in each of some episodes at once, whoever drives them.

    Args:
        spec: of the environment.
        driver: an agent, or the name of the controller that is in its place.
        drawn: a scenario and a seed for each episode.

    Raises:
        EngineError: an engine failed.
    """
    controller = driver if isinstance(driver, str) else None
    with closing(Episodes(spec, len(drawn), controller)) as episodes:
        rngs = [np.random.default_rng(seed) for _, seed in drawn]
        options = [{"scenario": Distribution.of(scenario)} for scenario, _ in drawn]
        episodes.begin_resets(np.arange(len(drawn)), rngs, options)
        observations = episodes.finish_resets()
        if isinstance(driver, Agent):
            driver.reset()
        total, count = np.zeros(len(observations)), np.zeros(len(drawn))
        while len(running := np.flatnonzero(episodes.is_running)):
            is_running = episodes.is_running
            episodes.begin_step(
                driver.predict(observations) if isinstance(driver, Agent) else np.zeros((len(total), 2)), running
            )
            outcome = episodes.finish_step()
            observations = outcome.observations
            total += np.where(is_running.repeat(spec.agents), outcome.rewards, 0.0)
            count += is_running
    means: list[float] = (total.reshape(len(drawn), spec.agents).mean(axis=1) / count).tolist()
    return means


def largest_gaps(candidates: Sequence[Candidate], keep: int) -> list[Candidate]:
    """The candidates with the largest gaps, the largest first: so many at most, and none without a gap."""
    return sorted((each for each in candidates if each.gap > 0), key=lambda each: -each.gap)[:keep]


def _driver(name: str, spec: EpisodeSpec) -> Agent | str:
    if not name.startswith(SCRIPTED):
        return name
    return scripted_agent(name.removeprefix(SCRIPTED), spec)


def _check(name: str, value: object, good: str, is_good: bool) -> None:
    if not is_good:
        path = ".".join(filter(None, ("train.curriculum", name)))
        raise ValueError(f"{path}={value!r} is not possible: it must be {good}")
