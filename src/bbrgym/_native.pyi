"""Many bottlenecks in this process (C++)."""

from collections.abc import Mapping, Sequence
from typing import Annotated, overload

import numpy
from numpy.typing import NDArray

import bbrgym._controllers

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

def flow_columns() -> dict[str, str]:
    """The columns of a flow's row, with their meaning."""

def link_columns() -> dict[str, str]:
    """The columns of the link's row, with their meaning."""

class Recording:
    """A controller that keeps what it is told and decides what is set here."""

    def __init__(self) -> None: ...
    @property
    def cwnd(self) -> int:
        """In bytes."""

    @cwnd.setter
    def cwnd(self, arg: int, /) -> None: ...
    @property
    def pacing_rate(self) -> int:
        """In bit/s."""

    @pacing_rate.setter
    def pacing_rate(self, arg: int, /) -> None: ...
    @property
    def send_quantum(self) -> int:
        """In bytes."""

    @send_quantum.setter
    def send_quantum(self, arg: int, /) -> None: ...
    @property
    def is_paced(self) -> bool: ...
    @is_paced.setter
    def is_paced(self, arg: bool, /) -> None: ...
    @property
    def is_app_limited(self) -> bool: ...
    @is_app_limited.setter
    def is_app_limited(self, arg: bool, /) -> None: ...
    @property
    def calls(self) -> list[str]:
        """'ack', 'recovery' and 'restart', in the order of the calls."""

    @property
    def acks(self) -> list[bbrgym._controllers.AckEvent]: ...
    @property
    def recoveries(self) -> list[tuple[bbrgym._controllers.Recovery, int, int]]:
        """State, time in ns, in flight in bytes."""

    @property
    def restarts(self) -> list[int]:
        """Times in ns."""

class Sender:
    """The sending half of the transport; times in ns, amounts in bytes."""

    @overload
    def __init__(
        self,
        algorithm: str,
        parameters: Mapping[str, float] = {},
        packet_bytes: int = 1000,
        initial_cwnd: int = 10000,
        initial_rtt: int = 0,
        seed: int = 1,
        size_bytes: int | None = None,
    ) -> None:
        """With a registered controller."""

    @overload
    def __init__(
        self, recording: Recording, packet_bytes: int = 1000, initial_rtt: int = 0, size_bytes: int | None = None
    ) -> None: ...
    def next_packet(self, now: int) -> tuple[int, int, int, bool] | None:
        """
        Number, segment, bytes and whether it is a retransmission, of the packet that leaves now, if any.
        """

    def on_ack(self, now: int, ranges: Sequence[tuple[int, int]]) -> None:
        """
        Ranges (low, high) of packet numbers, the newest first. Raises ValueError.
        """

    def next_timer(self) -> int | None: ...
    def on_timer(self, now: int) -> None: ...
    def stop(self) -> None: ...
    def update_decision(self) -> None:
        """Read the controller's decision again."""

    def decision(self) -> bbrgym._controllers.Decision: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def is_all_delivered(self) -> bool: ...
    def counts(self) -> dict[str, int]: ...

class Receiver:
    """The receiving half of the transport; times in ns, amounts in bytes."""

    def __init__(self) -> None: ...
    def on_packet(self, now: int, number: int, segment: int, bytes: int) -> bool:
        """Whether it must be acknowledged now."""

    def ack_due(self) -> int | None: ...
    def write_ack(self) -> list[tuple[int, int]]: ...
    @property
    def has_hole(self) -> bool: ...
    def counts(self) -> dict[str, int]: ...
