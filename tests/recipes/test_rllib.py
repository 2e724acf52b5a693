from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Iterator

import pytest
from recipe_page import Recipe

pytestmark = pytest.mark.slow
PACKAGES = {"ray": "ray", "gymnasium": "gymnasium", "dm-tree": "tree"}  # dm-tree comes with ray[rllib]


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """Ray with time to start on a busy machine; the recipes use it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_gcs_server_port_wait_time_s", "300")
        if importlib.util.find_spec("ray") is not None:
            _start()
        yield
        if "ray" in sys.modules:
            sys.modules["ray"].shutdown()


def _start() -> None:
    """Start Ray. It gives its node 30 s, which a busy machine may exceed, so it may try three times."""
    import ray

    for is_last in (False, False, True):
        try:
            ray.init()
            break
        except Exception:  # Ray raises no class of its own
            ray.shutdown()
            if is_last:
                raise


def test_one_agent(recipe: Recipe) -> None:
    """PPO with a remote runner."""
    code, _ = recipe.python
    result = recipe.run_python(code)["result"]
    assert result["env_runners"]["num_env_steps_sampled"] >= 400
    assert -5 * 200 < result["env_runners"]["episode_return_mean"] < 0


def test_agents_that_join_and_leave(recipe: Recipe) -> None:
    """ParallelPettingZooEnv with the agents of the training scenarios, with a remote runner."""
    _, code = recipe.python
    result = recipe.run_python(code)["result"]
    returns = result["env_runners"]["agent_episode_returns_mean"]
    assert returns.keys() == {f"flow_{index}" for index in range(4)}
    assert all(math.isfinite(value) and value < 0 for value in returns.values())
