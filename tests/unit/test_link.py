"""What the path does to packets beyond a droptail queue and a rate: queues, bursts of losses, jitter, rates of a trace.

First each part alone, then scenarios that both engines run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import random
from collections.abc import Iterator
from typing import get_args

import numpy as np
import pytest
from marks import needs_ns3
from rfc_queues import MS, Codel, Packet, SplitMix
from traces import flow_column, link_column, rows_of

import bbrgym
from bbrgym import Engine, Flow, Scenario, Trace, _native, _testing
from bbrgym.envs.columns import FLOW_COLUMNS
from bbrgym.envs.scenario import Queue

PACKET = 1040
NOT_ECT, ECT0 = 0, 2
SEED = 3


def total(trace: Trace, column: str) -> float:
    """Return the sum of a column over the run, of all flows or of the link."""
    return float((flow_column if column in FLOW_COLUMNS else link_column)(trace, column).sum())


@pytest.fixture(scope="module")
def ns3() -> Iterator[Engine]:
    with contextlib.closing(bbrgym.make_engine("ns3")) as engine:
        yield engine


@pytest.fixture(params=["native", pytest.param("ns3", marks=needs_ns3)])
def engine(request: pytest.FixtureRequest) -> Engine:
    engine: Engine = request.getfixturevalue(request.param)
    return engine


# CoDel


def codel_queue(target_ms: float, interval_ms: float) -> _testing.QueueDiscipline:
    scenario = Scenario(queue="codel", codel_target_ms=target_ms, codel_interval_ms=interval_ms)
    return _testing.QueueDiscipline(scenario.to_dict(), SEED)


@pytest.mark.parametrize("ecn_capable", [0.0, 0.5, 1.0])
def test_codel_does_what_the_rfc_says(ecn_capable: float) -> None:
    """`ecn_capable` is the share of the packets that are."""
    branches: set[str] = set()
    for seed in range(10):
        rng = random.Random(seed)
        target, interval = rng.choice([(5, 100), (5, 20), (1, 10)])
        ours = codel_queue(target, interval)
        rfcs = Codel(target=target * MS, interval=interval * MS, maxpacket=PACKET)
        now, number = 0, 0
        for _ in range(3000):
            # Phases with more arrivals than departures, and phases with fewer.
            spell = math.sin(now / (rng.choice([300, 3000]) * MS))
            now += rng.choice([0, MS // 3, MS, 2 * MS])
            for _ in range(rng.choice([0, 1, 3]) if spell > 0 else rng.choice([0, 0, 1])):
                size = rng.choice([PACKET, PACKET, 300])
                is_ecn_capable = number % 20 < 20 * ecn_capable
                ours.push(now, number, size, ECT0 if is_ecn_capable else NOT_ECT)
                rfcs.enque(Packet(number, size, now, is_ecn_capable))
                number += 1
            dropped = ours.drops
            packet = rfcs.deque(now)
            assert ours.pop(now) == (None if packet is None else (packet.number, packet.number in rfcs.marked))
            assert ours.drops == len(rfcs.dropped) >= dropped
            assert (len(ours), ours.bytes) == (len(rfcs.queue), rfcs.queue.bytes)
        branches |= rfcs.branches
    drops = {"left after a drop", "1 dropped at once", "2 dropped at once", "resumed"} if ecn_capable < 1 else set()
    marks = {"marked first", "marked, and left"} if ecn_capable > 0 else set()
    assert branches == {"left", "begun anew", "0 dropped at once"} | drops | marks


def test_codels_drops_come_at_the_interval_over_the_square_root_of_their_number() -> None:
    queue = codel_queue(5, 100)
    for number in range(2000):
        queue.push(0, number, PACKET)
    drops = []
    for ms in range(1, 900):
        before = queue.drops
        assert queue.pop(ms * MS) is not None
        drops += [ms] * (queue.drops - before)
    # 5 ms: the first packet above target. The first drop is an interval later, the others follow the control law.
    times = [105.0 + sum(100 / math.sqrt(count) for count in range(1, n)) for n in range(1, 25)]
    assert drops == [math.ceil(time) for time in times if time < 899]


CODEL = Scenario(rate_mbps=10, buffer_bdp=4, queue="codel", duration_s=10, flows=(Flow("cubic", rtt_ms=40),))


def test_codel_keeps_the_delay_at_its_target(engine: Engine) -> None:
    codel = bbrgym.simulate(CODEL, engine, SEED).summary(after_s=4)
    droptail = bbrgym.simulate(dataclasses.replace(CODEL, queue="droptail"), engine, SEED).summary(after_s=4)
    assert droptail.link.queue_mean_ms > 60
    assert 1 < codel.link.queue_mean_ms < 6
    assert codel.link.utilisation > 0.95
    assert codel.link.drops > 1
    higher = dataclasses.replace(CODEL, codel_target_ms=30.0)
    assert 12 < bbrgym.simulate(higher, engine, SEED).summary(after_s=4).link.queue_mean_ms < 35
    patient = dataclasses.replace(CODEL, codel_interval_ms=2000.0)
    assert bbrgym.simulate(patient, engine, SEED).summary(after_s=4).link.queue_mean_ms > 12


# ns-3 has no DualPI2 (test_dualpi2.py).
QUEUES = [
    *(pytest.param("native", queue) for queue in get_args(Queue)),
    *(pytest.param("ns3", queue, marks=needs_ns3) for queue in get_args(Queue) if queue != "dualpi2"),
]
every_queue = pytest.mark.parametrize(("engine", "queue"), QUEUES, indirect=["engine"])


@every_queue
def test_what_is_sent_is_dropped_or_lost_or_arrives(engine: Engine, queue: str) -> None:
    """Drops are counted once each, wherever they are."""
    scenario = Scenario.from_dict(
        CODEL.to_dict()
        | {"queue": queue, "loss": 0.01, "buffer_packets": 30, "buffer_bdp": None, "codel_target_ms": 10.0}
        | {"flows": [{"algorithm": "bbr", "rtt_ms": 40, "stop_s": 8.0}]}  # nothing is in flight at the end
    )
    trace = bbrgym.simulate(scenario, engine, SEED)
    assert total(trace, "drops") > 50
    assert total(trace, "random_losses") > 50
    gone = total(trace, "drops") + total(trace, "random_losses")
    unseen = total(trace, "sent_packets") - gone - total(trace, "arrived_bytes") / scenario.packet_bytes
    # ns-3's TCP discards duplicates before they are seen to arrive.
    assert 0 <= unseen <= total(trace, "retransmitted_packets") - gone + 2


@every_queue
def test_every_buffer_has_an_end(engine: Engine, queue: Queue) -> None:
    targets = {"codel_target_ms": 1000.0, "pie_target_ms": 1000.0, "dualpi2_target_ms": 1000.0}
    scenario = dataclasses.replace(CODEL, queue=queue, buffer_bdp=None, buffer_packets=10, duration_s=3.0, **targets)
    trace = bbrgym.simulate(scenario, engine, SEED)
    assert total(trace, "drops") > 0
    assert link_column(trace, "queue_max_packets").max() == 11  # and one in the device


def test_an_unknown_queue_is_refused_by_the_engine() -> None:
    batch, scenario = _native.Batch(1, 1), _native.Scenario(CODEL.to_dict() | {"queue": "red"})
    with pytest.raises(ValueError, match="unknown queue 'red'; known: droptail, codel, pie, fq_codel, dualpi2"):
        batch.reset(0, scenario, SEED)


def test_fq_codel_gives_every_flow_its_share(engine: Engine) -> None:
    """In a CoDel queue that both share, BBR leaves little to CUBIC."""
    shares = {}
    for queue in ("codel", "fq_codel"):
        scenario = dataclasses.replace(CODEL, queue=queue, flows=(Flow("bbr", rtt_ms=40), Flow("cubic", rtt_ms=40)))
        bbr, cubic = bbrgym.simulate(scenario, engine, SEED).summary(after_s=3).flows
        shares[queue] = cubic.throughput_mbps / (bbr.throughput_mbps + cubic.throughput_mbps)
    assert shares["codel"] < 0.25
    assert 0.45 < shares["fq_codel"] < 0.55


# Random losses


def test_independent_losses_are_one_draw_each() -> None:
    draws = SplitMix(SEED)
    expected = [draws.next() < int(0.03 * 18446744073709551615.0) for _ in range(1000)]
    assert _testing.draw_losses(Scenario(loss=0.03).to_dict(), SEED, 1000) == expected
    assert 10 < sum(expected) < 60
    for bursts in ({}, {"loss_burst_packets": 5}, {"loss_burst_ms": 5}):
        assert not any(_testing.draw_losses(Scenario(**bursts).to_dict(), SEED, 1000, MS))


@pytest.mark.parametrize(("loss", "burst"), [(0.02, 5.0), (0.1, 1.0), (0.5, 1.0), (0.3, 30.0), (0.9, 9.0)])
def test_bursts_have_their_length_and_share(loss: float, burst: float) -> None:
    count = 400_000
    scenario = Scenario(loss=loss, loss_burst_packets=burst)
    lost = np.array(_testing.draw_losses(scenario.to_dict(), SEED, count))
    edges = np.flatnonzero(np.diff(np.concatenate(([False], lost, [False])).astype(int)))
    lengths = (edges[1::2] - edges[::2]).astype(float)
    bursts = lengths.size
    # Lengths are geometric, so their deviation is sqrt(burst (burst - 1)); bounds are 4 deviations of each mean.
    assert lengths.mean() == pytest.approx(burst, abs=4 * math.sqrt(burst * (burst - 1) / bursts) + 1e-9)
    gaps = np.diff(edges)[1::2].astype(float)
    gap = burst * (1 - loss) / loss
    assert gaps.mean() == pytest.approx(gap, abs=4 * gap / math.sqrt(bursts) + 1e-3)
    assert lost.mean() == pytest.approx(loss, rel=0.1)


def test_losses_in_bursts(engine: Engine) -> None:
    scenario = Scenario(rate_mbps=20, buffer_bdp=4, duration_s=8, loss=0.02, loss_burst_packets=8.0,
                        flows=(Flow("bbr", rtt_ms=20, stop_s=6.0),))  # fmt: skip
    trace = bbrgym.simulate(scenario, engine, SEED)
    lost, sent = total(trace, "random_losses"), total(trace, "sent_packets")
    # 8 (2 - 2 x 0.02) packets of variance a burst: 0.003 is the deviation of the share.
    assert lost / sent == pytest.approx(0.02, abs=0.01)
    # The link loses exactly the packets that the model draws with the first seed.
    link_seed = SplitMix(SEED).next()
    apart = dataclasses.replace(scenario, loss_burst_packets=None)
    for run in (trace, bbrgym.simulate(apart, engine, SEED)):
        draws = _testing.draw_losses(run.scenario.to_dict(), link_seed, int(total(run, "sent_packets")))
        assert total(run, "random_losses") == sum(draws)


@pytest.mark.parametrize(("loss", "burst_ms"), [(0.02, 5.0), (0.5, 1.0), (0.9, 40.0)])
def test_bursts_by_time_have_their_length_and_share(loss: float, burst_ms: float) -> None:
    plain, count, interval_ms = Scenario(loss=loss, loss_burst_ms=burst_ms).to_dict(), 1_000_000, burst_ms / 50
    is_bad = np.array(_testing.draw_losses(plain, SEED, count, int(interval_ms * MS)))
    edges = np.flatnonzero(np.diff(np.concatenate(([False], is_bad, [False])).astype(int)))
    lengths, gaps = (edges[1::2] - edges[::2]) * interval_ms, np.diff(edges)[1::2] * interval_ms
    gap_ms = burst_ms * (1 - loss) / loss
    # Exponential: the deviation is the mean. What is shorter than the interval is missed, and joins its neighbours.
    for found, mean in ((lengths, burst_ms), (gaps, gap_ms)):
        assert found.mean() == pytest.approx(mean, abs=4 * mean / math.sqrt(found.size), rel=0.2)
        assert found.std() == pytest.approx(found.mean(), rel=0.15)
    assert is_bad.mean() == pytest.approx(loss, rel=0.15)
    # However many packets come, the link is bad at the same times.
    rare = _testing.draw_losses(plain, SEED, count // 10, 10 * int(interval_ms * MS))
    assert rare == is_bad[::10].tolist()


def test_the_link_loses_everything_while_it_is_bad_and_nothing_else(engine: Engine) -> None:
    scenario = Scenario(rate_mbps=20, duration_s=20, loss=0.2, loss_burst_ms=100, flows=(Flow("bbr", rtt_ms=4),))
    link_seed = SplitMix(SEED).next()
    every_ms = np.array(_testing.draw_losses(scenario.to_dict(), link_seed, 20_010, MS))
    trace = bbrgym.simulate(scenario, engine, SEED, 1)
    lost = link_column(trace, "random_losses") > 0
    arrived = rows_of(trace)["arrived_bytes"].to_numpy() > 0
    # Packets take up to 3 ms from the link to the row.
    bad, good = (
        np.lib.stride_tricks.sliding_window_view(np.concatenate(([state[0]] * 4, state)), 6)[: lost.size].all(axis=1)
        for state in (every_ms, ~every_ms)
    )
    assert min(bad.sum(), good.sum()) > 2000
    assert not arrived[bad].any()
    assert lost[bad].any()
    assert not lost[good].any()
    assert arrived[good].mean() > 0.3


def test_a_burst_by_packets_stops_a_lone_flow(engine: Engine) -> None:
    """20 packets take 8 ms on the link."""
    still = {}
    for bursts in ({"loss_burst_packets": 20.0}, {"loss_burst_ms": 8.0}):
        scenario = Scenario(rate_mbps=20, duration_s=120, loss=0.01, flows=(Flow("cubic", rtt_ms=40),), **bursts)
        arrived = rows_of(bbrgym.simulate(scenario, engine, SEED))["arrived_bytes"]
        still[next(iter(bursts))] = (arrived == 0).mean()
    assert still["loss_burst_packets"] > 0.5
    assert still["loss_burst_ms"] < 0.1


def test_bursts_hurt_cubic_less_than_as_many_losses_apart(engine: Engine) -> None:
    """CUBIC reacts once to the losses of a round trip."""
    rates = []
    for burst in (None, 10.0):
        scenario = Scenario(rate_mbps=20, buffer_bdp=2, duration_s=15, loss=0.005, loss_burst_packets=burst,
                            flows=(Flow("cubic", rtt_ms=40),))  # fmt: skip
        rates.append(bbrgym.simulate(scenario, engine, SEED).summary(after_s=3).flows[0].throughput_mbps)
    assert rates[1] > 1.5 * rates[0]


# Jitter

JITTER = {"rtt_ms": 30.0, "jitter_ms": 10.0}


def test_jitter_is_even_and_keeps_the_order() -> None:
    sent = [i * 20 * MS for i in range(20_000)]
    delay = np.array(_testing.draw_arrivals(JITTER, SEED, sent)) / MS - np.array(sent) / MS - 30
    assert delay.min() >= 0
    assert delay.max() <= 10
    assert np.histogram(delay, bins=10, range=(0, 10))[0] == pytest.approx(2000, abs=4 * math.sqrt(2000))

    sent = [i * MS for i in range(20_000)]  # packets behind a late one arrive with it
    arrivals = np.array(_testing.draw_arrivals(JITTER, SEED, sent))
    assert (np.diff(arrivals) >= 0).all()
    assert ((np.diff(arrivals) == 0).mean()) > 0.3
    delay = (arrivals - np.array(sent)) / MS - 30
    assert delay.max() <= 10
    assert delay.mean() > 6  # the latest of about ten
    assert _testing.draw_arrivals({"rtt_ms": 30.0}, SEED, sent) == [now + 30 * MS for now in sent]
    assert _testing.draw_arrivals(JITTER, SEED + 1, sent) != arrivals.tolist()


def test_jitter_on_the_way_back(engine: Engine) -> None:
    """The agent's window stays near its first BDP estimate, far below the link: nothing queues."""
    rtts = {}
    for jitter_ms in (0, 40):
        flow = Flow("agent", rtt_ms=200, jitter_ms=jitter_ms, parameters={"is_always_steered": 1})
        scenario = Scenario(rate_mbps=20, buffer_bdp=1, duration_s=25, flows=(flow,))
        trace = bbrgym.simulate(scenario, engine, SEED, policy=lambda flow, rows: (1.2, 1.0))
        rows = rows_of(trace).loc[1:]
        mean = np.average(rows["rtt_mean_ms"].fillna(0), weights=rows["delivered_packets"])
        rtts[jitter_ms] = rows["rtt_last_ms"].min(), mean, rows["rtt_last_ms"].max()
    (_, base, _), (least, mean, most) = rtts[0], rtts[40]
    assert base == pytest.approx(200.4, abs=0.2)
    assert base <= least < base + 5
    assert mean == pytest.approx(base + 20, abs=3)
    assert base + 35 < most < base + 85  # 40 of jitter, and 40 of delayed ACK for a packet that arrives alone


