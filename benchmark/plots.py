"""Plots of runs and benchmarks. They need no display; every function returns a matplotlib `Figure`.

An algorithm has the same colour and marker in every figure. Colour is never the only difference: flows of one algorithm
differ in line style, competitors in marker, and points are labelled with names.
"""

from __future__ import annotations

import functools
import io
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec

import numpy as np
import numpy.typing as npt
import pandas as pd

from bbrgym.baselines import registry
from bbrgym.benchmark.metrics import METRICS, MOST_FLOWS_ALONE
from bbrgym.benchmark.tables import run_table, summary_table
from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.trace import Trace
from bbrgym.extras import optional

with optional("a plot"):
    from matplotlib import rc_context
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import to_rgb
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Ellipse

STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "text.parse_math": False,  # Names may contain dollar signs.
    "svg.fonttype": "none",  # Text stays text: smaller, sharp, searchable.
    "svg.hashsalt": "bbrgym",  # Equal figures give equal files.
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Arial", "Helvetica", "sans-serif"],
}
# Distinct for the common forms of colour blindness: Okabe and Ito's set (2008) without its yellow, which is too light
# for lines on white, then the dark colours of Tol's "muted".
COLOURS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00",
    "#332288", "#882255", "#117733", "#999933", "#AA4499", "#44AA99",
    "#661100",
)  # fmt: skip
MARKERS = "osD^vP<>Xphd"
LINES: tuple[Any, ...] = ("-", (0, (5, 1.6)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))


Arguments = ParamSpec("Arguments")


