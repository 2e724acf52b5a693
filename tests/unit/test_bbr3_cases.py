"""The example test cases of draft-ietf-ccwg-bbr-06, in its appendix. Each test has a case's name and expectation.

Rates change and applications pause on `ack_path.Path`. What the path cannot do is in ACKs made by hand (`Rounds`): 10
Mbit/s, 40 ms, a BDP of 51 packets. What the appendix calls inflight_longterm, inflight_shortterm and bw_shortterm are
the metrics inflight_hi, inflight_lo and bandwidth_lo.
"""

import itertools
import math
from functools import partial
from typing import Any, NamedTuple

import bbr_rounds
import pytest
from ack_path import MS, PACKET, Path, make
from bbr_rounds import CRUISE, DOWN, DRAIN, PROBE_BW, PROBE_RTT, REFILL, STARTUP, UP, WITHOUT_PROBE_RTT

from bbrgym._testing import AckEvent, Recovery

Rounds = partial(bbr_rounds.Rounds, "bbr3")


class Seen(NamedTuple):
    """What an ACK has led to: packets, ms, Mbit/s."""

    now_ms: float
    in_flight: float
    cwnd: float
    pacing_mbps: float
    metrics: dict[str, float]

    @property
    def state(self) -> tuple[float, float]:
        """Mode, and phase of ProbeBW or -1."""
        return self.metrics["mode"], self.metrics["cycle_index"] if self.metrics["mode"] == PROBE_BW else -1


def watch(path: Path, until_ms: float) -> list[Seen]:
    """Run the path and return what each ACK has led to."""
    seen = []

    def note(ack: AckEvent) -> None:
        decision = path.controller.decision()
        cwnd, pacing_mbps = decision.cwnd / PACKET, decision.pacing_rate / 1e6
        seen.append(
            Seen(
                now_ms=ack.now / MS,
                in_flight=ack.in_flight / PACKET,
                cwnd=cwnd,
                pacing_mbps=pacing_mbps,
                metrics=path.controller.metrics(),
            )
        )

    path.on_ack = note
    path.run_until(until_ms)
    return seen


def run_until_state(path: Path, mode: int, phase: int = -1, limit_ms: float = 10_000) -> None:
    """Run the path, to the next ms, until this state begins."""
    while path.now < limit_ms * MS:
        path.run_until(path.now / MS + 1)
        metrics = path.controller.metrics()
        if metrics["mode"] == mode and phase in (-1, metrics["cycle_index"]):
            return
    raise AssertionError(f"state {mode}, {phase} does not begin; the metrics are {path.controller.metrics()}")


def test_exiting_startup_on_bandwidth_plateau() -> None:
    seen = watch(Path(make("bbr3")), 2000)
    last, first = next(pair for pair in itertools.pairwise(seen) if pair[1].metrics["is_full_pipe"])
    assert last.state == (STARTUP, -1)
    assert first.state == (DRAIN, -1)
    assert first.metrics["max_bandwidth_mbps"] == pytest.approx(10, rel=0.02)
    by_round = {one.metrics["round"]: one.metrics["max_bandwidth_mbps"] for one in reversed(seen)}
    end = first.metrics["round"]
    assert by_round[end] < 1.25 * by_round[end - 3], "three rounds without a quarter more"
    assert by_round[end - 3] >= 1.25 * by_round[end - 4]


def test_exiting_startup_on_loss_when_application_limited() -> None:
    rounds = Rounds(time_ms=0)
    rounds.hear(Recovery.RECOVERY)
    for lossy_acks in (5, 6):
        assert rounds.metrics["mode"] == STARTUP, "five losses in a round are too few"
        prior = rounds.delivered
        for i in range(20):
            rounds.delivered += PACKET
            sample = {
                "delivery_rate": 1_000_000,
                "delivered": 20 * PACKET,
                "prior_delivered": prior,
                "is_app_limited": True,
                "tx_in_flight": 30 * PACKET,
                "lost_since_send": 3 * PACKET,
            }
            rounds.ack(
                41, after_ms=2, lost=int(0 < i <= lossy_acks), in_flight=30, delivered=rounds.delivered, sample=sample
            )
    rounds.round(lost=3, tx_in_flight=30, rate_mbps=1, is_app_limited=True, in_flight=100, acks=1)
    assert rounds.metrics["is_full_pipe"] == 1
    assert rounds.metrics["mode"] == DRAIN
    assert rounds.metrics["inflight_hi_packets"] == 40, "the most that was delivered in the round: more than the BDP"


