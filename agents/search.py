"""Search in the weights of a policy, by CMA-ES: noise in the weights, and the outcome of whole episodes as the return.

A generation draws weights from a normal distribution, runs each of these candidates in the same scenarios, and moves
the distribution's mean, covariance and size towards the better half (Hansen and Ostermeier 2001; Hansen 2016,
arXiv:1604.00772). The agent is the mean of the last generations. No gradient, no critic, no noise in a step: what a
candidate does is the same for all flows and the whole episode, so that its effect on the queue and on the shares is
seen.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cma
import numpy as np

from bbrgym.agents.callbacks import Callbacks, Learner, blaming
from bbrgym.agents.checkpoint import TrainingState
from bbrgym.agents.config import SearchConfig
from bbrgym.agents.constants import Constants
from bbrgym.agents.curriculum import Curriculum, curriculum_of, without_curriculum
from bbrgym.agents.draws import draw, draw_bank, measure_bank, objective
from bbrgym.agents.fitness import Array as Outcomes
from bbrgym.agents.fitness import make_runs
from bbrgym.agents.inputs import input_rngs, measure_inputs
from bbrgym.agents.policy import Agent
from bbrgym.agents.searched_weights import Weights, searched_weights
from bbrgym.agents.tuned_policy import check_origin
from bbrgym.baselines.policy_file import Array, Network, StoredPolicy
from bbrgym.checks import check_integer
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.envs.scenario import Scenario

_WEIGHTS, _INPUTS, _SCENARIOS, _SAMPLES = range(4)
"""What random numbers are for: the second entry of a generator's seed, after the seed of the training."""


