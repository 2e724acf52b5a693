"""Tables of results: every competitor's metrics over the seeds, with bootstrap intervals."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import numpy as np
import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from bbrgym.baselines.registry import DIFFERS
from bbrgym.benchmark.metrics import (
    FLOW_METRICS,
    MEASURED,
    METRICS,
    MOST_FLOWS_ALONE,
    OPTIONAL,
    SIZE_CLASSES,
    find_metric,
)
from bbrgym.benchmark.statistics import Estimate, estimate, number_text

SORTED_BY: Final = "sorted by Jain's index to 0.01 (highest first), then by mean queueing delay (lowest first)"
"""The order of the rows of every table."""

SORTED_ALONE: Final = "sorted by mean queueing delay (lowest first)"
"""The same where each run has a single flow, whose index is 1."""

OVERALL_METRICS: Final = {
    "link_jain": "Jain",
    "link_utilisation": "link used",
    "queue_ratio": "queue / RTT",
    "retransmission_rate": "resent",
}
"""The metrics that can be compared across scenarios, and their headings."""


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
    traces = _count_traces(results)
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
        the `mean` over all runs, `low` and `high` of its 95 % bootstrap interval, stratified by scenario (NaN if in
        each scenario all seeds have equal traces), `runs`, and `worst`: the mean over the seeds of the worst scenario.
        Nothing is trimmed, because a quarter of the runs may be the one scenario in which an algorithm fails.
        Competitors without runs in a scenario come last, and have no `worst`: what is missing may be that one.
        Scenarios with one flow have no Jain's index.
    """
    traces = _count_traces(results)
    runs = run_table(results)
    shared = results.loc[results["flow"] > 0, "scenario"].unique()
    runs["link_jain"] = runs["link_jain"].where(runs.index.get_level_values("scenario").isin(shared))
    groups = dict(iter(runs.groupby(level="competitor", sort=False)))
    missing = missing_scenarios(results)
    table = pd.DataFrame(
        [
            [
                number
                for metric in OVERALL_METRICS
                for number in (
                    *estimate(
                        frame[metric],
                        strata=frame.index.get_level_values("scenario").tolist(),
                        is_sample=_is_sample(frame[metric], traces),
                    ),
                    math.nan if missing[str(competitor)] else _of_worst_scenario(frame[metric]),
                )
            ]
            for competitor, frame in groups.items()
        ],
        index=pd.Index(list(groups), name="competitor"),
        columns=pd.MultiIndex.from_product(
            [list(OVERALL_METRICS), ["mean", "low", "high", "runs", "worst"]], names=["metric", "statistic"]
        ),
        dtype=np.float64,
    )
    rank = pd.DataFrame(
        {
            "missing": pd.Series(missing) > 0,
            "jain": -table["link_jain", "mean"].round(2),
            "queue": table["queue_ratio", "mean"],
        }
    )
    return table.loc[rank.sort_values(["missing", "jain", "queue"], kind="stable").index]


def missing_scenarios(results: pd.DataFrame) -> dict[str, int]:
    """Return of each competitor in how many scenarios it has no runs, where another one has."""
    found = results.groupby("competitor", sort=False)["scenario"].nunique()
    return {str(name): int(results["scenario"].nunique() - count) for name, count in found.items()}


def _of_worst_scenario(values: pd.Series) -> float:
    """Return the mean of a metric over the seeds of the scenario in which it is worst."""
    means = values.groupby(level="scenario").mean()
    metric = find_metric(str(values.name))
    return float(means.min() if metric is not None and metric.is_more_better else means.max())


def _count_traces(results: pd.DataFrame) -> dict[Hashable, int]:
    """Return how many different traces each pair of scenario and competitor has."""
    counts: dict[Hashable, int] = (
        results.groupby(["scenario", "competitor"], sort=False)["trace_hash"].nunique().to_dict()
    )
    return counts


