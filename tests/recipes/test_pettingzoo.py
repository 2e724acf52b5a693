from __future__ import annotations

import pytest
from recipe_page import Recipe

PACKAGES = {"pettingzoo": "pettingzoo"}


def test_the_api_and_a_loop(recipe: Recipe) -> None:
    """parallel_api_test, and a loop with an agent that joins late and leaves early."""
    loop, _ = recipe.python
    with pytest.warns(UserWarning, match="unknown reset option"):  # which PettingZoo's test gives
        returns = recipe.run_python(loop)["returns"]
    assert returns.keys() == {"flow_0", "flow_1"}
    assert all(value < 0 for value in returns.values())


@pytest.mark.slow
def test_supersuit(recipe: Recipe) -> None:
    """SuperSuit's vector environment for Stable-Baselines3, with the agents of the training scenarios."""
    pytest.importorskip("supersuit", reason="needs SuperSuit: make clients")
    _, code = recipe.python
    names = recipe.run_python(code)
    assert names["envs"].num_envs == 16  # two environments of eight agents
    assert names["model"].num_timesteps == 1024
