"""Draw the figures of a paper from measurements, with the published numbers."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from bbrgym.benchmark.metrics import FLOW_METRICS, METRICS
from bbrgym.benchmark.plots import LINES, Mark, empty_figure, flow_names, lighter, mark_of, marks_of, styled
from bbrgym.benchmark.tables import summary_table
from bbrgym.envs.scenario import Scenario
from bbrgym.envs.trace import Trace
from studies.papers.published import AXES, TIMES_TO_REACH, PaperFigure, Published

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
}
"""Labels of the y-axis, with units."""

INTERVALS: Final = (
    "Means over the seeds with 95 % bootstrap intervals (none where the seed changes nothing, or with one seed)."
)
POINTS_PER_LINE: Final = 240
"""As many as a panel can show, and few enough for a small file."""
MOST_FLOWS_NAMED: Final = len(LINES)
"""Each has its own line style. Of more flows only the first and the last are named, the others are shades."""
PUBLISHED_SIGNS: Final = {"about": "D", "above": "^", "below": "v"}


@styled
def paper_figure(
    figure: PaperFigure,
    results: pd.DataFrame,
    scenarios: Mapping[str, Scenario],
    published: Sequence[Published] = (),
    traces: Mapping[str, Trace] | None = None,
) -> Figure:
    """Draw a figure of a paper.

    Bars and lines are means over the seeds with 95 % bootstrap intervals. Published plain values of a competitor in one
    scenario stand beside them: hollow diamonds are numbers, hollow triangles that point up or down are bounds above or
    below which the metric should be.

    Args:
        figure: the figure.
        results: `BenchmarkResult.results`.
        scenarios: the experiment's scenarios by name, in the order in which they are shown.
        published: the paper's entries; those that belong to the figure are drawn.
        traces: for the kind `time`, a run of the figure's scenario per competitor, by name.

    Raises:
        ValueError: there is nothing to show, or two scenarios would be the same point of a line.
    """
    if figure.kind == "time":
        return _over_time(figure, traces or {})
    names = [name for name in scenarios if figure.scenario in (None, name)]
    names = [name for name in names if (results["scenario"] == name).any()]
    if not names:
        raise ValueError(f"the figure {figure.title!r} has nothing to show: no run of its scenarios is done")
    data = _Data.of(results, {name: scenarios[name] for name in names}, published)
    if figure.kind == "lines":
        return _lines(figure, data)
    return _bars_of_competitors(figure, data) if figure.x == "competitor" else _bars_of_scenarios(figure, data)


@dataclass(frozen=True)
class _Data:
    scenarios: Mapping[str, Scenario]
    rows: Mapping[tuple[str, str], pd.Series]
    """Rows of `summary_table`, by scenario and competitor."""
    published: tuple[Published, ...]
    marks: Mapping[str, Mark]
    algorithms: Mapping[int, frozenset[str]]
    """Algorithms of each flow, over all competitors."""

    @classmethod
    def of(cls, results: pd.DataFrame, scenarios: Mapping[str, Scenario], published: Iterable[Published]) -> _Data:
        marks = marks_of([str(name) for name in results["competitor"].unique()])
        results = results[results["scenario"].isin(list(scenarios))]
        present = set(results["competitor"])
        table = summary_table(results)
        return cls(
            scenarios,
            {(index[0], index[1]): row for index, row in table.iterrows() if isinstance(index, tuple)},
            tuple(claim for claim in published if claim.form == "value" and not claim.order),
            {name: mark for name, mark in marks.items() if name in present},
            {int(str(flow)): frozenset(of_flow) for flow, of_flow in results.groupby("flow")["algorithm"]},
        )

    def measured(self, metric: str, scenario: str, competitor: str) -> tuple[float, float, float]:
        """Return mean, low and high; NaN for missing values."""
        row = self.rows.get((scenario, competitor))
        if row is None or (metric, "mean") not in row:
            return math.nan, math.nan, math.nan
        return float(row[metric, "mean"]), float(row[metric, "low"]), float(row[metric, "high"])

    def remark(self, metric: str, scenario: str, competitor: str) -> str:
        """Return what a bar cannot show: that a time was not reached in all runs, or that there is no value."""
        row = self.rows.get((scenario, competitor))
        if row is None or (metric, "mean") not in row:
            return "no value"
        known, runs = int(row[metric, "runs"]), int(row["link_jain", "runs"])
        if metric in TIMES_TO_REACH and known < runs:
            return f"{known} of {runs}" if known else "never"
        return "" if known else "no value"

    def claims(self, metric: str, scenario: str, competitor: str) -> list[Published]:
        return [
            claim
            for claim in self.published
            if (claim.metric, claim.scenarios, claim.competitor) == (metric, (scenario,), competitor)
        ]

    def label(self, metric: str) -> str:
        """Return `flow 1 (50 ms, cubic)` for a metric of a flow, and the entry of `LABELS` for others."""
        if "[" not in metric:
            return LABELS.get(metric, metric)
        index = int(metric.split("[")[1].rstrip("]"))
        rtts_ms = sorted({s.flows[index].rtt_ms for s in self.scenarios.values() if index < len(s.flows)})
        if not rtts_ms:
            return f"flow {index}"
        details = [f"{rtts_ms[0]:g} ms" if len(rtts_ms) == 1 else f"{rtts_ms[0]:g} to {rtts_ms[-1]:g} ms"]
        of_flow = self.algorithms.get(index, frozenset())
        # The flow that no competitor takes: the same algorithm whoever competes.
        if len(of_flow) == 1 and len(frozenset().union(*self.algorithms.values())) > 1:
            details += of_flow
        return f"flow {index} ({', '.join(details)})"


def _bars_of_competitors(figure: PaperFigure, data: _Data) -> Figure:
    """Draw a panel per scenario, a group per competitor, a bar per metric."""
    columns = min(3, len(data.scenarios))
    drawn, panels = _panels(figure, len(data.scenarios), columns, width=max(4.6, 0.9 * len(data.marks)), height=2.3)
    shown = _Legend()
    width = 0.8 / len(figure.y)
    shades = [0.65 * place / max(1, len(figure.y) - 1) for place in range(len(figure.y))]
    for axes, scenario in zip(panels, data.scenarios, strict=False):
        for group, (competitor, mark) in enumerate(data.marks.items()):
            for place, metric in enumerate(figure.y):
                x = group + (place - (len(figure.y) - 1) / 2) * width
                _bar(axes, x, width, lighter(mark.colour, shades[place]), data, (metric, scenario, competitor), shown)
        _groups(axes, list(data.marks))
        if len(data.scenarios) > 1:
            axes.set_title(scenario)
    is_one_quantity = len({metric.split("[")[0] for metric in figure.y}) == 1
    for axes in panels[::columns]:
        axes.set_ylabel(_ordinate(figure, figure.y[0]) if is_one_quantity else figure.y_label)
    if len(figure.y) > 1:
        shown.first = [
            Patch(color=lighter("#444444", shade), label=data.label(metric))
            for metric, shade in zip(figure.y, shades, strict=True)
        ]
    return shown.on(drawn)


def _bars_of_scenarios(figure: PaperFigure, data: _Data) -> Figure:
    """Draw a panel per metric, a group per scenario, a bar per competitor."""
    columns = min(2, len(figure.y))
    drawn, panels = _panels(figure, len(figure.y), columns, width=max(4.6, 1.2 * len(data.scenarios)), height=2.3)
    shown = _Legend([Patch(color=mark.colour, label=name) for name, mark in data.marks.items()])
    width = 0.8 / len(data.marks)
    order = texts = list(data.scenarios)
    if figure.x is not None and figure.x != "scenario":
        at = {name: AXES[figure.x].value(scenario) for name, scenario in data.scenarios.items()}
        order = sorted(order, key=lambda name: at[name])
        # Scenarios with equal values are named instead.
        texts = [_value_text(figure.x, at[name]) for name in order] if len(set(at.values())) == len(at) else order
    for axes, metric in zip(panels, figure.y, strict=False):
        for group, scenario in enumerate(order):
            for place, (competitor, mark) in enumerate(data.marks.items()):
                x = group + (place - (len(data.marks) - 1) / 2) * width
                _bar(axes, x, width, mark.colour, data, (metric, scenario, competitor), shown)
        _groups(axes, texts)
        axes.set_ylabel(_ordinate(figure, metric))
        axes.set_title(data.label(metric) if len(figure.y) > 1 else "")
    return shown.on(drawn)


def _bar(
    axes: Axes, x: float, width: float, colour: Any, data: _Data, place: tuple[str, str, str], shown: _Legend
) -> None:
    """Draw the bar of a metric, a scenario and a competitor."""
    mean, low, high = data.measured(*place)
    if not math.isnan(mean):
        axes.bar(x, mean, 0.92 * width, color=colour)
    if not math.isnan(low):
        axes.errorbar(
            x, mean, [[max(0.0, mean - low)], [max(0.0, high - mean)]],
            fmt="none", ecolor="#222222", elinewidth=1, capsize=2.5,
        )  # fmt: skip
    if remark := data.remark(*place):
        top = 0.0 if math.isnan(mean) else float(np.nanmax([mean, high]))
        axes.annotate(remark, (x, top), xytext=(0, 2), textcoords="offset points", ha="center", va="bottom", fontsize=7)
    for claim in data.claims(*place):
        assert claim.value is not None
        shown.published(axes, x, claim.value, claim.bound, "#111111")


def _groups(axes: Axes, names: Sequence[str]) -> None:
    figure = axes.get_figure()
    assert isinstance(figure, Figure)
    columns = len({panel.get_position().x0 for panel in figure.axes})
    letters_per_group = int(12.5 * figure.get_size_inches()[0] / columns / len(names))
    axes.set_xticks(range(len(names)), ["\n".join(textwrap.wrap(name, max(8, letters_per_group))) for name in names])
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.tick_params(axis="x", length=0)
    axes.grid(visible=False, axis="x")


def _lines(figure: PaperFigure, data: _Data) -> Figure:
    """Draw a line per competitor, in a panel per metric and value of the panel axis."""
    axis = str(figure.x)
    parts: dict[float, list[str]] = {}
    for name, scenario in data.scenarios.items():
        parts.setdefault(0.0 if figure.panel is None else AXES[figure.panel].value(scenario), []).append(name)
    panels_of = [(value, metric) for value in sorted(parts) for metric in figure.y]
    columns = min(3, len(parts)) if len(figure.y) == 1 else min(3, len(figure.y))
    drawn, panels = _panels(figure, len(panels_of), columns, width=4.4, height=2.4)
    shown = _Legend(
        [
            Line2D([], [], color=mark.colour, marker=mark.marker, markersize=5.5, linewidth=1.3, label=name)
            for name, mark in data.marks.items()
        ]
    )
    for place, (axes, (value, metric)) in enumerate(zip(panels, panels_of, strict=False)):
        points = sorted((AXES[axis].value(data.scenarios[name]), name) for name in parts[value])
        for (x, before), (next_x, name) in itertools.pairwise(points):
            if x == next_x:
                raise ValueError(
                    f"the figure {figure.title!r} has scenarios {before!r} and {name!r} at the same {axis}={x:g}: "
                    "give it a panel, the axis in which they differ"
                )
        for competitor in data.marks:
            _line(axes, points, metric, competitor, data, shown)
        xs = [x for x, _ in points]
        if len(xs) <= 8:
            axes.set_xticks(xs, [_number(axis, x) for x in xs])
        axes.set_xlabel(AXES[axis].label)
        titles = [] if figure.panel is None else [_value_text(figure.panel, value)]
        axes.set_title(", ".join(titles + ([data.label(metric)] if len(figure.y) > 1 else [])))
        if place % columns == 0 or len(figure.y) > 1:
            axes.set_ylabel(_ordinate(figure, metric))
    # After everything is drawn, since panels may share their limits.
    for axes, (_, metric) in zip(panels, panels_of, strict=False):
        if metric.startswith("share["):
            axes.set_ylim(0, 1)
        elif not metric.startswith(("link_jain", "link_utilisation", "application_utilisation")):
            # Remarks on times that are not reached stand above the lines.
            _begin_at_zero(axes, room=0.4 if metric in TIMES_TO_REACH else 0.08)
    return shown.on(drawn)


def _line(
    axes: Axes, points: Sequence[tuple[float, str]], metric: str, competitor: str, data: _Data, shown: _Legend
) -> None:
    """Draw the line of a metric and a competitor over scenarios, with its intervals and published values."""
    mark = data.marks[competitor]
    line = list(data.marks).index(competitor)
    rows = [(x, *data.measured(metric, scenario, competitor)) for x, scenario in points]
    x, mean, low, high = np.array([row for row in rows if not math.isnan(row[1])]).reshape(-1, 4).T
    axes.plot(
        x, mean, color=mark.colour, marker=mark.marker, linewidth=1.3, markersize=5.5 if mark.marker != "*" else 8,
        markeredgecolor="white", markeredgewidth=0.5,
    )  # fmt: skip
    # All intervals are one path with gaps.
    gaps = np.full(len(x), math.nan)
    axes.plot(np.repeat(x, 3), np.stack([low, high, gaps], axis=1).ravel(), color=mark.colour, linewidth=1, alpha=0.7)
    for at, scenario in points:
        for claim in data.claims(metric, scenario, competitor):
            assert claim.value is not None
            shown.published(axes, at, claim.value, claim.bound, mark.colour)
    for place, (at, scenario) in enumerate(points if metric in TIMES_TO_REACH else ()):
        if remark := data.remark(metric, scenario, competitor):
            side = "left" if place == 0 else "right" if place == len(points) - 1 else "center"
            axes.annotate(
                f"{competitor}: {remark}", (at, 1.0), xycoords=("data", "axes fraction"),
                xytext=(0, -2 - 9 * line), textcoords="offset points",
                ha=side, va="top", fontsize=7, color=mark.colour,
            )  # fmt: skip


def _over_time(figure: PaperFigure, traces: Mapping[str, Trace]) -> Figure:
    """Draw a panel per competitor and column, with a line per flow, or one line for a column of the link."""
    if not traces:
        raise ValueError(f"the figure {figure.title!r} has nothing to show: no run of its scenario is done")
    columns = len(figure.y) if len(figure.y) > 1 else {1: 1, 2: 2, 4: 2}.get(len(traces), 3)
    drawn, panels = _panels(figure, len(traces) * len(figure.y), columns, width=4.8, height=1.75, is_over_time=True)
    first = next(iter(traces.values()))
    window_s = 0.0
    places = iter(panels)
    for competitor, trace in traces.items():
        names = flow_names(trace, competitor)
        flows = len(trace.scenario.flows)
        for column in figure.y:
            axes = next(places)
            is_of_link = column.startswith("link_")
            for index in range(1 if is_of_link else flows):
                time_s, values, window_s = _thinned(trace, column, index)
                axes.plot(
                    time_s,
                    values,
                    color="#555555" if is_of_link else lighter(mark_of(names[index]).colour, _shade(index, flows)),
                    linestyle="-" if is_of_link else _style(index, flows),
                    linewidth=1.1 if flows <= MOST_FLOWS_NAMED else 0.8,
                )
            axes.set_title(competitor if len(figure.y) == 1 else f"{competitor}: {LABELS.get(column, column)}")
            axes.set_xlim(0, trace.scenario.duration_s)
    for place, axes in enumerate(panels):
        _begin_at_zero(axes)
        is_lowest = place + columns >= len(panels)
        axes.tick_params(labelbottom=is_lowest, labelleft=place % columns == 0 or len(figure.y) > 1)
        if is_lowest:
            axes.set_xlabel(f"time (s), means over {window_s:g} s")
        if place % columns == 0 and len(figure.y) == 1:
            axes.set_ylabel(_ordinate(figure, column))
    shown = _Legend()
    flows = len(first.scenario.flows)
    if not all(column.startswith("link_") for column in figure.y):
        for index, flow in enumerate(first.scenario.flows):
            if flows > MOST_FLOWS_NAMED and 0 < index < flows - 1:
                continue
            algorithms = {trace.scenario.flows[index].algorithm for trace in traces.values()}
            label = f"flow {index} ({flow.rtt_ms:g} ms{_rival(algorithms, traces)})"
            if flows > MOST_FLOWS_NAMED and index == 0:
                label += " to"
            colour, style = lighter("#666666", _shade(index, flows)), _style(index, flows)
            shown.first.append(Line2D([], [], color=colour, linestyle=style, label=label, linewidth=1.2))
    return shown.on(drawn)


def _style(index: int, flows: int) -> Any:
    return LINES[index] if flows <= MOST_FLOWS_NAMED else "-"


def _begin_at_zero(axes: Axes, room: float = 0.08) -> None:
    """Set the y-axis from 0 to the highest value of all axes that share it, plus some room."""
    shared = axes.get_shared_y_axes().get_siblings(axes)
    highest = max((other.dataLim.y1 for other in shared if other.has_data()), default=0.0)
    axes.set_ylim(0, (1 + room) * highest if 0 < highest < math.inf else 1)


def _rival(algorithms: set[str], traces: Mapping[str, Trace]) -> str:
    """Return the algorithm of a flow that no competitor takes: it is the same in all panels, and others differ."""
    others = {flow.algorithm for trace in traces.values() for flow in trace.scenario.flows}
    return f", {min(algorithms)}" if len(algorithms) == 1 and len(others) > 1 else ""


def _shade(index: int, flows: int) -> float:
    """Return how light a flow is: the first has the colour itself, or darker among many flows, the last is light."""
    first = -0.5 if flows > MOST_FLOWS_NAMED else 0.0
    return first + (0.6 - first) * index / max(1, flows - 1)


def _thinned(trace: Trace, column: str, flow: int) -> tuple[Any, Any, float]:
    """Return times, means over windows of a column, and the windows' length in s: as many points as can be seen."""
    rows = trace.rows[trace.rows["flow"] == flow]
    values = rows[column] if column.startswith("link_") else rows[column].where(rows["is_active"] > 0)
    step_s = trace.step_ms / 1e3
    steps = max(1, math.ceil(len(rows) / POINTS_PER_LINE))
    if column.endswith("_mbps"):
        steps = max(steps, round(1.0 / step_s))  # rates over 100 ms show the noise of single packets
    windows = np.arange(len(rows)) // steps
    groups = pd.DataFrame({"time_s": rows["time_s"].to_numpy(), "value": values.to_numpy()}).groupby(windows)
    means = groups.mean()
    # The middle of each window.
    times = means["time_s"] - step_s / 2
    return times.to_numpy(), means["value"].to_numpy(), round(steps * step_s, 6)


