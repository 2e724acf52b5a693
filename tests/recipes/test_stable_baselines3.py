from __future__ import annotations

import math

import numpy as np
import pytest
from recipe_page import Recipe

from bbrgym.agents.policy import load_agent

pytestmark = pytest.mark.slow
PACKAGES = {"stable_baselines3": "stable_baselines3"}


def test_training_evaluation_and_import(recipe: Recipe) -> None:
    """make_vec_env, PPO, save and load, SharedPolicyVecEnv, evaluate_policy, bbrgym import."""
    from stable_baselines3 import PPO

    train, use = recipe.python
    (to_agent,) = recipe.shell
    names = recipe.run_python(train)
    assert names["shared"].num_envs == 4
    assert names["model"].num_timesteps == 256
    assert math.isfinite(names["mean_return"])
    recipe.run_shell(to_agent)
    recipe.run_python(use)
    observation = names["envs"].reset()
    np.testing.assert_allclose(
        load_agent("agents/sb3").predict(observation),
        PPO.load("ppo_duel").predict(observation, deterministic=True)[0],
        atol=1e-5,
    )
