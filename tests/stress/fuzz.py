"""Give damaged and hostile input to everything that reads input from outside.

    make fuzz SECONDS=60 ARGS="--seed 1"

Each target has valid inputs, which are damaged at random (bytes, or values of JSON), and a rule:

    scenario     plain mappings: ValueError with a message, or a scenario that the native engine runs
    messages     spaces and values of the ns3-gym protocol: ValueError or DecodeError, or a value
    client       what a simulation sends to `Ns3GymEnv`: EngineError, or a step, within the time limit
    server       what a client sends to `bbrgym ns3`: EngineError, or the end of the episode, within the time limit
    policy       the bytes of a policy, in C++: ValueError, or actions within their bounds
    sanitized    the same in a program with the compiler's sanitizers: no report
    agent        files of an agent's folder: ValueError or FileNotFoundError, or an agent; nothing in them is executed
    benchmark    files of a benchmark's folder: ValueError or FileNotFoundError, or results
    checkpoint   files of a training's folder: ValueError, or a state; nothing in them is executed

Each target runs in a process of its own, which must not die, and must not take longer than `HANG_S` for one input. An
input that breaks a rule is written to build/fuzz/<target>/ and tried first the next time; `--replay FILE` tries one.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import hashlib
import io
import json
import logging
import os
import pickle
import random
import resource
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

import zmq
from google.protobuf.message import DecodeError
from recipe import ROOT

from bbrgym import Flow, Scenario
from bbrgym.envs.engine import EngineError, make_engine

FOLDER: Final = ROOT / "build" / "fuzz"
HANG_S: Final = 60.0
"""One input takes milliseconds, and seconds on a busy machine."""

_MOST_FINDINGS: Final = 5
"""Findings of one target after which it ends."""

_ANSWER_S: Final = 0.5
"""Time limit of the client and the server in sessions with a hostile peer."""

Mutate = Callable[[bytes, random.Random], bytes]


class Target(ABC):
    """Something that reads input.

    Args:
        folder: an empty folder for its files.
    """

    allowed: ClassVar[tuple[type[Exception], ...]] = (ValueError,)
    """How it may refuse an input."""
    mutations: ClassVar[tuple[Mutate, ...]]

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def examples(self) -> list[bytes]:
        """Return valid inputs."""

    @abstractmethod
    def read(self, data: bytes) -> None:
        """Read an input; raise one of `allowed` to refuse it."""

    def close(self) -> None:  # noqa: B027  # most hold nothing
        """Free what it holds."""

    def check(self, data: bytes) -> str | None:
        """Read an input and return what is wrong with how that ended."""
        try:
            self.read(data)
        except self.allowed as error:
            return None if str(error) else f"{type(error).__name__} without a message"
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            return f"{type(error).__name__} at {Path(where.filename).name}:{where.lineno}: {error}"[:300]
        return None


# --- damage -----------------------------------------------------------------------------------------------------------


def damage_bytes(data: bytes, rng: random.Random) -> bytes:
    """Flip bits, overwrite, cut, repeat or insert bytes."""
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        at, length = rng.randrange(len(data) + 1), rng.choice([1, 1, 2, 4, 8, 64])
        filling = rng.choice([b"\0", b"\xff", b"\x7f", b"\x80", rng.randbytes(1)]) * length
        head, cut, tail = data[:at], data[at : at + length], data[at + length :]
        kind = rng.randrange(6)
        if kind == 0 and cut:
            data = head + bytes([cut[0] ^ 1 << rng.randrange(8)]) + cut[1:] + tail
        elif kind == 1:
            data = head + filling + tail
        elif kind == 2:
            data = head
        elif kind == 3:
            data = head + tail
        elif kind == 4:
            data = head + filling + cut + tail
        else:
            data = head + cut * rng.choice([2, 100]) + tail
    return data


_VALUES: Final[list[Any]] = [
    None, True, False, 0, 1, -1, 2, 10**6, 2**31, 2**63, 2**64, -(2**63), 10**400, 0.0, -0.0, 0.5, 1e-300, 1e300, -1e-9,
    float("nan"), float("inf"), float("-inf"), "", "1", "nan", "bbr", "agent", "policy", "x" * 300, "\0", "\ud800", "/",
    [], [[]], [1], [[0, 1], [1, 2]], [[1, 2], [0, 1]], [[0]], {}, {"": None}, {"a": {"a": {}}}, "scripted:backlog",
]  # fmt: skip


def damage_json(data: bytes, rng: random.Random) -> bytes:
    """Replace, remove, copy or add values in JSON text."""
    content = json.loads(data)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        places = list(_places(content))
        if not places:
            break
        holder, key = rng.choice(places)
        value = copy.deepcopy(rng.choice(_VALUES))
        old = holder[key]
        kind = rng.randrange(6)
        if kind == 0:
            del holder[key]
        elif kind == 1 and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[rng.randrange(len(holder))]))
        elif kind == 1:
            holder[rng.choice(["", "a", str(key).upper(), *holder])] = value
        elif kind == 2 and isinstance(old, int | float) and not isinstance(old, bool):
            holder[key] = rng.choice([-old, old + 1, old * 10**6, str(old), [old]])
        elif kind == 3:
            holder[key] = copy.deepcopy(rng.choice([h[k] for h, k in places]))
        else:
            holder[key] = value
    return json.dumps(content).encode()


def _places(content: Any) -> Iterator[tuple[Any, Any]]:
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in items:
        yield content, key
        yield from _places(value)


# --- targets ----------------------------------------------------------------------------------------------------------


class ScenarioTarget(Target):
    """A scenario as a plain mapping."""

    mutations = (damage_json, damage_json, damage_json, damage_bytes)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._engine = make_engine("native")

    def examples(self) -> list[bytes]:
        flows = (Flow("agent", rtt_ms=10), Flow("bbr", start_s=1, stop_s=2, size_bytes=9000, jitter_ms=1))
        plain = [
            Scenario(duration_s=3, flows=flows, rate_schedule=((0.5, 5.0), (1.0, 8.0)), buffer_bdp=2).to_dict(),
            Scenario(loss=0.1, loss_burst_packets=3, queue="codel", codel_target_ms=1, buffer_packets=9).to_dict(),
            {"flows": [{"algorithm": "cubic", "parameters": {"beta": 0.6}}], "duration_s": 1},
            {"flows": [{"algorithm": "policy", "rtt_ms": 20}], "rate_mbps": 5, "packet_bytes": 500},
            {"rate_trace": {"synthetic": "cellular", "seed": 2, "bin_ms": 100, "lowest_mbps": 0.1}, "duration_s": 2},
        ]
        return [json.dumps(one).encode() for one in plain]

    def read(self, data: bytes) -> None:
        scenario = Scenario.from_dict(json.loads(data))
        if Scenario.from_dict(json.loads(json.dumps(scenario.to_dict()))) != scenario:
            raise AssertionError("it is another scenario after to_dict and from_dict")
        scenario.describe()
        with contextlib.suppress(FileNotFoundError):  # of a policy, when an episode begins
            self._engine.reset(scenario, 1)
            self._engine.step(1.0 if scenario.rate_mbps < 100 and len(scenario.flows) < 20 else 0.01)

    def close(self) -> None:
        self._engine.close()


class MessagesTarget(Target):
    """Spaces and values of the ns3-gym protocol."""

    allowed = (ValueError, DecodeError)
    mutations = (damage_bytes,)

    def examples(self) -> list[bytes]:
        import numpy as np
        from gymnasium import spaces

        from bbrgym.envs.ns3gym.messages import pack_data, pack_space

        box = spaces.Box(-1, 5, (2, 3), np.float64)
        nested = spaces.Dict({"a": box, "b": spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 9, (2,), np.uint32)])})
        found = []
        for space in (box, nested, spaces.Discrete(7), spaces.Box(-9, 9, (4,), np.int32)):
            space.seed(1)
            description = pack_space(space).SerializeToString()
            value = pack_data(space, space.sample()).SerializeToString()
            found.append(struct.pack("<I", len(description)) + description + value)
        return found

    def read(self, data: bytes) -> None:
        from bbrgym.envs.ns3gym import ns3gym_pb2 as pb
        from bbrgym.envs.ns3gym.messages import pack_data, pack_space, unpack_data, unpack_space

        length = int.from_bytes(data[:4], "little")
        space = unpack_space(pb.SpaceDescription.FromString(data[4 : 4 + length]))
        pack_space(space)
        value = unpack_data(space, pb.DataContainer.FromString(data[4 + length :]))
        pack_data(space, value)


class _SocketTarget(Target):
    """A session with a peer that sends the given messages: lengths and bytes, one after the other.

    An input that begins with 1 is sent over TCP as it is, so that the peer does not even speak ZeroMQ.
    """

    allowed = (EngineError,)

    @staticmethod
    def damage(data: bytes, rng: random.Random) -> bytes:
        """Damage one of the messages, or the stream."""
        messages = list(_messages(data))
        if rng.random() < 0.2 or not messages:
            return b"\1" + damage_bytes(data[1:], rng)
        index = rng.randrange(len(messages))
        messages[index : index + 1] = rng.choice(
            [[damage_bytes(messages[index], rng)], [rng.choice(messages)], [], [messages[index]] * 2]
        )
        return _stream(messages)

    mutations = (damage,)

    def within_limit(self, call: Callable[[], object], limit_s: float) -> None:
        """Make the call, which must return or fail within the limit."""
        began = time.monotonic()
        try:
            call()
        finally:
            if (took_s := time.monotonic() - began) > limit_s + 10:  # what a busy machine may add
                raise AssertionError(f"it took {took_s:.1f} s, and its limit is {limit_s:g} s")


def _stream(messages: Sequence[bytes]) -> bytes:
    return b"\0" + b"".join(struct.pack("<I", len(message)) + message for message in messages)


def _messages(data: bytes) -> Iterator[bytes]:
    at = 1
    while data[:1] == b"\0" and at + 4 <= len(data):
        length = int.from_bytes(data[at : at + 4], "little")
        yield data[at + 4 : at + 4 + length]
        at += 4 + length


class ClientTarget(_SocketTarget):
    """`Ns3GymEnv` with a hostile simulation."""

    def examples(self) -> list[bytes]:
        import numpy as np
        from gymnasium import spaces

        from bbrgym.envs.ns3gym import ns3gym_pb2 as pb
        from bbrgym.envs.ns3gym.messages import pack_data, pack_space

        found = []
        for space in (spaces.Box(0, 9, (3,), np.float64), spaces.Dict({"a": spaces.Discrete(3)})):
            space.seed(1)
            hello = pb.SimInitMsg(simProcessId=1, obsSpace=pack_space(space), actSpace=pack_space(spaces.Discrete(2)))
            state = pb.EnvStateMsg(obsData=pack_data(space, space.sample()), reward=1.5, info="text")
            over = pb.EnvStateMsg(obsData=pack_data(space, space.sample()), isGameOver=True)
            found.append(_stream([m.SerializeToString() for m in (hello, state, state, over)]))
        return found

    def read(self, data: bytes) -> None:
        from bbrgym.envs.ns3gym.client import Ns3GymEnv

        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        peer = threading.Thread(target=self._simulate, args=(port, data))
        peer.start()

        def session() -> None:
            with contextlib.closing(Ns3GymEnv(None, port=port, timeout_s=_ANSWER_S)) as env:
                env.reset()
                for _ in range(3):
                    if any(env.step(env.action_space.sample())[2:4]):
                        break

        try:
            self.within_limit(session, 6 * _ANSWER_S)
        finally:
            peer.join()

    @staticmethod
    def _simulate(port: int, data: bytes) -> None:
        if data[:1] == b"\1":
            deadline = time.monotonic() + 5.0
            while time.monotonic() < deadline:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5.0) as stream:
                    stream.sendall(data[1:])
                    return
                time.sleep(0.005)
            return
        with zmq.Context() as context, context.socket(zmq.REQ) as peer:
            peer.linger, peer.rcvtimeo = 0, 1000
            peer.connect(f"tcp://127.0.0.1:{port}")
            with contextlib.suppress(zmq.Again):
                for message in _messages(data):
                    peer.send(message)
                    peer.recv()


class ServerTarget(_SocketTarget):
    """`bbrgym ns3` with a hostile client."""

    def __init__(self, folder: Path) -> None:
        from bbrgym.envs.ns3gym import server

        super().__init__(folder)
        server._CONNECT_LIMIT_S = _ANSWER_S  # type: ignore[misc]
        self._scenario = Scenario(duration_s=0.3, flows=(Flow("agent", rtt_ms=10), Flow("bbr", rtt_ms=10)))
        self._engine = make_engine("native")

    def examples(self) -> list[bytes]:
        import numpy as np
        from gymnasium import spaces

        from bbrgym.envs.ns3gym import ns3gym_pb2 as pb
        from bbrgym.envs.ns3gym.messages import pack_data

        box = spaces.Box(0.01, 4, (2,), np.float32)
        action = pb.EnvActMsg(actData=pack_data(box, np.array([1, 2], np.float32), is_action=True)).SerializeToString()
        stop = pb.EnvActMsg(stopSimReq=True).SerializeToString()
        return [_stream([pb.SimInitAck(done=True).SerializeToString(), action, action, stop])]

    def read(self, data: bytes) -> None:
        from bbrgym.envs.ns3gym.server import serve_episode

        ready, is_over = threading.Event(), threading.Event()
        ports: list[int] = []
        peer = threading.Thread(target=self._answer, args=(data, ports, ready, is_over))
        peer.start()
        ready.wait()
        try:
            self.within_limit(lambda: serve_episode(self._engine, self._scenario, 1, ports[0], 100.0), 10 * _ANSWER_S)
        finally:
            is_over.set()
            peer.join()

    @staticmethod
    def _answer(data: bytes, ports: list[int], ready: threading.Event, is_over: threading.Event) -> None:
        if data[:1] == b"\1":
            with socket.create_server(("127.0.0.1", 0)) as listener:
                ports.append(listener.getsockname()[1])
                ready.set()
                listener.settimeout(0.05)
                while not is_over.is_set():
                    with contextlib.suppress(OSError), listener.accept()[0] as stream:
                        stream.sendall(data[1:])
            return
        with zmq.Context() as context, context.socket(zmq.REP) as peer:
            peer.linger, peer.rcvtimeo = 0, 50
            ports.append(peer.bind_to_random_port("tcp://127.0.0.1"))
            ready.set()
            messages = _messages(data)
            while not is_over.is_set():
                with contextlib.suppress(zmq.Again):
                    peer.recv()
                    message = next(messages, None)
                    if message is None:
                        return  # and the server notices that its client is gone
                    peer.send(message)


def _policy_examples() -> list[bytes]:
    from policies import make_agent  # tests/policies.py

    agents = (make_agent(), make_agent(lstm=(3,), activation="relu"), make_agent(output="tanh", widths=()))
    return [agent.to_bytes() for agent in agents]


class PolicyTarget(Target):
    """The bytes of a policy, in C++."""

    mutations = (damage_bytes,)

    def examples(self) -> list[bytes]:
        return _policy_examples()

    def read(self, data: bytes) -> None:
        import numpy as np

        from bbrgym._controllers import PolicyNetwork

        network = PolicyNetwork(data)
        state = np.zeros((2, network.state_size), np.float32)
        actions = network.forward(np.ones((2, network.inputs), np.float32), state)
        if not ((np.abs(actions) <= 1) | np.isnan(actions)).all():
            raise AssertionError(f"actions {actions}")


class SanitizedTarget(Target):
    """The same in a program built with sanitizers, which ends when they find something."""

    mutations = (damage_bytes,)
    program = ROOT / "build" / "fuzz-policy"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._process: subprocess.Popen[bytes] | None = None

    def examples(self) -> list[bytes]:
        return _policy_examples()

    def read(self, data: bytes) -> None:
        if self._process is None:
            self._process = subprocess.Popen(
                [self.program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(struct.pack("<I", len(data)) + data)
            self._process.stdin.flush()
        if self._process.stdout.read(1) not in (b"y", b"n"):
            process, self._process = self._process, None
            _, report = process.communicate()
            raise AssertionError(f"status {process.returncode}: {report.decode(errors='replace')[:200]}")

    def close(self) -> None:
        if self._process is not None:
            self._process.communicate()


class _FolderTarget(Target):
    """A folder of which one file is damaged. An input is the file's name, a zero, and its content."""

    allowed = (ValueError, FileNotFoundError)
    files: ClassVar[tuple[str, ...]]

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._sound, self._work, self._trap = folder / "sound", folder / "work", folder / "executed"
        self.prepare(self._sound)

    @abstractmethod
    def prepare(self, folder: Path) -> None:
        """Make the sound folder."""

    @abstractmethod
    def load(self, folder: Path) -> None:
        """Load a folder."""

    def repair(self, folder: Path) -> None:
        """Do to a damaged folder what an attacker would do, such as correcting its checksums."""

    def examples(self) -> list[bytes]:
        return [f"{name}\0".encode() + (self._sound / name).read_bytes() for name in self.files]

    def damage(self, data: bytes, rng: random.Random) -> bytes:
        """Damage the file's content, or replace it by what executes something when it is unpickled."""
        name, _, content = data.partition(b"\0")
        if rng.random() < 0.1:
            return name + b"\0" + self._hostile(content, rng)
        if name.endswith(b".json") and rng.random() < 0.7:
            return name + b"\0" + damage_json(content, rng)
        return name + b"\0" + damage_bytes(content, rng)

    mutations = ()

    def _hostile(self, content: bytes, rng: random.Random) -> bytes:
        payload = pickle.dumps(_Trap(str(self._trap)))
        if not zipfile.is_zipfile(io.BytesIO(content)) or rng.random() < 0.3:
            return payload
        into = io.BytesIO()
        with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(into, "w") as new:
            victim = rng.choice(old.namelist())
            for member in old.namelist():
                inside = old.read(member)
                is_nested = zipfile.is_zipfile(io.BytesIO(inside))
                hostile = self._hostile(inside, rng) if is_nested else rng.choice([payload, _npy(payload)])
                new.writestr(member, hostile if member == victim else inside)
        return into.getvalue()

    def read(self, data: bytes) -> None:
        name, _, content = data.partition(b"\0")
        shutil.rmtree(self._work, ignore_errors=True)
        shutil.copytree(self._sound, self._work)
        (self._work / name.decode()).write_bytes(content)
        self.repair(self._work)
        try:
            self.load(self._work)
        finally:
            if self._trap.exists():
                self._trap.unlink()
                raise AssertionError("something in the file was executed")


