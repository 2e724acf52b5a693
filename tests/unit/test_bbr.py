"""BBR v1: states, constants, and behaviour on a path without simulator (docs/algorithms/bbr.md)."""

import itertools

import ack_path
import pytest
from ack_path import MS, PACKET, Hand, Path, ack_event

from bbrgym._testing import Controller, Recovery

STARTUP, DRAIN, PROBE_BW, PROBE_RTT = range(4)


def make(initial_rtt_ms: float = 40.0, seed: int = 1, **parameters: float) -> Controller:
    """Return BBR of Linux 4.14 with segmentation offload, by default without the two later additions."""
    parameters = {"pacing_margin": 0, "extra_acked_gain": 0, "burst_packets": 0, **parameters}
    return ack_path.make("bbr", initial_rtt_ms, seed=seed, **parameters)


def mode(bbr: Controller) -> int:
    return int(bbr.metrics()["mode"])


@pytest.mark.parametrize(("initial_rtt_ms", "over_s"), [(40.0, 0.040), (0.0, 0.001)])
def test_the_first_window_is_paced_at_the_startup_gain_over_the_handshakes_rtt_or_a_millisecond(
    initial_rtt_ms: float, over_s: float
):
    decision = make(initial_rtt_ms).decision()
    assert decision.cwnd == 10 * PACKET
    assert decision.is_paced
    assert decision.pacing_rate == pytest.approx(2.8867 * 10 * PACKET * 8 / over_s, rel=0.002)


def test_startup_drain_probe_bw_follow_in_this_order_and_the_model_fits_the_path():
    path = Path(make())
    seen = path.watch(3000)
    assert [int(mode) for mode, _ in itertools.groupby(seen["mode"])] == [STARTUP, DRAIN, PROBE_BW]
    in_probe_bw = seen[seen["mode"] == PROBE_BW]
    gains = {phase: set(of_phase) for phase, of_phase in in_probe_bw.groupby("cycle_index")["pacing_gain"]}
    assert gains == {0: {1.25}, 1: {0.75}} | {i: {1.0} for i in range(2, 8)}
    metrics = seen.iloc[-1]
    assert metrics["max_bandwidth_mbps"] == pytest.approx(10.0, rel=0.01)
    # The base RTT plus the serialisation of one packet.
    assert metrics["min_rtt_ms"] == pytest.approx(40.8, rel=0.01)
    assert metrics["bdp_packets"] == pytest.approx(10e6 * 0.0408 / 8 / PACKET, rel=0.02)
    assert path.lost == 0


def test_probe_bw_cycles_through_eight_phases_and_never_starts_in_the_draining_one():
    first_phases = set()
    for seed in range(40):
        phases = Path(make(seed=seed), rate_mbps=10, rtt_ms=10).watch(500)["cycle_index"].dropna()
        seen = [int(phase) for phase, _ in itertools.groupby(phases)]
        first_phases.add(seen[0])
        assert all(b == (a + 1) % 8 for a, b in itertools.pairwise(seen)), seen
    assert first_phases == {0, 2, 3, 4, 5, 6, 7}


def test_probe_rtt_after_ten_seconds_without_a_new_minimum():
    seen = Path(make()).watch(12_000)
    is_probing = seen["mode"] == PROBE_RTT
    probing = seen[is_probing]
    assert 10_000 < probing["now_ms"].iloc[0] < 11_000
    # First the flight falls to four packets, then 200 ms and a round trip pass.
    assert 200 <= probing["now_ms"].iloc[-1] - probing["now_ms"].iloc[0] < 400
    assert set(probing["cwnd"]) == {4 * PACKET}
    assert set(probing["cwnd_gain"]) == set(probing["pacing_gain"]) == {1.0}
    assert seen["cwnd"][probing.index[-1] + 1] > 50 * PACKET, "the window from before is restored at once"


def test_the_window_is_two_bdp_and_room_for_three_bursts():
    hand = Hand(make(), 5000)
    bdp = hand.metrics["bdp_packets"]
    # tso_segs_goal is 2 at 10 Mbit/s; even rounding and the probing phase's +2 on top.
    assert 2 * bdp + 6 <= hand.window <= 2 * bdp + 6 + 4
    assert hand.controller.decision().cwnd % (2 * PACKET) == 0


