"""Tracking: the run's folder is complete, MLflow has a copy, and no failure of MLflow ends a run."""

import contextlib
import dataclasses
import io
import json
import logging
import math
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import policies
import pytest
from matplotlib.figure import Figure
from rich.console import Console
from training import Killed, learn, quiet, run_of
from waiting import wait_for

from bbrgym import Flow, Scenario
from bbrgym.agents import mlflow_store, provenance, tracking
from bbrgym.agents.callbacks import EVALUATION_SEED
from bbrgym.agents.mlflow_store import LONGEST_NAME, store_name, store_uri, ui_page
from bbrgym.agents.policy import Agent
from bbrgym.agents.provenance import run_name
from bbrgym.agents.tracking import Tracker, TrackingConfig, forget_metrics, read_metrics, read_run
from bbrgym.agents.train import train
from bbrgym.benchmark.evaluate import evaluate
from bbrgym.benchmark.run import run_benchmark
from bbrgym.envs.distribution import Distribution
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.envs.sb3_env import SharedPolicyVecEnv
from bbrgym.files import write_json
from bbrgym.interruption import TERMINATED

LOG_UNTIL_KILLED = """
import sys, pathlib, itertools
from bbrgym.agents.tracking import Tracker
with Tracker.start(pathlib.Path(sys.argv[1]), "kill", "kill", {}) as tracker:
    for step in itertools.count():
        tracker.log_metrics({"value": step / 2}, step)
"""


@pytest.fixture
def root(mlflow_database: Path, tmp_path: Path) -> Iterator[Path]:
    """A root with a store of its own, in a folder whose name has characters that mean something in URLs."""
    root = tmp_path / mlflow_database.parents[1].name
    (root / "runs").mkdir(parents=True)
    shutil.copy(mlflow_database, root / "runs")
    yield root
    assert [path.name for path in tmp_path.iterdir()] == [root.name]
    tracking._FAILED_STORES.clear()
    mlflow_store._WARNED.clear()


def start(root: Path, name: str = "run", **more: Any) -> Tracker:
    given: dict[str, Any] = {"params": {"seed": 7, "agent": {"gamma": 0.9}}, "config": {"backend": "mlflow"}} | more
    given["config"] = given["config"] | {"root": str(root)}
    return Tracker.start(root / "runs" / name, "tests", name, **given)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the store's failures and refusals printed."""
    names = (tracking.__name__, mlflow_store.__name__)
    return [record.message for record in caplog.records if record.name in names]


def client(root: Path) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=store_uri(root))


