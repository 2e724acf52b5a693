"""ns-3 as an engine: a worker process for each, driven over the ns3-gym protocol."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import operator
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from google.protobuf.message import DecodeError

from bbrgym.baselines.registry import COMPARATORS, controllers
from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.engine import Engine, EngineError, Rows, check_steering, read_policies
from bbrgym.envs.ns3.doubles import pack_doubles, unpack_doubles
from bbrgym.envs.ns3gym import ns3gym_pb2 as pb
from bbrgym.envs.ns3gym.peer import Peer
from bbrgym.envs.scenario import Scenario

TRANSPORTS: Final[tuple[str, ...]] = ("tcp", "quic")
"""What flows can run over: ns-3's TCP, or the native engine's transport over ns-3's UDP."""

_START_LIMIT_S = 60.0
"""For the worker's first word: an interpreter that starts on a busy machine is slow, not stuck. A death shows."""

_LIMIT_S_PER_SIMULATED_S = 60.0
"""ns-3's sender walks its list of sent packets for every SACK, so that a fast link with a small buffer takes a dozen
seconds for a simulated one; on a busy machine a few times that."""

_STOP = pb.EnvActMsg(stopSimReq=True).SerializeToString()


class Ns3Engine(Engine):
    """Runs scenarios in ns-3, in a worker process that serves one episode after the other.

    The worker starts with the first reset, and again with the reset after an error. It ends with `close`, with this
    object and with this process, however that ends.

    Args:
        timeout_s: for how long an answer may take, in s, in addition to 60 s for every simulated second asked for: a
            lossy run on a fast link does cost that much. A worker that takes longer is killed.
        transport: one of `TRANSPORTS`. `tcp` is ns-3's own, with our rate samples; `quic` is the native engine's
            (packet numbers, ACK ranges, RFC 9002 losses) over ns-3's UDP, so that the engines differ in the network
            alone (docs/decisions/0007).

    Raises:
        EngineError: bbrgym was built without ns-3.
        ValueError: of a bad argument.
    """

    def __init__(self, timeout_s: float = 10.0, transport: str = "tcp") -> None:
        if transport not in TRANSPORTS:
            raise ValueError(f"no transport {transport!r}; known: {', '.join(TRANSPORTS)}")
        if not (isinstance(timeout_s, int | float) and 0 < timeout_s < math.inf):
            raise ValueError(f"timeout_s={timeout_s!r} is not possible: timeout_s must be a number above 0")
        self._transport = transport
        self._timeout_s = timeout_s
        self._extension = _extension_file()
        self._peer: Peer | None = None
        self._asked: Literal["reset", "step"] | None = None
        self._unsent_request: bytes | None = None
        self._limit_s = timeout_s
        self._scenario: Scenario | None = None
        self._gains: list[float] = []
        self._rows: Rows | None = None
        self._is_closed = False

    @property
    def pid(self) -> int | None:
        """Process id of the worker, if there is one."""
        return None if self._peer is None else self._peer.pid

    def begin_reset(self, scenario: Scenario, seed: int) -> None:
        """Ask for a new episode; one that is running is abandoned.

        Args:
            scenario: what to simulate.
            seed: in [0, 2^64); decides everything random.

        Raises:
            ValueError: an impossible seed, a flow of an algorithm that only ns-3's TCP has, over another transport, or
                a policy that cannot be read.
            FileNotFoundError: there is no policy where a flow's should be.
            RuntimeError: a request is outstanding, or the engine is closed.
            EngineError: the worker died since, or could not be started.
        """
        self._check_is_idle("begin_reset")
        if self._transport != "tcp":
            _check_has_no_comparators(scenario, self._transport)
        request = _request(scenario, seed)
        is_running = self._rows is not None and not self._rows.is_over
        self._scenario, self._rows = scenario, None
        self._gains = [math.nan] * (2 * len(scenario.agent_flows))
        with self._ending_worker_on_error():
            if self._peer is None:
                self._peer = self._start_worker()
                self._unsent_request = request  # it goes out once the worker is up; others start meanwhile
            else:
                if is_running:
                    self._peer.send(_STOP)
                self._send_request(self._peer, request, self._timeout_s)
        self._limit_s = self._timeout_s
        self._asked = "reset"

    def finish_reset(self) -> Rows:
        """Wait for it; the rows at time 0.

        Raises:
            RuntimeError: there is no reset to wait for.
            EngineError: ns-3 refused the scenario, or the worker died or did not answer.
        """
        self._check_was_asked("reset")
        with self._ending_worker_on_error() as peer:
            if self._unsent_request is not None:
                self._send_request(peer, self._unsent_request, max(_START_LIMIT_S, self._timeout_s))
            return self._receive_rows(peer)

    def steer(self, flow: int, cwnd_gain: float, pacing_gain: float) -> None:
        """Set the gains of an agent flow from the next step on; its controller clamps them.

        Args:
            flow: index of a flow whose algorithm is `agent`.
            cwnd_gain: congestion window in multiples of the estimated bandwidth-delay product.
            pacing_gain: pacing rate in multiples of the estimated bandwidth.

        Raises:
            ValueError: the flow is not an agent's, or a gain is not a number above 0.
            RuntimeError: there is no episode.
        """
        if self._scenario is None:
            raise RuntimeError("steer() before reset()")
        check_steering(self._scenario, flow, cwnd_gain, pacing_gain)
        position = 2 * self._scenario.agent_flows.index(flow)
        self._gains[position : position + 2] = float(cwnd_gain), float(pacing_gain)

    def begin_step(self, duration_ms: float) -> None:
        """Ask for more simulated time, less if the scenario ends before.

        Args:
            duration_ms: how much, in ms; rounded to whole ns.

        Raises:
            ValueError: an impossible duration.
            RuntimeError: there is no episode or it is over, a request is outstanding, or the engine is closed.
        """
        self._check_is_idle("begin_step")
        if self._rows is None or self._scenario is None or self._peer is None:
            raise RuntimeError("step before reset, or after an error: reset first")
        if self._rows.is_over:
            raise RuntimeError(f"the episode is over since {self._rows.time_s:g} s: reset first")
        if not 0 < duration_ms < math.inf:
            raise ValueError(f"duration_ms={duration_ms!r} is not possible: duration_ms must be a number above 0")
        step_ns = max(1, round(min(duration_ms, self._scenario.duration_s * 1e3) * 1e6))
        self._limit_s = self._timeout_s + _LIMIT_S_PER_SIMULATED_S * step_ns / 1e9
        action = pb.EnvActMsg(actData=pack_doubles(self._gains), step_ns=step_ns)
        with self._ending_worker_on_error() as peer:
            peer.send(action.SerializeToString())
        self._asked = "step"

    def finish_step(self) -> Rows:
        """Wait for it; the rows of the step.

        Raises:
            RuntimeError: there is no step to wait for.
            EngineError: the worker died or did not answer.
        """
        self._check_was_asked("step")
        with self._ending_worker_on_error() as peer:
            return self._receive_rows(peer)

    def rows(self) -> Rows:
        """The rows of the last reset or step again.

        Raises:
            RuntimeError: there is no episode.
        """
        if self._rows is None:
            raise RuntimeError("rows() before reset(), or after an error: reset first")
        return self._rows

    def close(self) -> None:
        """End the worker; doing it again changes nothing, and no other call is possible afterwards."""
        self._is_closed = True
        self._end_worker()

    def _start_worker(self) -> Peer:
        peer = Peer()
        script = str(Path(__file__).with_name("start_worker.py"))
        # -P: nothing is imported from the folder of the script, nor from the working directory.
        peer.start([sys.executable, "-P", script, peer.endpoint, str(os.getpid()), self._extension, self._transport])
        return peer

    def _send_request(self, peer: Peer, request: bytes, limit_s: float) -> None:
        hello = peer.receive(limit_s, lambda: "starting an episode")
        with _reading("SimInitMsg", hello):
            pb.SimInitMsg.FromString(hello)
        peer.send(request)
        self._unsent_request = None

    def _receive_rows(self, peer: Peer) -> Rows:
        message = peer.receive(self._limit_s, self._doing)
        with _reading("EnvStateMsg", message):
            state = pb.EnvStateMsg.FromString(message)
            values = np.array(unpack_doubles(state.obsData), dtype=np.float64)
        if state.error:
            raise EngineError(f"ns-3 refuses the scenario: {state.error}")
        assert self._scenario is not None  # set by begin_reset
        shape = (len(self._scenario.flows), len(FLOW_COLUMNS))
        first_flow = 3 + len(LINK_COLUMNS)
        if len(values) != first_flow + shape[0] * shape[1]:
            raise EngineError(
                f"the worker sent {len(values)} numbers instead of {first_flow} and {shape[1]} for each of {shape[0]} "
                f"flows: {self._extension} is of another version, install bbrgym again"
            )
        time_s, is_over, is_complete = values[:3].tolist()
        if is_over:
            peer.send(_STOP)  # so that the worker is ready for the next episode by the time of the reset
        self._asked = None
        self._rows = Rows(
            time_s=time_s,
            flows=values[first_flow:].reshape(shape),
            link=values[3:first_flow],
            is_over=bool(is_over),
            is_complete=bool(is_complete),
        )
        return self._rows

    def _doing(self) -> str:
        if self._rows is None:
            return "beginning the episode"
        return f"simulating from {self._rows.time_s:g} s on"

    @contextlib.contextmanager
    def _ending_worker_on_error(self) -> Iterator[Peer]:
        # Also on an interrupt from the keyboard: the answer that nobody waited for would be taken for the next one.
        try:
            yield self._peer  # type: ignore[misc]  # begin_reset makes it before it is used
        except BaseException:
            self._end_worker()
            raise

    def _end_worker(self) -> None:
        peer, self._peer = self._peer, None
        self._asked = self._unsent_request = self._rows = self._scenario = None
        if peer is not None:
            peer.close()

    def _check_is_idle(self, called: str) -> None:
        if self._is_closed:
            raise RuntimeError(f"{called}() on a closed engine")
        if self._asked is not None:
            raise RuntimeError(f"{called}() while a {self._asked} is outstanding: call finish_{self._asked}() first")

    def _check_was_asked(self, what: Literal["reset", "step"]) -> None:
        if self._asked == what:
            return
        outstanding = "nothing" if self._asked is None else f"a {self._asked}"
        raise RuntimeError(f"finish_{what}() while {outstanding} is outstanding: call begin_{what}() first")


