"""The engine on this machine's network stack, in real time: bounds are wide, and no two runs are compared."""

import contextlib
import math
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from traces import flow_column
from waiting import is_running, wait_for

from bbrgym.baselines import registry
from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.engine import EngineError, EngineUnavailableError, describe_engine
from bbrgym.envs.linux.engine import LinuxEngine
from bbrgym.envs.native.engine import NativeEngine
from bbrgym.envs.scenario import Flow, Scenario
from bbrgym.envs.trace import simulate
from bbrgym.envs.trace_file import load_trace, save_trace

SCENARIO = Scenario(
    rate_mbps=5, buffer_bdp=2, duration_s=0.8, flows=(Flow("agent", rtt_ms=20), Flow("cubic", rtt_ms=40))
)


@pytest.fixture(scope="module")
def engine() -> Iterator[LinuxEngine]:
    with contextlib.closing(LinuxEngine(timeout_s=60, start_limit_s=60)) as engine:
        try:
            engine.reset(SCENARIO, 1)
        except EngineUnavailableError as error:
            pytest.skip(str(error))
        yield engine


# --- the kernel's TCP -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", [registry.LINUX_PREFIX + name for name in registry.linux_controls()])
def test_the_kernels_flows_are_counted_in_the_units_of_ours(engine: LinuxEngine, algorithm: str) -> None:
    flows = (Flow(algorithm, rtt_ms=10, size_bytes=100_500), Flow(algorithm, rtt_ms=10, start_s=0.05, stop_s=0.3))
    whole = Scenario(rate_mbps=20, packet_bytes=1000, buffer_packets=1000, duration_s=30, flows=flows[:1])
    trace = simulate(whole, engine, step_ms=20)
    total = {name: float(trace.flows[:, 0, FLOW_COLUMNS.index(name)].sum()) for name in FLOW_COLUMNS}
    # Of a busy machine the kernel may think that a packet is lost.
    assert total["sent_packets"] - total["retransmitted_packets"] == 101
    assert total["inorder_bytes"] == total["received_bytes"] == 100_500
    sent_mbit = (flow_column(trace, "send_rate_mbps")[:, 0] * np.diff(trace.time_s, prepend=0.0)).sum()
    assert 100_500 <= sent_mbit / 8e-6 + 0.01 <= 100_500 + 1000 * total["retransmitted_packets"] + 1
    is_paced = algorithm == "linux-bbr" or Path("/proc/sys/net/core/default_qdisc").read_text().strip() == "fq"
    assert np.isfinite(flow_column(trace, "pacing_rate_mbps")).any() == is_paced
    assert 0 < total["delivered_packets"] <= 101  # and some on their way back, at the end
    stopped = simulate(Scenario(rate_mbps=20, duration_s=1, flows=flows[1:]), engine, step_ms=500)
    first, last = stopped.flows[:, 0]
    assert first[FLOW_COLUMNS.index("sent_packets")] > 0
    assert last[FLOW_COLUMNS.index("sent_packets")] == 0
    assert (first[0], last[0]) == (pytest.approx(0.25 / 0.5), 0)


@pytest.mark.parametrize("algorithm", ["linux-reno", "cubic"])
def test_a_complete_flow_of_either_kind_is_closed(engine: LinuxEngine, algorithm: str) -> None:
    engine.reset(Scenario(rate_mbps=20, duration_s=60, flows=(Flow(algorithm, size_bytes=3000), Flow("bbr"))), 1)
    rows = [engine.step(50)]
    while rows[-1].flow(0)["is_active"] > 0:
        rows.append(engine.step(50))
    total = np.sum([row.flows[0] for row in rows], axis=0)
    sent, delivered, resent, received = (
        total[FLOW_COLUMNS.index(name)]
        for name in ("sent_packets", "delivered_packets", "retransmitted_packets", "received_bytes")
    )
    assert (sent - resent, received) == (3, 3000)
    assert delivered <= 3  # without the SYN
    assert rows[-1].flow(0)["in_flight_packets"] == 0
    assert math.isnan(rows[-1].flow(0)["cwnd_packets"])


