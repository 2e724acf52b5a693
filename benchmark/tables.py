"""Tables of results: every competitor's metrics over the seeds, with bootstrap intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bbrgym.benchmark.metrics import (
    FLOW_METRICS,
    MEASURED,
    METRICS,
    MOST_FLOWS_ALONE,
    OPTIONAL,
    SIZE_CLASSES,
    find_metric,
)
from bbrgym.benchmark.statistics import Estimate, estimate, interquartile_mean, number_text

SORTED_BY: Final = "sorted by Jain's index to 0.01 (highest first), then by mean queueing delay (lowest first)"
"""The order of the rows of every table."""

OVERALL_METRICS: Final = ("link_jain", "link_utilisation", "queue_ratio", "retransmission_rate")
"""The metrics that can be compared across scenarios."""


def summary_table(results: pd.DataFrame) -> pd.DataFrame:
    """Return the metrics of every competitor in every scenario over its seeds.

    Args:
        results: `BenchmarkResult.results`, one row per run and flow.

    Returns:
        Index (scenario, competitor), in the order `SORTED_BY`; columns (metric, statistic). The statistics are the
        `mean` over the runs, `low` and `high` of its 95 % bootstrap interval (NaN for one run, and if all seeds have
        equal traces), and `runs`, the number of runs that have the metric. The metrics are those of `run_table`; the
        mean of a time is over the runs that have one, and that of `converged` is the share that converged.
    """
    runs = run_table(results)
    traces = results.groupby(["scenario", "competitor"], sort=False)["trace_hash"].nunique().to_dict()
    groups = dict(iter(runs.groupby(level=["scenario", "competitor"], sort=False)))
    table = pd.DataFrame(
        [
            [
                number
                for values in frame.to_numpy(np.float64).T
                for number in estimate(values, is_sample=traces[group] > 1)
            ]
            for group, frame in groups.items()
        ],
        index=pd.MultiIndex.from_tuples(list(groups), names=["scenario", "competitor"]),
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


def mean_table(results: pd.DataFrame) -> dict[str, dict[str, dict[str, float]]]:
    """Return the means of `summary_table` as {scenario: {competitor: {metric: mean}}}."""
    means = summary_table(results).xs("mean", axis=1, level="statistic")
    return {
        str(scenario): {str(competitor): row.to_dict() for competitor, row in means.loc[scenario].iterrows()}
        for scenario in means.index.unique("scenario")
    }


def overall_table(results: pd.DataFrame) -> pd.DataFrame:
    """Return the metrics of every competitor over all scenarios.

    Args:
        results: `BenchmarkResult.results`, one row per run and flow.

    Returns:
        Index competitor, in the order `SORTED_BY`; columns (metric, statistic) of `OVERALL_METRICS`. The statistics are
        the interquartile mean `iqm` over all runs, `low` and `high` of its 95 % bootstrap interval, stratified by
        scenario, and `runs`.
    """
    groups = dict(iter(run_table(results).groupby(level="competitor", sort=False)))
    table = pd.DataFrame(
        [
            [
                number
                for metric in OVERALL_METRICS
                for number in estimate(
                    frame[metric], interquartile_mean, strata=frame.index.get_level_values("scenario").tolist()
                )
            ]
            for frame in groups.values()
        ],
        index=pd.Index(list(groups), name="competitor"),
        columns=pd.MultiIndex.from_product(
            [OVERALL_METRICS, ["iqm", "low", "high", "runs"]], names=["metric", "statistic"]
        ),
        dtype=np.float64,
    )
    rank = pd.DataFrame({"jain": -table["link_jain", "iqm"].round(2), "queue": table["queue_ratio", "iqm"]})
    return table.loc[rank.sort_values(["jain", "queue"], kind="stable").index]


def run_table(results: pd.DataFrame) -> pd.DataFrame:
    """Return one row per run.

    Args:
        results: `BenchmarkResult.results`, one row per run and flow, in the flows' order. Columns of `measure` that it
            lacks are NaN.

    Returns:
        Index (scenario, competitor, seed); columns `METRICS`, less those of `OPTIONAL` that no run has, and
        `FLOW_METRICS` of each of the first `MOST_FLOWS_ALONE` flows as `share[0]`, which are NaN for a flow that a
        scenario does not have.
    """
    index = ["scenario", "competitor", "seed"]
    results = results.reindex(columns=results.columns.union(pd.Index(MEASURED), sort=False))
    runs = results.groupby(index, sort=False)
    # Rows of the first and the last flow; columns of the run are equal in all rows.
    first, last = runs.head(1).set_index(index), runs.tail(1).set_index(index)
    total, mean, largest = (
        runs.sum(numeric_only=True, min_count=1),
        runs.mean(numeric_only=True),
        runs.max(numeric_only=True),
    )
    rates = [name for name, metric in METRICS.items() if metric.over_flows == "rate"]
    moved = results[rates].mul(results["active_s"], axis=0).groupby([results[key] for key in index], sort=False)
    rate = moved.sum(min_count=1).div(first["link_active_s"], axis=0)
    over_flows = {"sum": total, "rate": rate, "mean": mean, "max": largest, "run": first}
    table = pd.DataFrame(
        {
            name: over_flows[metric.over_flows][name]
            for name, metric in METRICS.items()
            if metric.over_flows is not None
        },
        index=first.index,
    )
    table["throughput_ratio"] = last["throughput_mbps"] / first["throughput_mbps"]
    capacity_mbit = first["link_rate_mbps"] * first["link_duration_s"]
    table["application_utilisation"] = total["received_bytes"] * 8e-6 / capacity_mbit
    table["queue_ratio"] = table["link_queue_mean_ms"] / largest["rtt_ms"]
    table["retransmissions_per_s"] = table["retransmissions"] / first["link_duration_s"]
    table["true_loss"] = (first["link_drops"] + first["link_random_losses"]) / total["sent_packets"]
    table["inorder_loss"] = 1 - table["inorder_goodput_mbps"] / table["arrived_mbps"]
    # A single flow has nobody to converge with.
    table["converged"] = table["convergence_s"].notna().astype(float).where(largest["flow"] > 0)
    table = table[[name for name in METRICS if name not in OPTIONAL or table[name].notna().any()]]
    alone = results[results["flow"] < MOST_FLOWS_ALONE]
    for name in FLOW_METRICS:
        of_flows = alone.pivot(index=index, columns="flow", values=name)
        of_flows.columns = [f"{name}[{flow}]" for flow in of_flows.columns]
        table = table.join(of_flows)
    return table


def print_summary(results: pd.DataFrame, console: Console) -> None:
    """Print a table per scenario and one over all, a line per competitor; a remark if there are no results."""
    if results.empty:
        console.print("no results: no run is done")
        return
    table = summary_table(results)
    notes = dict.fromkeys(SHORT_NOTE.splitlines())
    for scenario in table.index.unique("scenario"):
        for view in views(table.loc[scenario]):
            notes |= dict.fromkeys(view.note.splitlines())
            # Rich would read names as markup.
            printed = Table(
                title=escape(f"{scenario}: {view.title}" if view.title else str(scenario)),
                title_justify="left",
                title_style="bold",
                box=SIMPLE_HEAD,
                pad_edge=False,
                collapse_padding=True,
            )
            printed.add_column("competitor", no_wrap=True, max_width=18)
            for heading in view.headings:
                printed.add_column(heading, justify="right", no_wrap=True)
            for competitor, cells in view.rows:
                printed.add_row(escape(competitor), *(escape(cell) for cell in cells))
            console.print(printed)
    if results["scenario"].nunique() > 1:
        _print_overall(results, console)
    console.print("\n".join(notes), markup=False, highlight=False, style="dim")
    print_repeated_runs(results, console)


def print_repeated_runs(results: pd.DataFrame, console: Console) -> None:
    """Say in a line where the seeds of a competitor give the same run, if they do somewhere."""
    if results.empty:
        return
    runs = results.drop_duplicates("key").groupby(["scenario", "competitor"], sort=False)["trace_hash"]
    counts = runs.agg(["size", "nunique"])
    is_repeated = (counts["size"] > 1) & (counts["nunique"] == 1)
    if is_repeated.any():
        scenario, competitor = counts.index[is_repeated][0]
        console.print(
            f"All seeds give identical rows in {is_repeated.sum()} of {len(counts)} pairs of scenario and competitor, "
            f"for example {competitor} in {scenario}: nothing there is random.",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )


def _print_overall(results: pd.DataFrame, console: Console) -> None:
    title = f"all {results['scenario'].nunique()} scenarios: interquartile means over the runs"
    printed = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    printed.add_column("competitor", no_wrap=True, max_width=18)
    for metric in OVERALL_METRICS:
        printed.add_column(METRICS[metric].label, justify="right")
    for competitor, row in overall_table(results).iterrows():
        printed.add_row(escape(str(competitor)), *(escape(estimate_text(row, metric)) for metric in OVERALL_METRICS))
    console.print(printed)


def print_table(console: Console, headings: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> None:
    """Print a table; a row that begins with `> ` is bold."""
    printed = Table(title=escape(title), title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        printed.add_column(escape(heading), no_wrap=heading in ("", "fair power"))
    for row in rows:
        printed.add_row(*map(escape, row), style="bold" if row[0].startswith("> ") else None)
    console.print(printed)


@dataclass(frozen=True)
class View:
    """A table for readers: `rows` are a competitor and its cells under `headings`; `note` explains these."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    note: str


