"""BBR-ACD: what counts as congestion, and the window on each ACK of recovery (docs/algorithms/bbr-acd.md)."""

import pytest
from ack_path import PACKET, Hand, ack_event, make

from bbrgym._testing import Recovery


def windows(*rtts_ms: float, **parameters: float) -> tuple[int, list[int]]:
    """Return the window before a recovery, and after each of its ACKs, which have these RTTs."""
    hand = Hand(make("bbr-acd", **parameters))
    hand.hear(Recovery.RECOVERY)
    return hand.window, [hand.ack(rtt_ms, in_flight=60) for rtt_ms in rtts_ms]


@pytest.mark.parametrize(
    ("rtts_ms", "is_congested"),
    [
        ([60, 60.5, 61], True),  # three RTTs, each within 1 ms of the last, above RTprop
        ([60, 62, 62.5], False),  # only one pair
        ([60, 60.5, 62], False),  # the last pair differs
        ([60, 60.5, 61, 63, 63.5, 64], True),
        ([40.8, 40.8, 40.8, 40.8], False),  # RTprop itself: no queue
        ([50, 70, 83], True),  # more than twice RTprop, whatever the RTTs before
        ([50, 70, 81], False),  # just below twice
    ],
)
def test_only_congestion_halves_the_window(rtts_ms: list[float], is_congested: bool):
    hand = Hand(make("bbr-acd"))
    for rtt_ms in rtts_ms[:-1]:
        hand.ack(rtt_ms, in_flight=60)
    before = hand.window
    hand.hear(Recovery.RECOVERY)
    expected = before / 2 if is_congested else before - 1
    assert hand.ack(rtts_ms[-1], lost=1, in_flight=60) == pytest.approx(expected, abs=1)


def test_the_window_is_halved_on_every_ack_of_the_round_down_to_four_packets():
    before, after = windows(*[90] * 7)
    assert after[:3] == [pytest.approx(before / 2, abs=1), pytest.approx(before / 4, abs=1), before // 8]
    assert after[-1] == 4


def test_by_option_the_window_is_halved_once():
    before, after = windows(*[90] * 7, is_halved_once=1)
    assert set(after) == {before // 2}


def test_the_upper_bound_is_one_bdp():
    hand = Hand(make("bbr-acd", cwnd_gain=4.0), 4000)
    hand.hear(Recovery.RECOVERY)
    assert hand.ack(90, in_flight=60) <= hand.metrics["bdp_packets"] + 5


def test_leaving_recovery_restores_the_window():
    hand = Hand(make("bbr-acd"))
    before = hand.window
    hand.hear(Recovery.RECOVERY)
    for _ in range(7):
        hand.ack(90, in_flight=60)
    hand.hear(Recovery.OPEN, in_flight=10)
    assert hand.ack(90, in_flight=60) >= before - 1


def test_after_probe_rtt_the_window_grows_instead_of_being_restored():
    seen = Hand(make("bbr-acd")).path.watch(12_000)
    windows = seen["cwnd"] // 1000
    end = seen.index[seen["mode"] == 3][-1]
    assert windows[end] == 4
    assert windows[end + 1] <= 6
    assert windows[end + 1 :].max() > 90


def test_before_the_first_rtt_a_loss_is_no_congestion() -> None:
    windows = []
    for equal_rtts in (1, 2):
        controller = make("bbr-acd", equal_rtts=equal_rtts)
        controller.on_recovery(Recovery.LOSS, 1, 60 * PACKET)
        controller.on_ack(ack_event(2, 0))
        windows.append(controller.decision().cwnd)
    assert windows[0] == windows[1]
