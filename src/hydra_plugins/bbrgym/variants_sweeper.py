"""`hydra/sweeper=variants`: named sets of overrides, each with every combination of the other sweeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper  # Hydra gives its own sweeper no public name
from hydra.core.override_parser.types import Override


class VariantsSweeper(BasicSweeper):
    """Change one thing at a time, unlike the product of lists.

    Every job has the override `name=<variant>`, which identifies its run.

    Args:
        variants: `{name: [overrides]}`.
        max_batch_size: how many jobs a launcher gets at once; None for all.
        params: `{key: sweep}`, as in Hydra's own sweeper (`{seed: "range(1,6)"}`); all combinations are run.

    Raises:
        ValueError: `variants` is empty.
    """

    def __init__(
        self,
        variants: Mapping[str, Sequence[str]] | None,
        max_batch_size: int | None = None,
        params: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(max_batch_size, params)
        if not variants:
            raise ValueError("hydra.sweeper.variants is empty: give {name: [overrides]}")
        self._variants = {str(name): [str(override) for override in given] for name, given in variants.items()}

    def split_arguments(  # type: ignore[override]  # static there, but only called on an instance
        self, overrides: list[Override], max_batch_size: int | None
    ) -> list[list[list[str]]]:
        """Return the jobs' overrides in batches: each variant with all combinations."""
        (combinations,) = BasicSweeper.split_arguments(overrides, None)
        jobs = [
            [*combination, f"name={name}", *changes]
            for name, changes in self._variants.items()
            for combination in combinations
        ]
        return [list(batch) for batch in self.split_overrides_to_chunks(jobs, max_batch_size)]
