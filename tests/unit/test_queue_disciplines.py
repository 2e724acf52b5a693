"""PIE (RFC 8033) and FQ-CoDel (RFC 8290), each alone; in scenarios: test_link.py and test_ecn.py."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import pytest
from rfc_queues import MS, FqCodel, Packet, Pie, SplitMix

from bbrgym import Flow, Scenario, _testing

PACKET = 1040
NOT_ECT, ECT0 = 0, 2
SEED = 3
UPDATE = 15 * MS
SECOND = 1000 * MS
PIE_STREAM = 0x5049450000000000


def make_queue(name: str, flows: int = 1, **fields: Any) -> _testing.QueueDiscipline:
    scenario = Scenario(queue=name, flows=(Flow(),) * flows, **fields)
    return _testing.QueueDiscipline(scenario.to_dict(), SEED)


# PIE


@pytest.mark.parametrize("ecn_capable", [0.0, 0.5, 1.0])
def test_pie_does_what_the_rfc_says(ecn_capable: float) -> None:
    """`ecn_capable` is the share of the packets that are."""
    branches: set[str] = set()
    for seed in range(4):
        rng = random.Random(seed)
        target_ms = rng.choice([15, 5])
        ours = make_queue("pie", pie_target_ms=target_ms)
        rfcs = Pie(random=SplitMix(SEED ^ PIE_STREAM), QDELAY_REF=target_ms / 1e3)
        now, number = 0, 0
        for _ in range(1500):
            # Overload, which differs from seed to seed, and then silence.
            spell = math.sin(now / (400 * MS))
            now += rng.choice([0, MS, 2 * MS, 4 * MS])
            for _ in range(rng.choice([0, 1, 2 + seed]) if spell > 0 else rng.choice([0, 0, 0, 1])):
                size = rng.choice([PACKET, PACKET, 300])
                is_ecn_capable = number % 20 < 20 * ecn_capable
                ours.push(now, number, size, ECT0 if is_ecn_capable else NOT_ECT)
                rfcs.enque(now, Packet(number, size, now, is_ecn_capable))
                number += 1
            packet = rfcs.deque(now)
            assert ours.pop(now) == (None if packet is None else (packet.number, packet.number in rfcs.marked))
            assert ours.drop_probability == pytest.approx(rfcs.drop_prob, rel=1e-9, abs=1e-15)
            assert (ours.drops, ours.marks) == (len(rfcs.dropped), len(rfcs.marked))
            assert (len(ours), ours.bytes) == (len(rfcs.queue), rfcs.queue.bytes)
        branches |= rfcs.branches
    assert branches == {
        *("burst allowed", "in a burst", "not congested", "two packets", "capped", "decayed"),
        *(f"scale {scale}" for scale in (1, 2, 8, 32, 128, 512, 2048)),
        *({"dropped"} if ecn_capable < 1 else ()),
        *({"marked", "dropped though ECN-capable"} if ecn_capable > 0 else ()),
    }


def delayed_pie(delay: int, packets: int = 40, **fields: Any) -> tuple[_testing.QueueDiscipline, int]:
    """Return a queue whose current delay stays `delay` while nothing leaves, and the time of the next update."""
    queue = make_queue("pie", **fields)
    start = 10 * UPDATE - delay % UPDATE  # so that what follows is an update
    for number in range(packets):
        queue.push(start, number, PACKET)
    queue.pop(start + delay)
    return queue, start + delay + UPDATE


def update(queue: _testing.QueueDiscipline, now: int, ecn: int = NOT_ECT) -> float:
    """Return the drop probability with which a packet that arrives now meets the queue."""
    queue.push(now, 0, PACKET, ecn)
    return queue.drop_probability


def test_the_smaller_the_probability_the_smaller_its_steps() -> None:
    """RFC 8033, section 4.2."""
    steps = {}
    for delay in (15_200_000, 30 * MS):
        queue, now = delayed_pie(delay)
        change = 1.25 * delay / SECOND
        for _ in range(200):
            before = queue.drop_probability
            after = update(queue, now)
            change += 0.125 * (delay / SECOND - 0.015)
            decade = math.floor(math.log10(before)) if before > 0 else None
            if math.floor(math.log10(after)) == decade or decade is None:
                steps[decade] = change / (after - before)
            change = 0.0
            now += UPDATE
    assert steps == pytest.approx({None: 2048, -6: 512, -5: 128, -4: 32, -3: 8, -2: 2, -1: 1}, rel=1e-6)


def test_a_large_probability_rises_by_at_most_0_02() -> None:
    """RFC 8033, section 5.5. 100 s of delay would otherwise add 12 in each update."""
    queue, now = delayed_pie(100 * SECOND)
    steps = [update(queue, now + index * UPDATE) for index in range(2)]
    assert steps == [pytest.approx((0.125 * 99.985 + 125) / 2048), 1.0]

    queue, now = delayed_pie(10 * SECOND)
    steps = [update(queue, now + index * UPDATE) for index in range(12)]
    above = [step for step in steps if step > 0.1]
    assert len(above) > 8
    assert [b - a for a, b in itertools.pairwise(above)] == pytest.approx([0.02] * (len(above) - 1))


def test_a_burst_passes() -> None:
    """RFC 8033, section 4.4: nothing is dropped within 150 ms of the last time without delay, whatever p is."""
    queue = make_queue("pie")
    for number in range(40):
        queue.push(0, number, PACKET)
    now = 6666 * UPDATE
    queue.push(now, 40, PACKET)  # nothing has left yet, so there is no delay
    queue.pop(now)
    drops = []
    for index in range(1, 13):
        update(queue, now + index * UPDATE)
        drops.append(queue.drops)
    assert queue.drop_probability == 1.0
    assert drops == [*[0] * 9, 1, 2, 3]


# FQ-CoDel


def order(queue: _testing.QueueDiscipline, now: int, count: int | None = None) -> list[int]:
    """Return the numbers of the next `count` packets, or of all."""
    numbers: list[int] = []
    while len(numbers) != count and (left := queue.pop(now)) is not None:
        numbers.append(left[0])
    return numbers


def push(queue: _testing.QueueDiscipline, flow: int, count: int, size: int = PACKET) -> None:
    """Add packets of a flow at time 0; those of flow 1 have numbers from 1000 on, those of flow 2 from 2000 on, …"""
    for number in range(count):
        queue.push(0, 1000 * flow + number, size, flow=flow)


@pytest.mark.parametrize("ecn_capable", [0.0, 0.5])
def test_fq_codel_does_what_the_rfc_says(ecn_capable: float) -> None:
    """`ecn_capable` is the share of the flows that are."""
    branches: set[str] = set()
    for seed in range(6):
        rng = random.Random(seed)
        flows, limit = rng.choice([(1, 200), (3, 30), (8, 200)])
        ours = make_queue("fq_codel", flows=flows, buffer_packets=limit)
        rfcs = FqCodel(flows=flows, limit=limit)
        now, number = 0, 0
        for _ in range(1500):
            spell = math.sin(now / (200 * MS))
            now += rng.choice([0, MS, 2 * MS])
            for _ in range(rng.choice([0, 1, 2 + seed]) if spell > 0 else rng.choice([0, 0, 1])):
                flow = min(rng.randrange(2 * flows), flows - 1)
                size = rng.choice([PACKET, PACKET, 300])
                is_ecn_capable = flow < ecn_capable * flows
                ours.push(now, number, size, ECT0 if is_ecn_capable else NOT_ECT, flow)
                rfcs.enque(Packet(number, size, now, is_ecn_capable, flow))
                number += 1
                assert not ours.is_full
                assert len(ours) <= limit
            packet = rfcs.deque(now)
            assert ours.pop(now) == (None if packet is None else (packet.number, packet.number in rfcs.marked))
            assert (ours.drops, ours.marks) == (len(rfcs.dropped), len(rfcs.marked))
            assert len(ours) == sum(len(queue.queue) for queue in rfcs.queues)
            assert ours.bytes == sum(queue.queue.bytes for queue in rfcs.queues)
        branches |= rfcs.branches | {branch for queue in rfcs.queues for branch in queue.branches}
    assert branches >= {"dropped half", "dropped 64", "no credits", "empty new", "left", "resumed"}
    assert ("marked first" in branches) == (ecn_capable > 0)


def test_flows_take_turns_by_bytes() -> None:
    """A turn lasts until 1500 bytes or more are sent; what a flow sent too much it has less in its next turn."""
    queue = make_queue("fq_codel", flows=2, buffer_packets=100)
    push(queue, flow=0, count=6)
    push(queue, flow=1, count=6)
    assert order(queue, 0) == [0, 1, 1000, 1001, 2, 1002, 3, 4, 1003, 1004, 5, 1005]

    push(queue, flow=0, count=40)
    push(queue, flow=1, count=60, size=260)
    sent = order(queue, 0, 60)
    small = sum(number >= 1000 for number in sent)
    assert 260 * small == pytest.approx(PACKET * (60 - small), abs=1500 + PACKET)


def test_a_new_flow_goes_first_and_only_once() -> None:
    queue = make_queue("fq_codel", flows=3, buffer_packets=100)
    push(queue, flow=0, count=10)
    push(queue, flow=1, count=10)
    assert order(queue, 0, 4) == [0, 1, 1000, 1001]
    push(queue, flow=2, count=1, size=300)
    assert order(queue, 0, 2) == [2000, 2]
    # It had nothing more to send, and now is the last of the old flows, although it has sent less than the others.
    push(queue, flow=2, count=1, size=300)
    assert order(queue, 0, 2) == [1002, 2000]
