"""The controller of an agent: BBR's model and states, gains from outside (docs/algorithms/agent.md)."""

import math

import pytest
from ack_path import PACKET, Path, make

from bbrgym import _controllers
from bbrgym import _testing as cc

STARTUP, DRAIN, PROBE_BW, PROBE_RTT = 0, 1, 2, 3


def agent(rtt_ms: float = 40.0, **parameters: float) -> cc.Controller:
    return make("agent", rtt_ms, **parameters)


def gains_in_force(path: Path) -> dict[int, set[tuple[float, float]]]:
    """Return the pairs of gains that are in force in each mode during twelve seconds."""
    modes = path.watch(12_000).groupby("mode")
    return {int(mode): set(zip(of["cwnd_gain"], of["pacing_gain"], strict=True)) for mode, of in modes}


@pytest.mark.parametrize("model", [0, 1])
def test_gains_in_force_are_those_of_the_table_of_states(model: int) -> None:
    controller = agent(is_bbr_model=model)
    assert controller.steer(cwnd_gain=1.5, pacing_gain=1.1)
    seen = gains_in_force(Path(controller))
    startup_gain, drain_gain = 739 / 256, 88 / 256
    assert seen == {
        STARTUP: {(startup_gain, startup_gain)},
        DRAIN: {(startup_gain, drain_gain)},
        PROBE_BW: {(1.5, 1.1)},
        PROBE_RTT: {(1.0, 1.0)},
    }


def test_by_option_gains_apply_everywhere() -> None:
    seen = gains_in_force(Path(agent(is_always_steered=1, cwnd_gain=1.5, pacing_gain=1.1)))
    assert set(seen) >= {STARTUP, PROBE_BW, PROBE_RTT}
    assert set.union(*seen.values()) == {(1.5, 1.1)}


def test_bursts_are_those_of_the_kernel_if_asked_for() -> None:
    bursts = {}
    for rate_mbps in (20, 400):
        for burst_packets in (1, 0):
            path = Path(agent(burst_packets=burst_packets), rate_mbps=rate_mbps)
            path.run_until(3_000)
            bursts[rate_mbps, burst_packets] = path.controller.decision().send_quantum // PACKET
    assert (bursts[20, 1], bursts[400, 1]) == (1, 1)
    assert bursts[20, 0] == 2
    assert bursts[400, 0] == pytest.approx(400e6 / 8 / 1024 / PACKET, rel=0.1)  # about 1 ms of the rate


@pytest.mark.parametrize("gains", [(0.5, 1.0), (1.0, 1.1), (1.3, 1.3), (3.0, 1.0)])
def test_window_and_rate_in_probe_bw_are_gains_times_the_model_and_nothing_else(gains: tuple[float, float]) -> None:
    controller = agent(cwnd_gain=gains[0], pacing_gain=gains[1], probe_rtt_join=0)
    path = Path(controller, rate_mbps=20)
    path.run_until(4_000)
    checked = 0

    def check(_: cc.AckEvent) -> None:
        nonlocal checked
        metrics, decision = controller.metrics(), controller.decision()
        if metrics["mode"] == PROBE_BW:
            assert decision.cwnd == pytest.approx(max(gains[0] * metrics["bdp_packets"] * PACKET, 2 * PACKET), abs=1)
            assert decision.pacing_rate == pytest.approx(gains[1] * metrics["max_bandwidth_mbps"] * 1e6, abs=1)
            checked += 1

    path.on_ack = check
    path.run_until(9_000)
    assert checked > 200


@pytest.mark.parametrize("rate_mbps", [0.8, 20, 100])
def test_with_the_kernels_bursts_the_window_is_the_next_whole_burst(rate_mbps: float) -> None:
    controller = agent(burst_packets=0, is_bbr_model=1, cwnd_gain=1.3, pacing_gain=1.1, rtt_ms=20)
    path = Path(controller, rate_mbps=rate_mbps, rtt_ms=20)
    checked = 0

    def check(_: cc.AckEvent) -> None:
        nonlocal checked
        metrics, decision = controller.metrics(), controller.decision()
        assert decision.is_burst_whole
        if metrics["mode"] != PROBE_BW or 1.3 * metrics["bdp_packets"] < 4:
            return
        assert decision.cwnd % decision.send_quantum == 0
        room = decision.cwnd - 1.3 * metrics["bdp_packets"] * PACKET
        assert -1 <= room < decision.send_quantum
        checked += 1

    path.run_until(5_000)
    path.on_ack = check
    path.run_until(9_000)
    assert checked > 200 or rate_mbps < 1


def test_the_bbr_model_has_bbrs_estimates_and_options_beside_it_count() -> None:
    own, mixed = agent(is_bbr_model=1), agent(is_bbr_model=1, min_cwnd_packets=3)
    for controller, packets in ((own, 4), (mixed, 3)):
        path = Path(controller)
        path.run_until(3_000)
        seen = path.watch(16_000)
        assert seen[seen["mode"] == PROBE_RTT]["cwnd"].min() == packets * PACKET


