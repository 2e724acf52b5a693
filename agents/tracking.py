"""The record of a run: an append-only log in its own folder, and a copy of it in MLflow, which may fail at any time."""

from __future__ import annotations

import itertools
import json
import logging
import math
import os
import socket
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from bbrgym.agents.mlflow_store import (
    MlflowStore,
    calling,
    first_line,
    is_of_mlflow,
    is_refusal,
    store_root,
    warn_of_refusal,
)
from bbrgym.agents.provenance import command_line, source_tags
from bbrgym.checks import check_name, read_record
from bbrgym.files import read_object, replace_file, write_json
from bbrgym.interruption import TERMINATED, deferring_signals, ending_in_order

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

LOGGER = logging.getLogger(__name__)

BACKENDS: Final = ("mlflow", "none")


@dataclass(frozen=True)
class TrackingConfig:
    """Where runs are tracked, besides their own folders.

    Args:
        backend: `mlflow`, or `none` for the local log alone.
        root: folder of `runs/mlflow.db` and `runs/mlartifacts`; None is the current one.
        uri: of MLflow's tracking server (`http://127.0.0.1:5000`) or database, instead of `runs/mlflow.db`; None is
            the latter. Processes on several machines need a server.
        parent: `run_id` of the run that these runs belong to, like the jobs of a sweep; None if there is none.

    Raises:
        ValueError: unknown backend, or root.
    """

    backend: str = "none"
    root: str | None = None
    uri: str | None = None
    parent: str | None = None

    def __post_init__(self) -> None:
        check_name("tracking backend", self.backend, BACKENDS)
        store_root(self.root)

    @classmethod
    def of(cls, config: TrackingConfig | Mapping[str, Any] | None) -> TrackingConfig:
        """Make one from plain types, as conf/tracking has them; None is the default, unknown keys are refused."""
        if isinstance(config, TrackingConfig):
            return config
        return read_record(cls, "tracking", config or {})


