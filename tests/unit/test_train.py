"""Training, its agents, and their evaluation, with tiny networks."""

import contextlib
import io
import itertools
import json
import math
import pickle
import shutil
import signal
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fake_engine
import gymnasium
import numpy as np
import pandas as pd
import pytest
import torch
from bomb import Bomb
from filelock import FileLock, Timeout
from other_json import OTHER_JSON
from policies import make_agent
from rich.console import Console
from training import (
    AGENTS,
    PPO,
    SAC,
    SCENARIO,
    Killed,
    changed,
    kill,
    learn,
    learn_until_killed,
    logged,
    quiet,
    run_of,
    same,
    weights,
)

from bbrgym import EngineError, Scenario
from bbrgym.agents import callbacks, checkpoint, config, ppo, training_loop
from bbrgym.agents.callbacks import Callbacks
from bbrgym.agents.checkpoint_names import saved_steps
from bbrgym.agents.policy import load_agent
from bbrgym.agents.sac import export_agent, make_model
from bbrgym.agents.tracking import Tracker, read_metrics, read_run
from bbrgym.agents.train import resume, train
from bbrgym.agents.training_curve import draw_training_curve
from bbrgym.agents.yardsticks import Yardstick
from bbrgym.benchmark.evaluate import evaluate, mean_of_episodes, read_evaluation
from bbrgym.envs import environment_ids
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.envs.named import named_scenario
from bbrgym.envs.sb3_env import SharedPolicyVecEnv
from bbrgym.files import write_json

pytestmark = pytest.mark.usefixtures("no_figures")

