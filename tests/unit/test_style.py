"""What all figures share: marks, names beside what they name, and the limits of axes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from bbrgym.baselines.registry import COMPARATORS, controllers
from bbrgym.benchmark import style

ALGORITHMS = [name for name in [*controllers(), *COMPARATORS] if name != "agent"]


def test_every_registered_algorithm_has_a_mark_of_its_own() -> None:
    marks = [style.mark_of(name) for name in ALGORITHMS]
    assert len(set(marks)) == len(marks)
    assert style.mark_of("my-agent") == style.UNREGISTERED


def test_competitors_of_a_figure_can_be_told_apart() -> None:
    marks = style.marks_of(["bbr", "without-alpha", "without-beta", "without-both"])
    assert len({mark.colour for mark in marks.values()}) == 4
    assert marks["bbr"] == style.mark_of("bbr")
    assert style.marks_of(["bbr", "my-agent"])["my-agent"] == style.UNREGISTERED
    # Two that have one colour in the registry.
    first, second = ALGORITHMS[0], ALGORITHMS[len(style.COLOURS)]
    marks = style.marks_of([second, first, ALGORITHMS[1]])
    assert len({mark.colour for mark in marks.values()}) == 3
    assert [marks[name] for name in (second, ALGORITHMS[1])] == [style.mark_of(second), style.mark_of(ALGORITHMS[1])]


def extents(axes: Axes) -> dict[str, Bbox]:
    figure = axes.get_figure()
    assert isinstance(figure, Figure)
    figure.draw_without_rendering()
    return {text.get_text(): Text.get_window_extent(text) for text in axes.texts}


def overlaps(boxes: dict[str, Bbox]) -> list[tuple[str, str]]:
    return [pair for pair in itertools.combinations(boxes, 2) if boxes[pair[0]].overlaps(boxes[pair[1]])]


@pytest.mark.parametrize("ends", [[5] * 8, [0, 0, 0, 10, 10, 10], [1, 2, 3, 4, 5.0, 5.1, 5.2, 9], [7]])
def test_names_stand_at_the_ends_of_lines_in_their_order(ends: list[float]) -> None:
    figure = style.empty_figure(3)
    axes = figure.subplots()
    for index, end in enumerate(ends):
        axes.plot([0, 1, 2], [3, end, np.nan], label=f"line {index}")
    axes.plot([0, 1], [1, 2])  # without a name
    axes.set_ylim(0, 10)
    style.name_lines(figure)
    boxes = extents(axes)
    assert set(boxes) == {f"line {index}" for index in range(len(ends))}
    assert not overlaps(boxes)
    assert all(box.x0 >= axes.get_window_extent().x1 for box in boxes.values())
    assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 for box in boxes.values())
    upward = sorted(boxes, key=lambda name: boxes[name].y0)
    assert [ends[int(name.removeprefix("line "))] for name in upward] == sorted(ends)
    if len(ends) == 1:
        assert (boxes["line 0"].y0 + boxes["line 0"].y1) / 2 == pytest.approx(
            axes.transData.transform((2, 7))[1], abs=1
        )
