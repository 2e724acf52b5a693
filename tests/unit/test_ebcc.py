"""eBCC: the rows of its Algorithm 1, and what the window does between and beside them (docs/algorithms/ebcc.md)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
from ack_path import MS, PACKET, Path

from bbrgym import _testing as cc

PROBE_BW, PROBE_RTT = 2, 3


@dataclass
class Acks:
    """ACKs by hand for a controller in ProbeBW on 10 Mbit/s and 40 ms, in a phase of gain 1 that does not end."""

    controller: cc.Controller
    now: int
    rate_mbps: float
    delivered: int = 10**9

    @property
    def window(self) -> int:
        """In packets."""
        return self.controller.decision().cwnd // PACKET

    @property
    def mode(self) -> float:
        return self.controller.metrics()["mode"]

    @property
    def min_rtt_ms(self) -> float:
        return self.controller.metrics()["min_rtt_ms"]

    @property
    def target(self) -> int:
        """BBR's window: two BDP, room for three packets, and an even number."""
        packets = math.ceil(2 * self.controller.metrics()["bdp_packets"]) + 3
        return packets + packets % 2

    def rtt_of_queue(self, packets: float) -> float:
        """The RTT in ms at which diff is so many packets: diff = cwnd (1 - p / T)."""
        return self.min_rtt_ms / (1 - packets / self.window)

    def ack(
        self,
        rtt_ms: float,
        lost: int = 0,
        in_flight: int = 80,
        ends_round: bool = False,
        after_ms: float = 0,
        sent_at: int = 0,
    ):
        """One packet acknowledged, sent when `sent_at` bytes had been; `ends_round`: after the last ACK."""
        self.now += int(after_ms * MS) + 1
        ack = cc.AckEvent()
        ack.now, ack.rtt = self.now, int(rtt_ms * MS)
        ack.bytes_acked, ack.bytes_lost = PACKET, lost * PACKET
        ack.in_flight = in_flight * PACKET
        ack.prior_in_flight = ack.in_flight + ack.bytes_acked
        ack.sample.is_valid = True
        ack.sample.prior_delivered = self.delivered if ends_round else sent_at
        ack.sample.delivery_rate = int(self.rate_mbps * 1e6)
        self.delivered += PACKET
        ack.delivered = self.delivered
        self.controller.on_ack(ack)

    def round(self, rtt_ms: float) -> int:
        """The ACK that ends a round, and the window that it leaves."""
        self.ack(rtt_ms, ends_round=True)
        return self.window

    def lose(self, rtt_ms: float, in_flight: int = 80):
        self.controller.on_recovery(cc.Recovery.RECOVERY, self.now, in_flight * PACKET)
        self.ack(rtt_ms, lost=1, in_flight=in_flight)

    def repair(self, rtt_ms: float):
        self.controller.on_recovery(cc.Recovery.OPEN, self.now, 80 * PACKET)
        self.ack(rtt_ms)


def settled(**parameters: float) -> Acks:
    """With a window of 106 packets, its target."""
    controller = cc.make("ebcc", parameters, PACKET, 10 * PACKET, 40 * MS, 1)
    path = Path(controller, rate_mbps=10, rtt_ms=40)
    path.run_until(3000)
    while controller.metrics()["pacing_gain"] != 1.0:
        path.run_until(path.now / MS + 1)
    metrics = controller.metrics()
    assert metrics["mode"] == PROBE_BW
    acks = Acks(controller, path.now, metrics["max_bandwidth_mbps"])
    acks.ack(acks.min_rtt_ms)
    assert acks.window == acks.target == 106
    return acks


def with_room(**parameters: float) -> Acks:
    """The bandwidth doubles: the target is far above the window."""
    acks = settled(**parameters)
    acks.rate_mbps *= 2
    acks.ack(acks.min_rtt_ms)
    assert (acks.window, acks.target) == (106, 208)
    return acks


def test_short_queue_no_loss_goes_half_the_way_to_the_limit_each_round():
    acks = with_room()
    windows = [acks.round(acks.min_rtt_ms) for _ in range(9)]
    assert windows == [157, 183, 196, 202, 205, 207, 208, 208, 208]


def test_between_rounds_the_window_holds():
    acks = with_room()
    for _ in range(50):
        acks.ack(acks.min_rtt_ms)
    assert acks.window == 106
    assert acks.round(acks.min_rtt_ms) == 157


