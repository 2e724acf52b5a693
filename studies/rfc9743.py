"""Judge every algorithm by the criteria of RFC 9743: `python -m studies.rfc9743 [key=value …]`.

Runs conf/experiment/rfc9743.yaml as a benchmark, in runs/benchmark/rfc9743/all. Finished runs are kept, and those of
`bbrgym benchmark experiment=rfc9743` are used.

    write=docs/results/rfc9743.md     write the page
    benchmark.competitors=[bbr,bbr3]  these algorithms alone
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from bbrgym.benchmark.results import BenchmarkResult
from bbrgym.benchmark.run import run_benchmark
from bbrgym.benchmark.verdicts import NOT_RUN, Verdicts, page_blocks, print_verdicts
from bbrgym.cli import BENCHMARKS
from studies import page
from studies.command import check_failures, run_command, split_settings
from studies.experiments import compose_experiment

MARK: Final = "studies/rfc9743.py"
# The last one is a paper's program, not its algorithm.
COMPETITORS: Final = "benchmark.competitors=[all - stock - bbr-acd-ns3-published]"


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit status."""
    return run_command("rfc9743", __doc__, _run, arguments)


def _run(arguments: Sequence[str], console: Console) -> None:
    own, others = split_settings(arguments, {"write": None})
    config = compose_experiment("rfc9743", ["competitor=all", COMPETITORS, *others])
    result = run_benchmark(
        config["benchmark"],
        BENCHMARKS / config["benchmark"]["name"],
        console,
        beside=BENCHMARKS,
        command=shlex.join(["python", "-m", "studies.rfc9743", *arguments]),
        has_report=False,
    )
    print_verdicts(Verdicts.of(result), console)
    if own["write"] is not None:
        write_verdicts_page(result, Path(own["write"]))
        print(f"Page: {own['write']}")
    check_failures(len(result.failures))


def write_verdicts_page(result: BenchmarkResult, path: Path) -> None:
    """Write the block of the page: a benchmark with the criteria of RFC 9743, finished or not."""
    runs = result.plan["runs"]
    lost = [f"**Unfinished: {len(result.missing)} of {len(runs)} runs are missing.**"] if result.missing else []
    lost += [f"**{len(result.failures)} of {len(runs)} runs failed.**"] if result.failures else []
    verdicts = Verdicts.of(result)
    absent = [
        page.cell(suite.title)
        for name, suite in verdicts.suites.items()
        if any(verdicts.verdict(name, competitor) == NOT_RUN for competitor in verdicts.competitors)
    ]
    lost += [f"**Not run as a whole yet: {', '.join(absent)}.**"] if absent else []
    command = f"`{result.plan['provenance']['command']}`"
    page.write_block(path, MARK, "\n\n".join([command, *page.provenance([result.plan]), *lost, *page_blocks(verdicts)]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
