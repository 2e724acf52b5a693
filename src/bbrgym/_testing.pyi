"""
Controllers, estimators, transport and link model, for tests to drive by hand (C++).
"""

from collections.abc import Mapping, Sequence
import enum
from typing import overload

def metrics() -> dict[str, str]:
    """Every metric of the controllers, with its unit and meaning."""

class Recovery(enum.Enum):
    """Loss recovery as the transport sees it."""

    OPEN = 0

    RECOVERY = 1

    LOSS = 2

class RateSample:
    """The delivery rate that an ACK reveals; bytes, bit/s and ns."""

    def __init__(self) -> None: ...
    @property
    def is_valid(self) -> bool: ...
    @is_valid.setter
    def is_valid(self, arg: bool, /) -> None: ...
    @property
    def delivery_rate(self) -> int: ...
    @delivery_rate.setter
    def delivery_rate(self, arg: int, /) -> None: ...
    @property
    def interval(self) -> int: ...
    @interval.setter
    def interval(self, arg: int, /) -> None: ...
    @property
    def delivered(self) -> int: ...
    @delivered.setter
    def delivered(self, arg: int, /) -> None: ...
    @property
    def prior_delivered(self) -> int: ...
    @prior_delivered.setter
    def prior_delivered(self, arg: int, /) -> None: ...
    @property
    def is_app_limited(self) -> bool: ...
    @is_app_limited.setter
    def is_app_limited(self, arg: bool, /) -> None: ...
    @property
    def tx_in_flight(self) -> int: ...
    @tx_in_flight.setter
    def tx_in_flight(self, arg: int, /) -> None: ...
    @property
    def lost_since_send(self) -> int: ...
    @lost_since_send.setter
    def lost_since_send(self, arg: int, /) -> None: ...
    @property
    def marked_since_send(self) -> int: ...
    @marked_since_send.setter
    def marked_since_send(self, arg: int, /) -> None: ...

class AckEvent:
    """What one ACK says; bytes and ns."""

    def __init__(self) -> None: ...
    @property
    def now(self) -> int: ...
    @now.setter
    def now(self, arg: int, /) -> None: ...
    @property
    def rtt(self) -> int: ...
    @rtt.setter
    def rtt(self, arg: int, /) -> None: ...
    @property
    def bytes_acked(self) -> int: ...
    @bytes_acked.setter
    def bytes_acked(self, arg: int, /) -> None: ...
    @property
    def bytes_lost(self) -> int: ...
    @bytes_lost.setter
    def bytes_lost(self, arg: int, /) -> None: ...
    @property
    def bytes_marked(self) -> int: ...
    @bytes_marked.setter
    def bytes_marked(self, arg: int, /) -> None: ...
    @property
    def prior_in_flight(self) -> int: ...
    @prior_in_flight.setter
    def prior_in_flight(self, arg: int, /) -> None: ...
    @property
    def in_flight(self) -> int: ...
    @in_flight.setter
    def in_flight(self, arg: int, /) -> None: ...
    @property
    def delivered(self) -> int: ...
    @delivered.setter
    def delivered(self, arg: int, /) -> None: ...
    @property
    def sent(self) -> int: ...
    @sent.setter
    def sent(self, arg: int, /) -> None: ...
    @property
    def is_cwnd_limited(self) -> bool: ...
    @is_cwnd_limited.setter
    def is_cwnd_limited(self, arg: bool, /) -> None: ...
    @property
    def sample(self) -> RateSample: ...
    @sample.setter
    def sample(self, arg: RateSample, /) -> None: ...

class Decision:
    """What a controller wants from now on; bytes and bit/s."""

    @property
    def cwnd(self) -> int: ...
    @cwnd.setter
    def cwnd(self, arg: int, /) -> None: ...
    @property
    def pacing_rate(self) -> int: ...
    @pacing_rate.setter
    def pacing_rate(self, arg: int, /) -> None: ...
    @property
    def send_quantum(self) -> int: ...
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

class Controller:
    """One flow's congestion control; `make` makes it."""

    def on_ack(self, ack: AckEvent) -> None: ...
    def on_recovery(self, state: Recovery, now: int, in_flight: int) -> None: ...
    def on_spurious_recovery(self) -> None: ...
    def on_restart(self, now: int) -> None: ...
    def steer(self, cwnd_gain: float, pacing_gain: float) -> bool: ...
    def decision(self) -> Decision: ...
    def metrics(self) -> dict[str, float]: ...

class PolicyController(Controller):
    """What `make` makes of `policy`."""

    @property
    def observation(self) -> list[float]:
        """What it decided by last."""

