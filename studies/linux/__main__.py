"""Compare simulations with this machine's kernel: `python -m studies.linux [--measure] [--write FILE]`.

The runs of Linux are kept in studies/linux; everything else is simulated anew. `--measure` measures the missing runs
first, one at a time, and repeats late ones: use it on a machine that is otherwise idle. It needs root, or user
namespaces. It can be stopped, and resumes where it stopped.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from bbrgym import EngineError
from bbrgym.interruption import SAME_COMMAND, run_interruptible
from studies.linux.cases import all_cases
from studies.linux.report import write_report
from studies.linux.runs import load_runs, measure_linux


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is missing with --measure; write the page with --write."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument(
        "--measure", action="store_true", help="measure the missing runs of Linux, and repeat late ones"
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="page to write")
    chosen = parser.parse_args(arguments)
    console = Console(stderr=True)
    if chosen.measure:
        try:
            measure_linux(all_cases(), console)
        except EngineError as error:
            console.print(f"Linux was not measured: {error}", soft_wrap=True, markup=False)
            return 1
    if chosen.write is not None:
        write_report(load_runs(), chosen.write, console)
        print(f"Page: {chosen.write}")
    return 0


if __name__ == "__main__":
    sys.exit(run_interruptible("linux", main, SAME_COMMAND))
