"""Run the experiments of the papers and report what agrees: `python -m studies.papers [key=value …]`.

Runs every experiment of conf/experiment/paper and conf/experiment/ablation as a benchmark, in
runs/benchmark/paper-<preset>/<name> and runs/benchmark/ablation-<preset>/<name>. Finished runs are kept.

    preset=full                       durations and repeats of the papers; the default is quick
    only=[acw-jain,ablation/da-bbr]   these experiments alone
    write=docs/results/papers.md      write the page of all results, with its figures
    benchmark.executor.workers=2      runs at a time; like this, any other setting goes to every experiment
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from bbrgym.cli import BENCHMARKS
from studies.command import check_failures, run_command, split_settings
from studies.papers.page import write_page
from studies.papers.run import print_papers, run_papers


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit status."""
    return run_command("papers", __doc__, _run, arguments)


def _run(arguments: Sequence[str], console: Console) -> None:
    own, others = split_settings(arguments, {"only": None, "preset": "quick", "write": None})
    only = [own["only"]] if isinstance(own["only"], str) else own["only"]
    experiments = run_papers(BENCHMARKS, preset=own["preset"], only=only, overrides=others, console=console)
    print_papers(experiments, console)
    if own["write"] is not None:
        write_page(experiments, Path(own["write"]))
        print(f"Page: {own['write']}")
    check_failures(sum(len(experiment.result.failures) for experiment in experiments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