class WeightSearch(Learner):
    """See `bbrgym.agents.callbacks.Learner`. Decisions of all candidates are steps.

    Everything random in a generation follows from the seed and the number of the generation. So a checkpoint needs no
    generators, and none of CMA-ES's inner state: it has the fitness of all candidates so far, with which `restore`
    repeats the search without its episodes, in about a millisecond per generation.
    """

    steps = 0
    unit = "a generation"

    def __init__(self, config: SearchConfig, spec: EpisodeSpec, seed: int) -> None:
        self._config = config
        self._drawn_spec = spec  # with its curriculum
        self._spec = spec = without_curriculum(spec)
        self._seed = seed
        self._plain_spec = spec.policy_config()
        self._weights = searched_weights(config, spec)
        self._runs = make_runs(spec, config, config.population * config.scenarios)
        self._fitness: list[list[float]] = []  # of all candidates in all generations
        self._means: list[Weights] = []  # of the distributions after them
        self._inputs: tuple[Array, Array] | None = None  # mean and scale
        self._bank: tuple[list[Scenario], list[int], Outcomes] | None = None  # scenarios, seeds, best constants
        self._random = _RandomNumbers()
        self._search = self._make_search()

    @property
    def has_learned(self) -> bool:
        """Whether there was a generation."""
        return bool(self._fitness)

    def learn(self, total_steps: int, callbacks: Callbacks) -> None:
        """See `Learner`; a generation is a rollout."""
        self._inputs = self._inputs or measure_inputs(
            self._spec, input_rngs([self._seed, _INPUTS], self._config.scenarios)
        )
        callbacks.on_training_start(self)
        is_on = self._config.relative_to is None or self._measure_bank(callbacks)
        while is_on and self.steps < total_steps:
            callbacks.on_rollout_start(self)
            begin_s = time.monotonic()
            fitness, decisions = self._make_generation()
            self.steps += decisions
            callbacks.log_metrics(
                {
                    "search/fitness_best": float(fitness.max()),
                    "search/fitness_median": float(np.median(fitness)),
                    "search/fitness_mean": float(fitness.mean()),
                    "search/sigma": float(self._search.sigma),
                    "time/iterations": len(self._fitness),
                    "time/fps": decisions / (time.monotonic() - begin_s),
                },
                self.steps,
            )
            is_on = callbacks.on_step(self.steps)
        callbacks.on_training_end(self)

    def agent(self) -> Agent:
        """Return the mean of the distributions of the last third of the generations."""
        return Agent(self._spec, self._network(self._mean()))

    def history(self) -> list[Network]:
        """Return the network of the first mean of the distributions, and that of the mean after each generation."""
        return [self._network(mean) for mean in (self._make_search().mean, *self._means)]

    def objective(self) -> dict[str, float]:
        """See `Learner`."""
        return objective(self._spec, self._config, self._network(self._mean()))

    def restart(self, seed: int, state: TrainingState) -> None:
        """Do nothing: every generation starts from its own seeds."""

    def save(self, folder: Path) -> dict[str, Any]:
        """See `Restorable`."""
        assert self._inputs is not None
        np.savez(
            folder / "search.npz",
            fitness=np.array(self._fitness).reshape(-1, self._config.population),
            mean=self._search.mean,
            inputs=np.stack(self._inputs),
        )
        return {"tunes": self._weights.origin}

    def restore(self, folder: Path, description: Mapping[str, Any]) -> None:
        """See `Restorable`."""
        steps = check_integer("steps", description["steps"], at_least=0)
        with np.load(folder / "search.npz", allow_pickle=False) as saved:
            fitness, mean, inputs = saved["fitness"], saved["mean"], saved["inputs"]
        self._fitness, self._means, self._search = [], [], self._make_search()
        if fitness.shape[1:] != (self._config.population,) or inputs.shape != (2, *self._spec.observation.space.shape):
            raise ValueError("search.npz is of another configuration")
        check_origin(self._weights.origin, description)
        for of_generation in fitness:
            self._tell(self._ask(), of_generation)
        if not np.allclose(self._search.mean, mean):
            raise ValueError("the search cannot be repeated: it was made with other versions of cma or NumPy")
        self.steps, self._inputs = steps, (inputs[0], inputs[1])

    def close(self) -> None:
        """See `Learner`."""
        self._runs.close()

    def _make_generation(self) -> tuple[Weights, int]:
        """Return the fitness of the candidates, and the decisions they made."""
        scenarios, seeds, best = self._draw(self._rng(_SCENARIOS, len(self._fitness)))
        weights = self._ask()
        policies = [StoredPolicy(self._plain_spec, self._network(each)).to_bytes() for each in weights]
        fitness, decisions = self._runs.measure(policies, scenarios, seeds, best)
        self._tell(weights, fitness)
        return fitness, decisions

    def _draw(self, rng: np.random.Generator) -> tuple[list[Scenario], list[int], Outcomes | None]:
        """Return the scenarios of a generation, their seeds, and what fitness is in relation to."""
        if self._bank is None:
            return *draw(self._drawn_spec, rng, self._config.scenarios), None
        scenarios, seeds, best = self._bank
        chosen = rng.choice(len(scenarios), self._config.scenarios, replace=False)
        drawn = [scenarios[index] for index in chosen], [seeds[index] for index in chosen], best[chosen]
        curriculum = curriculum_of(self._drawn_spec)
        return drawn if curriculum is None else self._with_curriculum(*drawn, curriculum, rng)

    def _with_curriculum(
        self,
        scenarios: list[Scenario],
        seeds: list[int],
        best: Outcomes,
        curriculum: Curriculum,
        rng: np.random.Generator,
    ) -> tuple[list[Scenario], list[int], Outcomes]:
        """Replace scenarios of the bank by paths of the curriculum, with the best constant of each."""
        paths = {place: path for place in range(len(scenarios)) if (path := curriculum.draw(rng)) is not None}
        if not paths:
            return scenarios, seeds, best
        for place, path in paths.items():
            scenarios[place], seeds[place] = self._spec.action.on(path.scenario), path.seed
        constants = Constants(self._spec, self._config)
        best[[*paths]] = constants.best([scenarios[place] for place in paths], [seeds[place] for place in paths])
        return scenarios, seeds, best

    def _measure_bank(self, callbacks: Callbacks) -> bool:
        """Measure the best constant of all scenarios of the bank; return whether there was time for it."""
        scenarios, seeds = draw_bank(self._spec, self._seed, self._config.bank)
        table = measure_bank(Constants(self._spec, self._config), scenarios, seeds, callbacks)
        if table is None:
            return False
        self._bank = scenarios, seeds, table[:, 0].max(axis=1)
        return True

    def _make_search(self) -> cma.CMAEvolutionStrategy:
        size = self._weights.size
        start = self._weights.start(self._config.init_std * self._rng(_WEIGHTS).standard_normal(size))
        return cma.CMAEvolutionStrategy(
            start,
            self._config.sigma,
            {
                "popsize": self._config.population,
                "CMA_diagonal": size > self._config.diagonal_above,
                "randn": self._random,
                "seed": math.nan,  # leave NumPy's global generator alone
                "verbose": -9,  # neither prints nor files
                # The training's length says when it ends: CMA-ES's own criteria are for functions without noise.
                **dict.fromkeys(("tolfun", "tolfunhist", "tolx"), 0),
                **dict.fromkeys(("tolstagnation", "tolflatfitness", "tolfacupx", "tolconditioncov"), math.inf),
            },
        )

    def _ask(self) -> list[Weights]:
        self._random.rng = self._rng(_SAMPLES, len(self._fitness))
        candidates: list[Weights] = self._search.ask()
        return candidates

    def _tell(self, candidates: Sequence[Weights], fitness: Weights) -> None:
        self._search.tell(candidates, (-fitness).tolist())  # it minimises
        self._fitness.append(fitness.tolist())
        self._means.append(self._search.mean)

    def _mean(self) -> Weights:
        """Return the weights of the agent.

        The distribution of a generation has followed the scenarios that happened to be drawn. Over many of them the
        mean is better (Polyak and Juditsky 1992), as in gradient descent with noise.
        """
        latest = self._means[-math.ceil(len(self._means) / 3) :]
        mean: Weights = np.mean(latest, axis=0) if latest else self._search.mean
        return mean

    def _network(self, weights: Weights) -> Network:
        with blaming(sigma=self._config.sigma, init_std=self._config.init_std):
            return self._weights.network(weights, self._inputs)

    def _rng(self, purpose: int, number: int = 0) -> np.random.Generator:
        return np.random.default_rng([self._seed, purpose, number])


class _RandomNumbers:
    """Draws the numbers that cma asks for from a generator that can be replaced."""

    rng: np.random.Generator

    def __call__(self, *shape: int) -> Weights:
        return self.rng.standard_normal(shape)
