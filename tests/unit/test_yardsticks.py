"""What a training is compared with: bbr, the best constant action and the best algorithm."""

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from policies import make_agent
from training import SCENARIO, changed, quiet

from bbrgym import EngineError, Scenario, simulate
from bbrgym import cli as commands
from bbrgym.agents.callbacks import EVALUATION_SEED
from bbrgym.agents.tracking import Tracker, read_metrics
from bbrgym.agents.train import TrainResult, resume, train
from bbrgym.agents.training_loop import evaluation_episodes
from bbrgym.agents.yardsticks import Yardstick
from bbrgym.benchmark import yardsticks
from bbrgym.benchmark.yardsticks import measure_yardsticks
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.envs.sb3_env import SharedPolicyVecEnv

FOUND = [
    Yardstick("bbr", "bbr", -0.5),
    Yardstick("best constant", "0,-1", -0.25),
    Yardstick("best algorithm", "x", 9.0),
]
pytestmark = pytest.mark.usefixtures("no_figures")


@pytest.fixture(autouse=True)
def few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of its own, and three algorithms."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    known = dict.fromkeys(("agent", "policy", "bbr", "cubic", "vegas"), "")
    monkeypatch.setattr(yardsticks.registry, "controllers", lambda: known)


def spec_of(**changes: Any) -> EpisodeSpec:
    return EpisodeSpec({**SCENARIO, **changes}, engine="native")


def test_an_algorithm_is_judged_in_the_evaluation_episodes() -> None:
    spec = spec_of(rate_mbps={"uniform": [8, 12]})
    bbr, _, best = measure_yardsticks(spec, 2)
    rewards = {}
    for name in ("bbr", "cubic", "vegas"):
        of_episodes = []
        for episode in evaluation_episodes(spec, 2):
            scenario = Scenario.from_dict(episode["scenario"])
            trace = simulate(scenario.with_agents_as(name), "native", episode["seed"], 100.0)
            of_episodes.append(spec.reward.over_steps(trace.scenario, (0, 1), trace.flows, trace.link).mean())
        rewards[name] = float(np.mean(of_episodes))
    assert bbr == Yardstick("bbr", "bbr", pytest.approx(rewards["bbr"]))
    name = max(rewards, key=rewards.__getitem__)
    assert best == Yardstick("best algorithm", name, pytest.approx(rewards[name]))


def test_the_best_constant_is_what_an_environment_gives_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of()
    found = measure_yardsticks(spec, 1)[1]
    action = np.array(found.what.split(","), dtype=np.float32)
    env = SharedPolicyVecEnv(spec)
    env.seed(EVALUATION_SEED)
    env.reset()
    rewards = [env.step(np.tile(action, (2, 1)))[1] for _ in range(10)]
    env.close()
    assert found.reward == pytest.approx(float(np.mean(rewards)), abs=1e-4)
    coarse = [yardsticks._judge_action(spec, (x, y), yardsticks.Episodes(spec, 1), 1) for x in (-1, 1) for y in (-1, 1)]
    assert found.reward >= max(coarse)


def test_an_environment_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = measure_yardsticks(spec_of(), 1)
    monkeypatch.setattr(yardsticks, "_judge_action", None)
    assert measure_yardsticks(spec_of(), 1) == first
    with pytest.raises(TypeError):
        measure_yardsticks(spec_of(rate_mbps=6), 1)


def test_a_rival_whose_policy_is_replaced_is_measured_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_agent(seed=1).save(tmp_path)
    flows = [{"algorithm": "agent", "rtt_ms": 20}, {"algorithm": "policy", "rtt_ms": 20, "policy": str(tmp_path)}]
    first = measure_yardsticks(spec_of(flows=flows), 1)
    make_agent(seed=2).save(tmp_path)
    monkeypatch.setattr(yardsticks, "_judge_action", None)
    with pytest.raises(TypeError):
        measure_yardsticks(spec_of(flows=flows), 1)
    make_agent(seed=1).save(tmp_path)
    assert measure_yardsticks(spec_of(flows=flows), 1) == first


def test_agents_that_stop_end_the_episode_of_an_algorithm_too() -> None:
    flows = [{"algorithm": "agent", "rtt_ms": 20, "stop_s": 0.5}, {"algorithm": "cubic", "rtt_ms": 20}]
    spec = spec_of(flows=flows)
    (episode,) = evaluation_episodes(spec, 1)
    scenario = Scenario.from_dict(episode["scenario"])
    trace = simulate(scenario.with_agents_as("bbr"), "native", episode["seed"], 100.0)
    steps = spec.reward.over_steps(trace.scenario, (0,), trace.flows, trace.link)
    assert len(steps) == 10
    assert measure_yardsticks(spec, 1)[0].reward == pytest.approx(steps[:5].mean())


