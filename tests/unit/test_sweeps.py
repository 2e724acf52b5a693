"""Sweeps: launchers, sweepers, and their runs in MLflow."""

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sweep_tasks
from forks import passes_in_fork
from in_process import ExecutorInThisProcess
from omegaconf import OmegaConf
from other_json import OTHER_JSON
from sweep_tasks import run
from training import SMALL
from waiting import is_running, wait_for

import bbrgym.agents
from bbrgym.agents import callbacks, sweep
from bbrgym.agents.tracking import Tracker, read_metrics, read_run
from bbrgym.cli import main
from hydra_plugins.bbrgym import launcher, optuna_sweeper

LOCAL = ("hydra/launcher=local", "hydra.sweep.dir=sweep")
OPTUNA = ("hydra/sweeper=optuna", "hydra.sweep.dir=sweep", "hydra.sweeper.direction=minimize")


pytestmark = pytest.mark.usefixtures("in_new_folder")


def jobs() -> dict[str, Path]:
    """Return the folders of the sweep's jobs by name and seed."""
    found = {}
    for path in Path("sweep").glob("*/.hydra/config.yaml"):
        config = OmegaConf.load(path)
        found[f"{config.name}-{config.seed}"] = path.parent.parent
    return found


def begun() -> dict[str, int]:
    return {name: sweep_tasks.count(folder) for name, folder in jobs().items()}


@pytest.fixture
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "make_executor", ExecutorInThisProcess)


def statuses_in(table: str) -> dict[str, tuple[str, int]]:
    """Return the status and attempts of each job by its name, from the table that the launcher prints."""
    rows = re.findall(r"^ +[0-9a-f]{12} +(\w+) +[\d.]+ +(\d+) .*name=(\w+)", table, re.MULTILINE)
    return {name: (status, int(attempts)) for status, attempts, name in rows}


def test_jobs_run_in_processes_and_a_killed_or_failing_one_leaves_the_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    limits = ("hydra.launcher.retries=1", "hydra.launcher.workers=2")
    assert run(sweep_tasks.act, *LOCAL, *limits, "name=fine,die_once,raise", "seed=5") == 1
    captured = capsys.readouterr()
    assert statuses_in(captured.out) == {"fine": ("done", 1), "die_once": ("done", 2), "raise": ("failed", 1)}
    assert begun() == {"fine-5": 1, "die_once-5": 2, "raise-5": 1}
    folders = jobs()
    values = [json.loads((folders[name] / "result.json").read_text())["value"] for name in sorted(folders)]
    assert values == [5, 5, None]
    assert (folders["die_once-5"] / "output.log").read_text() == "begun: die_once\n" * 2
    assert "gamma is not possible" in (folders["raise-5"] / "output.log").read_text()
    assert "Traceback" not in captured.err


def test_a_job_that_takes_too_long_is_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    given = (*LOCAL, "hydra.launcher.timeout_s=1", "hydra.launcher.retries=0", "name=hang")
    assert run(sweep_tasks.act, *given) == 1
    captured = capsys.readouterr()
    assert statuses_in(captured.out) == {"hang": ("killed", 1)}
    assert "its process was stopped after 1 s (its output: sweep/" in captured.err


@pytest.mark.usefixtures("in_this_process")
def test_a_job_that_returns_what_json_cannot_hold_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(sweep_tasks.act, *LOCAL, "name=fine,object") == 1
    assert statuses_in(capsys.readouterr().out) == {"fine": ("done", 1), "object": ("failed", 1)}


@pytest.mark.usefixtures("in_this_process")
def test_a_job_whose_result_is_of_another_shape_runs_again() -> None:
    assert run(sweep_tasks.act, *LOCAL, "seed=1") == 0
    for count, text in enumerate(OTHER_JSON, start=2):
        (jobs()["fine-1"] / "result.json").write_text(text)
        assert run(sweep_tasks.act, *LOCAL, "seed=1") == 0
        assert begun() == {"fine-1": count}


