"""The scenarios in which learners measure whole episodes, and what a policy is worth in those that never change."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Final

import numpy as np

from bbrgym.agents.callbacks import EVALUATION_SEED, Callbacks
from bbrgym.agents.config import FitnessConfig
from bbrgym.agents.constants import Constants
from bbrgym.agents.fitness import Array, CandidateRuns, over_scenarios, relative, worst
from bbrgym.baselines.policy_file import Network, StoredPolicy
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.envs.scenario import Scenario

EVALUATED: Final = 192
"""Scenarios of an evaluation, the same for all seeds."""

_BANK: Final = 4
"""What random numbers are for: the second entry of a generator's seed, after the seed of the training. A search has
those below."""


def draw(spec: EpisodeSpec, rng: np.random.Generator, count: int) -> tuple[list[Scenario], list[int]]:
    """Return scenarios and their seeds."""
    return [spec.sample(rng) for _ in range(count)], rng.integers(1, 2**31, count).tolist()


def bank_rng(seed: int, index: int) -> np.random.Generator:
    """Return the generator that draws a scenario of a training's bank, and then its seed, as episodes do."""
    return np.random.default_rng([seed, _BANK, index])


def draw_bank(spec: EpisodeSpec, seed: int, count: int, first: int = 0) -> tuple[list[Scenario], list[int]]:
    """Return so many scenarios of a training's bank, from the place `first` on, and their seeds.

    They are the same for all learners with this seed, which therefore share what is known of them
    (`bbrgym.agents.constants`).
    """
    episodes = [spec.draw(bank_rng(seed, index)) for index in range(first, first + count)]
    return [scenario for scenario, _ in episodes], [engine_seed for _, engine_seed in episodes]


def measure_bank(
    constants: Constants, scenarios: Sequence[Scenario], seeds: Sequence[int], callbacks: Callbacks
) -> Array | None:
    """Return the table of a bank (`Constants.table`), and show how far it is; None if there was no time for all."""
    table = constants.table(
        scenarios, seeds, lambda done: callbacks.on_preparation("constants in scenario", done, len(scenarios))
    )
    return None if np.isnan(table).any() else table


def objective(spec: EpisodeSpec, config: FitnessConfig, network: Network) -> dict[str, float]:
    """Return what a policy is worth in scenarios that are always the same, by name: what counts first.

    Empty: it is the reward, which is evaluated for every learner.
    """
    if config.fitness == "reward" and not config.tail_weight:
        return {}
    scenarios, seeds = draw(spec, np.random.default_rng(EVALUATION_SEED), EVALUATED)
    policy = StoredPolicy(spec.policy_config(), network).to_bytes()
    with closing(CandidateRuns(spec, config, len(scenarios))) as runs:
        outcomes = runs.outcomes([policy], scenarios, seeds)[..., 0]
    name, plain = config.fitness, outcomes
    if config.relative_to is not None:
        name = f"relative_{name}"
        outcomes = relative(outcomes, Constants(spec, config).best(scenarios, seeds)[:, np.newaxis])
    found = {name: float(over_scenarios(outcomes, config)[0])}
    if config.tail_weight:
        found |= {f"{name}_mean": float(outcomes.mean()), f"{name}_tail": float(worst(outcomes, config.tail)[0])}
    if config.relative_to is not None:
        found[config.fitness] = float(plain.mean())
    return found
