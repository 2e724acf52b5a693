"""F-BBRv2: it detects a rival by an RTT that does not fall (docs/algorithms/f-bbr2.md)."""

import pytest
from ack_path import PACKET, Hand, make

PROBE_BW = 2
OF_BBR2 = {1.25, 0.75, 1.0}


class Acks(Hand):
    """F-BBRv2 with ACKs made by hand, one per 10 ms."""

    def __init__(self, **parameters: float) -> None:
        super().__init__(make("f-bbr2", **parameters), 1500)

    def play(self, seconds: float, rtt_ms: float) -> dict[float, set[float]]:
        """Return {phase: pacing gains} in ProbeBW."""
        gains: dict[float, set[float]] = {}
        for _ in range(int(seconds * 100)):
            self.delivered += PACKET
            sample = {
                "delivery_rate": 9_600_000,
                "delivered": 10 * PACKET,
                "prior_delivered": self.delivered - 5 * PACKET,
                "tx_in_flight": 10 * PACKET,
            }
            self.ack(rtt_ms, after_ms=10, in_flight=10, delivered=self.delivered, sample=sample)
            metrics = self.metrics
            if metrics["mode"] == PROBE_BW:
                gains.setdefault(metrics["cycle_index"], set()).add(metrics["pacing_gain"])
        return gains

    def settle(self, rtt_ms: float, seconds: float = 3) -> set[float]:
        """Play eleven seconds, beyond the filter's window; return the pacing gains of those that follow."""
        self.play(11, rtt_ms)
        return set.union(*self.play(seconds, rtt_ms).values())


def test_alone_it_is_bbr2():
    assert set.union(*Acks().play(12, 60).values()) <= OF_BBR2


@pytest.mark.parametrize("rtt_ms", [75, 81])
def test_a_minimum_of_at_most_twice_the_base_rtt_is_no_rival(rtt_ms: float):
    assert max(Acks().settle(rtt_ms)) <= 1.25


def test_a_minimum_above_twice_the_base_rtt_raises_every_phase_by_fifteen_per_cent_until_it_falls():
    hand = Acks()
    hand.play(11, 90)
    raised = hand.play(6, 90)
    expected = {0.0: 1.25 * 1.15, 1.0: 0.75 * 1.15, 2.0: 1.15, 3.0: 1.15}
    assert len(raised) >= 2
    for phase, gains in raised.items():
        assert all(gain == pytest.approx(expected[phase]) for gain in gains)
    # Without the queue, a smaller RTT becomes the minimum at once.
    assert set.union(*hand.play(2, 45).values()) <= OF_BBR2


def test_gain_and_threshold_are_parameters():
    gains = Acks(rival_rtt_ratio=1.5, rival_gain=1.4).settle(65)
    assert any(gain == pytest.approx(1.4) for gain in gains)


@pytest.mark.parametrize(("parameters", "cwnd_gain"), [({}, 2.0), ({"rival_cwnd_gain": 1.15}, 2.3)])
def test_a_rival_raises_the_gain_of_the_window_only_by_option(parameters: dict[str, float], cwnd_gain: float):
    hand = Acks(**parameters)
    hand.settle(90, seconds=6)
    assert hand.metrics["cwnd_gain"] == pytest.approx(cwnd_gain)


def test_with_a_known_base_rtt_a_late_flow_detects_the_rival():
    # With a standing queue the flow never measures less than 41 ms.
    assert any(gain == pytest.approx(1.15) for gain in Acks(base_rtt_ms=30).settle(65))
    assert all(gain <= 1.25 and gain != 1.15 for gain in Acks().settle(65))
