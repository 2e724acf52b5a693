"""What the league says: on the experiments of the papers, and on the harm that is done to others."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from bbrgym.benchmark.results import BenchmarkResult
from bbrgym.benchmark.statistics import bootstrap_interval
from bbrgym.benchmark.tables import run_table
from bbrgym.envs.scenario import Scenario
from studies.league.suites import ALONE, League

MOST_WORSE: Final = 0.02
"""By how much another metric of an experiment can be worse before it counts: a fiftieth."""


@dataclass(frozen=True)
class Aim:
    """What is good in a metric.

    Attributes:
        meaning: what is compared, for a reader.
        is_more_better: whether more of it is better.
        floor: a difference that is not worse whatever it is in relation: of metrics that can be nearly 0.
    """

    meaning: str
    is_more_better: bool
    floor: float = 0.0


# A tenth of a percent of the packets: with less, which of two is worse is decided by single bursts.
_FEW_PACKETS: Final = 0.001
_SMALLEST_SHARE: Final = "smallest share"
_EVENNESS: Final = "evenness"

AIMS: Final[dict[str, Aim]] = {
    "throughput_mbps": Aim("payload received, sum of the flows, in Mbit/s", True),
    "application_utilisation": Aim("payload received over what the link can carry", True),
    "link_utilisation": Aim("share of the link that was used", True),
    "arrived_mbps": Aim("payload that arrived, duplicates included, in Mbit/s", True),
    "inorder_goodput_mbps": Aim("payload that arrived in order, in Mbit/s", True),
    "link_jain": Aim("Jain's index", True),
    _SMALLEST_SHARE: Aim("the smallest of the flows' shares over the equal share", True),
    _EVENNESS: Aim("the smaller over the larger of two flows' throughputs", True),
    "link_queue_mean_ms": Aim("mean queueing delay, in ms", False),
    "rtt_mean_ms": Aim("mean RTT, in ms", False),
    "rtt_p95_ms": Aim("95th percentile of the RTT, in ms", False),
    "rtt_peak_ms": Aim("largest mean RTT of a step, in ms", False),
    "retransmissions": Aim("retransmitted packets", False, floor=10.0),
    "retransmissions_per_s": Aim("retransmitted packets a second", False, floor=1.0),
    "retransmission_rate": Aim("retransmitted over sent packets", False, floor=_FEW_PACKETS),
    "true_loss": Aim("packets lost in the network over sent packets", False, floor=_FEW_PACKETS),
    "inorder_loss": Aim("1 - inorder_goodput_mbps / arrived_mbps", False, floor=_FEW_PACKETS),
    "equilibrium_s": Aim(
        "time to equal shares of the two halves of the flows, in s; never is the rest of the run", False
    ),
    "convergence_s": Aim("time to a lasting fair share, in s; never is the rest of the run", False),
}
"""The metrics that can be judged. A sending rate is neither good nor bad."""


def judged_as(metric: str) -> str | None:
    """The aim, of `AIMS`, that a metric of a paper is judged by; None if more of it is neither good nor bad.

    A throughput ratio is judged by how near it is to 1, and the throughput or share of one flow of several by the
    smallest share: what its paper wants is that they are equal.
    """
    if metric == "throughput_ratio":
        return _EVENNESS
    base = re.sub(r"\[\d+\]$", "", metric)
    if base != metric and base in ("share", "throughput_mbps"):
        return _SMALLEST_SHARE
    return metric if base in AIMS else None


def aim_of(metric: str) -> Aim:
    """The aim of a metric that `judged_as` gives."""
    return AIMS[re.sub(r"\[\d+\]$", "", metric)]


def measured(runs: pd.DataFrame, metric: str, scenarios: Mapping[str, Scenario]) -> pd.Series:
    """A metric that `judged_as` gives, of every run.

    Args:
        runs: of `bbrgym.benchmark.tables.run_table`.
        metric: its name.
        scenarios: those of the runs.

    Returns:
        Index (scenario, competitor, seed).
    """
    if metric == _EVENNESS:
        ratio = runs["throughput_ratio"]
        return ratio.where(ratio <= 1, 1 / ratio)
    if metric == _SMALLEST_SHARE:
        shares = runs[[column for column in runs if re.fullmatch(r"share\[\d+\]", str(column))]]
        return shares.min(axis=1) * shares.notna().sum(axis=1)
    values = runs[metric]
    if metric in ("equilibrium_s", "convergence_s"):
        rest = {name: _rest_s(scenario, metric) for name, scenario in scenarios.items()}
        values = values.fillna(pd.Series(values.index.get_level_values("scenario").map(rest), index=values.index))
    return values


def _rest_s(scenario: Scenario, metric: str) -> float:
    """From where a time to something is counted to the end of the run."""
    starts = [flow.start_s for flow in scenario.flows]
    origin_s = max(starts) if metric == "convergence_s" else min(starts[len(starts) // 2 :])
    return scenario.duration_s - origin_s


@dataclass(frozen=True)
class Estimate:
    """A mean over the runs of an experiment and its 95 % bootstrap interval, stratified by scenario.

    Without an interval, for every run of a scenario is the same with each seed, the ends are NaN.
    """

    mean: float
    low: float
    high: float

    @property
    def ends(self) -> tuple[float, float]:
        """Of the interval; the mean itself where there is none."""
        return (self.mean, self.mean) if math.isnan(self.low) else (self.low, self.high)


def estimates(result: BenchmarkResult, metrics: Iterable[str]) -> dict[str, dict[str, Estimate]]:
    """Metrics that `judged_as` gives, of every competitor over all runs of an experiment."""
    runs = run_table(result.results)
    scenarios = {name: Scenario.from_dict(plain) for name, plain in result.plan["config"]["scenarios"].items()}
    traces = result.results.groupby(["scenario", "competitor"])["trace_hash"].nunique().groupby("competitor").max()
    return {
        metric: {
            str(name): _estimate(own.dropna(), traces[name] > 1)
            for name, own in measured(runs, metric, scenarios).groupby(level="competitor", sort=False)
        }
        for metric in metrics
    }


def _estimate(values: pd.Series, is_sample: bool) -> Estimate:
    if values.empty:
        return Estimate(math.nan, math.nan, math.nan)
    strata = values.index.get_level_values("scenario").tolist()
    low, high = bootstrap_interval(values, np.mean, strata=strata) if is_sample else (math.nan, math.nan)
    return Estimate(float(values.mean()), low, high)


@dataclass(frozen=True)
class Worse:
    """A metric in which the learned competitor is worse than it may be: its mean, and that of the other."""

    metric: str
    own: float
    other: float
    competitor: str


@dataclass(frozen=True)
class PaperVerdict:
    """The learned competitor in a paper's experiment.

    Attributes:
        experiment: its name.
        metric: the paper's own, as `judged_as` has it.
        algorithm: the paper's own.
        estimates: the own metric of every competitor.
        best: the best hand-coded algorithm in it.
        above: the hand-coded algorithms that the learned one's interval lies wholly on the better side of.
        algorithms: all of them.
        worse_than_best: the experiment's other metrics in which it is worse than the best hand-coded algorithm.
        worse_than_own: those in which it is worse than the paper's algorithm.
    """

    experiment: str
    metric: str
    algorithm: str
    estimates: dict[str, Estimate]
    best: str
    above: Sequence[str]
    algorithms: Sequence[str]
    worse_than_best: Sequence[Worse]
    worse_than_own: Sequence[Worse]

    @property
    def is_first(self) -> bool:
        """Whether the learned one's interval lies above every hand-coded algorithm's."""
        return len(self.above) == len(self.algorithms)

    @property
    def is_reached(self) -> bool:
        """Whether, besides, no other metric of the experiment is worse than any hand-coded algorithm's."""
        return self.is_first and not self.worse_than_best

    @property
    def is_reached_against_own(self) -> bool:
        """The same of the paper's own algorithm alone."""
        return self.algorithm in self.above and not self.worse_than_own


