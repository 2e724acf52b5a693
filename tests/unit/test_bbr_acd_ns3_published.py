"""BBR-ACD as its published simulation ran it (docs/algorithms/bbr-acd-ns3-published.md)."""

from __future__ import annotations

from ack_path import MS, PACKET, Path

from bbrgym import _testing as cc


def settled() -> tuple[cc.Controller, Path]:
    controller = cc.make("bbr-acd-ns3-published", {}, PACKET, 10 * PACKET, 40 * MS, 1)
    path = Path(controller, rate_mbps=10, rtt_ms=40)
    path.run_until(3000)
    return controller, path


def acknowledge(controller: cc.Controller, now: int, rtt_ms: float, in_flight: int) -> int:
    ack = cc.AckEvent()
    ack.now, ack.rtt, ack.bytes_acked = now, int(rtt_ms * MS), PACKET
    ack.in_flight, ack.delivered = in_flight * PACKET, 10**9
    ack.prior_in_flight = ack.in_flight + PACKET
    controller.on_ack(ack)
    return controller.decision().cwnd // PACKET


def test_any_loss_halves_on_every_ack_whatever_the_rtt():
    controller, path = settled()
    before = controller.decision().cwnd // PACKET
    controller.on_recovery(cc.Recovery.RECOVERY, path.now, 60 * PACKET)
    # RTprop itself: no congestion at all.
    assert acknowledge(controller, path.now + 1, 40.8, in_flight=10) == before // 2
    assert acknowledge(controller, path.now + 2, 40.8, in_flight=10) == before // 4
    # Never below half of what is in flight and acknowledged, nor four packets.
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
