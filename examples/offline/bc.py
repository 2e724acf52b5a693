"""Behaviour cloning: the policy that is most like the data. `python -m examples.offline.bc families expert FOLDER`.

It minimises the squared difference between its action and that of the data. It is as good as the data are on average,
and knows nothing of rewards: the other algorithms must be better than it.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from examples.offline.setting import Actor, Data, main

BATCH = 512
LEARNING_RATE = 1e-3


def train(data: Data, steps: int, seed: int) -> Actor:
    """Return the actor after so many gradient steps."""
    torch.manual_seed(seed)
    rng = torch.Generator().manual_seed(seed)
    actor = Actor(data.observations.shape[1])
    optimiser = torch.optim.Adam(actor.parameters(), LEARNING_RATE)
    for _ in range(steps):
        observations, actions, *_ = data.batch(BATCH, rng)
        loss = functional.mse_loss(actor(observations), actions)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no types there
        optimiser.step()
    return actor


if __name__ == "__main__":
    main("bc", train, __doc__, steps=4000)
