"""The seam between an environment and what simulates: `reset`, `steer`, `step`, `rows`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from bbrgym.baselines.policy_file import policy_bytes
from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.scenario import Scenario


@dataclass(frozen=True)
class Rows:
    """What one step of an engine measured.

    Attributes:
        time_s: simulated time at the end of the step, in s.
        flows: shape (number of flows, number of `FLOW_COLUMNS`), float64.
        link: shape (number of `LINK_COLUMNS`,), float64.
        is_over: the scenario's duration has passed, or every flow has delivered all its bytes.
        is_complete: every flow was finite and has delivered all its bytes.
    """

    time_s: float
    flows: npt.NDArray[np.float64]
    link: npt.NDArray[np.float64]
    is_over: bool
    is_complete: bool

    def flow(self, index: int) -> dict[str, float]:
        """The row of one flow as {column: value}."""
        return dict(zip(FLOW_COLUMNS, self.flows[index].tolist(), strict=True))

    def link_row(self) -> dict[str, float]:
        """The row of the link as {column: value}."""
        return dict(zip(LINK_COLUMNS, self.link.tolist(), strict=True))


class EngineError(RuntimeError):
    """An engine failed: its process died, hung, or refused. The message has the cause and what it last printed."""


class Engine(Protocol):
    """Runs one scenario at a time. Everything that happens in it follows from `reset(scenario, seed)` and the gains.

    `begin_…` sends a request and `finish_…` waits for its answer, so that one thread can keep several engines busy;
    `reset` and `step` are both in one. Any call may raise `EngineError`; afterwards `reset` starts afresh.
    """

    def begin_reset(self, scenario: Scenario, seed: int) -> None:
        """Ask for a new episode."""
        ...

    def finish_reset(self) -> Rows:
        """Wait for it; the rows at time 0 (all counts zero, no samples)."""
        ...

    def steer(self, flow: int, cwnd_gain: float, pacing_gain: float) -> None:
        """Set the gains of a flow whose algorithm is `agent`, from the next step on; they are held until changed."""
        ...

    def begin_step(self, duration_ms: float) -> None:
        """Ask for `duration_ms` more of simulated time (less if the scenario ends before)."""
        ...

    def finish_step(self) -> Rows:
        """Wait for it; the rows of the step."""
        ...

    def reset(self, scenario: Scenario, seed: int) -> Rows:
        """`begin_reset` and `finish_reset`."""
        self.begin_reset(scenario, seed)
        return self.finish_reset()

    def step(self, duration_ms: float) -> Rows:
        """`begin_step` and `finish_step`."""
        self.begin_step(duration_ms)
        return self.finish_step()

    def rows(self) -> Rows:
        """The rows of the last reset or step again."""
        ...

    def close(self) -> None:
        """End it and free what it holds; calling it twice is fine."""
        ...


def check_steering(scenario: Scenario, flow: int, cwnd_gain: float, pacing_gain: float) -> None:
    """Refuse what `Engine.steer` cannot do.

    Raises:
        ValueError: the flow is not an agent's, or a gain is not a number above 0.
    """
    agents = scenario.agent_flows
    if flow not in agents:
        raise ValueError(
            f"flow={flow!r} cannot be steered: the agent flows are {', '.join(map(str, agents)) or 'none'}"
        )
    if not (0 < cwnd_gain < math.inf and 0 < pacing_gain < math.inf):
        raise ValueError(f"gains ({cwnd_gain!r}, {pacing_gain!r}) are not possible: gains must be numbers above 0")


def read_policies(scenario: Scenario) -> dict[int, bytes]:
    """What the flows of algorithm `policy` run, by their indices: `Agent.to_bytes()`, for the engines' C++.

    Raises:
        FileNotFoundError: there is no agent.
        ValueError: its files cannot be read.
    """
    return {i: policy_bytes(flow.policy) for i, flow in enumerate(scenario.flows) if flow.algorithm == "policy"}


ENGINES: Final[tuple[str, ...]] = ("native", "ns3")


def make_engine(name: str, **options: Any) -> Engine:
    """Make the engine called `name` ("native" or "ns3").

    Args:
        name: one of `ENGINES`.
        options: passed to the engine's constructor.

    Raises:
        ValueError: there is no such engine.
        EngineError: it cannot run here (ns-3 is not installed, say); the message says what to do.
    """
    if name == "native":
        from bbrgym.envs.native.engine import NativeEngine

        return NativeEngine(**options)
    if name == "ns3":
        from bbrgym.envs.ns3.engine import Ns3Engine

        return Ns3Engine(**options)
    raise ValueError(f"no engine {name!r}; known: {', '.join(ENGINES)}")
