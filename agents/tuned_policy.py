"""A trained policy with which a training begins (`agent.tunes`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bbrgym.baselines.policy_file import Network, read_policy
from bbrgym.envs.episode_spec import EpisodeSpec


@dataclass(frozen=True)
class TunedPolicy:
    """A trained policy in the environment of another training.

    Attributes:
        network: has the same actions; inputs that the policy does not observe have weights of 0.
        added: these inputs.
        content_hash: of the policy as it is stored.
    """

    network: Network
    added: tuple[int, ...]
    content_hash: str

    @classmethod
    def read(cls, path: str, spec: EpisodeSpec) -> TunedPolicy:
        """Read a policy.

        Args:
            path: as for `bbrgym.baselines.policy_file.read_policy`.
            spec: of the environment in which it is tuned.

        Raises:
            FileNotFoundError, ValueError: there is no policy, or it does not fit the environment.
        """
        policy = read_policy(path)
        names, observed = spec.observation.features, policy.spec["observation"]["features"]
        plain = spec.policy_config()
        if lacking := [name for name in observed if name not in names]:
            raise ValueError(f"agent.tunes: the policy observes {', '.join(lacking)}, which observation.features lacks")
        history = policy.spec["observation"]["history"]
        if history != spec.observation.history:
            raise ValueError(f"agent.tunes: observation.history must be the policy's, {history}")
        if policy.spec["action"] != plain["action"]:
            raise ValueError(f"agent.tunes: action must be the policy's, {policy.spec['action']!r}")
        length = len(names)
        places = [step * length + names.index(name) for step in range(history) for name in observed]
        added = tuple(index for index in range(history * length) if index not in places)
        return cls(policy.network.widened(places, history * length), added, policy.content_hash)

    def with_skip(self) -> Network:
        """Return the network with a skip, whose weights are 0 if it had none."""
        if self.network.skip is not None:
            return self.network
        skip = np.zeros((self.network.outputs, self.network.inputs), np.float32)
        return dataclasses.replace(self.network, skip=skip)


def check_origin(origin: str, description: Mapping[str, Any]) -> None:
    """Check that a checkpoint is of a training that began with the same policy.

    Args:
        origin: content hash of the policy; empty if the training began with none.
        description: of the checkpoint, with the `origin` of its training as `tunes`.

    Raises:
        ValueError: it began with another one.
    """
    if description.get("tunes", "") != origin:
        raise ValueError("the policy at agent.tunes is another than when the training began")
