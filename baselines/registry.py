"""The congestion controllers by name: the C++ registry, and the comparators that an engine brings with it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from numbers import Real
from typing import Final

from bbrgym import _controllers
from bbrgym.checks import check_name

COMPARATORS: Final[dict[str, str]] = {
    "bbr-stock": "ns3::TcpBbr as ns-3 3.44 has it (ns3 engine only)",
    "cubic-stock": "ns3::TcpCubic (ns3 engine only)",
    "newreno-stock": "ns3::TcpNewReno (ns3 engine only)",
}
"""Algorithms of ns-3 itself, unchanged. They take no parameters here."""


def controllers() -> dict[str, str]:
    """Return the registered controllers, {name: one line about it}, in the order of the registry."""
    return _controllers.controllers()


def defaults(algorithm: str) -> dict[str, float]:
    """Return the parameters of an algorithm with their default values, {name: value}.

    Raises:
        ValueError: there is no such algorithm.
    """
    check_algorithm(algorithm)
    return {} if algorithm in COMPARATORS else _controllers.defaults(algorithm)


def check_algorithm(algorithm: str) -> None:
    """Raise ValueError, naming the known ones, unless `algorithm` is a controller or a comparator."""
    check_name("algorithm", algorithm, [*controllers(), *COMPARATORS])


def check_parameters(algorithm: str, parameters: Mapping[str, float]) -> None:
    """Raise ValueError unless the algorithm has all the parameters and their values are in range."""
    check_algorithm(algorithm)
    if not isinstance(parameters, Mapping):
        raise ValueError(f"parameters of algorithm {algorithm!r} must be a mapping, got {parameters!r}")
    if not parameters:
        return
    if algorithm in COMPARATORS:
        raise ValueError(f"{algorithm} takes no parameters, got {', '.join(parameters)}")
    for name, value in parameters.items():
        if not isinstance(value, Real) or abs(value) > sys.float_info.max:
            raise ValueError(f"parameter {name} of algorithm {algorithm!r} must be a finite number, got {value!r}")
    _controllers.check(algorithm, dict(parameters))
