"""MLflow's store of the project: a SQLite database and a folder of artifacts, used through MLflow's client alone."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import numpy as np

from bbrgym.agents.policy import load_agent
from bbrgym.agents.provenance import override_key
from bbrgym.extras import require
from bbrgym.files import json_text, sqlite_url
from bbrgym.interruption import deferring_signals
from bbrgym.processes import ChildProcess
from bbrgym.waiting import announcing

if TYPE_CHECKING:
    import pandas as pd
    from mlflow.entities import Run
    from mlflow.exceptions import MlflowException

LOGGER = logging.getLogger(__name__)

# MLflow's limits, in characters.
LONGEST_NAME: Final = 250
LONGEST_EXPERIMENT: Final = 500
LONGEST_PARAM: Final = 6000
LONGEST_TAG: Final = 8000

FLUSH_EVERY_S: Final = 2.0
"""A call takes tens of milliseconds while others write too, so metrics are collected for as long as this."""

HTTP_LIMITS: Final = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",  # one at once, one after 2 s
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
}
"""How long a call to a tracking server can last, unless the user's environment says otherwise.

MLflow's own limits are 2 minutes and 7 retries. A run waits for the call, so a server that is gone would stop it for 4
minutes, and one that does not answer for 20. With these it is 3 s and 20 s.
"""

DATABASE_TRIES: Final = 4
"""How often MLflow tries to connect to a database, in 1 s. Its own limit is 10 times, in 100 s."""


def store_root(root: Path | str | None) -> Path:
    """Return the absolute path of the folder that has `runs/`; None is the current one.

    Raises:
        ValueError: its user is unknown, as in `~nobody/runs`.
    """
    try:
        return Path(root or ".").expanduser().resolve()
    except RuntimeError as error:
        raise ValueError(f"tracking.root: no home folder is known for '{root}'") from error


def store_uri(root: Path | str | None = None) -> str:
    """Return MLflow's URI of the project's database, which is created if missing.

    The database is created once, atomically: under a lock, next to its place, by a process of its own. With MLflow
    alone, processes that start at the same time fail on each other's half-made schema.

    Args:
        root: the folder that has `runs/`; None is the current one.

    Raises:
        Exception: of any kind, if it cannot be created.
    """
    require("MLflow's store", "mlflow", "filelock")
    database = store_root(root) / "runs" / "mlflow.db"
    if not database.exists():
        with announcing(f"MLflow's database {database}, which is being created"):
            _create_database(database)
    return sqlite_url(database)


def ui_page(root: Path | str | None) -> str:
    """Return the page of MLflow's UI that lists the trainings by their best score, with what was swept as columns.

    The columns are a view that is kept with the experiment. Without trainings it is the list of experiments.

    Raises:
        Exception: of any kind, if the store cannot be read.
    """
    uri = store_uri(root)
    from mlflow import MlflowClient

    from bbrgym.agents.config import EXPERIMENT

    client = MlflowClient(tracking_uri=uri, registry_uri=uri)
    kind = "workflowType=machine_learning"  # otherwise the first page is that of language models
    experiment = client.get_experiment_by_name(EXPERIMENT)
    if experiment is None:
        return f"#/experiments?{kind}"
    runs = client.search_runs([experiment.experiment_id], max_results=_VIEWED_RUNS)
    score = "metrics.`best/score`"
    columns = [score, *(f"params.`{name}`" for name in _swept([run.data.params for run in runs]))]
    parents = {run.data.tags["mlflow.parentRunId"]: True for run in runs if "mlflow.parentRunId" in run.data.tags}
    view = {"orderByKey": score, "orderByAsc": False, "selectedColumns": columns, "runsExpanded": parents}
    client.set_experiment_tag(experiment.experiment_id, f"mlflow.sharedViewState.{_VIEW}", json.dumps(view))
    return f"#/experiments/{experiment.experiment_id}/runs?{kind}&viewStateShareKey={_VIEW}"


_VIEW: Final = "bbrgym"
"""Key of the view of `ui_page`."""
_VIEWED_RUNS: Final = 500
_MOST_COLUMNS: Final = 8


def _swept(params: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the parameters that tell runs apart: first what sweeps vary, then what else command lines have set."""
    made = [
        run for run in params if "composition.overrides" in run
    ]  # by command lines; the run of a sweep has no values
    keys: dict[str, None] = {}
    for kind in ("swept", "overrides"):
        for run in made:
            try:
                listed = json.loads(run.get(f"composition.{kind}", "[]"))
            except ValueError:  # shortened to MLflow's limit
                continue
            keys |= dict.fromkeys(override_key(one) for one in listed)
    names: dict[str, None] = {}
    for key in keys:
        names |= dict.fromkeys(_params_of(key, made))
    return [name for name in names if len({run.get(name) for run in made}) > 1][:_MOST_COLUMNS]


