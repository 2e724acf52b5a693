"""The controller of an agent: the states of BBR, gains from outside (docs/algorithms/agent.md)."""

from __future__ import annotations

import math
from statistics import fmean
from typing import Any

import ack_path
import numpy as np
import pandas as pd
import pytest
from ack_path import PACKET, Path

from bbrgym import Flow, Scenario, _controllers, make_engine, simulate
from bbrgym import _testing as cc

STARTUP, PROBE_BW, PROBE_RTT = 0, 2, 3


def make(**parameters: float) -> cc.Controller:
    # RTTs and windows are then exact, the gains are the agent's, and jitter has to be tested; tests of the mechanisms
    # that are off here have the defaults.
    off = [
        "paces_lone_flow",
        "notices_ack_compression",
        "counts_unused_window",
        "notices_slower_link",
        "fills_free_link",
    ]
    exact = {"ignored_delay_ms": 0.0, **dict.fromkeys(off, 0)}
    return ack_path.make("agent", **{**exact, **parameters})


def gains_seen(path: Path) -> dict[int, set[tuple[float, float]]]:
    """Return the pairs of gains that are in force in each mode during twelve seconds."""
    modes = path.watch(12_000).groupby("mode")
    return {int(mode): set(zip(of["cwnd_gain"], of["pacing_gain"], strict=True)) for mode, of in modes}


def test_gains_apply_in_probe_bw_and_those_of_bbr_elsewhere():
    agent = make()
    assert agent.steer(cwnd_gain=1.5, pacing_gain=0.9)
    seen = gains_seen(Path(agent))
    assert seen[PROBE_BW] == {(1.5, 0.9)}
    assert seen[PROBE_RTT] == {(1.0, 1.0)}
    assert all(cwnd_gain > 2.8 for cwnd_gain, _ in seen[0])


def test_by_option_gains_apply_everywhere():
    seen = gains_seen(Path(make(is_always_steered=1, cwnd_gain=1.5, pacing_gain=1.1, doubt_below=0)))
    assert set.union(*seen.values()) == {(1.5, 1.1)}


@pytest.mark.parametrize("gain", [1.0, 3.0])
def test_the_window_follows_the_gain(gain: float) -> None:
    seen = Path(make(cwnd_gain=gain, pacing_gain=1.0)).watch(5000)
    assert seen["cycle_index"].isna().all()
    last = seen.iloc[-1]
    assert last["cwnd"] / PACKET / last["bdp_packets"] == pytest.approx(gain, abs=0.2)


def test_it_remembers_the_lowest_rtt_and_the_highest_bandwidth() -> None:
    agent = make(cwnd_gain=3.0, pacing_gain=1.25)
    assert math.isnan(agent.metrics()["lowest_rtt_ms"])
    assert math.isnan(agent.metrics()["highest_bandwidth_mbps"])
    path = Path(agent)
    path.run_until(5_000)
    assert math.isnan(agent.metrics()["standing_rtt_ms"]), "no ProbeRTT yet"
    path.rtt_ms, path.rate_mbps = 90, 4  # a longer and slower path, for more than the twenty seconds of base_rtt
    path.run_until(30_000)
    metrics = agent.metrics()
    assert metrics["min_rtt_ms"] > 80
    assert metrics["lowest_rtt_ms"] == pytest.approx(40.8)
    assert metrics["standing_rtt_ms"] == pytest.approx(92, abs=1.5), "the last ProbeRTT saw only the longer path"
    assert metrics["max_bandwidth_mbps"] == pytest.approx(4, rel=0.1)
    assert metrics["highest_bandwidth_mbps"] == pytest.approx(10, rel=0.1)


@pytest.mark.parametrize(("gain", "bdps"), [(0.5, 0.5), (0.25, 0.25), (0.0, 0.04)])  # 2 of 50 packets
def test_probe_rtt_keeps_a_share_of_the_bdp_in_flight(gain: float, bdps: float):
    seen = Path(make(probe_rtt_cwnd_gain=gain)).watch(12_000)
    probing = seen[seen["mode"] == PROBE_RTT]
    assert (probing["cwnd"] / PACKET / probing["bdp_packets"]).min() == pytest.approx(bdps, abs=0.02)


@pytest.mark.parametrize(("cwnd_gain", "shrinks_ms", "bdps"), [(1.0, 0, 0.95), (1.1, 0, 0.8), (1.0, 8, 0.95 * 0.8)])
def test_probe_rtt_is_light_without_a_queue_until_the_rtt_falls(
    cwnd_gain: float, shrinks_ms: float, bdps: float
) -> None:
    path = Path(make(cwnd_gain=cwnd_gain, pacing_gain=1.1, ignored_delay_ms=0.3, surplus_packets=0))
    path.run_until(5_000)
    lengthen(path, ms_per_s=-4, most_ms=40)
    path.run_until(5_000 + shrinks_ms / 4 * 1e3)  # the flow's window fills what the path no longer holds
    path.on_ack = lambda ack: None
    seen = path.watch(18_000)
    probing = seen[seen["mode"] == PROBE_RTT]
    assert probing["cwnd"].min() / PACKET / 51 == pytest.approx(bdps, abs=0.02)


def test_probe_rtt_finds_the_path_empty_behind_a_standing_queue() -> None:
    seen = Path(make(cwnd_gain=4.0, pacing_gain=1.25, base_rtt_window_s=8)).watch(12_000)
    probing = seen[seen["mode"] == PROBE_RTT]
    assert probing["min_rtt_ms"].iloc[0] > 150  # four BDPs in flight
    assert probing["standing_rtt_ms"].isna().all()
    assert seen["standing_rtt_ms"].iloc[-1] == pytest.approx(40.8)
    assert probing["min_rtt_ms"].iloc[-1] == pytest.approx(40.8)
    assert probing["cwnd"].iloc[-1] / PACKET == pytest.approx(40, abs=1)  # 0.8 of what the empty path holds


@pytest.mark.parametrize("joins", [True, False])
def test_probe_rtt_begins_when_others_empty_the_queue(joins: bool) -> None:
    agent = make(cwnd_gain=1.1, pacing_gain=1.25, **({} if joins else {"probe_rtt_join": 0}))
    path = Path(agent, rtt_ms=80)  # half of it is a queue of other flows
    assert path.watch(5_000)["mode"].iloc[-1] == PROBE_BW
    path.rtt_ms = 77
    assert set(path.watch(5_300)["mode"]) == {PROBE_BW}  # the RTT has fallen too little
    path.rtt_ms = 40
    assert set(path.watch(5_500)["mode"]) == ({PROBE_BW, PROBE_RTT} if joins else {PROBE_BW})
    path.run_until(6_500)
    assert set(path.watch(9_000)["mode"]) == {PROBE_BW}  # once


