"""BBR-ACD: what counts as congestion, and the window on each ACK of recovery (docs/algorithms/bbr-acd.md)."""

from __future__ import annotations

import ack_path
import pytest
from ack_path import PACKET, Path, ack_event

from bbrgym import _testing as cc


def settled(**parameters: float) -> tuple[cc.Controller, Path]:
    """Return it in ProbeBW on 10 Mbit/s and 40 ms: RTprop 40.8 ms, BDP 51 packets, window 106 packets."""
    controller = ack_path.make("bbr-acd", **parameters)
    return controller, ack_path.settled(controller)


def acknowledge(controller: cc.Controller, now: int, rtt_ms: float, lost: int = 0, in_flight: int = 60) -> int:
    """Return the window in packets after an ACK."""
    controller.on_ack(ack_event(now, rtt_ms, lost=lost, in_flight=in_flight))
    return controller.decision().cwnd // PACKET


def window_after_loss(rtts_ms: list[float], **parameters: float) -> tuple[int, int]:
    """Return the window before and after the first ACK of recovery, which has the last of the RTTs."""
    controller, path = settled(**parameters)
    for i, rtt_ms in enumerate(rtts_ms[:-1]):
        acknowledge(controller, path.now + i, rtt_ms)
    before = controller.decision().cwnd // PACKET
    controller.on_recovery(cc.Recovery.RECOVERY, path.now + 10, 60 * PACKET)
    return before, acknowledge(controller, path.now + 10, rtts_ms[-1], lost=1)


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
    before, after = window_after_loss(rtts_ms)
    assert after == (pytest.approx(before / 2, abs=1) if is_congested else pytest.approx(before - 1, abs=1))


def test_the_window_is_halved_on_every_ack_of_the_round_down_to_four_packets():
    controller, path = settled()
    before = controller.decision().cwnd // PACKET
    controller.on_recovery(cc.Recovery.RECOVERY, path.now, 60 * PACKET)
    windows = [acknowledge(controller, path.now + i, 90) for i in range(1, 8)]
    assert windows[:3] == [pytest.approx(before / 2, abs=1), pytest.approx(before / 4, abs=1), before // 8]
    assert windows[-1] == 4


def test_the_upper_bound_is_one_bdp():
    controller, path = settled(cwnd_gain=4.0)
    path.run_until(4000)
    bdp = controller.metrics()["bdp_packets"]
    controller.on_recovery(cc.Recovery.RECOVERY, path.now, 60 * PACKET)
    assert acknowledge(controller, path.now + 1, 90) <= bdp + 5


def test_by_option_the_window_is_halved_once():
    controller, path = settled(is_halved_once=1)
    before = controller.decision().cwnd // PACKET
    controller.on_recovery(cc.Recovery.RECOVERY, path.now, 60 * PACKET)
    windows = [acknowledge(controller, path.now + i, 90) for i in range(1, 8)]
    assert set(windows) == {before // 2}


def test_leaving_recovery_restores_the_window():
    controller, path = settled()
    before = controller.decision().cwnd // PACKET
    controller.on_recovery(cc.Recovery.RECOVERY, path.now, 60 * PACKET)
    for i in range(1, 8):
        acknowledge(controller, path.now + i, 90)
    controller.on_recovery(cc.Recovery.OPEN, path.now + 9, 10 * PACKET)
    assert acknowledge(controller, path.now + 9, 90) >= before - 1


def test_a_random_loss_costs_only_the_lost_packets():
    controller, path = settled()
    before = controller.decision().cwnd // PACKET
    controller.on_recovery(cc.Recovery.RECOVERY, path.now, 60 * PACKET)
    # Unlike the RTT before, and far below twice RTprop.
    assert acknowledge(controller, path.now + 1, 55, lost=3, in_flight=10) >= before - 3


def test_after_probe_rtt_the_window_grows_instead_of_being_restored():
    controller, path = settled()
    windows: list[int] = []
    modes: list[int] = []

    def note(ack: cc.AckEvent) -> None:
        modes.append(int(controller.metrics()["mode"]))
        windows.append(controller.decision().cwnd // PACKET)

    path.on_ack = note
    path.run_until(12_000)
    end = len(modes) - 1 - modes[::-1].index(3)
    assert windows[end] == 4
    assert windows[end + 1] <= 6
    assert max(windows[end + 1 :]) > 90
