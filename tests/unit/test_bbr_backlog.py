"""BBR's model with a constant backlog (docs/algorithms/bbr-backlog.md)."""

from statistics import fmean

import numpy as np
import pytest
from ack_path import Path, make

from bbrgym import Flow, Scenario, simulate


def rates_behind_a_queue_of_others(**parameters: float) -> list[float]:
    """Return the bandwidth in Mbit/s of a flow on a long path in a queue of 1 ms that others keep, every second."""
    plain = {"backlog_packets": 5, "ignored_delay_ms": 0, "fills_free_link": 0}
    path = Path(make("bbr-backlog", 100, **plain | parameters), rate_mbps=10, rtt_ms=100)
    path.run_until(4_000)
    path.rate_mbps, path.rtt_ms = 1000, 101.8  # others decide how long the queue is, not this flow
    rates = []
    for second in range(5, 11):  # while min_rtt is that of the empty path
        path.run_until(1000 * second)
        rates.append(path.controller.metrics()["max_bandwidth_mbps"])
    return rates


def test_a_flow_comes_closer_to_its_share_of_a_short_queue_sooner_with_the_correction() -> None:
    share_mbps = 5 * 8  # Little's law: five packets per millisecond
    slow, fast = rates_behind_a_queue_of_others(correction_rounds=0), rates_behind_a_queue_of_others()
    assert fast[2] > slow[5], "in half the time"
    assert 0.6 * share_mbps < max(fast) < 1.15 * share_mbps, "beside a queue it spares a part; it does not overshoot"


@pytest.mark.parametrize("packets", [1.4, 5.0])
def test_a_lone_flow_keeps_its_backlog(packets: float) -> None:
    path = Path(make("bbr-backlog", backlog_packets=packets))
    path.run_until(9_000)
    queued: list[float] = []
    path.on_ack = lambda ack: queued.append((ack.rtt / 1e6 - 40.8) / 0.8)
    path.run_until(9_500)
    assert np.mean(queued) == pytest.approx(packets, abs=1)
    assert np.ptp(queued) < 3


@pytest.mark.parametrize("rate_mbps", [10, 40])
def test_flows_of_different_rtts_share_evenly(rate_mbps: float) -> None:
    def evenness(**parameters: float) -> float:
        flows = tuple(Flow("bbr-backlog", rtt_ms, parameters=parameters) for rtt_ms in (10, 50))
        scenario = Scenario(rate_mbps=rate_mbps, buffer_bdp=4, duration_s=60, flows=flows)
        rates = [flow.throughput_mbps for flow in simulate(scenario, seed=1).summary(after_s=30).flows]
        return min(rates) / max(rates)

    assert evenness() > 0.9 > evenness(correction_rounds=0)


def test_lost_packets_do_not_cost_the_bandwidth() -> None:
    scenario = Scenario(rate_mbps=100, buffer_bdp=1, duration_s=20, loss=0.02, flows=(Flow("bbr-backlog", 140),))
    assert fmean(simulate(scenario, seed=seed).summary(after_s=8).link.utilisation for seed in (1, 2, 3)) > 0.8


@pytest.mark.parametrize("jitter_ms", [0.0, 0.5])
def test_noise_of_rtts_does_not_cost_a_fast_link(jitter_ms: float) -> None:
    """Of the lowest RTT, a window of one BDP and 1.4 packets is too small where noise is as long as many packets."""

    def used(**parameters: float) -> float:
        flow = Flow("bbr-backlog", rtt_ms=40, jitter_ms=jitter_ms, parameters=parameters)
        scenario = Scenario(rate_mbps=200, buffer_bdp=2, duration_s=30, flows=(flow,))
        return simulate(scenario, seed=1).summary(after_s=15).link.utilisation

    assert used() > 0.94
    assert (used(ignored_delay_ms=0) < 0.9) == (jitter_ms > 0)


@pytest.mark.parametrize("fills", [0, 1])
def test_a_link_that_becomes_faster_is_filled_in_a_second(fills: int) -> None:
    flow = Flow("bbr-backlog", rtt_ms=40, parameters={"fills_free_link": fills})
    scenario = Scenario(rate_mbps=5, buffer_bdp=4, duration_s=8, rate_schedule=((6.0, 50.0),), flows=(flow,))
    rows = simulate(scenario, seed=1, step_ms=100).rows
    last_second = rows[rows["time_s"].between(7.05, 8.05)]["throughput_mbps"].mean()
    assert (last_second > 40) == bool(fills)