class _Trap:
    """Unpickling it makes a file."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, (self._path, "w"))


def _npy(payload: bytes) -> bytes:
    """Return an array of objects in NumPy's format, which is a pickle."""
    header = b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"
    header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + payload


class AgentTarget(_FolderTarget):
    """The folder of an agent."""

    files = ("agent.json", "policy.npz")

    def prepare(self, folder: Path) -> None:
        from policies import make_agent

        make_agent(lstm=(3,)).save(folder)

    def load(self, folder: Path) -> None:
        import numpy as np

        from bbrgym._controllers import PolicyNetwork
        from bbrgym.agents.policy import load_agent
        from bbrgym.baselines.policy_file import policy_bytes

        with contextlib.suppress(ValueError):
            PolicyNetwork(policy_bytes(folder))
        agent = load_agent(folder)
        agent.predict(np.zeros((1, agent.network.inputs), np.float32))


class BenchmarkTarget(_FolderTarget):
    """The folder of a benchmark."""

    files: ClassVar[tuple[str, ...]] = ("benchmark.json", "failures.json", "metrics.json")

    def prepare(self, folder: Path) -> None:
        from rich.console import Console

        from bbrgym.benchmark.run import run_benchmark

        scenario = {"duration_s": 0.2, "flows": [{"algorithm": "bbr", "rtt_ms": 10}]}
        config = {"scenarios": {"one": scenario}, "competitors": ["bbr"], "seeds": [1], "engine": "native"}
        run_benchmark(config, folder, Console(file=io.StringIO()), has_report=False)
        (metrics,) = folder.glob("runs/*/metrics.json")
        shutil.copy(metrics, folder / "metrics.json")

    def repair(self, folder: Path) -> None:
        (metrics,) = folder.glob("runs/*/metrics.json")
        shutil.copy(folder / "metrics.json", metrics)

    def load(self, folder: Path) -> None:
        from bbrgym.benchmark.results import load_benchmark

        load_benchmark(folder)


