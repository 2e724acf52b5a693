"""Soft actor-critic (Haarnoja et al. 2018), of Stable-Baselines3, in the training loop. Importing it loads torch."""

from __future__ import annotations

import inspect
import math
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from stable_baselines3 import SAC
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import KVWriter, Logger
from stable_baselines3.common.save_util import load_from_zip_file, recursive_getattr
from stable_baselines3.common.type_aliases import TrainFreq
from stable_baselines3.common.vec_env import VecEnv, VecMonitor

from bbrgym.agents.actor import ACTIVATION_TYPES, actor_network
from bbrgym.agents.callbacks import Callbacks, Learner
from bbrgym.agents.checkpoint import TrainingState
from bbrgym.agents.inputs import INPUT_EPISODES, input_rngs, measure_inputs
from bbrgym.agents.policy import Agent
from bbrgym.agents.replay import FlowReplayBuffer
from bbrgym.agents.wrappers import StandardiseObservation
from bbrgym.baselines.policy_file import ACTIVATIONS
from bbrgym.checks import check_integer, check_keys, check_name
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.envs.sb3_env import SharedPolicyVecEnv

ARGUMENTS: Final = tuple(
    name
    for name in inspect.signature(SAC.__init__).parameters
    if name
    not in {
        "self",
        "policy",
        "env",
        "seed",
        "verbose",
        "tensorboard_log",
        "stats_window_size",
        "_init_setup_model",
        # Networks and buffers that an exported agent or a checkpoint would not have.
        "use_sde",
        "sde_sample_freq",
        "use_sde_at_warmup",
        "optimize_memory_usage",
        "action_noise",
        "replay_buffer_class",
        "replay_buffer_kwargs",
        "n_steps",  # would need the steps of each flow one after the other
    }
)
"""Arguments of Stable-Baselines3's SAC that a configuration can set."""

_REPLAY: Final = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")


