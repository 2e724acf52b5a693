"""Flows whose ends are commands, in the engine on Linux's network stack; and the qlog of a stack."""

import contextlib
import json
import math
import os
import signal
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from traces import flow_column
from waiting import wait_for

from bbrgym.envs.columns import FLOW_COLUMNS
from bbrgym.envs.engine import EngineError, EngineUnavailableError
from bbrgym.envs.linux.engine import LinuxEngine
from bbrgym.envs.linux.qlog import add_qlog, find_qlog, read_qlog
from bbrgym.envs.native.engine import NativeEngine
from bbrgym.envs.scenario import Flow, Scenario
from bbrgym.envs.trace import Trace, simulate

BYTES = 500
PACKETS = 60


def python(code: str, *arguments: str) -> tuple[str, ...]:
    head = "import os, signal, socket, subprocess, sys, time\n"
    return (sys.executable, "-c", head + code, *arguments)


UDP_SERVER = python(
    """
end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
end.bind((sys.argv[1], int(sys.argv[2])))
while True:
    data, peer = end.recvfrom(2000)
    end.sendto(data[:20], peer)
""",
    "{address}",
    "{port}",
)

UDP_CLIENT = python(
    f"""
end = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
end.connect((sys.argv[1], int(sys.argv[2])))
for number in range({PACKETS}):
    end.send(bytes({BYTES}))
    end.recv(2000)
""",
    "{address}",
    "{port}",
)

TCP_SERVER = python(
    """
listener = socket.create_server(("", int(sys.argv[1])))
end, _ = listener.accept()
end.sendall(bytes(int(sys.argv[2])))
""",
    "{port}",
    "{bytes}",
)

TCP_CLIENT = python(
    """
end = socket.create_connection((sys.argv[1], int(sys.argv[2])))
while end.recv(65536):
    pass
""",
    "{address}",
    "{port}",
)


def command(server: tuple[str, ...] = UDP_SERVER, client: tuple[str, ...] = UDP_CLIENT, **fields: Any) -> Flow:
    return Flow("command", rtt_ms=10, server=server, client=client, **fields)


@pytest.fixture(scope="module")
def engine() -> Iterator[LinuxEngine]:
    with contextlib.closing(LinuxEngine(timeout_s=60, start_limit_s=60)) as engine:
        try:
            engine.reset(Scenario(flows=(Flow("cubic"),)), 1)
        except EngineUnavailableError as error:
            pytest.skip(str(error))
        yield engine


