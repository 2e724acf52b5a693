"""Flows between two machines: the sender and the receiver of the Linux engine over real sockets (docs/wire.md).

    for event in receive("0.0.0.0", 5201):                          # on one machine
        print(event)

    for event in send("192.0.2.1", 5201, Flow("bbr"), seconds=10):  # on the other
        print(event)

Both are generators of events, and end when the transfer ends. They raise ConnectionError if a socket or the other
machine fails.
"""

from __future__ import annotations

import math
import secrets
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from bbrgym.baselines import registry
from bbrgym.checks import check_integer, check_name, check_number
from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.engine import EngineUnavailableError, read_policies, with_compiled_files
from bbrgym.envs.linux.tcp_sender import TcpSender
from bbrgym.envs.mahimahi import LOWEST_RATE_MBPS
from bbrgym.envs.scenario import Flow, Scenario, known_units
from bbrgym.envs.trace import Trace
from bbrgym.waiting import announcing

try:
    from bbrgym import _linux
except ImportError as error:
    raise ModuleNotFoundError("flows between machines need Linux: bbrgym was built without bbrgym._linux") from error

DEFAULT_PORT: Final = 5201
"""iperf3's, which firewalls of test networks let through."""

_BUFFER_BYTES: Final = 4 << 20
"""Of a socket, where the system allows it (net.core.rmem_max): 30 ms at 1 Gbit/s."""


@dataclass(frozen=True)
class Listening:
    """The receiver is ready at this address."""

    host: str
    port: int


@dataclass(frozen=True)
class Started:
    """A flow has begun.

    Attributes:
        peer: HOST:PORT of the other end.
        local: HOST:PORT of this end.
        packet_bytes: payload of a full packet; None at the receiver, which is not told.
    """

    peer: str
    local: str
    packet_bytes: int | None = None


@dataclass(frozen=True)
class SentInterval:
    """An interval, as the sender saw it.

    Attributes:
        start_s: since the flow began, in s.
        end_s: the same.
        row: `FLOW_COLUMNS`; what the receiver has is what it acknowledged.
    """

    start_s: float
    end_s: float
    row: dict[str, float]


@dataclass(frozen=True)
class ReceivedInterval:
    """An interval, as the receiver saw it; the counts are of the interval.

    Attributes:
        start_s: since the flow began, in s.
        end_s: the same.
        received_bytes: payload that arrived in order, without a gap.
        arrived_bytes: payload of all data packets, duplicates included.
        arrived_packets: data packets, duplicates included.
        reordered_packets: those that arrived after a later one.
    """

    start_s: float
    end_s: float
    received_bytes: int
    arrived_bytes: int
    arrived_packets: int
    reordered_packets: int


@dataclass(frozen=True)
class Received:
    """A flow has ended, as the receiver saw it: `whole` is the interval from its first to its last packet.

    Attributes:
        whole: totals.
        sent_packets: data packets that the sender says it has sent; None if it vanished.
        sent_bytes: their payload; None if it vanished.
        refused: datagrams that were no part of a flow, since the receiver began.
    """

    whole: ReceivedInterval
    sent_packets: int | None
    sent_bytes: int | None
    refused: int

    @property
    def lost_packets(self) -> int | None:
        """Packets that did not arrive; None if the sender vanished."""
        return None if self.sent_packets is None else max(0, self.sent_packets - self.whole.arrived_packets)


@dataclass(frozen=True)
class Sent:
    """A flow has ended, as the sender saw it.

    Attributes:
        trace: its rows, one per interval. The path between two machines is unknown: columns of the link are NaN, and
            the scenario's `rate_mbps` and `rtt_ms` are the highest delivery rate and the lowest RTT of any interval.
        received: the receiver's totals: received_bytes, arrived_bytes, arrived_packets, reordered_packets; None if it
            did not answer. Over the kernel's TCP, what it has acknowledged.
        later_packets: sent after the last interval: over the kernel's TCP, what its buffer still held.
    """

    trace: Trace
    received: dict[str, int] | None
    later_packets: int = 0

    @property
    def lost_packets(self) -> int | None:
        """Packets that did not arrive; None if the receiver did not answer."""
        if self.received is None:
            return None
        sent = self.trace.summary().flows[0].sent_packets + self.later_packets
        return max(0, sent - self.received["arrived_packets"])


