"""Changes of actions: what they cost in training, and the metric of evaluations."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training import SCENARIO, learn, same, weights

from bbrgym.agents.callbacks import evaluate_agent
from bbrgym.agents.config import TrainConfig
from bbrgym.agents.tracking import read_metrics
from bbrgym.envs.action import ActionChange
from bbrgym.envs.episode import EpisodeSpec
from bbrgym.envs.sb3_env import SharedPolicyVecEnv

LATE: dict[str, Any] = {
    "duration_s": 1,
    "flows": [{"algorithm": "agent"}, {"algorithm": "agent", "start_s": 0.45}],
}


def test_a_change_needs_two_decisions_in_a_row() -> None:
    change = ActionChange(2)
    actions = np.array([[[0.0, 0.0]] * 2, [[0.5, -0.5]] * 2, [[2.0, -0.5]] * 2, [[0.0, 0.0]] * 2], np.float32)
    took_part = np.array([[True, False], [True, True], [True, True], [True, True]])
    dones = np.array([[False, False], [False, False], [True, False], [False, False]])
    changes = change.after(actions, took_part, dones)
    none = [np.nan, np.nan]
    expected = [[none, none], [[0.5, -0.5], none], [[0.5, 0.0], [0.5, 0.0]], [none, [-1.0, 0.5]]]  # 2 is clipped to 1
    np.testing.assert_array_equal(changes, np.array(expected, np.float32))
    following = change.after(actions[1:2], took_part[1:2], dones[1:2])
    np.testing.assert_array_equal(following, np.full((1, 2, 2), [0.5, -0.5], np.float32))
    change.reset()
    assert np.isnan(change.after(actions[:1], took_part[:1], dones[:1])).all()


def test_a_change_costs_its_square() -> None:
    spec = EpisodeSpec(LATE, engine="native")
    actions = np.random.default_rng(1).uniform(-1.0, 1.0, (25, 2, 2)).astype(np.float32)
    with closing(SharedPolicyVecEnv(spec)) as free, closing(SharedPolicyVecEnv(spec, change_cost=0.5)) as costly:
        for env in (free, costly):
            env.seed(1)
            env.reset()
        costs = np.array([free.step(each)[1] - costly.step(each)[1] for each in actions])
    expected = np.zeros((25, 2))
    expected[1:] = 0.5 * (np.diff(actions, axis=0) ** 2).sum(axis=2)
    expected[[0, 10, 20]] = 0.0  # an episode has ten steps
    expected[[0, 1, 2, 3, 4, 10, 11, 12, 13, 14, 20, 21, 22, 23, 24], 1] = 0.0  # the second flow begins in the fifth
    np.testing.assert_allclose(costs, expected, atol=1e-6)
    with pytest.raises(ValueError, match=r"change_cost must be >= 0, got -1"):
        SharedPolicyVecEnv(spec, change_cost=-1)


class _Alternating:
    def __init__(self, size: float) -> None:
        self._size = size

    def reset(self) -> None:
        pass

    def predict(self, observations: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        self._size = -self._size
        return np.full((len(observations), 2), [self._size, 0.0], np.float32)


@pytest.mark.parametrize("size", [0.0, 0.3])
def test_an_evaluation_measures_changes_and_does_not_charge_them(size: float) -> None:
    with closing(SharedPolicyVecEnv(EpisodeSpec(LATE, engine="native"), 2)) as env:
        metrics = evaluate_agent(_Alternating(size), env, 3)  # type: ignore[arg-type]
    assert metrics["eval/action_change"] == pytest.approx(size)  # twice the size in one of two gains


def test_a_cost_below_0_is_refused() -> None:
    with pytest.raises(ValueError, match=r"train\.change_cost must be >= 0, got -0\.1"):
        TrainConfig(change_cost=-0.1)


@pytest.mark.usefixtures("no_figures")
def test_a_training_pays_for_changes(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"scenario": SCENARIO, "engine": {"name": "native"}}
    for name, cost in (("free", 0.0), ("costly", 3.0)):
        learn(tmp_path / name, {"change_cost": cost}, **changes)
    free, costly = (
        {line["step"]: line["metrics"] for line in read_metrics(tmp_path / name)} for name in ("free", "costly")
    )
    assert free[0]["eval/reward"] == costly[0]["eval/reward"]
    assert free[64]["rollout/ep_rew_mean"] > costly[64]["rollout/ep_rew_mean"] + 1.0
    assert not same(weights(tmp_path / "free"), weights(tmp_path / "costly"))
