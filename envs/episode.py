"""The core of every form of the environment: the episodes of a specification in N engines.

Resets and steps are begun and finished separately, so that all engines work at once. A call goes through three levels:

    Episodes          EngineBatch       NativeBatch: native      SeparateEngines: ns3, linux
                                        N scenarios in C++       N x Engine                    N x worker process
    --------          -----------       -------------------      ----------------------------  -----------------------

    begin_resets ---> begin_resets ---> starts scenarios         begin_reset: sends ---------> starts its scenario
                                                                                                 |
    finish_resets --> finish ---------> returns at once          finish_reset: WAITS <--- rows --+

    act ------------> begin_steps ----> SIMULATES on one or      steer: keeps the gains
                                        more threads, WAITS      begin_step: sends ----------> ns3: SIMULATES
                                        for all of them                                        linux: runs in real time
                                                                                                 |
    finish_step ----> finish ---------> returns at once          finish_step: WAITS <---- rows --+

    run ------------> run ------------> SIMULATES many steps     cannot (`Episodes.can_roll`)

    errors:
    raised, or in <-- {engine: error} < fault of a controller    EngineError, raised by   <--- died, hung or refused
    StepResult.errors from finish       in C                     begin_... or finish_...

`finish` waits for all that was begun: one `finish_step` can be for steps of some engines and for resets of others. An
engine that is given as a callable goes the way of ns3 and linux, with or without a worker process.

In a batch, an engine that fails changes nothing for the others. If `Episodes` is healing, the episode of that engine is
truncated (`StepResult.errors`), and an autoreset that failed is repeated with another draw, until an engine has failed
`FAILURES_IN_A_ROW` times. In all other cases `finish_resets` or `finish_step` raises an EngineError. Any other
exception of an engine, or of the draw of a scenario, comes out of the call in which it happens: an interrupt, say, or
the ValueError of a scenario that it refuses. In both cases all episodes are lost, and resets must come next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, NoReturn, TypeVar

import gymnasium
import numpy as np
import numpy.typing as npt

from bbrgym import _native
from bbrgym._controllers import PolicyNetwork
from bbrgym.checks import check_name
from bbrgym.envs.action import Action
from bbrgym.envs.columns import FLOW_COLUMNS
from bbrgym.envs.distribution import Distribution
from bbrgym.envs.engine import EngineError, EngineUnavailableError, Rows
from bbrgym.envs.engine_batch import EngineBatch, FlowGains, RolloutArrays, RolloutBatch
from bbrgym.envs.episode_spec import EpisodeSpec, count_steps
from bbrgym.envs.info import Record
from bbrgym.envs.observation import History, Observation, first_gains, preference, tabulate
from bbrgym.envs.reward import CONDITIONS, RewardContext, conditions_of
from bbrgym.envs.scenario import Scenario
from bbrgym.envs.trace import Policy

FAILURES_IN_A_ROW: Final = 5
"""An engine that fails this often without a step between is no accident: ns-3 cannot start here, say."""

Value = TypeVar("Value", bound=np.generic)


class StepResult(NamedTuple):
    """The result of a step for the M = N x K agent flows of N engines; those of an engine are adjacent.

    Attributes:
        observations: shape (M, length of an observation), float32.
        rewards: shape (M,), float64.
        terminated: shape (N,): every agent flow was finite and has delivered all its bytes.
        truncated: shape (N,): the scenario's duration has passed, or its agent flows have all stopped.
        record: what infos are made from.
        errors: why engines failed, by their index. Their episodes are truncated: their rows and observations are the
            last ones, their rewards 0.
        flaws: why the numbers of episodes that have ended cannot be trusted (`Engine.flaw`), by their engines.
    """

    observations: npt.NDArray[np.float32]
    rewards: npt.NDArray[np.float64]
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    record: Record
    errors: Mapping[int, str]
    flaws: Mapping[int, str]


@dataclass(frozen=True)
class RolloutSteps:
    """T steps of N engines with K agent flows each, M = N x K, through the ends of episodes; `Episodes.run` makes them.

    Attributes:
        arrays: what the engines wrote.
        terminated: shape (T, N), as in `StepResult`.
        truncated: shape (T, N), as in `StepResult`.
        flow_of: which of its scenario's flows each agent flow is, shape (T, M).
        conditions: of the agent flows in every step, shape (T, M, `CONDITIONS`).
    """

    arrays: RolloutArrays
    terminated: npt.NDArray[np.bool_]
    truncated: npt.NDArray[np.bool_]
    flow_of: npt.NDArray[np.int64]
    conditions: npt.NDArray[np.float64]

    @classmethod
    def of(cls, arrays: RolloutArrays) -> RolloutSteps:
        """Make room for the steps of these arrays."""
        flows, engines = arrays.actions.shape[:2], arrays.time_s.shape
        return cls(
            arrays,
            terminated=np.zeros(engines, np.bool_),
            truncated=np.zeros(engines, np.bool_),
            flow_of=np.zeros(flows, np.int64),
            conditions=np.zeros((*flows, len(CONDITIONS))),
        )

    def column(self, column: int) -> npt.NDArray[np.float64]:
        """Return a column of the rows of the agent flows, shape (T, M)."""
        return self._of_agents(self.arrays.flows[..., column])

    def took_part(self) -> npt.NDArray[np.bool_]:
        """Return whether each agent flow took part in the steps, shape (T, M)."""
        return self._of_agents(_native.took_part(self.arrays.flows))

    def _of_agents(self, values: npt.NDArray[Value]) -> npt.NDArray[Value]:
        of_engines = self.flow_of.reshape(*self.arrays.time_s.shape, -1)
        return np.take_along_axis(values, of_engines, axis=2).reshape(self.flow_of.shape)

    def context(self) -> RewardContext:
        """Return all steps as one of T x M flows on T x N links."""
        flows, link = self.arrays.flows, self.arrays.link
        return RewardContext(
            flows.reshape(-1, *flows.shape[2:]),
            link.reshape(-1, link.shape[-1]),
            self.flow_of.ravel(),
            self.conditions.reshape(-1, len(CONDITIONS)),
        )


class Episodes:
    """Episodes in N engines, one after the other in each, for all K agent flows of their scenarios at once.

    Arrays have a row for each of the M = N x K flows; those of an engine are adjacent, in the order of its scenario's
    flows. While a flow is inactive (it has not started, or has ended) its observation is neutral, its reward is 0, and
    its actions have no effect, except on the last packets of a sender that is being stopped.

    Args:
        spec: what the episodes are made of. Engines are started by their first resets.
        count: how many engines.
        is_healing: whether the episode of an engine that fails is truncated, while the others continue. Otherwise all
            are lost, with an EngineError.
    """

    def __init__(self, spec: EpisodeSpec, count: int, *, is_healing: bool = False) -> None:
        self.spec = spec
        self.count = count
        self._is_healing = is_healing
        self._failures: dict[int, int] = {}  # in a row, of engines that have failed since their last step
        self._autoresets: dict[int, np.random.Generator] = {}
        self.is_running = np.zeros(count, dtype=np.bool_)
        """In which engines an episode is going on, shape (N,)."""
        self._engines = spec.make_engine_batch(count)
        self._is_pending = False
        self._resetting = _NO_ENGINES
        rows = count * spec.agents
        self._engine_of = np.arange(count).repeat(spec.agents)
        # `_steps` reads and writes these arrays, so they are never replaced.
        self._flows = np.zeros(rows, dtype=np.int64)
        self._gains = np.full((2, rows), math.nan)
        self._states = np.zeros((rows, 0), np.float32)  # of a policy's LSTM
        self._preferences = np.full(rows, math.nan)
        self._conditions = np.ones((rows, len(CONDITIONS)))
        self._rows = np.full((rows, len(FLOW_COLUMNS)), math.nan)
        self._rewards = np.zeros(rows)
        self._neutral = spec.observation.neutral
        self.last_observations = np.tile(self._neutral, (rows, 1))
        """Of the last step or reset of each engine, shape (M, length of an observation)."""
        self._steps: _native.AgentSteps | None = None
        self._steps_of = self._engines.flows  # which it reads
        self._flow_indices = self._flows
        self._scenarios = (spec.distribution.example,) * count
        self._seeds = np.zeros(count, dtype=np.int64)
        self._ends = np.full((2, rows), math.inf)
        self._size_bytes, self._stop_s = self._ends
        self._can_end = False
        self._received_bytes = np.zeros(rows)
        self._last_agents: _Agents | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        if self._is_pending or self.is_running.any():
            raise TypeError(
                "a running environment cannot be pickled or copied, because its engine cannot: send the function or "
                "the EpisodeSpec that makes it, and make it where it is used"
            )
        return _make_episodes, (self.spec, self.count, self._is_healing)

    def begin_resets(
        self,
        engines: npt.NDArray[np.intp],
        rngs: Sequence[np.random.Generator],
        options: Sequence[Mapping[str, Any] | None] | None = None,
        *,
        is_autoreset: bool = False,
    ) -> None:
        """Start a new episode in some of the engines; a running one is abandoned.

        Args:
            engines: which.
            rngs: for each of them: draws the scenario and the engine's seed, which decide everything in the episode.
            options: for each of them: `{"scenario": …}` simulates this scenario instead of a draw, in this episode.
            is_autoreset: whether an engine that fails in it gets another episode, of a new draw; without `options`.

        Raises:
            ValueError: an unknown option, a scenario with another number of agent flows, or one the engine refuses.
        """
        if not is_autoreset:
            self._failures.clear()
        distributions = [self._distribution(given) for given in options or [None] * len(rngs)]
        self._autoresets = dict(zip(engines.tolist(), rngs, strict=True)) if is_autoreset else {}
        self._resetting = engines
        self._is_pending = True
        try:
            self._begin_draws(engines, rngs, distributions)
        except BaseException:  # of a draw, or of an engine
            self.abandon()
            raise

    def finish_resets(self) -> npt.NDArray[np.float32]:
        """Wait for the resets.

        Returns:
            Observations at time 0 in these engines, shape (engines x K, length of an observation).

        Raises:
            EngineError: engines failed, in an autoreset several times in a row; all episodes are lost.
        """
        reset = self._resetting
        self._check_resets(self._finish())
        self._read(reset)
        self.is_running[reset] = True
        return self.last_observations[self._rows_in(reset)]

    def act(self, actions: npt.ArrayLike, engines: npt.NDArray[np.intp] | None = None) -> None:
        """Ask for a step with these actions; `finish_step` returns its result.

        Args:
            actions: shape (M, 2).
            engines: which; None is all of them.

        Raises:
            gymnasium.error.ResetNeeded: no episode is running: there was no reset, or the last step ended it or failed.
            ValueError: actions of another shape, or with NaN.
        """
        gains = self.spec.action.all_gains(actions, self._bdp_packets())
        if gains.shape != self._gains.shape:
            raise ValueError(
                f"actions must be numbers of shape ({self._gains.shape[1]}, 2), got shape ({gains.shape[1]}, 2)"
            )
        if self._is_pending:
            raise RuntimeError("act() while a reset or a step is pending: finish it first")
        running = self.is_running if engines is None else self.is_running[engines]
        if np.count_nonzero(running) < len(running):
            raise gymnasium.error.ResetNeeded("no episode is running: call reset before step")
        engine_of, flows = self._engine_of, self._flows
        if engines is None:
            np.copyto(self._gains, gains)
        else:
            rows = self._rows_in(engines)
            engine_of, flows, gains = engine_of[rows], flows[rows], gains[:, rows]
            self._gains[:, rows] = gains
        self._resetting = _NO_ENGINES
        self._is_pending = True
        try:
            self._engines.begin_steps(engines, FlowGains(engine_of, flows, gains))
        except BaseException:
            self.abandon()
            raise

    def finish_step(self) -> StepResult:
        """Wait for the step, and for resets that were begun after it, whose rewards are 0.

        Raises:
            EngineError: an engine failed, or failed several times in a row if others do not mind (`is_healing`); all
                episodes are lost, and `begin_resets` starts afresh.
        """
        reset = self._resetting
        errors = self._finish()
        if errors:
            self._check_resets({engine: errors.pop(engine) for engine in reset.tolist() if engine in errors})
        if errors:
            self._count_failures(errors)
        if self._failures:
            kept = errors.keys() | set(reset.tolist())
            self._failures = {engine: count for engine, count in self._failures.items() if engine in kept}
        failed = np.array([*errors], dtype=np.intp) if errors else _NO_ENGINES
        self._read(np.delete(np.arange(self.count), failed) if errors else None)
        rewards = self._rewards.copy()
        if len(reset):
            rewards[self._rows_in(reset)] = 0.0
        if self._can_end:
            self._received_bytes += self._rows[:, _RECEIVED]
        terminated, is_over = self._endings(self._received_bytes, self._rows[:, _IS_ACTIVE], self._engines)
        if errors:
            terminated[failed], is_over[failed] = False, True
            rewards[self._rows_in(failed)] = self._rows[self._rows_in(failed), _IS_ACTIVE] = 0.0  # it teaches nothing
        self.is_running = ~is_over
        return StepResult(
            observations=self.last_observations.copy(),
            rewards=rewards,
            terminated=terminated,
            truncated=is_over > terminated,
            record=self._record(self._rows.copy()),
            errors={engine: str(error) for engine, error in errors.items()},
            flaws={engine: flaw for engine, flaw in self._engines.flaws().items() if is_over[engine]}
            if np.count_nonzero(is_over)
            else {},
        )

    def last_rows(self, engine: int) -> Rows:
        """Return what the last step or reset of an engine measured, of all flows of its scenario."""
        engines = self._engines
        return Rows(
            time_s=float(engines.time_s[engine]),
            flows=engines.flows[engine, : len(self.scenarios[engine].flows)].copy(),
            link=engines.link[engine].copy(),
            is_over=bool(engines.is_over[engine]),
            is_complete=bool(engines.is_complete[engine]),
        )

    @property
    def most_steps(self) -> int:
        """The most steps of one of the episodes that have begun."""
        spec = self.spec
        return max(count_steps(each.duration_s, spec.interval_ms(each)) for each in self.scenarios)

    @property
    def can_roll(self) -> bool:
        """Whether the engines can make the steps of a `RolloutSteps`."""
        return isinstance(self._engines, RolloutBatch)

    def states(self, size: int) -> npt.NDArray[np.float32]:
        """Return what a recurrent policy remembers of each agent flow, shape (M, size), to be updated in place.

        It is 0 at the beginning of an episode, and after a call with another size. `run` updates it.
        """
        if self._states.shape[1] != size:
            self._states = np.zeros((len(self._flows), size), np.float32)
        return self._states

    def begin_rollout(self, noise: npt.NDArray[np.float32]) -> RolloutSteps:
        """Make room for steps that continue the running episodes.

        Args:
            noise: finite, shape (T, M, 2): added to a policy's actions; the actions themselves without a policy.

        Raises:
            gymnasium.error.ResetNeeded: an engine has no running episode.
            ValueError: noise of another shape, or that is not finite.
        """
        if noise.ndim != 3 or noise.shape[1:] != (len(self._flows), 2) or not np.isfinite(noise).all():
            raise ValueError(f"noise must be finite, of shape (steps, {len(self._flows)}, 2), got shape {noise.shape}")
        if self._is_pending:
            raise RuntimeError("begin_rollout() while a reset or a step is pending: finish it first")
        if not self.is_running.all():
            raise gymnasium.error.ResetNeeded("no episode is running: call reset before step")
        noise = np.ascontiguousarray(noise, dtype=np.float32)
        return RolloutSteps.of(RolloutArrays.of(self._engines, self.last_observations, noise))

    def run(self, rollout: RolloutSteps, policy: PolicyNetwork | None = None) -> npt.NDArray[np.intp]:
        """Make the steps of each engine, to the last one or to the end of its episode.

        Afterwards reset the engines whose episodes ended, write their observations to
        `rollout.arrays.observations[next_steps]`, and call it again, until none ends.

        Args:
            rollout: what `begin_rollout` returned; written here.
            policy: acts upon the observations. None: the noise is the actions. What it remembers begins with each
                episode, and stays from rollout to rollout.

        Returns:
            The engines whose episodes ended.

        Raises:
            ValueError: the policy takes observations of another length, or its actions are NaN.
        """
        assert isinstance(self._engines, RolloutBatch)
        arrays = rollout.arrays
        first = arrays.next_steps.copy()
        observation, action = self.spec.observation, self.spec.action
        self._engines.run(
            arrays,
            features=observation.table,
            gain_map=action.gain_map,
            policy=policy,
            flows=self._flows,
            preferences=self._preferences,
            gains=self._gains,
            states=self.states(0 if policy is None else policy.state_size),
        )
        if np.isnan(self._gains).any():
            self.abandon()
            raise ValueError("the policy's actions must be numbers, got NaN")
        steps = np.arange(len(arrays.actions))[:, np.newaxis]
        is_made = (steps >= first) & (steps < arrays.next_steps)
        are_made = is_made.repeat(self.spec.agents, axis=1)
        np.copyto(rollout.flow_of, self._flows, where=are_made)
        np.copyto(rollout.conditions, self._conditions, where=are_made[..., np.newaxis])
        received = np.tile(self._received_bytes, (len(steps), 1))
        if self._can_end:
            received += np.where(are_made, rollout.column(_RECEIVED), 0.0).cumsum(axis=0)
            self._received_bytes = received[-1]
        terminated, is_over = self._endings(received, rollout.column(_IS_ACTIVE), arrays)
        is_over &= is_made
        ended = np.flatnonzero(is_over.any(axis=0))
        # An engine goes on to the end of its scenario, which may be later than that of its agents.
        last = is_over[:, ended].argmax(axis=0)
        arrays.next_steps[ended] = last + 1
        rollout.terminated[last, ended] = terminated[last, ended]
        rollout.truncated[last, ended] = ~terminated[last, ended]
        rows = np.arange(len(self._flows))
        self.last_observations[:] = arrays.observations[arrays.next_steps[self._engine_of], rows]
        self.is_running[ended] = False
        return ended

    def flow_endings(self, result: StepResult) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Return which agent flows have been terminated, and which truncated, by the end of a step, shape (M,).

        A flow ends when it has delivered all its bytes, at its `stop_s`, or with the episode.
        """
        is_complete, is_stopped = self._ended_flows(
            self._received_bytes, result.record.flows[:, _IS_ACTIVE], result.record.time_s
        )
        is_complete |= result.terminated[self._engine_of]
        return is_complete, ~is_complete & (result.truncated[self._engine_of] | is_stopped)

    def rows(self, engine: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return the rows of all flows of an engine and of its link, valid until the next request."""
        return self._engines.flows[engine], self._engines.link[engine]

    @property
    def has_begun(self) -> npt.NDArray[np.bool_]:
        """Which engines have had a reset, shape (N,)."""
        return np.asarray(self._seeds != 0)

    @property
    def scenarios(self) -> tuple[Scenario, ...]:
        """The scenario of each engine's episode.

        Raises:
            gymnasium.error.ResetNeeded: there was no reset.
        """
        if not self.has_begun.all():
            raise gymnasium.error.ResetNeeded("no episode has a scenario yet: call reset first")
        return self._scenarios

    def record(self) -> Record:
        """Return the record of the last step or reset in each engine."""
        return self._record(self._engines.flows[self._engine_of, self._flows])

    def abandon(self) -> None:
        """Give up all running episodes and pending requests; resets must come next."""
        self.is_running[:] = False
        self._is_pending = False

    def close(self) -> None:
        """End the engines; calling it twice is fine."""
        self.abandon()
        self._steps = None  # it keeps the engines' arrays
        self._engines.close()

    def _begin_draws(
        self, engines: npt.NDArray[np.intp], rngs: Sequence[np.random.Generator], distributions: Sequence[Distribution]
    ) -> None:
        """Draw a scenario and a seed for each engine, and begin their resets."""
        self.is_running[engines] = False
        self._seeds = self._seeds.copy()  # records of earlier steps may still hold it
        scenarios, seeds, steps_ms = [], [], []
        drawn = list(self._scenarios)
        for engine, rng, distribution in zip(engines.tolist(), rngs, distributions, strict=True):
            scenario, seed = self.spec.draw(rng, distribution)
            agents = self._agents(scenario)
            scenarios.append(scenario)
            seeds.append(seed)
            steps_ms.append(agents.interval_ms)
            drawn[engine], self._seeds[engine] = scenario, seed
            self._enter(agents, slice(engine * self.spec.agents, (engine + 1) * self.spec.agents))
        self._scenarios = tuple(drawn)
        self._can_end = bool(np.count_nonzero(np.isfinite(self._ends)))
        self._engines.begin_resets(engines.tolist(), scenarios, seeds, steps_ms)
        self._flow_indices = self._flows.copy()
        if self._steps is None or self._steps_of is not self._engines.flows:
            self._steps_of = self._engines.flows
            self._steps = _native.AgentSteps(
                *(self.spec.observation.table, self.spec.reward.compiled, self._engines.flows, self._engines.link),
                *(self._flows, self._gains, self._preferences, self._conditions),
                *(self._rows, self.last_observations, self._rewards),
            )

    def _distribution(self, options: Mapping[str, Any] | None) -> Distribution:
        drawn = self.spec.distribution
        if options is not None and not isinstance(options, Mapping):
            raise ValueError(f"options must be a mapping, like {{'scenario': …}}, or None, got {options!r}")
        for name, value in (options or {}).items():
            check_name("reset option", name, ("scenario",))
            drawn = Distribution.of(value)
            if drawn.agents != self.spec.agents:
                raise ValueError(f"options['scenario'] must have {self.spec.agents} agent flows, got {drawn.agents}")
        return drawn

    def _agents(self, scenario: Scenario) -> _Agents:
        # Cached: if no scenario is drawn, every episode has the same one.
        if self._last_agents is None or self._last_agents.scenario is not scenario:
            self._last_agents = _Agents.of(scenario, self.spec)
        return self._last_agents

    def _enter(self, agents: _Agents, rows: slice) -> None:
        self._flows[rows] = agents.flows
        self._gains[:, rows] = agents.first_gains
        self._states[rows] = 0.0
        self._preferences[rows] = agents.preferences
        self._conditions[rows] = agents.conditions
        self._size_bytes[rows], self._stop_s[rows] = agents.size_bytes, agents.stop_s
        self._received_bytes[rows] = 0.0
        self.last_observations[rows] = self._neutral

    def _finish(self) -> dict[int, EngineError]:
        """Wait for the engines; return those that failed, and why."""
        if not self._is_pending:
            raise RuntimeError("finish without a pending reset or step: begin one first")
        self._is_pending = False
        try:
            return self._engines.finish()
        except BaseException:
            self.abandon()  # an episode that missed a step must not continue
            raise

    def _check_resets(self, errors: dict[int, EngineError]) -> None:
        """Repeat autoresets that failed, each with a new draw."""
        while errors:
            if not errors.keys() <= self._autoresets.keys():
                self._fail(errors)
            self._count_failures(errors)
            rngs = [self._autoresets[engine] for engine in errors]
            self.begin_resets(np.array([*errors], dtype=np.intp), rngs, is_autoreset=True)
            errors = self._finish()

    def _count_failures(self, errors: Mapping[int, EngineError]) -> None:
        for engine in errors:
            self._failures[engine] = self._failures.get(engine, 0) + 1
        if not self._is_healing or max(self._failures.values()) >= FAILURES_IN_A_ROW:
            self._fail(errors)

    def _fail(self, errors: Mapping[int, EngineError]) -> NoReturn:
        self.abandon()
        first = next(iter(errors.values()))
        if isinstance(first, EngineUnavailableError) or (self.count == 1 and not self._failures):
            raise first
        reasons: dict[str, list[int]] = {}
        for engine, error in errors.items():
            reasons.setdefault(str(error), []).append(engine)
        times = max(self._failures.values(), default=1)
        failed = f"failed {times} times in a row, the last time" if times > 1 else "failed"
        self._failures.clear()
        raise EngineError(
            f"{len(errors)} of {self.count} engines {failed}:\n"
            + "\n".join(f"engine {', '.join(map(str, engines))}: {reason}" for reason, engines in reasons.items())
        ) from first

    def _rows_in(self, engines: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        agents = self.spec.agents
        return engines if agents == 1 else (engines[:, np.newaxis] * agents + np.arange(agents)).ravel()

    def _read(self, engines: npt.NDArray[np.intp] | None = None) -> None:
        """Read what the agent flows of all engines, or of some, did in the last step or reset."""
        assert self._steps is not None
        self._steps.read(engines)

    def _bdp_packets(self) -> npt.NDArray[np.float64] | None:
        """Return the agent flows' estimates after the last step, shape (M,), if actions depend on them."""
        if self.spec.action.cwnd_scale != "packets":
            return None
        if not self.is_running.any():
            return np.full(len(self._flows), math.nan)
        bdp_packets: npt.NDArray[np.float64] = self._engines.flows[self._engine_of, self._flows, _BDP]
        return bdp_packets

    def _record(self, flows: npt.NDArray[np.float64]) -> Record:
        return Record(
            flows=flows,
            link=self._engines.link.copy(),
            time_s=self._engines.time_s.copy(),
            flow_indices=self._flow_indices,
            scenarios=self._scenarios,
            seeds=self._seeds,
        )

    def _endings(
        self,
        received_bytes: npt.NDArray[np.float64],
        is_active: npt.NDArray[np.float64],
        rows: EngineBatch | RolloutArrays,
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Return where every agent flow is complete, and where the episode is over: all are complete or stopped.

        Args:
            received_bytes: of the agent flows since the beginning of their episodes, shape (M,).
            is_active: column of the agent flows, shape (M,).
            rows: of the engines. Those of T steps have one more axis in front, and so do the other arrays and results.
        """
        if not self._can_end:
            return rows.is_complete.copy(), rows.is_over | rows.is_complete
        is_complete, is_stopped = self._ended_flows(received_bytes, is_active, rows.time_s)
        shape = (*rows.time_s.shape, self.spec.agents)
        are_complete = is_complete.reshape(shape).all(axis=-1) | rows.is_complete
        return are_complete, rows.is_over | (is_complete | is_stopped).reshape(shape).all(axis=-1)

    def _ended_flows(
        self,
        received_bytes: npt.NDArray[np.float64],
        is_active: npt.NDArray[np.float64],
        time_s: npt.NDArray[np.float64],
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Return which agent flows have delivered all their bytes, and which have reached their `stop_s`."""
        is_complete = (received_bytes >= self._size_bytes) & (is_active < 1)
        return is_complete, time_s[..., self._engine_of] >= self._stop_s


def _make_episodes(spec: EpisodeSpec, count: int, is_healing: bool) -> Episodes:
    return Episodes(spec, count, is_healing=is_healing)


@dataclass(frozen=True)
class _Agents:
    """What a scenario says about its K agent flows."""

    scenario: Scenario
    flows: tuple[int, ...]
    interval_ms: float
    first_gains: npt.NDArray[np.float64]  # shape (2, K)
    preferences: npt.NDArray[np.float64]
    conditions: npt.NDArray[np.float64]
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
            preferences=np.array([preference(scenario, index) for index in indices]),
            conditions=conditions_of(scenario, indices),
            size_bytes=np.array([math.inf if flow.size_bytes is None else flow.size_bytes for flow in flows]),
            stop_s=np.array([math.inf if flow.stop_s is None else flow.stop_s for flow in flows]),
        )


def policy_of(
    predict: Callable[[npt.NDArray[np.float32]], npt.NDArray[Any]],
    observation: Observation,
    action: Action,
    scenario: Scenario,
) -> Policy:
    """Return an agent as the `policy` of `simulate`, with exactly the observations and gains of the environment.

    Args:
        predict: from observations (K, length of an observation) to actions (K, 2), for all agent flows in their order.
            It is called once per step, so it may keep state per flow.
        observation: with which the agent was trained.
        action: with which the agent was trained.
        scenario: what will be simulated, with steps of `EpisodeSpec.interval_ms(scenario)`.

    Returns:
        The policy, for one run.

    Raises:
        ValueError: the agent flows of the scenario have another model than `action` (`Action.on`).
    """
    if action.on(scenario) != scenario:
        raise ValueError(
            f"the agent was trained with action.model={action.model!r}, but agent flows of the scenario lack the "
            "parameter is_bbr_model: simulate `agent.spec.action.on(scenario)`"
        )
    flows = scenario.agent_flows
    history = History(observation, len(flows))
    gains = np.array([first_gains(scenario, flow) for flow in flows]).T
    preferences = np.array([preference(scenario, flow) for flow in flows])
    last: Rows | None = None

    def policy(flow: int, rows: Rows) -> tuple[float, float]:
        nonlocal gains, last
        if rows is not last:  # the first flow that is asked for in this step
            if last is not None and rows.time_s <= last.time_s:
                raise ValueError("a policy drives one run only: make another with policy_of for the next run")
            table = tabulate(rows.flows[list(flows)], gains, preferences)
            gains = action.all_gains(predict(history.add(observation.evaluate(table))), table[_BDP])
            last = rows
        cwnd_gain, pacing_gain = gains[:, flows.index(flow)].tolist()
        return cwnd_gain, pacing_gain

    return policy


_RECEIVED, _IS_ACTIVE, _BDP = map(FLOW_COLUMNS.index, ("received_bytes", "is_active", "bdp_packets"))
_NO_ENGINES: Final = np.zeros(0, dtype=np.intp)
