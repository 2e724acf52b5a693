"""An adversary: a search for the scenarios in which an agent is furthest behind the best of some baselines.

The gap is regret as the league measures it (studies/league): fair power (`bbrgym.envs.sharing`) of the best baseline
less the agent's, in the same scenario with the same seed. A gap in reward would depend on the training whose reward it
is, and says nothing of controllers that were not trained; fair power is one number for all of them.

The search is TPE (Bergstra et al., "Algorithms for Hyper-Parameter Optimization", NeurIPS 2011) over everything that
the distribution draws. CMA-ES searches for one best point among numbers that are always there. TPE models where the
best tenth of what it has seen lies: in several places, with values that only some choices have, as a third flow's RTT.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bbrgym.agents.policy import Agent, load_agent
from bbrgym.baselines.policy_file import SCRIPTED
from bbrgym.envs.distribution import Chooser, Distribution
from bbrgym.envs.engine import Engine
from bbrgym.envs.scenario import Scenario
from bbrgym.envs.sharing import FairShares, Sharing
from bbrgym.envs.trace import simulate
from bbrgym.extras import require

if TYPE_CHECKING:
    from optuna.trial import Trial

WARMUP: Final = 0.25
"""The fraction of a scenario that is not measured, as in the league."""

BATCH: Final = 16
"""Scenarios that are simulated at once, and proposed without knowing each other's regret."""

FIRST: Final = 64
"""Scenarios that are plain draws, before the search has seen enough to propose some."""


@dataclass(frozen=True)
class Candidate:
    """A scenario, and the scores of an agent and of baselines in it.

    Attributes:
        scenario: the simulated scenario.
        agent: the agent's score.
        baselines: that of each baseline in place of the agent, with the same seed.
    """

    scenario: Scenario
    agent: float
    baselines: Mapping[str, float]

    @property
    def best(self) -> str:
        """The best baseline; the first one of equals."""
        return max(self.baselines, key=self.baselines.__getitem__)

    @property
    def gap(self) -> float:
        """How much better the best baseline is than the agent."""
        return self.baselines[self.best] - self.agent

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain types."""
        return {
            "gap": self.gap,
            "best": self.best,
            "agent": self.agent,
            "baselines": dict(self.baselines),
            "scenario": self.scenario.to_dict(),
        }


def largest_gaps(candidates: Sequence[Candidate], keep: int) -> list[Candidate]:
    """Return at most `keep` candidates with a gap above 0, the largest gap first."""
    return sorted((each for each in candidates if each.gap > 0), key=lambda each: -each.gap)[:keep]


def is_held_out(scenario: Scenario) -> bool:
    """Return whether a scenario is among the fourth of all that no training uses, which a hash decides."""
    text = json.dumps(scenario.to_dict(), sort_keys=True)
    return hashlib.sha256(text.encode()).digest()[0] % 4 == 0


@dataclass(frozen=True)
class Adversary:
    """Searches a distribution for the scenarios in which an agent has the largest regret.

    Args:
        distribution: what is searched. The agent and the baselines take its agent flows, or all if it has none.
        baselines: controllers with their default parameters, and scripted agents as in the league, in steps of 100 ms.
        engine: makes an engine.
        threads: how many simulations run at once; None is one per core.

    Raises:
        ModuleNotFoundError: the extra `sweep` is not installed.
        ValueError: the flows are not endless.
    """

    distribution: Distribution
    baselines: Sequence[str]
    engine: Callable[[], Engine]
    threads: int | None = None

    def __post_init__(self) -> None:
        require("a search for bad days", "optuna")
        FairShares.of(self.distribution.example, WARMUP)

    def search(
        self, agent: Agent | str, evaluations: int, rng: np.random.Generator, is_guided: bool = True
    ) -> list[Candidate]:
        """Return all candidates of a search, in its order.

        Args:
            agent: an agent, which steers its flows without exploring, or the name of a controller.
            evaluations: how many scenarios are simulated, each with the agent and every baseline.
            rng: everything random follows from it.
            is_guided: False for plain draws from the distribution, to compare with.

        Raises:
            EngineError: an engine failed.
        """
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        seed = int(rng.integers(2**32))
        sampler = (
            optuna.samplers.TPESampler(seed=seed, n_startup_trials=FIRST, constant_liar=True)
            if is_guided
            else optuna.samplers.RandomSampler(seed)
        )
        study = optuna.create_study(direction="maximize", sampler=sampler)
        found: list[Candidate] = []
        while len(found) < evaluations:
            trials = [study.ask() for _ in range(min(BATCH, evaluations - len(found)))]
            scenarios = [_steered(self.distribution.sample_with(_Proposal(trial))) for trial in trials]
            candidates = self.measure(agent, scenarios, [int(rng.integers(1, 2**31)) for _ in trials])
            for trial, candidate in zip(trials, candidates, strict=True):
                study.tell(trial, candidate.gap)
            found += candidates
        return found

    def measure(self, agent: Agent | str, scenarios: Sequence[Scenario], seeds: Sequence[int]) -> list[Candidate]:
        """Return the fair power of the agent and the baselines in each scenario.

        Raises:
            EngineError: an engine failed.
        """
        drivers = [agent, *(load_agent(name) if name.startswith(SCRIPTED) else name for name in self.baselines)]
        with ThreadPoolExecutor(self.threads or len(os.sched_getaffinity(0))) as pool:
            scores = [pool.map(self._fair_power, scenarios, seeds, repeat(driver)) for driver in drivers]
            return [
                Candidate(scenario, own, dict(zip(self.baselines, others, strict=True)))
                for scenario, own, *others in zip(scenarios, *scores, strict=True)
            ]

    def _fair_power(self, scenario: Scenario, seed: int, driver: Agent | str) -> float:
        engine = self.engine()
        try:
            if isinstance(driver, Agent):
                step_ms = driver.spec.interval_ms(scenario)
                scenario = driver.spec.action.on(scenario)
                trace = simulate(scenario, engine, seed, step_ms, driver.policy(scenario))
            else:
                trace = simulate(scenario.with_agents_as(driver), engine, seed)
        finally:
            engine.close()
        return Sharing.of_trace(trace, WARMUP).fair_power


def _steered(scenario: Scenario) -> Scenario:
    return scenario if scenario.agent_flows else scenario.with_algorithm("agent")


class _Proposal(Chooser):
    """The choices that an Optuna trial proposes."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial

    def choose(self, where: str, count: int) -> int:
        return int(self._trial.suggest_categorical(f"{where}: {count} choices", list(range(count))))

    def draw(self, where: str, low: float, high: float, is_log: bool, is_whole: bool) -> float:
        # Bounds are part of the name: other entries of a choice can have others at the same place.
        name = f"{where}: {low:g} to {high:g}"
        if is_whole:
            return self._trial.suggest_int(name, round(low), round(high), log=is_log)
        return self._trial.suggest_float(name, low, high, log=is_log)
