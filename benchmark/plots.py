"""Plots of runs and benchmarks. They need no display; every function returns a matplotlib `Figure`."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from bbrgym.benchmark.metrics import FLOW_METRICS, METRICS, MOST_FLOWS_ALONE
from bbrgym.benchmark.style import (
    LINES,
    SMALL,
    Mark,
    empty_figure,
    fit_y,
    lighter,
    luminance,
    mark_of,
    marks_of,
    name_lines,
    name_points,
    styled,
)
from bbrgym.benchmark.tables import run_table, summary_table
from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.trace import Trace
from bbrgym.extras import optional

with optional("a plot"):
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Ellipse

Array = npt.NDArray[np.float64]
Marks = Mapping[str, Mark]

LABELS: Final[dict[str, str]] = {
    **{name: metric.axis for name, metric in (FLOW_METRICS | METRICS).items()},
    # Columns of a trace, over time.
    "sent_packets": "packets sent in a step",
    "delivered_packets": "packets delivered in a step",
    "lost_packets": "packets marked lost in a step",
    "retransmitted_packets": "packets retransmitted in a step",
    "delivery_rate_mbps": "delivery rate (Mbit/s)",
    "rtt_min_ms": "lowest RTT (ms)",
    "rtt_last_ms": "latest RTT (ms)",
    "in_flight_packets": "packets in flight",
    "cwnd_packets": "congestion window (packets)",
    "pacing_rate_mbps": "pacing rate (Mbit/s)",
    "max_bandwidth_mbps": "estimated bottleneck bandwidth (Mbit/s)",
    "min_rtt_ms": "estimated round-trip propagation time (ms)",
    "pacing_gain": "pacing gain",
    "cwnd_gain": "cwnd gain",
    "link_queue_mean_packets": "queue (packets)",
    "link_queue_max_packets": "longest queue (packets)",
    "link_queue_max_ms": "longest queueing delay (ms)",
    "link_second_queue_mean_ms": "second link's queue (ms)",
    "link_reverse_queue_mean_ms": "reverse link's queue (ms)",
}
"""Labels of the y-axis, with units."""
POINTS_PER_LINE: Final = 240
"""As many as a panel can show, and few enough for a small file."""
QUEUE_TIMES: Final = ("link_queue_mean_ms", "link_queue_max_ms")
"""Columns of the first bottleneck that grow beyond what packets wait when its rate falls."""
RATES: Final = ("throughput_mbps", "delivery_rate_mbps")
"""Columns that are averaged over a window: over 100 ms they show the noise of single packets."""
MOST_FLOWS_NAMED: Final = len(LINES)
"""Each has its own line style. Of more flows only the first and the last are named, the others are shades."""


@styled
def over_time(
    runs: Mapping[str, Trace],
    columns: Sequence[str] = ("throughput_mbps",),
    title: str = "",
    names: Sequence[str] = (),
    window_s: float = 1.0,
    marks: Marks | None = None,
    roles: Sequence[int] = (),
) -> Figure:
    """Plot columns of runs over time, a panel per run and column, with a line per flow or one of the link.

    Grey lines are the links' rates and the base RTTs. A queue's time is its length over the link's rate at that moment:
    where the rate varies, it is cut off at the longest RTT of all packets, and the panel says how long it is.

    Args:
        runs: by the title of their panels, such as the competitor's name.
        columns: of `Trace.rows`.
        title: the figure's title.
        names: names of the flows of a single run, instead of their algorithms.
        window_s: length of the moving average of `RATES`, in s; 0 for none.
        marks: of the competitors, as `marks_of` gives them for a whole report; None is `mark_of` each.
        roles: the flows that the competitors drive, if that is known: they have the competitor's name and colour.

    Raises:
        ValueError: `names` must have one entry per flow.
    """
    has_rates = window_s > 0 and bool({*RATES} & {*columns})
    across = 1 if len(runs) in (1, 3) else 2
    blocks = math.ceil(len(runs) / across)
    is_low = [column.startswith("link_") and len(columns) > 1 for column in columns]
    heights = [(1.0 if low else 1.55) + (0.6 if len(runs) == len(columns) == 1 else 0) for low in is_low]
    title = textwrap.fill(title, 72)
    figure = empty_figure(0.5 + 0.18 * title.count("\n") + blocks * (sum(heights) + 0.1))
    # Panels of one quantity share the y-axis, several quantities in the row of a run.
    grid = figure.subplots(
        len(columns) * blocks,
        across,
        squeeze=False,
        sharey=True if len(columns) == 1 else "row",
        height_ratios=heights * blocks,
    )
    for place, (run, trace) in enumerate(runs.items()):
        block, side = divmod(place, across)
        panels = grid[block * len(columns) : (block + 1) * len(columns), side]
        of_flows = list(names) or flow_names(trace, run or "agent", roles if run else ())
        if len(of_flows) != len(trace.scenario.flows):
            raise ValueError(
                f"names must have one entry per flow, got {len(names)} for {len(trace.scenario.flows)} flows"
            )
        for axes, column, height in zip(panels, columns, heights, strict=True):
            _draw_column(
                axes,
                trace,
                column,
                names=of_flows,
                is_one_of_several=len(runs) > 1,
                window_s=window_s,
                marks=marks or {},
            )
            axes.set_xlim(0, trace.scenario.duration_s)
            axes.tick_params(labelbottom=axes is panels[-1])
            if side == 0:
                axes.set_ylabel(textwrap.fill(LABELS.get(column, column).removeprefix("mean "), int(13 * height)))
        panels[0].set_title(run if len(runs) > 1 else "")
        if place + across >= len(runs):
            panels[-1].set_xlabel("time (s)" + f"; rates are means over {window_s:g} s" * has_rates)
    for axes in grid[-len(columns) :, len(runs) - across * (blocks - 1) :].flat:
        axes.set_visible(False)
    for axes in filter(Axes.get_visible, grid.flat):
        fit_y(axes, least=1.0)
    longest_ms = _longest_rtt_ms(runs.values())
    varies = any(trace.scenario.rate_schedule for trace in runs.values())
    for row, axes_of_row in enumerate(grid):
        if varies and columns[row % len(columns)] in QUEUE_TIMES:
            for axes in filter(Axes.get_visible, axes_of_row):
                _cut_off(axes, longest_ms)
    if title:
        figure.suptitle(title, x=0.01, ha="left")
    name_lines(figure)
    return figure


def throughput_over_time(trace: Trace, window_s: float = 1.0, title: str = "", names: Sequence[str] = ()) -> Figure:
    """Plot the throughput of every flow and the link's rate, in Mbit/s, as `over_time` does."""
    return over_time({"": trace}, ("throughput_mbps",), title=title, names=names, window_s=window_s)