def test_exiting_drain_based_on_inflight() -> None:
    seen = watch(Path(make("bbr3")), 2000)
    draining = [one for one in seen if one.state == (DRAIN, -1)]
    after = seen[seen.index(draining[-1]) + 1]
    assert {one.metrics["pacing_gain"] for one in draining} == {0.5}
    assert min(one.in_flight for one in draining) > draining[-1].metrics["bdp_packets"]
    assert after.in_flight <= after.metrics["bdp_packets"]
    assert after.metrics["mode"] == PROBE_BW


def test_exiting_drain_based_on_time() -> None:
    path = Path(make("bbr3"))
    run_until_state(path, DRAIN)
    rounds = Rounds(time_ms=0)
    rounds.controller = path.controller
    rounds.now = path.now
    for _ in range(3):
        rounds.round(in_flight=80, rate_mbps=9)
        assert rounds.metrics["mode"] == DRAIN
    rounds.round(in_flight=80, rate_mbps=9)
    assert rounds.metrics["mode"] == PROBE_BW
    assert rounds.phase == DOWN


def test_exiting_probe_up_on_bandwidth_plateau() -> None:
    rounds = Rounds(UP)
    for _ in range(2):
        rounds.round(in_flight=80)
        assert rounds.phase == UP
    rounds.round(in_flight=80)
    assert rounds.phase == DOWN


def test_exiting_probe_up_on_loss_when_application_limited() -> None:
    rounds = Rounds(UP)
    rounds.round(is_app_limited=True, tx_in_flight=100, lost=2)
    assert rounds.phase == UP, "exactly 2 %"
    rounds.round(is_app_limited=True, in_flight=80, tx_in_flight=100, lost=3)
    assert rounds.phase == DOWN
    # An application-limited flow does not know how much fits: HandleInflightTooHigh() leaves the bound as it is.
    assert math.isnan(rounds.metrics["inflight_hi_packets"])


@pytest.mark.parametrize("state", [STARTUP, PROBE_BW])
def test_never_exiting_probe_up_or_startup_when_application_limited_with_no_loss(state: int) -> None:
    rounds = Rounds(time_ms=0, **WITHOUT_PROBE_RTT) if state == STARTUP else Rounds(UP, **WITHOUT_PROBE_RTT)
    before = rounds.metrics
    for _ in range(100):
        rounds.round(rate_mbps=1, in_flight=5, is_app_limited=True)
    assert rounds.metrics["mode"] == before["mode"] == state
    assert rounds.metrics["cycle_index"] == pytest.approx(before["cycle_index"], nan_ok=True)


def test_exiting_probe_down_on_inflight() -> None:
    rounds = Rounds(UP)
    rounds.round(in_flight=60, tx_in_flight=56, lost=3)
    assert rounds.phase == DOWN
    assert rounds.metrics["pacing_gain"] == 0.9
    with_headroom = 0.85 * rounds.metrics["inflight_hi_packets"]
    assert with_headroom == pytest.approx(46, abs=1)
    for in_flight in (52, 50, math.ceil(with_headroom)):  # above the BDP, above the other one
        rounds.round(in_flight=in_flight, tx_in_flight=40)
        assert rounds.phase == DOWN
    rounds.round(in_flight=math.floor(with_headroom), tx_in_flight=40)
    assert rounds.phase == CRUISE


def test_exiting_probe_down_after_max_time() -> None:
    rounds = Rounds(UP, **WITHOUT_PROBE_RTT)
    rounds.until(DOWN, in_flight=80)
    began = rounds.now
    seen = []
    while rounds.phase != REFILL:
        # Rounds so long that the clock is sooner than the 51 rounds of a Reno with the same window.
        rounds.round(in_flight=80, rate_mbps=9, round_ms=100)
        seen.append(rounds.phase)
    assert set(seen) == {DOWN, REFILL}
    assert 2000 < (rounds.now - began) / MS <= 3100


