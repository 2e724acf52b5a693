"""A bottleneck as a stock ns3-gym simulation: `bbrgym ns3 --openGymPort=5555` serves any stock Python client."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import math
import os
import secrets
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NoReturn

import gymnasium
import numpy as np
import zmq
from google.protobuf.message import DecodeError
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError
from zmq.utils.monitor import recv_monitor_message

from bbrgym.checks import did_you_mean
from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.engine import ENGINES, Engine, EngineError, Rows, describe_engine, make_engine
from bbrgym.envs.ns3gym import ns3gym_pb2 as pb
from bbrgym.envs.ns3gym.doubles import pack_doubles
from bbrgym.envs.ns3gym.messages import pack_space, unpack_data
from bbrgym.envs.ns3gym.peer import reading
from bbrgym.envs.reward import Reward
from bbrgym.envs.scenario import Flow, Scenario
from bbrgym.options import OptionParser
from bbrgym.waiting import announcing

SERVED_SCENARIO: Final = Scenario(flows=(Flow("agent", rtt_ms=50.0), Flow("bbr", rtt_ms=50.0)))
"""The default: an agent and a BBR flow of the same RTT."""

LOWEST_GAIN: Final = 0.01
HIGHEST_GAIN: Final = 4.0
"""Bounds of the action space, to which gains are clipped; a gain of 0 would stop the flow for good."""

_CONNECT_LIMIT_S: Final = 10.0
_DEFAULT_PORT: Final = 5555
"""That of the stock examples."""


def serve(argv: Sequence[str]) -> int:
    """Run one episode for the stock ns3-gym client that listens on a port of this machine.

    Args:
        argv: `--openGymPort=5555 --simSeed=1 --stepMs=100 --engine=ns3 --transport=tcp --scenario=file.yaml
            --rate_mbps=12 …`; all others are fields of the scenario.

    Returns:
        The exit status: 0 after the episode, or when the client stopped it; 1 after an error, which is printed.

    Raises:
        SystemExit: with status 2 for bad arguments, with status 0 for `--help`.
    """
    parser = ns3_parser()
    parser.client_port = _client_port(argv)
    options, rest = parser.parse_known_args(argv)
    if rest:
        unknown = "argument" if len(rest) == 1 else "arguments"
        known = [f"--{name}" for name in vars(options)]
        hint = did_you_mean(rest[0].partition("=")[0], known)
        parser.error(f"unknown {unknown} {', '.join(map(repr, rest))}{hint}; known: {', '.join(known)}")
    engine_options = {} if options.transport is None else {"transport": options.transport}
    try:
        scenario = _scenario(options)
        describe_engine(options.engine, **engine_options)
    except (OSError, ValueError, TypeError, OmegaConfBaseException, YAMLError) as error:
        parser.error(str(error))
    seed = options.simSeed or 1 + secrets.randbits(31)
    if not options.simSeed:
        print(f"simSeed=0: the seed of this run is {seed}", file=sys.stderr)
    try:
        try:
            engine = make_engine(options.engine, **engine_options)
        except EngineError as error:
            refuse(options.openGymPort, str(error))
            raise
        with contextlib.closing(engine):
            serve_episode(engine, scenario, seed=seed, port=options.openGymPort, step_ms=options.stepMs)
    except EngineError as error:
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
        return 1
    return 0


def describe_messages() -> str:
    """Return what a client sees, in lines of text: the action, the observation's columns, the info and the end."""
    fill = partial(textwrap.wrap, width=min(shutil.get_terminal_size().columns, 110), break_on_hyphens=False)
    lines = fill(
        f"action: a Box of {LOWEST_GAIN:g} to {HIGHEST_GAIN:g}: cwnd_gain and pacing_gain of every agent flow, in order"
    )
    lines += fill("observation: a flat Box of doubles; 0 where a column has no value (NaN below)")
    columns = {
        "time_s": "simulated time, in s",
        "is_over": "1 in the last observation, else 0",
        "is_complete": "1 if every flow has delivered all its bytes, else 0",
    }
    columns |= {f"link.{name}": meaning for name, meaning in LINK_COLUMNS.items()}
    columns |= {f"flows[i].{name}": meaning for name, meaning in FLOW_COLUMNS.items()}
    width = max(map(len, columns)) + 2
    for name, meaning in columns.items():
        lines += fill(meaning, initial_indent=f"  {name:<{width}}", subsequent_indent=" " * (width + 2))
    lines += fill(
        "info: JSON with time_s; before and after the first step also with the names of the observation's columns"
    )
    lines += fill("reward: the default reward, its mean over the agent flows")
    return "\n".join(lines)


