"""The congestion controllers by name: the C++ registry, and the comparators that an engine brings itself."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Final

from bbrgym import _controllers

COMPARATORS: Final[dict[str, str]] = {
    "bbr-stock": "ns3::TcpBbr as ns-3 3.44 has it (ns3 engine only)",
    "cubic-stock": "ns3::TcpCubic (ns3 engine only)",
    "newreno-stock": "ns3::TcpNewReno (ns3 engine only)",
}
"""Algorithms of ns-3 itself, untouched. They have no parameters here."""


def controllers() -> dict[str, str]:
    """The registered controllers, {name: one line about it}, in the registry's order."""
    return _controllers.controllers()


def defaults(algorithm: str) -> dict[str, float]:
    """The parameters of a controller with their default values (the same as in conf/baseline/<name>.yaml).

    Raises:
        ValueError: there is no such algorithm.
    """
    check_algorithm(algorithm)
    return {} if algorithm in COMPARATORS else _controllers.defaults(algorithm)


def check_algorithm(algorithm: str) -> None:
    """Raise ValueError, naming the known ones, unless `algorithm` is a controller or a comparator."""
    known = [*controllers(), *COMPARATORS]
    if algorithm not in known:
        close = difflib.get_close_matches(str(algorithm), known, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise ValueError(f"no algorithm {algorithm!r}{hint}; known: {', '.join(known)}")


def check_parameters(algorithm: str, parameters: Mapping[str, float]) -> None:
    """Raise ValueError unless every parameter is one of the algorithm's and its value is possible."""
    known = defaults(algorithm)
    for name in parameters:
        if name not in known:
            raise ValueError(f"algorithm {algorithm!r} has no parameter {name!r}; known: {', '.join(known) or 'none'}")
    if parameters:
        _controllers.check(algorithm, dict(parameters))
