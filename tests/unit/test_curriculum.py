"""The curriculum by the gap to the best baseline: what it measures and keeps, and how training resumes with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from training import AGENTS, SCENARIO, learn, learn_until_killed, quiet, same, weights

from bbrgym import EngineError, Scenario
from bbrgym.agents.adversary import Adversary, Candidate, is_held_out, largest_gaps
from bbrgym.agents.policy import Agent
from bbrgym.agents.tracking import read_metrics
from bbrgym.agents.train import resume
from bbrgym.envs.episode import EpisodeSpec
from bbrgym.envs.sb3_env import SharedPolicyVecEnv

pytestmark = pytest.mark.usefixtures("no_figures")

DRAWN = SCENARIO | {"rate_mbps": {"log_uniform": [4, 36]}}
SMALL: dict[str, Any] = {"every": 50, "candidates": 5, "keep": 2, "baselines": ["bbr", "cubic"]}


def kept(directory: Path) -> list[dict[str, Any]]:
    return list(json.loads((directory / "curriculum.json").read_text()))


def searches(directory: Path) -> dict[int, dict[str, float]]:
    """Return the metrics of each search by its steps."""
    lines = read_metrics(directory)
    return {line["step"]: line["metrics"] for line in lines if next(iter(line["metrics"])).startswith("curriculum/")}


def replace_scores(monkeypatch: pytest.MonkeyPatch, score: Callable[[Agent, str, Scenario], float]) -> None:
    """Replace simulations: `score` gets the agent, "agent" or the baseline's name, and the scenario."""

    def measure(self: Adversary, agent: Agent, scenarios: Sequence[Scenario], seeds: Sequence[int]) -> list[Candidate]:
        return [
            Candidate(each, score(agent, "agent", each), {name: score(agent, name, each) for name in self.baselines})
            for each in scenarios
        ]

    monkeypatch.setattr(Adversary, "measure", measure)


def test_the_largest_gaps_are_kept_not_the_worst_scenarios() -> None:
    drawn = Scenario.from_dict(SCENARIO)
    hopeless = Candidate(drawn, -3.0, {"bbr": -3.1, "cubic": -3.0})
    hard = Candidate(drawn, -1.0, {"bbr": -0.9, "cubic": -0.2})
    harder = Candidate(drawn, -2.0, {"bbr": -1.7, "cubic": -2.5})
    easy = Candidate(drawn, -0.5, {"bbr": -0.1, "cubic": -0.6})
    solved = Candidate(drawn, -0.1, {"bbr": -0.09, "cubic": -0.2})
    given = [hopeless, solved, harder, easy, hard]
    assert [each.gap for each in given] == pytest.approx([0.0, 0.01, 0.3, 0.4, 0.8])
    assert [each.best for each in given] == ["cubic", "bbr", "bbr", "bbr", "cubic"]
    assert largest_gaps(given, 2) == [hard, easy]
    assert largest_gaps(given, 5) == [hard, easy, harder, solved]


