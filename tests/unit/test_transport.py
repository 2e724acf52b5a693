"""The native engine's sender and receiver, driven by hand: times in ns, amounts in bytes, packets of 1000."""

import heapq
import itertools
import math
import random
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bbrgym import Flow, Scenario, _native, _testing
from bbrgym.envs.columns import FLOW_COLUMNS

MS = 1_000_000
PACKET = 1000
OPEN, RECOVERY, LOSS = _testing.Recovery.OPEN, _testing.Recovery.RECOVERY, _testing.Recovery.LOSS

Sent = tuple[int, int, int, bool]
Range = tuple[int, int]


class Hand:
    """A sender with a recording controller of fixed window, and short methods to drive it."""

    def __init__(
        self,
        cwnd: int = 10,
        rtt_ms: float = 0,
        size: int | None = None,
        is_ecn_capable: bool = False,
        app_rate_mbps: float | None = None,
    ):
        self.told = _testing.Recording()
        self.told.decision.cwnd = cwnd * PACKET
        self.sender = _testing.Sender(
            self.told,
            initial_rtt=int(rtt_ms * MS),
            size_bytes=size,
            is_ecn_capable=is_ecn_capable,
            app_rate_mbps=app_rate_mbps,
        )

    def send(self, now: float, count: int | None = None) -> list[Sent]:
        """Return the packets that leave at `now` (ms): all that may, or `count`."""
        packets = []
        while count is None or len(packets) < count:
            packet = self.sender.next_packet(int(now * MS))
            if packet is None:
                break
            packets.append(packet)
        assert count is None or len(packets) == count
        return packets

    def ack(self, now: float, *ranges: Range | int, marked: int = 0) -> _testing.AckEvent:
        """Acknowledge ranges or single numbers, newest first, and so many marked packets since the flow's beginning.

        Return the controller's last event.
        """
        self.sender.on_ack(int(now * MS), [(r, r) if isinstance(r, int) else r for r in ranges], marked * PACKET)
        return self.told.acks[-1]

    def fire(self, now: float | None = None) -> float:
        """Let the timer go off at `now` (ms), by default when it is due; return that time."""
        now_ns = self.sender.next_timer() if now is None else int(now * MS)
        self.sender.on_timer(now_ns)
        return now_ns / MS

    def decide(self, **decision: int | bool) -> None:
        for name, value in decision.items():
            setattr(self.told.decision, name, value)
        self.sender.update_decision()

    @property
    def states(self) -> list[_testing.Recovery]:
        return [state for state, _, _ in self.told.recoveries]

    @property
    def timer_ms(self) -> float | None:
        timer = self.sender.next_timer()
        return None if timer is None else timer / MS


def numbers(packets: list[Sent]) -> list[int]:
    return [number for number, _, _, _ in packets]


# Packets, segments, the window


def test_packets_are_numbered_and_fill_the_window():
    hand = Hand(cwnd=3)
    assert hand.send(0) == [(0, 0, PACKET, False), (1, 1, PACKET, False), (2, 2, PACKET, False)]
    assert hand.sender.in_flight == 3 * PACKET
    hand.ack(10, (0, 1))
    assert hand.sender.in_flight == PACKET
    assert hand.send(10) == [(3, 3, PACKET, False), (4, 4, PACKET, False)]
    hand.decide(cwnd=5 * PACKET - 1)
    assert len(hand.send(10)) == 1, "no packet leaves in part"
    hand.decide(cwnd=2 * PACKET)
    hand.ack(20, (2, 3))
    assert hand.send(20) == [], "nothing leaves until the flight has shrunk below a smaller window"
    hand.ack(20, 4)
    assert len(hand.send(20)) == 1


def test_a_retransmission_leaves_when_recovery_begins_however_small_the_window():
    hand = Hand(cwnd=10)
    hand.send(0)
    hand.decide(cwnd=2 * PACKET)
    hand.ack(50, (2, 4))
    assert hand.send(50) == [(10, 0, PACKET, True)], "one, and not the second that is lost"
    hand.ack(51, 5)
    assert hand.send(51) == [], "and only then"


def test_a_full_window_limits_the_flow_until_what_was_in_flight_then_is_delivered():
    """Linux, tcp_cwnd_validate."""
    hand = Hand(cwnd=10)
    hand.send(0)
    assert [hand.ack(10 + i, (0, i)).is_cwnd_limited for i in range(10)] == [True] * 10
    hand.decide(cwnd=20 * PACKET)
    hand.send(30, 5)
    assert not hand.ack(40, (0, 11)).is_cwnd_limited


def test_an_ack_says_everything_once():
    hand = Hand()
    hand.send(0)
    first = hand.ack(10, (0, 2))
    assert (first.now, first.rtt) == (10 * MS, 10 * MS)
    assert (first.bytes_acked, first.bytes_lost, first.delivered) == (3 * PACKET, 0, 3 * PACKET)
    assert (first.prior_in_flight, first.in_flight, first.sent) == (10 * PACKET, 7 * PACKET, 10 * PACKET)
    assert first.is_cwnd_limited
    second = hand.ack(11, (0, 3))
    assert second.is_cwnd_limited, "for a round trip"
    assert (second.bytes_acked, second.prior_in_flight, second.in_flight) == (PACKET, 7 * PACKET, 6 * PACKET)
    hand.ack(12, (0, 3))  # a duplicate
    hand.ack(12, (10, 2**64 - 1))  # packets that were never sent
    hand.sender.on_ack(12 * MS, [])
    assert hand.told.calls == ["ack", "ack"]
    assert hand.sender.in_flight == 6 * PACKET
    assert hand.ack(13, (0, 10_000)).bytes_acked == 6 * PACKET


def test_the_rtt_is_that_of_the_newest_packet_if_that_is_new():
    hand = Hand()
    hand.send(0, 2)
    hand.send(5, 2)
    assert hand.ack(20, 3, 1).rtt == 15 * MS
    assert hand.ack(21, 2).rtt == 0, "a newer packet than 2 has been acknowledged before"
    assert hand.sender.counts()["last_rtt"] == 15 * MS


# Losses (RFC 9002, section 6.1)


def test_a_packet_is_lost_when_one_three_later_arrives():
    hand = Hand(rtt_ms=10)
    hand.send(0)
    assert hand.ack(10, (1, 2)).bytes_lost == 0
    event = hand.ack(10, 3)
    assert (event.bytes_lost, event.in_flight) == (PACKET, 6 * PACKET)
    assert hand.sender.counts()["lost_bytes"] == PACKET
    assert event.prior_in_flight == 8 * PACKET


