"""Our end of the protocol's socket pair and the process at the other end. Every wait ends when that process does."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import subprocess
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator, Sequence

import zmq
from google.protobuf.message import DecodeError

from bbrgym.envs.engine import EngineError
from bbrgym.processes import ChildProcess


class Peer:
    """A bound socket that a simulator's REQ socket connects to, and that simulator's process.

    It is a ROUTER, which a REQ peer cannot tell from a REP. Unlike a REP it never waits for the turn of a simulator
    that died: the next one connects to the same socket.

    Args:
        endpoint: where to bind; None is an ipc socket in a private folder.

    Raises:
        OSError: it cannot be bound.
    """

    def __init__(self, endpoint: str | None = None) -> None:
        resources = contextlib.ExitStack()
        self._finalizer = weakref.finalize(self, _release, os.getpid(), resources)
        if endpoint is None:
            # An ipc path has at most 107 bytes.
            folder = tempfile.mkdtemp(prefix="bbrgym-", dir="/tmp" if len(tempfile.gettempdir()) > 70 else None)
            resources.callback(shutil.rmtree, folder, ignore_errors=True)
            endpoint = f"ipc://{folder}/socket"
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER)
        resources.callback(self._socket.close, linger=500)
        try:
            self._socket.bind(endpoint)
        except zmq.ZMQError:
            self._finalizer()
            raise
        self.endpoint: str = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self._process: ChildProcess | None = None
        self._identity = b""
        self._former_identities: set[bytes] = set()
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)

    @property
    def pid(self) -> int | None:
        """The simulator's process id; None if it was not started here."""
        return None if self._process is None else self._process.pid

    def start(self, command: Sequence[str], is_guarded: bool = True) -> None:
        """Start a simulator, after ending the last one.

        Raises:
            EngineError: the program cannot be started.
        """
        self.end_process()
        try:
            self._process = ChildProcess(command, output=subprocess.PIPE, is_guarded=is_guarded)
        except OSError as error:
            raise EngineError(f"cannot start {command[0]!r}: {error.strerror}") from error
        for fd in self._process.fds:
            self._poller.register(fd, zmq.POLLIN)

    def receive(self, limit_s: float, doing: Callable[[], str]) -> bytes:
        """Return the simulator's next message.

        Args:
            limit_s: how long to wait, in s.
            doing: returns what the simulator is doing, for the error.

        Raises:
            EngineError: it died, or sent nothing for `limit_s`.
        """
        deadline = time.monotonic() + limit_s
        while True:
            left_s = deadline - time.monotonic()
            ready = dict(self._poller.poll(max(0, math.ceil(left_s * 1e3))))
            if self._socket in ready and (message := self._take()) is not None:
                return message
            process = self._process
            if process is not None and process.output_fd in ready and not process.read_output():
                self._poller.unregister(process.output_fd)
            if process is not None and process.pidfd in ready:
                raise EngineError(_report(f"the simulator {self.end_process()} while {doing()}", process))
            if left_s <= 0:
                self.end_process()
                raise EngineError(_report(f"the simulator did not answer for {limit_s:g} s while {doing()}", process))

    def send(self, message: bytes) -> None:
        """Answer its last message. If it died, the next `receive` raises the error."""
        self._socket.send_multipart([self._identity, b"", message])

    def end_process(self, grace_s: float = 0.0) -> str:
        """End the simulator's process, if there is one; all its further messages are ignored.

        Args:
            grace_s: how long to wait for it to end by itself before it is killed, in s.

        Returns:
            How it ended, in words.
        """
        if self._identity:
            self._former_identities.add(self._identity)
            self._identity = b""
        process, self._process = self._process, None
        if process is None:
            return "is not running"
        for fd in process.fds:
            if fd in self._poller:
                self._poller.unregister(fd)
        return process.end(grace_s)

    def close(self) -> None:
        """End the process and free everything; calling it twice is fine."""
        if self._finalizer.alive:
            self.end_process()
            self._finalizer()

    def _take(self) -> bytes | None:
        frames = self._socket.recv_multipart(zmq.NOBLOCK)
        if frames[0] in self._former_identities:
            return None
        if len(frames) != 3 or frames[1]:
            raise EngineError(f"what connected to {self.endpoint} does not speak the ns3-gym protocol")
        if self._identity and frames[0] != self._identity:
            return None  # a second simulator on the same port is not ours
        self._identity = frames[0]
        return frames[2]


@contextlib.contextmanager
def reading(sender: str, kind: str, message: bytes) -> Iterator[None]:
    """Raise EngineError if decoding the message fails inside."""
    try:
        yield
    except (DecodeError, ValueError) as error:
        raise EngineError(f"{sender} sent {len(message)} bytes that are no valid {kind}: {error}") from error


def _report(what: str, process: ChildProcess | None) -> str:
    printed = "" if process is None else process.tail()
    return f"{what}; it last printed:\n{printed}" if printed else f"{what}; it printed nothing"


def _release(owner: int, resources: contextlib.ExitStack) -> None:
    if os.getpid() == owner:
        resources.close()
