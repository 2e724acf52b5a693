"""A curriculum of scenarios in which some baseline beats the agent, so that there is something left to learn.

Genet's idea (Xia et al., "Automatic Curriculum Generation for Learning Adaptation in Networking", SIGCOMM 2022): the
scenarios worth most are not the hardest ones, in many of which nobody does better, but those with the largest gap
between the agent and the best of some baselines. Candidates are drawn from the training distribution, since native
simulation is cheap, or searched as Genet does, by the adversary (`bbrgym.agents.adversary`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import numpy as np

from bbrgym.agents.adversary import Adversary, Candidate, is_held_out, largest_gaps
from bbrgym.agents.config import CurriculumConfig
from bbrgym.agents.policy import Agent, scripted_agent
from bbrgym.baselines.policy_file import SCRIPTED
from bbrgym.envs.distribution import Distribution
from bbrgym.envs.episode import Episodes, EpisodeSpec
from bbrgym.envs.scenario import Scenario


class RegretCurriculum:
    """Compares the agent with baselines in scenarios of its training distribution.

    Args:
        config: of the curriculum.
        spec: of the environment: its distribution, observation, action, reward, step and engine.
        engines: how many run at once.

    Raises:
        ValueError: a scripted agent needs a feature that is not observed.
    """

    def __init__(self, config: CurriculumConfig, spec: EpisodeSpec, engines: int) -> None:
        self.config = config
        self.spec = spec
        self._engines = engines
        self._adversary: Adversary | None = None
        self._baselines: dict[str, Agent | str] = {}
        if config.search == "adversary":
            self._adversary = Adversary(spec.distribution, config.baselines, spec.make_engine)
            return
        self._baselines = {
            name: scripted_agent(name.removeprefix(SCRIPTED), spec) if name.startswith(SCRIPTED) else name
            for name in config.baselines
        }

    def evaluate_gaps(self, agent: Agent, rng: np.random.Generator) -> list[Candidate]:
        """Draw or search scenarios, and simulate each once with the agent and once with each baseline.

        Drawn ones have mean rewards per decision as scores, and the adversary's have fair power.

        Args:
            agent: steers its flows as in an evaluation, without exploring.
            rng: draws the scenarios and the engines' seeds; everything follows from it.

        Raises:
            EngineError: an engine failed.
        """
        if self._adversary is not None:
            return self._adversary.search(agent, self.config.candidates, rng)
        drawn = [(self.spec.distribution.sample(rng), int(rng.integers(2**63))) for _ in range(self.config.candidates)]
        of_agent = self._rewards(agent, drawn)
        of_baselines = {name: self._rewards(driver, drawn) for name, driver in self._baselines.items()}
        return [
            Candidate(scenario, of_agent[index], {name: rewards[index] for name, rewards in of_baselines.items()})
            for index, (scenario, _) in enumerate(drawn)
        ]

    def joining(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return the candidates that join the curriculum: none of those that the adversary holds out."""
        if self._adversary is not None:
            candidates = [candidate for candidate in candidates if not is_held_out(candidate.scenario)]
        return largest_gaps(candidates, self.config.keep)

    def _rewards(self, driver: Agent | str, drawn: Sequence[tuple[Scenario, int]]) -> list[float]:
        rewards: list[float] = []
        for first in range(0, len(drawn), self._engines):
            rewards += mean_rewards(self.spec, driver, drawn[first : first + self._engines])
        return rewards


def mean_rewards(spec: EpisodeSpec, driver: Agent | str, drawn: Sequence[tuple[Scenario, int]]) -> list[float]:
    """Return the mean reward per decision of the agent flows in each of several episodes, which run at once.

    Args:
        spec: of the environment.
        driver: an agent, or the name of the controller that takes its place.
        drawn: a scenario and a seed per episode.

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
