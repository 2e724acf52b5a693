"""Flows that their application limits, in the native engine and over ns-3's TCP (docs/scenarios.md)."""

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from marks import needs_ns3
from test_transport import MS, PACKET, Hand
from traces import flow_column, link_column

from bbrgym import Engine, Flow, Scenario, make_engine, simulate

RATE, RTT_MS = 10.0, 40.0
MBPS = 1.6
"""A message every 5 ms, so that the initial window of 10 packets does not limit it."""
ON_THE_LINK_MS = (1000 + 40) * 8e-3 / RATE
EMPTY_PATH_MS = RTT_MS / 2 + ON_THE_LINK_MS


def scenario(duration_s: float = 4.0, algorithm: str = "cubic", **application: Any) -> Scenario:
    flow = Flow(algorithm, rtt_ms=RTT_MS, **application)
    return Scenario(rate_mbps=RATE, buffer_bdp=2, duration_s=duration_s, flows=(flow,))


@pytest.fixture(scope="module", params=["native", pytest.param("ns3", marks=needs_ns3)])
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with contextlib.closing(make_engine(request.param)) as engine:
        yield engine


@pytest.mark.parametrize("algorithm", ["cubic", "bbr"])
def test_a_constant_bit_rate_is_received_without_a_queue(engine: Engine, algorithm: str) -> None:
    trace = simulate(scenario(algorithm=algorithm, app_rate_mbps=MBPS), engine)
    assert flow_column(trace, "throughput_mbps")[1:, 0] == pytest.approx(MBPS, abs=0.081)  # a packet in 100 ms
    seconds = 4 - 1.5 * RTT_MS / 1e3
    assert flow_column(trace, "received_bytes").sum() == pytest.approx(seconds * MBPS * 1e6 / 8, abs=6 * PACKET)
    # One packet is on the link at a time. ns-3's hosts take up to a tenth of the link's time for it.
    assert link_column(trace, "queue_max_packets").max() <= 1
    delays = flow_column(trace, "app_delay_mean_ms")[1:, 0]
    assert delays.min() >= EMPTY_PATH_MS - 1e-6
    assert delays.max() <= EMPTY_PATH_MS + ON_THE_LINK_MS / 10 + 0.02
    assert flow_column(trace, "retransmitted_packets").sum() == 0


def test_on_and_off_periods(engine: Engine) -> None:
    trace = simulate(scenario(app_rate_mbps=MBPS, on_s=0.5, off_s=1.0), engine, step_ms=50)
    # From the end of the handshake, and half an RTT until the receiver sees it.
    since_s = trace.time_s - 1.5 * RTT_MS / 1e3
    mbps = flow_column(trace, "throughput_mbps")[:, 0]
    phase_s = since_s % 1.5
    within_on, within_off = (phase_s > 0.06) & (phase_s < 0.49), phase_s > 0.56
    assert within_on.sum() > 15
    assert within_off.sum() > 30
    assert mbps[within_on & (since_s > 0)] == pytest.approx(MBPS, abs=0.161)  # a packet in 50 ms
    assert not mbps[within_off].any()
    assert np.isnan(flow_column(trace, "app_delay_mean_ms")[within_off, 0]).all()


def test_random_periods_have_the_given_means_and_follow_the_seed() -> None:
    given = scenario(200.0, app_rate_mbps=2.0, on_s=0.2, off_s=0.3, on_off="exponential")
    traces = [simulate(given, "native", seed) for seed in (1, 1, 2)]
    assert traces[0].hash == traces[1].hash != traces[2].hash
    for trace in traces[1:]:
        # 400 periods of each kind: the share of on has a standard deviation of 2.4 % of itself … 3.5 %.
        assert flow_column(trace, "throughput_mbps").mean() == pytest.approx(2.0 * 0.4, rel=0.12)
        assert np.ptp(flow_column(trace, "throughput_mbps")) == pytest.approx(2.0, abs=0.1)


def test_a_queue_in_front_of_the_sender_is_a_delay(engine: Engine) -> None:
    """Above the link's rate, what is written waits with the sender: message n leaves at n / its packet rate."""
    trace = simulate(scenario(3.0, app_rate_mbps=12.5), engine, step_ms=500)
    delay_ms = flow_column(trace, "app_delay_mean_ms")[:, 0]
    assert (np.diff(delay_ms) > 0).all()
    # In 500 ms come 781 messages and leave 601, less the losses.
    assert delay_ms[-1] - delay_ms[-2] >= 0.9 * 500 * (1 - RATE / 1.04 / 12.5)


def test_a_finite_flow_ends_with_its_last_message(engine: Engine) -> None:
    trace = simulate(scenario(app_rate_mbps=MBPS, size_bytes=50_500), engine)
    handshake_ms = RTT_MS + 40 * 8e-3 / RATE
    last_ms = 50 * 5.0 + RTT_MS / 2 + 540 * 8e-3 / RATE  # the 51st message of 540 bytes on the wire
    completion_ms = flow_column(trace, "completion_time_ms")[:, 0]
    assert completion_ms[-1] == pytest.approx(
        handshake_ms + last_ms, abs=1e-6 if engine.description.title == "native" else 0.2
    )
    assert np.isnan(completion_ms[:1]).all()
    assert flow_column(trace, "received_bytes").sum() == 50_500


@pytest.mark.parametrize(("packets", "rounds"), [(10, 0), (11, 1), (28, 1), (29, 2), (64, 2), (65, 3)])
def test_completion_on_an_empty_path_has_the_rounds_of_slow_start(engine: Engine, packets: int, rounds: int) -> None:
    """After the handshake's round trip, rounds of 10, 18, 36, … packets; the last one takes half a round trip.

    The tenth packet's ACK waits for another packet, for longer than an RTT: so 9 of 10 are answered by two.
    """
    flow = Flow("newreno", rtt_ms=20, start_s=0.5, size_bytes=packets * PACKET)
    trace = simulate(Scenario(rate_mbps=1000, duration_s=3, flows=(flow,)), engine)
    # A packet takes 8 us, and in ns-3 a bit more.
    assert flow_column(trace, "completion_time_ms")[-1, 0] == pytest.approx((1 + rounds + 0.5) * 20, abs=0.7)


def test_samples_are_marked_while_the_application_limits_the_flow() -> None:
    hand = Hand(cwnd=4, app_rate_mbps=2.0)  # a message every 4 ms
    assert len(hand.send(0)) == 1
    assert hand.timer_ms == 4
    assert hand.send(3.9) == []
    assert len(hand.send(8)) == 2
    assert not hand.ack(10, 0).sample.is_app_limited  # it was the first, when nothing had run out
    assert hand.ack(18, (1, 2)).sample.is_app_limited
    assert len(hand.send(28)) == 4, "five messages wait: now the window limits it"
    assert hand.timer_ms > 32, "so it does not wait for the application"
    assert hand.ack(38, 3).sample.is_app_limited  # it was sent after a pause
    assert len(hand.send(38)) == 1
    assert not hand.ack(48, (4, 7)).sample.is_app_limited
    assert hand.told.restarts == [28 * MS]