def serve_episode(engine: Engine, scenario: Scenario, seed: int, port: int, step_ms: float) -> None:
    """Connect to a stock ns3-gym client and run one episode for it.

    What the client sees:

    * observation: a Box of DOUBLE, flat, `(time_s, is_over, is_complete, *LINK_COLUMNS, *FLOW_COLUMNS of flow 0, …)` of
      `bbrgym.envs.columns`; missing values are 0;
    * action: a Box of FLOAT, `(cwnd_gain, pacing_gain)` of every agent flow in the order of the flows;
    * reward: the default reward (`bbrgym.envs.reward`), its mean over the agent flows;
    * info: JSON with `time_s`, and before and after the first step the names of the observation's `columns` (the stock
      client's `reset` returns no info, so that of the first step is the first one that most agents see);
    * the end: SimulationEnd when the duration has passed, GameOver when every flow has delivered all its bytes;
    * an error: see `refuse` before the first observation; afterwards GameOver, and the reason is the info.

    Args:
        engine: runs the scenario.
        scenario: what to simulate.
        seed: decides everything random.
        port: TCP port on this machine where the client listens.
        step_ms: length of a step, in ms.

    Raises:
        EngineError: no client listens, the client disconnected or sent an invalid message, or the engine failed.
    """
    with _Client(port) as client:
        actions = gymnasium.spaces.Box(LOWEST_GAIN, HIGHEST_GAIN, (2 * len(scenario.agent_flows),), np.float32)
        columns = _columns(scenario)
        observations = gymnasium.spaces.Box(-np.inf, np.inf, (len(columns),), np.float64)
        hello = pb.SimInitMsg(
            simProcessId=os.getpid(),
            wafShellProcessId=os.getppid(),
            obsSpace=pack_space(observations),
            actSpace=pack_space(actions),
        )
        try:
            rows = engine.reset(scenario, seed)  # before the greeting, so that a client can be refused
            if _read(pb.SimInitAck, client.ask(hello.SerializeToString())).stopSimReq:
                return
            info: dict[str, Any] = {"columns": columns}
            state = _state(rows, 0.0, info)
            while True:
                answer = _read(pb.EnvActMsg, client.ask(state))
                if answer.stopSimReq or rows.is_over:
                    return
                _steer(engine, scenario, actions, answer)
                rows = engine.step(step_ms)
                state = _state(rows, _reward(scenario, rows), info)
                info = {}
        except BaseException as error:
            client.tell_end(str(error) or type(error).__name__)
            raise


def refuse(port: int, error: str) -> None:
    """Tell the client that listens on a port of this machine, if there is one, why the program does not start.

    A stock client waits for the program's first message without a time limit, and does not notice its exit. It has no
    field for an error either, so the greeting describes spaces that it cannot make: a Dict whose only element has the
    error as its name and no type. The client raises an exception at once, which names the element (with gym from 0.26;
    older ones do not). `Ns3GymEnv` reads the greeting's own field for the error.
    """
    with contextlib.suppress(EngineError), _Client(port, is_patient=False) as client:
        client.tell_end(error)