def test_the_bdp_is_that_of_the_lowest_rtt_of_twenty_seconds() -> None:
    path = Path(make(cwnd_gain=3.0, pacing_gain=1.25))
    path.run_until(5_000)
    path.rtt_ms = 90
    seen = path.watch(30_000).set_index("now_ms")
    base_rtt_ms = seen["bdp_packets"] * PACKET * 8e-3 / seen["max_bandwidth_mbps"]
    np.testing.assert_allclose(base_rtt_ms, seen["min_rtt_ms"], rtol=1e-6)
    assert base_rtt_ms[:18_000].iloc[-1] == pytest.approx(40, rel=0.05)
    assert base_rtt_ms.iloc[-1] > 80
    assert PROBE_RTT in set(seen["mode"][:18_000]), "which begins after ten seconds"


def test_when_the_lowest_rtt_is_forgotten_the_next_lowest_one_counts() -> None:
    agent = make(cwnd_gain=1.5, pacing_gain=1.25, doubt_below=0)
    path = Path(agent)
    path.run_until(2_000)
    path.rtt_ms = 42
    path.run_until(12_000)
    path.rtt_ms = 60
    for time_ms, base_rtt_ms in ((19_000, 40.8), (25_000, 42.8), (40_000, 60.8)):
        path.run_until(time_ms)
        assert agent.metrics()["min_rtt_ms"] == pytest.approx(base_rtt_ms)


def lengthen(path: Path, ms_per_s: float, most_ms: float) -> None:
    """Let the RTT grow from now on."""
    begin, rtt_ms = path.now, path.rtt_ms

    def grow(ack: cc.AckEvent) -> None:
        path.rtt_ms = min(most_ms, rtt_ms + ms_per_s * (ack.now - begin) / 1e9)

    path.on_ack = grow


@pytest.mark.parametrize(("parameters", "finds_it"), [({}, True), ({"doubt_below": 0}, False)])
def test_a_flow_that_starves_finds_out_that_its_path_is_longer(parameters: dict[str, float], finds_it: bool) -> None:
    agent = make(cwnd_gain=1.05, pacing_gain=1.25, **parameters)
    path = Path(agent)
    path.run_until(2_000)
    lengthen(path, ms_per_s=40, most_ms=100)
    path.run_until(4_500)
    assert agent.metrics()["max_bandwidth_mbps"] < 2, "a window of 40 ms"
    path.run_until(12_000)
    assert (agent.metrics()["min_rtt_ms"] > 95) == finds_it


def adds(agent: cc.Controller) -> bool:
    """Return whether the flow tests a doubt by sending faster."""
    metrics = agent.metrics()
    return metrics["mode"] == PROBE_BW and metrics["pacing_gain"] > 1.3


def times_of_adding(path: Path, until_ms: float) -> list[float]:
    """Return when the flow begins to test a doubt, in ms from now on."""
    begin, times, was_adding = path.now, [], False

    def note(ack: cc.AckEvent) -> None:
        nonlocal was_adding
        if adds(path.controller) and not was_adding:
            times.append((ack.now - begin) / 1e6)
        was_adding = adds(path.controller)

    path.on_ack = note
    path.run_until(until_ms)
    return times


@pytest.mark.parametrize("rtt_ms", [45, 60, 100, 240])
def test_a_path_that_is_longer_in_one_step_is_found_at_once(rtt_ms: float) -> None:
    agent = make(cwnd_gain=1.05, pacing_gain=1.1)
    path = Path(agent)
    path.run_until(5_000)
    path.rtt_ms = rtt_ms
    seen = path.watch(5_600 + 4 * rtt_ms)
    assert agent.metrics()["min_rtt_ms"] == pytest.approx(rtt_ms, abs=1)
    assert seen["max_bandwidth_mbps"].min() > 9, "it has not starved"


def test_what_grows_or_does_not_last_is_no_step() -> None:
    path = Path(make(cwnd_gain=1.05, pacing_gain=1.1))
    path.run_until(3_000)
    path.rtt_ms = 80
    path.run_until(3_120)
    path.rtt_ms = 40
    assert not times_of_adding(path, 4_500)
    path.rate_mbps = 2  # a queue of its own
    assert not times_of_adding(path, 6_000)


def test_a_queue_that_others_built_at_once_grows_in_the_test_of_a_step() -> None:
    path = Path(make(cwnd_gain=1.05, pacing_gain=1.1))
    path.run_until(3_000)
    path.rtt_ms, path.rate_mbps = 60, 6.5  # what is left to this flow
    assert path.watch(4_400)["min_rtt_ms"].max() < 41


def test_rtts_that_vary_slowly_are_judged_in_longer_spans() -> None:
    agent = make(cwnd_gain=1.05, pacing_gain=1.1)
    path = Path(agent)
    path.run_until(3_000)

    def vary(ack: cc.AckEvent) -> None:
        path.rtt_ms = 44 if ack.now // 300_000_000 % 2 else 54

    path.on_ack = vary
    path.run_until(12_000)
    assert agent.metrics()["min_rtt_ms"] > 48
    assert agent.metrics()["max_bandwidth_mbps"] > 8


def time_to_use(rate_mbps: float, fills: bool) -> float:
    """Return after how many ms a flow that had 10 Mbit/s uses a link that has become faster."""
    path = Path(make(cwnd_gain=1.05, pacing_gain=1.1, fills_free_link=fills))
    path.run_until(3_000)
    path.rate_mbps = rate_mbps
    seen = path.watch(9_000)
    assert seen["pacing_gain"].max() == (1.5 if fills else 1.1)
    return seen["now_ms"][seen["max_bandwidth_mbps"] > 0.9 * rate_mbps].iloc[0] - 3_000


def test_without_a_queue_the_window_grows_fast() -> None:
    slow, fast = (time_to_use(100, fills) for fills in (False, True))
    assert fast < 0.5 * slow


FILLS = {"cwnd_gain": 1.2, "pacing_gain": 1.1, "fills_free_link": 1, "doubt_below": 0}


@pytest.mark.parametrize(
    ("changes", "is_free"),
    [({"rtt_ms": 42}, True), ({"rtt_ms": 44}, False), ({"lose": lambda number: not number % 8}, False)],
)
def test_a_link_is_not_free_where_others_keep_a_queue_or_packets_get_lost(
    changes: dict[str, Any], is_free: bool
) -> None:
    path = Path(make(**FILLS))
    path.run_until(3_000)
    for name, value in {"rate_mbps": 40, **changes}.items():
        setattr(path, name, value)
    assert (path.watch(5_000)["pacing_gain"].max() > 1.1) == is_free


@pytest.mark.parametrize("gains", [{"cwnd_gain": 2.0, "pacing_gain": 1.0}, {"cwnd_gain": 0.9, "pacing_gain": 1.1}])
def test_a_flow_that_wants_no_queue_is_left_alone(gains: dict[str, float]) -> None:
    runs = [Path(make(**{**FILLS, **gains, "fills_free_link": fills})).watch(6_000) for fills in (0, 1)]
    pd.testing.assert_frame_equal(*runs)


