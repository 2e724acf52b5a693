"""How all figures look: fonts, sizes, the colour and marker of each competitor, and names beside what they name.

An algorithm keeps its colour and marker from figure to figure. Colour is never the only difference: flows of one
algorithm differ in line style, competitors in marker, and a name stands beside its line or point. Where many lines are
drawn, `MOST_HIGHLIGHTED` of them have a colour and the others are grey.
"""

from __future__ import annotations

import functools
import io
import math
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, ParamSpec

import numpy as np
import numpy.typing as npt

from bbrgym.baselines import registry
from bbrgym.envs.style import COLOURS as COLOURS
from bbrgym.envs.style import LINES as LINES
from bbrgym.envs.style import SMALL as SMALL
from bbrgym.envs.style import STYLE as STYLE
from bbrgym.envs.style import fit_y as fit_y
from bbrgym.extras import optional

with optional("a plot"):
    from matplotlib import rc_context
    from matplotlib.axes import Axes
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import to_rgb
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.transforms import ScaledTranslation

WIDTH: Final = 6.4
"""Of a figure, in inches: its text has the size of the text around it, and the half of it on a phone."""
MARKERS: Final = "osD^vP<>Xphd"
MOST_HIGHLIGHTED: Final = 6
"""How many lines of a figure have a colour: more cannot be told apart."""

Arguments = ParamSpec("Arguments")
Points = npt.NDArray[np.float64]


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

    def line(self, axes: Axes, x: npt.ArrayLike, y: npt.ArrayLike, size: float = 5.5, **properties: Any) -> None:
        """Draw a line with markers of this size; black is thicker than colours, and grey is thin and behind them."""
        weight = {UNREGISTERED.colour: 1, OTHERS.colour: -1}.get(self.colour, 0)
        axes.plot(
            x,
            y,
            marker=self.marker,
            color=self.colour,
            linewidth=1.4 + 0.7 * weight,
            zorder=2.5 + 0.1 * weight,
            markersize=size * (1.5 if self.marker == "*" else 1),
            markeredgecolor="white",
            markeredgewidth=0.6,
            **properties,
        )


UNREGISTERED: Final = Mark("#000000", "*")
OTHERS: Final = Mark("#b4b4b4", "")
"""Competitors that are not highlighted."""


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


def marks_of(names: Sequence[str], most: int | None = None) -> dict[str, Mark]:
    """Return a mark per name: `mark_of`, and another one where two would look alike.

    A report asks once, for all names in it, and gives the marks to each of its figures.

    Args:
        names: the competitors, the most important first: a colour that two have stays with the first one. A single name
            that is not registered is black; several get unused colours and markers.
        most: how many are highlighted, as `MOST_HIGHLIGHTED`; the others are grey. All if it is None.
    """
    names = list(dict.fromkeys(names))
    marks = {name: mark_of(name) for name in names[:most]}
    have = list(marks.values())
    colours = [colour for colour in COLOURS if colour not in {mark.colour for mark in have}]
    markers = [marker for marker in MARKERS if marker not in {mark.marker for mark in have}]
    is_single = have.count(UNREGISTERED) == 1
    seen: set[str] = set()
    given: set[Mark] = set()
    for name, mark in marks.items():
        if mark == UNREGISTERED and not is_single:
            marks[name] = Mark(_next(colours, COLOURS, len(seen)), _next(markers, MARKERS, len(seen)))
        elif mark.colour in seen and colours:
            marks[name] = Mark(colours.pop(0), mark.marker)
        if marks[name] in given:
            every = (Mark(colour, marker) for marker in MARKERS for colour in COLOURS)
            marks[name] = next((free for free in every if free not in given), marks[name])
        seen |= {marks[name].colour, name}
        given.add(marks[name])
    return marks | dict.fromkeys(names[len(marks) :], OTHERS)


def _next(free: list[str], every: Sequence[str], count: int) -> str:
    return free.pop(0) if free else every[count % len(every)]