class _Legend:
    """The legend of a figure: its own entries, then the signs of the published values that were drawn."""

    def __init__(self, first: Iterable[Any] = ()) -> None:
        self.first: list[Any] = list(first)
        self._bounds: set[str] = set()

    def published(self, axes: Axes, x: float, value: float, bound: str, colour: str) -> None:
        self._bounds.add(bound)
        axes.plot(
            x, value, PUBLISHED_SIGNS[bound], markersize=6.5, markerfacecolor="white", markeredgecolor=colour,
            markeredgewidth=1.4, zorder=5, clip_on=False,
        )  # fmt: skip

    def on(self, figure: Figure) -> Figure:
        entries = list(self.first)
        for bound, sign in PUBLISHED_SIGNS.items():
            if bound in self._bounds:
                label = "published" if bound == "about" else f"published: {bound}"
                entries.append(
                    Line2D(
                        [], [], linestyle="", marker=sign, markersize=6.5, markerfacecolor="white",
                        markeredgecolor="#111111", markeredgewidth=1.4, label=label,
                    )
                )  # fmt: skip
        if entries:
            inches = figure.get_size_inches()[0]
            letters = max(len(str(entry.get_label())) for entry in entries) + 7
            figure.legend(handles=entries, loc="outside lower center", ncols=max(1, int(14 * inches / letters)))
        return figure


