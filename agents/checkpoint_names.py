"""Where a training keeps its checkpoints: `<run>/checkpoints/<steps>`. Importing this does not load torch."""

from __future__ import annotations

from pathlib import Path

_FOLDER = "checkpoints"


def checkpoint_folder(directory: Path, steps: int) -> Path:
    """Return the folder of a training's checkpoint after so many steps."""
    return directory / _FOLDER / f"{steps:012d}"


def saved_steps(directory: Path) -> list[int]:
    """Return the steps of the checkpoints in a training's folder, the newest first."""
    return sorted((int(path.name) for path in (directory / _FOLDER).glob("*") if path.name.isdigit()), reverse=True)
