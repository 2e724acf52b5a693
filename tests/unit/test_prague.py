"""TCP Prague: a window that shrinks with the share of marked packets (docs/algorithms/prague.md)."""

import itertools
from typing import Final, Self

import ack_path
import pytest
from ack_path import MS, PACKET, make

from bbrgym._testing import Recovery

SLOW_START, AVOIDANCE = 4, 5
EARLY: Final = {"rtt_independence_rounds": 0}


class Hand(ack_path.Hand):
    """Prague with ACKs by hand: one per packet, 100 in flight, and an RTT that passes with every round."""

    IN_FLIGHT = 100

    def __init__(self, rtt_ms: float = 50, **parameters: float) -> None:
        super().__init__(make("prague", rtt_ms, self.IN_FLIGHT, **parameters), time_ms=0)
        self.rtt_ms = rtt_ms

    @property
    def alpha(self) -> float:
        return self.metrics["ecn_alpha"]

    def next_ack(self, marked: int = 0, acked: int = 1, after_ms: float | None = None, **fields: float) -> float:
        """Acknowledge these packets, of which so many are marked, after their part of the RTT; return the window."""
        self.delivered += acked * PACKET
        fields |= {"delivered": self.delivered, "bytes_marked": marked * PACKET}
        after_ms = acked * self.rtt_ms / self.IN_FLIGHT if after_ms is None else after_ms
        self.ack(self.rtt_ms, after_ms, acked=acked, in_flight=self.IN_FLIGHT, **fields)
        return self.cwnd

    def round(self, marked: int = 0) -> float:
        """Acknowledge what was in flight, the marked packets last, so that their share is that of this round."""
        for packet in range(self.IN_FLIGHT):
            self.next_ack(marked=int(packet >= self.IN_FLIGHT - marked))
        return self.cwnd

    def in_avoidance(self) -> Self:
        """End slow start by a mark, and wait until it is answered and alpha is its first average."""
        self.next_ack(marked=1)
        while self.next_ack() and self.alpha == 1:
            pass
        return self


def test_the_first_mark_ends_slow_start_and_halves_the_window():
    hand = Hand()
    assert [hand.next_ack() for _ in range(3)] == [101, 102, 103]
    assert (hand.metrics["mode"], hand.alpha) == (SLOW_START, 1)
    assert hand.next_ack(marked=1) == 103 / 2
    assert (hand.metrics["mode"], hand.metrics["ssthresh_packets"]) == (AVOIDANCE, 103 / 2)


def test_a_mark_in_slow_start_after_a_timeout_ends_it():
    hand = Hand().in_avoidance()
    hand.hear(Recovery.LOSS)
    hand.hear(Recovery.OPEN)
    assert [hand.next_ack(), hand.metrics["mode"]] == [2, SLOW_START]
    hand.next_ack(marked=1)
    assert hand.metrics["mode"] == AVOIDANCE


def test_alpha_stays_1_until_there_is_a_mark():
    hand = Hand()
    for _ in range(5):
        hand.round()
    assert hand.alpha == 1


@pytest.mark.parametrize("marked", [0, 10, 100])
@pytest.mark.parametrize("gain", [1 / 16, 1 / 4])
def test_alpha_averages_the_marked_share_of_round_trips(marked: int, gain: float):
    hand = Hand(ecn_alpha_gain=gain).in_avoidance()
    alphas = []
    for _ in range(4):
        hand.round(marked)
        alphas.append(hand.alpha)
    for last, now in itertools.pairwise(alphas[1:]):
        assert now == pytest.approx(last + gain * (marked / 100 - last), abs=0.02 * gain)


def test_marks_take_half_of_alpha_from_the_window_at_most_once_per_round_trip():
    hand = Hand().in_avoidance()
    hand.round()
    alpha, before = hand.alpha, hand.cwnd
    reduced = hand.next_ack(marked=1)
    assert reduced == pytest.approx(before * (1 - alpha / 2), abs=0.02)
    windows = [hand.next_ack(marked=1) for _ in range(100)]
    assert windows == [reduced] * 100, "marked bytes are not for growth either"
    alpha = hand.alpha
    assert hand.next_ack(marked=1) == pytest.approx(reduced * (1 - alpha / 2), rel=0.01)


