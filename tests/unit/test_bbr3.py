"""BBRv3: gains, bounds, cautious probes, ECN, and Linux's way where it differs (docs/algorithms/bbr3.md).

test_bbr3_cases.py has the draft's own test cases.
"""

import itertools
import math
from functools import partial

import bbr_rounds
import pytest
from ack_path import PACKET, Path, make
from bbr_rounds import CRUISE, DOWN, DRAIN, PROBE_BW, PROBE_RTT, REFILL, STARTUP, UP, WITHOUT_PROBE_RTT

from bbrgym._testing import Recovery

Rounds = partial(bbr_rounds.Rounds, "bbr3")


def cruise(**parameters: float) -> bbr_rounds.Rounds:
    """Return it in the first round of Cruise."""
    rounds = Rounds(UP, **parameters)
    rounds.until(CRUISE, in_flight=40)
    return rounds


def test_phases_follow_each_other_and_have_their_gains() -> None:
    seen = Path(make("bbr3")).watch(4500)
    columns = ["mode", "cycle_index", "pacing_gain", "cwnd_gain"]
    states = [state for state, _ in itertools.groupby(seen[columns].fillna(-1).itertuples(index=False, name=None))]
    assert states[:2] == [(STARTUP, -1, 2.77, 2), (DRAIN, -1, 0.5, 2)]
    gains = {DOWN: (0.9, 2), CRUISE: (1, 2), REFILL: (1, 2), UP: (1.25, 2.25)}
    # What Drain leaves is below a BDP, so the first Down ends with the ACK with which it begins.
    order = [CRUISE, REFILL, UP, DOWN, CRUISE]
    assert states[2:7] == [(PROBE_BW, phase, *gains[phase]) for phase in order]


def test_a_probe_that_loses_more_than_two_per_cent_sets_the_bound_to_where_the_losses_passed_it() -> None:
    rounds = Rounds(UP)
    rounds.round(in_flight=60, tx_in_flight=100, lost=3)
    # 97 packets fitted; of the next ones, the second passes 2 %.
    assert rounds.metrics["inflight_hi_packets"] == pytest.approx(97 + 0.02 * 97 / 0.98, abs=0.01)
    assert rounds.phase == DOWN
    assert rounds.metrics["max_bandwidth_mbps"] == pytest.approx(9.6, rel=0.05), "a loss does not reduce the bandwidth"
    bound = rounds.metrics["inflight_hi_packets"]
    rounds.round(in_flight=60, tx_in_flight=80, lost=4)
    assert rounds.metrics["inflight_hi_packets"] == bound, "once per probe"


def test_losses_from_before_the_probe_count_towards_its_threshold() -> None:
    rounds = Rounds(UP)
    sample = {"tx_in_flight": 100 * PACKET, "lost_since_send": 6 * PACKET}
    rounds.ack(41, lost=3, in_flight=60, sample=sample)
    assert rounds.metrics["inflight_hi_packets"] == 97


def bounded_probe() -> bbr_rounds.Rounds:
    """Return it in the second, cautious, probe after one that has set the bound to 58 packets."""
    rounds = Rounds(UP, **WITHOUT_PROBE_RTT)
    rounds.round(in_flight=60, tx_in_flight=60, lost=3)
    rounds.until(UP, in_flight=40, tx_in_flight=40)
    assert rounds.metrics["inflight_hi_packets"] == pytest.approx(58.2, abs=0.1)
    return rounds


def test_a_bound_that_limits_the_probe_is_no_plateau() -> None:
    rounds = bounded_probe()
    for _ in range(4):
        rounds.round(in_flight=57, tx_in_flight=50, acks=80)
        assert rounds.phase == UP
    for _ in range(5):
        rounds.round(in_flight=80, tx_in_flight=50, is_limited=lambda i: False)
    assert rounds.phase == DOWN, "the application sends less than the window allows: the plateau is the path's"


