"""A path for one controller without simulator: one flow, one bottleneck, a clock moved by hand.

Packets leave when window and pacing allow, queue at a fixed rate, and come back as one ACK each after the base RTT. A
packet is lost if the queue is full or if `lose` says so; the sender learns of it from the third later ACK.
"""

import heapq
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bbrgym import _testing
from bbrgym._testing import AckEvent, Controller, Recovery

MS = 1_000_000
PACKET = 1000
REORDERING = 3


def make(name: str, rtt_ms: float = 40.0, initial_packets: int = 10, seed: int = 1, **parameters: float) -> Controller:
    """Return a controller after a handshake with this RTT."""
    return _testing.make(
        name,
        parameters,
        packet_bytes=PACKET,
        initial_cwnd=initial_packets * PACKET,
        initial_rtt=int(rtt_ms * MS),
        seed=seed,
    )


def ack_event(
    now: float,
    rtt_ms: float = 0.0,
    acked: int = 1,
    lost: int = 0,
    in_flight: int = 0,
    delivered: int = 10**9,
    sample: Mapping[str, float] | None = None,
    **fields: float,
) -> AckEvent:
    """Return an ACK made by hand.

    Args:
        now: in ns.
        rtt_ms: 0 if it has none.
        acked: packets that it acknowledges.
        lost: packets that it marks lost.
        in_flight: packets in flight after it; before it there were the acknowledged ones more.
        delivered: bytes delivered so far; the default is far beyond what was sent, so that no round ends.
        sample: fields of its rate sample; None if it has no valid one.
        fields: other fields of the ACK.
    """
    ack = AckEvent()
    ack.now, ack.rtt = int(now), int(rtt_ms * MS)
    ack.bytes_acked, ack.bytes_lost = acked * PACKET, lost * PACKET
    ack.in_flight, ack.prior_in_flight = in_flight * PACKET, (in_flight + acked) * PACKET
    ack.delivered = delivered
    for name, value in fields.items():
        setattr(ack, name, value)
    for name, value in ({"is_valid": True} | dict(sample) if sample is not None else {}).items():
        setattr(ack.sample, name, value)
    return ack


class Hand:
    """A controller that has run on a path, by default until BBR is in ProbeBW, with ACKs made by hand from then on.

    On the default path RTprop is 40.8 ms, the BDP 51 packets, and BBR's window 106 packets.
    """

    def __init__(self, controller: Controller, time_ms: float = 3000, rate_mbps: float = 10, rtt_ms: float = 40):
        self.controller = controller
        self.path = Path(controller, rate_mbps, rtt_ms)
        self.path.run_until(time_ms)
        self.now, self.delivered = self.path.now, 10**9

    @property
    def metrics(self) -> dict[str, float]:
        return self.controller.metrics()

    @property
    def cwnd(self) -> float:
        """In packets."""
        return self.controller.decision().cwnd / PACKET

    @property
    def window(self) -> int:
        """In whole packets."""
        return self.controller.decision().cwnd // PACKET

    def ack(self, rtt_ms: float = 0, after_ms: float = 0, **fields: Any) -> int:
        """Acknowledge a packet 1 ns and `after_ms` later, with fields of `ack_event`; return the window."""
        self.now += int(after_ms * MS) + 1
        self.controller.on_ack(ack_event(self.now, rtt_ms, **fields))
        return self.window

    def hear(self, state: Recovery, in_flight: int = 60) -> None:
        """Enter or leave recovery with these packets in flight."""
        self.controller.on_recovery(state, self.now, in_flight * PACKET)


class Packet(NamedTuple):
    number: int
    sent_at: int
    delivered_before: int
    delivered_at_before: int
    first_sent: int
    in_flight: int
    lost_before: int
    is_app_limited: bool