class SACLearner(Learner):
    """See `bbrgym.agents.callbacks.Learner`.

    Its checkpoints have Stable-Baselines3's `model.zip`, `inputs.npz` (`StandardiseObservation`), `replay.npz`, and
    counters and the statistics to be logged next.

    Raises:
        ValueError: the learner refuses its configuration.
    """

    def __init__(self, agent: Mapping[str, Any], spec: EpisodeSpec, engines: int, seed: int) -> None:
        self._spec = spec
        self._seed = seed
        self._has_begun = False
        self._env = VecMonitor(SharedPolicyVecEnv(spec, engines))
        try:
            self.model = make_model(agent, self._env, seed)
        except BaseException:
            self._env.close()
            raise
        self.model.set_logger(Logger(folder=None, output_formats=[]))

    @property
    def steps(self) -> int:
        """Decisions learned from, of all flows."""
        return int(self.model.num_timesteps)

    @property
    def has_learned(self) -> bool:
        """Whether there was a gradient step."""
        return bool(self.model._n_updates > 0)

    def learn(self, total_steps: int, callbacks: Callbacks) -> None:
        """See `Learner`."""
        model, state = self.model, callbacks.state
        has_begun, self._has_begun = self._has_begun, True
        inputs = StandardiseObservation.of(model)
        if not inputs.is_fitted:
            # With the failures, so that the episode that made an engine fail is not repeated.
            entropy = [self._seed, state.engine_failures]
            rngs = input_rngs(entropy, INPUT_EPISODES)
            inputs.fit(*measure_inputs(self._spec, rngs))
        if has_begun:
            self.restart(self._seed, state)
        model.logger.output_formats[:] = [_LogWriter(callbacks)]
        model.learn(
            total_steps - model.num_timesteps,
            callback=_Callback(self, callbacks, total_steps),
            log_interval=4,  # episodes
            reset_num_timesteps=not has_begun,
        )

    def agent(self) -> Agent:
        """See `Learner`."""
        return export_agent(self.model, self._spec)

    def restart(self, seed: int, state: TrainingState) -> None:
        """Seed every random generator from the seed, the steps and the failures so far, and begin new episodes.

        This happens after saving a checkpoint and after restoring one, so that training continues identically in both
        cases; generators need not be saved then, which is not possible for those of Python and the engines.

        Raises:
            EngineError: an engine could not begin an episode.
        """
        model = self.model
        # With the failures, so that the episode that made an engine fail is not repeated.
        entropy = [seed, model.num_timesteps, state.engine_failures]
        mixed = int(np.random.SeedSequence(entropy).generate_state(1)[0]) >> 1  # below 2^31
        model.set_random_seed(mixed)
        model._last_obs = model.env.reset()

    def save(self, folder: Path) -> dict[str, Any]:
        """See `Restorable`."""
        model = self.model
        model.save(folder / "model.zip")
        inputs = StandardiseObservation.of(model)
        np.savez(folder / "inputs.npz", mean=inputs.mean, scale=inputs.scale)
        _save_replay(model, folder / "replay.npz")
        return {
            "updates": model._n_updates,
            "episodes": model._episode_num,
            "returns_and_lengths": [[float(episode["r"]), int(episode["l"])] for episode in model.ep_info_buffer or ()],
            "not_yet_logged": _numbers(model.logger.name_to_value),
        }

    def restore(self, folder: Path, description: Mapping[str, Any]) -> None:
        """See `Restorable`."""
        model = self.model
        # Tensors only (torch.load with weights_only): the rest is a pickle of what follows from the configuration.
        _, parameters, variables = load_from_zip_file(folder / "model.zip", device=model.device, load_data=False)
        model.set_parameters(parameters, exact_match=True, device=model.device)
        for name, value in (variables or {}).items():
            if value is not None:  # a learned entropy coefficient
                recursive_getattr(model, name).data = value.data
        with np.load(folder / "inputs.npz", allow_pickle=False) as saved:
            StandardiseObservation.of(model).fit(saved["mean"], saved["scale"])
        _load_replay(model, folder / "replay.npz")
        model.num_timesteps, model._n_updates, model._episode_num = (
            check_integer(name, description[name], at_least=0) for name in ("steps", "updates", "episodes")
        )
        # In the types of VecMonitor: a mean of other ones differs in the last digits.
        model.ep_info_buffer = deque(
            ({"r": np.float32(total), "l": np.int32(length)} for total, length in description["returns_and_lengths"]),
            maxlen=model._stats_window_size,
        )
        model.ep_success_buffer = deque(maxlen=model._stats_window_size)
        for name, value in description["not_yet_logged"].items():
            model.logger.record(name, float(value))
        self._has_begun = True

    def close(self) -> None:
        """See `Learner`."""
        self._env.close()


def make_model(agent: Mapping[str, Any], env: VecEnv, seed: int) -> SAC:
    """Make Stable-Baselines3's SAC.

    Args:
        agent: `algorithm`, and arguments of its constructor, as conf/agent has them; `policy_kwargs.activation_fn` is
            a name.
        env: the training environment.
        seed: of its weights and of everything random in it and its environments.

    Raises:
        ValueError: an argument that the learner does not take.
    """
    arguments = dict(agent)
    algorithm = arguments.pop("algorithm")
    check_keys(f"agent {algorithm!r}", arguments, ARGUMENTS)
    for name, parameter in inspect.signature(SAC.__init__).parameters.items():
        if type(parameter.default) is int and isinstance(arguments.get(name), float | str):
            arguments[name] = check_integer(f"agent.{name}", arguments[name])
    policy_arguments = dict(arguments.get("policy_kwargs") or {})
    activation = policy_arguments.get("activation_fn", "relu")
    check_name("activation_fn", activation, ACTIVATIONS)
    arguments["policy_kwargs"] = policy_arguments | {"activation_fn": ACTIVATION_TYPES[activation]}
    arguments["replay_buffer_class"] = FlowReplayBuffer
    try:
        return SAC("MlpPolicy", StandardiseObservation(env), seed=seed, verbose=0, **arguments)
    except (AssertionError, TypeError, ValueError) as error:
        raise ValueError(f"agent {algorithm!r} refuses its arguments: {error}") from error


