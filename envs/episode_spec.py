"""What an environment is made of, for all its forms: scenario, observation, action, reward, step and engine."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, TypeVar

import numpy as np

from bbrgym.checks import check_keys, check_name, check_number, explains_fields
from bbrgym.envs.action import Action
from bbrgym.envs.distribution import Distribution
from bbrgym.envs.engine import DEFAULT_ENGINE, ENGINES, Engine, make_engine, whole_nanoseconds
from bbrgym.envs.engine_batch import EngineBatch, make_engine_batch
from bbrgym.envs.observation import Observation
from bbrgym.envs.reward import Reward
from bbrgym.envs.scenario import Flow, Scenario

AnyScenario = Scenario | Distribution | Mapping[str, Any] | str
"""A scenario, a distribution over scenarios, the plain mapping of either, or a name (`bbrgym.envs.named`)."""

Part = TypeVar("Part", Observation, Action, Reward)


@explains_fields
@dataclass(frozen=True)
class EpisodeSpec:
    """Everything that an environment is made of; all forms of the environment take these arguments.

    Args:
        scenario: what is simulated: a `Scenario`, a `Distribution` from which every reset draws, the plain mapping of
            either, or a name (`bbrgym.envs.named`). It has at least one flow whose algorithm is `agent`.
        observation: what an agent flow observes: an `Observation`, or the plain mapping of its arguments.
        action: how its actions become gains: an `Action`, or the plain mapping of its arguments.
        reward: what it is rewarded for: a `Reward`, or the plain mapping of its arguments.
        step_ms: length of a step, in ms.
        step_rtts: instead, with `step_ms=None`: length of a step in base RTTs of the agent flow with the longest.
        engine: an engine's name ("native", or "ns3", the reference, hundreds of times slower), or a callable that makes
            one. Engines are started by the first reset.
        engine_options: arguments for making the engine.

    Raises:
        ValueError: naming the bad value and the good ones.
    """

    scenario: AnyScenario
    observation: Observation = field(default_factory=Observation)
    action: Action = field(default_factory=Action)
    reward: Reward = field(default_factory=Reward)
    step_ms: float | None = 100.0
    step_rtts: float | None = None
    engine: str | Callable[..., Engine] = field(default=DEFAULT_ENGINE, hash=False)
    engine_options: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "scenario", Distribution.of(self.scenario))
        for name, cls in (("observation", Observation), ("action", Action), ("reward", Reward)):
            object.__setattr__(self, name, _part(cls, name, getattr(self, name)))
        if not isinstance(self.engine_options, Mapping):
            raise ValueError(f"engine_options must be a mapping, got {self.engine_options!r}")
        object.__setattr__(self, "engine_options", dict(self.engine_options))
        if self.distribution.agents == 0:
            algorithms = ", ".join(flow.algorithm for flow in self.distribution.example.flows)
            raise ValueError(f"the scenario must have a flow with algorithm 'agent', got: {algorithms}")
        if (self.step_ms is None) == (self.step_rtts is None):
            raise ValueError(
                f"give one of step_ms and step_rtts, and null (None) for the other, got step_ms={self.step_ms!r} and "
                f"step_rtts={self.step_rtts!r}"
            )
        check_number("step_ms", self.step_ms, above=0, or_none=True)
        check_number("step_rtts", self.step_rtts, above=0, or_none=True)
        if isinstance(self.engine, str):
            check_name("engine", self.engine, ENGINES)
        elif not callable(self.engine):
            raise ValueError(f"engine must be a name or a callable that makes an engine, got {self.engine!r}")

    @property
    def distribution(self) -> Distribution:
        """The scenario as a distribution."""
        assert isinstance(self.scenario, Distribution)  # __post_init__ made it one
        return self.scenario

    @property
    def agents(self) -> int:
        """Number of agent flows, the same in every episode."""
        return self.distribution.agents

    def interval_ms(self, scenario: Scenario) -> float:
        """Return the length of a step in one of the scenarios, in ms."""
        if self.step_ms is not None:
            return self.step_ms
        assert self.step_rtts is not None  # one of the two is given
        return self.step_rtts * max(scenario.flows[flow].rtt_ms for flow in scenario.agent_flows)

    @property
    def max_episode_steps(self) -> int | None:
        """How many steps `duration_s` has, after which an episode ends at the latest; None if draws differ in it."""
        distribution = self.distribution
        if distribution.duration_s is None or (self.step_ms is None and distribution.is_drawn):
            return None
        step_ms = self.interval_ms(distribution.example) if self.step_ms is None else self.step_ms
        return count_steps(distribution.duration_s, step_ms)

    def sample(self, rng: np.random.Generator) -> Scenario:
        """Draw the scenario of an episode, with the model that the actions scale in its agent flows."""
        return self.action.on(self.distribution.sample(rng))

    def draw(self, rng: np.random.Generator, distribution: Distribution | None = None) -> tuple[Scenario, int]:
        """Draw an episode: its scenario, then its engine's seed. The order is part of what a seed means.

        Args:
            rng: draws both.
            distribution: of the scenario; None is the environment's own.
        """
        drawn = self.distribution if distribution is None else distribution
        return self.action.on(drawn.sample(rng)), int(rng.integers(1, 2**31))

    def make_engine(self) -> Engine:
        """Make an engine; the caller closes it."""
        if isinstance(self.engine, str):
            return make_engine(self.engine, **self.engine_options)
        return self.engine(**self.engine_options)

    def make_engine_batch(self, count: int) -> EngineBatch:
        """Make `count` engines that work at once; the caller closes them."""
        return make_engine_batch(self.engine, count, self.distribution.max_flows, self.engine_options)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> EpisodeSpec:
        """Make a specification of plain types, as conf/ composes them.

        Args:
            config: `scenario`, and optionally `observation`, `action`, `reward` (their constructors' arguments), `env`
                (`step_ms`, `step_rtts`) and `engine` (`name` and its options). Other keys are ignored.

        Raises:
            ValueError: a missing scenario, an unknown key or a bad value.
        """
        if config.get("scenario") is None:
            raise ValueError("the configuration has no 'scenario'")
        engine = _group(config, "engine")
        return cls(
            scenario=Distribution.of(config["scenario"]),
            observation=_part(Observation, "observation", config.get("observation")),
            action=_part(Action, "action", config.get("action")),
            reward=_part(Reward, "reward", config.get("reward")),
            engine=engine.pop("name", DEFAULT_ENGINE),
            engine_options=engine,
            **_group(config, "env", ("step_ms", "step_rtts")),
        )

    def to_config(self) -> dict[str, Any]:
        """Return plain types for JSON and YAML, of which `from_config` makes an equal specification.

        Raises:
            ValueError: the engine is a callable, which has no name.
        """
        if not isinstance(self.engine, str):
            raise ValueError(f"engine must be a name to have a configuration, got {self.engine!r}")
        return {
            "scenario": to_plain(self.scenario),
            **self.policy_config(),
            "reward": to_plain(self.reward),
            "engine": {"name": self.engine, **self.engine_options},
        }

    def policy_config(self) -> dict[str, Any]:
        """Return what `to_config` has of a policy: what it observes, what its actions are, and how often it acts."""
        return {
            "observation": to_plain(self.observation),
            "action": to_plain(self.action),
            "env": {"step_ms": self.step_ms, "step_rtts": self.step_rtts},
        }

    def arguments(self) -> dict[str, Any]:
        """Return the arguments that make an equal specification."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


def check_spec(spec: object) -> EpisodeSpec:
    """Return an `EpisodeSpec`.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(spec, EpisodeSpec):
        raise ValueError(f"spec must be an EpisodeSpec, as EpisodeSpec('duel'), got {spec!r}")
    return spec


def to_plain(value: Any) -> Any:
    """Return an argument of an environment in plain types for JSON and YAML, if it has such a form.

    Scenarios, distributions and parts of an `EpisodeSpec` become mappings, NumPy's numbers and arrays Python's. The
    environment that is made of the result is equal.
    """
    if isinstance(value, Scenario | Distribution | Flow):
        return to_plain(value.to_dict())
    if isinstance(value, Observation | Action | Reward):
        return to_plain(dataclasses.asdict(value))
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: to_plain(entry) for key, entry in value.items()}
    return [to_plain(entry) for entry in value] if isinstance(value, list | tuple) else value


def count_steps(duration_s: float, step_ms: float) -> int:
    """Return how many steps a duration has, in s; the last one may be shorter than the others."""
    return -(-round(duration_s * 1e9) // whole_nanoseconds(step_ms))


def _group(config: Mapping[str, Any], name: str, known: Iterable[str] | None = None) -> dict[str, Any]:
    """Return a group of the configuration; {} if it is missing."""
    given = config.get(name)
    if given is None:
        return {}
    check_keys(name, given, given if known is None and isinstance(given, Mapping) else known or ())
    return dict(given)


def _part(cls: type[Part], name: str, given: Part | Mapping[str, Any] | None) -> Part:
    """Return a part of a specification, which is given as itself or as its arguments; None has the defaults."""
    if isinstance(given, cls):
        return given
    if callable(given):
        raise ValueError(
            f"{name}: a Python callable is for a single environment only, as gymnasium.make makes it; others take "
            "terms by name (docs/rewards.md)"
        )
    arguments = _group({name: given}, name, [field.name for field in fields(cls)])
    return cls(**arguments)
