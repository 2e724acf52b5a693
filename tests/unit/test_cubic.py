"""CUBIC against the formulas of RFC 9438, without simulator (docs/algorithms/cubic.md)."""

import ack_path
import pytest
from ack_path import PACKET, Path, make

from bbrgym._testing import Recovery

C, BETA = 0.4, 0.7


class Hand(ack_path.Hand):
    """CUBIC without HyStart++, with ACKs made by hand, one packet each."""

    def __init__(self, cwnd_packets: int, rtt_ms: float = 100.0, **parameters: float) -> None:
        super().__init__(make("cubic", rtt_ms, cwnd_packets, **{"has_hystart": 0, **parameters}), time_ms=0)
        self.rtt_ms, self.delivered = rtt_ms, 0

    def next_ack(self, after_ms: float = 0, **fields: float) -> None:
        self.delivered += PACKET
        self.ack(self.rtt_ms, after_ms, delivered=self.delivered, sent=self.delivered, **fields)

    def lose(self) -> None:
        self.hear(Recovery.RECOVERY)
        self.hear(Recovery.OPEN)

    def avoid_for(self, seconds: float) -> None:
        """Acknowledge a window per round trip, evenly spread."""
        end = self.now + seconds * 1e9
        while self.now < end:
            self.next_ack(after_ms=self.rtt_ms / self.cwnd)


def test_a_loss_reduces_the_window_to_seven_tenths():
    hand = Hand(cwnd_packets=1000)
    hand.lose()
    assert hand.cwnd == pytest.approx(BETA * 1000)
    assert hand.metrics["w_max_packets"] == 1000
    assert hand.metrics["ssthresh_packets"] == pytest.approx(700)


@pytest.mark.parametrize("answers", [[Recovery.RECOVERY], [Recovery.RECOVERY, Recovery.LOSS]])
def test_after_losses_that_were_none_the_curve_goes_on(answers: list[Recovery]):
    def window_after(answers: list[Recovery]) -> float:
        hand = Hand(cwnd_packets=1000)
        hand.lose()
        hand.avoid_for(3)
        for answer in answers:
            hand.hear(answer)
        if answers:
            hand.controller.on_spurious_recovery()
        hand.avoid_for(3)
        return hand.cwnd

    assert window_after(answers) == window_after([])


def test_a_mark_reduces_the_window_to_85_hundredths_and_starts_the_curve_there():
    """RFC 8511, section 3.1."""
    hand = Hand(cwnd_packets=1000)
    hand.next_ack(bytes_marked=PACKET, in_flight=999)
    assert hand.cwnd == pytest.approx(850)
    assert hand.metrics["w_max_packets"] == 1000
    hand.next_ack(bytes_marked=PACKET, in_flight=998)
    assert hand.cwnd == pytest.approx(850), "one answer per round trip"
    while hand.delivered < 1000 * PACKET:  # until everything that was in flight then is delivered
        hand.next_ack(after_ms=0.1)
    k = (150 / C) ** (1 / 3)
    hand.avoid_for(k)
    assert hand.cwnd == pytest.approx(1000, rel=0.01)
    hand.next_ack(bytes_marked=PACKET, in_flight=900)
    assert hand.cwnd == pytest.approx(850, rel=0.01)


def test_the_window_follows_the_cubic_curve_and_is_flat_at_w_max_after_k_seconds():
    w_max = 1000
    hand = Hand(cwnd_packets=w_max)
    hand.lose()
    k = ((w_max - BETA * w_max) / C) ** (1 / 3)  # figure 2
    windows, before = {}, 0.0
    for seconds in (1.0, 3.0, 5.0, 8.0, k, k + 0.5, 12.0):
        hand.avoid_for(seconds - before)
        windows[seconds], before = hand.cwnd, seconds
        assert hand.cwnd == pytest.approx(C * (seconds - k) ** 3 + w_max, rel=0.02)  # figure 1
    assert windows[k] == pytest.approx(w_max, rel=0.01)
    assert windows[k + 0.5] - windows[k] < 3


def test_on_a_short_path_it_grows_at_least_like_reno():
    # Reno-friendly region (section 4.3): with 10 ms and a small window the estimate is above the cubic curve.
    hand = Hand(cwnd_packets=20, rtt_ms=10)
    hand.lose()
    start = hand.cwnd
    hand.avoid_for(0.1)
    alpha = 3 * (1 - BETA) / (1 + BETA)
    assert hand.cwnd == pytest.approx(start + alpha * 10, abs=1.0)
    k = (0.3 * 20 / C) ** (1 / 3)
    assert hand.cwnd > C * (0.1 - k) ** 3 + 20
    # Above the window before the loss (20) it grows like Reno, by a packet per round trip.
    hand.avoid_for(0.1)
    rounds_to_prior = (20 - start) / alpha
    assert hand.cwnd == pytest.approx(20 + (20 - rounds_to_prior), abs=1.5)


