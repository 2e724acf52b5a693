"""What a run did: an append-only log in its own folder, and a copy of it in MLflow that may fail at any time."""

from __future__ import annotations

import dataclasses
import getpass
import hashlib
import json
import logging
import math
import os
import platform
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

import bbrgym

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

LOGGER = logging.getLogger(__name__)

BACKENDS: Final = ("mlflow", "none")

TERMINATED: Final = 128 + signal.SIGTERM
"""Exit status of a run that SIGTERM ended, as a shell has it."""


@dataclass(frozen=True)
class TrackingConfig:
    """Where runs are tracked, beside their own folders.

    Args:
        backend: `mlflow`, or `none` for the local log alone.
        root: folder in which `runs/mlflow.db` and `runs/mlartifacts` are; None is the current one.
        parent: `run_id` of the run that those tracked are part of, as the jobs of a sweep are; None if there is none.

    Raises:
        ValueError: naming the bad value and the good ones.
    """

    backend: str = "none"
    root: str | None = None
    parent: str | None = None

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise ValueError(f"no tracking backend {self.backend!r}; known: {', '.join(BACKENDS)}")

    @classmethod
    def of(cls, config: TrackingConfig | Mapping[str, Any]) -> TrackingConfig:
        """From plain types, as conf/tracking has them; an unknown key is refused by name."""
        if isinstance(config, TrackingConfig):
            return config
        known = [f.name for f in dataclasses.fields(cls)]
        for key in config:
            if key not in known:
                raise ValueError(f"tracking has no key {key!r}; known: {', '.join(known)}")
        return cls(**config)


