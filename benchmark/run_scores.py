"""Scores of runs in which all flows have the same competitor."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import pandas as pd

from bbrgym.benchmark.results import BenchmarkResult
from bbrgym.benchmark.statistics import Estimate, estimate, interquartile_mean
from bbrgym.envs.scenario import Scenario
from bbrgym.envs.sharing import FairShares, Sharing

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

    Fair shares and fair power are those of `bbrgym.envs.sharing`. Flows that come and go and changing rates are thus
    fair if every flow has its share while it is active. Flows must be endless.

    `utility` is the alpha-fair utility with alpha = 1 (Mo and Walrand 2000) with costs of delay and loss. It has the
    form of the training reward, so it shows how well an agent has learned.

    Returns:
        Index (scenario, competitor, seed); columns `SCORES`.
    """
    config = result.plan["config"]
    fair = {
        name: FairShares.of(Scenario.from_dict(plain), config["warmup"]) for name, plain in config["scenarios"].items()
    }
    records = [
        (*group, *_scores_of_run(flows, fair[str(group[0])]))
        for group, flows in result.results.groupby(["scenario", "competitor", "seed"], sort=False)
    ]
    table = pd.DataFrame(records, columns=["scenario", "competitor", "seed", *SCORES])
    return table.set_index(["scenario", "competitor", "seed"])


def _scores_of_run(flows: pd.DataFrame, fair: FairShares) -> list[float]:
    column = {name: flows[name].to_numpy(dtype=np.float64) for name in _NEEDED}
    sharing = Sharing.of(fair, column["received_bytes"], column["active_s"], column["rtt_mean_ms"])
    is_there = ~np.isnan(fair.mbps)
    log_share = np.maximum(np.log(np.clip(sharing.shares, 1e-9, 1.0)), LOWEST_LOG_SHARE)
    loss = np.nan_to_num(column["loss_rate"][is_there])
    utility = float(np.mean(log_share - np.nan_to_num(sharing.delays) - loss))
    rate = column["retransmission_rate"][is_there]
    p95 = column["rtt_p95_ms"][is_there] / fair.base_ms[is_there]
    return [
        sharing.fair_power,
        sharing.jain,
        sharing.utilisation,
        sharing.delay,
        float(np.nanmean(rate)) if not np.isnan(rate).all() else math.nan,
        float(np.nanmean(p95)) if not np.isnan(p95).all() else math.nan,
        utility,
    ]


_NEEDED: Final = ("active_s", "received_bytes", "rtt_mean_ms", "rtt_p95_ms", "loss_rate", "retransmission_rate")


def standings(table: pd.DataFrame) -> pd.DataFrame:
    """Return the scores of the competitors over all runs, the best by `SCORE` first.

    Returns:
        Index competitor; columns (score, statistic): the interquartile mean `iqm` over all runs, `low` and `high` of
        its 95 % bootstrap interval stratified by scenario (NaN if in each scenario all seeds have equal scores), and
        the number of runs `n`.
    """
    groups = table.groupby(level="competitor", sort=False)
    standing = pd.DataFrame(
        [[value for estimated in _iqms(frame) for value in estimated] for _, frame in groups],
        index=pd.Index([str(competitor) for competitor, _ in groups], name="competitor"),
        columns=pd.MultiIndex.from_product([list(table.columns), ["iqm", "low", "high", "n"]]),
        dtype=np.float64,
    )
    return standing.iloc[np.argsort(-standing[SCORE, "iqm"].to_numpy(), kind="stable")]


def _iqms(runs: pd.DataFrame) -> list[Estimate]:
    """Return the estimate of each score of a competitor."""
    scenarios = runs.index.get_level_values("scenario")
    different = runs.set_axis(scenarios).reset_index().drop_duplicates()["scenario"]
    # Seeds with equal scores gave the same run.
    is_random = scenarios.isin(different[different.duplicated()])
    return [
        estimate(
            runs[name],
            interquartile_mean,
            strata=scenarios.tolist(),
            is_sample=bool((is_random & runs[name].notna().to_numpy()).any()),
        )
        for name in runs.columns
    ]
