"""Draw the figures of a paper from measurements, with the published numbers."""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from bbrgym.benchmark.claims import Claim
from bbrgym.benchmark.paper_verdicts import PaperVerdicts
from bbrgym.benchmark.plots import LABELS
from bbrgym.benchmark.published import AXES, PaperFigure, PublishedComparison, numbers_of
from bbrgym.benchmark.statistics import number_text
from bbrgym.benchmark.style import (
    MOST_HIGHLIGHTED,
    OTHERS,
    SMALL,
    STYLE,
    Mark,
    empty_figure,
    fit_y,
    lighter,
    marks_of,
    name_lines,
    panels,
    styled,
)
from bbrgym.benchmark.tables import summary_table
from bbrgym.benchmark.verdicts import TIMES_TO_REACH
from bbrgym.envs.scenario import Scenario
from bbrgym.extras import optional
from bbrgym.files import replace_file

with optional("a plot"):
    from matplotlib import rc_context
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.image import imsave
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

MOST_LETTERS: Final = 14
"""Of a name beside a line, if two panels are side by side."""
LEGEND: Final = 0.3
"""Height of a line of a legend, in inches."""
PICTURE_DPI: Final = 150
VERDICT_COLUMNS: Final = (8.0, 46.0)
"""Where the verdicts on order and value stand at the right of the axes, in points."""
VERDICT_COLOURS: Final = {"yes": "#00734f", "no": "#a33f00"}
PUBLISHED_SIGNS: Final = {"about": "D", "above": "^", "below": "v"}


@styled
def paper_figure(
    figure: PaperFigure,
    results: pd.DataFrame,
    scenarios: Mapping[str, Scenario],
    published: Sequence[Claim] = (),
) -> Figure:
    """Draw a figure of a paper.

    Bars and lines are means over the seeds with 95 % bootstrap intervals. Published plain values of a competitor in one
    scenario stand beside them: hollow diamonds are numbers, hollow triangles that point up or down are bounds above or
    below which the metric should be.

    Raises:
        ValueError: there is nothing to show, or two scenarios would be the same point of a line.
    """
    names = [name for name in scenarios if figure.scenario in (None, name)]
    names = [name for name in names if (results["scenario"] == name).any()]
    if not names:
        raise ValueError(f"the figure {figure.title!r} has nothing to show: no run of its scenarios is done")
    most = None if figure.x is None else MOST_HIGHLIGHTED
    data = _Data.of(results, {name: scenarios[name] for name in names}, published, most)
    return _bars(figure, data) if figure.x is None else _lines(figure, data)


