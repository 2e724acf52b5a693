"""BBRv2: bounds, the 2 % loss threshold, headroom, and the phases of a probe (docs/algorithms/bbr2.md)."""

from __future__ import annotations

import itertools
import math

import pytest
from ack_path import MS, PACKET, Hand, Path, make

from bbrgym._testing import Recovery

PROBE_BW, PROBE_RTT = 2, 3
UP, DOWN, CRUISE, REFILL = range(4)


class Rounds(Hand):
    """BBRv2 in ProbeBW on 10 Mbit/s and 40 ms (BDP 51 packets), with rounds made by hand from then on."""

    def __init__(self, until_phase: int, **parameters: float) -> None:
        super().__init__(make("bbr2", **parameters), 1500)
        self.until(until_phase)

    @property
    def phase(self) -> float:
        return self.metrics["cycle_index"]

    @property
    def cwnd(self) -> float:
        return self.controller.decision().cwnd / PACKET

    def round(self, in_flight: int = 45, lost: int = 0, tx_in_flight: int = 60, rate_mbps: float = 9.6) -> None:
        """Play a round of ten ACKs over 40 ms; the last one marks the lost packets, also in its sample."""
        prior = self.delivered
        for i in range(10):
            self.delivered += PACKET
            lost_now = lost if i == 9 else 0
            sample = {
                "delivery_rate": int(rate_mbps * 1e6),
                "delivered": 40 * PACKET,
                "prior_delivered": prior,
                "tx_in_flight": tx_in_flight * PACKET,
                "lost_since_send": lost_now * PACKET,
            }
            self.ack(
                41,
                after_ms=4,
                lost=lost_now,
                in_flight=in_flight,
                prior_in_flight=in_flight * PACKET,
                delivered=self.delivered,
                sample=sample,
            )

    def until(self, phase: int, limit: int = 400) -> int:
        """Play rounds until the phase begins, and return how many; little is in flight, so that Down ends at once."""
        for count in range(limit):
            if self.phase == phase:
                return count
            self.round()
        raise AssertionError(f"phase {phase} does not begin; the phase is {self.phase}")


def test_phases_follow_each_other_and_have_their_gains():
    seen = Path(make("bbr2")).watch(9000)
    in_probe_bw = seen.loc[seen["mode"] == PROBE_BW, ["cycle_index", "pacing_gain"]]
    phases = [phase for phase, _ in itertools.groupby(in_probe_bw.itertuples(index=False, name=None))]
    assert set(phases) == {(UP, 1.25), (DOWN, 0.75), (CRUISE, 1.0), (REFILL, 1.0)}
    order = {(phase, following) for (phase, _), (following, _) in itertools.pairwise(phases)}
    assert order <= {(DOWN, CRUISE), (CRUISE, REFILL), (REFILL, UP), (UP, DOWN)}


def test_on_a_large_bdp_probes_are_two_to_three_seconds_apart():
    waits = []
    for seed in range(5):
        seen = Path(make("bbr2", seed=seed), rtt_ms=80).watch(5000)  # BDP 100 packets: Reno's 63 rounds are 5 s
        begin, refill = (
            seen.loc[is_there, "now_ms"].iloc[0] / 1e3
            for is_there in (seen["mode"] == PROBE_BW, (seen["mode"] == PROBE_BW) & (seen["cycle_index"] == REFILL))
        )
        waits.append(refill - begin)
    assert all(1.95 <= wait <= 3.1 for wait in waits)
    assert max(waits) - min(waits) > 0.3, f"a random second: {waits}"


def test_on_a_small_bdp_it_probes_as_often_as_reno_would():
    rounds = Rounds(CRUISE, probe_wait_s=1000.0)
    rounds.until(UP)
    rounds.round(in_flight=80)  # 1.25 BDP in flight end the probe
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
    assert rounds.metrics["max_bandwidth_mbps"] == pytest.approx(9.62, rel=0.05), "a loss does not reduce the bandwidth"


def test_the_upper_bound_is_at_least_seven_tenths_of_the_target_and_grows_when_more_is_delivered():
    rounds = Rounds(UP)
    bdp = rounds.metrics["bdp_packets"]
    rounds.round(tx_in_flight=20, lost=3)
    assert rounds.metrics["inflight_hi_packets"] == pytest.approx(0.7 * (bdp + 2), abs=1)
    rounds.round(tx_in_flight=75)
    assert rounds.metrics["inflight_hi_packets"] == 75


def test_cruising_leaves_fifteen_per_cent_of_the_upper_bound():
    rounds = Rounds(UP)
    rounds.round(in_flight=60, tx_in_flight=60, lost=3)
    rounds.round(in_flight=60)
    assert rounds.phase == DOWN, "more is in flight than the bound less headroom"
    assert rounds.cwnd <= 60
    rounds.round(in_flight=50)
    assert rounds.phase == CRUISE
    assert rounds.cwnd <= math.ceil(0.85 * 60)


