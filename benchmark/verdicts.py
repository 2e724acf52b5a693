"""Verdicts on the competitors of a benchmark by the criteria of its suites."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import pandas as pd
from rich.console import Console

from bbrgym.benchmark.plan import Benchmark
from bbrgym.benchmark.results import BenchmarkResult
from bbrgym.benchmark.statistics import Estimate, estimate
from bbrgym.benchmark.suites import DERIVED, Criterion, Suite
from bbrgym.benchmark.tables import print_table, run_table
from bbrgym.envs.scenario import Scenario

Verdict = Literal["fail", "unclear", "pass"]
WORST_FIRST: Final[tuple[Verdict, ...]] = ("fail", "unclear", "pass")
NOT_TESTED: Final = "not tested"
NOT_RUN: Final = "not run"
MEANING: Final = (
    "A criterion passes in a scenario if the whole 95 % bootstrap interval of the mean over the seeds keeps the "
    "threshold, fails if none of it does, and is unclear otherwise, or if a run has no value. A suite has the verdict "
    "of its worst scenario. Where scenarios are pooled, there is one mean, over the scenarios."
)


def judge(measured: Estimate, at_least: float | None = None, at_most: float | None = None) -> Verdict:
    """Return whether the whole interval is between the thresholds (pass), none of it (fail), or a part (unclear).

    If there is no interval, because all runs are equal, the value is judged.
    """
    low, high = (measured.value, measured.value) if math.isnan(measured.low) else (measured.low, measured.high)
    least = -math.inf if at_least is None else at_least
    most = math.inf if at_most is None else at_most
    if least <= low and high <= most:
        return "pass"
    return "fail" if high < least or low > most else "unclear"


@dataclass(frozen=True)
class Judgement:
    """What a criterion says of a competitor in a scenario.

    Attributes:
        suite: name of the suite.
        scenario: name of the scenario in the benchmark; `<suite>/all` if they are pooled.
        criterion: what must hold.
        competitor: name of the competitor.
        measured: the mean over the seeds.
        verdict: of this criterion, competitor and scenario.
    """

    suite: str
    scenario: str
    criterion: Criterion
    competitor: str
    measured: Estimate
    verdict: Verdict

    @property
    def text(self) -> str:
        """The mean and its interval, with digits that show on which side of the thresholds they are."""
        return self.measured.text(self.criterion.form, self.criterion.thresholds)

    @property
    def excess(self) -> float:
        """How far the mean is beyond the threshold, below 0 if it keeps it; infinity without a mean."""
        value, least, most = self.measured.value, self.criterion.at_least, self.criterion.at_most
        gaps = []
        if least is not None:
            gaps.append(least - value)
        if most is not None:
            gaps.append(value - most)
        return math.inf if math.isnan(value) else max(gaps)


@dataclass(frozen=True)
class Verdicts:
    """The verdicts of a benchmark with suites.

    Attributes:
        result: its finished runs.
        suites: the suites by name.
        competitors: who is judged.
        judgements: one per suite, criterion, scenario and competitor that has runs, in this order.
    """

    result: BenchmarkResult
    suites: dict[str, Suite]
    competitors: tuple[str, ...]
    judgements: tuple[Judgement, ...]

    @classmethod
    def of(cls, result: BenchmarkResult) -> Verdicts:
        """Judge the finished runs of a benchmark."""
        config = result.plan["config"]
        suites = {name: Suite.from_dict(name, plain)[0] for name, plain in config.get("suites", {}).items()}
        competitors = tuple(str(entry["name"]) for entry in config["competitors"])
        scenarios = {name: Scenario.from_dict(plain) for name, plain in config["scenarios"].items()}
        found = () if result.results.empty else tuple(_judged(result.results, suites, scenarios, competitors))
        return cls(result, suites, competitors, found)

    @classmethod
    def of_runs(cls, benchmark: Benchmark, measured: Mapping[str, Mapping[str, Any]]) -> Verdicts:
        """Judge the runs of a benchmark that are in no folder.

        Args:
            benchmark: what was run.
            measured: by a run's key: its `trace_hash` and `rows`; other runs, and those without rows, are missing.
        """
        rows = [
            {**run.names(), "trace_hash": measured[run.key]["trace_hash"], **row}
            for run in benchmark.runs()
            if "rows" in measured.get(run.key, {})
            for row in measured[run.key]["rows"]
        ]
        frame = pd.DataFrame(rows) if rows else pd.DataFrame(columns=["scenario", "competitor", "seed", "key"])
        frame = frame.apply(lambda column: column.astype(float) if column.isna().any() else column)
        return cls.of(
            BenchmarkResult(frame, failures=[], missing=[], directory=Path(), plan={"config": benchmark.to_dict()})
        )

    def verdict(self, suite: str, competitor: str) -> str:
        """Return the verdict of the worst scenario, or that the suite was not tested or not run as a whole."""
        if self.suites[suite].needs is not None:
            return NOT_TESTED
        found = [one for one in self.judgements if (one.suite, one.competitor) == (suite, competitor)]
        worst = next((verdict for verdict in WORST_FIRST if any(one.verdict == verdict for one in found)), NOT_RUN)
        scenarios = 1 if self.suites[suite].is_pooled else len(self.suites[suite].scenarios)
        # What did not run can only make it worse.
        return worst if worst == "fail" or len({one.scenario for one in found}) == scenarios else NOT_RUN

    def counts(self, competitor: str) -> str:
        """Return `5 pass, 3 fail, 1 unclear, 2 not tested`."""
        counts = Counter(self.verdict(suite, competitor) for suite in self.suites)
        order = ("pass", "fail", "unclear", NOT_TESTED, NOT_RUN)
        return ", ".join(f"{counts[verdict]} {verdict}" for verdict in order if counts[verdict])


def _judged(
    results: pd.DataFrame, suites: dict[str, Suite], scenarios: dict[str, Scenario], competitors: Sequence[str]
) -> Iterator[Judgement]:
    """Yield every judgement that has runs."""
    traces = results.groupby(["scenario", "competitor"])["trace_hash"].nunique().to_dict()
    for name, suite in suites.items():
        flows = results[results["scenario"].isin(suite.scenarios)]
        runs = run_table(flows) if not flows.empty else flows
        groups = {f"{name}/all": suite.scenarios} if suite.is_pooled else {one: (one,) for one in suite.scenarios}
        for criterion in suite.criteria if not flows.empty else ():
            values = values_of_runs(criterion.metric, flows, runs, scenarios).unstack("seed")
            for label, group in groups.items():
                for competitor in competitors:
                    if not any((scenario, competitor) in values.index for scenario in group):
                        continue
                    own = _of(competitor, group, values)
                    if criterion.than is not None:
                        own = _over(own, _of(criterion.than, group, values))
                    known = own.mean(axis=1, skipna=False) if suite.is_pooled else own.iloc[0]
                    is_sample = suite.is_pooled or any(
                        traces.get((group[0], who), 0) > 1 for who in (competitor, criterion.than)
                    )
                    measured = estimate(known, is_sample=is_sample)
                    verdict = judge(measured, criterion.at_least, criterion.at_most)
                    yield Judgement(
                        suite=name,
                        scenario=label,
                        criterion=criterion,
                        competitor=competitor,
                        measured=measured,
                        verdict="unclear" if known.isna().any() else verdict,
                    )


def _of(competitor: str, group: Sequence[str], values: pd.DataFrame) -> pd.DataFrame:
    """Return the values of a competitor, index scenario, columns seeds; NaN where there are none."""
    return values.reindex([(scenario, competitor) for scenario in group]).droplevel("competitor")


def values_of_runs(metric: str, flows: pd.DataFrame, runs: pd.DataFrame, scenarios: dict[str, Scenario]) -> pd.Series:
    """Return a metric or one of `DERIVED` of every run, index (scenario, competitor, seed)."""
    if metric not in DERIVED:
        return runs.reindex(columns=[metric])[metric]
    names = ["scenario", "competitor", "seed"]
    measured = {
        key: DERIVED[metric].measure(of_run.to_dict("records"), scenarios[str(key[0])])
        for key, of_run in flows.groupby(names, sort=False)
    }
    return pd.Series(measured.values(), index=pd.MultiIndex.from_tuples(measured, names=names), dtype=np.float64)


def _over(own: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """Return the quotients: 1 if both are 0, NaN if only the other is."""
    return (own / other).mask((own == 0) & (other == 0), 1.0).replace(math.inf, math.nan)


def print_verdicts(verdicts: Verdicts, console: Console) -> None:
    """Print one line per suite, one column per competitor, and what did not pass of a single competitor."""
    rows = [
        [suite.section, suite.title, *(verdicts.verdict(name, one) for one in verdicts.competitors)]
        for name, suite in verdicts.suites.items()
    ]
    print_table(console, ("section", "criterion", *verdicts.competitors), rows)
    if len(verdicts.competitors) == 1:
        for one in verdicts.judgements:
            if one.verdict != "pass":
                text = f"{one.verdict}: {one.scenario}: {one.criterion.label} {one.text}, needed {one.criterion.needed}"
                console.print(text, markup=False, highlight=False)
    for competitor in verdicts.competitors:
        console.print(f"{competitor}: {verdicts.counts(competitor)}", markup=False, highlight=False)


def roles_text(suite: Suite) -> str:
    """Return which flows the competitor drives."""
    if suite.roles is None:
        return "The competitor drives all flows."
    flows = ", ".join(map(str, suite.roles))
    return f"The competitor drives flow{'s' if len(suite.roles) > 1 else ''} {flows}."


def scenario_text(scenario: Scenario, suite: Suite) -> str:
    """Return what is run: the link, and equal flows counted, with the algorithms that are not the competitor's."""
    counts: Counter[str] = Counter()
    for index, flow in enumerate(scenario.flows):
        is_taken = suite.roles is None or index in suite.roles
        counts[flow.describe() if is_taken else f"{flow.algorithm}: {flow.describe()}"] += 1
    flows = "; ".join(f"{count} x {text}" if count > 1 else text for text, count in counts.items())
    return f"{scenario.describe_link()}, {scenario.duration_s:g} s; {flows}"


def short(scenario: str) -> str:
    """Return the name that a scenario has in its suite."""
    return scenario.partition("/")[2] or scenario