def _params_of(key: str, params: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the parameters that the setting of a key becomes: itself, its parts, or the choice from a group."""
    found = dict.fromkeys(name for run in params for name in run if name == key or name.startswith(f"{key}."))
    choice = f"composition.choices.{key}"
    return [choice] if any(choice in run for run in params) else list(found)


def run_ui(root: Path | str | None, port: int) -> int:
    """Run MLflow's UI of the project's store, for this machine only; return 1 if it ends by itself, after an error.

    Raises:
        Exception: of any kind, if the store cannot be created.
    """
    uri = store_uri(root)
    # Otherwise MLflow starts a dozen processes that only its language-model features need.
    os.environ["MLFLOW_SERVER_ENABLE_JOB_EXECUTION"] = "false"
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    server = ["ui", "--backend-store-uri", uri, "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    process = ChildProcess([sys.executable, "-m", "mlflow", *server])
    try:
        wait(process.fds)
    finally:
        process.end()
    return 1


class MlflowStore:
    """Writes one run to MLflow. It uses no global state of MLflow, so runs can nest and threads do not matter.

    Names of parameters, metrics and tags are those of `store_name`.

    Args:
        root: the folder that has `runs/`.
        uri: of a tracking server or of a database; None is the project's database in `root`. Files then go where the
            server, or MLflow's default for the database, puts them.

    Raises:
        Exception: of any kind, here and from every method.
    """

    def __init__(self, root: Path, uri: str | None = None) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        # A run prints its own messages and progress.
        os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")
        os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
        self.name = uri or str(root / "runs")
        self._artifacts = root / "runs" / "mlartifacts" if uri is None else None
        uri = uri or store_uri(root)
        from mlflow import MlflowClient
        from mlflow.store.db import utils

        utils.MAX_RETRY_COUNT = DATABASE_TRIES
        with calling(self.name):
            self._client = MlflowClient(tracking_uri=uri, registry_uri=uri)
        self._pending: list[Any] = []
        self._flushed_at = time.monotonic()
        self._run_id = ""

    def begin(self, record: Mapping[str, Any]) -> str:
        """Create the run of a record (run.json), or continue the one that it names; return MLflow's id.

        A run that was in another store, or whose database is gone, is not found here: it is created, with another id,
        and has here what is logged from now on.
        """
        from mlflow.entities import Param

        if record["in_store"] and self._continue(str(record["run_id"])):
            self.set_tags(record["tags"])  # of the command that resumes it, and of its folder now
            return self._run_id
        parent = {} if record["parent"] is None else {"mlflow.parentRunId": str(record["parent"])}
        name = _shorten(_text(record["run_name"]), LONGEST_NAME)
        experiment = self._experiment(record["experiment"])
        with deferring_signals():  # else nobody would know the run that the store has just made
            run = self._client.create_run(experiment, tags=parent, run_name=name)
            self._run_id = run.info.run_id
        self.set_tags(record["tags"])
        # Shortened to MLflow's limit; run.json has them in full.
        params = {store_name(name): _text(value)[:LONGEST_PARAM] for name, value in flatten(record["params"])}
        self._client.log_batch(self._run_id, params=[Param(*param) for param in params.items()])
        return self._run_id

    def _continue(self, run_id: str) -> bool:
        """Continue a run; return False if the store does not have it."""
        from mlflow.exceptions import MlflowException

        self._run_id = run_id
        try:
            self._client.update_run(run_id, status="RUNNING")
        except MlflowException as error:
            if not _is_missing(error):
                raise
            self._run_id = ""
        return bool(self._run_id)

    def log_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Log finite values at a step."""
        from mlflow.entities import Metric

        now_ms = int(time.time() * 1e3)
        self._pending += [Metric(store_name(name), value, now_ms, step) for name, value in metrics.items()]
        if time.monotonic() - self._flushed_at >= FLUSH_EVERY_S:
            self._flush()

    def log_artifact(self, path: Path, folder: str | None) -> None:
        """Copy a file or a folder to the run's artifacts."""
        if path.is_dir():
            self._client.log_artifacts(self._run_id, str(path), folder)
        else:
            self._client.log_artifact(self._run_id, str(path), folder)

    def log_table(self, table: pd.DataFrame, name: str) -> None:
        """Log a table as an artifact that MLflow displays."""
        self._client.log_table(self._run_id, table, name)

    def log_scenarios(self, name: str, context: str, scenarios: Any) -> None:
        """Log a distribution or rows of scenarios as a dataset."""
        from mlflow.data.meta_dataset import MetaDataset
        from mlflow.data.sources import CodeDatasetSource
        from mlflow.entities import Dataset, DatasetInput, InputTag
        from mlflow.exceptions import MlflowException

        digest = _digest(scenarios)
        artifact = f"scenarios/{digest}.json"
        self._client.log_text(self._run_id, json_text(scenarios), artifact)
        # Named by its content: MLflow keeps one source for all runs of an experiment with the same dataset.
        source = CodeDatasetSource({"artifact": artifact})
        data = MetaDataset(source, _shorten(_text(name), LONGEST_EXPERIMENT), digest)
        logged = [DatasetInput(Dataset.from_dictionary(data.to_dict()), [InputTag("mlflow.data.context", context)])]
        try:
            self._client.log_inputs(self._run_id, logged)
        except MlflowException as error:  # another process has just created the same dataset, which MLflow now finds
            if not _may_be_a_conflict(error):
                raise
            self._client.log_inputs(self._run_id, logged)

    def log_agent(self, folder: Path) -> None:
        """Log a trained agent's folder as the model `agent`, which loads without pickle and without torch."""
        import mlflow.pyfunc
        from mlflow.entities import LoggedModelOutput
        from mlflow.models import Model, ModelSignature
        from mlflow.types import DataType, ParamSchema, ParamSpec, Schema, TensorSpec

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
        config = agent.spec.to_config()
        model = Model(
            artifact_path=logged.artifact_location,
            run_id=self._run_id,
            model_uuid=logged.model_id,
            model_id=logged.model_id,
            metadata={**described, "observation": config["observation"], "action": config["action"]},
        )
        signature = ModelSignature(
            Schema([TensorSpec(np.dtype(np.float32), (-1, *observation.space.shape))]),
            Schema([TensorSpec(np.dtype(np.float32), (-1, *action.space.shape))]),
            ParamSchema([ParamSpec("reset", DataType.boolean, False)]),
        )
        with tempfile.TemporaryDirectory() as temporary:
            mlflow.pyfunc.save_model(
                f"{temporary}/agent",
                mlflow_model=model,
                python_model=str(Path(__file__).with_name("pyfunc_model.py")),
                artifacts={"agent": folder.absolute().as_uri()},
                signature=signature,
                input_example=observation.neutral[np.newaxis],
                pip_requirements=_model_requirements(),
            )
            self._client.log_model_artifacts(logged.model_id, f"{temporary}/agent")
        self._client.finalize_logged_model(logged.model_id, "READY")
        self._client.log_outputs(
            self._run_id, [LoggedModelOutput(logged.model_id, int(agent.training.get("steps", 0)))]
        )

    def set_tags(self, tags: Mapping[str, str]) -> None:
        """Add or change tags."""
        from mlflow.entities import RunTag

        given = [RunTag(store_name(name), _text(value)[:LONGEST_TAG]) for name, value in tags.items()]
        self._client.log_batch(self._run_id, tags=given)

    def finish(self, status: str) -> None:
        """End the run, if it has begun."""
        if not self._run_id:
            return
        try:
            self._flush()
        except Exception as error:
            if is_refusal(error):  # else it would not answer again
                self._client.set_terminated(self._run_id, status)
            raise
        self._client.set_terminated(self._run_id, status)

    def end_killed(self, run_id: str) -> None:
        """End a run whose process was killed, unless it is this one, and the runs that belong to it, as KILLED.

        A run that this store does not have is that of another one, and is left alone.
        """
        from mlflow.exceptions import MlflowException

        try:
            run = self._client.get_run(run_id)
        except MlflowException as error:
            if not _is_missing(error):
                raise
            return
        left = self._children(run)
        if run_id != self._run_id and run.info.status == "RUNNING":
            left.append(run)
        for one in left:
            self._client.set_terminated(one.info.run_id, "KILLED")

    def _children(self, run: Run) -> list[Run]:
        """Return the runs that belong to a run and have not ended."""
        wanted = f"tags.mlflow.parentRunId = '{run.info.run_id}' and attributes.status = 'RUNNING'"
        return list(self._client.search_runs([run.info.experiment_id], wanted))

    def _flush(self) -> None:
        pending, self._pending = self._pending, []
        self._flushed_at = time.monotonic()
        self._client.log_batch(self._run_id, metrics=pending)

    def _experiment(self, wanted: str) -> str:
        """Return the id of the experiment, which is created if it is missing."""
        from mlflow.exceptions import MlflowException

        name = _shorten(_text(wanted), LONGEST_EXPERIMENT)
        location = None if self._artifacts is None else (self._artifacts / store_name(name)).as_uri()
        if (found := self._client.get_experiment_by_name(name)) is None:
            try:
                return str(self._client.create_experiment(name, artifact_location=location))
            except MlflowException as error:  # another process has just created it
                if not _may_be_a_conflict(error) or (found := self._client.get_experiment_by_name(name)) is None:
                    raise
        return str(found.experiment_id)


@contextmanager
def calling(store: str) -> Iterator[None]:
    """Enclose calls of a store: what takes long is announced, and a server that does not answer is given up soon.

    MLflow reads its limits in each call, so they are those of `HTTP_LIMITS` in the block and not in the whole process.
    """
    limits = {name: limit for name, limit in HTTP_LIMITS.items() if name not in os.environ}
    loggers = [logging.getLogger(name) for name in _OF_RETRIES]
    levels = [logger.level for logger in loggers]
    os.environ.update(limits)
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with announcing(f"MLflow in {store}"):
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        for name in limits:
            os.environ.pop(name, None)


_OF_RETRIES: Final = ("urllib3.connectionpool", "mlflow.store.db.utils")
"""Loggers that warn of each retry; the error that is raised at last says it all."""


def store_name(name: str) -> str:
    """Return a name as MLflow takes it: another one for every other name.

    What MLflow refuses is written as `:` and two hexadecimal digits per byte of its UTF-8: `loss<1%` as `loss:3C1:25`.
    Of a name that is too long, the end is a hash.
    """
    escaped = _REFUSED.sub(lambda found: "".join(f":{b:02X}" for b in found[0].encode(errors="surrogatepass")), name)
    return _shorten(escaped or ":", LONGEST_NAME)


_REFUSED: Final = re.compile(
    r"[^\w./: -]"
    r"|:(?=[0-9A-F]{2}|\Z)"  # so that a `:` that begins an escape is no other, and `:` alone is the empty name
    r"|(?<![^/])/|/\Z"  # MLflow takes only names that are normal as paths: no empty part,
    r"|(?<![^/])\.(?=\.?(?:/|\Z))|\A\.(?=\.)"  # and no `.` or `..`
)


def is_refusal(error: Exception) -> bool:
    """Return whether MLflow works but does not take what it was given, as opposed to a store that fails."""
    if not is_of_mlflow(error) or not 400 <= error.get_http_status_code() < 500:
        return False
    from sqlalchemy.exc import DatabaseError, DataError, IntegrityError

    # MLflow answers 400 for a damaged database too.
    cause = error.__cause__
    return not isinstance(cause, DatabaseError) or isinstance(cause, DataError | IntegrityError)


def _is_missing(error: MlflowException) -> bool:
    """Return whether MLflow refuses something because it does not have it."""
    return bool(error.error_code == "RESOURCE_DOES_NOT_EXIST")


def _may_be_a_conflict(error: MlflowException) -> bool:
    """Return whether another process may have made an error, as opposed to a server that does not answer."""
    return int(error.get_http_status_code()) != 500  # the status of all errors of requests


def is_of_mlflow(error: Exception) -> TypeGuard[MlflowException]:
    """Return whether MLflow raised the error, as opposed to what prepares the data for it."""
    return hasattr(error, "get_http_status_code")


def warn_of_refusal(store: str, what: str, error: Exception) -> None:
    """Warn that something is left out of a store; once, since every run of a benchmark may have it."""
    if (store, what) not in _WARNED:
        _WARNED.add((store, what))
        LOGGER.warning("MLflow in %s refuses %s, which is left out there: %s", store, what, first_line(error))


_WARNED: set[tuple[str, str]] = set()
"""What this process was warned about: store, and what it refused."""


def first_line(error: Exception) -> str:
    """Return an error's kind and the first line of its message."""
    message = str(error).strip().splitlines()
    return f"{type(error).__name__}: {message[0] if message else 'no reason given'}"


def flatten(params: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield nested parameters as ("a.b.0.c", text); a list of plain values is one parameter."""
    for key, value in params.items():
        name = f"{prefix}{key}"
        if isinstance(value, list | tuple) and any(isinstance(entry, Mapping) for entry in value):
            value = {str(index): entry for index, entry in enumerate(value)}
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{name}.")
        else:
            yield name, value if isinstance(value, str) else json.dumps(value, default=str)


_CREATE: Final = """
import sys, mlflow, sqlalchemy
@sqlalchemy.event.listens_for(sqlalchemy.Engine, "connect")
def _(connection, record):
    connection.execute("PRAGMA synchronous=OFF")
mlflow.MlflowClient(tracking_uri=sys.argv[1]).search_experiments(max_results=1)
"""
"""Creates MLflow's schema. Its dozens of migrations do not wait for the disk; the file is synchronized at the end."""


def _create_database(database: Path) -> None:
    from filelock import FileLock

    database.parent.mkdir(parents=True, exist_ok=True)
    partial = database.with_name("mlflow.db.partial")
    with FileLock(f"{database}.lock", timeout=180):
        if database.exists():
            return
        for left_behind in database.parent.glob("mlflow.db.partial*"):
            left_behind.unlink()
        created = subprocess.run(
            [sys.executable, "-c", _CREATE, sqlite_url(partial)],
            capture_output=True,
            text=True,
            timeout=180,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "MLFLOW_DISABLE_TELEMETRY": os.environ.get("MLFLOW_DISABLE_TELEMETRY", "true")},
        )
        if created.returncode:
            last = (created.stderr.strip() or "no message").splitlines()[-1]
            raise RuntimeError(f"MLflow cannot create its database: {last}")
        connection = sqlite3.connect(partial)
        # So that readers, such as the UI, and a writer do not wait for each other; the file keeps the mode.
        connection.execute("PRAGMA journal_mode=WAL")
        connection.close()
        with partial.open("rb") as file:
            os.fsync(file)
        partial.replace(database)


def _digest(plain: Any) -> str:
    """Hash plain containers, equal for equal ones: 12 and 12.0 are one rate, and keys have no order."""
    canonical = json.loads(json_text(plain), parse_int=float)
    return hashlib.sha256(json.dumps(canonical, sort_keys=True).encode()).hexdigest()[:16]


def _model_requirements() -> list[str]:
    """Return what a model needs to run, with this project's version bounds."""
    from packaging.requirements import Requirement

    needed = map(Requirement, metadata.requires("bbrgym") or ())
    bounds = [f"{one.name}{one.specifier}" for one in needed if one.name in ("numpy", "mlflow")]
    return [f"bbrgym~={metadata.version('bbrgym')}", *bounds]


def _text(value: object) -> str:
    """Return a value as text that every database takes."""
    return str(value).encode(errors="replace").decode().replace("\0", "?")


def _shorten(name: str, limit: int) -> str:
    """Return a name of at most so many characters: of a longer one, the begin and a hash."""
    if len(name) <= limit:
        return name
    return f"{name[: limit - 17]}-{hashlib.sha256(name.encode()).hexdigest()[:16]}"
