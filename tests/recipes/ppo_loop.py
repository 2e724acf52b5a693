"""A loop like that of CleanRL's ppo_continuous_action.py: its order of calls, shapes and names, and as little else."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.distributions import Normal

STEPS = 100
ITERATIONS = 4
MINIBATCH = 50


class Agent(nn.Module):
    """The networks, under CleanRL's names."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.critic = _network(inputs, 1)
        self.actor_mean = _network(inputs, outputs)
        self.actor_logstd = nn.Parameter(torch.zeros(1, outputs))

    def distribution(self, x: torch.Tensor) -> Normal:
        mean = self.actor_mean(x)
        return Normal(mean, self.actor_logstd.expand_as(mean).exp())


def train(args: Any, envs: Any, finished_returns: Any) -> tuple[Agent, list[float], list[float]]:
    """Return the agent, the returns of the finished episodes, and the losses."""
    torch.manual_seed(args.seed)
    agent = Agent(envs.single_observation_space.shape[0], envs.single_action_space.shape[0])
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-4, eps=1e-5)
    shape = (STEPS, args.num_envs)
    obs = torch.zeros((*shape, *envs.single_observation_space.shape))
    actions = torch.zeros((*shape, *envs.single_action_space.shape))
    logprobs, rewards, dones, values = (torch.zeros(shape) for _ in range(4))
    returns: list[float] = []
    losses: list[float] = []
    first, _ = envs.reset(seed=args.seed)
    next_obs, next_done = torch.Tensor(first), torch.zeros(args.num_envs)
    for _ in range(ITERATIONS):
        for step in range(STEPS):
            obs[step], dones[step] = next_obs, next_done
            with torch.no_grad():
                policy = agent.distribution(next_obs)
                actions[step] = policy.sample()
                logprobs[step] = policy.log_prob(actions[step]).sum(1)
                values[step] = agent.critic(next_obs).flatten()
            array, reward, terminations, truncations, infos = envs.step(actions[step].numpy())
            rewards[step] = torch.tensor(reward)
            next_obs, next_done = torch.Tensor(array), torch.Tensor(np.logical_or(terminations, truncations))
            returns += finished_returns(infos)
        with torch.no_grad():
            advantages = torch.zeros(shape)
            following, is_running, trace = agent.critic(next_obs).flatten(), 1 - next_done, torch.zeros(args.num_envs)
            for step in reversed(range(STEPS)):
                delta = rewards[step] + args.gamma * following * is_running - values[step]
                trace = delta + args.gamma * 0.95 * is_running * trace
                advantages[step] = trace
                following, is_running = values[step], 1 - dones[step]
        batch = [part.flatten(0, 1) for part in (obs, actions, logprobs, advantages, advantages + values)]
        for some in torch.randperm(STEPS * args.num_envs).split(MINIBATCH):
            x, action, logprob, advantage, target = (part[some] for part in batch)
            ratio = (agent.distribution(x).log_prob(action).sum(1) - logprob).exp()
            gain = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
            loss = 0.5 * (agent.critic(x).flatten() - target).square().mean() - gain
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
            losses.append(loss.item())
    envs.close()
    return agent, returns, losses


def _network(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, outputs))
