"""The congestion controllers by name: the C++ registry, and the comparators that an engine brings with it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from pathlib import Path
from typing import Final

from bbrgym import _controllers
from bbrgym.checks import check_name, did_you_mean

NS3_COMPARATORS: Final[dict[str, str]] = {
    "bbr-stock": "ns3::TcpBbr as ns-3 3.44 has it (ns3 engine only)",
    "cubic-stock": "ns3::TcpCubic (ns3 engine only)",
    "newreno-stock": "ns3::TcpNewReno (ns3 engine only)",
}
"""Algorithms of ns-3 itself."""

LINUX_PREFIX: Final = "linux-"
"""What the names of Linux's own algorithms begin with."""

# Every tcp_congestion_ops in net/ipv4 of Linux 6.18.
_LINUX: Final = (
    "reno",
    "bbr",
    "bic",
    "cdg",
    "cubic",
    "dctcp",
    "highspeed",
    "htcp",
    "hybla",
    "illinois",
    "lp",
    "nv",
    "scalable",
    "vegas",
    "veno",
    "westwood",
    "yeah",
)


def linux_controls() -> tuple[str, ...]:
    """Return the congestion controls that this machine's kernel has loaded, by its own names; () if it is not Linux."""
    try:
        names = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text(encoding="ascii").split()
    except OSError:
        return ()
    return tuple(name for name in names if not name.startswith("bbrgym_"))  # of agents, while they run


LINUX_COMPARATORS: Final[dict[str, str]] = {
    f"{LINUX_PREFIX}{name}": f"the kernel's own TCP with {name} (linux engine only, where the kernel has tcp_{name})"
    for name in dict.fromkeys((*_LINUX, *linux_controls()))
}
"""Algorithms of Linux itself: those of its source, and what else this machine's kernel has."""

COUNTERPARTS: Final[dict[str, str]] = {
    "bbr-stock": "bbr",
    "cubic-stock": "cubic",
    "newreno-stock": "newreno",
    "linux-bbr": "bbr",
    "linux-cubic": "cubic",
    "linux-reno": "newreno",
    "linux-vegas": "vegas",
}
"""Comparators, and our algorithms of the same kind, which take their place in other engines."""

COMPARATORS: Final[dict[str, str]] = NS3_COMPARATORS | LINUX_COMPARATORS
"""Algorithms that engines bring with them, unchanged. They take no parameters here."""

FILE: Final = "file"
"""The algorithm of a flow that runs a controller in C (`baselines.controller_file`)."""

COMMAND: Final = "command"
"""The algorithm of a flow whose ends are two commands (`Flow.server` and `Flow.client`); in the linux engine only."""

PROGRAMS: Final = ("bbr-acd-ns3-published",)
"""Controllers that reproduce a paper's program where it is not the paper's algorithm; in no group of competitors."""

OURS: Final = ("agent", "policy", "bbr-backlog")
"""Controllers that no paper or standard describes: they are this project's own."""

DIFFERS: Final[dict[str, str]] = {
    "bbr-acd-ns3-published": "from the BBR that it extends only in recovery, after a loss",
    "bbr-acw": "from the BBR that it extends only after a loss",
    "f-bbr2": "from bbr2 only beside a flow that keeps the queue from emptying for ten seconds",
}
"""From what, and when, a variant differs, as its page in docs/algorithms says."""

_CONTROLLERS: Final = _controllers.controllers()
_DEFAULTS: Final[dict[str, dict[str, float]]] = {
    **{name: _controllers.defaults(name) for name in _CONTROLLERS},
    **{name: {} for name in (*COMPARATORS, FILE, COMMAND)},
}


def controllers() -> dict[str, str]:
    """Return the registered controllers, {name: one line about it}, in the order of the registry."""
    return dict(_CONTROLLERS)


def defaults(algorithm: str) -> dict[str, float]:
    """Return the parameters of an algorithm with their default values, {name: value}; those of `file` are not known.

    Raises:
        ValueError: there is no such algorithm.
    """
    check_algorithm(algorithm)
    return dict(_DEFAULTS[algorithm])


def check_algorithm(algorithm: str) -> None:
    """Raise ValueError, naming the known ones, unless it is a controller, a comparator, `file` or `command`."""
    check_name("algorithm", algorithm, _DEFAULTS)


def _is_infinite(value: Real) -> bool:
    try:
        return math.isinf(value)
    except OverflowError:  # an integer beyond all floats
        return True


def check_parameters(algorithm: str, parameters: Mapping[str, float]) -> None:
    """Raise ValueError unless the algorithm has all the parameters and their values are in range.

    Those of `file` must be numbers; the engine checks them against the file.
    """
    check_algorithm(algorithm)
    if not isinstance(parameters, Mapping):
        raise ValueError(f"parameters of algorithm {algorithm!r} must be a mapping, got {parameters!r}")
    if not parameters:
        return
    if algorithm in COMPARATORS or algorithm == COMMAND:
        raise ValueError(f"{algorithm} takes no parameters, got {', '.join(parameters)}")
    for name, value in parameters.items():
        if not isinstance(value, Real) or _is_infinite(value):
            raise ValueError(f"parameter {name} of algorithm {algorithm!r} must be a finite number, got {value!r}")
    if algorithm == FILE:
        return
    known = _DEFAULTS[algorithm]
    for name in parameters:
        if name not in known:
            hint = did_you_mean(name, known)
            raise ValueError(
                f"unknown parameter {name!r} of algorithm {algorithm!r}{hint}; known: {', '.join(known) or 'none'}"
            )
    _controllers.check(algorithm, dict(parameters))
