"""BBR-ACW: alpha, beta and the conditions of Algorithm 1 against computed values (docs/algorithms/bbr-acw.md)."""

from __future__ import annotations

import ack_path
import pytest
from ack_path import MS, PACKET, ack_event

PROPAGATION_MS = 40.8


class Hand:
    """BBR-ACW in ProbeBW on 10 Mbit/s and 40 ms, with rounds made by hand from then on."""

    def __init__(self, **parameters: float) -> None:
        self.controller = ack_path.make("bbr-acw", **parameters)
        self.now, self.delivered = ack_path.settled(self.controller).now, 10**9
        self.round(PROPAGATION_MS, rate_mbps=5)
        self.round(PROPAGATION_MS, rate_mbps=5)

    def round(self, rtt_ms: float, rate_mbps: float, lost: int = 0) -> float:
        """Play a round of ten ACKs and return the gain of the window in it, which the round before decides."""
        prior = self.delivered
        for i in range(10):
            self.now += 4 * MS
            self.delivered += PACKET
            sample = {"delivery_rate": int(rate_mbps * 1e6), "prior_delivered": prior}
            ack = ack_event(self.now, rtt_ms, 1, lost if i == 5 else 0, 50, self.delivered, sample)
            self.controller.on_ack(ack)
        return self.controller.metrics()["cwnd_gain"]


def test_without_a_queue_it_is_bbr():
    hand = Hand()
    for _ in range(5):
        assert hand.round(PROPAGATION_MS, 5) == 2.0


@pytest.mark.parametrize("ratio", [1.3, 1.5, 2.0, 3.0])
def test_beta_after_a_loss_under_high_load(ratio: float):
    hand = Hand()
    hand.round(ratio * PROPAGATION_MS, 5, lost=1)
    # beta = T / (T + p), and the gain 2 beta for the next round only
    assert hand.round(ratio * PROPAGATION_MS, 5) == pytest.approx(2 * ratio / (ratio + 1), rel=1e-3)
    assert hand.round(ratio * PROPAGATION_MS, 5) == 2.0


def test_a_loss_at_low_load_changes_nothing():
    hand = Hand()
    hand.round(1.0 * PROPAGATION_MS, 5, lost=1)
    assert hand.round(1.0 * PROPAGATION_MS, 5) == 2.0


@pytest.mark.parametrize(
    ("rate_mbps", "alpha"), [(2, 1.0), (4, 1.0), (5, 1.0), (6, 4 / 3), (7, 5 / 3), (8, 2.0), (9, 2.0)]
)
def test_alpha_between_the_rates_of_high_load(rate_mbps: float, alpha: float):
    hand = Hand()
    hand.round(1.6 * PROPAGATION_MS, 2)  # d_min = 2
    hand.round(1.6 * PROPAGATION_MS, 8)  # d_max = 8
    for _ in range(4):  # min RTT of three rounds above RTprop, T/p in (1, 1.25]
        hand.round(1.2 * PROPAGATION_MS, rate_mbps)
    # equation (1): alpha = max(1, 2 (d - d_min) / (d_max - d_min)), at most 2
    assert hand.round(1.2 * PROPAGATION_MS, rate_mbps) == pytest.approx(2 * alpha, rel=1e-6)


def test_alpha_needs_a_minimum_above_rtprop_and_rates_that_differ():
    hand = Hand()
    hand.round(1.6 * PROPAGATION_MS, 2)
    hand.round(1.6 * PROPAGATION_MS, 8)
    hand.round(1.0 * PROPAGATION_MS, 8)
    assert hand.round(1.2 * PROPAGATION_MS, 8) == 2.0
    assert hand.round(1.2 * PROPAGATION_MS, 8) == 2.0, "one of the last three rounds is at RTprop"
    alike = Hand()
    for _ in range(6):
        assert alike.round(1.2 * PROPAGATION_MS, 8) == 2.0, "without high load there is no d_max and d_min"


def test_the_rates_of_high_load_are_forgotten_after_ten_rounds():
    hand = Hand()
    hand.round(1.6 * PROPAGATION_MS, 2)
    hand.round(1.6 * PROPAGATION_MS, 8)
    gains = [hand.round(1.2 * PROPAGATION_MS, 8) for _ in range(14)]
    assert 4.0 in gains
    assert gains[-1] == 2.0


def test_algorithm_one_to_the_letter_decides_on_every_ack():
    hand = Hand(is_algorithm_one_literal=1)
    assert hand.round(1.5 * PROPAGATION_MS, 5, lost=1) == pytest.approx(2 * 1.5 / 2.5, rel=1e-3)


def test_the_halves_can_be_turned_off():
    hand = Hand(has_beta=0)
    hand.round(1.5 * PROPAGATION_MS, 5, lost=1)
    assert hand.round(1.5 * PROPAGATION_MS, 5) == 2.0
    hand = Hand(has_alpha=0)
    hand.round(1.6 * PROPAGATION_MS, 2)
    hand.round(1.6 * PROPAGATION_MS, 8)
    assert {hand.round(1.2 * PROPAGATION_MS, 8) for _ in range(6)} == {2.0}


def test_by_option_a_long_queue_is_enough_for_beta():
    hand = Hand(is_beta_after_loss=0)
    hand.round(1.5 * PROPAGATION_MS, 5)
    assert hand.round(1.5 * PROPAGATION_MS, 5) == pytest.approx(2 * 1.5 / 2.5, rel=1e-3)
