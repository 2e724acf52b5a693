"""The learning algorithms of Stable-Baselines3, made from plain configurations. Importing it loads torch."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Self

import numpy as np
from gymnasium import spaces
from sb3_contrib import RecurrentPPO
from stable_baselines3 import PPO, SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.vec_env import VecEnv, VecEnvWrapper
from torch import nn

from bbrgym.agents.critic import PRIVILEGED_POLICIES
from bbrgym.agents.policy import Agent
from bbrgym.baselines.policy_file import ACTIVATIONS, Array, Network
from bbrgym.checks import check_keys, check_name, check_number
from bbrgym.envs.episode import EpisodeSpec

LEARNERS: Final[dict[str, tuple[type[BaseAlgorithm], str]]] = {
    "ppo": (PPO, "MlpPolicy"),
    "recurrent_ppo": (RecurrentPPO, "MlpLstmPolicy"),
    "sac": (SAC, "MlpPolicy"),
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

_ACTIVATION_TYPES: Final[dict[str, type[nn.Module]]] = {"tanh": nn.Tanh, "relu": nn.ReLU}


def learner_arguments(algorithm: str) -> list[str]:
    """Return the arguments of a learner that a configuration can set."""
    return [name for name in inspect.signature(LEARNERS[algorithm][0].__init__).parameters if name not in RESERVED]


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
    policy_arguments = dict(arguments.get("policy_kwargs") or {})
    activation = policy_arguments.get("activation_fn", "tanh" if "ppo" in algorithm else "relu")
    check_name("activation_fn", activation, ACTIVATIONS)
    policy_arguments["activation_fn"] = _ACTIVATION_TYPES[activation]
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
    if "ppo" in algorithm:
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


class _Wrapper(VecEnvWrapper):  # type: ignore[misc]  # Stable-Baselines3 is not type-checked, see pyproject.toml
    @classmethod
    def of(cls, model: BaseAlgorithm) -> Self:
        """Return the wrapper of this class around a model's environment."""
        env = model.get_env()
        while not isinstance(env, cls):
            env = env.venv
        return env


class ScaleReward(_Wrapper):
    """Multiplies rewards by (1 - gamma), so that a return is a weighted mean of rewards, of about their size.

    PPO normalises advantages, so its policy learns the same. But its critic starts at 0 and moves by the learning rate:
    for returns of 1 / (1 - gamma) rewards it needs tens of thousands of steps to reach their size, and until then its
    large gradients take the policy's share of max_grad_norm. Unlike a running normalisation this has no state.

    Attributes:
        scale: the factor of rewards and returns.
    """

    def __init__(self, env: VecEnv, gamma: float) -> None:
        super().__init__(env)
        self.scale = np.float32(1.0 - gamma) if gamma < 1 else np.float32(1.0)

    def reset(self) -> Array:
        """Begin new episodes."""
        observations: Array = self.venv.reset()
        return observations

    def step_wait(self) -> tuple[Array, Array, Any, list[dict[str, Any]]]:
        """Wait for a step."""
        observations, rewards, dones, infos = self.venv.step_wait()
        return observations, rewards * self.scale, dones, infos


class StandardiseObservation(_Wrapper):
    """Subtracts the mean of each feature and divides by its standard deviation.

    Both are computed once, from observations made before learning (`fit`), and constant from then on, so that a weight
    means the same in the last update as in the first. Until `fit` they change nothing. A checkpoint stores them, and
    an exported agent has them folded into the weights of its first layer.

    Attributes:
        mean: shape (length of an observation,), float32.
        scale: 1 / standard deviation, same shape.
    """

    def __init__(self, env: VecEnv) -> None:
        space = env.observation_space
        unbounded = spaces.Box(-np.inf, np.inf, space.shape, np.float32)
        super().__init__(env, observation_space=unbounded)
        self.mean = np.zeros(space.shape, np.float32)
        self.scale = np.ones(space.shape, np.float32)

    def fit(self, observations: Array) -> None:
        """Compute the mean and the scale from observations of shape (n, length of an observation).

        A feature whose standard deviation is below 0.01 is only centred, so as not to amplify noise.
        """
        self.mean = observations.mean(axis=0, dtype=np.float64).astype(np.float32)
        deviation = observations.std(axis=0, dtype=np.float64)
        self.scale = np.where(deviation < 0.01, 1.0, 1.0 / np.maximum(deviation, 0.01)).astype(np.float32)

    def standardise(self, observations: Array) -> Array:
        """Return the observations as the learner sees them."""
        return (observations - self.mean) * self.scale

    def reset(self) -> Array:
        """Begin new episodes."""
        return self.standardise(self.venv.reset())

    def step_wait(self) -> tuple[Array, Array, Any, list[dict[str, Any]]]:
        """Wait for a step."""
        observations, rewards, dones, infos = self.venv.step_wait()
        for index in np.flatnonzero(dones):
            infos[index]["terminal_observation"] = self.standardise(infos[index]["terminal_observation"])
        return self.standardise(observations), rewards, dones, infos


def export_agent(model: BaseAlgorithm, algorithm: str, spec: EpisodeSpec, training: Mapping[str, Any]) -> Agent:
    """Return the learner's present policy as an `Agent`."""
    kind = model.policy_kwargs["activation_fn"]
    activation = next(name for name, candidate in _ACTIVATION_TYPES.items() if candidate is kind)
    network = actor_network(algorithm, model.policy.state_dict(), activation)
    inputs = StandardiseObservation.of(model)
    own = slice(network.inputs)  # the values behind are the critic's
    return Agent(spec, network.with_standardised_inputs(inputs.mean[own], inputs.scale[own]), training)


def actor_network(algorithm: str, state: Mapping[str, Any], activation: str) -> Network:
    """Return the actor of a Stable-Baselines3 policy.

    Args:
        algorithm: of `LEARNERS`.
        state: `model.policy.state_dict()`.
        activation: of the hidden layers.
    """
    arrays = {name: np.array(tensor.cpu().numpy(), dtype=np.float32) for name, tensor in state.items()}
    hidden, last, output = _ACTORS[algorithm]
    prefixes = [name.removesuffix(".weight") for name in arrays if re.fullmatch(hidden, name)]
    prefixes.sort(key=lambda prefix: int(prefix.rsplit(".", 1)[1]))
    prefixes += [last] if last else []
    lstm: list[tuple[Array, Array, Array]] = []
    while f"lstm_actor.weight_ih_l{len(lstm)}" in arrays:
        of_input, of_state, bias_1, bias_2 = (
            arrays[f"lstm_actor.{name}_l{len(lstm)}"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        lstm.append((of_input, of_state, bias_1 + bias_2))
    layers = tuple((arrays[f"{prefix}.weight"], arrays[f"{prefix}.bias"]) for prefix in prefixes)
    return Network(layers, tuple(lstm), activation, output)


_ACTORS: Final[dict[str, tuple[str, str | None, str]]] = {
    "ppo": (r"mlp_extractor\.policy_net\.\d+\.weight", "action_net", "clip"),
    "recurrent_ppo": (r"mlp_extractor\.policy_net\.\d+\.weight", "action_net", "clip"),
    "sac": (r"actor\.latent_pi\.\d+\.weight", "actor.mu", "tanh"),
    "td3": (r"actor\.mu\.\d+\.weight", None, "tanh"),
}
"""By algorithm: names of its actor's layers in Stable-Baselines3, of a last layer apart from them, and the output."""
