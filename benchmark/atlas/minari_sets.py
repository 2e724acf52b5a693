"""Data sets of Minari: one per level, an episode per flow."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import gymnasium as gym
import numpy as np

from bbrgym.benchmark.atlas.manifest import Manifest
from bbrgym.benchmark.atlas.transitions import read_shards
from bbrgym.envs.observation import Observation
from bbrgym.extras import optional, require

VERSION: Final = 0
"""Of the names of the sets."""


def minari_name(manifest: Manifest, level: str) -> str:
    """Return what Minari calls a level: `bbrgym/families/expert-v0`."""
    return f"bbrgym/{manifest.name}/{level}-v{VERSION}"


def require_minari() -> None:
    """Check that Minari is there.

    Raises:
        ModuleNotFoundError: it is not, and which extra has it.
    """
    require("data sets of Minari", "minari", "h5py")


def write_minari(manifest: Manifest, level: str, shards: Sequence[int], folder: Path) -> Path:
    """Write a level as a data set of Minari into its own folder, `MINARI_DATASETS_PATH`, and return where it is.

    The episodes are flows, with the default observation. Their infos have the features of the reference, which episode
    of the data set and which flow of its scenario each is, and the step with which it begins.

    Args:
        manifest: of the data set.
        level: of the manifest.
        shards: which; they must be there.
        folder: of the data set.

    Raises:
        FileNotFoundError: a shard is missing.
        ModuleNotFoundError: Minari is not installed.
        ValueError: a shard is damaged.
    """
    with optional("data sets of Minari"):
        import minari
        from minari.storage.datasets_root_dir import get_dataset_path
    name = minari_name(manifest, level)
    shutil.rmtree(get_dataset_path(name), ignore_errors=True)  # one that was not finished, too
    texts = ", ".join(behaviour.text for behaviour in manifest.levels[level])
    spec = manifest.spec
    env = _environment(manifest)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about an address of an author, which a manifest has not
        made = minari.create_dataset_from_buffers(
            name,
            _episodes(manifest, level, shards, folder),  # a generator, so that one shard is in memory
            env=env,
            eval_env=env,
            observation_space=Observation(manifest.default).space,
            action_space=spec.action.space,
            algorithm_name=texts,
            description=f"{manifest.description}; {level}: {texts}. Made by `bbrgym atlas make {manifest.name}`.",
            requirements=["bbrgym"],
            data_format="hdf5",
        )
    env.close()
    return Path(made.storage.data_path)


def _environment(manifest: Manifest) -> gym.Env[Any, Any]:
    """Return the environment of one agent in the scenarios of the data set, beside flows that run the policy."""
    spec = manifest.spec
    return gym.make(
        "bbrgym/Bottleneck-v1",
        scenario=manifest.scenario,
        observation={"features": list(manifest.default)},
        action=spec.action,
        reward=spec.reward,
        step_ms=spec.step_ms,
        step_rtts=spec.step_rtts,
        other_agents="policy",
    )


def _episodes(manifest: Manifest, level: str, shards: Sequence[int], folder: Path) -> Iterator[Any]:
    """Yield Minari's buffers."""
    from minari.data_collector import EpisodeBuffer

    features = manifest.spec.observation.features
    default = [features.index(name) for name in manifest.default]
    reference = [features.index(name) for name in manifest.reference]
    for shard in read_shards(manifest, level, shards, folder):
        step = 0
        for index, length in enumerate(shard.lengths.tolist()):
            steps = slice(step, step + length)
            seen = shard.observations[step + index : step + index + length + 1]
            step += length
            ones = np.ones(length + 1, np.int64)
            infos = {
                "episode": shard.episodes[index] * ones,
                "flow": shard.flows[index] * ones,
                "behaviour": shard.behaviours[index] * ones,
                "step": shard.first_steps[index] + np.arange(length + 1),
            }
            if reference:
                infos["reference"] = seen[:, reference]
            yield EpisodeBuffer(
                observations=seen[:, default],
                actions=shard.actions[steps],
                rewards=shard.rewards[steps],
                terminations=shard.terminated[steps],
                truncations=shard.truncated[steps],
                infos=infos,
            )
