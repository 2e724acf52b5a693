"""What reads input from outside, with valid inputs to damage."""

import contextlib
import copy
import json
import random
import shutil
import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from google.protobuf.message import DecodeError
from gymnasium import spaces
from policies import make_agent
from random_scenarios import random_scenario
from udp_peer import (
    BUSY,
    REPORT,
    RETRY,
    WELCOME,
    FakeReceiver,
    Peer,
    ack,
    data_datagram,
    datagram,
    end,
    hello,
    receiver,
)

from bbrgym import Flow, Scenario
from bbrgym._controllers import PolicyNetwork
from bbrgym.agents.policy import load_agent
from bbrgym.baselines.policy_file import policy_bytes
from bbrgym.envs.engine import make_engine
from bbrgym.envs.ns3gym import ns3gym_pb2 as pb
from bbrgym.envs.ns3gym.messages import pack_data, pack_space, unpack_data, unpack_space


class Target(ABC):
    """Something that reads input.

    Args:
        folder: an empty folder for its files.
    """

    allowed: ClassVar[tuple[type[Exception], ...]] = (ValueError,)
    """How it may refuse an input."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def examples(self) -> list[bytes]:
        """Return valid inputs."""

    def damage(self, data: bytes, rng: random.Random) -> bytes:
        """Return a damaged input."""
        return damage_bytes(data, rng)

    @abstractmethod
    def read(self, data: bytes) -> None:
        """Read an input; raise one of `allowed` to refuse it."""

    def close(self) -> None:  # noqa: B027  # most hold nothing
        """Free what it holds."""


class ScenarioTarget(Target):
    """A scenario as a plain mapping."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._engine = make_engine("native")

    def examples(self) -> list[bytes]:
        plain = [
            *(random_scenario(random.Random(seed)).to_dict() for seed in range(12)),
            {"flows": [{"algorithm": "policy", "parameters": {"preference": 0.6}}], "duration_s": 1},
            {"flows": [{"rtt_trace": {"ramp": [[0, 9], [1, 30]], "step_ms": 50}}]},
            {"rate_trace": {"synthetic": "cellular", "seed": 2, "bin_ms": 100, "lowest_mbps": 0.1}, "duration_s": 2},
            {"workload": {"load": 0.4, "sizes": "web-search", "seed": 3, "start_s": 0.5, "flow": {"rtt_ms": 9}}},
        ]
        return [json.dumps(one).encode() for one in plain]

    def damage(self, data: bytes, rng: random.Random) -> bytes:
        return (damage_json if rng.random() < 0.75 else damage_bytes)(data, rng)

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


class SeriesTarget(Target):
    """Files of rates and RTTs over time. An input is the options, a zero, and the file's content."""

    def examples(self) -> list[bytes]:
        trip = {"timestamps": {"client": {"send": {"wall": 5_000_000_000}}}, "delay": {"rtt": 20_000_000}}
        interval = {"sum": {"start": 0, "end": 1, "bits_per_second": 2e7}, "streams": [{"rtt": 40000}]}
        files: list[tuple[dict[str, object], str]] = [
            ({"time_unit": "s"}, "0 5.5\n1 7\n2.5 3\n"),
            ({}, "time_ms,delay (ms),throughput (kbit/s)\n0,20,1500\n1000,30,2500\n"),
            ({"step_ms": 10, "from_s": 0.015}, "12\n12\n16\n"),
            ({}, "1\n2\n2\n9\n"),
            ({"format": "pensieve"}, "0\t5\n1\t3\n2\t4\n"),
            ({}, "1 20 59.8 10.7 24806 10\n1 30 59.8 10.7 19169 10\n"),
            ({}, "timestamp,rtt,uplink,downlink\n1705744800616897349,0,0,-1\n1705744800626565141,120.1,72.4,47.6\n"),
            ({}, json.dumps({"round_trips": [trip]})),
            ({}, json.dumps({"intervals": [interval]})),
            (
                {"column": 2},
                'time,"DL, Mbit/s","UL, Mbit/s"\n2023-04-12 10:40:20.5 UTC,"5",6\n2023-04-12T10:40:22Z,7,"8"\n',
            ),
            ({"column": 3, "time_column": 2, "time_unit": "s"}, "a 0 5\nb 1 6\n"),
        ]
        return [json.dumps(options).encode() + b"\0" + content.encode() for options, content in files]

    def damage(self, data: bytes, rng: random.Random) -> bytes:
        options, _, content = data.partition(b"\0")
        if rng.random() < 0.2:
            return damage_json(options, rng) + b"\0" + content
        return options + b"\0" + (damage_json if content[:1] == b"{" else damage_bytes)(content, rng)

    def read(self, data: bytes) -> None:
        options, _, content = data.partition(b"\0")
        (self.folder / "file").write_bytes(content)
        trace = {"file": str(self.folder / "file"), **json.loads(options)}
        refusals = 0
        for scenario in ({"rate_trace": trace}, {"flows": [{"rtt_trace": trace}]}):
            try:
                Scenario.from_dict({"duration_s": 3, **scenario})
            except ValueError as error:
                refusals += 1
                refusal = error
        if refusals == 2:
            raise refusal


