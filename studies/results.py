"""Make every page of docs/results that is not of this code yet: `make results`, or `python -m studies.results`.

A page is of this code if it states the same hash: of the code of native and ns-3 (`bbrgym.benchmark.code`) and of the
shipped policy. Pages that take long come last. The studies keep
their finished runs, so after an interrupt the same command goes on where it stopped. A study that fails does not keep
the others from running.

    --list           print what is left and how long it takes, and run nothing
    --only NAME …    these pages alone, even if they are of this code
"""

from __future__ import annotations

import subprocess
import sys
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from bbrgym.agents.policy import load_agent
from bbrgym.baselines.policy_file import REFERENCE
from bbrgym.benchmark.code import code_hash
from bbrgym.interruption import SAME_COMMAND, run_interruptible
from studies.page import duration, write_block

FOLDER: Final = Path("docs/results")
MARK: Final = "studies/results.py"


@dataclass(frozen=True)
class Page:
    """A page of docs/results.

    Attributes:
        minutes: about how long it takes on two cores from nothing.
        commands: arguments of `python -m`; the last one writes the page.
    """

    minutes: float
    commands: tuple[str, ...]


PAGES: Final[dict[str, Page]] = {}


def current_hash() -> str:
    """Return what identifies the code and the policy that pages are made with."""
    return code_hash("native", "ns3", also=load_agent(REFERENCE).content_hash)


def left(only: Sequence[str], code: str) -> dict[str, float]:
    """Return about how many seconds each page takes that does not state this hash, the shortest first."""
    names = only or [name for name in PAGES if f"`{code}`" not in (FOLDER / f"{name}.md").read_text("utf-8")]
    return {name: 60 * PAGES[name].minutes for name in sorted(names, key=lambda name: PAGES[name].minutes)}


def stamp(name: str, code: str, seconds: float) -> None:
    """Let a page state what it was made with."""
    write_block(
        FOLDER / f"{name}.md",
        MARK,
        f"Made by `make results` in {duration(seconds)}; the hash of the code and the policy is `{code}`.",
    )


def make(name: str) -> bool:
    """Run the commands of a page, and return whether all succeeded."""
    return all(
        subprocess.run([sys.executable, "-m", *command.split()], check=False).returncode == 0
        for command in PAGES[name].commands
    )


def main() -> int:
    """Make the pages that are left; return 1 if one failed."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--only", nargs="+", choices=list(PAGES), default=[], metavar="NAME")
    options = parser.parse_args()
    console = Console(stderr=True)
    code = current_hash()
    waiting, failed = left(options.only, code), []
    while waiting:
        console.print(f"{code}: {duration(sum(waiting.values()))} left")
        for name, seconds in waiting.items():
            console.print(f"    {name:<12} about {duration(seconds)}")
        if options.list:
            return 0
        name = next(iter(waiting))
        del waiting[name]
        console.rule(name)
        began = time.monotonic()
        if make(name):
            stamp(name, code, time.monotonic() - began)
        else:
            failed.append(name)
    if failed:
        console.print(f"failed: {', '.join(failed)}; the same command tries them again")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(run_interruptible("results", main, SAME_COMMAND))