def views(table: pd.DataFrame) -> list[View]:
    """Return the tables of a scenario that readers get, from its part of `summary_table`.

    The first one has all competitors. What only some scenarios have is left out of others: marks of ECN, delays of
    applications, and the second table, with the completion of finite flows.
    """
    found = []
    for title, columns, note in _VIEWS:
        shown = [column for column in columns if column.needs is None or _has(table, column.needs)]
        if all(column.needs is None for column in shown) and columns[0].needs is not None:
            continue
        rows = tuple((str(name), tuple(column.cell(row) for column in shown)) for name, row in table.iterrows())
        notes = [note, *(column.note for column in shown if column.note)]
        found.append(View(title, tuple(column.heading for column in shown), rows, "\n".join(notes)))
    return found


def estimate_text(row: pd.Series, metric: str) -> str:
    """Return a metric of a row with its interval, `0.93 [0.91 0.95]`; a dash if no run has it."""
    return "-" if metric not in row else Estimate(*row[metric]).text(_form(metric))


def value_text(row: pd.Series, metric: str) -> str:
    """Return a metric of a row without its interval; a dash if no run has it."""
    return "-" if metric not in row else number_text(row[metric].iloc[0], _form(metric))


def _form(name: str) -> str:
    metric = find_metric(name)
    return "" if metric is None else metric.form


