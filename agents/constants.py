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
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from bbrgym.agents import fitness
from bbrgym.agents.config import FitnessConfig
from bbrgym.agents.fitness import Array, CandidateRuns, ExecutorRuns
from bbrgym.baselines.policy_file import Network, StoredPolicy
from bbrgym.envs import sharing, sharing_meter
from bbrgym.envs.code import code_hash
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

_AT_ONCE: Final = 256
"""Runs at once in this process: enough for many cores, and little memory."""

IsOn = Callable[[int], bool]
"""Called with the number of rows that are known; returns whether there is time for more."""


class Constants:
    """A grid of constant actions.

    Args:
        spec: of the environment, with the engine "native".
        config: of the grid, the fitness, and where runs take place.

    Attributes:
        actions: of cwnd_gain, rising, shape (constants,).
        pacing: the action of pacing_gain, the same for all.
    """

    def __init__(self, spec: EpisodeSpec, config: FitnessConfig) -> None:
        default = PACKETS if spec.action.cwnd_scale == "packets" else (-1.0, 1.0)
        self.actions: Array = np.linspace(*(config.action_range or default), config.constants)
        # The action of pacing_gain does not depend on that of cwnd_gain.
        self.pacing = float(spec.action.action(spec.action.cwnd_gain[1], config.pacing_gain)[1])
        self._config = config
        self._spec = dataclasses.replace(spec, observation=_BLIND)
        plain = self._spec.to_config()
        self._policies = [StoredPolicy(plain, _constant(action, self.pacing)).to_bytes() for action in self.actions]
        sources = "".join(map(inspect.getsource, (fitness, sharing, sharing_meter)))
        decides = [config.fitness, config.warmup, plain["reward"], hashlib.sha256(sources.encode()).hexdigest()]
        self._decides = [*decides, [hashlib.sha256(policy).hexdigest() for policy in self._policies]]

    def table(self, scenarios: Sequence[Scenario], seeds: Sequence[int], is_on: IsOn = lambda count: True) -> Array:
        """Return the outcome of each constant in each scenario, shape (scenarios, constants).

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
        rows = {job.key: row for job in jobs if (row := _read(job.key, len(self.actions))) is not None}
        todo = list({job.key: job for job in jobs if job.key not in rows}.values())
        if is_on(len(jobs) - len(todo)):
            with closing(self._run(todo)) as results:
                for key, row in results:
                    rows[key] = row
                    _write(key, row)
                    if not is_on(len(rows)):
                        break
        nothing = [float("nan")] * len(self.actions)
        return np.array([rows.get(job.key, nothing) for job in jobs])

    def best(self, scenarios: Sequence[Scenario], seeds: Sequence[int]) -> Array:
        """Return what the best constant reaches in each scenario, shape (scenarios,)."""
        best: Array = self.table(scenarios, seeds).max(axis=1)
        return best

    def _key(self, scenario: Scenario, seed: int) -> str:
        return code_hash("native", also=json.dumps([scenario.to_dict(), seed, self._decides], sort_keys=True))

    def _run(self, jobs: Sequence[_Job]) -> Generator[tuple[str, list[float]]]:
        """Yield the rows of scenarios, here or on the workers of an executor."""
        if self._config.executor is not None:
            scenarios, seeds = [job.scenario for job in jobs], [job.seed for job in jobs]
            with closing(ExecutorRuns(self._spec, self._config)) as there:
                for index, row, _ in there.each(self._policies, scenarios, seeds):
                    yield jobs[index].key, row
            return
        at_once = max(1, _AT_ONCE // len(self.actions))
        for first in range(0, len(jobs), at_once):
            yield from _outcomes(self._spec, self._config, self._policies, jobs[first : first + at_once])


@dataclass(frozen=True)
class _Job:
    key: str
    scenario: Scenario
    seed: int


def _outcomes(
    spec: EpisodeSpec, config: FitnessConfig, policies: Sequence[bytes], jobs: Sequence[_Job]
) -> list[tuple[str, list[float]]]:
    with closing(CandidateRuns(spec, config, len(jobs) * len(policies))) as runs:
        table = runs.outcomes(policies, [job.scenario for job in jobs], [job.seed for job in jobs])
    return [(job.key, row.tolist()) for job, row in zip(jobs, table, strict=True)]


def _constant(action: float, pacing: float) -> Network:
    return Network(((np.zeros((2, 1), np.float32), np.array([action, pacing], np.float32)),))


def _path(key: str) -> Path:
    return user_cache(FOLDER) / key[:2] / f"{key}.json"  # thousands of files in one folder are slow


def _write(key: str, row: list[float]) -> None:
    """Keep a row."""
    path = _path(key)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, row)


def _read(key: str, length: int) -> list[float] | None:
    """Return a row that is kept; None if there is none, or it is damaged."""
    try:
        row = json.loads(_path(key).read_text(encoding="utf-8"))
        values = [float(value) for value in row]
    except DAMAGES:
        return None
    return values if len(values) == length else None
