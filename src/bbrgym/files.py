"""Files that are written whole or not at all, so that no reader ever sees half of one."""

from __future__ import annotations

import json
import math
import os
import threading
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any


def write_text(path: Path, text: str) -> None:
    """Write `text` in UTF-8 in one atomic move."""
    replace_file(path, lambda to: to.write_text(text, encoding="utf-8"))


def write_json(path: Path, content: object) -> None:
    """Write plain types and numpy scalars as JSON in one atomic move; NaN and infinities become null."""
    write_text(path, json.dumps(_strict(content), indent=1) + "\n")


def replace_file(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` make a file next to `path`, then move it to `path` atomically.

    Args:
        path: the final place. A file that is there is replaced; if `write` fails it stays as it was.
        write: called with the path of the temporary file, which has the same suffix.
    """
    temporary = path.with_name(f".{os.getpid()}-{threading.get_ident()}.{path.name}")
    try:
        write(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _strict(content: Any) -> Any:
    """Return the content without what JSON lacks: NaN, infinities, tuples, numpy scalars."""
    if isinstance(content, Mapping):
        return {str(key): _strict(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [_strict(value) for value in content]
    if isinstance(content, bool):
        return content
    if isinstance(content, Integral):
        return int(content)
    if isinstance(content, Real):
        return float(content) if math.isfinite(content) else None
    return content