def export_agent(model: SAC, spec: EpisodeSpec) -> Agent:
    """Return the learner's present policy."""
    kind = model.policy_kwargs["activation_fn"]
    activation = next(name for name, candidate in ACTIVATION_TYPES.items() if candidate is kind)
    inputs = StandardiseObservation.of(model)
    network = actor_network("sac", model.policy.state_dict(), activation)
    return Agent(spec, network.with_standardised_inputs(inputs.mean, inputs.scale))


class _Callback(BaseCallback):  # type: ignore[misc]  # Stable-Baselines3 is not type-checked, see pyproject.toml
    """Calls the callbacks of the training, and counts engines that the environment starts afresh.

    The last rollout has fewer steps than `train_freq` if fewer are left.
    """

    def __init__(self, learner: SACLearner, callbacks: Callbacks, total_steps: int) -> None:
        super().__init__()
        self._learner = learner
        self._callbacks = callbacks
        self._total_steps = total_steps
        self._train_freq: TrainFreq = learner.model.train_freq

    def _on_training_start(self) -> None:
        self._shorten_next_rollout()
        self._callbacks.on_training_start(self._learner)

    def _on_rollout_end(self) -> None:
        self._shorten_next_rollout()

    def _shorten_next_rollout(self) -> None:
        left = math.ceil((self._total_steps - self.model.num_timesteps) / self.training_env.num_envs)
        if 0 < left < self._train_freq.frequency:
            self.model.train_freq = self._train_freq._replace(frequency=left)

    def _on_rollout_start(self) -> None:
        self._callbacks.on_rollout_start(self._learner)

    def _on_step(self) -> bool:
        flows = self.training_env.unwrapped.agents
        for info in self.locals["infos"][::flows]:
            if "engine_error" in info:
                self._callbacks.on_engine_failure(info["engine_error"], self.num_timesteps)
        return self._callbacks.on_step(self.num_timesteps)

    def _on_training_end(self) -> None:
        self.model.train_freq = self._train_freq
        self._callbacks.on_training_end(self._learner)


class _LogWriter(KVWriter):  # type: ignore[misc]  # Stable-Baselines3 is not type-checked, see pyproject.toml
    """Passes what Stable-Baselines3 logs to the tracker, under the same names."""

    def __init__(self, callbacks: Callbacks) -> None:
        self._callbacks = callbacks

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, Any], step: int = 0) -> None:
        """Log the numbers among the values."""
        metrics = _numbers(key_values)
        if "rollout/ep_rew_mean" in metrics:
            metrics["rollout/reward"] = metrics["rollout/ep_rew_mean"] / metrics["rollout/ep_len_mean"]
        self._callbacks.log_metrics(metrics, step)

    def close(self) -> None:
        """Do nothing: the tracker belongs to the caller."""


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items() if isinstance(value, int | float | np.number)}


def _save_replay(model: SAC, path: Path) -> None:
    buffer = model.replay_buffer
    size = buffer.buffer_size if buffer.full else buffer.pos
    np.savez(
        path,
        allow_pickle=False,
        position=np.array([buffer.pos, int(buffer.full)]),
        **{name: getattr(buffer, name)[:size] for name in _REPLAY},
    )


def _load_replay(model: SAC, path: Path) -> None:
    buffer = model.replay_buffer
    with np.load(path, allow_pickle=False) as saved:
        position, full = saved["position"].tolist()
        for name in _REPLAY:
            getattr(buffer, name)[: len(saved[name])] = saved[name]
    buffer.pos, buffer.full = position, bool(full)
