"""LEDBAT: a window steered by the queueing delay (RFC 6817; docs/algorithms/ledbat.md)."""

import ack_path
import pytest
from ack_path import make

from bbrgym._testing import Recovery

SLOW_START, AVOIDANCE = 4, 5
BASE_MS = 50.0
TARGET_MS = 100.0


class Hand(ack_path.Hand):
    """LEDBAT with a window of 20 packets that the flow fills, and an RTT of 50 ms so far."""

    def __init__(self, **parameters: float) -> None:
        super().__init__(make("ledbat", BASE_MS, 20, **parameters), time_ms=0)
        self.next_ack(BASE_MS, acked=0)

    def next_ack(self, rtt_ms: float, in_flight: int = 40, **fields: float) -> float:
        self.ack(rtt_ms, in_flight=in_flight, **fields)
        return self.cwnd

    def window(self, rtt_ms: float) -> float:
        """Acknowledge 20 packets with this RTT, after four that make it the smallest of the last four."""
        for _ in range(4):
            self.next_ack(rtt_ms, acked=0)
        before = self.cwnd
        for _ in range(20):
            self.next_ack(rtt_ms)
        return self.cwnd - before


@pytest.mark.parametrize(("queue_ms", "change"), [(0, 1), (50, 0.5), (100, 0), (150, -0.5), (400, -3)])
def test_the_window_moves_by_the_relative_distance_from_the_target(queue_ms: float, change: float):
    assert Hand().window(BASE_MS + queue_ms) == pytest.approx(change, rel=0.1, abs=0.001)


@pytest.mark.parametrize(("parameters", "change"), [({"target_ms": 60}, 40 / 60), ({"gain": 0.5}, 0.4)])
def test_target_and_gain_are_parameters(parameters: dict[str, float], change: float):
    assert Hand(**parameters).window(BASE_MS + 20) == pytest.approx(change, rel=0.05)


def test_the_smallest_of_the_last_four_rtts_counts():
    hand = Hand()
    for _ in range(3):
        assert hand.next_ack(BASE_MS + 400) > 20, "the first RTT is still one of four"
    before = hand.cwnd
    assert hand.next_ack(BASE_MS + 400) < before


@pytest.mark.parametrize(("after_min", "base_ms"), [(9.9, BASE_MS), (10.1, BASE_MS + 30)])
def test_the_base_rtt_is_that_of_ten_minutes(after_min: float, base_ms: float):
    hand = Hand()
    hand.next_ack(BASE_MS + 30, after_ms=60_000 * after_min)
    assert hand.metrics["min_rtt_ms"] == base_ms


@pytest.mark.parametrize("allowed", [1, 5])
def test_the_window_exceeds_the_flight_size_by_the_allowed_increase_at_most(allowed: int):
    hand = Hand(allowed_increase_packets=allowed)
    assert hand.next_ack(BASE_MS, in_flight=11) == 12 + allowed, "12 packets were in flight before the ACK"


def test_without_slow_start_it_begins_in_avoidance_and_by_option_not():
    assert Hand().metrics["mode"] == AVOIDANCE
    hand = Hand(has_slow_start=1)
    assert hand.metrics["mode"] == SLOW_START
    assert [hand.next_ack(BASE_MS) for _ in range(3)] == [21, 22, 23]
    for _ in range(4):
        hand.next_ack(BASE_MS + TARGET_MS + 1)
    assert hand.metrics["mode"] == AVOIDANCE, "the target ends slow start"


def test_a_loss_halves_the_window_and_a_timeout_leaves_one_packet():
    hand = Hand()
    hand.hear(Recovery.RECOVERY)
    hand.hear(Recovery.OPEN)
    assert hand.cwnd == 10
    hand.hear(Recovery.LOSS)
    assert (hand.cwnd, hand.metrics["ssthresh_packets"]) == (1, 5)


def test_the_window_stays_at_two_packets_however_long_the_queue():
    hand = Hand()
    for _ in range(200):
        hand.next_ack(BASE_MS + 2000)
    assert hand.cwnd == 2