def test_a_flow_of_the_kernels_falls_silent_when_it_stops(engine: LinuxEngine) -> None:
    """Its socket holds what the slow link takes seconds for."""
    flow = Flow("linux-reno", rtt_ms=20, stop_s=0.4)
    scenario = Scenario(rate_schedule=((0, 10), (0.3, 0.2)), buffer_packets=1000, duration_s=60, flows=(flow,))
    engine.reset(scenario, 1)
    rows = [engine.step(500)]
    while rows[-1].flow(0)["sent_packets"] > 0 and len(rows) < 10:
        rows.append(engine.step(200))  # of 5 packets on the link
    assert rows[0].flow(0)["sent_packets"] > 0
    assert rows[-1].flow(0)["sent_packets"] == 0


def test_a_finite_flow_of_the_kernels_falls_silent_when_it_stops(engine: LinuxEngine) -> None:
    """All of it is in the socket by then, and the queue has dropped much of it."""
    flow = Flow("linux-reno", rtt_ms=20, stop_s=0.3, size_bytes=4000)
    scenario = Scenario(rate_mbps=0.05, packet_bytes=200, buffer_packets=3, duration_s=1.2, flows=(flow,))
    trace = simulate(scenario, engine, step_ms=200)
    assert 0 < flow_column(trace, "received_bytes").sum() < 4000
    assert trace.time_s[-1] == 1.2


def test_the_totals_of_a_flow_of_the_kernels_outlive_its_stop(engine: LinuxEngine) -> None:
    """The kernel forgets them with the connection."""
    flow = Flow("linux-reno", rtt_ms=20, stop_s=0.3)
    trace = simulate(Scenario(rate_mbps=5, buffer_packets=3, duration_s=0.6, flows=(flow,)), engine, step_ms=100)
    sent, delivered, resent = (
        flow_column(trace, name)[:, 0] for name in ("sent_packets", "delivered_packets", "retransmitted_packets")
    )
    assert (delivered >= 0).all()
    assert (resent >= 0).all()
    assert 0 < resent.sum() <= sent.sum()
    assert 0 < delivered.sum() <= sent.sum()


@pytest.mark.parametrize("algorithm", ["cubic", "linux-reno"])
def test_acknowledgements_of_small_packets_arrive_whatever_they_list(engine: LinuxEngine, algorithm: str) -> None:
    """With losses ours list up to 8 ranges, in more bytes than the data packets have."""
    flow = Flow(algorithm, rtt_ms=10, size_bytes=20_000)
    scenario = Scenario(rate_mbps=5, packet_bytes=64, buffer_packets=1000, loss=0.05, duration_s=30, flows=(flow,))
    trace = simulate(scenario, engine, step_ms=100)
    assert flow_column(trace, "received_bytes").sum() == 20_000
    assert flow_column(trace, "lost_packets" if algorithm == "cubic" else "retransmitted_packets").sum() > 8
    assert flow_column(trace, "sent_packets").sum() >= 20_000 / 64


def test_a_congestion_control_that_the_kernel_lacks_is_refused_with_those_it_has() -> None:
    (name, *_) = set(registry.LINUX_COMPARATORS) - set(describe_engine("linux").comparators) or {""}
    if not name:
        pytest.skip("this kernel has all")
    scenario = Scenario(flows=(Flow(name),))
    with (
        contextlib.closing(LinuxEngine()) as engine,
        pytest.raises(ValueError, match=f"no algorithm '{name}'") as error,
    ):
        engine.reset(scenario, 1)
    assert name.replace(registry.LINUX_PREFIX, "tcp_") in str(error.value)
    for name in registry.linux_controls():
        assert registry.LINUX_PREFIX + name in str(error.value)
    with contextlib.closing(NativeEngine()) as native, pytest.raises(ValueError, match=r"\(linux engine only"):
        native.reset(scenario, 1)


# --- ECN ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "ecn"), [("cubic", "classic"), ("newreno", "l4s"), ("linux-reno", "classic"), ("linux-reno", None)]
)
def test_marks_instead_of_drops(engine: LinuxEngine, algorithm: str, ecn: Literal["classic", "l4s"] | None) -> None:
    """A wrong checksum of a marked header would lose the packet."""
    flow = Flow(algorithm, rtt_ms=10, ecn=ecn)
    scenario = Scenario(rate_mbps=20, buffer_packets=1000, ce_threshold_ms=5, duration_s=0.7, flows=(flow,))
    trace = simulate(scenario, engine, step_ms=50)
    marks = trace.link[:, LINK_COLUMNS.index("marks")].sum()
    marked = flow_column(trace, "marked_packets")[:, 0].sum()
    assert (marks > 0) == (marked > 0) == (ecn is not None)
    assert flow_column(trace, "retransmitted_packets").sum() == 0
    if not algorithm.startswith(registry.LINUX_PREFIX):
        assert marked <= marks


