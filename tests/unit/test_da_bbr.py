"""DA-BBR: gamma and its guard, the window in ProbeRTT, and the reaction to losses (docs/algorithms/da-bbr.md)."""

import math

import pytest
from ack_path import Hand, make

from bbrgym._testing import Recovery

PROBE_BW, PROBE_RTT = 2, 3


def settle_window(hand: Hand, rtt_ms: float) -> int:
    """Return the window in packets after many ACKs with this RTT."""
    return [hand.ack(rtt_ms, in_flight=40) for _ in range(1000)][-1]


@pytest.mark.parametrize("queue_ratio", [1.0, 1.5, 2.0, 4.0, 10.0])
def test_the_window_is_two_bdp_times_gamma(queue_ratio: float):
    hand = Hand(make("da-bbr"))
    window = settle_window(hand, queue_ratio * hand.metrics["min_rtt_ms"])
    # gamma = T / (T + p); three packets of room, an even number, and two more while probing
    target = math.ceil(2 * hand.metrics["bdp_packets"] * queue_ratio / (queue_ratio + 1)) + 3
    assert window in (target + target % 2, target + target % 2 + 2)


def test_long_rtts_are_reduced_more_at_the_same_queue():
    share = {}
    for rtt_ms in (10, 50):
        hand = Hand(make("da-bbr", rtt_ms), 2000, rate_mbps=100, rtt_ms=rtt_ms)
        share[rtt_ms] = settle_window(hand, rtt_ms + 30) / (2 * hand.metrics["bdp_packets"])
    assert share[10] == pytest.approx(40 / 50, abs=0.03)
    assert share[50] == pytest.approx(80 / 130, abs=0.03)


@pytest.mark.parametrize(("growth", "bdps"), [(1.19, 1.0), (1.21, 2.0)])  # gamma is 1/2 on an empty queue
def test_an_rtprop_that_has_grown_by_a_fifth_switches_the_reduction_off(growth: float, bdps: float):
    hand = Hand(make("da-bbr"))
    rtt_ms = hand.metrics["min_rtt_ms"] * growth
    # The filter has expired and takes this RTT.
    hand.ack(rtt_ms, after_ms=11_000, in_flight=40)
    assert hand.metrics["mode"] == PROBE_RTT
    assert hand.metrics["min_rtt_ms"] == pytest.approx(rtt_ms)
    hand.ack(rtt_ms, after_ms=1, in_flight=1)
    sample = {"prior_delivered": 10**9 + 1, "delivery_rate": 1000}
    hand.ack(rtt_ms, after_ms=300, delivered=2 * 10**9, sample=sample)
    assert hand.metrics["mode"] == PROBE_BW
    assert settle_window(hand, rtt_ms) == pytest.approx(bdps * hand.metrics["bdp_packets"], abs=7)


@pytest.mark.parametrize(("has_third", "share"), [(1, 1 / 3), (0, None)])
def test_probe_rtt_keeps_a_third_of_the_window(has_third: int, share: float | None):
    hand = Hand(make("da-bbr", has_probe_rtt_third=has_third))
    expected = hand.window * share if share else 4
    assert hand.ack(60, after_ms=11_000, in_flight=40) == pytest.approx(expected, abs=1)


def test_recovery_drains_and_does_not_restore():
    hand = Hand(make("da-bbr"))
    before = hand.window
    hand.hear(Recovery.RECOVERY, in_flight=30)
    assert hand.ack(45, lost=1, in_flight=30) == 30, "only what is in flight"
    assert hand.ack(45, in_flight=29) == 30
    assert hand.metrics["pacing_gain"] == 0.75
    hand.hear(Recovery.OPEN, in_flight=29)
    assert hand.ack(45, in_flight=29) <= 31 < before


def test_without_the_loss_response_it_reacts_like_bbr():
    hand = Hand(make("da-bbr", has_loss_response=0))
    before = hand.window
    hand.hear(Recovery.RECOVERY, in_flight=30)
    assert hand.ack(45, lost=1, in_flight=30) == 31
    hand.hear(Recovery.OPEN, in_flight=29)
    assert hand.ack(81, in_flight=29) > 0.6 * before
