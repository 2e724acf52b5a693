"""Copa: target rate, velocity and competitive mode (docs/algorithms/copa.md)."""

import math

import ack_path
import pytest
from ack_path import PACKET, make

from bbrgym._testing import Recovery

SLOW_START, DEFAULT, COMPETITIVE = 4, 5, 7
BASE_MS = 100.0


class Hand(ack_path.Hand):
    """Copa with a window of 20 packets and an RTTmin of 100 ms, after its first RTT; in slow start."""

    def __init__(self, **parameters: float) -> None:
        super().__init__(make("copa", BASE_MS, 20, **parameters), time_ms=0)
        self.delivered = 0
        self.next_ack(BASE_MS, is_cwnd_limited=False)

    def next_ack(self, rtt_ms: float, after_ms: float = 0, ends_round: bool = False, **fields: float) -> float:
        """Acknowledge a packet, by default one sent when the flow began; return the window."""
        prior = self.delivered if ends_round else 0
        self.delivered += PACKET
        self.ack(rtt_ms, after_ms, delivered=self.delivered, sample={"prior_delivered": prior}, **fields)
        return self.cwnd

    def round(self, rtt_ms: float, **fields: float) -> float:
        return self.next_ack(rtt_ms, after_ms=rtt_ms, ends_round=True, **fields)


def test_before_the_first_rtt_there_is_no_value_of_one() -> None:
    metrics = make("copa", BASE_MS).metrics()
    assert math.isnan(metrics["standing_rtt_ms"])
    assert math.isnan(metrics["min_rtt_ms"])


def in_default_mode(**parameters: float) -> Hand:
    hand = Hand(**parameters)
    hand.next_ack(4 * BASE_MS, after_ms=BASE_MS)  # half an RTT later the first RTT no longer stands
    assert hand.metrics["mode"] == DEFAULT
    return hand


def in_competitive_mode(**parameters: float) -> Hand:
    hand = in_default_mode(**parameters)
    while hand.metrics["mode"] != COMPETITIVE:
        hand.next_ack(2 * BASE_MS, after_ms=20)
    return hand


def velocities_of(hand: Hand, rtts_ms: list[float]) -> list[float]:
    """Return the velocity after rounds with these RTTs."""
    velocities = []
    for rtt_ms in rtts_ms:
        hand.round(rtt_ms)
        velocities.append(hand.metrics["velocity"])
    return velocities


def test_slow_start_grows_by_what_is_acknowledged_until_the_rate_exceeds_its_target():
    hand = Hand()
    assert [hand.next_ack(BASE_MS) for _ in range(5)] == [21, 22, 23, 24, 25]
    assert hand.next_ack(1.08 * BASE_MS, after_ms=60) == 26, "25 per 108 ms is less than the target, 2 per 8 ms"
    hand.next_ack(1.09 * BASE_MS, after_ms=60)
    assert hand.metrics["mode"] == DEFAULT
    assert hand.cwnd == pytest.approx(26 - 2 / 26, abs=0.001)


@pytest.mark.parametrize("delta", [0.5, 0.1])
def test_each_packet_moves_the_window_towards_the_target_rate(delta: float):
    hand = in_default_mode(delta=delta)
    step = 1 / (delta * 20)
    start = 20 - step
    assert hand.cwnd == pytest.approx(start, abs=0.001)
    assert hand.next_ack(BASE_MS) == pytest.approx(start + 1 / (delta * start), abs=0.001)
    before = hand.cwnd
    assert hand.next_ack(BASE_MS, is_cwnd_limited=False) == before
    assert hand.next_ack(3 * BASE_MS, after_ms=100, is_cwnd_limited=False) == pytest.approx(before - step, abs=0.02)


def test_the_smallest_rtt_of_half_a_round_trip_counts():
    hand = in_default_mode()
    hand.next_ack(BASE_MS)
    before = hand.cwnd
    assert hand.next_ack(3 * BASE_MS, after_ms=40) > before, "jitter"
    assert hand.metrics["standing_rtt_ms"] == BASE_MS
    before = hand.cwnd
    assert hand.next_ack(3 * BASE_MS, after_ms=90) < before
    assert hand.metrics["standing_rtt_ms"] == 3 * BASE_MS


def test_rtt_min_is_that_of_ten_seconds():
    hand = Hand()
    hand.next_ack(2 * BASE_MS, after_ms=9_900)
    assert hand.metrics["min_rtt_ms"] == BASE_MS
    hand.next_ack(2 * BASE_MS, after_ms=200)
    assert hand.metrics["min_rtt_ms"] == 2 * BASE_MS