def test_entering_and_exiting_probe_rtt() -> None:
    seen = watch(Path(make("bbr3"), rate_mbps=4), 6000)
    probing = [one for one in seen if one.state == (PROBE_RTT, -1)]
    assert 5000 < probing[0].now_ms < 5100
    assert {one.metrics["cwnd_gain"] for one in probing} == {0.5}
    assert {math.floor(one.cwnd) for one in probing} == {10}, "half a BDP"
    after = seen[seen.index(probing[-1]) + 1 :]
    small = next(one for one in probing if one.in_flight <= one.cwnd)
    assert 200 <= after[0].now_ms - small.now_ms < 250, "200 ms and a round"
    assert after[0].state == (PROBE_BW, CRUISE)
    assert after[0].metrics["is_full_pipe"] == 1
    assert max(one.in_flight for one in after) >= 20, "sending is resumed"


@pytest.mark.parametrize("is_restart", [True, False])
def test_skipping_probe_rtt_due_to_application_limited_sending(is_restart: bool) -> None:
    rounds = Rounds(CRUISE)
    pause_ms = 6000
    if is_restart:
        rounds.controller.on_restart(rounds.now + pause_ms * MS)
    rounds.ack(50, after_ms=pause_ms, sample={})
    assert rounds.metrics["mode"] == (PROBE_BW if is_restart else PROBE_RTT)
    for _ in range(3):
        rounds.round()
    assert rounds.metrics["mode"] == (PROBE_BW if is_restart else PROBE_RTT)


def test_achieving_expected_startup_bandwidth_on_a_link_with_aggregation() -> None:
    seen = watch(Path(make("bbr3"), ack_slot_ms=30), 1500)
    starting = [one for one in seen if one.state == (STARTUP, -1)]
    end = seen[len(starting)]
    assert end.state == (DRAIN, -1)
    # Bursts let the sampler overestimate it in Startup; what was sent in the same time limits that (section 3.8).
    assert 9.8 < end.metrics["max_bandwidth_mbps"] < 15
    # Bursts of 30 ms at 10 Mbit/s are 37 packets.
    assert 20 < max(one.metrics["extra_acked_packets"] for one in starting) < 60
    assert starting[-1].cwnd > 2 * starting[-1].metrics["bdp_packets"]
    by_round = [one.metrics["max_bandwidth_mbps"] for one in starting if one.metrics["max_bandwidth_mbps"] < 10]
    assert by_round[-1] > 3 * by_round[0], "it doubles until the link is full"


def test_achieving_expected_cruise_bandwidth_on_a_link_with_aggregation() -> None:
    path = Path(make("bbr3", **WITHOUT_PROBE_RTT), rtt_ms=80)
    run_until_state(path, PROBE_BW, CRUISE)
    path.ack_slot_ms = 100
    path.run_until(path.now / MS + 500)
    acks, start = path.acks, path.now
    seen = watch(path, path.now / MS + 1500)
    cruising = [one for one in seen if one.state == (PROBE_BW, CRUISE)]
    # A burst of 100 ms at 10 Mbit/s is 125 packets, 2 BDP 202.
    extra = [one.metrics["extra_acked_packets"] for one in cruising]
    assert 100 <= min(extra) <= max(extra) < 200
    assert all(
        one.cwnd >= 2 * one.metrics["bdp_packets"] + one.metrics["extra_acked_packets"] - 1 for one in cruising[-100:]
    )
    assert (path.acks - acks) * PACKET * 8e3 / (path.now - start) == pytest.approx(10, rel=0.02), "full utilisation"
    path.ack_slot_ms = 0
    path.run_until(path.now / MS + 3000)
    assert path.controller.metrics()["extra_acked_packets"] < 20, "it is the maximum of ten rounds"


