"""BBR-ACW: alpha, beta and the conditions of Algorithm 1 against computed values (docs/algorithms/bbr-acw.md)."""

import pytest
from ack_path import PACKET, Hand, make

PROPAGATION_MS = 40.8


class Rounds(Hand):
    """BBR-ACW in ProbeBW, with rounds made by hand from then on, the first two at 5 Mbit/s without a queue."""

    def __init__(self, **parameters: float) -> None:
        super().__init__(make("bbr-acw", **parameters))
        self.round(1.0)
        self.round(1.0)

    def round(self, ratio: float, rate_mbps: float = 5, lost: int = 0, least_ratio: float | None = None) -> float:
        """Play a round of ten ACKs with this ratio of RTT and RTprop, one of them with the least ratio if given.

        Return the window's gain in it. The round before decides that gain.
        """
        prior = self.delivered
        for i in range(10):
            self.delivered += PACKET
            sample = {"delivery_rate": int(rate_mbps * 1e6), "prior_delivered": prior}
            self.ack(
                (least_ratio if least_ratio and i == 5 else ratio) * PROPAGATION_MS,
                after_ms=4,
                lost=lost if i == 5 else 0,
                in_flight=50,
                delivered=self.delivered,
                sample=sample,
            )
        return self.metrics["cwnd_gain"]

    def load(self, *rates_mbps: float) -> None:
        """Play a round of high load at each of these rates."""
        for rate_mbps in rates_mbps:
            self.round(1.6, rate_mbps)


def test_without_a_queue_it_is_bbr():
    hand = Rounds()
    for _ in range(5):
        assert hand.round(1.0) == 2.0


@pytest.mark.parametrize("ratio", [1.3, 1.5, 2.0, 3.0])
def test_beta_after_a_loss_under_high_load(ratio: float):
    hand = Rounds()
    hand.round(ratio, lost=1)
    # beta = T / (T + p), and the gain 2 beta for the next round only
    assert hand.round(ratio) == pytest.approx(2 * ratio / (ratio + 1), rel=1e-3)
    assert hand.round(ratio) == 2.0


def test_a_loss_at_low_load_changes_nothing():
    hand = Rounds()
    hand.round(1.0, lost=1)
    assert hand.round(1.0) == 2.0


@pytest.mark.parametrize(
    ("rate_mbps", "alpha"), [(2, 1.0), (4, 1.0), (5, 1.0), (6, 4 / 3), (7, 5 / 3), (8, 2.0), (9, 2.0)]
)
def test_alpha_between_the_rates_of_high_load(rate_mbps: float, alpha: float):
    hand = Rounds()
    hand.load(2, 8)  # d_min, d_max
    for _ in range(4):  # min RTT of three rounds above RTprop, T/p in (1, 1.25]
        hand.round(1.2, rate_mbps)
    # equation (1): alpha = max(1, 2 (d - d_min) / (d_max - d_min)), at most 2
    assert hand.round(1.2, rate_mbps) == pytest.approx(2 * alpha, rel=1e-6)


def test_alpha_needs_a_minimum_above_rtprop_and_rates_that_differ():
    hand = Rounds()
    hand.load(2, 8)
    hand.round(1.0, 8)
    assert hand.round(1.2, 8) == 2.0
    assert hand.round(1.2, 8) == 2.0, "one of the last three rounds is at RTprop"
    touching = Rounds(min_rtt_tolerance=0)
    touching.load(2, 8)
    for _ in range(4):
        assert touching.round(1.2, 8, least_ratio=1.0) == 2.0, "a single RTT at RTprop shows an empty path"
    alike = Rounds()
    for _ in range(6):
        assert alike.round(1.2, 8) == 2.0, "without high load there is no d_max and d_min"


def test_the_rates_of_high_load_are_forgotten_after_ten_rounds():
    hand = Rounds()
    hand.load(2, 8)
    gains = [hand.round(1.2, 8) for _ in range(14)]
    assert 4.0 in gains
    assert gains[-1] == 2.0


def test_algorithm_one_to_the_letter_decides_on_every_ack():
    hand = Rounds(is_algorithm_one_literal=1)
    assert hand.round(1.5, lost=1) == pytest.approx(2 * 1.5 / 2.5, rel=1e-3)


def test_the_halves_can_be_turned_off():
    hand = Rounds(has_beta=0)
    hand.round(1.5, lost=1)
    assert hand.round(1.5) == 2.0
    hand = Rounds(has_alpha=0)
    hand.load(2, 8)
    assert {hand.round(1.2, 8) for _ in range(6)} == {2.0}


def test_by_option_a_long_queue_is_enough_for_beta():
    hand = Rounds(is_beta_after_loss=0)
    hand.round(1.5)
    assert hand.round(1.5) == pytest.approx(2 * 1.5 / 2.5, rel=1e-3)