def test_on_a_cellular_link_a_flow_uses_more_behind_no_longer_a_queue() -> None:
    def run(fills: bool) -> tuple[float, float]:
        flow = {"algorithm": "policy", "rtt_ms": 50, "jitter_ms": 0.5, "parameters": {"fills_free_link": fills}}
        scenario = {"rate_mbps": 12, "buffer_bdp": 4, "duration_s": 60, "flows": [flow]}
        traces = ({"synthetic": "cellular", "seed": seed} for seed in range(101, 107))
        scenarios = [Scenario.from_dict({**scenario, "rate_trace": trace}) for trace in traces]
        links = [simulate(scenario, "native", seed=1).summary(after_s=5).link for scenario in scenarios]
        return fmean(link.utilisation for link in links), fmean(link.queue_mean_ms for link in links)

    (little, queue_ms), (much, no_more_ms) = run(fills=False), run(fills=True)
    assert much > little + 0.02
    assert no_more_ms < 1.05 * queue_ms


@pytest.mark.parametrize(("slot_ms", "jitter_ms"), [(8, 4), (20, 11), (30, 12)])
def test_a_flow_that_starves_finds_jitter(slot_ms: float, jitter_ms: float) -> None:
    def run(**parameters: float) -> dict[str, float]:
        agent = make(cwnd_gain=1.05, pacing_gain=1.25, counts_unused_window=1, **parameters)
        path = Path(agent)
        path.run_until(2_000)
        path.ack_slot_ms = slot_ms
        path.run_until(11_000)
        return agent.metrics()

    blind, found = run(doubt_below=0), run()
    assert blind["min_rtt_ms"] == pytest.approx(41, abs=1)
    assert blind["max_bandwidth_mbps"] < 2
    assert found["min_rtt_ms"] == pytest.approx(41 + jitter_ms, abs=1.5), "about half a slot in the mean"
    assert found["max_bandwidth_mbps"] >= 8


@pytest.mark.parametrize("queue", ["grows", "overflows", "becomes shorter"])
def test_what_grows_overflows_or_becomes_shorter_in_a_test_is_a_queue(queue: str) -> None:
    agent = make(cwnd_gain=1.05, pacing_gain=1.25)
    path = Path(agent)
    path.run_until(2_000)
    path.ack_slot_ms = 20
    tests = 0

    def behave(_: object) -> None:
        nonlocal tests
        tests += adds(agent)
        if queue == "grows":
            path.ack_slot_ms = 40 if adds(agent) else 20
        elif queue == "becomes shorter":
            path.ack_slot_ms = 8 if agent.metrics()["mode"] == PROBE_RTT else 20

    path.on_ack = behave
    if queue == "overflows":
        path.lose = lambda number: adds(agent) and number % 3 == 0
    path.run_until(9_000)
    assert tests > 0
    assert agent.metrics()["min_rtt_ms"] == pytest.approx(41, abs=1)


def test_jitter_that_begins_late_is_found_soon_and_is_at_most_the_median_of_three_probe_rtts() -> None:
    agent = make(cwnd_gain=1.05, pacing_gain=1.25)
    path = Path(agent)
    path.run_until(22_000)  # two ProbeRTTs find none
    path.ack_slot_ms = 20
    path.run_until(26_500)
    assert agent.metrics()["min_rtt_ms"] == pytest.approx(51, abs=2)
    path.run_until(46_500)
    path.ack_slot_ms = 12
    path.run_until(57_000)
    assert agent.metrics()["min_rtt_ms"] == pytest.approx(51, abs=2), "one ProbeRTT that finds less could be wrong"
    path.run_until(67_500)
    assert agent.metrics()["min_rtt_ms"] == pytest.approx(45.3, abs=1), "but not two"


def let_others_queue(path: Path, most_ms: float, is_emptied_in_probe_rtt: bool = False) -> None:
    """Let a queue of others grow from nothing to this delay and drain, again and again, by 0.2 ms per ms."""

    def queue(ack: cc.AckEvent) -> None:
        grown_ms = 0.2 * (ack.now / ack_path.MS) % (2 * most_ms)
        is_emptied = is_emptied_in_probe_rtt and path.controller.metrics()["mode"] != PROBE_BW
        path.rtt_ms = 40 + (0 if is_emptied else min(grown_ms, 2 * most_ms - grown_ms))

    path.on_ack, path.ack_slot_ms = queue, 0


def test_jitter_is_found_beside_a_queue_that_probe_rtts_empty() -> None:
    agent = make(cwnd_gain=1.3, pacing_gain=1.25, notices_ack_compression=0)
    path = Path(agent)
    path.run_until(1_000)
    let_others_queue(path, 4, is_emptied_in_probe_rtt=True)
    path.ack_slot_ms = 8
    path.run_until(26_000)
    assert agent.metrics()["min_rtt_ms"] < 42, "a window of 1.3 BDPs has room for the jitter"
    agent.steer(1.02, 1.25)
    path.run_until(40_000)
    assert agent.metrics()["min_rtt_ms"] == pytest.approx(40 + 8 / 2 + 4 / 2, abs=1), "it was never found"
    assert agent.metrics()["max_bandwidth_mbps"] > 9


@pytest.mark.parametrize(
    ("rate_mbps", "slot_ms", "tests", "finds_jitter"),
    [
        pytest.param(10, 8, 1, True, id="jitter: packets meet other delays than those sent just before them"),
        pytest.param(80, 0, 0, False, id="a queue: they meet the same ones"),
        pytest.param(10, 0, 3, True, id="packets are too far apart to tell"),
        pytest.param(10, 20, 1, True, id="a large delay"),
    ],
)
def test_a_small_delay_that_may_be_a_queue_has_to_pass_three_times(
    rate_mbps: float, slot_ms: float, tests: int, finds_jitter: bool
) -> None:
    agent = make(cwnd_gain=1.05, pacing_gain=1.25)
    path = Path(agent, rate_mbps)
    path.run_until(2_000)
    path.ack_slot_ms = slot_ms
    if slot_ms == 0:
        let_others_queue(path, 6)
    seen = path.watch(14_000)
    adding = (seen["mode"] == PROBE_BW) & (seen["pacing_gain"] > 1.3) & (seen["min_rtt_ms"] < 43)
    assert (adding & ~adding.shift(fill_value=False)).sum() == tests
    assert (agent.metrics()["min_rtt_ms"] > 43) == finds_jitter