@pytest.mark.parametrize(
    ("handshake_ms", "rtt_ms", "wait_ms"),
    [
        (8, 8, 9),
        (8, 16, 18),  # the latest RTT, longer than the smoothed one of 9 ms
        (16, 8, 16.875),  # the smoothed RTT of 15 ms, longer than the latest one
        (0.1, 0.1, 1),  # never less than the granularity
    ],
)
def test_a_packet_is_lost_nine_eighths_of_an_rtt_after_it_left(handshake_ms: float, rtt_ms: float, wait_ms: float):
    hand = Hand(cwnd=2, rtt_ms=handshake_ms)
    hand.send(0)
    hand.ack(rtt_ms, 1)
    assert hand.timer_ms == wait_ms
    assert hand.sender.in_flight == PACKET
    hand.sender.on_timer(int(wait_ms * MS) - 1)
    assert hand.sender.in_flight == PACKET
    hand.told.decision.cwnd = 7 * PACKET
    hand.fire(wait_ms)
    assert (hand.sender.in_flight, hand.timer_ms) == (0, None)
    assert hand.sender.decision().cwnd == 7 * PACKET
    # The controller learns of the recovery now, and of the lost bytes with the next ACK.
    assert hand.told.calls == ["ack", "recovery"]
    assert hand.told.recoveries == [(RECOVERY, int(wait_ms * MS), 0)]
    assert hand.send(wait_ms, 1) == [(2, 0, PACKET, True)]
    event = hand.ack(wait_ms + rtt_ms, 2)
    assert (event.bytes_acked, event.bytes_lost, event.prior_in_flight) == (PACKET, PACKET, PACKET)


def test_what_leaves_while_a_loss_is_awaited_does_not_put_it_off():
    hand = Hand(cwnd=2, rtt_ms=8)
    hand.send(0)
    hand.ack(8, 1)
    hand.send(8.5, 1)
    assert hand.timer_ms == 9
    hand.fire(9)
    assert hand.sender.in_flight == PACKET
    assert hand.timer_ms == 8.5 + 8 + 4 * 3 + 40, "a probe's, from the last packet on"


def test_a_segment_lost_in_two_packets_is_repeated_once():
    hand = Hand(rtt_ms=10, size=3 * PACKET)
    hand.send(0)
    hand.fire(70)
    assert hand.send(70) == [(3, 0, PACKET, True)]
    hand.ack(80, 2)
    hand.fire(90)  # 9/8 of 80 ms: 0 and 1 are lost
    assert hand.send(90) == [(4, 0, PACKET, True), (5, 1, PACKET, True)]
    assert hand.ack(190, 5).bytes_lost == 3 * PACKET  # 3 too, but 4 is younger than 9/8 of 100 ms
    hand.fire(202.5)
    assert hand.sender.in_flight == 0
    assert hand.send(210) == [(6, 0, PACKET, True)]
    hand.ack(310, 6)
    assert (hand.sender.is_all_delivered, hand.sender.in_flight) == (True, 0)


def test_the_smallest_lost_segment_goes_first_also_when_it_is_lost_again():
    hand = Hand(cwnd=20, rtt_ms=10)
    hand.send(0)
    hand.told.decision.cwnd = 8 * PACKET
    hand.ack(10, (10, 12))  # 0 to 9 are lost, 7 packets are in flight
    repairs = hand.send(10)
    for number in (13, 14, 15):
        hand.ack(11, number)
        repairs += hand.send(11)
    assert repairs == [(20 + segment, segment, PACKET, True) for segment in range(4)]
    hand.ack(20, 23)  # packet 20 is lost
    assert hand.send(20)[:2] == [(24, 0, PACKET, True), (25, 4, PACKET, True)]


def test_what_arrives_while_it_waits_to_be_repeated_is_not_repeated():
    hand = Hand(cwnd=2, rtt_ms=10, size=2 * PACKET)
    hand.send(0)
    hand.fire(70)
    assert hand.send(70) == [(2, 0, PACKET, True)]
    hand.ack(72, 1)
    hand.fire(81)
    assert hand.states == [RECOVERY]
    hand.ack(90, 2)
    assert hand.states == [RECOVERY, OPEN]
    assert hand.send(90) == []


# Probe timeouts (section 6.2)


def test_a_probe_timeout_is_srtt_and_four_deviations_and_the_delay_of_acks():
    hand = Hand(rtt_ms=100)  # SRTT 100 ms, deviation 50 ms
    assert hand.timer_ms is None
    hand.send(0, 1)
    assert hand.timer_ms == 100 + 4 * 50 + 40
    hand.send(5, 1)
    assert hand.timer_ms == 345, "it starts again with every packet"
    hand.ack(120, 0)  # deviation 50 + (20 - 50) / 4 = 42.5, SRTT 102.5
    assert hand.timer_ms == 5 + 102.5 + 4 * 42.5 + 40
    hand.ack(120, 1)
    assert hand.timer_ms is None
    without_rtt = Hand()
    without_rtt.send(0, 1)
    assert without_rtt.timer_ms == 999


def test_a_probe_is_one_packet_and_no_sign_of_congestion_and_timeouts_double_ten_times():
    hand = Hand(cwnd=2, rtt_ms=100)
    hand.send(0)
    expected, wait = 0.0, 340.0
    for probe in range(13):
        expected += wait
        assert hand.timer_ms == expected
        hand.sender.on_timer(int(expected * MS) - 1)
        assert hand.send(expected - 1) == []
        hand.fire(expected)
        # One packet, regardless of the window (section 7.5).
        assert numbers(hand.send(expected)) == [2 + probe]
        wait *= 2 if probe < 10 else 1
    assert (hand.sender.counts()["timeouts"], hand.sender.in_flight) == (13, 15 * PACKET)
    assert hand.told.calls == []
    hand.ack(expected + 100, 14)  # deviation 37.5, SRTT 100
    hand.send(expected + 100)
    assert hand.timer_ms == expected + 100 + 100 + 4 * 37.5 + 40


def test_an_ack_makes_a_probe_needless():
    hand = Hand(cwnd=2, rtt_ms=100)
    hand.send(0)
    hand.fire(340)
    hand.told.decision.cwnd = PACKET
    hand.ack(340, 0)
    assert hand.send(340) == []


def test_a_probe_carries_what_is_lost_or_new_or_the_oldest():
    def probe(size: int | None, *acked: Range) -> Sent:
        hand = Hand(cwnd=5, rtt_ms=10, size=size)
        hand.send(0, 5)
        for ranges in acked:
            hand.ack(10, ranges)
        hand.decide(cwnd=1)
        hand.fire()
        (packet,) = hand.send(1000)
        return packet

    assert probe(None) == (5, 5, PACKET, False)
    assert probe(None, (1, 3)) == (5, 0, PACKET, True)
    assert probe(5 * PACKET) == (5, 0, PACKET, True)
    assert probe(5 * PACKET, (0, 1)) == (5, 2, PACKET, True)