def _panels(
    figure: PaperFigure, panels: int, columns: int, width: float, height: float, is_over_time: bool = False
) -> tuple[Figure, list[Axes]]:
    """Return a figure with its title and panels; a row of panels is no wider than a page."""
    rows = math.ceil(panels / columns)
    inches = min(10.0, width * columns)
    drawn = empty_figure(inches, 0.85 + height * rows)
    # Panels of one quantity share the y-axis.
    is_one_quantity = len({metric.split("[")[0] for metric in figure.y}) == 1
    grid = drawn.subplots(rows, columns, squeeze=False, sharex=is_over_time, sharey=True if is_one_quantity else "col")
    for axes in list(grid.flat)[panels:]:
        axes.set_visible(False)
    drawn.suptitle(_wrapped(figure.title, inches), x=0.01, ha="left", fontsize=10)
    return drawn, list(grid.flat)[:panels]


def _ordinate(figure: PaperFigure, metric: str) -> str:
    base = metric.split("[")[0]
    return "\n".join(textwrap.wrap(figure.y_label or LABELS.get(base, base), 26))


def _wrapped(text: str, inches: float) -> str:
    return "\n".join(textwrap.wrap(text, int(14 * inches)))


def _number(axis: str, value: float) -> str:
    value = 100 * value if axis == "loss" else value
    return f"{value:.0f}" if value == round(value) else f"{value:.3g}"


def _value_text(axis: str, value: float) -> str:
    text = AXES[axis].form.format(_number(axis, value))
    return "1 flow" if text == "1 flows" else text
