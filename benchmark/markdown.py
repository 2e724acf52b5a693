"""Markdown that shows texts as they are: cells and tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[int] = ()) -> str:
    """Return a Markdown table whose columns `numbers` are aligned right."""
    right = set(numbers)
    rules = ["--:" if column in right else "---" for column in range(len(headings))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (headings, rules, *rows))


def cell(text: Any) -> str:
    """Return a text in one line that Markdown shows as it is, in a table too."""
    line = " ".join(str(text).split())
    line = re.sub(r"([\\`*|])", r"\\\1", line)
    # Escape what would be a tag, a link or emphasis, and nothing else: `a < b`, [0.1 0.2] and link_jain stay.
    line = re.sub(r"<(?=[A-Za-z/!?])", r"\\<", line)
    line = line.replace("](", "]\\(")
    return re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", line)
