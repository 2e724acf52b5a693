"""Queue disciplines as their RFCs write them, to compare with C++: slow, and in the RFCs' own names."""

import math
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

MS = 1_000_000


class Packet(NamedTuple):
    """A packet in a queue."""

    number: int
    size: int
    arrival: int
    is_ecn_capable: bool = False
    flow: int = 0
    is_l4s: bool = False


class SplitMix:
    """baselines/cc/random.h"""

    def __init__(self, seed: int) -> None:
        self.state = seed

    def next(self) -> int:
        self.state = (self.state + 0x9E3779B97F4A7C15) % 2**64
        z = self.state
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        return z ^ z >> 31

    def uniform(self) -> float:
        return (self.next() >> 11) / 2**53


class Fifo(deque[Packet]):
    """Packets in order, and their bytes."""

    bytes = 0

    def enque(self, packet: Packet) -> None:
        self.append(packet)
        self.bytes += packet.size

    def deque(self) -> Packet:
        packet = self.popleft()
        self.bytes -= packet.size
        return packet


@dataclass
class Queue:
    """What every discipline has."""

    dropped: list[int] = field(default_factory=list)
    marked: list[int] = field(default_factory=list)

    def held(self) -> list[Packet]:
        """Return the packets in the queue."""
        raise NotImplementedError

    def drop(self, packet: Packet) -> bool:
        """Return whether the packet is gone: otherwise it is marked."""
        (self.marked if packet.is_ecn_capable else self.dropped).append(packet.number)
        return not packet.is_ecn_capable


@dataclass
class Codel(Queue):
    """CoDel as written in RFC 8289, sections 4 and 5.

    An ECN-capable packet is marked instead of dropped, as in Linux (codel_impl.h).
    """

    target: int = 5 * MS
    interval: int = 100 * MS
    maxpacket: int = 1040
    queue: Fifo = field(default_factory=Fifo)
    first_above_time: int = 0
    drop_next: int = 0
    count: int = 0
    lastcount: int = 0
    dropping: bool = False

    def held(self) -> list[Packet]:
        return [*self.queue]

    def enque(self, now: int, packet: Packet) -> None:
        self.queue.enque(packet)

    def dodequeue(self, now: int) -> tuple[Packet | None, bool]:
        if not self.queue:
            self.first_above_time = 0
            return None, False
        packet = self.queue.deque()
        if now - packet.arrival < self.target or self.queue.bytes <= self.maxpacket:
            self.first_above_time = 0
            return packet, False
        if self.first_above_time == 0:
            self.first_above_time = now + self.interval
            return packet, False
        return packet, now >= self.first_above_time

    def control_law(self, time: int, count: int) -> int:
        return time + int(self.interval / math.sqrt(count))

    def deque(self, now: int) -> Packet | None:
        packet, ok_to_drop = self.dodequeue(now)
        if self.dropping:
            if not ok_to_drop:
                self.dropping = False
            while now >= self.drop_next and self.dropping:
                assert packet is not None
                self.count += 1
                if not self.drop(packet):
                    self.drop_next = self.control_law(self.drop_next, self.count)
                    break
                packet, ok_to_drop = self.dodequeue(now)
                if not ok_to_drop:
                    self.dropping = False
                else:
                    self.drop_next = self.control_law(self.drop_next, self.count)
        elif ok_to_drop:
            assert packet is not None
            if self.drop(packet):
                packet, ok_to_drop = self.dodequeue(now)
            self.dropping = True
            delta = self.count - self.lastcount
            self.count = 1
            if delta > 1 and now - self.drop_next < 16 * self.interval:
                self.count = delta
            self.drop_next = self.control_law(now, self.count)
            self.lastcount = self.count
        return packet


@dataclass
class Pie(Queue):
    """PIE as written in RFC 8033: section 4, with ECN (5.1) and cap drop (5.5), and delays of time stamps (4.3)."""

    random: SplitMix = field(default_factory=lambda: SplitMix(1))
    QDELAY_REF: float = 0.015
    MEAN_PKTSIZE: int = 1040
    T_UPDATE: float = 0.015
    MAX_BURST: float = 0.15
    queue: Fifo = field(default_factory=Fifo)
    drop_prob: float = 0.0
    current_qdelay: float = 0.0
    qdelay_old: float = 0.0
    burst_allowance: float = 0.15
    updates: int = 0

    def held(self) -> list[Packet]:
        return [*self.queue]

    def advance(self, now: int) -> None:
        while (self.updates + 1) * 15 * MS <= now:
            self.updates += 1
            self.calculate_drop_prob()

    def enque(self, now: int, packet: Packet) -> None:
        self.advance(now)
        half = self.QDELAY_REF / 2
        if self.drop_prob == 0 and self.current_qdelay < half and self.qdelay_old < half:
            self.burst_allowance = self.MAX_BURST
        if self.burst_allowance == 0 and self.drop_early():
            if self.drop_prob < 0.1 and packet.is_ecn_capable:
                self.marked.append(packet.number)
            else:
                self.dropped.append(packet.number)
                return
        self.queue.enque(packet)

    def drop_early(self) -> bool:
        if self.qdelay_old < self.QDELAY_REF / 2 and self.drop_prob < 0.2:
            return False
        if self.queue.bytes <= 2 * self.MEAN_PKTSIZE:
            return False
        return self.random.uniform() < self.drop_prob

    def calculate_drop_prob(self) -> None:
        p = 0.125 * (self.current_qdelay - self.QDELAY_REF) + 1.25 * (self.current_qdelay - self.qdelay_old)
        scales = {1e-6: 2048, 1e-5: 512, 1e-4: 128, 1e-3: 32, 1e-2: 8, 1e-1: 2}
        scale = next((scale for limit, scale in scales.items() if self.drop_prob < limit), 1)
        p /= scale
        if self.drop_prob >= 0.1 and p > 0.02:
            p = 0.02
        self.drop_prob += p
        if self.current_qdelay == 0 and self.qdelay_old == 0:
            self.drop_prob *= 0.98
        self.drop_prob = min(max(self.drop_prob, 0.0), 1.0)
        self.qdelay_old = self.current_qdelay
        self.burst_allowance = max(0.0, self.burst_allowance - self.T_UPDATE)
        if self.burst_allowance < 1e-9:
            self.burst_allowance = 0.0

    def deque(self, now: int) -> Packet | None:
        self.advance(now)
        if not self.queue:
            return None
        packet = self.queue.deque()
        self.current_qdelay = (now - packet.arrival) / 1e9 if self.queue else 0.0
        return packet