def test_an_overdue_probe_is_due_now_and_never_in_the_past():
    # With a long and steady RTT, whose deviation is down to 1 ms, 9/8 of it is longer than a probe timeout.
    hand = Hand(cwnd=3, rtt_ms=1000)
    for number in range(40):
        hand.send(number * 1000, 1)
        hand.ack((number + 1) * 1000, number)
    now = 40_000
    hand.decide(cwnd=4 * PACKET)
    hand.send(now, 4)
    now += 1000
    hand.ack(now, (41, 43))  # recovery begins
    assert numbers(hand.send(now)) == [44, 45, 46, 47]
    assert hand.timer_ms == now + 1000 + 1 + 40
    hand.ack(now + 1000, 45)
    assert hand.timer_ms == now + 1125
    hand.decide(cwnd=1)
    hand.fire(now + 1125)
    assert hand.send(now + 1125) == []
    assert hand.timer_ms == now + 1125
    hand.fire(now + 1125)
    assert len(hand.send(now + 1125)) == 1
    assert hand.timer_ms > now + 1125


# Persistent congestion (section 7.6)


# SRTT is 10 ms; a first sample leaves a deviation of 3.75 ms, and the ACK that tells of the losses one of 2.8125 ms.
PERSISTENT_MS = 3 * (10 + 4 * 2.8125 + 40)


@pytest.mark.parametrize(
    ("sample", "span_ms", "acked", "lost", "state"),
    [
        pytest.param([0], PERSISTENT_MS, [6], 3, RECOVERY, id="not more than three probe timeouts"),
        pytest.param([0], PERSISTENT_MS + 1e-6, [6], 3, LOSS, id="more"),
        pytest.param([0], 280, [6, 2], 2, RECOVERY, id="a packet in between arrives"),
        pytest.param([], 900, [6], 4, RECOVERY, id="no RTT so far"),
    ],
)
def test_congestion_is_persistent_if_all_of_three_probe_timeouts_was_lost(
    sample: list[int], span_ms: float, acked: list[int], lost: int, state: _testing.Recovery
):
    hand = Hand(cwnd=100, rtt_ms=10)
    hand.send(0, 1)
    for number in sample:
        hand.ack(10, number)
    hand.send(20, 1)
    hand.send(100, 1)
    hand.send(20 + span_ms, 4)
    assert hand.ack(30 + span_ms, *acked).bytes_lost == lost * PACKET
    assert hand.states == [state]
    assert hand.told.calls[-2:] == ["recovery", "ack"]


def test_persistent_congestion_strikes_again_and_ends_when_all_is_delivered():
    hand = Hand(cwnd=100, rtt_ms=10)
    hand.send(0, 1)
    hand.ack(10, 0)
    hand.send(20, 1)  # 1
    hand.send(300, 4)  # 2 to 5
    hand.ack(310, 5)
    assert hand.states == [LOSS]
    hand.send(320, 1)  # 6, segment 1
    hand.send(600, 4)  # 7 (segment 2) to 10
    hand.ack(610, 10)
    assert hand.states == [LOSS, LOSS]
    packets = hand.send(610, 4)  # segments 1, 3, 4 (3 and 4 are lost by time), 2 …
    hand.ack(620, (7, packets[-1][0]))
    assert hand.states == [LOSS, LOSS, OPEN]


# Recovery


def test_recovery_lasts_until_all_that_was_sent_before_is_delivered():
    hand = Hand(cwnd=10)
    hand.send(0)
    hand.ack(10, (1, 3))
    assert hand.told.calls == ["recovery", "ack"], "the state comes before the ACK that changes it"
    assert hand.told.recoveries == [(RECOVERY, 10 * MS, 6 * PACKET)]
    assert hand.send(10) == [(10, 0, PACKET, True), *[(n, n - 1, PACKET, False) for n in (11, 12, 13)]]
    hand.ack(11, (1, 9))  # all of the old numbers, but segment 0 is still missing
    hand.ack(12, (11, 11), (1, 9))
    assert hand.states == [RECOVERY]
    hand.ack(20, (10, 11), (1, 9))
    assert hand.states == [RECOVERY, OPEN]
    assert hand.told.calls[-2:] == ["recovery", "ack"]


def test_what_was_lost_during_recovery_begins_the_next():
    hand = Hand(cwnd=10)
    hand.send(0)
    hand.ack(10, (1, 3))
    packets = hand.send(10)  # 10: segment 0; 11 to 13: segments 10 to 12
    assert numbers(packets) == [10, 11, 12, 13]
    hand.ack(15, (4, 9))
    packets = hand.send(15)  # 14 to 19
    assert packets[0] == (14, 13, PACKET, False)
    # 11 is lost in flight, and 10 (segment 0) too: they are 3 before 14.
    assert hand.ack(20, (12, 14), (4, 9)).bytes_lost == 2 * PACKET
    assert hand.states == [RECOVERY], "a second loss belongs to the recovery that lasts"
    packets = hand.send(20)
    assert packets[:2] == [(20, 0, PACKET, True), (21, 10, PACKET, True)]
    hand.ack(30, (20, 20), (12, 19))
    # Segments 0 to 9 are delivered: the recovery is over. Segment 10 is missing: another one begins.
    assert hand.states == [RECOVERY, OPEN, RECOVERY]
    assert hand.told.calls[-3:] == ["recovery", "recovery", "ack"]
    hand.ack(31, (20, 21), (12, 19))
    assert hand.states == [RECOVERY, OPEN, RECOVERY], "it began with all that had been sent by then"
    hand.ack(40, (20, 50), (12, 19))
    assert hand.states[3:] == [OPEN]


def test_a_recovery_in_which_everything_marked_lost_arrives_is_spurious():
    hand = Hand(cwnd=10)
    hand.send(0)
    hand.ack(10, (2, 5))  # 0 and 1 are late: they are marked lost, and sent again as 10 and 11
    assert hand.states == [RECOVERY]
    hand.send(10)
    hand.ack(11, (1, 5))
    assert hand.told.calls.count("spurious") == 0, "0 is still missing"
    hand.sender.on_ack(12 * MS, [(0, 5)])
    assert hand.told.calls[-1] == "spurious", "although nothing else is delivered by this acknowledgement"
    hand.ack(13, (0, 6))
    assert hand.told.calls.count("spurious") == 1