def delay_over_time(trace: Trace, title: str = "", names: Sequence[str] = (), marks: Marks | None = None) -> Figure:
    """Plot the RTT of every flow above the link's queueing delay, in ms, as `over_time` does."""
    return over_time({"": trace}, ("rtt_mean_ms", "link_queue_mean_ms"), title, names, marks=marks)


def control_over_time(trace: Trace, title: str = "", names: Sequence[str] = (), marks: Marks | None = None) -> Figure:
    """Plot the congestion window (packets), the pacing rate (Mbit/s) and, if controllers have them, the two gains."""
    wanted = ("cwnd_packets", "pacing_rate_mbps", "pacing_gain", "cwnd_gain")
    has = [name for name in wanted if not np.isnan(trace.flows[:, :, FLOW_COLUMNS.index(name)]).all()]
    return over_time({"": trace}, has or wanted[:1], title, names, marks=marks)


def flow_names(trace: Trace, competitor: str, roles: Sequence[int] = ()) -> list[str]:
    """Return the names of the flows: the competitor's for its own flows and an agent's, else the algorithm's.

    Args:
        trace: of a run.
        competitor: what drives some of its flows.
        roles: the flows that it drives, if that is known.
    """
    return [
        competitor if index in roles or flow.algorithm == "agent" else flow.algorithm
        for index, flow in enumerate(trace.scenario.flows)
    ]


