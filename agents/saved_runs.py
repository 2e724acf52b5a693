"""The trainings and benchmarks that are saved in `runs/`, and `latest`, which stands for the newest training."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

RUNS: Final = Path("runs")
BENCHMARKS: Final = RUNS / "benchmark"
"""The folder of all benchmarks."""
LATEST: Final = "latest"
"""What commands take in place of the folder of a training."""


def benchmark_plans() -> list[Path]:
    """Return the plan of each benchmark, `benchmark.json` in its folder."""
    return [path for folder in ("*", "*/*") for path in BENCHMARKS.glob(f"{folder}/benchmark.json")]


def trainings(runs: Path = RUNS) -> dict[Path, dict[str, Any]]:
    """Return the records of the trainings in a folder by their own folders, the newest first; jobs of sweeps, too."""
    from bbrgym.agents.tracking import read_run  # here, because every command imports this module

    found = {}
    for path in (*runs.glob("train/*/run.json"), *runs.glob("multirun/*/*/run.json")):
        record = read_run(path.parent)
        if record is not None and record["experiment"].partition("/")[0] == "train" and "sweeper" not in record["tags"]:
            found[path.parent] = record
    return dict(sorted(found.items(), key=lambda one: one[1].get("ended") or one[1]["started"], reverse=True))


def latest_training(runs: Path = RUNS, *, is_to_resume: bool = False) -> Path:
    """Return the folder of the newest training that has finished.

    Args:
        runs: the folder `runs/`.
        is_to_resume: the newest of all, whether it has finished or not.

    Raises:
        FileNotFoundError: there is none.
    """
    for directory, record in trainings(runs).items():
        if is_to_resume or record["status"] == "FINISHED":
            return directory
    kind = "training" if is_to_resume else "finished training"
    folders = f"'{runs / 'train'}' or '{runs / 'multirun'}'"
    raise FileNotFoundError(f"latest: there is no {kind} in {folders}: run `bbrgym train`, or give a folder")
