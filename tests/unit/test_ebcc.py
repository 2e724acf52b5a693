"""eBCC: the rows of its Algorithm 1, and the window between and outside them (docs/algorithms/ebcc.md)."""

import math

import pytest
from ack_path import MS, PACKET, Hand, Path, make

from bbrgym._testing import Recovery

PROBE_BW, PROBE_RTT = 2, 3


class Acks(Hand):
    """eBCC in ProbeBW with a window of 106 packets, its target, in a phase of gain 1 that does not end."""

    def __init__(self, **parameters: float) -> None:
        super().__init__(make("ebcc", **parameters))
        while self.metrics["pacing_gain"] != 1.0:
            self.path.run_until(self.path.now / MS + 1)
        self.now = self.path.now
        self.rate_mbps, self.min_rtt_ms = self.metrics["max_bandwidth_mbps"], self.metrics["min_rtt_ms"]
        self.ack(self.min_rtt_ms)
        assert (self.mode, self.window, self.target) == (PROBE_BW, 106, 106)

    @property
    def mode(self) -> float:
        return self.metrics["mode"]

    @property
    def target(self) -> int:
        """BBR's window in packets: two BDP and room for three packets, rounded up to an even number."""
        packets = math.ceil(2 * self.metrics["bdp_packets"]) + 3
        return packets + packets % 2

    def rtt_of_queue(self, packets: float) -> float:
        """Return the RTT in ms at which diff = cwnd (1 - p / T) is this number of packets."""
        return self.min_rtt_ms / (1 - packets / self.window)

    def ack(
        self,
        rtt_ms: float,
        lost: int = 0,
        in_flight: int = 80,
        ends_round: bool = False,
        after_ms: float = 0,
        sent_at: int = 0,
        **fields: float,
    ) -> int:
        """Acknowledge a packet sent when `sent_at` bytes were delivered, or (`ends_round`) after the last ACK."""
        sample = {
            "prior_delivered": self.delivered if ends_round else sent_at,
            "delivery_rate": int(self.rate_mbps * 1e6),
        }
        self.delivered += PACKET
        fields |= {"delivered": self.delivered}
        return super().ack(rtt_ms, after_ms, lost=lost, in_flight=in_flight, sample=sample, **fields)

    def round(self, rtt_ms: float) -> int:
        """Send the ACK that ends a round and return the window after it."""
        return self.ack(rtt_ms, ends_round=True)

    def lose(self, rtt_ms: float, in_flight: int = 80) -> None:
        self.hear(Recovery.RECOVERY, in_flight)
        self.ack(rtt_ms, lost=1, in_flight=in_flight)

    def repair(self, rtt_ms: float) -> None:
        self.hear(Recovery.OPEN, 80)
        self.ack(rtt_ms)


def with_room(**parameters: float) -> Acks:
    """Return it after the bandwidth has doubled: the target is far above the window."""
    acks = Acks(**parameters)
    acks.rate_mbps *= 2
    acks.ack(acks.min_rtt_ms)
    assert (acks.window, acks.target) == (106, 208)
    return acks


def test_with_a_short_queue_and_no_loss_the_window_goes_half_the_way_to_the_limit_each_round():
    acks = with_room()
    for _ in range(50):
        acks.ack(acks.min_rtt_ms)
    assert acks.window == 106, "between rounds the window does not change"
    windows = [acks.round(acks.min_rtt_ms) for _ in range(9)]
    assert windows == [157, 183, 196, 202, 205, 207, 208, 208, 208]
    acks.rate_mbps /= 2
    for _ in range(11):  # until the bandwidth filter forgets the higher rate
        acks.round(acks.min_rtt_ms)
    assert (acks.window, acks.target) == (106, 106), "the target limits the window at once"


def test_with_a_long_queue_and_no_loss_the_window_is_the_mean_of_target_and_last_window_with_a_short_queue():
    acks = with_room()
    acks.round(acks.min_rtt_ms)  # lastCwnd = 106
    assert acks.round(acks.min_rtt_ms) == 183  # lastCwnd = 157
    long_queue_ms = 2 * acks.min_rtt_ms
    assert acks.round(long_queue_ms) == (208 + 157 + 1) // 2
    assert acks.round(long_queue_ms) == 183, "no step towards the target while the queue is long"
    assert acks.round(acks.min_rtt_ms) == 196


def test_by_option_equation_7_uses_the_window_instead_of_the_target():
    acks = with_room(is_eq7_operand_cwnd=1)
    acks.round(acks.min_rtt_ms)
    acks.round(acks.min_rtt_ms)
    long_queue_ms = 2 * acks.min_rtt_ms
    assert acks.round(long_queue_ms) == (183 + 157) // 2
    assert acks.round(long_queue_ms) == (170 + 157 + 1) // 2


@pytest.mark.parametrize(("queue_packets", "is_long"), [(29.9, False), (30.1, True)])
def test_the_threshold_is_thirty_packets(queue_packets: float, is_long: bool):
    acks = Acks()
    acks.lose(acks.rtt_of_queue(queue_packets))
    assert acks.mode == (PROBE_RTT if is_long else PROBE_BW)


