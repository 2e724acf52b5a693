"""BBRv2: bounds, the 2 % loss threshold, headroom, and the phases of a probe (docs/algorithms/bbr2.md)."""

import itertools
import math
from collections.abc import Callable
from functools import partial

import bbr_rounds
import pytest
from ack_path import MS, PACKET, Hand, Path, ack_event, make
from bbr_rounds import CRUISE, DOWN, PROBE_BW, PROBE_RTT, REFILL, UP, WITHOUT_PROBE_RTT

from bbrgym._testing import Recovery

Rounds = partial(bbr_rounds.Rounds, "bbr2")
both = pytest.mark.parametrize("name", ["bbr2", "bbr3"])
"""What BBRv3 has from BBRv2; test_bbr3.py has the rest."""


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
    rounds.ack(sample={"is_valid": False, "tx_in_flight": 100 * PACKET})
    assert rounds.metrics["inflight_hi_packets"] == 75, "an ACK without a sample says nothing"


def in_second_probe() -> bbr_rounds.Rounds:
    """Return it in the first round of Up, at an upper bound of 60 packets."""
    rounds = Rounds(UP, **WITHOUT_PROBE_RTT)
    rounds.round(in_flight=60, tx_in_flight=60, lost=3)
    rounds.until(UP)
    assert rounds.cwnd == rounds.metrics["inflight_hi_packets"] == 60
    return rounds


def test_while_the_window_limits_a_probe_the_bound_grows_by_one_two_four_packets_per_round():
    rounds = in_second_probe()
    bounds = [60.0]
    for _ in range(4):
        rounds.round(acks=round(rounds.cwnd))
        bounds.append(rounds.metrics["inflight_hi_packets"])
    # Up began with the round before.
    assert [after - before for before, after in itertools.pairwise(bounds)] == pytest.approx([2, 4, 8, 16], abs=1)


@pytest.mark.parametrize("is_limited", [lambda i: False, lambda i: i % 2 == 1])
def test_the_bound_grows_only_while_the_window_limits_all_of_a_probe(is_limited: Callable[[int], bool]):
    rounds = in_second_probe()
    for _ in range(4):
        rounds.round(acks=60, is_limited=is_limited)
    assert rounds.phase == UP
    assert rounds.metrics["inflight_hi_packets"] == 60


@both
def test_max_bandwidth_is_that_of_two_cycles(name: str):
    rounds = bbr_rounds.Rounds(name, CRUISE, **WITHOUT_PROBE_RTT)
    seen = []
    for _ in range(3):
        rounds.until(UP, rate_mbps=5, in_flight=20)
        seen.append(rounds.metrics["max_bandwidth_mbps"])
        rounds.until(DOWN, rate_mbps=5, in_flight=80)
    assert min(seen[:2]) > 9, "the last cycle still had samples from before"
    assert seen[2] == 5


def test_cruising_leaves_fifteen_per_cent_of_the_upper_bound():
    rounds = Rounds(UP)
    rounds.round(in_flight=60, tx_in_flight=60, lost=3)
    rounds.round(in_flight=60)
    assert rounds.phase == DOWN, "more is in flight than the bound less headroom"
    assert rounds.cwnd <= 60
    rounds.round(in_flight=50)
    assert rounds.phase == CRUISE
    assert rounds.cwnd <= math.ceil(0.85 * 60)


@both
def test_a_loss_while_cruising_sets_the_lower_bounds_and_a_refill_clears_them(name: str):
    rounds = bbr_rounds.Rounds(name, CRUISE)
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


@both
def test_the_lower_bounds_stay_above_the_most_that_a_sample_of_the_round_delivered(name: str):
    rounds = bbr_rounds.Rounds(name, CRUISE)
    middle = {"delivery_rate": int(9.0e6), "delivered": 90 * PACKET}
    rounds.round(rate_mbps=3.0, lost=1, middle=middle)
    rounds.round(rate_mbps=3.0)
    assert rounds.metrics["bandwidth_lo_mbps"] == 9.0
    assert rounds.metrics["inflight_lo_packets"] == 90


