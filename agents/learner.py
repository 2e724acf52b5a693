"""The learning algorithms of Stable-Baselines3, from plain configurations. Importing it loads torch."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from sb3_contrib import RecurrentPPO
from stable_baselines3 import PPO, SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import VecEnv
from torch import nn

from bbrgym.agents.policy import ACTIVATIONS, Agent, Network
from bbrgym.envs.episode import EpisodeSpec

LEARNERS: Final[dict[str, tuple[type[BaseAlgorithm], str]]] = {
    "ppo": (PPO, "MlpPolicy"),
    "recurrent_ppo": (RecurrentPPO, "MlpLstmPolicy"),
    "sac": (SAC, "MlpPolicy"),
    "td3": (TD3, "MlpPolicy"),
}
"""By name: the learner, and its policy."""

RESERVED: Final = frozenset(
    {"self", "policy", "env", "seed", "verbose", "tensorboard_log", "stats_window_size", "_init_setup_model"}
    # Networks and buffers that an exported agent or a checkpoint would not have.
    | {"use_sde", "sde_sample_freq", "use_sde_at_warmup", "optimize_memory_usage"}
    | {"rollout_buffer_class", "rollout_buffer_kwargs", "replay_buffer_class", "replay_buffer_kwargs"}
)
"""Arguments of the learners that a configuration does not choose."""

_ACTIVATION_TYPES: Final[dict[str, type[nn.Module]]] = {"tanh": nn.Tanh, "relu": nn.ReLU}


def learner_arguments(algorithm: str) -> list[str]:
    """The arguments of a learner that a configuration can have."""
    return [name for name in inspect.signature(LEARNERS[algorithm][0].__init__).parameters if name not in RESERVED]


def make_model(agent: Mapping[str, Any], env: VecEnv, seed: int) -> BaseAlgorithm:
    """Make a learner.

    Args:
        agent: `algorithm`, and arguments of its constructor, as conf/agent has them; `policy_kwargs.activation_fn` is
            a name, and `action_noise` a standard deviation.
        env: in which it learns.
        seed: of its weights and of everything random in it and its environments.

    Raises:
        ValueError: an argument that the learner does not take.
    """
    arguments = dict(agent)
    algorithm = arguments.pop("algorithm")
    learner, policy = LEARNERS[algorithm]
    known = learner_arguments(algorithm)
    for name in arguments:
        if name not in known:
            raise ValueError(f"agent {algorithm!r} has no argument {name!r}; known: {', '.join(known)}")
    policy_arguments = dict(arguments.get("policy_kwargs") or {})
    activation = policy_arguments.get("activation_fn", "tanh" if "ppo" in algorithm else "relu")
    if activation not in ACTIVATIONS:
        raise ValueError(f"no activation_fn {activation!r}; known: {', '.join(ACTIVATIONS)}")
    policy_arguments["activation_fn"] = _ACTIVATION_TYPES[activation]
    arguments["policy_kwargs"] = policy_arguments
    if arguments.get("action_noise") is not None:
        size = env.action_space.shape
        arguments["action_noise"] = NormalActionNoise(np.zeros(size), np.full(size, float(arguments["action_noise"])))
    try:
        return learner(policy, env, seed=seed, verbose=0, **arguments)
    except (AssertionError, TypeError, ValueError) as error:
        raise ValueError(f"agent {algorithm!r} refuses its arguments: {error}") from error


def export_agent(model: BaseAlgorithm, algorithm: str, spec: EpisodeSpec, training: Mapping[str, Any]) -> Agent:
    """The learner's present policy as an `Agent`."""
    kind = model.policy_kwargs["activation_fn"]
    activation = next(name for name, candidate in _ACTIVATION_TYPES.items() if candidate is kind)
    return Agent(spec, Network.from_state(algorithm, model.policy.state_dict(), activation), training)
