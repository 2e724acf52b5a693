"""Verdicts of the league: on the papers' experiments, and on the harm to other flows."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pandas as pd

from bbrgym.benchmark.metrics import METRICS, Metric, find_metric
from bbrgym.benchmark.results import BenchmarkResult
from bbrgym.benchmark.statistics import Estimate, estimate
from bbrgym.benchmark.suites import FIGURES
from bbrgym.benchmark.tables import run_table
from bbrgym.benchmark.verdicts import values_of_runs
from bbrgym.envs.scenario import Scenario
from studies.league.suites import ALONE, League

MOST_WORSE: Final = 0.02
"""The relative difference from which another metric of an experiment counts as worse."""


# Below a tenth of a percent of the packets, single bursts decide which of two is worse.
_FEW_PACKETS: Final = 0.001
FLOORS: Final = {
    "retransmissions": 10.0,
    "retransmissions_per_s": 1.0,
    "retransmission_rate": _FEW_PACKETS,
    "true_loss": _FEW_PACKETS,
    "inorder_loss": _FEW_PACKETS,
}
"""The smallest difference that counts as worse, of metrics that can be near 0."""


def judged_as(metric: str) -> str | None:
    """Return the metric that stands for a paper's metric in a verdict; None if more is neither good nor bad.

    A throughput ratio is judged by how close it is to 1. The throughput or share of one of several flows is judged by
    the smallest share, since the papers want equal shares.
    """
    if metric == "throughput_ratio":
        return "evenness"
    base = re.sub(r"\[\d+\]$", "", metric)
    if base != metric and base in ("share", "throughput_mbps"):
        return "smallest_share"
    return metric if base in METRICS and METRICS[base].is_more_better is not None else None


def metric_of(metric: str) -> Metric:
    """Return the entry of a metric that `judged_as` gives."""
    found = FIGURES[metric].metric if metric in FIGURES else find_metric(metric)
    assert found is not None
    return found


def estimates(result: BenchmarkResult, metrics: Iterable[str]) -> dict[str, dict[str, Estimate]]:
    """Return {metric: {competitor: mean over all runs}} for metrics that `judged_as` gives.

    Intervals are stratified by scenario; there is none if the seed changes no run.
    """
    runs = run_table(result.results)
    scenarios = {name: Scenario.from_dict(plain) for name, plain in result.plan["config"]["scenarios"].items()}
    traces = result.results.groupby(["scenario", "competitor"])["trace_hash"].nunique().groupby("competitor").max()
    return {
        metric: {
            str(name): estimate(
                own, strata=own.index.get_level_values("scenario").tolist(), is_sample=bool(traces[name] > 1)
            )
            for name, own in values_of_runs(metric, result.results, runs, scenarios).groupby(
                level="competitor", sort=False
            )
        }
        for metric in metrics
    }


def ends(found: Estimate) -> tuple[float, float]:
    """Return the ends of the interval; the value itself if all runs of a scenario are equal."""
    return (found.value, found.value) if math.isnan(found.low) else (found.low, found.high)


@dataclass(frozen=True)
class Worse:
    """A metric in which the learned competitor is worse: its mean, and the other competitor's."""

    metric: str
    own: float
    other: float
    competitor: str


@dataclass(frozen=True)
class Against:
    """How the learned competitor compares with some hand-coded algorithms in a paper's experiment.

    Attributes:
        algorithms: these.
        above: those whose intervals are worse than all of the learned competitor's interval.
        worse: other metrics in which the learned competitor is worse than the best of them.
    """

    algorithms: Sequence[str]
    above: Sequence[str]
    worse: Sequence[Worse]

    @property
    def is_first(self) -> bool:
        """Whether its interval is better than that of every one."""
        return len(self.above) == len(self.algorithms)

    @property
    def is_reached(self) -> bool:
        """Whether it is first and in no other metric worse."""
        return self.is_first and not self.worse


@dataclass(frozen=True)
class PaperVerdict:
    """The verdict on the learned competitor in a paper's experiment.

    Attributes:
        experiment: name of the experiment.
        metric: the paper's main metric, as `judged_as` gives it.
        algorithm: the paper's algorithm.
        estimates: the main metric of every competitor.
        best: the hand-coded algorithm with the best main metric.
        all: against all hand-coded algorithms.
        own: against the paper's algorithm alone.
    """

    experiment: str
    metric: str
    algorithm: str
    estimates: dict[str, Estimate]
    best: str
    all: Against
    own: Against


def paper_verdicts(league: League) -> list[PaperVerdict]:
    """Return one verdict per paper experiment that has runs, in the league's order."""
    own = league.plan.own
    return [_paper_verdict(league, suite) for suite in own if league.has_runs(suite)]


