"""The learning algorithms of Stable-Baselines3, from plain configurations. Importing it loads torch."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt
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
            a name, `action_noise` a standard deviation, and `learning_rate` a number, or `{first, last}` of a line over
            `train.total_steps`.
        env: in which it learns. If its observations are longer than its `EpisodeSpec`'s, the rest is for the critic.
        seed: of its weights and of everything random in it and its environments.

    Raises:
        ValueError: an argument that the learner does not take, or a critic's features for one that cannot have them.
    """
    arguments = dict(agent)
    algorithm = arguments.pop("algorithm")
    learner: type[BaseAlgorithm]
    policy: str | type[BasePolicy]
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
    actor_inputs = env.get_attr("observation")[0].space.shape[0]
    if env.observation_space.shape[0] > actor_inputs:
        if algorithm not in PRIVILEGED_POLICIES:
            raise ValueError(
                f"agent {algorithm!r} cannot have train.critic_features; the ones that can: "
                f"{', '.join(PRIVILEGED_POLICIES)}"
            )
        policy = PRIVILEGED_POLICIES[algorithm]
        policy_arguments["actor_inputs"] = actor_inputs
    env = Standardised(env)
    if isinstance(arguments.get("learning_rate"), Mapping):
        arguments["learning_rate"] = _linear(arguments["learning_rate"])
    if "ppo" in algorithm:
        env = UnitReturns(env, float(arguments.get("gamma", 0.99)))
    try:
        return learner(policy, env, seed=seed, verbose=0, **arguments)
    except (AssertionError, TypeError, ValueError) as error:
        raise ValueError(f"agent {algorithm!r} refuses its arguments: {error}") from error


def _linear(rates: Mapping[str, Any]) -> Callable[[float], float]:
    """A schedule from the part of the training that is left, 1 to 0."""
    good = rates.keys() == {"first", "last"} and all(
        isinstance(rate, int | float) and not isinstance(rate, bool) and 0 <= rate < math.inf for rate in rates.values()
    )
    if not good:
        raise ValueError(
            f"learning_rate={dict(rates)!r} is not possible: give a number of at least 0, or {{first: …, last: …}}"
        )
    first, last = float(rates["first"]), float(rates["last"])
    # The last rollout may go beyond the end, and Stable-Baselines3's part that is left then below 0.
    return lambda left: last + (first - last) * max(left, 0.0)


class _Wrapper(VecEnvWrapper):  # type: ignore[misc]  # Stable-Baselines3 is not analysed, see pyproject.toml
    @classmethod
    def of(cls, model: BaseAlgorithm) -> Self:
        """The one around a model's environment."""
        env = model.get_env()
        while not isinstance(env, cls):
            env = env.venv
        return env


class UnitReturns(_Wrapper):
    """Rewards times (1 - gamma), so that a return is a weighted mean of rewards and not a sum of some 1 / (1 - gamma).

    PPO normalises advantages, so this changes nothing for its policy; but its critic, that begins at 0 and moves by
    the learning rate, otherwise needs tens of thousands of steps until it has found the returns' size, and their large
    gradients take the policy's share of max_grad_norm meanwhile. Unlike a running normalisation it has no state.

    Attributes:
        scale: what rewards, and so returns, are multiplied by.
    """

    def __init__(self, env: VecEnv, gamma: float) -> None:
        super().__init__(env)
        self.scale = np.float32(1.0 - gamma) if gamma < 1 else np.float32(1.0)

    def reset(self) -> npt.NDArray[np.float32]:
        """Begin new episodes."""
        observations: npt.NDArray[np.float32] = self.venv.reset()
        return observations

    def step_wait(
        self,
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.bool_], list[dict[str, Any]]]:
        """Wait for a step."""
        observations, rewards, dones, infos = self.venv.step_wait()
        return observations, rewards * self.scale, dones, infos


class Standardised(_Wrapper):
    """Observations less their mean, over their standard deviation, feature by feature.

    Both are set once, from observations before learning (`fit`), and constant from then on, so that a weight means the
    same in the last update as in the first; until then they change nothing. A checkpoint has them, and an exported
    agent has them in the weights of its first layer.

    Attributes:
        mean: shape (length of an observation,), float32.
        scale: 1 / standard deviation, likewise.
    """

    def __init__(self, env: VecEnv) -> None:
        space = env.observation_space
        unbounded = spaces.Box(-np.inf, np.inf, space.shape, np.float32)
        super().__init__(env, observation_space=unbounded)
        self.mean = np.zeros(space.shape, np.float32)
        self.scale = np.ones(space.shape, np.float32)

    def fit(self, observations: npt.NDArray[np.float32]) -> None:
        """Take the mean and the standard deviation from these, shape (n, length of an observation).

        A feature that varies less than a hundredth is only centred: noise is not blown up.
        """
        self.mean = observations.mean(axis=0, dtype=np.float64).astype(np.float32)
        deviation = observations.std(axis=0, dtype=np.float64)
        self.scale = np.where(deviation < 0.01, 1.0, 1.0 / np.maximum(deviation, 0.01)).astype(np.float32)

    def standardise(self, observations: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """The observations as the learner sees them."""
        return (observations - self.mean) * self.scale

    def reset(self) -> npt.NDArray[np.float32]:
        """Begin new episodes."""
        return self.standardise(self.venv.reset())

    def step_wait(
        self,
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.bool_], list[dict[str, Any]]]:
        """Wait for a step."""
        observations, rewards, dones, infos = self.venv.step_wait()
        for index in np.flatnonzero(dones):
            infos[index]["terminal_observation"] = self.standardise(infos[index]["terminal_observation"])
        return self.standardise(observations), rewards, dones, infos


def export_agent(model: BaseAlgorithm, algorithm: str, spec: EpisodeSpec, training: Mapping[str, Any]) -> Agent:
    """The learner's present policy as an `Agent`."""
    kind = model.policy_kwargs["activation_fn"]
    activation = next(name for name, candidate in _ACTIVATION_TYPES.items() if candidate is kind)
    network = actor_network(algorithm, model.policy.state_dict(), activation)
    inputs = Standardised.of(model)
    own = slice(network.inputs)  # what is behind is the critic's
    return Agent(spec, network.with_standardised_inputs(inputs.mean[own], inputs.scale[own]), training)


def actor_network(algorithm: str, state: Mapping[str, Any], activation: str) -> Network:
    """Return the actor of a Stable-Baselines3 policy.

    Args:
        algorithm: `ppo`, `recurrent_ppo`, `sac` or `td3`.
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
