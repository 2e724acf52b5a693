"""What constant actions reach in scenarios: a teacher for a student, and a yardstick for a search.

A simulator can run one scenario with one seed as often as it likes. So for each scenario the outcome of every action of
a grid is known, if all agent flows keep this action for the whole episode: a table of (scenarios, actions). Its largest
value in a row is what the best constant reaches, which nobody knows beforehand.

The rows are kept in the user's cache, by a hash of the scenario, its seed, the grid, the fitness and the code.
"""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
import math
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from bbrgym.agents import fitness
from bbrgym.agents.config import FitnessConfig
from bbrgym.agents.fitness import Array, each_outcome
from bbrgym.baselines.policy_file import Network, StoredPolicy
from bbrgym.envs import sharing, sharing_meter
from bbrgym.envs.code import code_hash
from bbrgym.envs.engine import identity_of
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.envs.observation import Observation
from bbrgym.envs.scenario import Scenario
from bbrgym.files import DAMAGES, user_cache, write_json

FOLDER: Final = "constants"
"""In the user's cache."""

PACKETS: Final = (0.06, 0.82)
"""The default `action_range` with `cwnd_scale: packets`: half a packet to 350 packets above one BDP."""

_BLIND: Final = Observation(features=("is_probe_bw",))
"""What a constant observes: the least that there is."""

IsOn = Callable[[int], bool]
"""Called with the number of rows that are known; returns whether there is time for more."""


class Constants:
    """A grid of constant actions.

    Args:
        spec: of the environment, with the engine "native".
        config: of the grid, the fitness, and where runs take place.
        windows: parts of an episode, see `bbrgym.agents.fitness.Runs`.

    Attributes:
        actions: of cwnd_gain, rising, shape (constants,).
        pacing: the action of pacing_gain, the same for all.
    """

    def __init__(self, spec: EpisodeSpec, config: FitnessConfig, windows: int = 1) -> None:
        default = PACKETS if spec.action.cwnd_scale == "packets" else (-1.0, 1.0)
        self.actions: Array = np.linspace(*(config.action_range or default), config.constants)
        # The action of pacing_gain does not depend on that of cwnd_gain.
        self.pacing = float(spec.action.action(spec.action.cwnd_gain[1], config.pacing_gain)[1])
        self._config = config
        self._windows = windows
        self._spec = dataclasses.replace(spec, observation=_BLIND)
        plain = self._spec.to_config()
        self._policies = [StoredPolicy(plain, _constant(action, self.pacing)).to_bytes() for action in self.actions]
        sources = "".join(map(inspect.getsource, (fitness, sharing, sharing_meter)))
        measured = config.warmup if windows == 1 else windows
        decides = [config.fitness, measured, plain["reward"], hashlib.sha256(sources.encode()).hexdigest()]
        self._decides = [*decides, [hashlib.sha256(policy).hexdigest() for policy in self._policies]]

    def table(self, scenarios: Sequence[Scenario], seeds: Sequence[int], is_on: IsOn = lambda count: True) -> Array:
        """Return the outcome of each constant in each scenario, shape (scenarios, windows, constants).

        Args:
            scenarios: what is simulated.
            seeds: of the scenarios.
            is_on: see `IsOn`; where it says no, the rest of the table is NaN. What is known is kept.

        Raises:
            EngineError: runs failed.
        """
        jobs = [
            _Job(self._key(scenario, seed), scenario, seed) for scenario, seed in zip(scenarios, seeds, strict=True)
        ]
        rows = {job.key: row for job in jobs if (row := _read(job.key, self._shape)) is not None}
        todo = list({job.key: job for job in jobs if job.key not in rows}.values())
        if is_on(len(jobs) - len(todo)):
            with closing(self._run(todo)) as results:
                for key, row in results:
                    rows[key] = row
                    _write(key, row)
                    if not is_on(len(rows)):
                        break
        nothing = np.full(self._shape, math.nan)
        return np.array([rows.get(job.key, nothing) for job in jobs])

    def best(self, scenarios: Sequence[Scenario], seeds: Sequence[int]) -> Array:
        """Return what the best constant reaches in each scenario, shape (scenarios,)."""
        best: Array = self.table(scenarios, seeds).mean(axis=1).max(axis=1)
        return best

    @property
    def _shape(self) -> tuple[int, int]:
        return self._windows, len(self.actions)

    def _key(self, scenario: Scenario, seed: int) -> str:
        return code_hash("native", also=json.dumps([identity_of(scenario), seed, self._decides], sort_keys=True))

    def _run(self, jobs: Sequence[_Job]) -> Generator[tuple[str, Array]]:
        """Yield the rows of scenarios."""
        scenarios, seeds = [job.scenario for job in jobs], [job.seed for job in jobs]
        with closing(each_outcome(self._spec, self._config, self._policies, scenarios, seeds, self._windows)) as found:
            for index, outcomes in found:
                yield jobs[index].key, outcomes.T


@dataclass(frozen=True)
class _Job:
    key: str
    scenario: Scenario
    seed: int


def _constant(action: float, pacing: float) -> Network:
    return Network(((np.zeros((2, 1), np.float32), np.array([action, pacing], np.float32)),))


def _path(key: str) -> Path:
    return user_cache(FOLDER) / key[:2] / f"{key}.json"  # thousands of files in one folder are slow


def _write(key: str, row: Array) -> None:
    """Keep a row."""
    path = _path(key)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, row.ravel().tolist())


def _read(key: str, shape: tuple[int, int]) -> Array | None:
    """Return a row that is kept; None if there is none, or it is damaged."""
    try:
        row = json.loads(_path(key).read_text(encoding="utf-8"))
        return np.array([float(value) for value in row]).reshape(shape)
    except DAMAGES:
        return None