def receive(
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    is_once: bool = False,
    interval_s: float = 1.0,
    timeout_s: float = 10.0,
    idle_s: float = 600.0,
) -> Iterator[Listening | Started | ReceivedInterval | Received]:
    """Receive flows, one at a time; other senders are told that the receiver is busy.

    Args:
        host: address or name to bind; 127.0.0.1 is reached from this machine only.
        port: UDP port; 0 takes a free one, which the first event names.
        is_once: end after one flow.
        interval_s: length of an interval, in s.
        timeout_s: a sender that is silent for so long is gone.
        idle_s: end after so long without a flow.

    Yields:
        Listening; for each flow Started, its intervals, and Received.

    Raises:
        ConnectionError: the address cannot be used.
        ValueError: an argument is bad.
    """
    for name, value in (("interval_s", interval_s), ("timeout_s", timeout_s), ("idle_s", idle_s)):
        check_number(name, value, at_least=0.001, at_most=1e6)
    bound, _ = _socket(host, port, is_receiver=True)
    address = bound.getsockname()
    key = (secrets.randbits(64), secrets.randbits(64))
    server = _linux.UdpReceiver(bound.detach(), key, round(timeout_s * 1e9))
    yield Listening(address[0], address[1])
    while True:
        idle_end_s = server.time_s + idle_s
        while server.phase == "waiting":
            if (left_s := idle_end_s - server.time_s) <= 0:
                return
            server.wait(round(left_s * 1e9))
        yield Started(server.sender, name_of(*address[:2]))
        yield from _receive_flow(server, interval_s, timeout_s)
        if is_once:
            return
        server.release()


def _receive_flow(
    server: _linux.UdpReceiver, interval_s: float, timeout_s: float
) -> Iterator[ReceivedInterval | Received]:
    began_s = start_s = server.time_s
    before = server.report
    while server.phase == "receiving":
        server.wait(max(0, round((start_s + interval_s - server.time_s) * 1e9)))
        now_s, report = server.time_s, server.report
        if server.phase == "receiving" and now_s < start_s + interval_s:
            continue
        counts = {name: total - before[name] for name, total in report.items()}
        yield ReceivedInterval(start_s - began_s, now_s - began_s, **counts)
        start_s, before = now_s, report
    while server.phase != "over":  # the report may have to be sent again
        server.wait(10**9)
    packets, size = server.sent or (None, None)
    # A sender that vanished has been silent for the timeout.
    end_s = start_s - began_s if server.sent else max(start_s - began_s - timeout_s, _LEAST_S)
    yield Received(ReceivedInterval(0.0, end_s, **before), packets, size, server.refused)


