"""F-BBRv2: it detects a rival by an RTT that does not fall (docs/algorithms/f-bbr2.md)."""

from __future__ import annotations

import ack_path
import pytest
from ack_path import MS, PACKET, ack_event


class Hand:
    """F-BBRv2 in ProbeBW on 10 Mbit/s and 40 ms, with ACKs made by hand from then on, one per 10 ms."""

    def __init__(self, **parameters: float) -> None:
        self.controller = ack_path.make("f-bbr2", **parameters)
        self.now, self.delivered = ack_path.settled(self.controller, 1500).now, 10**9

    def play(self, seconds: float, rtt_ms: float) -> dict[float, set[float]]:
        """Return {phase: pacing gains} in ProbeBW."""
        gains: dict[float, set[float]] = {}
        for _ in range(int(seconds * 100)):
            self.now += 10 * MS
            self.delivered += PACKET
            sample = {
                "delivery_rate": 9_600_000,
                "delivered": 10 * PACKET,
                "prior_delivered": self.delivered - 5 * PACKET,
                "tx_in_flight": 10 * PACKET,
            }
            self.controller.on_ack(ack_event(self.now, rtt_ms, in_flight=10, delivered=self.delivered, sample=sample))
            metrics = self.controller.metrics()
            if metrics["mode"] == 2:
                gains.setdefault(metrics["cycle_index"], set()).add(metrics["pacing_gain"])
        return gains


def test_alone_it_is_bbr2():
    for gains in Hand().play(12, 60).values():
        assert all(gain in (1.25, 0.75, 1.0) for gain in gains)


@pytest.mark.parametrize("rtt_ms", [75, 81])
def test_a_minimum_of_at_most_twice_the_base_rtt_is_no_rival(rtt_ms: float):
    hand = Hand()
    hand.play(11, rtt_ms)  # beyond the filter's window
    assert all(gain <= 1.25 for gains in hand.play(3, rtt_ms).values() for gain in gains)


def test_a_minimum_above_twice_the_base_rtt_raises_every_phase_by_fifteen_per_cent_until_it_falls():
    hand = Hand()
    hand.play(11, 90)
    raised = hand.play(6, 90)
    expected = {0.0: 1.25 * 1.15, 1.0: 0.75 * 1.15, 2.0: 1.15, 3.0: 1.15}
    for phase, gains in raised.items():
        assert all(gain == pytest.approx(expected[phase]) for gain in gains)
    assert len(raised) >= 2
    # Without the queue, a smaller RTT becomes the minimum at once.
    calm = hand.play(2, 45)
    assert all(gain in (1.25, 0.75, 1.0) for gains in calm.values() for gain in gains)


def test_gain_and_threshold_are_parameters():
    hand = Hand(rival_rtt_ratio=1.5, rival_gain=1.4)
    hand.play(11, 65)
    assert any(gain == pytest.approx(1.4) for gains in hand.play(3, 65).values() for gain in gains)


def test_a_rival_raises_the_gain_of_the_window_only_by_option():
    def cwnd_gain(**parameters: float) -> float:
        hand = Hand(**parameters)
        hand.play(11, 90)
        hand.play(6, 90)
        return hand.controller.metrics()["cwnd_gain"]

    assert cwnd_gain() == 2.0
    assert cwnd_gain(rival_cwnd_gain=1.15) == pytest.approx(2.3)


def test_with_a_known_base_rtt_a_late_flow_detects_the_rival():
    late = Hand(base_rtt_ms=30)  # with a standing queue the flow never measures less than 41 ms
    late.play(11, 65)
    assert any(gain == pytest.approx(1.15) for gains in late.play(3, 65).values() for gain in gains)
    unknown = Hand()
    unknown.play(11, 65)
    assert all(gain <= 1.25 and gain != 1.15 for gains in unknown.play(3, 65).values() for gain in gains)