def _is_sample(values: pd.Series, traces: Mapping[Hashable, int]) -> bool:
    """Return whether the seeds of a scenario in which runs have a value gave different runs."""
    return any(traces[scenario, competitor] > 1 for scenario, competitor, _ in values.dropna().index)


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
    is_narrow = console.width < WIDE
    left_out: dict[str, None] = {}
    notes: dict[str, None] = {}
    for scenario in table.index.unique("scenario"):
        for view in views(table.loc[scenario], intervals="none" if is_narrow else "some"):
            notes |= dict.fromkeys(view.note.splitlines())
            rows = [[competitor, *cells] for competitor, cells in view.rows]
            title = f"{scenario}: {view.title}" if view.title else str(scenario)
            headings = [Heading("competitor", kind="name"), *view.headings]
            left_out |= dict.fromkeys(print_table(console, headings, rows, title))
    if results["scenario"].nunique() > 1:
        _print_overall(results, console)
    text = " ".join([short_note(table, has_intervals=not is_narrow), *notes])
    console.print(text, markup=False, highlight=False, style="dim")
    print_left_out(console, left_out, "the report has them")
    print_identical(results, console)
    print_repeated_runs(results, console)


def print_identical(results: pd.DataFrame, console: Console) -> None:
    """Say which competitors are identical in all runs, a line per group of them."""
    for sentence in identical_texts(results):
        console.print(sentence, markup=False, highlight=False, soft_wrap=True)


def identical_texts(results: pd.DataFrame) -> list[str]:
    """Return a sentence per group of competitors whose runs are all the same, and what would separate them if known."""
    texts = []
    for names in identical_competitors(results):
        known = [f"{name} differs {DIFFERS[name]}" for name in names if name in DIFFERS]
        texts.append(f"{listed(names)} are identical in all runs{': ' if known else ''}{listed(known)}.")
    return texts


def identical_competitors(results: pd.DataFrame) -> list[list[str]]:
    """Return the groups of competitors that have the same traces in the same scenarios and seeds."""
    groups: dict[tuple[Hashable, ...], list[str]] = {}
    if not results.empty:
        traces = results.drop_duplicates(["scenario", "competitor", "seed"]).pivot(
            index="competitor", columns=["scenario", "seed"], values="trace_hash"
        )
        for name in results["competitor"].unique():
            groups.setdefault(tuple(traces.loc[name].fillna("")), []).append(str(name))
    return [names for names in groups.values() if len(names) > 1]


def listed(names: Sequence[str]) -> str:
    """Return `a, b and c`."""
    return " and ".join([", ".join(names[:-1]), *names[-1:]] if len(names) > 1 else names)


def print_repeated_runs(results: pd.DataFrame, console: Console) -> None:
    """Say in a line where the seeds of a competitor give the same run, if they do somewhere."""
    if results.empty:
        return
    of_runs = results.drop_duplicates(["scenario", "competitor", "seed"])
    runs = of_runs.groupby(["scenario", "competitor"], sort=False)["trace_hash"]
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
    headings, rows = overall_rows(results, has_intervals=console.width >= WIDE)
    title = f"all {results['scenario'].nunique()} scenarios: means over the runs, and the worst scenario"
    print_table(console, [Heading("competitor", kind="name"), *headings], rows, title)


def overall_rows(results: pd.DataFrame, has_intervals: bool = True) -> tuple[list[str], list[list[str]]]:
    """Return the headings of the metrics over all scenarios, and the rows: a competitor and its cells.

    Jain's index is left out where no scenario has two flows. A competitor that lacks a scenario has that with its name.
    """
    text = estimate_text if has_intervals else value_text
    metrics = [name for name in OVERALL_METRICS if name != "link_jain" or has_several_flows(results)]
    missing, scenarios = missing_scenarios(results), results["scenario"].nunique()
    rows = [
        [
            f"{competitor}{f' (lacks {lacks} of {scenarios})' if (lacks := missing[str(competitor)]) else ''}",
            *(cell for metric in metrics for cell in (text(row, metric), _number(row[metric, "worst"], metric))),
        ]
        for competitor, row in overall_table(results).iterrows()
    ]
    return [heading for metric in metrics for heading in (OVERALL_METRICS[metric], "worst")], rows


def has_several_flows(results: pd.DataFrame) -> bool:
    """Return whether a run has two flows or more."""
    return not results.empty and bool(results["flow"].max() > 0)


WIDE: Final = 120
"""Tables of narrower consoles have no intervals."""

_GAP: Final = 2
"""Columns between two columns of a table."""

_LEAST: Final = {"name": 12, "words": 16}
"""To how many columns names are cut, and words are wrapped, where there is no room for more."""


