"""Blocks of files that are written by hand: what stands between two marks, which a command replaces.

Pages of docs/results have no marks: `studies.study` makes each as a whole.
"""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, RawDescriptionHelpFormatter
from collections.abc import Callable
from pathlib import Path

from bbrgym.files import write_text


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