def test_correctly_managing_sub_packet_bdps() -> None:
    # 0.25 packets without, 1.25 with the time of a packet on the link.
    path = Path(make("bbr3", rtt_ms=4), rate_mbps=0.5, rtt_ms=4)
    run_until_state(path, PROBE_BW)
    acks, start = path.acks, path.now
    seen = watch(path, path.now / MS + 4000)
    probing = [one for one in seen if one.metrics["mode"] == PROBE_BW]
    assert {one.cwnd for one in probing} == {4, 5, 6}, "in Up two packets more, one by one"
    assert {one.cwnd for one in probing if one.state != (PROBE_BW, UP)} >= {4}
    rates = [one.pacing_mbps / one.metrics["pacing_gain"] for one in probing]
    assert rates == pytest.approx([0.99 * 0.5] * len(rates), rel=0.01)
    assert (path.acks - acks) * PACKET * 8e3 / (path.now - start) == pytest.approx(0.5, rel=0.03), "no stall"


def test_increasing_bandwidth_10x_and_ensuring_full_bandwidth_is_reached() -> None:
    path = Path(make("bbr3", **WITHOUT_PROBE_RTT), rate_mbps=3, rtt_ms=50, buffer_packets=4)
    run_until_state(path, PROBE_BW, CRUISE)
    while math.isnan(path.controller.metrics()["inflight_hi_packets"]):
        path.run_until(path.now / MS + 10)
    path.rate_mbps, path.buffer_packets = 30, 190
    seen = watch(path, path.now / MS + 4500)
    up = [one for one in seen if one.state == (PROBE_BW, UP)]
    reached = next(one for one in seen if one.metrics["max_bandwidth_mbps"] >= 29)
    rounds = reached.metrics["round"] - up[0].metrics["round"]
    assert rounds <= 20, "ten times as much, a few rounds for each doubling"


def test_increasing_bandwidth_the_step_of_inflight_longterm_doubles_each_round_trip() -> None:
    rounds = Rounds(UP, **WITHOUT_PROBE_RTT)
    rounds.round(in_flight=60, tx_in_flight=60, lost=3)
    rounds.until(UP, in_flight=40, tx_in_flight=40)
    bounds = [rounds.metrics["inflight_hi_packets"]]
    for _ in range(5):
        rounds.round(in_flight=int(rounds.cwnd) - 1, tx_in_flight=40, acks=round(rounds.cwnd))
        bounds.append(rounds.metrics["inflight_hi_packets"])
    steps = [after - before for before, after in itertools.pairwise(bounds)]
    assert steps == pytest.approx([2, 4, 8, 16, 32], abs=1)


def test_decreasing_bandwidth_10x_and_ensuring_max_bandwidth_adapts_down() -> None:
    path = Path(make("bbr3", **WITHOUT_PROBE_RTT), rate_mbps=20, rtt_ms=40, buffer_packets=100)
    run_until_state(path, PROBE_BW, CRUISE)
    path.rate_mbps, path.buffer_packets = 2, 10
    start_ms = path.now / MS
    seen = watch(path, start_ms + 12_000)
    lowered = next(one for one in seen if one.metrics["bandwidth_lo_mbps"] < 4)
    assert lowered.now_ms - start_ms < 3000, "by 0.7 per round trip, which the queue makes longer"
    states = [state for state, _ in itertools.groupby(one.state for one in seen)]
    cycles = 0
    for before, now in itertools.pairwise(seen):
        if before.state == (PROBE_BW, UP) and now.state == (PROBE_BW, DOWN):
            cycles += 1
        if cycles == 2 and now.state == (PROBE_BW, CRUISE):
            assert now.metrics["max_bandwidth_mbps"] == pytest.approx(2, rel=0.1)
            return
    raise AssertionError(f"fewer than two cycles: {states}")


def test_handling_token_bucket_policers() -> None:
    rate_mbps, bucket = 4.0, 50.0
    state = {"tokens": bucket, "at": 0}

    def police(number: int) -> bool:
        state["tokens"] = min(bucket, state["tokens"] + (path.now - state["at"]) * rate_mbps / 8e3 / PACKET)
        state["at"] = path.now
        if state["tokens"] < 1:
            return True
        state["tokens"] -= 1
        return False

    path = Path(make("bbr3"), rate_mbps=40, rtt_ms=40, lose=police)
    seen = watch(path, 3000)
    assert any(one.metrics["bandwidth_lo_mbps"] < 10 and one.metrics["inflight_lo_packets"] < 50 for one in seen)
    lost, acks, start = path.lost, path.acks, path.now
    path.run_until(8000)
    lost, acks = path.lost - lost, path.acks - acks
    assert acks * PACKET * 8e3 / (path.now - start) == pytest.approx(rate_mbps, rel=0.15), "the token rate"
    assert lost / (lost + acks) < 0.05