class Tracker:
    """Tracks one run; made by `start`. As a context manager it records how the run ended.

    The run's folder is the truth, written and flushed at every call:

        metrics.jsonl   one line per call: {"run_id", "step", "time" (s since 1970), "metrics": {name: value}}
        run.json        what the run is (parameters, tags, versions, commit, host), and its status

    MLflow gets the same, except for what it refuses: that is left out there, with one warning. When MLflow fails (no
    space, a broken or locked database, not installed), one warning is logged and the run continues with its folder
    alone; that store is then not tried again in this process.

    The status is FINISHED, FAILED after an exception, or KILLED after Ctrl-C or SIGTERM, which inside the `with` block
    raises SystemExit(143), so that everything is closed in order. After kill -9 it stays RUNNING, and no metric that
    was logged is lost.
    """

    def __init__(self, directory: Path, record: dict[str, Any], store: MlflowStore | None) -> None:
        self.directory = directory
        self._record = record
        self._store = store
        self._block = ExitStack()
        _end_line(directory / "metrics.jsonl")
        self._log = (directory / "metrics.jsonl").open("a", encoding="utf-8")
        self._write_record()

    @classmethod
    def start(
        cls,
        directory: Path,
        experiment: str,
        run_name: str,
        params: Mapping[str, Any],
        tags: Mapping[str, str] | None = None,
        parent: str | None = None,
        config: TrackingConfig | Mapping[str, Any] | None = None,
        resume: bool = False,
    ) -> Tracker:
        """Start to track a run.

        Args:
            directory: the run's folder; created if missing.
            experiment: MLflow's experiment.
            run_name: name of the run.
            params: what the run was started with, as plain types, nested at will; a `seed` also becomes a tag.
            tags: more about the run.
            parent: `run_id` of the run that this one belongs to; None takes that of `config`.
            config: where to track.
            resume: continue the run in the folder, if there is one; in MLflow its parameters stay as they were. A store
                that does not have it, as another one or a new one, gets a run with another id, which run.json then
                has, too; what was logged before is in the folder alone. Without `resume` a run in the folder whose
                process was killed, and the runs that belong to it, are KILLED in MLflow.

        Raises:
            ValueError: a bad configuration.
            OSError: the run's own folder cannot be written.
        """
        config = TrackingConfig.of(config)
        directory.mkdir(parents=True, exist_ok=True)
        found = read_run(directory)
        before = found if resume else None
        own_tags = {**source_tags(), "folder": str(directory.absolute())}
        if made := command_line():
            own_tags["command"] = made
        if "seed" in params:
            own_tags["seed"] = str(params["seed"])
        record: dict[str, Any] = {
            "run_id": uuid.uuid4().hex,
            "experiment": experiment,
            "run_name": run_name,
            "parent": config.parent if parent is None else parent,
            "status": "RUNNING",
            "started": _now(),
            "ended": None,
            "error": None,
            "params": dict(params),
            "tags": {**own_tags, **(tags or {})},
            "pid": os.getpid(),
            "in_store": False,
        }
        if before is not None:
            kept = ("run_id", "experiment", "run_name", "started", "in_store")
            record |= {key: before[key] for key in kept}
            if record["parent"] is None:
                record["parent"] = before["parent"]
        store = _open_store(config, record)
        try:
            tracker = cls(directory, record, store)
        except BaseException:
            _abandon(store)
            raise
        if found is not None and found.get("in_store") and _was_killed(found):
            tracker._end_killed(str(found["run_id"]))
        return tracker

    @property
    def run_id(self) -> str:
        """Identifies the run: MLflow's id, or an own one without MLflow."""
        return str(self._record["run_id"])

    @property
    def logged_bytes(self) -> int:
        """The size of metrics.jsonl, by which `forget_metrics` knows what was logged until now."""
        return (self.directory / "metrics.jsonl").stat().st_size

    def log_metrics(self, metrics: Mapping[str, float], step: int = 0) -> None:
        """Log values at a step. A value that is not finite is null in the log, and left out in MLflow."""
        values = {name: float(value) for name, value in metrics.items()}
        finite = {name: value for name, value in values.items() if math.isfinite(value)}
        line = {"run_id": self.run_id, "step": int(step), "time": round(time.time(), 3)}
        self._log.write(json.dumps(line | {"metrics": {name: finite.get(name) for name in values}}) + "\n")
        self._log.flush()
        self._in_store("metrics", lambda store: store.log_metrics(finite, int(step)))

    def log_artifact(self, path: Path, folder: str | None = None) -> None:
        """Copy a file or a folder to MLflow's artifacts, into `folder` of them; does nothing without MLflow."""
        self._in_store(f"artifact {path.name!r}", lambda store: store.log_artifact(path, folder))

    def log_figure(self, figure: Figure, name: str) -> None:
        """Save a figure in the run's folder as `name`, such as `training_curve.png`, and log it as an artifact."""
        replace_file(self.directory / name, figure.savefig)
        self.log_artifact(self.directory / name)

    def log_table(self, table: pd.DataFrame, name: str) -> None:
        """Log a table to MLflow as `name`, such as `results_table.json`; does nothing without MLflow."""
        self._in_store(f"table {name!r}", lambda store: store.log_table(table, name))

    def log_scenarios(
        self, name: str, context: str, scenarios: Mapping[str, Any] | Sequence[Mapping[str, Any]]
    ) -> None:
        """Log the run's scenarios: a dataset in MLflow, and `<context>_scenarios.json` in the run's folder.

        Args:
            name: of the dataset.
            context: its purpose: `training` or `evaluation`.
            scenarios: a distribution (`Distribution.to_dict`), or rows that have a `scenario` (`Scenario.to_dict`) and
                other columns such as its seed and name. Equal ones have equal digests.
        """
        write_json(self.directory / f"{context}_scenarios.json", scenarios)
        self._in_store(f"scenarios {name!r}", lambda store: store.log_scenarios(name, context, scenarios))

    def log_agent(self, folder: Path) -> None:
        """Log a trained agent's folder to MLflow as the run's model `agent` (`agents/pyfunc_model.py`)."""
        self._in_store("the agent", lambda store: store.log_agent(folder))

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Add or change tags."""
        self._record["tags"] |= dict(tags)
        self._write_record()
        self._in_store("tags", lambda store: store.set_tags(tags))

    def end_children(self) -> None:
        """Mark the runs in MLflow that belong to this one as KILLED, if they have not ended: their process was killed.

        Call it when none of them can be running.
        """
        self._end_killed(self.run_id)

    def _end_killed(self, run_id: str) -> None:
        self._in_store("the end of runs that were killed", lambda store: store.end_killed(run_id))

    def finish(self, status: str = "FINISHED", error: str | None = None) -> None:
        """End the run; the `with` block does it. A second call changes nothing."""
        if self._record["status"] != "RUNNING":
            return
        with deferring_signals():  # else it would have ended here, and never in MLflow
            self._record |= {"status": status, "ended": _now(), "error": error}
            self._write_record()
            self._log.close()
            self._in_store("the status", lambda store: store.finish(status))

    def __enter__(self) -> Self:
        self._block.enter_context(ending_in_order())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._block:
            if error is None:
                self.finish()
            elif isinstance(error, KeyboardInterrupt) or (isinstance(error, SystemExit) and error.code == TERMINATED):
                is_by_user = isinstance(error, KeyboardInterrupt)
                self.finish("KILLED", "interrupted" if is_by_user else "terminated by SIGTERM")
            else:
                self.finish("FAILED", f"{type(error).__name__}: {error}")

    def _in_store(self, what: str, work: Callable[[MlflowStore], None]) -> None:
        if self._store is None or self._store.name in _FAILED_STORES:
            return
        try:
            with calling(self._store.name):
                work(self._store)
        except Exception as error:  # of any kind: a run never ends because of the store
            if is_refusal(error) or not is_of_mlflow(error):
                warn_of_refusal(self._store.name, what, error)
            else:
                _give_up(self._store.name, error)

    def _write_record(self) -> None:
        write_json(self.directory / "run.json", self._record)


def read_metrics(directory: Path) -> list[dict[str, Any]]:
    """Read a run's metrics.jsonl, also if a kill cut off its last line.

    Returns:
        {"run_id", "step", "time", "metrics"} per line, null values as NaN; empty if there is no log.
    """
    path = directory / "metrics.jsonl"
    read = map(_read_line, path.read_bytes().splitlines() if path.is_file() else [])
    return [line for line in read if line is not None]


def _read_line(text: bytes) -> dict[str, Any] | None:
    """Return a line of metrics.jsonl; None if a kill cut it off."""
    try:
        line: dict[str, Any] = json.loads(text)
        line["metrics"] = {name: math.nan if v is None else float(v) for name, v in line["metrics"].items()}
        return line
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def forget_metrics(directory: Path, logged_bytes: int | None, steps: int, still: Sequence[str] = ()) -> None:
    """Drop from a run's metrics.jsonl what was logged after a moment to which the run goes back, in one atomic move.

    Args:
        directory: the run's folder, which no tracker has open.
        logged_bytes: `Tracker.logged_bytes` at that moment; None if it is unknown: then the lines of later steps
            are dropped.
        steps: the steps at that moment.
        still: metrics that count what was done in vain, too: the last values that are dropped are logged anew, at
            `steps`.
    """
    path = directory / "metrics.jsonl"
    content = path.read_bytes() if path.is_file() else b""
    if logged_bytes is None:
        lines = content.splitlines(keepends=True)
        is_kept = [(line := _read_line(text)) is not None and line["step"] <= steps for text in lines]
        kept = b"".join(itertools.compress(lines, is_kept))
        dropped = [text for text, stays in zip(lines, is_kept, strict=True) if not stays]
    else:
        kept, dropped = content[:logged_bytes], content[logged_bytes:].splitlines()
    for name in still:
        if of_name := [line for line in map(_read_line, dropped) if line is not None and name in line["metrics"]]:
            line = {**of_name[-1], "step": steps, "metrics": {name: of_name[-1]["metrics"][name]}}
            kept += json.dumps(line).encode() + b"\n"
    if kept != content:
        replace_file(path, lambda to: to.write_bytes(kept))


def read_run(directory: Path) -> dict[str, Any] | None:
    """Read a run's run.json; None if there is none that can be read."""
    try:
        return read_object(
            directory / "run.json",
            run_id=str,
            experiment=str,
            run_name=str,
            status=str,
            started=str,
            params=dict,
            tags=dict,
            in_store=bool,
        )
    except (OSError, ValueError):
        return None