def _throughputs(row: pd.Series) -> str:
    """Return the throughput of each flow, or the range for more than three flows."""
    flows = [metric for metric in row.index.unique("metric") if metric.startswith("throughput_mbps[")]
    throughputs = [row[metric, "mean"] for metric in flows if row[metric, "runs"] > 0]
    if len(throughputs) <= 3:
        return " ".join(number_text(value) for value in throughputs)
    return f"{number_text(min(throughputs))} to {number_text(max(throughputs))}"


def _convergence(row: pd.Series) -> str:
    """Return `4.2 (2/3)`: mean time of the runs that converged and how many did; `never`, or a dash for one flow."""
    share, runs = row["converged", "mean"], int(row["converged", "runs"])
    if runs == 0:
        return "-"
    converged = round(share * runs)
    return f"{value_text(row, 'convergence_s')} ({converged}/{runs})" if converged else f"never (0/{runs})"


def _value(metric: str) -> Callable[[pd.Series], str]:
    return lambda row: value_text(row, metric)


def _estimate(metric: str) -> Callable[[pd.Series], str]:
    return lambda row: estimate_text(row, metric)


def _has(table: pd.DataFrame, metric: str) -> bool:
    """Return whether any competitor has the metric."""
    return metric in table and bool((table[metric, "runs"] > 0).any())


class _Column(NamedTuple):
    """A column of a view. It is shown if a competitor has the metric `needs`, or if that is None."""

    heading: str
    cell: Callable[[pd.Series], str]
    needs: str | None = None
    note: str = ""


_RUNS: Final = _Column("n", lambda row: str(int(row["link_utilisation", "runs"])))

_OVERVIEW: Final = (
    _Column("throughput", _throughputs),
    _Column("link", _value("link_utilisation")),
    _Column("Jain", _estimate("link_jain")),
    _Column("queue", _estimate("link_queue_mean_ms")),
    _Column("p95", _value("link_queue_p95_ms")),
    _Column("RTT", _value("rtt_mean_ms")),
    _Column("p95", _value("rtt_p95_ms")),
    _Column(
        "app",
        _value("app_delay_mean_ms"),
        "app_delay_mean_ms",
        "app: time from the application's write to the delivery, mean and 99th percentile in ms;",
    ),
    _Column("p99", _value("app_delay_p99_ms"), "app_delay_p99_ms"),
    _Column("resent", _value("retransmission_rate")),
    _Column("marked", _value("mark_rate"), "mark_rate", "marked: CE-marked over delivered packets, of flows with ECN;"),
    _Column("converged", _convergence),
    _RUNS,
)

_COMPLETION: Final = (
    _Column("completed", _value("completed"), "completed"),
    _Column("FCT", _estimate("fct_mean_ms"), "completed"),
    _Column("p50", _value("fct_p50_ms"), "completed"),
    _Column("p99", _value("fct_p99_ms"), "completed"),
    _Column("slowdown", _estimate("slowdown_mean"), "completed"),
    _Column("p99", _value("slowdown_p99"), "completed"),
    *(
        column
        for size_class in SIZE_CLASSES
        if size_class
        for column in (
            _Column(f"{size_class} p50", _value(f"{size_class}_fct_p50_ms"), f"{size_class}_completed"),
            _Column("p99", _value(f"{size_class}_fct_p99_ms"), f"{size_class}_completed"),
        )
    ),
    _RUNS,
)

_VIEWS: Final = (
    (
        "",
        _OVERVIEW,
        "throughput: payload of each flow in Mbit/s; queue, RTT: mean and 95th percentile in ms;\n"
        "resent: retransmitted over sent packets; converged: time in s, and how many of the n runs converged.",
    ),
    (
        "finite flows",
        _COMPLETION,
        "completed: share of the finite flows; FCT: flow completion time in ms, mean of those that completed, and\n"
        "percentiles in which the others count as longer than their time so far (Kaplan-Meier; - if not reached);\n"
        "slowdown: FCT over the least possible on the empty path; small: up to 100 kB, medium: up to 10 MB, large.",
    ),
)
"""Title, columns and note of each view."""

SHORT_NOTE: Final = f"Means over the seeds, [95 % bootstrap interval] unless all seeds give the same;\n{SORTED_BY}."
"""What holds for the tables of all views."""