def test_the_target_is_a_limit_at_once():
    acks = with_room()
    acks.round(acks.min_rtt_ms)
    acks.rate_mbps /= 2
    for _ in range(11):  # until the bandwidth filter has forgotten the higher rate
        acks.round(acks.min_rtt_ms)
    assert acks.target == 106
    assert acks.window == 106


def test_long_queue_no_loss_takes_the_mean_of_target_and_last_window_with_a_short_queue():
    acks = with_room()
    acks.round(acks.min_rtt_ms)  # lastCwnd = 106
    assert acks.round(acks.min_rtt_ms) == 183  # lastCwnd = 157
    long_queue_ms = 2 * acks.min_rtt_ms
    assert acks.round(long_queue_ms) == (208 + 157 + 1) // 2
    assert acks.round(long_queue_ms) == 183, "not nearer to the target while the queue is long"
    assert acks.round(acks.min_rtt_ms) == 196


def test_by_option_equation_7_takes_the_window_in_place_of_the_target():
    acks = with_room(is_eq7_operand_cwnd=1)
    acks.round(acks.min_rtt_ms)
    acks.round(acks.min_rtt_ms)
    long_queue_ms = 2 * acks.min_rtt_ms
    assert acks.round(long_queue_ms) == (183 + 157) // 2
    assert acks.round(long_queue_ms) == (170 + 157 + 1) // 2


def test_a_long_queue_before_any_short_one_takes_the_window_as_the_last():
    acks = with_room(queue_threshold_packets=0, is_eq7_operand_cwnd=1)  # no queue is shorter than 0 packets
    assert acks.round(acks.min_rtt_ms) == 106


@pytest.mark.parametrize(("queue_packets", "is_long"), [(29.9, False), (30.1, True)])
def test_the_threshold_is_thirty_packets(queue_packets: float, is_long: bool):
    acks = settled()
    acks.lose(acks.rtt_of_queue(queue_packets))
    assert acks.mode == (PROBE_RTT if is_long else PROBE_BW)


@pytest.mark.parametrize(("beta", "window"), [(0.5, 53), (0.8, 84)])
def test_long_queue_and_loss_go_to_probe_rtt_with_beta_of_the_window(beta: float, window: int):
    acks = settled(beta=beta)
    acks.lose(2 * acks.min_rtt_ms, in_flight=90)
    assert acks.mode == PROBE_RTT
    assert acks.window == window


def test_that_probe_rtt_lasts_200_ms_and_a_round_and_restores_the_window():
    acks = settled()
    acks.lose(2 * acks.min_rtt_ms)
    acks.repair(acks.min_rtt_ms)
    acks.ack(acks.min_rtt_ms, in_flight=54, after_ms=300)
    acks.ack(acks.min_rtt_ms, in_flight=53)  # from now on
    acks.ack(acks.min_rtt_ms, in_flight=53, after_ms=150, ends_round=True)
    assert (acks.mode, acks.window) == (PROBE_RTT, 53)
    acks.ack(acks.min_rtt_ms, in_flight=53, after_ms=51)
    assert (acks.mode, acks.window) == (PROBE_BW, 106)


def test_short_queue_and_loss_are_answered_as_bbr():
    acks = settled()
    acks.lose(acks.min_rtt_ms, in_flight=60)
    assert (acks.mode, acks.window) == (PROBE_BW, 61), "packet conservation"
    acks.ack(acks.min_rtt_ms, in_flight=60, ends_round=True)
    assert acks.window == 62, "grows by what is acknowledged"
    acks.repair(acks.min_rtt_ms)
    assert acks.window == 106


def test_a_loss_in_probe_rtt_with_a_long_queue_halves_again_once_a_round():
    acks = settled()
    acks.lose(2 * acks.min_rtt_ms, in_flight=90)
    acks.ack(4 * acks.min_rtt_ms, lost=1)
    assert acks.window == 53, "lost before the first reduction could help"
    acks.ack(4 * acks.min_rtt_ms, lost=1, ends_round=True)
    assert acks.window == 26
    acks.ack(100 * acks.min_rtt_ms, lost=1, ends_round=True)
    assert acks.window == 26, "26 packets are no queue of 30"
    assert acks.mode == PROBE_RTT


