"""A worker's process, as the engine sees it."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import zmq

from bbrgym.envs.ns3gym.peer import Peer
from bbrgym.envs.worker.stream import MessageStream

WORKER: Final = Path(__file__).with_name("start.py")
"""The script of a worker process."""


class WorkerProcess(Peer):
    """A worker process and the socket pair to it. It starts when this is made.

    Messages may be sent before the worker is ready for them: they wait in the socket.

    Args:
        arguments: of `worker.main`, after the socket and our process id.

    Raises:
        EngineError: Python cannot be started.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        super().__init__()
        ours, theirs = socket.socketpair()
        self._finalizer = weakref.finalize(self, ours.close)
        ours.setblocking(False)
        self._fd = ours.fileno()
        self._stream = MessageStream(ours)
        with theirs:
            # -P: nothing is imported from the folder of the script, nor from the working directory.
            command = [sys.executable, "-P", str(WORKER), str(theirs.fileno()), str(os.getpid()), *arguments]
            self.start(command, is_guarded=False, pass_fds=[theirs.fileno()])  # it watches its parent itself
        self._is_full = False
        self._poller.register(self._fd, zmq.POLLIN)

    def send(self, message: bytes) -> None:
        """See `Peer.send`."""
        with contextlib.suppress(EOFError):  # it is dead
            self._wait_for_room(not self._stream.send(message))

    def close(self) -> None:
        """See `Peer.close`."""
        self.end_process()
        self._finalizer()

    def _is_ready(self, ready: dict[object, int]) -> bool:
        return self._fd in ready

    def _take(self) -> bytes | None:
        try:
            self._wait_for_room(not self._stream.flush())
            return self._stream.receive()
        except EOFError:
            self._poller.unregister(self._fd)  # it is dead, or dying
            return None

    def _wait_for_room(self, is_full: bool) -> None:
        """Let `receive` also wait until more of an unsent message fits."""
        if is_full is not self._is_full:
            self._is_full = is_full
            self._poller.register(self._fd, zmq.POLLIN | zmq.POLLOUT if is_full else zmq.POLLIN)
