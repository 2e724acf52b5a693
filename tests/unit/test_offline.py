"""The algorithms of examples/offline: what they learn where the best action is known, and the policies they save."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_atlas import PLAIN

from bbrgym import Flow, Scenario, simulate
from bbrgym.agents.policy import load_agent
from bbrgym.benchmark.atlas.make import make_shards
from bbrgym.benchmark.atlas.manifest import read_manifest
from bbrgym.executors import ThreadExecutor
from examples.offline import bc, iql, td3_bc
from examples.offline.setting import Data, Train, load_data, main

ALGORITHMS = {"bc": bc.train, "iql": iql.train, "td3+bc": td3_bc.train}


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few large steps of small batches."""
    for algorithm in (bc, iql):
        monkeypatch.setattr(algorithm, "LEARNING_RATE", 4e-3)
        monkeypatch.setattr(algorithm, "BATCH", 64)


def bandit(best: float) -> Data:
    """Actions around 0; the reward is highest at `best`. Every step is the last one."""
    rng = np.random.default_rng(1)
    observations = rng.standard_normal((4000, 3)).astype(np.float32)
    actions = rng.uniform(-0.6, 0.6, (4000, 2)).astype(np.float32)
    rewards = -np.square(actions - best).sum(axis=1)
    return Data(
        observations=torch.from_numpy(observations),
        actions=torch.from_numpy(actions),
        rewards=torch.from_numpy(rewards.astype(np.float32)),
        next_observations=torch.from_numpy(observations),
        not_terminal=torch.zeros(4000),
        mean=np.zeros(3, np.float32),
        scale=np.ones(3, np.float32),
    )


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("name", "least", "most"), [("bc", -0.05, 0.05), ("iql", 0.1, 0.5)])
def test_rewards_move_the_actions_of_iql_and_not_those_of_bc(name: str, least: float, most: float) -> None:
    data = bandit(best=0.4)
    actor = ALGORITHMS[name](data, 200, 1)
    chosen = actor(data.observations).mean(dim=0)
    assert bool(((chosen > least) & (chosen < most)).all()), chosen


def test_an_actor_of_td3_bc_is_drawn_to_rewards_and_to_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """A critic that knows little yet drives the actor out of the data first, so it takes more steps than the others."""
    monkeypatch.setattr(td3_bc, "BATCH", 64)
    data = bandit(best=0.4)
    chosen = td3_bc.train(data, 5000, 1)(data.observations).mean(dim=0)
    assert bool(((chosen > 0.2) & (chosen < 0.5)).all()), chosen


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_saved_policy_acts_as_its_actor(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tiny.json").write_text(json.dumps(PLAIN))
    manifest = read_manifest("tiny.json")
    with ThreadExecutor() as executor:
        make_shards(manifest, ["expert"], [0], Path("runs/atlas/tiny"), executor)
    actors = []

    def remembered(data: Data, steps: int, seed: int) -> Any:
        actors.append(ALGORITHMS[name](data, steps, seed))
        return actors[0]

    train: Train = remembered
    monkeypatch.setattr(sys, "argv", ["it", "tiny.json", "expert", "policy", "--steps", "30", "--seed", "2"])
    main(name, train, None, steps=10)
    assert "bbrgym score policy" in capsys.readouterr().out
    agent = load_agent("policy")
    assert agent.training["steps"] == 30
    assert agent.spec.action == manifest.spec.action
    data = load_data(manifest, "expert")
    seen = data.observations.numpy() / data.scale + data.mean
    np.testing.assert_allclose(agent.predict(seen), actors[0](data.observations).detach().numpy(), atol=1e-4)
    again = ALGORITHMS[name](data, 30, 2)
    assert torch.equal(again(data.observations), actors[0](data.observations))
    simulate(Scenario(duration_s=1, flows=(Flow("policy", policy="policy"),)))