def _paper_verdict(league: League, suite: str) -> PaperVerdict:
    learned = league.plan.learned
    result, own = league.results[suite], league.plan.own[suite]
    metric = judged_as(own.metric)
    if metric is None:
        raise ValueError(f"{suite}: cannot judge the metric {own.metric!r}, of which more is neither good nor bad")
    judged = [name for name in map(judged_as, own.others) if name is not None]
    of_metrics = estimates(result, dict.fromkeys([metric, *judged]))
    of_metric = of_metrics.pop(metric)
    algorithms = [name for name in league.algorithms(suite) if name in of_metric]
    is_more_better = bool(metric_of(metric).is_more_better)
    ours = ends(of_metric[learned])

    def is_above(name: str) -> bool:
        theirs = ends(of_metric[name])
        return ours[0] > theirs[1] if is_more_better else ours[1] < theirs[0]

    def against(names: Sequence[str]) -> Against:
        return Against(names, [name for name in names if is_above(name)], _worse(of_metrics, learned, names))

    return PaperVerdict(
        experiment=suite,
        metric=metric,
        algorithm=own.algorithm,
        estimates=of_metric,
        best=_best(of_metric, algorithms, is_more_better),
        all=against(algorithms),
        own=against([own.algorithm]),
    )


def _best(of_metric: dict[str, Estimate], names: Sequence[str], is_more_better: bool) -> str:
    known = [name for name in names if not math.isnan(of_metric[name].value)] or list(names)
    return (max if is_more_better else min)(known, key=lambda name: of_metric[name].value)


def _worse(others: dict[str, dict[str, Estimate]], learned: str, names: Sequence[str]) -> list[Worse]:
    found = []
    for metric, of_metric in others.items():
        is_more_better = bool(metric_of(metric).is_more_better)
        name = _best(of_metric, names, is_more_better)
        own, other = of_metric[learned].value, of_metric[name].value
        lost = (other - own) if is_more_better else (own - other)
        if lost > max(MOST_WORSE * abs(other), FLOORS.get(metric, 0.0)):
            found.append(Worse(metric, own, other, name))
    return found


HARMS: Final[dict[str, str]] = {
    "throughput": "1 - throughput beside the competitor / throughput alone",
    "delay": "1 - mean RTT alone / mean RTT beside the competitor",
}
"""The columns of `harms`, about the victim."""


def harms(league: League) -> pd.DataFrame:
    """Return the harm that each competitor does to the victims of the suite `friendliness`, in every run.

    Harm (Ware et al., "Beyond Jain's Fairness Index: Setting the Bar For The Deployment of Congestion Control
    Algorithms", HotNets 2019) is the fraction that another flow takes of what a victim has alone, from 0 to 1. The bar
    is the harm that the victim's own kind does. All values compare runs of the same scenario and seed.

    Returns:
        Index (victim, scenario, competitor, seed); columns `HARMS`. Empty if runs are missing.
    """
    names = ["victim", "scenario", "competitor", "seed"]
    if not (league.has_runs("friendliness") and league.has_runs(ALONE)):
        return pd.DataFrame(columns=list(HARMS), index=pd.MultiIndex.from_tuples([], names=names), dtype=float)
    beside = league.results["friendliness"]
    kinds = {name: plain["flows"][1]["algorithm"] for name, plain in beside.plan["config"]["scenarios"].items()}
    runs = run_table(beside.results).reset_index()
    runs["victim"] = runs["scenario"].map(kinds)
    keys = ["scenario", "seed"]
    free = run_table(league.results[ALONE].results).reset_index()[[*keys, "throughput_mbps[0]", "rtt_mean_ms[0]"]]
    runs = runs.merge(free, on=keys, suffixes=("", " alone"))
    table = pd.DataFrame(
        {
            "throughput": 1 - runs["throughput_mbps[1]"] / runs["throughput_mbps[0] alone"],
            "delay": 1 - runs["rtt_mean_ms[0] alone"] / runs["rtt_mean_ms[1]"],
        }
    )
    return table.set_index(pd.MultiIndex.from_frame(runs[names]))


def harm_verdict(table: pd.DataFrame, victim: str, name: str, other: str) -> tuple[float, float, Estimate]:
    """Return the mean harm of two competitors to a victim's throughput, and their difference, from a table of `harms`.

    The difference is paired by scenario and seed; its interval is stratified by scenario.
    """
    pairs = table.xs(victim, level="victim")["throughput"].unstack("competitor")[[name, other]].dropna()
    strata: list[Any] = pairs.index.get_level_values("scenario").tolist()
    difference = estimate(pairs[name] - pairs[other], strata=strata)
    return float(pairs[name].mean()), float(pairs[other].mean()), difference