def test_two_processes_that_create_the_database_at_the_same_time_succeed(mlflow_database: Path) -> None:
    with closing(sqlite3.connect(mlflow_database)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert not list(mlflow_database.parent.glob("*.partial*"))


def test_a_run_is_in_the_folder_and_in_the_store(root: Path) -> None:
    with start(root, tags={"colour": "blue"}) as tracker:
        tracker.log_metrics({"reward": -1.5, "share[0]": 0.5}, 10)
        tracker.log_metrics({"reward": -1.0}, 20)
        tracker.set_tags({"colour": "red"})
        tracker.log_figure(Figure(), "empty.png")
    lines = read_metrics(tracker.directory)
    assert [(line["step"], line["metrics"]["reward"]) for line in lines] == [(10, -1.5), (20, -1.0)]
    record = run_of(tracker.directory)
    assert (record["status"], record["run_id"], record["params"]["seed"]) == ("FINISHED", tracker.run_id, 7)
    run = client(root).get_run(tracker.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.params == {"seed": "7", "agent.gamma": "0.9"}
    assert run.data.metrics == {"reward": -1.0, "share:5B0:5D": 0.5}
    assert run.data.tags["colour"] == "red"
    assert run.data.tags["seed"] == "7"
    assert "bbrgym" in run.data.tags
    assert [m.step for m in client(root).get_metric_history(tracker.run_id, "reward")] == [10, 20]
    assert (root / "runs" / "mlartifacts" / "tests" / tracker.run_id / "artifacts" / "empty.png").is_file()


def test_many_and_long_parameters(root: Path) -> None:
    params = {f"p{index}": index for index in range(250)} | {"long": "x" * 20_000, "none": None, "odd=name,": [1, 2]}
    with start(root, params=params) as tracker:
        pass
    stored = client(root).get_run(tracker.run_id).data.params
    assert len(stored) == 253
    assert len(stored["long"]) == 6000
    assert (stored["none"], stored["odd:3Dname:2C"]) == ("null", "[1, 2]")
    assert len(run_of(tracker.directory)["params"]["long"]) == 20_000


SCENARIO: dict[str, Any] = {"rate_mbps": 12, "duration_s": 2, "flows": [{"algorithm": "agent", "rtt_ms": 20}]}


def make_agent(**config: Any) -> Agent:
    training = {"algorithm": "ppo", "steps": 640, "seed": 5, "reward": -0.25}
    return dataclasses.replace(policies.make_agent(scenario=SCENARIO, **config), training=training)


@pytest.mark.parametrize("lstm", [(), (6,)])
def test_an_agent_is_a_model(
    root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory, lstm: tuple[int, ...]
) -> None:
    agent = make_agent(lstm=lstm)
    agent.save(root / "best")
    with start(root) as tracker:
        tracker.log_agent(root / "best")
    assert tracker._store is not None, "MLflow failed"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store_uri(root))
    import mlflow

    (logged,) = client(root).search_logged_models([client(root).get_run(tracker.run_id).info.experiment_id])
    assert (logged.status, logged.params["algorithm"], logged.params["steps"]) == ("READY", "ppo", "640")
    for uri in (f"runs:/{tracker.run_id}/agent", f"models:/{logged.model_id}"):
        folder = tmp_path_factory.mktemp("model")  # a copy, because MLflow would read the path of `root` as a URL
        model = mlflow.pyfunc.load_model(uri, dst_path=str(folder))
        agent.reset()
        rng = np.random.default_rng(1)
        for _ in range(3):  # a recurrent agent has a memory
            observations = rng.normal(size=(4, agent.network.inputs)).astype(np.float32)
            actions = model.predict(observations)
            assert np.array_equal(actions, agent.predict(observations))
        again = model.predict(observations, params={"reset": True})
        agent.reset()
        assert np.array_equal(again, agent.predict(observations))
    assert model.metadata.metadata["content_hash"] == agent.content_hash
    (requirements,) = folder.rglob("requirements.txt")
    needed = requirements.read_text().split()
    assert [re.split(r"[~<>=!]", text)[0] for text in needed] == ["bbrgym", "numpy", "mlflow"]
    assert not list(folder.rglob("*.pkl"))


def test_equal_scenarios_are_one_dataset(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    drawn = {"rate_mbps": {"log_uniform": [6, 24]}, "flows": [{"algorithm": "agent", "rtt_ms": 20}]}
    same = {"flows": [{"rtt_ms": 20.0, "algorithm": "agent"}], "rate_mbps": {"log_uniform": [6.0, 24.0]}}
    rows = [
        {"seed": seed, "scenario": Scenario(rate_mbps=rate, flows=(Flow("bbr"),) * seed).to_dict()}
        for seed, rate in ((1, 12), (2, 24))
    ]
    inputs = {}
    for name, distribution in (("first", drawn), ("second", same), ("third", drawn | {"loss": 0.1})):
        with start(root, name) as tracker:
            tracker.log_scenarios("drawn", "training", Distribution.from_dict(distribution).to_dict())
            tracker.log_scenarios("rows", "evaluation", rows)
        inputs[name] = client(root).get_run(tracker.run_id).inputs.dataset_inputs
    digests = [[each.dataset.digest for each in inputs[name]] for name in ("first", "second", "third")]
    assert digests[0] == digests[1]
    assert digests[0][0] != digests[2][0]
    assert digests[0][1] == digests[2][1]
    scenarios = Path(client(root).download_artifacts(tracker.run_id, "scenarios", str(tmp_path_factory.mktemp("it"))))
    training, evaluation = (json.loads((scenarios / f"{digest}.json").read_text()) for digest in digests[2])
    assert Distribution.from_dict(training) == Distribution.from_dict(drawn | {"loss": 0.1})
    assert evaluation == rows


def test_runs_can_log_one_dataset_at_the_same_time(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    trackers = [start(root, name) for name in "abcd"]
    gate = threading.Barrier(len(trackers))

    def log(tracker: Tracker) -> None:
        for index in range(5):
            gate.wait()
            tracker.log_scenarios("scenarios", "training", SCENARIO | {"rate_mbps": index + 1})

    with ThreadPoolExecutor(len(trackers)) as pool:
        list(pool.map(log, trackers))
    for tracker in trackers:
        tracker.finish()
        assert len(client(root).get_run(tracker.run_id).inputs.dataset_inputs) == 5
    assert not warnings(caplog)


def test_the_page_of_the_ui_has_what_was_swept_as_columns(root: Path) -> None:
    config = {"backend": "mlflow", "root": str(root)}
    assert ui_page(root) == "#/experiments?workflowType=machine_learning"
    for gamma, terms in ((0.9, {"delay": 1.0}), (0.97, {"delay": 1.0, "loss": 1.0})):
        overrides = ["agent=sac", f"+reward.terms={terms}", f"agent.gamma={gamma}", "engine=native"]
        choices = {"agent": "sac", "engine": "native"}
        composition = {"choices": choices, "overrides": overrides, "swept": ["agent.gamma"]}
        params = {"agent": {"gamma": gamma, "tau": gamma}, "reward": {"terms": terms}, "composition": composition}
        with Tracker.start(root / "runs" / str(gamma), "train", "n", params, config=config) as tracker:
            tracker.log_metrics({"best/score": gamma})
    sweep = {"overrides": ["agent.gamma=0.9,0.97"], "swept": ["agent.gamma"]}
    Tracker.start(root / "runs" / "sweep", "train", "sweep gamma=0.9,0.97", sweep, config=config).finish()
    experiment = client(root).get_experiment_by_name("train")
    (key,) = re.findall(r"viewStateShareKey=(\w+)$", ui_page(root))
    view = json.loads(client(root).get_experiment_by_name("train").tags[f"mlflow.sharedViewState.{key}"])
    assert f"/experiments/{experiment.experiment_id}/runs" in ui_page(root)
    # What a sweep varies comes first; what all runs have in common, such as the agent, is no column.
    assert view["selectedColumns"] == ["metrics.`best/score`", "params.`agent.gamma`", "params.`reward.terms.loss`"]
    assert (view["orderByKey"], view["orderByAsc"]) == ("metrics.`best/score`", False)


def test_a_name_begins_with_what_the_run_is() -> None:
    overrides = ["agent=sac", "scenario=duel", "seed=2", "agent.gamma=0.9", "engine=native"]
    composition = {"choices": {"agent": "sac", "scenario": "duel"}, "overrides": overrides}
    config = {"name": "sac", "composition": composition}
    assert run_name(config, "sac", [2]) == "sac duel seed 2 (gamma=0.9 engine=native)"
    composition["overrides"] = [f"agent.long_name_{place}={place}" for place in range(30)]
    assert run_name(config, "sac", [2]) == "sac duel seed 2 (long_name_0=0 long_name_1=1 long_name_2=2 …)"
    composition["overrides"] = overrides
    assert run_name(config | {"name": "mine"}, "sac", [2]).startswith("mine sac duel seed 2 ")
    assert run_name({"name": "evaluation"}, "ppo", [1, 2]) == "ppo seeds 1 2"


def test_a_name_in_a_sweep_begins_with_what_the_sweep_varies() -> None:
    fixed = [f"train.long_name_{place}={place}" for place in range(30)]
    swept = {"agent.learning_rate": "0.0006824078427098838", "seed": "2", "reward.terms.delay": "0.5"}
    overrides = [*fixed, *(f"{key}={value}" for key, value in swept.items())]
    composition = {"choices": {"scenario": "duel"}, "overrides": overrides, "swept": list(swept)}
    config = {"name": "ppo", "seed": 2, "composition": composition}
    name = run_name(config, "ppo", [2])
    assert name.startswith("learning_rate=0.000682408 seed 2 delay=0.5 ppo duel (long_name_0=0 ")
    assert run_name(config | {"name": "mine"}, "ppo", [2]) == f"mine {name}"
    composition["swept"] = ["agent", "scenario"]
    composition["overrides"] = [
        "scenario.flows.0.rtt_ms=10",
        "scenario.flows.1.rtt_ms=50",
        "agent=ppo",
        "scenario=duel",
    ]
    both = "scenario.flows.0.rtt_ms=10 …"  # two keys that end alike
    assert run_name(config, "ppo", [2]) == f"ppo duel seed 2 ({both})"


def test_a_training_in_the_store(root: Path) -> None:
    directory = root / "runs" / "training"
    scenario = SCENARIO | {"rate_mbps": {"log_uniform": [6, 24]}, "flows": [SCENARIO["flows"][0]] * 2}
    config = {
        "scenario": scenario,
        "engine": {"name": "fake"},
        "agent": {"algorithm": "ppo", "n_steps": 32, "batch_size": 64, "n_epochs": 1},
        "train": {"total_steps": 128, "n_envs": 2, "eval_every": 128, "eval_episodes": 3, "checkpoint_every": 128},
        "tracking": {"backend": "mlflow", "root": str(root)},
        "seed": 3,
    }
    train(config, directory, Console(file=io.StringIO()))
    run = client(root).get_run(run_of(directory)["run_id"])
    assert run.info.status == "FINISHED"
    assert run.data.params["agent.n_steps"] == "32"
    assert [m.step for m in client(root).get_metric_history(run.info.run_id, "eval/reward")] == [0, 128]
    artifacts = {artifact.path for artifact in client(root).list_artifacts(run.info.run_id)}
    assert artifacts >= {"best", "final", "training_curve.png"}
    assert len(run.outputs.model_outputs) == 1
    assert run.data.tags["folder"] == str(directory)
    assert run.info.run_name == "ppo seed 3"
    assert {each.tags[0].value for each in run.inputs.dataset_inputs} == {"evaluation", "training"}
    # The episodes of its evaluations.
    episodes = json.loads((directory / "evaluation_scenarios.json").read_text())
    spec = EpisodeSpec.from_config(config)
    training = json.loads((directory / "training_scenarios.json").read_text())
    assert Distribution.from_dict(training) == spec.distribution
    with closing(SharedPolicyVecEnv(spec, 3)) as env:
        env.seed(EVALUATION_SEED)
        env.reset()
        drawn = zip(env.record.seeds.tolist(), env.scenarios, strict=True)
    assert [(e["seed"], e["scenario"]) for e in episodes] == [(seed, scenario.to_dict()) for seed, scenario in drawn]


def test_an_evaluation_in_the_store(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_agent().save(root / "best")
    directory = root / "runs" / "evaluation"
    config = {
        "agent_path": str(root / "best"),
        "scenario": SCENARIO,
        "engine": {"name": "fake"},
        "seeds": [4, 5],
        "tracking": {"backend": "mlflow", "root": str(root)},
    }
    results = evaluate(config, directory, Console(file=io.StringIO()))
    run = client(root).get_run(run_of(directory)["run_id"])
    episodes = json.loads((directory / "evaluation_scenarios.json").read_text())
    assert [(e["seed"], e["scenario"]["rate_mbps"]) for e in episodes] == [(4, 12), (5, 12)]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store_uri(root))
    table = client(root).load_table(run.info.experiment_id, "results_table.json", [run.info.run_id])
    assert table["throughput_mbps"].tolist() == pytest.approx(results["throughput_mbps"].tolist())


def small_benchmark(tracking: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "small",
        "scenarios": {"alone": {"rate_mbps": 12, "duration_s": 2, "flows": [{"rtt_ms": 30}]}},
        "competitors": ["bbr"],
        "seeds": [1],
        "engine": "native",
        "executor": {"workers": 1},
        "tracking": tracking,
    }


def test_a_benchmark_in_the_store(root: Path) -> None:
    directory = root / "runs" / "small"
    run_benchmark(small_benchmark({"backend": "mlflow", "root": str(root)}), directory, Console(file=io.StringIO()))
    run = client(root).get_run(run_of(directory)["run_id"])
    (child,) = client(root).search_runs(
        [run.info.experiment_id], f"tags.mlflow.parentRunId = '{run.info.run_id}'", max_results=2
    )
    assert (run.info.run_name, run.data.tags["failed_runs"]) == ("small", "0")
    assert (child.data.tags["scenario"], child.data.tags["competitor"]) == ("alone", "bbr")
    artifacts = {artifact.path for artifact in client(root).list_artifacts(run.info.run_id)}
    assert artifacts == {"results.parquet", "results_table.json", "benchmark.json", "report.html", "scenarios"}


ODD_NAMES = [
    "",
    ":",
    ".",
    "..",
    "...",
    "./rel",
    "..rel",
    "a//b",
    "a///b",
    "/a",
    "a/",
    "/",
    "//",
    "a/./b",
    "a/../b",
    "a/.b",
    "loss<1%",
    "loss>1%",
    "loss_1_",
    "loss:3C1:25",
    "loss:3A3C1:25",
    "≤1 %",
    "a\n",
    "a\x00",
    "a:",
    "a:3",
    "share[0]",
    "x" * 249 + "%",
    "x" * 300,
    "x" * 300 + "y",
    "\ud800",
]


def test_every_name_has_one_of_its_own_that_mlflow_takes() -> None:
    from mlflow.utils.validation import _validate_param_name

    names = {name: store_name(name) for name in ODD_NAMES}
    assert len(set(names.values())) == len(ODD_NAMES)
    for name in names.values():
        _validate_param_name(name)
        assert len(name) <= LONGEST_NAME
    plain = ["eval/reward", "agent.gamma", "a b: c", "naïve", "a/.b", "scenarios.0.5bdp.rate_mbps"]
    assert [store_name(name) for name in plain] == plain
    assert names["≤1 %"] == ":E2:89:A41 :25"


def test_what_mlflow_refuses_is_left_out_with_one_warning(
    root: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = {"a.b": 1, "a": {"b": 2}, "c": "\ud800 \0"}  # twice the same name; text that no database takes
    with caplog.at_level(logging.WARNING, logger="bbrgym"):
        for name in ("first", "second"):
            with start(root, name, params=params) as tracker, monkeypatch.context() as patched:
                tracker.log_metrics({"good": 1.0})
                patched.setattr(mlflow_store, "store_name", lambda name: name)
                tracker.set_tags({"bad?": "no"})
            run = client(root).get_run(tracker.run_id)
            assert (run.info.status, run.data.metrics) == ("FINISHED", {"good": 1.0})
            assert run.data.params == {"a.b": "2", "c": "? ?"}
    (warning,) = warnings(caplog)
    assert " refuses tags, which is left out there: " in warning


def test_a_deleted_experiment_costs_the_copy_until_it_is_restored(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    with start(root, "first") as first:
        pass
    experiment = client(root).get_experiment_by_name("tests").experiment_id
    client(root).delete_experiment(experiment)
    with caplog.at_level(logging.WARNING, logger="bbrgym"):
        for name in ("first", "second"):
            with start(root, name, resume=True) as tracker:
                tracker.log_metrics({"x": 1.0})
            assert run_of(tracker.directory)["status"] == "FINISHED"
            assert len(read_metrics(tracker.directory)) == 1
    assert len(warnings(caplog)) == 2
    assert all("refuses run" in text for text in warnings(caplog))
    client(root).restore_experiment(experiment)
    with start(root, "first", resume=True) as tracker:
        tracker.log_metrics({"x": 2.0})
    assert tracker.run_id == first.run_id
    assert client(root).get_run(first.run_id).data.metrics == {"x": 2.0}


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
    [
        (RuntimeError("no luck"), "FAILED"),
        (KeyboardInterrupt(), "KILLED"),
        (SystemExit(TERMINATED), "KILLED"),
        (SystemExit(1), "FAILED"),
    ],
)
def test_the_status_says_how_it_ended(root: Path, error: BaseException, status: str) -> None:
    with pytest.raises(type(error)), start(root) as tracker:
        raise error
    assert run_of(tracker.directory)["status"] == status
    assert client(root).get_run(tracker.run_id).info.status == status


def test_a_resumed_run_is_one_run(root: Path) -> None:
    first = start(root)
    first.log_metrics({"x": 1.0}, 1)
    first.finish("FAILED")
    with (first.directory / "metrics.jsonl").open("a") as file:
        file.write('{"run_id": "cut off in the mid')
    with start(root, params={"seed": 8}, resume=True) as second:
        second.log_metrics({"x": 2.0}, 2)
    tags = read_run(second.directory)["tags"]
    assert tags.items() <= client(root).get_run(first.run_id).data.tags.items()
    assert second.run_id == first.run_id
    assert [line["step"] for line in read_metrics(first.directory)] == [1, 2]
    assert client(root).get_run(first.run_id).info.status == "FINISHED"
    assert [m.value for m in client(root).get_metric_history(first.run_id, "x")] == [1.0, 2.0]


@pytest.mark.parametrize("is_size_known", [True, False])
def test_a_run_forgets_what_followed_the_moment_to_which_it_goes_back(tmp_path: Path, is_size_known: bool) -> None:
    forget_metrics(tmp_path, 0, 0)
    assert not (tmp_path / "metrics.jsonl").exists()
    with Tracker.start(tmp_path, "train", "x", {}) as before:
        before.log_metrics({"x": 1.0}, 1)
    # Under another id, as in another store: it is the same run.
    with Tracker.start(tmp_path, "train", "x", {}) as tracker:
        tracker.log_metrics({"x": 2.0}, 2)
        logged_bytes = tracker.logged_bytes
        tracker.log_metrics({"y": 2.0}, 2)
        tracker.log_metrics({"x": 3.0}, 3)
    assert tracker.run_id != before.run_id
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"run_id": "cut off in the mid')
    forget_metrics(tmp_path, logged_bytes if is_size_known else None, 2)
    kept = [(line["step"], list(line["metrics"])) for line in read_metrics(tmp_path)]
    # Without the size nothing tells what was logged in this step before and after.
    assert kept == [(1, ["x"]), (2, ["x"])] + ([] if is_size_known else [(2, ["y"])])
    assert (tmp_path / "metrics.jsonl").read_bytes().endswith(b"\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metrics.jsonl", "run.json"]


def test_a_run_that_goes_back_several_times_still_knows_what_it_spent(tmp_path: Path) -> None:
    with Tracker.start(tmp_path, "train", "x", {}) as tracker:
        tracker.log_metrics({"spent": 1.0, "x": 1.0}, 1)
        logged_bytes = tracker.logged_bytes
        tracker.log_metrics({"spent": 5.0, "x": 2.0}, 2)
        tracker.log_metrics({"x": 3.0}, 3)
    for known in (logged_bytes, logged_bytes, None, None):
        forget_metrics(tmp_path, known, 1, still=("spent",))
        kept = [(line["step"], line["metrics"]) for line in read_metrics(tmp_path)]
        assert kept == [(1, {"spent": 1.0, "x": 1.0}), (1, {"spent": 5.0})]


@pytest.fixture
def elsewhere(root: Path, mlflow_database: Path) -> Path:
    """Another root, whose store has no runs, as that of another machine or one whose database was deleted."""
    other = root / "elsewhere"
    (other / "runs").mkdir(parents=True)
    shutil.copy(mlflow_database, other / "runs")
    return other


def ended(root: Path, was_killed: bool) -> Tracker:
    """Make a run that has ended, or whose record says that its process was killed."""
    with start(root, parent="a" * 32) as tracker:
        tracker.log_metrics({"x": 1.0}, 1)
    if was_killed:
        write_json(tracker.directory / "run.json", run_of(tracker.directory) | {"status": "RUNNING"})
    return tracker


@pytest.mark.parametrize("was_killed", [False, True])
def test_a_run_that_is_resumed_where_the_store_lacks_it_is_tracked_there(
    root: Path, elsewhere: Path, was_killed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    first = ended(root, was_killed)
    config = {"backend": "mlflow", "root": str(elsewhere)}
    ids = []
    with caplog.at_level(logging.WARNING, logger="bbrgym"):
        for step, parent in ((2, "b" * 32), (3, None)):
            with Tracker.start(
                first.directory, "tests", "run", {"seed": 7}, parent=parent, config=config, resume=True
            ) as tracker:
                tracker.log_metrics({"x": float(step)}, step)
            record = run_of(first.directory)
            assert (record["run_id"], record["in_store"]) == (tracker.run_id, True)
            ids.append(tracker.run_id)
    assert not warnings(caplog)
    assert ids[0] == ids[1] != first.run_id
    assert statuses(elsewhere) == [("run", "FINISHED")]
    run = client(elsewhere).get_run(ids[0])
    assert (run.data.params, run.data.tags["mlflow.parentRunId"]) == ({"seed": "7"}, "b" * 32)
    assert record["parent"] == "b" * 32
    assert [m.step for m in client(elsewhere).get_metric_history(ids[0], "x")] == [2, 3]
    assert [line["step"] for line in read_metrics(first.directory)] == [1, 2, 3]
    assert client(root).get_run(first.run_id).data.metrics == {"x": 1.0}


def test_a_run_that_was_killed_in_another_store_is_left_alone(
    root: Path, elsewhere: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = ended(root, was_killed=True)
    with caplog.at_level(logging.WARNING, logger="bbrgym"):
        config = {"backend": "mlflow", "root": str(elsewhere)}
        Tracker.start(first.directory, "tests", "next", {}, config=config).finish()
    assert not warnings(caplog)
    assert statuses(elsewhere) == [("next", "FINISHED")]


def corrupt(root: Path) -> None:
    (root / "runs" / "mlflow.db").write_bytes(b"this is no database" * 1000)


def occupy(root: Path) -> None:
    shutil.rmtree(root / "runs")
    (root / "runs").write_text("a file where the folder should be")


@pytest.mark.parametrize("break_it", [corrupt, occupy])
def test_a_broken_store_does_not_stop_a_run(root: Path, caplog: pytest.LogCaptureFixture, break_it: Any) -> None:
    break_it(root)
    with caplog.at_level(logging.WARNING, logger="bbrgym"):
        for name in ("first", "second"):
            folder = root / "elsewhere" / name
            config = {"backend": "mlflow", "root": str(root)}
            with Tracker.start(folder, "tests", name, {}, config=config) as tracker:
                tracker.log_metrics({"x": 1.0})
                tracker.log_artifact(folder / "run.json")
            assert len(read_metrics(folder)) == 1
    assert len(warnings(caplog)) == 1


def test_a_store_that_breaks_during_a_run_does_not_stop_it(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="bbrgym"), start(root) as tracker:
        tracker.log_metrics({"x": 1.0}, 1)
        with sqlite3.connect(root / "runs" / "mlflow.db") as connection:
            connection.execute("DROP TABLE metrics")
        connection.close()
        assert tracker._store is not None
        tracker._store._flushed_at = -math.inf  # as if it were time to write
        tracker.log_metrics({"x": 1.0}, 2)
        tracker.log_metrics({"x": 1.0}, 3)
    assert [line["step"] for line in read_metrics(tracker.directory)] == [1, 2, 3]
    assert "MLflow in" in caplog.text
    assert run_of(tracker.directory)["status"] == "FINISHED"


class Server:
    """A port of this machine whose server is broken: it drops each connection, or keeps it without an answer."""

    def __init__(self, is_silent: bool) -> None:
        self.connections: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._is_silent = is_silent
        self.uri = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # it is closed
            while True:
                self.connections.append(self._listener.accept()[0])
                if not self._is_silent:
                    self.connections[-1].close()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for connection in self.connections:
            connection.close()


@pytest.fixture(params=["drops", "is silent"])
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A broken server. Of the one that is silent a user has set the limits, which then are these."""
    is_silent = request.param == "is silent"
    if is_silent:
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with closing(Server(is_silent)) as found:
        yield found


def tries(server: Server) -> int:
    """How many connections there may be, until the server is given up."""
    return 1 if server._is_silent else 1 + int(mlflow_store.HTTP_LIMITS["MLFLOW_HTTP_REQUEST_MAX_RETRIES"])


@pytest.mark.parametrize("server", ["is silent"], indirect=True)
@pytest.mark.parametrize("call", ["log_metrics", "log_artifact", "log_scenarios", "log_agent", "set_tags", "finish"])
def test_a_server_that_dies_is_given_up_once(
    root: Path, server: Server, call: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever call meets it, and with it for all runs of this process."""
    from mlflow import MlflowClient

    before = dict(os.environ)
    make_agent().save(root / "best")
    first, second = start(root, "first"), start(root, "second")
    for tracker in (first, second):
        assert tracker._store is not None
        tracker._store._client = MlflowClient(tracking_uri=server.uri, registry_uri=server.uri)
        tracker._store._flushed_at = -math.inf if call == "log_metrics" else math.inf
    if call == "finish":
        first.log_metrics({"x": 1.0}, 1)  # which it sends
    arguments: dict[str, Any] = {
        "log_metrics": ({"x": 1.0}, 1),
        "log_artifact": (first.directory / "run.json",),
        "log_scenarios": ("drawn", "training", SCENARIO),
        "log_agent": (root / "best",),
        "set_tags": ({"colour": "blue"},),
    }
    with caplog.at_level(logging.WARNING):
        getattr(first, call)(*arguments.get(call, ()))
        assert len(server.connections) == tries(server)
        for tracker in (first, second):
            if call != "finish":
                tracker.log_metrics({"x": 2.0}, 2)
            tracker.finish()
    assert len(server.connections) == tries(server)
    (warning,) = [record for record in caplog.records if record.name != "bbrgym.waiting"]
    assert "failed, so runs are logged in their own folders only" in warning.message
    assert [run_of(tracker.directory)["status"] for tracker in (first, second)] == ["FINISHED"] * 2
    if call == "log_metrics":
        assert [line["step"] for line in read_metrics(first.directory)] == [1, 2]
    assert {name: os.environ.get(name) for name in mlflow_store.HTTP_LIMITS} == {
        name: before.get(name) for name in mlflow_store.HTTP_LIMITS
    }


def test_a_training_without_its_server_ends_with_its_last_step(
    root: Path, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    tracking = {"backend": "mlflow", "root": str(root), "uri": server.uri}
    with caplog.at_level(logging.WARNING, logger="bbrgym"):
        result = learn(root / "runs" / "training", tracking=tracking)
    assert (result.is_complete, len(server.connections)) == (True, tries(server))
    assert run_of(result.directory)["status"] == "FINISHED"
    assert len(warnings(caplog)) == 1


@pytest.mark.parametrize("server", ["is silent"], indirect=True)
def test_a_benchmark_without_its_server_has_all_runs(
    root: Path, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    tracking = {"backend": "mlflow", "root": str(root), "uri": server.uri}
    config = small_benchmark(tracking) | {"seeds": [1, 2]}
    with caplog.at_level(logging.WARNING, logger="bbrgym"):
        result = run_benchmark(config, root / "runs" / "small", quiet(), has_report=False)
    assert (result.results["seed"].tolist(), result.failures) == ([1, 2], [])
    assert len(server.connections) == tries(server)
    assert len(warnings(caplog)) == 1


def test_a_database_that_cannot_be_opened_is_given_up_soon(
    root: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow.store.db.utils

    waits: list[float] = []
    monkeypatch.setattr(mlflow.store.db.utils, "time", SimpleNamespace(sleep=waits.append))
    (root / "runs" / "mlflow.db").unlink()
    (root / "runs" / "mlflow.db").mkdir()
    with caplog.at_level(logging.WARNING), start(root) as tracker:
        tracker.log_metrics({"x": 1.0})
    assert 0 < sum(waits) < 5
    (warning,) = [record.message for record in caplog.records if record.name != "bbrgym.waiting"]
    assert "unable to open database file" in warning


@pytest.mark.parametrize(("signum", "status"), [(signal.SIGKILL, "RUNNING"), (signal.SIGTERM, "KILLED")])
def test_a_killed_run_can_be_read(tmp_path: Path, signum: int, status: str) -> None:
    process = subprocess.Popen([sys.executable, "-c", LOG_UNTIL_KILLED, str(tmp_path)])
    wait_for(lambda: len(read_metrics(tmp_path)) >= 100)
    process.send_signal(signum)
    code = process.wait()
    assert code == (TERMINATED if signum == signal.SIGTERM else -signum)
    lines = read_metrics(tmp_path)
    assert len(lines) >= 100
    assert [line["step"] for line in lines] == list(range(len(lines)))
    assert run_of(tmp_path)["status"] == status


@pytest.mark.parametrize(("bad", "known"), [({"backend": "wandb"}, "mlflow, none"), ({"colour": "x"}, "backend, root")])
def test_bad_configuration_is_refused_by_name(bad: dict[str, str], known: str) -> None:
    with pytest.raises(ValueError, match=f"known: {known}"):
        TrackingConfig.of(bad)


def test_pages_in_docs_do_not_make_the_code_modified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, page = tmp_path / "agents" / "provenance.py", tmp_path / "docs" / "page.md"
    for file in (code, page):
        file.parent.mkdir()
        file.write_text("committed", "utf-8")
    identity = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
    for command in (["init", "-q"], ["add", "."], [*identity, "commit", "-q", "-m", "all"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    monkeypatch.setattr(provenance, "__file__", str(code))
    page.write_text("made again", "utf-8")
    assert provenance.source_tags()["git.dirty"] == "false"
    code.write_text("modified", "utf-8")
    assert provenance.source_tags()["git.dirty"] == "true"


def statuses(root: Path) -> list[tuple[str, str]]:
    """Return the name and the status of every run in the store, oldest first."""
    experiments = [experiment.experiment_id for experiment in client(root).search_experiments()]
    runs = client(root).search_runs(experiments, order_by=["attributes.start_time ASC"])
    return [(run.info.run_name, run.info.status) for run in runs]


@pytest.mark.parametrize("place", ["log_batch", "get_experiment_by_name", "create_run", "set_terminated"])
def test_a_run_that_is_interrupted_while_it_begins_or_ends_is_killed_or_finished(
    root: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    original = getattr(MlflowClient, place)

    def interrupted(self: Any, *arguments: Any, **more: Any) -> Any:
        result = original(self, *arguments, **more)
        signal.raise_signal(signal.SIGINT)
        return result

    def begin_and_end() -> None:
        start(root).finish()

    with monkeypatch.context() as patched:
        patched.setattr(MlflowClient, place, interrupted)
        with pytest.raises(KeyboardInterrupt):
            begin_and_end()
    expected = {"get_experiment_by_name": [], "set_terminated": [("run", "FINISHED")]}
    assert statuses(root) == expected.get(place, [("run", "KILLED")])


def test_a_run_whose_folder_cannot_be_written_has_ended(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Tracker) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(Tracker, "_write_record", full)
        with pytest.raises(OSError, match="the disk is full"):
            start(root)
    assert statuses(root) == [("run", "KILLED")]


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("place", ["_write_record", "log_metrics"])
def test_no_run_of_an_interrupted_benchmark_is_left_running(
    root: Path, place: str, is_killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After Ctrl-C at once; after a kill when the same command resumes it. No run is missing then."""
    config = small_benchmark({"backend": "mlflow", "root": str(root)}) | {"seeds": [1, 2]}
    directory = root / "runs" / "small"
    original = getattr(Tracker, place)

    def interrupted(self: Tracker, *arguments: Any) -> None:
        if self.directory.parent.name == "runs" and self.directory.parent.parent == directory:
            raise Killed if is_killed else KeyboardInterrupt
        original(self, *arguments)

    with monkeypatch.context() as patched:
        patched.setattr(Tracker, place, interrupted)
        if is_killed:  # nothing ends in order
            patched.setattr(tracking.MlflowStore, "finish", lambda *_: None)
            patched.setattr(tracking.MlflowStore, "end_killed", lambda *_: None)
            patched.setattr(Tracker, "finish", lambda *_: None)
        with pytest.raises((Killed, KeyboardInterrupt)):
            run_benchmark(config, directory, quiet(), has_report=False)
    left = [status for _, status in statuses(root)]
    assert left == (["RUNNING", "RUNNING"] if is_killed else ["KILLED", "KILLED"])
    run_benchmark(config, directory, quiet(), has_report=False)
    assert [status for _, status in statuses(root)] == ["KILLED", "KILLED", "FINISHED", "FINISHED", "FINISHED"]


def test_a_run_of_a_process_that_lives_is_left_alone(root: Path) -> None:
    with start(root) as first:
        record = run_of(first.directory)
        write_json(first.directory / "run.json", record | {"pid": os.getppid()})
        with start(root):
            assert statuses(root) == [("run", "RUNNING"), ("run", "RUNNING")]
