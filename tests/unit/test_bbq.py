"""BBQ: the probing phase while a queue persists (docs/algorithms/bbq.md)."""

import pytest
from ack_path import MS, Hand, make


def probe_lengths_ms(rtt_ms: float, queue_ratio: float, **parameters: float) -> list[float]:
    """Return how long the probing phases last if each ACK, every 0.1 ms, has RTT = queue_ratio x RTprop."""
    hand = Hand(make("bbq", rtt_ms, **parameters), rate_mbps=20, rtt_ms=rtt_ms)
    rtt_ms = queue_ratio * hand.metrics["min_rtt_ms"]
    lengths, begin, before = [], None, hand.metrics["cycle_index"]
    for _ in range(15_000):
        hand.ack(rtt_ms, after_ms=0.1, in_flight=10**4)  # enough in flight for BBR's second condition
        after = hand.metrics["cycle_index"]
        if before != after and after == 0:
            begin = hand.now
        elif before == 0 and after == 1 and begin is not None:
            lengths.append((hand.now - begin) / MS)
        before = after
    assert lengths
    return lengths


@pytest.mark.parametrize("rtt_ms", [10, 50, 100])
def test_with_a_queue_every_flow_probes_for_three_milliseconds(rtt_ms: float):
    assert all(length == pytest.approx(3.0, abs=0.2) for length in probe_lengths_ms(rtt_ms, 1.5))


def test_on_a_shorter_path_the_probe_lasts_its_rtt():
    assert all(length == pytest.approx(1.4, abs=0.2) for length in probe_lengths_ms(1.0, 1.5))


def test_without_a_queue_a_probe_lasts_a_round_trip_as_in_bbr():
    assert all(length == pytest.approx(50.4, abs=0.3) for length in probe_lengths_ms(50, 1.005))


def test_the_limits_are_parameters():
    assert all(length == pytest.approx(7.0, abs=0.2) for length in probe_lengths_ms(50, 1.5, probe_ms=7.0))
    assert all(length > 50 for length in probe_lengths_ms(50, 1.5, queue_threshold=0.6))


def test_a_short_probe_ends_even_if_little_is_in_flight():
    hand = Hand(make("bbq", rtt_ms=50), rate_mbps=20, rtt_ms=50)
    seen = set()
    for _ in range(20_000):
        hand.ack(80, after_ms=0.1, in_flight=1)  # far from 1.25 BDP
        seen.add(hand.metrics["cycle_index"])
    assert seen == set(range(8)), "the cycle is stuck in its probe"
