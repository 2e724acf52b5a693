"""The ledger: what was measured once is kept, and not measured again while the code that decides it is the same.

Whatever compares runs asks `measure` for its jobs. A job has a name, which no other of its ledger has, and the hash of
all that decides its result. A ledger keeps the rows of each job. There are two kinds beside the folders of a benchmark
(`bbrgym.benchmark.run`): `ParquetLedger`, a file beside a page, and `CacheLedger`, the user's cache.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import numpy as np
import pandas as pd
from rich.console import Console
from rich.progress import track

from bbrgym.benchmark.code import made_with
from bbrgym.envs.engine import EngineError
from bbrgym.executors import TaskExecutor, TaskResult, run_in_chunks
from bbrgym.extras import optional
from bbrgym.files import DAMAGES, check_object, replace_file, user_cache, write_json

Rows = list[dict[str, Any]]
"""What a job measures: one row, or one per flow. Values are numbers, texts and lists of numbers."""

FLUSH_S: Final = 10.0
"""Results of so many seconds may be lost if the process is killed."""


class Job(Protocol):
    """What is measured once."""

    @property
    def name(self) -> str:
        """What it is called in its ledger."""

    @property
    def code(self) -> str:
        """The hash of all that decides its result: code (`bbrgym.benchmark.code`), scenario, settings."""


J = TypeVar("J", bound=Job)


@dataclass(frozen=True)
class Entry:
    """What a ledger keeps of a job.

    Attributes:
        code: the hash with which it was measured.
        rows: what was measured.
        made_with: `bbrgym.benchmark.code.made_with`; empty if that is not known.
    """

    code: str
    rows: Rows
    made_with: str = ""


class Ledger(Protocol):
    """Where results are kept."""

    def load(self, jobs: Iterable[Job]) -> dict[str, Entry]:
        """Return what is kept of some jobs by their names, whatever code has made it."""

    def keep(self, entries: Mapping[str, Entry]) -> None:
        """Keep results by the names of their jobs, in the place of older ones."""


def measure(
    work: Callable[[J], Rows],
    jobs: Sequence[J],
    ledger: Ledger,
    executor: TaskExecutor,
    *,
    cost_s: Callable[[J], float] = lambda job: 1.0,
    chunk_s: float = 10.0,
    console: Console | None = None,
    what: str = "runs",
) -> dict[str, Rows]:
    """Return the rows of all jobs by their names: kept ones, and new ones, which are kept as they end.

    Args:
        work: measures a job, on a worker; it and the jobs can be pickled.
        jobs: what to measure.
        ledger: where results are kept.
        executor: where jobs run.
        cost_s: estimates the seconds that a job takes.
        chunk_s: seconds of work that a worker takes at a time (`run_in_chunks`).
        console: shows the progress; None for none.
        what: what the progress calls the jobs.

    Raises:
        EngineError: some jobs failed. The results of all others are kept, so that the same call tries these again.
    """
    todo = unmeasured(jobs, ledger.load(jobs))
    with closing(measure_each(work, todo, ledger, executor, cost_s=cost_s, chunk_s=chunk_s)) as results:
        shown = track(results, what, total=len(todo), console=console, disable=console is None)
        errors = [f"{result.task.name}: {result.error}" for result in shown if result.error is not None]
    if errors:
        raise EngineError(f"{len(errors)} of {len(jobs)} jobs failed; the same command tries them again: {errors[0]}")
    return {name: entry.rows for name, entry in ledger.load(jobs).items()}


def measure_each(
    work: Callable[[J], Rows],
    jobs: Sequence[J],
    ledger: Ledger,
    executor: TaskExecutor,
    *,
    cost_s: Callable[[J], float] = lambda job: 1.0,
    chunk_s: float = 10.0,
    is_kept: Callable[[J, Rows], bool] = lambda job, rows: True,
) -> Generator[TaskResult[J], None, None]:
    """Measure jobs, whatever is kept of them, and keep their results.

    Args:
        work: as of `measure`, as are the next ones.
        jobs: what to measure.
        ledger: where results are kept.
        executor: where jobs run.
        cost_s: see `measure`.
        chunk_s: see `measure`.
        is_kept: whether a result is kept; nothing is kept of a job that failed.

    Yields:
        How each job ended: its rows are the `value`. Closing the generator keeps what came until then.
    """
    new: dict[str, Entry] = {}
    flushed = time.monotonic()
    try:
        with closing(run_in_chunks(work, jobs, executor, cost_s=cost_s, chunk_s=chunk_s)) as results:
            for result in results:
                if result.error is None and is_kept(result.task, result.value):
                    new[result.task.name] = Entry(result.task.code, result.value, made_with())
                    if time.monotonic() - flushed > FLUSH_S:
                        ledger.keep(new)
                        new, flushed = {}, time.monotonic()
                yield result
    finally:
        if new:
            ledger.keep(new)


def unmeasured(jobs: Iterable[J], kept: Mapping[str, Entry]) -> list[J]:
    """Return the jobs that have no result of their code among what is kept."""
    return [job for job in jobs if job.name not in kept or kept[job.name].code != job.code]


class ParquetLedger:
    """A Parquet file: one row per row of a job, with its `name`, `code` and `made_with`.

    Several processes can keep results at once.

    Args:
        path: the file, which need not exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self, jobs: Iterable[Job]) -> dict[str, Entry]:
        """Return what is kept of some jobs by their names, whatever code has made it."""
        entries = self._read()
        return {job.name: entries[job.name] for job in jobs if job.name in entries}

    def keep(self, entries: Mapping[str, Entry]) -> None:
        """Keep results by the names of their jobs, in the place of older ones."""
        with optional("kept results"):
            from filelock import FileLock
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(self._path.with_suffix(".lock")):
            merged = {**self._read(), **entries}
            rows = [
                {"name": name, "code": entry.code, "made_with": entry.made_with, **row}
                for name, entry in sorted(merged.items())
                for row in entry.rows
            ]
            replace_file(self._path, partial(pd.DataFrame(rows).to_parquet, index=False, compression="zstd"))

    def _read(self) -> dict[str, Entry]:
        entries: dict[str, Entry] = {}
        rows: Any = pd.read_parquet(self._path).to_dict("records") if self._path.is_file() else []
        for row in rows:
            name, code, made = row.pop("name"), row.pop("code"), row.pop("made_with", "")
            entries.setdefault(name, Entry(code, [], made)).rows.append(_plain(row))
        return entries


def _plain(value: Any) -> Any:
    """Return lists for the arrays that Parquet gives."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, np.ndarray) else value


def _with_nan(value: Any) -> Any:
    """Return NaN for the null of JSON."""
    if isinstance(value, dict):
        return {name: _with_nan(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_with_nan(one) for one in value]
    return math.nan if value is None else value


class CacheLedger:
    """The user's cache: a JSON file per hash.

    Args:
        folder: its name in the user's cache.
    """

    def __init__(self, folder: str) -> None:
        self._folder = user_cache(folder)

    def load(self, jobs: Iterable[Job]) -> dict[str, Entry]:
        """Return what is kept of some jobs by their names; a damaged file counts as none."""
        entries = {}
        for job in jobs:
            try:
                text = (self._folder / f"{job.code}.json").read_text(encoding="utf-8")
                rows = [check_object(row, "a result") for row in json.loads(text)]
            except DAMAGES:
                continue
            if rows:
                entries[job.name] = Entry(job.code, [_with_nan(row) for row in rows])
        return entries

    def keep(self, entries: Mapping[str, Entry]) -> None:
        """Keep results by the hashes of their jobs."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for entry in entries.values():
            write_json(self._folder / f"{entry.code}.json", entry.rows)
