"""BBRv2: its bounds, the 2 % loss ceiling, headroom, and the phases of its probes (docs/algorithms/bbr2.md)."""

from __future__ import annotations

import itertools
import math

import pytest
from ack_path import MS, PACKET, Path

from bbrgym import _testing as cc

PROBE_BW, PROBE_RTT = 2, 3
UP, DOWN, CRUISE, REFILL = range(4)


def make(seed: int = 1, **parameters: float) -> cc.Controller:
    return cc.make("bbr2", parameters, PACKET, 10 * PACKET, 40 * MS, seed)


class Rounds:
    """A BBRv2 sender in ProbeBW on 10 Mbit/s and 40 ms (BDP 51 packets), whose rounds are then played by hand."""

    def __init__(self, until_phase: int, seed: int = 1, **parameters: float) -> None:
        self.controller = make(seed, **parameters)
        path = Path(self.controller, rate_mbps=10, rtt_ms=40)
        path.run_until(1500)
        self.now, self.delivered = path.now, 10**9
        self.until(until_phase)

    @property
    def metrics(self) -> dict[str, float]:
        return self.controller.metrics()

    @property
    def phase(self) -> float:
        return self.metrics["cycle_index"]

    @property
    def cwnd(self) -> float:
        return self.controller.decision().cwnd / PACKET

    def round(self, in_flight: int = 45, lost: int = 0, tx_in_flight: int = 60, rate_mbps: float = 9.6) -> None:
        """One round of ten ACKs over 40 ms; the losses come on its last ACK, whose sample knows of them."""
        prior = self.delivered
        for i in range(10):
            self.now += 4 * MS
            self.delivered += PACKET
            ack = cc.AckEvent()
            ack.now, ack.rtt, ack.bytes_acked = self.now, 41 * MS, PACKET
            ack.delivered, ack.in_flight, ack.prior_in_flight = self.delivered, in_flight * PACKET, in_flight * PACKET
            is_last = i == 9
            ack.bytes_lost = lost * PACKET if is_last else 0
            ack.sample.is_valid, ack.sample.delivery_rate = True, int(rate_mbps * 1e6)
            ack.sample.delivered, ack.sample.prior_delivered = 40 * PACKET, prior
            ack.sample.tx_in_flight = tx_in_flight * PACKET
            ack.sample.lost_since_send = ack.bytes_lost
            self.controller.on_ack(ack)

    def until(self, phase: int, limit: int = 400) -> int:
        """Rounds until the phase begins; little is in flight, so that Down ends at once."""
        for count in range(limit):
            if self.phase == phase:
                return count
            self.round()
        raise AssertionError(f"phase {phase} does not come; it is {self.phase}")


def test_phases_follow_each_other_and_have_their_gains():
    bbr2 = make()
    path = Path(bbr2, rate_mbps=10, rtt_ms=40)
    seen: list[tuple[int, float]] = []

    def note(ack: cc.AckEvent) -> None:
        metrics = bbr2.metrics()
        if metrics["mode"] == PROBE_BW:
            phase = (int(metrics["cycle_index"]), metrics["pacing_gain"])
            if not seen or seen[-1] != phase:
                seen.append(phase)

    path.on_ack = note
    path.run_until(9000)
    gains = dict(seen)
    assert gains == {UP: 1.25, DOWN: 0.75, CRUISE: 1.0, REFILL: 1.0}
    order = [phase for phase, _ in seen]
    for phase, following in itertools.pairwise(order):
        assert (phase, following) in {(DOWN, CRUISE), (CRUISE, REFILL), (REFILL, UP), (UP, DOWN)}


def test_a_probe_comes_two_to_three_seconds_after_the_last_on_a_large_bdp():
    waits = []
    for seed in range(12):
        bbr2 = make(seed)
        path = Path(bbr2, rate_mbps=40, rtt_ms=80)  # BDP 400 packets: Reno's 63 rounds are 5 s
        begin = refill = None
        while refill is None:
            path.run_until(path.now / MS + 20)
            metrics = bbr2.metrics()
            if metrics["mode"] == PROBE_BW and begin is None:
                begin = path.now / 1e9
            if metrics["cycle_index"] == REFILL:
                refill = path.now / 1e9
        waits.append(refill - begin)
    print(waits)
    assert all(1.95 <= wait <= 3.1 for wait in waits)
    assert max(waits) - min(waits) > 0.3, "the random second"


def test_on_a_small_bdp_it_probes_as_often_as_reno_would():
    rounds = Rounds(CRUISE, probe_wait_s=1000.0)
    rounds.until(UP)
    rounds.round(in_flight=80)  # 1.25 BDP are in flight: the probe is over
    assert rounds.phase == DOWN
    assert 45 <= rounds.until(REFILL) <= 55, "as many rounds as packets in flight"


def test_a_probe_that_loses_more_than_two_per_cent_sets_the_upper_bound():
    rounds = Rounds(UP)
    assert math.isnan(rounds.metrics["inflight_hi_packets"])
    rounds.round(in_flight=60, tx_in_flight=100, lost=2)  # exactly 2 %: not too high
    assert math.isnan(rounds.metrics["inflight_hi_packets"])
    assert rounds.phase == UP
    rounds.round(in_flight=60, tx_in_flight=100, lost=3)
    assert rounds.metrics["inflight_hi_packets"] == 100
    assert rounds.phase == DOWN
    assert rounds.metrics["max_bandwidth_mbps"] == pytest.approx(9.62, rel=0.05), "no loss takes bandwidth"