class MessagesTarget(Target):
    """Spaces and values of the ns3-gym protocol."""

    allowed = (ValueError, DecodeError)

    def examples(self) -> list[bytes]:
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
        length = int.from_bytes(data[:4], "little")
        space = unpack_space(pb.SpaceDescription.FromString(data[4 : 4 + length]))
        pack_space(space)
        value = unpack_data(space, pb.DataContainer.FromString(data[4 + length :]))
        pack_data(space, value)


def _stream(messages: Sequence[bytes]) -> bytes:
    return b"".join(struct.pack("<I", len(message)) + message for message in messages)


def _messages(data: bytes) -> Iterator[bytes]:
    at = 0
    while at + 4 <= len(data):
        length = int.from_bytes(data[at : at + 4], "little")
        yield data[at + 4 : at + 4 + length]
        at += 4 + length


class _DatagramsTarget(Target):
    """Datagrams, each after its length. `TOKEN` and `ID` in them stand for the flow's own."""

    TOKEN: ClassVar[bytes] = b"the flow's token"
    ID: ClassVar[bytes] = b"id"

    def damage(self, data: bytes, rng: random.Random) -> bytes:
        """Damage, leave out, repeat, replace or swap some of the messages."""
        messages = list(_messages(data))
        for _ in range(rng.choice([1, 2, 5])):
            index = rng.randrange(len(messages)) if messages else 0
            messages[index : index + 1] = rng.choice(
                [
                    [damage_bytes(message, rng) for message in messages[index : index + 1]],
                    [],
                    messages[index : index + 1] * 3,
                    [rng.randbytes(rng.randrange(200))],
                    rng.sample(messages, len(messages)),
                ]
            )
        return _stream(messages[:200])

    def _sent(self, data: bytes, token: bytes, connection: int) -> list[bytes]:
        messages = [message.replace(self.TOKEN, token)[:65_000] for message in _messages(data)]
        number = connection.to_bytes(2, "big")
        return [m[:2] + number + m[4:] if m[2:4] == self.ID else m for m in messages]


class UdpReceiverTarget(_DatagramsTarget):
    """`bbrgym receive` with a hostile sender that has proved its address, and one that has not."""

    def examples(self) -> list[bytes]:
        connection = int.from_bytes(self.ID, "big")
        packets = [data_datagram(number, connection) for number in (0, 1, 2, 5, 4, 3, 2**20, 7)]
        last = [end(self.TOKEN, connection, 8, flags) for flags in (0, 0, 1)]
        return [_stream([hello(3), hello(4, self.TOKEN), *packets, *last])]

    def read(self, data: bytes) -> None:
        server, address = receiver()
        with contextlib.closing(Peer(server, address)) as peer, contextlib.closing(Peer(server, address)) as other:
            peer.connect()
            for message in self._sent(data, peer.token, peer.connection):
                if sum(map(len, other.exchange(message))) > len(message):
                    raise AssertionError("an address that is not proved got more bytes than it sent")
                peer.exchange(message)
            server.release()
            if not other.exchange(hello(1)):
                raise AssertionError("it serves nobody any more")
            other.connect()