def test_training_keeps_the_largest_gaps_of_each_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Scenario] = []

    def score(driver: str, scenario: Scenario) -> float:
        """The faster the link, the worse the agent; the slower below 12 Mbit/s, the better is bbr."""
        rate = scenario.rate_mbps
        if driver == "agent":
            seen.append(scenario)
            return -rate
        return 12 - 2 * rate if rate < 12 and driver == "bbr" else -2 * rate

    replace_scores(monkeypatch, lambda agent, driver, scenario: score(driver, scenario))
    learn(tmp_path, {"curriculum": SMALL | {"candidates": 60, "keep": 3}}, scenario=DRAWN)
    found = searches(tmp_path)
    assert list(found) == [64, 128]  # before the first rollouts that begin late enough
    assert len(set(seen)) == 120
    expected = []
    for drawn in (seen[:60], seen[60:]):
        rates = sorted(each.rate_mbps for each in drawn if each.rate_mbps < 12 and not is_held_out(each))
        assert 3 < len(rates) < 60
        expected += rates[:3]
    assert any(is_held_out(each) for each in seen if each.rate_mbps < 12)
    rows = kept(tmp_path)
    assert [row["scenario"]["rate_mbps"] for row in rows] == expected
    assert [row["gap"] for row in rows] == pytest.approx([12 - rate for rate in expected])
    assert {row["best"] for row in rows} == {"bbr"}
    assert [row["step"] for row in rows] == [64] * 3 + [128] * 3
    first, second = found.values()
    assert (first["curriculum/kept"], second["curriculum/kept"], second["curriculum/joined"]) == (3, 6, 3)
    assert first["curriculum/gap_max"] == 12 - min(each.rate_mbps for each in seen[:60])
    assert first["curriculum/gap_mean"] < first["curriculum/gap_max"]
    won = {name: first[f"curriculum/won/{name}"] for name in ("agent", "bbr", "cubic")}
    slow = np.mean([scenario.rate_mbps < 12 for scenario in seen[:60]])
    assert won == pytest.approx({"agent": 1 - slow, "bbr": slow, "cubic": 0.0})


@pytest.mark.parametrize("algorithm", ["ppo", "sac"])  # without and with a replay buffer
def test_a_killed_training_with_teacher_and_curriculum_resumes_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    def score(agent: Agent, driver: str, scenario: Scenario) -> float:
        neutral = agent.spec.observation.neutral[np.newaxis]
        return (float(agent.predict(neutral)[0, 0]) if driver == "agent" else 4.0) - scenario.rate_mbps

    replace_scores(monkeypatch, score)
    agent = AGENTS[algorithm] | ({} if algorithm == "ppo" else {"learning_starts": 10**6})
    changes: dict[str, Any] = {"scenario": DRAWN, "agent": agent}
    training = {"curriculum": SMALL, "teacher": "backlog", "prepare_steps": 20}
    through, stopped = tmp_path / "through", tmp_path / "stopped"
    learn(through, training, **changes)
    learn_until_killed(stopped, training, **changes)
    assert len(searches(stopped)) in (1, 2)  # one of them before the checkpoint that it resumes from
    resume(stopped, console=quiet())
    assert len(kept(through)) >= 4
    assert kept(through) == kept(stopped)
    assert searches(through) == searches(stopped)
    assert same(weights(through), weights(stopped))


def test_with_a_share_of_1_all_episodes_use_the_curriculum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    met: list[Scenario] = []
    mixing: set[int] = set()
    mix_in, step_wait = SharedPolicyVecEnv.mix_in, SharedPolicyVecEnv.step_wait

    def spy_mix_in(env: SharedPolicyVecEnv, scenarios: Sequence[Scenario], share: float) -> None:
        mix_in(env, scenarios, share)
        if scenarios:
            mixing.add(id(env))

    def spy_step_wait(env: SharedPolicyVecEnv) -> Any:
        outcome = step_wait(env)
        if id(env) in mixing:
            met.extend(env.scenarios[engine] for engine in np.flatnonzero(outcome[2][:: env.agents]))
        return outcome

    replace_scores(monkeypatch, lambda agent, driver, scenario: 0.0 if driver == "agent" else 1.0)
    monkeypatch.setattr(SharedPolicyVecEnv, "mix_in", spy_mix_in)
    monkeypatch.setattr(SharedPolicyVecEnv, "step_wait", spy_step_wait)
    learn(tmp_path, {"curriculum": SMALL | {"share": 1.0}, "total_steps": 448}, scenario=DRAWN)
    scenarios = [Scenario.from_dict(row["scenario"]) for row in kept(tmp_path)]
    assert len(scenarios) >= 2
    assert len(mixing) == 1  # the training environment, not that of evaluations
    assert len(met) > 10
    assert set(met) <= set(scenarios)
    assert len(set(met)) > 1