def test_the_bound_grows_only_while_the_window_limits_the_flow() -> None:
    rounds = bounded_probe()
    bound = rounds.metrics["inflight_hi_packets"]
    rounds.round(in_flight=57, tx_in_flight=50, acks=60)
    grown = rounds.metrics["inflight_hi_packets"]
    rounds.round(in_flight=50, tx_in_flight=50, acks=60, is_limited=lambda i: False)
    assert bound < grown == rounds.metrics["inflight_hi_packets"]


def test_a_probe_that_losses_have_ended_is_not_repeated_after_marks() -> None:
    """Linux keeps the losses of the cycle's first ACK (bbr_main)."""
    rounds = Rounds(UP, ecn_threshold=1.0, **WITHOUT_PROBE_RTT)
    rounds.round(in_flight=60, tx_in_flight=100, lost=3)
    assert rounds.phase == DOWN
    rounds.round(in_flight=60, tx_in_flight=60, marked=2)
    for _ in range(10):
        rounds.round(in_flight=60, tx_in_flight=60)
        assert rounds.phase != REFILL


def test_a_probe_that_begins_anew_after_a_spurious_recovery_is_of_the_same_cycle() -> None:
    rounds = Rounds(UP, **WITHOUT_PROBE_RTT)
    rounds.hear(Recovery.RECOVERY)
    rounds.round(in_flight=60, tx_in_flight=20, lost=3)
    assert rounds.phase == DOWN
    rounds.controller.on_spurious_recovery()
    rounds.until(UP, rate_mbps=3)
    rounds.until(DOWN, rate_mbps=3, in_flight=60)
    rounds.round(rate_mbps=3, in_flight=60)
    assert rounds.metrics["max_bandwidth_mbps"] > 9, "the last cycle's still counts"


def test_the_rtt_of_the_handshake_is_the_first_minimum_for_ten_seconds() -> None:
    rounds = Rounds(time_ms=0)
    rounds.round(rate_mbps=1, in_flight=3, is_app_limited=True)
    assert rounds.metrics["min_rtt_ms"] == 40
    for _ in range(260):
        rounds.round(rate_mbps=1, in_flight=3, is_app_limited=True, acks=1)
    assert rounds.metrics["min_rtt_ms"] == 41


def test_each_probe_rtt_lasts_a_round_if_that_is_longer() -> None:
    seen = Path(make("bbr3", rtt_ms=400, probe_rtt_interval_s=2.0), rtt_ms=400).watch(15_000)
    probing = seen[seen["mode"] == PROBE_RTT]["now_ms"]
    lasted = probing.groupby((probing.diff() > 1000).cumsum()).agg(lambda times: times.max() - times.min())
    assert len(lasted) >= 3
    assert lasted.min() > 399


def test_a_burst_is_a_millisecond_of_the_pacing_rate_or_as_given() -> None:
    assert Rounds(CRUISE, burst_packets=5).controller.decision().send_quantum == 5 * PACKET
    rounds = Rounds(UP, burst_packets=0)
    rounds.round(rate_mbps=100)
    decision = rounds.controller.decision()
    assert decision.send_quantum == pytest.approx(decision.pacing_rate / 8e3, abs=1)
    rounds.round(rate_mbps=1000)
    assert rounds.controller.decision().send_quantum == 65_536


# ECN

WITHOUT_REPROBE = {"ecn_reprobe_gain": 0.0}


def test_marks_while_cruising_reduce_the_window_by_a_third_of_their_share_and_no_bandwidth() -> None:
    rounds = cruise(ecn_alpha_gain=1.0, beta=0.95, **WITHOUT_REPROBE)
    rounds.round(acks=100, in_flight=40)
    window = rounds.cwnd
    rounds.round(marked=4)
    rounds.round(acks=1)
    assert rounds.metrics["inflight_lo_packets"] == pytest.approx(window * (1 - 0.4 / 3), rel=0.01)
    assert math.isnan(rounds.metrics["bandwidth_lo_mbps"])
    rounds.round(marked=10, lost=1, rate_mbps=3)
    before = rounds.metrics["inflight_lo_packets"]
    rounds.round(acks=1)
    assert rounds.metrics["inflight_lo_packets"] == pytest.approx(before * (1 - 0.9 / 3), rel=0.01)
    assert not math.isnan(rounds.metrics["bandwidth_lo_mbps"])


