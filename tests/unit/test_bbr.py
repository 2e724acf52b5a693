"""BBR v1: its states, its constants, and what it does on a path, without any simulator (docs/algorithms/bbr.md)."""

from __future__ import annotations

import itertools

import pytest
from ack_path import MS, PACKET, Path

from bbrgym import _controllers
from bbrgym import _testing as cc

STARTUP, DRAIN, PROBE_BW, PROBE_RTT = range(4)


def make(initial_rtt_ms: float = 40.0, seed: int = 1, **parameters: float) -> cc.Controller:
    """BBR of Linux 4.14 with segmentation offload, without the two later additions, unless they are given."""
    parameters = {"pacing_margin": 0, "extra_acked_gain": 0, "burst_packets": 0, **parameters}
    return cc.make("bbr", parameters, PACKET, 10 * PACKET, int(initial_rtt_ms * MS), seed)


def mode(bbr: cc.Controller) -> int:
    return int(bbr.metrics()["mode"])


def test_the_first_window_is_paced_at_the_startup_gain():
    decision = make().decision()
    assert decision.cwnd == 10 * PACKET
    assert decision.is_paced
    assert decision.pacing_rate == pytest.approx(2.8867 * 10 * PACKET * 8 / 0.040, rel=0.002)


def test_without_a_handshake_rtt_the_first_window_is_paced_over_a_millisecond():
    assert make(initial_rtt_ms=0).decision().pacing_rate == pytest.approx(2.8867 * 10 * PACKET * 8 / 0.001, rel=0.002)


def test_gains_are_those_of_the_paper():
    gain = make().metrics()
    assert 2 / 0.6931471805599453 <= gain["pacing_gain"] <= 2.89  # 2/ln 2, rounded up
    assert gain["cwnd_gain"] == gain["pacing_gain"]
    defaults = _controllers.defaults("bbr")
    assert defaults["drain_gain"] == pytest.approx(0.3466, abs=1 / 256)
    assert (defaults["probe_up_gain"], defaults["probe_down_gain"], defaults["cwnd_gain"]) == (1.25, 0.75, 2.0)


def test_startup_drain_probe_bw_in_this_order_and_the_model_is_the_path():
    bbr = make()
    path = Path(bbr, rate_mbps=10, rtt_ms=40)
    modes = [STARTUP]
    path.on_ack = lambda ack: modes.append(mode(bbr)) if mode(bbr) != modes[-1] else None
    path.run_until(3000)
    assert modes == [STARTUP, DRAIN, PROBE_BW]
    metrics = bbr.metrics()
    assert metrics["max_bandwidth_mbps"] == pytest.approx(10.0, rel=0.01)
    # The base RTT and one packet's serialisation.
    assert metrics["min_rtt_ms"] == pytest.approx(40.8, rel=0.01)
    assert metrics["bdp_packets"] == pytest.approx(10e6 * 0.0408 / 8 / PACKET, rel=0.02)
    assert path.lost == 0


def test_startup_doubles_the_rate_every_round():
    bbr = make()
    path = Path(bbr, rate_mbps=100, rtt_ms=40)
    bandwidth = []
    for round_end in (85, 126, 167, 208):
        path.run_until(round_end)
        bandwidth.append(bbr.metrics()["max_bandwidth_mbps"])
    growth = [b / a for a, b in itertools.pairwise(bandwidth)]
    assert all(1.6 < g < 2.4 for g in growth), growth


def test_the_queue_of_startup_is_gone_after_drain():
    bbr = make()
    path = Path(bbr, rate_mbps=10, rtt_ms=40)
    path.run_until(3000)
    bdp = 10e6 * 0.0408 / 8
    assert path.in_flight <= 1.3 * bdp + 6 * PACKET


def test_probe_bw_cycles_through_eight_phases_and_never_starts_in_the_draining_one():
    first_phases = set()
    for seed in range(40):
        bbr = make(seed=seed)
        path = Path(bbr, rate_mbps=10, rtt_ms=10)
        seen: list[int] = []

        def note(ack: cc.AckEvent, bbr: cc.Controller = bbr, seen: list[int] = seen) -> None:
            index = bbr.metrics()["cycle_index"]
            if index == index and (not seen or seen[-1] != int(index)):
                seen.append(int(index))

        path.on_ack = note
        path.run_until(500)
        first_phases.add(seen[0])
        assert all(b == (a + 1) % 8 for a, b in itertools.pairwise(seen)), seen
    assert first_phases == {0, 2, 3, 4, 5, 6, 7}