class _Client:
    """The REQ socket to a stock client. Unlike a stock simulation's, it notices that the client is gone."""

    def __init__(self, port: int, is_patient: bool = True) -> None:
        self._address = f"tcp://localhost:{port}"
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.REQ)
        self._events: zmq.Socket[bytes] = self._socket.get_monitor_socket(
            zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_CONNECT_RETRIED | zmq.EVENT_DISCONNECTED
        )
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self._poller.register(self._events, zmq.POLLIN)
        self._is_patient = is_patient
        self._can_ask = True
        self._has_asked = False
        self._socket.connect(self._address)

    def __enter__(self) -> _Client:
        awaited = zmq.EVENT_HANDSHAKE_SUCCEEDED | (0 if self._is_patient else zmq.EVENT_CONNECT_RETRIED)
        try:
            with announcing(f"an ns3-gym client at {self._address}"):
                event = self._wait_for(awaited, _CONNECT_LIMIT_S)
            if event != zmq.EVENT_HANDSHAKE_SUCCEEDED:
                raise EngineError(
                    f"no ns3-gym client listens on {self._address} (waited {_CONNECT_LIMIT_S:g} s): start it first"
                )
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.disable_monitor()
        self._socket.close(linger=1000)

    def ask(self, message: bytes) -> bytes:
        """Send a message and wait for the answer, without a time limit."""
        self._socket.send(message)
        self._can_ask = False
        self._has_asked = True
        while self._socket not in dict(self._poller.poll()):
            if self._wait_for(zmq.EVENT_DISCONNECTED, 0.0):
                raise EngineError(f"the ns3-gym client on {self._address} disconnected")
        answer = self._socket.recv()
        self._can_ask = True
        return answer

    def tell_end(self, error: str) -> None:
        """Tell the client that an error ended the episode, so that it does not wait forever."""
        if self._can_ask:
            self._can_ask = False
            end = pb.EnvStateMsg(isGameOver=True, reason=pb.EnvStateMsg.GameOver, info=error, error=error)
            self._socket.send((end if self._has_asked else _refusal(error)).SerializeToString())

    def _wait_for(self, events: int, limit_s: float) -> int:
        """Return the first of some events, 0 if none comes in time."""
        deadline = time.monotonic() + limit_s
        while self._events.poll(max(0, math.ceil((deadline - time.monotonic()) * 1e3))):
            event = int(recv_monitor_message(self._events)["event"])
            if event & events:
                return event
        return 0


def _refusal(error: str) -> pb.SimInitMsg:
    element = pb.SpaceDescription(name=f"bbrgym ns3: error: {error}")
    space = pb.SpaceDescription(type=pb.Dict)
    space.space.Pack(pb.DictSpace(element=[element]))
    return pb.SimInitMsg(obsSpace=space, actSpace=space, error=error)


def _steer(engine: Engine, scenario: Scenario, actions: gymnasium.spaces.Box[Any], answer: pb.EnvActMsg) -> None:
    if not scenario.agent_flows:
        return
    try:
        gains = unpack_data(actions, answer.actData)
    except (ValueError, DecodeError) as error:
        raise EngineError(f"the ns3-gym client sent a bad action: {error}") from error
    if np.isnan(gains).any():
        raise EngineError(f"the ns3-gym client sent a bad action: gains must be numbers, got {gains.tolist()}")
    pairs = gains.clip(LOWEST_GAIN, HIGHEST_GAIN).reshape(-1, 2).tolist()
    for flow, (cwnd_gain, pacing_gain) in zip(scenario.agent_flows, pairs, strict=True):
        engine.steer(flow, cwnd_gain, pacing_gain)


def _state(rows: Rows, reward: float, info: dict[str, Any]) -> bytes:
    observation = np.array([rows.time_s, rows.is_over, rows.is_complete, *rows.link, *rows.flows.ravel()])
    return pb.EnvStateMsg(
        obsData=pack_doubles(np.where(np.isfinite(observation), observation, 0.0).tolist()),
        reward=reward,
        isGameOver=rows.is_over,
        reason=pb.EnvStateMsg.GameOver if rows.is_complete else pb.EnvStateMsg.SimulationEnd,
        info=json.dumps({"time_s": rows.time_s} | info),
    ).SerializeToString()


