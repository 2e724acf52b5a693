"""DA-BBR: gamma and its guard, the window in ProbeRTT, and the reaction to losses (docs/algorithms/da-bbr.md)."""

from __future__ import annotations

import math

import ack_path
import pytest
from ack_path import MS, PACKET, Path, ack_event

from bbrgym import _testing as cc

PROBE_BW, PROBE_RTT = 2, 3


def settled(**parameters: float) -> tuple[cc.Controller, Path]:
    """Return it in ProbeBW on 10 Mbit/s and 40 ms."""
    controller = ack_path.make("da-bbr", **parameters)
    path = ack_path.settled(controller)
    assert controller.metrics()["mode"] == PROBE_BW
    return controller, path


def acknowledge(controller: cc.Controller, now: int, rtt_ms: float, lost: int = 0, in_flight: int = 40):
    controller.on_ack(ack_event(now, rtt_ms, lost=lost, in_flight=in_flight))


def settle_window(controller: cc.Controller, now: int, rtt_ms: float) -> float:
    """Return the window in packets after many ACKs with this RTT."""
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
        controller = ack_path.make("da-bbr", rtt_ms)
        path = ack_path.settled(controller, rate_mbps=100, rtt_ms=rtt_ms)
        share[rtt_ms] = settle_window(controller, path.now, rtt_ms + 30) / (2 * controller.metrics()["bdp_packets"])
    assert share[10] == pytest.approx(40 / 50, abs=0.03)
    assert share[50] == pytest.approx(80 / 130, abs=0.03)


@pytest.mark.parametrize(("growth", "bdps"), [(1.19, 1.0), (1.21, 2.0)])  # gamma is 1/2 on an empty queue
def test_an_rtprop_that_has_grown_by_a_fifth_switches_the_reduction_off(growth: float, bdps: float):
    controller, path = settled()
    rtt_ms = controller.metrics()["min_rtt_ms"] * growth
    # The filter has expired and takes this RTT.
    later = path.now + 11_000 * MS
    acknowledge(controller, later, rtt_ms)
    assert controller.metrics()["mode"] == PROBE_RTT
    assert controller.metrics()["min_rtt_ms"] == pytest.approx(rtt_ms)
    acknowledge(controller, later + MS, rtt_ms, in_flight=1)
    sample = {"prior_delivered": 10**9 + 1, "delivery_rate": 1000}
    controller.on_ack(ack_event(later + 300 * MS, rtt_ms, delivered=2 * 10**9, sample=sample))
    assert controller.metrics()["mode"] == PROBE_BW
    window = settle_window(controller, later + 301 * MS, rtt_ms)
    assert window == pytest.approx(bdps * controller.metrics()["bdp_packets"], abs=7)


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
    assert controller.decision().cwnd == 30 * PACKET, "only what is in flight"
    acknowledge(controller, path.now + 2, 45, in_flight=29)
    assert controller.metrics()["pacing_gain"] == 0.75
    assert controller.decision().cwnd == 30 * PACKET
    controller.on_recovery(cc.Recovery.OPEN, path.now + 3, 29 * PACKET)
    acknowledge(controller, path.now + 3, 45, in_flight=29)
    assert controller.decision().cwnd <= 31 * PACKET < before


def test_without_the_loss_response_it_reacts_like_bbr():
    controller, path = settled(has_loss_response=0)
    before = controller.decision().cwnd
    controller.on_recovery(cc.Recovery.RECOVERY, path.now, 30 * PACKET)
    acknowledge(controller, path.now + 1, 45, lost=1, in_flight=30)
    assert controller.decision().cwnd == 31 * PACKET
    controller.on_recovery(cc.Recovery.OPEN, path.now + 3, 29 * PACKET)
    acknowledge(controller, path.now + 3, 81, in_flight=29)
    assert controller.decision().cwnd > 0.6 * before
