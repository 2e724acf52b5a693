"""The curriculum: paths on which an agent was broken, in its training."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from policies import make_agent
from training import PPO, Killed, KillingConsole, changed, logged, quiet, same, weights

from bbrgym.agents.config import CurriculumConfig
from bbrgym.agents.curriculum import Breaks, Broken, Curriculum, Held, Quest, curriculum_of, without_curriculum
from bbrgym.agents.policy import Agent
from bbrgym.agents.train import check_training, resume, train
from bbrgym.baselines.policy_file import Network
from bbrgym.benchmark.breaking.curriculum import Breaker
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.envs.scenario import Flow, Scenario

SPEC = EpisodeSpec(
    {
        "rate_mbps": {"uniform": [5.0, 10.0]},
        "duration_s": 1.0,
        "flows": [{"algorithm": "agent", "rtt_ms": 20}, {"algorithm": "agent", "rtt_ms": 50}],
    }
)
CONFIG = CurriculumConfig(every=100, most=3, forgetting=0.5)
CMA: dict[str, Any] = {"algorithm": "cma", "population": 4, "scenarios": 2, "warmup": 0.2}


def path(rate_mbps: float = 20.0, regret: float = 0.4) -> Broken:
    scenario = Scenario(rate_mbps=rate_mbps, duration_s=1.0, flows=(Flow("agent", rtt_ms=10),))
    return Broken(scenario, seed=1, best=0.9, regret=regret)


class Listed(Breaks):
    """Finds what it is told to."""

    def __init__(self, *found: list[Broken], again: float = 0.4) -> None:
        self.found, self.again = list(found), again

    def check(self, quest: Quest) -> None:
        self.quest = quest

    def regrets(self, agent: Agent, known: Sequence[Broken]) -> list[float]:
        return [self.again for _ in known]

    def find(self, agent: Agent, quest: Quest, seed: int) -> list[Broken]:
        return self.found.pop(0)


class Hashed(Listed):
    """Finds what follows from the agent and the seed, so that the least difference in a training shows."""

    def regrets(self, agent: Agent, known: Sequence[Broken]) -> list[float]:
        return [0.2 + int(agent.content_hash[:4], 16) / 1e6 for _ in known]

    def find(self, agent: Agent, quest: Quest, seed: int) -> list[Broken]:
        return [path(10.0 + (seed + int(agent.content_hash[:6], 16)) % 1000 / 100)]


def curriculum(breaks: Breaks | None = None, config: CurriculumConfig = CONFIG) -> Curriculum:
    return Curriculum(config, SPEC, Listed() if breaks is None else breaks, seed=1)


def test_without_paths_episodes_are_those_of_the_plain_distribution() -> None:
    spec = curriculum().on(SPEC)
    drawn = [spec.draw(np.random.default_rng(number)) for number in range(5)]
    assert drawn == [SPEC.draw(np.random.default_rng(number)) for number in range(5)]
    assert without_curriculum(spec).distribution is SPEC.distribution
    assert curriculum_of(SPEC) is None
    assert spec.to_config() == SPEC.to_config()


def test_half_of_the_episodes_are_on_paths_by_their_weights() -> None:
    one = curriculum()
    one.held = [Held(path(20.0, 0.6)), Held(path(30.0, 0.6), learnability=1 / 3)]
    spec, rng = one.on(SPEC), np.random.default_rng(1)
    scenarios = [spec.sample(rng) for _ in range(2000)]
    rates = [scenario.rate_mbps for scenario in scenarios]
    assert 900 < sum(rate <= 10.0 for rate in rates) < 1100
    assert 660 < rates.count(20.0) < 840
    assert 190 < rates.count(30.0) < 310


def test_a_path_has_as_many_agents_as_all_episodes() -> None:
    one = curriculum(config=dataclasses.replace(CONFIG, share=1.0))
    one.held = [Held(path())]
    scenario = one.on(SPEC).sample(np.random.default_rng(1))
    assert len(scenario.agent_flows) == SPEC.agents
    assert scenario.flows[0].rtt_ms == 10
    assert scenario.flows[1].is_absent


def test_what_is_not_learned_is_forgotten() -> None:
    agent, listed = make_agent(), Listed([path(20.0, 0.4), path(30.0, 0.2)], [path(40.0, 0.3)], [path(20.0, 0.4)], [])
    one = curriculum(listed)
    assert one.update(agent, 100) == {"curriculum/worst": 0.4, "curriculum/found": 2.0, "curriculum/held": 2.0}
    assert [held.weight for held in one.held] == [0.4, 0.2]
    listed.again = 0.1  # three quarters of the regret on the first path are gone, half of it on the second
    metrics = one.update(agent, 200)
    assert metrics["curriculum/regret"] == pytest.approx(0.1)
    assert metrics["curriculum/worst"] == 0.3
    assert [held.path.scenario.rate_mbps for held in one.held] == [40.0, 20.0, 30.0]
    assert [held.learnability for held in one.held] == pytest.approx([1.0, 0.75, 0.5])
    listed.again = 0.3  # worse again: nothing was learned
    assert one.update(agent, 300)["curriculum/found"] == 0  # the path is known
    assert [held.learnability for held in one.held] == pytest.approx([0.5, 0.375, 0.25])
    listed.again = 0.0
    assert one.update(agent, 400)["curriculum/held"] == 0


def test_the_number_of_paths_is_bounded() -> None:
    one = curriculum(Listed([path(20.0 + number, 0.1 + number / 100) for number in range(9)]))
    one.update(make_agent(), 100)
    assert [held.path.scenario.rate_mbps for held in one.held] == [28.0, 27.0, 26.0]


def test_its_state_is_plain_and_comes_back() -> None:
    one = curriculum(Listed([path(20.0, 0.4), path(30.0, 0.2)]))
    one.update(make_agent(), 150)
    state = json.loads(json.dumps(one.to_dict()))
    other = curriculum()
    other.restore(state)
    assert (other.held, other.is_due(249), other.is_due(250)) == (one.held, False, True)
    with pytest.raises((ValueError, KeyError, TypeError)):
        other.restore({**state, "held": [{"scenario": {}}]})


def learn(directory: Path, agent: dict[str, Any], console: Any = None, **train_changes: Any) -> None:
    config = changed({"total_steps": 400, "eval_every": 200, "checkpoint_every": 100} | train_changes)
    config |= {
        "scenario": SPEC.distribution.to_dict(),
        "engine": {"name": "native"},
        "agent": agent,
        "curriculum": {"every": 60},
    }
    train(config, directory, console or quiet(), breaks=Hashed())


@pytest.mark.parametrize(
    "agent", [PPO, PPO | {"units": 3}, CMA, CMA | {"relative_to": "constants", "bank": 6, "constants": 2}]
)
def test_a_training_that_was_killed_resumes_to_the_bit(
    agent: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    total_steps = 400 if agent["algorithm"] == "ppo" else 800
    learn(tmp_path / "whole", agent, total_steps=total_steps)
    with pytest.raises(Killed):
        learn(tmp_path / "killed", agent, KillingConsole(5), total_steps=total_steps)
    resume(tmp_path / "killed", console=quiet(), breaks=Hashed())
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "killed"))
    assert logged(tmp_path / "whole") == logged(tmp_path / "killed")
    found = {step for step, name in logged(tmp_path / "whole") if name == "curriculum/worst"}
    assert len(found) > 2
    saved = json.loads((tmp_path / "whole" / "final" / "agent.json").read_text())
    assert saved["spec"]["scenario"] == SPEC.distribution.to_dict()


def test_a_curriculum_changes_what_is_learned(tmp_path: Path) -> None:
    learn(tmp_path / "with", PPO)
    config = changed({"total_steps": 400, "eval_every": 200, "checkpoint_every": 100})
    config |= {"scenario": SPEC.distribution.to_dict(), "engine": {"name": "native"}, "agent": PPO}
    train(config, tmp_path / "without", quiet())
    assert not same(weights(tmp_path / "with"), weights(tmp_path / "without"))
    first = {
        name: value for (step, name), value in logged(tmp_path / "with").items() if not step and name[:4] == "eval"
    }
    assert first.items() <= {name: v for (step, name), v in logged(tmp_path / "without").items() if not step}.items()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"curriculum": {"every": 0}}, "curriculum.every must be"),
        ({"curriculum": {"every": 10, "share": 0}}, "curriculum.share must be"),
        ({"curriculum": {"every": 10, "forgetting": 1}}, "curriculum.forgetting must be"),
        ({"curriculum": {"every": 10, "space": 3}}, "curriculum.space must be"),
        ({"curriculum": {"every": 10, "sahre": 1}}, "sahre"),
        ({"curriculum": "break"}, "curriculum must be a mapping"),
        ({"curriculum": {"every": 10}, "engine": {"name": "ns3"}}, "'native'"),
        ({"curriculum": {"every": 10}, "agent": {"algorithm": "sac"}}, "'sac'"),
    ],
)
def test_bad_settings_are_explained(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        check_training(changed(engine={"name": "native"}) | changes)


def test_a_training_needs_what_breaks_the_agent(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="breaks"):
        train(changed(engine={"name": "native"}, curriculum={"every": 10}), tmp_path / "run", quiet())
    assert not (tmp_path / "run").exists()


QUEST = Quest(agents=2, flows=2, duration_s=6.0, candidates=12, regret=0.1, space={"rate_mbps": [2, 10]})


def test_a_breaker_finds_paths_that_a_training_can_have() -> None:
    spec = make_agent().spec
    still = np.zeros((2, spec.observation.space.shape[0]), np.float32)
    agent = Agent(spec, Network(((still, np.array([1.0, 1.0], np.float32)),)))  # the largest gains: a standing queue
    breaker = Breaker()
    found = breaker.find(agent, QUEST, seed=3)
    assert found
    assert found == breaker.find(agent, QUEST, seed=3)
    for one in found:
        assert one.regret > 0.1
        assert one.scenario.duration_s == 6.0
        assert len(one.scenario.agent_flows) == len(one.scenario.flows) <= 2
    assert breaker.regrets(agent, found) == pytest.approx([one.regret for one in found])


@pytest.mark.parametrize(
    ("space", "says"),
    [
        ({"flows": [1, 3]}, "at most 2"),
        ({"kinds": ["rival"]}, "must not have rival"),
        ({"rate": [1, 3]}, "rate"),
        ({"kinds": []}, "empty"),
    ],
)
def test_a_bad_box_is_explained(space: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Breaker().check(dataclasses.replace(QUEST, space=space))
    Breaker().check(QUEST)