@dataclass(frozen=True)
class Heading:
    """The head of a column of a table in a terminal.

    Attributes:
        text: may be written over several lines.
        kind: `number` (never cut nor wrapped, aligned right), `key` (never cut nor wrapped, for users type it), `name`
            (can be cut), `words` (can be wrapped).
        rank: where not all columns fit, those with the highest rank are left out first; with 0, none is.
    """

    text: str
    kind: Literal["number", "key", "name", "words"] = "number"
    rank: int = 0


def print_table(
    console: Console, headings: Sequence[str | Heading], rows: Iterable[Sequence[str]], title: str = ""
) -> list[str]:
    """Print a table that fits into the console, whatever its width; a row that begins with `> ` is bold.

    Words are wrapped and names are cut. If that is not enough, columns that have a rank are left out, and the rest is
    printed in several tables, one below the other, which all begin with the first column.

    Args:
        console: where to print.
        headings: of the columns. The kind of one that is a text follows from its cells.
        rows: a text per column.
        title: above the table.

    Returns:
        The headings of the columns that were left out.
    """
    cells = [list(row) for row in rows]
    columns = []
    for i, heading in enumerate(headings):
        own = [row[i] for row in cells]
        columns.append(_Printed(Heading(heading, kind=_kind_of(own)) if isinstance(heading, str) else heading, own))
    kept = list(columns)
    while _width_of(kept) > console.width and any(column.heading.rank for column in kept):
        highest = max(column.heading.rank for column in kept)
        del kept[max(i for i, column in enumerate(kept) if column.heading.rank == highest)]
    blocks = [kept[:1]]
    for column in kept[1:]:
        if len(blocks[-1]) > 1 and _width_of([*blocks[-1], column]) > console.width:
            blocks.append(kept[:1])
        blocks[-1].append(column)
    is_own = [bool(row) and row[0].startswith("> ") for row in cells]
    for block in blocks:
        console.print(_rich_table(block, is_own, console.width, title if block is blocks[0] else ""))
        console.print()
    return [column.heading.text for column in columns if column not in kept]


def print_left_out(console: Console, headings: Iterable[str], where: str) -> None:
    """Say which columns were left out, and where they are."""
    if text := ", ".join(headings):
        console.print(
            f"Left out at this width: {text}; a wider terminal shows more, {where}.",
            markup=False,
            highlight=False,
            style="dim",
        )


class _Printed(NamedTuple):
    """A column to be printed."""

    heading: Heading
    cells: list[str]

    @property
    def most(self) -> int:
        """How wide it is without any wrapped or cut cell; a heading is as wide as its longest word."""
        return max([1, *map(cell_len, self.cells), *map(cell_len, self.heading.text.split())])

    @property
    def least(self) -> int:
        """How narrow it can be."""
        return min(self.most, _LEAST.get(self.heading.kind, self.most))


def _width_of(columns: Sequence[_Printed]) -> int:
    return sum(column.least for column in columns) + _GAP * (len(columns) - 1)


def _kind_of(cells: Sequence[str]) -> Literal["number", "words"]:
    """Return `number` if all cells begin as numbers do, and at least one is there."""
    return "number" if any(cells) and all(re.match(r"$|-$|[+-]?\d\S*( \[.*\])?$", cell) for cell in cells) else "words"


def _rich_table(columns: Sequence[_Printed], is_own: Sequence[bool], width: int, title: str) -> Table:
    widths = [column.least for column in columns]
    lacks = [column.most - column.least for column in columns]
    for _ in range(min(sum(lacks), width - _width_of(columns))):
        neediest = lacks.index(max(lacks))
        widths[neediest] += 1
        lacks[neediest] -= 1
    # Rich would read names as markup.
    printed = Table(
        title=escape(title),
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        collapse_padding=True,
    )
    for column, own_width in zip(columns, widths, strict=True):
        is_number = column.heading.kind == "number"
        printed.add_column(
            escape(column.heading.text),
            justify="right" if is_number else "left",
            width=own_width,
            overflow="fold" if column.heading.kind == "words" else "ellipsis",
        )
    for is_bold, *row in zip(is_own, *(column.cells for column in columns), strict=True):
        texts = [Text(cell, no_wrap=column.heading.kind != "words") for column, cell in zip(columns, row, strict=True)]
        printed.add_row(*texts, style="bold" if is_bold else None)
    return printed