@pytest.mark.parametrize(
    ("name", "phase", "parameters"), [("bbr2", UP, {}), ("bbr3", UP, {}), ("bbr2", CRUISE, {"has_lower_bounds": 0})]
)
def test_losses_of_a_probe_do_not_set_the_lower_bounds_nor_does_any_without_the_option(
    name: str, phase: int, parameters: dict[str, float]
):
    rounds = bbr_rounds.Rounds(name, phase, **parameters)
    rounds.round(lost=1, rate_mbps=3.0)
    rounds.round(rate_mbps=3.0)
    assert math.isnan(rounds.metrics["inflight_lo_packets"])
    assert math.isnan(rounds.metrics["bandwidth_lo_mbps"])


@both
def test_a_probe_stops_at_the_last_bound_and_repeats_if_nothing_was_lost(name: str):
    rounds = bbr_rounds.Rounds(name, UP, **WITHOUT_PROBE_RTT)
    rounds.round(in_flight=60, tx_in_flight=60, lost=3)
    rounds.until(UP, in_flight=40, tx_in_flight=40)
    rounds.round(in_flight=60, tx_in_flight=50)
    assert rounds.phase == DOWN
    rounds.round(in_flight=50, tx_in_flight=50)
    assert rounds.phase in (REFILL, UP), "without a loss the next probe follows at once, without a cruise"
    rounds.until(UP, in_flight=50, tx_in_flight=50)
    rounds.round(in_flight=60, tx_in_flight=50)
    assert rounds.phase == UP, "and goes beyond"


def test_startup_ends_on_many_losses_above_two_per_cent():
    # With a shallow buffer, Startup loses packets long before its bandwidth stops growing.
    seen = Path(make("bbr2"), rate_mbps=20, rtt_ms=40, buffer_packets=10).watch(1500)
    end = seen[seen["is_full_pipe"] == 1].iloc[0]
    assert end["inflight_hi_packets"] == math.ceil(end["bdp_packets"]), "one BDP is the first upper bound"


def test_probe_rtt_every_five_seconds_at_half_a_bdp():
    seen = Path(make("bbr2")).watch(8000)
    probing = seen[seen["mode"] == PROBE_RTT]
    assert 5000 < probing["now_ms"].iloc[0] < 5500
    assert (probing["cwnd"] / PACKET).between(24, 27).all()
    assert 200 <= probing["now_ms"].iloc[-1] - probing["now_ms"].iloc[0] < 400


@both
def test_a_timeout_reduces_the_window_to_one_packet_until_recovery_ends(name: str):
    rounds = bbr_rounds.Rounds(name, CRUISE)
    before = rounds.cwnd
    rounds.hear(Recovery.LOSS, 0)
    assert rounds.cwnd == 1
    rounds.hear(Recovery.OPEN, 0)
    assert rounds.cwnd == before


def test_a_spurious_recovery_restores_the_window_and_the_bounds():
    rounds = Rounds(CRUISE)
    before = rounds.cwnd
    rounds.hear(Recovery.RECOVERY)
    for _ in range(3):
        rounds.round(lost=1, rate_mbps=3.0)
    assert rounds.metrics["inflight_lo_packets"] > 0
    assert rounds.metrics["bandwidth_lo_mbps"] > 0
    assert rounds.controller.on_spurious_recovery(), "it ends recovery"
    assert rounds.cwnd >= before
    assert math.isnan(rounds.metrics["inflight_lo_packets"])
    assert math.isnan(rounds.metrics["bandwidth_lo_mbps"])


def test_a_timeout_during_recovery_restores_the_window_from_before_both():
    rounds = Rounds(CRUISE)
    before = rounds.cwnd
    rounds.hear(Recovery.RECOVERY)
    rounds.round(rate_mbps=20)
    assert rounds.cwnd > before, "it grows with the bandwidth, also in recovery"
    rounds.hear(Recovery.LOSS, 0)
    rounds.hear(Recovery.OPEN, 0)
    assert rounds.cwnd == before


