"""TD3+BC: TD3 whose actor also stays near the data. `python -m examples.offline.td3_bc families replay FOLDER`.

Fujimoto and Gu, "A minimalist approach to offline reinforcement learning", 2021 (arXiv:2106.06860): the actor maximises

    ALPHA / mean|Q| * Q(s, actor(s)) - (actor(s) - a)^2

so that ALPHA says how much rewards count beside imitation. Observations are standardised, as there.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional

from examples.offline.setting import Actor, Data, main, mlp

ALPHA = 2.5
BATCH = 256
GAMMA = 0.98  # of steps of 100 ms: five seconds
LEARNING_RATE = 1e-3
NOISE, NOISE_LIMIT = 0.1, 0.25  # of the target's actions, which are in [-1, 1]
POLICY_EVERY = 2
TAU = 0.005


class Critics(nn.Module):
    """Two estimates of the return of an action."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.both = nn.ModuleList([mlp(inputs + 2, 1), mlp(inputs + 2, 1)])

    def forward(self, observations: Tensor, actions: Tensor) -> Tensor:
        """Return both, shape (2, N)."""
        pairs = torch.cat([observations, actions], dim=1)
        return torch.stack([critic(pairs).squeeze(1) for critic in self.both])


def train(data: Data, steps: int, seed: int) -> Actor:
    """Return the actor after so many gradient steps of the critics."""
    torch.manual_seed(seed)
    rng = torch.Generator().manual_seed(seed)
    inputs = data.observations.shape[1]
    actor, critics = Actor(inputs), Critics(inputs)
    actor_target, critics_target = copy.deepcopy(actor), copy.deepcopy(critics)
    of_actor = torch.optim.Adam(actor.parameters(), LEARNING_RATE)
    of_critics = torch.optim.Adam(critics.parameters(), LEARNING_RATE)
    for step in range(steps):
        observations, actions, rewards, next_observations, not_terminal = data.batch(BATCH, rng)
        with torch.no_grad():
            noise = (NOISE * torch.randn(actions.shape, generator=rng)).clamp(-NOISE_LIMIT, NOISE_LIMIT)
            next_actions = (actor_target(next_observations) + noise).clamp(-1.0, 1.0)
            following = critics_target(next_observations, next_actions).min(dim=0).values
            target = rewards + GAMMA * not_terminal * following
        values = critics(observations, actions)
        loss = functional.mse_loss(values, target.expand_as(values))
        of_critics.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no types there
        of_critics.step()
        if step % POLICY_EVERY:
            continue
        chosen = actor(observations)
        value = critics(observations, chosen)[0]
        scale = ALPHA / value.abs().mean().detach()
        actor_loss = -scale * value.mean() + functional.mse_loss(chosen, actions)
        of_actor.zero_grad()
        actor_loss.backward()
        of_actor.step()
        _follow(actor_target, actor)
        _follow(critics_target, critics)
    return actor


def _follow(target: nn.Module, source: nn.Module) -> None:
    with torch.no_grad():
        for slow, fast in zip(target.parameters(), source.parameters(), strict=True):
            slow.lerp_(fast, TAU)


if __name__ == "__main__":
    main("td3+bc", train, __doc__, steps=10_000)