@pytest.mark.parametrize(("beta", "window"), [(0.5, 53), (0.8, 84)])
def test_a_loss_with_a_long_queue_leads_to_probe_rtt_with_beta_of_the_window(beta: float, window: int):
    acks = Acks(beta=beta)
    acks.lose(2 * acks.min_rtt_ms, in_flight=90)
    assert acks.mode == PROBE_RTT
    assert acks.window == window


def test_that_probe_rtt_lasts_200_ms_and_a_round_and_restores_the_window():
    acks = Acks()
    acks.lose(2 * acks.min_rtt_ms)
    acks.repair(acks.min_rtt_ms)
    acks.ack(acks.min_rtt_ms, in_flight=54, after_ms=300)
    acks.ack(acks.min_rtt_ms, in_flight=53)  # the 200 ms begin
    acks.ack(acks.min_rtt_ms, in_flight=53, after_ms=150, ends_round=True)
    assert (acks.mode, acks.window) == (PROBE_RTT, 53)
    acks.ack(acks.min_rtt_ms, in_flight=53, after_ms=51)
    assert (acks.mode, acks.window) == (PROBE_BW, 106)


def test_a_loss_with_a_short_queue_is_handled_as_in_bbr():
    acks = Acks()
    acks.lose(acks.min_rtt_ms, in_flight=60)
    assert (acks.mode, acks.window) == (PROBE_BW, 61), "packet conservation"
    acks.ack(acks.min_rtt_ms, in_flight=60, ends_round=True)
    assert acks.window == 62, "grows by the acknowledged packet"
    acks.repair(acks.min_rtt_ms)
    assert acks.window == 106


def test_a_loss_in_probe_rtt_halves_again_once_per_round_if_the_queue_is_long():
    acks = Acks()
    acks.lose(2 * acks.min_rtt_ms, in_flight=90)
    acks.ack(4 * acks.min_rtt_ms, lost=1)
    assert acks.window == 53, "lost before the first reduction took effect"
    acks.ack(acks.min_rtt_ms, lost=1, ends_round=True)
    assert acks.window == 53, "a short queue: nothing changes"
    acks.ack(4 * acks.min_rtt_ms, lost=1, ends_round=True)
    assert acks.window == 26
    acks.ack(100 * acks.min_rtt_ms, lost=1, ends_round=True)
    assert acks.window == 26, "a window of 26 packets cannot have 30 in the queue"
    assert acks.mode == PROBE_RTT


def test_probe_rtt_for_min_rtt_keeps_four_packets():
    acks = Acks()
    acks.ack(acks.min_rtt_ms, after_ms=10_500)
    assert (acks.mode, acks.window) == (PROBE_RTT, 4)


def test_after_a_loss_the_window_stays_there_for_a_round_before_it_grows():
    acks = with_room()
    acks.lose(acks.min_rtt_ms)
    acks.repair(acks.min_rtt_ms)
    assert acks.window == 106
    windows = [acks.round(acks.min_rtt_ms) for _ in range(3)]
    assert windows == [106, 157, 183]


def test_below_the_window_of_the_last_loss_the_search_ends_at_it():
    acks = with_room()
    acks.round(acks.min_rtt_ms)
    acks.round(acks.min_rtt_ms)
    acks.lose(acks.min_rtt_ms)  # at 183 packets
    acks.repair(acks.min_rtt_ms)
    # The bandwidth halves and recovers: the window is below that of the loss.
    acks.rate_mbps /= 2
    while acks.target > 106:
        acks.ack(acks.min_rtt_ms, lost=1, ends_round=True)  # with a loss in each round nothing is forgotten
    acks.ack(acks.min_rtt_ms, lost=1)
    acks.rate_mbps *= 2
    acks.ack(acks.min_rtt_ms)
    assert (acks.window, acks.target) == (106, 208)
    windows = [acks.round(acks.min_rtt_ms) for _ in range(10)]
    assert windows == [145, 164, 174, 179, 181, 182, 183, 183, 196, 202]


def test_packets_sent_in_recovery_end_no_round():
    acks = with_room()
    acks.lose(acks.min_rtt_ms)
    sent_in_recovery = acks.delivered
    acks.ack(acks.min_rtt_ms)
    acks.repair(acks.min_rtt_ms)
    acks.ack(acks.min_rtt_ms, sent_at=sent_in_recovery)
    # Rounds count from the restored window on: one at the window of the loss, then beyond.
    windows = [acks.round(acks.min_rtt_ms) for _ in range(2)]
    assert windows == [106, 157]


@pytest.mark.parametrize("lost", [0, 1])
def test_a_round_begins_again_with_any_loss(lost: int):
    acks = with_room()
    assert acks.round(acks.min_rtt_ms) == 157
    sent_in_round = acks.delivered
    acks.ack(acks.min_rtt_ms, bytes_lost=lost)
    before = acks.window
    assert (acks.ack(acks.min_rtt_ms, sent_at=sent_in_round) > before + 1) is (lost == 0)


def test_before_probe_bw_it_is_bbr():
    windows: dict[str, list[int]] = {}
    for name in ("bbr", "ebcc"):
        controller = make(name, pacing_margin=0, extra_acked_gain=0)
        path = Path(controller, buffer_packets=60)
        windows[name] = []
        while controller.metrics()["mode"] < PROBE_BW:
            windows[name].append(controller.decision().cwnd)
            path.run_until(path.now / MS + 1)
        assert path.lost > 0
    assert windows["bbr"] == windows["ebcc"]
