"""What comes before learning: observations to standardise by, and, if wanted, a teacher to begin from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import VecEnv

from bbrgym.agents.learner import Standardised, UnitReturns
from bbrgym.agents.scripted import RULES
from bbrgym.envs.episode import EpisodeSpec

Array = npt.NDArray[np.float32]

NOISE: Final = 0.15
"""Standard deviation of what is added to a teacher's actions, so that the learner sees how it comes back, too."""


@dataclass(frozen=True)
class Demonstrations:
    """What was seen and done in n decisions.

    Attributes:
        observations: as the environment gives them, shape (n, length of an observation).
        actions: the teacher's, without noise, shape (n, 2).
        returns: discounted sums of the rewards that followed, shape (n,).
    """

    observations: Array
    actions: Array
    returns: Array


def prepare(model: BaseAlgorithm, spec: EpisodeSpec, teacher: str | None, steps: int, seed: int) -> None:
    """Look at the environment for some steps, standardise observations by what was seen, and imitate the teacher.

    Without a teacher actions are drawn evenly. A recurrent or off-policy learner can have none: it raises ValueError.

    Args:
        model: fresh; its actor, and its critic for the teacher's returns, are changed if there is a teacher.
        spec: of the environment.
        teacher: a rule of `bbrgym.agents.scripted.RULES`, or None.
        steps: decisions of all flows together.
        seed: decides what happens.
    """
    if teacher is not None:
        if teacher not in RULES:
            raise ValueError(f"no teacher {teacher!r}; known: {', '.join(RULES)}")
        if type(model) is not PPO:
            raise ValueError(f"train.teacher={teacher!r} is not possible: only the learner ppo can have one")
    rng = np.random.default_rng(seed)
    inputs = Standardised.of(model)
    acts: Callable[[Array], Array]
    if teacher is None:

        def acts(seen: Array) -> Array:
            return rng.uniform(-1.0, 1.0, (len(seen), 2)).astype(np.float32)

    else:
        rule = RULES[teacher](spec.observation, spec.action)

        def acts(seen: Array) -> Array:
            return rule.forward(seen[:, : rule.inputs], [])[0]

    shown = demonstrate(inputs.venv, acts, steps, getattr(model, "gamma", 1.0), rng)
    inputs.fit(shown.observations)
    if teacher is not None:
        returns = shown.returns * UnitReturns.of(model).scale
        imitate(model, inputs.standardise(shown.observations), shown.actions, returns, rng)


def demonstrate(
    env: VecEnv, acts: Callable[[Array], Array], steps: int, gamma: float, rng: np.random.Generator
) -> Demonstrations:
    """Act with noise, `NOISE` of a random part of it in each environment.

    Args:
        env: with observations as they are.
        acts: from observations (N, length) to actions (N, 2).
        steps: decisions, at least so many.
        gamma: discount of the returns.
        rng: of the noise and the episodes.
    """
    env.seed(int(rng.integers(2**31)))
    seen = env.reset()
    amount = rng.uniform(0.0, 2.0, (env.num_envs, 1))
    observations, actions, rewards, dones = [], [], [], []
    for _ in range(-(-steps // env.num_envs)):
        chosen = acts(seen)
        observations.append(seen)
        actions.append(chosen)
        noisy = chosen + NOISE * amount * rng.standard_normal(chosen.shape)
        seen, reward, done, _ = env.step(noisy.clip(-1.0, 1.0).astype(np.float32))
        rewards.append(reward)
        dones.append(done)
    returns = np.zeros_like(np.array(rewards))
    following = np.zeros(env.num_envs, np.float32)
    for index in reversed(range(len(rewards))):
        following = rewards[index] + gamma * following * ~dones[index]
        returns[index] = following
    # The last ones miss what would have come: beyond a horizon of the discount nothing is missing.
    horizon = min(len(rewards) // 2, int(np.ceil(3.0 / (1.0 - gamma))) if gamma < 1 else 0)
    kept = slice(0, len(rewards) - horizon)
    return Demonstrations(
        np.concatenate(observations[kept]), np.concatenate(actions[kept]), returns[kept].ravel().astype(np.float32)
    )


def imitate(model: PPO, observations: Array, actions: Array, returns: Array, rng: np.random.Generator) -> None:
    """Fit the actor's means to actions, and the critic to returns, by least squares."""
    policy = model.policy
    policy.set_training_mode(True)
    optimiser = torch.optim.Adam(policy.parameters(), lr=_LEARNING_RATE)
    seen, wanted, values = (torch.as_tensor(array) for array in (observations, actions, returns))
    batches = _EPOCHS * (len(seen) // _BATCH + 1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, batches)
    for _ in range(batches):
        batch = torch.as_tensor(rng.integers(len(seen), size=_BATCH))
        means = policy.get_distribution(seen[batch]).distribution.mean
        estimates = policy.predict_values(seen[batch])[:, 0]
        loss = ((means - wanted[batch]) ** 2).mean() + ((estimates - values[batch]) ** 2).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    policy.set_training_mode(False)


_LEARNING_RATE: Final = 2e-3
_EPOCHS: Final = 10
_BATCH: Final = 1024
