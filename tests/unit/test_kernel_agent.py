"""The kernel's TCP with the gains of an agent or a policy (docs/kernel.md): arithmetic, seams, the program."""

import contextlib
import ctypes
import itertools
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import pytest
from ack_path import PACKET, Hand, make
from marks import needs_ns3
from policies import make_agent
from test_c_header import decide
from traces import flow_column
from waiting import HANG_S, free_port, is_running, wait_for

from bbrgym import Flow, Scenario, _linux, simulate
from bbrgym.agents.policy import Agent, load_agent
from bbrgym.baselines.policy_file import KERNEL_REFERENCE
from bbrgym.baselines.registry import linux_controls
from bbrgym.benchmark.plan import Competitor
from bbrgym.cli import main
from bbrgym.envs.action import Action
from bbrgym.envs.columns import FLOW_COLUMNS
from bbrgym.envs.engine import EngineError
from bbrgym.envs.linux import bpf
from bbrgym.envs.linux.engine import LinuxEngine
from bbrgym.envs.native.engine import NativeEngine

# --- the policy in integers, as plain C -------------------------------------------------------------------------------

ROW = (
    "send_rate_mbps",
    "delivery_rate_mbps",
    "max_bandwidth_mbps",
    "highest_bandwidth_mbps",
    "sent_packets",
    "lost_packets",
    "cwnd_packets",
    "rtt_min_ms",
    "rtt_mean_ms",
    "rtt_jitter_ms",
    "rtt_last_ms",
    "min_rtt_ms",
    "lowest_rtt_ms",
    "standing_rtt_ms",
)
"""The columns of `struct policy_row`, in its order."""

HARNESS = """
#include "bursts.h"
void run(const struct fixed_policy *policy, const struct policy_row *rows, int count, double *gains, double *features) {
  static const struct policy_memory kNothing;
  struct policy_memory memory = kNothing;
  int i, feature;
  memory.row.cwnd_gain_q24 = 2 * ONE_Q24;
  memory.row.pacing_gain_q24 = ONE_Q24;
  for (i = 0; i <= count; ++i) {
    policy_decide(policy, &memory);
    gains[2 * i] = (double)memory.row.cwnd_gain_q24 / (double)ONE_Q24;
    gains[2 * i + 1] = (double)memory.row.pacing_gain_q24 / (double)ONE_Q24;
    for (feature = 0; feature < POLICY_INPUTS; ++feature) {
      features[i * POLICY_INPUTS + feature] = (double)memory.features[feature] / (double)ONE_Q20;
    }
    if (i < count) {
      const natural cwnd_gain = memory.row.cwnd_gain_q24, pacing_gain = memory.row.pacing_gain_q24;
      memory.row = rows[i];
      memory.row.cwnd_gain_q24 = cwnd_gain;
      memory.row.pacing_gain_q24 = pacing_gain;
    }
  }
}
int inputs(void) { return POLICY_INPUTS; }
natural burst(natural pacing_rate, unsigned mss, natural least) { return burst_packets(pacing_rate, 10, mss, least); }
natural window(natural bdp_q12, natural cwnd_gain_q24, natural of_packets) {
  return window_in_bursts(bdp_q12, cwnd_gain_q24, of_packets);
}
"""
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-Wshadow", "-Wconversion")


AGENTS: dict[str, Callable[[], Agent]] = {
    "kernel": lambda: load_agent(KERNEL_REFERENCE),
    "hidden": lambda: make_agent(scale=0.1, widths=(8,), action={"cwnd_scale": "packets", "cwnd_gain": [0.25, 64.0]}),
    "preference": lambda: make_agent(
        scale=0.1, observation={"features": ["preference", "log_backlog", "log_bdp", "log_bdp_by_preference"]}
    ),
    "ratio": lambda: make_agent(scale=0.1, action={"cwnd_scale": "ratio"}),
    "excess": lambda: make_agent(scale=0.1, widths=(16,), action={"cwnd_scale": "excess"}),
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler `cc`")
    folder = tmp_path_factory.mktemp("fixed")
    (folder / "run.c").write_text(HARNESS)
    include = f"-I{bpf.SOURCES[0].parent}"
    command = ["cc", *STRICT, "-O2", include, "-shared", "-fPIC", "-o", folder / "run.so", folder / "run.c"]
    subprocess.run(command, check=True, timeout=60)
    library = ctypes.CDLL(str(folder / "run.so"))
    library.burst.restype = library.window.restype = ctypes.c_uint64
    library.burst.argtypes = (ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint64)
    library.window.argtypes = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64)
    return library


