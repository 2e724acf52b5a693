"""BBR-ACD: what counts as congestion, and the window on every ACK of recovery (docs/algorithms/bbr-acd.md)."""

from __future__ import annotations

import pytest
from ack_path import MS, PACKET, Path

from bbrgym import _testing as cc


def settled(**parameters: float) -> tuple[cc.Controller, Path]:
    """In ProbeBW on 10 Mbit/s and 40 ms: RTprop 40.8 ms, BDP 51 packets, window 106 packets."""
    controller = cc.make("bbr-acd", parameters, PACKET, 10 * PACKET, 40 * MS, 1)
    path = Path(controller, rate_mbps=10, rtt_ms=40)
    path.run_until(3000)
    return controller, path


def acknowledge(controller: cc.Controller, now: int, rtt_ms: float, lost: int = 0, in_flight: int = 60) -> int:
    ack = cc.AckEvent()
    ack.now, ack.rtt, ack.bytes_acked, ack.bytes_lost = now, int(rtt_ms * MS), PACKET, lost * PACKET
    ack.in_flight, ack.delivered = in_flight * PACKET, 10**9
    ack.prior_in_flight = ack.in_flight + PACKET
    controller.on_ack(ack)
    return controller.decision().cwnd // PACKET


def window_after_loss(rtts_ms: list[float], **parameters: float) -> tuple[int, int]:
    """(window before, window after the first ACK of recovery), where the last of the RTTs is that ACK's."""
    controller, path = settled(**parameters)
    for i, rtt_ms in enumerate(rtts_ms[:-1]):
        acknowledge(controller, path.now + i, rtt_ms)
    before = controller.decision().cwnd // PACKET
    controller.on_recovery(cc.Recovery.RECOVERY, path.now + 10, 60 * PACKET)
    return before, acknowledge(controller, path.now + 10, rtts_ms[-1], lost=1)


@pytest.mark.parametrize(
    ("rtts_ms", "is_congested"),
    [
        ([60, 60.5, 61], True),  # three within 1 ms of the one before, above RTprop
        ([60, 62, 62.5], False),  # only one pair
        ([60, 60.5, 62], False),  # the last pair differs
        ([60, 60.5, 61, 63, 63.5, 64], True),
        ([40.8, 40.8, 40.8, 40.8], False),  # no queue: RTprop itself
        ([50, 70, 83], True),  # more than twice RTprop, whatever came before
        ([50, 70, 81], False),  # just below twice
    ],
)
def test_congestion_or_not(rtts_ms: list[float], is_congested: bool):
    before, after = window_after_loss(rtts_ms)
    assert after == (pytest.approx(before / 2, abs=1) if is_congested else pytest.approx(before - 1, abs=1))


def test_the_window_is_halved_on_every_ack_of_the_round_down_to_four_packets():
    controller, path = settled()
    before = controller.decision().cwnd // PACKET
    controller.on_recovery(cc.Recovery.RECOVERY, path.now, 60 * PACKET)
    windows = [acknowledge(controller, path.now + i, 90) for i in range(1, 8)]
    assert windows[:3] == [pytest.approx(before / 2, abs=1), pytest.approx(before / 4, abs=1), before // 8]
    assert windows[-1] == 4


def test_the_cap_is_one_bdp():
    controller, path = settled(cwnd_gain=4.0)
    path.run_until(4000)
    bdp = controller.metrics()["bdp_packets"]
    controller.on_recovery(cc.Recovery.RECOVERY, path.now, 60 * PACKET)
    assert acknowledge(controller, path.now + 1, 90) <= bdp + 5


def test_halved_once_by_option():
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


def test_a_random_loss_costs_what_was_lost_only():
    controller, path = settled()
    before = controller.decision().cwnd // PACKET
    controller.on_recovery(cc.Recovery.RECOVERY, path.now, 60 * PACKET)
    # Another RTT than the one before, and far from twice RTprop.
    assert acknowledge(controller, path.now + 1, 55, lost=3, in_flight=10) >= before - 3


def test_after_probe_rtt_the_window_grows_back_by_itself():
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
