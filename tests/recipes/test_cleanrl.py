from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from recipe_page import Recipe

from bbrgym.agents.policy import load_agent

pytestmark = pytest.mark.slow
PACKAGES = {"gymnasium": "gymnasium", "torch": "torch"}


def test_the_changed_places_in_a_loop_like_cleanrls(recipe: Recipe) -> None:
    """make_env, the vector environment and the returns, in a loop like that of ppo_continuous_action.py; import."""
    import ppo_loop
    import torch

    (code,) = recipe.python
    changed = SimpleNamespace(**recipe.run_python(code))
    args = SimpleNamespace(env_id="bbrgym:bbrgym/Default-v1", num_envs=2, capture_video=False, gamma=0.99, seed=1)
    agent, returns = ppo_loop.roll_out(args, changed.make_envs(args, "run"), changed.finished_returns)
    assert len(returns) == 4  # 2 x 400 steps, and episodes of 200
    assert all(-5 * 200 < value < 0 for value in returns)
    torch.save(agent.state_dict(), "ppo_loop.cleanrl_model")
    recipe.run_shell("bbrgym import ppo_loop.cleanrl_model agents/cleanrl")
    observations = torch.rand(3, 17)
    expected = agent.actor_mean(observations).detach().numpy().clip(-1, 1)
    np.testing.assert_allclose(load_agent("agents/cleanrl").predict(observations.numpy()), expected, atol=1e-5)
