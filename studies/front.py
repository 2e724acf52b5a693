"""Draw the pictures of the front page.

    python -m studies.front             writes docs/images/front.png
    python -m studies.front --moving    writes docs/images/front.webp, which moves

Two flows with RTTs of 10 and 50 ms share 20 Mbit/s: as two BBR flows, and as two flows of the shipped policy. Where the
picture moves, they run one after the other, and the lines of BBR stay, in grey.
"""

from __future__ import annotations

import io
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from bbrgym.benchmark.plots import over_time
from bbrgym.envs.scenario import Flow, Scenario
from bbrgym.envs.trace import Trace, simulate
from bbrgym.files import replace_file
from bbrgym.output import run_program
from studies.page import image_of, write_figure

PAGE: Final = Path(__file__).parents[1] / "docs" / "images"
TITLES: Final = {"bbr": "two flows of BBR", "policy": "two flows of the shipped policy"}
COLUMNS: Final = ("throughput_mbps", "link_queue_mean_ms")
SECONDS_PER_FRAME: Final = 0.5
"""Simulated: a run of 40 s has 80 pictures."""
MS_PER_FRAME: Final = 80
STAYS_MS: Final = 2500
"""How long the end of a run is shown."""
INCHES: Final = (4.8, 3.2)
"""Small, so that a phone, which shows it in half of its size, has letters that can be read."""
DOTS_PER_INCH: Final = 166
GHOST: Final = "#cfcfcf"
MOST_BYTES: Final = 1_000_000


def run(algorithm: str) -> Trace:
    """Return the run of two flows of an algorithm."""
    flows = (Flow(algorithm, rtt_ms=10), Flow(algorithm, rtt_ms=50))
    return simulate(Scenario(rate_mbps=20, buffer_bdp=5, duration_s=40, flows=flows), engine="native", seed=1)


def picture() -> Figure:
    """Return the throughput of each flow and the queue of both runs, side by side."""
    runs = {title: run(algorithm) for algorithm, title in TITLES.items()}
    return over_time(runs, COLUMNS, window_s=1.0)


def moving_picture() -> tuple[list[Image.Image], list[int]]:
    """Return the pictures of both runs, one after the other, and how long each is shown, in ms."""
    figures = [_figure(run(algorithm), title) for algorithm, title in TITLES.items()]
    for panels in zip(*(figure.axes for figure in figures), strict=True):
        highest = max(axes.get_ylim()[1] for axes in panels)
        for axes in panels:
            axes.set_ylim(0, highest)
    before, after = figures
    for old, new in zip(before.axes, after.axes, strict=True):
        _leave(old, new)
    pictures = [picture for figure in figures for picture in _grow(figure)]
    lengths = [MS_PER_FRAME] * len(pictures)
    lengths[len(pictures) // 2 - 1] = lengths[-1] = STAYS_MS
    return pictures, lengths


def write_moving(path: Path) -> None:
    """Write the moving picture as WebP.

    Raises:
        ValueError: it is larger than a front page should load.
    """
    first, *others = (pictures := moving_picture())[0]
    content = io.BytesIO()
    first.save(
        content, "webp", save_all=True, append_images=others, duration=pictures[1], loop=0, lossless=True, method=6
    )
    if (size := content.tell()) > MOST_BYTES:
        raise ValueError(f"the moving picture must have at most {MOST_BYTES:,} bytes, got {size:,}")
    replace_file(path, lambda to: to.write_bytes(content.getvalue()))


def _figure(trace: Trace, title: str) -> Figure:
    """Return a run as all pages show one: a line per flow above the queue; the title says whose run it is."""
    figure = over_time({"": trace}, COLUMNS, title=title, window_s=1.0)
    figure.set_size_inches(*INCHES)
    for axes in figure.axes:
        for name in axes.texts:
            name.set_text(name.get_text().rpartition(", ")[2])
    return figure


def _leave(old: Axes, new: Axes) -> None:
    """Leave the flows and the queue of one run in the panel of the next, in grey and behind its lines."""
    for line in _of_flows(old):
        points = np.array(line.get_xydata())
        new.plot(
            points[:, 0],
            points[:, 1],
            color=GHOST,
            linestyle=line.get_linestyle(),
            linewidth=1.0,
            zorder=0.5,
            label="_",
        )


def _of_flows(axes: Axes) -> list[Any]:
    """Return the lines of a panel that grow: all but the link's rate, which has the same value at all times."""
    return [line for line in axes.get_lines() if line.get_zorder() >= 1 and np.ptp(np.array(line.get_ydata())) > 0]


def _grow(figure: Figure) -> Iterator[Image.Image]:
    """Yield pictures of a figure whose lines and areas are drawn from left to right."""
    lines = [(line, np.array(line.get_xydata())) for axes in figure.axes for line in _of_flows(axes)]
    areas = [area.get_paths()[0] for axes in figure.axes for area in axes.collections]
    edges = [np.array(area.vertices)[:, 0] for area in areas]
    end = max(axes.get_xlim()[1] for axes in figure.axes)
    for now in np.arange(SECONDS_PER_FRAME, end + SECONDS_PER_FRAME / 2, SECONDS_PER_FRAME):
        for line, points in lines:
            there = points[points[:, 0] <= now]
            line.set_data(there[:, 0], there[:, 1])
        for area, edge in zip(areas, edges, strict=True):
            corners = np.array(area.vertices)
            corners[:, 0] = np.minimum(edge, now)
            area.vertices = corners
        yield image_of(figure, DOTS_PER_INCH)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the picture and print its path."""
    parser = ArgumentParser("python -m studies.front", description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--moving", action="store_true", help="write the picture that moves")
    if parser.parse_args(arguments).moving:
        path = PAGE / "front.webp"
        write_moving(path)
        print(path)
    else:
        print(PAGE.parent / write_figure(picture(), PAGE, "front"))
    return 0


if __name__ == "__main__":
    sys.exit(run_program("front", main))
