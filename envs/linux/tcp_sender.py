"""The sending end of a flow over the kernel's TCP, with the interface of `bbrgym._linux.UdpSender`."""

from __future__ import annotations

import contextlib
import os
import select
import socket
from typing import Any, Final

from bbrgym import _linux
from bbrgym.envs.linux import bpf

_CHUNK: Final = bytes(1 << 16)
_NOTSENT_LOWAT: Final = 25
"""TCP_NOTSENT_LOWAT of linux/tcp.h: the socket takes no more than is about to leave."""
_MOST_PACKET_BYTES: Final = 9000
"""As of a scenario; loopback has larger ones."""
_POLL_S: Final = 0.005
"""How often it is checked what is acknowledged."""


class TcpSender:
    """A flow over the kernel's TCP. For one thread at a time.

    Args:
        made: a TCP socket that does not block and is not connected; it is closed with this object.
        address: of the receiver, for `socket.connect`.
        flow: one of `Scenario.to_dict()`, its policy as bytes.

    Attributes:
        phase: "connecting", "open", "ending" (waits for the last acknowledgement) or "over".
        error: why it is over, in words; empty if the receiver has all.
        opened_s: when it was connected, in s.

    Raises:
        OSError: this machine does not load the BPF program, or the address is bad.
        ValueError: the flow cannot be over the kernel's TCP.
    """

    def __init__(self, made: socket.socket, address: Any, flow: dict[str, Any]) -> None:
        self.phase, self.error, self.opened_s = "connecting", "", 0.0
        self._socket = made
        self._size: int | None = flow["size_bytes"]
        self._sent = self._acknowledged = 0
        self._heard_s = 0.0
        program = str(bpf.compile_program())
        try:
            self._steered = _linux.SteeredSocket(made.fileno(), flow, program)
        except RuntimeError as error:
            raise OSError(str(error)) from None
        made.setsockopt(socket.IPPROTO_TCP, _NOTSENT_LOWAT, 2 * len(_CHUNK))
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, _MOST_PACKET_BYTES)
        made.connect_ex(address)

    @property
    def time_s(self) -> float:
        """Time since this object was made, in s."""
        return self._steered.time_s

    @property
    def silence_s(self) -> float:
        """For how long nothing was acknowledged that was sent, in s."""
        return self.time_s - self._heard_s

    @property
    def is_all_delivered(self) -> bool:
        """Whether all of a finite flow is acknowledged."""
        return self._size is not None and self._acknowledged >= self._size

    @property
    def packet_bytes(self) -> int:
        """Payload of a full packet."""
        return self._steered.packet_bytes

    @property
    def report(self) -> dict[str, int]:
        """What the receiver has acknowledged."""
        return self._steered.totals

    def row(self) -> list[float]:
        """Return [time_s, *FLOW_COLUMNS] since the last call."""
        return self._steered.row()

    def finish(self) -> None:
        """Send no more data, and wait until the receiver has acknowledged what is sent."""
        if self.phase == "open":
            self.phase = "ending"

    def wait(self, duration_ns: int) -> None:
        """Send for this long, or until the phase changes or all is acknowledged; at least once."""
        end_s, phase = self.time_s + duration_ns / 1e9, self.phase
        poller = select.poll()
        while True:
            is_sending = phase == "connecting" or (phase == "open" and self._sent != self._size)
            poller.register(self._socket, select.POLLOUT if is_sending else 0)
            poller.poll(max(0.0, min(_POLL_S, end_s - self.time_s)) * 1e3)
            try:
                self._work()
            except OSError as error:
                self.phase, self.error = "over", error.strerror or str(error)
            if self.phase != phase or self.is_all_delivered or self.time_s >= end_s:
                return

    def _work(self) -> None:
        if self.phase == "over":
            return
        if error := self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(error, os.strerror(error))
        if self.phase == "connecting":
            try:
                self._socket.getpeername()
            except OSError:
                return  # not yet
            self.phase, self.opened_s, self._heard_s = "open", self.time_s, self.time_s
            self._steered.open()
        if self.phase == "open":
            left = len(_CHUNK) if self._size is None else min(len(_CHUNK), self._size - self._sent)
            with contextlib.suppress(BlockingIOError):
                self._sent += self._socket.send(memoryview(_CHUNK)[:left]) if left else 0
        acknowledged = self._steered.totals["received_bytes"]
        if acknowledged > self._acknowledged or acknowledged == self._sent:
            self._acknowledged, self._heard_s = acknowledged, self.time_s
        if self.phase == "ending" and self._acknowledged >= self._sent:
            self.phase = "over"