@pytest.mark.parametrize(("rate_mbps", "burst"), [(0.5, 1), (5, 2), (20, 2), (100, 12), (2000, 65)])
def test_a_burst_is_a_millisecond_at_the_pacing_rate_as_in_linux(rate_mbps: float, burst: int):
    bbr = make(initial_rtt_ms=10)
    bandwidth = int(rate_mbps * 1e6)
    for i in range(12):  # a plateau: Startup, Drain, then ProbeBW at the bandwidth itself
        sample = {"delivery_rate": bandwidth, "prior_delivered": i * 100 * PACKET}
        bbr.on_ack(ack_event((i + 1) * 20 * MS, rtt_ms=10, delivered=(i + 1) * 100 * PACKET, sample=sample))
    pacing_rate = bbr.decision().pacing_rate
    expected = max(min(pacing_rate // 8 // 1024, 65_536) // PACKET, 1 if pacing_rate < 1_200_000 else 2)
    assert bbr.decision().send_quantum == expected * PACKET
    assert expected == pytest.approx(burst, rel=0.5)
    assert bbr.decision().is_burst_whole
    single = make(burst_packets=1).decision()
    assert single.send_quantum == PACKET
    assert not single.is_burst_whole


def test_recovery_conserves_packets_for_a_round_and_restores_the_window():
    hand = Hand(make(), 5000)
    before = hand.window
    hand.hear(Recovery.RECOVERY, hand.path.in_flight // PACKET)
    assert hand.ack(lost=1, in_flight=38) == 39, "in flight and newly acknowledged"
    assert hand.ack(in_flight=45) == 46, "also when more is in flight"
    assert hand.ack(lost=10**6) == 1, "each lost packet reduces the window by one, but not below one"
    hand.hear(Recovery.OPEN, in_flight=30)
    assert hand.ack(in_flight=30) >= before - 1, "the window from before recovery"


@pytest.mark.parametrize("answers", [[Recovery.RECOVERY], [Recovery.RECOVERY, Recovery.LOSS]])
def test_a_spurious_recovery_restores_the_window_at_once(answers: list[Recovery]):
    hand = Hand(make(), 5000)
    before = hand.window
    for answer in answers:
        hand.hear(answer)
        hand.ack(lost=1, in_flight=38)
    assert hand.window < before
    assert hand.controller.on_spurious_recovery(), "it ends recovery"
    assert hand.ack(in_flight=38) >= before - 1


def test_a_recovery_that_begins_as_one_ends_keeps_the_window_from_before_both():
    hand = Hand(make(), 5000)
    before = hand.window
    hand.hear(Recovery.RECOVERY)
    hand.ack(lost=5, in_flight=20)
    hand.hear(Recovery.OPEN)
    hand.hear(Recovery.RECOVERY)
    assert hand.ack(lost=5, in_flight=20) < before - 5
    hand.hear(Recovery.OPEN)
    assert hand.ack(in_flight=20) >= before - 1


def test_a_timeout_reduces_the_window_to_one_packet_until_recovery_ends():
    hand = Hand(make(), 5000)
    before = hand.window
    hand.hear(Recovery.RECOVERY)
    assert hand.ack(in_flight=38) == 39
    hand.hear(Recovery.LOSS, in_flight=0)
    assert hand.window == 1
    assert hand.ack(in_flight=38) == 4, "packet conservation has ended, regardless of what is in flight"
    hand.hear(Recovery.OPEN, in_flight=0)
    assert hand.ack() >= before - 1


def test_an_application_limited_rate_does_not_lower_the_bandwidth():
    hand = Hand(make())
    before = hand.metrics["max_bandwidth_mbps"]
    for _ in range(30):
        sample = {"is_app_limited": True, "prior_delivered": hand.delivered, "delivery_rate": 100_000}
        hand.delivered += PACKET
        hand.ack(after_ms=40, delivered=hand.delivered, sample=sample)
    assert hand.metrics["max_bandwidth_mbps"] == before


@pytest.mark.parametrize(("margin", "share"), [(0.0, 1.0), (0.01, 0.99)])
def test_the_pacing_margin_of_later_kernels_is_an_option(margin: float, share: float):
    seen = Path(make(pacing_margin=margin)).watch(3000)
    cruising = seen[(seen["mode"] == PROBE_BW) & (seen["pacing_gain"] == 1.0)]
    rates = cruising["pacing_rate"] / (cruising["max_bandwidth_mbps"] * 1e6)
    assert len(rates) > 0
    assert rates.to_numpy() == pytest.approx(share, rel=1e-6)


class Policed:
    """ACKs by hand, one per round, behind a policer: `lost` packets are lost, the others arrive at its rate."""

    def __init__(self, bbr: Controller, rate_mbps: float = 8.0) -> None:
        self.bbr, self.rate_mbps = bbr, rate_mbps
        self.delivered = self.now = 0

    def play_round(self, lost: int, is_app_limited: bool = False, sent: int = 100) -> float:
        """Return the long-term bandwidth in Mbit/s, NaN without one."""
        acked = sent - lost
        self.now += int(acked * PACKET * 8e3 / self.rate_mbps)
        sample = {
            "prior_delivered": self.delivered,
            "is_app_limited": is_app_limited,
            # Saved tokens let more through for a while than the policer does in the long run.
            "delivery_rate": int(2 * self.rate_mbps * 1e6),
        }
        self.delivered += acked * PACKET
        ack = ack_event(self.now, 100, acked, lost, delivered=self.delivered, sample=sample, prior_in_flight=0)
        self.bbr.on_ack(ack)
        return self.bbr.metrics()["long_term_bandwidth_mbps"]

    def play(self, rounds: int, lost: int) -> list[float]:
        return [self.play_round(lost) for _ in range(rounds)]


def policed(rate_mbps: float = 8.0, **parameters: float) -> Policed:
    """Return a flow in ProbeBW, after rounds without a loss."""
    path = Policed(make(initial_rtt_ms=100, **{"long_term_sampling": 1, **parameters}), rate_mbps)
    path.play(10, lost=0)
    assert mode(path.bbr) == PROBE_BW
    return path


def is_known(bandwidth_mbps: float) -> bool:
    return bandwidth_mbps == bandwidth_mbps


def test_two_lossy_intervals_of_about_the_same_rate_are_a_policer():
    path = policed()
    # The first loss begins an interval in its own round. An interval has four rounds, and the next follows at once.
    known = path.play(9, lost=20)
    assert [is_known(bandwidth) for bandwidth in known] == [False] * 7 + [True] * 2
    assert known[-1] == pytest.approx(8.0, rel=0.001)
    metrics, decision = path.bbr.metrics(), path.bbr.decision()
    assert metrics["max_bandwidth_mbps"] == pytest.approx(16.0, rel=0.001), "the maximum is kept as well"
    assert decision.pacing_rate == pytest.approx(8e6, rel=0.001)
    bdp = 8e6 * 0.1 / 8
    assert decision.cwnd <= 2 * bdp + 12 * PACKET, "the window follows the policer's rate too"


@pytest.mark.parametrize(("lost", "is_policer"), [(49, False), (50, True)])
def test_an_interval_counts_if_it_loses_50_for_256_delivered(lost: int, is_policer: bool):
    path = policed()
    # The loss that begins an interval is not part of it.
    assert any(is_known(path.play_round(lost, sent=256 + lost)) for _ in range(9)) is is_policer


@pytest.mark.parametrize(
    ("first_mbps", "second_mbps", "is_policer"),
    [
        (8.0, 8.9, True),  # the same within an eighth
        (8.0, 9.2, False),
        (8.0, 7.1, True),
        (8.0, 6.8, False),
        (0.010, 0.0139, True),  # the same within half a kilobyte per second
        (0.010, 0.0145, False),
    ],
)
def test_two_rates_are_the_same_within_a_tolerance(first_mbps: float, second_mbps: float, is_policer: bool):
    path = policed(first_mbps, min_rtt_window_s=3600)  # at the low rate, a round takes 80 s: avoid ProbeRTT
    path.play(4, lost=20)
    path.rate_mbps = second_mbps
    known = path.play(4, lost=20)
    assert is_known(known[-1]) is is_policer
    if is_policer:
        assert known[-1] == pytest.approx((first_mbps + second_mbps) / 2, rel=0.001), "their mean"


def test_an_interval_ends_with_a_loss_and_is_dropped_after_sixteen_rounds():
    path = policed()
    path.play(4, lost=20)  # the first interval
    path.play(3, lost=50)
    path.play(13, lost=0)  # without a loss in rounds 14 to 16, the interval does not end
    assert not is_known(path.play_round(lost=90)), "after seventeen rounds, sampling restarts"
    path.play(3, lost=20)
    assert not any(is_known(bandwidth) for bandwidth in path.play(3, lost=20)), "this is a first interval again"


def test_an_application_limited_round_restarts_sampling():
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
    # The cycle continues without its gains, but its first phase still adds two packets to the window.
    assert windows == {phase: windows[1] + 2 * (phase == 0) for phase in range(8)}
    assert not is_known(path.play_round(lost=0))
    metrics = path.bbr.metrics()
    assert metrics["cycle_index"] != 1, "a new cycle begins, not in the draining phase"
    assert path.bbr.decision().pacing_rate == pytest.approx(metrics["pacing_gain"] * 16e6, rel=0.001)


def test_after_a_pause_the_flow_keeps_the_long_term_bandwidth():
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
    path.bbr.on_recovery(Recovery.LOSS, path.now, 0)
    assert is_known(path.bbr.metrics()["long_term_bandwidth_mbps"])


def test_a_spurious_recovery_takes_the_policer_back():
    path = policed()
    assert is_known(path.play(9, lost=20)[-1])
    path.bbr.on_recovery(Recovery.RECOVERY, path.now, 0)
    path.bbr.on_spurious_recovery()
    assert not is_known(path.bbr.metrics()["long_term_bandwidth_mbps"])


def test_after_a_spurious_recovery_startup_counts_its_rounds_anew():
    """Linux bbr_undo_cwnd."""

    def rounds_until_full(after: int) -> int:
        path = Policed(make())
        for played in range(1, 20):
            path.play_round(lost=0)
            if path.bbr.metrics()["is_full_pipe"]:
                return played
            if played == after:
                path.bbr.on_recovery(Recovery.RECOVERY, path.now, 0)
                path.bbr.on_spurious_recovery()
        raise AssertionError

    usual = rounds_until_full(after=0)
    assert rounds_until_full(after=usual - 1) == usual + 3