def make(
    name: str,
    parameters: Mapping[str, float] = {},
    packet_bytes: int = 1000,
    initial_cwnd: int = 10000,
    initial_rtt: int = 0,
    seed: int = 1,
    policy: bytes | None = None,
) -> Controller:
    """
    A controller for one connection; `policy` is what the controller of that name runs. Raises ValueError.
    """

def policy_columns() -> list[str]:
    """
    Return the columns of a flow's row that the features of a policy can be made of.
    """

def policy_interval(policy: bytes, min_rtt: int) -> int:
    """Return the time between two decisions of a flow with this min_rtt; ns."""

def policy_time_ns(policy: bytes, repeats: int) -> float:
    """
    Return the processor time of a decision, from its columns to its gains: the mean of this many, in ns.
    """

class WindowedMax:
    """Maximum of a stream over a sliding window."""

    def __init__(self, window: int) -> None: ...
    def update(self, time: int, value: int) -> None: ...
    def best(self) -> int: ...

class RoundCounter:
    """Counts packet-timed round trips."""

    def __init__(self) -> None: ...
    def on_delivered(self, prior_delivered: int, delivered: int) -> bool: ...
    def restart(self, delivered: int) -> None: ...
    def count(self) -> int: ...

class FullPipe:
    """Tells when Startup has filled the pipe."""

    def __init__(self, growth: float, rounds: int) -> None: ...
    def on_round(self, bandwidth: int) -> None: ...
    def forget_bandwidth(self) -> None: ...
    def is_full(self) -> bool: ...

class MinRtt:
    """BBR's RTprop filter; ns."""

    def __init__(self, window: int) -> None: ...
    def on_ack(self, now: int, rtt: int) -> bool: ...
    def refresh(self, now: int) -> None: ...
    def value(self) -> int: ...

class ExtraAcked:
    """How far ACKs arrive in bursts."""

    def __init__(self) -> None: ...
    def on_ack(self, now: int, acked: int, bandwidth: int, cwnd: int, is_round_start: bool) -> None: ...
    def restart(self) -> None: ...
    def most(self) -> int: ...

class HyStart:
    """HyStart++ (RFC 9406)."""

    def __init__(self) -> None: ...
    def on_ack(self, rtt: int, acked: int, prior_delivered: int, delivered: int) -> int: ...
    def is_done(self) -> bool: ...

class ProportionalRateReduction:
    """PRR (RFC 6937); bytes."""

    def __init__(self) -> None: ...
    def start(self, in_flight: int, sent: int) -> None: ...
    def cwnd(self, acked: int, in_flight: int, sent: int, ssthresh: int, packet_bytes: int) -> int: ...

class Recording:
    """A controller that records its calls and decides what is set here."""

    def __init__(self) -> None: ...
    @property
    def decision(self) -> Decision: ...
    @decision.setter
    def decision(self, arg: Decision, /) -> None: ...
    @property
    def calls(self) -> list[str]:
        """
        'ack', 'recovery', 'spurious' and 'restart', in the order of the calls.
        """

    @property
    def acks(self) -> list[AckEvent]: ...
    @property
    def recoveries(self) -> list[tuple[Recovery, int, int]]:
        """State, time in ns, in flight in bytes."""

    @property
    def restarts(self) -> list[int]:
        """Times in ns."""

class Sender:
    """The sending half of the transport; times in ns, amounts in bytes."""

    @overload
    def __init__(self, algorithm: str, initial_rtt: int = 0, seed: int = 1, size_bytes: int | None = None) -> None:
        """With a registered controller."""

    @overload
    def __init__(
        self,
        recording: Recording,
        initial_rtt: int = 0,
        size_bytes: int | None = None,
        is_ecn_capable: bool = False,
        app_rate_mbps: float | None = None,
    ) -> None: ...
    def next_packet(self, now: int) -> tuple[int, int, int, bool] | None:
        """
        Return (number, segment, bytes, is_retransmission) of the packet that leaves now, or None.
        """

    def on_ack(self, now: int, ranges: Sequence[tuple[int, int]], marked: int = 0) -> None:
        """
        Take ranges (low, high) of packet numbers, newest first, and the total of marked bytes. Raises ValueError.
        """

    def next_timer(self) -> int | None: ...
    def on_timer(self, now: int) -> None: ...
    def stop(self) -> None: ...
    def update_decision(self) -> None:
        """Read the controller's decision again."""

    def decision(self) -> Decision: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def is_all_delivered(self) -> bool: ...
    def counts(self) -> dict[str, int]: ...

