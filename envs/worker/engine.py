"""Engines whose simulator is in a worker process of its own, driven over the ns3-gym protocol."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from bbrgym.checks import check_number
from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.engine import (
    Engine,
    EngineDescription,
    EngineError,
    EngineUnavailableError,
    Rows,
    with_compiled_files,
)
from bbrgym.envs.scenario import Scenario
from bbrgym.waiting import announcing

with contextlib.suppress(ModuleNotFoundError):  # described without them, and refused when an engine is made
    from bbrgym.envs.ns3gym import ns3gym_pb2 as pb
    from bbrgym.envs.ns3gym.doubles import pack_doubles, unpack_doubles
    from bbrgym.envs.ns3gym.peer import reading
    from bbrgym.envs.worker.process import WorkerProcess

    _STOP = pb.EnvActMsg(stopSimReq=True).SerializeToString()


class WorkerEngine(Engine):
    """An engine with a worker process that serves one episode after the other.

    The worker starts with the first reset, and again with the first reset after an error. A reset also replaces a
    worker that has died or hangs since the last episode, with the same results. A worker ends with `close`, with this
    object, and with this process, however that ends. A fork of this process cannot use it.

    Args:
        description: of this engine. Its first extension has the class `Simulation` that the worker serves.
        arguments: strings that `Simulation` is made with.
        timeout_s: how long an answer may take, in s, in addition to `limit_per_simulated_s`. A worker that takes longer
            is killed.
        start_limit_s: how long a worker may take to start, in s, before it is killed. Many at once on a busy machine
            take seconds.

    Raises:
        EngineUnavailableError: bbrgym was built without the extension, or a package of the extra `ns3gym` is missing.
        ValueError: an argument is bad.
    """

    limit_per_simulated_s: ClassVar[float]
    """Limit of a step, in s for every simulated second."""

    def __init__(
        self, description: EngineDescription, arguments: Sequence[str], timeout_s: float, start_limit_s: float
    ) -> None:
        self.description = description
        check_number("timeout_s", timeout_s, above=0)
        check_number("start_limit_s", start_limit_s, above=0)
        self._timeout_s = timeout_s
        self._start_limit_s = start_limit_s
        description.check_is_installed()
        try:
            importlib.import_module("bbrgym.envs.ns3gym")
        except ModuleNotFoundError as error:
            advice = "; ".join(filter(None, (str(error), description.remedy)))
            raise EngineUnavailableError(f"engine {description.title}: {advice}") from error
        self._extension = _file_of(description.extensions[0])
        self._arguments = (description.extensions[0], self._extension, *arguments)
        self._worker: WorkerProcess | None = None
        self._reset_request = b""
        self._is_new = False
        """Whether the worker has not served an episode yet."""
        self._asked_at = self._limit_s = 0.0
        """When the pending request was sent, by time.monotonic, and how long its answer may take."""
        self._gains: list[float] = []
        self._timing: dict[str, float] = {}

    @property
    def timing(self) -> Mapping[str, float]:
        """See `Engine.timing`."""
        return self._timing

    @property
    def pid(self) -> int | None:
        """Process id of the worker; None if there is none."""
        return None if self._worker is None else self._worker.pid

    def _request_reset(self, scenario: Scenario, seed: int, policies: Mapping[int, bytes]) -> None:
        self._reset_request = pb.SimInitAck(
            done=True,
            scenario=json.dumps(with_compiled_files(scenario), default=_plain_number),
            seed=seed,
            policies=policies,
        ).SerializeToString()
        self._gains = [math.nan] * (2 * len(scenario.agent_flows))
        if self._worker is None or self._worker.is_dead():
            self._start_worker()
            return
        if self._rows is not None and not self._rows.is_over:
            self._send(_STOP)
        self._ask(self._reset_request, self._timeout_s)

    def _request_step(self, duration_ns: int) -> None:
        assert self._scenario is not None
        step_ns = min(duration_ns, max(1, round(self._scenario.duration_s * 1e3 * 1e6)))
        self._ask(
            pb.EnvActMsg(actData=pack_doubles(self._gains), step_ns=step_ns).SerializeToString(),
            self._timeout_s + self.limit_per_simulated_s * step_ns / 1e9,
        )

    def _finish_request(self, scenario: Scenario) -> Rows:
        if self._pending == "step":
            assert self._rows is not None
            time_s = self._rows.time_s
            message = self._receive(self._limit_s, lambda: f"simulating from {time_s:g} s on", self._asked_at)
        else:
            try:
                message = self._receive_first()
            except EngineError:
                if self._is_new:
                    raise
                self._start_worker()  # the old one died or stopped since the last episode
                message = self._receive_first()
        rows = self._read(message, scenario)
        if rows.is_over:
            self._send(_STOP)  # so that the worker is ready for the next episode by the time of the reset
        return rows

    def _set_gains(self, flow: int, cwnd_gain: float, pacing_gain: float) -> None:
        assert self._scenario is not None
        position = 2 * self._scenario.agent_flows.index(flow)
        self._gains[position : position + 2] = cwnd_gain, pacing_gain

    def _release(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()

    def _check_process(self) -> None:
        if self._worker is not None:
            self._worker.check_process()

    def _start_worker(self) -> None:
        """Start a worker in place of the last one, and ask it for the episode, which it begins when it is up."""
        self._release()
        self._worker = WorkerProcess(self._arguments)
        self._is_new = True
        self._ask(self._reset_request, self._timeout_s)

    def _ask(self, request: bytes, limit_s: float) -> None:
        self._send(request)
        self._asked_at, self._limit_s = time.monotonic(), limit_s

    def _send(self, message: bytes) -> None:
        assert self._worker is not None
        self._worker.send(message)

    def _receive(self, limit_s: float, doing: Callable[[], str], since: float, limit: str = " (timeout_s)") -> bytes:
        assert self._worker is not None
        return self._worker.receive(limit_s, doing, since, limit)

    def _receive_first(self) -> bytes:
        """Return the first answer of an episode, after the message that the worker is ready for it."""
        if self._is_new:
            limit_s = self._start_limit_s
            doing = f"loading {self.description.title}"
            with announcing(f"{self.description.title} to start"):
                hello = self._receive(limit_s, lambda: doing, self._asked_at, " (start_limit_s)")
        else:
            limit_s = self._timeout_s
            hello = self._receive(limit_s, lambda: "ending the last episode", self._asked_at)
        with reading("the worker", "SimInitMsg", hello):
            error = pb.SimInitMsg.FromString(hello).error
        if error:
            reasons = (f"engine {self.description.title} cannot run here", error, self.description.remedy)
            raise EngineUnavailableError(": ".join(filter(None, reasons)))
        # It may have been ready long ago, if others were waited for.
        since = min(time.monotonic(), self._asked_at + limit_s)
        message = self._receive(self._limit_s, lambda: "beginning the episode", since)
        self._is_new = False
        return message

    def _read(self, message: bytes, scenario: Scenario) -> Rows:
        with reading("the worker", "EnvStateMsg", message):
            state = pb.EnvStateMsg.FromString(message)
            values = np.array(unpack_doubles(state.obsData), dtype=np.float64)
        self._timing = dict(state.timing)
        if state.error:
            what = "stopped" if self._pending == "step" else "refuses the scenario"
            raise EngineError(f"{self.description.title} {what}: {state.error}")
        shape = (len(scenario.flows), len(FLOW_COLUMNS))
        first_flow = 3 + len(LINK_COLUMNS)
        if len(values) != first_flow + shape[0] * shape[1]:
            raise EngineError(
                f"the worker sent {len(values)} numbers instead of {first_flow} and {shape[1]} for each of {shape[0]} "
                f"flows: {self._extension} is of another version, install bbrgym again"
            )
        time_s, is_over, is_complete = values[:3].tolist()
        return Rows(
            time_s=time_s,
            flows=values[first_flow:].reshape(shape),
            link=values[3:first_flow],
            is_over=bool(is_over),
            is_complete=bool(is_complete),
        )


def _plain_number(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a scenario must have plain values, got {value!r}")


def _file_of(extension: str) -> str:
    spec = importlib.util.find_spec(extension)
    assert spec is not None
    assert spec.origin is not None
    return spec.origin