def test_mixing_scenarios_in() -> None:
    spec = EpisodeSpec(DRAWN, engine="fake")
    mixed = [Scenario.from_dict(SCENARIO | {"rate_mbps": rate, "duration_s": 1}) for rate in (40, 50)]

    def rates(scenarios: Sequence[Scenario] | None, share: float) -> list[float]:
        env = SharedPolicyVecEnv(spec, 2)
        if scenarios is not None:
            env.mix_in(scenarios, share)
        env.seed(5)
        env.reset()
        found = [scenario.rate_mbps for scenario in env.scenarios]
        for _ in range(200):
            _, _, dones, _ = env.step(np.zeros((4, 2), np.float32))
            found += [env.scenarios[row // 2].rate_mbps for row in (0, 2) if dones[row]]
        env.close()
        return found

    drawn = rates(None, 0.0)
    assert len(drawn) == 42
    assert max(drawn) <= 36
    assert rates([], 1.0) == drawn
    assert set(rates(mixed, 1.0)) == {40, 50}
    often = [rate in (40, 50) for rate in rates(mixed, 0.75)]
    assert 21 < sum(often) < 42
    with pytest.raises(ValueError, match=r"share must be in \[0, 1\], got 1\.5"):
        SharedPolicyVecEnv(spec, 1).mix_in(mixed, 1.5)


def test_the_scenario_of_a_reset_takes_precedence() -> None:
    env = SharedPolicyVecEnv(EpisodeSpec(DRAWN, engine="fake"), 1)
    env.mix_in([Scenario.from_dict(SCENARIO)], 1.0)
    env.set_options({"scenario": SCENARIO | {"rate_mbps": 50}})
    for rate_mbps in (50, 12):
        env.reset()
        assert env.scenarios[0].rate_mbps == rate_mbps


def test_a_failed_search_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Adversary, "measure", Mock(side_effect=EngineError("it is broken")))
    assert learn(tmp_path, {"curriculum": SMALL}, scenario=DRAWN).is_complete
    assert "the curriculum search after 64 steps failed and is skipped: it is broken" in caplog.text
    assert searches(tmp_path) == {steps: {"curriculum/engine_failures": 1.0} for steps in (64, 128)}
    assert not (tmp_path / "curriculum.json").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"every": 0}, r"train\.curriculum\.every must be an integer >= 1, got 0"),
        ({"candidates": 1.5}, r"train\.curriculum\.candidates must be an integer >= 1, got 1\.5"),
        ({"keep": True}, r"train\.curriculum\.keep must be an integer in \[1, 192\], got True"),
        ({"keep": 6, "candidates": 5}, r"train\.curriculum\.keep must be an integer in \[1, 5\], got 6"),
        ({"share": 0}, r"train\.curriculum\.share must be in \(0, 1\], got 0"),
        ({"share": 1.1}, r"train\.curriculum\.share must be in \(0, 1\], got 1\.1"),
        ({"baselines": []}, r"train\.curriculum\.baselines must be a list of different names, got \[\]"),
        ({"baselines": "bbr"}, r"train\.curriculum\.baselines must be a list of different names, got 'bbr'"),
        ({"baselines": ["bbr", "bbr"]}, r"must be a list of different names, got \['bbr', 'bbr'\]"),
        ({"baselines": [["bbr"]]}, r"must be a list of different names, got \[\['bbr'\]\]"),
        ({"baselines": ["bbr9"]}, r"unknown baseline of train\.curriculum 'bbr9' .*known: bbr, .*scripted:backlog"),
        ({"baselines": ["cubic-stock"]}, "'cubic-stock' .*known: bbr, "),
        ({"baselines": ["agent"]}, "'agent'.*known: bbr, "),
        ({"rounds": 3}, r"train\.curriculum: unknown key 'rounds'; known: every, candidates, keep, share, baselines"),
        (7, r"train\.curriculum must be a mapping with keys of every, .*, got 7"),
    ],
)
def test_a_bad_curriculum_is_refused_before_anything_is_made(tmp_path: Path, given: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        learn(tmp_path / "run", {"curriculum": given}, observation={"features": ["log_min_rtt"]})
    assert not (tmp_path / "run").exists()