@pytest.fixture(scope="module")
def rows() -> list[dict[str, float]]:
    """What flows of the kernel's policy measured in native runs; as in a kernel, with a window of whole packets."""
    flows = (Flow("policy", rtt_ms=30, policy=str(KERNEL_REFERENCE)), Flow("cubic", rtt_ms=30, start_s=4))
    scenario = Scenario(rate_mbps=12, buffer_bdp=4, loss=0.001, duration_s=15, flows=flows)
    fast = Scenario(rate_mbps=200, buffer_bdp=1, duration_s=11, flows=(replace(flows[0], rtt_ms=100), flows[0]))
    traces = [simulate(each, engine="native", seed=1, step_ms=100) for each in (scenario, fast)]
    found = [dict(zip(FLOW_COLUMNS, row.tolist(), strict=True)) for each in traces for row in each.flows[:, 0]]
    return [row | {"cwnd_packets": row["cwnd_packets"] // 1} for row in found]


def in_integers(row: dict[str, float], packet_bytes: int = 1000) -> list[int]:
    """A row as `struct policy_row`, as the kernel would measure it: RTTs in whole us, of means in ns, rates in q32."""
    values = {name: 0.0 if math.isnan(row[name]) else row[name] for name in ROW}
    plain = [round(values[name] / 8 / packet_bytes * 2**32) for name in ROW[:4]]
    plain += [round(values[name]) for name in ROW[4:7]]
    plain += [round(values[name] * 1e6) for name in ROW[7:]]
    return [*plain, packet_bytes * 8, row["mode"] == 2, 0, 0]


def run_fixed(
    library: ctypes.CDLL, agent: Agent, rows: list[dict[str, float]], preference: float = 0.25
) -> tuple[Any, Any]:
    """Return the gains, (1 + rows, 2), and the features, (1 + rows, all that are known and all by preference)."""
    policy = _linux.fixed_policy(agent.to_bytes(), preference)
    table = np.array([in_integers(row) for row in rows], np.uint64)
    gains, features = np.empty((1 + len(rows), 2)), np.empty((1 + len(rows), library.inputs()))
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (table, gains, features)]
    library.run(policy, pointers[0], len(rows), *pointers[1:])
    return gains, features


@pytest.mark.parametrize("name", AGENTS)
def test_gains_in_integers_are_within_one_percent(library: ctypes.CDLL, rows: list[Any], name: str) -> None:
    agent = AGENTS[name]()
    chosen, _ = decide(agent, rows)
    gains, _ = run_fixed(library, agent, rows)
    expected: npt.NDArray[np.float64] = np.array(chosen)
    assert len(np.unique(expected[:, 0])) > 50
    np.testing.assert_allclose(gains, expected, rtol=0.01)


def test_features_in_integers(library: ctypes.CDLL, rows: list[Any]) -> None:
    names = [
        line.split("FEATURE(")[1].split(",")[0]
        for line in bpf.SOURCES[2].read_text().splitlines()
        if line.startswith("  FEATURE(")
    ]
    assert 2 * len(names) == library.inputs()
    agent = make_agent(widths=(), scale=0.01, observation={"features": names})
    _, seen = decide(agent, rows)
    _, features = run_fixed(library, agent, rows)
    np.testing.assert_allclose(features[:, : len(names)], np.array(seen), atol=0.005)
    assert not features[:, len(names) :].any()
    _, bold = run_fixed(library, agent, rows, preference=1.0)
    of_path = [names.index(name) for name in ("log_bdp", "log_min_rtt")]
    np.testing.assert_allclose(bold[:, len(names) :][:, of_path], 0.75 * bold[:, of_path], atol=1e-5)


@pytest.mark.parametrize("rate_mbps", [0.8, 5, 20, 100, 300])
def test_windows_are_whole_bursts_as_those_of_the_agent_in_native(library: ctypes.CDLL, rate_mbps: float) -> None:
    """A part of a burst in the window would be no room for the kernel, which keeps bursts whole."""
    controller = make("agent", rtt_ms=20, is_bbr_model=1, burst_packets=0, cwnd_gain=1.03, pacing_gain=1.1)
    hand = Hand(controller, time_ms=1500, rate_mbps=rate_mbps, rtt_ms=20)
    decision, bdp = controller.decision(), hand.metrics["bdp_packets"]
    least = 1 if decision.pacing_rate < 1_200_000 else 2  # bbr_min_tso_segs
    burst = library.burst(decision.pacing_rate // 8, PACKET, least)
    assert burst * PACKET == decision.send_quantum
    window = library.window(int(bdp * 2**12), round(1.03 * 2**24), burst)
    assert max(window, 4) * PACKET == decision.cwnd


@pytest.mark.parametrize("burst", [1, 2, 3, 13])
def test_a_window_is_rounded_up_to_whole_bursts(library: ctypes.CDLL, burst: int) -> None:
    for bdp, gain in itertools.product((4.0, 25.9375, 57.0, 57.25, 1000.5), (1.0, 1.0625, 2.0)):
        window = library.window(int(bdp * 2**12), int(gain * 2**24), burst)
        assert window == math.ceil(bdp * gain / burst) * burst


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"lstm": (4,)}, "have no LSTM"),
        ({"has_skip": True}, "have no LSTM, no skip"),
        ({"widths": (8, 8)}, "have at most one hidden layer"),
        ({"widths": (17,)}, "have at most 16 hidden units"),
        ({"scale": 1e3}, "have weights below 512"),
        ({"observation": {"features": ["queueing_ratio_by_preference"]}}, "got queueing_ratio_by_preference"),
        ({"env": {"step_ms": None, "step_rtts": 2.0}}, "decide every so many ms"),
    ],
)
def test_what_cannot_be_in_integers_is_refused(settings: dict[str, Any], reason: str) -> None:
    agent = make_agent(**settings)
    with pytest.raises(ValueError, match=f"a policy over the kernel's TCP must.*{reason}"):
        _linux.fixed_policy(agent.to_bytes())


