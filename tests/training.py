"""Small trainings for tests: tiny networks and short episodes."""

import copy
import io
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from rich.console import Console

from bbrgym.agents.tracking import read_metrics, read_run
from bbrgym.agents.train import TrainResult, train

SCENARIO: dict[str, Any] = {
    "rate_mbps": 12,
    "buffer_bdp": 8,
    "duration_s": 1,
    "flows": [{"algorithm": "agent", "rtt_ms": 20}, {"algorithm": "agent", "rtt_ms": 50}],
}
PPO: dict[str, Any] = {
    "algorithm": "ppo",
    "n_steps": 16,
    "batch_size": 32,
    "n_epochs": 2,
    "target_kl": None,  # so that all updates have as many batches
    "net_arch": [8, 8],
    "critic_arch": [8, 8],
}
SAC: dict[str, Any] = {
    "algorithm": "sac",
    "learning_starts": 30,
    "buffer_size": 2000,
    "batch_size": 16,
    "policy_kwargs": {"net_arch": [8]},
}
SMALL = [
    "engine.name=fake",
    "scenario=single",
    "scenario.duration_s=2",
    "tracking=none",
    "agent.n_steps=32",
    "agent.batch_size=32",
    "agent.n_epochs=1",
    "train=default",
    "train.total_steps=64",
    "train.eval_episodes=1",
]
"""Overrides of `bbrgym train`."""
AGENTS: dict[str, dict[str, Any]] = {"ppo": PPO, "sac": SAC}
CONFIG: dict[str, Any] = {
    "scenario": SCENARIO,
    "engine": {"name": "fake"},
    "agent": PPO,
    "seed": 3,
    "train": {"total_steps": 192, "n_envs": 2, "eval_every": 128, "eval_episodes": 2, "checkpoint_every": 64},
    "tracking": {"backend": "none"},
}


def changed(train: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """Return a copy of `CONFIG` with changes, of `train` by key."""
    config = copy.deepcopy(CONFIG | changes)
    config["train"] |= train or {}
    return config


def quiet() -> Console:
    return Console(file=io.StringIO(), width=160)


def learn(directory: Path, train_changes: dict[str, Any] | None = None, **changes: Any) -> TrainResult:
    """Train as `changed` says."""
    return train(changed(train_changes, **changes), directory, quiet())


def learn_until_killed(
    directory: Path, train_changes: dict[str, Any] | None = None, evaluations: int = 2, **changes: Any
) -> None:
    """Train until the second or another evaluation, and stop as by a power cut: what followed a checkpoint is lost."""
    with pytest.raises(Killed):
        train(changed(train_changes, **changes), directory, KillingConsole(evaluations))
    assert not (directory / "final").exists()


def run_of(directory: Path) -> dict[str, Any]:
    """Return a run's record."""
    record = read_run(directory)
    assert record is not None
    return record


def weights(directory: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Return the arrays of a training's last policy."""
    with np.load(directory / "final" / "policy.npz", allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


def same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    """Return whether all arrays are equal."""
    return first.keys() == second.keys() and all(np.array_equal(first[name], second[name]) for name in first)


def logged(directory: Path) -> dict[tuple[int, str], float]:
    """Return all logged values but times, by step and name; none of them is logged twice, also after a kill."""
    found: dict[tuple[int, str], float] = {}
    for line in read_metrics(directory):
        for name, value in line["metrics"].items():
            if name not in ("time/fps", "time/time_elapsed", "time/processor"):
                assert (line["step"], name) not in found, f"{name} at step {line['step']} is logged twice"
                found[line["step"], name] = value
    return found


class Killed(BaseException):
    """No `Exception`, so that training does not handle it."""


def kill(*_: object, **__: object) -> NoReturn:
    """Take the place of a function that a kill interrupts."""
    raise Killed


class KillingConsole(Console):
    def __init__(self, evaluations: int) -> None:
        super().__init__(file=io.StringIO())
        self._evaluations = evaluations

    def print(self, *objects: Any, **options: Any) -> None:
        self._evaluations -= 1
        if self._evaluations == 0:
            raise Killed
