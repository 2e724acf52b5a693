"""
The native engine, many bottlenecks in this process, and what agents see of the rows of any engine (C++).
"""

from collections.abc import Sequence
from typing import Annotated

import numpy
from numpy.typing import NDArray

import bbrgym._controllers

class Scenario:
    """A scenario as engines read it. Episodes can share it."""

    def __init__(self, plain: dict[str, object]) -> None:
        """
        Convert `Scenario.to_dict()`. Raises ValueError for a field that no engine knows.
        """

class Batch:
    """Scenarios that are stepped together; none affects another."""

    def __init__(self, size: int, max_flows: int, threads: int = 1, packets_worth_threads: float = 3000.0) -> None:
        """
        A step of fewer packets than `packets_worth_threads` is the work of one thread.
        """

    def reset(self, index: int, scenario: Scenario, seed: int) -> None:
        """
        Start a scenario at time 0. Raises ValueError for what cannot be simulated.
        """

    def set_gains(self, index: int, flow: int, cwnd_gain: float, pacing_gain: float) -> None:
        """Set the gains of an agent's flow. Raises IndexError or ValueError."""

    def set_all_gains(
        self,
        indices: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        flows: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        gains: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
    ) -> None:
        """
        Call `set_gains` for each of M flows; `gains` has the shape (2, M). Raises IndexError or ValueError.
        """

    def step(
        self,
        durations_ns: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    ) -> None:
        """
        Simulate each scenario for its duration, or to its end; 0 leaves a scenario as it is. Releases the GIL.
        """

    def run(
        self,
        features: bbrgym._controllers.PolicyTable,
        gain_map: bbrgym._controllers.GainMap,
        policy: bbrgym._controllers.PolicyNetwork | None,
        durations_ns: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        flows: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        next_steps: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu")],
        preferences: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        gains: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
        states: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu")],
        observations: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None), order="C", device="cpu")],
        noise: Annotated[
            NDArray[numpy.float32], dict(shape=(None, None, None), order="C", device="cpu", writable=False)
        ],
        actions: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None), order="C", device="cpu")],
        flow_rows: Annotated[NDArray[numpy.float64], dict(shape=(None, None, None, None), order="C", device="cpu")],
        link_rows: Annotated[NDArray[numpy.float64], dict(shape=(None, None, None), order="C", device="cpu")],
        times_s: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
        is_over: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order="C", device="cpu")],
        is_complete: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order="C", device="cpu")],
    ) -> None:
        """
        Make the steps of a rollout, from `next_steps` on, to the last one or to the end of each episode; see envs/native/rollout.h for the arrays. Raises ValueError. Releases the GIL.
        """

    def faults(self) -> dict[int, str]:
        """
        Which scenarios have a flow whose decisions are void, by their index, and why.
        """

    @property
    def flow_rows(self) -> Annotated[NDArray[numpy.float64], dict(writable=False)]:
        """
        Rows of the last step, shape (size, max_flows, FLOW_COLUMNS); a view that later steps change.
        """

    @property
    def link_rows(self) -> Annotated[NDArray[numpy.float64], dict(writable=False)]:
        """Rows of the links, shape (size, LINK_COLUMNS); a view as well."""

    @property
    def times_s(self) -> Annotated[NDArray[numpy.float64], dict(writable=False)]:
        """Simulated times in s, shape (size,); a view as well."""

    @property
    def is_over(self) -> Annotated[NDArray[numpy.uint8], dict(writable=False)]:
        """
        Whether the duration has passed or all data is delivered: uint8, shape (size,); a view as well.
        """

    @property
    def is_complete(self) -> Annotated[NDArray[numpy.uint8], dict(writable=False)]:
        """
        Whether every flow is finite and has delivered all its bytes: uint8, shape (size,); a view as well.
        """

class Reward:
    """A weighted sum of terms; see `bbrgym.envs.reward.Reward`."""

    def __init__(self, weights: Sequence[tuple[str, float]]) -> None:
        """
        The names of the terms, with their weights. Raises ValueError for an unknown one.
        """

    def evaluate(
        self,
        flow_rows: Annotated[
            NDArray[numpy.float64], dict(shape=(None, None, None), order="C", device="cpu", writable=False)
        ],
        link_rows: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
        flows: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        conditions: Annotated[
            NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)
        ],
        rewards: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu")],
    ) -> None:
        """
        Write the rewards of M flows on L links; see `bbrgym.envs.reward.RewardContext`. Raises ValueError or IndexError.
        """

class AgentSteps:
    """The agents' side of the last step of N links, K flows of each."""

    def __init__(
        self,
        features: bbrgym._controllers.PolicyTable,
        reward: Reward,
        flow_rows: Annotated[
            NDArray[numpy.float64], dict(shape=(None, None, None), order="C", device="cpu", writable=False)
        ],
        link_rows: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
        flows: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        gains: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)],
        preferences: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu", writable=False)],
        conditions: Annotated[
            NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu", writable=False)
        ],
        rows: Annotated[NDArray[numpy.float64], dict(shape=(None, None), order="C", device="cpu")],
        observations: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order="C", device="cpu")],
        rewards: Annotated[NDArray[numpy.float64], dict(shape=(None,), order="C", device="cpu")],
    ) -> None:
        """Remember the arrays; see envs/native/agent_steps.h. Raises ValueError."""

    def read(
        self,
        links: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)]
        | None = None,
    ) -> None:
        """
        Write the rows, observations and rewards of the agent flows of all links, or of some. Raises IndexError.
        """

def reward_terms() -> dict[str, tuple[float, float, str]]:
    """The terms of rewards: lowest and highest value, and meaning."""

def took_part(
    rows: Annotated[NDArray[numpy.float64], dict(order="C", device="cpu", writable=False)],
) -> NDArray[numpy.bool_]:
    """
    Whether flows took part in a step: from rows, shape (…, FLOW_COLUMNS), to bool, shape (…). Raises ValueError.
    """

def scenario_fields() -> dict[str, tuple[object, str, bool, dict[str, float], str, str]]:
    """
    The fields of a scenario in order: default, kind of values, whether None is one, bounds, names, meaning.
    """

def flow_fields() -> dict[str, tuple[object, str, bool, dict[str, float], str, str]]:
    """The fields of a flow, as `scenario_fields`."""

def flow_columns() -> dict[str, str]:
    """The columns of a flow's row, with their meaning."""

def link_columns() -> dict[str, str]:
    """The columns of the link's row, with their meaning."""