@pytest.mark.parametrize("phase", [CRUISE, UP])
@pytest.mark.parametrize(
    ("name", "parameters", "is_set"),
    [("bbr2", {}, True), ("bbr3", {"timeout_sets_bound": 1}, True), ("bbr3", {"timeout_sets_bound": 0}, False)],
)
def test_a_timeout_sets_the_lower_bound_to_the_window_before_it_except_while_probing(
    name: str, parameters: dict[str, float], is_set: bool, phase: int
):
    rounds = bbr_rounds.Rounds(name, phase, **parameters)
    expected = rounds.cwnd if is_set and phase == CRUISE else math.nan
    rounds.hear(Recovery.LOSS, 0)
    assert rounds.metrics["inflight_lo_packets"] == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(("name", "gain"), [("bbr", 2.8867), ("bbr2", 2.8867), ("bbr3", 2.77)])
def test_without_an_rtt_of_the_handshake_the_first_rtt_sets_the_pace_once(name: str, gain: float):
    controller = make(name, rtt_ms=0)
    margin = 0.99
    for now_ms, rtt_ms, over_s in [(1, 0, 0.001), (100, 100, 0.1), (101, 50, 0.1)]:
        controller.on_ack(ack_event(now_ms * MS, rtt_ms))
        rate = controller.decision().pacing_rate
        assert rate == pytest.approx(margin * gain * 10 * PACKET * 8 / over_s, rel=0.002)


@pytest.mark.parametrize("name", ["bbr", "bbr2", "bbr3"])
def test_what_is_in_flight_in_probe_rtt_and_at_its_end_counts_as_application_limited(name: str):
    """As in Linux and the draft: the rates of so few packets say nothing about the path."""
    seen = Path(make(name)).watch(12_000)
    is_probing = seen["mode"] == PROBE_RTT
    is_end = is_probing.shift(fill_value=False) & ~is_probing
    assert is_end.any()
    assert (seen["is_app_limited"] == (is_probing | is_end)).all()


@pytest.mark.parametrize("name", ["bbr", "bbr2"])
@pytest.mark.parametrize("is_restart", [True, False])
def test_a_pause_is_no_reason_for_probe_rtt(name: str, is_restart: bool):
    hand = Hand(make(name))
    if is_restart:
        hand.controller.on_restart(hand.now + 11_000 * MS)
    hand.ack(50, after_ms=11_000, sample={})
    assert hand.metrics["mode"] == (PROBE_BW if is_restart else PROBE_RTT)
    hand.ack(50, after_ms=1)
    assert hand.metrics["mode"] == (PROBE_BW if is_restart else PROBE_RTT), "the RTT after the pause is a new minimum"


@both
def test_after_a_pause_probe_bw_paces_at_the_estimate(name: str):
    rounds = bbr_rounds.Rounds(name, UP)
    estimate = rounds.controller.decision().pacing_rate / rounds.metrics["pacing_gain"]
    assert rounds.metrics["pacing_gain"] == 1.25
    rounds.controller.on_restart(rounds.now + 1000 * MS)
    assert rounds.controller.decision().pacing_rate == pytest.approx(estimate, rel=1e-6)


@both
def test_after_a_pause_probe_rtt_ends(name: str):
    rounds = bbr_rounds.Rounds(name, CRUISE)
    while rounds.metrics["mode"] != PROBE_RTT:
        rounds.round()
    rounds.round(in_flight=1)  # from here on it lasts 200 ms
    pacing_rate = rounds.controller.decision().pacing_rate
    rounds.controller.on_restart(rounds.now)
    assert rounds.metrics["mode"] == PROBE_RTT
    assert rounds.controller.decision().pacing_rate == pacing_rate
    rounds.controller.on_restart(rounds.now + 1000 * MS)
    assert rounds.metrics["mode"] == PROBE_BW