@dataclass(frozen=True)
class _Data:
    scenarios: Mapping[str, Scenario]
    rows: Mapping[tuple[str, str], pd.Series]
    """Rows of `summary_table`, by scenario and competitor."""
    published: tuple[Claim, ...]
    marks: Mapping[str, Mark]
    algorithms: Mapping[int, frozenset[str]]
    """Algorithms of each flow, over all competitors."""

    @classmethod
    def of(
        cls,
        results: pd.DataFrame,
        scenarios: Mapping[str, Scenario],
        published: Iterable[Claim],
        most: int | None,
    ) -> _Data:
        marks = marks_of([str(name) for name in results["competitor"].unique()], most)
        results = results[results["scenario"].isin(list(scenarios))]
        present = set(results["competitor"])
        table = summary_table(results)
        return cls(
            scenarios=scenarios,
            rows={(index[0], index[1]): row for index, row in table.iterrows() if isinstance(index, tuple)},
            published=tuple(claim for claim in published if claim.quantity == "value" and not claim.order),
            marks={name: mark for name, mark in marks.items() if name in present},
            algorithms={int(str(flow)): frozenset(of_flow) for flow, of_flow in results.groupby("flow")["algorithm"]},
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

    def claims(self, metric: str, scenario: str, competitor: str) -> list[Claim]:
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


def _bars(figure: PaperFigure, data: _Data) -> Figure:
    """Draw a panel per scenario, a row per competitor, a bar per metric with its value at the right."""
    metrics, rows = len(figure.y), len(data.marks)
    height = 0.75 + 0.23 * rows * max(metrics, 1.3)
    columns = min(3, len(data.scenarios))
    room = LEGEND if metrics == 1 else 2 * LEGEND
    drawn, grid = panels(
        len(data.scenarios), columns, height=height, title=figure.title, room=room, sharex=True, sharey=True
    )
    signs = _Signs()
    width = 0.8 / metrics
    shades = [0.65 * place / max(1, metrics - 1) for place in range(metrics)]
    for axes, scenario in zip(grid, data.scenarios, strict=True):
        for row, (competitor, mark) in enumerate(data.marks.items()):
            for place, metric in enumerate(figure.y):
                y = row + (place - (metrics - 1) / 2) * width
                mean, low, high = data.measured(metric, scenario, competitor)
                remark = data.remark(metric, scenario, competitor)
                text = " ".join(part for part in (remark, "" if math.isnan(mean) else number_text(mean)) if part)
                axes.text(0.99, y, text, transform=axes.get_yaxis_transform(), ha="right", va="center", fontsize=SMALL)
                if not math.isnan(mean):
                    axes.barh(y, mean, 0.92 * width, color=lighter(mark.colour, shades[place]))
                if not math.isnan(low):
                    axes.errorbar(
                        mean,
                        y,
                        xerr=[[max(0.0, mean - low)], [max(0.0, high - mean)]],
                        fmt="none",
                        ecolor="#222222",
                        elinewidth=1,
                        capsize=2.5,
                    )
                for claim in data.claims(metric, scenario, competitor):
                    signs.draw(axes, claim, y, "#111111", is_across=True)
        axes.set_title(scenario if len(data.scenarios) > 1 else "")
        axes.set_xlabel(_quantity(figure, figure.y[0]))
        axes.grid(visible=False, axis="y")
    grid[0].set_yticks(range(rows), list(data.marks))
    grid[0].set_ylim(rows - 0.5, -0.5)
    # The numbers stand right of the longest bar.
    longest = max(axes.dataLim.x1 for axes in grid)
    grid[0].set_xlim(0, (1.35 if len(grid) == 1 else 1.6) * longest if longest > 0 else 1)
    return signs.explain(
        drawn,
        [
            Patch(color=lighter("#444444", shade), label=data.label(metric))
            for metric, shade in zip(figure.y, shades, strict=True)
            if metrics > 1
        ],
    )


def _lines(figure: PaperFigure, data: _Data) -> Figure:
    """Draw a line per competitor, in a panel per metric and value of the panel axis."""
    axis = str(figure.x)
    parts: dict[float, list[str]] = {}
    for name, scenario in data.scenarios.items():
        parts.setdefault(0.0 if figure.panel is None else AXES[figure.panel].value(scenario), []).append(name)
    shown = [(value, metric) for value in sorted(parts) for metric in figure.y]
    # Panels of one quantity share the y-axis.
    is_one_quantity = len({metric.split("[")[0] for metric in figure.y}) == 1
    columns = min(2 if max(map(len, data.marks)) <= MOST_LETTERS else 1, len(shown))
    drawn, grid = panels(len(shown), columns, height=2.6, title=figure.title, room=LEGEND, sharey=is_one_quantity)
    signs = _Signs()
    for place, (axes, (value, metric)) in enumerate(zip(grid, shown, strict=True)):
        points = sorted((AXES[axis].value(data.scenarios[name]), name) for name in parts[value])
        for (x, before), (next_x, name) in itertools.pairwise(points):
            if x == next_x:
                raise ValueError(
                    f"the figure {figure.title!r} has scenarios {before!r} and {name!r} at the same {axis}={x:g}: "
                    "give it a panel, the axis in which they differ"
                )
        for competitor in data.marks:
            _line(axes, points, metric=metric, competitor=competitor, data=data, signs=signs)
        xs = [x for x, _ in points]
        if len(xs) <= 8:
            axes.set_xticks(xs, AXES[axis].numbers(*xs))
        axes.set_xlabel(AXES[axis].label)
        titles = [] if figure.panel is None else [AXES[figure.panel].text(value)]
        if len(figure.y) > 1:
            titles.append(data.label(metric))
        axes.set_title(", ".join(titles))
        if place % columns == 0 or not is_one_quantity:
            axes.set_ylabel(_quantity(figure, metric))
    for axes, (_, metric) in zip(grid, shown, strict=True):
        # Remarks on times that are not reached stand above the lines.
        fit_y(axes, room=0.4 if metric in TIMES_TO_REACH else 0.08)
    signs.explain(drawn)
    name_lines(drawn)
    return drawn


def _line(
    axes: Axes, points: Sequence[tuple[float, str]], metric: str, competitor: str, data: _Data, signs: _Signs
) -> None:
    """Draw the line of a metric and a competitor over scenarios, with its intervals and published values."""
    mark = data.marks[competitor]
    rows = [(x, *data.measured(metric, scenario, competitor)) for x, scenario in points]
    x, mean, low, high = np.array([row for row in rows if not math.isnan(row[1])]).reshape(-1, 4).T
    mark.line(axes, x, mean, label=competitor)
    # All intervals are one path with gaps.
    gaps = np.full(len(x), math.nan)
    axes.plot(np.repeat(x, 3), np.stack([low, high, gaps], axis=1).ravel(), color=mark.colour, linewidth=1, alpha=0.7)
    for place, (at, scenario) in enumerate(points):
        for claim in data.claims(metric, scenario, competitor):
            signs.draw(axes, claim, at, mark.colour)
        remark = data.remark(metric, scenario, competitor) if metric in TIMES_TO_REACH else ""
        if remark:
            side = "left" if place == 0 else "right" if place == len(points) - 1 else "center"
            line = list(data.marks).index(competitor)
            axes.annotate(
                f"{competitor}: {remark}",
                (at, 1.0),
                xycoords=("data", "axes fraction"),
                xytext=(0, -2 - 11 * line),
                textcoords="offset points",
                ha=side,
                va="top",
                fontsize=SMALL,
                color=mark.colour,
            )


@dataclass
class _Signs:
    """The signs of published values, and which of them a figure has."""

    bounds: set[str] = field(default_factory=set)

    def draw(self, axes: Axes, claim: Claim, at: float, colour: str, is_across: bool = False) -> None:
        """Draw the value of a claim at a place of the x-axis, or of the y-axis if values go across."""
        for bound, number in numbers_of(claim).items():
            self.bounds.add(bound)
            place = (number, at) if is_across else (at, number)
            axes.plot(*place, PUBLISHED_SIGNS[bound], zorder=5, clip_on=False, **_hollow(colour))

    def explain(self, figure: Figure, entries: Iterable[Any] = ()) -> Figure:
        """Add a legend with these entries and the signs that were drawn."""
        handles = [*entries]
        for bound in (bound for bound in PUBLISHED_SIGNS if bound in self.bounds):
            label = "published" if bound == "about" else f"published: {bound}"
            handles.append(
                Line2D([], [], linestyle="", marker=PUBLISHED_SIGNS[bound], label=label, **_hollow("#111111"))
            )
        if handles:
            letters = max(len(str(handle.get_label())) for handle in handles) + 7
            figure.legend(handles=handles, loc="outside lower center", ncols=max(1, 84 // letters))
        return figure


def _hollow(colour: str) -> dict[str, Any]:
    return {"markersize": 5.5, "markerfacecolor": "white", "markeredgecolor": colour, "markeredgewidth": 1.4}


def _quantity(figure: PaperFigure, metric: str) -> str:
    base = metric.split("[")[0]
    return textwrap.fill(figure.y_label or LABELS.get(base, base), 26)


@styled
def comparison_figure(rows: Sequence[PublishedComparison]) -> Figure:
    """Draw published numbers and measured ones side by side: a panel per metric, a line per entry.

    Orders have no number: they are not drawn. What was never reached, or not measured, has the published sign alone.

    Raises:
        ValueError: the paper published no number.
    """
    panels_of: dict[str, list[PublishedComparison]] = {}
    for row in rows:
        if numbers_of(row.claim):
            panels_of.setdefault(_heading(row.claim), []).append(row)
    if not panels_of:
        raise ValueError("the paper published no number: there is nothing to draw")
    counts = [len(of) for of in panels_of.values()]
    figure = empty_figure(height=0.65 + 2 * LEGEND + 0.62 * len(counts) + 0.25 * sum(counts))
    grid = figure.subplots(len(counts), 1, squeeze=False, gridspec_kw={"height_ratios": [n + 0.8 for n in counts]})
    signs, marks = _Signs(), marks_of(list(dict.fromkeys(str(row.claim.competitor) for row in rows)))
    for axes, (heading, entries) in zip(grid.flat, panels_of.items(), strict=True):
        for place, row in enumerate(entries):
            if math.isfinite(row.value):
                number = next(iter(numbers_of(row.claim).values()))
                axes.plot([number, row.value], [place, place], color=OTHERS.colour, linewidth=1.4, zorder=1)
                axes.plot(row.value, place, "o", color=marks[str(row.claim.competitor)].colour)
            signs.draw(axes, row.claim, place, "#111111", is_across=True)
            verdicts = PaperVerdicts.of(row)
            for text, right in zip((verdicts.order, verdicts.value), VERDICT_COLUMNS, strict=True):
                colour = VERDICT_COLOURS.get(text, "#444444")
                _beside(axes, text.removesuffix(" pairs"), place, right, color=colour)
        axes.set_title(heading)
        axes.set_yticks(range(len(entries)), [_line_name(row.claim) for row in entries])
        axes.set_ylim(len(entries) - 0.5, -0.5)
        axes.margins(x=0.06)
        axes.locator_params(axis="x", nbins=5)  # names and verdicts beside it leave an axis little room
        axes.grid(visible=False, axis="y")
    for text, right in zip(("order", "value"), VERDICT_COLUMNS, strict=True):
        _beside(grid[0, 0], text, -0.9, right, weight="bold")
    measured = Line2D([], [], linestyle="", marker="o", color="#444444", label="measured")
    figure.suptitle("Published and measured", x=0.01, ha="left")
    return signs.explain(figure, [measured])


def _beside(axes: Axes, text: str, place: float, right: float, **properties: Any) -> None:
    """Write a text at the right of the axes, so many points from them, on the line of an entry."""
    axes.annotate(
        text,
        (1.0, place),
        xycoords=axes.get_yaxis_transform(),
        xytext=(right, 0.0),
        textcoords="offset points",
        va="center",
        fontsize=SMALL,
        annotation_clip=False,
        **properties,
    )


def _heading(claim: Claim) -> str:
    label = LABELS.get(claim.metric.split("[")[0], claim.metric)
    if "[" in claim.metric:
        label += f", flow {claim.metric.split('[')[1].rstrip(']')}"
    if claim.quantity == "ratio":
        return f"{label}, over that of {claim.other}"
    return f"reduction of {label} against {claim.other}" if claim.quantity == "reduction" else label


def _line_name(claim: Claim) -> str:
    scenarios = claim.scenarios
    where = ", ".join(scenarios) if len(scenarios) < 3 else f"{scenarios[0]} … {scenarios[-1]}"
    over = "" if len(scenarios) == 1 else f"{claim.over} of "
    return f"{claim.competitor}: {over}{where}"


def write_picture(
    path: Path,
    figure: PaperFigure | None,
    rows: Sequence[PublishedComparison],
    results: pd.DataFrame,
    scenarios: Mapping[str, Scenario],
) -> None:
    """Write one picture: the figure from measurements, and below it what was published and measured side by side.

    Args:
        path: a PNG file, in a folder that need not exist.
        figure: the paper's figure; None if it has none.
        rows: what `compare` returns.
        results: the measurements, as `BenchmarkResult.results`.
        scenarios: those of the experiment.
    """
    shown = [] if figure is None else [paper_figure(figure, results, scenarios, [row.claim for row in rows])]
    if any(numbers_of(row.claim) for row in rows):
        shown.append(comparison_figure(rows))
    images = []
    for one in shown:
        one.set_dpi(PICTURE_DPI)
        canvas = FigureCanvasAgg(one)
        with rc_context(STYLE):
            canvas.draw()
        images.append(np.asarray(canvas.buffer_rgba())[..., :3])
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, lambda to: imsave(to, np.concatenate(images), format="png"))
