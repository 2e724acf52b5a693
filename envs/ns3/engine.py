"""`engine=ns3`: ns-3 in a worker process for each engine, driven over the ns3-gym protocol."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from bbrgym.baselines.registry import COMPARATORS
from bbrgym.checks import check_name, check_number
from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.engine import Engine, EngineDescription, EngineError, Rows
from bbrgym.envs.ns3gym import ns3gym_pb2 as pb
from bbrgym.envs.ns3gym.doubles import pack_doubles, unpack_doubles
from bbrgym.envs.ns3gym.peer import Peer, reading
from bbrgym.envs.scenario import Scenario

TRANSPORTS: Final[tuple[str, ...]] = ("tcp", "quic")
"""What flows run over: ns-3's TCP, or the native engine's transport over ns-3's UDP."""

WORKER: Final = Path(__file__).with_name("start_worker.py")
"""The script of a worker process."""

_START_LIMIT_S = 60.0
"""Limit for the worker's first message: Python starts slowly on a busy machine. A death is noticed at once."""

_LIMIT_S_PER_SIMULATED_S = 60.0
"""ns-3's sender walks its list of sent packets for every SACK, so that a simulated second of a fast link with a small
buffer takes a dozen seconds, and a few times that on a busy machine."""

_STOP = pb.EnvActMsg(stopSimReq=True).SerializeToString()


class Ns3Engine(Engine):
    """Simulates in ns-3, in a worker process that serves one episode after the other.

    The worker starts with the first reset, and again with the first reset after an error. It ends with `close`, with
    this object, and with this process, however that ends.

    Args:
        timeout_s: how long an answer may take, in s, in addition to 60 s for every simulated second asked for (a lossy
            run on a fast link is that slow). A worker that takes longer is killed.
        transport: one of `TRANSPORTS`. `tcp` is ns-3's own, with our rate samples; `quic` is the native engine's
            (packet numbers, ACK ranges, RFC 9002 losses) over ns-3's UDP, so that the two engines differ in the
            network alone (docs/decisions/0007).

    Raises:
        EngineError: bbrgym was built without ns-3.
        ValueError: an argument is bad.
    """

    @classmethod
    def describe(cls, **options: Any) -> EngineDescription:
        """Return the description for `transport`; other options do not change it."""
        transport = options.get("transport", "tcp")
        check_name("transport", transport, TRANSPORTS)
        return EngineDescription(
            title="ns-3",
            comparators=tuple(COMPARATORS) if transport == "tcp" else (),  # they are parts of ns-3's TCP
            options={"transport": transport},
            extensions=("bbrgym._ns3",),
            distributions=("ns3",),
            install="pip install --no-deps ns3==3.44.post0, then install bbrgym again with --no-build-isolation",
        )

    def __init__(self, timeout_s: float = 10.0, transport: str = "tcp") -> None:
        self.description = self.describe(transport=transport)
        check_number("timeout_s", timeout_s, above=0)
        self._transport = transport
        self._timeout_s = timeout_s
        self._extension = _extension_file()
        self._peer: Peer | None = None
        self._unsent_request: bytes | None = None
        self._limit_s = timeout_s
        self._gains: list[float] = []

    @property
    def pid(self) -> int | None:
        """Process id of the worker; None if there is none."""
        return None if self._peer is None else self._peer.pid

    def _begin_reset(self, scenario: Scenario, seed: int, policies: Mapping[int, bytes]) -> None:
        request = pb.SimInitAck(
            done=True, scenario=json.dumps(scenario.to_dict(), default=_plain_number), seed=seed, policies=policies
        ).SerializeToString()
        self._gains = [math.nan] * (2 * len(scenario.agent_flows))
        self._limit_s = self._timeout_s
        if self._peer is None:
            self._peer = self._start_worker()
            self._unsent_request = request  # sent when the worker is up; other workers start meanwhile
        else:
            if self._rows is not None and not self._rows.is_over:
                self._peer.send(_STOP)
            self._send_request(self._peer, request, self._timeout_s)

    def _begin_step(self, duration_ns: int) -> None:
        assert self._scenario is not None
        assert self._peer is not None
        step_ns = min(duration_ns, max(1, round(self._scenario.duration_s * 1e3 * 1e6)))
        self._limit_s = self._timeout_s + _LIMIT_S_PER_SIMULATED_S * step_ns / 1e9
        self._peer.send(pb.EnvActMsg(actData=pack_doubles(self._gains), step_ns=step_ns).SerializeToString())

    def _finish_request(self, scenario: Scenario) -> Rows:
        assert self._peer is not None
        if self._unsent_request is not None:
            self._send_request(self._peer, self._unsent_request, max(_START_LIMIT_S, self._timeout_s))
        message = self._peer.receive(self._limit_s, self._doing)
        with reading("the worker", "EnvStateMsg", message):
            state = pb.EnvStateMsg.FromString(message)
            values = np.array(unpack_doubles(state.obsData), dtype=np.float64)
        if state.error:
            raise EngineError(f"ns-3 refuses the scenario: {state.error}")
        shape = (len(scenario.flows), len(FLOW_COLUMNS))
        first_flow = 3 + len(LINK_COLUMNS)
        if len(values) != first_flow + shape[0] * shape[1]:
            raise EngineError(
                f"the worker sent {len(values)} numbers instead of {first_flow} and {shape[1]} for each of {shape[0]} "
                f"flows: {self._extension} is of another version, install bbrgym again"
            )
        time_s, is_over, is_complete = values[:3].tolist()
        if is_over:
            self._peer.send(_STOP)  # so that the worker is ready for the next episode by the time of the reset
        return Rows(
            time_s=time_s,
            flows=values[first_flow:].reshape(shape),
            link=values[3:first_flow],
            is_over=bool(is_over),
            is_complete=bool(is_complete),
        )

    def _steer(self, flow: int, cwnd_gain: float, pacing_gain: float) -> None:
        assert self._scenario is not None
        position = 2 * self._scenario.agent_flows.index(flow)
        self._gains[position : position + 2] = cwnd_gain, pacing_gain

    def _release(self) -> None:
        peer, self._peer = self._peer, None
        self._unsent_request = None
        if peer is not None:
            peer.close()

    def _start_worker(self) -> Peer:
        peer = Peer()
        # -P: nothing is imported from the folder of the script, nor from the working directory.
        peer.start(
            [sys.executable, "-P", str(WORKER), peer.endpoint, str(os.getpid()), self._extension, self._transport],
            is_guarded=False,  # it watches its parent itself, and then removes the socket
        )
        return peer

    def _send_request(self, peer: Peer, request: bytes, limit_s: float) -> None:
        hello = peer.receive(limit_s, lambda: "starting an episode")
        with reading("the worker", "SimInitMsg", hello):
            pb.SimInitMsg.FromString(hello)
        peer.send(request)
        self._unsent_request = None

    def _doing(self) -> str:
        return "beginning the episode" if self._rows is None else f"simulating from {self._rows.time_s:g} s on"


def _plain_number(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a scenario must have plain values, got {value!r}")


def _extension_file() -> str:
    Ns3Engine.describe().check_is_installed()
    spec = importlib.util.find_spec("bbrgym._ns3")
    assert spec is not None
    assert spec.origin is not None
    return spec.origin
