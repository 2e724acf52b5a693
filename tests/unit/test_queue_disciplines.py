"""Queue disciplines beside their RFCs' pseudo-code, packet for packet (docs/scenarios.md)."""

import contextlib
import random
from typing import Any, NamedTuple

import pytest
from marks import needs_ns3
from rfc_queues import MS, Codel, DualPi2, FqCodel, Packet, Pie, SplitMix

from bbrgym import Flow, Scenario, _native, _testing, make_engine
from bbrgym.envs.engine import EngineError

PACKET = 1040
NOT_ECT, ECT1, ECT0, CE = range(4)
SEED = 3
PIE_STREAM = 0x5049450000000000
FLOWS = 3
LOADS = (0.5, 1.1, 0.2, 1.3, 5, 5, 0, 0, 0.3, 0, 1.2)


class Pair(NamedTuple):
    """A queue, the RFC's, and the names of their probabilities."""

    ours: _testing.QueueDiscipline
    rfcs: Any
    probability: tuple[str, str] | None = None


def make_queue(name: str, **fields: Any) -> _testing.QueueDiscipline:
    return _testing.QueueDiscipline(Scenario(queue=name, flows=(Flow(),) * FLOWS, **fields).to_dict(), SEED)


def make_pair(name: str, seed: int) -> Pair:
    if name == "codel":
        target, interval = [(5, 100), (5, 20), (1, 10)][seed]
        ours = make_queue(name, codel_target_ms=target, codel_interval_ms=interval)
        return Pair(ours, Codel(target=target * MS, interval=interval * MS, maxpacket=PACKET))
    if name == "pie":
        target_ms = (15, 5, 15)[seed]
        rfcs = Pie(random=SplitMix(SEED ^ PIE_STREAM), QDELAY_REF=target_ms / 1e3)
        return Pair(make_queue(name, pie_target_ms=target_ms), rfcs, ("drop_probability", "drop_prob"))
    if name == "fq_codel":
        limit = (300, 30, 200)[seed]
        return Pair(make_queue(name, buffer_packets=limit), FqCodel(flows=FLOWS, limit=limit))
    target_ms, step_ms, k = [(15, 1, 2), (5, 0.3, 2), (20, 2, 3.5)][seed]
    ours = make_queue(name, dualpi2_target_ms=target_ms, dualpi2_step_ms=step_ms, dualpi2_coupling=k)
    rfcs = DualPi2(TARGET=target_ms / 1e3, K=k, STEP=int(step_ms * MS))
    return Pair(ours, rfcs, ("base_probability", "p"))


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("codel", (NOT_ECT,)),
        ("codel", (NOT_ECT, ECT0)),
        ("codel", (ECT0,)),
        ("pie", (NOT_ECT,)),
        ("pie", (NOT_ECT, ECT0)),
        ("fq_codel", (NOT_ECT,)),
        ("fq_codel", (NOT_ECT, ECT0)),
        ("dualpi2", (NOT_ECT, ECT1)),
        ("dualpi2", (ECT0, ECT1)),
        ("dualpi2", (NOT_ECT, ECT0, ECT1, CE)),
        ("dualpi2", (ECT1,)),
        ("dualpi2", (NOT_ECT,)),
    ],
)
def test_it_does_what_the_pseudo_code_says(name: str, kinds: tuple[int, ...]) -> None:
    """With packets of these kinds. The load is between nothing and five times of what leaves, in turns."""
    for seed in range(3):
        rng = random.Random(seed)
        ours, rfcs, probability = make_pair(name, seed)
        now, sent = 0, []
        for round_ in range(4400):
            now += rng.choice([0, MS // 3, MS, 2 * MS])
            load = LOADS[round_ // 200 % len(LOADS)] * (1, 1, 0.3)[seed]
            for _ in range(int(load + rng.random())):
                size, flow, ecn = rng.choice([PACKET, PACKET, 300]), rng.randrange(FLOWS), rng.choice(kinds)
                ours.push(now, number=len(sent), bytes=size, ecn=ecn, flow=flow)
                arriving = Packet(
                    number=len(sent),
                    size=size,
                    arrival=now,
                    is_ecn_capable=ecn != NOT_ECT,
                    flow=flow,
                    is_l4s=ecn in (ECT1, CE),
                )
                rfcs.enque(now, arriving)
                sent.append(ecn)
            packet = rfcs.deque(now)
            is_marked = packet is not None and (sent[packet.number] == CE or packet.number in rfcs.marked)
            assert ours.pop(now) == (None if packet is None else (packet.number, is_marked))
            assert (len(ours), ours.bytes) == (len(rfcs.held()), sum(packet.size for packet in rfcs.held()))
            assert ours.drops == len(rfcs.dropped)
            if probability is not None:
                expected = getattr(rfcs, probability[1])
                assert getattr(ours, probability[0]) == pytest.approx(expected, rel=1e-9, abs=1e-12)
        assert ours.marks == sum(sent[number] != CE for number in rfcs.marked)


def test_classic_packets_do_not_meet_the_step_but_a_threshold_meets_both() -> None:
    for threshold_ms, is_marked in ((None, False), (2.0, True)):
        queue = make_queue("dualpi2", ce_threshold_ms=threshold_ms)
        for number, ecn in enumerate([ECT0, ECT0, ECT0, ECT1]):
            queue.push(0, number, PACKET, ecn)
        left = [queue.pop(3 * MS) for _ in range(4)]
        assert left == [(3, is_marked), (0, is_marked), (1, is_marked), (2, is_marked)]


def test_an_unknown_queue_is_refused_by_the_engine() -> None:
    batch, scenario = _native.Batch(1, 1), _native.Scenario(Scenario().to_dict() | {"queue": "red"})
    with pytest.raises(ValueError, match="unknown queue 'red'; known: droptail, codel, pie, fq_codel, dualpi2"):
        batch.reset(0, scenario, SEED)


@needs_ns3
def test_ns3_has_no_dualpi2() -> None:
    engine = make_engine("ns3")
    with contextlib.closing(engine), pytest.raises(EngineError, match="ns-3 cannot run queue 'dualpi2'"):
        engine.reset(Scenario(queue="dualpi2"), SEED)