class CheckpointTarget(_FolderTarget):
    """A training's newest checkpoint and run.json; checksums fit to the damage half of the time."""

    def prepare(self, folder: Path) -> None:
        from rich.console import Console
        from stable_baselines3.common.logger import Logger
        from training import changed

        from bbrgym.agents.config import TrainConfig
        from bbrgym.agents.learner import make_model
        from bbrgym.agents.train import train
        from bbrgym.envs.episode import EpisodeSpec
        from bbrgym.envs.sb3_env import SharedPolicyVecEnv

        config = changed({"total_steps": 64, "eval_every": 64}, engine={"name": "native"})
        train(config, folder, Console(file=io.StringIO()))
        training = TrainConfig.from_dict(config["train"])
        env = SharedPolicyVecEnv(EpisodeSpec.from_config(config), training.n_envs)
        self._model = make_model(config["agent"], env, 1)
        self._model.set_logger(Logger(folder=None, output_formats=[]))
        newest = max(path for path in (folder / "checkpoints").iterdir() if path.name.isdigit())
        for other in set((folder / "checkpoints").iterdir()) - {newest}:
            shutil.rmtree(other)
        self._newest = newest.relative_to(folder)
        self.files = tuple(str(self._newest / path.name) for path in newest.iterdir())  # type: ignore[misc]
        self.files += ("run.json",)  # type: ignore[misc]

    def repair(self, folder: Path) -> None:
        path = folder / self._newest / "checkpoint.json"
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError, OSError):
            description = json.loads(path.read_bytes())
            for name in description["sha256"]:
                description["sha256"][name] = hashlib.sha256((folder / self._newest / name).read_bytes()).hexdigest()
            path.write_text(json.dumps(description))

    def load(self, folder: Path) -> None:
        from bbrgym.agents.checkpoint import restore_latest
        from bbrgym.agents.tracking import read_run

        read_run(folder)
        restore_latest(self._model, folder / "checkpoints")


