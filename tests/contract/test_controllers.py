"""The contract of every registered controller, and the files that belong to it."""

import math
import random
from pathlib import Path as FilePath

import pytest
from ack_path import MS, PACKET, Path
from golden_traces import check_golden_trace
from hypothesis import given, settings
from hypothesis import strategies as st
from policies import make_controller

from bbrgym import _controllers
from bbrgym import _testing as cc

ROOT = FilePath(__file__).parents[2]
CONTROLLERS = sorted(_controllers.controllers())


def random_stream(name: str, seed: int, acks: int = 300) -> list[tuple[int, int, bool]]:
    """Return (window, pacing rate, has the ACK a sample) along a random stream of ACKs, losses, timeouts and pauses."""
    rng = random.Random(seed)
    controller = make_controller(
        name,
        {},
        packet_bytes=PACKET,
        initial_cwnd=10 * PACKET,
        initial_rtt=rng.choice([0, rng.randint(1, 10**9)]),
        seed=seed,
    )
    now, delivered, sent, in_flight = 0, 0, 10 * PACKET, 10 * PACKET
    history = [(0, 0)]
    decisions = []
    in_recovery = False
    for _ in range(acks):
        now += rng.choice([0, 1, 1000, rng.randint(0, 10**8), rng.randint(0, 10**10)])
        acked = min(in_flight, PACKET * rng.randint(0, 20))
        lost = min(in_flight - acked, PACKET * rng.choice([0, 0, 0, 1, 5, 100]))
        prior = in_flight
        in_flight -= acked + lost
        delivered += acked
        if rng.random() < 0.05:
            state = rng.choice([cc.Recovery.RECOVERY, cc.Recovery.LOSS, cc.Recovery.OPEN])
            in_recovery = state != cc.Recovery.OPEN
            controller.on_recovery(state, now, in_flight)
        elif in_recovery and rng.random() < 0.2:
            in_recovery = False
            controller.on_recovery(cc.Recovery.OPEN, now, in_flight)
        if in_recovery and rng.random() < 0.05:
            in_recovery = not controller.on_spurious_recovery()
        if rng.random() < 0.02:
            controller.on_restart(now)
        if rng.random() < 0.1:
            controller.steer(rng.choice([0.0, 1.0, 1e9, math.nan, -1.0]), rng.choice([0.0, 1.0, 1e9, math.inf]))
        ack = cc.AckEvent()
        ack.now, ack.bytes_acked, ack.bytes_lost = now, acked, lost
        ack.rtt = rng.choice([0, 1, rng.randint(1, 10**10)])
        ack.prior_in_flight, ack.in_flight, ack.delivered, ack.sent = prior, in_flight, delivered, sent
        ack.is_cwnd_limited = rng.random() < 0.8
        prior_delivered, prior_time = rng.choice(history[-50:])
        if acked and now > prior_time and rng.random() < 0.9:
            ack.sample.is_valid = True
            ack.sample.interval = now - prior_time
            ack.sample.delivered = delivered - prior_delivered
            ack.sample.delivery_rate = int(ack.sample.delivered * 8e9 / ack.sample.interval)
            ack.sample.prior_delivered = prior_delivered
            ack.sample.is_app_limited = rng.random() < 0.1
            ack.sample.tx_in_flight = prior
        history.append((delivered, now))
        controller.on_ack(ack)
        decision = controller.decision()
        decisions.append((decision.cwnd, decision.pacing_rate, ack.sample.is_valid))
        new = max(0, min(decision.cwnd, 10**7) - in_flight) // PACKET * PACKET
        in_flight, sent = in_flight + new, sent + new
    return decisions


@pytest.mark.parametrize("name", CONTROLLERS)
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_window_and_rate_are_valid_on_any_stream(name: str, seed: int):
    has_sample = False
    for cwnd, pacing_rate, is_valid in random_stream(name, seed):
        has_sample |= is_valid
        assert cwnd >= PACKET, "a flow must always be able to send"
        assert cwnd < 2**60
        if has_sample:
            assert 0 < pacing_rate < 2**62


