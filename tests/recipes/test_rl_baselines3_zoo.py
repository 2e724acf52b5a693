from __future__ import annotations

from pathlib import Path

import pytest
from recipe_page import Recipe

pytestmark = pytest.mark.slow
PACKAGES = {"rl_zoo3": "rl_zoo3", "stable_baselines3": "stable_baselines3"}


def test_train_and_enjoy(recipe: Recipe) -> None:
    """Hyperparameters in YAML; train and enjoy with --gym-packages bbrgym."""
    (commands,) = recipe.shell
    printed = recipe.run_shell(commands)
    assert "Mean reward: -" in printed
    assert list(Path("logs").glob("ppo/*/best_model.zip"))
