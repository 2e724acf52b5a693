"""BBQ: the probing phase while a queue persists (docs/algorithms/bbq.md)."""

from __future__ import annotations

import pytest
from ack_path import MS, PACKET, Path

from bbrgym import _testing as cc


def probe_lengths_ms(rtt_ms: float, queue_ratio: float, **parameters: float) -> list[float]:
    """How long the probing phases last when every ACK says RTT = queue_ratio x RTprop, a packet each 0.1 ms."""
    bbq = cc.make("bbq", parameters, PACKET, 10 * PACKET, int(rtt_ms * MS), 1)
    path = Path(bbq, rate_mbps=20, rtt_ms=rtt_ms)
    path.run_until(3000)
    min_rtt = int(bbq.metrics()["min_rtt_ms"] * MS)
    lengths, begin = [], None
    for i in range(1, 30_000):
        ack = cc.AckEvent()
        ack.now, ack.rtt = path.now + i * MS // 10, int(queue_ratio * min_rtt)
        ack.bytes_acked, ack.delivered = PACKET, 10**9
        ack.in_flight = ack.prior_in_flight = 10**7  # enough for BBR's second condition
        before = bbq.metrics()["cycle_index"]
        bbq.on_ack(ack)
        after = bbq.metrics()["cycle_index"]
        if before != after and after == 0:
            begin = ack.now
        elif before == 0 and after == 1 and begin is not None:
            lengths.append((ack.now - begin) / MS)
    assert lengths
    return lengths


@pytest.mark.parametrize("rtt_ms", [10, 50, 100])
def test_with_a_queue_all_probe_for_three_milliseconds(rtt_ms: float):
    assert all(length == pytest.approx(3.0, abs=0.2) for length in probe_lengths_ms(rtt_ms, 1.5))


def test_a_path_shorter_than_that_probes_for_its_own_rtt():
    assert all(length == pytest.approx(1.4, abs=0.2) for length in probe_lengths_ms(1.0, 1.5))


def test_without_a_queue_a_probe_lasts_a_round_trip_as_bbrs():
    assert all(length == pytest.approx(50.4, abs=0.3) for length in probe_lengths_ms(50, 1.005))


def test_the_limits_are_parameters():
    assert all(length == pytest.approx(7.0, abs=0.2) for length in probe_lengths_ms(50, 1.5, probe_ms=7.0))
    assert all(length > 50 for length in probe_lengths_ms(50, 1.5, queue_threshold=0.6))


def test_a_short_probe_ends_even_if_little_is_in_flight():
    bbq = cc.make("bbq", {}, PACKET, 10 * PACKET, 50 * MS, 1)
    path = Path(bbq, rate_mbps=20, rtt_ms=50)
    path.run_until(3000)
    seen = set()
    for i in range(1, 20_000):
        ack = cc.AckEvent()
        ack.now, ack.rtt, ack.bytes_acked, ack.delivered = path.now + i * MS // 10, 80 * MS, PACKET, 10**9
        ack.in_flight = ack.prior_in_flight = PACKET  # never 1.25 BDP
        bbq.on_ack(ack)
        seen.add(bbq.metrics()["cycle_index"])
    assert seen == set(range(8)), "the cycle stands still in its probe"
