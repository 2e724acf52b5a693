"""What a model of another library is, whatever file it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bbrgym.baselines.policy_file import Array, Network


@dataclass(frozen=True)
class ForeignModel:
    """A model that was read.

    Attributes:
        network: its actor.
        origin: the library and its version.
        training: algorithm, steps and seed, as far as the file has them.
        settings: groups of conf/ that the file defines: `observation`, `action`, `env`.
        shape: of an observation, if the file has it; observations are flattened in C's order.
        bounds: flat `low` and `high` of its observations, if the file has them; NaN where it leaves values out.
    """

    network: Network
    origin: str
    training: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    shape: tuple[int, ...] | None = None
    bounds: Mapping[str, Array] = field(default_factory=dict)
