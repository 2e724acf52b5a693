"""Write the pages of docs/results: Markdown tables, blocks between marks, and figures in files."""

from __future__ import annotations

import io
import json
from argparse import ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from matplotlib import rc_context
from matplotlib.figure import Figure
from PIL import Image

from bbrgym.benchmark.markdown import cell as cell
from bbrgym.benchmark.markdown import table as table
from bbrgym.benchmark.style import STYLE
from bbrgym.files import replace_file, write_text

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


def provenance(plans: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a table of the versions that made the results, and a warning if an engine's are of different code."""
    shown = {
        "bbrgym": "bbrgym",
        "ns3": "ns-3",
        "python": "Python",
        "numpy": "NumPy",
        "machine": "machine",
    }
    found: dict[str, set[str]] = {key: set() for key in shown}
    codes: dict[str, set[str]] = {}  # by engine, each of which has its own hash
    for plan in plans:
        engine = plan["config"]["engine"]["name"]
        codes.setdefault(engine, set()).add(plan["provenance"].get("code", ""))
        for key in shown.keys() & plan["provenance"].keys():
            if key != "ns3" or engine != "native":  # which does not use ns-3
                found[key].add(str(plan["provenance"][key]))
    rows = [[shown[key], cell(", ".join(sorted(values)))] for key, values in found.items() if values]
    blocks = [table(["made with", ""], rows)] if rows else []
    if any(len(of_engine) > 1 for of_engine in codes.values()):
        blocks.append("**The results are of different code**: run the study again.")
    return blocks


def parser(description: str | None, name: str) -> ArgumentParser:
    """Return the command line of a study that writes a block of a page, with `--write FILE`."""
    made = ArgumentParser(description=description, formatter_class=RawDescriptionHelpFormatter)
    made.add_argument("--write", type=marked(name), metavar="FILE", help="page to write the tables into")
    return made


def publish(block: str, name: str, path: Path | None) -> None:
    """Print a block and, if there is a page, write it between its marks."""
    print(block)
    if path is not None:
        write_block(path, name, block)


def marked(name: str) -> Callable[[str], Path]:
    """Return a type of `argparse` for the path of a page that has the marks of a block."""

    def page(text: str) -> Path:
        path = Path(text)
        try:
            with_block(path.read_text(encoding="utf-8"), name, "")
        except (OSError, ValueError) as error:
            raise ArgumentTypeError(f"{text}: {error}") from error
        return path

    return page


def write_block(path: Path, name: str, block: str) -> None:
    """Replace what is between the marks of a page."""
    write_text(path, with_block(path.read_text(encoding="utf-8"), name, block))


def write_blocks(path: Path, mark: str, blocks: Mapping[str, Sequence[str]], absent: str = "Not run yet.") -> None:
    """Replace several blocks of a page, each a list of paragraphs and tables, which the page calls `mark name`."""
    document = path.read_text(encoding="utf-8")
    for name, block in blocks.items():
        document = with_block(document, f"{mark} {name}".strip(), "\n\n".join(block) or absent)
    write_text(path, document)


def with_block(
    document: str, name: str, block: str, *, begin: str = "<!-- begin: {name} -->", end: str = "<!-- end: {name} -->"
) -> str:
    """Return a document with `block` between two lines, in Markdown `<!-- begin: name -->` and `<!-- end: name -->`.

    Args:
        document: a text with both lines.
        name: of the block.
        block: what is put between them.
        begin: the first line, for files that are not Markdown.
        end: the last line.

    Raises:
        ValueError: the document must have both marks, once each and in this order.
    """
    begin, end = begin.format(name=name), end.format(name=name)
    before, found_begin, rest = document.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found_begin or not found_end or begin in after or end in before + after:
        raise ValueError(f"the document must have one line {begin} and after it one line {end}")
    inner = f"{block.strip()}\n" if block.strip() else ""
    return f"{before}{begin}\n{inner}{end}{after}"


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


def _png(figure: Figure, dots_per_inch: int) -> bytes:
    drawn, small = io.BytesIO(), io.BytesIO()
    with rc_context(STYLE):
        figure.savefig(drawn, format="png", dpi=dots_per_inch, metadata={"Software": None})
    with Image.open(drawn) as image:
        # A palette is a third of the size. The median cut would change a colour of small areas: the dark end of a bar.
        palette = image.convert("RGB").quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
        palette.save(small, format="png", optimize=True)
    return small.getvalue()