@pytest.mark.parametrize("name", CONTROLLERS)
def test_the_same_seed_gives_the_same_decisions(name: str):
    for seed in range(5):
        assert random_stream(name, seed) == random_stream(name, seed)


DIFFER_AFTER_PROBE_RTT = {
    "bbr-acd": "its source does not restore the window, which then limits the flow to less than the application does",
    "bbr-acd-ns3-published": "it ends the window of one BDP that the last loss began",
}
"""Controllers whose ProbeRTT, by their sources, changes what an application-limited flow does: tried without it."""


def resume(name: str, app_packets: int, limited_s: float) -> list[float]:
    """Return what a flow does in the second after a time that its window did not limit it.

    Its window in packets when that second begins, and the largest in it; the packets that are acknowledged in it.
    """
    parameters = {"min_rtt_window_s": 3600.0} if name in DIFFER_AFTER_PROBE_RTT else {}
    controller = make_controller(name, parameters, packet_bytes=PACKET, initial_cwnd=10 * PACKET, initial_rtt=40 * MS)
    path = Path(controller, rate_mbps=8, buffer_packets=50)
    path.run_until(7000)
    path.app_packets = app_packets
    path.run_until(7000 + 1000 * limited_s)
    window, acks = path.controller.decision().cwnd / PACKET, path.acks
    path.app_packets = math.inf
    largest = path.watch(8000 + 1000 * limited_s)["cwnd"].max() / PACKET
    return [window, largest, path.acks - acks]


@pytest.mark.parametrize("app_packets", [6, 0], ids=["application-limited", "pause"])
@pytest.mark.parametrize("name", CONTROLLERS)
def test_after_a_minute_that_the_window_did_not_limit_a_flow_behaves_as_after_a_second(name: str, app_packets: int):
    # BBR's gains and Vivace's trials differ with the phase in which they are.
    assert resume(name, app_packets, 60) == pytest.approx(resume(name, app_packets, 1), rel=0.15)


@pytest.mark.parametrize("name", CONTROLLERS)
def test_an_unknown_parameter_is_refused_by_name(name: str):
    with pytest.raises(ValueError, match=f"unknown parameter 'no_such_thing' of algorithm '{name}'; known: ") as error:
        _controllers.check(name, {"no_such_thing": 1.0})
    for parameter in _controllers.defaults(name):
        assert parameter in str(error.value)


@pytest.mark.parametrize("name", CONTROLLERS)
def test_values_out_of_range_are_refused_and_defaults_accepted(name: str):
    defaults = _controllers.defaults(name)
    _controllers.check(name, defaults)
    for parameter in defaults:
        for value in (math.nan, math.inf, -1e12):
            with pytest.raises(ValueError, match=f"parameter {parameter} of algorithm"):
                _controllers.check(name, {parameter: value})


def test_an_unknown_algorithm_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=f"unknown algorithm 'bbr9'; known: {', '.join(_controllers.controllers())}"):
        cc.make("bbr9")


@pytest.mark.parametrize("name", CONTROLLERS)
def test_everything_that_belongs_to_an_algorithm_exists(name: str):
    """CONTRIBUTING.md lists the parts of an algorithm."""
    file = name.replace("-", "_")
    for part in (
        f"baselines/cc/{file}.h",
        f"baselines/cc/{file}.cc",
        f"docs/algorithms/{name}.md",
        f"tests/unit/test_{file}.py",
    ):
        assert (ROOT / part).is_file(), f"{name} lacks {part}"


@pytest.mark.parametrize("name", CONTROLLERS)
def test_golden_trace(name: str):
    """After a change that is meant to move results, `python tests/golden_traces.py` writes them."""
    check_golden_trace(name)