def paper_verdicts(league: League) -> list[PaperVerdict]:
    """A verdict an experiment of a paper that has runs, in the league's order."""
    return [
        _paper_verdict(league, suite)
        for suite in league.plan.own
        if suite in league.results and not league.results[suite].results.empty
    ]


def _paper_verdict(league: League, suite: str) -> PaperVerdict:
    result, own = league.results[suite], league.plan.own[suite]
    metric = judged_as(own.metric)
    if metric is None:
        raise ValueError(f"{suite} has the metric {own.metric!r}, which cannot be judged; known: {', '.join(AIMS)}")
    learned = league.plan.learned
    judged = [name for name in map(judged_as, own.others) if name is not None]
    of_metrics = estimates(result, dict.fromkeys([metric, *judged]))
    of_metric = of_metrics.pop(metric)
    algorithms = [name for name in league.algorithms(suite) if name in of_metric]
    is_more_better = aim_of(metric).is_more_better
    ours = of_metric[learned].ends

    def is_above(name: str) -> bool:
        theirs = of_metric[name].ends
        return ours[0] > theirs[1] if is_more_better else ours[1] < theirs[0]

    best = _best(of_metric, algorithms, is_more_better)
    return PaperVerdict(
        experiment=suite,
        metric=metric,
        algorithm=own.algorithm,
        estimates=of_metric,
        best=best,
        above=[name for name in algorithms if is_above(name)],
        algorithms=algorithms,
        worse_than_best=_worse(of_metrics, learned, lambda found, aim: _best(found, algorithms, aim.is_more_better)),
        worse_than_own=_worse(of_metrics, learned, lambda found, aim: own.algorithm),
    )


