from __future__ import annotations

import pytest
from recipe_page import Recipe

pytestmark = pytest.mark.slow
PACKAGES = {"torchrl": "torchrl", "tensordict": "tensordict"}


def test_environments_of_one_agent(recipe: Recipe) -> None:
    """GymEnv with auto_register_info_dict, and GymEnv(num_envs=3)."""
    code, _ = recipe.python
    names = recipe.run_python(code)
    assert names["rollout"].batch_size == (100,)
    assert names["rollouts"].batch_size == (3, 60)
    assert bool(names["rollouts"]["next", "done"].any())
    assert bool((names["rollout"]["next", "rtt_mean_ms"][1:] >= 50).all())  # nothing is acknowledged in the first step


def test_agents_that_join_and_leave(recipe: Recipe) -> None:
    """PettingZooWrapper with the agents of the training scenarios."""
    _, code = recipe.python
    names = recipe.run_python(code)
    assert names["rollout"]["next", "flow", "reward"].shape == (100, 4, 1)
