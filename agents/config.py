"""What a training is configured with, checked before torch is loaded or anything is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from bbrgym.baselines.policy_file import ACTIVATIONS
from bbrgym.checks import check_integer, check_name, check_number, is_number, keep_integers
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.envs.sharing import check_measured
from bbrgym.executors import ExecutorConfig

ALGORITHMS: Final[dict[str, tuple[str, ...]]] = {
    "ppo": ("torch",),
    "sac": ("torch", "stable_baselines3"),
    "cma": ("cma",),
    "distil": ("torch",),
}
"""The learning algorithms by the names of conf/agent, and the packages that they need."""

FITNESSES: Final = ("fair_power", "held_power", "reward")
"""What the outcome of an episode can be measured by."""

YARDSTICKS: Final = ("constants",)
"""What fitness can be measured in relation to: the best of a grid of constant actions in each scenario."""

MOST: Final = 1e6
"""Largest setting that scales weights or actions. Those of float32 end at 1e38."""

TUNED: Final = ("last", "skip", "layers", "gates", "biases", "added", "all")
"""What a search can tune of a policy; `bbrgym.agents.searched_weights` says what each is."""

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


@dataclass(frozen=True)
class PPOConfig:
    """Proximal policy optimisation; conf/agent/ppo.yaml explains the fields.

    Raises:
        ValueError: naming the bad value and the good ones.
    """

    algorithm: str = "ppo"
    n_steps: int = 256
    batch_size: int = 8192
    n_epochs: int = 4
    learning_rate: float = 0.003
    gamma: float = 0.97
    gae_lambda: float = 0.95
    clip_range: float = 0.2
    target_kl: float | None = 0.03
    max_grad_norm: float = 0.5
    std: float = 0.15
    net_arch: tuple[int, ...] = (32, 32)
    critic_arch: tuple[int, ...] = (32, 32)
    activation_fn: str = "tanh"
    units: int = 0
    has_skip: bool = False
    tunes: str | None = None

    def __post_init__(self) -> None:
        check_name("learning algorithm", self.algorithm, ("ppo",))
        keep_integers(self, "n_steps", "batch_size", "n_epochs", prefix="agent.", at_least=1)
        keep_integers(self, "units", prefix="agent.", at_least=0)
        check_number("agent.learning_rate", self.learning_rate, above=0, at_most=MOST)
        check_number("agent.max_grad_norm", self.max_grad_norm, above=0)
        for name in ("clip_range", "std"):
            check_number(f"agent.{name}", getattr(self, name), at_least=1 / MOST, at_most=MOST)
        check_number("agent.target_kl", self.target_kl, above=0, or_none=True)
        check_number("agent.gamma", self.gamma, at_least=0, below=1)
        check_number("agent.gae_lambda", self.gae_lambda, at_least=0, at_most=1)
        _check_networks(self, "net_arch", "critic_arch")
        _check_skip(self.has_skip)


@dataclass(frozen=True, kw_only=True)
class FitnessConfig:
    """What the outcome of episodes is worth; conf/agent/cma.yaml explains the fields.

    Raises:
        ValueError: naming the bad value and the good ones.
    """

    fitness: str = "fair_power"
    warmup: float = 0.4
    relative_to: str | None = None
    tail: float = 0.1
    tail_weight: float = 0.0
    constants: int = 16
    action_range: tuple[float, float] | None = None
    pacing_gain: float = 1.1
    executor: str | Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        check_name("agent.fitness", self.fitness, FITNESSES)
        check_number("agent.warmup", self.warmup, at_least=0, below=1)
        check_number("agent.tail", self.tail, above=0, at_most=1)
        check_number("agent.tail_weight", self.tail_weight, at_least=0, at_most=MOST)
        if self.relative_to is not None:
            check_name("agent.relative_to", self.relative_to, YARDSTICKS)
            if self.fitness == "reward":
                good = ", ".join(name for name in FITNESSES if name != "reward")
                raise ValueError(f"agent.relative_to needs a fitness that is never below 0: {good}")
        keep_integers(self, "constants", prefix="agent.", at_least=2)
        if self.action_range is not None:
            object.__setattr__(self, "action_range", _range("agent.action_range", self.action_range))
        check_number("agent.pacing_gain", self.pacing_gain, above=0)
        if self.executor is not None:
            ExecutorConfig.of(self.executor)

    def check_measures(self, spec: EpisodeSpec, algorithm: str) -> None:
        """Check that episodes of an environment can be measured so.

        Raises:
            ValueError: the fitness needs something else of the environment.
        """
        if spec.engine != "native":
            raise ValueError(f"agent {algorithm!r} needs the engine 'native', got {spec.engine!r}")
        if self.fitness != "reward" and spec.distribution.has_finite_flows:
            raise ValueError(
                f"agent.fitness={self.fitness} needs endless flows, but the scenario has flows with size_bytes or a "
                "workload: use agent.fitness=reward"
            )
        if self.fitness != "reward" and not spec.distribution.is_drawn:
            check_measured(spec.distribution.example, self.warmup)

    def check_constants(self, spec: EpisodeSpec) -> None:
        """Check that the grid of constants consists of actions of an environment.

        Raises:
            ValueError: it does not.
        """
        low, high = spec.action.pacing_gain
        check_number("agent.pacing_gain", self.pacing_gain, at_least=low, at_most=high)


@dataclass(frozen=True)
class SearchConfig(FitnessConfig):
    """A search in the weights of a policy; conf/agent/cma.yaml explains the fields.

    Raises:
        ValueError: naming the bad value and the good ones.
    """

    algorithm: str = "cma"
    population: int = 20
    sigma: float = 0.5
    scenarios: int = 16
    bank: int = 1200
    net_arch: tuple[int, ...] = ()
    activation_fn: str = "tanh"
    init_std: float = 0.5
    diagonal_above: int = 150
    tunes: str | None = None
    tuned: tuple[str, ...] = ("last", "skip")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name("search algorithm", self.algorithm, ("cma",))
        keep_integers(self, "population", prefix="agent.", at_least=4)
        keep_integers(self, "scenarios", "bank", prefix="agent.", at_least=1)
        keep_integers(self, "diagonal_above", prefix="agent.", at_least=0)
        check_number("agent.sigma", self.sigma, at_least=1 / MOST, at_most=MOST)
        check_number("agent.init_std", self.init_std, at_least=0, at_most=MOST)
        _check_networks(self, "net_arch")
        if self.relative_to is not None and self.bank < self.scenarios:
            raise ValueError(f"agent.bank must be >= agent.scenarios={self.scenarios}, got {self.bank}")
        if not isinstance(self.tuned, list | tuple) or not self.tuned:
            raise ValueError(f"agent.tuned must be a list of {', '.join(TUNED)}, got {self.tuned!r}")
        for name in self.tuned:
            check_name("agent.tuned", name, TUNED)
        object.__setattr__(self, "tuned", tuple(self.tuned))

    def check_fits(self, spec: EpisodeSpec) -> None:
        """Check that the search can be run in an environment.

        Raises:
            ValueError: it needs something else of the environment.
        """
        self.check_measures(spec, self.algorithm)
        if self.relative_to is not None:
            self.check_constants(spec)


@dataclass(frozen=True)
class DistilConfig(FitnessConfig):
    """A student of a teacher that is a search; conf/agent/distil.yaml explains the fields.

    Raises:
        ValueError: naming the bad value and the good ones.
    """

    algorithm: str = "distil"
    scenarios: int = 1200
    units: int = 32
    has_skip: bool = True
    rounds: int = 3
    improvements: int = 4
    epochs: int = 6
    batch_size: int = 64
    learning_rate: float = 0.003
    max_grad_norm: float = 1.0
    noise: float = 0.08
    windows: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        check_name("learning algorithm", self.algorithm, ("distil",))
        positive = ("scenarios", "units", "rounds", "epochs", "batch_size", "windows")
        keep_integers(self, *positive, prefix="agent.", at_least=1)
        keep_integers(self, "improvements", prefix="agent.", at_least=0)
        check_number("agent.learning_rate", self.learning_rate, above=0, at_most=MOST)
        check_number("agent.max_grad_norm", self.max_grad_norm, above=0)
        check_number("agent.noise", self.noise, at_least=0, at_most=1)
        _check_skip(self.has_skip)

    def check_fits(self, spec: EpisodeSpec) -> None:
        """Check that the student can learn in an environment.

        Raises:
            ValueError: it needs something else of the environment.
        """
        self.check_measures(spec, self.algorithm)
        self.check_constants(spec)


CURRICULUM_AGENTS: Final = ("ppo", "cma")
"""The learning algorithms that draw their scenarios anew all the time, so that a curriculum can add some."""


@dataclass(frozen=True)
class CurriculumConfig:
    """Paths on which the agent fails, in its training; conf/curriculum/break.yaml explains the fields.

    Raises:
        ValueError: naming the bad value and the good ones.
    """

    every: int
    candidates: int = 48
    share: float = 0.5
    most: int = 32
    regret: float = 0.1
    forgetting: float = 0.7
    space: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        keep_integers(self, "every", "candidates", "most", prefix="curriculum.", at_least=1)
        check_number("curriculum.share", self.share, above=0, at_most=1)
        check_number("curriculum.regret", self.regret, above=0, below=1)
        check_number("curriculum.forgetting", self.forgetting, at_least=0, below=1)
        if not isinstance(self.space, Mapping | None):
            raise ValueError(f"curriculum.space must be a mapping of lines of the box of paths, got {self.space!r}")

    def check_fits(self, spec: EpisodeSpec, algorithm: str) -> None:
        """Check that a training can have it.

        Raises:
            ValueError: it needs another learner or engine.
        """
        check_name("agent of a training with a curriculum", algorithm, CURRICULUM_AGENTS)
        if spec.engine != "native":
            raise ValueError(f"curriculum=break needs the engine 'native', got {spec.engine!r}")


def _range(name: str, given: Any) -> tuple[float, float]:
    """Return two rising numbers in [-1, 1].

    Raises:
        ValueError: they are none.
    """
    is_pair = isinstance(given, list | tuple) and len(given) == 2 and all(map(is_number, given))
    if not is_pair or not -1.0 <= given[0] < given[1] <= 1.0:
        raise ValueError(f"{name} must be two rising numbers in [-1, 1], got {given!r}")
    return float(given[0]), float(given[1])


def _check_skip(given: Any) -> None:
    if not isinstance(given, bool):
        raise ValueError(f"agent.has_skip must be true or false, got {given!r}")


def _check_networks(config: PPOConfig | SearchConfig, *names: str) -> None:
    """Check the activation, and make the layer sizes of these names tuples."""
    check_name("agent.activation_fn", config.activation_fn, ACTIVATIONS)
    for name in names:
        given = getattr(config, name)
        if not isinstance(given, list | tuple):
            raise ValueError(f"agent.{name} must be a list of layer sizes, like [32, 32], got {given!r}")
        sizes = tuple(check_integer(f"each of agent.{name}", size, at_least=1) for size in given)
        object.__setattr__(config, name, sizes)
