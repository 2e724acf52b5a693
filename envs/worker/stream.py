"""Messages between an engine and its worker, over a socket pair: nothing of it has a name that could be left behind."""

from __future__ import annotations

import socket
from typing import Final

_LENGTH_BYTES: Final = 4


class MessageStream:
    """Sends and receives whole messages: each is its length in 4 bytes, little-endian, and then its bytes.

    Args:
        end: one end of a stream socket. If it does not block, `send` keeps what does not fit yet, and `receive` returns
            None until a message is complete.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._unsent = bytearray()
        self._received = bytearray()

    def send(self, message: bytes) -> bool:
        """Send a message after what was kept of earlier ones, and return whether nothing is kept.

        Raises:
            EOFError: the other end is closed, or the process that had it has died.
        """
        self._unsent += len(message).to_bytes(_LENGTH_BYTES, "little") + message
        return self.flush()

    def flush(self) -> bool:
        """Send what was kept; see `send`."""
        try:
            while self._unsent:
                del self._unsent[: self._socket.send(self._unsent)]
        except BlockingIOError:
            return False
        except (BrokenPipeError, ConnectionResetError) as error:
            raise EOFError("the other end of the stream is closed") from error
        return True

    def receive(self) -> bytes | None:
        """Return the next message; None if it is not complete and the socket does not block.

        Raises:
            EOFError: the other end is closed, or the process that had it has died.
        """
        while True:
            end = _LENGTH_BYTES + int.from_bytes(self._received[:_LENGTH_BYTES], "little")
            if len(self._received) >= end:
                message = bytes(self._received[_LENGTH_BYTES:])
                self._received.clear()
                return message
            try:
                # Nothing of the next message, so that whoever polls the socket is told of it. Of an incomplete length
                # the low bytes are here, which are no more than the whole.
                chunk = self._socket.recv(end - len(self._received))
            except BlockingIOError:
                return None
            except ConnectionResetError:  # it died with unread messages
                chunk = b""
            if not chunk:
                raise EOFError("the other end of the stream is closed")
            self._received += chunk
