"""The configuration files, and the groups and choices that they make."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

ENVIRONMENT_GROUPS: Final = ("scenario", "observation", "action", "reward", "env", "engine")
"""What an environment is made of."""


def groups() -> list[str]:
    """Return the groups that a command line can choose from, and those of Hydra that need no plug-in."""
    return [*_groups(resources.files(__name__), ""), "hydra/job_logging", "hydra/hydra_logging"]


def defaults(config_name: str) -> list[str]:
    """Return the groups that a configuration chooses from, `config` or `evaluate`."""
    from omegaconf import OmegaConf

    text = (resources.files(__name__) / f"{config_name}.yaml").read_text(encoding="utf-8")
    return [str(group) for entry in OmegaConf.create(text).defaults if entry != "_self_" for group in entry]


def choices(group: str) -> list[str]:
    """Return the choices of a group, those in its folders last; none of an unknown group.

    The scenarios have one for all experiments of a paper, `paper/<paper>`, which has no file of its own. Their folder
    has what they have in common, and no choices.
    """
    folder = resources.files(__name__) / group
    entries = sorted(folder.iterdir(), key=lambda entry: entry.name) if folder.is_dir() else []
    if group == "scenario":
        nested = sorted({f"paper/{stem.split('-')[0]}" for stem in choices("experiment/paper")})
    else:
        folders = [entry.name for entry in entries if entry.is_dir()]
        nested = [f"{name}/{choice}" for name in folders for choice in choices(f"{group}/{name}")]
    return [*(entry.name.removesuffix(".yaml") for entry in entries if entry.name.endswith(".yaml")), *nested]


def description(group: str, choice: str) -> str:
    """Return the first sentence of the comment that a choice's file begins with; an empty text if there is none."""
    text = (resources.files(__name__) / group / f"{choice}.yaml").read_text(encoding="utf-8")
    lines = itertools.takewhile(lambda line: line.startswith("#"), text.splitlines())
    words = " ".join(line.removeprefix("#").strip() for line in lines if not line.startswith("# @package"))
    found = re.match(r".+?[.?!](?=\s|$)", words)
    return found[0] if found else words


def _groups(folder: Traversable, prefix: str) -> Iterator[str]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir() and any(file.name.endswith(".yaml") for file in entry.iterdir()):
            yield f"{prefix}{entry.name}"
        if entry.is_dir() and entry.name != "experiment":  # whose folders are part of the names of its choices
            yield from _groups(entry, f"{prefix}{entry.name}/")