# Rates


def test_a_packet_ends_with_the_rate_with_which_it_began(engine: Engine) -> None:
    """At 0.02 Mbit/s a packet takes 416 ms, although the outage is over after 100."""
    scenario = Scenario(rate_mbps=10, buffer_bdp=4, duration_s=3, rate_schedule=((1.0, 0.02), (1.1, 10.0)),
                        flows=(Flow("bbr", rtt_ms=20),))  # fmt: skip
    arrived = rows_of(bbrgym.simulate(scenario, engine, SEED, 10))["arrived_bytes"]
    assert arrived.loc[0.9:1.0].sum() > 50_000
    assert arrived.loc[1.02:1.41].sum() == 0
    assert arrived.loc[1.43:1.53].sum() > 50_000


# Both engines


AGREEMENT = {
    "codel": dataclasses.replace(CODEL, flows=(Flow("newreno", rtt_ms=40),) * 4),
    "pie": dataclasses.replace(CODEL, queue="pie", flows=(Flow("newreno", rtt_ms=40),) * 4),
    "fq_codel": dataclasses.replace(CODEL, queue="fq_codel", flows=(Flow("cubic", rtt_ms=20), Flow("bbr", rtt_ms=60))),
    "bursts": Scenario(rate_mbps=20, buffer_bdp=2, duration_s=8, loss=0.02, loss_burst_packets=5.0,
                       flows=(Flow("bbr", rtt_ms=40),)),
    "jitter": Scenario(rate_mbps=20, buffer_bdp=2, duration_s=8,
                       flows=(Flow("bbr", rtt_ms=10, jitter_ms=5.0), Flow("bbr", rtt_ms=50))),
    "cellular": Scenario.from_dict(
        {"buffer_bdp": 4, "duration_s": 8, "flows": [{"algorithm": "bbr", "rtt_ms": 50}],
         "rate_trace": {"synthetic": "cellular"}}),
}  # fmt: skip
"""Flows' shares of the link agree within 15 % of it, mean RTTs within 10 %."""

