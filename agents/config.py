"""What a training is configured with, checked before torch is loaded or anything is written."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from bbrgym.baselines.policy_file import ACTIVATIONS
from bbrgym.checks import check_integer, check_keys, check_name, check_number, keep_integers
from bbrgym.envs.episode import EpisodeSpec

GRADIENT_ALGORITHMS: Final = ("ppo", "sac")
"""The learning algorithms of Stable-Baselines3, by the names of conf/agent."""

SEARCH_ALGORITHMS: Final = ("cma",)
"""The learning algorithms that search in the weights of a policy, by the names of conf/agent."""

ALGORITHMS: Final = (*GRADIENT_ALGORITHMS, *SEARCH_ALGORITHMS)
"""All learning algorithms."""

FITNESSES: Final = ("fair_power", "reward")
"""What a search can maximise."""

EXPERIMENT: Final = "train"
"""MLflow's experiment of all training runs."""


@dataclass(frozen=True)
class TrainConfig:
    """Length, parallelism and outputs of a training; conf/train/default.yaml explains the fields.

    Raises:
        ValueError: naming the bad value and the good ones.
    """

    total_steps: int = 300_000
    max_minutes: float | None = None
    n_envs: int = 2
    torch_threads: int = 1
    eval_every: int = 20_000
    eval_episodes: int = 8
    checkpoint_every: int = 20_000
    engine_failures: int = 10
    resume: str | None = None

    def __post_init__(self) -> None:
        positive = ("total_steps", "n_envs", "torch_threads", "eval_every", "eval_episodes", "checkpoint_every")
        keep_integers(self, *positive, prefix="train.", at_least=1)
        keep_integers(self, "engine_failures", prefix="train.", at_least=0)
        check_number("train.max_minutes", self.max_minutes, above=0, or_none=True)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> TrainConfig:
        """Make one from plain types, as conf/train has them, refusing unknown keys."""
        check_keys("train", plain, [f.name for f in dataclasses.fields(cls)])
        return cls(**plain)


@dataclass(frozen=True)
class SearchConfig:
    """A search in the weights of a policy; conf/agent/cma.yaml explains the fields.

    Raises:
        ValueError: naming the bad value and the good ones.
    """

    algorithm: str = "cma"
    population: int = 20
    sigma: float = 0.5
    scenarios: int = 16
    fitness: str = "fair_power"
    warmup: float = 0.4
    net_arch: tuple[int, ...] = ()
    activation_fn: str = "tanh"
    init_std: float = 0.5
    diagonal_above: int = 150

    def __post_init__(self) -> None:
        check_name("search algorithm", self.algorithm, SEARCH_ALGORITHMS)
        keep_integers(self, "population", prefix="agent.", at_least=4)
        keep_integers(self, "scenarios", prefix="agent.", at_least=1)
        keep_integers(self, "diagonal_above", prefix="agent.", at_least=0)
        check_number("agent.sigma", self.sigma, above=0)
        check_number("agent.warmup", self.warmup, at_least=0, below=1)
        check_number("agent.init_std", self.init_std, at_least=0)
        check_name("agent.fitness", self.fitness, FITNESSES)
        check_name("agent.activation_fn", self.activation_fn, ACTIVATIONS)
        if not isinstance(self.net_arch, list | tuple):
            raise ValueError(f"agent.net_arch must be a list of layer sizes, like [32, 32], got {self.net_arch!r}")
        sizes = tuple(check_integer("each of agent.net_arch", size, at_least=1) for size in self.net_arch)
        object.__setattr__(self, "net_arch", sizes)

    def check_fits(self, spec: EpisodeSpec) -> None:
        """Check that the search can be run in an environment.

        Raises:
            ValueError: it needs something else of the environment.
        """
        if spec.engine != "native":
            raise ValueError(f"agent {self.algorithm!r} needs the engine 'native', got {spec.engine!r}")
        if self.fitness == "fair_power" and spec.distribution.has_finite_flows:
            raise ValueError(
                "agent.fitness=fair_power needs endless flows, but the scenario has flows with size_bytes or a "
                "workload: use agent.fitness=reward"
            )

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> SearchConfig:
        """Make one from plain types, as conf/agent has them, refusing unknown keys."""
        check_keys(f"agent {plain.get('algorithm')!r}", plain, [f.name for f in dataclasses.fields(cls)])
        return cls(**plain)
