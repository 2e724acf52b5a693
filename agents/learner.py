"""The learning algorithms of Stable-Baselines3, made from plain configurations. Importing it loads torch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

from stable_baselines3 import SAC
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv

from bbrgym.agents.actor import ACTIVATION_TYPES
from bbrgym.agents.ppo import RolloutPPO
from bbrgym.agents.replay import FlowReplayBuffer
from bbrgym.agents.wrappers import ScaleReward, StandardiseObservation
from bbrgym.baselines.policy_file import ACTIVATIONS
from bbrgym.checks import check_integer, check_keys, check_name, check_number

LEARNERS: Final[dict[str, type[BaseAlgorithm]]] = {"ppo": RolloutPPO, "sac": SAC}
"""The learners by the names of `bbrgym.agents.config.ALGORITHMS`."""

RESERVED: Final = frozenset(
    {"self", "policy", "env", "seed", "verbose", "tensorboard_log", "stats_window_size", "_init_setup_model"}
    # Networks and buffers that an exported agent or a checkpoint would not have.
    | {"use_sde", "sde_sample_freq", "use_sde_at_warmup", "optimize_memory_usage"}
    | {"action_noise", "rollout_buffer_class", "rollout_buffer_kwargs", "replay_buffer_class", "replay_buffer_kwargs"}
)
"""Arguments of the learners that a configuration cannot set."""


def learner_arguments(algorithm: str) -> list[str]:
    """Return the arguments of a learner that a configuration can set."""
    learner = LEARNERS[algorithm]
    # Of a replay buffer, `n_steps` would need the steps of each flow one after the other.
    reserved = RESERVED | ({"n_steps"} if issubclass(learner, OffPolicyAlgorithm) else set())
    return [name for name in inspect.signature(learner.__init__).parameters if name not in reserved]


def make_model(agent: Mapping[str, Any], env: VecEnv, seed: int) -> BaseAlgorithm:
    """Make a learner.

    Args:
        agent: `algorithm`, and arguments of its constructor, as conf/agent has them; `policy_kwargs.activation_fn` is
            a name, and `learning_rate` a number, or `{first, last}` for a linear schedule over `train.total_steps`.
        env: the training environment.
        seed: of its weights and of everything random in it and its environments.

    Raises:
        ValueError: an argument that the learner does not take.
    """
    arguments = dict(agent)
    algorithm = arguments.pop("algorithm")
    learner = LEARNERS[algorithm]
    check_keys(f"agent {algorithm!r}", arguments, learner_arguments(algorithm))
    for name, parameter in inspect.signature(learner.__init__).parameters.items():
        if type(parameter.default) is int and isinstance(arguments.get(name), float):
            arguments[name] = check_integer(f"agent.{name}", arguments[name])
    policy_arguments = dict(arguments.get("policy_kwargs") or {})
    activation = policy_arguments.get("activation_fn", "tanh" if algorithm == "ppo" else "relu")
    check_name("activation_fn", activation, ACTIVATIONS)
    policy_arguments["activation_fn"] = ACTIVATION_TYPES[activation]
    arguments["policy_kwargs"] = policy_arguments
    env = StandardiseObservation(env)
    if isinstance(arguments.get("learning_rate"), Mapping):
        arguments["learning_rate"] = _linear(arguments["learning_rate"])
    if issubclass(learner, OffPolicyAlgorithm):
        arguments["replay_buffer_class"] = FlowReplayBuffer
    else:
        env = ScaleReward(env, float(arguments.get("gamma", 0.99)))
    try:
        return learner("MlpPolicy", env, seed=seed, verbose=0, **arguments)
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