@pytest.mark.parametrize("takes_back", [False, True])
def test_a_reduction_that_is_taken_back_ends_recovery(takes_back: bool):
    hand = Hand(cwnd=10)
    hand.told.takes_back = takes_back
    hand.send(0)
    hand.ack(10, (2, 5))  # 0 and 1 are late
    hand.send(10)
    hand.sender.on_ack(11 * MS, [(0, 5)])
    hand.ack(12, (0, 6))
    assert hand.states == [RECOVERY], "nothing is missing any more, though the repairs are still in flight"
    hand.ack(13, (10, 10), (0, 6))  # another loss, before what was in flight when recovery began is delivered
    assert hand.states == [RECOVERY] * (1 + takes_back)


def test_what_was_late_is_not_sent_again_once_it_has_arrived():
    hand = Hand(cwnd=10)
    hand.send(0)
    hand.ack(10, (2, 5))  # 0 and 1 are late
    hand.send(10, 1)  # segment 0 again
    hand.sender.on_ack(11 * MS, [(0, 5)])
    assert [segment for _, segment, *_ in hand.send(11)] == list(range(10, 15))


@pytest.mark.parametrize("is_first_lost", [False, True])
def test_on_a_path_that_reorders_a_packet_is_lost_later(is_first_lost: bool):
    hand = Hand(cwnd=10, rtt_ms=20)
    hand.send(0)
    hand.ack(20, (2, 5))  # 0 and 1 are late, or 0 is lost
    hand.send(20)  # 10 to 15
    hand.sender.on_ack(30 * MS, [(int(is_first_lost), 5)])  # half an RTT late: from now on, so much more is waited
    hand.ack(40, (13, 15), (int(is_first_lost), 9))
    lost = hand.sender.counts()["lost_bytes"]
    assert lost == 2 * PACKET, "three later ones are no sign of a loss"
    assert hand.fire() == 20 + 20 + 10
    assert hand.sender.counts()["lost_bytes"] == lost + 3 * PACKET


def test_an_acknowledgement_of_what_was_never_sent_hides_nothing():
    hand = Hand(cwnd=10)
    hand.sender.on_ack(0, [(0, 2**64 - 1), (0, 2**64 - 1)])
    hand.send(0)
    hand.ack(10, (0, 4))
    hand.sender.on_ack(10 * MS, [(0, 2**64 - 2), (0, 2**64 - 2)])
    hand.send(10)
    event = hand.ack(20, (0, 2**63), (0, 2**63))
    assert hand.sender.in_flight == 0
    assert event.delivered == 20 * PACKET


def test_the_reordering_window_is_that_of_rack():
    """RFC 8985, section 6.2, step 4."""
    window = _testing.ReorderingWindow()
    window.on_recovery_end()
    assert not window.is_open

    def quarters() -> float:
        return window.length(min_rtt=40 * MS, smoothed_rtt=90 * MS) / (10 * MS)

    window.on_late_arrival(largest_acked=5, next_number=20)
    assert window.is_open
    assert quarters() == 2
    window.on_late_arrival(19, 35)
    assert quarters() == 2, "once per round trip"
    window.on_late_arrival(20, 36)
    assert quarters() == 3
    for _ in range(15):
        window.on_recovery_end()
    assert quarters() == 3
    window.on_late_arrival(36, 50)
    for _ in range(15):
        window.on_recovery_end()
    assert quarters() == 4, "a late arrival begins the count again"
    window.on_recovery_end()
    assert quarters() == 1
    assert window.is_open
    for number in range(100, 400):
        window.on_late_arrival(number, number)
    assert quarters() == 9, "never more than the smoothed RTT"


def test_a_recovery_in_which_one_packet_was_lost_is_not_spurious():
    hand = Hand(cwnd=10)
    hand.send(0)
    hand.ack(10, (2, 5))
    hand.send(10)
    hand.ack(20, (10, 11), (1, 9))  # 1 was late, and 0 lost: its repair arrives
    assert hand.states == [RECOVERY, OPEN]
    hand.ack(30, (12, 12), (10, 11), (1, 9))
    hand.send(30)
    # What was lost in the last recovery does not count in the next one.
    hand.ack(40, (16, 17), (10, 12), (1, 9))
    assert hand.states[2:] == [RECOVERY]
    hand.sender.on_ack(41 * MS, [(10, 17), (1, 9)])
    assert hand.told.calls[-1] == "spurious"


@pytest.mark.parametrize("lost", [65_536, 65_537])
def test_a_recovery_of_very_many_losses_is_justified(lost: int):
    """So that memory is bounded where a recovery never ends."""
    hand = Hand(cwnd=lost + 10)
    hand.send(0)
    hand.ack(10, (lost + 2, lost + 3), lost)
    assert hand.sender.counts()["lost_bytes"] == lost * PACKET
    hand.sender.on_ack(11 * MS, [(0, lost), (lost + 2, lost + 3)][::-1])
    assert hand.told.calls.count("spurious") == (lost == 65_536)


def test_what_is_late_is_seen_after_acknowledgements_that_overtook_each_other():
    hand = Hand(cwnd=20)
    hand.send(0)
    hand.ack(10, (6, 10), (0, 4))  # 5 is late
    hand.send(10)
    hand.sender.on_ack(11 * MS, [(0, 3)])  # an older one
    hand.sender.on_ack(12 * MS, [(0, 10)])
    assert hand.told.calls[-1] == "spurious"


def test_a_recovery_that_begins_as_one_ends_has_its_own_losses():
    hand = Hand(cwnd=10)
    hand.send(0)
    hand.ack(10, (2, 5))  # 0 and 1 are lost
    hand.send(10)  # 10 and 11 repeat them; 12 to 15 are new
    hand.ack(20, 15, (10, 11), (2, 9))  # the repairs have arrived, and 12 has not
    assert hand.states == [RECOVERY, OPEN, RECOVERY]
    hand.sender.on_ack(21 * MS, [(15, 15), (10, 12), (2, 9)])
    assert hand.told.calls[-1] == "spurious"


# Delivery rates (draft-cheng-iccrg-delivery-rate-estimation-02)


