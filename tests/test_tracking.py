"""Tracking: the folder has the truth, MLflow has a copy, and no failure of MLflow ends a run."""

from __future__ import annotations

import json
import logging
import math
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from bbrgym.agents import tracking
from bbrgym.agents.tracking import TERMINATED, Tracker, TrackingConfig, flatten, read_metrics, read_run, store_uri

WANT_THE_STORE = "import sys; from bbrgym.agents.tracking import store_uri; store_uri({'root': sys.argv[1]})"

LOG_UNTIL_KILLED = """
import sys, pathlib, itertools
from bbrgym.agents.tracking import Tracker
with Tracker.start(pathlib.Path(sys.argv[1]), "kill", "kill", {}) as tracker:
    for step in itertools.count():
        tracker.log_metrics({"value": step / 2}, step)
"""


@pytest.fixture(scope="session")
def raced(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The root of a store that three processes wanted to be the first in, and their errors."""
    root = tmp_path_factory.mktemp("raced")
    processes = [
        subprocess.Popen([sys.executable, "-c", WANT_THE_STORE, str(root)], stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    errors = [process.communicate(timeout=110)[1] for process in processes]
    return root, [error for process, error in zip(processes, errors, strict=True) if process.returncode]


@pytest.fixture
def root(raced: tuple[Path, list[str]], tmp_path: Path) -> Iterator[Path]:
    """A root with a store of its own."""
    (tmp_path / "runs").mkdir()
    shutil.copy(raced[0] / "runs" / "mlflow.db", tmp_path / "runs")
    yield tmp_path
    tracking._FAILED_ROOTS.clear()


def start(root: Path, name: str = "run", **more: Any) -> Tracker:
    given: dict[str, Any] = {"params": {"seed": 7, "agent": {"gamma": 0.9}}, "config": {"backend": "mlflow"}} | more
    given["config"] = given["config"] | {"root": str(root)}
    return Tracker.start(root / "runs" / name, "tests", name, **given)


def client(root: Path) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=store_uri({"root": str(root)}))


def test_processes_that_come_first_together_all_get_in(raced: tuple[Path, list[str]]) -> None:
    root, errors = raced
    assert errors == []
    with sqlite3.connect(root / "runs" / "mlflow.db") as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()
    assert not list((root / "runs").glob("*.partial*"))


def test_runs_that_make_an_experiment_together_all_get_in(root: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        trackers = list(pool.map(lambda name: start(root, name), "abcd"))
    for tracker in trackers:
        tracker.finish()
    experiment = client(root).get_experiment_by_name("tests")
    runs = client(root).search_runs([experiment.experiment_id])
    assert sorted(run.info.run_name for run in runs) == ["a", "b", "c", "d"]
    assert {run.info.status for run in runs} == {"FINISHED"}


def test_a_run_is_in_the_folder_and_in_the_store(root: Path) -> None:
    with start(root, tags={"colour": "blue"}) as tracker:
        tracker.log_metrics({"reward": -1.5, "share[0]": 0.5}, 10)
        tracker.log_metrics({"reward": -1.0}, 20)
        tracker.set_tags({"colour": "red"})
        tracker.log_figure(Figure(), "empty.png")
    lines = read_metrics(tracker.directory)
    assert [(line["step"], line["metrics"]["reward"]) for line in lines] == [(10, -1.5), (20, -1.0)]
    record = read_run(tracker.directory)
    assert record is not None
    assert (record["status"], record["run_id"], record["params"]["seed"]) == ("FINISHED", tracker.run_id, 7)
    run = client(root).get_run(tracker.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.params == {"seed": "7", "agent.gamma": "0.9"}
    assert run.data.metrics == {"reward": -1.0, "share_0_": 0.5}
    assert run.data.tags["colour"] == "red"
    assert run.data.tags["seed"] == "7"
    assert "bbrgym" in run.data.tags
    assert [m.step for m in client(root).get_metric_history(tracker.run_id, "reward")] == [10, 20]
    assert (root / "runs" / "mlartifacts" / "tests" / tracker.run_id / "artifacts" / "empty.png").is_file()


def test_runs_nest(root: Path) -> None:
    with start(root, "parent") as parent, start(root, "child", parent=parent.run_id) as child:
        child.log_metrics({"x": 1.0})
    assert client(root).get_run(child.run_id).data.tags["mlflow.parentRunId"] == parent.run_id


def test_many_and_long_parameters(root: Path) -> None:
    params = {f"p{index}": index for index in range(250)} | {"long": "x" * 20_000, "none": None, "odd=name,": [1, 2]}
    with start(root, params=params) as tracker:
        pass
    stored = client(root).get_run(tracker.run_id).data.params
    assert len(stored) == 253
    assert len(stored["long"]) == 6000
    assert (stored["none"], stored["odd_name_"]) == ("null", "[1, 2]")
    record = read_run(tracker.directory)
    assert record is not None
    assert len(record["params"]["long"]) == 20_000


def test_values_that_are_not_finite(root: Path) -> None:
    with start(root) as tracker:
        tracker.log_metrics({"good": 1.0, "nan": math.nan, "inf": math.inf})
    (line,) = read_metrics(tracker.directory)
    assert line["metrics"]["good"] == 1.0
    assert math.isnan(line["metrics"]["nan"])
    assert client(root).get_run(tracker.run_id).data.metrics == {"good": 1.0}
    text = (tracker.directory / "metrics.jsonl").read_text()
    json.loads(text, parse_constant=lambda constant: pytest.fail(f"{constant} is no JSON"))


@pytest.mark.parametrize(
    ("error", "status"),
    [(RuntimeError("no luck"), "FAILED"), (KeyboardInterrupt(), "KILLED"), (SystemExit(TERMINATED), "KILLED"),
     (SystemExit(1), "FAILED")],
)  # fmt: skip
def test_the_status_says_how_it_ended(root: Path, error: BaseException, status: str) -> None:
    with pytest.raises(type(error)), start(root) as tracker:
        raise error
    record = read_run(tracker.directory)
    assert record is not None
    assert record["status"] == status
    assert client(root).get_run(tracker.run_id).info.status == status


def test_a_resumed_run_is_one_run(root: Path) -> None:
    first = start(root)
    first.log_metrics({"x": 1.0}, 1)
    first.finish("FAILED")
    with (first.directory / "metrics.jsonl").open("a") as file:
        file.write('{"run_id": "cut off in the mid')
    with start(root, params={"seed": 8}, resume=True) as second:
        second.log_metrics({"x": 2.0}, 2)
    assert second.run_id == first.run_id
    assert [line["step"] for line in read_metrics(first.directory)] == [1, 2]
    assert client(root).get_run(first.run_id).info.status == "FINISHED"
    assert [m.value for m in client(root).get_metric_history(first.run_id, "x")] == [1.0, 2.0]


def corrupt(root: Path) -> None:
    (root / "runs" / "mlflow.db").write_bytes(b"this is no database" * 1000)


def occupy(root: Path) -> None:
    shutil.rmtree(root / "runs")
    (root / "runs").write_text("a file where the folder should be")


@pytest.mark.parametrize("break_it", [corrupt, occupy])
def test_a_store_that_is_broken_does_not_stop_a_run(
    root: Path, caplog: pytest.LogCaptureFixture, break_it: Any
) -> None:
    break_it(root)
    with caplog.at_level(logging.WARNING, logger=tracking.__name__):
        for name in ("first", "second"):
            folder = root / "elsewhere" / name
            config = {"backend": "mlflow", "root": str(root)}
            with Tracker.start(folder, "tests", name, {}, config=config) as tracker:
                tracker.log_metrics({"x": 1.0})
                tracker.log_artifact(folder / "run.json")
            assert len(read_metrics(folder)) == 1
    assert len([record for record in caplog.records if record.name == tracking.__name__]) == 1


def test_a_store_that_breaks_on_the_way_does_not_stop_a_run(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger=tracking.__name__), start(root) as tracker:
        tracker.log_metrics({"x": 1.0}, 1)
        with sqlite3.connect(root / "runs" / "mlflow.db") as connection:
            connection.execute("DROP TABLE metrics")
        connection.close()
        assert tracker._store is not None
        tracker._store._flushed_at = -math.inf  # as if the time to write had come
        tracker.log_metrics({"x": 1.0}, 2)
        tracker.log_metrics({"x": 1.0}, 3)
    assert [line["step"] for line in read_metrics(tracker.directory)] == [1, 2, 3]
    assert "MLflow in" in caplog.text
    record = read_run(tracker.directory)
    assert record is not None
    assert record["status"] == "FINISHED"


def test_without_mlflow_it_says_what_to_install(
    root: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with caplog.at_level(logging.WARNING, logger=tracking.__name__), start(root) as tracker:
        tracker.log_metrics({"x": 1.0})
    assert "mlflow is not installed (pip install 'bbrgym[track]'" in caplog.text
    assert len(read_metrics(tracker.directory)) == 1


def test_no_backend_loads_no_mlflow(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from bbrgym.agents.tracking import Tracker\n"
        f"with Tracker.start(pathlib.Path({str(tmp_path)!r}), 'e', 'n', {{}}, config={{'backend': 'none'}}) as t:\n"
        "    t.log_metrics({'x': 1.0})\n"
        "sys.exit('mlflow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize(("signum", "status"), [(signal.SIGKILL, "RUNNING"), (signal.SIGTERM, "KILLED")])
def test_a_killed_run_can_be_read(tmp_path: Path, signum: int, status: str) -> None:
    process = subprocess.Popen([sys.executable, "-c", LOG_UNTIL_KILLED, str(tmp_path)])
    deadline = time.monotonic() + 30
    while len(read_metrics(tmp_path)) < 100 and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(process.pid, signum)
    code = process.wait(timeout=20)
    assert code == (TERMINATED if signum == signal.SIGTERM else -signum)
    lines = read_metrics(tmp_path)
    assert len(lines) >= 100
    assert [line["step"] for line in lines] == list(range(len(lines)))
    record = read_run(tmp_path)
    assert record is not None
    assert record["status"] == status


def test_the_signal_handler_is_given_back(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with Tracker.start(tmp_path, "e", "n", {}):
        pass
    assert signal.getsignal(signal.SIGTERM) is before


def test_bad_configuration_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="no tracking backend 'wandb'; known: mlflow, none"):
        TrackingConfig.of({"backend": "wandb"})
    with pytest.raises(ValueError, match="tracking has no key 'url'; known: backend, root"):
        TrackingConfig.of({"url": "x"})


def test_flatten() -> None:
    nested = {"a": {"b": 1, "c": [1, 2]}, "flows": [{"rtt_ms": 10.0}, {"rtt_ms": 50.0}], "empty": {}, "text": "t"}
    assert flatten(nested) == {
        "a.b": "1",
        "a.c": "[1, 2]",
        "flows.0.rtt_ms": "10.0",
        "flows.1.rtt_ms": "50.0",
        "empty": "{}",
        "text": "t",
    }
