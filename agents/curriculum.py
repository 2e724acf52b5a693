"""A curriculum of scenarios in which some baseline beats the agent, so that there is something left to learn.

Genet's idea (Xia et al., "Automatic Curriculum Generation for Learning Adaptation in Networking", SIGCOMM 2022): the
scenarios worth most are not the hardest ones, in many of which nobody does better, but those with the largest gap
between the agent and the best of some baselines. The adversary (`bbrgym.agents.adversary`) searches for them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bbrgym.agents.adversary import Adversary, Candidate, is_held_out, largest_gaps
from bbrgym.agents.config import CurriculumConfig
from bbrgym.agents.policy import Agent
from bbrgym.envs.episode import EpisodeSpec


class RegretCurriculum:
    """Compares the agent with baselines in scenarios of its training distribution.

    Args:
        config: of the curriculum.
        spec: of the environment: its distribution and its engine.

    Raises:
        ModuleNotFoundError: the extra `sweep` is not installed.
        ValueError: the flows are not endless.
    """

    def __init__(self, config: CurriculumConfig, spec: EpisodeSpec) -> None:
        self.config = config
        self.spec = spec
        self._adversary = Adversary(spec.distribution, config.baselines, spec.make_engine)

    def search(self, agent: Agent, rng: np.random.Generator) -> list[Candidate]:
        """Search scenarios, and simulate each once with the agent and once with each baseline.

        Args:
            agent: steers its flows as in an evaluation, without exploring.
            rng: everything follows from it.

        Raises:
            EngineError: an engine failed.
        """
        return self._adversary.search(agent, self.config.candidates, rng)

    def joining(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return the candidates that join the curriculum: none of those that are held out."""
        return largest_gaps([each for each in candidates if not is_held_out(each.scenario)], self.config.keep)
