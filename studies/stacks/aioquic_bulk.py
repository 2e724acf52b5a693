"""A server and a client for aioquic, whose package has none: the client sends as much as it can.

python studies/stacks/aioquic_bulk.py server ADDRESS PORT
python studies/stacks/aioquic_bulk.py client ADDRESS PORT SECONDS ALGORITHM [QLOG_FILE]
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import signal
import ssl
import sys
from pathlib import Path
from typing import Final

from aioquic.asyncio import connect, serve
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.logger import QuicLogger
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PROTOCOL: Final = "bulk"
BYTES: Final = 30_000_000
"""What the client has to send: more than any scenario of the study lets through."""


def main(arguments: list[str]) -> None:
    """Run the server or the client."""
    role, *rest = arguments
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(run_server(*rest) if role == "server" else run_client(*rest))


async def run_server(address: str, port: str) -> None:
    """Receive until SIGTERM."""
    configuration = QuicConfiguration(is_client=False, alpn_protocols=[PROTOCOL])
    configuration.private_key = key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    certificate = certificate.not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
    configuration.certificate = certificate.sign(key, hashes.SHA256())
    await serve(address, int(port), configuration=configuration, stream_handler=_discard)
    await _terminated().wait()


async def run_client(address: str, port: str, seconds: str, algorithm: str, log: str | None = None) -> None:
    """Send for some seconds or until SIGTERM, and write the log if there is a file for it."""
    logger = None if log is None else QuicLogger()
    configuration = QuicConfiguration(
        is_client=True,
        alpn_protocols=[PROTOCOL],
        verify_mode=ssl.CERT_NONE,
        congestion_control_algorithm=algorithm,
        quic_logger=logger,
    )
    terminated = _terminated()
    async with connect(address, int(port), configuration=configuration) as connection:
        _, writer = await connection.create_stream()
        writer.write(bytes(BYTES))
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(terminated.wait(), float(seconds))
        if log is not None and logger is not None:
            Path(log).write_text(json.dumps(logger.to_dict()), encoding="utf-8")  # before the long goodbye


def _discard(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    async def discard() -> None:
        while await reader.read(1 << 16):
            pass

    task = asyncio.ensure_future(discard())
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


_tasks: Final[set[asyncio.Future[None]]] = set()
"""The loop itself keeps no task alive."""


def _terminated() -> asyncio.Event:
    event = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, event.set)
    return event


if __name__ == "__main__":
    main(sys.argv[1:])