LINK_BOUNDS = ({"abs": 0.03}, {"rel": 0.2, "abs": 1}, {"rel": 0.3, "abs": 10}, {"rel": 0.3, "abs": 10})
"""Of utilisation, mean queue in ms, drops, and random losses."""


@needs_ns3
@pytest.mark.parametrize("name", AGREEMENT)
def test_the_engines_agree(name: str, native: Engine, ns3: Engine) -> None:
    (flows, link), (flows_of_ns3, link_of_ns3) = (means(engine, AGREEMENT[name]) for engine in (native, ns3))
    whole = sum(rate for rate, _ in flows_of_ns3)
    for (ours, our_rtt), (theirs, their_rtt) in zip(flows, flows_of_ns3, strict=True):
        assert ours / whole == pytest.approx(theirs / whole, abs=0.15)
        assert our_rtt == pytest.approx(their_rtt, rel=0.1)
    for ours, theirs, bound in zip(link, link_of_ns3, LINK_BOUNDS, strict=True):
        assert ours == pytest.approx(theirs, **bound)


def means(engine: Engine, scenario: Scenario) -> tuple[np.ndarray, np.ndarray]:
    """Return means over two seeds: (Mbit/s, RTT in ms) per flow, and the measurements of the link."""
    runs = [bbrgym.simulate(scenario, engine, seed).summary(after_s=3) for seed in (1, 2)]
    flows = [[(flow.throughput_mbps, flow.rtt_mean_ms) for flow in run.flows] for run in runs]
    links = [(run.link.utilisation, run.link.queue_mean_ms, run.link.drops, run.link.random_losses) for run in runs]
    return np.mean(flows, axis=0), np.mean(links, axis=0)


@pytest.mark.parametrize("name", AGREEMENT)
def test_the_same_seed_is_the_same_to_the_last_bit(engine: Engine, name: str) -> None:
    short = dataclasses.replace(AGREEMENT[name], duration_s=2.0)
    first, second = (bbrgym.simulate(short, engine, SEED).hash for _ in range(2))
    assert first == second
    if name in ("pie", "bursts", "jitter"):
        assert bbrgym.simulate(short, engine, SEED + 1).hash != first
