"""The judge of all claims: verdicts by runs, and those on a benchmark's competitors by the criteria of its suites."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from rich.console import Console

from bbrgym.benchmark.claims import Claim
from bbrgym.benchmark.derived_metrics import DERIVED
from bbrgym.benchmark.plan import Benchmark
from bbrgym.benchmark.results import BenchmarkResult
from bbrgym.benchmark.statistics import Estimate, bootstrap_interval, estimate
from bbrgym.benchmark.suites import Suite
from bbrgym.benchmark.tables import Heading, print_table, run_table
from bbrgym.envs.scenario import Scenario

Verdict = Literal["fail", "unclear", "pass"]
WORST_FIRST: Final[tuple[Verdict, ...]] = ("fail", "unclear", "pass")
Array = npt.NDArray[np.float64]
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


RUN: Final = ["scenario", "competitor", "seed"]
"""The index of a table of runs."""


class ClaimRuns:
    """The runs by which claims are judged.

    Args:
        table: index (scenario, competitor, seed); columns metrics, NaN for a run that has no value.
        varied: pairs (scenario, competitor) whose seeds have different traces. Those of others are one run, measured
            several times, so there is no interval.
    """

    def __init__(self, table: pd.DataFrame, varied: Collection[tuple[str, str]]) -> None:
        self._table, self._varied = table, varied
        self._pairs = {(scenario, competitor) for scenario, competitor, _ in table.index}
        self._cells: dict[str, dict[tuple[str, str], Array]] = {}

    @classmethod
    def of(cls, results: pd.DataFrame, metrics: Sequence[str], scenarios: Mapping[str, Scenario]) -> ClaimRuns:
        """Return the runs of a benchmark with some metrics.

        Args:
            results: one row per run and flow, as `BenchmarkResult.results`.
            metrics: names of metrics of `run_table` or of `DERIVED`.
            scenarios: what was run, by name.
        """
        return cls(metrics_of_runs(results, metrics, scenarios), varied_runs(results, "trace_hash"))

    @classmethod
    def of_tables(cls, results: pd.DataFrame) -> ClaimRuns:
        """Return the runs of a benchmark with the metrics of `run_table` alone; `results` may be empty.

        A time to reach something has no value if it is never reached, whereas `DERIVED` has the time to the end.
        """
        if results.empty:
            return cls(pd.DataFrame(index=pd.MultiIndex.from_arrays([[], [], []], names=RUN)), set())
        return cls(run_table(results), varied_runs(results, "trace_hash"))

    def has(self, scenario: str, competitor: str) -> bool:
        """Return whether there are runs of a competitor in a scenario."""
        return (scenario, competitor) in self._pairs

    def is_sample(self, pairs: Sequence[tuple[str, str]]) -> bool:
        """Return whether the seeds of any of these pairs (scenario, competitor) have different traces."""
        return any(pair in self._varied for pair in pairs)

    def cells(self, metric: str) -> Mapping[tuple[str, str], Array]:
        """Return a metric of all seeds by (scenario, competitor): NaN: not run; infinity: the run has no value."""
        if metric not in self._table:
            return {}
        if metric not in self._cells:
            table = self._table[metric].astype(float).fillna(math.inf).unstack("seed")
            self._cells[metric] = dict(zip(table.index, table.to_numpy(np.float64), strict=True))
        return self._cells[metric]


def varied_runs(results: pd.DataFrame, trace: str) -> set[tuple[str, str]]:
    """Return the pairs (scenario, competitor) whose seeds have different traces, which a column of results tells."""
    traces = results.groupby(["scenario", "competitor"])[trace].nunique()
    return {(str(scenario), str(competitor)) for scenario, competitor in traces.index[traces > 1]}


@dataclass(frozen=True)
class Measured:
    """The quantity of a claim.

    Attributes:
        estimate: the quantity of the means over the seeds, and its interval; infinity if a state is never reached
            (`TIMES_TO_REACH`), NaN if nothing was measured.
        runs: how many seeds were run; the estimate is of those that have a value.
        seeds: how many seeds there are.
    """

    estimate: Estimate
    runs: int = 0
    seeds: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether all seeds were run and have a value."""
        return self.estimate.n == self.runs == self.seeds


