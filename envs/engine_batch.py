"""Many engines at once: one request to all of them, their rows in arrays."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.engine import ENGINES, Engine, EngineError, Rows, describe_engine, load_entry_point, make_engine
from bbrgym.envs.scenario import Scenario


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
        """Start a new episode in some of the engines, whatever they are doing.

        Args:
            indices: which engines.
            scenarios: what each of them simulates.
            seeds: what decides everything random in each of them.
            steps_ms: the length of the steps of each of them, in ms.
        """
        ...

    def steer(self, indices: npt.NDArray[np.intp], flows: npt.NDArray[np.intp], gains: npt.NDArray[np.float64]) -> None:
        """Set gains from the next step on; see `Engine.steer`.

        Args:
            indices: which engine, shape (M,).
            flows: which of its agent flows, shape (M,).
            gains: cwnd_gains and pacing_gains, shape (2, M).
        """
        ...

    def begin_step(self, indices: npt.NDArray[np.intp] | None = None) -> None:
        """Ask all engines, or some, for a step."""
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


def make_engine_batch(
    engine: str | Callable[..., Engine], count: int, max_flows: int, options: Mapping[str, Any]
) -> EngineBatch:
    """Make `count` engines that work at once. They are started by their first resets.

    Args:
        engine: an engine's name, or a callable that makes one.
        count: how many.
        max_flows: the most flows that a scenario will have.
        options: arguments for making them.

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
    """One `Engine` for each scenario; those that are processes work in parallel.

    Args:
        make: makes an engine; called with the first reset of each.
        count: how many.
    """

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

    def steer(self, indices: npt.NDArray[np.intp], flows: npt.NDArray[np.intp], gains: npt.NDArray[np.float64]) -> None:
        """See `EngineBatch`."""
        for index, flow, cwnd, pacing in zip(indices.tolist(), flows.tolist(), *gains.tolist(), strict=True):
            self._engine(index).steer(flow, cwnd, pacing)

    def begin_step(self, indices: npt.NDArray[np.intp] | None = None) -> None:
        """See `EngineBatch`."""
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
