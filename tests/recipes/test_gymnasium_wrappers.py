from __future__ import annotations

import math
from pathlib import Path

import pytest
from recipe_page import Recipe

PACKAGES = {"gymnasium": "gymnasium"}


def test_vector_wrappers(recipe: Recipe) -> None:
    """NormalizeObservation and RecordEpisodeStatistics around make_vec."""
    vector, _ = recipe.python
    names = recipe.run_python(vector)
    assert len(names["returns"]) == 6
    assert all(-5 * 400 < value < 0 for value in names["returns"])
    assert names["observations"].shape == (3, 17)


@pytest.mark.slow
def test_video_and_tensors(recipe: Recipe) -> None:
    """RecordVideo, RecordEpisodeStatistics and NumpyToTorch."""
    torch = pytest.importorskip("torch", reason="needs torch: make clients")
    for module in ("array_api_compat", "moviepy"):
        pytest.importorskip(module, reason="needs array-api-compat and moviepy: make clients")
    _, single = recipe.python
    names = recipe.run_python(single)
    assert isinstance(names["observation"], torch.Tensor)
    assert names["observation"].shape == (17,)
    assert math.isfinite(names["info"]["episode"]["r"])
    (video,) = Path("videos").glob("*.mp4")
    assert video.stat().st_size > 1000
