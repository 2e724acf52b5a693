"""What the algorithms here share: the command line, the transitions, the actor, and how a policy is saved."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from bbrgym.baselines.policy_file import Network, StoredPolicy
from bbrgym.benchmark.atlas.manifest import Manifest, read_manifest
from bbrgym.benchmark.atlas.transitions import read_transitions
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.envs.observation import Observation, standardisation


@dataclass(frozen=True)
class Data:
    """S transitions as tensors; observations are standardised by `mean` and `scale`."""

    observations: Tensor
    actions: Tensor
    rewards: Tensor
    next_observations: Tensor
    not_terminal: Tensor
    mean: npt.NDArray[np.float32]
    scale: npt.NDArray[np.float32]

    def batch(self, size: int, rng: torch.Generator) -> tuple[Tensor, ...]:
        """Return observations, actions, rewards, next observations and whether to bootstrap, of random transitions."""
        chosen = torch.randint(len(self.rewards), (size,), generator=rng)
        tensors = (self.observations, self.actions, self.rewards, self.next_observations, self.not_terminal)
        return tuple(one[chosen] for one in tensors)


def load_data(manifest: Manifest, level: str, shards: Sequence[int] | None = None, folder: Path | None = None) -> Data:
    """Read a level of a data set, with the default observation."""
    found = read_transitions(manifest, level, shards, folder)
    mean, scale = standardisation(found.observations)
    return Data(
        observations=torch.from_numpy((found.observations - mean) * scale),
        actions=torch.from_numpy(found.actions),
        rewards=torch.from_numpy(found.rewards),
        next_observations=torch.from_numpy((found.next_observations - mean) * scale),
        not_terminal=torch.from_numpy(1.0 - found.terminals.astype(np.float32)),  # a time limit is no terminal state
        mean=mean,
        scale=scale,
    )


def mlp(inputs: int, outputs: int, width: int = 64) -> nn.Sequential:
    """Return a network of two hidden layers."""
    return nn.Sequential(
        nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outputs)
    )


class Actor(nn.Module):
    """A deterministic policy: the squashed output of an MLP."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.layers = mlp(inputs, 2)

    def forward(self, observations: Tensor) -> Tensor:
        """Return actions in [-1, 1], shape (N, 2)."""
        return torch.tanh(self.layers(observations))

    def network(self, data: Data) -> Network:
        """Return its weights as bbrgym runs them, which takes observations as they are."""
        linear = [layer for layer in self.layers if isinstance(layer, nn.Linear)]
        layers = tuple((layer.weight.detach().numpy().copy(), layer.bias.detach().numpy().copy()) for layer in linear)
        return Network(layers, activation="relu", output="tanh").with_standardised_inputs(data.mean, data.scale)


Train = Callable[[Data, int, int], Actor]
"""Trains an actor: of the data, the number of gradient steps, and the seed."""


def main(algorithm: str, train: Train, description: str | None, steps: int) -> None:
    """Train as the command line says, and save the policy.

    Args:
        algorithm: what the policy says that it was trained by.
        train: the algorithm.
        description: of the command.
        steps: gradient steps by default.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("data_set", help="a data set of `bbrgym atlas list`, made before with `bbrgym atlas make`")
    parser.add_argument("level", help="random, mixed, medium, ...")
    parser.add_argument("policy", type=Path, help="the folder that is written")
    parser.add_argument("--steps", type=int, default=steps, help="gradient steps (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of weights and batches (default: %(default)s)")
    options = parser.parse_args()
    manifest = read_manifest(options.data_set)
    data = load_data(manifest, options.level)
    print(f"{len(data.rewards):,} decisions, mean reward {data.rewards.mean():.3f}", flush=True)
    actor = train(data, options.steps, options.seed)
    save(actor.network(data), manifest, options.policy, f"{algorithm} on {options.level}", options.steps, options.seed)
    print(f"{options.policy}\n  bbrgym score {options.policy}")


def save(network: Network, manifest: Manifest, folder: Path, algorithm: str, steps: int, seed: int) -> None:
    """Write the folder of a policy, which `bbrgym score`, `evaluate` and `Flow("policy")` take."""
    training = {"algorithm": algorithm, "steps": steps, "seed": seed}
    StoredPolicy(policy_spec(manifest).to_config(), network, training).save(folder)


def policy_spec(manifest: Manifest) -> EpisodeSpec:
    """Return the environment of a policy with the default observation."""
    spec = manifest.spec
    return EpisodeSpec(
        scenario=manifest.scenario,
        observation=Observation(manifest.default),
        action=spec.action,
        reward=spec.reward,
        step_ms=spec.step_ms,
        step_rtts=spec.step_rtts,
    )
