"""League tables: every competitor's figures over the seeds, with their bootstrap intervals."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bbrgym.benchmark.metrics import MEASURED
from bbrgym.benchmark.statistics import bootstrap_interval, interquartile_mean

SORTED_BY = "sorted by Jain's index to 0.01 (highest first), then by mean queueing delay (lowest first)"
"""The order of the rows of every league table."""

METRICS: Final[dict[str, str]] = {
    "throughput_mbps": "payload received in order, sum of the flows, in Mbit/s",
    "throughput_ratio": "throughput of the last flow over that of the first",
    "link_jain": "Jain's fairness index of the flows' throughputs",
    "link_utilisation": "share of the link's capacity that was used",
    "application_utilisation": "payload received in order over what the link can carry in that time",
    "link_queue_mean_ms": "mean queueing delay, in ms",
    "link_queue_p95_ms": "95th percentile over the steps of the queueing delay, in ms",
    "queue_ratio": "mean queueing delay over the longest base RTT",
    "link_drops": "packets dropped by the queue",
    "rtt_mean_ms": "mean RTT, mean of the flows, in ms",
    "rtt_p95_ms": "95th percentile over the steps of their mean RTT, mean of the flows, in ms",
    "rtt_peak_ms": "largest mean RTT of a step of any flow, in ms",
    "retransmissions": "retransmitted packets, sum of the flows",
    "retransmissions_per_s": "the same a second",
    "retransmission_rate": "retransmitted over sent packets, mean of the flows",
    "loss_rate": "packets marked lost by the sender over sent packets, mean of the flows",
    "true_loss": "packets dropped by the queue or lost on the link over sent packets, all flows together",
    "send_rate_mbps": "payload sent, retransmissions included, sum of the flows, in Mbit/s",
    "arrived_mbps": "payload of all data packets that reach the receivers, duplicates included, in Mbit/s",
    "inorder_goodput_mbps": "payload of those that the receiver expected next on arrival, in Mbit/s",
    "inorder_loss": "1 - inorder_goodput_mbps / arrived_mbps",
    "convergence_s": "time to a lasting fair share, in s from the last flow's start; NaN if never",
    "converged": "1 if there is one, 0 if not; NaN for one flow",
    "equilibrium_s": "time to lastingly equal shares of the two halves of the flows, in s; NaN if never",
}
"""The metrics of a run: columns of `run_table`."""

METRICS_OF_FLOWS: Final[dict[str, str]] = {
    "throughput_mbps": "payload received in order, in Mbit/s",
    "share": "throughput over the sum of all flows'",
    "rtt_mean_ms": "mean RTT, in ms",
}
"""Metrics that each flow i has besides, as the column `<metric>[i]`."""


def league_table(results: pd.DataFrame) -> pd.DataFrame:
    """The figures of every competitor in every scenario over its seeds.

    Args:
        results: `BenchmarkResult.results`, one row a run and flow.

    Returns:
        Index (scenario, competitor), sorted as `SORTED_BY` says; columns (metric, statistic). The statistics
        are the `mean` over the runs, `low` and `high` of its 95 % bootstrap interval (NaN for one run, and
        where the seed changes nothing: all traces are equal), and `runs`, how many have the metric. The metrics
        are those of `run_table`; times are over the runs that have one, and `converged` is the part that converged.
    """
    runs = run_table(results)
    groups = runs.groupby(level=["scenario", "competitor"], sort=False)
    traces = results.groupby(["scenario", "competitor"], sort=False)["trace_hash"].nunique().to_dict()
    table = pd.DataFrame(
        [
            [value for metric in runs.columns for value in _estimate(frame[metric], traces[group] > 1)]
            for group, frame in groups
        ],
        index=pd.MultiIndex.from_tuples([group for group, _ in groups], names=["scenario", "competitor"]),
        columns=pd.MultiIndex.from_product(
            [runs.columns, ["mean", "low", "high", "runs"]], names=["metric", "statistic"]
        ),
        dtype=np.float64,
    )
    rank = pd.DataFrame(
        {
            "scenario": pd.Categorical(
                table.index.get_level_values("scenario"), categories=results["scenario"].unique(), ordered=True
            ),
            "jain": -table["link_jain", "mean"].round(2).to_numpy(),
            "queue": table["link_queue_mean_ms", "mean"].to_numpy(),
        }
    )
    return table.iloc[rank.sort_values(["scenario", "jain", "queue"], kind="stable").index]


def overall_table(results: pd.DataFrame) -> pd.DataFrame:
    """The figures of every competitor over all scenarios, of those that can be compared across scenarios.

    Args:
        results: `BenchmarkResult.results`, one row a run and flow.

    Returns:
        Index competitor, sorted as `SORTED_BY` says; columns (metric, statistic). The statistics are the interquartile
        mean `iqm` over all runs, and `low` and `high` of its 95 % bootstrap interval, stratified by scenario. The
        metrics are `link_jain`, `link_utilisation`, `queue_ratio` (mean queueing delay over the longest base RTT of the
        scenario) and `retransmission_rate`.
    """
    runs = run_table(results)
    metrics = ["link_jain", "link_utilisation", "queue_ratio", "retransmission_rate"]
    groups = runs.groupby(level="competitor", sort=False)
    table = pd.DataFrame(
        [[value for metric in metrics for value in _stratified_estimate(frame[metric])] for _, frame in groups],
        index=pd.Index([competitor for competitor, _ in groups], name="competitor"),
        columns=pd.MultiIndex.from_product([metrics, ["iqm", "low", "high"]], names=["metric", "statistic"]),
        dtype=np.float64,
    )
    rank = pd.DataFrame({"jain": -table["link_jain", "iqm"].round(2), "queue": table["queue_ratio", "iqm"]})
    return table.loc[rank.sort_values(["jain", "queue"], kind="stable").index]


def run_table(results: pd.DataFrame) -> pd.DataFrame:
    """One row a run, from `BenchmarkResult.results`.

    Args:
        results: one row a run and flow, in the flows' order. A column that this version measures and they do not have
            is NaN.

    Returns:
        Index (scenario, competitor, seed); columns `METRICS`, and `METRICS_OF_FLOWS` of each flow, which are NaN for
        a flow that a scenario does not have.
    """
    index = ["scenario", "competitor", "seed"]
    results = results.reindex(columns=results.columns.union(pd.Index(MEASURED), sort=False))
    runs = results.groupby(index, sort=False)

    def total(name: str) -> pd.Series:
        return runs[name].sum(min_count=1)

    # The rows of the first and the last flow: what belongs to the run is in all of them.
    first, last = runs.head(1).set_index(index), runs.tail(1).set_index(index)
    mean, largest = runs.mean(numeric_only=True), runs.max(numeric_only=True)
    table = pd.DataFrame(index=first.index)
    for name in ("throughput_mbps", "retransmissions", "send_rate_mbps", "arrived_mbps", "inorder_goodput_mbps"):
        table[name] = total(name)
    for name in ("rtt_mean_ms", "rtt_p95_ms", "retransmission_rate", "loss_rate"):
        table[name] = mean[name]
    for name in ("link_jain", "link_utilisation", "link_queue_mean_ms", "link_queue_p95_ms", "link_drops",
                 "convergence_s", "equilibrium_s"):  # fmt: skip
        table[name] = first[name]
    table["rtt_peak_ms"] = largest["rtt_peak_ms"]
    table["throughput_ratio"] = last["throughput_mbps"] / first["throughput_mbps"]
    capacity_mbit = first["link_rate_mbps"] * first["link_duration_s"]
    table["application_utilisation"] = total("received_bytes") * 8e-6 / capacity_mbit
    table["queue_ratio"] = table["link_queue_mean_ms"] / largest["rtt_ms"]
    table["retransmissions_per_s"] = table["retransmissions"] / first["link_duration_s"]
    table["true_loss"] = (first["link_drops"] + first["link_random_losses"]) / total("sent_packets")
    table["inorder_loss"] = 1 - table["inorder_goodput_mbps"] / table["arrived_mbps"]
    # One flow cannot share: nothing to converge to.
    table["converged"] = table["convergence_s"].notna().astype(float).where(largest["flow"] > 0)
    table = table[list(METRICS)]
    for name in METRICS_OF_FLOWS:
        of_flows = results.pivot(index=index, columns="flow", values=name)
        of_flows.columns = [f"{name}[{flow}]" for flow in of_flows.columns]
        table = table.join(of_flows)
    return table


def print_league(results: pd.DataFrame, console: Console) -> None:
    """Print a league table a scenario, a line a competitor. Nothing but a remark if there are no results."""
    if results.empty:
        console.print("no results: no run is done")
        return
    table = league_table(results)
    for scenario in table.index.unique("scenario"):
        # A Rich title is markup: a name from a configuration is not.
        printed = Table(
            title=escape(str(scenario)),
            title_justify="left",
            title_style="bold",
            box=SIMPLE_HEAD,
            pad_edge=False,
            collapse_padding=True,
        )
        printed.add_column("competitor", no_wrap=True, max_width=18)
        for heading in HEADINGS:
            printed.add_column(heading, justify="right", no_wrap=True)
        for competitor, row in table.loc[scenario].iterrows():
            printed.add_row(escape(str(competitor)), *(escape(cell) for cell in cells(row)))
        console.print(printed)
    console.print(
        f"Means over the seeds, [95 % bootstrap interval] unless the seed changes nothing;\n{SORTED_BY}.\n"
        "Throughput of each flow in Mbit/s of payload; queueing delay and RTT in ms; resent of sent packets;\n"
        "convergence in s, and how many of the n runs converged.",
        markup=False,
        highlight=False,
        style="dim",
    )


HEADINGS = ("throughput", "link", "Jain", "queue", "p95", "RTT", "p95", "resent", "converged", "n")
"""Columns of a printed league table, after the competitor; `cells` fills them."""


def cells(row: pd.Series) -> list[str]:
    """The cells of one row of `league_table` for a reader."""
    flows = [metric for metric in row.index.unique("metric") if metric.startswith("throughput_mbps[")]
    throughputs = [row[metric, "mean"] for metric in flows if row[metric, "runs"] > 0]
    ordered = sorted(throughputs)
    return [
        " ".join(figures(value) for value in throughputs)
        if len(throughputs) <= 3
        else f"{figures(ordered[0])} to {figures(ordered[-1])}",
        percent(row["link_utilisation", "mean"]),
        with_interval(row, "link_jain", "{:.2f}"),
        with_interval(row, "link_queue_mean_ms", "{:.1f}"),
        milliseconds(row["link_queue_p95_ms", "mean"]),
        milliseconds(row["rtt_mean_ms", "mean"]),
        milliseconds(row["rtt_p95_ms", "mean"]),
        percent(row["retransmission_rate", "mean"], digits=2),
        convergence(row),
        str(int(row["link_utilisation", "runs"])),
    ]


def with_interval(row: pd.Series, metric: str, form: str) -> str:
    """`0.93 [0.91 0.95]`, the mean alone where there is no interval, a dash where there is nothing."""
    mean, low, high = row[metric, "mean"], row[metric, "low"], row[metric, "high"]
    if math.isnan(mean):
        return "-"
    return form.format(mean) + ("" if math.isnan(low) else f" [{form.format(low)} {form.format(high)}]")


def convergence(row: pd.Series) -> str:
    """`4.2 (2/3)`: the mean time of the runs that converged, and how many did; `never`, or a dash for one flow."""
    part, runs = row["converged", "mean"], int(row["converged", "runs"])
    if runs == 0:
        return "-"
    converged = round(part * runs)
    return f"{row['convergence_s', 'mean']:.1f} ({converged}/{runs})" if converged else f"never (0/{runs})"


def figures(value: float) -> str:
    """Three significant figures, without an exponent; a dash for NaN."""
    if math.isnan(value):
        return "-"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value)))) if abs(value) >= 0.01 else 2}f}"


def milliseconds(value: float) -> str:
    """`12.3`, or a dash for NaN."""
    return "-" if math.isnan(value) else f"{value:.1f}"


def percent(value: float, digits: int = 1) -> str:
    """`97.3%`, or a dash for NaN."""
    return "-" if math.isnan(value) else f"{value:.{digits}%}"


def _estimate(values: pd.Series, differs: bool) -> tuple[float, float, float, int]:
    known = values.dropna().to_numpy(dtype=np.float64)
    # One run made several times is not a sample: its interval would have no width, and promise certainty.
    interval = bootstrap_interval(known if differs else known[:1])
    return (float(known.mean()) if known.size else math.nan, *interval, known.size)


def _stratified_estimate(values: pd.Series) -> tuple[float, float, float]:
    known = values.dropna()
    strata = known.index.get_level_values("scenario").tolist()
    interval = bootstrap_interval(known.to_numpy(dtype=np.float64), interquartile_mean, strata=strata)
    return (float(interquartile_mean(known)) if known.size else math.nan, *interval)
