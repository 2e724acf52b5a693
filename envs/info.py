"""Infos of the environments: flat dicts of NumPy numbers or arrays, which every library can read."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from bbrgym._native import took_part
from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.scenario import Scenario

Info = dict[str, Any]

MEASURED: Final[tuple[str, ...]] = (*FLOW_COLUMNS, *(f"link_{column}" for column in LINK_COLUMNS), "time_s")
"""The keys of an info that are measured: the row of the agent's flow, the row of the link, and the time."""

INFO_KEYS: Final[tuple[str, ...]] = (*MEASURED, "flow_index", "seed", "scenario_hash")
"""All keys of an info."""


class Record(NamedTuple):
    """A step of N engines with K agent flows each, M = N x K, from which infos are made.

    An info always has the keys `INFO_KEYS`: the row of the agent's flow (`rtt_mean_ms`), the row of the link
    (`link_queue_mean_ms`), `time_s`, `flow_index` (in the scenario), `seed` (the engine's) and `scenario_hash`
    (`Scenario.digest`). Values are NumPy numbers, float64 or int64. Where a row has no value the info has 0, because
    libraries store infos in arrays and compare them, and NaN is not equal to itself.

    Attributes:
        flows: rows of the agent flows, shape (M, `FLOW_COLUMNS`).
        link: rows of the links, shape (N, `LINK_COLUMNS`).
        time_s: shape (N,).
        flow_indices: shape (M,).
        scenarios: one `Scenario` per engine.
        seeds: shape (N,).
    """

    flows: npt.NDArray[np.float64]
    link: npt.NDArray[np.float64]
    time_s: npt.NDArray[np.float64]
    flow_indices: npt.NDArray[np.int64]
    scenarios: tuple[Scenario, ...]
    seeds: npt.NDArray[np.int64]

    @property
    def took_part(self) -> npt.NDArray[np.bool_]:
        """Whether each flow took part in the step, shape (M,)."""
        return took_part(self.flows)

    def infos(self) -> list[Info]:
        """Return one info per agent flow."""
        times = len(self.flows) // len(self.link)
        infos = []
        for index, values in enumerate(self._measured(times)):
            info = _EMPTY.copy()  # filling a copy is faster than making a dict
            info.update(zip(MEASURED, values, strict=True))
            engine = index // times
            info["flow_index"] = self.flow_indices[index]
            info["seed"] = self.seeds[engine]
            info["scenario_hash"] = np.int64(self.scenarios[engine].digest)
            infos.append(info)
        return infos

    def batch(self, engines: npt.NDArray[np.bool_] | None = None) -> Info:
        """Return the infos of all engines, or of some, in the form of Gymnasium's vector environments, for K = 1.

        The form is `{key: array, "_key": mask}`; the mask says which environments have the key. The others have 0.
        """
        hashes = np.array([scenario.digest for scenario in self.scenarios])
        values = [*np.ascontiguousarray(self._measured(1).T), self.flow_indices, self.seeds, hashes]
        mask = np.ones(len(self.link), dtype=np.bool_)
        if engines is not None:
            mask, values = engines, [np.where(engines, column, column.dtype.type(0)) for column in values]
        return dict(zip(INFO_KEYS, values, strict=True)) | dict.fromkeys(_MASKS, mask)

    def _measured(self, times: int) -> npt.NDArray[np.float64]:
        """Return the values of `MEASURED`, shape (M, keys)."""
        link, time_s = self.link, self.time_s[:, np.newaxis]
        if times > 1:
            link, time_s = link.repeat(times, axis=0), time_s.repeat(times, axis=0)
        measured = np.concatenate((self.flows, link, time_s), axis=1)
        measured[np.isnan(measured)] = 0.0
        return measured


_EMPTY: Final[Info] = dict.fromkeys(INFO_KEYS)
_MASKS: Final = tuple(f"_{key}" for key in INFO_KEYS)