TARGETS: Final[dict[str, type[Target]]] = {
    "scenario": ScenarioTarget,
    "messages": MessagesTarget,
    "client": ClientTarget,
    "server": ServerTarget,
    "policy": PolicyTarget,
    "sanitized": SanitizedTarget,
    "agent": AgentTarget,
    "benchmark": BenchmarkTarget,
    "checkpoint": CheckpointTarget,
}


# --- attacks ----------------------------------------------------------------------------------------------------------


def attack(target: Target, rng: random.Random, found_in: Path, is_over: Callable[[int], bool]) -> tuple[int, list[str]]:
    """Give a target what was found before, its examples, and damaged examples until `is_over(count)`.

    Args:
        target: reads them.
        rng: damages them.
        found_in: where inputs that break the rule are kept, and the one that is being read.
        is_over: whether this many inputs are enough.

    Returns:
        How many inputs were read, and what is wrong, once for each place in the code.
    """
    found_in.mkdir(parents=True, exist_ok=True)
    current = found_in / "current"
    examples = target.examples()
    for example in examples:
        if wrong := _refusal(target, example):
            return 0, [f"a valid input is refused: {wrong}"]
    queue = [path.read_bytes() for path in sorted(found_in.glob("*.bin"))]
    damage = target.mutations or (target.damage,)  # type: ignore[attr-defined]
    count, found = 0, {}
    while len(found) < _MOST_FINDINGS and not (is_over(count) and not queue):
        data = queue.pop() if queue else rng.choice(damage)(rng.choice(examples), rng)
        current.write_bytes(data)
        if (wrong := target.check(data)) is not None:
            place = wrong.partition(": ")[0]
            if place not in found:
                found[place] = f"{wrong} (--replay {keep(found_in, data)})"
        count += 1
    current.unlink(missing_ok=True)
    return count, list(found.values())


