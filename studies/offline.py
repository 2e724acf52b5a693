"""Offline learning: what imitation, IQL and TD3+BC make of the levels of a data set, beside what acted there.

Each training of examples/offline reads the shards of the manifest. What comes out then drives all agent flows in
scenarios of further shards, which no training has seen. What acted in the data is run in the same scenarios.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
import torch
from filelock import FileLock

from bbrgym.baselines.policy_file import Network
from bbrgym.benchmark.atlas.behaviour import Behaviour, Driver
from bbrgym.benchmark.atlas.make import make_shards
from bbrgym.benchmark.atlas.manifest import YARDSTICKS, Manifest, read_manifest
from bbrgym.benchmark.atlas.trajectories import make_yardsticks
from bbrgym.benchmark.atlas.transitions import FOLDER
from bbrgym.benchmark.code import code_hash
from bbrgym.benchmark.ledger import Rows
from bbrgym.benchmark.statistics import estimate
from bbrgym.executors import ThreadExecutor
from examples.offline import bc, iql, setting, td3_bc
from examples.offline.setting import Train, load_data
from studies import page

DATA_SET: Final = "families"
TRAINS: Final[Mapping[str, tuple[Train, int]]] = {
    "bc": (bc.train, 2000),
    "iql": (iql.train, 3000),
    "td3+bc": (td3_bc.train, 3000),
}
"""The algorithms, and how many gradient steps each makes."""
LEVELS: Final[Mapping[str, Sequence[str]]] = {
    "mixed": tuple(TRAINS),
    "medium": tuple(TRAINS),
    "replay": tuple(TRAINS),
    "expert": ("bc",),
}
"""What learns from each level."""
SEEDS: Final = (1, 2, 3, 4, 5)
HELD_OUT: Final = range(32_000, 32_064)
"""Episodes of shards that no training reads."""


@dataclass(frozen=True)
class Training:
    """An algorithm that learns from a level, with a seed."""

    algorithm: str
    level: str
    seed: int

    @property
    def name(self) -> str:
        """What the ledger calls it."""
        return f"{self.level} {self.algorithm} {self.seed}"

    @property
    def code(self) -> str:
        """The hash of what decides its result."""
        sources = [inspect.getsource(module) for module in (bc, iql, td3_bc, setting)]
        steps = TRAINS[self.algorithm][1]
        return code_hash("native", also=json.dumps([_manifest().recipe(self.level).hash, steps, sources, _judged()]))


@dataclass(frozen=True)
class Acting:
    """What acts in a level, or as a yardstick, in the held-out scenarios."""

    kind: str

    @property
    def name(self) -> str:
        """What the ledger calls it."""
        return f"{self.kind} acting"

    @property
    def code(self) -> str:
        """The hash of what decides its result."""
        return code_hash("native", also=json.dumps([_manifest().recipe(self.kind).hash, _judged()]))


def jobs() -> Sequence[Training | Acting]:
    """Return what acts in the data, the yardsticks, and the trainings."""
    acting = [Acting(kind) for kind in (*LEVELS, YARDSTICKS)]
    trainings = [
        Training(algorithm, level, seed) for level, own in LEVELS.items() for algorithm in own for seed in SEEDS
    ]
    return [*acting, *trainings]


def work(job: Training | Acting) -> Rows:
    """Return a row per thing that acts: what it is called, and its rewards in the held-out scenarios."""
    manifest = _manifest()
    if isinstance(job, Acting):
        recipe = manifest.recipe(job.kind)
        # Without noise: what a behaviour would reach if it were used.
        quiet = [
            dataclasses.replace(
                driver, behaviour=dataclasses.replace(driver.behaviour, noise=(0.0, 0.0), offset=(0.0, 0.0))
            )
            for driver in recipe.drivers
        ]
        names = [name.partition(" ±")[0] for name in recipe.names]
        return _judge(manifest, quiet, names)
    torch.set_num_threads(1)
    folder = FOLDER / manifest.name
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"), ThreadExecutor() as executor:
        make_shards(manifest, [job.level], range(manifest.shards), folder, executor)
    data = load_data(manifest, job.level, range(manifest.shards), folder)
    train, steps = TRAINS[job.algorithm]
    return _judge(manifest, [_driver(manifest, train(data, steps, job.seed).network(data))], [job.algorithm])


@cache
def _manifest() -> Manifest:
    return read_manifest(DATA_SET)


def _judged() -> list[object]:
    return [HELD_OUT.start, HELD_OUT.stop, _manifest().seed]


def _driver(manifest: Manifest, network: Network) -> Driver:
    """Return what acts as a network that has the default observation."""
    names = manifest.spec.observation.features
    places = [names.index(name) for name in manifest.default]
    return Driver(Behaviour(policy="trained"), network.widened(places, len(names)))


def _judge(manifest: Manifest, drivers: Sequence[Driver], names: Sequence[str]) -> Rows:
    shard = make_yardsticks(manifest.spec, drivers, manifest.seed, HELD_OUT, manifest.least_steps)
    return [{"what": name, "rewards": rewards.tolist()} for name, rewards in zip(names, shard.rewards.T, strict=True)]


def view(results: Mapping[str, Rows], figure: page.AddFigure) -> Mapping[str, object]:
    """Return the table, the number of held-out scenarios and seeds, and the yardsticks."""
    return {
        "steps": ", ".join(f"{name} {steps:,}" for name, (_, steps) in TRAINS.items()),
        "scenarios": len(HELD_OUT),
        "seeds": len(SEEDS),
        "decisions": f"{_manifest().shards} shards of {_manifest().episodes} episodes",
        "reached": table(results),
        "yardsticks": yardsticks(results),
    }


def table(results: Mapping[str, Rows]) -> str:
    """Return a row per level: what acted, and what was learned from it."""
    rows = []
    for level, own in LEVELS.items():
        acting = {row["what"]: float(np.mean(row["rewards"])) for row in results.get(f"{level} acting", ())}
        best = max(acting, key=acting.__getitem__, default="")
        mean = f"{np.mean([*acting.values()]):.3f}" if acting else ""
        cells = []
        for algorithm in TRAINS:
            names = [Training(algorithm, level, seed).name for seed in SEEDS if algorithm in own]
            found = [float(np.mean(results[name][0]["rewards"])) for name in names if name in results]
            cells.append(f"{estimate(found).text('.3f')} ({len(found)})" if found else "")
        rows.append([level, mean, f"{acting[best]:.3f} ({best})" if best else "", *cells])
    headings = ["level", "all that acts", "best that acts", *(f"{name}, mean (seeds)" for name in TRAINS)]
    return page.table(headings, rows, range(1, len(headings)))


def yardsticks(results: Mapping[str, Rows]) -> str:
    """Return what the yardsticks reach in the same scenarios, the best first."""
    found = {row["what"]: row["rewards"] for row in results.get(Acting(YARDSTICKS).name, ())}
    if not found:
        return ""
    means = {name: float(np.mean(rewards)) for name, rewards in found.items()}
    rows = [["the best of each scenario", f"{np.max([*found.values()], axis=0).mean():.3f}"]]
    rows += [[name, f"{means[name]:.3f}"] for name in sorted(means, key=means.__getitem__, reverse=True)[:6]]
    return page.table(["yardstick", "reward"], rows, [1])
