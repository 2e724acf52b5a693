"""Checkpoints of a training: written as a whole, verified by hashes, and read without executing anything."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import os
import pickle
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from bbrgym.agents.checkpoint_names import checkpoint_folder, saved_steps
from bbrgym.checks import check_integer
from bbrgym.files import DAMAGES, damage, read_object
from bbrgym.interruption import deferring_signals

LOGGER = logging.getLogger(__name__)

KEPT: Final = 2
"""Checkpoints that are kept: the newest, and one to fall back on if the newest cannot be read."""


class Restorable(Protocol):
    """What a checkpoint holds: the state of a learner."""

    @property
    def steps(self) -> int:
        """Decisions learned from, of all flows."""
        ...

    def save(self, folder: Path) -> dict[str, Any]:
        """Write its files into a new folder, and return what else `restore` needs, for JSON."""
        ...

    def restore(self, folder: Path, description: Mapping[str, Any]) -> None:
        """Take the state that was saved, of which `description` also has the `steps`.

        Raises:
            One of `bbrgym.files.DAMAGES`, or pickle.UnpicklingError: the files are damaged.
        """
        ...


@dataclass
class TrainingState:
    """The state of a training outside of its learner.

    Attributes:
        best_score: the highest of its evaluations since learning began; None before the first.
        evaluated_at: steps at the last evaluation; None before the first.
        engine_failures: how often an engine failed.
        curriculum: the state of its curriculum (`bbrgym.agents.curriculum`); None without one.
        logged_bytes: the size of its metrics.jsonl; None in checkpoints of older versions.
    """

    best_score: float | None = None
    evaluated_at: int | None = None
    engine_failures: int = 0
    curriculum: dict[str, Any] | None = None
    logged_bytes: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.curriculum, dict | None):
            raise ValueError(f"curriculum of a training's state must be a mapping, got {self.curriculum!r}")
        for name, value in vars(self).items():
            if name == "curriculum":
                continue
            if not isinstance(value, int | float | None) or (value is None and name == "engine_failures"):
                raise ValueError(f"{name} of a training's state must be a number, got {value!r}")
        check_integer("logged_bytes of a training's state", self.logged_bytes, at_least=0, or_none=True)


@deferring_signals()  # an exception inside torch's C++ writer would abort the process
def save_checkpoint(learner: Restorable, directory: Path, state: TrainingState) -> Path:
    """Write a checkpoint in the training's folder, and remove all but the last `KEPT`.

    A checkpoint has the learner's files, and `checkpoint.json` with its other values, `state`, and a SHA-256 of each
    file.
    """
    final = checkpoint_folder(directory, learner.steps)
    partial = final.with_name(f".{final.name}.{os.getpid()}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    description = {
        "steps": learner.steps,
        **learner.save(partial),
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


def restore_latest(learner: Restorable, directory: Path) -> TrainingState | None:
    """Restore the newest readable checkpoint into a fresh learner.

    Returns:
        The state that was saved with it; None if there is no checkpoint.

    Raises:
        ValueError: there are checkpoints, but none that can be read.
    """
    saved = saved_steps(directory)
    for steps in saved:
        path = checkpoint_folder(directory, steps)
        try:
            description = read_object(path / "checkpoint.json", state=dict, sha256=dict)
            for name, digest in description["sha256"].items():
                if _digest(path / name) != digest:
                    raise ValueError(f"the SHA-256 of {name} differs from the recorded one")
            state = TrainingState(**description["state"])
            learner.restore(path, description)
        except pickle.UnpicklingError:  # its message recommends to run what is in the file
            LOGGER.warning("cannot read the checkpoint %s: refused, a file of tensors holds more than tensors", path)
        except DAMAGES as error:
            LOGGER.warning("cannot read the checkpoint %s, falling back to the one before: %s", path, damage(error))
        else:
            return state
    if not saved:
        return None
    raise ValueError(f"no checkpoint in '{directory}' can be read, so the training cannot resume")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _synchronise(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
