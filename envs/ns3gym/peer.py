"""A simulator's process, and the messages to and from it. Every wait ends when that process does."""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import zmq
from google.protobuf.message import DecodeError

from bbrgym.envs.engine import EngineError
from bbrgym.processes import ChildProcess

_REPORTED_LINES: Final = 40
"""ns-3 names an argument that it does not know before it lists those that it knows, dozens of lines."""


class Peer(ABC):
    """A simulator's process and our end of a socket to it, which a subclass has.

    Only the process that made it can use it: a fork has neither the simulator nor the turn to speak.
    """

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._process: ChildProcess | None = None
        self._poller = zmq.Poller()

    @property
    def pid(self) -> int | None:
        """The simulator's process id; None if it was not started here."""
        return None if self._process is None else self._process.pid

    def is_dead(self) -> bool:
        """Return whether a simulator that was started here has ended."""
        return self._process is not None and self._process.is_over()

    @property
    def is_ours(self) -> bool:
        """Whether this process made this peer, and is not a fork."""
        return os.getpid() == self._owner

    def check_process(self) -> None:
        """Check that it is ours.

        Raises:
            RuntimeError: this process is a fork of the one that made it.
        """
        if not self.is_ours:
            raise RuntimeError(
                f"the simulator belongs to process {self._owner}, and this is its fork {os.getpid()}: make the engine "
                "or environment in the process that uses it"
            )

    def start(self, command: Sequence[str], is_guarded: bool = True, pass_fds: Sequence[int] = ()) -> None:
        """Start a simulator, after ending the last one; see `ChildProcess`.

        Raises:
            EngineError: the program cannot be started.
        """
        self.end_process()
        try:
            self._process = ChildProcess(command, output=subprocess.PIPE, pass_fds=pass_fds, is_guarded=is_guarded)
        except OSError as error:
            raise EngineError(f"cannot start {command[0]!r}: {error.strerror}") from error
        for fd in self._process.fds:
            self._poller.register(fd, zmq.POLLIN)

    def receive(self, limit_s: float, doing: Callable[[], str], since: float | None = None, limit: str = "") -> bytes:
        """Return the simulator's next message.

        Args:
            limit_s: how long to wait, in s.
            doing: returns what the simulator is doing, for the error.
            since: when the wait began, on the clock of `time.monotonic`; None is now.
            limit: what sets the limit, for the error: ` (start_limit_s)`.

        Raises:
            EngineError: it died, or sent nothing for `limit_s`.
        """
        deadline = (time.monotonic() if since is None else since) + limit_s
        while True:
            left_s = deadline - time.monotonic()
            ready = dict(self._poller.poll(max(0, math.ceil(left_s * 1e3))))
            if self._is_ready(ready) and (message := self._take()) is not None:
                return message
            process = self._process
            if process is not None and process.output_fd in ready and not process.read_output():
                self._poller.unregister(process.output_fd)
            if process is not None and process.pidfd in ready:
                raise EngineError(_report(f"the simulator {self.end_process()} while {doing()}", process))
            if left_s <= 0:
                self.end_process()
                what = f"the simulator did not answer for {limit_s:g} s{limit} while {doing()}"
                raise EngineError(_report(what, process))

    @abstractmethod
    def send(self, message: bytes) -> None:
        """Send a message, without waiting. If the simulator died, the next `receive` raises the error."""

    def end_process(self, grace_s: float = 0.0) -> str:
        """End the simulator's process, if there is one; all its further messages are ignored.

        Args:
            grace_s: how long to wait for it to end by itself before it is killed, in s.

        Returns:
            How it ended, in words.
        """
        process, self._process = self._process, None
        if process is None:
            return "is not running"
        for fd in process.fds:
            if fd in self._poller:
                self._poller.unregister(fd)
        return process.end(grace_s)

    @abstractmethod
    def close(self) -> None:
        """End the process and free everything; calling it twice is fine."""

    @abstractmethod
    def _is_ready(self, ready: dict[object, int]) -> bool:
        """Return whether the socket is among what is ready."""

    @abstractmethod
    def _take(self) -> bytes | None:
        """Return a message from a socket that is ready, without waiting; None if there is none yet."""


class ZmqPeer(Peer):
    """A bound socket that a stock simulator's REQ socket connects to, and that simulator's process.

    It is a ROUTER, which a REQ peer cannot tell from a REP. Unlike a REP it never waits for the turn of a simulator
    that died: the next one connects to the same socket.

    Args:
        endpoint: where to bind.

    Raises:
        zmq.ZMQError: it cannot be bound.
    """

    def __init__(self, endpoint: str) -> None:
        super().__init__()
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.ROUTER)
        self._finalizer = weakref.finalize(self, _close_socket, self._owner, self._socket)
        try:
            self._socket.bind(endpoint)
        except zmq.ZMQError:
            self._finalizer()
            raise
        self.endpoint: str = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        self._identity = b""
        self._former_identities: set[bytes] = set()
        self._poller.register(self._socket, zmq.POLLIN)

    def send(self, message: bytes) -> None:
        """Answer its last message; see `Peer.send`."""
        self._socket.send_multipart([self._identity, b"", message])

    def end_process(self, grace_s: float = 0.0) -> str:
        """See `Peer.end_process`."""
        if self._identity:
            self._former_identities.add(self._identity)
            self._identity = b""
        return super().end_process(grace_s)

    def close(self) -> None:
        """See `Peer.close`."""
        if self._finalizer.alive:
            self.end_process()
            self._finalizer()

    def _is_ready(self, ready: dict[object, int]) -> bool:
        return self._socket in ready

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
    printed = "" if process is None else process.tail(_REPORTED_LINES)
    return f"{what}; it last printed:\n{printed}" if printed else f"{what}; it printed nothing"


def _close_socket(owner: int, opened: zmq.Socket[bytes]) -> None:
    if os.getpid() == owner:  # a fork does not have the thread that closes it
        opened.close(linger=500)