def test_the_share_of_marks_is_averaged_over_rounds() -> None:
    rounds = cruise(ecn_factor=1.0, **WITHOUT_REPROBE, probe_wait_s=3600.0, reno_rounds=1000, **WITHOUT_PROBE_RTT)
    for _ in range(30):  # and those before: the average is nearly 0
        rounds.round()
    window = rounds.cwnd
    rounds.round(marked=10)
    rounds.round(acks=1)
    assert rounds.metrics["inflight_lo_packets"] == pytest.approx(window * (1 - 1 / 16), rel=0.02)


def test_a_probe_with_marks_on_more_than_half_of_its_packets_goes_too_far() -> None:
    rounds = Rounds(UP, **WITHOUT_REPROBE)
    rounds.round(in_flight=80, tx_in_flight=70, marked=5)
    assert rounds.phase == UP
    rounds.round(in_flight=80, tx_in_flight=70, marked=6)
    assert rounds.metrics["inflight_hi_packets"] == 70
    assert rounds.phase == DOWN


@pytest.mark.parametrize(("marked", "mode"), [(4, STARTUP), (5, DRAIN)])
def test_two_rounds_with_marks_on_half_of_the_packets_end_startup(marked: int, mode: int) -> None:
    rounds = Rounds(time_ms=0)
    rounds.round(rate_mbps=1, in_flight=200)
    for rate_mbps in (2, 4):
        assert rounds.metrics["mode"] == STARTUP
        rounds.round(rate_mbps=rate_mbps, in_flight=200, marked=marked)
    rounds.round(rate_mbps=8, in_flight=200, acks=1, marked=0)
    assert rounds.metrics["mode"] == mode
    assert math.isnan(rounds.metrics["inflight_hi_packets"]) == (mode == STARTUP)


@pytest.mark.parametrize(("gain", "lost", "phase"), [(0.5, 0, REFILL), (0.5, 1, CRUISE), (0.0, 0, CRUISE)])
def test_after_marks_without_losses_the_next_probe_follows_at_once(gain: float, lost: int, phase: int) -> None:
    rounds = cruise(ecn_reprobe_gain=gain, ecn_threshold=1.0)
    rounds.round(lost=lost, lost_at=0, in_flight=40)
    rounds.round(marked=1, in_flight=40, acks=1)
    assert rounds.phase == phase


def test_the_probe_after_marks_raises_the_bound_by_half_in_its_first_round() -> None:
    rounds = bounded_probe()
    rounds.until(DOWN, in_flight=80, tx_in_flight=50, is_limited=lambda i: False)
    rounds.until(CRUISE, in_flight=40, tx_in_flight=40)
    bound = rounds.metrics["inflight_hi_packets"]
    rounds.ack(bytes_marked=PACKET)
    rounds.until(UP, in_flight=40, tx_in_flight=40, acks=60)
    rounds.round(in_flight=40, tx_in_flight=40, acks=60)
    assert 16 <= rounds.metrics["inflight_hi_packets"] - bound <= 64


@pytest.mark.parametrize("parameters", [{"ecn_factor": 0.0}, {"ecn_max_rtt_ms": 5.0}])
def test_marks_can_be_ignored_altogether_or_on_long_paths(parameters: dict[str, float]) -> None:
    for rounds in (cruise(**parameters), Rounds(UP, **parameters)):
        phase = rounds.phase
        for _ in range(2):
            rounds.round(marked=10, in_flight=40, tx_in_flight=40)
            assert rounds.phase == phase
        assert math.isnan(rounds.metrics["inflight_hi_packets"])
        assert math.isnan(rounds.metrics["inflight_lo_packets"])


# Linux's way, where it differs


def drain(**parameters: float) -> bbr_rounds.Rounds:
    """Return it in the first round of Drain."""
    rounds = Rounds(time_ms=0, **parameters)
    while rounds.metrics["mode"] == STARTUP:
        rounds.round(in_flight=200)
    return rounds


def test_drain_lasts_until_the_queue_is_empty_if_no_number_of_rounds_is_given() -> None:
    rounds = drain(drain_rounds=0)
    for _ in range(30):
        rounds.round(in_flight=200)
    assert rounds.metrics["mode"] == DRAIN