@pytest.mark.parametrize(("slot_ms", "jitter_ms"), [(8, 4), (20, 11)])
def test_jitter_ends_where_delays_turn_out_to_be_those_of_a_queue(slot_ms: float, jitter_ms: float) -> None:
    agent = make(cwnd_gain=1.05, pacing_gain=1.25)
    path = Path(agent, rate_mbps=40)
    path.run_until(2_000)
    path.ack_slot_ms = slot_ms
    path.run_until(13_000)
    assert agent.metrics()["min_rtt_ms"] == pytest.approx(40 + jitter_ms, abs=1.5)
    let_others_queue(path, 2 * jitter_ms)
    path.run_until(18_000)
    assert agent.metrics()["min_rtt_ms"] == pytest.approx(40, abs=1), "long before two ProbeRTTs"


@pytest.mark.parametrize("ms_per_s", [1, 2, 4])
def test_a_path_that_grows_evenly_is_followed(ms_per_s: float) -> None:
    path = Path(make(cwnd_gain=1.05, pacing_gain=1.1))
    path.run_until(3_000)
    lengthen(path, ms_per_s, most_ms=80)
    seen = path.watch(13_000)
    is_found = seen["min_rtt_ms"] > 41.5
    assert seen["max_bandwidth_mbps"].min() > 5
    assert seen["max_bandwidth_mbps"][is_found].min() > 8, "the next rises are tested soon"


@pytest.mark.parametrize("ms_per_s", [-1, -3])
def test_a_path_that_shrinks_does_not_hide_a_queue(ms_per_s: float) -> None:
    path = Path(make(rtt_ms=140, cwnd_gain=1.005, pacing_gain=1.1), rate_mbps=40, rtt_ms=140)
    path.run_until(3_000)
    begin = path.now
    rng = np.random.default_rng(1)

    def shrink(ack: cc.AckEvent) -> None:
        path.rtt_ms = 140 + ms_per_s * (ack.now - begin) / 1e9 + rng.uniform(0, 0.5)

    path.on_ack = shrink
    path.run_until(24_000)
    last = path.watch(28_000)
    assert last["min_rtt_ms"].min() < (140 + path.rtt_ms) / 2
    assert last["max_bandwidth_mbps"].mean() > 37


def test_a_queue_that_grows_evenly_is_not_taken_for_the_path() -> None:
    path = Path(make(cwnd_gain=1.05, pacing_gain=1.1))
    path.run_until(3_000)
    path.rate_mbps = 6
    path.run_until(5_000)

    def queue(ack: cc.AckEvent) -> None:
        path.controller.steer(1.05 + (ack.now / 1e9 - 5) / 10, 1.1)

    path.on_ack = queue
    seen = path.watch(9_000)
    assert (seen["pacing_gain"] > 1.3).any(), "it has tested"
    assert seen["min_rtt_ms"].max() < 42


def test_startup_begins_again_when_a_flow_has_found_jitter() -> None:
    path = Path(make(cwnd_gain=1.05, pacing_gain=1.25))
    path.run_until(2_000)
    path.ack_slot_ms, path.rate_mbps = 20, 80
    seen = path.watch(14_000)
    found = (seen["min_rtt_ms"] > 43).argmax()
    before, after = seen[seen.index < found], seen[seen.index > found]
    assert set(before["mode"][before["now_ms"] > 2_000]) <= {PROBE_BW, PROBE_RTT}
    assert after["mode"].iloc[0] == STARTUP
    assert before["max_bandwidth_mbps"].max() < 20
    assert after["max_bandwidth_mbps"].max() > 70


def test_rtts_that_jump_again_and_again_give_a_doubt_before_the_flow_starves() -> None:
    path = Path(make(cwnd_gain=1.05, pacing_gain=1.1), rate_mbps=50)
    path.run_until(3_000)

    def jump(ack: cc.AckEvent) -> None:
        path.rtt_ms = 55 - ack.now / 1e6 % 150 / 10

    path.on_ack = jump
    seen = path.watch(12_000)
    has_found = seen["min_rtt_ms"] > 43
    assert seen["min_rtt_ms"].max() == pytest.approx(47, abs=2)
    assert seen["max_bandwidth_mbps"][: has_found.argmax()].min() > 25


@pytest.mark.parametrize(("notices", "starves"), [(0, False), (1, True)])
def test_jumps_beside_acks_that_arrive_together_give_no_doubt_before_the_flow_starves(
    notices: int, starves: bool
) -> None:
    path = Path(make(cwnd_gain=1.05, pacing_gain=1.1, notices_ack_compression=notices), rate_mbps=50)
    path.run_until(3_000)

    def jump(ack: cc.AckEvent) -> None:
        path.rtt_ms = 58 - ack.now / 1e6 % 150 / 10

    path.on_ack, path.ack_slot_ms = jump, 4
    seen = path.watch(12_000)
    has_found = seen["min_rtt_ms"] > 45
    assert has_found.any()
    assert (seen["max_bandwidth_mbps"][: has_found.argmax()].min() < 20) == starves


