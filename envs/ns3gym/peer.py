"""Our end of the protocol's socket pair, and the process at the other end: every wait ends when that process does."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import signal
import subprocess
import tempfile
import time
import weakref
from collections.abc import Callable, Sequence

import zmq

from bbrgym.envs.engine import EngineError

_TAIL_LINES = 20
_TAIL_BYTES = 16_384


class ChildProcess:
    """A process in a session of its own, killed with its whole group when this object goes or Python ends.

    Its standard input stays open while we live, its outputs are read as one, of which the last lines are kept.

    Args:
        command: program and arguments.

    Raises:
        EngineError: the program cannot be started.
    """

    def __init__(self, command: Sequence[str]) -> None:
        try:
            process = subprocess.Popen(
                command,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise EngineError(f"cannot start {command[0]!r}: {error.strerror}") from error
        assert process.stdout is not None
        self._owner = os.getpid()
        self._process = process
        self._printed = bytearray()
        self.pidfd = os.pidfd_open(process.pid)
        self.output_fd = process.stdout.fileno()
        os.set_blocking(self.output_fd, False)
        self._finalizer = weakref.finalize(self, _end_process, self._owner, process, self.pidfd)

    @property
    def pid(self) -> int:
        """Its process id, which is also that of its session and group."""
        return self._process.pid

    def read_output(self) -> bool:
        """Take in what it printed; False if it closed its output."""
        for _ in range(16):  # not until it is empty: a process may print faster than we read
            try:
                chunk = os.read(self.output_fd, 65_536)
            except BlockingIOError:
                break
            if not chunk:
                return False
            self._printed += chunk
            del self._printed[:-_TAIL_BYTES]
        return True

    def tail(self) -> str:
        """The last lines that it printed."""
        if self._finalizer.alive:
            self.read_output()
        return "\n".join(self._printed.decode(errors="replace").splitlines()[-_TAIL_LINES:])

    def end(self, grace_s: float = 0.0) -> str:
        """End it; doing it again changes nothing.

        Args:
            grace_s: how long it may take to end by itself before it is killed.

        Returns:
            How it ended, in words.
        """
        if os.getpid() != self._owner:
            return "belongs to another process"  # we are a fork of it
        if self._finalizer.alive:
            deadline = time.monotonic() + grace_s
            poller = zmq.Poller()
            poller.register(self.pidfd, zmq.POLLIN)
            poller.register(self.output_fd, zmq.POLLIN)
            while (left := deadline - time.monotonic()) > 0:
                ready = dict(poller.poll(math.ceil(left * 1e3)))
                if self.output_fd in ready and not self.read_output():
                    poller.unregister(self.output_fd)
                if self.pidfd in ready:
                    break
            self.read_output()
            self._finalizer()
        status = self._process.returncode
        if status < 0:
            return f"was killed by {signal.strsignal(-status) or 'signal'} ({-status})"
        return f"exited with status {status}"


class Peer:
    """A bound socket that a simulator's REQ socket connects to, and that simulator's process.

    It is a ROUTER, which a REQ peer cannot tell from a REP, but which is never stuck in somebody else's turn: when one
    simulator died, the next one connects to the same socket.

    Args:
        endpoint: where to bind, or none for an ipc socket in a private folder.

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
        """The simulator's process id, if we started it."""
        return None if self._process is None else self._process.pid

    def start(self, command: Sequence[str]) -> None:
        """Start the next simulator, after ending the last one.

        Raises:
            EngineError: the program cannot be started.
        """
        self.end_process()
        self._process = ChildProcess(command)
        self._poller.register(self._process.pidfd, zmq.POLLIN)
        self._poller.register(self._process.output_fd, zmq.POLLIN)

    def receive(self, limit_s: float, doing: Callable[[], str]) -> bytes:
        """Wait for the simulator's next message.

        Args:
            limit_s: for how long, in s.
            doing: says what it is doing meanwhile, for the error.

        Raises:
            EngineError: it died, or it said nothing for so long.
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
        """Answer its last message. If it died, the next `receive` says so."""
        self._socket.send_multipart([self._identity, b"", message])

    def end_process(self, grace_s: float = 0.0) -> str:
        """End the simulator's process, if there is one; what it sent and still sends is ignored.

        Args:
            grace_s: how long it may take to end by itself before it is killed.

        Returns:
            How it ended, in words.
        """
        if self._identity:
            self._former_identities.add(self._identity)
            self._identity = b""
        process, self._process = self._process, None
        if process is None:
            return "is not running"
        for fd in (process.pidfd, process.output_fd):
            if fd in self._poller:
                self._poller.unregister(fd)
        return process.end(grace_s)

    def close(self) -> None:
        """End the process and free everything; doing it again changes nothing."""
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


def _report(what: str, process: ChildProcess | None) -> str:
    printed = "" if process is None else process.tail()
    return f"{what}; it last printed:\n{printed}" if printed else f"{what}; it printed nothing"


def _end_process(owner: int, process: subprocess.Popen[bytes], pidfd: int) -> None:
    if os.getpid() != owner:
        return
    with contextlib.suppress(ProcessLookupError):
        # Safe also if it is dead: its id is not given away before wait().
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()
    os.close(pidfd)


def _release(owner: int, resources: contextlib.ExitStack) -> None:
    if os.getpid() == owner:
        resources.close()
