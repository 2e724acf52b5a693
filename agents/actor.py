"""Actors of Stable-Baselines3 as networks that need no torch to run. Importing it loads torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from torch import nn

from bbrgym.baselines.policy_file import Array, Network

ACTIVATION_TYPES: Final[dict[str, type[nn.Module]]] = {"tanh": nn.Tanh, "relu": nn.ReLU}
"""torch's types by the names of `bbrgym.baselines.policy_file.ACTIVATIONS`."""


def actor_network(algorithm: str, state: Mapping[str, Any], activation: str) -> Network:
    """Return the actor of a Stable-Baselines3 policy."""
    arrays = {name: np.array(tensor.cpu().numpy(), dtype=np.float32) for name, tensor in state.items()}
    hidden, last, output = _ACTORS[algorithm]
    prefixes = [name.removesuffix(".weight") for name in arrays if re.fullmatch(hidden, name)]
    prefixes.sort(key=lambda prefix: int(prefix.rsplit(".", 1)[1]))
    if last:
        prefixes.append(last)
    lstm: list[tuple[Array, Array, Array]] = []
    while f"lstm_actor.weight_ih_l{len(lstm)}" in arrays:
        of_input, of_state, bias_1, bias_2 = (
            arrays[f"lstm_actor.{name}_l{len(lstm)}"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        if bias_1.shape != bias_2.shape:
            raise ValueError(f"an LSTM layer must have two biases of one shape, got {bias_1.shape} and {bias_2.shape}")
        lstm.append((of_input, of_state, bias_1 + bias_2))
    layers = tuple((arrays[f"{prefix}.weight"], arrays[f"{prefix}.bias"]) for prefix in prefixes)
    return Network(layers, tuple(lstm), activation, output)


_ACTORS: Final[dict[str, tuple[str, str | None, str]]] = {
    "ppo": (r"mlp_extractor\.policy_net\.\d+\.weight", "action_net", "clip"),
    "recurrent_ppo": (r"mlp_extractor\.policy_net\.\d+\.weight", "action_net", "clip"),
    "sac": (r"actor\.latent_pi\.\d+\.weight", "actor.mu", "tanh"),
    "td3": (r"actor\.mu\.\d+\.weight", None, "tanh"),
    "ars": (r"action_net\.\d+\.weight", None, "clip"),
}
"""By algorithm: names of its actor's layers in Stable-Baselines3, of a last layer apart from them, and the output."""
