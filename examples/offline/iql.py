"""Implicit Q-learning. `python -m examples.offline.iql families replay FOLDER`.

Kostrikov, Nair and Levine, "Offline reinforcement learning with implicit Q-learning", 2021 (arXiv:2110.06169). The
value of a state is an expectile of the returns of the actions that the data have there. No other action is asked for:

    V: minimises |EXPECTILE - (Q - V < 0)| (Q - V)^2        Q: r + GAMMA V(s')
    actor: imitates each action with the weight exp(BETA (Q - V)), at most LARGEST_WEIGHT

The actor is deterministic, so the weighted likelihood of a normal distribution is a weighted squared difference.
Advantages are in standard deviations of the batch, so that BETA does not depend on the scale of rewards.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor
from torch.nn import functional

from examples.offline.setting import Actor, Data, main, mlp
from examples.offline.td3_bc import Critics

BATCH = 256
BETA = 2.0
EXPECTILE = 0.8
GAMMA = 0.98  # of steps of 100 ms: five seconds
LARGEST_WEIGHT = 20.0
LEARNING_RATE = 1e-3
TAU = 0.005


def train(data: Data, steps: int, seed: int) -> Actor:
    """Return the actor after so many gradient steps."""
    torch.manual_seed(seed)
    rng = torch.Generator().manual_seed(seed)
    inputs = data.observations.shape[1]
    actor, critics, value = Actor(inputs), Critics(inputs), mlp(inputs, 1)
    critics_target = copy.deepcopy(critics)
    of_actor = torch.optim.Adam(actor.parameters(), LEARNING_RATE)
    of_critics = torch.optim.Adam(critics.parameters(), LEARNING_RATE)
    of_value = torch.optim.Adam(value.parameters(), LEARNING_RATE)
    for _ in range(steps):
        observations, actions, rewards, next_observations, not_terminal = data.batch(BATCH, rng)
        with torch.no_grad():
            returns = critics_target(observations, actions).min(dim=0).values
            target = rewards + GAMMA * not_terminal * value(next_observations).squeeze(1)
        advantage = returns - value(observations).squeeze(1)
        _descend(of_value, (torch.abs(EXPECTILE - (advantage < 0).float()) * advantage.square()).mean())
        values = critics(observations, actions)
        _descend(of_critics, functional.mse_loss(values, target.expand_as(values)))
        standard = advantage.detach() / advantage.detach().std().clamp_min(1e-6)
        weight = torch.exp(BETA * standard).clamp_max(LARGEST_WEIGHT)
        difference = (actor(observations) - actions).square().mean(dim=1)
        _descend(of_actor, (weight * difference).sum() / weight.sum())
        with torch.no_grad():
            for slow, fast in zip(critics_target.parameters(), critics.parameters(), strict=True):
                slow.lerp_(fast, TAU)
    return actor


def _descend(optimiser: torch.optim.Optimizer, loss: Tensor) -> None:
    optimiser.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]  # torch has no types there
    optimiser.step()


if __name__ == "__main__":
    main("iql", train, __doc__, steps=10_000)