@pytest.mark.parametrize(("has_fast_convergence", "w_max"), [(1, 700 * (1 + BETA) / 2), (0, 700)])
def test_fast_convergence_lowers_w_max_after_a_smaller_loss(has_fast_convergence: int, w_max: float):
    hand = Hand(cwnd_packets=1000, has_fast_convergence=has_fast_convergence)
    hand.lose()
    hand.lose()
    assert hand.metrics["w_max_packets"] == pytest.approx(w_max)


def test_slow_start_doubles_the_window_each_round_and_a_timeout_restarts_it():
    hand = Hand(cwnd_packets=10)
    for _ in range(10):
        hand.next_ack()
    assert hand.cwnd == 20
    hand.hear(Recovery.LOSS, 0)
    assert hand.cwnd == 1
    hand.hear(Recovery.OPEN, 0)
    assert hand.cwnd == 1
    for _ in range(30):
        hand.next_ack()
    assert hand.cwnd == pytest.approx(14, abs=1), "slow start up to 0.7 x 20, then avoidance"


@pytest.mark.parametrize("timeouts", [1, 2])
def test_after_each_timeout_the_curve_starts_flat_at_the_threshold(timeouts: int):
    # RFC 9438, section 4.8: K = 0 and W_max = cwnd when congestion avoidance begins again.
    hand = Hand(cwnd_packets=1000)
    for _ in range(timeouts):  # the second one before what was lost by the first is repaired
        hand.hear(Recovery.LOSS, 0)
        while hand.cwnd < 700:
            hand.next_ack()
        hand.avoid_for(5.0)
    assert hand.cwnd == pytest.approx(C * 5.0**3 + 700, rel=0.02)


def test_a_loss_after_a_timeout_has_its_own_curve():
    """The slow start after a timeout ends by a loss, not at the threshold: the curve returns to where the loss was."""
    hand = Hand(cwnd_packets=1000, has_fast_convergence=0)
    hand.hear(Recovery.LOSS, 0)
    hand.hear(Recovery.OPEN, 0)
    while hand.cwnd < 500:
        hand.next_ack()
    hand.lose()
    hand.avoid_for(1.0)
    assert hand.metrics["w_max_packets"] == pytest.approx(500, abs=1)
    k_s = (500 * (1 - BETA) / C) ** (1 / 3)
    assert hand.cwnd == pytest.approx(C * (1.0 - k_s) ** 3 + 500, rel=0.02)


@pytest.mark.parametrize("is_idle", [True, False])
def test_time_in_which_the_window_does_not_limit_the_flow_does_not_count(is_idle: bool):
    """RFC 9438, sections 4.2 and 5.8."""
    windows: list[list[float]] = []
    for seconds in (0, 50):
        hand = Hand(cwnd_packets=1000)
        hand.lose()
        hand.avoid_for(5.0)
        if is_idle:
            hand.now += seconds * 10**9
            hand.controller.on_restart(hand.now)
        for _ in range(0 if is_idle else 20 * seconds):
            hand.next_ack(after_ms=50, is_cwnd_limited=False)
        windows.append([])
        for _ in range(3000):
            hand.next_ack(after_ms=1)
            windows[-1].append(hand.cwnd)
    assert windows[0] == windows[1]
    assert windows[0][0] + 10 < windows[0][-1] < 1000, "W_max is reached after 9.1 s in which it does"


@pytest.mark.parametrize("packets", [1, 2])
def test_a_loss_leaves_at_least_two_packets(packets: int):
    hand = Hand(cwnd_packets=packets)
    hand.lose()
    assert hand.cwnd == 2
    assert hand.metrics["w_max_packets"] == packets


@pytest.mark.parametrize(("has_hystart", "lost"), [(0, range(501, 10_000)), (1, range(1))])
def test_hystart_leaves_slow_start_before_a_deep_buffer_overflows(has_hystart: int, lost: range):
    path = Path(make("cubic", has_hystart=has_hystart), rate_mbps=50, buffer_packets=3000)
    path.run_until(2500)
    assert path.lost in lost