def test_a_loss_in_probe_rtt_with_a_short_queue_changes_nothing():
    acks = settled()
    acks.lose(2 * acks.min_rtt_ms, in_flight=90)
    acks.ack(acks.min_rtt_ms, lost=1, ends_round=True)
    assert acks.window == 53


def test_never_below_four_packets():
    acks = settled(queue_threshold_packets=0)
    acks.lose(2 * acks.min_rtt_ms)
    for _ in range(8):
        acks.ack(2 * acks.min_rtt_ms, lost=1, ends_round=True)
    assert acks.window == 4


def test_probe_rtt_for_min_rtt_keeps_four_packets():
    acks = settled()
    acks.ack(acks.min_rtt_ms, after_ms=10_500)
    assert (acks.mode, acks.window) == (PROBE_RTT, 4)


def test_after_a_loss_the_search_holds_a_round_at_its_window_before_it_goes_beyond():
    acks = with_room()
    acks.lose(acks.min_rtt_ms)
    acks.repair(acks.min_rtt_ms)
    assert acks.window == 106
    windows = [acks.round(acks.min_rtt_ms) for _ in range(3)]
    assert windows == [106, 157, 183]


def test_below_the_window_of_the_last_loss_the_search_ends_there():
    acks = with_room()
    acks.round(acks.min_rtt_ms)
    acks.round(acks.min_rtt_ms)
    acks.lose(acks.min_rtt_ms)  # at 183 packets
    acks.repair(acks.min_rtt_ms)
    # The bandwidth falls to a half and comes back: the window is below the mark.
    acks.rate_mbps /= 2
    while acks.target > 106:
        acks.ack(acks.min_rtt_ms, lost=1, ends_round=True)  # no round without loss: nothing is forgotten
    acks.ack(acks.min_rtt_ms, lost=1)
    acks.rate_mbps *= 2
    acks.ack(acks.min_rtt_ms)
    assert (acks.window, acks.target) == (106, 208)
    windows = [acks.round(acks.min_rtt_ms) for _ in range(10)]
    assert windows == [145, 164, 174, 179, 181, 182, 183, 183, 196, 202]


def test_what_was_sent_in_recovery_ends_no_round():
    acks = with_room()
    acks.lose(acks.min_rtt_ms)
    sent_in_recovery = acks.delivered
    acks.ack(acks.min_rtt_ms)
    acks.repair(acks.min_rtt_ms)
    acks.ack(acks.min_rtt_ms, sent_at=sent_in_recovery)
    # The window that came back begins its rounds only now: one at the mark of the loss, then beyond.
    windows = [acks.round(acks.min_rtt_ms) for _ in range(2)]
    assert windows == [106, 157]


def test_a_timeout_is_answered_as_bbr():
    acks = settled()
    acks.controller.on_recovery(cc.Recovery.LOSS, acks.now, 0)
    acks.ack(10 * acks.min_rtt_ms, lost=10, in_flight=0)
    assert (acks.mode, acks.window) == (PROBE_BW, 4)
    acks.repair(acks.min_rtt_ms)
    assert acks.window == 106


def test_nothing_is_different_before_probe_bw():
    windows: dict[str, list[int]] = {}
    for name in ("bbr", "ebcc"):
        controller = cc.make(name, {"pacing_margin": 0, "extra_acked_gain": 0}, PACKET, 10 * PACKET, 40 * MS, 1)
        path = Path(controller, rate_mbps=10, rtt_ms=40, buffer_packets=60)
        windows[name] = []
        while controller.metrics()["mode"] < PROBE_BW:
            windows[name].append(controller.decision().cwnd)
            path.run_until(path.now / MS + 1)
        assert path.lost > 0
    assert windows["bbr"] == windows["ebcc"]


@pytest.mark.parametrize("buffer_packets", [15, 50, 200])
def test_it_fills_a_path_whatever_is_lost(buffer_packets: int):
    controller = cc.make("ebcc", {}, PACKET, 10 * PACKET, 40 * MS, 1)
    path = Path(
        controller, rate_mbps=10, rtt_ms=40, buffer_packets=buffer_packets, lose=lambda number: number % 100 == 99
    )
    path.run_until(5_000)
    before = path.acks
    path.run_until(20_000)
    assert (path.acks - before) * PACKET * 8 / 15e6 > 0.9 * 10
