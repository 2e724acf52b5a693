"""Infos of the environments: plain dicts with the raw rows of a step."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import compress
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS

Info = dict[str, Any]


class Record(NamedTuple):
    """A step of N engines with K agent flows each, M = N x K, from which infos are made.

    An info has `flow` and `link` (the raw rows, {column: value}, without the columns that have no value), `flow_index`
    (in the scenario), `time_s`, `scenario` (the `Scenario` of the episode) and `seed` (the engine's).

    Attributes:
        flows: rows of the agent flows, shape (`FLOW_COLUMNS`, M).
        link: rows of the links, shape (N, `LINK_COLUMNS`).
        time_s: shape (N,).
        flow_indices: shape (M,).
        scenarios: shape (N,), objects.
        seeds: shape (N,).
    """

    flows: npt.NDArray[np.float64]
    link: npt.NDArray[np.float64]
    time_s: npt.NDArray[np.float64]
    flow_indices: npt.NDArray[np.int64]
    scenarios: npt.NDArray[Any]
    seeds: npt.NDArray[np.int64]

    def infos(self) -> list[Info]:
        """Return one info per agent flow."""
        links, time_s = self.link.tolist(), self.time_s.tolist()
        scenarios, seeds = self.scenarios.tolist(), self.seeds.tolist()
        per_link = len(self.flow_indices) // len(links)
        return [
            {
                "flow": _row(_FLOW_NAMES, values),
                "link": _row(_LINK_NAMES, links[row // per_link]),
                "flow_index": flow_index,
                "time_s": time_s[row // per_link],
                "scenario": scenarios[row // per_link],
                "seed": seeds[row // per_link],
            }
            for row, (values, flow_index) in enumerate(
                zip(self.flows.T.tolist(), self.flow_indices.tolist(), strict=True)
            )
        ]

    def batch(self, engines: npt.NDArray[np.bool_] | None = None) -> Info:
        """Return the infos of all engines, or of some, in the form of Gymnasium's vector environments.

        The form is `{key: array, "_key": mask}`; the mask says which environments have the key. For K = 1.
        """
        mask = np.ones(len(self.link), dtype=np.bool_) if engines is None else engines

        def only(values: npt.NDArray[Any], nothing: Any) -> npt.NDArray[Any]:
            chosen = values.copy()
            if engines is not None:
                chosen[~engines] = nothing
            return chosen

        batch: Info = {
            "flow": _columns(_FLOW_NAMES, self.flows, mask),
            "link": _columns(_LINK_NAMES, self.link.T, mask),
            "flow_index": only(self.flow_indices, 0),
            "time_s": only(self.time_s, 0.0),
            "scenario": only(self.scenarios, None),
            "seed": only(self.seeds, 0),
        }
        return batch | {f"_{key}": mask for key in batch}


_FLOW_NAMES: Final = tuple(FLOW_COLUMNS)
_LINK_NAMES: Final = tuple(LINK_COLUMNS)


def _row(names: Iterable[str], row: list[float]) -> dict[str, float]:
    # Without NaN, which is not even equal to itself: with it, no two infos of the same trajectory would be equal.
    return {name: value for name, value in zip(names, row, strict=True) if value == value}


def _columns(names: tuple[str, ...], values: npt.NDArray[np.float64], mask: npt.NDArray[np.bool_]) -> dict[str, Any]:
    has = (values == values) & mask
    used = has.any(axis=1).tolist()
    filled = np.where(has, values, 0.0)
    masks = dict(compress(zip([f"_{name}" for name in names], has, strict=True), used))
    return dict(compress(zip(names, filled, strict=True), used)) | masks