@pytest.mark.usefixtures("in_this_process")
def test_finished_jobs_are_not_run_again() -> None:
    assert run(sweep_tasks.act, *LOCAL, "seed=1,2") == 0
    before = {folder: (folder / "result.json").read_text() for folder in jobs().values()}
    # In another order, with another job, and with an override that changes nothing: job numbers do not matter.
    assert run(sweep_tasks.act, *LOCAL, "name=raise,fine", "seed=2,1", "agent.gamma=0.97") == 1
    assert begun() == {"fine-1": 1, "fine-2": 1, "raise-1": 1, "raise-2": 1}
    assert all((folder / "result.json").read_text() == text for folder, text in before.items())
    # Failed jobs are run again.
    assert run(sweep_tasks.act, *LOCAL, "name=raise,fine", "seed=2,1") == 1
    assert begun() == {"fine-1": 1, "fine-2": 1, "raise-1": 2, "raise-2": 2}
    assert run(sweep_tasks.act, *LOCAL, "seed=1", "hydra.launcher.resume=false") == 0
    assert begun() == {"fine-1": 2, "fine-2": 1, "raise-1": 2, "raise-2": 2}
    assert "seed=1" in json.loads((jobs()["fine-1"] / "result.json").read_text())["overrides"]


@pytest.mark.usefixtures("in_this_process")
def test_a_job_whose_configuration_changed_is_another_job() -> None:
    Path("mine").mkdir()
    text = (sweep_tasks.TESTS / "sweep.yaml").read_text()
    for step_ms in (30, 30, 40):
        Path("mine/sweep.yaml").write_text(text.replace("100.0", str(step_ms)))
        assert run(sweep_tasks.act, "--config-dir=mine", *LOCAL, "seed=1") == 0
    assert [sweep_tasks.count(path.parent) for path in Path("sweep").glob("*/begun")] == [1, 1]


