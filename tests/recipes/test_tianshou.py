from __future__ import annotations

import pytest
from recipe_page import Recipe

pytestmark = pytest.mark.slow
PACKAGES = {"tianshou": "tianshou"}


def test_training(recipe: Recipe) -> None:
    """PPO with collectors over DummyVectorEnv."""
    (code,) = recipe.python
    result = recipe.run_python(code)["result"]
    assert result.train_step == 400
    assert result.train_episode == 2  # of 200 steps
    assert -5 * 200 < result.best_reward < 0
