"""Pages in Markdown that are kept with the code: tables, numbers, and figures in files beside the page."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from matplotlib import rc_context
from matplotlib.figure import Figure

from bbrgym.benchmark.plots import STYLE, svg_text
from bbrgym.benchmark.statistics import number_text
from bbrgym.benchmark.storage import replace_file

MOST_FIGURE_BYTES: Final = 60_000
"""The page and its figures are kept with the code: a figure is not larger than this."""


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], numbers: Iterable[int] = ()) -> str:
    """A Markdown table; the columns `numbers` stand to the right."""
    right = set(numbers)
    lines = [
        _line(headings),
        _line("--:" if column in right else "---" for column in range(len(headings))),
        *(_line(row) for row in rows),
    ]
    return "\n".join(lines)


def _line(row: Iterable[str]) -> str:
    return f"| {' | '.join(row)} |"


def cell(text: Any) -> str:
    """Text that Markdown shows as it is, in a table too."""
    line = " ".join(str(text).split())
    line = re.sub(r"([\\`*|])", r"\\\1", line)
    # What would be a tag, a link, or emphasis; `a < b`, [0.1 0.2] and link_jain are none.
    line = re.sub(r"<(?=[A-Za-z/!?])", r"\\<", line)
    line = line.replace("](", "]\\(")
    return re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", line)


def number(value: float) -> str:
    """Return three significant digits, two of what is below 0.01; a dash for NaN."""
    return number_text(value)


def duration(seconds: float) -> str:
    """`1 h 03 min`, `4 min 12 s`, `12.3 s`."""
    if seconds >= 3600:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60):02d} min"
    if seconds >= 60:
        return f"{int(seconds // 60)} min {int(seconds % 60):02d} s"
    return f"{seconds:.1f} s"


def made_with(plans: Iterable[Mapping[str, Any]]) -> list[str]:
    """A table of what could change the numbers, with a warning if not all are of the same code.

    Args:
        plans: of benchmarks, as `BenchmarkResult` has them.
    """
    shown = {
        "bbrgym": "bbrgym",
        "code": "hash of the code that decides the numbers",
        "ns3": "ns-3",
        "python": "Python",
        "numpy": "NumPy",
        "machine": "machine",
    }
    found: dict[str, set[str]] = {key: set() for key in shown}
    for plan in plans:
        for key in shown.keys() & plan["provenance"].keys():
            if key != "ns3" or plan["config"]["engine"]["name"] != "native":  # which has nothing of it
                found[key].add(str(plan["provenance"][key]))
    rows = [[shown[key], cell(", ".join(sorted(values)))] for key, values in found.items() if values]
    blocks = [table(["made with", ""], rows)] if rows else []
    if len(found["code"]) > 1:
        blocks.append("**Not all results are of the same code**: those of an older hash are to be run again.")
    return blocks


def write_blocks(blocks: Iterable[str], path: Path) -> None:
    """Write a page of blocks with an empty line between."""
    replace_file(path, lambda to: to.write_text("\n\n".join(blocks) + "\n", encoding="utf-8"))


def write_figure(figure: Figure, stem: Path) -> Path:
    """As SVG, or as PNG if that is too large; what is there of the other kind is removed."""
    svg, png = stem.with_name(f"{stem.name}.svg"), stem.with_name(f"{stem.name}.png")
    content = f'<?xml version="1.0" encoding="utf-8"?>\n{svg_text(figure)}'.encode()
    path, other = svg, png
    if len(content) > MOST_FIGURE_BYTES:
        path, other = png, svg
        for dots_per_inch in (110, 90, 75, 60, 45):
            content = _png(figure, dots_per_inch)
            if len(content) <= MOST_FIGURE_BYTES:
                break
    replace_file(path, lambda to: to.write_bytes(content))
    other.unlink(missing_ok=True)
    return path


def _png(figure: Figure, dots_per_inch: int) -> bytes:
    content = io.BytesIO()
    with rc_context(STYLE):
        figure.savefig(content, format="png", dpi=dots_per_inch, metadata={"Software": None})
    return content.getvalue()
