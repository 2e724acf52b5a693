"""Checkpoints of a training: whole or not there, checked, and without anything that is executed when they are read."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.save_util import load_from_zip_file, recursive_getattr

from bbrgym.agents.learner import Standardised

LOGGER = logging.getLogger(__name__)

KEPT: Final = 2
"""Checkpoints that stay: the newest, and the one before for when the newest cannot be read."""

_REPLAY: Final = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")


@dataclass
class TrainingState:
    """What a training knows beside its learner.

    Attributes:
        best_reward: of its evaluations; None before the first.
        evaluated_at: steps at the last evaluation; None before the first.
        engine_failures: how often an engine failed.
        is_prepared: `bbrgym.agents.imitation.prepare` is done.
        looked_at: steps at the last look of its curriculum; 0 before the first.
        kept: the curriculum's scenarios, as curriculum.json has them.
    """

    best_reward: float | None = None
    evaluated_at: int | None = None
    engine_failures: int = 0
    is_prepared: bool = False
    looked_at: int = 0
    kept: list[dict[str, Any]] = field(default_factory=list)


def save_checkpoint(model: BaseAlgorithm, folder: Path, state: TrainingState) -> Path:
    """Write `<folder>/<steps>/`, and remove checkpoints older than the last `KEPT`.

    It has Stable-Baselines3's own `model.zip`, `inputs.npz` (`Standardised`), `replay.npz` for a learner with a replay
    buffer, and `checkpoint.json` with counters, `state`, and a SHA-256 of each file.
    """
    final = folder / f"{model.num_timesteps:012d}"
    partial = folder / f".{final.name}.{os.getpid()}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    model.save(partial / "model.zip")
    inputs = Standardised.of(model)
    np.savez(partial / "inputs.npz", allow_pickle=False, mean=inputs.mean, scale=inputs.scale)
    if isinstance(model, OffPolicyAlgorithm):
        _save_replay(model, partial / "replay.npz")
    description = {
        "steps": model.num_timesteps,
        "updates": model._n_updates,
        "episodes": model._episode_num,
        "state": dataclasses.asdict(state),
        "sha256": {path.name: _digest(path) for path in sorted(partial.iterdir())},
    }
    (partial / "checkpoint.json").write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")
    for path in [*partial.iterdir(), partial]:
        _synchronise(path)
    shutil.rmtree(final, ignore_errors=True)
    partial.rename(final)
    _synchronise(folder)
    for old in _checkpoints(folder)[KEPT:]:
        shutil.rmtree(old, ignore_errors=True)
    return final


def restore_latest(model: BaseAlgorithm, folder: Path) -> TrainingState:
    """Bring a fresh learner to the newest checkpoint that can be read; `begin_anew` must come next.

    Returns:
        The state that was saved with it.

    Raises:
        ValueError: there is no checkpoint that can be read.
    """
    for path in _checkpoints(folder):
        try:
            description = json.loads((path / "checkpoint.json").read_text(encoding="utf-8"))
            for name, digest in description["sha256"].items():
                if _digest(path / name) != digest:
                    raise ValueError(f"{name} is not what was written")
        except (OSError, ValueError, KeyError) as error:
            LOGGER.warning("the checkpoint %s cannot be read, so the one before is taken: %s", path, error)
            continue
        _restore(model, path, description)
        return TrainingState(**description["state"])
    raise ValueError(f"no checkpoint in '{folder}' can be read: there is nothing to go on with")


def begin_anew(model: BaseAlgorithm, seed: int, state: TrainingState) -> None:
    """Seed every random generator from the seed, the steps and the failures so far, and begin new episodes.

    Done at a checkpoint and after reading it, it makes what follows the same in both cases; generators then need not
    be saved, which Python's and the engines' could not be.

    Raises:
        EngineError: an engine could not begin an episode.
    """
    entropy = [seed, model.num_timesteps, state.engine_failures]  # after a failure, not what failed once more
    mixed = int(np.random.SeedSequence(entropy).generate_state(1)[0]) >> 1  # below 2^31
    model.set_random_seed(mixed)
    model._last_obs = model.env.reset()
    model._last_episode_starts = np.ones(model.env.num_envs, dtype=bool)
    for states in getattr(model, "_last_lstm_states", None) or ():
        for tensor in states:
            tensor.zero_()


def _restore(model: BaseAlgorithm, path: Path, description: Mapping[str, Any]) -> None:
    # Tensors only: the rest of the file is a pickle, and what it would give follows from the configuration.
    _, parameters, variables = load_from_zip_file(path / "model.zip", device=model.device, load_data=False)
    model.set_parameters(parameters, exact_match=True, device=model.device)
    for name, value in (variables or {}).items():
        if value is not None:  # an entropy coefficient that is learned
            recursive_getattr(model, name).data = value.data
    with np.load(path / "inputs.npz", allow_pickle=False) as saved:
        inputs = Standardised.of(model)
        inputs.mean, inputs.scale = saved["mean"], saved["scale"]
    if isinstance(model, OffPolicyAlgorithm):
        _load_replay(model, path / "replay.npz")
    model.num_timesteps = description["steps"]
    model._n_updates = description["updates"]
    model._episode_num = description["episodes"]


def _save_replay(model: OffPolicyAlgorithm, path: Path) -> None:
    buffer = model.replay_buffer
    size = buffer.buffer_size if buffer.full else buffer.pos
    np.savez(
        path,
        allow_pickle=False,
        position=np.array([buffer.pos, int(buffer.full)]),
        **{name: getattr(buffer, name)[:size] for name in _REPLAY},
    )


def _load_replay(model: OffPolicyAlgorithm, path: Path) -> None:
    buffer = model.replay_buffer
    with np.load(path, allow_pickle=False) as saved:
        position, full = saved["position"].tolist()
        for name in _REPLAY:
            getattr(buffer, name)[: len(saved[name])] = saved[name]
    buffer.pos, buffer.full = position, bool(full)


def _checkpoints(folder: Path) -> list[Path]:
    """The newest first."""
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted((path for path in found if path.name.isdigit()), reverse=True)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _synchronise(path: Path) -> None:
    """Have it on the disk before what comes next: a rename must not survive a power cut that its content does not."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
