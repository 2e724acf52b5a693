"""What the pages of docs/results are made of: Markdown tables, and figures in files."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from matplotlib import rc_context
from matplotlib.figure import Figure
from PIL import Image

from bbrgym.benchmark.markdown import cell as cell
from bbrgym.benchmark.markdown import table as table
from bbrgym.benchmark.style import STYLE
from bbrgym.files import replace_file

RESULTS: Final = Path(__file__).parents[1] / "docs" / "results"
MOST_FIGURE_BYTES: Final = 40_000
"""Figures are in the repository, so a larger one is drawn with fewer dots, as far as its text stays readable."""


Draw = Callable[[], Figure]
AddFigure = Callable[[str, Draw], str]
"""Takes the name of a figure and what draws it, and returns its address in a page."""


def figures_of(path: Path, *, is_written: bool) -> AddFigure:
    """Return what adds figures to a page, and draws and writes them if `is_written`."""

    def add(name: str, draw: Draw) -> str:
        return write_figure(draw(), path, name) if is_written else f"{path.stem}/{name}.png"

    return add


def load_older(study: str) -> Any:
    """Return what a page says of code from before results were kept, from docs/results/<study>/older.json.

    The file has what is not measured again yet, and goes when nothing is left; then it is {}.
    """
    path = RESULTS / study / "older.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def duration(seconds: float) -> str:
    """Return `1 h 03 min`, `4 min 12 s` or `12.3 s`."""
    if seconds >= 3600:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60):02d} min"
    if seconds >= 60:
        return f"{int(seconds // 60)} min {int(seconds % 60):02d} s"
    return f"{seconds:.1f} s"


def write_figure(figure: Figure, page: Path, name: str) -> str:
    """Write a figure of a page as PNG, in a folder beside the page that has its name, and return the link to it."""
    path = page.with_suffix("") / f"{name}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    for dots_per_inch in (125, 100):
        content = _png(figure, dots_per_inch)
        if len(content) <= MOST_FIGURE_BYTES:
            break
    replace_file(path, lambda to: to.write_bytes(content))
    return f"{path.parent.name}/{path.name}"


def image_of(figure: Figure, dots_per_inch: int) -> Image.Image:
    """Return a figure as an image in RGB."""
    drawn = io.BytesIO()
    with rc_context(STYLE):
        figure.savefig(drawn, format="png", dpi=dots_per_inch)
    with Image.open(drawn) as image:
        return image.convert("RGB")


def _png(figure: Figure, dots_per_inch: int) -> bytes:
    # A palette is a third of the size. The median cut would change a colour of small areas: the dark end of a bar.
    palette = image_of(figure, dots_per_inch).quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    small = io.BytesIO()
    palette.save(small, format="png", optimize=True)
    return small.getvalue()
