"""What the runs of a suite score, and how the learned competitor's compare with the others'."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bbrgym.benchmark.results import BenchmarkResult
from bbrgym.benchmark.statistics import Improvement, bootstrap_interval, interquartile_mean, probability_of_improvement
from bbrgym.envs.scenario import HEADER_BYTES, Scenario
from bbrgym.envs.trace import jain_index

SCORE: Final = "fair_power"
"""The score that the league is ranked by."""

SCORES: Final[dict[str, str]] = {
    "fair_power": "jain x utilisation / (1 + delay), in [0, 1]",
    "jain": "Jain's index of the flows' throughputs, each over its fair share",
    "utilisation": "payload received in order over what the link can carry while a flow is active",
    "delay": "mean RTT less the base RTT, over the longest base RTT, mean of the flows",
    "retransmission_rate": "retransmitted over sent packets, mean of the flows",
    "rtt_p95": "95th percentile over the steps of the RTT, over the flow's base RTT, mean of the flows",
    "utility": "mean over the flows of ln(min(1, throughput over fair share)) - delay - loss",
}
"""The columns of `scores`."""

LOWEST_LOG_SHARE: Final = math.log(0.05)
"""As in the reward `log_throughput`: a flow that gets nothing does not outweigh all others."""


def scores(result: BenchmarkResult) -> pd.DataFrame:
    """What each run scores; no higher than it should where all flows run one competitor.

    A flow's fair share is the payload that the link can carry over the number of active flows, in the mean over the
    time in which the flow is active and measured. So flows that come and go, and rates that change, are fair if every
    flow has its share while it is there. Flows must be endless.

    `utility` is the alpha-fair utility with alpha = 1 (Mo and Walrand 2000) with costs of delay and loss. That is the
    form of the reward that agents train with, so it says how well one has learned rather than how good it is;
    `fair_power`, throughput over delay (Kleinrock 1979) times fairness, is not what any competitor was made for.

    Args:
        result: a benchmark, complete or not.

    Returns:
        Index (scenario, competitor, seed); columns `SCORES`.
    """
    config = result.plan["config"]
    rows = result.results
    if rows.empty:
        index = pd.MultiIndex.from_tuples([], names=["scenario", "competitor", "seed"])
        return pd.DataFrame(index=index, columns=list(SCORES), dtype=np.float64)
    scenarios = {name: Scenario.from_dict(plain) for name, plain in config["scenarios"].items()}
    fair = {name: fair_shares(scenario, config["warmup"]) for name, scenario in scenarios.items()}
    records = []
    for group, flows in rows.groupby(["scenario", "competitor", "seed"], sort=False):
        name = str(group[0])
        records.append((*group, *_scores_of_run(flows, scenarios[name], *fair[name])))
    table = pd.DataFrame(records, columns=["scenario", "competitor", "seed", *SCORES])
    return table.set_index(["scenario", "competitor", "seed"])


def fair_shares(scenario: Scenario, warmup: float) -> tuple[npt.NDArray[np.float64], float]:
    """What a scenario lets its flows have in the part that is measured.

    Args:
        scenario: with endless flows.
        warmup: the part of its duration that is not measured.

    Returns:
        The fair share of each flow in Mbit/s of payload, shape (flows,), NaN for one that is not active then; and the
        payload in Mbit that the link can carry while any flow is active.

    Raises:
        ValueError: a flow has an end that depends on how fast it is.
    """
    if any(flow.size_bytes is not None for flow in scenario.flows):
        raise ValueError("a flow has a size_bytes: when it ends depends on how fast it is, so it has no fair share")
    end_s = scenario.duration_s
    spans = [(flow.start_s, end_s if flow.stop_s is None else min(flow.stop_s, end_s)) for flow in scenario.flows]
    measured_s = warmup * end_s
    edges = {measured_s, end_s, *(time for span in spans for time in span), *(t for t, _ in scenario.rate_schedule)}
    times = np.array(sorted(edge for edge in edges if measured_s <= edge <= end_s))
    begins, lengths = times[:-1], np.diff(times)
    changes = np.array([0.0, *(t for t, _ in scenario.rate_schedule)])
    rates = np.array([scenario.rate_mbps, *(rate for _, rate in scenario.rate_schedule)])
    payload = scenario.packet_bytes / (scenario.packet_bytes + HEADER_BYTES)
    capacity = payload * rates[np.searchsorted(changes, begins, side="right") - 1] * lengths
    is_active = np.array([(begins >= start) & (begins < stop) for start, stop in spans])
    active = is_active.sum(axis=0)
    durations = is_active @ lengths
    shares = is_active @ (capacity / np.maximum(active, 1))
    return np.where(durations > 0, shares / np.where(durations > 0, durations, 1.0), np.nan), float(
        capacity[active > 0].sum()
    )


def _scores_of_run(
    flows: pd.DataFrame, scenario: Scenario, fair_mbps: npt.NDArray[np.float64], capacity_mbit: float
) -> list[float]:
    is_there = ~np.isnan(fair_mbps)
    column = {name: flows[name].to_numpy(dtype=np.float64)[is_there] for name in _NEEDED}
    base_ms = np.array([flow.rtt_ms for flow in scenario.flows])
    longest_ms, base_ms = base_ms.max(), base_ms[is_there]
    # A flow that was never active in a step has no throughput: it got nothing.
    share = np.nan_to_num(column["throughput_mbps"]) / fair_mbps[is_there]
    jain = jain_index(share) if share.any() else 0.0
    utilisation = min(1.0, float(flows["received_bytes"].sum()) * 8e-6 / capacity_mbit)
    log_share = np.maximum(np.log(np.clip(share, 1e-9, 1.0)), LOWEST_LOG_SHARE)
    # As packets see it: the time that a queue needs to drain says nothing on a link that all but stops for a while.
    delays = np.maximum((column["rtt_mean_ms"] - base_ms) / longest_ms, 0.0)
    delay = float(np.nanmean(delays)) if not np.isnan(delays).all() else 0.0
    utility = float(np.mean(log_share - np.nan_to_num(delays) - np.nan_to_num(column["loss_rate"])))
    rate = column["retransmission_rate"]
    p95 = column["rtt_p95_ms"] / base_ms
    return [
        jain * utilisation / (1 + delay),
        jain,
        utilisation,
        delay,
        float(np.nanmean(rate)) if not np.isnan(rate).all() else math.nan,
        float(np.nanmean(p95)) if not np.isnan(p95).all() else math.nan,
        utility,
    ]


_NEEDED: Final = ("throughput_mbps", "rtt_mean_ms", "rtt_p95_ms", "loss_rate", "retransmission_rate")


def standings(table: pd.DataFrame) -> pd.DataFrame:
    """The competitors over all runs, the best by `SCORE` first.

    Args:
        table: `scores`, or a part of it.

    Returns:
        Index competitor; columns (score, statistic): of every score the interquartile mean `iqm` over all runs with
        `low` and `high` of its 95 % bootstrap interval, stratified by scenario, and the `mean`.
    """
    groups = table.groupby(level="competitor", sort=False)
    standing = pd.DataFrame(
        [[value for name in SCORES for value in _estimate(frame[name])] for _, frame in groups],
        index=pd.Index([str(competitor) for competitor, _ in groups], name="competitor"),
        columns=pd.MultiIndex.from_product([list(SCORES), ["iqm", "low", "high", "mean"]]),
        dtype=np.float64,
    )
    return standing.iloc[np.argsort(-standing[SCORE, "iqm"].to_numpy(), kind="stable")]


def _estimate(values: pd.Series) -> tuple[float, float, float, float]:
    known = values.dropna()
    if known.empty:
        return (math.nan,) * 4
    strata = known.index.get_level_values("scenario").tolist()
    numbers = known.to_numpy(dtype=np.float64)
    low, high = bootstrap_interval(numbers, interquartile_mean, strata=strata)
    return float(interquartile_mean(numbers)), low, high, float(numbers.mean())


@dataclass(frozen=True)
class Comparison:
    """One competitor's score compared with another's, paired by scenario and seed.

    Attributes:
        improvement: how probable it is that a run of it scores more than the other's with the same scenario and seed.
        difference: of the interquartile means over the runs.
        low: lower end of the 95 % bootstrap interval of the difference over other seeds, in the same scenarios.
        high: upper end.
        scenarios_low: lower end of that over other scenarios of the same kind: of the difference of the interquartile
            means of the scenarios' means, when the scenarios are resampled.
        scenarios_high: upper end.
        better_in: in how many scenarios its mean is higher.
        scenarios: of how many.
    """

    improvement: Improvement
    difference: float
    low: float
    high: float
    scenarios_low: float
    scenarios_high: float
    better_in: int
    scenarios: int


def compare_scores(table: pd.DataFrame, name: str, other: str, score: str = SCORE) -> Comparison:
    """Compare two competitors in all scenarios and seeds that both have.

    Args:
        table: `scores`, or a part of it.
        name: the competitor that is asked about.
        other: with whom it is compared.
        score: a column of `SCORES`; more is better.
    """
    wide = table[score].unstack("competitor")
    pairs = wide.reindex(columns=[name, other]).dropna()
    ours, theirs = pairs[name], pairs[other]
    strata = pairs.index.get_level_values("scenario").tolist()

    def by_scenario(side: pd.Series) -> dict[Any, npt.NDArray[np.float64]]:
        return {key: values.to_numpy(dtype=np.float64) for key, values in side.groupby(level="scenario", sort=False)}

    def by_mean(side: pd.Series) -> pd.Series:
        return side.groupby(level="scenario", sort=False).mean()

    low, high = _interval_of_difference(ours, theirs, strata)
    scenarios_low, scenarios_high = _interval_of_difference(by_mean(ours), by_mean(theirs), None)
    return Comparison(
        improvement=probability_of_improvement(by_scenario(ours), by_scenario(theirs)),
        difference=float(interquartile_mean(ours) - interquartile_mean(theirs)) if len(pairs) else math.nan,
        low=low,
        high=high,
        scenarios_low=scenarios_low,
        scenarios_high=scenarios_high,
        better_in=int((by_mean(ours) > by_mean(theirs)).sum()),
        scenarios=len(set(strata)),
    )


def _interval_of_difference(ours: pd.Series, theirs: pd.Series, strata: Sequence[object] | None) -> tuple[float, float]:
    x, y = (side.to_numpy(dtype=np.float64) for side in (ours, theirs))

    def difference(drawn: npt.NDArray[np.float64], axis: int) -> Any:
        places = drawn.astype(np.intp)
        return interquartile_mean(x[places], axis=axis) - interquartile_mean(y[places], axis=axis)

    return bootstrap_interval(np.arange(len(x)), difference, strata=strata)