# --- fields ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: command(client=()), r"client must have a program .*, got \[\]"),
        (lambda: Flow("cubic", server=("a",)), "server must be empty with algorithm 'cubic'"),
        (lambda: command(client="iperf3 -c"), "client must be a list of strings, .*, got 'iperf3 -c'"),  # type: ignore[arg-type]
        (lambda: command(server=("a", 1)), "server must be a list of strings"),  # type: ignore[arg-type]
        (lambda: command(server=("a", "{prot}")), r"place in server '\{prot\}' \(did you mean '\{port\}'\?\)"),
        (lambda: command(client=("a", "{bytes}")), r"client has \{bytes\}, so size_bytes must be a number, got null"),
        (lambda: command(client=("a\0b",)), "client must not have null characters"),
        (lambda: command(data_from="both"), "unknown data_from 'both'"),
        (lambda: command(ecn="classic"), "ecn of a flow 'command' must be null"),
        (lambda: command(parameters={"beta": 0.5}), "command takes no parameters, got beta"),
    ],
)
def test_bad_commands_are_refused(make: Callable[[], Flow], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_commands_are_plain_types_in_a_scenario_and_leave_it_with_their_algorithm() -> None:
    flow = command(client=["sh", "-c", 'echo ${port} {"a":1} {seconds}'], data_from="server")  # type: ignore[arg-type]
    scenario = Scenario(flows=(flow,))
    plain = json.loads(json.dumps(scenario.to_dict()))
    assert plain["flows"][0]["client"] == ["sh", "-c", 'echo ${port} {"a":1} {seconds}']
    assert Scenario.from_dict(plain) == scenario
    assert Scenario.from_dict(plain).digest == scenario.digest != Scenario(flows=(command(),)).digest
    assert {Scenario.from_dict(plain): 1}[scenario] == 1
    assert scenario.with_algorithm("cubic").flows == (Flow("cubic", rtt_ms=10),)


def test_other_engines_refuse_commands() -> None:
    with contextlib.closing(NativeEngine()) as native, pytest.raises(ValueError, match=r"flows\[0\]: .* engine Linux"):
        native.reset(Scenario(flows=(command(),)), 1)


# --- what crosses the link ------------------------------------------------------------------------------------------


def test_a_pair_over_udp_is_measured(engine: LinuxEngine) -> None:
    scenario = Scenario(rate_mbps=20, duration_s=30, flows=(command(size_bytes=1), Flow("cubic", size_bytes=5000)))
    trace = simulate(scenario, engine, step_ms=100)
    total = {name: float(trace.flows[:, 0, FLOW_COLUMNS.index(name)].sum()) for name in FLOW_COLUMNS}
    assert (total["sent_packets"], total["delivered_packets"], total["lost_packets"]) == (PACKETS, PACKETS, 0)
    assert total["received_bytes"] == total["arrived_bytes"] == PACKETS * BYTES
    assert math.isnan(total["retransmitted_packets"])
    assert math.isnan(trace.summary().flows[0].retransmissions)
    rtt_ms = flow_column(trace, "rtt_min_ms")[:, 0]
    wire_ms = (BYTES + 28) * 8e-3 / 20
    assert np.nanmin(rtt_ms) == pytest.approx(10 + wire_ms, abs=1e-3)  # the emulator's own time is exact
    assert trace.time_s[-1] < 30  # complete once the client is
    completion_ms = flow_column(trace, "completion_time_ms")[-1, 0]
    assert PACKETS * 10 <= completion_ms <= trace.time_s[-1] * 1e3


@pytest.mark.parametrize("loss", [0.0, 0.05])
def test_a_server_that_sends_over_tcp_is_measured(engine: LinuxEngine, loss: float) -> None:
    size = 200_500
    flow = command(TCP_SERVER, TCP_CLIENT, size_bytes=size, data_from="server")
    trace = simulate(
        Scenario(rate_mbps=20, buffer_packets=1000, duration_s=50, loss=loss, flows=(flow,)), engine, step_ms=100
    )
    total = {name: float(trace.flows[:, 0, FLOW_COLUMNS.index(name)].sum()) for name in FLOW_COLUMNS}
    assert total["received_bytes"] == size
    # The kernel may fill packets partly, where its buffer ends.
    assert 201 <= total["sent_packets"] - total["retransmitted_packets"] <= 220
    assert (total["lost_packets"] > 0) == (loss > 0)
    assert total["retransmitted_packets"] >= total["lost_packets"]


@pytest.mark.parametrize("end", ["client", "server"])
def test_datagrams_that_need_fragments_are_the_error(engine: LinuxEngine, end: str) -> None:
    """The last byte is one too many: their fragments have no ports."""
    large = UDP_SERVER[2].replace("data[:20]", "data")
    pairs = {"client": command(), "server": command((*UDP_SERVER[:2], large, *UDP_SERVER[3:]), data_from="server")}
    flows = (Flow("cubic"), pairs[end])
    message = rf"Linux stopped: flows\[1\]: it sends datagrams of more than {BYTES - 1} bytes, .* packet_bytes must be"
    with pytest.raises(EngineError, match=message):
        simulate(Scenario(packet_bytes=BYTES - 13, duration_s=60, flows=flows), engine, step_ms=1000)


def test_the_largest_datagrams_that_need_no_fragments_arrive(engine: LinuxEngine) -> None:
    scenario = Scenario(rate_mbps=20, packet_bytes=BYTES - 12, duration_s=30, flows=(command(size_bytes=1),))
    trace = simulate(scenario, engine, step_ms=100)
    assert flow_column(trace, "received_bytes").sum() == PACKETS * BYTES


# --- commands that fail ---------------------------------------------------------------------------------------------


def failure(engine: LinuxEngine, flow: Flow) -> str:
    with pytest.raises(EngineError) as error:
        simulate(Scenario(duration_s=60, flows=(Flow("cubic"), flow)), engine, step_ms=1000)
    return str(error.value)


def test_a_client_that_crashes_is_the_error(engine: LinuxEngine) -> None:
    flow = command(client=python("sys.stderr.write('first\\nno certificate\\n')\nsys.exit(3)"))
    message = "Linux stopped: flows[1]: the client ended with status 3; its last lines: first\nno certificate"
    assert failure(engine, flow).startswith(message)
    killed = command(client=python("os.kill(os.getpid(), signal.SIGSEGV)"))
    assert "the client ended with status 139; its standard error is empty" in failure(engine, killed)
    assert simulate(Scenario(duration_s=0.1, flows=(Flow("cubic"),)), engine).time_s[-1] > 0  # the engine goes on


def test_a_server_that_ends_early_is_the_error(engine: LinuxEngine) -> None:
    message = failure(engine, command(server=("no-such-program",)))
    assert "refuses the scenario: flows[1]: the server ended with status 127 before it listened at port" in message
    assert "cannot run no-such-program: No such file or directory" in message
    crashing = UDP_SERVER[2].replace("    end.sendto(data[:20], peer)", "    sys.exit('handshake failed')")
    message = failure(engine, command(server=(sys.executable, "-c", crashing, *UDP_SERVER[3:])))
    assert "Linux stopped: flows[1]: the server ended with status 1; its last lines: handshake failed" in message


# --- commands that do not end ---------------------------------------------------------------------------------------


def endless(token: str) -> Flow:
    """A flow whose client ignores SIGTERM, and whose ends have children, of which one has left its session."""
    child = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)', sys.argv[-1]],"
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    return command(
        (*python(f"{child} start_new_session=True)\n" + UDP_SERVER[2]), *UDP_SERVER[3:], token),
        (*python(f"{deaf}{child})\n" + UDP_CLIENT[2] + "\ntime.sleep(600)"), *UDP_CLIENT[3:], token),
    )