def test_it_remembers_the_extremes_and_the_last_probe_rtt() -> None:
    controller = agent(cwnd_gain=3.0, pacing_gain=1.25)
    path = Path(controller)
    path.run_until(5_000)
    assert math.isnan(controller.metrics()["standing_rtt_ms"]), "no ProbeRTT yet"
    path.rtt_ms, path.rate_mbps = 90, 4
    path.run_until(30_000)
    metrics = controller.metrics()
    assert metrics["lowest_rtt_ms"] == pytest.approx(40.8)
    assert metrics["standing_rtt_ms"] == pytest.approx(92, abs=1.5), "the last ProbeRTT saw only the longer path"
    assert metrics["max_bandwidth_mbps"] == pytest.approx(4, rel=0.1)
    assert metrics["highest_bandwidth_mbps"] == pytest.approx(10, rel=0.1)


@pytest.mark.parametrize(("rtt_ms", "rounds"), [(10, 10), (60, 5), (400, 2)])
def test_it_forgets_a_bandwidth_after_300_ms_of_two_to_ten_rounds(rtt_ms: float, rounds: int) -> None:
    path = Path(agent(rtt_ms, cwnd_gain=1.5, pacing_gain=1.25), rtt_ms=rtt_ms)
    path.run_until(8_000)
    assert path.controller.metrics()["max_bandwidth_mbps"] == pytest.approx(10, rel=0.05)
    path.rate_mbps = 5
    seen = path.watch(8_000 + 30 * rtt_ms)
    remembered = seen[seen["max_bandwidth_mbps"] > 9]
    passed = seen["round"].loc[remembered.index[-1]] - seen["round"].iloc[0]
    assert rounds <= passed <= rounds + 3  # until the first sample of the slow link there are one or two


@pytest.mark.parametrize(("gain", "bdps"), [(0.5, 0.5), (0.25, 0.25), (0.0, 0.04)])  # 2 of 50 packets
def test_probe_rtt_keeps_a_share_of_the_bdp_in_flight(gain: float, bdps: float) -> None:
    seen = Path(agent(probe_rtt_cwnd_gain=gain)).watch(12_000)
    probing = seen[seen["mode"] == PROBE_RTT]
    assert probing["cwnd"].min() / PACKET == pytest.approx(50 * bdps, abs=1)


@pytest.mark.parametrize("joins", [True, False])
def test_probe_rtt_begins_when_others_empty_the_queue(joins: bool) -> None:
    path = Path(agent(cwnd_gain=1.1, pacing_gain=1.25, **({} if joins else {"probe_rtt_join": 0})), rtt_ms=80)
    assert path.watch(5_000)["mode"].iloc[-1] == PROBE_BW
    path.rtt_ms = 77
    assert set(path.watch(5_300)["mode"]) == {PROBE_BW}  # the RTT has fallen too little
    path.rtt_ms = 40
    assert set(path.watch(5_500)["mode"]) == ({PROBE_BW, PROBE_RTT} if joins else {PROBE_BW})
    path.run_until(6_500)
    assert set(path.watch(9_000)["mode"]) == {PROBE_BW}  # once


@pytest.mark.parametrize(
    ("rate_mbps", "rtt_ms", "option"), [(10, 100, "startup_rtt_rise"), (20, 400, "startup_queue_packets")]
)
def test_startup_ends_when_a_queue_builds(rate_mbps: float, rtt_ms: float, option: str) -> None:
    never = {"startup_rtt_rise": 0, "startup_queue_packets": 0}

    def start(**parameters: float) -> tuple[float, float]:
        seen = Path(agent(rtt_ms, **parameters), rate_mbps=rate_mbps, rtt_ms=rtt_ms).watch(8_000)
        return seen["now_ms"][seen["mode"] == STARTUP].iloc[-1], seen["max_bandwidth_mbps"].max()

    end_of_bbr_ms, found_by_bbr = start(**never)
    assert start(is_bbr_model=1)[0] == end_of_bbr_ms
    end_ms, found = start(**{key: value for key, value in never.items() if key != option})
    assert found == pytest.approx(found_by_bbr, rel=0.05)
    assert end_ms < end_of_bbr_ms - 500, "BBR waits for three rounds behind its own queue"


def test_acks_that_arrive_together_do_not_end_startup() -> None:
    seen = Path(agent(rtt_ms=40), rate_mbps=50, ack_slot_ms=15).watch(2_000)
    assert seen["max_bandwidth_mbps"].max() > 45, "the first of eight waited for longest"


def test_gains_are_clamped_and_nan_changes_nothing() -> None:
    controller = agent(is_always_steered=1)
    path = Path(controller)
    held = {(100.0, 100.0): (64.0, 4.0), (math.nan, math.nan): (64.0, 4.0), (-math.inf, 0.0): (0.25, 0.25)}
    for seconds, (given, expected) in enumerate(held.items(), 1):
        controller.steer(*given)
        path.run_until(1000 * seconds)
        metrics = controller.metrics()
        assert (metrics["cwnd_gain"], metrics["pacing_gain"]) == expected


@pytest.mark.parametrize("name", [name for name in _controllers.controllers() if name != "agent"])
def test_other_controllers_cannot_be_steered(name: str) -> None:
    assert not cc.make(name).steer(2.0, 1.0)