def test_a_rate_is_what_was_delivered_while_the_acks_came():
    hand = Hand(cwnd=10)
    hand.send(0)
    sample = hand.ack(10, (0, 1)).sample
    assert sample.is_valid
    assert (sample.interval, sample.delivered, sample.prior_delivered) == (10 * MS, 2 * PACKET, 0)
    assert sample.delivery_rate == 2 * PACKET * 8 * 100
    assert (sample.tx_in_flight, sample.lost_since_send) == (2 * PACKET, 0)
    assert not sample.is_app_limited
    hand.send(10)  # 10 and 11
    hand.ack(15, (2, 9))
    sample = hand.ack(22, (0, 10)).sample
    # 10 left at 10 ms, after 2 packets had been delivered: 9 more in the 12 ms since; they had been sent within 10 ms.
    assert (sample.interval, sample.delivered, sample.prior_delivered) == (12 * MS, 9 * PACKET, 2 * PACKET)
    assert sample.delivery_rate == 9 * PACKET * 8 * 1000 // 12
    assert sample.tx_in_flight == 9 * PACKET


def test_an_empty_interval_has_no_rate():
    hand = Hand()
    hand.send(0)
    sample = hand.ack(0, 0).sample
    assert (sample.interval, sample.delivered, sample.delivery_rate) == (0, PACKET, 0)


def test_a_rate_is_no_higher_than_that_of_sending():
    hand = Hand()
    for now in (0, 20, 30, 40):
        hand.send(now, 1)
    hand.ack(41, (0, 1))
    hand.send(41, 1)
    # 3 packets arrive together 10 ms later, but they left within 21 ms of the last that had arrived before.
    sample = hand.ack(51, (2, 4)).sample
    assert (sample.interval, sample.delivered) == (21 * MS, 3 * PACKET)
    assert sample.delivery_rate == int(3 * PACKET * 8e9 / (21 * MS))


def test_the_interval_begins_with_the_first_packet_after_silence():
    hand = Hand(cwnd=2)
    hand.send(0)
    hand.ack(10, (0, 1))
    hand.send(500)
    sample = hand.ack(510, (2, 3)).sample
    assert (sample.interval, sample.delivered) == (10 * MS, 2 * PACKET)


def test_a_sample_knows_what_was_lost_since_its_packet_left():
    hand = Hand(cwnd=10)
    hand.send(0)
    sample = hand.ack(10, (2, 5)).sample
    assert (sample.tx_in_flight, sample.lost_since_send) == (6 * PACKET, 2 * PACKET)
    hand.send(10, 4)  # 10 to 13 after 2 losses; 10 and 11 repeat segments 0 and 1
    sample = hand.ack(20, (12, 13), (6, 9), (2, 5)).sample
    assert (sample.tx_in_flight, sample.lost_since_send) == (8 * PACKET, PACKET)


def test_what_is_sent_while_the_controller_holds_back_counts_as_application_limited():
    hand = Hand(cwnd=4)
    hand.send(0)
    hand.told.decision.is_app_limited = True
    assert not hand.ack(10, 0).sample.is_app_limited  # it had left before; 1 + 3 packets are marked
    hand.told.decision.is_app_limited = False
    hand.send(10)  # 4
    assert not hand.ack(11, (1, 3)).sample.is_app_limited
    hand.send(11)  # 5 to 7: exactly as much is delivered as was marked, not more
    assert hand.ack(20, 4).sample.is_app_limited
    hand.send(20)  # 8
    assert hand.ack(21, (5, 7)).sample.is_app_limited
    assert not hand.ack(30, 8).sample.is_app_limited


@pytest.mark.parametrize(("cwnd", "is_app_limited"), [(10, True), (5, False)])
def test_what_is_sent_after_the_data_have_run_out_counts_as_application_limited_unless_the_window_is_full(
    cwnd: int, is_app_limited: bool
):
    hand = Hand(cwnd=cwnd, rtt_ms=10, size=5 * PACKET)
    hand.send(0)
    assert not hand.ack(10, (1, 4)).sample.is_app_limited
    assert hand.send(10) == [(5, 0, PACKET, True)]
    assert hand.ack(20, 5).sample.is_app_limited is is_app_limited


# Pacing


def paced_hand(rate_mbps: float, quantum: int, **arguments: float) -> Hand:
    hand = Hand(**arguments)
    hand.decide(is_paced=True, pacing_rate=int(rate_mbps * 1e6), send_quantum=quantum)
    return hand


@pytest.mark.parametrize(
    ("quantum", "sends"),
    {
        "bursts of a quantum leave at the pacing rate": (3, [(0, 9, 3, 3), (2.999999, 9, 0, 3), (3, 9, 3, 6)]),
        "a quantum below a packet is a packet": (0, [(0, 9, 1, 1), (0.5, 9, 0, 1), (1, 9, 1, 2), (1.999999, 9, 0, 2)]),
        "a burst may leave in parts and is paid for after the last": (
            3,
            [(0, 1, 1, None), (0.5, 1, 1, None), (0.75, 9, 1, 3.75)],
        ),
    }.values(),
)
def test_packets_leave_at_the_pacing_rate(quantum: int, sends: list[tuple[float, int, int, float | None]]):
    """A send is a time, how many packets are asked for, how many leave, and when the next one may if pacing stops it.

    At this rate a packet takes 1 ms.
    """
    hand = paced_hand(8, quantum * PACKET, cwnd=100)
    for now, asked, left, next_ms in sends:
        assert sum(hand.sender.next_packet(int(now * MS)) is not None for _ in range(asked)) == left
        assert next_ms is None or hand.timer_ms == next_ms


def whole_hand(rtt_ms: float = 1.9, cwnd: int = 7, is_burst_whole: bool = True, **arguments: int) -> Hand:
    """A sender that has just sent two bursts of three packets, which take 1 ms."""
    hand = paced_hand(24, 3 * PACKET, rtt_ms=rtt_ms, cwnd=cwnd, **arguments)
    hand.decide(is_burst_whole=is_burst_whole)
    assert len(hand.send(0)) == len(hand.send(1)) == 3
    return hand


def test_a_whole_burst_waits_for_room_in_the_window():
    hand = whole_hand()
    assert hand.send(2) == [], "there is room for one packet, and the next ACK is near"
    hand.ack(2.1, 0)
    assert hand.send(2.1) == [], "there is room for two, less than a third of the window"
    hand.ack(2.2, 1)
    assert len(hand.send(2.2)) == 3


@pytest.mark.parametrize(
    ("hand", "now"),
    {
        "bursts may leave in parts": ({"is_burst_whole": False}, 2),
        "the next ACK is far": ({"rtt_ms": 10}, 2),
        "the last burst left long ago": ({}, 3.01),
        "there is no more to send": ({"size": 7 * PACKET}, 2),
    }.values(),
)
def test_a_burst_that_the_window_cuts_leaves_in_parts_where(hand: dict[str, float], now: float):
    assert len(whole_hand(**hand).send(now)) == 1