NOTHING: Final = Measured(Estimate(math.nan, math.nan, math.nan, 0))


@dataclass(frozen=True)
class Finding:
    """What runs say of a claim.

    Attributes:
        claim: the claim.
        measured: its quantity; nothing for an order.
        verdict: whether it holds; None if nothing was measured, or if a value has no other to compare it with.
        pairs: of an order or a value: in how many pairs the measured order is the claimed one, and how many there are.
        values: of an order: what was measured, by competitor; empty if something was not.
    """

    claim: Claim
    measured: Measured
    verdict: Verdict | None
    pairs: tuple[int, int] = (0, 0)
    values: Mapping[str, float] = field(default_factory=dict)


def judge_claims(claims: Sequence[Claim], runs: ClaimRuns) -> list[Finding]:
    """Judge claims by runs: one finding per part of a claim (`Claim.parts`).

    Quantities are computed from means over the seeds: a reduction is 1 - mean / mean, a `min` over scenarios the lowest
    mean; with `than`, it is the mean of the runs' own ratios. Only seeds count that all runs of a quantity have, and in
    which they have a value. The interval comes from resampling these seeds; there is none if the seeds change no trace.
    A time to reach something is infinite if more than half of the runs do not reach it.

    * Bounds: `judge`; unclear if a run is missing, or has no value (unless it is such a time).
    * An order holds if the means of all pairs of its competitors have that order.
    * A value is judged by its order among the values of the other claims about the same quantity: those of other
      competitors, and for a metric of one flow those of the competitor's other flows. Equal claimed values have no
      order.
    """
    parts = [part for claim in claims for part in claim.parts()]
    measured = {part: measure_claim(part, runs) for part in parts if part.competitor is not None}
    findings = []
    for claim in parts:
        if claim.order:
            findings.append(_judge_order(claim, runs))
        elif claim.value is not None:
            findings.append(_judge_value(claim, measured))
        else:
            findings.append(Finding(claim, measured[claim], _judge_bounds(claim, measured[claim])))
    return findings


TIMES_TO_REACH: Final = ("convergence_s", "equilibrium_s")
"""Metrics whose missing value means that the state is never reached."""


def measure_claim(claim: Claim, runs: ClaimRuns) -> Measured:
    """Return the quantity of a claim about a competitor, as `judge_claims` explains."""
    names = [name for name in (claim.competitor, claim.other) if name is not None]
    pairs = [(scenario, name) for name in names for scenario in claim.scenarios]
    cells = runs.cells(claim.metric)
    if not set(pairs) <= cells.keys():
        return NOTHING
    data = np.stack([cells[pair] for pair in pairs], axis=-1)  # (seeds, pairs)
    data = data[~np.isnan(data).any(axis=1)]
    n_runs, n_seeds = len(data), len(cells[pairs[0]])
    if claim.than is not None:
        data = _quotients(*np.split(data, 2, axis=1))
    reached = data[np.isfinite(data).all(axis=1)]
    if claim.metric in TIMES_TO_REACH and claim.quantity == "value" and 2 * len(reached) < n_runs:
        return Measured(Estimate(math.inf, math.nan, math.nan, len(reached)), n_runs, n_seeds)
    if not len(reached):
        return dataclasses.replace(NOTHING, runs=n_runs, seeds=n_seeds)
    value = float(_quantity(claim, reached))
    low, high = bootstrap_interval(
        np.arange(len(reached)) if runs.is_sample(pairs) else [],
        lambda drawn, axis: _quantity(claim, reached[drawn.astype(np.intp)]),
    )
    if math.isnan(value):
        return dataclasses.replace(NOTHING, runs=n_runs, seeds=n_seeds)
    return Measured(Estimate(value, low, high, len(reached)), n_runs, n_seeds)


