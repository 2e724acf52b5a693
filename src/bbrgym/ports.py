"""Ports of this machine on which commands serve a page."""

from __future__ import annotations

import errno
import socket
from typing import Final

from bbrgym.checks import check_integer

LAB: Final = 8000
"""The port of `bbrgym lab`, if none is given."""


def check_port(port: int) -> None:
    """Check that a server can listen at the port of 127.0.0.1 that `--port` gives; 0 is any free one.

    Raises:
        ValueError: it is no port, it is taken, or this user may not have it.
    """
    check_integer("--port", port, at_least=0, below=2**16)
    with socket.socket() as trial:
        # As servers do: connections that have ended may still have the port.
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", port))
            trial.listen()
        except OSError as error:
            reason = _REASONS.get(error.errno or 0, f"cannot be used ({error.strerror})")
            another = port + 1 if 1024 <= port < 2**16 - 1 else 8080
            raise ValueError(f"--port {port} {reason}: give another one, as --port {another}") from None


_REASONS: Final = {
    errno.EADDRINUSE: "is taken by another program",
    errno.EACCES: "is not for this user, whose ports begin at 1024",
}
