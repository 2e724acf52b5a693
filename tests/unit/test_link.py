"""What the path does to packets beyond a queue and a rate: bursts of losses, and jitter.

test_queue_disciplines.py has the queues alone, test_ns3_quic.py the agreement with ns-3.
"""

import dataclasses
import math

import numpy as np
import pytest
from rfc_queues import MS, SplitMix
from traces import flow_column, link_column, rows_of

import bbrgym
from bbrgym import Engine, Flow, Scenario, Trace, _testing
from bbrgym.envs.columns import FLOW_COLUMNS

SEED = 3


def total(trace: Trace, column: str) -> float:
    """Return the sum of a column over the run, of all flows or of the link."""
    return float((flow_column if column in FLOW_COLUMNS else link_column)(trace, column).sum())


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


def test_losses_in_bursts(native: Engine) -> None:
    scenario = Scenario(
        rate_mbps=20,
        buffer_bdp=4,
        duration_s=8,
        loss=0.02,
        loss_burst_packets=8.0,
        flows=(Flow("bbr", rtt_ms=20, stop_s=6.0),),
    )
    trace = bbrgym.simulate(scenario, native, SEED)
    lost, sent = total(trace, "random_losses"), total(trace, "sent_packets")
    # 8 (2 - 2 x 0.02) packets of variance a burst: 0.003 is the deviation of the share.
    assert lost / sent == pytest.approx(0.02, abs=0.01)
    # The link loses exactly the packets that the model draws with the first seed.
    link_seed = SplitMix(SEED).next()
    apart = dataclasses.replace(scenario, loss_burst_packets=None)
    for run in (trace, bbrgym.simulate(apart, native, SEED)):
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


def test_the_link_loses_everything_while_it_is_bad_and_nothing_else(native: Engine) -> None:
    scenario = Scenario(rate_mbps=20, duration_s=20, loss=0.2, loss_burst_ms=100, flows=(Flow("bbr", rtt_ms=4),))
    link_seed = SplitMix(SEED).next()
    every_ms = np.array(_testing.draw_losses(scenario.to_dict(), link_seed, 20_010, MS))
    trace = bbrgym.simulate(scenario, native, SEED, 1)
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


def test_a_burst_by_packets_stops_a_lone_flow(native: Engine) -> None:
    """20 packets take 8 ms on the link."""
    still = {}
    for bursts in ({"loss_burst_packets": 20.0}, {"loss_burst_ms": 8.0}):
        scenario = Scenario(rate_mbps=20, duration_s=120, loss=0.01, flows=(Flow("cubic", rtt_ms=40),), **bursts)
        arrived = rows_of(bbrgym.simulate(scenario, native, SEED))["arrived_bytes"]
        still[next(iter(bursts))] = (arrived == 0).mean()
    assert still["loss_burst_packets"] > 0.5
    assert still["loss_burst_ms"] < 0.1


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