def test_pacing_gain_of_each_phase():
    bbr = make()
    path = Path(bbr, rate_mbps=10, rtt_ms=40)
    gains: dict[int, set[float]] = {}

    def note(ack: cc.AckEvent) -> None:
        metrics = bbr.metrics()
        if metrics["mode"] == PROBE_BW:
            gains.setdefault(int(metrics["cycle_index"]), set()).add(metrics["pacing_gain"])

    path.on_ack = note
    path.run_until(3000)
    assert gains == {0: {1.25}, 1: {0.75}} | {i: {1.0} for i in range(2, 8)}


def test_probe_rtt_after_ten_seconds_without_a_new_minimum():
    bbr = make()
    path = Path(bbr, rate_mbps=10, rtt_ms=40)
    times: list[tuple[float, int]] = []
    windows: list[int] = []

    def note(ack: cc.AckEvent) -> None:
        if mode(bbr) == PROBE_RTT:
            times.append((ack.now / MS, int(bbr.decision().cwnd)))
        elif times and not windows:
            windows.append(bbr.decision().cwnd)

    path.on_ack = note
    path.run_until(12_000)
    assert times, "no ProbeRTT in 12 s"
    first, last = times[0][0], times[-1][0]
    assert 10_000 < first < 11_000
    # In flight must fall to four packets first, then 200 ms and a round trip pass.
    assert 200 <= last - first < 400
    assert {cwnd for _, cwnd in times} == {4 * PACKET}
    assert bbr.decision().is_app_limited is False
    # The window from before comes back at once.
    assert windows[0] > 50 * PACKET


def test_what_is_sent_in_probe_rtt_counts_as_application_limited():
    bbr = make()
    path = Path(bbr, rate_mbps=10, rtt_ms=40)
    limited = set()
    path.on_ack = lambda ack: limited.add((mode(bbr) == PROBE_RTT, bbr.decision().is_app_limited))
    path.run_until(12_000)
    assert limited == {(False, False), (True, True)}


def test_the_window_is_two_bdp_and_room_for_three_bursts():
    bbr = make()
    path = Path(bbr, rate_mbps=10, rtt_ms=40)
    path.run_until(5000)
    bdp = bbr.metrics()["bdp_packets"]
    cwnd = bbr.decision().cwnd / PACKET
    # tso_segs_goal is 2 at 10 Mbit/s; even rounding and the probing phase's +2 on top.
    assert 2 * bdp + 6 <= cwnd <= 2 * bdp + 6 + 4
    assert cwnd % 2 == 0


