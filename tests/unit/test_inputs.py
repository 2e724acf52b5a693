"""What standardises inputs is measured before learning (agents/inputs.py)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bbrgym.agents.inputs import measure_inputs
from bbrgym.envs.engine import EngineError
from bbrgym.envs.episode import EpisodeSpec

LATE: dict[str, Any] = {
    "duration_s": {"uniform": [1.0, 2.0]},
    "flows": [{"algorithm": "agent"}, {"algorithm": "agent", "start_s": 0.5}],
}


def measured(engine: str, **options: Any) -> np.ndarray[Any, Any]:
    spec = EpisodeSpec(LATE, engine=engine, engine_options=options)
    return np.stack(measure_inputs(spec, [np.random.default_rng(seed) for seed in range(3)]))


def test_an_engine_without_rollouts_measures_the_same() -> None:
    mean, scale = measured("fake")
    np.testing.assert_array_equal([mean, scale], measured("native"))
    assert np.isfinite(mean).all()
    assert (scale != 1.0).sum() > len(scale) / 2


def test_what_follows_a_failure_does_not_count() -> None:
    assert np.isfinite(measured("fake", fail_at_step=5)).all()
    with pytest.raises(EngineError, match="fails in step 1, as it was told to"):
        measured("fake", fail_at_step=1)
