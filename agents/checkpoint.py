"""Checkpoints of a training: written as a whole, verified by hashes, and read without executing anything."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import os
import pickle
import shutil
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.save_util import load_from_zip_file, recursive_getattr

from bbrgym.agents.checkpoint_names import checkpoint_folder, saved_steps
from bbrgym.agents.wrappers import StandardiseObservation
from bbrgym.checks import check_integer
from bbrgym.files import DAMAGES, damage
from bbrgym.interruption import deferring_signals

LOGGER = logging.getLogger(__name__)

KEPT: Final = 2
"""Checkpoints that are kept: the newest, and one to fall back on if the newest cannot be read."""

_REPLAY: Final = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")


@dataclass
class TrainingState:
    """The state of a training outside of its learner.

    Attributes:
        best_reward: the highest of its evaluations since learning began; None before the first.
        evaluated_at: steps at the last evaluation; None before the first.
        engine_failures: how often an engine failed.
        is_prepared: `bbrgym.agents.imitation.prepare` is done.
        iterations: logged rollouts of a learner with rollouts.
    """

    best_reward: float | None = None
    evaluated_at: int | None = None
    engine_failures: int = 0
    is_prepared: bool = False
    iterations: int = 0


@deferring_signals()  # an exception inside torch's C++ writer would abort the process
def save_checkpoint(model: BaseAlgorithm, directory: Path, state: TrainingState) -> Path:
    """Write a checkpoint in the training's folder, and remove all but the last `KEPT`.

    A checkpoint has Stable-Baselines3's `model.zip`, `inputs.npz` (`StandardiseObservation`), `replay.npz` for a
    learner with a replay buffer, and `checkpoint.json` with counters, the statistics to be logged next, `state`, and a
    SHA-256 of each file.
    """
    final = checkpoint_folder(directory, model.num_timesteps)
    partial = final.with_name(f".{final.name}.{os.getpid()}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    model.save(partial / "model.zip")
    inputs = StandardiseObservation.of(model)
    np.savez(partial / "inputs.npz", mean=inputs.mean, scale=inputs.scale)
    if isinstance(model, OffPolicyAlgorithm):
        _save_replay(model, partial / "replay.npz")
    description = {
        "steps": model.num_timesteps,
        "updates": model._n_updates,
        "episodes": model._episode_num,
        "returns_and_lengths": [[float(episode["r"]), int(episode["l"])] for episode in model.ep_info_buffer or ()],
        "not_yet_logged": _numbers(model.logger.name_to_value),
        "state": dataclasses.asdict(state),
        "sha256": {path.name: _digest(path) for path in sorted(partial.iterdir())},
    }
    (partial / "checkpoint.json").write_text(json.dumps(description, indent=1) + "\n", encoding="utf-8")
    # On disk before the rename, which must not survive a power cut that the content does not.
    for path in [*partial.iterdir(), partial]:
        _synchronise(path)
    shutil.rmtree(final, ignore_errors=True)
    partial.rename(final)
    _synchronise(final.parent)
    for old in saved_steps(directory)[KEPT:]:
        shutil.rmtree(checkpoint_folder(directory, old), ignore_errors=True)
    return final


def remove_partial(directory: Path) -> None:
    """Remove the checkpoints of a training that were not written whole."""
    for partial in checkpoint_folder(directory, 0).parent.glob(".*.partial"):
        shutil.rmtree(partial)


def restore_latest(model: BaseAlgorithm, directory: Path) -> TrainingState | None:
    """Restore the newest readable checkpoint into a fresh learner with a logger; call `restart_from_seed` next.

    Returns:
        The state that was saved with it; None if there is no checkpoint.

    Raises:
        ValueError: there are checkpoints, but none that can be read.
    """
    saved = saved_steps(directory)
    for steps in saved:
        path = checkpoint_folder(directory, steps)
        try:
            description = json.loads((path / "checkpoint.json").read_text(encoding="utf-8"))
            for name, digest in description["sha256"].items():
                if _digest(path / name) != digest:
                    raise ValueError(f"the SHA-256 of {name} differs from the recorded one")
            state = TrainingState(**description["state"])
            _restore(model, path, description)
        except pickle.UnpicklingError:  # its message recommends to run what is in the file
            LOGGER.warning("cannot read the checkpoint %s: refused, its model.zip holds more than tensors", path)
        except DAMAGES as error:
            LOGGER.warning("cannot read the checkpoint %s, falling back to the one before: %s", path, damage(error))
        else:
            return state
    if not saved:
        return None
    raise ValueError(f"no checkpoint in '{directory}' can be read, so the training cannot resume")


def restart_from_seed(model: BaseAlgorithm, seed: int, state: TrainingState) -> None:
    """Seed every random generator from the seed, the steps and the failures so far, and begin new episodes.

    This happens after saving a checkpoint and after restoring one, so that training continues identically in both
    cases; generators need not be saved then, which is not possible for those of Python and the engines.

    Raises:
        EngineError: an engine could not begin an episode.
    """
    # With the failures, so that the episode that made an engine fail is not repeated.
    entropy = [seed, model.num_timesteps, state.engine_failures]
    mixed = int(np.random.SeedSequence(entropy).generate_state(1)[0]) >> 1  # below 2^31
    model.set_random_seed(mixed)
    model._last_obs = model.env.reset()
    model._last_episode_starts = np.ones(model.env.num_envs, dtype=bool)
    for states in getattr(model, "_last_lstm_states", None) or ():
        for tensor in states:
            tensor.zero_()


def _restore(model: BaseAlgorithm, path: Path, description: Mapping[str, Any]) -> None:
    # Tensors only (torch.load with weights_only): the rest is a pickle of what follows from the configuration.
    _, parameters, variables = load_from_zip_file(path / "model.zip", device=model.device, load_data=False)
    model.set_parameters(parameters, exact_match=True, device=model.device)
    for name, value in (variables or {}).items():
        if value is not None:  # a learned entropy coefficient
            recursive_getattr(model, name).data = value.data
    with np.load(path / "inputs.npz", allow_pickle=False) as saved:
        inputs = StandardiseObservation.of(model)
        inputs.mean, inputs.scale = saved["mean"], saved["scale"]
    if isinstance(model, OffPolicyAlgorithm):
        _load_replay(model, path / "replay.npz")
    model.num_timesteps, model._n_updates, model._episode_num = (
        check_integer(name, description[name], at_least=0) for name in ("steps", "updates", "episodes")
    )
    # In the types of VecMonitor: a mean of other ones differs in the last digits.
    model.ep_info_buffer = deque(
        ({"r": np.float32(total), "l": np.int32(length)} for total, length in description["returns_and_lengths"]),
        maxlen=model._stats_window_size,
    )
    model.ep_success_buffer = deque(maxlen=model._stats_window_size)
    for name, value in description["not_yet_logged"].items():
        model.logger.record(name, float(value))


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items() if isinstance(value, int | float | np.number)}


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


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _synchronise(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
