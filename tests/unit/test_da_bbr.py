"""DA-BBR: gamma, its guard, a third of the window in ProbeRTT, and the answer to losses (docs/algorithms/da-bbr.md)."""

from __future__ import annotations

import math

import pytest
from ack_path import MS, PACKET, Path

from bbrgym import _testing as cc

PROBE_BW, PROBE_RTT = 2, 3


def make(**parameters: float) -> cc.Controller:
    return cc.make("da-bbr", parameters, PACKET, 10 * PACKET, 40 * MS, 1)


def settled(**parameters: float) -> tuple[cc.Controller, Path]:
    """In ProbeBW on 10 Mbit/s and 40 ms."""
    controller = make(**parameters)
    path = Path(controller, rate_mbps=10, rtt_ms=40)
    path.run_until(3000)
    assert controller.metrics()["mode"] == PROBE_BW
    return controller, path


def acknowledge(
    controller: cc.Controller, now: int, rtt_ms: float, packets: int = 1, lost: int = 0, in_flight: int = 40
):
    ack = cc.AckEvent()
    ack.now, ack.rtt = now, int(rtt_ms * MS)
    ack.bytes_acked, ack.bytes_lost = packets * PACKET, lost * PACKET
    ack.in_flight = in_flight * PACKET
    ack.prior_in_flight = ack.in_flight + ack.bytes_acked
    ack.delivered = 10**9
    controller.on_ack(ack)


def settle_window(controller: cc.Controller, now: int, rtt_ms: float) -> float:
    """The window in packets after many ACKs with this RTT."""
    for i in range(1000):
        acknowledge(controller, now + i, rtt_ms)
    return controller.decision().cwnd / PACKET


@pytest.mark.parametrize("queue_ratio", [1.0, 1.5, 2.0, 4.0, 10.0])
def test_the_window_is_two_bdp_times_gamma(queue_ratio: float):
    controller, path = settled()
    metrics = controller.metrics()
    window = settle_window(controller, path.now, queue_ratio * metrics["min_rtt_ms"])
    # gamma = T / (T + p); three packets of room, an even number, and two more while probing
    target = math.ceil(2 * metrics["bdp_packets"] * queue_ratio / (queue_ratio + 1)) + 3
    assert window in (target + target % 2, target + target % 2 + 2)


def test_long_rtts_are_reduced_more_at_the_same_queue():
    share = {}
    for rtt_ms in (10, 50):
        controller = cc.make("da-bbr", {}, PACKET, 10 * PACKET, rtt_ms * MS, 1)
        path = Path(controller, rate_mbps=100, rtt_ms=rtt_ms)
        path.run_until(3000)
        share[rtt_ms] = settle_window(controller, path.now, rtt_ms + 30) / (2 * controller.metrics()["bdp_packets"])
    assert share[10] == pytest.approx(40 / 50, abs=0.03)
    assert share[50] == pytest.approx(80 / 130, abs=0.03)


def test_rtprop_that_has_grown_by_a_fifth_switches_the_reduction_off():
    for growth, is_reduced in ((1.19, True), (1.21, False)):
        controller, path = settled()
        before = controller.metrics()["min_rtt_ms"]
        # The filter expires, and takes the RTT that comes then.
        later = path.now + 11_000 * MS
        acknowledge(controller, later, before * growth)
        assert controller.metrics()["mode"] == PROBE_RTT
        assert controller.metrics()["min_rtt_ms"] == pytest.approx(before * growth)
        acknowledge(controller, later + MS, before * growth, in_flight=1)
        ack = cc.AckEvent()
        ack.now, ack.rtt, ack.bytes_acked, ack.delivered = (
            later + 300 * MS,
            int(before * growth * MS),
            PACKET,
            2 * 10**9,
        )
        ack.sample.is_valid, ack.sample.prior_delivered, ack.sample.delivery_rate = True, 10**9 + 1, 1000
        controller.on_ack(ack)
        assert controller.metrics()["mode"] == PROBE_BW
        window = settle_window(controller, later + 301 * MS, before * growth)
        # gamma is 1/2 on an empty queue
        gains = 1.0 if is_reduced else 2.0
        assert window == pytest.approx(gains * controller.metrics()["bdp_packets"], abs=7)


@pytest.mark.parametrize(("has_third", "share"), [(1, 1 / 3), (0, None)])
def test_probe_rtt_keeps_a_third_of_the_window(has_third: int, share: float | None):
    controller, path = settled(has_probe_rtt_third=has_third)
    before = controller.decision().cwnd
    acknowledge(controller, path.now + 11_000 * MS, 60)
    expected = before * share if share else 4 * PACKET
    assert controller.decision().cwnd == pytest.approx(expected, abs=PACKET)


def test_recovery_drains_and_does_not_restore():
    controller, path = settled()
    before = controller.decision().cwnd
    controller.on_recovery(cc.Recovery.RECOVERY, path.now, 30 * PACKET)
    acknowledge(controller, path.now + 1, 45, lost=1, in_flight=30)
    assert controller.decision().cwnd == 30 * PACKET, "in flight, without what was acknowledged"
    acknowledge(controller, path.now + 2, 45, in_flight=29)
    assert controller.metrics()["pacing_gain"] == 0.75
    assert controller.decision().cwnd == 30 * PACKET
    controller.on_recovery(cc.Recovery.OPEN, path.now + 3, 29 * PACKET)
    acknowledge(controller, path.now + 3, 45, in_flight=29)
    assert controller.decision().cwnd <= 31 * PACKET < before


def test_without_its_loss_response_it_answers_as_bbr():
    controller, path = settled(has_loss_response=0)
    before = controller.decision().cwnd
    controller.on_recovery(cc.Recovery.RECOVERY, path.now, 30 * PACKET)
    acknowledge(controller, path.now + 1, 45, lost=1, in_flight=30)
    assert controller.decision().cwnd == 31 * PACKET
    controller.on_recovery(cc.Recovery.OPEN, path.now + 3, 29 * PACKET)
    acknowledge(controller, path.now + 3, 81, in_flight=29)
    assert controller.decision().cwnd > 0.6 * before