def test_a_third_of_the_window_is_room_for_a_burst():
    hand = whole_hand(cwnd=6)
    hand.ack(2.1, 0)
    assert hand.send(2.1) == []
    hand.ack(2.2, 1)
    assert len(hand.send(2.2)) == 2


def test_a_repair_does_not_wait_for_a_whole_burst():
    hand = whole_hand()
    hand.ack(2.1, (1, 3))
    assert hand.send(2.1, 1) == [(6, 0, PACKET, True)]


@pytest.mark.parametrize(
    ("quantum", "late", "next_ms"),
    {
        "what it took is won back": (1, 0.3, [2]),
        "up to half of each pause": (1, 1.2, [2.7, 3.2, 4, 5]),
        "but no more than ten packets": (1, 20, [21.5 + n / 2 for n in range(20)] + [32]),
        "once per burst": (3, 0.9, [6, 9]),
    }.values(),
)
def test_a_late_pacing_timer_costs_no_rate(quantum: int, late: float, next_ms: list[float]):
    """At this rate a packet takes 1 ms."""
    hand = paced_hand(8, quantum * PACKET, cwnd=100)
    hand.send(0)
    hand.send(quantum + late)
    for expected in next_ms:
        assert hand.timer_ms == pytest.approx(expected, abs=1e-5)
        hand.send(hand.timer_ms)


def test_what_the_window_held_up_is_not_won_back():
    hand = paced_hand(8, PACKET, cwnd=2, rtt_ms=10)
    hand.send(0)
    hand.send(1)
    assert hand.send(2) == []
    hand.ack(10, 0)
    hand.send(10)
    hand.ack(10.5, 1)
    hand.send(10.5)
    assert hand.timer_ms == 11


def test_a_burst_that_the_window_cuts_is_paid_for_first():
    hand = paced_hand(8, 3 * PACKET, cwnd=4, rtt_ms=10)
    assert len(hand.send(0)) == 3
    assert len(hand.send(3)) == 1
    assert hand.timer_ms == 3 + 10 + 20 + 40, "nothing waits for the pace: the window is full"
    hand.ack(3.5, (0, 1))
    assert hand.send(3.5) == []
    assert hand.timer_ms == 4
    assert len(hand.send(4)) == 2


def test_a_burst_that_ends_with_the_data_is_paid_for_first():
    hand = paced_hand(8, 10 * PACKET, cwnd=100, rtt_ms=2, size=5 * PACKET)
    hand.send(0, 5)
    assert hand.send(0) == [], "there is no more"
    hand.ack(2, 4)  # 0 and 1 are lost
    assert hand.send(2) == [(5, 0, PACKET, True)], "the first retransmission does not wait for the pace"
    assert hand.send(7.999) == [], "the second one waits for six packets"
    assert hand.send(8, 1) == [(6, 1, PACKET, True)]


def test_a_probe_does_not_wait_for_the_pace_and_is_paid_for():
    hand = paced_hand(8, 3 * PACKET, cwnd=3, rtt_ms=10)
    hand.send(0)
    now = hand.timer_ms
    hand.fire()
    hand.decide(cwnd=100 * PACKET)
    assert len(hand.send(now)) == 3, "the burst before it has been paid for long ago"
    assert hand.timer_ms == now + 3


def test_a_probe_adds_to_a_debt():
    hand = paced_hand(0.008, 3 * PACKET, cwnd=100, rtt_ms=10)  # 1 s a packet
    hand.send(0)
    hand.fire()
    assert len(hand.send(70)) == 1
    hand.ack(80, (0, 3))
    hand.send(80)
    assert hand.timer_ms == 70 + 4000


def test_the_slowest_pace_does_not_overflow():
    hand = paced_hand(0, 64 * PACKET, cwnd=100)
    hand.send(0)
    assert hand.timer_ms == 999
    hand.ack(10, (0, 63))
    assert hand.send(10) == []
    assert hand.timer_ms == 64 * PACKET * 8 * 1000  # at 1 bit/s


# Marks (ECN)


def test_marks_are_told_once_whatever_happens_to_acknowledgements():
    hand = Hand(cwnd=20, is_ecn_capable=True)
    hand.send(0)
    assert hand.ack(10, 0).bytes_marked == 0
    assert hand.ack(11, (0, 3), marked=2).bytes_marked == 2 * PACKET
    # The ACK of 4 to 7, with 3 marks in total, is lost: the next one has them too.
    assert hand.ack(13, (0, 9), marked=4).bytes_marked == 2 * PACKET
    # It came first; one that it has overtaken says nothing new, whether it acknowledges anything or not.
    assert hand.ack(15, (12, 13), (0, 9), marked=6).bytes_marked == 2 * PACKET
    assert hand.ack(15, (0, 11), marked=5).bytes_marked == 0
    before = len(hand.told.acks)
    hand.ack(15, (0, 11), marked=5)
    assert len(hand.told.acks) == before
    assert sum(ack.bytes_marked for ack in hand.told.acks) == hand.sender.counts()["marked_bytes"] == 6 * PACKET


def test_no_more_is_marked_than_acknowledged():
    hand = Hand(cwnd=20, is_ecn_capable=True)
    hand.send(0)
    hand.ack(10, 9)
    # 0 was marked lost, arrives after all, and has a mark: it was not acknowledged, so the mark waits.
    assert hand.ack(11, (9, 10), 0, marked=2).bytes_marked == PACKET
    assert hand.ack(12, (9, 11), 0, marked=2).bytes_marked == PACKET
    assert hand.ack(13, (9, 12), 0, marked=10**9).bytes_marked == PACKET, "a receiver can say anything"
    assert hand.ack(14, (9, 13), 0, marked=-(2**40)).bytes_marked == 0


def test_a_flow_that_is_not_ecn_capable_has_no_marks():
    hand = Hand()
    hand.send(0)
    assert hand.ack(10, (0, 3), marked=2).bytes_marked == 0
    assert hand.sender.counts()["marked_bytes"] == 0


def test_a_sample_has_the_marks_since_its_packet_was_sent():
    hand = Hand(cwnd=4, is_ecn_capable=True)
    hand.send(0)
    assert hand.ack(10, (0, 1), marked=1).sample.marked_since_send == PACKET
    hand.send(10)
    assert hand.ack(11, (0, 3), marked=3).sample.marked_since_send == 3 * PACKET
    assert hand.ack(20, (0, 5), marked=4).sample.marked_since_send == 3 * PACKET, "since 5 was sent"


# Finite flows, silence, the end


