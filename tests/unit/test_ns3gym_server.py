"""`bbrgym ns3`: our bottleneck as a stock simulation, seen by a stock client."""

import contextlib
import dataclasses
import json
import math
import re
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zmq
from fake_engine import FakeEngine
from gymnasium import spaces
from marks import needs_ns3

from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.engine import EngineError
from bbrgym.envs.ns3.engine import Ns3Engine
from bbrgym.envs.ns3gym import ns3gym_pb2 as pb
from bbrgym.envs.ns3gym import server
from bbrgym.envs.ns3gym.client import Ns3GymEnv
from bbrgym.envs.ns3gym.messages import pack_data, unpack_data, unpack_space
from bbrgym.envs.ns3gym.server import serve, serve_episode
from bbrgym.envs.scenario import Flow, Scenario

SCENARIO = Scenario(duration_s=1.0, flows=(Flow("agent"), Flow("bbr")))
WIDTH = 3 + len(LINK_COLUMNS) + 2 * len(FLOW_COLUMNS)


def action(*gains: float) -> bytes:
    space = spaces.Box(-np.inf, np.inf, (len(gains),), np.float32)
    return pb.EnvActMsg(actData=pack_data(space, gains, is_action=True)).SerializeToString()


class Client:
    """What the stock Python client does, no more: it binds REP and answers in turn."""

    def __init__(self) -> None:
        self.socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.REP)
        self.socket.setsockopt(zmq.RCVTIMEO, 10_000)
        self.port: int = self.socket.bind_to_random_port("tcp://127.0.0.1")

    def init(self, ack: pb.SimInitAck | None = None) -> pb.SimInitMsg:
        message = pb.SimInitMsg.FromString(self.socket.recv())
        self.socket.send((ack or pb.SimInitAck(done=True)).SerializeToString())
        return message

    def state(self) -> pb.EnvStateMsg:
        return pb.EnvStateMsg.FromString(self.socket.recv())

    def act(self, *gains: float) -> None:
        self.socket.send(action(*gains))

    def stop(self) -> None:
        self.socket.send(pb.EnvActMsg(stopSimReq=True).SerializeToString())


class Served:
    """A server in a thread of its own, and what became of it."""

    def __init__(self, engine: Any, port: int, scenario: Scenario = SCENARIO) -> None:
        self.error: EngineError | None = None

        def work() -> None:
            try:
                serve_episode(engine, scenario, seed=5, port=port, step_ms=100.0)
            except EngineError as error:
                self.error = error

        self._thread = threading.Thread(target=work)
        self._thread.start()

    def join(self) -> str:
        self._thread.join(10)
        assert not self._thread.is_alive()
        return "" if self.error is None else str(self.error)


@pytest.fixture
def client() -> Iterator[Client]:
    client = Client()
    yield client
    client.socket.close(linger=0)


def test_an_episode_as_a_stock_client_sees_it(client: Client) -> None:
    engine = FakeEngine()
    served = Served(engine, client.port)
    init = client.init()
    assert min(init.simProcessId, init.wafShellProcessId) > 0
    observations = unpack_space(init.obsSpace)
    assert observations == spaces.Box(-np.inf, np.inf, (WIDTH,), np.float64)
    assert unpack_space(init.actSpace) == spaces.Box(0.01, 4.0, (2,), np.float32)
    mirror = FakeEngine()
    rows = mirror.reset(SCENARIO, 5)
    state, reward = client.state(), 0.0
    columns = json.loads(state.info)["columns"]
    assert len(columns) == WIDTH
    assert columns[:4] == ["time_s", "is_over", "is_complete", "link.rate_mbps"]
    assert columns[3 + len(LINK_COLUMNS)] == "flows[0].is_active"
    steps = missing = 0
    while True:
        expected = np.concatenate([[rows.time_s, rows.is_over, rows.is_complete], rows.link, rows.flows.ravel()])
        observation = unpack_data(observations, state.obsData)
        np.testing.assert_array_equal(observation, np.nan_to_num(expected))
        assert observation in observations
        missing += np.isnan(expected).any()
        assert state.reward == np.float32(reward)
        # The stock client's reset has no info, so the first one that an agent sees is that of the first step.
        assert json.loads(state.info) == {"time_s": rows.time_s} | ({"columns": columns} if steps < 2 else {})
        assert state.isGameOver == rows.is_over
        if state.isGameOver:
            break
        client.act(1.5, 99.0)  # beyond the bounds: clipped
        state = client.state()
        mirror.steer(0, 1.5, 4.0)
        rows = mirror.step(100)
        reward = server._reward(SCENARIO, rows)
        steps += 1
    assert (steps, state.reason) == (10, pb.EnvStateMsg.SimulationEnd)
    assert missing > 0
    client.stop()
    assert served.join() == ""
    assert engine.resets == [(SCENARIO, 5)]