def measure_pooled(claim: Claim, runs: ClaimRuns) -> Measured:
    """Return the mean over scenarios that are a sample: its interval comes from resampling these, not the seeds."""
    found = [measure_claim(part, runs) for part in dataclasses.replace(claim, over="each").parts()]
    values = [one.estimate.value if one.is_whole else math.nan for one in found]
    return Measured(estimate(values), runs=len(found), seeds=len(found))


def _quotients(own: Array, other: Array) -> Array:
    """Return own over other: 1 if both are 0, infinity (no value) if only the other is, or if one has no value."""
    with np.errstate(divide="ignore", invalid="ignore"):
        quotients: Array = np.where((own == 0) & (other == 0), 1.0, own / other)
    return np.where(np.isfinite(own) & np.isfinite(other), quotients, math.inf)


_REDUCE: Final[dict[str, Callable[..., Array]]] = {"mean": np.mean, "min": np.min, "max": np.max}


def _quantity(claim: Claim, data: Array) -> Array:
    """Return the quantity of runs, shape (…, seeds, scenarios); with `against`, those of the other come after them."""
    means: Array = np.ascontiguousarray(np.moveaxis(data, -2, -1)).mean(axis=-1)
    own = means[..., : len(claim.scenarios)]
    if claim.against is not None:
        others = means[..., len(claim.scenarios) :]
        own = own / np.where(others == 0, math.nan, others)
    if claim.quantity == "reduction":
        own = 1 - own
    return _REDUCE[claim.over](own, axis=-1)


def _judge_bounds(claim: Claim, measured: Measured) -> Verdict | None:
    if math.isnan(measured.estimate.value):
        return None
    is_time = claim.metric in TIMES_TO_REACH
    if not (measured.runs == measured.seeds if is_time else measured.is_whole):
        return "unclear"
    return judge(measured.estimate, claim.at_least, claim.at_most)


def _judge_value(claim: Claim, measured: Mapping[Claim, Measured]) -> Finding:
    own = measured[claim]
    pairs = [
        np.sign(other.estimate.value - own.estimate.value) == np.sign(partner.value - claim.value)
        for partner, other in measured.items()
        if partner.value is not None and claim.value is not None and _is_partner(partner, claim)
        if not math.isnan(other.estimate.value) and not math.isnan(own.estimate.value)
    ]
    return Finding(claim, own, *_of_pairs(pairs))


def _is_partner(other: Claim, claim: Claim) -> bool:
    def kind(one: Claim) -> tuple[object, ...]:
        return one.scenarios, one.over, one.quantity, one.than, one.against

    if kind(other) != kind(claim) or other.value == claim.value:
        return False
    if other.metric == claim.metric:
        return other.competitor != claim.competitor
    is_other_flow = "[" in claim.metric and other.metric.split("[")[0] == claim.metric.split("[")[0]
    return is_other_flow and "[" in other.metric and other.competitor == claim.competitor


def _judge_order(claim: Claim, runs: ClaimRuns) -> Finding:
    values = {
        name: measure_claim(dataclasses.replace(claim, competitor=name, order=()), runs).estimate.value
        for name in claim.order
    }
    if any(math.isnan(value) for value in values.values()):
        return Finding(claim, NOTHING, None)
    pairs = [values[low] < values[high] for place, low in enumerate(claim.order) for high in claim.order[place + 1 :]]
    return Finding(claim, NOTHING, *_of_pairs(pairs), values=values)


def _of_pairs(pairs: Sequence[Any]) -> tuple[Verdict | None, tuple[int, int]]:
    """Return a verdict, and how many of the pairs have the claimed order."""
    agreeing = sum(map(bool, pairs))
    if not pairs:
        return None, (0, 0)
    return "pass" if agreeing == len(pairs) else "fail", (agreeing, len(pairs))


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
    criterion: Claim
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


