"""The rollout of CleanRL's ppo_continuous_action.py: its order of calls, shapes and names, without its updates."""

from typing import Any

import torch
from torch import nn
from torch.distributions import Normal

STEPS = 400


class Agent(nn.Module):
    """The actor, under CleanRL's names."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.actor_mean = nn.Sequential(
            nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs)
        )
        self.actor_logstd = nn.Parameter(torch.zeros(1, outputs))

    def distribution(self, x: torch.Tensor) -> Normal:
        mean = self.actor_mean(x)
        return Normal(mean, self.actor_logstd.expand_as(mean).exp())


def roll_out(args: Any, envs: Any, finished_returns: Any) -> tuple[Agent, list[float]]:
    """Return the agent and the returns of the finished episodes."""
    torch.manual_seed(args.seed)
    agent = Agent(envs.single_observation_space.shape[0], envs.single_action_space.shape[0])
    returns: list[float] = []
    next_obs, _ = envs.reset(seed=args.seed)
    for _ in range(STEPS):
        with torch.no_grad():
            action = agent.distribution(torch.Tensor(next_obs)).sample()
        next_obs, *_, infos = envs.step(action.numpy())
        returns += finished_returns(infos)
    envs.close()
    return agent, returns