def count_running(token: str) -> int:
    """How many processes have this argument."""
    count = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            count += token.encode() in path.read_bytes()
    return count


@pytest.mark.parametrize("ending", ["the next episode", "a killed worker"])
def test_nothing_of_a_client_that_never_ends_is_left_after(engine: LinuxEngine, ending: str) -> None:
    token = str(uuid.uuid4())
    engine.reset(Scenario(duration_s=60, flows=(endless(token),)), 1)
    while count_running(token) < 4:
        engine.step(100)
    assert engine.pid is not None
    if ending == "the next episode":
        engine.reset(Scenario(flows=(Flow("cubic"),)), 1)
    else:
        os.kill(engine.pid, signal.SIGKILL)
    wait_for(lambda: count_running(token) == 0)


def test_a_flow_that_stops_asks_its_client_to_end(engine: LinuxEngine, tmp_path: Path) -> None:
    """A stack may write its log at its end."""
    log = tmp_path / "log"
    code = "try:\n    time.sleep(60)\nfinally:\n    open(sys.argv[1], 'w').write('goodbye')"
    client = python("signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))\n" + code, str(log))
    engine.reset(Scenario(duration_s=60, flows=(command(client=client, start_s=0.1, stop_s=5), Flow("cubic"))), 1)
    rows = engine.step(5500)
    assert rows.flow(0)["is_active"] == pytest.approx(4.9 / rows.time_s)
    wait_for(lambda: log.exists() and log.read_text() == "goodbye")


# --- qlog -----------------------------------------------------------------------------------------------------------