def test_the_upper_bound_is_at_least_seven_tenths_of_what_should_be_in_flight():
    rounds = Rounds(UP)
    bdp = rounds.metrics["bdp_packets"]
    rounds.round(tx_in_flight=20, lost=3)
    assert rounds.metrics["inflight_hi_packets"] == pytest.approx(0.7 * (bdp + 2), abs=1)


def test_cruising_leaves_fifteen_per_cent_of_the_upper_bound():
    rounds = Rounds(UP)
    rounds.round(in_flight=60, tx_in_flight=60, lost=3)
    rounds.round(in_flight=60)
    assert rounds.phase == DOWN, "more than the bound with headroom is in flight"
    assert rounds.cwnd <= 60
    rounds.round(in_flight=50)
    assert rounds.phase == CRUISE
    assert rounds.cwnd <= math.ceil(0.85 * 60)


def test_a_loss_while_cruising_sets_the_lower_bounds_and_a_refill_forgets_them():
    rounds = Rounds(CRUISE)
    window = rounds.cwnd
    rounds.round(lost=1, rate_mbps=3.0)
    rounds.round(rate_mbps=3.0)
    metrics = rounds.metrics
    # 0.7 of the window, of the bandwidth: but never below what was just delivered (40 packets, 3 Mbit/s)
    assert metrics["inflight_lo_packets"] == pytest.approx(max(40, 0.7 * window), abs=1)
    assert metrics["bandwidth_lo_mbps"] == pytest.approx(0.7 * metrics["max_bandwidth_mbps"], rel=0.01)
    assert rounds.cwnd <= metrics["inflight_lo_packets"]
    rounds.until(REFILL)
    assert math.isnan(rounds.metrics["inflight_lo_packets"])
    assert math.isnan(rounds.metrics["bandwidth_lo_mbps"])


def test_the_lower_bounds_can_be_turned_off():
    rounds = Rounds(CRUISE, has_lower_bounds=0)
    rounds.round(lost=1, rate_mbps=3.0)
    rounds.round(rate_mbps=3.0)
    assert math.isnan(rounds.metrics["inflight_lo_packets"])
    assert math.isnan(rounds.metrics["bandwidth_lo_mbps"])


def test_the_lower_bounds_do_not_fall_below_what_is_delivered():
    rounds = Rounds(CRUISE)
    for _ in range(10):
        rounds.round(lost=1)
    assert rounds.metrics["inflight_lo_packets"] >= 40
    assert rounds.metrics["bandwidth_lo_mbps"] == pytest.approx(9.6, rel=0.01)


def test_losses_of_a_probe_do_not_set_the_lower_bounds():
    rounds = Rounds(UP)
    rounds.round(lost=1)
    rounds.round()
    assert math.isnan(rounds.metrics["inflight_lo_packets"])


def test_the_upper_bound_grows_when_more_went_through():
    rounds = Rounds(UP)
    rounds.round(tx_in_flight=60, lost=3)
    assert rounds.metrics["inflight_hi_packets"] == 60
    rounds.round(tx_in_flight=75)
    assert rounds.metrics["inflight_hi_packets"] == 75


def test_a_probe_stops_at_the_bound_of_the_last_one_and_is_tried_again_if_nothing_was_lost():
    rounds = Rounds(UP)
    rounds.round(in_flight=60, tx_in_flight=60, lost=3)
    assert rounds.metrics["inflight_hi_packets"] == 60
    rounds.until(UP)
    rounds.round(in_flight=60)  # as much as lost last time, and less than 1.25 BDP
    assert rounds.phase == DOWN
    rounds.round(in_flight=60)
    rounds.round(in_flight=60)
    assert rounds.phase in (REFILL, UP), "no loss came back: no waiting for two seconds"


def test_startup_ends_on_many_losses_above_two_per_cent():
    # With a shallow buffer Startup loses long before its bandwidth stops growing.
    bbr2 = make()
    path = Path(bbr2, rate_mbps=20, rtt_ms=40, buffer_packets=10)
    path.run_until(1500)
    metrics = bbr2.metrics()
    assert metrics["is_full_pipe"] == 1
    assert not math.isnan(metrics["inflight_hi_packets"])


def test_probe_rtt_every_five_seconds_at_half_a_bdp():
    bbr2 = make()
    path = Path(bbr2, rate_mbps=10, rtt_ms=40)
    windows: list[tuple[float, float]] = []

    def note(ack: cc.AckEvent) -> None:
        if bbr2.metrics()["mode"] == PROBE_RTT:
            windows.append((ack.now / MS, bbr2.decision().cwnd / PACKET))

    path.on_ack = note
    path.run_until(8000)
    assert 5000 < windows[0][0] < 5500
    assert all(24 <= window <= 27 for _, window in windows)
    assert 200 <= windows[-1][0] - windows[0][0] < 400


def test_a_timeout_restarts_from_one_packet_and_comes_back():
    rounds = Rounds(CRUISE)
    before = rounds.cwnd
    rounds.controller.on_recovery(cc.Recovery.LOSS, rounds.now, 0)
    assert rounds.cwnd == 1
    rounds.controller.on_recovery(cc.Recovery.OPEN, rounds.now, 0)
    assert rounds.cwnd == before