def _refusal(target: Target, data: bytes) -> str | None:
    try:
        target.read(data)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def keep(found_in: Path, data: bytes) -> Path:
    """Store an input."""
    path = found_in / f"{hashlib.sha256(data).hexdigest()[:12]}.bin"
    path.write_bytes(data)
    return path


def supervise(command: Sequence[str], found_in: Path, seconds: float) -> list[str]:
    """Run an attack in a process and return what it found; if it dies or hangs, the input that it was reading is kept.

    Args:
        command: prints a line for everything it finds, after `FOUND `, and its figures.
        found_in: as of `attack`.
        seconds: how long it was told to take.
    """
    current = found_in / "current"
    current.unlink(missing_ok=True)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.extend(process.stdout or ()))
    reader.start()
    found = []
    changed, last = time.monotonic(), None
    while process.poll() is None:
        time.sleep(0.05)
        with contextlib.suppress(OSError):
            if (state := current.stat().st_mtime_ns) != last:
                changed, last = time.monotonic(), state
        if time.monotonic() - changed > HANG_S + (seconds if last is None else 0):
            process.kill()
            found.append(f"it hung for {HANG_S:g} s")
            break
    process.wait()
    reader.join()
    if process.returncode != 0 and not found:
        found.append(f"its process ended with status {process.returncode}: {''.join(lines)[-400:].strip()}")
    if found and current.exists():
        found = [f"{found[0]} (--replay {keep(found_in, current.read_bytes())})"]
        current.unlink()
    for line in lines:
        if line.startswith("FOUND "):
            found.append(line.removeprefix("FOUND ").strip())
        elif process.returncode == 0:
            print(line, end="", flush=True)
    return found