class Receiver:
    """The receiving half of the transport; times in ns, amounts in bytes."""

    def __init__(self) -> None: ...
    def on_packet(self, now: int, number: int, segment: int, bytes: int, is_marked: bool = False) -> bool:
        """Return whether it must be acknowledged now."""

    def ack_due(self) -> int | None: ...
    def write_ack(self) -> list[tuple[int, int]]: ...
    @property
    def has_hole(self) -> bool: ...
    def counts(self) -> dict[str, int]: ...

class QueueDiscipline:
    """A queue of numbered packets with the discipline of a scenario."""

    def __init__(self, scenario: dict[str, object], seed: int) -> None: ...
    def push(self, now_ns: int, number: int, bytes: int, ecn: int = 0, flow: int = 0) -> None:
        """A packet of `bytes` on the wire, with this ECN field, arrives."""

    def pop(self, now_ns: int) -> tuple[int, bool] | None:
        """
        Return the number of the packet that leaves and whether it is marked, or None; packets before it are dropped.
        """

    def __len__(self) -> int: ...
    @property
    def is_full(self) -> bool: ...
    @property
    def bytes(self) -> int: ...
    @property
    def drops(self) -> int: ...
    @property
    def marks(self) -> int: ...
    @property
    def drop_probability(self) -> float:
        """Of PIE."""

    @property
    def base_probability(self) -> float:
        """Of DualPI2."""

def draw_losses(scenario: dict[str, object], seed: int, count: int, interval_ns: int = 0) -> list[bool]:
    """
    Return which of `count` packets, which leave at this interval, the link loses.
    """

def draw_arrivals(
    flow: dict[str, object], seed: int, sent_ns: Sequence[int], forward_ms: float = 0.0, ahead_ns: int = 0
) -> list[int | None]:
    """
    Return when acknowledgements of a flow, sent at these times, arrive; None for those that are lost.
    """

def draw_lateness(scenario: dict[str, object], seed: int, payloads: Sequence[int]) -> list[int]:
    """Return how late packets of these payloads are, in ns."""

def police(scenario: dict[str, object], packets: Sequence[tuple[int, int]]) -> list[bool]:
    """
    Return which packets (time in ns, bytes on the wire) the policer admits.
    """

def scenario_defaults() -> dict[str, object]:
    """The fields of a scenario, in order."""

def flow_defaults() -> dict[str, object]:
    """The fields of a flow, in order."""

def queue_packets(scenario: dict[str, object]) -> int:
    """The buffer of a scenario in packets."""

class Paths:
    """What lies between the hosts of the Linux engine; times in ns."""

    def __init__(self, scenario: dict[str, object], seed: int) -> None: ...
    def send(self, now: int, flow: int, number: int, bytes: int, ecn: int = 0) -> None:
        """A packet of so much payload leaves its sender."""

    def reply(self, now: int, flow: int, number: int) -> None:
        """A packet without payload leaves its receiver."""

    def advance(self, now: int) -> list[tuple[int, int, int, bool, bool]]:
        """
        Return (time, flow, number, is_data, is_marked) of what arrives at a host until `now`.
        """

    def take_lost(self) -> list[tuple[int, int]]:
        """Return (flow, number) of what was dropped or lost since the last call."""

    def next_event(self) -> int | None: ...
    def row(self, now: int) -> list[float]:
        """Return LINK_COLUMNS since the beginning."""

def write_datagram(
    kind: int,
    connection: int = 0,
    time: int = 0,
    token: bytes = ...,
    number: int = 0,
    segment: int = 0,
    bytes: int = 0,
    is_retransmission: bool = False,
    ranges: Sequence[tuple[int, int]] = [],
    marked: int = 0,
    is_last: bool = False,
    totals: Sequence[int] = [],
) -> bytes:
    """Return the bytes of a datagram; the payload of data is zeros."""

def rewrite_datagram(bytes: bytes) -> bytes | None:
    """Read a datagram and write it again; None if it is none."""

def expand_number(low: int, expected: int) -> int:
    """
    Return the number with these low 32 bits that is closest to `expected`.
    """

def siphash(low: int, high: int, message: bytes) -> int:
    """Return SipHash-2-4 of the message under a key of two words."""

def make_token(key: int, peer: bytes, now: int) -> bytes:
    """Return a token for a peer (18 bytes of address and port)."""

def is_token_valid(token: bytes, key: int, peer: bytes, now: int) -> bool:
    """Return whether the token was made with this key for this peer."""
