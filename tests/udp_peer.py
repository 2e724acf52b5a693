"""The other end of a UDP flow, byte by byte (docs/wire.md): what a hostile or unusual peer would send."""

import socket
import struct
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from waiting import HANG_S

from bbrgym._linux import UdpReceiver, UdpSender

HELLO, RETRY, WELCOME, DATA, ACK, END, REPORT, BUSY = range(1, 9)
KEY: Final = (1, 2)
TOKEN_BYTES: Final = 16


def datagram(kind: int, body: bytes = b"", connection: int = 0, flags: int = 0) -> bytes:
    """Return a datagram of version 3."""
    return struct.pack("!BBH", 3 << 4 | kind, flags, connection) + body


def hello(when: int, token: bytes = bytes(TOKEN_BYTES)) -> bytes:
    return datagram(HELLO, struct.pack("!Q", when) + token)


def data_datagram(number: int, connection: int, size: int = 100) -> bytes:
    return datagram(DATA, struct.pack("!II", number & 0xFFFFFFFF, number & 0xFFFFFFFF) + bytes(size), connection)


def ack(*ranges: tuple[int, int], marked: int = 0, connection: int = 0) -> bytes:
    """Return an acknowledgement of ranges (low, high), newest first, and of so much marked payload."""
    body = struct.pack("!B3xQ", len(ranges), marked) + b"".join(struct.pack("!QQ", *pair) for pair in ranges)
    return datagram(ACK, body, connection)


def end(token: bytes, connection: int, packets: int = 0, flags: int = 0) -> bytes:
    return datagram(END, token + struct.pack("!QQ", packets, 100 * packets), connection, flags)


def receiver(silence_s: float = 60.0, host: str = "127.0.0.1") -> tuple[UdpReceiver, Any]:
    """Return a receiver at a free port of this machine, and its address."""
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    bound.bind((host, 0))
    bound.setblocking(False)
    address = bound.getsockname()
    return UdpReceiver(bound.detach(), KEY, round(silence_s * 1e9)), address


class Peer:
    """A socket that talks to a receiver in this thread.

    Args:
        receiver: works whenever something was sent to it.
        address: its address.
    """

    def __init__(self, receiver: UdpReceiver, address: Any) -> None:
        self._receiver = receiver
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.connect(address)
        self._socket.setblocking(False)
        self._barriers = 0
        self.token = b""
        self.connection = 0

    def exchange(self, *sent: bytes) -> list[bytes]:
        """Send datagrams and return all answers.

        Another hello, which always gets a retry, shows when the receiver is done with them.
        """
        self._barriers += 1
        barrier = 2**63 + self._barriers
        for one in (*sent, hello(barrier)):
            self._socket.send(one)
        answers: list[bytes] = []
        deadline = time.monotonic() + HANG_S
        while True:
            assert time.monotonic() < deadline, "no answer to a hello"
            self._receiver.wait(0)
            for answer in self._arrived():
                if answer[0] & 15 == RETRY and answer[4:12] == struct.pack("!Q", barrier):
                    return answers
                answers.append(answer)

    def connect(self) -> None:
        """Do the handshake."""
        (retry,) = self.exchange(hello(1))
        assert retry[0] & 15 == RETRY
        self.token = retry[12:]
        (welcome,) = self.exchange(hello(2, self.token))
        assert welcome[0] & 15 == WELCOME
        self.connection = int.from_bytes(welcome[2:4], "big")

    def mark(self) -> None:
        """Send with a CE mark (ECN) from now on."""
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 3)

    def close(self) -> None:
        self._socket.close()

    def _arrived(self) -> Iterable[bytes]:
        while True:
            try:
                yield self._socket.recv(65536)
            except BlockingIOError:
                return


class FakeReceiver:
    """A socket that answers a sender in this thread as it likes.

    Args:
        flow: of the sender, in plain types.

    Attributes:
        ecn: the ECN field of what was read last.
    """

    ecn = 0

    def __init__(self, flow: dict[str, Any]) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
        connected = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        connected.connect(self._socket.getsockname())
        connected.setblocking(False)
        self._peer = connected.getsockname()
        self.sender = UdpSender(connected.detach(), flow, 100, 1)

    def read(self) -> bytes:
        """Return the next datagram of the sender."""
        deadline = time.monotonic() + HANG_S
        while True:
            assert time.monotonic() < deadline, "the sender is silent"
            self.sender.wait(0)
            try:
                data, controls, _, _ = self._socket.recvmsg(65536, socket.CMSG_SPACE(4))
            except BlockingIOError:
                continue
            (self.ecn,) = (value[0] & 3 for _, kind, value in controls if kind == socket.IP_TOS)
            return data

    def answer(self, *sent: bytes) -> None:
        """Send datagrams, which the sender has read when this returns."""
        refused = self.sender.refused
        for one in sent:
            self._socket.sendto(one, self._peer)
        self._socket.sendto(b"", self._peer)  # is refused
        self._wait(lambda: self.sender.refused > refused)

    def connect(self, first: bytes | None = None) -> None:
        """Welcome the sender.

        Args:
            first: its hello, if that was read.
        """
        first = first or self.read()
        self._socket.sendto(datagram(WELCOME, first[4:12]), self._peer)
        self._wait(lambda: self.sender.phase == "open")

    def close(self) -> None:
        self._socket.close()

    def _wait(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + HANG_S
        while not condition():
            assert time.monotonic() < deadline, "the sender reads nothing"
            self.sender.wait(0)
