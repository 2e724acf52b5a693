"""BBR-ACD as its published simulation ran it (docs/algorithms/bbr-acd-ns3-published.md)."""

from __future__ import annotations

import ack_path
from ack_path import PACKET, Path, ack_event

from bbrgym import _testing as cc


def settled() -> tuple[cc.Controller, Path]:
    controller = ack_path.make("bbr-acd-ns3-published")
    return controller, ack_path.settled(controller)


def acknowledge(controller: cc.Controller, now: int, rtt_ms: float, in_flight: int) -> int:
    """Return the window in packets after an ACK."""
    controller.on_ack(ack_event(now, rtt_ms, in_flight=in_flight))
    return controller.decision().cwnd // PACKET


def test_any_loss_halves_on_every_ack_whatever_the_rtt():
    controller, path = settled()
    before = controller.decision().cwnd // PACKET
    controller.on_recovery(cc.Recovery.RECOVERY, path.now, 60 * PACKET)
    # RTprop itself: no congestion.
    assert acknowledge(controller, path.now + 1, 40.8, in_flight=10) == before // 2
    assert acknowledge(controller, path.now + 2, 40.8, in_flight=10) == before // 4
    # At least half of the packets in flight and acknowledged, and at least four.
    assert acknowledge(controller, path.now + 3, 40.8, in_flight=61) == 31
    assert [acknowledge(controller, path.now + 4 + i, 40.8, in_flight=2) for i in range(5)][-1] == 4


def test_the_gain_stays_one_until_probe_bw_is_entered_again():
    controller, path = settled()
    controller.on_recovery(cc.Recovery.RECOVERY, path.now, 60 * PACKET)
    acknowledge(controller, path.now + 1, 45, in_flight=50)
    controller.on_recovery(cc.Recovery.OPEN, path.now + 2, 50 * PACKET)
    acknowledge(controller, path.now + 2, 45, in_flight=50)
    assert controller.metrics()["cwnd_gain"] == 1.0
    path.run_until(8000)
    assert controller.metrics()["cwnd_gain"] == 1.0
    path.run_until(13_000)  # through ProbeRTT
    assert controller.metrics()["cwnd_gain"] == 2.0
