"""Many bottlenecks in this process (C++)."""

from collections.abc import Sequence
from typing import Annotated

import numpy
from numpy.typing import NDArray

class Batch:
    """Scenarios that are simulated together, each on its own."""

    def __init__(self, size: int, max_flows: int, threads: int = 1) -> None: ...
    def reset(self, index: int, scenario: dict[str, object], seed: int) -> None:
        """
        Start `Scenario.to_dict()` at time 0. Raises ValueError for what cannot be simulated.
        """

    def steer(self, index: int, flow: int, cwnd_gain: float, pacing_gain: float) -> None:
        """Set the gains of an agent's flow. Raises IndexError or ValueError."""

    def step(
        self,
        durations_ns: Annotated[NDArray[numpy.int64], dict(shape=(None,), order="C", device="cpu", writable=False)],
    ) -> None:
        """
        Simulate so much more of each scenario, or to its end; 0 leaves one as it is. The GIL is released.
        """

    @property
    def flow_rows(self) -> Annotated[NDArray[numpy.float64], dict(writable=False)]:
        """
        Shape (size, max_flows, FLOW_COLUMNS), the rows of the last step; a view that later steps change.
        """

    @property
    def link_rows(self) -> Annotated[NDArray[numpy.float64], dict(writable=False)]:
        """Shape (size, LINK_COLUMNS), likewise."""

    @property
    def times_s(self) -> Annotated[NDArray[numpy.float64], dict(writable=False)]:
        """Shape (size,), simulated time in s, likewise."""

    @property
    def is_over(self) -> Annotated[NDArray[numpy.uint8], dict(writable=False)]:
        """
        Shape (size,), uint8: the scenario's duration has passed, or all is delivered.
        """

    @property
    def is_complete(self) -> Annotated[NDArray[numpy.uint8], dict(writable=False)]:
        """
        Shape (size,), uint8: every flow was finite and has delivered all its bytes.
        """

class CodelQueue:
    """A CoDel queue (RFC 8289) of numbered packets, for tests."""

    def __init__(self, target_ns: int, interval_ns: int, packet_bytes: int) -> None: ...
    def push(self, now_ns: int, number: int, bytes: int) -> None:
        """A packet arrives."""

    def pop(self, now_ns: int) -> int | None:
        """
        The number of the packet that leaves, or None; those before it are dropped.
        """

    def __len__(self) -> int: ...
    @property
    def bytes(self) -> int: ...
    @property
    def drops(self) -> int: ...

def draw_losses(loss: float, loss_burst_packets: float | None, seed: int, count: int) -> list[bool]:
    """Which of `count` packets the link loses, for tests."""

def draw_arrivals(jitter_ms: float, delay_ns: int, seed: int, sent_ns: Sequence[int]) -> list[int]:
    """When acknowledgements sent at these times arrive, for tests."""

def scenario_defaults() -> dict[str, object]:
    """The fields of a scenario, in order."""

def flow_defaults() -> dict[str, object]:
    """The fields of a flow, in order."""

def flow_columns() -> list[str]:
    """The columns of a flow's row, in order."""

def link_columns() -> list[str]:
    """The columns of the link's row, in order."""