class UdpSenderTarget(_DatagramsTarget):
    """`bbrgym send` with a hostile receiver."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._flow = Scenario(flows=(Flow("bbr"),)).to_dict()["flows"][0]

    def examples(self) -> list[bytes]:
        acks = [ack((0, high)) for high in (0, 1, 5)]
        acks += [ack((5, 9), (0, 3), marked=1000), ack((0, 2**63))]
        answers = [datagram(RETRY, bytes(24)), datagram(WELCOME, bytes(8)), datagram(BUSY, bytes(8))]
        return [_stream([*acks, *answers, datagram(REPORT, bytes(32))])]

    def read(self, data: bytes) -> None:
        with contextlib.closing(FakeReceiver(self._flow)) as fake:
            fake.connect()
            fake.answer(*self._sent(data, bytes(16), 0))
            if fake.sender.phase != "open":
                raise AssertionError(f"the flow is {fake.sender.phase}")
            row = fake.sender.row()
            if not all(0 <= value < 1e12 for value in row[1:19] if value == value):
                raise AssertionError(f"impossible row: {row[1:19]}")
            fake.sender.finish()
            fake.sender.wait(0)
            if fake.sender.phase != "ending":
                raise AssertionError("it cannot be ended")


class PolicyTarget(Target):
    """The bytes of a policy, in C++."""

    def examples(self) -> list[bytes]:
        agents = (
            make_agent(),
            make_agent(lstm=(3,), activation="relu", has_skip=True),
            make_agent(output="tanh", widths=()),
        )
        return [agent.to_bytes() for agent in agents]

    def read(self, data: bytes) -> None:
        network = PolicyNetwork(data)
        state = np.zeros((2, network.state_size), np.float32)
        actions = network.forward(np.ones((2, network.inputs), np.float32), state)
        if not ((np.abs(actions) <= 1) | np.isnan(actions)).all():
            raise AssertionError(f"actions {actions}")


class _FolderTarget(Target):
    """A folder of which one file is damaged. An input is the file's name, a zero, and its content."""

    allowed = (ValueError, FileNotFoundError)
    files: tuple[str, ...]
    """Names of the files to damage, in the folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._sound, self._work = folder / "sound", folder / "work"
        self.prepare(self._sound)

    @abstractmethod
    def prepare(self, folder: Path) -> None:
        """Make the sound folder."""

    @abstractmethod
    def load(self, folder: Path, damaged: Path) -> None:
        """Load a folder, of which this file is damaged."""

    def examples(self) -> list[bytes]:
        return [f"{name}\0".encode() + (self._sound / name).read_bytes() for name in self.files]

    def damage(self, data: bytes, rng: random.Random) -> bytes:
        name, _, content = data.partition(b"\0")
        if name.endswith(b".json") and rng.random() < 0.7:
            return name + b"\0" + damage_json(content, rng)
        return name + b"\0" + damage_bytes(content, rng)

    def read(self, data: bytes) -> None:
        name, _, content = data.partition(b"\0")
        shutil.rmtree(self._work, ignore_errors=True)
        shutil.copytree(self._sound, self._work)
        damaged = self._work / name.decode()
        damaged.write_bytes(content)
        self.load(self._work, damaged)


class AgentTarget(_FolderTarget):
    """The folder of an agent."""

    files = ("agent.json", "policy.npz")

    def prepare(self, folder: Path) -> None:
        make_agent(lstm=(3,), has_skip=True).save(folder)

    def load(self, folder: Path, damaged: Path) -> None:
        with contextlib.suppress(ValueError):
            PolicyNetwork(policy_bytes(folder))
        agent = load_agent(folder)
        agent.predict(np.zeros((1, agent.network.inputs), np.float32))


class ImportTarget(_FolderTarget):
    """Models of other libraries."""

    files = ("stable-baselines3.zip", "cleanrl.pt", "chain.onnx", "recurrent.onnx", "statistics.npz")

    def prepare(self, folder: Path) -> None:
        import torch
        from stable_baselines3 import PPO

        from bbrgym.agents.export import write_onnx
        from bbrgym.envs.gym_env import BottleneckEnv

        folder.mkdir()
        sb3, cleanrl, chain, recurrent, statistics = (folder / name for name in self.files)
        agent = make_agent()
        PPO("MlpPolicy", BottleneckEnv.from_spec(agent.spec), policy_kwargs={"net_arch": [4]}).save(sb3)
        sizes = (agent.network.inputs, 4, agent.network.outputs)
        layers = [torch.nn.Linear(*sizes[:2]), torch.nn.Tanh(), torch.nn.Linear(*sizes[1:])]
        torch.save(
            {f"actor_mean.{name}": value for name, value in torch.nn.Sequential(*layers).state_dict().items()}, cleanrl
        )
        write_onnx(agent.stored, chain)
        write_onnx(make_agent(lstm=(3,), has_skip=True).stored, recurrent)
        np.savez(statistics, mean=np.zeros(agent.network.inputs), var=np.full(agent.network.inputs, 1e3))
        self._config = agent.spec.to_config()

    def load(self, folder: Path, damaged: Path) -> None:
        from bbrgym.agents.importers import import_model

        if damaged.suffix == ".npz":
            import_model(folder / "cleanrl.pt", self._config, statistics=damaged)
        else:
            import_model(damaged, self._config)


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
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    10**6,
    2**31,
    2**63,
    2**64,
    -(2**63),
    10**400,
    0.0,
    -0.0,
    0.5,
    1e-300,
    1e300,
    -1e-9,
    float("nan"),
    float("inf"),
    float("-inf"),
    "",
    "1",
    "nan",
    "bbr",
    "agent",
    "policy",
    "x" * 300,
    "\0",
    "\ud800",
    "/",
    [],
    [[]],
    [1],
    [[0, 1], [1, 2]],
    [[1, 2], [0, 1]],
    [[0]],
    {},
    {"": None},
    {"a": {"a": {}}},
    "scripted:backlog",
]


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
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(content, dict):
        items = content.items()
    elif isinstance(content, list):
        items = enumerate(content)
    for key, value in items:
        yield content, key
        yield from _places(value)


TARGETS: Final[dict[str, type[Target]]] = {
    "scenario": ScenarioTarget,
    "series": SeriesTarget,
    "messages": MessagesTarget,
    "udp-receiver": UdpReceiverTarget,
    "udp-sender": UdpSenderTarget,
    "policy": PolicyTarget,
    "agent": AgentTarget,
    "import": ImportTarget,
}