def _draw_column(
    axes: Axes,
    trace: Trace,
    column: str,
    names: Sequence[str],
    is_one_of_several: bool,
    window_s: float,
    marks: Marks,
) -> None:
    """Draw a column of a run over time."""
    if column.startswith("link_"):
        time_s, values = _smooth(trace, column, trace.link[:, LINK_COLUMNS.index(column[5:])], window_s)
        axes.fill_between(time_s, values, color="#d0d0d0", linewidth=0)
        axes.plot(time_s, values, color="#555555", linewidth=0.9)
        return
    if column in RATES:
        axes.plot(trace.time_s, trace.link[:, LINK_COLUMNS.index("rate_mbps")], color="#999999", linewidth=0.8)
        if trace.scenario.second_rate_mbps is not None:
            axes.axhline(trace.scenario.second_rate_mbps, color="#999999", linewidth=0.8)
    if column == "rtt_mean_ms":
        for rtt_ms, schedule in {(flow.rtt_ms, flow.rtt_schedule) for flow in trace.scenario.flows}:
            end_s = trace.scenario.duration_s
            base = {0.0: rtt_ms} | {time_s: changed_ms for time_s, changed_ms in schedule if time_s < end_s}
            bases_ms = [*base.values()]
            axes.step([*base, end_s], [*bases_ms, bases_ms[-1]], where="post", color="#999999", linewidth=0.8)
    names = names[:MOST_FLOWS_ALONE]
    is_few = len(names) <= MOST_FLOWS_NAMED
    labels = _labels(trace, names, is_one_of_several)
    for index, name in enumerate(names):
        of_flow = trace.flows[:, index]
        values = np.where(
            of_flow[:, FLOW_COLUMNS.index("is_active")] > 0, of_flow[:, FLOW_COLUMNS.index(column)], np.nan
        )
        time_s, values = _smooth(trace, column, values, window_s)
        alike = [other for other, of_other in enumerate(names) if of_other == name]
        # The first has the colour itself, or a darker one among many flows that are alike, the last is light.
        first, last = (0.0, 0.45) if is_few or len(alike) == 1 else (-0.5, 0.6)
        shade = first + (last - first) * alike.index(index) / max(1, len(alike) - 1)
        axes.plot(
            time_s,
            values,
            color=lighter((marks.get(name) or mark_of(name)).colour, shade),
            linestyle=LINES[index] if is_few else "-",
            linewidth=1.2 if is_few else 0.9,
            label=labels[index] if is_few or index in (0, len(names) - 1) else None,
        )


def _longest_rtt_ms(traces: Iterable[Trace]) -> float:
    """Return the longest RTT of all packets; NaN if none came back."""
    column = FLOW_COLUMNS.index("rtt_max_ms")
    return float(np.fmax.reduce([np.fmax.reduce(trace.flows[:, :, column], axis=None) for trace in traces]))


def _cut_off(axes: Axes, most: float) -> None:
    """Let the y-axis end above `most`, with the same room as others, and say how high the data are beyond that."""
    highest = axes.dataLim.y1
    if highest > (end := 1.08 * most):
        axes.set_ylim(0, end)
        axes.set_title(f"cut off: up to {highest:.0f} ms at the rate of the moment", loc="right", fontsize=SMALL)


def _labels(trace: Trace, names: Sequence[str], is_one_of_several: bool) -> list[str]:
    """Return the shortest labels that tell the flows apart; a panel's title says whose run it is."""
    rtts = [f"{flow.rtt_ms:g} ms" for flow in trace.scenario.flows[: len(names)]]
    both = [f"{name}, {rtt}" for name, rtt in zip(names, rtts, strict=True)]
    flows = [f"{name}, flow {index}" for index, name in enumerate(names)]
    if is_one_of_several:
        several = [["_"], rtts, list(names), both, [flow.rpartition(", ")[2] for flow in flows]]
        return next((labels for labels in several if len(set(labels)) == len(names)), several[-1])
    return both if len(set(both)) == len(names) else flows


