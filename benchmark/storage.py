"""Files of a benchmark: the metrics of a run, and blocks of documents."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from bbrgym.envs.trace_file import load_trace as load_trace
from bbrgym.envs.trace_file import save_trace as save_trace
from bbrgym.files import replace_file as replace_file
from bbrgym.files import write_json as write_json
from bbrgym.files import write_text


def load_metrics(directory: Path) -> dict[str, Any] | None:
    """The metrics.json of a run's directory, null as NaN; None if the run is not there whole."""
    try:
        if not (directory / "trace.parquet").is_file():
            return None
        metrics: dict[str, Any] = json.loads((directory / "metrics.json").read_text())
        metrics["rows"] = [
            {name: math.nan if value is None else value for name, value in row.items()} for row in metrics["rows"]
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return metrics


def with_block(document: str, block: str, begin: str, end: str) -> str:
    """A document with `block` between two marks, lines of their own, and all else as it was.

    Raises:
        ValueError: it does not have the two marks, once each and in order.
    """
    before, found_begin, rest = document.partition(begin)
    _, found_end, after = rest.partition(end)
    if not found_begin or not found_end or begin in after or end in before + after:
        raise ValueError(f"the document must have one line {begin} and after it one line {end}")
    return f"{before}{begin}\n{block}\n{end}{after}"


def write_block(path: Path, block: str, begin: str, end: str) -> None:
    """Put `block` between two marks of a document, in one move.

    Raises:
        OSError: the document cannot be read or written.
        ValueError: it does not have the two marks, once each and in order.
    """
    document = with_block(path.read_text(encoding="utf-8"), block, begin, end)
    write_text(path, document)