@pytest.mark.parametrize(
    ("rate_mbps", "burst"),
    [(0.5, 1), (5, 2), (20, 2), (100, 12), (2000, 65)],
)
def test_a_burst_is_a_millisecond_at_the_pacing_rate_as_in_linux(rate_mbps: float, burst: int):
    bbr = make(initial_rtt_ms=10)
    bandwidth = int(rate_mbps * 1e6)
    ack = cc.AckEvent()
    for i in range(12):  # a plateau: Startup, Drain, then ProbeBW at the bandwidth itself
        ack.now, ack.rtt, ack.bytes_acked = (i + 1) * 20 * MS, 10 * MS, PACKET
        ack.delivered = (i + 1) * 100 * PACKET
        ack.sample.is_valid, ack.sample.delivery_rate = True, bandwidth
        ack.sample.prior_delivered = i * 100 * PACKET
        bbr.on_ack(ack)
    pacing_rate = bbr.decision().pacing_rate
    expected = max(min(pacing_rate // 8 // 1024, 65_536) // PACKET, 1 if pacing_rate < 1_200_000 else 2)
    assert bbr.decision().send_quantum == expected * PACKET
    assert expected == pytest.approx(burst, rel=0.5)
    assert make(burst_packets=1).decision().send_quantum == PACKET


def test_recovery_conserves_packets_for_a_round_and_restores_the_window():
    bbr = make()
    path = Path(bbr, rate_mbps=10, rtt_ms=40)
    path.run_until(5000)
    before = bbr.decision().cwnd
    bbr.on_recovery(cc.Recovery.RECOVERY, path.now, path.in_flight)
    ack = cc.AckEvent()
    ack.now, ack.bytes_acked, ack.bytes_lost = path.now + MS, PACKET, PACKET
    ack.prior_in_flight, ack.in_flight = 40 * PACKET, 38 * PACKET
    ack.delivered = 10**9  # far beyond anything sent so far: no round ends on it
    bbr.on_ack(ack)
    assert bbr.decision().cwnd == 39 * PACKET, "in flight plus what was acknowledged"
    bbr.on_recovery(cc.Recovery.OPEN, path.now + 2 * MS, 30 * PACKET)
    ack.now, ack.bytes_lost, ack.in_flight = path.now + 2 * MS, 0, 30 * PACKET
    bbr.on_ack(ack)
    assert bbr.decision().cwnd >= before - PACKET, "the window from before recovery"


def test_a_recovery_that_begins_as_one_ends_keeps_the_window_from_before_both():
    bbr = make()
    path = Path(bbr, rate_mbps=10, rtt_ms=40)
    path.run_until(5000)
    before = bbr.decision().cwnd

    def hear(after_ms: int, states: list[cc.Recovery], lost: int) -> None:
        ack = cc.AckEvent()
        ack.now, ack.bytes_acked, ack.bytes_lost = path.now + after_ms * MS, PACKET, lost * PACKET
        ack.prior_in_flight, ack.in_flight = 40 * PACKET, 20 * PACKET
        ack.delivered = 10**9
        for state in states:
            bbr.on_recovery(state, ack.now, ack.in_flight)
        bbr.on_ack(ack)

    hear(1, [cc.Recovery.RECOVERY], lost=5)
    hear(2, [cc.Recovery.OPEN, cc.Recovery.RECOVERY], lost=5)
    assert bbr.decision().cwnd < before - 5 * PACKET
    hear(3, [cc.Recovery.OPEN], lost=0)
    assert bbr.decision().cwnd >= before - PACKET


def test_every_lost_packet_takes_one_from_the_window_but_never_the_last():
    bbr = make()
    path = Path(bbr, rate_mbps=10, rtt_ms=40)
    path.run_until(5000)
    bbr.on_recovery(cc.Recovery.RECOVERY, path.now, 0)
    ack = cc.AckEvent()
    ack.now, ack.bytes_acked, ack.bytes_lost = path.now + MS, PACKET, 10**9
    ack.delivered = 10**9
    bbr.on_ack(ack)
    assert bbr.decision().cwnd == PACKET


def test_a_timeout_restarts_from_one_packet_and_comes_back():
    bbr = make()
    path = Path(bbr, rate_mbps=10, rtt_ms=40)
    path.run_until(5000)
    before = bbr.decision().cwnd
    bbr.on_recovery(cc.Recovery.LOSS, path.now, 0)
    assert bbr.decision().cwnd == PACKET
    bbr.on_recovery(cc.Recovery.OPEN, path.now, 0)
    ack = cc.AckEvent()
    ack.now, ack.bytes_acked, ack.delivered = path.now + MS, PACKET, 10**9
    bbr.on_ack(ack)
    assert bbr.decision().cwnd >= before - PACKET


def test_a_rate_that_the_application_held_down_does_not_lower_the_bandwidth():
    bbr = make()
    path = Path(bbr, rate_mbps=10, rtt_ms=40)
    path.run_until(3000)
    before = bbr.metrics()["max_bandwidth_mbps"]
    ack = cc.AckEvent()
    ack.bytes_acked = PACKET
    for i in range(30):
        ack.now = path.now + (i + 1) * 40 * MS
        ack.delivered = 10**8 + i * PACKET
        ack.sample.is_valid, ack.sample.is_app_limited = True, True
        ack.sample.prior_delivered = ack.delivered - PACKET
        ack.sample.delivery_rate = 100_000
        bbr.on_ack(ack)
    assert bbr.metrics()["max_bandwidth_mbps"] == before


@pytest.mark.parametrize(("margin", "share"), [(0.0, 1.0), (0.01, 0.99)])
def test_the_pacing_margin_of_later_kernels_is_an_option(margin: float, share: float):
    bbr = make(pacing_margin=margin)
    path = Path(bbr, rate_mbps=10, rtt_ms=40)
    rates = []

    def note(ack: cc.AckEvent) -> None:
        metrics = bbr.metrics()
        if metrics["mode"] == PROBE_BW and metrics["pacing_gain"] == 1.0:
            rates.append(bbr.decision().pacing_rate / (metrics["max_bandwidth_mbps"] * 1e6))

    path.on_ack = note
    path.run_until(3000)
    assert rates
    assert all(rate == pytest.approx(share, rel=1e-6) for rate in rates)


class Policed:
    """ACKs by hand, one a round, behind a policer: `lost` of the packets sent are lost, the others come at a rate."""

    def __init__(self, bbr: cc.Controller, rate_mbps: float = 8.0) -> None:
        self.bbr, self.rate_mbps = bbr, rate_mbps
        self.delivered = self.now = 0

    def play_round(self, lost: int, is_app_limited: bool = False, sent: int = 100) -> float:
        """Returns the long-term bandwidth in Mbit/s, NaN without one."""
        acked = (sent - lost) * PACKET
        self.now += int(acked * 8e3 / self.rate_mbps)
        ack = cc.AckEvent()
        ack.now, ack.rtt, ack.bytes_acked, ack.bytes_lost = self.now, 100 * MS, acked, lost * PACKET
        ack.sample.prior_delivered = self.delivered
        self.delivered += acked
        ack.delivered = self.delivered
        ack.sample.is_valid, ack.sample.is_app_limited = True, is_app_limited
        # Saved tokens let more through for a while than the policer does in the long run.
        ack.sample.delivery_rate = int(2 * self.rate_mbps * 1e6)
        self.bbr.on_ack(ack)
        return self.bbr.metrics()["long_term_bandwidth_mbps"]

    def play(self, rounds: int, lost: int) -> list[float]:
        return [self.play_round(lost) for _ in range(rounds)]


def policed(rate_mbps: float = 8.0, **parameters: float) -> Policed:
    """In ProbeBW, after rounds without a loss."""
    path = Policed(make(initial_rtt_ms=100, **{"long_term_sampling": 1, **parameters}), rate_mbps)
    path.play(10, lost=0)
    assert mode(path.bbr) == PROBE_BW
    return path


def is_known(bandwidth_mbps: float) -> bool:
    return bandwidth_mbps == bandwidth_mbps


def test_two_lossy_intervals_of_about_the_same_rate_are_a_policer():
    path = policed()
    # The first loss begins an interval in its own round; four rounds make one; the second one begins where it ends.
    known = path.play(9, lost=20)
    assert [is_known(bandwidth) for bandwidth in known] == [False] * 7 + [True] * 2
    assert known[-1] == pytest.approx(8.0, rel=0.001)
    metrics, decision = path.bbr.metrics(), path.bbr.decision()
    assert metrics["max_bandwidth_mbps"] == pytest.approx(16.0, rel=0.001), "the maximum goes on beside it"
    assert decision.pacing_rate == pytest.approx(8e6, rel=0.001)
    bdp = 8e6 * 0.1 / 8
    assert decision.cwnd <= 2 * bdp + 12 * PACKET, "the window too is that of the policer's rate"


def test_a_policer_is_not_looked_for_by_default():
    path = policed(long_term_sampling=0)
    assert _controllers.defaults("bbr")["long_term_sampling"] == 0
    assert not any(is_known(bandwidth) for bandwidth in path.play(40, lost=20))
    assert path.bbr.decision().pacing_rate >= 0.75 * 16e6


@pytest.mark.parametrize(("lost", "is_policer"), [(16, False), (17, True)])
def test_an_interval_counts_that_loses_50_for_256_delivered(lost: int, is_policer: bool):
    path = policed()
    # 16 lost for 84 delivered are 19.0 %, 17 for 83 are 20.5 %; the loss that begins an interval is not in it.
    assert any(is_known(bandwidth) for bandwidth in path.play(9, lost=lost)) is is_policer


@pytest.mark.parametrize(("second_mbps", "is_policer"), [(8.9, True), (9.2, False), (7.1, True), (6.8, False)])
def test_the_two_rates_are_the_same_within_an_eighth(second_mbps: float, is_policer: bool):
    path = policed()
    path.play(4, lost=20)
    path.rate_mbps = second_mbps
    known = path.play(4, lost=20)
    assert is_known(known[-1]) is is_policer
    if is_policer:
        assert known[-1] == pytest.approx((8.0 + second_mbps) / 2, rel=0.001), "their mean"


def test_low_rates_are_the_same_within_half_a_kilobyte_a_second():
    for second_mbps, is_policer in ((0.0139, True), (0.0145, False)):
        path = policed(rate_mbps=0.010, min_rtt_window_s=3600)  # a round takes 80 s: no ProbeRTT in between
        path.play(4, lost=20)
        path.rate_mbps = second_mbps
        assert is_known(path.play(4, lost=20)[-1]) is is_policer


def test_an_interval_ends_with_a_loss_and_is_given_up_after_sixteen_rounds():
    path = policed()
    path.play(4, lost=20)  # the first interval
    path.play(3, lost=50)
    path.play(13, lost=0)  # the fourteenth to sixteenth round would do, had they a loss
    assert not is_known(path.play_round(lost=90)), "seventeen rounds: everything starts again"
    path.play(3, lost=20)
    assert not any(is_known(bandwidth) for bandwidth in path.play(3, lost=20)), "a first interval again"


def test_a_round_that_the_application_limited_gives_up_what_was_sampled():
    path = policed()
    path.play(7, lost=20)
    assert not is_known(path.play_round(lost=20, is_app_limited=True))
    assert [is_known(bandwidth) for bandwidth in path.play(8, lost=20)] == [False] * 7 + [True]


def test_the_long_term_bandwidth_is_used_for_48_rounds_without_probing():
    path = policed()
    path.play(8, lost=20)
    gains, windows = set(), {}
    for _ in range(47):
        assert is_known(path.play_round(lost=0))
        metrics = path.bbr.metrics()
        gains.add(metrics["pacing_gain"])
        windows[int(metrics["cycle_index"])] = path.bbr.decision().cwnd // PACKET
    assert gains == {1.0}
    # The cycle goes on without its gains, and with the two packets that its first phase adds to the window.
    assert windows == {phase: windows[1] + 2 * (phase == 0) for phase in range(8)}
    assert not is_known(path.play_round(lost=0))
    metrics = path.bbr.metrics()
    assert metrics["cycle_index"] != 1, "a new cycle begins, in any phase but the draining one"
    assert path.bbr.decision().pacing_rate == pytest.approx(metrics["pacing_gain"] * 16e6, rel=0.001)


def test_sending_that_resumes_after_a_pause_keeps_to_the_long_term_bandwidth():
    path = policed()
    path.play(8, lost=20)
    path.bbr.on_restart(path.now + 5000 * MS)
    assert path.bbr.decision().pacing_rate == pytest.approx(8e6, rel=0.001)


def test_ack_aggregation_widens_the_window_by_100_ms_of_the_long_term_bandwidth_at_most():
    path = policed(extra_acked_gain=1)
    path.play(8, lost=20)
    path.play_round(lost=0, sent=180)
    metrics = path.bbr.metrics()
    assert metrics["extra_acked_packets"] == 180
    bdp = extra = 100
    assert 2 * bdp + extra <= path.bbr.decision().cwnd // PACKET <= 2 * bdp + extra + 10


def test_a_timeout_is_a_round_with_a_loss():
    path = policed()
    path.play(7, lost=20)
    path.bbr.on_recovery(cc.Recovery.LOSS, path.now, 0)
    assert is_known(path.bbr.metrics()["long_term_bandwidth_mbps"])


def test_ack_aggregation_widens_the_window_only_by_option():
    windows = {}
    for gain in (0.0, 1.0):
        bbr = make(extra_acked_gain=gain)
        path = Path(bbr, rate_mbps=10, rtt_ms=40)
        path.run_until(3000)
        bdp = bbr.metrics()["bdp_packets"]
        ack = cc.AckEvent()
        ack.now, ack.bytes_acked, ack.delivered = path.now, 20 * PACKET, 10**8
        ack.sample.is_valid, ack.sample.delivery_rate, ack.sample.prior_delivered = True, 1000, 10**8 - 1
        bbr.on_ack(ack)
        assert bbr.metrics()["extra_acked_packets"] >= 15
        for i in range(40):
            ack.now, ack.bytes_acked, ack.delivered = path.now + i * MS, PACKET, 10**8 + i
            ack.sample.is_valid = False
            bbr.on_ack(ack)
        windows[gain] = bbr.decision().cwnd / PACKET - 2 * bdp
    assert windows[1.0] >= windows[0.0] + 14