def test_other_engines_have_none() -> None:
    assert measure_yardsticks(EpisodeSpec(SCENARIO, engine="fake"), 1) == []


def test_a_training_logs_its_yardsticks_with_each_evaluation(tmp_path: Path) -> None:
    asked = []

    def measure(spec: EpisodeSpec, episodes: int) -> list[Yardstick]:
        asked.append((spec.agents, episodes))
        return FOUND

    console = quiet()
    result = train(changed(), tmp_path / "run", console, measure)
    assert asked == [(2, 2)]
    assert list(result.yardsticks) == FOUND
    lines = [line["metrics"] for line in read_metrics(tmp_path / "run") if "eval/reward" in line["metrics"]]
    assert len(lines) > 1
    for line in lines:
        assert [line[f"eval/{name}"] for name in ("bbr", "best_constant", "best_algorithm")] == [-0.5, -0.25, 9.0]
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "2 evaluation episodes: bbr -0.500, best constant -0.250 (0,-1), best algorithm 9.000 (x)" in shown
    said = re.findall(r"steps: evaluation .*", shown)
    assert ["above bbr" in line for line in said] == [line["eval/reward"] > -0.5 for line in lines]
    more = resume(tmp_path / "run", {"train.total_steps": 256}, quiet(), measure=measure)
    assert list(more.yardsticks) == FOUND


def test_a_training_goes_on_without_yardsticks_that_cannot_be_measured(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def measure(spec: EpisodeSpec, episodes: int) -> list[Yardstick]:
        raise EngineError("it has died")

    result = train(changed(), tmp_path, quiet(), measure)
    assert result.is_complete
    assert result.yardsticks == ()
    assert "no yardsticks for this training: it has died" in caplog.text


@pytest.mark.parametrize(
    ("reward", "place"),
    [
        (10.0, "above all of them"),
        (-0.3, "above bbr, below best constant and best algorithm"),
        (-0.9, "below all of them"),
    ],
)
def test_the_end_of_a_training_says_what_it_is_above(reward: float, place: str) -> None:
    result = TrainResult(Path("run"), steps=100, score=reward, is_complete=True, yardsticks=tuple(FOUND))
    said, shown = commands._beside_yardsticks(result, reward)
    assert said == f"Reward per step: {reward:.3f}, {place}"
    assert shown.strip() == "bbr -0.500, best constant -0.250 (0,-1), best algorithm 9.000 (x)"


@pytest.mark.parametrize(
    ("reward", "agent", "hint"),
    [
        (10.0, {"algorithm": "ppo"}, []),
        (0.0, {"algorithm": "ppo"}, ["bbrgym train train.resume=run train.total_steps=200"]),
        (
            -0.3,
            {"algorithm": "ppo"},
            ["agent=cma usually", "bbrgym train agent=cma agent.fitness=reward scenario=duel"],
        ),
        (-0.9, {"algorithm": "sac"}, ["agent=cma usually"]),
        (
            -0.9,
            {"algorithm": "cma", "fitness": "reward"},
            ["agent=distil usually", "agent=distil agent.fitness=reward"],
        ),
        (-0.9, {"algorithm": "distil", "fitness": "reward"}, ["agent=cma agent.fitness=reward agent.tunes=run"]),
        (-0.9, {"algorithm": "cma", "fitness": "reward", "tunes": "x"}, ["train.resume=run"]),
        (
            -0.9,
            {"algorithm": "cma", "fitness": "fair_power"},
            ["maximised fair power", "agent=cma agent.fitness=reward"],
        ),
    ],
)
def test_the_end_of_a_training_says_which_learner_would_get_further(
    in_new_folder: None, reward: float, agent: dict[str, str], hint: list[str]
) -> None:
    overrides = [f"agent={agent['algorithm']}", "agent.gamma=0.9", "train.total_steps=100", "name=x"]
    overrides += ["scenario=duel", "scenario.flows.0={algorithm: agent}"]
    params = {"agent": agent, "composition": {"overrides": overrides}}
    Tracker.start(Path("run"), "train", "x", params).finish()
    result = TrainResult(Path("run"), steps=100, score=reward, is_complete=True, yardsticks=tuple(FOUND))
    lines = commands._what_is_better(result, reward, agent["algorithm"])
    text = "\n".join(lines)
    assert [part for part in hint if part not in text] == []
    assert len(lines) == 2 * bool(hint)
    if hint and "train.resume" not in text:  # what else was set is kept, and what is of the learner is not
        assert lines[1].endswith("scenario=duel 'scenario.flows.0={algorithm: agent}'")
        assert "gamma" not in text


def test_without_yardsticks_or_a_reward_nothing_is_said() -> None:
    result = TrainResult(Path("run"), steps=100, score=0.0, is_complete=True)
    assert commands._beside_yardsticks(result, 0.5) == commands._what_is_better(result, 0.5, "ppo") == []
