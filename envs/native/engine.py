"""`engine=native`: one scenario at a time in this process."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from bbrgym.envs.engine import Engine, Rows
from bbrgym.envs.scenario import Scenario

if TYPE_CHECKING:
    from bbrgym import _native

__all__ = ["NativeEngine"]

_MAX_SEED: Final = 2**64 - 1
_LONGEST_STEP_NS: Final = 2**62


class NativeEngine(Engine):
    """Runs scenarios in this process, hundreds of times faster than ns-3; docs/native.md says how.

    It simulates within the call: `finish_…` only hands over what `begin_…` has made.
    """

    def __init__(self) -> None:
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
            ValueError: an impossible seed, or a flow whose algorithm only ns-3 has.
            RuntimeError: a request is outstanding, or the engine is closed.
        """
        from bbrgym import _native

        self._check_is_idle("begin_reset")
        try:
            whole = operator.index(seed)
        except TypeError:
            raise ValueError(f"seed={seed!r} is not possible: seed must be a whole number in [0, 2^64)") from None
        if not 0 <= whole <= _MAX_SEED:
            raise ValueError(f"seed={seed!r} is not possible: seed must be a whole number in [0, 2^64)")
        if self._batch is None or self._batch.flow_rows.shape[1] < len(scenario.flows):
            self._batch = _native.Batch(1, len(scenario.flows), 1)
        self._scenario = self._rows = None
        self._batch.reset(0, scenario.to_dict(), whole)
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
        agents = self._scenario.agent_flows
        if flow not in agents:
            raise ValueError(
                f"flow={flow!r} cannot be steered: the agent flows are {', '.join(map(str, agents)) or 'none'}"
            )
        if not (0 < cwnd_gain < math.inf and 0 < pacing_gain < math.inf):
            raise ValueError(f"gains ({cwnd_gain!r}, {pacing_gain!r}) are not possible: gains must be numbers above 0")
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
        if not 0 < duration_ms < math.inf:
            raise ValueError(f"duration_ms={duration_ms!r} is not possible: duration_ms must be a number above 0")
        nanoseconds = max(1, round(min(duration_ms * 1e6, float(_LONGEST_STEP_NS))))
        self._batch.step(np.array([nanoseconds], dtype=np.int64))
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