def test_a_loss_while_cruising_sets_the_lower_bounds_and_a_refill_clears_them():
    rounds = Rounds(CRUISE)
    window = rounds.cwnd
    rounds.round(lost=1, rate_mbps=3.0)
    rounds.round(rate_mbps=3.0)
    metrics = rounds.metrics
    # 0.7 of window and bandwidth, but not below what was just delivered (40 packets, 3 Mbit/s).
    assert metrics["inflight_lo_packets"] == pytest.approx(max(40, 0.7 * window), abs=1)
    assert metrics["bandwidth_lo_mbps"] == pytest.approx(0.7 * metrics["max_bandwidth_mbps"], rel=0.01)
    assert rounds.cwnd <= metrics["inflight_lo_packets"]
    rounds.until(REFILL)
    assert math.isnan(rounds.metrics["inflight_lo_packets"])
    assert math.isnan(rounds.metrics["bandwidth_lo_mbps"])


def test_the_lower_bounds_stay_above_what_is_delivered():
    rounds = Rounds(CRUISE)
    for _ in range(10):
        rounds.round(lost=1)
    assert rounds.metrics["inflight_lo_packets"] >= 40
    assert rounds.metrics["bandwidth_lo_mbps"] == pytest.approx(9.6, rel=0.01)


@pytest.mark.parametrize(("phase", "parameters"), [(UP, {}), (CRUISE, {"has_lower_bounds": 0})])
def test_losses_of_a_probe_do_not_set_the_lower_bounds_nor_does_any_without_the_option(
    phase: int, parameters: dict[str, float]
):
    rounds = Rounds(phase, **parameters)
    rounds.round(lost=1, rate_mbps=3.0)
    rounds.round(rate_mbps=3.0)
    assert math.isnan(rounds.metrics["inflight_lo_packets"])
    assert math.isnan(rounds.metrics["bandwidth_lo_mbps"])


def test_a_probe_stops_at_the_last_bound_and_repeats_if_nothing_was_lost():
    rounds = Rounds(UP)
    rounds.round(in_flight=60, tx_in_flight=60, lost=3)
    assert rounds.metrics["inflight_hi_packets"] == 60
    rounds.until(UP)
    rounds.round(in_flight=60)  # the amount of the last loss, below 1.25 BDP
    assert rounds.phase == DOWN
    rounds.round(in_flight=60)
    rounds.round(in_flight=60)
    assert rounds.phase in (REFILL, UP), "without a loss the next probe follows at once"


def test_startup_ends_on_many_losses_above_two_per_cent():
    # With a shallow buffer, Startup loses packets long before its bandwidth stops growing.
    bbr2 = make("bbr2")
    path = Path(bbr2, rate_mbps=20, rtt_ms=40, buffer_packets=10)
    path.run_until(1500)
    metrics = bbr2.metrics()
    assert metrics["is_full_pipe"] == 1
    assert not math.isnan(metrics["inflight_hi_packets"])


def test_probe_rtt_every_five_seconds_at_half_a_bdp():
    seen = Path(make("bbr2")).watch(8000)
    probing = seen[seen["mode"] == PROBE_RTT]
    assert 5000 < probing["now_ms"].iloc[0] < 5500
    assert (probing["cwnd"] / PACKET).between(24, 27).all()
    assert 200 <= probing["now_ms"].iloc[-1] - probing["now_ms"].iloc[0] < 400


def test_a_timeout_reduces_the_window_to_one_packet_until_recovery_ends():
    rounds = Rounds(CRUISE)
    before = rounds.cwnd
    rounds.hear(Recovery.LOSS, 0)
    assert rounds.cwnd == 1
    rounds.hear(Recovery.OPEN, 0)
    assert rounds.cwnd == before


def test_after_a_pause_probe_bw_paces_at_the_estimate() -> None:
    rounds = Rounds(UP)
    estimate = rounds.controller.decision().pacing_rate / rounds.metrics["pacing_gain"]
    assert rounds.metrics["pacing_gain"] == 1.25
    rounds.controller.on_restart(rounds.now + 1000 * MS)
    assert rounds.controller.decision().pacing_rate == pytest.approx(estimate, rel=1e-6)


def test_after_a_pause_probe_rtt_ends() -> None:
    rounds = Rounds(CRUISE)
    while rounds.metrics["mode"] != PROBE_RTT:
        rounds.round()
    rounds.round(in_flight=1)  # from here on it lasts 200 ms
    pacing_rate = rounds.controller.decision().pacing_rate
    rounds.controller.on_restart(rounds.now)
    assert rounds.metrics["mode"] == PROBE_RTT
    assert rounds.controller.decision().pacing_rate == pacing_rate
    rounds.controller.on_restart(rounds.now + 1000 * MS)
    assert rounds.metrics["mode"] == PROBE_BW