def send(
    host: str,
    port: int = DEFAULT_PORT,
    flow: Flow | None = None,
    seconds: float | None = None,
    packet_bytes: int | None = None,
    interval_s: float = 1.0,
    timeout_s: float = 10.0,
    seed: int | None = None,
) -> Iterator[Started | SentInterval | Sent]:
    """Send one flow to a receiver: `receive`, or with `Flow.transport="kernel"` any that reads from a TCP connection.

    Args:
        host: address or name of the receiver.
        port: its port.
        flow: algorithm, transport, parameters, policy, C file, ECN and size; `Flow()` by default. Its path and times
            are not used.
        seconds: how long to send, in s; None sends until `flow.size_bytes` are acknowledged, or for 10 s without it.
        packet_bytes: payload of a full packet, 1000 by default. With 40 bytes of headers (IPv6: 60) it must fit the
            path's MTU. TCP finds its own.
        interval_s: length of an interval, in s.
        timeout_s: how long the receiver may be silent.
        seed: of everything random in the controller; None draws one.

    Yields:
        Started, the intervals, and Sent.

    Raises:
        ConnectionError: the receiver does not answer, or serves another sender.
        EngineUnavailableError: this machine does not let TCP be steered.
        FileNotFoundError: the flow's policy or C file does not exist.
        ValueError: an argument is bad, or a controller in C decides what cannot be done.
    """
    flow = flow or Flow()
    is_over_kernel = flow.transport == "kernel"
    if is_over_kernel and (packet_bytes is not None or flow.ecn is not None):
        raise ValueError("over the kernel's TCP, packet_bytes and ecn are the system's: leave them out")
    if seconds is None and flow.size_bytes is None:
        seconds = 10.0
    check_number("seconds", seconds, above=0, at_most=1e6, or_none=True)
    for name, value in (("interval_s", interval_s), ("timeout_s", timeout_s)):
        check_number(name, value, at_least=0.001, at_most=1e6)
    seed = check_integer("seed", seed, at_least=0, below=2**63, or_none=True)
    check_name("algorithm", flow.algorithm, [*registry.controllers(), registry.FILE])
    seed = secrets.randbits(63) if seed is None else seed
    scenario = Scenario(packet_bytes=1000 if packet_bytes is None else packet_bytes, flows=(flow,))
    packet_bytes = scenario.packet_bytes
    plain: dict[str, Any] = with_compiled_files(scenario)["flows"][0]
    if flow.algorithm == "policy":
        plain["policy"] = read_policies(scenario)[0]
    made, address = _socket(host, port, is_receiver=False, is_tcp=is_over_kernel)
    peer, local = name_of(*address[:2]), name_of(*made.getsockname()[:2])
    sender: Sender
    try:
        if is_over_kernel:
            sender = TcpSender(made, address, plain)
        else:
            sender = _linux.UdpSender(made.detach(), plain, packet_bytes, seed)
    except OSError as error:
        raise EngineUnavailableError(str(error)) from None
    try:
        _connect(sender, peer, timeout_s)
        if isinstance(sender, TcpSender):
            local, packet_bytes = name_of(*made.getsockname()[:2]), sender.packet_bytes
        yield Started(peer, local, packet_bytes)
        rows = []
        for interval in _send_intervals(sender, peer, seconds=seconds, interval_s=interval_s, timeout_s=timeout_s):
            rows.append(interval)
            yield interval
        sender.finish()
        _wait(sender, "ending", timeout_s)
        later = sender.row()[1 + FLOW_COLUMNS.index("sent_packets")] if is_over_kernel else 0
    except BaseException:
        sender.finish()  # one datagram, so that the receiver need not wait
        sender.wait(0)
        raise
    yield Sent(
        trace_of(flow, packet_bytes=packet_bytes, seed=seed, interval_s=interval_s, intervals=rows),
        received=sender.report,
        later_packets=int(later),
    )


_LEAST_S: Final = 0.001
"""How long a flow lasts at least, by which its bytes are divided."""

Sender = _linux.UdpSender | TcpSender


def _connect(sender: Sender, peer: str, timeout_s: float) -> None:
    with announcing(f"a receiver at {peer}"):
        _wait(sender, "connecting", timeout_s)
    if sender.phase == "busy":
        raise ConnectionError(f"{peer} serves another sender: try again later, or start a receiver at another port")
    if isinstance(sender, TcpSender) and sender.phase != "open":
        raise ConnectionError(
            f"no connection to {peer} within {timeout_s:g} s{_reason(sender)}: something there must listen at this TCP "
            "port, and firewalls must let it through"
        )
    if sender.phase == "connecting":
        raise ConnectionError(
            f"no answer from {peer} within {timeout_s:g} s{_reason(sender)}: run `bbrgym receive` of this version "
            "there (with --host 0.0.0.0 for other machines), and let UDP to this port through firewalls"
        )


def _wait(sender: Sender, phase: str, timeout_s: float) -> None:
    """Wait until the phase is over."""
    end_s = sender.time_s + timeout_s
    while sender.phase == phase and (left_s := end_s - sender.time_s) > 0:
        sender.wait(round(left_s * 1e9))