RunsOf = Callable[[Suite], ClaimRuns | None]
"""Returns the runs of a suite; None if there are none."""


@dataclass(frozen=True)
class Verdicts:
    """The verdicts of a benchmark with suites.

    Attributes:
        result: its finished runs.
        suites: the suites by name.
        competitors: who is judged.
        judgements: one per suite, criterion, scenario and competitor that has runs, in this order.
        errors: {(scenario, competitor): why a run ended}: of runs that the competitor's own code has ended.
    """

    result: BenchmarkResult
    suites: dict[str, Suite]
    competitors: tuple[str, ...]
    judgements: tuple[Judgement, ...]
    errors: Mapping[tuple[str, str], str] = field(default_factory=dict)

    @classmethod
    def of(cls, result: BenchmarkResult) -> Verdicts:
        """Judge the finished runs of a benchmark."""
        scenarios = {name: Scenario.from_dict(plain) for name, plain in result.plan["config"]["scenarios"].items()}

        def runs_of(suite: Suite) -> ClaimRuns | None:
            flows = result.results[result.results["scenario"].isin(suite.scenarios)]
            return None if flows.empty else ClaimRuns.of(flows, suite.metrics, scenarios)

        return cls._judged(result, runs_of)

    @classmethod
    def of_table(cls, benchmark: Benchmark, table: pd.DataFrame, varied: Collection[tuple[str, str]]) -> Verdicts:
        """Judge the runs of a benchmark of which only metrics are known, as `ClaimRuns` takes them."""
        scenarios = table.index.get_level_values("scenario")

        def runs_of(suite: Suite) -> ClaimRuns | None:
            of_suite = table[scenarios.isin(suite.scenarios)]
            return None if of_suite.empty else ClaimRuns(of_suite, varied)

        plan = {"config": benchmark.to_dict()}
        return cls._judged(
            BenchmarkResult(pd.DataFrame(), failures=[], missing=[], directory=Path(), plan=plan), runs_of
        )

    @classmethod
    def _judged(cls, result: BenchmarkResult, runs_of: RunsOf) -> Verdicts:
        config = result.plan["config"]
        suites = {name: Suite.from_dict(name, plain)[0] for name, plain in config.get("suites", {}).items()}
        competitors = tuple(str(entry["name"]) for entry in config["competitors"])
        return cls(result, suites, competitors, tuple(_judged(suites, competitors, runs_of)))

    @classmethod
    def of_runs(cls, benchmark: Benchmark, measured: Mapping[str, Mapping[str, Any]]) -> Verdicts:
        """Judge the runs of a benchmark that are in no folder.

        Args:
            benchmark: what was run.
            measured: by a run's key: its `trace_hash` and `rows`, or the `error` with which the competitor's code ended
                it; other runs are missing.
        """
        rows = [
            {**run.names(), "trace_hash": measured[run.key]["trace_hash"], **row}
            for run in benchmark.runs()
            if "rows" in measured.get(run.key, {})
            for row in measured[run.key]["rows"]
        ]
        frame = pd.DataFrame(rows) if rows else pd.DataFrame(columns=["scenario", "competitor", "seed", "key"])
        frame = frame.apply(lambda column: column.astype(float) if column.isna().any() else column)
        found = cls.of(
            BenchmarkResult(frame, failures=[], missing=[], directory=Path(), plan={"config": benchmark.to_dict()})
        )
        errors = {
            (run.scenario_name, run.competitor): str(measured[run.key]["error"])
            for run in benchmark.runs()
            if "error" in measured.get(run.key, {})
        }
        return dataclasses.replace(found, errors=errors)

    def verdict(self, suite: str, competitor: str) -> str:
        """Return the verdict of the worst scenario, or that the suite was not tested or not run as a whole.

        A competitor whose code ends a run fails.
        """
        if self.suites[suite].needs is not None:
            return NOT_TESTED
        tried = {(scenario, competitor) for scenario in self.suites[suite].scenarios}
        if tried & self.errors.keys():
            return "fail"
        found = [one for one in self.judgements if (one.suite, one.competitor) == (suite, competitor)]
        worst = next((verdict for verdict in WORST_FIRST if any(one.verdict == verdict for one in found)), NOT_RUN)
        scenarios = len({scenario for scenario, _, _ in self.suites[suite].claims(suite)})
        has_failed = any((one.scenario, one.competitor) in tried for one in self.result.failures)
        is_whole = len({one.scenario for one in found}) == scenarios and not has_failed
        # What did not run can only make it worse.
        return worst if worst == "fail" or is_whole else NOT_RUN

    def counts(self, competitor: str) -> str:
        """Return `5 pass, 3 fail, 1 unclear, 2 not tested`."""
        counts = Counter(self.verdict(suite, competitor) for suite in self.suites)
        order = ("pass", "fail", "unclear", NOT_TESTED, NOT_RUN)
        return ", ".join(f"{counts[verdict]} {verdict}" for verdict in order if counts[verdict])


