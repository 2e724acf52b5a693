"""DualPI2 (RFC 9332): alone, and with flows of Prague and CUBIC (docs/scenarios.md)."""

from __future__ import annotations

import contextlib
import math
import random
from typing import Any

import pytest
from marks import needs_ns3
from rfc_queues import MS, DualPi2, Packet

from bbrgym import Flow, Scenario, _testing, make_engine, simulate
from bbrgym.envs.engine import EngineError

PACKET = 1040
NOT_ECT, ECT1, ECT0, CE = range(4)
L4S = (ECT1, CE)
SEED = 3


def make_queue(**fields: Any) -> _testing.QueueDiscipline:
    return _testing.QueueDiscipline(Scenario(queue="dualpi2", **fields).to_dict(), SEED)


@pytest.mark.parametrize("kinds", [(NOT_ECT, ECT1), (ECT0, ECT1), (NOT_ECT, ECT0, ECT1, CE), (ECT1,), (NOT_ECT,)])
def test_it_does_what_the_pseudo_code_says(kinds: tuple[int, ...]) -> None:
    """The load is between a tenth and five times of what leaves, in turns."""
    branches: set[str] = set()
    for seed in range(3):
        rng = random.Random(seed)
        target_ms, step_ms, k = [(15, 1, 2), (5, 0.3, 2), (20, 2, 3.5)][seed]
        ours = make_queue(dualpi2_target_ms=target_ms, dualpi2_step_ms=step_ms, dualpi2_coupling=k)
        rfcs = DualPi2(TARGET=target_ms / 1e3, K=k, STEP=int(step_ms * MS))
        now, sent = 0, []
        for round_ in range(3500):
            now += rng.choice([0, MS // 3, MS, 2 * MS])
            load = (0.5, 1.1, 0.2, 1.3, 5, 5, 0.1)[round_ // 250 % 7]
            for _ in range(int(load + rng.random())):
                size, ecn = rng.choice([PACKET, PACKET, 300]), rng.choice(kinds)
                ours.push(now, len(sent), size, ecn)
                rfcs.enque(now, Packet(len(sent), size, now, ecn != NOT_ECT), ecn in L4S)
                sent.append(ecn)
            packet = rfcs.deque(now)
            is_marked = packet is not None and (sent[packet.number] == CE or packet.number in rfcs.marked[-1:])
            assert ours.pop(now) == (None if packet is None else (packet.number, is_marked))
            assert math.isclose(ours.base_probability, rfcs.p, rel_tol=1e-9, abs_tol=1e-12)
            assert ours.drops == len(rfcs.dropped)
            assert (len(ours), ours.bytes) == (len(rfcs.lq + rfcs.cq), sum(packet.size for packet in rfcs.lq + rfcs.cq))
        assert ours.marks == sum(sent[number] != CE for number in rfcs.marked)
        branches |= rfcs.branches
    assert branches == {
        *({"step", "overload mark", "L4S drop"} if ECT1 in kinds else ()),
        *({"coupled mark"} if ECT1 in kinds else ()),
        *({"classic first"} if len(kinds) > 1 else ()),
        *({"drop"} if NOT_ECT in kinds else ()),
        *({"classic mark", "ECN-capable drop"} if ECT0 in kinds else ()),
    }


def test_classic_packets_do_not_meet_the_step_but_a_threshold_meets_both() -> None:
    for threshold_ms, is_marked in ((None, False), (2.0, True)):
        queue = make_queue(ce_threshold_ms=threshold_ms)
        for number, ecn in enumerate([ECT0, ECT0, ECT0, ECT1]):
            queue.push(0, number, PACKET, ecn)
        left = [queue.pop(3 * MS) for _ in range(4)]
        assert left == [(3, is_marked), (0, is_marked), (1, is_marked), (2, is_marked)]


# In scenarios


BESIDE = Scenario(
    rate_mbps=40,
    buffer_bdp=4,
    queue="dualpi2",
    duration_s=20,
    flows=(Flow("prague", rtt_ms=30, ecn="l4s"), Flow("cubic", rtt_ms=30)),
)


@needs_ns3
def test_ns3_has_no_such_queue() -> None:
    with (
        contextlib.closing(make_engine("ns3")) as engine,
        pytest.raises(EngineError, match=r"ns-3 cannot run queue 'dualpi2': ns-3 3\.44 has no such queue discipline"),
    ):
        simulate(BESIDE, engine)
