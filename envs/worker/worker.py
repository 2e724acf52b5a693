"""The worker process: one simulation that serves episode after episode to the engine that started it.

`start.py` starts it. It speaks the ns3-gym protocol with our extension fields (ns3gym.proto):

    worker  SimInitMsg                  ready for an episode; or error, if this machine cannot run the simulator
    engine  SimInitAck                  scenario, policies and seed; or stopSimReq, which ends the process
    worker  EnvStateMsg                 the rows at time 0 and, in real time, how late it was so far; or error, if the
                                        simulator refuses the scenario
    engine  EnvActMsg                   gains of the agent flows and the length of the step
    worker  EnvStateMsg                 the rows of the step; or error, if a command of a flow failed
    …
    engine  EnvActMsg with stopSimReq   after the last step, or instead of any other: abandon the episode
    worker  SimInitMsg                  ready for the next episode

Rows are what `Simulation.rows()` returns. Gains are (cwnd_gain, pacing_gain) of every agent flow, in the order of the
flows; NaN leaves a controller's gains as they are.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import select
import socket
import threading
from collections.abc import Sequence
from typing import Any, Protocol, cast

from bbrgym.envs.ns3gym import ns3gym_pb2 as pb
from bbrgym.envs.ns3gym.doubles import pack_doubles, unpack_doubles
from bbrgym.envs.worker.stream import MessageStream


class Simulation(Protocol):
    """What the worker needs of an extension's `Simulation`.

    One in real time also has `timing() -> dict[str, float]`: how late it was since the episode began, for
    `Engine.timing`.
    """

    def reset(self, scenario: dict[str, Any], seed: int) -> None:
        """Start `Scenario.to_dict()`, with policies as bytes, now; ValueError or RuntimeError if it cannot run."""

    def set_gains(self, flow: int, cwnd_gain: float, pacing_gain: float) -> None:
        """Set the gains of an agent flow."""

    def step(self, duration_ns: int) -> None:
        """Simulate `duration_ns` more, or to the end of the scenario; RuntimeError if a flow's command failed."""

    def rows(self) -> list[float]:
        """Return `[time_s, is_over, is_complete, *link, *flow 0, *flow 1, …]` of the last step."""


def main(arguments: Sequence[str]) -> None:
    """Serve until the engine says stop, or until the parent process is gone.

    Args:
        arguments: the descriptor of the socket to the engine, the engine's process id, the extension's name and file,
            and what its `Simulation` is made with.
    """
    fd, parent, name, file, *simulation = arguments
    with socket.socket(fileno=int(fd)) as end, contextlib.suppress(EOFError):
        end.set_inheritable(False)
        engine = MessageStream(end)
        try:
            # Before there is a second thread: a user namespace needs that.
            served = _load_simulation(name, file, simulation)
        except (ImportError, RuntimeError) as error:  # a library that the extension needs is missing, say
            engine.send(pb.SimInitMsg(error=str(error) or repr(error)).SerializeToString())
            return
        _end_with_parent(int(parent))
        serve_episodes(engine, served)


def serve_episodes(engine: MessageStream, simulation: Simulation) -> None:
    """Serve episodes until the engine says stop instead of sending a scenario.

    Args:
        engine: leads to the engine; its socket blocks.
        simulation: the simulation to run them in.

    Raises:
        EOFError: the engine is gone.
    """
    hello = pb.SimInitMsg(simProcessId=os.getpid(), wafShellProcessId=os.getppid()).SerializeToString()
    while True:
        engine.send(hello)
        request = pb.SimInitAck.FromString(_next(engine))
        if request.stopSimReq:
            return
        _serve_episode(engine, simulation, request)


def _serve_episode(engine: MessageStream, simulation: Simulation, request: pb.SimInitAck) -> None:
    scenario: dict[str, Any] = json.loads(request.scenario)
    for flow, policy in request.policies.items():
        scenario["flows"][flow]["policy"] = policy
    agents = [index for index, flow in enumerate(scenario["flows"]) if flow["algorithm"] == "agent"]
    try:
        simulation.reset(scenario, request.seed)
    except (ValueError, RuntimeError) as error:
        engine.send(pb.EnvStateMsg(isGameOver=True, error=str(error) or repr(error)).SerializeToString())
        _next(engine)
        return
    engine.send(_state(simulation))
    while not (action := pb.EnvActMsg.FromString(_next(engine))).stopSimReq:
        gains = iter(unpack_doubles(action.actData))
        for flow, cwnd_gain, pacing_gain in zip(agents, gains, gains, strict=True):
            if cwnd_gain == cwnd_gain:  # not NaN
                simulation.set_gains(flow, cwnd_gain, pacing_gain)
        try:
            simulation.step(action.step_ns)
        except RuntimeError as error:
            engine.send(pb.EnvStateMsg(isGameOver=True, error=str(error)).SerializeToString())
            _next(engine)
            return
        engine.send(_state(simulation))


def _state(simulation: Simulation) -> bytes:
    rows = simulation.rows()
    timing = getattr(simulation, "timing", None)
    _, is_over, is_complete = rows[:3]
    return pb.EnvStateMsg(
        obsData=pack_doubles(rows),
        isGameOver=bool(is_over),
        reason=pb.EnvStateMsg.GameOver if is_complete else pb.EnvStateMsg.SimulationEnd,
        timing=None if timing is None else timing(),
    ).SerializeToString()


def _load_simulation(name: str, file: str, arguments: Sequence[str]) -> Simulation:
    # By its file: the bare package does not know the folder where an editable install puts extensions.
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not an extension module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast(Simulation, module.Simulation(*arguments))


def _next(engine: MessageStream) -> bytes:
    message = engine.receive()
    assert message is not None  # the socket blocks
    return message


def _end_with_parent(parent: int) -> None:
    """End this process when the parent is gone, even while C++ simulates (it has released the GIL).

    The parent holds the other end of our standard input, so its death is an end of file. Processes that it forked may
    hold that end too, so the parent's id is checked as well. PR_SET_PDEATHSIG does not work here: it fires when the
    *thread* that started this process ends.
    """

    def watch() -> None:
        while os.getppid() == parent:
            readable, _, _ = select.select([0], [], [], 0.5)
            if readable and not os.read(0, 4096):
                break
        os._exit(1)

    threading.Thread(target=watch, name="end with parent", daemon=True).start()
