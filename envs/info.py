"""Infos of the environments: plain dicts and arrays with the raw rows of a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS

Info = dict[str, Any]


class Record(NamedTuple):
    """A step of N engines with K agent flows each, M = N x K, from which infos are made.

    An info has `flow` and `link` (the raw rows), `flow_index` (in the scenario), `time_s`, `scenario` (the `Scenario`
    of the episode) and `seed` (the engine's).

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
        """Return one info per agent flow; rows are {column: value}, without the columns that have no value."""
        return self._infos(
            [_row(_FLOW_NAMES, values) for values in self.flows.T.tolist()],
            [_row(_LINK_NAMES, values) for values in self.link.tolist()],
        )

    def compact_infos(self) -> list[Info]:
        """Return one info per agent flow; rows are NumPy records (`row["rtt_mean_ms"]`), NaN where there is no value.

        A dict per row would cost a vectorised environment up to a third of its speed.
        """
        return self._infos(list(_records(self.flows.T, _FLOW_RECORD)), list(_records(self.link, _LINK_RECORD)))

    def batch(self, engines: npt.NDArray[np.bool_] | None = None) -> Info:
        """Return the infos of all engines, or of some, in the form of Gymnasium's vector environments, for K = 1.

        The form is `{key: array, "_key": mask}`; the mask says which environments have the key. `flow` and `link` are
        structured arrays (`infos["flow"]["rtt_mean_ms"]` has shape (N,)), NaN where there is no value.
        """
        mask = np.ones(len(self.link), dtype=np.bool_) if engines is None else engines

        def only(values: npt.NDArray[Any], nothing: Any) -> npt.NDArray[Any]:
            chosen = values.copy()
            if engines is not None:
                chosen[~engines] = nothing
            return chosen

        batch: Info = {
            "flow": _records(only(self.flows.T, np.nan), _FLOW_RECORD),
            "link": _records(only(self.link, np.nan), _LINK_RECORD),
            "flow_index": only(self.flow_indices, 0),
            "time_s": only(self.time_s, 0.0),
            "scenario": only(self.scenarios, None),
            "seed": only(self.seeds, 0),
        }
        return batch | {f"_{key}": mask for key in batch}

    def _infos(self, flows: Sequence[Any], links: Sequence[Any]) -> list[Info]:
        time_s, scenarios, seeds = self.time_s.tolist(), self.scenarios.tolist(), self.seeds.tolist()
        per_link = len(flows) // len(links)
        return [
            {
                "flow": flows[index],
                "link": links[index // per_link],  # the same object for all flows of a link
                "flow_index": flow_index,
                "time_s": time_s[index // per_link],
                "scenario": scenarios[index // per_link],
                "seed": seeds[index // per_link],
            }
            for index, flow_index in enumerate(self.flow_indices.tolist())
        ]


_FLOW_NAMES: Final = tuple(FLOW_COLUMNS)
_LINK_NAMES: Final = tuple(LINK_COLUMNS)
_FLOW_RECORD: Final = np.dtype([(name, np.float64) for name in FLOW_COLUMNS])
_LINK_RECORD: Final = np.dtype([(name, np.float64) for name in LINK_COLUMNS])


def _row(names: tuple[str, ...], row: list[float]) -> dict[str, float]:
    # Without NaN, which is not even equal to itself: with it, no two infos of the same trajectory would be equal.
    return {name: value for name, value in zip(names, row, strict=True) if value == value}


def _records(rows: npt.NDArray[np.float64], record: np.dtype[np.void]) -> npt.NDArray[np.void]:
    """Return rows of shape (n, columns) as n records."""
    return np.ascontiguousarray(rows).view(record)[:, 0]
