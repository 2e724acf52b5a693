"""Judge every algorithm by the criteria of RFC 9743, all scenarios of conf/experiment/rfc9743.yaml."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Final

from bbrgym.benchmark.experiments import compose_experiment
from bbrgym.benchmark.ledger import Rows
from bbrgym.benchmark.plan import Benchmark
from bbrgym.benchmark.statistics import number_text
from bbrgym.benchmark.verdicts import (
    MEANING,
    NOT_RUN,
    NOT_TESTED,
    WORST_FIRST,
    Verdicts,
    short,
    varied_runs,
)
from studies import page
from studies.experiments import SeedRuns, measure_seeds, seed_runs, table_of_runs

OVERRIDES: Final = ("competitor=all", "benchmark.competitors=[all - stock]")

work = measure_seeds


@cache
def benchmark() -> Benchmark:
    """Return the benchmark."""
    return Benchmark.from_dict(compose_experiment("rfc9743", OVERRIDES)["benchmark"])


@cache
def jobs() -> Sequence[SeedRuns]:
    """Return the runs of every algorithm in every scenario; the metrics of its suite's criteria are kept."""
    metrics = {scenario: suite.metrics for suite in benchmark().suites.values() for scenario in suite.scenarios}
    return seed_runs(benchmark(), metrics.__getitem__)


def view(results: Mapping[str, Rows], figure: page.AddFigure) -> Mapping[str, object]:
    """Return the tables of the page."""
    table = table_of_runs(jobs(), results)
    verdicts = Verdicts.of_table(benchmark(), table, varied_runs(table, "trace"))
    return {
        "engine": benchmark().engine["name"],
        "seeds": len(benchmark().seeds),
        "warmup": f"{100 * benchmark().warmup:g}",
        "meaning": MEANING,
        "verdicts": verdict_table(verdicts),
        "failures": failure_table(verdicts),
    }


def verdict_table(verdicts: Verdicts) -> str:
    """Return the verdicts by criterion and competitor, and how many there are of each."""
    competitors = verdicts.competitors
    rows = []
    counts = {verdict: [0] * len(competitors) for verdict in (*WORST_FIRST, NOT_TESTED, NOT_RUN)}
    for name, suite in verdicts.suites.items():
        found = [verdicts.verdict(name, competitor) for competitor in competitors]
        rows.append([suite.section, page.cell(suite.title), *(f"**{v}**" if v == "fail" else v for v in found)])
        for place, verdict in enumerate(found):
            counts[verdict][place] += 1
    rows += [["", verdict, *map(str, of_verdict)] for verdict, of_verdict in counts.items() if any(of_verdict)]
    return page.table(["section", "criterion", *map(page.cell, competitors)], rows)


def failure_table(verdicts: Verdicts) -> str:
    """Return what fails: the mean in the scenario that is furthest from what is needed."""
    return page.table(["section", "criterion", "figure", "needed", "measured"], _failures(verdicts))


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
