"""The learning algorithms of Stable-Baselines3, made from plain configurations. Importing it loads torch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from sb3_contrib import TQC, CrossQ, RecurrentPPO
from stable_baselines3 import SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.vec_env import VecEnv

from bbrgym.agents.actor import ACTIVATION_TYPES
from bbrgym.agents.critic import PRIVILEGED_POLICIES
from bbrgym.agents.ppo import RolloutPPO
from bbrgym.agents.replay import FlowReplayBuffer
from bbrgym.agents.wrappers import ScaleReward, StandardiseObservation
from bbrgym.baselines.policy_file import ACTIVATIONS
from bbrgym.checks import check_integer, check_keys, check_name, check_number

LEARNERS: Final[dict[str, tuple[type[BaseAlgorithm], str]]] = {
    "ppo": (RolloutPPO, "MlpPolicy"),
    "recurrent_ppo": (RecurrentPPO, "MlpLstmPolicy"),
    "sac": (SAC, "MlpPolicy"),
    "tqc": (TQC, "MlpPolicy"),
    "crossq": (CrossQ, "MlpPolicy"),
    "td3": (TD3, "MlpPolicy"),
}
"""The learner and its policy, by the names of `bbrgym.agents.config.ALGORITHMS`."""

RESERVED: Final = frozenset(
    {"self", "policy", "env", "seed", "verbose", "tensorboard_log", "stats_window_size", "_init_setup_model"}
    # Networks and buffers that an exported agent or a checkpoint would not have.
    | {"use_sde", "sde_sample_freq", "use_sde_at_warmup", "optimize_memory_usage"}
    | {"rollout_buffer_class", "rollout_buffer_kwargs", "replay_buffer_class", "replay_buffer_kwargs"}
)
"""Arguments of the learners that a configuration cannot set."""


def learner_arguments(algorithm: str) -> list[str]:
    """Return the arguments of a learner that a configuration can set."""
    learner = LEARNERS[algorithm][0]
    # Of a replay buffer, `n_steps` would need the steps of each flow one after the other.
    reserved = RESERVED | ({"n_steps"} if issubclass(learner, OffPolicyAlgorithm) else set())
    return [name for name in inspect.signature(learner.__init__).parameters if name not in reserved]


def make_model(agent: Mapping[str, Any], env: VecEnv, seed: int) -> BaseAlgorithm:
    """Make a learner.

    Args:
        agent: `algorithm`, and arguments of its constructor, as conf/agent has them; `policy_kwargs.activation_fn` is
            a name, `action_noise` a standard deviation, and `learning_rate` a number, or `{first, last}` for a linear
            schedule over `train.total_steps`.
        env: the training environment. If its observations are longer than its `EpisodeSpec`'s, the rest is for the
            critic.
        seed: of its weights and of everything random in it and its environments.

    Raises:
        ValueError: an argument that the learner does not take, or critic features for a learner without them.
    """
    arguments = dict(agent)
    algorithm = arguments.pop("algorithm")
    learner: type[BaseAlgorithm]
    policy: str | type[BasePolicy]
    learner, policy = LEARNERS[algorithm]
    check_keys(f"agent {algorithm!r}", arguments, learner_arguments(algorithm))
    for name, parameter in inspect.signature(learner.__init__).parameters.items():
        if type(parameter.default) is int and isinstance(arguments.get(name), float):
            arguments[name] = check_integer(f"agent.{name}", arguments[name])
    policy_arguments = dict(arguments.get("policy_kwargs") or {})
    activation = policy_arguments.get("activation_fn", "tanh" if "ppo" in algorithm else "relu")
    check_name("activation_fn", activation, ACTIVATIONS)
    policy_arguments["activation_fn"] = ACTIVATION_TYPES[activation]
    arguments["policy_kwargs"] = policy_arguments
    if arguments.get("action_noise") is not None:
        size = env.action_space.shape
        arguments["action_noise"] = NormalActionNoise(np.zeros(size), np.full(size, float(arguments["action_noise"])))
    actor_inputs = env.get_attr("observation")[0].space.shape[0]
    if env.observation_space.shape[0] > actor_inputs:
        if algorithm not in PRIVILEGED_POLICIES:
            able = ", ".join(PRIVILEGED_POLICIES)
            raise ValueError(f"train.critic_features needs an agent of {able}, got {algorithm!r}")
        policy = PRIVILEGED_POLICIES[algorithm]
        policy_arguments["actor_inputs"] = actor_inputs
    env = StandardiseObservation(env)
    if isinstance(arguments.get("learning_rate"), Mapping):
        arguments["learning_rate"] = _linear(arguments["learning_rate"])
    if issubclass(learner, OffPolicyAlgorithm):
        arguments["replay_buffer_class"] = FlowReplayBuffer
    else:
        env = ScaleReward(env, float(arguments.get("gamma", 0.99)))
    try:
        return learner(policy, env, seed=seed, verbose=0, **arguments)
    except (AssertionError, TypeError, ValueError) as error:
        raise ValueError(f"agent {algorithm!r} refuses its arguments: {error}") from error


def _linear(rates: Mapping[str, Any]) -> Callable[[float], float]:
    """Return a schedule of the fraction of the training that is left, from 1 to 0."""
    check_keys("agent.learning_rate", rates, ("first", "last"))
    for name in ("first", "last"):
        check_number(f"agent.learning_rate.{name}", rates.get(name), at_least=0)
    first, last = float(rates["first"]), float(rates["last"])
    # The last rollout may pass total_steps, and Stable-Baselines3's fraction is then below 0.
    return lambda left: last + (first - last) * max(left, 0.0)