@dataclass
class Path:
    """Drive a controller over a path with this rate, base RTT and buffer; `now` is in ns.

    ACKs arrive together at the ends of slots of `ack_slot_ms`, as on a shared medium. The application keeps at most
    `app_packets` in flight; 0 is a pause. All of these may change.
    """

    controller: Controller
    rate_mbps: float = 10.0
    rtt_ms: float = 40.0
    buffer_packets: int = 1000
    ack_slot_ms: float = 0.0
    app_packets: float = math.inf
    lose: Callable[[int], bool] = lambda number: False
    now: int = 0
    on_ack: Callable[[AckEvent], None] = lambda ack: None
    acks: int = 0
    lost: int = 0

    def __post_init__(self) -> None:
        self._numbers = itertools.count()
        self._outstanding: dict[int, Packet] = {}
        self._acks: list[tuple[int, Packet]] = []  # a heap of arrivals
        self._delivered = self._sent = 0
        self._delivered_at = self._first_sent = 0
        self._link_free_at = self._may_send_at = 0
        self._recover_until = -1
        self._app_limited = 0

    @property
    def in_flight(self) -> int:
        """In bytes."""
        return len(self._outstanding) * PACKET

    def run_until(self, time_ms: float) -> None:
        end = int(time_ms * MS)
        while True:
            next_send = self._send()
            time = max(self.now, min(next_send, self._acks[0][0] if self._acks else math.inf))
            if time > end:
                break
            self.now = int(time)
            if self._acks and self._acks[0][0] <= self.now:
                self._receive_ack(heapq.heappop(self._acks)[1])
        self.now = end

    def watch(self, time_ms: float) -> pd.DataFrame:
        """Run until this time; return a row per ACK: `now_ms`, the metrics, and the decision (`cwnd` in bytes).

        What `on_ack` does, it does before.
        """
        rows: list[tuple[float, ...]] = []
        on_ack = self.on_ack

        def note(ack: AckEvent) -> None:
            on_ack(ack)
            now = self.controller.decision()
            row = (ack.now / MS, now.cwnd, now.pacing_rate, now.is_app_limited, *self.controller.metrics().values())
            rows.append(row)

        self.on_ack = note
        self.run_until(time_ms)
        self.on_ack = on_ack
        columns = ["now_ms", "cwnd", "pacing_rate", "is_app_limited", *_testing.metrics()]
        return pd.DataFrame(np.array(rows), columns=columns)

    def _send(self) -> float:
        """Send what may leave now; return when pacing lets the next packet go, infinity if the window is full."""
        decision = self.controller.decision()
        per_packet = int(PACKET * 8e3 / self.rate_mbps)
        while self.in_flight + PACKET <= decision.cwnd:
            if len(self._outstanding) >= self.app_packets:
                self._mark_app_limited()
                break
            if decision.is_paced:
                if self.now < self._may_send_at:
                    return self._may_send_at
                self._may_send_at = self.now + int(PACKET * 8e9 / decision.pacing_rate)
            if not self._outstanding:
                if self._app_limited:
                    self.controller.on_restart(self.now)
                    decision = self.controller.decision()
                self._first_sent = self._delivered_at = self.now
            number = next(self._numbers)
            packet = self._outstanding[number] = Packet(
                number,
                sent_at=self.now,
                delivered_before=self._delivered,
                delivered_at_before=self._delivered_at,
                first_sent=self._first_sent,
                in_flight=self.in_flight + PACKET,
                lost_before=self.lost,
                is_app_limited=self._app_limited > 0,
            )
            self._sent += PACKET
            queued = max(0, self._link_free_at - self.now) / per_packet
            if self.lose(number) or queued >= self.buffer_packets:
                continue
            self._link_free_at = max(self._link_free_at, self.now) + per_packet
            arrival = self._link_free_at + int(self.rtt_ms * MS)
            slot = max(int(self.ack_slot_ms * MS), 1)
            heapq.heappush(self._acks, (-(-arrival // slot) * slot, packet))
        return math.inf

    def _receive_ack(self, packet: Packet) -> None:
        prior_in_flight = self.in_flight
        if self._outstanding.pop(packet.number, None) is None:
            return
        self._delivered += PACKET
        self._delivered_at = self.now
        if self._delivered > self._app_limited:
            self._app_limited = 0
        lost = list(itertools.takewhile(lambda number: number <= packet.number - REORDERING, self._outstanding))
        for number in lost:
            del self._outstanding[number]
        self.lost += len(lost)
        if lost and packet.number > self._recover_until:
            self._recover_until = next(self._numbers)
            self.controller.on_recovery(Recovery.RECOVERY, self.now, self.in_flight)
        elif self._recover_until >= 0 and packet.number > self._recover_until:
            self._recover_until = -1
            self.controller.on_recovery(Recovery.OPEN, self.now, self.in_flight)
        interval = max(packet.sent_at - packet.first_sent, self.now - packet.delivered_at_before)
        self._first_sent = packet.sent_at
        ack = AckEvent()
        ack.now, ack.rtt = self.now, self.now - packet.sent_at
        ack.bytes_acked, ack.bytes_lost = PACKET, len(lost) * PACKET
        ack.prior_in_flight, ack.in_flight = prior_in_flight, self.in_flight
        ack.delivered, ack.sent = self._delivered, self._sent
        ack.is_cwnd_limited = prior_in_flight + PACKET > self.controller.decision().cwnd
        sample = ack.sample
        sample.is_valid = interval > 0
        sample.interval = interval
        sample.delivered = self._delivered - packet.delivered_before
        sample.delivery_rate = int(sample.delivered * 8e9 / interval) if interval else 0
        sample.prior_delivered = packet.delivered_before
        sample.tx_in_flight = packet.in_flight
        sample.lost_since_send = (self.lost - packet.lost_before) * PACKET
        sample.is_app_limited = packet.is_app_limited
        self.controller.on_ack(ack)
        if self.controller.decision().is_app_limited:
            self._mark_app_limited()
        self.acks += 1
        self.on_ack(ack)

    def _mark_app_limited(self) -> None:
        self._app_limited = max(self._delivered + self.in_flight, 1)