def test_handling_spurious_fast_recovery() -> None:
    rounds = Rounds(UP)
    before = rounds.cwnd
    rounds.hear(Recovery.RECOVERY)
    rounds.round(in_flight=60, tx_in_flight=20, lost=3)
    rounds.round(in_flight=60, tx_in_flight=20, lost=1, rate_mbps=3)
    rounds.round(in_flight=60, tx_in_flight=20, lost=1, rate_mbps=3)
    assert rounds.phase == DOWN
    assert rounds.cwnd < before
    for bound in ("inflight_hi_packets", "inflight_lo_packets", "bandwidth_lo_mbps"):
        assert not math.isnan(rounds.metrics[bound]), "the losses have set it"
    rounds.controller.on_spurious_recovery()
    for bound in ("inflight_hi_packets", "inflight_lo_packets", "bandwidth_lo_mbps"):
        assert math.isnan(rounds.metrics[bound]), "as before the losses"
    assert rounds.cwnd >= before
    assert rounds.phase == REFILL, "and from there the probe begins again"
    rounds.until(UP)


@pytest.mark.parametrize("phase", [UP, CRUISE])
def test_handling_spurious_rto_recovery(phase: int) -> None:
    rounds = Rounds(phase)
    before, state = rounds.cwnd, rounds.metrics
    rounds.hear(Recovery.LOSS, 0)
    assert rounds.cwnd == 1
    rounds.controller.on_spurious_recovery()
    assert rounds.cwnd == before
    assert rounds.metrics == pytest.approx(state, nan_ok=True)


def test_entering_and_exiting_probe_rtt_during_startup() -> None:
    rounds = Rounds(time_ms=0)
    slow: dict[str, Any] = {"rate_mbps": 1, "in_flight": 3, "is_app_limited": True}
    while rounds.metrics["mode"] == STARTUP:
        rounds.round(**slow)
    assert rounds.metrics["mode"] == PROBE_RTT
    assert rounds.metrics["is_full_pipe"] == 0
    for _ in range(7):  # 280 ms
        rounds.round(**slow)
    assert rounds.metrics["mode"] == STARTUP
    assert rounds.metrics["pacing_gain"] == 2.77


def test_handling_loss_during_probe_up_after_inflight_longterm_is_set() -> None:
    rounds = Rounds(UP, **WITHOUT_PROBE_RTT)
    rounds.round(in_flight=60, tx_in_flight=60, lost=3)
    bound = rounds.metrics["inflight_hi_packets"]
    rounds.until(UP, in_flight=40, tx_in_flight=40)
    assert rounds.metrics["inflight_hi_packets"] == bound
    rounds.round(in_flight=50, tx_in_flight=20, lost=3)
    assert rounds.metrics["inflight_hi_packets"] == pytest.approx(0.7 * rounds.metrics["bdp_packets"], abs=1)
    assert rounds.phase == DOWN


def test_handling_application_limited_sending_during_probe_refill() -> None:
    rounds = Rounds(REFILL)
    before = rounds.metrics["max_bandwidth_mbps"]
    rounds.round(rate_mbps=1, in_flight=1, is_app_limited=True)
    assert rounds.phase == UP
    for _ in range(3):
        rounds.round(rate_mbps=1, in_flight=1, is_app_limited=True)
    assert rounds.metrics["max_bandwidth_mbps"] == before
    rounds.round(rate_mbps=12)
    assert rounds.metrics["max_bandwidth_mbps"] == 12
    for _ in range(3):
        rounds.round(rate_mbps=12, in_flight=80)
    assert rounds.phase == DOWN, "a plateau ends the probe, as usual"