class Tracker:
    """Tracks one run; made by `start`, and a context manager that says how the run ended.

    The truth is in the run's folder, written and flushed at every call:

        metrics.jsonl   a line a call: {"run_id", "step", "time" (s since 1970), "metrics": {name: value}}
        run.json        what the run is (parameters, tags, versions, commit, host), and its status

    MLflow gets the same. When it fails (no space, a broken or locked database, not installed) there is one warning
    and the run goes on with its folder alone; the store is then not tried again in this process.

    The status is FINISHED, FAILED after an exception, or KILLED after Ctrl-C or SIGTERM, which inside the `with` block
    raises SystemExit(143), so that everything is closed in order. After kill -9 it stays RUNNING, and no metric that
    was logged is lost.
    """

    def __init__(self, directory: Path, record: dict[str, Any], store: _Store | None) -> None:
        self.directory = directory
        self._record = record
        self._store = store
        self._previous_handler: Any = None
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
            directory: the run's folder; made if it is not there.
            experiment: MLflow's name for what belongs together.
            run_name: what the run is called.
            params: what it was started with, plain types, nested as you like; a `seed` becomes a tag too.
            tags: more about it.
            parent: `run_id` of the run that this one is part of; None takes that of `config`.
            config: where to track.
            resume: go on with the run that the folder has, if it has one; in MLflow its parameters stay as they were.

        Raises:
            ValueError: of the configuration.
            OSError: the run's own folder cannot be written.
        """
        config = TrackingConfig.of(config or {})
        directory.mkdir(parents=True, exist_ok=True)
        before = read_run(directory) if resume else None
        record: dict[str, Any] = {
            "run_id": uuid.uuid4().hex,
            "experiment": experiment,
            "run_name": run_name,
            "parent": config.parent if parent is None else parent,
            "status": "RUNNING",
            "started": _now(),
            "ended": None,
            "error": None,
            "params": _plain(params),
            "tags": {**source_tags(), **({"seed": str(params["seed"])} if "seed" in params else {}), **(tags or {})},
            "pid": os.getpid(),
            "in_store": False,
        }
        if before is not None:
            kept = ("run_id", "experiment", "run_name", "parent", "started", "in_store")
            record |= {key: before[key] for key in kept}
        store = _open_store(config, record)
        return cls(directory, record, store)

    @property
    def run_id(self) -> str:
        """Identifies the run: MLflow's id of it, or one of its own without MLflow."""
        return str(self._record["run_id"])

    def log_metrics(self, metrics: Mapping[str, float], step: int = 0) -> None:
        """Log values at a step. A value that is not finite is null in the log, and left out in MLflow."""
        values = {name: float(value) for name, value in metrics.items()}
        line = {"run_id": self.run_id, "step": int(step), "time": round(time.time(), 3), "metrics": _plain(values)}
        self._log.write(json.dumps(line) + "\n")
        self._log.flush()
        finite = {name: value for name, value in values.items() if math.isfinite(value)}
        self._in_store(lambda store: store.log_metrics(finite, int(step)))

    def log_artifact(self, path: Path, folder: str | None = None) -> None:
        """Copy a file or a folder to MLflow's artifacts, into `folder` of them; without MLflow it is where it is."""
        self._in_store(lambda store: store.log_artifact(path, folder))

    def log_figure(self, figure: Figure, name: str) -> None:
        """Save a figure as `name` (`curve.png`, say) in the run's folder, and log it."""
        figure.savefig(self.directory / name, bbox_inches="tight")
        self.log_artifact(self.directory / name)

    def log_table(self, table: pd.DataFrame, name: str) -> None:
        """Log a table as `name` (`results_table.json`, say), which MLflow shows; the run's folder has its own form."""
        self._in_store(lambda store: store.log_table(table, name))

    def log_scenarios(
        self, name: str, context: str, scenarios: Mapping[str, Any] | Sequence[Mapping[str, Any]]
    ) -> None:
        """Log what the run was given: in MLflow a dataset, as `<context>_scenarios.json` in the run's folder.

        Args:
            name: what it is called.
            context: what it is for: `training` or `evaluation`.
            scenarios: a distribution (`Distribution.to_dict`), or rows that have a `scenario` (`Scenario.to_dict`) and
                what else is to be said of each (its seed, its name). Equal ones have equal digests.
        """
        plain = _plain(scenarios)
        path = self.directory / f"{context}_scenarios.json"
        path.write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
        self._in_store(lambda store: store.log_scenarios(name, context, plain))

    def log_agent(self, folder: Path) -> None:
        """Log a trained agent's folder as the run's model `agent`, in MLflow's format (`agents/pyfunc_model.py`)."""
        self._in_store(lambda store: store.log_agent(folder))

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Add tags, or change them."""
        self._record["tags"] |= dict(tags)
        self._write_record()
        self._in_store(lambda store: store.set_tags(tags))

    def finish(self, status: str = "FINISHED", error: str | None = None) -> None:
        """End the run; the `with` block does it. Doing it again changes nothing."""
        if self._record["status"] != "RUNNING":
            return
        self._record |= {"status": status, "ended": _now(), "error": error}
        self._write_record()
        self._log.close()
        self._in_store(lambda store: store.finish(status))

    def __enter__(self) -> Self:
        # Only where nobody else minds the signal: a tracker inside of another's block, or another program's handler.
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            self._previous_handler = signal.signal(signal.SIGTERM, _terminate)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._previous_handler is not None:
            signal.signal(signal.SIGTERM, self._previous_handler)
            self._previous_handler = None
        if error is None:
            self.finish()
        elif isinstance(error, KeyboardInterrupt) or (isinstance(error, SystemExit) and error.code == TERMINATED):
            self.finish("KILLED", "interrupted" if isinstance(error, KeyboardInterrupt) else "terminated by SIGTERM")
        else:
            self.finish("FAILED", f"{type(error).__name__}: {error}")

    def _in_store(self, work: Callable[[_Store], None]) -> None:
        if self._store is None:
            return
        try:
            work(self._store)
        except Exception as error:  # whatever it is: a run never ends because of the store
            _give_up(self._store.root, error)
            self._store = None

    def _write_record(self) -> None:
        path = self.directory / "run.json"
        partial = path.with_name(f".run.json.{os.getpid()}.partial")
        partial.write_text(json.dumps(self._record, indent=1) + "\n", encoding="utf-8")
        partial.replace(path)


def read_metrics(directory: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics.jsonl, also of one that was killed in the middle of a line.

    Returns:
        {"run_id", "step", "time", "metrics"} each, null values as NaN; empty if there is no log.
    """
    path = directory / "metrics.jsonl"
    lines = []
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []:
        try:
            line = json.loads(text)
            line["metrics"] = {name: math.nan if v is None else float(v) for name, v in line["metrics"].items()}
            lines.append(line)
        except (ValueError, TypeError, KeyError, AttributeError):
            continue  # cut off by a kill
    return lines


