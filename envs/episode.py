"""The one core of every form of environment: a specification, and the episodes that it gives."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import gymnasium
import numpy as np
import numpy.typing as npt

from bbrgym.checks import check_name
from bbrgym.envs.action import Action
from bbrgym.envs.columns import FLOW_COLUMNS
from bbrgym.envs.distribution import Distribution
from bbrgym.envs.engine import ENGINES, Engine, Rows, make_engine
from bbrgym.envs.engine_batch import EngineBatch, make_engine_batch
from bbrgym.envs.info import Record
from bbrgym.envs.observation import History, Observation, first_gains, tabulate
from bbrgym.envs.privileged import Privileged
from bbrgym.envs.reward import Conditions, Reward, Step
from bbrgym.envs.scenario import Scenario
from bbrgym.envs.trace import Policy

if TYPE_CHECKING:
    from bbrgym.envs.gym_env import BottleneckEnv
    from bbrgym.envs.pettingzoo_env import BottleneckParallelEnv
    from bbrgym.envs.sb3_env import BottleneckVecEnv

AnyScenario = Scenario | Distribution | Mapping[str, Any]
"""A scenario, a distribution over scenarios, or the plain mapping of either."""

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
        engine: an engine's name, or a callable that makes one. `native` simulates many at once in this process; any
            other is made once for each.
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
        if isinstance(self.engine, str):
            check_name("engine", self.engine, ENGINES)
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

    def make_engine_batch(self, count: int) -> EngineBatch:
        """Make `count` engines that work at once; the caller closes them."""
        return make_engine_batch(self.engine, count, self.distribution.max_flows, self.engine_options)

    def make_env(self, render_mode: str | None = None) -> BottleneckEnv:
        """The Gymnasium environment of one agent flow."""
        from bbrgym.envs.gym_env import BottleneckEnv

        return BottleneckEnv(**self._fields(), render_mode=render_mode)

    def make_vec_env(self, n: int = 1, critic_features: Sequence[str] = ()) -> BottleneckVecEnv:
        """The Stable-Baselines3 VecEnv with `n` engines, in which every agent flow is one of the environments.

        Args:
            n: how many engines.
            critic_features: of `bbrgym.envs.privileged.PRIVILEGED`, behind each observation, for a critic in training.

        Raises:
            ValueError: no engine, or a feature that does not exist.
        """
        from bbrgym.envs.sb3_env import BottleneckVecEnv

        return BottleneckVecEnv(self, n, Privileged(tuple(critic_features)) if critic_features else None)

    def make_parallel_env(self, render_mode: str | None = None) -> BottleneckParallelEnv:
        """The PettingZoo environment in which every agent flow is an agent while it is there.

        Raises:
            ModuleNotFoundError: PettingZoo is not installed; the message says what to do.
        """
        from bbrgym.envs.pettingzoo_env import BottleneckParallelEnv

        return BottleneckParallelEnv(self, render_mode)

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
            "action": {
                "cwnd_gain": list(self.action.cwnd_gain),
                "pacing_gain": list(self.action.pacing_gain),
                "cwnd_scale": self.action.cwnd_scale,
            },
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


class Outcome(NamedTuple):
    """What a step gave the M = N x K agent flows of N engines, those of an engine together.

    Attributes:
        observations: shape (M, length of an observation), float32.
        rewards: shape (M,), float64.
        terminated: shape (N,): every agent flow was finite and has delivered all its bytes.
        truncated: shape (N,): the scenario's duration has passed, or its agent flows have all stopped.
        record: gives the infos.
    """

    observations: npt.NDArray[np.float32]
    rewards: npt.NDArray[np.float64]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    record: Record


class Episodes:
    """The episodes of N engines, one after the other in each, for all K agent flows of their scenarios at once.

    Arrays have a row for each of the M = N x K flows, those of an engine together and in the order of its scenario's
    flows. Requests are begun and finished apart, so that all engines work at once. While a flow is not active (it has
    not started, or has ended) its observation is the neutral one, its reward 0, and its actions have no effect but on
    the last packets of a sender that is being stopped.

    Args:
        spec: what they are made of. An engine is made with its first reset.
        count: how many engines.
        controller: drives the agent flows in the place of agents, whose actions then have no effect; everything else,
            rewards too, is as with agents.
    """

    def __init__(self, spec: EpisodeSpec, count: int, controller: str | None = None) -> None:
        self.spec = spec
        self.count = count
        self._controller = controller
        self.is_running = np.zeros(count, dtype=np.bool_)
        """In which engines an episode is going on, shape (N,)."""
        self._engines = spec.make_engine_batch(count)
        self._is_outstanding = False
        self._resetting = np.zeros(0, dtype=np.intp)
        rows = count * spec.agents
        self._engine_of = np.arange(count).repeat(spec.agents)
        self._row_of = self._engine_of  # of all flows in all engines
        self._history = History(spec.observation, rows)
        self._gains = np.full((2, rows), math.nan)
        self._flows = np.zeros(rows, dtype=np.int64)
        self._scenarios = np.full(count, None, dtype=object)
        self._seeds = np.zeros(count, dtype=np.int64)
        self._conditions = Conditions(*np.ones((3, rows)))
        self._size_bytes, self._stop_s = np.full((2, rows), math.inf)
        self._can_end = False
        self._received_bytes = np.zeros(rows)
        self._last_agents: _Agents | None = None

    def begin_resets(
        self,
        engines: npt.NDArray[np.intp],
        rngs: Sequence[np.random.Generator],
        options: Sequence[Mapping[str, Any] | None] | None = None,
    ) -> None:
        """Ask for a new episode in some of the engines; a running one is abandoned.

        Args:
            engines: which.
            rngs: one for each of them: it gives the scenario and the engine's seed; nothing else decides what happens.
            options: one for each of them: `{"scenario": …}` to simulate this one instead of a draw, in this episode.

        Raises:
            ValueError: an unknown option, or a scenario with another number of agent flows or that the engine refuses.
            EngineError: an engine failed; all episodes are lost.
        """
        distributions = [self._distribution(given) for given in options or [None] * len(rngs)]
        self._resetting = engines
        self._is_outstanding = True
        self.is_running[engines] = False
        # A record may hold the last ones.
        self._scenarios, self._seeds, self._flows = self._scenarios.copy(), self._seeds.copy(), self._flows.copy()
        scenarios, seeds, steps_ms = [], [], []
        for engine, rng, distribution in zip(engines.tolist(), rngs, distributions, strict=True):
            # The order is part of what a seed means.
            scenario, seed = distribution.sample(rng), int(rng.integers(1, 2**31))
            agents = self._agents(scenario)
            scenarios.append(scenario if self._controller is None else scenario.with_agents_as(self._controller))
            seeds.append(seed)
            steps_ms.append(agents.interval_ms)
            self._scenarios[engine], self._seeds[engine] = scenario, seed
            self._enter(agents, slice(engine * self.spec.agents, (engine + 1) * self.spec.agents))
        self._can_end = bool(min(self._size_bytes.min(), self._stop_s.min()) < math.inf)
        try:
            self._engines.begin_resets(engines.tolist(), scenarios, seeds, steps_ms)
        except BaseException:
            self.abandon()
            raise
        self._row_of = self._engine_of * self._engines.flows.shape[1] + self._flows

    def finish_resets(self) -> npt.NDArray[np.float32]:
        """Wait for them.

        Returns:
            Observations at time 0 in these engines, shape (engines x K, length of an observation).
        """
        self._finish()
        rows = self._rows_in(self._resetting)
        self.is_running[self._resetting] = True
        return self._observe(self._table(rows), rows)

    def begin_step(self, actions: npt.ArrayLike, engines: npt.NDArray[np.intp] | None = None) -> None:
        """Ask for a step.

        Args:
            actions: shape (M, 2).
            engines: which; None is all of them.

        Raises:
            gymnasium.error.ResetNeeded: no episode is running: there was no reset, the last step ended it, or failed.
            ValueError: actions that are not possible.
            EngineError: an engine failed; all episodes are lost.
        """
        gains = self.spec.action.all_gains(actions, self._bdp_packets())
        if gains.shape != self._gains.shape:
            raise ValueError(
                f"{gains.shape[1]} actions are not possible: they must be numbers of shape ({self._gains.shape[1]}, 2)"
            )
        if self._is_outstanding:
            raise RuntimeError("a reset or a step is not finished")
        running = self.is_running if engines is None else self.is_running[engines]
        if np.count_nonzero(running) < len(running):
            raise gymnasium.error.ResetNeeded("no episode is running: call reset before step")
        rows = slice(None) if engines is None else self._rows_in(engines)
        self._gains[:, rows] = gains[:, rows]
        self._resetting = self._resetting[:0]
        self._is_outstanding = True
        try:
            if self._controller is None:
                self._engines.steer(self._engine_of[rows], self._flows[rows], self._gains[:, rows])
            self._engines.begin_step(engines)
        except BaseException:
            self.abandon()
            raise

    def finish_step(self) -> Outcome:
        """Wait for it, and for resets that were begun after it; these have reward 0.

        Raises:
            EngineError: an engine failed; all episodes are lost, and `begin_resets` begins afresh.
        """
        self._finish()
        rows = slice(None)
        table = self._table(rows)
        rewards = self.spec.reward.evaluate(Step(table, self._engines.flows, self._engines.link, self._conditions))
        if len(self._resetting):
            rewards[self._rows_in(self._resetting)] = 0.0
        terminated, is_over = self._endings(table)
        self.is_running = ~is_over
        return Outcome(
            observations=self._observe(table, rows),
            rewards=rewards,
            terminated=terminated,
            truncated=is_over & ~terminated,
            record=self._record(table),
        )

    def flow_endings(self, outcome: Outcome) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Which agent flows the last step has terminated, and which it has truncated, shape (M,).

        A flow ends when it has delivered all its bytes, at its `stop_s`, or with the episode. One that ended in an
        earlier step is among them, too.
        """
        is_complete, is_stopped = self._ended_flows(outcome.record.flows, outcome.record.time_s)
        is_complete |= outcome.terminated[self._engine_of]
        return is_complete, ~is_complete & (outcome.truncated[self._engine_of] | is_stopped)

    def rows(self, engine: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """The rows of all flows of an engine and its link's, until the next request; see `EngineBatch`."""
        return self._engines.flows[engine], self._engines.link[engine]

    def privileged(self, critic: Privileged) -> npt.NDArray[np.float32]:
        """What a critic sees of the last step or reset in each engine, shape (M, number of features)."""
        table = self._table(slice(None))
        return critic.evaluate(Step(table, self._engines.flows, self._engines.link, self._conditions))

    def record(self) -> Record:
        """Of the last step or reset in each engine."""
        return self._record(self._table(slice(None)))

    def abandon(self) -> None:
        """Give all running episodes up, whatever is asked for and not finished; resets must come next."""
        self.is_running[:] = False
        self._is_outstanding = False

    def close(self) -> None:
        """End the engines; calling it twice is fine."""
        self.abandon()
        self._engines.close()

    def _distribution(self, options: Mapping[str, Any] | None) -> Distribution:
        drawn = self.spec.distribution
        for name, value in (options or {}).items():
            if name != "scenario":
                raise ValueError(f"no reset option {name!r}; known: scenario")
            drawn = Distribution.of(value)
            if drawn.agents != self.spec.agents:
                raise ValueError(
                    f"options['scenario'] has {drawn.agents} agent flows: this environment is for {self.spec.agents}"
                )
        return drawn

    def _agents(self, scenario: Scenario) -> _Agents:
        # The same ones in every episode, if no scenario is drawn.
        if self._last_agents is None or self._last_agents.scenario is not scenario:
            self._last_agents = _Agents.of(scenario, self.spec)
        return self._last_agents

    def _enter(self, agents: _Agents, rows: slice) -> None:
        self._flows[rows] = agents.flows
        self._gains[:, rows] = agents.first_gains
        self._conditions.set(rows, agents.conditions)
        self._size_bytes[rows], self._stop_s[rows] = agents.size_bytes, agents.stop_s
        self._received_bytes[rows] = 0.0
        self._history.clear(rows)

    def _finish(self) -> None:
        if not self._is_outstanding:
            raise RuntimeError("nothing to finish: begin a reset or a step before")
        self._is_outstanding = False
        try:
            self._engines.finish()
        except BaseException:
            self.abandon()  # never go on with an episode that missed a step
            raise

    def _rows_in(self, engines: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        agents = self.spec.agents
        return engines if agents == 1 else (engines[:, np.newaxis] * agents + np.arange(agents)).ravel()

    def _table(self, rows: slice | npt.NDArray[np.intp]) -> npt.NDArray[np.float64]:
        flows = self._engines.flows.reshape(-1, len(FLOW_COLUMNS)).take(self._row_of[rows], axis=0)
        return tabulate(flows, self._gains[:, rows])

    def _bdp_packets(self) -> npt.NDArray[np.float64] | None:
        """What the agent flows believed after the last step, shape (M,), if actions depend on it."""
        if self.spec.action.cwnd_scale != "packets":
            return None
        if not self.is_running.any():
            return np.full(len(self._flows), math.nan)
        rows: npt.NDArray[np.float64] = self._engines.flows.reshape(-1, len(FLOW_COLUMNS))[self._row_of, _BDP]
        return rows

    def _observe(self, table: npt.NDArray[np.float64], rows: slice | npt.NDArray[np.intp]) -> npt.NDArray[np.float32]:
        return self._history.add(self.spec.observation.evaluate(table), rows)

    def _record(self, table: npt.NDArray[np.float64]) -> Record:
        return Record(
            flows=table[: len(FLOW_COLUMNS)],
            link=self._engines.link.copy(),
            time_s=self._engines.time_s.copy(),
            flow_indices=self._flows,
            scenarios=self._scenarios,
            seeds=self._seeds,
        )

    def _endings(self, table: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Where every agent flow is complete; where the episode is over, for which all may be complete or stopped."""
        if not self._can_end:
            return self._engines.is_complete.copy(), self._engines.is_over | self._engines.is_complete
        self._received_bytes += table[_RECEIVED]
        is_complete, is_stopped = self._ended_flows(table, self._engines.time_s)
        shape = (self.count, self.spec.agents)
        are_complete = is_complete.reshape(shape).all(axis=1) | self._engines.is_complete
        return are_complete, self._engines.is_over | (is_complete | is_stopped).reshape(shape).all(axis=1)

    def _ended_flows(
        self, flows: npt.NDArray[np.float64], time_s: npt.NDArray[np.float64]
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Which agent flows have delivered all their bytes; the time of which is over."""
        is_complete = (self._received_bytes >= self._size_bytes) & (flows[_IS_ACTIVE] == 0)
        return is_complete, time_s[self._engine_of] >= self._stop_s


@dataclass(frozen=True)
class _Agents:
    """What a scenario says about its K agent flows."""

    scenario: Scenario
    flows: tuple[int, ...]
    interval_ms: float
    first_gains: npt.NDArray[np.float64]  # shape (2, K)
    conditions: Conditions
    size_bytes: npt.NDArray[np.float64]
    stop_s: npt.NDArray[np.float64]

    @classmethod
    def of(cls, scenario: Scenario, spec: EpisodeSpec) -> _Agents:
        indices = scenario.agent_flows
        flows = [scenario.flows[index] for index in indices]
        return cls(
            scenario=scenario,
            flows=indices,
            interval_ms=spec.interval_ms(scenario),
            first_gains=np.array([first_gains(scenario, index) for index in indices]).T,
            conditions=Conditions.of(scenario, indices),
            size_bytes=np.array([math.inf if flow.size_bytes is None else flow.size_bytes for flow in flows]),
            stop_s=np.array([math.inf if flow.stop_s is None else flow.stop_s for flow in flows]),
        )


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
    history = History(observation, len(flows))
    gains = np.array([first_gains(scenario, flow) for flow in flows]).T
    last: Rows | None = None

    def policy(flow: int, rows: Rows) -> tuple[float, float]:
        nonlocal gains, last
        if rows is not last:  # the first flow that is asked for in this step
            if last is not None and rows.time_s <= last.time_s:
                raise ValueError("a policy drives one run: make another with policy_of for the next one")
            table = tabulate(rows.flows[list(flows)], gains)
            gains = action.all_gains(predict(history.add(observation.evaluate(table))), table[_BDP])
            last = rows
        cwnd_gain, pacing_gain = gains[:, flows.index(flow)].tolist()
        return cwnd_gain, pacing_gain

    return policy


_RECEIVED, _IS_ACTIVE, _BDP = map(FLOW_COLUMNS.index, ("received_bytes", "is_active", "bdp_packets"))


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
