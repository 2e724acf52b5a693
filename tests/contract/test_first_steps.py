"""What a newcomer meets first: on every id the agent that does nothing lives, and its numbers are of order one."""

from contextlib import closing

import gymnasium
import numpy as np
import pytest

from bbrgym.envs import environment_ids

SEED = 7


@pytest.mark.parametrize("id", environment_ids())
def test_the_action_0_uses_the_link(id: str) -> None:
    with closing(gymnasium.make(id)) as env:
        observations = [env.reset(seed=SEED)[0]]
        utilisation, rewards, sent = [], [], 0.0
        truncated = terminated = False
        while not (truncated or terminated) and len(rewards) < 400:
            observation, reward, terminated, truncated, info = env.step(np.zeros(2, dtype=np.float32))
            observations.append(observation)
            rewards.append(reward)
            utilisation.append(info["link_utilisation"])
            sent += info["sent_packets"]
    assert np.mean(utilisation[len(utilisation) // 4 :]) >= 0.9
    assert sent > 2 * len(rewards), "the flow does not starve beside others"
    assert 0.01 < np.mean(np.abs(rewards)) < 5
    assert np.median(np.abs(observations), axis=0).mean() < 4, "numbers of order one"