def read_run(directory: Path) -> dict[str, Any] | None:
    """The content of a run's run.json; None if there is none that can be read."""
    try:
        record: dict[str, Any] = json.loads((directory / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return record


def store_uri(config: TrackingConfig | Mapping[str, Any] | None = None) -> str:
    """MLflow's address of the project's store, which is made if it is not there yet.

    The database is made once, whole or not at all: under a lock, beside its place, by a process of its own. MLflow
    itself lets processes that come first at the same time fail on each other's half of a schema.

    Raises:
        Exception: of any kind, if it cannot be made.
    """
    root = _root(TrackingConfig.of(config or {}))
    database = root / "runs" / "mlflow.db"
    if not database.exists():
        _create_database(database)
    return f"sqlite:///{database}"


def source_tags() -> dict[str, str]:
    """What could change a run's numbers: versions, and the commit with its changes if this is a checkout."""
    tags = {
        "bbrgym": bbrgym.__version__,
        "python": platform.python_version(),
        "host": socket.gethostname(),
    }
    for distribution in ("ns3", "gymnasium", "numpy", "torch", "stable-baselines3"):
        try:
            tags[distribution] = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    commit = _git("rev-parse", "HEAD")
    if commit:
        tags["git.commit"] = commit
        tags["git.dirty"] = str(bool(_git("status", "--porcelain", "--untracked-files=no"))).lower()
    return tags


def flatten(params: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested parameters as {"a.b.0.c": text}; a list of plain values is one parameter."""
    flat: dict[str, str] = {}
    for key, value in params.items():
        name = f"{prefix}{key}"
        if isinstance(value, list | tuple) and any(isinstance(entry, Mapping) for entry in value):
            value = {str(index): entry for index, entry in enumerate(value)}
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{name}.")
        else:
            flat[name] = value if isinstance(value, str) else json.dumps(_plain(value))
    return flat


class _Store:
    """MLflow, by its client alone: no global state, so that runs nest and threads do not matter."""

    # What MLflow takes: in one call, of a name, of a value.
    MOST_PARAMS = 100
    LONGEST_NAME = 250
    LONGEST_PARAM = 6000
    LONGEST_TAG = 8000
    # A call is tens of milliseconds while others write too: metrics wait for each other so long.
    FLUSH_EVERY_S = 2.0

    def __init__(self, config: TrackingConfig) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        # A run has its own words and its own progress bar.
        os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
        os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
        self.root = _root(config)
        self._artifacts = self.root / "runs" / "mlartifacts"
        uri = store_uri(config)
        from mlflow import MlflowClient

        self._client = MlflowClient(tracking_uri=uri, registry_uri=uri)
        self._pending: list[Any] = []
        self._flushed_at = time.monotonic()
        self._run_id = ""

    def begin(self, record: Mapping[str, Any]) -> str:
        """Make a run of the record, or go on with the one that it names; returns MLflow's id."""
        if record["in_store"]:
            self._run_id = str(record["run_id"])
            self._client.update_run(self._run_id, status="RUNNING")
            return self._run_id
        own = {"mlflow.user": _user(), "mlflow.source.name": "bbrgym"}
        if record["parent"] is not None:
            own["mlflow.parentRunId"] = str(record["parent"])
        if "git.commit" in record["tags"]:
            own["mlflow.source.git.commit"] = record["tags"]["git.commit"]
        run = self._client.create_run(self._experiment(record["experiment"]), tags=own, run_name=record["run_name"])
        self._run_id = run.info.run_id
        self.set_tags(record["tags"])
        self._log_params(flatten(record["params"]))
        return self._run_id

    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now_ms = int(time.time() * 1e3)
        self._pending += [Metric(self._name(name), value, now_ms, step) for name, value in metrics.items()]
        if time.monotonic() - self._flushed_at >= self.FLUSH_EVERY_S:
            self._flush()

    def log_artifact(self, path: Path, folder: str | None) -> None:
        if path.is_dir():
            self._client.log_artifacts(self._run_id, str(path), folder)
        else:
            self._client.log_artifact(self._run_id, str(path), folder)

    def log_table(self, table: pd.DataFrame, name: str) -> None:
        self._client.log_table(self._run_id, table, name)

    def log_scenarios(self, name: str, context: str, scenarios: Any) -> None:
        import mlflow.data
        from mlflow.data.meta_dataset import MetaDataset
        from mlflow.data.sources import LocalArtifactDatasetSource
        from mlflow.entities import Dataset, DatasetInput, InputTag
        from mlflow.exceptions import MlflowException

        digest = _digest(scenarios)
        # By its content, for MLflow keeps one source for all runs of an experiment that have the same dataset.
        path = self._artifacts / "scenarios" / f"{digest}.json"
        if not path.is_file():
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
            partial.write_text(json.dumps(scenarios, indent=1) + "\n", encoding="utf-8")
            partial.replace(path)
        source = LocalArtifactDatasetSource(path.as_uri())
        data = (
            MetaDataset(source, name, digest)
            if isinstance(scenarios, Mapping)
            else mlflow.data.from_pandas(_table_of(scenarios), source, name=name, digest=digest)
        )
        logged = [DatasetInput(Dataset.from_dictionary(data.to_dict()), [InputTag("mlflow.data.context", context)])]
        try:
            self._client.log_inputs(self._run_id, logged)
        except MlflowException:  # another process was faster with the same dataset, which MLflow then finds
            self._client.log_inputs(self._run_id, logged)

    def log_agent(self, folder: Path) -> None:
        import mlflow.pyfunc
        from mlflow.entities import LoggedModelOutput
        from mlflow.models import Model, ModelSignature
        from mlflow.types import DataType, ParamSchema, ParamSpec, Schema, TensorSpec

        from bbrgym.agents.policy import load_agent

        agent = load_agent(folder)
        observation, action = agent.spec.observation, agent.spec.action
        described = {**agent.training, "content_hash": agent.content_hash}
        logged = self._client.create_logged_model(
            self._client.get_run(self._run_id).info.experiment_id,
            name="agent",
            source_run_id=self._run_id,
            params={name: str(value) for name, value in described.items()},
            model_type="policy",
        )
        model = Model(
            artifact_path=logged.artifact_location,
            run_id=self._run_id,
            model_uuid=logged.model_id,
            model_id=logged.model_id,
            metadata={
                **_plain(described),
                **{group: _plain(agent.spec.to_config()[group]) for group in ("observation", "action")},
            },
        )
        signature = ModelSignature(
            Schema([TensorSpec(np.dtype(np.float32), (-1, *observation.space.shape))]),
            Schema([TensorSpec(np.dtype(np.float32), (-1, *action.space.shape))]),
            ParamSchema([ParamSpec("reset", DataType.boolean, False)]),
        )
        with tempfile.TemporaryDirectory() as partial:
            mlflow.pyfunc.save_model(
                f"{partial}/agent",
                mlflow_model=model,
                python_model=str(Path(__file__).with_name("pyfunc_model.py")),
                artifacts={"agent": str(folder)},
                signature=signature,
                input_example=observation.neutral[np.newaxis],
                pip_requirements=_model_requirements(),
            )
            self._client.log_model_artifacts(logged.model_id, f"{partial}/agent")
        self._client.finalize_logged_model(logged.model_id, "READY")
        self._client.log_outputs(
            self._run_id, [LoggedModelOutput(logged.model_id, int(agent.training.get("steps", 0)))]
        )

    def set_tags(self, tags: Mapping[str, str]) -> None:
        from mlflow.entities import RunTag

        given = [RunTag(self._name(name), str(value)[: self.LONGEST_TAG]) for name, value in tags.items()]
        for batch in _batches(given, self.MOST_PARAMS):
            self._client.log_batch(self._run_id, tags=batch)

    def finish(self, status: str) -> None:
        self._flush()
        self._client.set_terminated(self._run_id, status)

    def _log_params(self, params: Mapping[str, str]) -> None:
        from mlflow.entities import Param

        # Cut, for run.json has them whole.
        given = [Param(self._name(name), value[: self.LONGEST_PARAM]) for name, value in params.items()]
        for batch in _batches(given, self.MOST_PARAMS):
            self._client.log_batch(self._run_id, params=batch)

    def _flush(self) -> None:
        pending, self._pending = self._pending, []
        self._flushed_at = time.monotonic()
        for batch in _batches(pending, 1000):
            self._client.log_batch(self._run_id, metrics=batch)

    def _experiment(self, name: str) -> str:
        from mlflow.exceptions import MlflowException

        if (found := self._client.get_experiment_by_name(name)) is not None:
            return str(found.experiment_id)
        artifacts = self._artifacts / re.sub(r"[^\w.-]+", "_", name)
        try:
            return str(self._client.create_experiment(name, artifact_location=artifacts.as_uri()))
        except MlflowException:  # another process was faster
            if (found := self._client.get_experiment_by_name(name)) is None:
                raise
            return str(found.experiment_id)

    def _name(self, name: str) -> str:
        return re.sub(r"[^\w./: -]", "_", name)[: self.LONGEST_NAME]


_FAILED_ROOTS: set[Path] = set()
"""Where a store failed in this process: not tried again, not warned about again."""


def _open_store(config: TrackingConfig, record: dict[str, Any]) -> _Store | None:
    """The store with the run in it, whose id is then the record's; None without one."""
    if config.backend == "none" or _root(config) in _FAILED_ROOTS:
        return None
    try:
        store = _Store(config)
        record["run_id"] = store.begin(record)
    except Exception as error:  # whatever it is: a run never ends because of the store
        _give_up(_root(config), error)
        return None
    record["in_store"] = True
    return store


def _give_up(root: Path, error: Exception) -> None:
    _FAILED_ROOTS.add(root)
    cause = str(error).strip().splitlines()
    reason = f"{type(error).__name__}: {cause[0] if cause else 'no reason given'}"
    if isinstance(error, ModuleNotFoundError):
        reason = f"{error.name} is not installed (pip install 'bbrgym[track]', or choose tracking=none)"
    LOGGER.warning("MLflow in %s fails, so runs are logged in their own folders only: %s", root / "runs", reason)


def _create_database(database: Path) -> None:
    from filelock import FileLock

    database.parent.mkdir(parents=True, exist_ok=True)
    partial = database.with_name("mlflow.db.partial")
    with FileLock(f"{database}.lock", timeout=180):
        if database.exists():
            return
        for left_behind in database.parent.glob("mlflow.db.partial*"):
            left_behind.unlink()
        code = "import sys, mlflow; mlflow.MlflowClient(tracking_uri=sys.argv[1]).search_experiments(max_results=1)"
        made = subprocess.run(
            [sys.executable, "-c", code, f"sqlite:///{partial}"],
            capture_output=True,
            text=True,
            timeout=180,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "MLFLOW_DISABLE_TELEMETRY": os.environ.get("MLFLOW_DISABLE_TELEMETRY", "true")},
        )
        if made.returncode:
            last = (made.stderr.strip() or "no message").splitlines()[-1]
            raise RuntimeError(f"MLflow cannot make its database: {last}")
        connection = sqlite3.connect(partial)
        # Readers (the UI) and a writer then do not wait for each other; the file keeps the mode.
        connection.execute("PRAGMA journal_mode=WAL")
        connection.close()
        partial.replace(database)


def _root(config: TrackingConfig) -> Path:
    return Path(config.root or ".").expanduser().resolve()


def _terminate(signum: int, frame: FrameType | None) -> None:
    raise SystemExit(TERMINATED)


def _end_line(path: Path) -> None:
    """Put an end to a line that a kill cut off, so that the next one is not lost with it."""
    if path.is_file() and (content := path.read_bytes()) and not content.endswith(b"\n"):
        with path.open("ab") as file:
            file.write(b"\n")


def _git(*arguments: str) -> str | None:
    """What git says of the checkout that this file belongs to; None if it belongs to none."""
    here = Path(__file__).resolve()  # in a checkout the package is reached through a link
    if arguments[0] != "ls-files" and _git("ls-files", "--error-unmatch", here.name) is None:
        return None  # installed in an environment that lies in somebody else's checkout
    try:
        asked = subprocess.run(
            ["git", "-C", str(here.parent), *arguments],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return asked.stdout.strip()


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a user without a name, as in containers
        return str(os.getuid())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _plain(value: Any) -> Any:
    """What JSON can hold: no NaN, no infinity, no objects."""
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int | bool) else str(value)


def _digest(plain: Any) -> str:
    """Of plain containers: equal for equal ones, that is 12 and 12.0 are one rate, and keys have no order."""

    def canonical(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: canonical(entry) for key, entry in value.items()}
        if isinstance(value, list):
            return [canonical(entry) for entry in value]
        return float(value) if isinstance(value, int) and not isinstance(value, bool) else value

    return hashlib.sha256(json.dumps(canonical(plain), sort_keys=True).encode()).hexdigest()[:16]


def _table_of(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """One row a scenario; columns that MLflow can name a type for: numbers, and texts of everything else."""
    import pandas as pd

    table = pd.DataFrame([flatten(row) for row in rows])
    for name in table:
        numbers = pd.to_numeric(table[name], errors="coerce")
        if not numbers.isna().any():
            table[name] = numbers.astype(float)
    return table.fillna("")


def _model_requirements() -> list[str]:
    """What a model needs to run, bounded as this project bounds it."""
    from packaging.requirements import Requirement

    needed = [f"bbrgym~={bbrgym.__version__}"]
    for text in metadata.requires("bbrgym") or ():
        requirement = Requirement(text)
        if requirement.name in ("numpy", "mlflow"):
            needed.append(f"{requirement.name}{requirement.specifier}")
    return needed


def _batches(entries: list[Any], size: int) -> Iterable[list[Any]]:
    for begin in range(0, len(entries), size):
        yield entries[begin : begin + size]
