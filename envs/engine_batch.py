"""Many engines at once: one request to all of them, their rows in arrays.

The drawing in `bbrgym.envs.episode` shows how a call goes from `Episodes` through here to each engine, and where it
waits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
import numpy.typing as npt

from bbrgym._controllers import GainMap, PolicyNetwork, PolicyTable
from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.engine import ENGINES, Engine, EngineError, Rows, describe_engine, load_entry_point, make_engine
from bbrgym.envs.scenario import Scenario


class FlowGains(NamedTuple):
    """Gains of M agent flows.

    Attributes:
        engines: which engine, shape (M,).
        flows: which of its flows, shape (M,).
        values: cwnd_gains and pacing_gains, shape (2, M).
    """

    engines: npt.NDArray[np.intp]
    flows: npt.NDArray[np.intp]
    values: npt.NDArray[np.float64]


class EngineBatch(Protocol):
    """N engines, each with its own scenario.

    Requests are begun, and `finish` waits for all that are pending. The arrays hold what each engine measured in its
    last step or reset, and are valid until the next request. An engine that fails changes nothing for the others;
    `begin_resets` starts it afresh.
    """

    @property
    def flows(self) -> npt.NDArray[np.float64]:
        """Shape (N, F, `FLOW_COLUMNS`); a scenario with fewer than F flows leaves the other rows NaN."""
        ...

    @property
    def link(self) -> npt.NDArray[np.float64]:
        """Shape (N, `LINK_COLUMNS`)."""
        ...

    @property
    def time_s(self) -> npt.NDArray[np.float64]:
        """Shape (N,): simulated time at the end of the step, in s."""
        ...

    @property
    def is_over(self) -> npt.NDArray[np.bool_]:
        """Shape (N,); see `Rows`."""
        ...

    @property
    def is_complete(self) -> npt.NDArray[np.bool_]:
        """Shape (N,); see `Rows`."""
        ...

    def begin_resets(
        self, indices: Sequence[int], scenarios: Sequence[Scenario], seeds: Sequence[int], steps_ms: Sequence[float]
    ) -> None:
        """Start a new episode in some of the engines, whatever they are doing; the seeds decide everything random."""
        ...

    def begin_steps(self, indices: npt.NDArray[np.intp] | None = None, gains: FlowGains | None = None) -> None:
        """Ask engines for a step.

        Args:
            indices: which; None is all of them.
            gains: apply from this step on (`Engine.steer`). Other flows keep theirs.
        """
        ...

    def finish(self) -> dict[int, EngineError]:
        """Wait for everything that was begun.

        Returns:
            Which engines failed in it, and why. Their rows are the last ones before.
        """
        ...

    def flaws(self) -> dict[int, str]:
        """Return which engines' episodes have a flaw (`Engine.flaw`), and what it is."""
        ...

    def close(self) -> None:
        """End all engines; calling it twice is fine."""
        ...


