"""Text that fits the terminal: paragraphs, and names with what they mean."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from shutil import get_terminal_size
from typing import Final

_WIDEST: Final = 100
"""Longer lines are hard to read."""
_WIDEST_NAME: Final = 28
"""A longer one has a line of its own."""


def wrap(text: str, first: str = "", other: str = "", room: int = 0) -> list[str]:
    """Return a text as lines that fit the terminal.

    Args:
        text: one paragraph.
        first: what the first line begins with.
        other: what the other lines begin with.
        room: how many columns are free at the end of a line.
    """
    width = min(get_terminal_size().columns, _WIDEST) - room
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=other, break_on_hyphens=False, break_long_words=False
    )


def name_table(rows: Iterable[tuple[str, str]], indent: str = "  ") -> list[str]:
    """Return lines of names and their texts, which begin below each other."""
    rows = list(rows)
    width = min(max((len(name) for name, _ in rows), default=0), _WIDEST_NAME) + len(indent) + 2
    lines = []
    for name, text in rows:
        if len(indent + name) + 2 > width:
            lines += [indent + name, *wrap(text, " " * width, " " * width)]
        else:
            lines += wrap(text, (indent + name).ljust(width), " " * width) or [indent + name]
    return lines


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines of cells in columns: the first one aligned left, the others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others in rows:
        aligned = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        lines.append("  ".join([first.ljust(widths[0]), *aligned]).rstrip())
    return lines
