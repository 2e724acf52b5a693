"""The estimators that controllers share, with a clock moved by hand."""

import random

from bbrgym import _testing as cc

MS = 1_000_000


def test_what_an_event_does_not_tell_is_nothing():
    event, decision = cc.AckEvent(), cc.Recording().decision
    told = {
        f"{type(of).__name__}.{name}": value
        for of in (event, event.sample, decision)
        for name in dir(of)
        if not name.startswith("_") and isinstance(value := getattr(of, name), int)
    }
    assert len(told) > 15
    assert {name: value for name, value in told.items() if value} == {"AckEvent.is_cwnd_limited": True}


def test_windowed_max_never_exceeds_the_exact_maximum_nor_undercuts_the_latest():
    seed = 7
    print(f"seed {seed}")
    rng = random.Random(seed)
    largest, window, samples = cc.WindowedMax(window=10), 10, []
    for time in range(2000):
        value = rng.randint(1, 1000)
        samples.append((time, value))
        largest.update(time, value)
        exact = max(v for t, v in samples if time - t <= window)
        assert value <= largest.best() <= exact


def test_a_round_ends_when_a_packet_sent_after_its_start_is_delivered():
    rounds = cc.RoundCounter()
    assert rounds.on_delivered(prior_delivered=0, delivered=1000)  # the first delivery starts round 1
    assert not rounds.on_delivered(prior_delivered=0, delivered=2000)
    assert not rounds.on_delivered(prior_delivered=500, delivered=3000)
    assert rounds.on_delivered(prior_delivered=1000, delivered=4000)
    assert rounds.count() == 2
    rounds.restart(delivered=9000)
    assert not rounds.on_delivered(prior_delivered=8999, delivered=9500)
    assert rounds.on_delivered(prior_delivered=9000, delivered=9900)


def is_full_after_each(pipe: cc.FullPipe, *bandwidths: int) -> list[bool]:
    is_full = []
    for bandwidth in bandwidths:
        pipe.on_round(bandwidth)
        is_full.append(pipe.is_full())
    return is_full


def test_full_pipe_needs_three_rounds_below_a_quarter_of_growth():
    pipe = cc.FullPipe(growth=1.25, rounds=3)
    # 500 is exactly a quarter above 400: this is growth, and the count restarts.
    assert is_full_after_each(pipe, 100, 200, 400, 499, 499, 500, 624, 500, 0) == [False] * 8 + [True]


def test_full_pipe_restarts_its_comparison_after_forgetting():
    pipe = cc.FullPipe(growth=1.25, rounds=3)
    assert is_full_after_each(pipe, 1000, 1000) == [False] * 2
    pipe.forget_bandwidth()
    assert is_full_after_each(pipe, 10, 10, 10, 10) == [False] * 3 + [True], "growth from 0, then three rounds"


def test_min_rtt_keeps_the_smallest_until_it_is_older_than_the_window():
    rtt = cc.MinRtt(window=10_000 * MS)
    assert not rtt.on_ack(now=1 * MS, rtt=50 * MS)
    assert not rtt.on_ack(now=2 * MS, rtt=40 * MS)
    assert not rtt.on_ack(now=3 * MS, rtt=60 * MS)
    assert not rtt.on_ack(now=4 * MS, rtt=0), "an ACK without an RTT changes nothing"
    assert rtt.value() == 40 * MS
    assert not rtt.on_ack(now=10_002 * MS, rtt=70 * MS)
    assert rtt.on_ack(now=10_003 * MS, rtt=70 * MS), "after expiry the next RTT is the minimum"
    assert rtt.value() == 70 * MS
    rtt.refresh(now=20_000 * MS)
    assert not rtt.on_ack(now=29_000 * MS, rtt=80 * MS)


def test_extra_acked_is_the_burst_beyond_bandwidth_times_time():
    extra = cc.ExtraAcked()
    bandwidth = 8_000_000  # 1000 bytes per millisecond
    now = 1000 * MS
    extra.restart()
    # Ten packets at once, where the bandwidth delivers one per millisecond.
    for _ in range(10):
        extra.on_ack(now, 1000, bandwidth, 1_000_000, is_round_start=False)
    assert extra.most() == 10_000
    # After a pause the ACKs come at the bandwidth; ten rounds later the burst is forgotten.
    now += 20 * MS
    for _ in range(10):
        for _ in range(20):
            now += 1 * MS
            extra.on_ack(now, 1000, bandwidth, 1_000_000, is_round_start=False)
        extra.on_ack(now, 0, bandwidth, 1_000_000, is_round_start=True)
    assert extra.most() <= 2000


class SlowStart:
    """HyStart++ and rounds of ten packets."""

    def __init__(self) -> None:
        self.start, self.delivered = cc.HyStart(), 0

    def play_round(self, rtt_ms: float) -> int:
        """Return by how many bytes the window grows."""
        prior, grown = self.delivered, 0
        for _ in range(10):
            self.delivered += 1000
            grown += self.start.on_ack(int(rtt_ms * MS), 1000, prior, self.delivered)
        return grown


def test_hystart_slows_down_on_a_risen_rtt_and_ends_after_five_conservative_rounds():
    path = SlowStart()
    assert [path.play_round(rtt_ms) for rtt_ms in (40, 40, 44)] == [10_000] * 3, "4 ms is below an eighth of 40 ms"
    assert path.play_round(60) < 10_000, "8 samples of a round are enough to detect 16 ms more"
    for _ in range(4):
        assert path.play_round(60) == 2_500
        assert not path.start.is_done()
    path.play_round(60)
    assert path.start.is_done()


def test_hystart_returns_to_slow_start_after_a_spurious_rise():
    path = SlowStart()
    grown = [path.play_round(rtt_ms) for rtt_ms in (40, 40, 60, 40, 40)]
    assert grown[2] < 10_000
    assert grown[4] == 10_000
    assert not path.start.is_done()


def test_prr_sends_a_share_of_the_delivered_packets_while_above_the_threshold():
    # RFC 6937, section 4: towards half the window, one packet leaves for every two delivered.
    prr = cc.ProportionalRateReduction()
    prr.start(in_flight=20_000, sent=100_000)
    sent, in_flight = 100_000, 19_000
    for _ in range(8):
        in_flight -= 1000
        cwnd = prr.cwnd(acked=1000, in_flight=in_flight, sent=sent, ssthresh=10_000, packet_bytes=1000)
        while in_flight + 1000 <= cwnd:
            in_flight += 1000
            sent += 1000
    assert sent - 100_000 == 4000
    assert in_flight == 19_000 - 8000 + 4000


def test_prr_grows_back_to_the_threshold_but_not_beyond():
    prr = cc.ProportionalRateReduction()
    prr.start(in_flight=20_000, sent=0)
    cwnd = prr.cwnd(acked=1000, in_flight=2000, sent=0, ssthresh=10_000, packet_bytes=1000)
    assert cwnd == 4000, "in flight + delivered + one packet: slow start, RFC 6937's SSRB"
    cwnd = prr.cwnd(acked=9000, in_flight=9500, sent=0, ssthresh=10_000, packet_bytes=1000)
    assert cwnd == 10_000
