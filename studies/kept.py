"""Results of long studies, in files of the repository: what one checkout finished, another does not run again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pandas as pd
from filelock import FileLock

from bbrgym.files import replace_file


class KeptJob(Protocol):
    """A job with a name that no other of its study has, and a hash of what decides its result."""

    @property
    def name(self) -> str:
        """What the file calls it."""

    @property
    def code(self) -> str:
        """The hash."""


J = TypeVar("J", bound=KeptJob)


def finished(path: Path, jobs: Iterable[J]) -> dict[J, dict[str, Any]]:
    """Return the kept results of jobs: those that the same code made."""
    rows = _rows(path)
    return {job: rows[job.name] for job in jobs if rows.get(job.name, {}).get("code") == job.code}


def keep(path: Path, job: KeptJob, result: Mapping[str, Any]) -> None:
    """Add the result of a job, in the place of one of the same name; several processes may do so at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):
        rows = _rows(path)
        rows[job.name] = {"name": job.name, "code": job.code, **result}
        frame = pd.DataFrame([rows[name] for name in sorted(rows)])
        replace_file(path, partial(frame.to_parquet, index=False, compression="zstd"))


def _rows(path: Path) -> dict[str, dict[str, Any]]:
    rows: list[Any] = pd.read_parquet(path).to_dict("records") if path.is_file() else []
    return {row["name"]: row for row in rows}