def test_an_application_over_the_kernels_tcp_is_refused(engine: LinuxEngine) -> None:
    with pytest.raises(EngineError, match="a flow 'linux-reno' cannot have app_rate_mbps: only flows of our own"):
        engine.reset(Scenario(flows=(Flow("cubic", app_rate_mbps=1), Flow("linux-reno", app_rate_mbps=1))), 1)


def test_ecn_that_the_kernel_does_not_do_is_refused(engine: LinuxEngine) -> None:
    mixed = (Flow("linux-reno", ecn="classic"), Flow("cubic"), Flow("linux-reno"))
    with pytest.raises(EngineError, match=r"all flows of the kernel's TCP must have the same ecn, classic or null"):
        engine.reset(Scenario(flows=mixed), 1)
    with pytest.raises(EngineError, match="ecn of a flow 'linux-reno' must be classic or null, got 'l4s'"):
        engine.reset(Scenario(flows=(Flow("linux-reno", ecn="l4s"),)), 1)


# --- lateness -------------------------------------------------------------------------------------------------------


def test_an_episode_says_how_late_it_was(engine: LinuxEngine, tmp_path: Path) -> None:
    trace = simulate(SCENARIO, engine)
    assert trace.timing["packets"] > 100
    assert 0 <= trace.timing["late_mean_ms"] <= trace.timing["late_max_ms"]
    assert 0 < trace.timing["late_p999_ms"] <= trace.timing["late_max_ms"]
    save_trace(trace, tmp_path / "trace.parquet")
    loaded = load_trace(tmp_path / "trace.parquet")
    assert (loaded.timing, loaded.flaw) == (trace.timing, trace.flaw)
    assert engine.reset(SCENARIO, 1).time_s == 0
    assert engine.timing["missed_steps"] == 0  # of the new episode


def test_a_late_link_is_a_flaw_that_simulate_logs(caplog: pytest.LogCaptureFixture, engine: LinuxEngine) -> None:
    assert engine.description.is_real_time  # else the machine lacks something
    with contextlib.closing(LinuxEngine(max_lateness_ms=1e-6)) as impatient:
        trace = simulate(SCENARIO, impatient)
        assert trace.flaw is not None
        assert "ms late or later, the bound is 1e-06 ms (max_lateness_ms)" in trace.flaw
        assert caplog.messages == [f"seed 1: {trace.flaw}"]
    with pytest.raises(ValueError, match="max_lateness_ms must be > 0, got 0"):
        LinuxEngine(max_lateness_ms=0)


def test_a_missed_step_is_a_flaw(engine: LinuxEngine) -> None:
    engine.reset(SCENARIO, 1)
    time.sleep(0.05)
    rows = engine.step(10)
    assert rows.time_s > 0.055
    assert engine.timing["missed_steps"] >= 5
    assert engine.timing["decision_late_max_ms"] >= 50
    assert engine.flaw is not None


def test_a_step_that_the_episode_cuts_short_is_not_missed(engine: LinuxEngine) -> None:
    scenario = Scenario(duration_s=0.2, flows=(Flow("cubic"),))
    engine.reset(scenario, 1)
    while engine.step(199).is_over:  # this machine was so late that nothing is left
        engine.reset(scenario, 1)
    time.sleep(0.02)
    assert engine.step(200).time_s == 0.2
    assert engine.timing["decision_late_max_ms"] >= 20
    assert engine.timing["missed_steps"] == engine.timing["decision_late_max_ms"] // 200


# --- what is missing ------------------------------------------------------------------------------------------------


