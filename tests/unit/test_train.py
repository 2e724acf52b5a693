"""Training, its agents, and their evaluation: on the toy engine, with tiny networks."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import fake_engine
import numpy as np
import pandas as pd
import pytest
from policies import make_agent
from rich.console import Console
from stable_baselines3.common.base_class import BaseAlgorithm
from training import AGENTS, PPO, SCENARIO, changed, learn, learn_until_killed, quiet, same, weights
from waiting import wait_for

from bbrgym import EngineError, Scenario, simulate
from bbrgym.agents.config import ALGORITHMS
from bbrgym.agents.policy import load_agent
from bbrgym.agents.tracking import TERMINATED, read_metrics, read_run
from bbrgym.agents.train import resume, train
from bbrgym.benchmark.evaluate import evaluate
from bbrgym.envs.episode import EpisodeSpec
from bbrgym.envs.sb3_env import SharedPolicyVecEnv


def test_a_run_writes_agents_log_and_curve(tmp_path: Path) -> None:
    result = learn(tmp_path)
    assert result.is_complete
    assert result.steps == 384
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["000000000256", "000000000384"]
    assert (tmp_path / "training_curve.png").stat().st_size > 5000
    record = read_run(tmp_path)
    assert record is not None
    assert record["status"] == "FINISHED"
    steps = [line["step"] for line in read_metrics(tmp_path) if "eval/reward" in line["metrics"]]
    assert steps == [0, 256, 384]
    rollouts = [line for line in read_metrics(tmp_path) if "rollout/ep_rew_mean" in line["metrics"]]
    assert [line["step"] for line in rollouts] == [128, 256, 384]
    best = load_agent(tmp_path)
    assert best.training["reward"] == result.reward
    assert result.reward == max(
        line["metrics"]["eval/reward"] for line in read_metrics(tmp_path) if "eval/reward" in line["metrics"]
    )
    assert load_agent(tmp_path / "final").training["steps"] == 384


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_killed_and_resumed_run_ends_with_the_same_weights(tmp_path: Path, algorithm: str) -> None:
    through = tmp_path / "through"
    agent = AGENTS[algorithm]
    learn(through, agent=agent)
    stopped = tmp_path / "stopped"
    learn_until_killed(stopped, agent=agent)
    result = resume(stopped, console=quiet())
    assert result.steps == 384
    assert same(weights(through), weights(stopped))
    assert load_agent(through).content_hash == load_agent(stopped).content_hash


def test_the_seed_decides_everything(tmp_path: Path) -> None:
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        learn(tmp_path / name, seed=seed)
    assert same(weights(tmp_path / "a"), weights(tmp_path / "b"))
    assert not same(weights(tmp_path / "a"), weights(tmp_path / "c"))


def test_a_run_can_be_made_longer(tmp_path: Path) -> None:
    learn(tmp_path, {"total_steps": 128})
    with pytest.raises(ValueError, match=r"train\.total_steps must be > 128, the steps that .* already has, got 128"):
        resume(tmp_path, console=quiet())
    assert resume(tmp_path, {"train.total_steps": 256}, quiet()).steps == 256
    record = read_run(tmp_path)
    assert record is not None
    assert record["params"]["train"]["total_steps"] == 256
    with pytest.raises(ValueError, match=r"agent\.gamma cannot change in a resumed training"):
        resume(tmp_path, {"agent.gamma": 0.5})


def test_a_broken_checkpoint_falls_back_to_the_one_before(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    learn(tmp_path)
    newest = tmp_path / "checkpoints" / "000000000384" / "model.zip"
    newest.write_bytes(newest.read_bytes()[:-100])
    before = weights(tmp_path)
    assert resume(tmp_path, console=quiet()).steps == 384
    assert "the SHA-256 of model.zip differs from the recorded one" in caplog.text
    assert same(before, weights(tmp_path))
    for path in (tmp_path / "checkpoints").glob("*/checkpoint.json"):
        path.write_text("{")
    with pytest.raises(ValueError, match=r"no checkpoint in .* can be read"):
        resume(tmp_path, console=quiet())


def test_a_time_limit_ends_it_early(tmp_path: Path) -> None:
    result = learn(tmp_path, {"max_minutes": 1e-6})
    assert not result.is_complete
    assert result.steps < 384
    assert load_agent(tmp_path / "final").training["steps"] == result.steps


def test_training_survives_engines_that_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("a", "b"):
        monkeypatch.setattr(fake_engine, "FakeEngine", _TiredEngine)
        assert learn(tmp_path / name, {"eval_episodes": 1}).is_complete
        failures = [line["metrics"].get("time/engine_failures") for line in read_metrics(tmp_path / name)]
        assert [count for count in failures if count is not None] == [1.0]
    assert "(failure 1, at most 10 are allowed); new episodes begin: the fake engine fails in step 5" in caplog.text
    assert same(weights(tmp_path / "a"), weights(tmp_path / "b"))


def test_too_many_failures_leave_a_checkpoint_and_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake_engine, "FakeEngine", _TiredEngine)
    with pytest.raises(EngineError, match=r"(?s)after 256 steps and 1 engine failures.*in step 5.*train\.resume="):
        learn(tmp_path, {"eval_episodes": 1, "checkpoint_every": 10**9, "engine_failures": 0})
    record = read_run(tmp_path)
    assert record is not None
    assert record["status"] == "FAILED"
    assert "fails in step 5" in record["error"]
    monkeypatch.undo()
    assert resume(tmp_path, console=quiet()).steps == 384


def test_a_failed_evaluation_is_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    # No episode ends, in evaluation or in training.
    changes = {"engine_failures": 1, "eval_every": 10**9}
    with pytest.raises(EngineError, match=r"(?s)stopped after \d+ steps and 2 engine failures"):
        learn(tmp_path, changes, engine={"name": "fake", "fail_at_step": 30})
    assert "the evaluation after 0 steps failed and is skipped" in caplog.text
    assert not (tmp_path / "best").exists()


def test_sigterm_marks_a_run_as_killed_and_keeps_a_checkpoint(tmp_path: Path) -> None:
    code = (
        "import sys, json, pathlib; sys.path.insert(0, sys.argv[1])\n"
        "import fake_engine\n"
        "from bbrgym.agents.train import train\n"
        "train(json.loads(sys.argv[2]), pathlib.Path(sys.argv[3]))"
    )
    config = changed({"total_steps": 10**8})
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(Path(__file__).parents[1]), json.dumps(config), str(tmp_path)],
        stdout=subprocess.DEVNULL,
    )
    wait_for(lambda: len(read_metrics(tmp_path)) >= 4)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == TERMINATED
    record = read_run(tmp_path)
    assert record is not None
    assert record["status"] == "KILLED"
    steps = max(int(path.name) for path in (tmp_path / "checkpoints").iterdir())
    assert resume(tmp_path, {"train.total_steps": steps + 1}, quiet()).steps > steps


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_a_checkpoint_is_written_ends_the_training_after_it(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = BaseAlgorithm.save
    whole = []

    def save(self: BaseAlgorithm, path: Path) -> None:
        if not whole:
            signal.raise_signal(number)
        write(self, path)
        whole.append(path)

    monkeypatch.setattr(BaseAlgorithm, "save", save)
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        train(changed({"total_steps": 10**8}), tmp_path, quiet())
    assert whole, "the checkpoint was cut off"
    record = read_run(tmp_path)
    assert record is not None
    assert record["status"] == "KILLED"


def test_a_linear_learning_rate_ends_at_its_last() -> None:
    """Also where the last rollout passes the end: a rate below 0 would undo what was learned."""
    from bbrgym.agents.learner import make_model

    agent = PPO | {"learning_rate": {"first": 1e-3, "last": 1e-4}}
    env = SharedPolicyVecEnv(EpisodeSpec.from_config({"scenario": SCENARIO}))
    schedule = make_model(agent, env, seed=1).lr_schedule
    assert [schedule(left) for left in (1.0, 0.5, 0.0, -3.0)] == pytest.approx([1e-3, 5.5e-4, 1e-4, 1e-4])


def test_a_learning_canary(tmp_path: Path) -> None:
    """PPO must shed three quarters of the cost within 5000 decisions."""
    scenario = SCENARIO | {"duration_s": 5, "flows": [{"algorithm": "agent", "rtt_ms": 50}]}
    agent = PPO | {"n_steps": 128, "n_epochs": 10, "learning_rate": 1e-3, "gamma": 0.97}
    agent["policy_kwargs"] = {"log_std_init": -0.5}
    result = train(
        changed(
            {"total_steps": 5000, "eval_every": 1000, "eval_episodes": 2, "checkpoint_every": 10**6},
            scenario=scenario,
            action={"cwnd_gain": [1.0, 16.0], "pacing_gain": [0.8, 3.2]},
            agent=agent,
            reward={"terms": {"log_throughput": 1.0, "delay": 1.0, "loss": 1.0}},
            seed=1,
        ),
        tmp_path,
        quiet(),
    )
    from bbrgym.agents.callbacks import evaluate_agent

    random = _RandomAgent()
    env = SharedPolicyVecEnv(load_agent(tmp_path).spec, 2)
    by_chance = evaluate_agent(random, env, 2)["eval/reward"]  # type: ignore[arg-type]
    untrained = read_metrics(tmp_path)[0]["metrics"]["eval/reward"]
    assert result.reward > 0.25 * untrained
    assert result.reward > 0.25 * by_chance


def test_two_processes_cannot_train_in_one_folder(tmp_path: Path) -> None:
    holder = "import sys, filelock; lock = filelock.FileLock(sys.argv[1]); print(lock.acquire(), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(tmp_path / ".lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline()
        with pytest.raises(ValueError, match=r"another process is training in .*: wait for it to end"):
            learn(tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == [".lock"]
        other.kill()
    assert learn(tmp_path, {"total_steps": 128}).is_complete  # the lock ended with its process


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"agent": {"algorithm": "dqn"}}, "unknown learning algorithm 'dqn'; known: ppo, recurrent_ppo, sac, td3"),
        ({"agent": PPO | {"gama": 0.9}}, "agent 'ppo': unknown key 'gama' .*; known: learning_rate"),
        (
            {"agent": PPO | {"policy_kwargs": {"activation_fn": "gelu"}}},
            "unknown activation_fn 'gelu'",
        ),
        ({"agent": PPO | {"policy_kwargs": {"depth": 3}}}, "refuses its arguments: .*depth"),
        ({"seed": -1}, r"seed must be an integer in \[0, 2\*\*31\), got -1"),
        ({"scenario": {"flows": [{"algorithm": "bbr"}]}}, "must have a flow with algorithm 'agent', got: bbr"),
    ],
)
def test_a_bad_configuration_is_refused_before_anything_is_made(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        learn(tmp_path / "run", **changes)
    assert not (tmp_path / "run").exists()


def test_a_finished_run_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(ValueError, match="already holds a training: resume it"):
        learn(tmp_path)


def test_training_uses_torch_threads(tmp_path: Path) -> None:
    import torch

    learn(tmp_path, {"total_steps": 32})
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_an_exported_agent_acts_like_its_model(algorithm: str, activation: str, tmp_path: Path) -> None:
    from bbrgym.agents.learner import export_agent, make_model

    config = changed(agent=AGENTS[algorithm])
    config["agent"]["policy_kwargs"] |= {"activation_fn": activation, "net_arch": [16, 12]}
    spec = EpisodeSpec.from_config(config)
    env = SharedPolicyVecEnv(spec, 1)
    model = make_model(config["agent"], env, seed=5)
    import torch

    with torch.no_grad():  # the outputs of fresh networks are almost 0: enlarge them
        for parameter in model.policy.parameters():
            parameter.mul_(3.0).add_(0.1 * torch.randn_like(parameter))
    export_agent(model, algorithm, spec, {"algorithm": algorithm}).save(tmp_path / "final")
    agent = load_agent(tmp_path)
    random = np.random.default_rng(1)
    state: Any = None
    starts = np.ones(4, dtype=bool)
    seen = []
    for _ in range(20):
        observations = random.uniform(-2, 2, (4, agent.network.inputs)).astype(np.float32)
        expected, state = model.predict(observations, state, starts, deterministic=True)
        starts = np.zeros(4, dtype=bool)
        actions = agent.predict(observations)
        assert actions.dtype == np.float32
        np.testing.assert_allclose(actions, expected, atol=1e-5)
        seen.append(actions)
    assert np.std(seen) > 0.05
    agent.reset()
    first = agent.predict(observations)
    expected, _ = model.predict(observations, None, np.ones(4, dtype=bool), deterministic=True)
    np.testing.assert_allclose(first, expected, atol=1e-5)


@pytest.mark.parametrize("lstm", [False, True])
def test_an_agent_acts_the_same_in_simulate_and_in_the_environment(lstm: bool) -> None:
    agent = make_agent(lstm=(4,) * lstm, scenario=SCENARIO, engine={"name": "fake"})
    scenario = Scenario.from_dict(SCENARIO)
    env = SharedPolicyVecEnv(agent.spec, 1)
    env.seed(11)
    observations = env.reset()
    seed = env.reset_infos[0]["seed"]
    rates = []
    for _ in range(29):
        observations, _, _, infos = env.step(agent.predict(observations))
        rates.append([info["flow"]["throughput_mbps"] for info in infos])
    trace = simulate(scenario, "fake", seed, 100.0, agent.policy(scenario))
    np.testing.assert_array_equal(trace.rows["throughput_mbps"].to_numpy().reshape(-1, 2)[:29], rates)


def test_saving_and_loading_an_agent(tmp_path: Path) -> None:
    agent = make_agent(lstm=(4,))
    agent.save(tmp_path / "agent")
    agent.save(tmp_path / "agent")  # replaces the first
    loaded = load_agent(tmp_path / "agent" / "agent.json")
    assert loaded.spec == agent.spec
    assert loaded.content_hash == agent.content_hash
    assert [path.name for path in tmp_path.iterdir()] == ["agent"]


def test_the_content_hash_covers_what_decides_the_gains() -> None:
    hashes = [
        make_agent().content_hash,
        make_agent(seed=2).content_hash,
        make_agent(lstm=(4,)).content_hash,
        make_agent(action={"cwnd_gain": [0.5, 3.0]}).content_hash,
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
        make_agent().save(folder)

    make_agent().save(folder)
    description = json.loads((folder / "agent.json").read_text())
    (folder / "agent.json").write_text("{")
    refused("holds no agent that can be loaded")
    (folder / "agent.json").write_text(json.dumps(description | {"format": 99}))
    refused("its format is 99, but this version reads 1")
    (folder / "agent.json").write_text(json.dumps({"format": 1}))
    refused("'activation' is missing")
    (folder / "policy.npz").write_bytes((folder / "policy.npz").read_bytes()[:200])
    refused("holds no agent that can be loaded")
    (folder / "policy.npz").unlink()
    refused("holds no agent that can be loaded")
    make_agent(seed=2).save(tmp_path / "other")
    (folder / "policy.npz").write_bytes((tmp_path / "other" / "policy.npz").read_bytes())
    refused(r"agent.json and policy.npz do not belong together")
    np.savez(folder / "policy.npz", evil=np.array([object()], dtype=object))
    refused("allow_pickle=False")
    assert load_agent(folder).content_hash == description["content_hash"]


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
    console = Console(file=io.StringIO(), width=80)
    results = evaluate(config, tmp_path / "out", console)
    assert results["seed"].tolist() == [1, 1, 2, 2]
    assert results["throughput_mbps"].gt(0).all()
    assert results["reward"].lt(0).all()
    rates = results.groupby("seed")["throughput_mbps"].sum()
    assert rates[1] != rates[2]  # the scenario was drawn
    again = evaluate(config, tmp_path / "again", quiet())
    pd.testing.assert_frame_equal(results, again)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "out" / "results.parquet"), results)
    assert json.loads((tmp_path / "out" / "results.json").read_text())[0]["seed"] == 1
    assert sorted(path.name for path in (tmp_path / "out" / "traces").iterdir()) == ["seed_1.parquet", "seed_2.parquet"]
    assert len(read_metrics(tmp_path / "out")) == 2
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "…" not in text  # it fits
    assert "Mean of 2 episodes" in text


def test_a_bad_evaluation_is_refused(tmp_path: Path) -> None:
    make_agent().save(tmp_path / "agent")
    good = {"agent_path": str(tmp_path / "agent"), "scenario": SCENARIO, "engine": {"name": "fake"}}
    for changes, message in (
        ({"scenario": {"flows": [{"algorithm": "bbr"}]}}, "must have a flow with algorithm 'agent'"),
        ({"seeds": [1, 1]}, r"seeds must be a list of different integers >= 0, .*, got \[1, 1\]"),
        ({"warmup": 1}, r"warmup must be in \[0, 1\), got 1"),
        ({"seed": 1}, "an evaluation: unknown key 'seed' .*known: name"),
    ):
        with pytest.raises(ValueError, match=message):
            evaluate(good | changes, tmp_path / "out", quiet())
    assert not (tmp_path / "out").exists()


class _TiredEngine(fake_engine.FakeEngine):
    """Fails in the third episode of learning, after one episode of preparation."""

    def begin_reset(self, scenario: Scenario, seed: int) -> None:
        self.fail_at_step = 5 if len(self.resets) == 3 else None
        super().begin_reset(scenario, seed)


class _RandomAgent:
    def __init__(self) -> None:
        self._random = np.random.default_rng(1)

    def reset(self) -> None:
        pass

    def predict(self, observations: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return self._random.uniform(-1, 1, (len(observations), 2)).astype(np.float32)
