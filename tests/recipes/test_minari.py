from __future__ import annotations

import numpy as np
import pytest
from recipe_page import Recipe

pytestmark = pytest.mark.slow
PACKAGES = {"minari": "minari", "jax": "jax", "h5py": "h5py"}


def test_record_and_load(recipe: Recipe) -> None:
    """DataCollector(record_infos=True), load_dataset, recover_environment."""
    (code,) = recipe.python
    names = recipe.run_python(code)
    episodes = list(names["dataset"])
    assert [len(episode) for episode in episodes] == [200, 200]
    for seed, episode in enumerate(episodes):
        observation, _ = names["same"].reset(seed=seed)
        np.testing.assert_array_equal(episode.observations[0], observation)
        for action, reward, after in zip(episode.actions, episode.rewards, episode.observations[1:], strict=True):
            observation, own, *_ = names["same"].step(action)
            np.testing.assert_array_equal(after, observation)
            assert reward == own
        assert episode.infos["time_s"].shape == (201,)