def reason(setup: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return why the engine cannot run after a shell's commands, which root of a user and mount namespace gives."""
    command = ["unshare", "--user", "--map-root-user", "--mount"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*command, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("this machine does not let a user make namespaces")
    script = folder / "python"
    inside = shlex.quote(f'{setup}\nexec {shlex.quote(sys.executable)} "$@"')
    script.write_text(f'#!/bin/sh\nexec {" ".join(command)} sh -ec {inside} sh "$@"\n')
    script.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(script))
    with contextlib.closing(LinuxEngine(start_limit_s=60)) as engine, pytest.raises(EngineUnavailableError) as error:
        engine.reset(SCENARIO, 1)
    return str(error.value)


@pytest.mark.parametrize(
    ("setup", "advice"),
    [
        pytest.param("mount -t tmpfs none /dev/net", "modprobe tun", id="no device"),
        pytest.param("mount --bind /dev/null /dev/net/tun", "cannot make a TUN device", id="another device"),
        pytest.param(
            "echo 0 > /proc/sys/user/max_net_namespaces; echo 0 > /proc/sys/user/max_user_namespaces",
            "sysctl user.max_user_namespaces",
            id="no namespaces",
        ),
    ],
)
def test_an_error_says_what_is_missing_and_what_to_do(
    setup: str, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = reason(setup, tmp_path, monkeypatch)
    assert error.startswith("engine Linux cannot run here: ")
    assert advice in error


def test_a_missing_module_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bbrgym._linux", None)
    with pytest.raises(EngineUnavailableError, match=r"engine Linux needs bbrgym\._linux: install bbrgym again"):
        LinuxEngine()


# --- kills ----------------------------------------------------------------------------------------------------------

PARENT = """
from bbrgym.envs.engine import make_engine
from bbrgym.envs.scenario import Flow, Scenario
engine = make_engine("linux")
engine.reset(Scenario(duration_s=600, flows=(Flow("bbr"), Flow("linux-reno"))), 1)
print(engine.pid, flush=True)
engine.step(600_000)
"""


def namespaces_of(pid: int | str) -> set[str]:
    """The network namespaces that processes hold open: of one, or of all ("[0-9]*") that this user may look into."""
    found = set()
    for descriptor in Path("/proc").glob(f"{pid}/fd/*"):
        with contextlib.suppress(OSError):
            found.add(os.readlink(descriptor))
    return {name for name in found if name.startswith("net:[")}


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("ending", ["reset", "close"])
def test_no_socket_of_the_kernels_flows_outlives_its_episode(ending: str) -> None:
    """One in FIN_WAIT would keep the namespace until the kernel gives up: for minutes."""
    flows = (Flow("linux-reno"), Flow("linux-reno", size_bytes=1))
    with contextlib.ExitStack() as stack:
        engine = stack.enter_context(contextlib.closing(LinuxEngine(timeout_s=60, start_limit_s=60)))
        engine.reset(Scenario(rate_mbps=2, duration_s=600, flows=flows), 1)
        engine.step(500)
        descriptors = Path(f"/proc/{engine.pid}/fd").iterdir()
        opened = [stack.enter_context(path.open()) for path in descriptors if os.readlink(path).startswith("net:[")]
        senders, receivers = (namespace.fileno() for namespace in opened)
        assert "ESTAB" in sockets_in(senders)
        assert "ESTAB" in sockets_in(receivers)
        if ending == "reset":
            engine.reset(SCENARIO, 1)
        else:
            engine.close()
        assert sockets_in(senders) == sockets_in(receivers) == []


def sockets_in(namespace: int) -> list[str]:
    """The states of all TCP sockets in a network namespace, of which this is a descriptor."""
    command = ["nsenter", f"--net=/proc/self/fd/{namespace}", "cat", "/proc/net/tcp"]
    done = subprocess.run(command, pass_fds=[namespace], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"this user may not enter namespaces: {done.stderr}")
    states = {"01": "ESTAB", "04": "FIN_WAIT1", "05": "FIN_WAIT2", "06": "TIME_WAIT", "0A": "LISTEN"}
    return [states.get(state := line.split()[3], state) for line in done.stdout.splitlines()[1:]]


def test_nothing_is_left_of_a_killed_parent(engine: LinuxEngine) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        namespaces = namespaces_of(worker)
        assert len(namespaces) == 2
        parent.kill()
    wait_for(lambda: not is_running(worker))
    wait_for(lambda: not namespaces & namespaces_of("[0-9]*"))