@pytest.mark.parametrize(("has_early_velocity_reset", "velocities"), [(1, [1, 1]), (0, [8, 1])])
def test_the_velocity_doubles_after_three_rounds_in_one_direction_until_it_changes(
    has_early_velocity_reset: int, velocities: list[float]
):
    hand = in_default_mode(has_early_velocity_reset=has_early_velocity_reset)
    assert velocities_of(hand, [BASE_MS] * 6) == [1, 1, 1, 1, 2, 4], "the second round is the first upwards"
    # By the paper the round before still counts: the window had grown in it.
    assert velocities_of(hand, [4 * BASE_MS] * 2) == velocities


def test_the_velocity_moves_the_window_by_no_more_than_what_is_acknowledged():
    hand = in_default_mode()
    for _ in range(20):
        before = hand.cwnd
        assert hand.round(BASE_MS) <= before + 1
    assert hand.metrics["velocity"] == pytest.approx(0.5 * before, rel=0.1)


def test_without_an_empty_queue_in_five_round_trips_it_competes_and_lowers_delta():
    hand = in_default_mode()
    began = hand.now
    while hand.metrics["mode"] == DEFAULT:
        hand.next_ack(2 * BASE_MS, after_ms=20)
    # The queue was empty 100 ms before; the smoothed RTT is close to 200 ms.
    assert 800 < (hand.now - began) / 1e6 < 920
    assert hand.metrics["delta"] == 0.5
    for expected in (3, 4, 5):
        hand.round(2 * BASE_MS)
        assert 1 / hand.metrics["delta"] == pytest.approx(expected)
    assert in_competitive_mode(delta=0.1).metrics["delta"] == 0.1


def test_a_loss_halves_one_over_delta_in_competitive_mode():
    hand = in_competitive_mode()
    for _ in range(4):
        hand.round(2 * BASE_MS)
    assert 1 / hand.metrics["delta"] == pytest.approx(6)
    hand.hear(Recovery.RECOVERY)
    assert 1 / hand.metrics["delta"] == pytest.approx(3)
    hand.hear(Recovery.RECOVERY)
    for _ in range(3):
        hand.round(2 * BASE_MS, lost=1)
    assert 1 / hand.metrics["delta"] == pytest.approx(3), "no increase in a round with losses"
    hand.hear(Recovery.OPEN)
    hand.hear(Recovery.RECOVERY)
    assert hand.metrics["delta"] == 0.5, "never above that of the default mode"


def test_rounds_in_which_the_window_does_not_limit_the_flow_make_it_no_more_eager():
    competing = in_competitive_mode(min_rtt_window_s=3600)
    competing.round(2 * BASE_MS)
    one_over_delta = 1 / competing.metrics["delta"]
    default = in_default_mode(has_early_velocity_reset=0)
    assert velocities_of(default, [BASE_MS] * 6)[-1] > 1
    for _ in range(300):
        competing.round(2 * BASE_MS, is_cwnd_limited=False)
        default.round(BASE_MS, is_cwnd_limited=False)
    assert competing.metrics["mode"] == COMPETITIVE
    assert 1 / competing.metrics["delta"] == one_over_delta
    assert default.metrics["velocity"] == 1


@pytest.mark.parametrize(("rtt_ms", "mode"), [(109, DEFAULT), (112, COMPETITIVE)])
def test_a_nearly_empty_queue_ends_the_competition(rtt_ms: float, mode: int):
    hand = in_competitive_mode()
    hand.round(2 * BASE_MS)
    hand.next_ack(rtt_ms)  # RTTmax is 200 ms: nearly empty is up to 110 ms
    assert hand.metrics["mode"] == mode
    assert (hand.metrics["delta"] == 0.5) is (mode == DEFAULT)


def test_in_default_mode_losses_change_nothing_and_a_timeout_restarts():
    hand = in_default_mode()
    before = hand.cwnd
    hand.hear(Recovery.RECOVERY)
    hand.hear(Recovery.OPEN)
    assert (hand.cwnd, hand.metrics["delta"]) == (before, 0.5)
    hand.hear(Recovery.LOSS)
    assert (hand.cwnd, hand.metrics["mode"]) == (2, SLOW_START)


def test_it_paces_two_windows_per_standing_rtt():
    decision = Hand().controller.decision()
    assert decision.is_paced
    assert decision.pacing_rate == pytest.approx(2 * 20 * PACKET * 8 / 0.1, rel=1e-6)
