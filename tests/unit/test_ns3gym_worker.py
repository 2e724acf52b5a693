"""The worker's loop, with a toy in the place of ns-3."""

from __future__ import annotations

import json
import math
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from waiting import HANG_S

from bbrgym.envs.ns3gym import ns3gym_pb2 as pb
from bbrgym.envs.ns3gym.doubles import pack_doubles, unpack_doubles
from bbrgym.envs.scenario import Flow, Scenario
from bbrgym.envs.worker.stream import MessageStream
from bbrgym.envs.worker.worker import serve_episodes

SCENARIO = Scenario(duration_s=1.0, flows=(Flow("agent"), Flow("bbr"), Flow("agent")))


class Toy:
    """Records what it is told; its rows are the time, and the seed."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def reset(self, scenario: dict[str, Any], seed: int) -> None:
        self.calls.append(("reset", Scenario.from_dict(scenario), seed))
        if seed == 13:
            raise ValueError("no episode 13")
        self.now_ns, self.end_ns, self.seed = 0, round(scenario["duration_s"] * 1e9), seed

    def set_gains(self, flow: int, cwnd_gain: float, pacing_gain: float) -> None:
        self.calls.append(("set_gains", flow, cwnd_gain, pacing_gain))

    def step(self, duration_ns: int) -> None:
        self.calls.append(("step", duration_ns))
        self.now_ns = min(self.end_ns, self.now_ns + duration_ns)

    def rows(self) -> list[float]:
        is_over = self.now_ns == self.end_ns
        return [self.now_ns / 1e9, float(is_over), float(is_over and self.seed == 7), float(self.seed)]


class Parent:
    """The engine's side, by hand."""

    def __init__(self, worker: MessageStream) -> None:
        self.worker = worker

    def begin(self, seed: int) -> None:
        assert pb.SimInitMsg.FromString(self.receive()).simProcessId > 0
        scenario = json.dumps(SCENARIO.to_dict())
        self.worker.send(pb.SimInitAck(done=True, scenario=scenario, seed=seed).SerializeToString())

    def act(self, *gains: float, step_ns: int = 400_000_000) -> None:
        self.worker.send(pb.EnvActMsg(actData=pack_doubles(gains), step_ns=step_ns).SerializeToString())

    def stop(self) -> None:
        self.worker.send(pb.EnvActMsg(stopSimReq=True).SerializeToString())

    def quit(self) -> None:
        self.receive()
        self.worker.send(pb.SimInitAck(stopSimReq=True).SerializeToString())

    def receive(self) -> bytes:
        message = self.worker.receive()
        assert message is not None
        return message

    def state(self) -> tuple[list[float], pb.EnvStateMsg]:
        state = pb.EnvStateMsg.FromString(self.receive())
        return list(unpack_doubles(state.obsData)), state


@pytest.fixture
def served() -> Iterator[tuple[Parent, Toy, threading.Thread]]:
    toy = Toy()
    parent, worker = socket.socketpair()
    with parent, worker:
        thread = threading.Thread(target=serve_episodes, args=(MessageStream(worker), toy))
        thread.start()
        yield Parent(MessageStream(parent)), toy, thread
        thread.join(HANG_S)


def test_serves_episode_after_episode(served: tuple[Parent, Toy, threading.Thread]) -> None:
    parent, toy, thread = served
    nan = math.nan
    for seed in (5, 7):
        parent.begin(seed)
        times = [parent.state()[0][0]]
        while True:
            parent.act(nan, nan, 1.5, 0.75)
            rows, state = parent.state()
            times.append(rows[0])
            assert rows[3] == seed
            if state.isGameOver:
                break
        assert times == [0.0, 0.4, 0.8, 1.0]
        assert state.reason == (pb.EnvStateMsg.GameOver if seed == 7 else pb.EnvStateMsg.SimulationEnd)
        parent.stop()
    parent.quit()
    thread.join(HANG_S)
    assert not thread.is_alive()
    # Flow 2 is steered, flow 0's gains are left as they are, flow 1 is no agent's.
    step = [("set_gains", 2, 1.5, 0.75), ("step", 400_000_000)]
    assert toy.calls == [("reset", SCENARIO, 5), *step * 3, ("reset", SCENARIO, 7), *step * 3]


def test_an_episode_can_be_abandoned_and_refused(served: tuple[Parent, Toy, threading.Thread]) -> None:
    parent, toy, thread = served
    parent.begin(1)
    parent.state()
    parent.stop()
    parent.begin(13)
    rows, state = parent.state()
    assert (rows, state.isGameOver, state.error) == ([], True, "no episode 13")
    parent.stop()
    parent.begin(2)
    assert parent.state()[0] == [0.0, 0.0, 0.0, 2.0]
    parent.stop()
    parent.quit()
    thread.join(HANG_S)
    assert [call[0] for call in toy.calls] == ["reset"] * 3
