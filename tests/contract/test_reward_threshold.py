"""The reward thresholds of the registered environments are what the shipped policy reaches."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import numpy as np
import pytest
from marks import needs_ns3

import bbrgym.agents
from bbrgym.agents.policy import load_agent
from bbrgym.envs import REWARD_THRESHOLDS, environment_ids

SHIPPED = Path(bbrgym.agents.__file__).parent / "reference"


def test_only_ids_of_the_default_scenario_have_a_threshold() -> None:
    thresholds = {id: gymnasium.spec(id).reward_threshold for id in environment_ids()}
    assert {id: value for id, value in thresholds.items() if value is not None} == REWARD_THRESHOLDS


@pytest.mark.slow
@pytest.mark.parametrize("id", ["bbrgym/Default-v0", pytest.param("bbrgym/Bottleneck-v0", marks=needs_ns3)])
def test_the_shipped_policy_reaches_the_threshold(id: str) -> None:
    agent = load_agent(SHIPPED)
    env = gymnasium.make(id, observation=agent.spec.observation, action=agent.spec.action)
    totals = []
    for seed in range(1, 11):
        agent.reset()
        observation, _ = env.reset(seed=seed)
        total, is_over = 0.0, False
        while not is_over:
            observation, reward, terminated, truncated, _ = env.step(agent.predict(observation[np.newaxis])[0])
            total, is_over = total + float(reward), terminated or truncated
        totals.append(total)
    env.close()
    assert round(np.mean(totals).item()) == REWARD_THRESHOLDS[id]