def styled(draw: Callable[Arguments, Figure]) -> Callable[Arguments, Figure]:
    """Make a function that returns a figure draw it in `STYLE`."""

    @functools.wraps(draw)
    def drawn(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Figure:
        with rc_context(STYLE):
            return draw(*args, **kwargs)

    return drawn


@dataclass(frozen=True)
class Mark:
    """How a competitor is drawn."""

    colour: str
    marker: str


UNREGISTERED = Mark("#000000", "*")


def mark_of(name: str) -> Mark:
    """Return the colour and marker of an algorithm; black for others, such as a trained agent.

    They follow from the algorithm's place in the registry, whichever others are in the figure.
    """
    known = [algorithm for algorithm in registry.controllers() if algorithm != "agent"] + list(registry.COMPARATORS)
    if name not in known:
        return UNREGISTERED
    place = known.index(name)
    # Colours that repeat have other markers.
    return Mark(COLOURS[place % len(COLOURS)], MARKERS[(place + place // len(COLOURS)) % len(MARKERS)])


def marks_of(names: Sequence[str]) -> dict[str, Mark]:
    """Return distinct marks: `mark_of`, and unused colours and markers for names that are not registered.

    Args:
        names: all competitors of a benchmark, in its order.

    Returns:
        One mark per name. A single unregistered name is black; several get unused colours.
    """
    marks = {name: mark_of(name) for name in names}
    others = [name for name, mark in marks.items() if mark == UNREGISTERED]
    if len(others) > 1:
        used = {mark.colour for mark in marks.values()}
        free = [colour for colour in COLOURS if colour not in used] or list(COLOURS)
        signs = [sign for sign in MARKERS if sign not in {mark.marker for mark in marks.values()}] or list(MARKERS)
        for place, name in enumerate(others):
            marks[name] = Mark(free[place % len(free)], signs[place % len(signs)])
    return marks


@styled
def throughput_over_time(trace: Trace, window_s: float = 1.0, title: str = "", names: Sequence[str] = ()) -> Figure:
    """Plot the throughput of every flow and the link's rate, in Mbit/s.

    Args:
        trace: a run.
        window_s: length of the moving average, in s.
        title: the figure's title.
        names: names of the flows, instead of their algorithms.
    """
    figure, (axes,) = _figure(1, title)
    _draw_throughput(axes, trace, window_s, _names(trace, names))
    _finish_time(trace, axes)
    return figure


@styled
def delay_over_time(trace: Trace, title: str = "", names: Sequence[str] = ()) -> Figure:
    """Plot the RTT of every flow, with thin lines at the base RTTs, above the link's queueing delay, in ms."""
    figure, (above, below) = _figure(2, title)
    _draw_flows(above, trace, "rtt_mean_ms", _names(trace, names))
    for base_rtt_ms in {flow.rtt_ms for flow in trace.scenario.flows}:
        above.axhline(base_rtt_ms, color="#999999", linewidth=0.7)
    above.set_ylabel("RTT (ms)")
    above.set_ylim(bottom=0)
    _draw_queue(below, trace)
    _finish_time(trace, above, below)
    return figure


@styled
def throughput_and_queue(traces: Mapping[str, Mapping[str, Trace]], window_s: float = 1.0) -> Figure:
    """Plot the throughput of every flow above the link's queueing delay: two rows per scenario, a column per run.

    Args:
        traces: the runs to compare in each scenario, by the scenario's and the competitor's name, equally many in each.
        window_s: length of the moving average of the throughput, in s.
    """
    columns = len(next(iter(traces.values())))
    figure = empty_figure(8.5, 0.3 + 2.4 * len(traces))
    grid = figure.subplots(2 * len(traces), columns, sharex="row", sharey="row", squeeze=False,
                           height_ratios=[2, 1] * len(traces))  # fmt: skip
    for row, (scenario, of_scenario) in enumerate(traces.items()):
        for column, (name, trace) in enumerate(of_scenario.items()):
            above, below = grid[2 * row : 2 * row + 2, column]
            _draw_throughput(above, trace, window_s, _names(trace, flow_names(trace, name)))
            _draw_queue(below, trace)
            above.set_title(f"{scenario}: {name}")
            above.tick_params(labelbottom=False)
            below.set_xlim(0, trace.scenario.duration_s)
            above.set_xlim(0, trace.scenario.duration_s)
            if column:
                above.set_ylabel("")
                below.set_ylabel("")
    for axes in grid[-1]:
        axes.set_xlabel("time (s)")
    return figure


@styled
def control_over_time(trace: Trace, title: str = "", names: Sequence[str] = ()) -> Figure:
    """Plot the congestion window (packets), the pacing rate (Mbit/s) and, if controllers have them, the two gains."""
    wanted = {
        "cwnd_packets": "cwnd\n(packets)",
        "pacing_rate_mbps": "pacing rate\n(Mbit/s)",
        "pacing_gain": "pacing gain",
        "cwnd_gain": "cwnd gain",
    }
    shown = {
        column: label
        for column, label in wanted.items()
        if column in FLOW_COLUMNS and not np.isnan(trace.flows[:, :, FLOW_COLUMNS.index(column)]).all()
    }
    figure, panels = _figure(max(1, len(shown)), title)
    for axes, (column, label) in zip(panels, shown.items(), strict=False):
        _draw_flows(axes, trace, column, _names(trace, names))
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
    _finish_time(trace, *panels)
    return figure


@styled
def throughput_panels(traces: dict[str, Trace], window_s: float = 1.0) -> Figure:
    """Plot the throughput of every flow over time, one panel per competitor, with equal axes.

    Args:
        traces: one run per competitor, by name.
        window_s: length of the moving average, in s.
    """
    columns = min(3, len(traces))
    rows = math.ceil(len(traces) / columns)
    figure = empty_figure(10, 0.5 + 1.75 * rows)
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for axes, (name, trace) in zip(grid.flat, traces.items(), strict=False):
        _draw_throughput(axes, trace, window_s, _names(trace, flow_names(trace, name)))
        axes.set_title(name)
        axes.set_ylabel("")
    for axes in list(grid.flat)[len(traces) :]:
        axes.set_visible(False)
    for column in range(columns):
        lowest = grid[max(row for row in range(rows) if row * columns + column < len(traces)), column]
        lowest.set_xlabel("time (s)")
        lowest.tick_params(labelbottom=True)
    for row in range(rows):
        grid[row, 0].set_ylabel("Mbit/s")
    first = next(iter(traces.values()))
    grid[0, 0].set_xlim(0, first.scenario.duration_s)
    grid[0, 0].set_ylim(0, 1.08 * _highest_rate(first))
    if len(first.scenario.flows) <= len(LINES):
        handles = []
        for index, flow in enumerate(first.scenario.flows):
            algorithms = {trace.scenario.flows[index].algorithm for trace in traces.values()}
            # A flow that no competitor drives has the same algorithm in every panel.
            rival = f", {flow.algorithm}" if len(algorithms) == 1 < len(traces) else ""
            label = f"flow {index}: {flow.rtt_ms:g} ms{rival}"
            handles.append(Line2D([], [], color="#444444", linestyle=LINES[index], label=label, linewidth=1.2))
        figure.legend(handles=handles, loc="outside upper right", ncols=len(handles))
    return figure


@styled
def throughput_against_delay(results: pd.DataFrame, title: str = "") -> Figure:
    """Plot the throughput of all flows against the 95th percentile of the queueing delay; up and right is better.

    As in Pantheon (Yan et al., USENIX ATC 2018): small points are runs, the large point is their mean, and for three or
    more runs an ellipse is one standard deviation (Winstein et al., Sprout, NSDI 2013). The delay is the bottleneck's,
    not the path's, because the flows' base RTTs differ.

    Args:
        results: rows of one scenario of `BenchmarkResult.results`.
        title: the figure's title.
    """
    runs = run_table(results)
    figure = empty_figure(7.2, 4.6)
    axes = figure.subplots()
    means: dict[str, tuple[float, float]] = {}
    marks = marks_of([str(name) for name in results["competitor"].unique()])
    for name, frame in runs.groupby(level="competitor", sort=False):
        mark = marks[str(name)]
        points = frame[["link_queue_p95_ms", "throughput_mbps"]].to_numpy(dtype=np.float64)
        points = points[~np.isnan(points).any(axis=1)]
        if not len(points):
            continue
        x, y = points.mean(axis=0)
        means[str(name)] = (x, y)
        axes.scatter(points[:, 0], points[:, 1], s=9, color=mark.colour, alpha=0.45, linewidths=0)
        axes.plot(
            x, y, mark.marker, color=mark.colour, markersize=8 if mark.marker != "*" else 12,
            markeredgecolor="white", markeredgewidth=0.7,
        )  # fmt: skip
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
    _annotate(figure, axes, means, marks)
    return figure


@styled
def shares(results: pd.DataFrame, title: str = "") -> Figure:
    """Plot the flows' shares of the throughput, means over the seeds, as one stacked bar per competitor."""
    table = summary_table(results).droplevel("scenario").xs("mean", axis=1, level="statistic")
    of_flows = [column for column in table.columns if str(column).startswith("share[")]
    rtts_ms = results.groupby("flow")["rtt_ms"].first()
    algorithms = results.groupby(["competitor", "flow"])["algorithm"].first()
    figure, axes = _rows_figure(len(table), 7.2)
    left = np.zeros(len(table))
    for index, column in enumerate(of_flows):
        values = table[column].fillna(0.0).to_numpy()
        for place, competitor in enumerate(table.index):
            algorithm = algorithms[competitor, index]
            colour = mark_of(competitor if algorithm == "agent" else algorithm).colour
            fill = lighter(colour, (0.15, 0.55, 0.35, 0.7)[index % 4])
            axes.barh(place, values[place], left=left[place], height=0.72, color=fill, edgecolor="white")
            if values[place] >= 0.09:
                label = f"{rtts_ms[index]:g} ms: {values[place]:.0%}"
                if algorithm not in (competitor, "agent"):
                    label = f"{algorithm}, {label}"
                # At the outer ends, away from the lines of equal shares.
                part, side = {0: (0.015, "left"), len(of_flows) - 1: (values[place] - 0.015, "right")}.get(
                    index, (values[place] / 2, "center")
                )
                axes.text(
                    left[place] + part, place, label if values[place] >= 0.22 else f"{values[place]:.0%}",
                    ha=side, va="center", fontsize=7.5, color=_readable_on(fill),
                )  # fmt: skip
        left += values
    for cut in np.arange(1, len(of_flows)) / len(of_flows):
        axes.axvline(cut, color="#222222", linewidth=0.9, linestyle=(0, (2, 2)))
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_xlabel("share of the throughput; the dashed line is the equal share")
    axes.set_yticks(range(len(table)), table.index)
    axes.grid(visible=False)
    axes.set_title(title)
    return figure


@styled
def jain_intervals(results: pd.DataFrame, title: str = "") -> Figure:
    """Plot Jain's index of every competitor: the mean, its 95 % bootstrap interval, and every run."""
    table = summary_table(results).droplevel("scenario")["link_jain"]
    runs = run_table(results)["link_jain"]
    figure, axes = _rows_figure(len(table), 7.2)
    marks = marks_of([str(name) for name in results["competitor"].unique()])
    for place, (name, row) in enumerate(table.iterrows()):
        mark = marks[str(name)]
        values = runs.xs(name, level="competitor").to_numpy()
        axes.plot(values, np.full(len(values), place), "|", color=mark.colour, alpha=0.6, markersize=7)
        if not math.isnan(row["low"]):
            axes.hlines(place, row["low"], row["high"], color=mark.colour, linewidth=2.2)
        axes.plot(
            row["mean"], place, mark.marker, color=mark.colour, markeredgecolor="white", markeredgewidth=0.7,
            markersize=8 if mark.marker != "*" else 12, clip_on=False,
        )  # fmt: skip
    flows = int(results["flow"].max()) + 1
    lowest = float(np.nanmin([table["mean"].min(), runs.min(), 0.9]))
    axes.set_xlim(max(1 / flows, lowest - 0.05) - 0.005, 1.005)
    axes.set_xlabel(f"{METRICS['link_jain'].axis} (1: equal shares, {1 / flows:.2g}: one flow has all)")
    axes.set_yticks(range(len(table)), table.index)
    axes.set_title(title)
    return figure


def svg_text(figure: Figure) -> str:
    """Return a figure as a compact `<svg>` element; equal figures give equal texts."""
    text = io.StringIO()
    with rc_context(STYLE):
        figure.savefig(text, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<!--.*?-->|<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # Less than a hundredth of a point is invisible.
    svg = re.sub(r'\s(?:d|x|y|transform)="[^"]*"', lambda found: _rounded(found[0]), svg)
    return re.sub(r"\s*\n\s*", "\n", svg)


def _rounded(text: str) -> str:
    return re.sub(r"-?\d+\.\d{3,}", lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."), text)


def flow_names(trace: Trace, competitor: str) -> list[str]:
    """Return the names of the flows: the competitor's for an agent's flows, else the algorithm's."""
    return [competitor if flow.algorithm == "agent" else flow.algorithm for flow in trace.scenario.flows]


def _draw_throughput(axes: Axes, trace: Trace, window_s: float, names: Sequence[str]) -> None:
    steps = max(1, round(window_s * 1e3 / trace.step_ms))
    _draw_flows(axes, trace, "throughput_mbps", names, average_steps=steps)
    rate_mbps = trace.link[:, LINK_COLUMNS.index("rate_mbps")]
    axes.plot(trace.time_s, rate_mbps, color="#999999", linewidth=0.7)
    axes.set_ylabel("throughput\n(Mbit/s)")
    axes.set_ylim(0, 1.08 * _highest_rate(trace))


def _draw_queue(axes: Axes, trace: Trace) -> None:
    queue_ms = trace.link[:, LINK_COLUMNS.index("queue_mean_ms")]
    axes.fill_between(trace.time_s, queue_ms, color="#bbbbbb", linewidth=0)
    axes.plot(trace.time_s, queue_ms, color="#555555", linewidth=0.9)
    axes.set_ylabel("queueing\ndelay (ms)")
    axes.set_ylim(bottom=0)


def _draw_flows(axes: Axes, trace: Trace, column: str, names: Sequence[str], average_steps: int = 1) -> None:
    seen: dict[str, int] = {}
    for index, flow in enumerate(trace.scenario.flows[:MOST_FLOWS_ALONE]):
        values = pd.Series(trace.flows[:, index, FLOW_COLUMNS.index(column)])
        is_active = trace.flows[:, index, FLOW_COLUMNS.index("is_active")] > 0
        values = values.where(is_active)
        if average_steps > 1:
            values = values.rolling(average_steps, min_periods=1).mean().where(is_active)
        repeat = seen.setdefault(names[index], 0)
        seen[names[index]] += 1
        axes.plot(
            trace.time_s,
            values,
            color=lighter(mark_of(names[index]).colour, 0.4 if repeat % 2 else 0.0),
            linestyle=LINES[index % len(LINES)],
            linewidth=1.2,
            label=f"{names[index]}, {flow.rtt_ms:g} ms",
        )


def _names(trace: Trace, names: Sequence[str]) -> list[str]:
    if names and len(names) != len(trace.scenario.flows):
        raise ValueError(f"names must have one entry per flow, got {len(names)} for {len(trace.scenario.flows)} flows")
    return list(names) or [flow.algorithm for flow in trace.scenario.flows]


def _finish_time(trace: Trace, *panels: Axes) -> None:
    panels[0].set_xlim(0, trace.scenario.duration_s)
    panels[-1].set_xlabel("time (s)")
    handles, labels = panels[0].get_legend_handles_labels()
    if 0 < len(handles) <= 8:
        figure = panels[0].get_figure()
        assert isinstance(figure, Figure)
        figure.legend(handles, labels, loc="outside upper right", ncols=min(4, len(handles)))


def _highest_rate(trace: Trace) -> float:
    return float(max([trace.scenario.rate_mbps, *(rate for _, rate in trace.scenario.rate_schedule)]))


def empty_figure(width: float, height: float) -> Figure:
    """Return a figure without axes; width and height are in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _figure(panels: int, title: str) -> tuple[Figure, list[Axes]]:
    figure = empty_figure(8, 0.7 + 1.5 * panels + (0.6 if panels == 1 else 0))
    axes = figure.subplots(panels, 1, sharex=True, squeeze=False)[:, 0]
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=10)
    return figure, list(axes)


def _rows_figure(rows: int, width: float) -> tuple[Figure, Axes]:
    """Return a figure with one horizontal row per entry, the first on top."""
    figure = empty_figure(width, 0.9 + 0.29 * max(2, rows))
    axes = figure.subplots()
    axes.set_ylim(rows - 0.4, -0.6)
    return figure, axes


def _one_sigma(points: npt.NDArray[np.float64], colour: str) -> Ellipse:
    values, vectors = np.linalg.eigh(np.cov(points.T))
    widths = 2 * np.sqrt(np.maximum(values, 0.0))
    angle = math.degrees(math.atan2(vectors[1, 1], vectors[0, 1]))
    x, y = points.mean(axis=0)
    return Ellipse((x, y), widths[1], widths[0], angle=angle, facecolor=colour, alpha=0.16, edgecolor="none")


def _annotate(figure: Figure, axes: Axes, points: dict[str, tuple[float, float]], marks: dict[str, Mark]) -> None:
    """Write each name near its point, where it covers least of other names and points."""
    figure.canvas.draw()
    frame = axes.get_window_extent()
    pixel = figure.dpi / 72
    at = {name: axes.transData.transform(point) for name, point in points.items()}
    taken = [(x - 6 * pixel, y - 6 * pixel, x + 6 * pixel, y + 6 * pixel) for x, y in at.values()]
    for name, (x, y) in sorted(at.items(), key=lambda item: -item[1][1]):
        width, height = (4.9 * len(name) + 2) * pixel, 9 * pixel
        best: tuple[float, Any] = (math.inf, None)
        for distance in (9, 18, 30, 44, 60):
            for angle in range(0, 360, 30):
                dx = distance * pixel * math.cos(math.radians(angle))
                dy = distance * pixel * math.sin(math.radians(angle))
                left = x + dx - (0 if dx > 1 else width if dx < -1 else width / 2)
                box = (left, y + dy - height / 2, left + width, y + dy + height / 2)
                is_outside = box[0] < frame.x0 or box[2] > frame.x1 or box[1] < frame.y0 or box[3] > frame.y1
                cost = sum(_overlap(box, other) for other in taken) + distance * pixel + (1e6 if is_outside else 0)
                if cost < best[0]:
                    best = (cost, (box, distance))
        box, distance = best[1]
        taken.append(box)
        axes.annotate(
            name,
            points[name],
            xytext=((box[0] + width / 2 - x) / pixel, (box[1] + height / 2 - y) / pixel),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=8,
            color=marks[name].colour,
            arrowprops={"arrowstyle": "-", "color": "#999999", "linewidth": 0.6, "shrinkA": 0}
            if distance > 9
            else None,
        )


def _overlap(a: Iterable[float], b: Iterable[float]) -> float:
    (ax0, ay0, ax1, ay1), (bx0, by0, bx1, by1) = a, b
    return max(0.0, min(ax1, bx1) - max(ax0, bx0)) * max(0.0, min(ay1, by1) - max(ay0, by0))


def lighter(colour: str, part: float) -> tuple[float, float, float]:
    """Return a mix of the colour and white: 0 is the colour, 1 is white; negative values mix black, -1 is black."""
    red, green, blue = (channel + ((1 - channel) if part > 0 else channel) * part for channel in to_rgb(colour))
    return red, green, blue


def _readable_on(fill: tuple[float, float, float]) -> str:
    luminance = 0.2126 * fill[0] + 0.7152 * fill[1] + 0.0722 * fill[2]
    return "#111111" if luminance > 0.5 else "#ffffff"
