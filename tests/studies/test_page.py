"""The parts of pages that all studies share."""

import io
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image

from bbrgym.benchmark.style import COLOURS, lighter
from studies import page


def test_a_table_is_whole_and_its_text_is_text() -> None:
    assert page.table(["a", "b"], [[page.cell("x | *y* <b>"), "1"]], numbers=[1]).splitlines() == [
        "| a | b |",
        "| --- | --: |",
        "| x \\| \\*y\\* \\<b> | 1 |",
    ]
    assert page.cell("link_jain  a < b [0.1 0.2]") == "link_jain a < b [0.1 0.2]"
    assert page.cell("_this_ [x](y)") == "\\_this\\_ [x]\\(y)"


def draw(tmp_path: Path, name: str) -> bytes:
    """Write a small figure, and return the content of its file."""
    figure = Figure(figsize=(7, 3))
    figure.subplots().plot([1, 3, 2])
    assert page.write_figure(figure, tmp_path / "results.md", name) == f"results/{name}.png"
    return (tmp_path / "results" / f"{name}.png").read_bytes()


def test_figures_are_small_and_the_same_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = draw(tmp_path, "line")
    assert content.startswith(b"\x89PNG")
    assert b"matplotlib" not in content.lower()
    assert len(content) < page.MOST_FIGURE_BYTES
    assert draw(tmp_path, "again") == content
    # What would be too large has fewer dots.
    monkeypatch.setattr(page, "MOST_FIGURE_BYTES", len(content) - 1)
    assert len(draw(tmp_path, "smaller")) < len(content)
    # But never so few that its text cannot be read: 100 per inch.
    monkeypatch.setattr(page, "MOST_FIGURE_BYTES", 1)
    with Image.open(io.BytesIO(draw(tmp_path, "smallest"))) as image:
        assert image.size == (700, 300)


def test_small_areas_keep_their_colour(tmp_path: Path) -> None:
    figure = Figure(figsize=(7, 3))
    axes = figure.subplots()
    for place, colour in enumerate(COLOURS):
        axes.barh(place, 1, color=lighter(colour, 0.6))
        axes.barh(place, 0.01, color=colour)
    page.write_figure(figure, tmp_path / "results.md", "bars")
    with Image.open(tmp_path / "results" / "bars.png") as image:
        found = {colour for _, colour in image.convert("RGB").getcolors(10_000)}
    for colour in COLOURS:
        wanted = np.array(to_rgb(colour)) * 255
        assert min(np.abs(np.array(other) - wanted).max() for other in found) < 8, colour
