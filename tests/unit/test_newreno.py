"""NewReno (RFC 5681, RFC 6582), without simulator (docs/algorithms/newreno.md)."""

import pytest
from ack_path import PACKET, Hand, make

from bbrgym._testing import Recovery


def reno(cwnd_packets: int) -> Hand:
    return Hand(make("newreno", 100, cwnd_packets), time_ms=0)


def test_slow_start_grows_by_what_is_acknowledged():
    hand = reno(10)
    assert [hand.ack(100) for _ in range(10)] == [*range(11, 21)]


def test_a_loss_halves_the_window_and_then_it_grows_by_one_packet_per_window():
    hand = reno(100)
    for state in (Recovery.RECOVERY, Recovery.RECOVERY, Recovery.OPEN):  # one reduction per recovery
        hand.hear(state)
    assert hand.controller.decision().cwnd == 50 * PACKET
    assert [hand.ack(100) for _ in range(50 + 51)] == [50] * 49 + [51] * 51 + [52]


def test_a_timeout_leaves_one_packet_and_half_as_threshold():
    hand = reno(100)
    hand.hear(Recovery.LOSS)
    assert hand.window == 1
    assert hand.metrics["ssthresh_packets"] == 50


@pytest.mark.parametrize("name", ["newreno", "cubic", "vegas", "ledbat", "prague"])
@pytest.mark.parametrize("answers", [[Recovery.RECOVERY], [Recovery.LOSS], [Recovery.RECOVERY, Recovery.LOSS]])
def test_an_answer_to_losses_that_were_none_is_taken_back(name: str, answers: list[Recovery]):
    """RFC 9438, section 4.9."""
    hand = Hand(make(name, 100, 100), time_ms=0)
    hand.hear(Recovery.RECOVERY)
    hand.hear(Recovery.OPEN)
    before = hand.window, hand.metrics["ssthresh_packets"]
    for answer in answers:
        hand.hear(answer)
    hand.ack(in_flight=10)
    assert hand.window < before[0]
    assert hand.controller.on_spurious_recovery(), "it ends recovery"
    assert (hand.window, hand.metrics["ssthresh_packets"]) == before
    hand.hear(Recovery.RECOVERY)
    assert hand.metrics["ssthresh_packets"] < before[1], "the next loss is answered"


def test_an_answer_to_a_mark_is_not_taken_back():
    hand = reno(100)
    marked(hand, delivered=1, in_flight=99)
    hand.hear(Recovery.RECOVERY, in_flight=90)
    hand.controller.on_spurious_recovery()
    assert (hand.window, hand.metrics["ssthresh_packets"]) == (80, 80)


def test_pacing_is_an_option_and_spreads_the_window_over_the_rtt():
    assert not make("newreno").decision().is_paced
    paced = make("newreno", 100, is_paced=1).decision()
    assert paced.is_paced
    assert paced.pacing_rate == 2 * 10 * PACKET * 8 * 10, "two windows per round trip in slow start"


# Marks (RFC 3168, RFC 8511)


def marked(hand: Hand, delivered: int, in_flight: int, is_marked: bool = True) -> int:
    """Acknowledge one packet, after which so many are delivered in total and in flight; return the window."""
    marks = PACKET if is_marked else 0
    return hand.ack(100, delivered=delivered * PACKET, in_flight=in_flight, bytes_marked=marks)


def test_a_mark_takes_a_fifth_of_the_window_once_per_round_trip():
    hand = reno(100)
    assert marked(hand, delivered=1, in_flight=99) == 80
    assert hand.metrics["ssthresh_packets"] == 80, "a mark ends slow start"
    # 2 to 100 were sent before the answer: their marks are answered, and the window does not grow.
    assert {marked(hand, delivered, in_flight=80) for delivered in range(2, 101)} == {80}
    assert marked(hand, delivered=101, in_flight=79) == 64
    # Without a mark, it grows by a packet per window from the next round trip on.
    windows = [marked(hand, delivered, in_flight=63, is_marked=False) for delivered in range(102, 102 + 79 + 64)]
    assert windows == [64] * (79 + 63) + [65]


def test_a_mark_and_a_loss_in_one_round_trip_are_one_event():
    hand = reno(100)
    marked(hand, delivered=1, in_flight=99)
    hand.hear(Recovery.RECOVERY, in_flight=90)
    marked(hand, delivered=2, in_flight=90)
    assert hand.metrics["ssthresh_packets"] == 80
    hand.hear(Recovery.OPEN)
    assert hand.window == 80
    hand.hear(Recovery.RECOVERY)
    assert hand.metrics["ssthresh_packets"] == 40


def test_marks_in_recovery_change_nothing():
    hand = reno(100)
    hand.hear(Recovery.RECOVERY)
    for delivered in range(1, 30):
        marked(hand, delivered, in_flight=90)
    assert hand.metrics["ssthresh_packets"] == 50


def test_a_timeout_after_a_mark_starts_slowly_at_once():
    hand = reno(100)
    marked(hand, delivered=1, in_flight=99)
    hand.hear(Recovery.LOSS, in_flight=0)
    assert [marked(hand, delivered, in_flight=0, is_marked=False) for delivered in (2, 3, 4)] == [2, 3, 4]
    assert hand.metrics["ssthresh_packets"] == 80


def test_the_answer_to_marks_is_a_parameter_and_has_a_lower_bound():
    assert marked(Hand(make("newreno", 100, 100, beta_ecn=0.5), time_ms=0), 1, 99) == 50
    hand, delivered = reno(3), 1
    for _ in range(4):
        window = marked(hand, delivered, in_flight=2)
        delivered += 3
    assert window == 2
