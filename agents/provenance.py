"""Where a run's numbers come from: versions of the software, the commit, the host; and its name."""

from __future__ import annotations

import platform
import shlex
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from bbrgym.waiting import announcing


def source_tags() -> dict[str, str]:
    """Return what could change a run's numbers: versions, and in a checkout the commit and whether it is modified.

    Pages in docs change no number, and a command that writes several would call all but the first modified.
    """
    tags = {"python": platform.python_version(), "host": socket.gethostname()}
    for distribution in ("bbrgym", "ns3", "gymnasium", "numpy", "torch", "stable-baselines3", "cma"):
        try:
            tags[distribution] = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    commit = _git("rev-parse", "HEAD")
    if commit:
        tags["git.commit"] = commit
        modified = _git("status", "--porcelain", "--untracked-files=no", "--", ":/", ":(exclude,top)docs")
        tags["git.dirty"] = str(bool(modified)).lower()
    return tags


def command_line() -> str | None:
    """Return this process's command line if it is a `bbrgym` command."""
    for index, argument in enumerate(sys.orig_argv):
        if Path(argument).name == "bbrgym":
            return shlex.join(["bbrgym", *sys.orig_argv[index + 1 :]])
    return None


def run_name(config: Mapping[str, Any], agent: str, seeds: Sequence[int]) -> str:
    """Return the name of a training or an evaluation, which begins with what tells it from others.

    In its configuration, `composition` has the choices and overrides of a command. `agent` is the learning algorithm.
    """
    composition = config.get("composition") or {}
    own = str(config.get("name") or "")
    parts = [agent]
    if own not in ("", agent, "evaluation"):  # the defaults say nothing more
        parts.insert(0, own)
    if composition:
        parts.append(composition["choices"]["scenario"])
    parts.append(f"seed{'s' if len(seeds) > 1 else ''} {' '.join(map(str, seeds))}")
    said = ("name", "agent", "agent_path", "scenario", "seed", "seeds", "output_dir", "tracking")
    others = [one for one in composition.get("overrides") or () if one.partition("=")[0] not in said]
    return " ".join(parts) + (f" ({short_overrides(others)})" if others else "")


def short_overrides(overrides: Sequence[str], most: int = 40) -> str:
    """Return overrides without the groups of their keys, as many as a list of runs has room for.

    `agent.gamma=0.9 engine=native` is `gamma=0.9 engine=native`.
    """
    text = ""
    for override in overrides:
        key, equals, value = override.partition("=")
        short = f"{key.rpartition('.')[2]}{equals}{value}"
        if text and len(text) + len(short) > most:
            return f"{text} …"
        text = f"{text} {short}".strip()
    return text


def _git(*arguments: str) -> str | None:
    """Return what git prints in the checkout that this file belongs to; None if it belongs to none."""
    here = Path(__file__).resolve()  # in a checkout the package is reached through a link
    if arguments[0] != "ls-files" and _git("ls-files", "--error-unmatch", here.name) is None:
        return None  # installed in an environment inside another project's checkout
    try:
        with announcing("git"):
            asked = subprocess.run(
                ["git", "-C", str(here.parent), *arguments],
                capture_output=True,
                text=True,
                timeout=10,
                check=True,
                stdin=subprocess.DEVNULL,
            )
    except (OSError, subprocess.SubprocessError):
        return None
    return asked.stdout.strip()