def test_a_lost_last_segment_is_repeated_with_its_size():
    hand = Hand(cwnd=3, rtt_ms=10, size=2500)
    hand.send(0)
    hand.ack(10, (0, 1))
    hand.fire()
    assert hand.send(100) == [(3, 2, 500, True)]
    # An RTT has passed since 2 left: it is lost, but nothing is missing.
    assert hand.ack(110, 3).bytes_lost == 500
    assert (hand.sender.is_all_delivered, hand.sender.in_flight, hand.states) == (True, 0, [])


def test_the_controller_hears_when_an_application_limited_flow_resumes():
    hand = Hand(cwnd=2)
    hand.decide(is_app_limited=True)
    hand.send(0)
    assert hand.told.restarts == [], "the beginning is no restart"
    hand.decide(is_app_limited=False)
    hand.ack(10, (0, 1))
    hand.send(20)
    assert hand.told.restarts == [], "it was not limited by the application"
    hand.told.decision.is_app_limited = True
    hand.ack(30, (2, 3))
    hand.send(50)
    assert hand.told.restarts == [50 * MS]
    hand.ack(60, 4)
    hand.send(60)
    assert hand.told.restarts == [50 * MS], "something was in flight"


def test_resuming_in_recovery_is_no_restart():
    hand = Hand(cwnd=2, rtt_ms=8)
    hand.send(0)
    hand.told.decision.is_app_limited = True
    hand.ack(8, 1)
    hand.fire(9)
    assert (hand.states, hand.sender.in_flight) == ([RECOVERY], 0)
    hand.send(9)
    assert hand.told.restarts == []


def test_a_stopped_sender_is_silent_and_still_counts_acknowledgements():
    hand = paced_hand(8, PACKET, cwnd=10)
    hand.send(0)
    hand.sender.stop()
    assert hand.sender.next_timer() is None
    assert hand.send(1) == []
    sent = hand.sender.counts()["sent_packets"]
    hand.ack(10, (0, sent - 1))
    assert hand.sender.counts()["delivered_bytes"] == sent * PACKET
    assert hand.sender.in_flight == 0
    hand.fire(2000)
    assert hand.send(2000) == []
    assert (hand.sender.counts()["sent_packets"], hand.sender.next_timer()) == (sent, None)


def test_a_flow_that_would_stop_at_the_end_of_time_never_stops():
    rates = ((0.5, 12.0), (1e300, 1.0))
    scenario = Scenario(duration_s=1, rate_schedule=rates, flows=(Flow(stop_s=1e300), Flow()))
    batch = _native.Batch(1, 2)
    batch.reset(0, _native.Scenario(scenario.to_dict()), 1)
    batch.step(np.array([10**9]))
    delivered = batch.flow_rows[0, :, FLOW_COLUMNS.index("delivered_packets")]
    assert batch.times_s[0] == 1
    assert all(delivered > 100)


# The receiver (RFC 5681, section 4.2)


class Got(NamedTuple):
    """Packets that arrive at a time in ms, as number (also the segment) or (number, segment), and what follows."""

    packets: list[int | tuple[int, int]]
    must_ack: list[bool]
    """Whether each must be acknowledged now."""
    ack: list[Range] | None = None
    """What is acknowledged then, if it is."""
    now: float = 0
    due: float | None = None
    """When the delayed acknowledgement is due."""
    counts: tuple[int, int, int] | None = None
    """Packets that have arrived, have been received, and came in order."""


NEWEST = [(n, n) for n in range(18, 2, -2)]