# --- the transport of a flow ------------------------------------------------------------------------------------------


def test_only_gains_go_over_the_kernels_tcp_and_only_in_linux() -> None:
    with pytest.raises(ValueError, match="transport must be ours with algorithm 'bbr'"):
        Flow("bbr", transport="kernel")
    flow = Flow("agent", transport="kernel")
    scenario = Scenario(flows=(flow, Flow("cubic")))
    assert Scenario.from_dict(scenario.to_dict()) == scenario
    assert scenario.with_algorithm("bbr").flows[0].transport == "ours"
    with (
        contextlib.closing(NativeEngine()) as native,
        pytest.raises(ValueError, match="needs engine Linux, got engine"),
    ):
        native.reset(scenario, 1)
    competitor = Competitor.from_dict({"algorithm": "policy", "transport": "kernel"})
    assert competitor.takes(scenario, (1,)).flows[1].transport == "kernel"


def test_a_policy_on_bbrs_model_keeps_the_bursts_of_its_flow() -> None:
    def rtts(**parameters: float) -> list[float]:
        flow = Flow("policy", rtt_ms=40, policy=str(KERNEL_REFERENCE), parameters=parameters)
        trace = simulate(Scenario(rate_mbps=20, buffer_bdp=2, duration_s=5, flows=(flow,)), engine="native", seed=1)
        return flow_column(trace, "rtt_mean_ms")[:, 0].tolist()

    assert rtts(burst_packets=0) == rtts(burst_packets=0, is_bbr_model=1) != rtts()