def _reward(scenario: Scenario, rows: Rows) -> float:
    """Return the default reward's mean over the agent flows, or over all flows if none is an agent's."""
    flows = scenario.agent_flows or range(len(scenario.flows))
    rewards = Reward().over_steps(scenario, flows, rows.flows[np.newaxis], rows.link[np.newaxis])
    return float(sum(rewards[0].tolist()) / len(flows))


def _columns(scenario: Scenario) -> list[str]:
    flows = [f"flows[{flow}].{column}" for flow in range(len(scenario.flows)) for column in FLOW_COLUMNS]
    return ["time_s", "is_over", "is_complete", *(f"link.{column}" for column in LINK_COLUMNS), *flows]


def _read(kind: Any, message: bytes) -> Any:
    with reading("the ns3-gym client", kind.__name__, message):
        return kind.FromString(message)


class _Parser(OptionParser):
    """Refuses bad arguments to the client, too."""

    client_port = _DEFAULT_PORT

    def error(self, message: str) -> NoReturn:
        try:
            super().error(message)  # prints it, and exits
        finally:
            refuse(self.client_port, message)


def _client_port(argv: Sequence[str]) -> int:
    """Return where the client listens, whatever the other arguments are."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--openGymPort", type=_within(int, 1, 65535), default=_DEFAULT_PORT)
    try:
        return int(parser.parse_known_args(argv)[0].openGymPort)
    except argparse.ArgumentError:
        return _DEFAULT_PORT


def ns3_parser() -> _Parser:
    """Return the parser of `bbrgym ns3`, with the names that stock simulations give their options."""
    parser = _Parser("ns3")
    parser.add_argument(
        "--openGymPort",
        type=_within(int, 1, 65535),
        default=_DEFAULT_PORT,
        metavar="PORT",
        help="port that the agent listens on",
    )
    parser.add_argument(
        "--simSeed", type=_within(int, 0, 2**64 - 1), default=1, metavar="SEED", help="0 draws a new seed"
    )
    parser.add_argument(
        "--stepMs",
        type=_within(float, 1e-6, 1e9),
        default=100.0,
        metavar="MS",
        help="simulated time between decisions, in ms",
    )
    parser.add_argument("--engine", choices=list(ENGINES), default="ns3", help="what simulates")
    parser.add_argument("--transport", metavar="NAME", help="what flows run over, for engine ns3; tcp without it")
    parser.add_argument("--scenario", metavar="FILE", help="YAML or JSON, with the fields of conf/scenario")
    fields = parser.add_argument_group("fields of the scenario, in YAML")
    for field in dataclasses.fields(Scenario):
        default = getattr(SERVED_SCENARIO, field.name)
        text = "an agent and a BBR flow, 50 ms each" if field.name == "flows" else json.dumps(default)
        fields.add_argument(f"--{field.name}", metavar="VALUE", help=f"(default: {text})")
    return parser


def _within(kind: type[int] | type[float], low: float, high: float) -> Callable[[str], float]:
    def convert(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"must be in [{low:g}, {high:g}], got {text!r}")
        return value

    return convert


def _scenario(options: argparse.Namespace) -> Scenario:
    plain = SERVED_SCENARIO.to_dict()
    if options.scenario is not None:
        plain = Scenario.from_dict(_plain(OmegaConf.load(options.scenario))).to_dict()
    given = {field.name: getattr(options, field.name) for field in dataclasses.fields(Scenario)}
    given = {name: text for name, text in given.items() if text is not None}
    changed = _plain(OmegaConf.from_dotlist([f"{name}={text}" for name, text in given.items()]))
    # The two ways to give the buffer exclude each other; the one on the command line takes precedence.
    if "buffer_bdp" in changed or "buffer_packets" in changed:
        plain |= {"buffer_bdp": None, "buffer_packets": None}
    return Scenario.from_dict(plain | changed)


def _plain(config: Any) -> dict[str, Any]:
    plain = OmegaConf.to_container(config)
    if not isinstance(plain, dict):
        raise ValueError("a scenario must be a mapping of its fields")
    return {str(key): value for key, value in plain.items()}
