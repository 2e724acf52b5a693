"""PCC Vivace: monitor intervals, utility, and steps along its gradient (docs/algorithms/vivace.md)."""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import pytest
from ack_path import MS, PACKET, ack_event, make

from bbrgym._testing import Recovery

STARTING, LEARNING = 4, 5
RTT_MS = 100


class Sent(NamedTuple):
    mbps: float
    ms_at_this_rate: int


class Link:
    """Vivace over a link by hand: one ACK per ms, each of the packet that left after the ACK 100 ms before.

    `loss` and `rtt_slope` give the loss rate and the growth of the RTT, in s/s, of what is sent at a rate in Mbit/s.
    """

    def __init__(
        self,
        loss: Callable[[float], float] = lambda mbps: 0.0,
        rtt_slope: Callable[[float], float] = lambda mbps: 0.0,
        seed: int = 1,
        **parameters: float,
    ) -> None:
        self.controller = make("vivace", RTT_MS, 10, seed, **parameters)
        self.loss, self.rtt_slope, self.is_app_limited = loss, rtt_slope, False
        self.sent = [Sent(self.mbps, ms) for ms in range(RTT_MS)]
        self.lost = 0.0

    @property
    def mbps(self) -> float:
        return self.controller.decision().pacing_rate / 1e6

    @property
    def mode(self) -> float:
        return self.controller.metrics()["mode"]

    def ack(self) -> None:
        number = len(self.sent) - RTT_MS
        packet = self.sent[number]
        loss = self.loss(packet.mbps)
        self.lost += loss / (1 - loss)
        rtt_ms = RTT_MS + self.rtt_slope(packet.mbps) * packet.ms_at_this_rate
        self.controller.on_ack(
            ack_event(
                len(self.sent) * MS,
                rtt_ms,
                lost=int(self.lost),
                delivered=(number + 1 + RTT_MS) * PACKET,
                sent=len(self.sent) * PACKET,
                sample={"prior_delivered": (number + 1) * PACKET, "is_app_limited": self.is_app_limited},
            )
        )
        self.lost -= int(self.lost)
        is_same = self.mbps == self.sent[-1].mbps
        self.sent.append(Sent(self.mbps, self.sent[-1].ms_at_this_rate + 1 if is_same else 0))

    def segment(self) -> float:
        """Run until the rate changes; return the one before."""
        before = self.mbps
        while self.mbps == before:
            self.ack()
        return before

    def trials(self) -> tuple[float, float, float]:
        """Run one block; return its first and second trial rate and the rate while the flow waits for the ACKs."""
        return self.segment(), self.segment(), self.segment()

    def bases(self, count: int) -> list[float]:
        return [self.trials()[2] for _ in range(count)]


def learning(base_mbps: float = 3.2, seed: int = 1, **parameters: float) -> Link:
    """Return one that has left the starting phase with this rate."""
    link = Link(lambda mbps: 0.5 * (mbps > 1.5 * base_mbps), seed=seed, **parameters)
    while link.mode == STARTING:
        link.ack()
    link.loss = lambda mbps: 0.0
    return link


def growth(rates: list[float]) -> list[float]:
    return [after / before - 1 for before, after in itertools.pairwise(rates)]


def test_the_starting_phase_doubles_the_rate_until_the_utility_falls():
    link = Link(lambda mbps: 0.5 * (mbps > 5))
    assert [link.segment() for _ in range(4)] == pytest.approx([0.8, 1.6, 3.2, 6.4])
    assert link.mode == LEARNING
    assert link.trials()[2] == pytest.approx(3.2)


def test_a_block_tries_two_rates_for_an_rtt_each_and_waits_for_their_acks():
    link = learning()
    began = len(link.sent)
    first, second, base = link.trials()
    assert sorted([first, second]) == pytest.approx([0.95 * base, 1.05 * base])
    assert len(link.sent) - began == pytest.approx(3 * RTT_MS, abs=4)


def test_the_seed_orders_the_trials():
    orders = {}
    for seed in (1, 1, 2):
        link = learning(seed=seed)
        order = [first > second for first, second, _ in (link.trials() for _ in range(12))]
        assert set(order) == {True, False}
        assert orders.setdefault(seed, order) == order
    assert orders[1] != orders[2]


def test_the_confidence_amplifier_grows_with_decisions_in_one_direction():
    # So small a factor that no boundary matters: the steps are m theta_0 gamma with gamma = 0.9 x^-0.1.
    bases = learning(conversion_factor=1e-4).bases(7)
    steps = [after - before for before, after in itertools.pairwise(bases)]
    gamma = 0.9 * 3.2**-0.1
    assert steps == pytest.approx([1e-4 * gamma * m for m in (1, 2, 3, 5, 7, 9)], rel=0.01)


def test_the_change_boundary_grows_each_time_that_a_change_reaches_it_and_begins_anew_in_the_other_direction():
    link = learning()
    assert growth(link.bases(5)) == pytest.approx([0.05, 0.15, 0.25, 0.35], rel=0.001)
    link.rtt_slope = lambda mbps: 0.01 * mbps
    assert growth(link.bases(3)) == pytest.approx([-0.05, -0.15], rel=0.001)


@pytest.mark.parametrize(
    ("loss", "slope", "gamma"),
    [
        (0.0, 0.0, 0.9 * 3.2**-0.1),
        (0.1, 0.0, 0.9 * 3.2**-0.1 - 11.35 * 3.36 * 0.1 / 0.32),
        (0.0, 0.009, 0.9 * 3.2**-0.1),  # below the threshold
        (0.0, 0.05, 0.9 * 3.2**-0.1 - 900 * 3.36 * 0.05 / 0.32),
        (0.0, -0.05, 0.9 * 3.2**-0.1 + 900 * 3.36 * 0.05 / 0.32),
    ],
)
def test_the_step_follows_the_utility_of_losses_and_rtt_gradient_in_the_faster_trial(
    loss: float, slope: float, gamma: float
):
    link = learning(conversion_factor=1e-4)
    link.loss = lambda mbps: loss * (mbps > 3.2)
    link.rtt_slope = lambda mbps: slope * (mbps > 3.2)
    before, after = link.bases(2)
    assert (after - before) / 1e-4 == pytest.approx(gamma, rel=0.1)


@pytest.mark.parametrize(("has_double_check", "bases"), [(0, [3.2, 3.36, 3.864]), (1, [3.2, 3.2, 3.36])])
def test_by_option_a_faster_trial_that_loses_less_is_repeated_once(has_double_check: int, bases: list[float]):
    link = learning(has_double_check=has_double_check)
    link.loss = lambda mbps: 0.05 * (mbps < 3.2)
    assert link.bases(3) == pytest.approx(bases)


def test_trials_of_an_application_limited_flow_do_not_count():
    link = learning()
    link.is_app_limited = True
    assert len(set(link.bases(4))) == 1


def test_a_timeout_halves_the_rate_and_a_loss_alone_does_nothing():
    link = learning()
    trial = link.mbps
    link.controller.on_recovery(Recovery.RECOVERY, 0, 0)
    assert link.mbps == trial
    link.controller.on_recovery(Recovery.LOSS, 0, 0)
    assert link.mbps == pytest.approx(1.6)


def test_the_window_is_two_round_trips_of_the_rate():
    decision = make("vivace", RTT_MS).decision()
    assert decision.is_paced
    assert decision.pacing_rate == 10 * PACKET * 8 * 1000 / RTT_MS
    assert decision.cwnd == 2 * 10 * PACKET + PACKET
