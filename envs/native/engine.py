"""`engine=native`: scenarios in this process, one at a time or many at once."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import numpy.typing as npt

from bbrgym.baselines import registry
from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.engine import Engine, Rows, check_steering, read_policies
from bbrgym.envs.scenario import Scenario

if TYPE_CHECKING:
    from bbrgym import _native

__all__ = ["NativeEngine", "NativeEngines"]

_MAX_SEED: Final = 2**64 - 1
_LONGEST_STEP_NS: Final = 2.0**62
_SCENARIOS_A_THREAD: Final = 4
"""A step of 10 ms at 12 Mbit/s is 2 us of work, and a thread needs several to wake up."""


class NativeEngine(Engine):
    """Runs scenarios in this process, hundreds of times faster than ns-3; docs/native.md says how.

    It simulates within the call: `finish_…` only hands over what `begin_…` has made.

    Args:
        threads: for `NativeEngines`; a single scenario is simulated by the thread that calls.

    Raises:
        ValueError: of a bad argument.
    """

    def __init__(self, threads: int | None = None) -> None:
        _check_threads(threads)
        self._batch: _native.Batch | None = None
        self._scenario: Scenario | None = None
        self._rows: Rows | None = None
        self._asked: Literal["reset", "step"] | None = None
        self._is_closed = False

    def begin_reset(self, scenario: Scenario, seed: int) -> None:
        """Start a new episode; one that is running is abandoned.

        Args:
            scenario: what to simulate.
            seed: in [0, 2^64); decides everything random.

        Raises:
            ValueError: an impossible seed, a flow whose algorithm only ns-3 has, or a policy that cannot be read.
            FileNotFoundError: there is no policy where a flow's should be.
            RuntimeError: a request is outstanding, or the engine is closed.
        """
        from bbrgym import _native

        self._check_is_idle("begin_reset")
        whole = _seed(seed)
        plain = _plain(scenario)
        if self._batch is None or self._batch.flow_rows.shape[1] < len(scenario.flows):
            self._batch = _native.Batch(1, len(scenario.flows), 1)
        self._scenario = self._rows = None
        self._batch.reset(0, plain, whole)
        self._scenario = scenario
        self._rows = self._read(self._batch, scenario)
        self._asked = "reset"

    def finish_reset(self) -> Rows:
        """The rows at time 0.

        Raises:
            RuntimeError: there is no reset to wait for.
        """
        return self._finish("reset")

    def steer(self, flow: int, cwnd_gain: float, pacing_gain: float) -> None:
        """Set the gains of an agent flow from now on; its controller clamps them.

        Raises:
            ValueError: the flow is not an agent's, or a gain is not a number above 0.
            RuntimeError: there is no episode.
        """
        if self._batch is None or self._scenario is None:
            raise RuntimeError("steer() before reset()")
        check_steering(self._scenario, flow, cwnd_gain, pacing_gain)
        self._batch.steer(0, int(flow), float(cwnd_gain), float(pacing_gain))

    def begin_step(self, duration_ms: float) -> None:
        """Simulate more, less if the scenario ends before.

        Args:
            duration_ms: how much, in ms; rounded to whole ns.

        Raises:
            ValueError: it is not above 0.
            RuntimeError: a request is outstanding, or there is no episode, or it is over.
        """
        self._check_is_idle("begin_step")
        if self._batch is None or self._scenario is None or self._rows is None:
            raise RuntimeError("begin_step() before reset()")
        if self._rows.is_over:
            raise RuntimeError("begin_step() after the end of the episode: reset first")
        self._batch.step(np.array([_nanoseconds(duration_ms)], dtype=np.int64))
        self._rows = self._read(self._batch, self._scenario)
        self._asked = "step"

    def finish_step(self) -> Rows:
        """The rows of the step.

        Raises:
            RuntimeError: there is no step to wait for.
        """
        return self._finish("step")

    def rows(self) -> Rows:
        """The rows of the last reset or step again.

        Raises:
            RuntimeError: there are none.
        """
        if self._rows is None:
            raise RuntimeError("rows() before reset()")
        return self._rows

    def close(self) -> None:
        """Free what it holds; calling it twice is fine."""
        self._batch = self._scenario = self._rows = self._asked = None
        self._is_closed = True

    def _check_is_idle(self, call: str) -> None:
        if self._is_closed:
            raise RuntimeError(f"{call}() on a closed engine")
        if self._asked is not None:
            raise RuntimeError(f"{call}() while a {self._asked} is outstanding: finish_{self._asked}() first")

    def _finish(self, what: Literal["reset", "step"]) -> Rows:
        if self._asked != what or self._rows is None:
            raise RuntimeError(f"finish_{what}() without begin_{what}()")
        self._asked = None
        return self._rows

    @staticmethod
    def _read(batch: _native.Batch, scenario: Scenario) -> Rows:
        # Copies: the batch writes its next rows where these are.
        return Rows(
            time_s=float(batch.times_s[0]),
            flows=batch.flow_rows[0, : len(scenario.flows)].copy(),
            link=batch.link_rows[0].copy(),
            is_over=bool(batch.is_over[0]),
            is_complete=bool(batch.is_complete[0]),
        )


class NativeEngines:
    """N scenarios at once, see `bbrgym.envs.engines.Engines`: in one process, on several threads, behind arrays.

    Each does to the last bit what it does in a `NativeEngine`, whatever their number and that of the threads is.

    Args:
        count: how many.
        max_flows: the most flows that a scenario will have; `begin_resets` of all takes more.
        threads: how many simulate; None is as many as there are cores, and at least four scenarios for each.

    Raises:
        ValueError: of a bad argument.
    """

    def __init__(self, count: int, max_flows: int, threads: int | None = None) -> None:
        _check_threads(threads)
        cores = len(os.sched_getaffinity(0))
        self._threads = threads or min(cores, max(1, count // _SCENARIOS_A_THREAD))
        self._count = count
        self._steps_ns = np.zeros(count, dtype=np.int64)
        self._last: tuple[Scenario, dict[str, Any]] | None = None
        self._max_flows = max_flows
        self.close()

    def begin_resets(
        self, indices: Sequence[int], scenarios: Sequence[Scenario], seeds: Sequence[int], steps_ms: Sequence[float]
    ) -> None:
        """See `Engines`.

        Raises:
            ValueError: an impossible seed or length of a step, a flow whose algorithm only ns-3 has, or more flows
                than there is room for while others go on.
        """
        flows = max(len(scenario.flows) for scenario in scenarios)
        if self._batch is None or flows > self._max_flows:
            if len(indices) < self._count and self._batch is not None:
                raise ValueError(f"a scenario with {flows} flows does not fit: there is room for {self._max_flows}")
            self._make_batch(max(flows, self._max_flows))
        assert self._batch is not None
        for index, scenario, seed, step_ms in zip(indices, scenarios, seeds, steps_ms, strict=True):
            self._steps_ns[index] = _nanoseconds(step_ms)
            self._batch.reset(index, self._plain(scenario), _seed(seed))

    def steer(self, indices: npt.NDArray[np.intp], flows: npt.NDArray[np.intp], gains: npt.NDArray[np.float64]) -> None:
        """See `Engines`."""
        assert self._batch is not None
        steer = self._batch.steer
        for index, flow, cwnd, pacing in zip(indices.tolist(), flows.tolist(), *gains.tolist(), strict=True):
            steer(index, flow, cwnd, pacing)

    def begin_step(self, indices: npt.NDArray[np.intp] | None = None) -> None:
        """See `Engines`."""
        assert self._batch is not None
        steps_ns = self._steps_ns
        if indices is not None:
            steps_ns = np.zeros_like(steps_ns)
            steps_ns[indices] = self._steps_ns[indices]
        self._batch.step(steps_ns)

    def finish(self) -> None:
        """Nothing is outstanding: the call that begins a step makes it."""

    def close(self) -> None:
        """Free what they hold; a reset of all begins afresh."""
        self._batch: _native.Batch | None = None
        self.flows = np.empty((self._count, 0, len(FLOW_COLUMNS)))
        self.link = np.empty((self._count, len(LINK_COLUMNS)))
        self.time_s = np.zeros(self._count)
        self.is_over = self.is_complete = np.zeros(self._count, dtype=np.bool_)

    def _make_batch(self, max_flows: int) -> None:
        from bbrgym import _native

        self._max_flows = max_flows
        self._batch = _native.Batch(self._count, max_flows, self._threads)
        self.flows = self._batch.flow_rows
        self.link = self._batch.link_rows
        self.time_s = self._batch.times_s
        self.is_over = self._batch.is_over.view(np.bool_)
        self.is_complete = self._batch.is_complete.view(np.bool_)

    def _plain(self, scenario: Scenario) -> dict[str, Any]:
        # The same one in every episode, if none is drawn.
        if self._last is None or self._last[0] is not scenario:
            self._last = scenario, _plain(scenario)
        return self._last[1]


def _plain(scenario: Scenario) -> dict[str, Any]:
    for index, flow in enumerate(scenario.flows):
        if flow.algorithm in registry.COMPARATORS:
            raise ValueError(
                f"flow {index} is of algorithm {flow.algorithm!r}, which only engine=ns3 has; engine=native has: "
                f"{', '.join(registry.controllers())}"
            )
    plain = scenario.to_dict()
    for index, policy in read_policies(scenario).items():
        plain["flows"][index]["policy"] = policy
    return plain


def _seed(seed: int) -> int:
    try:
        whole = operator.index(seed)
    except TypeError:
        whole = -1
    if not 0 <= whole <= _MAX_SEED:
        raise ValueError(f"seed={seed!r} is not possible: seed must be a whole number in [0, 2^64)")
    return whole


def _nanoseconds(duration_ms: float) -> int:
    if not 0 < duration_ms < math.inf:
        raise ValueError(f"duration_ms={duration_ms!r} is not possible: duration_ms must be a number above 0")
    return max(1, round(min(duration_ms * 1e6, _LONGEST_STEP_NS)))


def _check_threads(threads: int | None) -> None:
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
        raise ValueError(f"threads={threads!r} is not possible: threads must be a whole number of at least 1, or none")