@pytest.mark.parametrize(("every_ack", "full_after"), [(0, 4), (1, 6)])
def test_growth_within_a_round_counts_if_that_of_every_ack_does(every_ack: int, full_after: int) -> None:
    rounds = Rounds(time_ms=0, full_pipe_every_ack=every_ack)
    middles: list[dict[str, float] | None] = [None, None, {"delivery_rate": 13e6}, *[None] * 10]
    count = 0
    while not rounds.metrics["is_full_pipe"]:
        middle = middles[count]
        rounds.round(rate_mbps=10, middle={"delivery_rate": int(middle["delivery_rate"])} if middle else None)
        count += 1
    assert count == full_after


@pytest.mark.parametrize("restores", [True, False])
def test_whether_the_end_of_fast_recovery_restores_the_window(restores: bool) -> None:
    rounds = cruise(restores_cwnd=restores)
    before = rounds.cwnd
    rounds.hear(Recovery.RECOVERY)
    for _ in range(5):
        rounds.round(lost=1, rate_mbps=3)
    reduced = rounds.cwnd
    assert reduced < 0.7 * before
    rounds.hear(Recovery.OPEN)
    assert rounds.cwnd == (before if restores else reduced)


@pytest.mark.parametrize("forgets", [True, False])
def test_whether_drain_forgets_the_losses_of_startup(forgets: bool) -> None:
    rounds = Rounds(time_ms=0, drain_forgets_losses=forgets)
    for lost in (0, 0, 0, 1):  # the last with the ACK that ends Startup
        assert rounds.metrics["mode"] == STARTUP
        rounds.round(in_flight=200, lost=lost, lost_at=0)
    rounds.round(in_flight=200)
    assert rounds.metrics["mode"] == DRAIN
    assert math.isnan(rounds.metrics["inflight_lo_packets"]) == forgets


def test_a_spurious_recovery_takes_back_the_end_of_startup() -> None:
    rounds = Rounds(time_ms=0, startup_loss_events=1)
    rounds.round(rate_mbps=1, in_flight=200)
    rounds.hear(Recovery.RECOVERY)
    for rate_mbps in (2, 4):
        assert rounds.metrics["mode"] == STARTUP
        rounds.round(rate_mbps=rate_mbps, in_flight=200, lost=5, lost_at=0)
    assert (rounds.metrics["mode"], rounds.metrics["is_full_pipe"]) == (DRAIN, 1)
    rounds.controller.on_spurious_recovery()
    assert (rounds.metrics["mode"], rounds.metrics["is_full_pipe"]) == (STARTUP, 0)


def test_a_spurious_recovery_takes_back_no_more_than_its_own_losses() -> None:
    rounds = cruise()
    rounds.hear(Recovery.RECOVERY)
    for _ in range(3):
        rounds.round(lost=1, rate_mbps=8)
    rounds.hear(Recovery.OPEN)
    before = rounds.metrics["bandwidth_lo_mbps"]
    rounds.hear(Recovery.RECOVERY)
    for _ in range(3):
        rounds.round(lost=1, rate_mbps=3)
    assert rounds.metrics["bandwidth_lo_mbps"] < before
    rounds.controller.on_spurious_recovery()
    assert rounds.metrics["bandwidth_lo_mbps"] == before


@pytest.mark.parametrize("limit_ms", [0.0, 10.0])
def test_ack_aggregation_widens_the_window_up_to_a_limit(limit_ms: float) -> None:
    rounds = Rounds(CRUISE, extra_acked_limit_ms=limit_ms)
    rounds.ack(acked=30, sample={"delivery_rate": 1000})
    for _ in range(200):
        rounds.ack()
    metrics = rounds.metrics
    assert metrics["extra_acked_packets"] >= 20
    extra = metrics["max_bandwidth_mbps"] * limit_ms / 8 if limit_ms else metrics["extra_acked_packets"]
    assert rounds.cwnd == pytest.approx(2 * metrics["bdp_packets"] + extra, abs=0.01)
