"""Vegas: one step per round trip by the estimate of the queue (docs/algorithms/vegas.md)."""

import ack_path
import pytest
from ack_path import PACKET, make

from bbrgym._testing import Recovery

SLOW_START, AVOIDANCE = 4, 5
BASE_MS = 100.0


class Hand(ack_path.Hand):
    """Vegas with a BaseRTT of 100 ms, in slow start with this window, or after a loss in avoidance with `packets`."""

    def __init__(self, packets: int, mode: int = AVOIDANCE, **parameters: float) -> None:
        initial = packets if mode == SLOW_START else 2 * packets
        super().__init__(make("vegas", BASE_MS, initial, **parameters), time_ms=0)
        self.delivered = self.round_start = PACKET
        self.ack(BASE_MS, delivered=PACKET, sample={"prior_delivered": 0}, is_cwnd_limited=False)
        if mode == AVOIDANCE:
            self.hear(Recovery.RECOVERY)
            self.hear(Recovery.OPEN)
        assert (self.window, self.metrics["mode"]) == (packets, mode)

    def next_ack(self, rtt_ms: float, ends_round: bool = False, **fields: float) -> int:
        self.delivered += PACKET
        prior = self.round_start if ends_round else 0
        if ends_round:
            self.round_start = self.delivered
        return self.ack(rtt_ms, delivered=self.delivered, sample={"prior_delivered": prior}, **fields)

    def round(self, *rtts_ms: float, **fields: float) -> int:
        """Acknowledge a packet with each of these RTTs, the last of which ends the round; return the window."""
        for rtt_ms in rtts_ms[:-1]:
            self.next_ack(rtt_ms, **fields)
        return self.next_ack(rtts_ms[-1], ends_round=True, **fields)

    def rtt_of_queue(self, packets: float) -> float:
        """Return the RTT at which diff = cwnd (1 - base / RTT) is this number of packets."""
        return BASE_MS / (1 - packets / self.window)


@pytest.mark.parametrize(("queue", "step"), [(0, 1), (1.9, 1), (2.1, 0), (3.9, 0), (4.1, -1), (15, -1)])
def test_once_a_round_the_window_moves_by_a_packet_towards_two_to_four_in_the_queue(queue: float, step: int):
    hand = Hand(20)
    rtt_ms = hand.rtt_of_queue(queue)
    for _ in range(40):
        hand.next_ack(rtt_ms)
    assert hand.window == 20, "between rounds the window does not change"
    assert hand.round(rtt_ms) == 20 + step


def test_alpha_and_beta_are_parameters():
    assert Hand(20, alpha_packets=1, beta_packets=3).round(*[Hand(20).rtt_of_queue(1.5)] * 4) == 20
    assert Hand(20, alpha_packets=1, beta_packets=3).round(*[Hand(20).rtt_of_queue(3.5)] * 4) == 19
    with pytest.raises(ValueError, match="alpha_packets must be <= beta_packets, got 5 and 4"):
        make("vegas", alpha_packets=5)


def test_the_smallest_rtt_of_the_round_counts():
    hand = Hand(20)
    assert hand.round(200, BASE_MS, 200, 200) == 21, "the others may be of delayed ACKs"
    assert hand.round(200, 200, 200, 200) == 20


def test_with_fewer_than_three_samples_it_grows_as_reno():
    hand = Hand(20)
    assert hand.round(200, 200) == 21
    assert hand.round(200, 200, 200) == 20


def test_slow_start_doubles_until_one_packet_is_queued_and_leaves_what_the_path_holds():
    hand = Hand(10, SLOW_START)
    assert hand.round(*[BASE_MS] * 10) == 20
    assert hand.round(*[hand.rtt_of_queue(0.4)] * 20) == 40, "0.8 packets of 40 are queued"
    assert hand.round(*[125.0] * 20) == 59 * 100 // 125 + 1, "before the last ACK's growth"
    assert hand.metrics["mode"] == AVOIDANCE


@pytest.mark.parametrize(("gamma_packets", "mode"), [(6.0, SLOW_START), (5.9, AVOIDANCE)])
def test_slow_start_ends_with_more_than_gamma_packets_in_the_queue(gamma_packets: float, mode: int):
    hand = Hand(10, SLOW_START, gamma_packets=gamma_packets)
    hand.round(*[2 * BASE_MS] * 3)
    assert hand.metrics["mode"] == mode, "half of 12 packets are queued, before the last ACK's growth"


def test_a_window_that_does_not_limit_the_flow_shrinks_but_does_not_grow():
    hand = Hand(20)
    assert hand.round(*[BASE_MS] * 4, is_cwnd_limited=False) == 20
    assert hand.round(*[200.0] * 4, is_cwnd_limited=False) == 19


def test_rounds_of_recovery_do_not_count():
    hand = Hand(20)
    hand.next_ack(BASE_MS)
    hand.hear(Recovery.RECOVERY)
    sent_in_recovery = hand.delivered
    hand.next_ack(BASE_MS, in_flight=15)
    hand.hear(Recovery.OPEN)
    assert hand.window == 10
    hand.round_start = sent_in_recovery
    assert hand.round(200, 200, 200) == 10, "sent in recovery: ends no round"
    assert hand.round(200, 200, 200) == 9, "the RTT before the loss is forgotten"


@pytest.mark.parametrize(("packets", "window"), [(20, 10), (3, 2)])
def test_a_loss_halves_the_window_down_to_two_packets(packets: int, window: int):
    hand = Hand(packets)
    hand.hear(Recovery.RECOVERY)
    hand.hear(Recovery.OPEN)
    assert (hand.window, hand.metrics["ssthresh_packets"]) == (window, window)


def test_the_window_stays_at_two_packets_however_long_the_queue():
    hand = Hand(3, alpha_packets=1, beta_packets=1)
    assert [hand.round(*[1000.0] * 4) for _ in range(3)] == [2, 2, 2]


def test_a_pause_forgets_the_base_rtt():
    hand = Hand(20)
    assert hand.metrics["lowest_rtt_ms"] == BASE_MS
    hand.controller.on_restart(hand.now)
    assert hand.round(*[200.0] * 4) == 21
    assert hand.metrics["lowest_rtt_ms"] == 200