def _check_has_no_comparators(scenario: Scenario, transport: str) -> None:
    for index, flow in enumerate(scenario.flows):
        if flow.algorithm in COMPARATORS:
            raise ValueError(
                f"flow {index} has algorithm {flow.algorithm!r}, a part of ns-3's TCP: it cannot run over transport "
                f"{transport!r}; choose transport 'tcp', or one of {', '.join(controllers())}"
            )


def _request(scenario: Scenario, seed: int) -> bytes:
    number = operator.index(seed)
    if not 0 <= number < 2**64:
        raise ValueError(f"seed={seed!r} is not possible: seed must be in [0, 2^64)")
    plain = json.dumps(scenario.to_dict(), default=_plain_number)
    policies = read_policies(scenario)
    return pb.SimInitAck(done=True, scenario=plain, seed=number, policies=policies).SerializeToString()


def _plain_number(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a scenario cannot hold {value!r}")


@contextlib.contextmanager
def _reading(kind: str, message: bytes) -> Iterator[None]:
    try:
        yield
    except DecodeError as error:
        raise EngineError(f"the worker answered {len(message)} bytes that are no {kind}") from error


def _extension_file() -> str:
    spec = importlib.util.find_spec("bbrgym._ns3")
    if spec is None or spec.origin is None:
        raise EngineError(
            "engine 'ns3' needs ns-3: pip install --no-deps ns3==3.44.post0, then install bbrgym again with "
            "--no-build-isolation"
        )
    return spec.origin