def main() -> int:
    """Attack all targets and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="for all targets together; default: 60")
    parser.add_argument("--seed", type=int, default=1, help="default: 1")
    parser.add_argument("--target", choices=list(TARGETS), action="append", help="only these targets")
    parser.add_argument("--replay", type=Path, help="try one input; its folder is the target's name")
    parser.add_argument("--here", action="store_true", help="attack in this process, and not in one for each target")
    options = parser.parse_args()
    names = options.target or list(TARGETS)
    if options.replay is not None:
        with _target(options.replay.parent.name) as target:
            print(wrong := target.check(options.replay.read_bytes()))
            return wrong is not None
    if options.here:
        logging.disable()
        for name in names:
            rng = random.Random(f"{options.seed} {name}")
            with _target(name) as target:
                end = time.monotonic() + options.seconds / len(names)
                count, found = attack(target, rng, FOLDER / name, lambda _, end=end: time.monotonic() > end)
            print(f"{name}: {count} inputs, {len(found)} findings", flush=True)
            for line in found:
                print(f"FOUND {' '.join(line.split())}", flush=True)
        return 0
    print(f"fuzz: seed {options.seed}, {options.seconds:g} s")
    failed = False
    for name in names:
        seconds = options.seconds / len(names)
        command = [sys.executable, "-m", "stress.fuzz", "--here", "--target", name, "--seconds", str(seconds)]
        for line in supervise([*command, "--seed", str(options.seed)], FOLDER / name, seconds):
            print(f"VIOLATION {name}: {line}", flush=True)
            failed = True
    print(f"seed {options.seed}")
    return failed


@contextlib.contextmanager
def _target(name: str) -> Iterator[Target]:
    if name != "sanitized" and name != "checkpoint":  # whose libraries reserve more than there is
        resource.setrlimit(resource.RLIMIT_AS, (6 * 2**30, 6 * 2**30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with (
        tempfile.TemporaryDirectory(prefix="bbrgym-fuzz-") as folder,
        contextlib.closing(TARGETS[name](Path(folder))) as target,
    ):
        yield target


if __name__ == "__main__":
    sys.exit(main())