@pytest.mark.parametrize(
    "story",
    {
        "the first packet is acknowledged at once, and then every second one": [
            Got([0], [True], [(0, 0)]),
            Got([1, 2], [False, True], [(0, 2)], due=40),
            Got([3, 4], [False, True], [(0, 4)], due=40),
        ],
        "a single packet is acknowledged after 40 ms": [
            Got([0], [True], [(0, 0)]),
            Got([1], [False], [(0, 1)], now=7, due=47),
            Got([2], [False], now=60, due=100),
            Got([3], [True], [(0, 3)], now=61, due=100),
        ],
        "everything is acknowledged at once while something is missing": [
            Got([0, 1], [True, True], [(0, 1)]),
            *(Got([number], [True], [(3, number), (0, 1)]) for number in (3, 4, 5)),
            Got([(6, 2)], [True], [(3, 6), (0, 1)]),  # it fills the hole; number 2 never comes
            Got([(7, 6)], [False], due=40),
        ],
        "the oldest ranges are forgotten, but never the latest arrival": [
            Got([*range(0, 20, 2)], [True] * 10, NEWEST),
            Got([1], [True], [*NEWEST[:7], (1, 1)]),
            Got([7], [True], [*NEWEST[:5], (6, 8), (1, 1)]),
            Got([2], [True], [*NEWEST[:5], (6, 8), (1, 2)]),
            Got([15], [True], [(18, 18), (14, 16), (12, 12), (10, 10), (6, 8), (1, 2)]),
        ],
        "duplicates are acknowledged at once and count as arrived only": [
            Got([0, 1], [True, True], [(0, 1)]),
            Got([(2, 0), 0], [True, True], [(0, 2)]),  # its segment is old; its number too
            Got([(3, 5), (4, 5)], [True, True], counts=(6, 2, 2)),
        ],
        "what waits behind a hole is received when it closes, but did not come in order": [
            Got([0, 2, 3, 5], [True] * 4, counts=(4, 1, 1)),
            Got([(6, 1)], [True], counts=(5, 4, 2)),
            Got([(7, 4)], [True], counts=(6, 6, 3)),
        ],
    }.items(),
    ids=lambda story: story[0],
)
def test_the_receiver(story: tuple[str, list[Got]]):
    receiver = _testing.Receiver()
    for got in story[1]:
        pairs = [(p, p) if isinstance(p, int) else p for p in got.packets]
        must_ack = [receiver.on_packet(int(got.now * MS), number, segment, PACKET) for number, segment in pairs]
        assert must_ack == got.must_ack, got
        assert receiver.ack_due() == (None if got.due is None else got.due * MS), got
        if got.ack is not None:
            assert receiver.write_ack() == got.ack, got
            assert receiver.ack_due() is None
        if got.counts is not None:
            assert tuple(receiver.counts()[name] // PACKET for name in ("arrived", "received", "inorder")) == got.counts


def test_marks_are_counted_and_the_first_one_in_a_row_is_acknowledged_at_once():
    receiver = _testing.Receiver()
    marks = [False, False, False, True, True, True, False, True]
    must_ack = []
    for number, is_marked in enumerate(marks):
        must_ack.append(
            receiver.on_packet(number * MS, number=number, segment=number, bytes=PACKET, is_marked=is_marked)
        )
        assert receiver.counts()["marked"] == sum(marks[: number + 1]) * PACKET
        if must_ack[-1]:
            assert receiver.write_ack() == [(0, number)]
    # 0 is the first packet, 2 the second one since; 3 begins a run of marks, 5 is the second one since, 7 begins a run.
    assert must_ack == [True, False, True, True, False, True, False, True]


# Both ends, over a path that loses, delays and reorders in both directions


@dataclass
class Pipe:
    """A sender, a receiver and a path; each packet and ACK is lost with a probability, or as `fates` say."""

    sender: _testing.Sender
    seed: int
    loss: float
    jitter_ms: float
    fates: list[bool] = field(default_factory=list)  # whether the first packets arrive
    marks: float = 0.0  # the share of the packets that are marked
    now: int = 0
    segments: dict[int, int] = field(default_factory=dict)  # bytes of those that have arrived
    arrived: int = 0

    def run(self) -> None:
        rng = random.Random(self.seed)
        receiver = _testing.Receiver()
        events: list[tuple[int, int, object]] = []
        order = itertools.count()
        fates = iter(self.fates)

        def carry(what: object) -> None:
            if next(fates, rng.random() >= self.loss):
                delay = int((10 + rng.random() * self.jitter_ms) * MS)
                heapq.heappush(events, (self.now + delay, next(order), what))

        for _ in range(200_000):
            while (packet := self.sender.next_packet(self.now)) is not None:
                carry(packet)
            self.check(receiver)
            times = [events[0][0] if events else None, self.sender.next_timer(), receiver.ack_due()]
            due = [time for time in times if time is not None]
            if not due:
                break
            assert min(due) >= self.now
            self.now = min(due)
            if events and events[0][0] == self.now:
                what = heapq.heappop(events)[2]
                if isinstance(what, tuple):
                    number, segment, size, _ = what
                    self.segments[segment] = size
                    self.arrived += size
                    is_marked = self.marks > 0 and rng.random() < self.marks
                    if receiver.on_packet(self.now, number, segment, bytes=size, is_marked=is_marked):
                        carry([receiver.write_ack(), receiver.counts()["marked"]])
                else:
                    assert isinstance(what, list)
                    self.sender.on_ack(self.now, *what)
            elif receiver.ack_due() == self.now:
                carry([receiver.write_ack(), receiver.counts()["marked"]])
            else:
                self.sender.on_timer(self.now)
        else:
            raise AssertionError("it never ends")
        assert self.sender.in_flight == 0
        assert self.sender.is_all_delivered
        assert not receiver.has_hole

    def check(self, receiver: _testing.Receiver) -> None:
        """Check what holds at any time."""
        counts = self.sender.counts()
        assert self.sender.in_flight >= 0
        assert counts["sent_bytes"] == counts["delivered_bytes"] + counts["lost_bytes"] + self.sender.in_flight
        in_order = sum(self.segments[segment] for segment in itertools.takewhile(self.segments.get, itertools.count()))
        received = receiver.counts()
        assert (received["received"], received["arrived"]) == (in_order, self.arrived)
        assert received["inorder"] <= received["received"]
        assert counts["marked_bytes"] <= min(received["marked"], counts["delivered_bytes"])


def check_told(told: _testing.Recording, sender: _testing.Sender) -> None:
    """Check that the events of a controller are possible and add up."""
    counts, acks = sender.counts(), told.acks
    assert sum(ack.bytes_acked for ack in acks) == counts["delivered_bytes"]
    assert sum(ack.bytes_lost for ack in acks) <= counts["lost_bytes"]
    assert sum(ack.bytes_marked for ack in acks) == counts["marked_bytes"]
    least_rtt = math.inf
    delivered = 0
    for ack in acks:
        least_rtt = min(least_rtt, ack.rtt or math.inf)
        delivered += ack.bytes_acked
        assert ack.delivered == delivered
        assert ack.bytes_acked > 0
        assert 0 <= ack.bytes_marked <= ack.bytes_acked
        assert 0 <= ack.in_flight <= ack.prior_in_flight - ack.bytes_acked
        sample = ack.sample
        # Numbers are never ambiguous: no sample spans less than a round trip.
        assert sample.is_valid
        assert sample.interval >= least_rtt
        assert 0 < sample.delivered == ack.delivered - sample.prior_delivered
        assert sample.tx_in_flight > 0
        assert 0 <= sample.lost_since_send <= counts["lost_bytes"]
        assert ack.bytes_marked <= sample.marked_since_send <= sample.delivered
    for (earlier, _, _), (later, _, _) in itertools.pairwise(told.recoveries):
        assert later != earlier or later == LOSS
        assert (earlier, later) != (LOSS, RECOVERY), "it ends in between"


LOSSES = st.sampled_from([0.0, 0.01, 0.1, 0.5, 0.9])


@given(
    size=st.integers(1, 60 * PACKET),
    cwnd=st.integers(1, 30),
    loss=LOSSES,
    jitter_ms=st.sampled_from([0.0, 1.0, 30.0]),
    fates=st.lists(st.booleans(), max_size=40),
    quantum=st.sampled_from([0, 3000]),
    rate_mbps=st.sampled_from([None, 0.1, 50]),
    handshake_ms=st.sampled_from([0, 20]),
    marks=st.sampled_from([0.0, 0.1, 1.0]),
    seed=st.integers(0, 2**32 - 1),
)
@example(
    size=5000,
    cwnd=10,
    loss=0.0,
    jitter_ms=0.0,
    fates=[False] * 5 + [True, False, True],
    quantum=0,
    rate_mbps=None,
    handshake_ms=20,
    marks=0.0,
    seed=1,
)
@settings(max_examples=120, deadline=None, derandomize=True)
def test_all_bytes_arrive_once_and_in_order_over_any_path(
    size: int,
    cwnd: int,
    loss: float,
    jitter_ms: float,
    fates: list[bool],
    quantum: int,
    rate_mbps: float | None,
    handshake_ms: int,
    marks: float,
    seed: int,
):
    told = _testing.Recording()
    told.decision.cwnd = cwnd * PACKET
    if rate_mbps is not None:
        decision = told.decision
        decision.is_paced, decision.pacing_rate, decision.send_quantum = True, int(rate_mbps * 1e6), quantum
    sender = _testing.Sender(told, initial_rtt=handshake_ms * MS, size_bytes=size, is_ecn_capable=True)
    pipe = Pipe(sender, seed=seed, loss=loss, jitter_ms=jitter_ms, fates=fates, marks=marks)
    pipe.run()
    assert sum(pipe.segments.values()) == size
    check_told(told, sender)
