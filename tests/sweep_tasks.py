"""Tasks of sweeps, as functions that other processes can import."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from waiting import wait_for

from bbrgym.agents.callbacks import STOP
from bbrgym.agents.tracking import Tracker
from bbrgym.hydra_task import Task, run_explained, run_with_hydra

TESTS = Path(__file__).parent
GRANDCHILD = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(600)"


def run(function: Callable[[dict[str, Any], Path], float | None], *arguments: str) -> int:
    """Do what `bbrgym train -m` does, with another task and the configuration sweep.yaml."""
    options = ["-m", f"--config-dir={TESTS}", "--config-name=sweep"]
    task = Task("train", function, accept)
    return run_explained(lambda: run_with_hydra(task, "config", [*options, *arguments]))


def accept(config: dict[str, Any], directory: Path | None) -> None:
    """Check nothing."""


def count(directory: Path) -> int:
    """Return how often a job was begun."""
    path = directory / "begun"
    return len(path.read_text().split()) if path.is_file() else 0


def act(config: dict[str, Any], directory: Path) -> float:
    """Do what `name` says, and return the seed."""
    with (directory / "begun").open("a") as file:
        print(os.getpid(), file=file)
    print(f"begun: {config['name']}")
    match config["name"]:
        case "die_once" if count(directory) == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        case "hang":
            child = subprocess.Popen([sys.executable, "-c", GRANDCHILD], stdout=subprocess.PIPE)
            assert child.stdout is not None
            child.stdout.readline()
            (directory / "grandchild").write_text(str(child.pid))
            time.sleep(600)
        case "raise":
            raise ValueError("gamma is not possible")
        case "object":
            return object()  # type: ignore[return-value]
    return float(config["seed"])


def quadratic(config: dict[str, Any], directory: Path) -> float:
    """Return a value whose minimum is at agent.gamma=0.3 and seed=4."""
    return float((config["agent"]["gamma"] - 0.3) ** 2 + 0.01 * (config["seed"] - 4) ** 2)


def quadratic_killed_once(config: dict[str, Any], directory: Path) -> float:
    """Return the same, but kill the whole sweep in its third job."""
    if directory.name == "2" and not Path("killed").exists():
        Path("killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return quadratic(config, directory)


def sometimes(config: dict[str, Any], directory: Path) -> float:
    """Return the job's number, or fail if it is odd."""
    if int(directory.name) % 2:
        raise ValueError("odd")
    return float(directory.name)


def evaluate_as(config: dict[str, Any], directory: Path) -> float:
    """Log two evaluations as a training does, wait to be stopped in the seventh job, and return the last score."""
    number = int(directory.name)
    scores = (0.1, 0.2) if number == 6 else (0.5, 1.0)
    config["train"] = {"eval_every": 100}
    with Tracker.start(directory, "train", directory.name, config, config=config["tracking"]) as tracker:
        for place, score in enumerate(scores, start=1):
            tracker.log_metrics({"best/score": score}, step=100 * place + number)  # where its own rollout ends
        if number == 6:
            wait_for((directory / STOP).exists, "the pruner")
    return scores[-1]


def track(config: dict[str, Any], directory: Path) -> float:
    """Log 40 steps of 5 metrics as a training does."""
    with Tracker.start(directory, "train", directory.name, config, config=config["tracking"]) as tracker:
        for step in range(40):
            tracker.log_metrics({f"m{index}": config["seed"] + index + step / 100 for index in range(5)}, step)
    return float(config["seed"])
