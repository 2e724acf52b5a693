"""What stands between the environments and a learner of Stable-Baselines3: observations of a size that suits it."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper

from bbrgym.baselines.policy_file import Array


class StandardiseObservation(VecEnvWrapper):  # type: ignore[misc]  # Stable-Baselines3 is not type-checked
    """Subtracts the mean of each feature and divides by its standard deviation.

    Both are measured once, before learning (`bbrgym.agents.inputs`), and constant from then on, so that a weight means
    the same in the last update as in the first. Until `fit` they change nothing. A checkpoint stores them, and an
    exported agent has them folded into the weights of its first layer.

    Attributes:
        mean: shape (length of an observation,), float32.
        scale: 1 / standard deviation, same shape.
        is_fitted: whether they were measured.
    """

    def __init__(self, env: VecEnv) -> None:
        space = env.observation_space
        unbounded = spaces.Box(-np.inf, np.inf, space.shape, np.float32)
        super().__init__(env, observation_space=unbounded)
        self.mean = np.zeros(space.shape, np.float32)
        self.scale = np.ones(space.shape, np.float32)
        self.is_fitted = False

    @classmethod
    def of(cls, model: BaseAlgorithm) -> Self:
        """Return the wrapper around a model's environment."""
        env = model.get_env()
        while not isinstance(env, cls):
            env = env.venv
        return env

    def fit(self, mean: Array, scale: Array) -> None:
        """Take the mean and the scale."""
        self.mean, self.scale, self.is_fitted = mean, scale, True

    def standardise(self, observations: Array) -> Array:
        """Return the observations as the learner sees them."""
        return (observations - self.mean) * self.scale

    def reset(self) -> Array:
        """Begin new episodes."""
        return self.standardise(self.venv.reset())

    def step_wait(self) -> tuple[Array, Array, Any, list[dict[str, Any]]]:
        """Wait for a step."""
        observations, rewards, dones, infos = self.venv.step_wait()
        for index in np.flatnonzero(dones):
            infos[index]["terminal_observation"] = self.standardise(infos[index]["terminal_observation"])
        return self.standardise(observations), rewards, dones, infos
