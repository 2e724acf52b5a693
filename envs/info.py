"""What environments tell beside observations and rewards, made when somebody asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS

Info = dict[str, Any]


class Record(NamedTuple):
    """A step of N engines with K agent flows each, M = N x K, from which its infos are made.

    An info has `flow` and `link` (the raw rows, {column: value}, without the columns that have no value), `flow_index`
    (in the scenario), `time_s`, `scenario` (the `Scenario` that was drawn) and `seed` (the engine's).

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
        """One a flow."""
        time_s, scenarios, seeds = self.time_s.tolist(), self.scenarios.tolist(), self.seeds.tolist()
        per_link = len(self.flow_indices) // len(self.link)
        return [
            {
                "flow": LazyDict(partial(_row, FLOW_COLUMNS, self.flows[:, row])),
                "link": LazyDict(partial(_row, LINK_COLUMNS, self.link[row // per_link])),
                "flow_index": flow_index,
                "time_s": time_s[row // per_link],
                "scenario": scenarios[row // per_link],
                "seed": seeds[row // per_link],
            }
            for row, flow_index in enumerate(self.flow_indices.tolist())
        ]

    def batch(self, engines: npt.NDArray[np.bool_] | None = None) -> Info:
        """The infos of all engines, with one agent flow each, or of some, as Gymnasium's vector environments have them.

        `{key: array, "_key": mask}`, where the mask says which environments have the key.
        """
        links = len(self.link)
        mask = np.ones(links, dtype=np.bool_) if engines is None else engines

        def only(values: npt.NDArray[Any], nothing: Any) -> npt.NDArray[Any]:
            chosen = values.copy()
            if engines is not None:
                chosen[~engines] = nothing
            return chosen

        batch: Info = {
            "flow": LazyDict(partial(_columns, FLOW_COLUMNS, self.flows, mask)),
            "link": LazyDict(partial(_columns, LINK_COLUMNS, self.link.T, mask)),
            "flow_index": only(self.flow_indices, 0),
            "time_s": only(self.time_s, 0.0),
            "scenario": only(self.scenarios, None),
            "seed": only(self.seeds, 0),
        }
        return batch | {f"_{key}": mask for key in batch}


class LazyDict(dict[str, Any]):
    """A dict whose content is made when it is first looked at or changed; afterwards it is like any other.

    Args:
        make: makes the content.
    """

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[], dict[str, Any]]) -> None:
        self._make: Callable[[], dict[str, Any]] | None = make
        dict.__setitem__(self, "", None)  # json writes a dict that looks empty without asking it for anything

    def __eq__(self, other: object) -> bool:
        return dict(self) == (dict(other) if isinstance(other, LazyDict) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # as every dict

    def __reduce__(self) -> tuple[Any, ...]:
        return (dict, (dict(self),))


def _filling(name: str) -> Callable[..., Any]:
    method = getattr(dict, name)

    def fill_first(self: LazyDict, *args: Any, **kwargs: Any) -> Any:
        make, self._make = self._make, None
        if make is not None:
            dict.clear(self)
            dict.update(self, make())
        return method(self, *args, **kwargs)

    fill_first.__name__, fill_first.__doc__ = name, method.__doc__
    return fill_first


for _name in (
    *("__getitem__", "__contains__", "__iter__", "__reversed__", "__len__", "__repr__"),
    *("__setitem__", "__delitem__", "__or__", "__ror__", "__ior__"),
    *("get", "keys", "values", "items", "copy", "pop", "popitem", "setdefault", "update", "clear"),
):
    setattr(LazyDict, _name, _filling(_name))


def _row(names: Iterable[str], row: npt.NDArray[np.float64]) -> dict[str, float]:
    # NaN is equal to nothing, not to itself either: with it, no two infos of the same trajectory would be equal.
    return {name: value for name, value in zip(names, row.tolist(), strict=True) if value == value}


def _columns(names: Iterable[str], values: npt.NDArray[np.float64], mask: npt.NDArray[np.bool_]) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for name, column in zip(names, values, strict=True):
        has = ~np.isnan(column) & mask
        if has.any():
            columns[name], columns[f"_{name}"] = np.where(has, column, 0.0), has
    return columns