class RolloutArrays(NamedTuple):
    """T steps of N engines in which agents steer K flows of each. M = N x K; the flows of an engine are adjacent.

    Attributes:
        next_steps: shape (N,): which step of each engine comes next.
        observations: shape (T + 1, M, length), float32: before each step, and after the last.
        noise: shape (T, M, 2), float32: added to a policy's actions; the actions themselves without a policy.
        actions: shape (T, M, 2), float32: the chosen ones, before they are bounded; 0 in steps that are not made.
        flows: shape (T, N, F, `FLOW_COLUMNS`), as of `EngineBatch`, like the following.
        link: shape (T, N, `LINK_COLUMNS`).
        time_s: shape (T, N).
        is_over: shape (T, N).
        is_complete: shape (T, N).
    """

    next_steps: npt.NDArray[np.int64]
    observations: npt.NDArray[np.float32]
    noise: npt.NDArray[np.float32]
    actions: npt.NDArray[np.float32]
    flows: npt.NDArray[np.float64]
    link: npt.NDArray[np.float64]
    time_s: npt.NDArray[np.float64]
    is_over: npt.NDArray[np.bool_]
    is_complete: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, engines: EngineBatch, observations: npt.NDArray[np.float32], noise: npt.NDArray[np.float32]) -> Self:
        """Make room for `len(noise)` steps that begin with these observations, shape (M, length)."""
        steps = len(noise)
        room = np.zeros((steps + 1, *observations.shape), np.float32)
        room[0] = observations

        def zeros_like(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
            return np.zeros((steps, *array.shape), array.dtype)

        return cls(
            next_steps=np.zeros(len(engines.link), np.int64),
            observations=room,
            noise=noise,
            actions=np.zeros_like(noise),
            flows=zeros_like(engines.flows),
            link=zeros_like(engines.link),
            time_s=zeros_like(engines.time_s),
            is_over=zeros_like(engines.is_over),
            is_complete=zeros_like(engines.is_complete),
        )


@runtime_checkable
class RolloutBatch(EngineBatch, Protocol):
    """Engines that can also make many steps in one call, with agents whose policy they run themselves."""

    def begin_resets(
        self,
        indices: Sequence[int],
        scenarios: Sequence[Scenario],
        seeds: Sequence[int],
        steps_ms: Sequence[float],
        policies: Sequence[Mapping[int, bytes]] | None = None,
    ) -> None:
        """See `EngineBatch`.

        `policies` has for each of them what flows of algorithm `policy` run, by their index, as C++ parses it
        (`StoredPolicy.to_bytes`). Flows that are not in it run what their `policy` names.
        """
        ...

    def run(
        self,
        arrays: RolloutArrays,
        features: PolicyTable,
        gain_map: GainMap,
        policy: PolicyNetwork | None,
        flows: npt.NDArray[np.int64],
        preferences: npt.NDArray[np.float64],
        gains: npt.NDArray[np.float64],
        states: npt.NDArray[np.float32],
    ) -> None:
        """Make the steps of all engines, each from its `next_steps` to the last one or to the end of its scenario.

        This is the same, to the last bit, as `begin_steps` for each of them with these actions. The arrays
        of the batch are then those of each engine's last step.

        Args:
            arrays: written here, `next_steps` included.
            features: of the observations.
            gain_map: what the actions mean.
            policy: acts upon the observations. None: only the noise counts.
            flows: the agent flows, shape (M,).
            preferences: of these flows, shape (M,).
            gains: cwnd_gains and pacing_gains chosen last, shape (2, M); written here.
            states: what the policy's LSTM remembers of each flow, shape (M, `state_size` of the policy, 0 without one);
                written here.
        """
        ...


def make_engine_batch(
    engine: str | Callable[..., Engine], count: int, max_flows: int, options: Mapping[str, Any]
) -> EngineBatch:
    """Make `count` engines that work at once. They are started by their first resets.

    Raises:
        ValueError: there is no such engine, or an option is bad.
    """
    if not isinstance(engine, str):
        return SeparateEngines(partial(engine, **options), count)
    describe_engine(engine, **options)  # checks both
    if (batch := ENGINES[engine].batch_entry_point) is not None:
        made: EngineBatch = load_entry_point(batch)(count, max_flows, **options)
        return made
    return SeparateEngines(partial(make_engine, engine, **options), count)


class SeparateEngines:
    """One `Engine` for each scenario; those that are processes work in parallel."""

    def __init__(self, make: Callable[[], Engine], count: int) -> None:
        self._make = make
        self._engines: list[Engine | None] = [None] * count
        self._pending: dict[int, Callable[[], Rows]] = {}
        self._errors: dict[int, EngineError] = {}
        self._steps_ms = [0.0] * count
        self.flows = np.full((count, 0, len(FLOW_COLUMNS)), np.nan)
        self.link = np.full((count, len(LINK_COLUMNS)), np.nan)
        self.time_s = np.zeros(count)
        self.is_over = np.ones(count, dtype=np.bool_)
        self.is_complete = np.zeros(count, dtype=np.bool_)

    def begin_resets(
        self, indices: Sequence[int], scenarios: Sequence[Scenario], seeds: Sequence[int], steps_ms: Sequence[float]
    ) -> None:
        """See `EngineBatch`."""
        for index, scenario, seed, step_ms in zip(indices, scenarios, seeds, steps_ms, strict=True):
            if (left := self._pending.pop(index, None)) is not None:
                with contextlib.suppress(EngineError):  # the answer of an abandoned episode; the reset starts afresh
                    left()
            self._errors.pop(index, None)
            self._steps_ms[index] = step_ms
            self._make_room(index, len(scenario.flows))
            try:
                engine = self._engines[index]
                if engine is None:
                    engine = self._engines[index] = self._make()
                engine.begin_reset(scenario, seed)
            except EngineError as error:
                self._errors[index] = error
            else:
                self._pending[index] = engine.finish_reset

    def begin_steps(self, indices: npt.NDArray[np.intp] | None = None, gains: FlowGains | None = None) -> None:
        """See `EngineBatch`."""
        if gains is not None:
            of_flows = zip(gains.engines.tolist(), gains.flows.tolist(), *gains.values.tolist(), strict=True)
            for index, flow, cwnd, pacing in of_flows:
                self._engine(index).steer(flow, cwnd, pacing)
        for index in range(len(self._engines)) if indices is None else indices.tolist():
            engine = self._engine(index)
            try:
                engine.begin_step(self._steps_ms[index])
            except EngineError as error:
                self._errors[index] = error
            else:
                self._pending[index] = engine.finish_step

    def finish(self) -> dict[int, EngineError]:
        """See `EngineBatch`."""
        while self._pending:
            index = next(iter(self._pending))
            try:
                rows = self._pending.pop(index)()
            except EngineError as error:
                self._errors[index] = error
                continue
            self.flows[index, : len(rows.flows)] = rows.flows
            self.link[index] = rows.link
            self.time_s[index] = rows.time_s
            self.is_over[index] = rows.is_over
            self.is_complete[index] = rows.is_complete
        errors, self._errors = self._errors, {}
        return errors

    def flaws(self) -> dict[int, str]:
        """See `EngineBatch`."""
        found = ((index, None if engine is None else engine.flaw) for index, engine in enumerate(self._engines))
        return {index: flaw for index, flaw in found if flaw is not None}

    def close(self) -> None:
        """End all engines; resets make new ones."""
        self._pending.clear()
        self._errors.clear()
        for index, engine in enumerate(self._engines):
            self._engines[index] = None
            if engine is not None:
                engine.close()

    def _engine(self, index: int) -> Engine:
        engine = self._engines[index]
        if engine is None:
            raise RuntimeError(f"engine {index} has no episode: reset it first")
        return engine

    def _make_room(self, index: int, flows: int) -> None:
        if flows > self.flows.shape[1]:
            more = ((0, 0), (0, flows - self.flows.shape[1]), (0, 0))
            self.flows = np.pad(self.flows, more, constant_values=np.nan)
        self.flows[index, flows:] = np.nan