@pytest.mark.parametrize("rtt_ms", [10, 30, 80])
@pytest.mark.parametrize("rate_mbps", [5, 20, 30, 50, 100])
def test_a_lone_flow_with_the_kernels_bursts_has_its_link(rate_mbps: float, rtt_ms: float) -> None:
    flow = Flow("policy", rtt_ms, policy=str(KERNEL_REFERENCE), parameters={"burst_packets": 0})
    scenario = Scenario(rate_mbps=rate_mbps, buffer_bdp=4, duration_s=20, flows=(flow,))
    link = simulate(scenario, engine="native", seed=1).summary(after_s=5).link
    assert link.utilisation >= 0.95
    assert link.queue_mean_ms <= 12 * 8.32 / rate_mbps + 1


@needs_ns3
def test_ns3_keeps_the_same_bursts_whole() -> None:
    """Whole bursts have twice the queue of bursts in parts: a pair of packets waits for its window."""
    gains = {"is_bbr_model": 1, "cwnd_gain": 1.03, "pacing_gain": 1.1, "burst_packets": 0}
    scenario = Scenario(rate_mbps=20, buffer_bdp=4, duration_s=4, flows=(Flow("agent", 30, parameters=gains),))
    links = [simulate(scenario, engine, seed=1).summary(after_s=2).link for engine in ("native", "ns3")]
    assert links[1].queue_mean_ms == pytest.approx(links[0].queue_mean_ms, rel=0.1)
    assert min(link.utilisation for link in links) > 0.99


# --- the program in the kernel ----------------------------------------------------------------------------------------

needs_kernel = pytest.mark.skipif(bpf.missing() is not None, reason=str(bpf.missing()))
ONE = Scenario(rate_mbps=20, buffer_bdp=4, duration_s=60, flows=(Flow("agent", 20, transport="kernel"),))


@pytest.fixture(scope="module")
def engine() -> Iterator[LinuxEngine]:
    with contextlib.closing(LinuxEngine(timeout_s=60, start_limit_s=60)) as engine:
        yield engine


def registered() -> set[str]:
    """Congestion controls of agents that this machine has now."""
    controls = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
    return {name for name in controls if name.startswith("bbrgym_")}


def in_pairs(packets: float) -> int:
    """Return a window in whole bursts of two packets."""
    return 2 * math.ceil(packets / 2)


@needs_kernel
def test_gains_from_outside_are_in_force(engine: LinuxEngine) -> None:
    row = engine.reset(ONE, 1).flow(0)
    while row["mode"] != 2:
        row = engine.step(50).flow(0)
    for gains in ((3.0, 1.0), (1.25, 1.25), (100.0, 0.5)):
        engine.steer(0, *gains)
        engine.step(100)
        row = engine.step(50).flow(0)
        cwnd_gain, pacing_gain = min(gains[0], 64.0), gains[1]
        assert (row["cwnd_gain"], row["pacing_gain"]) == (cwnd_gain, pacing_gain)
        assert row["pacing_rate_mbps"] == pytest.approx(pacing_gain * row["max_bandwidth_mbps"], rel=1e-3)
        if gains[0] < 4:  # upwards, a window grows by what is acknowledged
            # The window and what it was made of are read one after the other, and an ACK may come between.
            rows = [row, *(engine.step(50).flow(0) for _ in range(10))]
            assert any(one["cwnd_packets"] == in_pairs(cwnd_gain * one["bdp_packets"]) for one in rows)
        assert row["rtt_min_ms"] <= row["rtt_mean_ms"] <= row["rtt_max_ms"]


@needs_kernel
def test_a_large_bdp_does_not_keep_a_flow_in_startup(engine: LinuxEngine) -> None:
    """Three BDPs, which Startup has in flight, are more than the system's send buffer."""
    row = engine.reset(replace(ONE, rate_mbps=100, flows=(Flow("agent", 80, transport="kernel"),)), 1).flow(0)
    for _ in range(50):
        row = engine.step(100).flow(0)
        if row["mode"] == 2:
            break
    assert row["mode"] == 2


