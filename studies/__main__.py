"""Measure studies and make their pages: `python -m studies [NAME …] [--measure] [--write]`.

    python -m studies                                  list the studies, and what is left to measure
    python -m studies queues                           print a page from what is kept
    python -m studies queues --measure --write         measure what is left, then write the page
    python -m studies all --measure --write            the same for all, the short ones first
    python -m studies newcomer --measure --only "sac 1"    measure only the jobs whose name contains this text
    python -m studies memory --measure --write --agent runs/train/NAME    of another policy; its page is in runs/studies

Results are kept as they come, so the same command resumes. One that other code has made is kept until it is measured
again. A study that fails does not keep the others from running.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from bbrgym.envs.engine import EngineError
from bbrgym.interruption import SAME_COMMAND
from bbrgym.output import run_program
from studies.page import duration
from studies.study import Study, names


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 1 if a study failed, 2 for a name that does not exist."""
    parser = ArgumentParser("python -m studies", description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a study, or `all`")
    parser.add_argument("--measure", action="store_true", help="first measure what is left")
    parser.add_argument("--only", default="", metavar="TEXT", help="measure only the jobs whose name contains this")
    parser.add_argument(
        "--agent",
        type=Path,
        metavar="FOLDER",
        help="of this agent instead of the shipped policy, if the study is of one",
    )
    parser.add_argument("--write", action="store_true", help="write the page instead of printing it")
    options = parser.parse_args(arguments)
    if options.only and not options.measure:
        parser.error("--only is for --measure: it chooses what is measured")
    if options.agent is not None and options.names in ([], ["all"]):
        parser.error("--agent is for studies that are named")
    try:
        chosen = names() if options.names in ([], ["all"]) else options.names
        studies = [Study(name, agent=options.agent) for name in chosen]
    except (FileNotFoundError, ValueError) as error:
        parser.error(str(error))
    studies.sort(key=lambda study: study.settings.minutes)
    if not options.names:
        for study in studies:
            left, every = len(study.left()), len(study.jobs)
            state = f"{left} of {every} jobs left" if left else "measured"
            print(f"{study.name:<12} {state:<24} {duration(60 * study.settings.minutes)} from nothing")
        return 0
    return max(_make(study, options) for study in studies)


def _make(study: Study, options: Namespace) -> int:
    """Make one study, and return 1 if it failed."""
    console = Console(stderr=True)
    try:
        if options.measure:
            study.measure(console, options.only)
        elif left := len(study.left()):
            console.print(f"{study.name}: {left} of {len(study.jobs)} results are of other code, or missing")
        if options.write:
            study.write()
            console.print(f"{study.name}: wrote {study.page}", markup=False)
        else:
            print(study.render(), end="")
    except (EngineError, ValueError) as error:
        console.print(f"{study.name}: {error}", markup=False, highlight=False)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(run_program("studies", main, SAME_COMMAND))