@pytest.mark.parametrize("states", [0, 1, 2])
def test_the_client_can_stop_at_once_and_at_any_state(client: Client, states: int) -> None:
    engine = FakeEngine()
    served = Served(engine, client.port)
    client.init(pb.SimInitAck(stopSimReq=not states, done=bool(states)))
    for state in range(states):
        client.state()
        if state == states - 1:
            client.stop()
        else:
            client.act(2.0, 1.0)
    assert served.join() == ""
    assert len(engine.resets) == 1


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"\xff" * 5, "5 bytes that are no valid EnvActMsg"),
        (pb.EnvActMsg().SerializeToString(), "bad action: content must be"),
        (pb.EnvActMsg(actData=pack_data(spaces.Discrete(3), 1)).SerializeToString(), "bad action: content"),
        (action(1, 2, 3), "bad action: a Box of shape (2,) must have 2 values, got 3"),
        (action(1, math.nan), "gains must be numbers"),
        (action(2, 1), "fails in step 1"),
    ],
)
def test_a_bad_answer_or_engine_ends_the_episode_with_the_reason(client: Client, answer: bytes, message: str) -> None:
    served = Served(FakeEngine(fail_at_step=1), client.port)
    client.init()
    client.state()
    client.socket.send(answer)
    state = client.state()  # the client does not wait for ever
    assert (state.isGameOver, state.reason) == (True, pb.EnvStateMsg.GameOver)
    assert message in state.info
    assert message in served.join()