def _judged(suites: Mapping[str, Suite], competitors: Sequence[str], runs_of: RunsOf) -> Iterator[Judgement]:
    """Yield every judgement that has runs."""
    for name, suite in suites.items():
        if (runs := runs_of(suite)) is None:
            continue
        for scenario, criterion, claim in suite.claims(name):
            for competitor in competitors:
                if not any(runs.has(one, competitor) for one in claim.scenarios):
                    continue
                own = dataclasses.replace(claim, competitor=competitor)
                measured = measure_pooled(own, runs) if suite.is_pooled else measure_claim(own, runs)
                yield Judgement(
                    suite=name,
                    scenario=scenario,
                    criterion=criterion,
                    competitor=competitor,
                    measured=measured.estimate,
                    verdict=_judge_bounds(own, measured) or "unclear",
                )


def metrics_of_runs(results: pd.DataFrame, metrics: Sequence[str], scenarios: Mapping[str, Scenario]) -> pd.DataFrame:
    """Return metrics of `run_table` or of `DERIVED` of every run.

    Args:
        results: one row per run and flow, as `BenchmarkResult.results`.
        metrics: their names.
        scenarios: what was run, by name.

    Returns:
        Index (scenario, competitor, seed); columns the metrics, NaN where a run has no value.
    """
    table = run_table(results)
    found = {}
    for metric in metrics:
        if metric in DERIVED:
            measured = {
                key: DERIVED[metric].measure(of_run.to_dict("records"), scenarios[str(key[0])])
                for key, of_run in results.groupby(RUN, sort=False)
            }
            index = pd.MultiIndex.from_tuples(measured, names=RUN)
            found[metric] = pd.Series(measured.values(), index=index, dtype=np.float64)
        else:
            found[metric] = table.reindex(columns=[metric])[metric]
    return pd.DataFrame(found)


def print_verdicts(verdicts: Verdicts, console: Console) -> None:
    """Print one line per suite, one column per competitor, and what did not pass of a single competitor."""
    rows = [
        [suite.section, suite.title, *(verdicts.verdict(name, one) for one in verdicts.competitors)]
        for name, suite in verdicts.suites.items()
    ]
    headings: list[str | Heading] = [
        Heading("section", kind="name"),
        Heading("criterion", kind="words"),
        *verdicts.competitors,
    ]
    print_table(console, headings, rows)
    if len(verdicts.competitors) == 1:
        for one in verdicts.judgements:
            if one.verdict != "pass":
                text = f"{one.verdict}: {one.scenario}: {one.criterion.label} {one.text}, needed {one.criterion.needed}"
                console.print(text, markup=False, highlight=False, soft_wrap=True)
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
