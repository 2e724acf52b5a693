"""Judge every algorithm by the criteria of RFC 9743: `python -m studies.rfc9743 [key=value …]`.

Runs conf/experiment/rfc9743.yaml as a benchmark, in runs/benchmark/rfc9743/all. Finished runs are kept, and those of
`bbrgym benchmark experiment=rfc9743` are used.

    write=docs/results/rfc9743.md     write the page
    benchmark.competitors=[bbr,bbr3]  these algorithms alone
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from rich.console import Console

from bbrgym.benchmark.results import BenchmarkResult
from bbrgym.benchmark.run import run_benchmark
from bbrgym.benchmark.statistics import number_text
from bbrgym.benchmark.verdicts import MEANING, NOT_RUN, NOT_TESTED, WORST_FIRST, Verdicts, print_verdicts, short
from bbrgym.cli import BENCHMARKS
from studies import page
from studies.command import check_failures, run_command, split_settings
from studies.experiments import compose_experiment

MARK: Final = "studies/rfc9743.py"
COMPETITORS: Final = "benchmark.competitors=[all - stock]"


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
    lost = []
    if result.missing:
        lost.append(f"**Unfinished: {len(result.missing)} of {len(runs)} runs are missing.**")
    if result.failures:
        lost.append(f"**{len(result.failures)} of {len(runs)} runs failed.**")
    command = f"`{result.plan['provenance']['command']}`"
    blocks = [command, *page.provenance([result.plan]), *lost, *verdict_blocks(Verdicts.of(result))]
    page.write_block(path, MARK, "\n\n".join(blocks))


def verdict_blocks(verdicts: Verdicts) -> list[str]:
    """Return the verdicts by criterion and competitor, and the worst scenario of each that fails."""
    config, competitors = verdicts.result.plan["config"], verdicts.competitors
    rows = []
    counts = {verdict: [0] * len(competitors) for verdict in (*WORST_FIRST, NOT_TESTED, NOT_RUN)}
    for name, suite in verdicts.suites.items():
        found = [verdicts.verdict(name, competitor) for competitor in competitors]
        rows.append([suite.section, page.cell(suite.title), *(f"**{v}**" if v == "fail" else v for v in found)])
        for place, verdict in enumerate(found):
            counts[verdict][place] += 1
    rows += [["", verdict, *map(str, of_verdict)] for verdict, of_verdict in counts.items() if any(of_verdict)]
    return [
        f"Engine {config['engine']['name']}, {len(config['seeds'])} seeds; the first {100 * config['warmup']:g} % of "
        f"each run are not measured. {MEANING}",
        page.table(["section", "criterion", *map(page.cell, competitors)], rows),
        "## Failures",
        "The mean in the scenario that is furthest from what is needed:",
        page.table(["section", "criterion", "figure", "needed", "measured"], _failures(verdicts)),
    ]


def _failures(verdicts: Verdicts) -> Iterator[list[str]]:
    for name, suite in verdicts.suites.items():
        for criterion in suite.criteria:
            failed = [one for one in verdicts.judgements if (one.suite, one.criterion) == (name, criterion)]
            failed = [one for one in failed if one.verdict == "fail"]
            measured = []
            for competitor in verdicts.competitors:
                of_competitor = [one for one in failed if one.competitor == competitor]
                if of_competitor:
                    worst = max(of_competitor, key=lambda one: one.excess)
                    value = number_text(worst.measured.value, criterion.form, criterion.thresholds)
                    measured.append(page.cell(f"{competitor} {value} ({short(worst.scenario)})"))
            if measured:
                what = [suite.section, page.cell(suite.title), page.cell(criterion.label), page.cell(criterion.needed)]
                yield [*what, ", ".join(measured)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
