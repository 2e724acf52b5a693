"""Policies for Stable-Baselines3 whose critics see more than their actors: asymmetric actor-critic (Pinto et al. 2018).

Observations have the actor's values first, followed by those for the critic alone. The actor's networks take the first
ones only and keep their usual names, so an exported actor is like any other, and cannot need what no sender knows.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from sb3_contrib.crossq.policies import CrossQPolicy
from sb3_contrib.tqc.policies import TQCPolicy
from stable_baselines3.common.policies import ActorCriticPolicy, BasePolicy
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, MlpExtractor
from stable_baselines3.sac.policies import SACPolicy
from stable_baselines3.td3.policies import TD3Policy


class _Networks(MlpExtractor):  # type: ignore[misc]  # Stable-Baselines3 is not type-checked, see pyproject.toml
    def __init__(self, actor_inputs: int, inputs: int, **arguments: Any) -> None:
        super().__init__(inputs, **arguments)
        actor = MlpExtractor(actor_inputs, **arguments)
        self.policy_net, self.latent_dim_pi = actor.policy_net, actor.latent_dim_pi
        self._actor_inputs = actor_inputs

    def forward_actor(self, features: torch.Tensor) -> torch.Tensor:
        latent: torch.Tensor = self.policy_net(features[:, : self._actor_inputs])
        return latent


class PrivilegedActorCriticPolicy(ActorCriticPolicy):  # type: ignore[misc]
    """PPO's policy.

    Args:
        args: of `ActorCriticPolicy`.
        actor_inputs: number of values of an observation that the actor sees.
        kwargs: of `ActorCriticPolicy`.
    """

    def __init__(self, *args: Any, actor_inputs: int, **kwargs: Any) -> None:
        self._actor_inputs = actor_inputs
        super().__init__(*args, **kwargs)

    def _build_mlp_extractor(self) -> None:
        self.mlp_extractor = _Networks(
            self._actor_inputs,
            self.features_dim,
            net_arch=self.net_arch,
            activation_fn=self.activation_fn,
            device=self.device,
        )


class _Head(BaseFeaturesExtractor):  # type: ignore[misc]
    """Passes on the first values of observations."""

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        return observations[:, : self.features_dim]


class _WithHead(BasePolicy):  # type: ignore[misc]
    def __init__(self, *args: Any, actor_inputs: int, **kwargs: Any) -> None:
        self._actor_inputs = actor_inputs
        super().__init__(*args, **kwargs)

    def make_actor(self, features_extractor: BaseFeaturesExtractor | None = None) -> Any:
        return super().make_actor(_Head(self.observation_space, self._actor_inputs))


class PrivilegedSACPolicy(_WithHead, SACPolicy):  # type: ignore[misc]
    """SAC's policy; the actor sees the first `actor_inputs` values of an observation."""


class PrivilegedTQCPolicy(_WithHead, TQCPolicy):  # type: ignore[misc]
    """TQC's policy; the actor sees the first `actor_inputs` values of an observation."""


class PrivilegedCrossQPolicy(_WithHead, CrossQPolicy):  # type: ignore[misc]
    """CrossQ's policy; the actor sees the first `actor_inputs` values of an observation."""


class PrivilegedTD3Policy(_WithHead, TD3Policy):  # type: ignore[misc]
    """TD3's policy; the actor sees the first `actor_inputs` values of an observation."""


PRIVILEGED_POLICIES: Final[dict[str, type[BasePolicy]]] = {
    "ppo": PrivilegedActorCriticPolicy,
    "sac": PrivilegedSACPolicy,
    "tqc": PrivilegedTQCPolicy,
    "crossq": PrivilegedCrossQPolicy,
    "td3": PrivilegedTD3Policy,
}
"""By the learner's name; recurrent PPO has none."""