def _smooth(trace: Trace, column: str, values: Array, window_s: float) -> tuple[Array, Array]:
    """Return times and means of a column: over a window if it is a rate, and over as many steps as cannot be seen."""
    steps = round(window_s * 1e3 / trace.step_ms) if column in RATES else 1
    series = pd.Series(values)
    if steps > 1:
        series = series.rolling(steps, min_periods=1, center=True).mean().where(series.notna())
    points = np.arange(len(values)) // math.ceil(len(values) / POINTS_PER_LINE)
    means = pd.DataFrame({"time_s": trace.time_s, "value": series}).groupby(points).mean()
    return means["time_s"].to_numpy() - trace.step_ms / 2e3, means["value"].to_numpy()


@styled
def throughput_against_delay(results: pd.DataFrame, title: str = "", marks: Marks | None = None) -> Figure:
    """Plot the throughput of all flows against the 95th percentile of the queueing delay; up and right is better.

    As in Pantheon (Yan et al., USENIX ATC 2018): small points are runs, the large point is their mean, and for three or
    more runs an ellipse is one standard deviation (Winstein et al., Sprout, NSDI 2013). The delay is the bottleneck's,
    not the path's, because the flows' base RTTs differ.

    Args:
        results: rows of one scenario of `BenchmarkResult.results`.
        title: the figure's title.
        marks: of the competitors, as for `over_time`; None is `marks_of` those of these results.
    """
    runs = run_table(results)
    figure = empty_figure(4.6)
    axes = figure.subplots()
    means: dict[str, tuple[float, float]] = {}
    marks = marks or marks_of([str(name) for name in results["competitor"].unique()])
    for name, frame in runs.groupby(level="competitor", sort=False):
        mark = marks[str(name)]
        points = frame[["link_queue_p95_ms", "throughput_mbps"]].to_numpy(dtype=np.float64)
        points = points[~np.isnan(points).any(axis=1)]
        if not len(points):
            continue
        means[str(name)] = (points[:, 0].mean(), points[:, 1].mean())
        axes.scatter(points[:, 0], points[:, 1], s=9, color=mark.colour, alpha=0.45, linewidths=0)
        mark.line(axes, points[:, 0].mean(), points[:, 1].mean(), size=8)
        if len(points) >= 3:
            axes.add_patch(_one_sigma(points, mark.colour))
    delays = [x for x, _ in means.values()]
    if delays and max(delays) > 8 * max(min(delays), 1e-9):
        # As in Pantheon: powers of two if the range is wide, linear near zero.
        axes.set_xscale("symlog", base=2, linthresh=max(1.0, 2.0 ** math.floor(math.log2(max(min(delays), 1.0)))))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.margins(x=0.12)
    axes.invert_xaxis()
    if means:
        # At least a tenth of the throughput: small differences should look small.
        lowest, highest = axes.dataLim.intervaly
        lowest = min(lowest, 0.9 * highest)
        margin = 0.1 * (highest - lowest)
        axes.set_ylim(lowest - margin, highest + margin)
    axes.set_xlabel(f"{METRICS['link_queue_p95_ms'].axis}, less is to the right")
    axes.set_ylabel("throughput of all flows (Mbit/s)")
    axes.set_title(title)
    if means:
        name_points(axes, means, marks)
    return figure


