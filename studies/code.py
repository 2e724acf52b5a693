"""The code that decides the numbers: what a page states, and by what finished runs are kept."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Final

SOURCES: Final = ("baselines/cc", "envs/model", "envs/native", "envs/transport", "ns3_scratch")
COMMENT: Final = re.compile(r"^\s*//.*\n", re.MULTILINE)
"""A line of a comment."""


@cache
def sources() -> bytes:
    """Return the engines' C++ without comments, each file after its path."""
    return b"".join(
        f"{path}\n{COMMENT.sub('', path.read_text('utf-8'))}".encode()
        for folder in SOURCES
        for path in sorted(path for path in Path(folder).rglob("*") if path.suffix in (".cc", ".def", ".h"))
    )


def code_hash(*also: str) -> str:
    """Return a hash of the engines' C++ without comments, of ns-3's version and of `also`: one for all checkouts."""
    return hashlib.sha256(" ".join([version("ns3"), *also]).encode() + sources()).hexdigest()[:16]
