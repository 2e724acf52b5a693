"""`engine=ns3`: ns-3 in a worker process for each engine."""

from __future__ import annotations

from typing import Any, Final

from bbrgym.baselines.registry import NS3_COMPARATORS
from bbrgym.checks import check_name
from bbrgym.envs.engine import EngineDescription
from bbrgym.envs.worker.engine import WorkerEngine

TRANSPORTS: Final[tuple[str, ...]] = ("tcp", "quic")
"""What flows run over: ns-3's TCP, or the native engine's transport over ns-3's UDP."""

_INSTALL: Final = "pip install --no-deps ns3==3.44.post0"


class Ns3Engine(WorkerEngine):
    """Simulates in ns-3.

    Args:
        timeout_s: how long an answer may take, in s, in addition to 60 s for every simulated second asked for (a lossy
            run on a fast link is that slow).
        transport: one of `TRANSPORTS`. `tcp` is ns-3's own, with our rate samples; `quic` is the native engine's
            (packet numbers, ACK ranges, RFC 9002 losses) over ns-3's UDP, so that the two engines differ in the
            network alone (docs/decisions/0007-our-transport-over-ns-3s-udp.md).
        start_limit_s: see `WorkerEngine`.

    Raises:
        EngineUnavailableError: bbrgym was built without ns-3, or a package of the extra `ns3gym` is missing.
        ValueError: an argument is bad.
    """

    # ns-3's sender walks its list of sent packets for every SACK, so that a simulated second of a fast link with a
    # small buffer takes a dozen seconds, and a few times that on a busy machine.
    limit_per_simulated_s = 60.0

    @classmethod
    def describe(cls, **options: Any) -> EngineDescription:
        """Return the description for `transport`; other options do not change it."""
        transport = options.get("transport", "tcp")
        check_name("transport", transport, TRANSPORTS)
        return EngineDescription(
            title="ns-3",
            comparators=tuple(NS3_COMPARATORS) if transport == "tcp" else (),  # they are parts of ns-3's TCP
            options={"transport": transport},
            extensions=("bbrgym._ns3",),
            distributions=("ns3",),
            install=f"{_INSTALL}, then install bbrgym again with --no-build-isolation; or use engine=native",
            remedy=f"{_INSTALL}; or use engine=native",
        )

    def __init__(self, timeout_s: float = 10.0, transport: str = "tcp", start_limit_s: float = 10.0) -> None:
        super().__init__(self.describe(transport=transport), (transport,), timeout_s, start_limit_s)