@needs_kernel
def test_an_environment_steers_a_flow() -> None:
    scenario = replace(ONE, duration_s=3)
    action = np.array([0.0, 0.5], np.float32)
    with contextlib.closing(gymnasium.make("bbrgym/Bottleneck-v1", scenario=scenario, engine="linux")) as env:
        env.reset(seed=1)
        is_over = False
        while not is_over:
            observation, reward, _, is_over, info = env.step(action)
            assert np.isfinite(observation).all()
            assert np.isfinite(float(reward))
    assert info["mode"] == 2
    assert info["throughput_mbps"] > 0
    assert (info["cwnd_gain"], info["pacing_gain"]) == pytest.approx(Action().gains(action), rel=1e-6)


@needs_kernel
def test_a_policy_decides_in_the_kernel(engine: LinuxEngine) -> None:
    flows = (Flow("policy", 20, transport="kernel"), Flow("linux-reno", 20), Flow("agent", 20, transport="kernel"))
    trace = simulate(replace(ONE, duration_s=3, flows=flows), engine, step_ms=100)
    is_in_probe_bw = flow_column(trace, "mode")[:, 0] == 2
    gains = flow_column(trace, "cwnd_gain")[is_in_probe_bw, 0]
    assert len(np.unique(gains)) > 3
    low, high = load_agent(KERNEL_REFERENCE).spec.action.pacing_gain
    pacing = flow_column(trace, "pacing_gain")[is_in_probe_bw, 0]
    assert low - 1e-6 <= pacing.min() <= pacing.max() <= high + 1e-6
    assert (flow_column(trace, "throughput_mbps").mean(axis=0) > 0).all()


@needs_kernel
def test_a_parameter_of_another_model_is_refused(engine: LinuxEngine, tmp_path: Path) -> None:
    flow = Flow("agent", transport="kernel", parameters={"probe_rtt_join": 0.5})
    with pytest.raises(EngineError, match="cannot have the parameter probe_rtt_join"):
        engine.reset(replace(ONE, flows=(flow,)), 1)
    make_agent(widths=(8,)).save(tmp_path / "default")
    policy = Flow("policy", transport="kernel", policy=str(tmp_path / "default"))
    with pytest.raises(EngineError, match="be trained on it"):
        engine.reset(replace(ONE, flows=(policy,)), 1)
    engine.reset(replace(ONE, flows=(replace(policy, parameters={"is_bbr_model": 1}),)), 1)


PARENT = """
import sys
from bbrgym import Flow, Scenario
from bbrgym.envs.linux.engine import LinuxEngine
engine = LinuxEngine(timeout_s=60, start_limit_s=60)
engine.reset(Scenario(duration_s=600, flows=(Flow("agent", transport="kernel"), Flow("linux-reno"))), 1)
print(engine.pid, flush=True)
engine.step(600_000)
"""


@needs_kernel
@pytest.mark.parametrize("victim", ["parent", "worker"])
def test_nothing_of_a_kill_is_left_in_the_kernel(victim: str) -> None:
    before = registered()
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as parent:
        try:
            assert parent.stdout is not None
            worker = int(parent.stdout.readline())
            found = registered() - before  # its own, and those of tests beside this one, which end too
            assert found
            assert not found & set(linux_controls())
            if victim == "worker":
                os.kill(worker, signal.SIGKILL)
                parent.wait(HANG_S)  # it notices
            else:
                parent.kill()
        finally:
            parent.kill()
    wait_for(lambda: not is_running(worker))
    wait_for(lambda: not found & registered(), "the kernel to forget a congestion control")


@needs_kernel
def test_send_to_any_receiver(capsys: pytest.CaptureFixture[str]) -> None:
    received = bytearray()

    def receive(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            while part := connection.recv(1 << 16):
                received.extend(part)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=receive, args=(server,), daemon=True)
        thread.start()
        where = f"127.0.0.1:{server.getsockname()[1]}"
        assert main(["send", where, "--transport", "kernel", "--bytes", "2e6", "--timeout", "60"]) == 0
        thread.join(60)
    assert len(received) == 2_000_000
    assert "2000000 bytes in order" in capsys.readouterr().out
    assert main(["send", f"127.0.0.1:{free_port()}", "--transport", "kernel"]) == 1
    assert "something there must listen" in capsys.readouterr().err
    assert main(["send", where, "--transport", "kernel", "--ecn", "classic"]) == 1