def path_over_satellites() -> Path:
    """Return a path whose RTTs jump by up to 19 ms every 100 ms after its first three seconds, in order."""
    path = Path(make(cwnd_gain=1.05, pacing_gain=1.1), rate_mbps=50)
    path.run_until(3_000)
    rng, base_ms, begin, was, slot = np.random.default_rng(1), path.rtt_ms, path.now, path.now, -1
    target_ms = base_ms

    def jump(ack: cc.AckEvent) -> None:
        nonlocal was, slot, target_ms
        if (now_slot := (ack.now - begin) // (100 * ack_path.MS)) > slot:
            slot, target_ms = now_slot, base_ms + rng.uniform(0, 19)
        path.rtt_ms, was = max(target_ms, path.rtt_ms - (ack.now - was) / ack_path.MS), ack.now

    path.on_ack = jump
    return path


def paces_of_probe_bw(seen: pd.DataFrame) -> set[float]:
    """Return the pacing gains without tests, in the second half."""
    gains = seen["pacing_gain"][seen["mode"] == PROBE_BW]
    return set(gains[len(gains) // 2 :][gains < 1.3].round(3))


def test_where_jitter_is_slow_pacing_keeps_the_queue_short() -> None:
    seen = path_over_satellites().watch(30_000)
    assert paces_of_probe_bw(seen) == {0.9, 0.96, 1.05}
    last = seen[seen["now_ms"] > 20_000]
    assert len(last) * PACKET * 8e-6 / 10 > 0.85 * 50, "Mbit/s"
    assert last["max_bandwidth_mbps"].mean() == pytest.approx(50, rel=0.05)


def test_a_pacing_gain_below_that_of_slow_jitter_is_kept() -> None:
    path = path_over_satellites()
    path.run_until(20_000)
    path.controller.steer(math.nan, 0.93)
    assert paces_of_probe_bw(path.watch(24_000)) <= {0.9, 0.93}


@pytest.mark.parametrize("rate_mbps", [10, 50])
def test_where_jitter_is_fast_the_window_limits_the_flow(rate_mbps: float) -> None:
    path = Path(make(cwnd_gain=1.05, pacing_gain=1.1), rate_mbps=rate_mbps)
    path.run_until(2_000)
    path.ack_slot_ms = 20
    assert paces_of_probe_bw(path.watch(20_000)) == {1.1}
    assert path.controller.metrics()["min_rtt_ms"] > 50, "it has found jitter"


def test_what_a_flow_takes_in_a_test_that_fails_does_not_become_its_share() -> None:
    agent = make(cwnd_gain=1.05, pacing_gain=1.25)
    path = Path(agent, rate_mbps=20)
    path.run_until(3_000)
    agent.steer(0.33, math.nan)
    path.rtt_ms = 55
    path.run_until(4_500)
    taken: list[float] = []
    kept: list[float] = []

    def behave(ack: cc.AckEvent) -> None:
        path.rtt_ms = 75 if adds(agent) else 55
        taken.append(ack.sample.delivery_rate / 1e6)
        kept.append(agent.metrics()["max_bandwidth_mbps"])

    path.on_ack = behave
    path.run_until(7_000)
    assert max(kept) < 1
    assert max(taken) > 5 * min(kept), "a test may take nine times what the flow has"


def path_that_becomes_longer(rtt_ms: float, rate_mbps: float) -> pd.Series:
    """Return the metrics with which a flow that had 20 Mbit/s finds that its RTT is no longer 40 ms."""
    path = Path(make(cwnd_gain=1.05, pacing_gain=1.25), rate_mbps=20)
    path.run_until(3_000)
    path.rtt_ms, path.rate_mbps = rtt_ms, rate_mbps
    seen = path.watch(13_000)
    return seen[seen["min_rtt_ms"] > rtt_ms].iloc[0]


@pytest.mark.parametrize("rtt_ms", [100, 240])  # longer than ProbeRTT, too
def test_the_bandwidth_that_a_test_finds_on_a_longer_path_is_kept(rtt_ms: float) -> None:
    found = path_that_becomes_longer(rtt_ms, rate_mbps=20)
    assert found["now_ms"] < 8_000
    assert found["max_bandwidth_mbps"] > 10


def test_a_test_that_fails_shows_that_the_link_is_slower() -> None:
    found = path_that_becomes_longer(100, rate_mbps=5)
    assert found["now_ms"] < 11_000
    assert 3 < found["max_bandwidth_mbps"] < 5


@pytest.mark.parametrize(("slot_ms", "rate_mbps"), [(4, 10), (4, 50), (8, 10)])
def test_acks_that_arrive_together_show_by_how_much_packets_are_held_up(slot_ms: float, rate_mbps: float) -> None:
    def run(notices: bool) -> dict[str, float]:
        agent = make(cwnd_gain=1.05, pacing_gain=1.25, doubt_below=0, notices_ack_compression=notices)
        path = Path(agent, rate_mbps=rate_mbps)
        path.run_until(2_000)
        path.ack_slot_ms = slot_ms
        path.run_until(9_000)
        return agent.metrics()

    blind, found = run(False), run(True)
    assert blind["min_rtt_ms"] < 41
    assert blind["max_bandwidth_mbps"] < rate_mbps / 8
    assert blind["min_rtt_ms"] + slot_ms / 3 < found["min_rtt_ms"] < blind["min_rtt_ms"] + slot_ms / 2
    assert found["max_bandwidth_mbps"] > 0.9 * rate_mbps


def test_acks_that_arrive_together_once_show_no_jitter() -> None:
    path = Path(make(cwnd_gain=1.05, pacing_gain=1.25, notices_ack_compression=1), rate_mbps=50)
    path.run_until(2_000)
    path.ack_slot_ms = 20
    path.run_until(2_300)
    path.ack_slot_ms = 0
    assert path.watch(6_000)["min_rtt_ms"].max() < 41


def test_a_queue_of_others_that_grows_and_drains_does_not_hold_up_packets() -> None:
    path = Path(make(cwnd_gain=1.05, pacing_gain=1.25, doubt_below=0, notices_ack_compression=1), rate_mbps=80)
    path.run_until(2_000)
    let_others_queue(path, 6)
    assert path.watch(14_000)["min_rtt_ms"].max() < 41


def test_jitter_below_three_tenths_of_a_millisecond_and_a_two_hundredth_is_none() -> None:
    def min_rtt_ms(ack_slot_ms: float) -> float:
        agent = make(cwnd_gain=1.02, pacing_gain=1.25)
        path = Path(agent, ack_slot_ms=20)
        path.run_until(8_000)
        path.ack_slot_ms = ack_slot_ms
        path.run_until(42_000)
        return agent.metrics()["min_rtt_ms"]

    assert min_rtt_ms(10) > 43, "ProbeRTT still finds some"
    assert min_rtt_ms(1) < 41.5


def times_of_tests(rate_mbps: float, rtt_ms: float, growth_ms: float = 60, varies_ms: float = 0) -> list[float]:
    """Return when a flow tests, in s, that has a third of its link, and this RTT instead of 40 ms; it finds a queue.

    The queue grows by as much in the test, and varies by as much from one 50 ms to the next.
    """
    agent = make(cwnd_gain=1.05, pacing_gain=1.25)
    path = Path(agent, rate_mbps=rate_mbps)
    path.run_until(3_000)
    agent.steer(0.33, math.nan)
    lengthen(path, ms_per_s=40, most_ms=rtt_ms)
    path.run_until(4_000)
    times: list[float] = []

    def note(ack: cc.AckEvent) -> None:
        path.rtt_ms = rtt_ms - varies_ms * (ack.now // (50 * ack_path.MS) % 2) + growth_ms * adds(agent)
        if adds(agent) and (not times or ack.now / 1e9 > times[-1] + 1):
            times.append(ack.now / 1e9)

    path.on_ack = note
    path.run_until(60_000)
    return times


def test_a_short_queue_that_never_empties_gives_a_doubt_only_if_probe_rtt_does_not_empty_it_either() -> None:
    assert times_of_tests(rate_mbps=80, rtt_ms=55)[0] < 8
    assert times_of_tests(rate_mbps=80, rtt_ms=45)[0] > 10


def test_pauses_between_tests_double_that_clearly_fail() -> None:
    first, second = np.diff(times_of_tests(rate_mbps=80, rtt_ms=55))[:2]  # base_rtt expires after twenty seconds
    assert second == pytest.approx(first + 2, abs=0.5)  # of two and of four seconds
    assert np.diff(times_of_tests(rate_mbps=80, rtt_ms=55, growth_ms=10)).max() < 4, "ProbeRTT restarts the six spans"


def test_a_delay_of_few_packets_is_tested_once_unless_it_never_varies() -> None:
    assert len(times_of_tests(rate_mbps=2, rtt_ms=55, varies_ms=2)) == 1
    assert len(times_of_tests(rate_mbps=2, rtt_ms=55)) == 2


def test_a_path_that_becomes_longer_when_its_link_becomes_faster_is_found() -> None:
    agent = make(cwnd_gain=1.1, pacing_gain=1.25)
    path = Path(agent, rate_mbps=50)
    path.run_until(5_000)
    agent.steer(2.5, 1.1)
    path.rate_mbps = 3
    path.run_until(15_000)
    path.rate_mbps, path.rtt_ms = 50, 70  # as long as the queue of a link of 3 Mbit/s was
    path.run_until(22_000)
    assert agent.metrics()["min_rtt_ms"] == pytest.approx(70, abs=1), "no queue is that constant"
    assert agent.metrics()["max_bandwidth_mbps"] > 40


def doubts_before_probe_rtt(rate_mbps: float) -> bool:
    """Return whether a flow tests before the next ProbeRTT when after one RTTs grow and it has less than its share."""
    agent = make(cwnd_gain=1.05, pacing_gain=1.25)
    path = Path(agent, rate_mbps=rate_mbps)
    path.run_until(12_000)
    agent.steer(0.33, math.nan)
    lengthen(path, ms_per_s=40, most_ms=55)
    seen = path.watch(20_000)
    return bool(((seen["mode"] == PROBE_BW) & (seen["pacing_gain"] > 1.3)).any())


def test_only_a_flow_that_starves_does_not_wait_for_probe_rtt_to_show_whether_a_queue_drains() -> None:
    assert doubts_before_probe_rtt(rate_mbps=20)
    assert not doubts_before_probe_rtt(rate_mbps=2), "with two packets it keeps more than an eighth"


@pytest.mark.parametrize(("slot_ms", "queue_ms", "gain", "is_kept"), [(20, 16, 0.8, True), (8, 5, 1.0, False)])
def test_a_queue_that_never_empties_ends_jitter_unless_it_is_large(
    slot_ms: float, queue_ms: float, gain: float, is_kept: bool
) -> None:
    agent = make(cwnd_gain=1.1, pacing_gain=1.25)
    path = Path(agent)
    path.run_until(2_000)
    path.ack_slot_ms = slot_ms
    path.run_until(12_000)
    assert agent.metrics()["min_rtt_ms"] > 43, "it has found jitter"
    agent.steer(gain, math.nan)  # without a queue of its own
    path.ack_slot_ms = 0

    def queue(ack: cc.AckEvent) -> None:
        path.rtt_ms = 40 + queue_ms * (0.8 + 0.2 * (ack.now // (50 * ack_path.MS) % 2))  # all packets wait for others

    path.on_ack = queue
    path.run_until(15_000)
    assert (agent.metrics()["min_rtt_ms"] > 43) == is_kept


def rates_behind_a_queue_of_others(**parameters: float) -> list[float]:
    """Return the rate after each second for which a flow has wanted five packets in a queue of 1 ms."""
    agent = make(rtt_ms=100, cwnd_gain=1.0, pacing_gain=1.25, **parameters)
    path = Path(agent, rtt_ms=100)
    path.run_until(2_000)
    path.rate_mbps, path.rtt_ms = 1_000, 101.8  # others decide how long the queue is, not this flow
    rates = []
    for second in range(3, 20):  # base_rtt expires after twenty
        path.run_until(1_000 * second)
        agent.steer(1.0 + 5.0 / agent.metrics()["bdp_packets"], math.nan)
        rates.append(agent.metrics()["max_bandwidth_mbps"])
    return rates


def test_a_flow_reaches_its_share_of_a_short_queue_sooner_with_the_correction() -> None:
    share_mbps = 5 * 8  # Little's law: five packets per millisecond
    slow, fast = rates_behind_a_queue_of_others(correction_rounds=0), rates_behind_a_queue_of_others()
    assert slow[4] < 0.6 * share_mbps
    assert fast[4] > 0.8 * share_mbps
    assert max(fast) < 1.15 * share_mbps, "it does not overshoot"


def test_the_correction_keeps_what_a_lone_flow_wants_in_the_queue() -> None:
    path = Path(make(cwnd_gain=1.1, pacing_gain=1.25))  # five packets
    path.run_until(4_000)
    queued = []
    path.watch(9_000)
    path.on_ack = lambda ack: queued.append((ack.rtt / 1e6 - 40.8) / 0.8)
    path.run_until(9_500)
    assert np.mean(queued) == pytest.approx(5, abs=1)
    assert np.ptp(queued) < 3


def test_behind_a_queue_a_flow_wants_less_by_a_part_of_what_of_its_window_is_not_in_flight() -> None:
    wanted_mbps = 5 * 8
    exact, spares = (fmean(rates_behind_a_queue_of_others(counts_unused_window=counts)[8:]) for counts in (0, 1))
    assert exact == pytest.approx(wanted_mbps, rel=0.1)
    assert 0.75 * wanted_mbps < spares < 0.9 * wanted_mbps


def test_packets_that_get_lost_do_not_cost_the_bandwidth() -> None:
    def throughput_mbps(**parameters: float) -> float:
        gains = {"cwnd_gain": 1.002, "pacing_gain": 1.1, "fills_free_link": 0}
        agent = Flow("agent", 140, parameters={**gains, **parameters})
        scenario = Scenario(rate_mbps=100, buffer_bdp=1, duration_s=20, loss=0.02, flows=(agent,))
        engine = make_engine("native")
        runs = [simulate(scenario, engine, seed).summary(after_s=10) for seed in (1, 2, 3)]
        return fmean(run.flows[0].throughput_mbps for run in runs)

    assert throughput_mbps(makes_up_for_losses=0) < 85
    assert throughput_mbps() > 93


LONE = {"cwnd_gain": 1.06, "pacing_gain": 1.1, "paces_lone_flow": 1}  # three packets beyond a BDP of 51


def test_a_lone_flow_sends_just_below_the_rate_of_the_link() -> None:
    def run(**parameters: float) -> tuple[float, float]:
        flow = Flow("agent", rtt_ms=20, jitter_ms=0.5, parameters={"cwnd_gain": 1.5, "pacing_gain": 1.1, **parameters})
        trace = simulate(Scenario(rate_mbps=4, buffer_bdp=4, duration_s=20, flows=(flow,)), make_engine("native"), 1)
        last = trace.rows[trace.rows["time_s"] > 5]
        return last["link_queue_mean_packets"].mean(), last["link_utilisation"].mean()

    (queue, utilisation), (queue_without, _) = run(), run(paces_lone_flow=0)
    assert queue_without > 2
    assert queue < 0.25 * queue_without
    assert utilisation > 0.98


def test_a_lone_flow_has_its_window_of_before_while_it_is_paced() -> None:
    path = Path(make(**LONE))
    path.run_until(3_000)
    assert path.controller.metrics()["pacing_gain"] < 1
    path.controller.steer(2.0, math.nan)  # since the agent sees no queue
    seen = path.watch(8_000)
    seen = seen[seen["mode"] == PROBE_BW]
    assert set(seen["cwnd_gain"].round(3)) == {1.06}
    assert (seen["pacing_gain"] == 1.1).mean() < 0.5
    path.controller.steer(1.02, 0.9)
    metrics = path.watch(8_100).iloc[-1]
    assert (metrics["cwnd_gain"], metrics["pacing_gain"]) == (1.02, 0.9), "the agent may want less"


def test_a_lone_flow_notices_that_the_link_has_become_faster() -> None:
    path = Path(make(**LONE))
    path.run_until(9_900)
    path.rate_mbps = 15
    path.run_until(11_500)
    assert path.controller.metrics()["max_bandwidth_mbps"] == pytest.approx(15, rel=0.05)


def test_a_flow_on_a_link_that_varies_is_hardly_ever_paced() -> None:
    path = Path(make(**LONE))
    rates = np.random.default_rng(1).uniform(8, 12, 1000)

    def vary(ack: cc.AckEvent) -> None:
        path.rate_mbps = float(rates[ack.now // (200 * ack_path.MS)])

    path.on_ack = vary
    seen = path.watch(20_000)
    assert (seen["pacing_gain"][seen["mode"] == PROBE_BW] == 1.1).mean() > 0.8, "now and then two results are the same"


@pytest.mark.parametrize(("rate_mbps", "is_paced"), [(15, True), (25, False)])
def test_a_lone_flow_with_more_than_a_hundred_packets_in_flight_is_not_paced(rate_mbps: float, is_paced: bool) -> None:
    seen = Path(make(**LONE), rate_mbps=rate_mbps).watch(5_000)
    assert (seen["pacing_gain"][seen["mode"] == PROBE_BW] < 1.1).any() == is_paced


def test_a_newcomer_ends_the_pacing_of_a_lone_flow() -> None:
    flows = tuple(Flow("policy", rtt_ms=40, jitter_ms=0.5, start_s=start) for start in (0, 10))
    trace = simulate(Scenario(rate_mbps=12, buffer_bdp=4, duration_s=30, flows=flows), make_engine("native"), 1)
    steered = trace.rows[trace.rows["mode"] == PROBE_BW]
    is_paced, time_s = steered["pacing_gain"] < 1.01, steered["time_s"]
    assert is_paced[(time_s > 5) & (time_s < 10)].mean() > 0.5
    assert is_paced[time_s > 11].mean() < 0.1
    first, second = (flow.throughput_mbps for flow in trace.summary(after_s=15).flows)
    assert first == pytest.approx(second, rel=0.1)


@pytest.mark.parametrize(
    ("flows", "flow"),
    [
        pytest.param(1, Flow("policy", rtt_ms=50, jitter_ms=2), id="alone"),
        pytest.param(2, Flow("policy", rtt_ms=50, jitter_ms=3), id="two"),
        pytest.param(1, Flow("policy", rtt_ms=46, jitter_ms=0.5, ack_aggregation_ms=8.4), id="alone on Wi-Fi"),
        pytest.param(3, Flow("policy", rtt_ms=30, jitter_ms=0.5, ack_aggregation_ms=6), id="three on Wi-Fi"),
    ],
)
def test_flows_with_jitter_use_the_link(flows: int, flow: Flow) -> None:
    scenario = Scenario(rate_mbps=30, buffer_bdp=2, duration_s=40, flows=(flow,) * flows)
    assert simulate(scenario, "native", seed=2).summary(after_s=15).link.utilisation > 0.9, "it was 0.2 to 0.6"


@pytest.mark.parametrize("seed", [1, 2])
def test_the_window_of_a_lone_flow_has_room_for_all_that_is_held_up(seed: int) -> None:
    flow = Flow("policy", rtt_ms=50, jitter_ms=0.5, ack_aggregation_ms=15)
    scenario = Scenario(rate_mbps=30, buffer_bdp=2, duration_s=40, flows=(flow,))
    assert simulate(scenario, "native", seed).summary(after_s=15).link.utilisation > 0.85, "it was 0.55 to 0.73"


def test_jitter_is_found_without_a_loss_of_bandwidth() -> None:
    flows = (Flow("policy", 72, jitter_ms=5.1), Flow("policy", 34.1, jitter_ms=0.5))
    scenario = Scenario(rate_mbps=40.2, buffer_bdp=2, duration_s=60, flows=flows)
    runs = [simulate(scenario, "native", seed).summary(after_s=15) for seed in range(1, 5)]
    assert min(run.link.jain for run in runs) > 0.93, "it was 0.66 to 0.87"


def share_beside_cubic(preference: float, recalls: bool) -> float:
    policy = Flow("policy", jitter_ms=0.5, parameters={"preference": preference, "recalls_rivals": recalls})
    scenario = Scenario(rate_mbps=20, buffer_bdp=4, duration_s=60, flows=(policy, Flow("cubic", jitter_ms=0.5)))
    runs = [simulate(scenario, "native", seed).summary(after_s=15).flows for seed in (1, 2, 3)]
    return fmean(own.throughput_mbps / (own.throughput_mbps + rival.throughput_mbps) for own, rival in runs)


def test_a_flow_that_prefers_its_share_recalls_rivals() -> None:
    assert share_beside_cubic(1.0, recalls=False) < 0.52 < 0.58 < share_beside_cubic(1.0, recalls=True)


def test_at_the_default_preference_a_flow_recalls_no_rivals() -> None:
    assert share_beside_cubic(0.25, recalls=True) == share_beside_cubic(0.25, recalls=False)


def queue_after_the_rate_falls_ms(grows_s: float, **parameters: float) -> float:
    """Return the mean queue from 2 to 5 s after a link of 50 Mbit/s, 5 until `grows_s`, falls to 5 again."""
    flow = Flow("policy", 100, parameters=parameters)
    changes = ((grows_s, 50), (20, 5))
    scenario = Scenario(rate_mbps=5, buffer_packets=430, duration_s=25, flows=(flow,), rate_schedule=changes)
    return simulate(scenario, "native", seed=1).summary(after_s=22).link.queue_mean_ms


def test_the_queue_that_a_slower_link_leaves_drains_soon() -> None:
    slow = queue_after_the_rate_falls_ms(1, notices_slower_link=0)
    assert slow > 500, "round trips of a second have to forget the faster link"
    assert queue_after_the_rate_falls_ms(1) < 0.6 * slow


def test_where_the_rate_has_grown_lately_a_flow_expects_that_it_comes_back() -> None:
    assert queue_after_the_rate_falls_ms(17) == queue_after_the_rate_falls_ms(17, notices_slower_link=0)


def test_a_link_that_stops_for_a_second_is_not_slower_for_long() -> None:
    stops = ((8, 0.5), (9, 40), (14, 0.5), (15, 40))
    scenario = Scenario(rate_mbps=40, buffer_bdp=2, duration_s=20, flows=(Flow("policy", 20),), rate_schedule=stops)
    assert simulate(scenario, "native", seed=1).summary(after_s=8).link.utilisation > 0.97


@pytest.mark.parametrize(("rtt_ms", "ignored_ms"), [(40, 0.3), (2, 0.1)])
def test_delays_of_a_twentieth_of_the_rtt_and_of_less_are_no_queue(rtt_ms: float, ignored_ms: float) -> None:
    agent = ack_path.make("agent", rtt_ms=rtt_ms, cwnd_gain=1.0, pacing_gain=1.25)
    Path(agent, rate_mbps=100, rtt_ms=rtt_ms).run_until(3_000)
    metrics = agent.metrics()
    assert metrics["min_rtt_ms"] == pytest.approx(rtt_ms + 0.08 + ignored_ms, abs=0.01)
    assert metrics["lowest_rtt_ms"] == pytest.approx(metrics["min_rtt_ms"], abs=0.01)


@pytest.mark.parametrize("rate_mbps", [5, 1])
def test_a_standing_queue_is_neither_a_longer_path_nor_jitter(rate_mbps: float) -> None:
    path = Path(make(cwnd_gain=2.0, pacing_gain=1.25))
    path.run_until(4_000)
    path.rate_mbps = rate_mbps  # less for this flow, behind a queue of its own
    assert path.watch(9_000)["min_rtt_ms"].max() < 41


@pytest.mark.parametrize(("rtt_ms", "rounds"), [(10, 10), (60, 5), (400, 2)])
def test_it_forgets_a_bandwidth_after_a_time_and_not_after_rounds(rtt_ms: float, rounds: int) -> None:
    path = Path(make(rtt_ms=rtt_ms, cwnd_gain=1.5, pacing_gain=1.25), rtt_ms=rtt_ms)
    path.run_until(8_000)
    assert path.controller.metrics()["max_bandwidth_mbps"] == pytest.approx(10, rel=0.05)
    path.rate_mbps = 5
    seen = path.watch(8_000 + 30 * rtt_ms)
    remembered = seen[seen["max_bandwidth_mbps"] > 9]
    passed = seen["round"].loc[remembered.index[-1]] - seen["round"].iloc[0]
    assert rounds <= passed <= rounds + 3  # until the first sample of the slow link there are one or two


@pytest.mark.parametrize(("change_ms", "end_ms", "rounds"), [(500, 15_400, (4, 6)), (5_000, 14_900, (9, 12))])
def test_where_the_rate_changes_all_the_time_it_remembers_a_bandwidth_for_four_rounds(
    change_ms: int, end_ms: float, rounds: tuple[int, int]
) -> None:
    path = Path(make(rtt_ms=30, cwnd_gain=1.5, pacing_gain=1.1), rtt_ms=30)

    def vary(ack: cc.AckEvent) -> None:
        path.rate_mbps = (10, 5)[ack.now // (change_ms * ack_path.MS) % 2]

    path.on_ack = vary
    path.run_until(end_ms)
    path.on_ack = lambda ack: None
    before = path.controller.metrics()
    path.rate_mbps = 3
    seen = path.watch(18_000)
    remembered = seen[seen["max_bandwidth_mbps"] > 0.9 * before["max_bandwidth_mbps"]]
    least, most = rounds
    assert least <= remembered["round"].iloc[-1] - before["round"] <= most


def test_startup_ends_when_a_queue_builds() -> None:
    def start(**parameters: float) -> tuple[float, float]:
        seen = Path(make(rtt_ms=100, **parameters), rtt_ms=100).watch(4_000)
        return seen["now_ms"][seen["mode"] == STARTUP].iloc[-1], seen["max_bandwidth_mbps"].iloc[-1]

    end_of_bbr_ms, found_by_bbr = start(startup_rtt_rise=0, startup_queue_packets=0)
    end_ms, found = start(startup_queue_packets=0)
    assert found == pytest.approx(found_by_bbr, rel=0.05)
    assert end_ms < end_of_bbr_ms - 500, "two of the three rounds behind its own queue"
    assert start(startup_rtt_rise=0)[0] < end_of_bbr_ms - 500


def test_startup_on_a_long_path_ends_with_twenty_packets_in_the_queue() -> None:
    def start(**parameters: float) -> tuple[float, float]:
        seen = Path(make(rtt_ms=400, **parameters), rate_mbps=20, rtt_ms=400).watch(8_000)
        return seen["now_ms"][seen["mode"] == STARTUP].iloc[-1], seen["max_bandwidth_mbps"].max()

    (end_ms, found), (end_by_rtt_ms, _) = start(), start(startup_queue_packets=0)
    assert found == pytest.approx(20, rel=0.01)
    assert end_ms < end_by_rtt_ms - 1_000


def test_startup_does_not_end_where_the_path_jumps() -> None:
    path = Path(make(), rate_mbps=50)

    def jump(ack: cc.AckEvent) -> None:
        if ack.now > 100 * ack_path.MS:
            path.rtt_ms = 55

    path.on_ack = jump
    seen = path.watch(1_000)
    at_jump = seen["max_bandwidth_mbps"][seen["now_ms"] < 150].iloc[-1]
    assert at_jump < 10
    assert seen["max_bandwidth_mbps"].max() == pytest.approx(50, rel=0.05)


def test_acks_that_arrive_together_do_not_end_startup() -> None:
    seen = Path(make(rtt_ms=40), rate_mbps=50, ack_slot_ms=15).watch(2_000)
    assert seen["max_bandwidth_mbps"].max() > 45, "the first of eight waited for longest"


def test_the_smallest_window_is_two_packets() -> None:
    seen = Path(make(cwnd_gain=0.25, pacing_gain=1.0), rate_mbps=1, rtt_ms=10).watch(5_000)
    assert seen["cwnd"].min() == 2 * PACKET


def test_gains_are_clamped_and_nan_changes_nothing():
    agent = make(min_cwnd_gain=0.5, max_cwnd_gain=4.0, min_pacing_gain=0.5, max_pacing_gain=2.0, is_always_steered=1)
    path = Path(agent)
    held = {(100.0, 100.0): (4.0, 2.0), (math.nan, math.nan): (4.0, 2.0), (-math.inf, 0.0): (0.5, 0.5)}
    for seconds, (given, expected) in enumerate(held.items(), 1):
        agent.steer(*given)
        path.run_until(1000 * seconds)
        metrics = agent.metrics()
        assert (metrics["cwnd_gain"], metrics["pacing_gain"]) == expected


def test_crossed_bounds_are_refused():
    with pytest.raises(ValueError, match="min_cwnd_gain must be <= max_cwnd_gain"):
        make(min_cwnd_gain=5.0, max_cwnd_gain=1.0)


@pytest.mark.parametrize("name", [name for name in _controllers.controllers() if name != "agent"])
def test_other_controllers_cannot_be_steered(name: str):
    assert not cc.make(name).steer(2.0, 1.0)
