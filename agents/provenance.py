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

    That is its own name, then what its sweep varies, then the rest of agent, scenario and seeds.

    In its configuration, `composition` has the choices and overrides of a command, and the keys that its sweep varies.
    `agent` is the learning algorithm.
    """
    composition = config.get("composition") or {}
    facts = {"agent": agent}
    if composition:
        facts["scenario"] = composition["choices"]["scenario"]
    facts["seeds" if "seeds" in config else "seed"] = f"seed{'s' if len(seeds) > 1 else ''} {' '.join(map(str, seeds))}"
    given = {override_key(one): one for one in composition.get("overrides") or ()}
    short = dict(zip(given, _short(list(given.values())), strict=True))
    swept = [key for key in composition.get("swept") or () if key in given and key != "name"]
    parts = {key: facts.get(key, _rounded(short[key])) for key in swept} | facts
    own = str(config.get("name") or "")
    if own not in ("", agent, "evaluation"):  # the defaults say nothing more
        parts = {"name": own} | parts
    said = {*parts, "name", "agent_path", "output_dir", "tracking"}
    others = _as_many_as_fit([text for key, text in short.items() if key not in said])
    return " ".join(parts.values()) + (f" ({others})" if others else "")


def override_key(override: str) -> str:
    """Return the key of an override: `reward.terms.delay` of `+reward.terms.delay=1`."""
    return override.partition("=")[0].lstrip("+~")


def short_overrides(overrides: Sequence[str], most: int = 40) -> str:
    """Return overrides without the groups of their keys, as many as a list of runs has room for.

    `agent.gamma=0.9 engine=native` is `gamma=0.9 engine=native`. Keys that would be the same keep their groups.
    """
    return _as_many_as_fit(_short(overrides), most)


def _short(overrides: Sequence[str]) -> list[str]:
    """Return each override with the last part of its key alone, or with all of it if another one has the same part."""
    keys = [override_key(override) for override in overrides]
    names = [key.rpartition(".")[2] for key in keys]
    return [
        ("~" if override.startswith("~") else "")
        + (key if names.count(name) > 1 else name)
        + "".join(override.partition("=")[1:])
        for override, key, name in zip(overrides, keys, names, strict=True)
    ]


def _as_many_as_fit(texts: Sequence[str], most: int = 40) -> str:
    line = ""
    for text in texts:
        if line and len(line) + len(text) > most:
            return f"{line} …"
        line = f"{line} {text}".strip()
    return line


def _rounded(override: str) -> str:
    """Return a short override with the digits of a number that a list of runs has room for."""
    key, equals, value = override.partition("=")
    try:
        return f"{key}{equals}{float(value):.6g}" if len(value) > 8 else override
    except ValueError:
        return override


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
