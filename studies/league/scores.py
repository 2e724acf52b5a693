"""Scores of the runs of a suite, and comparisons of two competitors by their scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bbrgym.benchmark.results import BenchmarkResult
from bbrgym.benchmark.statistics import (
    Estimate,
    Improvement,
    bootstrap_interval,
    estimate,
    interquartile_mean,
    probability_of_improvement,
)
from bbrgym.envs.scenario import HEADER_BYTES, Scenario
from bbrgym.envs.trace import jain_index

SCORE: Final = "fair_power"
"""The score that ranks the competitors."""

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
"""As in the reward `log_throughput`, so that a flow without throughput does not outweigh all others."""


def scores(result: BenchmarkResult) -> pd.DataFrame:
    """Return the scores of each run in which all flows have the same competitor.

    A flow's fair share is the payload that the link can carry over the number of active flows, averaged over the
    measured time in which the flow is active. Flows that come and go and changing rates are thus fair if every flow has
    its share while it is active. Flows must be endless.

    `utility` is the alpha-fair utility with alpha = 1 (Mo and Walrand 2000) with costs of delay and loss. It has the
    form of the training reward, so it shows how well an agent has learned. `fair_power` is throughput over delay
    (Kleinrock 1979) times fairness, for which no competitor was designed.

    Args:
        result: a benchmark with runs, finished or not.

    Returns:
        Index (scenario, competitor, seed); columns `SCORES`.
    """
    config = result.plan["config"]
    scenarios = {name: Scenario.from_dict(plain) for name, plain in config["scenarios"].items()}
    fair = {name: fair_shares(scenario, config["warmup"]) for name, scenario in scenarios.items()}
    records = []
    for group, flows in result.results.groupby(["scenario", "competitor", "seed"], sort=False):
        name = str(group[0])
        records.append((*group, *_scores_of_run(flows, scenarios[name], *fair[name])))
    table = pd.DataFrame(records, columns=["scenario", "competitor", "seed", *SCORES])
    return table.set_index(["scenario", "competitor", "seed"])


def fair_shares(scenario: Scenario, warmup: float) -> tuple[npt.NDArray[np.float64], float]:
    """Return the fair shares of a scenario's flows in the measured time.

    Args:
        scenario: a scenario with endless flows.
        warmup: fraction of its duration that is not measured.

    Returns:
        The fair share of each flow in Mbit/s of payload, shape (flows,), NaN for a flow that is not active; and the
        payload in Mbit that the link can carry while any flow is active.

    Raises:
        ValueError: a flow has a `size_bytes`.
    """
    if any(flow.size_bytes is not None for flow in scenario.flows):
        raise ValueError("flows must be endless, got a flow with size_bytes, whose end depends on its throughput")
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
    # A flow that was never active in a step has no throughput.
    share = np.nan_to_num(column["throughput_mbps"]) / fair_mbps[is_there]
    jain = jain_index(share) if share.any() else 0.0
    utilisation = min(1.0, float(flows["received_bytes"].sum()) * 8e-6 / capacity_mbit)
    log_share = np.maximum(np.log(np.clip(share, 1e-9, 1.0)), LOWEST_LOG_SHARE)
    # The delay of packets: the time to drain the queue is meaningless on a link that nearly stops for a while.
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
    """Return the scores of the competitors over all runs, the best by `SCORE` first.

    Args:
        table: the result of `scores`, or a part of it.

    Returns:
        Index competitor; columns (score, statistic): the interquartile mean `iqm` over all runs, `low` and `high` of
        its 95 % bootstrap interval stratified by scenario, and the number of runs `n`.
    """
    groups = table.groupby(level="competitor", sort=False)
    standing = pd.DataFrame(
        [[value for name in SCORES for value in _iqm(frame[name])] for _, frame in groups],
        index=pd.Index([str(competitor) for competitor, _ in groups], name="competitor"),
        columns=pd.MultiIndex.from_product([list(SCORES), ["iqm", "low", "high", "n"]]),
        dtype=np.float64,
    )
    return standing.iloc[np.argsort(-standing[SCORE, "iqm"].to_numpy(), kind="stable")]


def _iqm(values: pd.Series) -> Estimate:
    return estimate(values, interquartile_mean, strata=values.index.get_level_values("scenario").tolist())


@dataclass(frozen=True)
class ScoreComparison:
    """One competitor's score compared with another's, paired by scenario and seed.

    Attributes:
        improvement: probability that its run scores higher than the other's with the same scenario and seed.
        difference: difference of the interquartile means over the runs.
        low: lower end of the 95 % bootstrap interval of the difference, over seeds in the same scenarios.
        high: upper end of that interval.
        scenarios_low: lower end of the interval over scenarios: of the difference of the interquartile means of the
            scenarios' means, with the scenarios resampled.
        scenarios_high: upper end of that interval.
        better_in: number of scenarios in which its mean is higher.
        scenarios: number of scenarios.
    """

    improvement: Improvement
    difference: float
    low: float
    high: float
    scenarios_low: float
    scenarios_high: float
    better_in: int
    scenarios: int


def compare_scores(table: pd.DataFrame, name: str, other: str) -> ScoreComparison:
    """Return the comparison of two competitors by `SCORE`, in all scenarios and seeds that both have.

    Args:
        table: the result of `scores`, or a part of it.
        name: the competitor.
        other: the competitor that it is compared with.
    """
    pairs = table[SCORE].unstack("competitor").reindex(columns=[name, other]).dropna()
    ours, theirs = pairs[name], pairs[other]
    strata = pairs.index.get_level_values("scenario").tolist()

    def by_scenario(side: pd.Series) -> dict[Any, npt.NDArray[np.float64]]:
        return {key: values.to_numpy(dtype=np.float64) for key, values in side.groupby(level="scenario", sort=False)}

    def by_mean(side: pd.Series) -> pd.Series:
        return side.groupby(level="scenario", sort=False).mean()

    low, high = _interval_of_difference(ours, theirs, strata)
    scenarios_low, scenarios_high = _interval_of_difference(by_mean(ours), by_mean(theirs), None)
    return ScoreComparison(
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
