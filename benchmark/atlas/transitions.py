"""Reading a data set: transitions for learners, and the regret of what acted."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bbrgym.benchmark.atlas.manifest import YARDSTICKS, Manifest
from bbrgym.benchmark.atlas.shard_files import ShardFacts, read_shard, shard_path
from bbrgym.benchmark.atlas.trajectories import Trajectories, Yardsticks
from bbrgym.checks import check_name

FOLDER: Final = Path("runs/atlas")
"""Where the folders of data sets are."""


@dataclass(frozen=True)
class Transitions:
    """S decisions for offline learning, as D4RL's `qlearning_dataset` has them.

    Attributes:
        observations: before each decision, shape (S, features), float32.
        actions: in [-1, 1], shape (S, 2), float32.
        rewards: shape (S,), float32.
        next_observations: after each decision, shape (S, features), float32.
        terminals: whether the flow had delivered all its bytes, shape (S,). Do not bootstrap there.
        timeouts: whether the flow's trajectory ends there otherwise, shape (S,). Bootstrap there.
    """

    observations: npt.NDArray[np.float32]
    actions: npt.NDArray[np.float32]
    rewards: npt.NDArray[np.float32]
    next_observations: npt.NDArray[np.float32]
    terminals: npt.NDArray[np.bool_]
    timeouts: npt.NDArray[np.bool_]


def find_shards(folder: Path, kind: str) -> list[int]:
    """Return the numbers of the shards in a folder, rising."""
    return sorted(int(path.stem) for path in (folder / kind).glob("*.parquet") if path.stem.isdigit())


def read_shards(
    manifest: Manifest, level: str, shards: Sequence[int] | None = None, folder: Path | None = None
) -> Iterator[Trajectories]:
    """Yield shards of a level one after the other.

    Args:
        manifest: of the data set.
        level: of the manifest.
        shards: their numbers; None is all that are there.
        folder: of the data set; None is `runs/atlas/NAME`.

    Raises:
        FileNotFoundError: there is none, or one is missing, or a policy of the manifest.
        ValueError: one is damaged, or was made of another manifest, or by other code than those before it.
    """
    for shard, _ in _read_alike(manifest, level, shards, folder):
        assert isinstance(shard, Trajectories)
        yield shard


def _read_alike(
    manifest: Manifest, kind: str, shards: Sequence[int] | None, folder: Path | None
) -> Iterator[tuple[Trajectories | Yardsticks, ShardFacts]]:
    """Yield shards of a kind, all made of the manifest and by the same code; see `read_shards`."""
    where = folder or FOLDER / manifest.name
    numbers = find_shards(where, kind) if shards is None else list(shards)
    if not numbers:
        raise FileNotFoundError(f"there is no shard in '{where / kind}': make it with `bbrgym atlas make`")
    wanted, code = manifest.recipe(kind).hash, ""
    for number in numbers:
        path = shard_path(where, kind, number)
        shard, facts = read_shard(path)
        for what, found, good in (
            ("of another manifest", facts.recipe, wanted),
            ("by other code", facts.code, code or facts.code),
        ):
            if found != good:
                raise ValueError(
                    f"'{path}' was made {what}: {found}, and not {good}. Make it again with `bbrgym atlas "
                    f"make {manifest.name} --levels {kind} --shards {number}`"
                )
        code = facts.code
        yield shard, facts


def read_transitions(
    manifest: Manifest,
    level: str,
    shards: Sequence[int] | None = None,
    folder: Path | None = None,
    features: Sequence[str] | None = None,
) -> Transitions:
    """Return the decisions of a level.

    Args:
        manifest: of the data set.
        level: of the manifest.
        shards: their numbers; None is all that are there.
        folder: of the data set; None is `runs/atlas/NAME`.
        features: names of those to observe; None is the default ones.

    Raises:
        FileNotFoundError: a shard is missing, or a policy of the manifest.
        ValueError: one is damaged, or was made of another manifest or by other code than the others, or there is no
            such level or feature.
    """
    check_name("level", level, manifest.levels)
    names = manifest.spec.observation.features
    chosen = manifest.default if features is None else tuple(features)
    for name in chosen:
        check_name("feature", name, names)
    columns = [names.index(name) for name in chosen]
    before, after, actions, rewards, terminals, timeouts = [], [], [], [], [], []
    for shard in read_shards(manifest, level, shards, folder):
        seen = shard.observations[:, columns]
        ends = (shard.lengths + 1).cumsum()
        before.append(np.delete(seen, ends - 1, axis=0))
        after.append(np.delete(seen, ends - shard.lengths - 1, axis=0))
        actions.append(shard.actions)
        rewards.append(shard.rewards.astype(np.float32))
        terminals.append(shard.terminated)
        timeouts.append(shard.truncated)
    return Transitions(
        observations=np.concatenate(before),
        actions=np.concatenate(actions),
        rewards=np.concatenate(rewards),
        next_observations=np.concatenate(after),
        terminals=np.concatenate(terminals),
        timeouts=np.concatenate(timeouts),
    )


def regrets(
    manifest: Manifest, level: str, shards: Sequence[int] | None = None, folder: Path | None = None
) -> pd.DataFrame:
    """Return what acted in each episode beside the best yardstick in the same scenario.

    Args:
        manifest: of the data set, with yardsticks.
        level: see `read_transitions`, as are the others.
        shards: their numbers; None is all that the level and the yardsticks have.
        folder: of the data set.

    Returns:
        A row per episode: `episode`, `behaviour`, `reward` (mean per decision of all flows), `best` (that of the best
        yardstick), `yardstick` (which one it is), `regret` (best - reward; below 0 where what acted is better).

    Raises:
        FileNotFoundError: a shard is missing, or a policy of the manifest.
        ValueError: one is damaged, or was made of another manifest or by other code than the others, or the data set
            has no yardsticks.
    """
    check_name("level", level, manifest.levels)
    if not manifest.yardsticks:
        raise ValueError(f"the data set {manifest.name} has no yardsticks")
    where = folder or FOLDER / manifest.name
    if shards is None:
        shards = sorted({*find_shards(where, level)} & {*find_shards(where, YARDSTICKS)})
    acting = manifest.levels[level]
    # A level lacks the steps in which an algorithm has no estimate of the path yet. Its yardstick has them.
    places = {behaviour: place for place, behaviour in enumerate(manifest.yardsticks.values())}
    rows = []
    both = zip(
        read_shards(manifest, level, shards, where), _read_alike(manifest, YARDSTICKS, shards, where), strict=True
    )
    for shard, (yardsticks, facts) in both:
        assert isinstance(yardsticks, Yardsticks)
        of_flow = np.repeat(shard.episodes, shard.lengths)
        for episode, reached in zip(yardsticks.episodes.tolist(), yardsticks.rewards, strict=True):
            own = shard.rewards[of_flow == episode]
            if not len(own) or np.isnan(reached).all():
                continue
            best = int(np.nanargmax(reached))
            behaviour = acting[int(shard.behaviours[shard.episodes == episode][0])]
            reward = float(reached[places[behaviour]]) if behaviour in places else math.nan
            if math.isnan(reward):
                reward = math.fsum(own.tolist()) / len(own)
            rows.append(
                {
                    "episode": episode,
                    "behaviour": behaviour.text,
                    "reward": reward,
                    "best": float(reached[best]),
                    "yardstick": facts.names[best],
                    "regret": float(reached[best]) - reward,
                }
            )
    return pd.DataFrame(rows, columns=["episode", "behaviour", "reward", "best", "yardstick", "regret"])
