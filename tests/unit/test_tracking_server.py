"""MLflow's tracking server on PostgreSQL, with jobs of several hosts that write at the same time."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import free_port, wait_for

from bbrgym.agents.tracking import read_metrics, read_run
from bbrgym.processes import ChildProcess

TASKS = Path(__file__).parents[1] / "executor_tasks.py"

pytestmark = pytest.mark.slow


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A tracking server on this machine alone, on a PostgreSQL that listens on a Unix socket."""
    pytest.importorskip("mlflow")
    pytest.importorskip("psycopg2", reason="MLflow needs a driver of PostgreSQL: bbrgym[postgresql]")
    pgserver = pytest.importorskip("pgserver", reason="PostgreSQL as a package: pip install pgserver")
    postgresql = pgserver.get_server(tmp_path / "postgresql", cleanup_mode="delete")
    database = postgresql.get_uri().replace("postgresql://", "postgresql+psycopg2://")  # not psycopg 3
    port = free_port()
    monkeypatch.setenv("MLFLOW_SERVER_ENABLE_JOB_EXECUTION", "false")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    command = [
        *(sys.executable, "-m", "mlflow", "server", "--backend-store-uri", database),
        *("--artifacts-destination", str(tmp_path / "artifacts"), "--host", "127.0.0.1", "--port", str(port)),
        *("--workers", "1"),
    ]
    process = ChildProcess(command, subprocess.PIPE)
    uri = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert not process.is_over(), process.tail()
        try:
            return urllib.request.urlopen(f"{uri}/health", timeout=5).status == 200
        except OSError:
            return False

    try:
        wait_for(answers, "the tracking server")
        yield uri
    finally:
        process.end()
        postgresql.cleanup()


def test_eight_jobs_of_two_hosts_lose_nothing(server: str, tmp_path: Path) -> None:
    hosts = []
    for place in range(2):
        folder = tmp_path / f"host-{place}"
        folder.mkdir()
        command = [sys.executable, str(TASKS), server, str(4 * place + 1), str(4 * place + 4)]
        path = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TASKS.parent), os.environ.get("PYTHONPATH", "")])}
        hosts.append(subprocess.Popen(command, cwd=folder, start_new_session=True, env=path))
    assert [host.wait() for host in hosts] == [0, 0]

    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=server)
    experiment = client.get_experiment_by_name("jobs")
    assert experiment is not None
    runs = {run.info.run_id: run for run in client.search_runs([experiment.experiment_id])}
    assert len(runs) == 8
    for number in range(1, 9):
        folder = tmp_path / f"host-{(number - 1) // 4}" / f"job-{number}"
        record = read_run(folder)
        assert record is not None
        run = runs[record["run_id"]]
        assert (run.info.status, run.data.params["seed"]) == ("FINISHED", str(number))
        written = {(n, line["step"], v) for line in read_metrics(folder) for n, v in line["metrics"].items()}
        assert len(written) == 200
        stored = {
            (name, metric.step, metric.value)
            for name in run.data.metrics
            for metric in client.get_metric_history(run.info.run_id, name)
        }
        assert stored == written
        assert {artifact.path for artifact in client.list_artifacts(run.info.run_id)} == {f"file-{number}", "scenarios"}
        (dataset,) = run.inputs.dataset_inputs
        assert dataset.dataset.name == "alone"