def empty_figure(height: float, width: float = WIDTH) -> Figure:
    """Return a figure without axes; width and height are in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def panels(
    count: int, columns: int, height: float, title: str = "", room: float = 0.0, **shared: Any
) -> tuple[Figure, list[Axes]]:
    """Return a figure and its panels.

    Args:
        count: how many panels.
        columns: how many of them are side by side.
        height: of a row, in inches.
        title: of the figure, above all panels.
        room: for what is not in a row, such as a legend, in inches.
        shared: arguments of `Figure.subplots`, such as `sharey`.
    """
    rows = math.ceil(count / columns)
    figure = empty_figure(room + 0.3 * bool(title) + height * rows)
    grid = list(figure.subplots(rows, columns, squeeze=False, **shared).flat)
    for place, surplus in enumerate(grid[count:], start=count):
        surplus.set_visible(False)
        grid[place - columns].tick_params(labelbottom=True)
    if title:
        figure.suptitle(textwrap.fill(title, 72), x=0.01, ha="left")
    return figure, grid[:count]


def name_lines(figure: Figure) -> None:
    """Write the label of each line at its right end, in its colour; none covers another.

    It is the last step of a figure: all panels must have their limits.
    """
    figure.draw_without_rendering()
    gap = 1.2 * SMALL * figure.dpi / 72
    for axes in figure.axes:
        height = axes.get_window_extent().height
        beside = axes.transAxes + ScaledTranslation(8 / 72, 0, figure.dpi_scale_trans)
        ends = []
        for line in axes.get_lines():
            points = axes.transAxes.inverted().transform(_pixels(line))
            if not str(line.get_label()).startswith("_") and len(points):
                ends.append((*points[-1], line))
        ends.sort(key=lambda end: end[1])
        wanted = np.clip([y * height for _, y, _ in ends], 0, height)
        for (x, y, line), place in zip(ends, _apart(wanted, gap, height), strict=True):
            axes.annotate(
                str(line.get_label()),
                (x, min(max(y, 0.0), 1.0)),
                xycoords="axes fraction",
                xytext=(1.0, place / height),
                textcoords=beside,
                ha="left",
                va="center",
                fontsize=SMALL,
                color=_text_colour(line.get_color()),
                arrowprops={
                    "arrowstyle": "-",
                    "color": line.get_color(),
                    "linewidth": 0.6,
                    "linestyle": "-" if x > 0.98 else (0, (1, 4)),  # not as the line of what goes on
                    "shrinkA": 1,
                    "shrinkB": 0,
                    "relpos": (0, 0.5),
                },
            )


def _apart(wanted: Points, gap: float, height: float) -> Points:
    """Return places within [0, height], `gap` apart, as near as can be to the wanted ones, which are in order."""
    steps = gap * np.arange(len(wanted))
    groups: list[list[float]] = []
    for value in wanted - steps:
        groups.append([value])
        while len(groups) > 1 and np.mean(groups[-2]) > np.mean(groups[-1]):
            last = groups.pop()
            groups[-1] += last
    places = np.repeat([np.mean(group) for group in groups], [len(group) for group in groups])
    return np.clip(places, 0, max(0.0, height - steps[-1])) + steps if len(wanted) else wanted


def name_points(axes: Axes, points: Mapping[str, npt.ArrayLike], marks: Mapping[str, Mark]) -> None:
    """Write each name beside one of its points, in its colour, where it covers least of other names and points.

    Args:
        axes: with their limits.
        points: shape (n, 2) per name, in data coordinates: one point, or those of a line beside which it may stand.
        marks: of each name.
    """
    figure = axes.get_figure()
    assert isinstance(figure, Figure)
    figure.draw_without_rendering()
    pixel, frame = figure.dpi / 72, axes.get_window_extent()
    at = {name: axes.transData.transform(np.reshape(of_name, (-1, 2))) for name, of_name in points.items()}
    drawn = np.vstack([_along(_pixels(line), 8 * pixel) for line in axes.get_lines()])
    taken = np.hstack([drawn - 6 * pixel, drawn + 6 * pixel])
    distances, angles = (part.ravel() for part in np.meshgrid([9, 18, 30, 44, 60], np.radians(range(0, 360, 30))))
    for name, places in sorted(at.items(), key=lambda item: -float(item[1][0, 1])):
        size = axes.text(0, 0, name, fontsize=SMALL)
        half = np.array(size.get_window_extent().size) / 2
        size.remove()
        offsets = np.stack([np.cos(angles), np.sin(angles)], axis=1) * distances[:, np.newaxis] * pixel
        # A name beside the point begins at this distance, one above or below it is centred.
        offsets[:, 0] += half[0] * np.where(np.abs(offsets[:, 0]) > 1, np.sign(offsets[:, 0]), 0)
        middles = places[:, np.newaxis] + offsets
        boxes = np.concatenate([middles - half, middles + half], axis=2)
        highest = np.minimum(boxes[..., np.newaxis, 2:], taken[:, 2:])
        sides = highest - np.maximum(boxes[..., np.newaxis, :2], taken[:, :2])
        is_outside = (boxes[..., :2] < frame.min).any(axis=2) | (boxes[..., 2:] > frame.max).any(axis=2)
        cost = np.maximum(sides, 0).prod(axis=3).sum(axis=2) + distances * pixel + 1e6 * is_outside
        place, side = np.unravel_index(np.argmin(cost), cost.shape)
        taken = np.vstack([taken, boxes[place, side]])
        line = {"arrowstyle": "-", "color": "#999999", "linewidth": 0.6, "shrinkA": 0}
        axes.annotate(
            name,
            tuple(axes.transData.inverted().transform(places[place])),
            xytext=tuple(offsets[side] / pixel),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=SMALL,
            color=_text_colour(marks[name].colour),
            arrowprops=line if distances[side] > 9 else None,
        )


def _pixels(line: Line2D) -> Points:
    """Return the known points of a line in pixels, shape (n, 2)."""
    points: Points = line.get_transform().transform(np.asarray(line.get_xydata()))
    return points[np.isfinite(points).all(axis=1)]


def _along(points: Points, spacing: float) -> Points:
    """Return points of a line through these points that are so far apart."""
    at = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(points, axis=0).T))])
    places = np.arange(0, at[-1] + spacing, spacing)
    return np.stack([np.interp(places, at, points[:, axis]) for axis in (0, 1)], axis=1)


def lighter(colour: str, part: float) -> tuple[float, float, float]:
    """Return a mix of the colour and white: 0 is the colour, 1 is white; negative values mix black, -1 is black."""
    red, green, blue = (channel + ((1 - channel) if part > 0 else channel) * part for channel in to_rgb(colour))
    return red, green, blue


def _text_colour(colour: str) -> tuple[float, float, float]:
    """Return the colour, darker if it is too light for text on white."""
    return lighter(colour, min(0.0, 0.45 / max(luminance(to_rgb(colour)), 1e-9) - 1))


def luminance(colour: tuple[float, float, float]) -> float:
    """Return how light a colour is: 0 is black, 1 is white."""
    return 0.2126 * colour[0] + 0.7152 * colour[1] + 0.0722 * colour[2]


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