def _best(of_metric: dict[str, Estimate], names: Sequence[str], is_more_better: bool) -> str:
    known = [name for name in names if not math.isnan(of_metric[name].mean)] or list(names)
    return (max if is_more_better else min)(known, key=lambda name: of_metric[name].mean)


def _worse(
    others: dict[str, dict[str, Estimate]], learned: str, reference: Callable[[dict[str, Estimate], Aim], str]
) -> list[Worse]:
    found = []
    for metric, of_metric in others.items():
        aim = aim_of(metric)
        name = reference(of_metric, aim)
        own, other = of_metric[learned].mean, of_metric[name].mean
        lost = (other - own) if aim.is_more_better else (own - other)
        if lost > max(MOST_WORSE * abs(other), aim.floor):
            found.append(Worse(metric, own, other, name))
    return found


HARMS: Final[dict[str, str]] = {
    "throughput": "1 - throughput beside the competitor / throughput alone",
    "throughput_of_own": "1 - throughput beside the competitor / throughput beside a flow of the victim's own kind",
    "delay": "1 - mean RTT alone / mean RTT beside the competitor",
    "delay_of_own": "1 - mean RTT beside a flow of the victim's own kind / mean RTT beside the competitor",
    "share": "throughput of the competitor over that of the two flows",
}
"""The columns of `harms`, all of the victim but the last."""


def harms(league: League) -> pd.DataFrame:
    """The harm that each competitor does to the victims of the suite `friendliness`, in every run.

    Harm is that of Ware et al., "Beyond Jain's Fairness Index: Setting the Bar For The Deployment of Congestion Control
    Algorithms", HotNets 2019: of what a victim has alone, the part that another flow takes; 0 is none, 1 is all. What
    the victim's own kind does to it is the bar: with respect to a flow of its own kind, harm is 0 for what it does to
    itself, and below 0 is less. All are of the same scenario and seed.

    Returns:
        Index (victim, scenario, competitor, seed); columns `HARMS`. Empty if the runs are not there.
    """
    beside, alone = league.results.get("friendliness"), league.results.get(ALONE)
    names = ["victim", "scenario", "competitor", "seed"]
    if beside is None or alone is None or beside.results.empty or alone.results.empty:
        return pd.DataFrame(columns=list(HARMS), index=pd.MultiIndex.from_tuples([], names=names), dtype=np.float64)
    kinds = {name: plain["flows"][1]["algorithm"] for name, plain in beside.plan["config"]["scenarios"].items()}
    runs = run_table(beside.results).reset_index()
    runs["victim"] = runs["scenario"].map(kinds)
    keys = ["scenario", "seed"]
    free = run_table(alone.results).reset_index()[[*keys, "throughput_mbps[0]", "rtt_mean_ms[0]"]]
    fair = runs.loc[runs["competitor"] == runs["victim"], [*keys, "throughput_mbps[1]", "rtt_mean_ms[1]"]]
    runs = runs.merge(free, on=keys, suffixes=("", " alone")).merge(fair, on=keys, how="left", suffixes=("", " of own"))
    throughput, rtt_ms = runs["throughput_mbps[1]"], runs["rtt_mean_ms[1]"]
    table = pd.DataFrame(
        {
            "throughput": 1 - throughput / runs["throughput_mbps[0] alone"],
            "throughput_of_own": 1 - throughput / runs["throughput_mbps[1] of own"],
            "delay": 1 - runs["rtt_mean_ms[0] alone"] / rtt_ms,
            "delay_of_own": 1 - runs["rtt_mean_ms[1] of own"] / rtt_ms,
            "share": runs["share[0]"],
        }
    )
    return table.set_index(pd.MultiIndex.from_frame(runs[names]))


@dataclass(frozen=True)
class HarmVerdict:
    """The learned competitor's mean harm to a victim's throughput less another's, paired by scenario and seed.

    Attributes:
        own: the learned one's mean harm.
        other: the other's.
        low: lower end of the 95 % bootstrap interval of the difference, stratified by scenario.
        high: upper end.
    """

    own: float
    other: float
    low: float
    high: float

    @property
    def is_reached(self) -> bool:
        """Whether it is no greater."""
        return self.own <= self.other

    @property
    def is_certain(self) -> bool:
        """Whether the whole interval says so; of equal runs it does."""
        return self.high <= 0


def harm_verdict(table: pd.DataFrame, victim: str, name: str, other: str) -> HarmVerdict:
    """Compare the harm of two competitors, of `harms`, to one victim."""
    of_victim = table.xs(victim, level="victim")["throughput"].unstack("competitor")
    pairs = of_victim[[name, other]].dropna()
    strata: list[Any] = pairs.index.get_level_values("scenario").tolist()
    low, high = bootstrap_interval(pairs[name] - pairs[other], np.mean, strata=strata)
    return HarmVerdict(float(pairs[name].mean()), float(pairs[other].mean()), low, high)