@dataclass(frozen=True)
class View:
    """A table for readers: `rows` are a competitor and its cells under `headings`; `note` explains these."""

    title: str
    headings: tuple[Heading, ...]
    rows: tuple[tuple[str, tuple[str, ...]], ...]
    note: str


def views(table: pd.DataFrame, intervals: Literal["all", "some", "none"] = "all") -> list[View]:
    """Return the tables of a scenario that readers get, from its part of `summary_table`.

    The first one has all competitors. What only some scenarios have is left out of others: Jain's index of a single
    flow, marks of ECN, delays of applications, and the second table, with the completion of finite flows.

    Args:
        table: index competitor.
        intervals: whether means have their 95 % intervals: all that a paper needs, those of the metrics that decide the
            order, or none.
    """
    found = []
    for title, columns, note in (("", (*_throughputs(table), *_OVERVIEW), _OVERVIEW_NOTE), _FINITE):
        shown = [column for column in columns if column.needs is None or _has(table, column.needs)]
        if all(column.needs is None for column in shown) and columns[0].needs is not None:
            continue
        rows = tuple(
            (str(name), tuple(column.text(row, intervals) for column in shown)) for name, row in table.iterrows()
        )
        notes = [note, *(column.note for column in shown if column.note)]
        headings = tuple(Heading(column.heading, rank=column.rank) for column in shown)
        found.append(View(title, headings, rows, "\n".join(notes)))
    return found


def estimate_text(row: pd.Series, metric: str) -> str:
    """Return a metric of a row with its interval, `0.93 [0.91 0.95]`; a dash if no run has it."""
    return "-" if metric not in row else Estimate(*row[metric].iloc[:4]).text(_form(metric))


def value_text(row: pd.Series, metric: str) -> str:
    """Return a metric of a row without its interval; a dash if no run has it."""
    return "-" if metric not in row else _number(row[metric].iloc[0], metric)


def _number(value: float, metric: str) -> str:
    return number_text(value, _form(metric))


def _form(name: str) -> str:
    metric = find_metric(name)
    return "" if metric is None else metric.form


def _throughputs(table: pd.DataFrame) -> list[_Column]:
    """Return the columns of throughput: one per flow, or of all, the slowest and the fastest of more than three."""
    flows = [
        metric
        for metric in table.columns.unique("metric")
        if metric.startswith("throughput_mbps[") and _has(table, metric)
    ]
    if len(flows) <= 1:
        return [_Column("throughput (Mbit/s)", "throughput_mbps", interval="all")]
    if len(flows) <= MOST_COLUMNS_OF_FLOWS:
        return [
            _Column(f"flow {flow.partition('[')[2][:-1]} (Mbit/s)", flow, interval="all", needs=flow) for flow in flows
        ]

    def extreme(of: Callable[[list[float]], float]) -> Callable[[pd.Series], str]:
        return lambda row: number_text(of([row[flow, "mean"] for flow in flows if row[flow, "runs"] > 0] or [math.nan]))

    return [
        _Column("all flows (Mbit/s)", "throughput_mbps", interval="all"),
        _Column("slowest flow (Mbit/s)", extreme(min)),
        _Column("fastest flow (Mbit/s)", extreme(max)),
    ]


def _convergence(row: pd.Series) -> str:
    """Return `4.2 (2/3)`: mean time of the runs that converged and how many did; `never`, or a dash for one flow."""
    share, runs = row["converged", "mean"], int(row["converged", "runs"])
    if runs == 0:
        return "-"
    converged = round(share * runs)
    return f"{value_text(row, 'convergence_s')} ({converged}/{runs})" if converged else f"never (0/{runs})"


def _has(table: pd.DataFrame, metric: str) -> bool:
    """Return whether any competitor has the metric."""
    return metric in table and bool((table[metric, "runs"] > 0).any())