@dataclass
class FqCodel(Queue):
    """FQ-CoDel as written in RFC 8290, section 4, with a queue for every flow."""

    flows: int = 1
    quantum: int = 1500
    limit: int = 100
    queues: list[Codel] = field(init=False)
    credits: list[int] = field(init=False)
    new: list[int] = field(default_factory=list)
    old: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.queues = [Codel(self.dropped, self.marked) for _ in range(self.flows)]
        self.credits = [0] * self.flows

    def held(self) -> list[Packet]:
        return [packet for queue in self.queues for packet in queue.queue]

    def enque(self, now: int, packet: Packet) -> None:
        self.queues[packet.flow].enque(now, packet)
        if packet.flow not in self.new + self.old:
            self.credits[packet.flow] = self.quantum
            self.new.append(packet.flow)
        if sum(len(queue.queue) for queue in self.queues) > self.limit:
            fattest = max(self.queues, key=lambda queue: queue.queue.bytes)
            half = math.ceil(len(fattest.queue) / 2)
            self.dropped += [fattest.queue.deque().number for _ in range(min(half, 64))]

    def deque(self, now: int) -> Packet | None:
        while self.new or self.old:
            turn = self.new or self.old
            flow = turn[0]
            if self.credits[flow] <= 0:
                self.credits[flow] += self.quantum
                self.old.append(turn.pop(0))
                continue
            packet = self.queues[flow].deque(now)
            if packet is not None:
                self.credits[flow] -= packet.size
                return packet
            # "the queue is moved to the end of the list of old queues"; an empty old queue is removed.
            if turn is self.new:
                self.old.append(flow)
            turn.pop(0)
        return None


@dataclass
class DualPi2(Queue):
    """DualPI2 as written in RFC 9332, appendix A.2, with Linux's step and scheduler.

    In overload the mark is certain, as the text says; figure 7 adds its likelihood to the sum that decides about drops.
    """

    TARGET: float = 0.015
    K: float = 2.0
    STEP: int = MS
    MTU: int = 1040
    lq: list[Packet] = field(default_factory=list)
    cq: list[Packet] = field(default_factory=list)
    lq_count: float = 0.0
    cq_count: float = 0.0
    p: float = 0.0
    prevq: float = 0.0
    updates: int = 0
    credit: int = field(init=False)

    def __post_init__(self) -> None:
        self.credit = self.MTU * (10 - 90)

    def advance(self, now: int) -> None:
        while (self.updates + 1) * 16 * MS <= now:
            self.updates += 1
            time = self.updates * 16 * MS
            curq = max((time - queue[0].arrival) / 1e9 if queue else 0.0 for queue in (self.lq, self.cq))
            self.p += 0.16 * (curq - self.TARGET) + 3.2 * (curq - self.prevq)
            self.p = min(max(self.p, 0.0), 1.0)
            self.prevq = curq

    def held(self) -> list[Packet]:
        return self.lq + self.cq

    def enque(self, now: int, packet: Packet) -> None:
        self.advance(now)
        (self.lq if packet.is_l4s else self.cq).append(packet)

    def recur_l(self, likelihood: float) -> bool:
        self.lq_count += likelihood
        if self.lq_count > 1:
            self.lq_count -= 1
            return True
        return False

    def recur_c(self, likelihood: float) -> bool:
        self.cq_count += likelihood
        if self.cq_count > 1:
            self.cq_count -= 1
            return True
        return False

    def scheduler_takes_l(self) -> bool:
        return bool(self.lq) and (not self.cq or self.credit <= 0)

    def deque(self, now: int) -> Packet | None:
        self.advance(now)
        while self.lq or self.cq:
            p_cl, p_c = self.K * self.p, self.p**2
            if self.scheduler_takes_l():
                if self.cq:
                    self.credit += 10 * self.lq[0].size
                packet = self.lq.pop(0)
                if p_cl < 1:
                    p_l = 1 if len(self.lq) > 1 and now - packet.arrival > self.STEP else 0
                    if self.recur_l(max(p_l, p_cl)):
                        self.marked.append(packet.number)
                else:
                    if self.recur_l(p_c):
                        self.dropped.append(packet.number)
                        continue
                    self.marked.append(packet.number)
            else:
                if self.lq:
                    self.credit -= 90 * self.cq[0].size
                packet = self.cq.pop(0)
                if self.recur_c(p_c):
                    if not packet.is_ecn_capable or p_cl >= 1:
                        self.dropped.append(packet.number)
                        continue
                    self.marked.append(packet.number)
            return packet
        self.credit = self.MTU * (10 - 90)
        return None
