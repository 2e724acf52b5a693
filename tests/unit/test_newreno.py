"""NewReno (RFC 5681, RFC 6582), without simulator (docs/algorithms/newreno.md)."""

from __future__ import annotations

import ack_path
from ack_path import PACKET, Path, ack_event

from bbrgym import _testing as cc


def make(cwnd_packets: int, **parameters: float) -> cc.Controller:
    return ack_path.make("newreno", 100, cwnd_packets, **parameters)


def ack(controller: cc.Controller, count: int = 1) -> None:
    for _ in range(count):
        controller.on_ack(ack_event(1, rtt_ms=100))


def lose(controller: cc.Controller) -> None:
    controller.on_recovery(cc.Recovery.RECOVERY, 1, controller.decision().cwnd)
    controller.on_recovery(cc.Recovery.OPEN, 2, controller.decision().cwnd)


def test_slow_start_grows_by_what_is_acknowledged():
    reno = make(10)
    ack(reno, 10)
    assert reno.decision().cwnd == 20 * PACKET


def test_a_loss_halves_the_window_and_then_it_grows_by_one_packet_per_window():
    reno = make(100)
    lose(reno)
    assert reno.decision().cwnd == 50 * PACKET
    ack(reno, 49)
    assert reno.decision().cwnd == 50 * PACKET
    ack(reno)
    assert reno.decision().cwnd == 51 * PACKET
    ack(reno, 51)
    assert reno.decision().cwnd == 52 * PACKET


def test_one_reduction_per_recovery():
    reno = make(100)
    reno.on_recovery(cc.Recovery.RECOVERY, 1, 100 * PACKET)
    reno.on_recovery(cc.Recovery.RECOVERY, 2, 80 * PACKET)
    reno.on_recovery(cc.Recovery.OPEN, 3, 50 * PACKET)
    assert reno.decision().cwnd == 50 * PACKET


def test_a_timeout_leaves_one_packet_and_half_as_threshold():
    reno = make(100)
    reno.on_recovery(cc.Recovery.LOSS, 1, 0)
    assert reno.decision().cwnd == PACKET
    assert reno.metrics()["ssthresh_packets"] == 50


def test_the_sawtooth_of_a_path_lies_between_half_and_all_of_bdp_and_buffer():
    reno = make(10)
    path = Path(reno, buffer_packets=50)
    windows = []
    path.on_ack = lambda event: windows.append(reno.decision().cwnd / PACKET)
    path.run_until(40_000)
    settled = windows[len(windows) // 2 :]
    assert 95 <= max(settled) <= 106, "BDP 50 and buffer 50 packets"
    assert 45 <= min(settled) <= 56


def test_pacing_is_an_option_and_spreads_the_window_over_the_rtt():
    assert not make(10).decision().is_paced
    paced = make(10, is_paced=1).decision()
    assert paced.is_paced
    assert paced.pacing_rate == 2 * 10 * PACKET * 8 * 10, "two windows per round trip in slow start"
