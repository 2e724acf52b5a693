"""NewReno (RFC 5681, RFC 6582), without simulator (docs/algorithms/newreno.md)."""

from __future__ import annotations

from ack_path import PACKET, Hand, Path, make

from bbrgym._testing import Recovery


def reno(cwnd_packets: int) -> Hand:
    return Hand(make("newreno", 100, cwnd_packets), time_ms=0)


def test_slow_start_grows_by_what_is_acknowledged():
    hand = reno(10)
    assert [hand.ack(100) for _ in range(10)] == [*range(11, 21)]


def test_a_loss_halves_the_window_and_then_it_grows_by_one_packet_per_window():
    hand = reno(100)
    hand.hear(Recovery.RECOVERY)
    hand.hear(Recovery.OPEN)
    assert hand.controller.decision().cwnd == 50 * PACKET
    assert [hand.ack(100) for _ in range(50 + 51)] == [50] * 49 + [51] * 51 + [52]


def test_one_reduction_per_recovery():
    hand = reno(100)
    for state in (Recovery.RECOVERY, Recovery.RECOVERY, Recovery.OPEN):
        hand.hear(state)
    assert hand.window == 50


def test_a_timeout_leaves_one_packet_and_half_as_threshold():
    hand = reno(100)
    hand.hear(Recovery.LOSS)
    assert hand.window == 1
    assert hand.metrics["ssthresh_packets"] == 50


def test_the_sawtooth_of_a_path_lies_between_half_and_all_of_bdp_and_buffer():
    windows = Path(make("newreno", 100), buffer_packets=50).watch(30_000)["cwnd"] / PACKET
    settled = windows[len(windows) // 2 :]
    assert 95 <= settled.max() <= 106, "BDP 50 and buffer 50 packets"
    assert 45 <= settled.min() <= 56


def test_pacing_is_an_option_and_spreads_the_window_over_the_rtt():
    assert not make("newreno").decision().is_paced
    paced = make("newreno", 100, is_paced=1).decision()
    assert paced.is_paced
    assert paced.pacing_rate == 2 * 10 * PACKET * 8 * 10, "two windows per round trip in slow start"