@dataclass(frozen=True)
class _Column:
    """A column of a view.

    Attributes:
        heading: with the unit.
        cell: a metric, or what makes the text of a row.
        interval: whether its cells have an interval in tables with `all` intervals, or with `some` too.
        needs: it is shown if a competitor has this metric, or if that is None.
        rank: `Heading.rank`.
        note: explains it, if the heading does not.
    """

    heading: str
    cell: str | Callable[[pd.Series], str]
    interval: Literal["all", "some"] | None = None
    needs: str | None = None
    rank: int = 0
    note: str = ""

    def text(self, row: pd.Series, intervals: str) -> str:
        """Return the cell of a row."""
        if not isinstance(self.cell, str):
            return self.cell(row)
        has_interval = self.interval is not None and intervals in ("all", self.interval)
        return (estimate_text if has_interval else value_text)(row, self.cell)


MOST_COLUMNS_OF_FLOWS: Final = 3
"""More flows than this have no column each."""

_RUNS: Final = _Column("n", lambda row: str(int(row["link_utilisation", "runs"])), rank=8, note="n: runs.")

_OVERVIEW: Final = (
    _Column("link used", "link_utilisation"),
    _Column("Jain", "link_jain", interval="some", needs="throughput_mbps[1]"),
    _Column("queue mean (ms)", "link_queue_mean_ms", interval="some"),
    _Column("queue p95 (ms)", "link_queue_p95_ms", rank=3),
    _Column("RTT mean (ms)", "rtt_mean_ms", rank=6),
    _Column("RTT p95 (ms)", "rtt_p95_ms", rank=9),
    _Column(
        "app mean (ms)",
        "app_delay_mean_ms",
        needs="app_delay_mean_ms",
        note="app: time from the application's write to the delivery.",
    ),
    _Column("app p99 (ms)", "app_delay_p99_ms", needs="app_delay_p99_ms", rank=2),
    _Column("resent", "retransmission_rate", rank=1),
    _Column(
        "marked",
        "mark_rate",
        needs="mark_rate",
        rank=4,
        note="marked: CE-marked over delivered packets, of flows with ECN.",
    ),
    _Column(
        "converged (s)",
        _convergence,
        needs="throughput_mbps[1]",
        rank=7,
        note="converged: when, and how many of the n runs did.",
    ),
    _RUNS,
)

_OVERVIEW_NOTE: Final = "Throughput is of the payload. resent: retransmitted over sent packets."

_COMPLETION: Final = (
    _Column("completed", "completed", needs="completed"),
    _Column("FCT mean (ms)", "fct_mean_ms", interval="some", needs="completed"),
    _Column("FCT p50 (ms)", "fct_p50_ms", needs="completed", rank=5),
    _Column("FCT p99 (ms)", "fct_p99_ms", needs="completed"),
    _Column("slowdown mean", "slowdown_mean", interval="some", needs="completed"),
    _Column("slowdown p99", "slowdown_p99", needs="completed", rank=6),
    *(
        column
        for size_class in SIZE_CLASSES
        if size_class
        for column in (
            _Column(f"{size_class} p50 (ms)", f"{size_class}_fct_p50_ms", needs=f"{size_class}_completed", rank=4),
            _Column(f"{size_class} p99 (ms)", f"{size_class}_fct_p99_ms", needs=f"{size_class}_completed", rank=3),
        )
    ),
    _RUNS,
)

_SIZES: Final = ", ".join(
    f"{name}: up to {high / 1e3:,.0f} kB" if math.isfinite(high) else name
    for name, (_, high) in SIZE_CLASSES.items()
    if name
)

_FINITE: Final = (
    "finite flows",
    _COMPLETION,
    "completed: share of the finite flows; FCT: flow completion time, mean of those that completed, and\n"
    "percentiles in which the others count as longer than their time so far (Kaplan-Meier; - if not reached);\n"
    f"slowdown: FCT over the least possible on the empty path; {_SIZES}.",
)
"""Title, columns and note of the view of finite flows."""


def short_note(table: pd.DataFrame, has_intervals: bool = True) -> str:
    """Return what holds for the tables of all views of a `summary_table`."""
    means = "Means over the seeds"
    if has_intervals:
        means += ", [95 % bootstrap interval] unless all seeds give the same"
    return f"{means}; {SORTED_BY if _has(table, 'throughput_mbps[1]') else SORTED_ALONE}."


def sorted_text(results: pd.DataFrame) -> str:
    """Return how the rows of all tables of these results are sorted."""
    return SORTED_BY if has_several_flows(results) else SORTED_ALONE
