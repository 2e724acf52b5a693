"""`engine=native`: scenarios in this process, one at a time or many at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from bbrgym import _native
from bbrgym._controllers import GainMap, PolicyNetwork, PolicyTable
from bbrgym.checks import check_integer
from bbrgym.cores import available_cores
from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.engine import (
    Engine,
    EngineDescription,
    EngineError,
    Rows,
    check_algorithms,
    read_policies,
    whole_nanoseconds,
    with_compiled_files,
)
from bbrgym.envs.engine_batch import FlowGains, RolloutArrays
from bbrgym.envs.scenario import Scenario

_SCENARIOS_PER_THREAD: Final = 4
"""Fewer leave threads waiting for the one with the most packets."""


class NativeEngine(Engine):
    """Simulates in this process, hundreds of times faster than ns-3 (docs/native.md).

    `begin_…` simulates, and `finish_…` hands over the rows.

    Args:
        threads: for `NativeBatch`; a single scenario is simulated by the calling thread.

    Raises:
        ValueError: `threads` is not an integer >= 1 or None.
    """

    description = EngineDescription(title="native", extensions=("bbrgym._native",))

    def __init__(self, threads: int | None = None) -> None:
        check_integer("threads", threads, at_least=1, or_none=True)
        self._batch: _native.Batch | None = None
        self._arrays: _Arrays | None = None
        self._duration_ns = np.zeros(1, dtype=np.int64)
        self._last: _Converted | None = None

    def _request_reset(self, scenario: Scenario, seed: int, policies: Mapping[int, bytes]) -> None:
        if self._batch is None or self._arrays is None or self._arrays.flows.shape[1] < len(scenario.flows):
            self._batch = _native.Batch(1, len(scenario.flows), 1)
            self._arrays = _Arrays.of(self._batch)
        if self._last is None or not self._last.is_of(scenario, policies):
            self._last = _Converted.of(scenario, policies)
        self._batch.reset(0, self._last.native, seed)

    def _request_step(self, duration_ns: int) -> None:
        assert self._batch is not None
        self._duration_ns[0] = duration_ns
        self._batch.step(self._duration_ns)

    def _finish_request(self, scenario: Scenario) -> Rows:
        arrays = self._arrays
        assert arrays is not None
        assert self._batch is not None
        if has_files(scenario) and (faults := self._batch.faults()):
            raise EngineError(faults[0])
        return Rows(
            time_s=float(arrays.time_s[0]),
            flows=arrays.flows[0, : len(scenario.flows)].copy(),
            link=arrays.link[0].copy(),
            is_over=bool(arrays.is_over[0]),
            is_complete=bool(arrays.is_complete[0]),
        )

    def _set_gains(self, flow: int, cwnd_gain: float, pacing_gain: float) -> None:
        assert self._batch is not None
        self._batch.set_gains(0, flow, cwnd_gain, pacing_gain)

    def _release(self) -> None:
        self._batch = self._arrays = self._last = None


class NativeBatch:
    """N scenarios in one process, on several threads; see `bbrgym.envs.engine_batch.RolloutBatch`.

    Each is simulated to the last bit as in a `NativeEngine`, whatever the number of scenarios and threads.

    Args:
        count: how many.
        max_flows: the most flows that a scenario will have; `begin_resets` of all N can raise it.
        threads: how many threads simulate; None is one per core, with at least four scenarios for each.

    Raises:
        ValueError: `threads` is not an integer >= 1 or None.
    """

    def __init__(self, count: int, max_flows: int, threads: int | None = None) -> None:
        threads = check_integer("threads", threads, at_least=1, or_none=True)
        cores = available_cores()
        self._threads = threads or min(cores, max(1, count // _SCENARIOS_PER_THREAD))
        self._count = count
        self._steps_ns = np.zeros(count, dtype=np.int64)
        self._max_flows = max_flows
        self.close()

    def begin_resets(
        self,
        indices: Sequence[int],
        scenarios: Sequence[Scenario],
        seeds: Sequence[int],
        steps_ms: Sequence[float],
        policies: Sequence[Mapping[int, bytes]] | None = None,
    ) -> None:
        """See `RolloutBatch`.

        Raises:
            ValueError: a bad length of a step, an algorithm that this engine does not have, more flows than
                `max_flows` in a reset of some, or bytes that are no policy.
        """
        flows = max(len(scenario.flows) for scenario in scenarios)
        if self._batch is None or flows > self._max_flows:
            if len(indices) < self._count and self._batch is not None:
                raise ValueError(f"scenarios must have at most {self._max_flows} flows in a reset of some, got {flows}")
            self._make_batch(max(flows, self._max_flows))
        assert self._batch is not None
        of_flows: Sequence[Mapping[int, bytes] | None] = policies or [None] * len(indices)
        for index, scenario, seed, step_ms, given in zip(indices, scenarios, seeds, steps_ms, of_flows, strict=True):
            self._steps_ns[index] = whole_nanoseconds(step_ms)
            self._has_files |= has_files(scenario)
            self._batch.reset(index, self._converted(scenario, given), seed)

    def begin_steps(self, indices: npt.NDArray[np.intp] | None = None, gains: FlowGains | None = None) -> None:
        """See `EngineBatch`."""
        assert self._batch is not None
        if gains is not None:
            self._batch.set_all_gains(*gains)
        steps_ns = self._steps_ns
        if indices is not None:
            steps_ns = np.zeros_like(steps_ns)
            steps_ns[indices] = self._steps_ns[indices]
        self._batch.step(steps_ns)

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
        """See `RolloutBatch`."""
        assert self._batch is not None
        self._batch.run(
            features=features,
            gain_map=gain_map,
            policy=policy,
            durations_ns=self._steps_ns,
            flows=flows,
            next_steps=arrays.next_steps,
            preferences=preferences,
            gains=gains,
            states=states,
            observations=arrays.observations,
            noise=arrays.noise,
            actions=arrays.actions,
            flow_rows=arrays.flows,
            link_rows=arrays.link,
            times_s=arrays.time_s,
            is_over=arrays.is_over.view(np.uint8),
            is_complete=arrays.is_complete.view(np.uint8),
        )

    def finish(self) -> dict[int, EngineError]:
        """See `EngineBatch`; only controllers in C fail."""
        if self._batch is None or not self._has_files:
            return {}
        return {index: EngineError(fault) for index, fault in self._batch.faults().items()}

    def flaws(self) -> dict[int, str]:
        """Return nothing: simulated time has no flaws."""
        return {}

    def close(self) -> None:
        """Free everything; a reset of all starts afresh."""
        self._batch: _native.Batch | None = None
        self._has_files = False
        self._last: _Converted | None = None
        self.flows = np.empty((self._count, 0, len(FLOW_COLUMNS)))
        self.link = np.empty((self._count, len(LINK_COLUMNS)))
        self.time_s = np.zeros(self._count)
        self.is_over = self.is_complete = np.zeros(self._count, dtype=np.bool_)

    def _make_batch(self, max_flows: int) -> None:
        self._max_flows = max_flows
        self._batch = _native.Batch(self._count, max_flows, self._threads)
        self.flows, self.link, self.time_s, self.is_over, self.is_complete = _Arrays.of(self._batch)

    def _converted(self, scenario: Scenario, policies: Mapping[int, bytes] | None) -> _native.Scenario:
        # Cached: if no scenario is drawn, every episode has the same one; a search runs many policies in the same one.
        own = read_policies(scenario)
        if self._last is None or not self._last.is_of(scenario, own):
            check_algorithms(scenario, NativeEngine.description)
            self._last = _Converted.of(scenario, own)
        if policies is None:
            return self._last.native
        return _with_policies(self._last.plain, {**own, **policies})


class _Converted(NamedTuple):
    """A scenario, the same in plain types, the policies that its flows name, and all of it in C++."""

    scenario: Scenario
    plain: dict[str, Any]
    policies: Mapping[int, bytes]
    native: _native.Scenario

    @classmethod
    def of(cls, scenario: Scenario, policies: Mapping[int, bytes]) -> _Converted:
        """Convert a scenario."""
        plain = with_compiled_files(scenario)
        return cls(scenario, plain, policies, _with_policies(plain, policies))

    def is_of(self, scenario: Scenario, policies: Mapping[int, bytes]) -> bool:
        """Return whether it still is this scenario: files that the flows name may have changed."""
        if self.scenario is not scenario or self.policies != policies:
            return False
        return not has_files(scenario) or self.plain == with_compiled_files(scenario)


class _Arrays(NamedTuple):
    """What a batch measured in its last step or reset; see `EngineBatch`. It writes them again in the next one."""

    flows: npt.NDArray[np.float64]
    link: npt.NDArray[np.float64]
    time_s: npt.NDArray[np.float64]
    is_over: npt.NDArray[np.bool_]
    is_complete: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, batch: _native.Batch) -> _Arrays:
        flags = batch.is_over.view(np.bool_), batch.is_complete.view(np.bool_)
        return cls(batch.flow_rows, batch.link_rows, batch.times_s, *flags)


def has_files(scenario: Scenario) -> bool:
    """Return whether flows of a scenario run controllers in C."""
    return any(flow.file is not None for flow in scenario.flows)


def _with_policies(plain: dict[str, Any], policies: Mapping[int, bytes]) -> _native.Scenario:
    """Convert `Scenario.to_dict()`, in which these flows get these policies."""
    for index, policy in policies.items():
        plain["flows"][index]["policy"] = policy
    return _native.Scenario(plain)