CMA = {"algorithm": "cma", "population": 4, "scenarios": 1, "fitness": "reward"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete training with PPO."""
    directory = tmp_path_factory.mktemp("finished")
    torch.set_num_threads(2)
    result = learn(directory)
    assert (result.is_complete, result.steps) == (True, 192)
    assert result.score == load_agent(directory).training["reward"]
    assert torch.get_num_threads() == 1  # as configured
    return directory


def test_a_run_writes_agents_log_and_curve(finished: Path) -> None:
    assert sorted(path.name for path in (finished / "checkpoints").iterdir()) == ["000000000128", "000000000192"]
    assert (finished / "training_curve.png").stat().st_size > 5000
    assert run_of(finished)["status"] == "FINISHED"
    log = read_metrics(finished)
    rewards = {line["step"]: line["metrics"]["eval/reward"] for line in log if "eval/reward" in line["metrics"]}
    assert list(rewards) == [0, 128, 192]
    assert [line["step"] for line in log if "rollout/reward" in line["metrics"]] == [64, 128, 192]
    assert load_agent(finished).training["reward"] == max(rewards[128], rewards[192])
    training = load_agent(finished / "final").training
    assert training["steps"] == 192
    assert training["made_with"].keys() >= {"bbrgym", "python", "torch", "stable-baselines3"}
    assert "host" not in training["made_with"]


@pytest.mark.parametrize("algorithm", ["ppo", "sac"])
def test_the_best_agent_has_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str) -> None:
    """Also where training makes it worse, and where a learner first fills its replay buffer."""
    worse = itertools.count()
    monkeypatch.setattr(
        callbacks,
        "evaluate_agent",
        lambda *_: {
            "eval/reward": -float(next(worse)),
            "eval/utilisation": 1.0,
            "eval/queue_ms": 0.0,
        },
    )
    agent = PPO if algorithm == "ppo" else SAC | {"learning_starts": 100}
    result = learn(tmp_path, {"eval_every": 16}, agent=agent)
    learned = [line["step"] for line in read_metrics(tmp_path) if "best/score" in line["metrics"]]
    first = load_agent(tmp_path).training
    assert learned[0] == first["steps"] >= (16 if algorithm == "ppo" else 100)
    assert result.score == first["reward"] < 0


@pytest.mark.parametrize("algorithm", AGENTS)
def test_a_killed_and_resumed_run_logs_the_same_and_ends_with_the_same_weights(
    finished: Path, tmp_path: Path, algorithm: str
) -> None:
    stopped, through = tmp_path / "stopped", tmp_path / "through"
    agent = AGENTS[algorithm]
    if algorithm == "ppo":
        through = finished
    else:
        learn(through, agent=agent)
    learn_until_killed(stopped, agent=agent)
    assert resume(stopped, console=quiet()).steps == 192
    assert logged(through) == logged(stopped)
    assert same(weights(through), weights(stopped))
    assert load_agent(through).content_hash == load_agent(stopped).content_hash


def lines(directory: Path) -> list[tuple[int, dict[str, float]]]:
    """Return the lines of a log in their order, without times."""
    every = [
        (line["step"], {name: value for name, value in line["metrics"].items() if not name.startswith("time/")})
        for line in read_metrics(directory)
    ]
    return [(step, metrics) for step, metrics in every if metrics]


@pytest.mark.parametrize("checkpoint", ["none", "one", "one of an older version"])
def test_a_resumed_run_has_no_lines_of_what_was_given_up(tmp_path: Path, checkpoint: str) -> None:
    through, stopped = tmp_path / "through", tmp_path / "stopped"
    every = {"checkpoint_every": 10**9 if checkpoint == "none" else 64}
    learn_until_killed(stopped, every)
    assert saved_steps(stopped) == ([] if checkpoint == "none" else [64])
    given_up = read_metrics(stopped)
    assert given_up[-1]["step"] == 128
    if checkpoint == "one of an older version":
        (described,) = stopped.glob("checkpoints/*/checkpoint.json")
        description = json.loads(described.read_text())
        del description["state"]["logged_bytes"]
        described.write_text(json.dumps(description))
    shorter = {"total_steps": 100}  # fewer than were given up
    learn(through, every | shorter)
    resume(stopped, {"train.total_steps": 100}, quiet())
    assert lines(stopped) == lines(through)
    # But the time that they took was spent.
    spent_s = [line["metrics"].get("time/processor") for line in given_up]
    assert read_metrics(stopped)[-2]["metrics"]["time/processor"] > max(filter(None, spent_s))


def test_a_run_has_no_lines_of_one_with_another_configuration_that_it_replaces(tmp_path: Path) -> None:
    learn_until_killed(tmp_path / "stopped", {"checkpoint_every": 10**9}, seed=7)
    learn(tmp_path / "stopped", {"total_steps": 64})
    learn(tmp_path / "through", {"total_steps": 64})
    assert lines(tmp_path / "stopped") == lines(tmp_path / "through")
    assert {line["run_id"] for line in read_metrics(tmp_path / "stopped")} == {run_of(tmp_path / "stopped")["run_id"]}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, ""),
        ({"eval_every": 63}, "evaluations come after whole updates of 64 decisions"),
        ({"checkpoint_every": 1}, "checkpoints come after whole updates of 64 decisions"),
        ({"eval_every": 1, "checkpoint_every": 1}, "evaluations and checkpoints come after whole updates of 64 deci"),
    ],
)
def test_a_training_says_once_what_comes_later_than_it_was_asked(
    tmp_path: Path, changes: dict[str, int], says: str
) -> None:
    console = quiet()
    train(changed({"total_steps": 128} | changes), tmp_path, console)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert text.startswith(says)
    assert text.count("whole updates") == bool(says)


def test_a_training_draws_the_score_by_which_the_best_agent_is_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []
    monkeypatch.setattr(training_loop, "_draw_curve", lambda *given: drawn.append(given[2]))
    learn(tmp_path / "reward", {"total_steps": 64})
    scores = {"fair_power": 0.5, "fair_power_tail": 0.2}
    monkeypatch.setattr(ppo.PPO, "objective", lambda _: scores)
    learn(tmp_path / "power", {"total_steps": 64})
    assert drawn == ["eval/reward", "eval/fair_power"]


@pytest.mark.parametrize(
    ("score", "in_training", "labels"),
    [
        ("eval/reward", "rollout/reward", ["mean reward per step"]),
        ("eval/fair_power", "search/fitness_mean", ["fair power", "mean reward per step", "fitness of candidates"]),
        ("eval/reward", "search/fitness_mean", ["mean reward per step", "fitness of candidates"]),
        ("eval/fair_power", "distil/regret", ["fair power", "mean reward per step", "regret in training"]),
    ],
)
def test_values_that_cannot_be_compared_have_axes_of_their_own(
    tmp_path: Path, score: str, in_training: str, labels: list[str]
) -> None:
    values = {score: 0.5, "eval/reward": -2.0, in_training: 0.25}
    with Tracker.start(tmp_path, "train", "x", {}) as tracker:
        for step in (0, 10):
            tracker.log_metrics(values, step)
    every = draw_training_curve(tmp_path, score, [Yardstick("bbr", "bbr", -1.0)]).axes
    assert [axes.get_ylabel() for axes in every] == labels
    of_name = {"fair power": 0.5, "fitness of candidates": 0.25, "regret in training": 0.25}
    for axes in every:
        drawn = set(np.concatenate([line.get_ydata() for line in axes.lines]).tolist())
        of_reward = {values["eval/reward"], -1.0} | ({0.25} if in_training == "rollout/reward" else set())
        name = axes.get_ylabel()
        assert drawn == ({of_name[name]} if name in of_name else of_reward)


@pytest.mark.parametrize(
    ("agent", "total_steps", "made"),
    [
        (PPO, 20, 20),
        (PPO, 100, 100),
        (PPO, 101, 104),  # four flows decide at once
        (SAC, 101, 104),
        (SAC | {"train_freq": 10}, 100, 100),
        (SAC | {"train_freq": 10}, 30, 32),
    ],
)
def test_the_steps_that_are_asked_are_made(tmp_path: Path, agent: dict[str, Any], total_steps: int, made: int) -> None:
    """Of what a learner makes as a whole it makes no more than is needed, and says that there are more steps."""
    console = quiet()
    result = train(changed({"total_steps": total_steps}, agent=agent), tmp_path, console)
    assert (result.steps, result.is_complete) == (made, True)
    assert load_agent(tmp_path / "final").training["steps"] == saved_steps(tmp_path)[0] == made
    assert isinstance(console.file, io.StringIO)
    assert ("a step of all flows is made as a whole" in console.file.getvalue()) == (made > total_steps)


@pytest.mark.parametrize("agent", [PPO, SAC | {"train_freq": 10}])
def test_a_resumed_run_has_the_same_last_rollout(tmp_path: Path, agent: dict[str, Any]) -> None:
    through, stopped = tmp_path / "through", tmp_path / "stopped"
    learn(through, {"total_steps": 180}, agent=agent)
    learn_until_killed(stopped, {"total_steps": 180}, agent=agent)
    assert resume(stopped, console=quiet()).steps == 180
    assert logged(through) == logged(stopped)
    assert same(weights(through), weights(stopped))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_was_interrupted_in_an_update_ends_with_the_same_weights(
    number: signal.Signals, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, updates = torch.optim.Adam.step, itertools.count()

    def interrupted(self: torch.optim.Adam, *args: Any) -> Any:
        if next(updates) == 10:  # of 8 for each rollout, 4 of them the critic's
            signal.raise_signal(number)
        return step(self, *args)

    with monkeypatch.context() as patched:
        patched.setattr(torch.optim.Adam, "step", interrupted)
        with pytest.raises((KeyboardInterrupt, SystemExit)):
            learn(tmp_path)
    assert saved_steps(tmp_path) == [64]
    assert resume(tmp_path, console=quiet()).is_complete
    assert logged(tmp_path) == logged(finished)
    assert same(weights(tmp_path), weights(finished))


@pytest.mark.parametrize(
    ("moment", "again"),
    [
        ("model", "resume"),
        ("record", "train"),
        ("evaluation", "resume"),
        ("checkpoint", "train"),
        ("checkpoint", "resume"),
    ],
)
def test_a_run_that_was_killed_before_its_first_checkpoint_starts_again(
    finished: Path, tmp_path: Path, moment: str, again: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place: dict[str, tuple[Any, str]] = {
        "model": (Tracker, "start"),
        "record": (Tracker, "log_scenarios"),
        "evaluation": (Callbacks, "on_training_start"),
        "checkpoint": (checkpoint, "_digest"),
    }
    with monkeypatch.context() as patched:
        patched.setattr(*place[moment], kill)
        with pytest.raises(Killed):
            learn(tmp_path)
    before = read_run(tmp_path)
    assert (before is None) == (moment == "model")
    assert bool(list((tmp_path / "checkpoints").glob(".*.partial"))) == (moment == "checkpoint")
    if again == "train":
        learn(tmp_path)
    else:
        resume(tmp_path, None, quiet(), changed())
    assert same(weights(tmp_path), weights(finished))
    assert logged(tmp_path) == logged(finished)
    assert before is None or run_of(tmp_path)["run_id"] == before["run_id"]
    assert not list((tmp_path / "checkpoints").glob(".*"))


@pytest.mark.parametrize(("algorithm", "own"), [("ppo", {"ppo.pt"}), ("sac", {"model.zip", "replay.npz"})])
def test_nothing_in_a_folder_of_others_is_executed(tmp_path: Path, algorithm: str, own: set[str]) -> None:
    """Not even of a checkpoint whose hashes are right: whoever made it could compute them too."""
    learn(tmp_path / "good", {"total_steps": 64}, agent=AGENTS[algorithm])
    executed = tmp_path / "executed"
    bomb = Bomb(executed)
    pickle.loads(pickle.dumps(bomb))
    executed.rmdir()  # it works
    files = [path.relative_to(tmp_path / "good") for path in (tmp_path / "good").rglob("*") if path.is_file()]
    assert own < {path.name for path in files}
    for file in files:
        for content in bombs(tmp_path / "good" / file, bomb):
            folder = shutil.copytree(tmp_path / "good", tmp_path / "evil")
            (folder / file).write_bytes(content)
            for description in folder.glob("checkpoints/*/checkpoint.json"):
                if file.name != "checkpoint.json":
                    plain = json.loads(description.read_text())
                    digests = {name: checkpoint._digest(description.parent / name) for name in plain["sha256"]}
                    description.write_text(json.dumps(plain | {"sha256": digests}))
            for load in (
                lambda: read_metrics(folder),  # noqa: B023  called right here
                lambda: load_agent(folder),  # noqa: B023
                lambda: load_agent(folder / "final"),  # noqa: B023
                lambda: resume(folder, {"train.total_steps": 128}, quiet()),  # noqa: B023
            ):
                with contextlib.suppress(ValueError):
                    load()
            assert not executed.exists(), file
            shutil.rmtree(folder)


def bombs(path: Path, bomb: Bomb) -> Iterator[bytes]:
    """Yield contents of the file with a bomb in it: as a pickle, in each array, and in each part of an archive."""
    yield pickle.dumps(bomb)
    if path.suffix == ".npz":
        file = io.BytesIO()
        with np.load(path) as arrays:
            np.savez(file, **{name: np.array([bomb], dtype=object) for name in arrays.files})
        yield file.getvalue()
    tensors = io.BytesIO()
    torch.save({"": bomb}, tensors)
    if path.suffix == ".pt":
        yield tensors.getvalue()
    if path.name == "model.zip":
        with zipfile.ZipFile(path) as archive:
            parts = {name: archive.read(name) for name in archive.namelist()}
        for evil in parts:
            for content in (tensors.getvalue(), pickle.dumps(bomb, protocol=2)):
                file = io.BytesIO()
                with zipfile.ZipFile(file, "w") as archive:
                    for name, part in parts.items():
                        archive.writestr(name, content if name == evil else part)
                yield file.getvalue()


def test_a_run_can_be_made_longer(tmp_path: Path) -> None:
    learn(tmp_path, {"total_steps": 64})
    with pytest.raises(ValueError, match=r"train\.total_steps must be > 64, the steps that .* already has, got 64"):
        resume(tmp_path, console=quiet())
    assert resume(tmp_path, {"train.total_steps": 128}, quiet()).steps == 128
    assert run_of(tmp_path)["params"]["train"]["total_steps"] == 128
    with pytest.raises(ValueError, match=r"agent\.gamma cannot change in a resumed training"):
        resume(tmp_path, {"agent.gamma": 0.5})


def test_a_run_that_was_killed_after_its_last_step_still_ends(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(training_loop, "_draw_curve", kill)
        with pytest.raises(Killed):
            learn(tmp_path)
    record = run_of(tmp_path)
    write_json(tmp_path / "run.json", record | {"status": "RUNNING", "ended": None, "error": None})
    shutil.rmtree(tmp_path / "final")
    assert resume(tmp_path, console=quiet()).is_complete
    assert run_of(tmp_path)["status"] == "FINISHED"
    assert same(weights(finished), weights(tmp_path))


def test_a_broken_checkpoint_falls_back_to_the_one_before(
    finished: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = shutil.copytree(finished, tmp_path / "broken")
    newest = broken / "checkpoints" / "000000000192" / "ppo.pt"
    newest.write_bytes(newest.read_bytes()[:-100])
    assert resume(broken, console=quiet()).steps == 192
    assert "the SHA-256 of ppo.pt differs from the recorded one" in caplog.text
    assert same(weights(finished), weights(broken))
    for path in (broken / "checkpoints").glob("*/checkpoint.json"):
        path.write_text("{")
    with pytest.raises(ValueError, match=r"no checkpoint in .* can be read"):
        resume(broken, console=quiet())


def test_stored_json_of_another_shape_is_refused_by_name(
    finished: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    checkpoints = sorted((run / "checkpoints").glob("*/checkpoint.json"))
    agent, record = run / "best" / "agent.json", run / "run.json"
    good = {path: path.read_text() for path in (*checkpoints, agent, record)}
    state = json.loads(good[checkpoints[-1]])
    odd_state = json.dumps(state | {"state": state["state"] | {"best_score": "high"}})
    odd_size = json.dumps(state | {"state": state["state"] | {"logged_bytes": -1.5}})
    odd_training = json.dumps(json.loads(good[agent]) | {"training": []})
    for text in OTHER_JSON:
        record.write_text(text)
        with pytest.raises(ValueError, match="holds no training"):
            resume(run, console=quiet())
    params = json.loads(good[record])
    for group in ("agent", "train"):
        record.write_text(json.dumps(params | {"params": params["params"] | {group: [1]}}))
        with pytest.raises(ValueError, match=rf"{group} must be a mapping, got \[1\]"):
            resume(run, console=quiet())
    record.write_text(good[record])
    for text in (*OTHER_JSON, odd_training):
        agent.write_text(text)
        with pytest.raises(ValueError, match="holds no agent that can be loaded"):
            load_agent(run)
    for text in (*OTHER_JSON, odd_state, odd_size):
        caplog.clear()
        for path in checkpoints:
            path.write_text(text)
        with pytest.raises(ValueError, match=r"no checkpoint in .* can be read"):
            resume(run, console=quiet())
        assert caplog.text.count("cannot read the checkpoint") == 2


def test_a_time_limit_ends_it_early(tmp_path: Path) -> None:
    result = learn(tmp_path, {"max_minutes": 1e-6})
    assert not result.is_complete
    assert result.steps < 192
    assert load_agent(tmp_path / "final").training["steps"] == result.steps


def test_a_file_ends_it_early_and_only_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate_agent = callbacks.evaluate_agent

    def stopping(*arguments: Any) -> dict[str, float]:
        (tmp_path / callbacks.STOP).touch()
        return evaluate_agent(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(callbacks, "evaluate_agent", stopping)
        assert not learn(tmp_path).is_complete
    assert resume(tmp_path, console=quiet()).is_complete


def test_training_survives_engines_that_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a", "b"):
        monkeypatch.setattr(fake_engine, "FakeEngine", _TiredEngine)
        assert learn(tmp_path / name, {"eval_episodes": 1}).is_complete
        failures = [line["metrics"].get("time/engine_failures") for line in read_metrics(tmp_path / name)]
        assert [count for count in failures if count is not None] == [1.0, 2.0]  # once in each of two engines
    assert "(failure 2, at most 10 are allowed): the fake engine fails in step 5" in caplog.text
    assert same(weights(tmp_path / "a"), weights(tmp_path / "b"))


def test_too_many_failures_leave_a_checkpoint_and_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake_engine, "FakeEngine", _TiredEngine)
    with pytest.raises(EngineError, match=r"(?s)after 64 steps and 1 engine failures.*in step 5.*train\.resume="):
        learn(tmp_path, {"eval_episodes": 1, "checkpoint_every": 10**9, "engine_failures": 0})
    record = run_of(tmp_path)
    assert record["status"] == "FAILED"
    assert "fails in step 5" in record["error"]
    monkeypatch.undo()
    assert resume(tmp_path, console=quiet()).is_complete


def test_a_failed_evaluation_is_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    # No episode ends, in evaluation or in training.
    changes = {"engine_failures": 1, "eval_every": 10**9}
    with pytest.raises(EngineError, match=r"(?s)stopped after \d+ steps and 2 engine failures"):
        learn(tmp_path, changes, engine={"name": "fake", "fail_at_step": 10})
    assert "the evaluation after 0 steps failed and is skipped" in caplog.text
    assert not (tmp_path / "best").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_a_checkpoint_is_written_ends_the_training_after_it(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = ppo.PPO.save
    whole = []

    def save(self: ppo.PPO, folder: Path) -> dict[str, Any]:
        if not whole:
            signal.raise_signal(number)
        whole.append(folder)
        return write(self, folder)

    monkeypatch.setattr(ppo.PPO, "save", save)
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        train(changed({"total_steps": 10**8}), tmp_path, quiet())
    assert whole, "the checkpoint was cut off"
    assert run_of(tmp_path)["status"] == "KILLED"
    steps = max(int(path.name) for path in (tmp_path / "checkpoints").iterdir())
    assert resume(tmp_path, {"train.total_steps": steps + 1}, quiet()).steps > steps


def test_a_learning_canary(tmp_path: Path) -> None:
    """PPO must shed three quarters of the cost within 4000 decisions."""
    scenario = SCENARIO | {"duration_s": 5, "flows": [{"algorithm": "agent", "rtt_ms": 50}]}
    agent = PPO | {"n_steps": 128, "batch_size": 64, "n_epochs": 10, "std": 0.6}
    result = train(
        changed(
            {"total_steps": 4000, "eval_every": 1000, "eval_episodes": 2, "checkpoint_every": 10**6},
            scenario=scenario,
            action={"cwnd_gain": [1.0, 16.0], "pacing_gain": [0.8, 3.2], "cwnd_scale": "ratio"},
            agent=agent,
            reward={"terms": {"log_throughput": 1.0, "delay": 1.0, "loss": 1.0}},
            seed=1,
        ),
        tmp_path,
        quiet(),
    )
    untrained = read_metrics(tmp_path)[0]["metrics"]["eval/reward"]
    assert result.score > 0.25 * untrained


def test_two_trainings_cannot_use_one_folder(tmp_path: Path) -> None:
    with FileLock(tmp_path / ".lock"):
        with pytest.raises(ValueError, match=r"another process is training in .*: wait for it to end"):
            learn(tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == [".lock"]
    assert learn(tmp_path, {"total_steps": 64}).is_complete


def test_a_training_reads_its_checkpoint_when_no_other_process_can_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn(tmp_path, {"total_steps": 64})
    restore, locked = training_loop.restore_latest, []

    def restored(*arguments: Any) -> Any:
        with pytest.raises(Timeout), FileLock(tmp_path / ".lock", timeout=0, is_singleton=False):
            pass
        locked.append(True)
        return restore(*arguments)

    monkeypatch.setattr(training_loop, "restore_latest", restored)
    assert resume(tmp_path, {"train.total_steps": 128}, quiet()).is_complete
    assert locked


def test_a_score_that_is_not_a_number_is_never_the_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate, rewards = callbacks.evaluate_agent, []

    def evaluated(*arguments: Any) -> dict[str, float]:
        found = evaluate(*arguments)
        rewards.append(found["eval/reward"])
        # What has not learned is not judged: the second evaluation is the first that could be the best.
        return found | ({"eval/reward": math.nan} if len(rewards) == 2 else {})

    monkeypatch.setattr(callbacks, "evaluate_agent", evaluated)
    result = learn(tmp_path, {"total_steps": 192, "eval_every": 64})
    assert len(rewards) > 3
    assert result.score == max(rewards[2:])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"agent": {"algorithm": "dqn"}}, "'dqn'; known: ppo, sac, cma"),
        ({"agent": PPO | {"n_steps": 0.5}}, r"agent\.n_steps must be .*, got 0\.5"),
        ({"agent": PPO | {"units": -1}}, r"agent\.units must be .*, got -1"),
        ({"agent": PPO | {"has_skip": 1}}, r"agent\.has_skip must be true or false, got 1"),
        ({"agent": PPO | {"std": 1e39}}, r"agent\.std must be in \[1e-06, 1e\+06\], got 1e\+39"),
        ({"agent": PPO | {"clip_range": 1e300}}, r"agent\.clip_range must be in .*, got 1e\+300"),
        ({"agent": CMA | {"sigma": 1e300}}, r"agent\.sigma must be in \[1e-06, 1e\+06\], got 1e\+300"),
        ({"agent": CMA | {"init_std": 1e39}}, r"agent\.init_std must be in .*, got 1e\+39"),
        ({"tracking": {"backend": "mlflow", "root": "~nobodyatall"}}, "tracking.root: no home folder is known"),
        ({"agent": SAC | {"policy_kwargs": {"activation_fn": "gelu"}}}, "unknown activation_fn 'gelu'"),
        ({"agent": SAC | {"policy_kwargs": {"depth": 3}}}, "refuses its arguments: .*depth"),
        ({"seed": -1}, r"seed must be .*\[0, 2\*\*31\), got -1"),
        ({"scenario": {"flows": [{"algorithm": "bbr"}]}}, "algorithm 'agent', got: bbr"),
    ],
)
def test_a_bad_configuration_is_refused_before_anything_is_made(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        learn(tmp_path / "run", **changes)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("agent", "settings"),
    [
        (PPO | {"learning_rate": 1e37}, r"agent\.learning_rate \(it is 1e\+37\)"),
        (CMA | {"sigma": 1e39}, r"agent\.sigma \(it is 1e\+39\) or agent\.init_std \(it is 0\.5\)"),
    ],
)
def test_an_overflow_in_a_training_names_the_settings(
    tmp_path: Path, agent: dict[str, Any], settings: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "MOST", 1e300)
    with pytest.raises(ValueError, match=f"the weights have overflowed: give a smaller {settings}"):
        learn(tmp_path, engine={"name": "native"}, agent=agent)
    assert run_of(tmp_path)["status"] == "FAILED"


def test_a_folder_that_cannot_be_written_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_loop, "make_learner", kill)
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(ValueError, match=r"cannot write into .*'.*runs' is not a folder; choose .* output_dir="):
        learn(tmp_path / "runs" / "train" / "first")
    with pytest.raises(ValueError, match=r"cannot write into .*; choose another folder with output_dir="):
        learn(Path("/proc/nowhere/first"))  # not even by root
    folder = tmp_path / "run"
    folder.symlink_to("/proc/nowhere")
    with pytest.raises(ValueError, match=r"cannot write into .*; make it writable, or resume a copy"):
        resume(folder, config=changed())


def test_the_processor_time_of_a_training_goes_on_when_it_is_resumed(tmp_path: Path) -> None:
    def spent_s() -> list[float]:
        metrics = [line["metrics"] for line in read_metrics(tmp_path)]
        return [each["time/processor"] for each in metrics if "eval/reward" in each]

    begin_s = time.process_time()
    learn(tmp_path)
    first = spent_s()
    assert first == sorted(first)
    assert 0 < first[-1] <= time.process_time() - begin_s + 1.0  # of processes that have ended
    begin_s = time.process_time()
    resume(tmp_path, {"train.total_steps": 256}, quiet())
    both = spent_s()
    assert len(both) > len(first)
    assert first[-1] < both[-1] <= first[-1] + time.process_time() - begin_s + 1.0


def test_a_finished_run_is_not_overwritten(finished: Path, tmp_path: Path) -> None:
    stripped = shutil.copytree(finished, tmp_path / "stripped", ignore=shutil.ignore_patterns("checkpoints"))
    for folder in (finished, stripped):
        with pytest.raises(ValueError, match="already holds a training: resume it"):
            learn(folder)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_an_exported_agent_acts_like_its_model(activation: str, tmp_path: Path) -> None:
    config = changed(agent=SAC)
    config["agent"]["policy_kwargs"] |= {"activation_fn": activation, "net_arch": [16, 12]}
    spec = EpisodeSpec.from_config(config)
    model = make_model(config["agent"], SharedPolicyVecEnv(spec, 1), seed=5)
    with torch.no_grad():  # the outputs of fresh networks are almost 0: enlarge them
        for parameter in model.policy.parameters():
            parameter.mul_(3.0).add_(0.1 * torch.randn_like(parameter))
    export_agent(model, spec).save(tmp_path / "final")
    agent = load_agent(tmp_path)
    observations = np.random.default_rng(1).uniform(-2, 2, (80, agent.network.inputs)).astype(np.float32)
    actions = agent.predict(observations)
    assert actions.dtype == np.float32
    assert np.std(actions) > 0.05
    np.testing.assert_allclose(actions, model.predict(observations, deterministic=True)[0], atol=1e-5)


def test_the_content_hash_covers_what_decides_the_gains() -> None:
    hashes = [
        make_agent().content_hash,
        make_agent(seed=2).content_hash,
        make_agent(lstm=(4,)).content_hash,
        make_agent(action={"cwnd_gain": [1.5, 3.0]}).content_hash,
    ]
    assert len(set(hashes)) == 4
    assert make_agent(reward={"terms": {"throughput": 1.0}}).content_hash == hashes[0]


def test_bad_agent_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no trained agent in .*there is no such folder"):
        load_agent(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match=r"it has no agent.json"):
        load_agent(tmp_path)
    folder = tmp_path / "agent"

    def refused(match: str) -> None:
        with pytest.raises(ValueError, match=match):
            load_agent(folder)
        make_agent().save(folder)  # replaces it

    make_agent().save(folder)
    plain = json.loads((folder / "agent.json").read_text())
    make_agent(seed=2).save(tmp_path / "other")
    for content, message in (
        (json.dumps(plain | {"format": 99}), "its format is 99"),
        (json.dumps({"format": 1}), "it has no 'activation'"),
        (json.dumps(plain | {"spec": plain["spec"] | {"reward": {"terms": 3}}}), r"reward\.terms .*got 3"),
    ):
        (folder / "agent.json").write_text(content)
        refused(message)
    (folder / "policy.npz").write_bytes((tmp_path / "other" / "policy.npz").read_bytes())
    refused("do not belong together")
    (folder / "policy.npz").unlink()
    refused("no agent that can be loaded")
    with zipfile.ZipFile(folder / "policy.npz", "a") as archive:
        archive.writestr("layer.9.weight", b"no array")
    refused(r"layer\.9\.weight must be float32, got bytes")
    assert load_agent(folder / "agent.json").content_hash == plain["content_hash"]


def test_wrong_observations_are_refused() -> None:
    agent = make_agent(lstm=(4,))
    with pytest.raises(ValueError, match=r"observations must have the shape \(N, \d+\), got \(3,\)"):
        agent.predict(np.zeros(3))
    agent.predict(np.zeros((2, agent.network.inputs)))
    with pytest.raises(ValueError, match="3 observations after 2: reset between episodes"):
        agent.predict(np.zeros((3, agent.network.inputs)))


def test_evaluation_returns_prints_and_stores_its_results(tmp_path: Path) -> None:
    make_agent().save(tmp_path / "agent")
    config = {
        "agent_path": str(tmp_path / "agent"),
        "scenario": SCENARIO | {"rate_mbps": {"uniform": [5, 20]}},
        "engine": {"name": "fake"},
        "seeds": [1, 2],
        "tracking": {"backend": "none"},
    }
    results = evaluate(config, tmp_path / "out", quiet())
    assert results["seed"].tolist() == [1, 1, 2, 2]
    assert results["throughput_mbps"].gt(0).all()
    assert results["reward"].lt(0).all()
    rates = results.groupby("seed")["throughput_mbps"].sum()
    assert rates[1] != rates[2]  # the scenario was drawn
    pd.testing.assert_frame_equal(results, evaluate(config, tmp_path / "again", quiet()))
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "out" / "results.parquet"), results)
    assert json.loads((tmp_path / "out" / "results.json").read_text())[0]["seed"] == 1
    assert sorted(path.name for path in (tmp_path / "out" / "traces").iterdir()) == ["seed_1.parquet", "seed_2.parquet"]
    assert len(read_metrics(tmp_path / "out")) == 2


def test_an_evaluation_is_the_task_of_the_id(tmp_path: Path) -> None:
    make_agent().save(tmp_path / "agent")
    for id, arguments in environment_ids().items():
        if not arguments:
            continue
        config = {"agent_path": str(tmp_path / "agent"), "scenario": named_scenario(arguments["scenario"])}
        spec = read_evaluation(config | {"other_agents": arguments.get("other_agents")})[1]
        with contextlib.closing(gymnasium.make(id)) as env:
            assert spec.distribution == env.unwrapped._episodes.spec.distribution  # type: ignore[attr-defined]


def test_the_reward_of_an_evaluation_is_over_flows_as_in_trainings_and_the_rest_over_episodes() -> None:
    of_flows = ((1, -1.0, 0.2), (2, -2.0, 0.8), (2, -3.0, 0.8), (2, -4.0, 0.8))
    rows = [
        {"seed": seed, "reward": reward, "link_utilisation": used, "link_jain": 1.0, "link_queue_mean_ms": 2.0}
        for seed, reward, used in of_flows
    ]
    means = mean_of_episodes(pd.DataFrame(rows))
    assert (means["reward"], means["utilisation"]) == (-2.5, 0.5)


def test_an_evaluation_says_what_the_agent_drives_and_that_nothing_is_random(tmp_path: Path) -> None:
    make_agent().save(tmp_path / "agent")
    flows = [{"algorithm": "agent", "rtt_ms": 20}, {"algorithm": "agent", "rtt_ms": 30}]

    def shown(first: dict[str, Any], **changes: Any) -> tuple[list[str], str]:
        console = Console(file=io.StringIO(), width=160)
        scenario = {"rate_mbps": 5, "duration_s": 1, "flows": [flows[0] | first, flows[1]]}
        config = {"agent_path": str(tmp_path / "agent"), "scenario": scenario, "seeds": [1, 2]}
        results = evaluate(config | {"tracking": {"backend": "none"}} | changes, tmp_path / "out", console)
        assert isinstance(console.file, io.StringIO)
        return results["algorithm"].tolist(), console.file.getvalue()

    algorithms, text = shown({})
    assert text.startswith("Scenario in native: 5 Mbit/s, droptail buffer of 1 BDP (19 packets), 1 s; flow 0: 20 ms; ")
    assert algorithms == ["agent"] * 4
    assert "The agent drives 2 flows" in text
    assert "2 seeds give identical rows" in text
    algorithms, text = shown({}, other_agents="cubic")
    assert algorithms == ["agent", "cubic"] * 2
    assert "The agent drives" not in text
    algorithms, text = shown({}, scenario={"duration_s": 1, "flows": {"choice": [flows[:1], flows]}}, seeds=[1, 2, 3])
    assert len(algorithms) == 5
    assert "The agent drives 1 or 2 flows" in text
    assert text.startswith("Scenario in native: each seed draws its own (")
    named = {"composition": {"choices": {"scenario": "duel"}}}
    assert shown({}, **named)[1].startswith("Scenario duel in native: 5 Mbit/s, ")
    assert "identical" not in shown({"jitter_ms": 3})[1]
    assert "identical" not in shown({}, seeds=[1])[1]


@pytest.mark.parametrize("width", [80, 100, 200])
def test_the_table_of_an_evaluation_fits_at_any_width(width: int, tmp_path: Path) -> None:
    make_agent().save(tmp_path / "agent")
    flows = [{"algorithm": "agent", "app_rate_mbps": 1.0, "ecn": "l4s"}, {"algorithm": "bbr-acd-ns3-published"}]
    scenario = {"duration_s": 1, "ce_threshold_ms": 1.0, "flows": flows}
    console = Console(file=io.StringIO(), width=width)
    config = {"agent_path": str(tmp_path / "agent"), "scenario": scenario, "tracking": {"backend": "none"}}
    results = evaluate(config, tmp_path / "out", console)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    table = lines[: lines.index("")]
    assert max(map(len, table)) <= width
    (own,) = (line for line in table if " agent " in line)
    assert "…" not in own
    for text in (f"{results['throughput_mbps'][0]:.2f}", f"{results['reward'][0]:.3f}"):
        assert text in own
    assert any("Left out" in line for line in lines) == (width < 200)


def test_an_evaluation_beside_finite_flows_shows_their_completion_and_what_ecn_marked(tmp_path: Path) -> None:
    make_agent().save(tmp_path / "agent")
    workload = {"arrivals_per_s": 30, "sizes": "fixed", "mean_bytes": 5000, "flow": {"algorithm": "cubic"}}
    application = {"algorithm": "agent", "app_rate_mbps": 1.0, "ecn": "l4s"}
    scenario = {"duration_s": 2, "ce_threshold_ms": 1.0, "flows": [application], "workload": workload}
    console = Console(file=io.StringIO(), width=160)
    config = {"agent_path": str(tmp_path / "agent"), "scenario": scenario, "engine": {"name": "native"}}
    results = evaluate(config | {"tracking": {"backend": "none"}}, tmp_path / "out", console)
    assert len(results) > 33
    assert 0.9 < results["completed"][0] < 1
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert f"{results['completed'][0]:.1%} completed" in text
    assert len([line for line in text.splitlines() if " cubic " in line]) == 31  # of the first 32 flows
    logged = read_metrics(tmp_path / "out")[0]["metrics"]
    assert logged["fct_p99_ms"] == results["fct_p99_ms"][0]
    assert logged["flow0/mark_rate"] == results["mark_rate"][0]
    assert ("flow31/throughput_mbps" in logged, "flow32/throughput_mbps" in logged) == (True, False)


def test_a_bad_evaluation_is_refused(tmp_path: Path) -> None:
    make_agent().save(tmp_path / "agent")
    good = {"agent_path": str(tmp_path / "agent"), "scenario": SCENARIO, "engine": {"name": "fake"}}
    for changes, message in (
        ({"seeds": [1, 1]}, r"seeds .*got \[1, 1\]"),
        ({"warmup": 1}, r"warmup must be in \[0, 1\), got 1"),
        ({"seed": 1}, "an evaluation: unknown key 'seed' .*known: name"),
        ({"other_agents": "bbrr"}, r"unknown other_agents 'bbrr' \(did you mean 'bbr'\?\)"),
        (
            {"scenario": {"duration_s": 4, "flows": [{"algorithm": "agent", "stop_s": 1}]}},
            r"no flow sends after the warm-up: warmup=0\.25 .*last stop_s is 1:",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            evaluate(good | changes, tmp_path / "out", quiet())
    assert not (tmp_path / "out").exists()


class _TiredEngine(fake_engine.FakeEngine):
    """Fails in the third episode."""

    def begin_reset(self, scenario: Scenario, seed: int) -> None:
        self.fail_at_step = 5 if len(self.resets) == 2 else None
        super().begin_reset(scenario, seed)