def is_finished(directory: Path) -> bool:
    """Return whether a folder has a run that has ended by itself."""
    record = read_run(directory)
    return record is not None and record["status"] == "FINISHED"


_FAILED_STORES: set[str] = set()
"""Stores that failed in this process: neither tried nor warned about again."""


def _open_store(config: TrackingConfig, record: dict[str, Any]) -> MlflowStore | None:
    """Open the store, begin the run in it, and put its id into the record; None without a store."""
    root = store_root(config.root)
    name = config.uri or str(root / "runs")
    if config.backend == "none" or name in _FAILED_STORES:
        return None
    store = None
    try:
        store = MlflowStore(root, config.uri)
        with calling(name):
            record["run_id"] = store.begin(record)
    except Exception as error:  # of any kind: a run never ends because of the store
        if is_refusal(error):
            warn_of_refusal(name, f"run {record['run_name']!r}", error)
            _abandon(store)
        else:
            _give_up(name, error)
        return None
    except BaseException:
        _abandon(store)
        raise
    record["in_store"] = True
    return store


def _abandon(store: MlflowStore | None) -> None:
    """End a run that cannot be tracked, or whose process ends, before anything is logged."""
    if store is not None:
        with deferring_signals(), suppress(Exception), calling(store.name):
            store.finish("KILLED")


def _was_killed(record: Mapping[str, Any]) -> bool:
    """Return whether the process of a run ended before the run did, as far as this machine can know."""
    if record["status"] != "RUNNING":
        return False
    pid = record.get("pid")
    if record["tags"].get("host") != socket.gethostname() or not isinstance(pid, int) or pid in (0, os.getpid()):
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # it is someone else's
        pass
    return False


def _give_up(store: str, error: Exception) -> None:
    _FAILED_STORES.add(store)
    if isinstance(error, ModuleNotFoundError):
        reason = f"{error}, or choose tracking=none"
    else:
        reason = f"{first_line(error)} (tracking.root or tracking.uri choose another store, tracking=none has none)"
    LOGGER.warning("MLflow in %s failed, so runs are logged in their own folders only: %s", store, reason)


def _end_line(path: Path) -> None:
    """End a line that a kill cut off, so that the next one is not lost with it."""
    if path.is_file() and (content := path.read_bytes()) and not content.endswith(b"\n"):
        with path.open("ab") as file:
            file.write(b"\n")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