@pytest.mark.parametrize(
    "ending", [signal.SIGINT, signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_jobs_end_with_their_sweep(ending: signal.Signals) -> None:
    code = "import sys, sweep_tasks; sys.exit(sweep_tasks.run(sweep_tasks.act, *sys.argv[1:]))"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *LOCAL, "name=hang", "seed=1"],
        env={**os.environ, "PYTHONPATH": str(sweep_tasks.TESTS)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_for(lambda: list(Path("sweep").glob("*/grandchild")))
        (folder,) = jobs().values()
        wait_for((folder / "grandchild").read_text)
        job = int((folder / "begun").read_text())
        process.send_signal(ending)
        process.wait()
        wait_for(lambda: not is_running(job))
        if ending is not signal.SIGKILL:
            assert not is_running(int((folder / "grandchild").read_text()))
            record = read_run(Path("sweep"))
            assert record is not None
            assert record["status"] == "KILLED"
    finally:
        process.kill()
        for path in Path("sweep").glob("*/grandchild"):
            if is_running(int(path.read_text())):
                os.kill(int(path.read_text()), signal.SIGKILL)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["hydra/launcher=local", "hydra.launcher.timeout_s=-1"], "timeout_s must be"),
        (["hydra/sweeper=optuna"], "the search space is empty"),
        (["hydra/sweeper=optuna", "seed=range(1,1)"], "seed=range(1,1) has no values"),
        (["hydra/sweeper=optuna", "agent.gamma=interval(0.9,0.5)"], "agent.gamma=interval(0.9,0.5): "),
        (["hydra/sweeper=variants"], "hydra.sweeper.variants is empty"),
        (["agent=glob(x*)"], "agent=glob(x*) matches none of cma, distil, ppo, sac"),
        (
            ["agent=glob(x*)", "hydra/launcher=local", "seed=1,2"],
            "agent=glob(x*) matches none of cma, distil, ppo, sac",
        ),
        (["agent=glob(x*)", "hydra/sweeper=variants", "hydra.sweeper.variants={a: []}"], "matches none of cma, distil"),
        (["seed=glob(*)"], "glob(…) chooses from a group, and seed is none"),
        (["seed=range(3,3)"], "seed=range(3,3) has no values"),
        (["hydra/sweeper=optuna", "hydra.sweeper.params={seed: 'range(3,3)'}"], "seed=range(3,3) has no values"),
    ],
)
def test_mistakes_are_named(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(sweep_tasks.act, *arguments) == 1
    assert message in capsys.readouterr().err


@pytest.mark.usefixtures("in_this_process")
def test_optuna_finds_a_minimum() -> None:
    given = ("agent.gamma=interval(-1,1)", "seed=int(interval(1,9))", "hydra/launcher=local")
    many = ("hydra.sweeper.n_trials=16", "hydra.sweeper.n_jobs=2")
    assert run(sweep_tasks.quadratic, *OPTUNA, *given, *many) == 0
    results = OmegaConf.load("sweep/optimization_results.yaml")
    assert results.best_value < 0.1
    gamma, seed = results.best_params["agent.gamma"], results.best_params["seed"]
    assert results.best_value == pytest.approx(sweep_tasks.quadratic({"agent": {"gamma": gamma}, "seed": seed}, Path()))
    assert f"seed={seed}" in results.best_overrides


@pytest.mark.parametrize(("rate", "status"), [(0.5, 0), (0.2, 1)])
def test_trials_that_fail_are_counted(rate: float, status: int, capsys: pytest.CaptureFixture[str]) -> None:
    given = (f"hydra.sweeper.max_failure_rate={rate}", "seed=1,2", "hydra.sweeper.params={agent.gamma: 'choice(0.3)'}")
    assert run(sweep_tasks.sometimes, *OPTUNA, *given, "hydra.sweeper.n_trials=4") == status
    assert ("of 4 trials failed, more than" in capsys.readouterr().err) is bool(status)
    if not status:
        assert OmegaConf.load("sweep/optimization_results.yaml").best_value == 0.0


def test_a_killed_study_resumes() -> None:
    given = [*OPTUNA, "agent.gamma=interval(-1,1)", "hydra.sweeper.n_trials=4", "hydra.sweeper.sampler=random"]
    assert not passes_in_fork(lambda: run(sweep_tasks.quadratic_killed_once, *given))
    assert Path("killed").exists()
    assert run(sweep_tasks.quadratic_killed_once, *given) == 0
    with closing(sqlite3.connect("sweep/optuna.db")) as connection:
        states = [state for (state,) in connection.execute("SELECT state FROM trials ORDER BY trial_id")]
        values = [value for (value,) in connection.execute("SELECT param_value FROM trial_params ORDER BY trial_id")]
    assert states == ["COMPLETE", "COMPLETE", "FAIL", "COMPLETE", "COMPLETE"]
    assert values[3] == values[2], "the values of the killed trial come first"
    assert len(set(values)) == 4


@pytest.mark.usefixtures("in_this_process")
def test_environment_variables_are_numbers_where_numbers_are_due(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SEED": "5", "GAMMA": "0.5", "WORKERS": "1", "TRIALS": "1", "NAME": "7"}.items():
        monkeypatch.setenv(name, value)
    of_jobs = ("seed=${oc.env:SEED}", "agent.gamma=${oc.env:GAMMA}", "name=${oc.env:NAME}")
    assert run(sweep_tasks.quadratic, *LOCAL, "hydra.launcher.workers=${oc.env:WORKERS}", *of_jobs) == 0
    (folder,) = jobs().values()
    assert json.loads((folder / "result.json").read_text())["value"] == pytest.approx(0.2**2 + 0.01)
    searched = ("agent.gamma=interval(0,1)", "seed=${oc.env:SEED}", "hydra.sweeper.n_trials=${oc.env:TRIALS}")
    assert run(sweep_tasks.quadratic, *OPTUNA, *searched) == 0


SPACE = ("agent.gamma=interval(-1,1)", "seed=1,2")


@pytest.mark.usefixtures("in_this_process")
def test_another_configuration_is_another_study() -> None:
    given = (*OPTUNA, *SPACE, "hydra.sweeper.sampler=random")
    assert run(sweep_tasks.quadratic, *given, "hydra.sweeper.n_trials=2") == 0
    first = {path: path.read_bytes() for path in Path("sweep").glob("*/.hydra/*")}
    count = 2
    for change in (
        "env.step_ms=30",  # of all jobs
        "agent.gamma=interval(-1,2)",
        "agent.gamma=tag(log,interval(0.1,1))",
        "seed=1,2,3",
        "seed=1",  # a parameter less
        "jobs=1,2",  # a parameter more
        "hydra.sweeper.direction=maximize",
    ):
        assert run(sweep_tasks.quadratic, *given, "hydra.sweeper.n_trials=2", change) == 0
        jobs = [OmegaConf.load(f"sweep/{number}/.hydra/config.yaml") for number in (count, count + 1)]
        best = max if "maximize" in change else min
        results = OmegaConf.load("sweep/optimization_results.yaml")
        assert results.best_value == best(sweep_tasks.quadratic(job, Path()) for job in jobs)
        count += 2
    assert run(sweep_tasks.quadratic, *given, "hydra.sweeper.n_trials=2", change) == 0  # it is done
    # The first one can still be resumed; neither its length nor its sampler makes it another one.
    assert run(sweep_tasks.quadratic, *OPTUNA, *SPACE, "hydra.sweeper.n_trials=3") == 0
    with closing(sqlite3.connect("sweep/optuna.db")) as connection:
        counts = [n for (n,) in connection.execute("SELECT COUNT(*) FROM trials GROUP BY study_id ORDER BY study_id")]
    assert counts == [3, *[2] * 7]
    assert all(path.read_bytes() == content for path, content in first.items())


def _of_another_program(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE studies (name TEXT)")
        connection.commit()


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize(
    ("make", "storage", "reason"),
    [
        (lambda path: path.write_text("a file"), "sweep/optuna.db", "file is not a database"),
        (lambda path: path.mkdir(), "sweep/optuna.db", "unable to open"),
        (_of_another_program, "sweep/optuna.db", "studies has no column"),
        (lambda path: None, "nothing://user:secret@here/there", "nothing"),
    ],
)
def test_a_database_that_cannot_be_used_is_named(
    make: Callable[[Path], object], storage: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("sweep").mkdir()
    make(Path("sweep/optuna.db"))
    given = [] if storage == "sweep/optuna.db" else [f"hydra.sweeper.storage='{storage}'"]
    assert run(sweep_tasks.quadratic, *OPTUNA, *SPACE, *given) == 1
    error = capsys.readouterr().err
    assert storage.replace("secret", "…") in error
    assert reason in error.partition("database (")[2]
    assert not list(Path("sweep").glob("[0-9]*")), "no job was run"


@pytest.mark.usefixtures("in_this_process")
def test_the_folder_of_another_run_is_left_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    with Tracker.start(Path("run"), "train", "mine", {"seed": 1}, config={"backend": "none"}):
        pass
    swept = {"overrides": ["seed=1,2"], "swept": ["seed"]}
    with Tracker.start(Path("jobs"), "train", "mine", swept, tags={"sweeper": "basic"}, config={"backend": "none"}):
        pass
    assert run(sweep_tasks.quadratic, *LOCAL, "seed=1") == 0
    before = {name: Path(name, "run.json").read_text() for name in ("run", "sweep", "jobs")}
    agent = f"agent_path={Path(bbrgym.agents.__path__[0], 'reference')}"
    for command, message in {
        (
            "train",
            "-m",
            "hydra.sweep.dir=run",
            "seed=1,2",
            "train.total_steps=0",
        ): "'run' holds a run of `bbrgym train`: ",
        (
            "train",
            "-m",
            "hydra.sweep.dir=jobs",
            "seed=1,2",
            "train.total_steps=0",
        ): "'jobs' holds the jobs of another sweep, of seed=1,2, and not of seed=1,2 train.total_steps=0 ",
        ("train", "output_dir=sweep", "train.total_steps=0"): "'sweep' holds a sweep of `bbrgym train`: ",
        ("evaluate", agent, "output_dir=run"): "'run' holds a run of `bbrgym train`: ",
        ("evaluate", "-m", agent, "hydra.sweep.dir=sweep", "warmup=0,0.5"): "'sweep' holds a sweep of `bbrgym train`: ",
    }.items():
        assert main([*command, "scenario=single", "tracking=none"]) == 1
        assert message in capsys.readouterr().err
    assert {name: Path(name, "run.json").read_text() for name in before} == before
    assert run(sweep_tasks.quadratic, *LOCAL, "seed=1,2") == 0


def test_variants_change_one_setting_at_a_time() -> None:
    variants = "hydra.sweeper.variants={base: [], far: ['agent.gamma=0.99', 'env.step_ms=30'], n: ['agent.gamma=0.9']}"
    given = ("hydra/sweeper=variants", variants, "seed=1,2", "jobs=3", "hydra.sweep.dir=sweep")
    assert run(sweep_tasks.act, *given) == 0
    found = {}
    for name, folder in jobs().items():
        config = OmegaConf.load(folder / ".hydra" / "config.yaml")
        found[name] = (config.agent.gamma, config.env.step_ms, config.jobs)
    assert found == {
        f"{name}-{seed}": values
        for name, values in {"base": (0.97, 100.0, 3), "far": (0.99, 30, 3), "n": (0.9, 100.0, 3)}.items()
        for seed in (1, 2)
    }


@pytest.mark.usefixtures("in_this_process")
def test_a_sweep_and_its_jobs_are_nested_runs_of_one_store(mlflow_database: Path) -> None:
    Path("runs").mkdir()
    shutil.copy(mlflow_database, "runs")
    given = (*LOCAL, "hydra.launcher.workers=2", "tracking=mlflow", "seed=1,2", "agent.gamma=0.9")
    assert run(sweep_tasks.track, *given) == 0
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{Path('runs/mlflow.db').absolute()}")
    (experiment,) = client.search_experiments(filter_string="name = 'train'")
    parent = read_run(Path("sweep"))
    assert parent is not None
    stored = client.get_run(parent["run_id"])
    assert stored.info.status == "FINISHED"
    assert (stored.data.tags["launcher"], stored.data.tags["sweeper"]) == ("local", "basic")
    assert stored.data.metrics == {"jobs": 2, "jobs_finished": 2}
    children = client.search_runs(
        [experiment.experiment_id], f"tags.mlflow.parentRunId = '{parent['run_id']}' and params.`agent.gamma` = '0.9'"
    )
    assert sorted(child.data.params["seed"] for child in children) == ["1", "2"]
    assert {child.info.status for child in children} == {"FINISHED"}
    assert {child.data.params["composition.swept"] for child in children} == {'["seed"]'}

    written = {
        (line["run_id"], name, line["step"], value)
        for folder in jobs().values()
        for line in read_metrics(folder)
        for name, value in line["metrics"].items()
    }
    assert len(written) == 2 * 40 * 5
    with closing(sqlite3.connect("runs/mlflow.db")) as connection:
        in_store = set(connection.execute("SELECT run_uuid, key, step, value FROM metrics WHERE key LIKE 'm%'"))
    assert in_store == written


def test_a_pruner_stops_a_training_that_is_worse_than_others() -> None:
    class Reported:
        def __init__(self, worst: float) -> None:
            self.worst, self.values, self.attrs, self.asked = worst, {}, {}, 0

        def report(self, value: float, step: int) -> None:
            self.values[step] = value

        def should_prune(self) -> bool:
            self.asked += 1
            return self.values[max(self.values)] <= self.worst

        def set_user_attr(self, name: str, value: object) -> None:
            self.attrs[name] = value

    scores = {"poor": {10: -5.0, 20: -5.0}, "good": {10: -4.0, 20: -1.0}}
    trials = {(f"name={name}",): Reported(-5.0) for name in scores}
    for name, of_steps in scores.items():
        Path("sweep", name).mkdir(parents=True)
        record = {"params": {"composition": {"overrides": [f"name={name}"]}}, "tags": {}, "in_store": False}
        record |= dict.fromkeys(("run_id", "experiment", "run_name", "status", "started"), "x")
        Path("sweep", name, "run.json").write_text(json.dumps(record))
        lines = [{"run_id": "x", "step": s, "time": 0, "metrics": {"best/score": v}} for s, v in of_steps.items()]
        Path("sweep", name, "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    has_ended = Looks(2)
    optuna_sweeper._watch(Path("sweep"), trials, has_ended)
    assert {key[0].partition("=")[2]: trial.values for key, trial in trials.items()} == scores
    assert [path.parent.name for path in Path("sweep").glob("*/stop")] == ["poor"]
    assert [trial.attrs for trial in trials.values()] == [{"pruned": True}, {}]
    late = dict(zip(trials, (Reported(-5.0), Reported(-5.0)), strict=True))
    optuna_sweeper._watch(Path("sweep"), late, Looks(0))
    assert [(trial.asked, trial.attrs) for trial in late.values()] == [(1, {}), (1, {})], "they ended before"


@pytest.mark.parametrize("pruner", ["median", "hyperband"])
def test_a_search_with_a_pruner_ends_a_poor_trial(monkeypatch: pytest.MonkeyPatch, pruner: str) -> None:
    monkeypatch.setattr(optuna_sweeper, "WATCH_S", 0.01)
    # From the study's name and a trial's number Hyperband draws with which other trials this one is compared.
    monkeypatch.setattr(optuna_sweeper, "identity", lambda *given: "b")
    given = ["agent.gamma=interval(0,1)", "hydra.sweeper.n_trials=7", f"hydra.sweeper.pruner={pruner}"]
    assert run(sweep_tasks.evaluate_as, *OPTUNA, *given, "hydra.sweeper.direction=maximize") == 0
    with closing(sqlite3.connect("sweep/optuna.db")) as connection:
        states = [state for (state,) in connection.execute("SELECT state FROM trials ORDER BY trial_id")]
        steps = {step for (step,) in connection.execute("SELECT step FROM trial_intermediate_values")}
    assert states == ["COMPLETE"] * 6 + ["PRUNED"]
    assert steps == {100, 200}, "trainings are compared at the same steps"
    assert OmegaConf.load("sweep/optimization_results.yaml").best_value == 1.0


class Looks:
    """An event that has happened after so many looks."""

    def __init__(self, count: int) -> None:
        self._left = count

    def wait(self, _: float) -> bool:
        self._left -= 1
        return self._left < 0


@pytest.mark.usefixtures("no_figures")
def test_trials_are_as_many_at_a_time_as_workers_and_a_sweep_ends_with_its_best(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    launched: list[int] = []
    launch = launcher.ExecutorLauncher.launch

    def counting(self: Any, job_overrides: Any, initial_job_idx: int) -> Any:
        launched.append(len(job_overrides))
        return launch(self, job_overrides, initial_job_idx)

    monkeypatch.setattr(launcher.ExecutorLauncher, "launch", counting)
    given = ["hydra/launcher=local", "hydra.launcher.workers=2", "hydra/sweeper=optuna", "hydra.sweeper.n_trials=3"]
    given += ["hydra.sweep.dir=sweep", "hydra.sweeper.pruner=median", "agent.gamma=interval(0.9,0.99)"]
    given += ["engine.name=native"]  # other processes do not know the fake one
    assert main(["train", "-m", *SMALL[1:], *given]) == 0
    assert launched == [2, 1]
    found = re.search(
        r"^best: (\S+) of 3 trainings, with gamma=(\S+)\n  bbrgym evaluate agent_path=(\S+)$",
        capsys.readouterr().out,
        re.MULTILINE,
    )
    assert found is not None
    best = OmegaConf.load("sweep/optimization_results.yaml")
    assert float(found[1]) == pytest.approx(best.best_value, abs=1e-3)
    assert float(found[2]) == pytest.approx(best.best_params["agent.gamma"])
    assert read_run(Path(found[3])) is not None


OFTEN = ["train.eval_every=32", "train.checkpoint_every=32"]


@pytest.mark.usefixtures("no_figures")
def test_a_training_that_makes_it_worse_returns_its_best_reward_since_learning_began(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rewards = iter([-1.0, -3.0, -1.0, -2.0])  # before the first step and at the end of each trial
    monkeypatch.setattr(
        callbacks,
        "evaluate_agent",
        lambda *_: {
            "eval/reward": next(rewards),
            "eval/utilisation": 1.0,
            "eval/queue_ms": 0.0,
        },
    )
    given = ("hydra/sweeper=optuna", "hydra.sweeper.n_trials=2", "hydra.sweep.dir=sweep", "agent.gamma=interval(0.9,1)")
    assert main(["train", "-m", *SMALL, *OFTEN, *given]) == 0
    assert OmegaConf.load("sweep/optimization_results.yaml").best_value == -2.0
    path = Path("sweep/0")
    assert sweep.train_in_sweep(read_record(path)["params"], path).score == -3.0  # as a repeated sweep reads it


@pytest.mark.usefixtures("no_figures")
def test_a_training_that_was_killed_in_a_sweep_resumes() -> None:
    command = ["train", "-m", *SMALL, *OFTEN, "train.total_steps=128", "seed=1", "hydra.sweep.dir=sweep"]
    path = Path("sweep/0")
    assert main(command) == 0
    config = read_record(path)["params"]
    run_id = read_record(path)["run_id"]
    expected = sweep.train_in_sweep(config, path)

    def kill(steps: int) -> None:
        """Leave the folder as a kill after the checkpoint of `steps` would."""
        (path / "run.json").write_text(json.dumps(read_record(path) | {"status": "RUNNING"}))
        for checkpoint in (path / "checkpoints").iterdir():
            if int(checkpoint.name) > steps:
                shutil.rmtree(checkpoint)

    kill(64)
    assert main(command) == 0
    for steps in (128, 0):  # only the end was missing; killed before the first checkpoint
        assert sweep.train_in_sweep(config, path) == expected
        assert (read_record(path)["status"], read_record(path)["run_id"]) == ("FINISHED", run_id)
        kill(steps)
        assert sweep.train_in_sweep(config, path) == expected
        assert (read_record(path)["status"], read_record(path)["run_id"]) == ("FINISHED", run_id)
    with pytest.raises(ValueError, match="holds a training"):  # with another configuration it is another one
        sweep.train_in_sweep(config | {"seed": 2}, path)


def read_record(path: Path) -> dict[str, Any]:
    record = read_run(path)
    assert record is not None
    return record