EVENTS: list[dict[str, Any]] = [
    {"time": 5000.0, "name": "transport:packet_sent", "data": {}},
    {"time": 5010.0, "name": "recovery:metrics_updated", "data": {"cwnd": 12000, "latest_rtt": 20.0, "min_rtt": 20.0}},
    {"time": 5010.0, "name": "recovery:congestion_state_updated", "data": {"new": "slow_start"}},
    {"time": 5110.0, "name": "recovery:metrics_updated", "data": {"bytes_in_flight": 6000, "latest_rtt": 40.0}},
    {"time": 5120.0, "name": "recovery:packet_lost", "data": {"packet_number": 7}},
    {"time": 5130.0, "name": "recovery:congestion_state_updated", "data": {"old": "slow_start", "new": "recovery"}},
]


def as_json() -> str:
    return json.dumps({"qlog_format": "JSON", "qlog_version": "0.3", "traces": [{"events": EVENTS}]})


def in_microseconds() -> str:
    events = [event | {"time": 1000 * event["time"]} for event in EVENTS]
    return json.dumps({"traces": [{"configuration": {"time_units": "us"}, "events": events}]})


def as_sequence(time_format: str) -> str:
    """With differences of times, and the names of later drafts."""
    times = [0.0, *(event["time"] for event in EVENTS)]
    header = {"qlog_format": "JSON-SEQ", "trace": {"common_fields": {"time_format": time_format}}}
    events = [
        event | {"time": event["time"] - times[index], "name": event["name"].replace("recovery:", "quic:recovery_")}
        for index, event in enumerate(EVENTS)
    ]
    cut_off = '\x1e{"time": 3, "na'
    return "".join(f"\x1e{json.dumps(record)}\n" for record in [header, *events]) + cut_off


def run_of_three_steps() -> Trace:
    trace = simulate(Scenario(duration_s=0.3, flows=(Flow("cubic"),)), step_ms=100)
    rows = np.full_like(trace.flows, np.nan)
    rows[:, 0, FLOW_COLUMNS.index("sent_packets")] = [3, 5, 5]
    return Trace(**{**vars(trace), "flows": rows})


@pytest.mark.parametrize(
    "text",
    [as_json(), in_microseconds(), as_sequence("delta"), as_sequence("relative_to_previous_event")],
    ids=["json", "microseconds", "delta", "relative"],
)
def test_a_log_fills_the_columns_of_its_flow(text: str, tmp_path: Path) -> None:
    (tmp_path / "small.qlog").write_text("{}")
    (tmp_path / "it.sqlog").write_text(text)
    qlog = read_qlog(find_qlog(tmp_path))
    assert qlog.first_sent_s == pytest.approx(5.0)
    trace = add_qlog(run_of_three_steps(), 0, qlog)  # its first packet is at 0.05 s
    # Metrics at 0.06 and 0.16 s, the loss at 0.17 s.
    expected = {
        "cwnd_packets": [12, 12, 12],
        "in_flight_packets": [math.nan, 6, 6],
        "rtt_last_ms": [20, 40, 40],
        "rtt_mean_ms": [20, 40, math.nan],
        "min_rtt_ms": [20, 20, 20],
        "lost_packets": [0, 1, 0],
        "mode": [4, 6, 6],
        "pacing_rate_mbps": [math.nan] * 3,
        "sent_packets": [3, 5, 5],
    }
    for name, values in expected.items():
        assert flow_column(trace, name)[:, 0] == pytest.approx(values, nan_ok=True), name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a qlog file: JSONDecodeError"),
        ("[]", "not a qlog file: TypeError"),
        ('{"traces": []}', "must have one trace, got 0"),
        ('{"traces": [{"events": []}]}', "must have an event packet_sent"),
        (
            '{"traces": [{"common_fields": {"time_format": "x"}, "events": []}]}',
            "time_format .* must be one of .* got 'x'",
        ),
        ('{"traces": [{"configuration": {"time_units": "s"}, "events": []}]}', "time_units .* must be one of ms, us"),
        ('\x1e{"trace": {}}\n\x1e{"name": "a:packet_sent"}', "not a qlog file: KeyError"),
    ],
)
def test_what_is_no_log_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "it.qlog"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_qlog(path)
    with pytest.raises(FileNotFoundError, match=r"\*\.qlog or \*\.sqlog"):
        find_qlog(tmp_path / "nothing")
