"""
The registry of congestion controllers, and the features that agents see (C++).
"""

from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy
from numpy.typing import NDArray

def controllers() -> dict[str, str]:
    """Name and one line about every registered controller."""

def defaults(name: str) -> dict[str, float]:
    """
    The parameters of a controller with their defaults. Raises ValueError for an unknown name.
    """

def check(name: str, parameters: Mapping[str, float]) -> None:
    """
    Raises ValueError, saying why, unless the controller takes these parameters.
    """

def policy_features() -> list[tuple[str, list[str], float, float, float, str]]:
    """
    Name, columns, lowest, highest and neutral value, and meaning of every feature that an agent can see.
    """

class PolicyTable:
    """Chosen features of flows, from a table of their rows."""

    def __init__(self, features: Sequence[str], columns: Sequence[str]) -> None:
        """
        The features, and the table's columns, of which `took_part` says whose features are neutral. Raises ValueError.
        """

    def evaluate(
        self, table: Annotated[NDArray[numpy.float64], dict(shape=(None, None), device="cpu", writable=False)]
    ) -> Annotated[NDArray[numpy.float32], dict(shape=(None, None))]:
        """From shape (columns, flows) to (flows, features). Raises ValueError."""