@styled
def shares(results: pd.DataFrame, title: str = "", marks: Marks | None = None, roles: Sequence[int] = ()) -> Figure:
    """Plot the flows' shares of the throughput, means over the seeds, as one stacked bar per competitor.

    Args:
        results: rows of one scenario of `BenchmarkResult.results`.
        title: the figure's title.
        marks: of the competitors, as for `throughput_against_delay`.
        roles: the flows that the competitors drive, if that is known: they have the competitor's colour.
    """
    table = summary_table(results).droplevel("scenario").xs("mean", axis=1, level="statistic")
    of_flows = [column for column in table.columns if str(column).startswith("share[")]
    rtts_ms = results.groupby("flow")["rtt_ms"].first()
    algorithms = results.groupby(["competitor", "flow"])["algorithm"].first()
    marks = marks or marks_of([str(name) for name in results["competitor"].unique()])
    figure, axes = _rows_figure([str(name) for name in table.index], title)
    left = np.zeros(len(table))
    for index, column in enumerate(of_flows):
        values = table[column].fillna(0.0).to_numpy()
        for place, competitor in enumerate(table.index):
            algorithm = algorithms[competitor, index]
            is_own = index in roles or algorithm in (competitor, "agent")
            name = competitor if is_own else algorithm
            colour = (marks.get(name) or mark_of(name)).colour
            fill = lighter(colour, (0.15, 0.55, 0.35, 0.7)[index % 4])
            axes.barh(place, values[place], left=left[place], height=0.72, color=fill, edgecolor="white")
            label = f"{rtts_ms[index]:g} ms: {values[place]:.0%}"
            if not is_own:
                label = f"{algorithm}, {label}"
            if 55 * values[place] < len(label):
                label = f"{values[place]:.0%}" if values[place] >= 0.09 else ""
            # At the outer ends, away from the lines of equal shares.
            part, side = {0: (0.015, "left"), len(of_flows) - 1: (values[place] - 0.015, "right")}.get(
                index, (values[place] / 2, "center")
            )
            axes.text(
                left[place] + part,
                place,
                label,
                ha=side,
                va="center_baseline",
                fontsize=SMALL,
                color="#111111" if luminance(fill) > 0.5 else "#ffffff",
            )
        left += values
    for cut in np.arange(1, len(of_flows)) / len(of_flows):
        axes.axvline(cut, color="#222222", linewidth=0.9, linestyle=(0, (2, 2)))
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_xlabel("share of the throughput; the dashed line is the equal share")
    axes.grid(visible=False)
    return figure


@styled
def jain_intervals(results: pd.DataFrame, title: str = "", marks: Marks | None = None) -> Figure:
    """Plot Jain's index of every competitor: the mean, its 95 % bootstrap interval, and every run."""
    table = summary_table(results).droplevel("scenario")["link_jain"]
    runs = run_table(results)["link_jain"]
    names = [str(name) for name in table.index]
    figure, axes = _rows_figure(names, title)
    marks = marks or marks_of(names)
    for place, name in enumerate(names):
        mark = marks[name]
        values, row = runs.xs(name, level="competitor").to_numpy(), table.loc[name]
        axes.plot(values, np.full(len(values), place), "|", color=mark.colour, alpha=0.6, markersize=7)
        axes.hlines(place, row["low"], row["high"], color=mark.colour, linewidth=2.2)
        mark.line(axes, [row["mean"]], [place], size=8, clip_on=False)
    flows = int(results["flow"].max()) + 1
    lowest = float(np.nanmin([table["mean"].min(), runs.min(), 0.9]))
    axes.set_xlim(max(1 / flows, lowest - 0.05) - 0.005, 1.005)
    axes.set_xlabel(f"{METRICS['link_jain'].axis} (1: equal shares, {1 / flows:.2g}: one flow has all)")
    return figure


def _rows_figure(names: Sequence[str], title: str) -> tuple[Figure, Axes]:
    """Return a figure with one horizontal row per name, the first on top."""
    figure = empty_figure(0.9 + 0.3 * max(2, len(names)))
    axes = figure.subplots()
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_yticks(range(len(names)), names)
    axes.set_title(title)
    return figure, axes


def _one_sigma(points: npt.NDArray[np.float64], colour: str) -> Ellipse:
    values, vectors = np.linalg.eigh(np.cov(points.T))
    widths = 2 * np.sqrt(np.maximum(values, 0.0))
    angle = math.degrees(math.atan2(vectors[1, 1], vectors[0, 1]))
    x, y = points.mean(axis=0)
    return Ellipse((x, y), widths[1], widths[0], angle=angle, facecolor=colour, alpha=0.16, edgecolor="none")
