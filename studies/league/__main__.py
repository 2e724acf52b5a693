"""Run the league: `python -m studies.league [key=value …]`.

Compares the learned policy with every algorithm, in suites that are each a benchmark in
runs/benchmark/<name>/<suite>. Finished runs are kept. studies/league/conf/experiment/league.yaml has all settings.

    preset=quick                    three seeds; ns3: a part in ns-3; validation: other draws; the default is full
    write=docs/results/league.md    write the page, with its figures
    league.only=[varying]           these suites alone
    experiment=model                another experiment of studies/league/conf/experiment
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from bbrgym.cli import BENCHMARKS
from studies.command import check_failures, run_command, split_settings
from studies.league.page import print_league_goals, write_league_page
from studies.league.suites import compose_league, load_part, run_league


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit status."""
    return run_command("league", __doc__, _run, arguments)


def _run(arguments: Sequence[str], console: Console) -> None:
    own, others = split_settings(arguments, {"experiment": "league"})
    config = compose_league(others, own["experiment"])
    command = shlex.join(["python", "-m", "studies.league", *arguments])
    league = run_league(config, BENCHMARKS, console, command=command)
    print_league_goals(league, console)
    if config["write"] is not None:
        path = Path(config["write"])
        write_league_page(league, path, part=load_part(BENCHMARKS))
        print(f"Page: {path}")
    check_failures(league.failures)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