def _send_intervals(
    sender: Sender, peer: str, seconds: float | None, interval_s: float, timeout_s: float
) -> Iterator[SentInterval]:
    began_s = start_s = sender.opened_s
    end_s = math.inf if seconds is None else began_s + seconds
    now_s = began_s
    while now_s < end_s and not sender.is_all_delivered:
        until_s = min(start_s + interval_s, end_s)
        while (
            (left_s := until_s - sender.time_s) > 0
            and not sender.is_all_delivered
            and sender.silence_s < timeout_s
            and sender.phase != "over"
        ):
            sender.wait(round(min(left_s, timeout_s) * 1e9))
        if sender.phase == "over":
            raise ConnectionError(f"{peer} has ended the flow{_reason(sender)}")
        now_s, *values = sender.row()
        yield SentInterval(start_s - began_s, now_s - began_s, dict(zip(FLOW_COLUMNS, values, strict=True)))
        start_s = now_s
        if sender.silence_s >= timeout_s and not sender.is_all_delivered:
            raise ConnectionError(f"{peer} has not answered for {sender.silence_s:.0f} s{_reason(sender)}")


def _reason(sender: Sender) -> str:
    return f" ({sender.error})" if sender.error else ""


def trace_of(flow: Flow, packet_bytes: int, seed: int, interval_s: float, intervals: list[SentInterval]) -> Trace:
    """Return the trace of a flow that has been sent, or of what was sent of it: see `Sent.trace`."""
    rates = [interval.row["delivery_rate_mbps"] for interval in intervals]
    rtts = [interval.row["rtt_min_ms"] for interval in intervals if not math.isnan(interval.row["rtt_min_ms"])]
    with known_units():
        scenario = Scenario(
            rate_mbps=min(max(LOWEST_RATE_MBPS, *rates), 10_000.0),
            duration_s=intervals[-1].end_s,
            packet_bytes=packet_bytes,
            flows=(
                Flow(
                    flow.algorithm,
                    rtt_ms=min([*rtts, 10_000.0]),
                    size_bytes=flow.size_bytes,
                    parameters=flow.parameters,
                    policy=flow.policy,
                    file=flow.file,
                    ecn=flow.ecn,
                    transport=flow.transport,
                ),
            ),
        )
    return Trace(
        scenario=scenario,
        seed=seed,
        engine="tcp" if flow.transport == "kernel" else "udp",
        step_ms=interval_s * 1e3,
        time_s=np.array([interval.end_s for interval in intervals]),
        flows=np.array([[list(interval.row.values())] for interval in intervals]),
        link=np.full((len(intervals), len(LINK_COLUMNS)), np.nan),
    )


def _socket(host: str, port: int, is_receiver: bool, is_tcp: bool = False) -> tuple[socket.socket, Any]:
    """Return a UDP socket that is bound to the address, or connected to it; or a TCP socket for it; and the address."""
    port = check_integer("port", port, at_least=0 if is_receiver else 1, below=2**16)
    what = "receive at" if is_receiver else "send to"
    try:
        wanted = socket.SOCK_STREAM if is_tcp else socket.SOCK_DGRAM
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=wanted)[0]
        made = socket.socket(family, kind, protocol)
    except (OSError, UnicodeError) as error:
        raise ConnectionError(f"cannot {what} {host!r}: {_words(error)}") from None
    try:
        made.setblocking(False)
        if is_tcp:
            return made, address
        for buffer in (socket.SO_RCVBUF, socket.SO_SNDBUF):  # a sender reads as many ACKs as it sends packets
            made.setsockopt(socket.SOL_SOCKET, buffer, _BUFFER_BYTES)
        (made.bind if is_receiver else made.connect)(address)
    except OSError as error:
        made.close()
        raise ConnectionError(f"cannot {what} {name_of(host, port)}: {_words(error)}") from None
    return made, address


def _words(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)


def name_of(host: str, port: int) -> str:
    """Return HOST:PORT, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def address_of(name: str) -> tuple[str, int]:
    """Return host and port of `HOST[:PORT]`; an IPv6 address is in brackets.

    Raises:
        ValueError: it is no such name.
    """
    host, _, port = name.rpartition(":") if ":" in name and not name.endswith("]") else (name, "", str(DEFAULT_PORT))
    is_bracketed = host.startswith("[") and host.endswith("]")
    if not host or not port.isdecimal() or (":" in host and not is_bracketed):
        raise ValueError(f"give the receiver as HOST:PORT, with brackets around an IPv6 address, got {name!r}")
    return host.strip("[]"), int(port)
