"""PIE (RFC 8033) and FQ-CoDel (RFC 8290), each alone; in scenarios: test_link.py and test_ecn.py."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from rfc_queues import MS, FqCodel, Packet, Pie, SplitMix

from bbrgym import Flow, Scenario, _testing

PACKET = 1040
NOT_ECT, ECT0 = 0, 2
SEED = 3
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


# FQ-CoDel


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