@pytest.mark.parametrize("marked", [0, 1, 2])
def test_unmarked_bytes_grow_the_window_by_a_packet_per_round_trip_after_marks_too(marked: int):
    hand = Hand().in_avoidance()
    hand.round()
    before = hand.next_ack(marked=1)
    for _ in range(20):
        hand.next_ack(marked=marked, acked=2)
    expected = before
    for _ in range(20):
        expected += (2 - marked) / expected
    assert hand.cwnd == pytest.approx(expected, abs=0.002)


@pytest.mark.parametrize(("rtt_ms", "scale"), [(5, 1 / 25), (12.5, 1 / 4), (25, 1), (80, 1)])
def test_a_flow_with_a_short_rtt_grows_as_one_of_25_ms(rtt_ms: float, scale: float):
    """A packet per 25 ms and 25 ms in its rate: (RTT / 25 ms)^2 packets per round trip in its window."""
    hand = Hand(rtt_ms, **EARLY).in_avoidance()
    before = hand.cwnd
    hand.round()
    assert hand.cwnd - before == pytest.approx(scale * 100 / before, rel=0.03)


def test_it_becomes_independent_of_the_rtt_some_round_trips_after_slow_start():
    hand = Hand(5, rtt_independence_rounds=20).in_avoidance()
    growths = []
    for _ in range(25):
        before = hand.cwnd
        hand.round()
        growths.append((hand.cwnd - before) * before / 100)
    assert growths[:17] == pytest.approx([1] * 17, rel=0.05)
    assert growths[-1] == pytest.approx(1 / 25, rel=0.05)


@pytest.mark.parametrize(("parameters", "rounds"), [(EARLY, 5), ({}, 1), ({**EARLY, "rtt_virt_min_ms": 0}, 1)])
def test_alpha_and_answers_then_take_25_ms(parameters: dict[str, float], rounds: int):
    """With 5 ms and marks on every packet, reductions come as often as alpha changes."""
    hand = Hand(5, **parameters).in_avoidance()
    for _ in range(10):
        hand.round()
    alphas, windows = [], []
    for _ in range(10 * 100):
        hand.next_ack(marked=1)
        alphas.append(hand.alpha)
        windows.append(hand.cwnd)
    assert len(set(alphas)) == pytest.approx(10 / rounds + 1, abs=1)
    assert len(set(windows)) == pytest.approx(10 / rounds, abs=1)


@pytest.mark.parametrize("marked", [0, 1])
def test_a_loss_halves_the_window_of_before_the_marks_of_its_round_trip(marked: int):
    hand = Hand().in_avoidance()
    hand.round()
    before = hand.cwnd
    hand.next_ack(marked=marked)
    hand.hear(Recovery.RECOVERY)
    hand.hear(Recovery.OPEN)
    assert hand.cwnd == pytest.approx(before / 2, rel=0.001)


def test_marks_do_not_move_the_window_in_recovery():
    hand = Hand().in_avoidance()
    hand.hear(Recovery.RECOVERY)
    threshold = hand.metrics["ssthresh_packets"]
    hand.round(100)
    hand.hear(Recovery.OPEN)
    assert hand.cwnd == threshold


def test_the_window_stays_at_two_packets_however_many_marks():
    hand = Hand().in_avoidance()
    for _ in range(60):
        hand.round(100)
    assert hand.cwnd == 2
    hand.hear(Recovery.LOSS)
    hand.hear(Recovery.OPEN)
    assert hand.cwnd == 1
    assert hand.next_ack(marked=1) == 1, "neither an answer nor a marked packet raises it"


def test_it_paces_two_windows_per_round_trip_in_slow_start_and_then_one():
    hand = Hand()
    decision = hand.controller.decision()
    assert decision.is_paced
    assert decision.pacing_rate == 2 * decision.cwnd * 8 * 20
    hand.in_avoidance()
    decision = hand.controller.decision()
    assert decision.pacing_rate == pytest.approx(decision.cwnd * 8 * 20, rel=1e-6)


def test_the_smoothed_rtt_of_the_handshake_counts_before_the_first_ack():
    assert make("prague", 100).decision().pacing_rate == 2 * 10 * PACKET * 8 * 10
    assert make("prague", 0.001).decision().pacing_rate == 2 * 10 * PACKET * 8 * MS