class TestRefusal:
    """A stock client waits for the first message for ever, and does not notice that the program exits."""

    def test_bad_arguments_fail_the_client_at_once(self, client: Client, capsys: pytest.CaptureFixture[str]) -> None:
        statuses: list[Any] = []

        def work() -> None:
            try:
                serve(["--simTime=20", "--testArg=123", f"--openGymPort={client.port}"])  # of the stock examples
            except SystemExit as exit_:
                statuses.append(exit_.code)

        thread = threading.Thread(target=work)
        thread.start()
        hello = pb.SimInitMsg.FromString(client.socket.recv())
        thread.join(10)
        assert statuses == [2]
        for text in (capsys.readouterr().err, hello.error):
            assert "'--simTime=20', '--testArg=123'" in text
        for description in (hello.actSpace, hello.obsSpace):
            with pytest.raises((AssertionError, TypeError), match=re.escape(f"bbrgym ns3: error: {hello.error}")):
                make_space(description)

    def test_an_engine_that_cannot_be_made(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        def make(*_: Any, **__: Any) -> Any:
            raise EngineError("ns-3 is not installed")

        monkeypatch.setattr(server, "make_engine", make)
        assert serve([f"--openGymPort={client.port}"]) == 1
        assert pb.SimInitMsg.FromString(client.socket.recv()).error == "ns-3 is not installed"


def make_space(description: pb.SpaceDescription) -> spaces.Space[Any]:
    """What the stock client does with a Dict, and with an element whose type it does not know."""
    if description.type != pb.Dict:
        return None  # type: ignore[return-value]
    content = pb.DictSpace()
    description.space.Unpack(content)
    return spaces.Dict({element.name: make_space(element) for element in content.element})


def test_a_client_that_goes_away_ends_the_server() -> None:
    client = Client()
    served = Served(FakeEngine(), client.port)
    client.init()
    client.state()
    client.socket.close(linger=0)
    assert "disconnected" in served.join()


@pytest.fixture
def unheard_port() -> Iterator[int]:
    with socket.socket() as bound:  # and not listening: a port that was closed could be another test's by now
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def test_nobody_listening_is_an_error(
    unheard_port: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(server, "_CONNECT_LIMIT_S", 0.3)
    monkeypatch.setattr(server, "make_engine", lambda name, **options: FakeEngine())
    assert serve([f"--openGymPort={unheard_port}"]) == 1
    assert f"no ns3-gym client listens on tcp://localhost:{unheard_port} (waited 0.3 s)" in capsys.readouterr().err


def parsed(*argv: str) -> Scenario:
    return server._scenario(server.ns3_parser().parse_args(argv))


def test_the_scenario_is_read_from_a_file_and_the_arguments(tmp_path: Path) -> None:
    assert parsed() == server.SERVED_SCENARIO
    assert [flow.algorithm for flow in parsed().flows] == ["agent", "bbr"]
    changed = parsed("--rate_mbps=48", "--buffer_packets", "30", "--loss=1e-3", "--rate_schedule=[[1, 6], [2, 12]]")
    assert (changed.rate_mbps, changed.buffer_packets, changed.loss) == (48, 30, 0.001)
    assert changed.rate_schedule == ((1.0, 6.0), (2.0, 12.0))
    assert parsed("--queue=codel", "--loss_burst_packets=4").queue == "codel"
    assert parsed("--flows=[{algorithm: cubic, rtt_ms: 10}]").flows == (Flow("cubic", rtt_ms=10),)
    scenario = Scenario(rate_mbps=20, buffer_packets=9, flows=(Flow("agent"), Flow("cubic", start_s=2)))
    for name, text in (("a.json", json.dumps(scenario.to_dict())), ("a.yaml", "rate_mbps: 20\nflows: [{rtt_ms: 9}]\n")):
        (tmp_path / name).write_text(text)
    assert parsed(f"--scenario={tmp_path}/a.json") == scenario
    assert parsed(f"--scenario={tmp_path}/a.json", "--buffer_bdp=2").buffer_bdp == 2
    assert parsed(f"--scenario={tmp_path}/a.yaml") == Scenario(rate_mbps=20, flows=(Flow(rtt_ms=9),))


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--RATE-mbps=12", r"'--RATE-mbps=12' \(did you mean '--rate_mbps'\?\); known: "),
        ("--rate=12", "'--rate=12'.*; known: --openGymPort, --simSeed, .*--rate_mbps"),
        ("--loss=", "loss must be a finite number in .*, got None"),
        ("--openGymPort=0", "must be in .*, got '0'"),
        ("--openGymPort=http", "got 'http'"),
        ("--scenario=/no/such/file.yaml", "No such file"),
    ],
)
def test_bad_arguments_are_refused_by_name(
    argument: str, message: str, unheard_port: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(server, "_DEFAULT_PORT", unheard_port)  # no client waits for the refusal
    with pytest.raises(SystemExit) as exit_:
        serve([argument])
    assert exit_.value.code == 2
    _, _, error = capsys.readouterr().err.partition("error: ")  # what comes before names every argument
    assert re.search(message, error)


@needs_ns3
def test_both_directions_meet_over_ns3() -> None:
    code = "import sys; from bbrgym.envs.ns3gym.server import serve; sys.exit(serve(sys.argv[1:]))"
    program = [sys.executable, "-c", code]
    sim_args = {"duration_s": 0.5, "loss": 0.01, "stepMs": 50}
    with contextlib.closing(Ns3GymEnv(program, sim_seed=3, sim_args=sim_args)) as env:
        seed = int(np.random.default_rng(3).integers(1, 2**31 - 1, endpoint=True))
        with contextlib.closing(Ns3Engine()) as engine:
            engine.reset(dataclasses.replace(server.SERVED_SCENARIO, duration_s=0.5, loss=0.01), seed)
            env.reset()
            truncated = False
            while not truncated:
                observation, _, terminated, truncated, _ = env.step(np.array([2.0, 1.0], np.float32))
                engine.steer(0, 2.0, 1.0)
                rows = engine.step(50)
                assert not terminated
                assert observation in env.observation_space
                np.testing.assert_array_equal(observation[3 + len(LINK_COLUMNS) :], np.nan_to_num(rows.flows.ravel()))
            assert rows.is_over
