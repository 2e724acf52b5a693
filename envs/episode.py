"""The one core of every form of environment: a specification, and the episodes that it gives."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import gymnasium
import numpy as np
import numpy.typing as npt

from bbrgym.envs.action import Action
from bbrgym.envs.columns import FLOW_COLUMNS
from bbrgym.envs.distribution import Distribution
from bbrgym.envs.engine import ENGINES, Engine, EngineError, Rows, make_engine
from bbrgym.envs.observation import Observation, Observer
from bbrgym.envs.reward import Reward, Rewarder
from bbrgym.envs.scenario import Scenario
from bbrgym.envs.trace import Policy

if TYPE_CHECKING:
    from bbrgym.envs.bottleneck import BottleneckEnv
    from bbrgym.envs.sb3 import BottleneckVecEnv

AnyScenario = Scenario | Distribution | Mapping[str, Any]
"""A scenario, a distribution over scenarios, or the plain mapping of either."""

Info = dict[str, Any]

Part = TypeVar("Part", Observation, Action, Reward)


@dataclass(frozen=True)
class EpisodeSpec:
    """Everything that an environment is made of.

    Args:
        scenario: what is simulated; a distribution is drawn from in every reset.
        observation: what an agent flow sees.
        action: how its actions become gains.
        reward: what it is rewarded for.
        step_ms: length of a step, in ms.
        step_rtts: instead of `step_ms`: length of a step in base RTTs of the agent flow with the longest.
        engine: an engine's name, or a callable that makes one.
        engine_options: arguments for making it.

    Raises:
        ValueError: naming the bad value and the good ones.
    """

    scenario: AnyScenario
    observation: Observation = field(default_factory=Observation)
    action: Action = field(default_factory=Action)
    reward: Reward = field(default_factory=Reward)
    step_ms: float | None = 100.0
    step_rtts: float | None = None
    engine: str | Callable[..., Engine] = "ns3"
    engine_options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "scenario", Distribution.of(self.scenario))
        object.__setattr__(self, "engine_options", MappingProxyType(dict(self.engine_options)))
        if self.distribution.agents == 0:
            algorithms = ", ".join(flow.algorithm for flow in self.distribution.example.flows)
            raise ValueError(f"the scenario has no flow with the algorithm 'agent' to learn for, only: {algorithms}")
        if (self.step_ms is None) == (self.step_rtts is None):
            raise ValueError(
                f"step_ms={self.step_ms!r} and step_rtts={self.step_rtts!r}: give one, and null (None) for the other"
            )
        if isinstance(self.engine, str) and self.engine not in ENGINES:
            raise ValueError(f"no engine {self.engine!r}; known: {', '.join(ENGINES)}")
        for name in ("step_ms", "step_rtts"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and 0 < value < math.inf):
                raise ValueError(f"{name}={value!r} is not possible: {name} must be a number above 0")

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
        """Length of a step in one of the scenarios, in ms."""
        if self.step_ms is not None:
            return self.step_ms
        assert self.step_rtts is not None  # one of the two is given
        return self.step_rtts * max(scenario.flows[flow].rtt_ms for flow in scenario.agent_flows)

    def make_engine(self) -> Engine:
        """A new engine; the caller closes it."""
        if isinstance(self.engine, str):
            return make_engine(self.engine, **self.engine_options)
        return self.engine(**self.engine_options)

    def make_env(self, render_mode: str | None = None) -> BottleneckEnv:
        """The Gymnasium environment of one agent flow."""
        from bbrgym.envs.bottleneck import BottleneckEnv

        return BottleneckEnv(**self._fields(), render_mode=render_mode)

    def make_vec_env(self, n: int = 1) -> BottleneckVecEnv:
        """The Stable-Baselines3 VecEnv with `n` engines, in which every agent flow is one of the environments."""
        from bbrgym.envs.sb3 import BottleneckVecEnv

        return BottleneckVecEnv(self, n)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> EpisodeSpec:
        """From plain types, as conf/ composes them.

        Args:
            config: `scenario`, and optionally `observation`, `action`, `reward` (their constructors' arguments), `env`
                (`step_ms`, `step_rtts`), `engine` (`name` and its options). Other keys are for others.

        Raises:
            ValueError: a missing scenario, an unknown key, or a value that the parts refuse.
        """
        if config.get("scenario") is None:
            raise ValueError("the configuration has no 'scenario'")
        engine = dict(_arguments("engine", config))
        name = engine.pop("name", "ns3")
        return cls(
            scenario=Distribution.from_dict(config["scenario"]),
            observation=_make(Observation, "observation", config),
            action=_make(Action, "action", config),
            reward=_make(Reward, "reward", config),
            engine=name,
            engine_options=engine,
            **_check_keys("env", _arguments("env", config), ("step_ms", "step_rtts")),
        )

    def to_config(self) -> dict[str, Any]:
        """Plain types only, for JSON and YAML; `from_config` makes an equal one.

        Raises:
            ValueError: the engine is a callable, which has no name.
        """
        if not isinstance(self.engine, str):
            raise ValueError(f"engine={self.engine!r} has no configuration; by name there are: {', '.join(ENGINES)}")
        return {
            "scenario": self.distribution.to_dict(),
            "observation": {"features": list(self.observation.features), "history": self.observation.history},
            "action": {"cwnd_gain": list(self.action.cwnd_gain), "pacing_gain": list(self.action.pacing_gain)},
            "reward": {"terms": dict(self.reward.terms)},
            "env": {"step_ms": self.step_ms, "step_rtts": self.step_rtts},
            "engine": {"name": self.engine, **self.engine_options},
        }

    def _fields(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    def __hash__(self) -> int:
        return hash((self.scenario, self.observation, self.action, self.reward, self.step_ms, self.step_rtts))

    def __reduce__(self) -> tuple[Any, ...]:
        # A mapping proxy does not pickle.
        return (_make_spec, (self._fields() | {"engine_options": dict(self.engine_options)},))


@dataclass(frozen=True)
class Outcome:
    """What a step gave the K agent flows, in the order of the scenario's flows.

    Attributes:
        observations: shape (K, length of an observation), float32.
        rewards: shape (K,), float64.
        terminated: every agent flow was finite and has delivered all its bytes.
        truncated: the scenario's duration has passed, or its agent flows have all stopped.
        infos: one a flow, see `Episode`.
    """

    observations: npt.NDArray[np.float32]
    rewards: npt.NDArray[np.float64]
    terminated: bool
    truncated: bool
    infos: list[Info]

    @property
    def is_over(self) -> bool:
        """The episode ended with this step, in either way."""
        return self.terminated or self.truncated


class Episode:
    """The episodes of one engine, one after the other, for all agent flows of a scenario at once.

    Requests are begun and finished apart, so that one thread keeps many engines busy. While a flow is not active (it
    has not started, or has ended) its observation is the neutral one, its reward 0, and its actions have no effect.

    An info has `flow` and `link` (the raw rows, {column: value}, without the columns that have no value), `flow_index`
    (in the scenario), `time_s`, `scenario` (the `Scenario` that was drawn) and `seed` (the engine's).

    Args:
        spec: what it is made of. The engine is made with the first reset.
    """

    def __init__(self, spec: EpisodeSpec) -> None:
        self.spec = spec
        self._engine: Engine | None = None
        self._running: _Running | None = None
        self._pending: Callable[[], Rows] | None = None

    def begin_reset(self, rng: np.random.Generator, options: Mapping[str, Any] | None = None) -> None:
        """Ask for a new episode; a running one is abandoned.

        Args:
            rng: gives the scenario and the engine's seed; nothing else decides what happens.
            options: `{"scenario": …}` to simulate this one instead of a draw, in this episode.

        Raises:
            ValueError: an unknown option, or a scenario with another number of agent flows.
        """
        drawn = self.spec.distribution
        for name, value in (options or {}).items():
            if name != "scenario":
                raise ValueError(f"no reset option {name!r}; known: scenario")
            drawn = Distribution.of(value)
            if drawn.agents != self.spec.agents:
                raise ValueError(
                    f"options['scenario'] has {drawn.agents} agent flows: this environment is for {self.spec.agents}"
                )
        self.abandon()
        self._drain()
        if self._engine is None:
            self._engine = self.spec.make_engine()
        # The order is part of what a seed means.
        running = _Running(self.spec, drawn.sample(rng), int(rng.integers(1, 2**31)))
        self._engine.begin_reset(running.scenario, running.seed)
        self._running = running
        self._pending = self._engine.finish_reset

    def finish_reset(self) -> tuple[npt.NDArray[np.float32], list[Info]]:
        """Wait for it; the observations, shape (K, length of an observation), and infos at time 0."""
        rows = self._finish()
        assert self._running is not None  # _finish leaves it so
        return self._running.observe(rows), self._running.infos(rows)

    def begin_step(self, actions: npt.ArrayLike) -> None:
        """Ask for a step.

        Args:
            actions: shape (K, 2).

        Raises:
            gymnasium.error.ResetNeeded: no episode is running: there was no reset, the last step ended it, or failed.
            ValueError: an action that is not possible.
        """
        if self._pending is not None and self._running is not None:
            raise RuntimeError("a reset or a step is not finished")
        if self._running is None or self._running.is_over or self._engine is None:
            raise gymnasium.error.ResetNeeded("no episode is running: call reset before step")
        running = self._running
        running.gains = running.choose(actions)
        try:
            for flow, gains in zip(running.flows, running.gains, strict=True):
                self._engine.steer(flow, *gains)
            self._engine.begin_step(running.interval_ms)
        except EngineError:
            self._running = None
            raise
        self._pending = self._engine.finish_step

    def finish_step(self) -> Outcome:
        """Wait for it.

        Raises:
            EngineError: the engine failed; the episode is lost, and `begin_reset` begins afresh.
        """
        rows = self._finish()
        assert self._running is not None  # _finish leaves it so
        return self._running.outcome(rows)

    def abandon(self) -> None:
        """Give the running episode up, whatever is asked for and not finished; a reset must come next."""
        self._running = None

    def close(self) -> None:
        """End the engine; calling it twice is fine."""
        self._running = self._pending = None
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def _finish(self) -> Rows:
        if self._pending is None or self._running is None:
            raise RuntimeError("nothing to finish: begin a reset or a step before")
        pending, self._pending = self._pending, None
        try:
            return pending()
        except BaseException:
            self._running = None  # never go on with an episode that missed a step
            raise

    def _drain(self) -> None:
        """Take the answer that an abandoned episode left: the engine does not hear a new request before."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            with contextlib.suppress(EngineError):  # the reset that follows starts the engine afresh
                pending()


class _Running:
    """The state of one episode."""

    def __init__(self, spec: EpisodeSpec, scenario: Scenario, seed: int) -> None:
        self.scenario = scenario
        self.seed = seed
        self.flows = scenario.agent_flows
        self.interval_ms = spec.interval_ms(scenario)
        self.is_over = False
        self._action = spec.action
        self._observers = [spec.observation.observer(scenario, flow) for flow in self.flows]
        self._rewarders: list[Rewarder] = [spec.reward.rewarder(scenario, flow) for flow in self.flows]
        self._received_bytes = dict.fromkeys(self.flows, 0.0)
        self.gains = first_gains(self._observers)

    def choose(self, actions: npt.ArrayLike) -> list[tuple[float, float]]:
        given = np.asarray(actions, dtype=np.float64)
        if given.shape != (len(self.flows), 2):
            raise ValueError(f"actions of shape {given.shape} are not possible: they must be ({len(self.flows)}, 2)")
        return [self._action.gains(action) for action in given]

    def observe(self, rows: Rows) -> npt.NDArray[np.float32]:
        return observe(self._observers, rows, self.gains)

    def outcome(self, rows: Rows) -> Outcome:
        terminated, have_ended = self._endings(rows)
        self.is_over = rows.is_over or have_ended
        return Outcome(
            observations=self.observe(rows),
            rewards=np.array([rewarder.reward(rows) for rewarder in self._rewarders]),
            terminated=terminated,
            truncated=self.is_over and not terminated,
            infos=self.infos(rows),
        )

    def infos(self, rows: Rows) -> list[Info]:
        return [
            {
                "flow": _present(rows.flow(flow)),
                "link": _present(rows.link_row()),
                "flow_index": flow,
                "time_s": rows.time_s,
                "scenario": self.scenario,
                "seed": self.seed,
            }
            for flow in self.flows
        ]

    def _endings(self, rows: Rows) -> tuple[bool, bool]:
        """Whether every agent flow is complete; whether every one is complete or stopped."""
        complete, ended = 0, 0
        for flow in self.flows:
            described = self.scenario.flows[flow]
            self._received_bytes[flow] += rows.flows[flow, _RECEIVED]
            is_complete = (
                described.size_bytes is not None
                and self._received_bytes[flow] >= described.size_bytes
                and not rows.flows[flow, _IS_ACTIVE]
            )
            is_stopped = described.stop_s is not None and rows.time_s >= described.stop_s
            complete += is_complete
            ended += is_complete or is_stopped
        return complete == len(self.flows) or rows.is_complete, ended == len(self.flows)


def policy_of(
    predict: Callable[[npt.NDArray[np.float32]], npt.NDArray[Any]],
    observation: Observation,
    action: Action,
    scenario: Scenario,
) -> Policy:
    """An agent as the driver of `simulate`, with exactly the observations and gains of the environment.

    Args:
        predict: from observations (K, length of an observation) to actions (K, 2), for all agent flows in their order;
            called once a step, so it may keep a state a flow.
        observation: with which the agent was trained.
        action: with which the agent was trained.
        scenario: that will be simulated, with steps of `EpisodeSpec.interval_ms(scenario)`.

    Returns:
        The policy, for one run.
    """
    flows = scenario.agent_flows
    observers = [observation.observer(scenario, flow) for flow in flows]
    gains = first_gains(observers)
    last: Rows | None = None

    def policy(flow: int, rows: Rows) -> tuple[float, float]:
        nonlocal gains, last
        if rows is not last:  # the first flow that is asked for in this step
            if last is not None and rows.time_s <= last.time_s:
                raise ValueError("a policy drives one run: make another with policy_of for the next one")
            gains = [action.gains(chosen) for chosen in predict(observe(observers, rows, gains))]
            last = rows
        return gains[flows.index(flow)]

    return policy


def first_gains(observers: Sequence[Observer]) -> list[tuple[float, float]]:
    """The gains in force before the first action."""
    return [observer.first_gains for observer in observers]


def observe(observers: Sequence[Observer], rows: Rows, gains: Sequence[tuple[float, float]]) -> npt.NDArray[np.float32]:
    """The observations of all agent flows, shape (K, length of an observation)."""
    return np.stack([observer.observe(rows, chosen) for observer, chosen in zip(observers, gains, strict=True)])


_RECEIVED, _IS_ACTIVE = map(FLOW_COLUMNS.index, ("received_bytes", "is_active"))


def _present(row: dict[str, float]) -> dict[str, float]:
    # NaN is equal to nothing, not to itself either: with it, no two infos of the same trajectory would be equal.
    return {column: value for column, value in row.items() if value == value}


def _make_spec(arguments: dict[str, Any]) -> EpisodeSpec:
    return EpisodeSpec(**arguments)


def _arguments(group: str, config: Mapping[str, Any]) -> Mapping[str, Any]:
    given = config.get(group)
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ValueError(f"{group}={given!r} is not possible: {group} must be a mapping")
    return given


def _check_keys(group: str, given: Mapping[str, Any], known: Sequence[str]) -> dict[str, Any]:
    for key in given:
        if key not in known:
            raise ValueError(f"{group} has no key {key!r}; known: {', '.join(known)}")
    return dict(given)


def _make(cls: type[Part], group: str, config: Mapping[str, Any]) -> Part:
    known = [f.name for f in dataclasses.fields(cls)]
    return cls(**_check_keys(group, _arguments(group, config), known))
