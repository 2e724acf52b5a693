"""The Stable-Baselines3 VecEnv: every agent flow of N engines is one of its environments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.utils import seeding

from bbrgym._controllers import PolicyNetwork
from bbrgym.checks import check_integer
from bbrgym.envs.engine import OneThread, in_one_thread
from bbrgym.envs.episode import Episodes
from bbrgym.envs.episode_spec import EpisodeSpec, check_spec
from bbrgym.envs.info import Info, Record
from bbrgym.envs.rollouts import Rollout, begin_episodes, roll
from bbrgym.envs.scenario import Scenario
from bbrgym.extras import optional

with optional("the Stable-Baselines3 VecEnv"):
    from stable_baselines3.common.vec_env import VecEnv


STEP_KEYS: Final = ("TimeLimit.truncated", "took_part", "has_ended")
"""Keys of each info of a step: the time limit alone ended its episode, the flow took part in it, the flow has ended."""


class SharedPolicyVecEnv(VecEnv):  # type: ignore[misc]  # Stable-Baselines3 is not analysed, see pyproject.toml
    """N engines with K agent flows each, as N x K environments that share one policy.

    Environment `i * K + k` is the k-th agent flow of engine i. A scenario with several agent flows thus trains one
    policy that competes with itself. The episodes of an engine's flows start and end together; a flow that has not
    started or has ended has a neutral observation and reward 0. With K = 1 the trajectories are those of
    `BottleneckEnv`. As Stable-Baselines3 requires, the step that ends an episode starts the next one, with
    `terminal_observation` and `TimeLimit.truncated` in its info. Each info also says whether the flow `took_part` in
    the step, and whether it `has_ended`. As in `BottleneckVectorEnv`, everything is computed for all environments at
    once. The attribute `scenarios` has the episodes' scenarios.

    An engine that fails ends the episodes of its own environments alone: they are truncated, with the last
    observations, rewards of 0 and the reason in `info["engine_error"]`, and the next episode starts the engine afresh.

    Engine i is seeded with the seed of its first environment, `seed + i * K` after `seed(seed)`.

    Args:
        spec: what the environments are made of.
        n_engines: how many engines work at once.
        has_infos: whether infos also have what those of `BottleneckEnv` have.

    Raises:
        ValueError: `n_engines` < 1.
    """

    def __init__(self, spec: EpisodeSpec, n_engines: int = 1, *, has_infos: bool = False) -> None:
        n_engines = check_integer("n_engines", n_engines, at_least=1)
        self.episode_spec = check_spec(spec)  # not `spec`, which Stable-Baselines3 takes for Gymnasium's
        self.agents = spec.agents
        self._one_thread = OneThread()
        self._episodes = Episodes(spec, n_engines, is_healing=True)
        self._rngs = [seeding.np_random()[0] for _ in range(n_engines)]
        self._has_infos = has_infos
        self._record: Record | None = None
        super().__init__(n_engines * spec.agents, spec.observation.space, spec.action.space)

    @property
    def scenarios(self) -> tuple[Scenario, ...]:
        """The scenarios of the episodes, one per engine.

        Raises:
            gymnasium.error.ResetNeeded: there was no reset.
        """
        return self._episodes.scenarios

    @property
    def record(self) -> Record:
        """What the last step measured, before episodes that began with it; or the last reset.

        Raises:
            gymnasium.error.ResetNeeded: there was no reset.
        """
        if self._record is None:
            raise gymnasium.error.ResetNeeded("nothing was measured yet: call reset first")
        return self._record

    @in_one_thread
    def reset(self) -> npt.NDArray[np.float32]:
        """Start an episode in every engine.

        Returns:
            Observations, shape (num_envs, length of an observation); the infos are `reset_infos`.

        Raises:
            EngineError: engines could not start it; the message says which, and why. Those that died before are
                started afresh.
        """
        seeds, options = self._seeds[:: self.agents], self._options[:: self.agents]
        self._reset_seeds()  # they are for one reset, also if it fails
        self._reset_options()
        for index, seed in enumerate(seeds):
            if seed is not None:
                self._rngs[index] = seeding.np_random(seed)[0]
        try:
            self._episodes.begin_resets(np.arange(len(self._rngs)), self._rngs, options)
            observations = self._episodes.finish_resets()
        except BaseException:
            self._episodes.abandon()
            raise
        self._record = self._episodes.record()
        self.reset_infos = self._infos(self._record)
        return observations

    @in_one_thread
    def step_async(self, actions: npt.NDArray[np.float32]) -> None:
        """Ask every engine for a step.

        Args:
            actions: shape (num_envs, 2).

        Raises:
            gymnasium.error.ResetNeeded: there was no reset, or none since an engine failed.
            ValueError: an action that is not two numbers.
        """
        self._episodes.act(actions)

    @in_one_thread
    def step_wait(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.bool_], list[Info]]:
        """Wait for the step.

        Returns:
            Observations, rewards and dones with num_envs rows, and one info per environment.

        Raises:
            EngineError: an engine failed five times in a row; all episodes are lost, and `reset` starts afresh.
        """
        result = self._episodes.finish_step()
        self._record = result.record
        observations, infos = result.observations, self._infos(result.record)
        is_over = result.terminated | result.truncated
        terminated, truncated = self._episodes.flow_endings(result)
        columns = (result.truncated.repeat(self.agents), result.record.took_part, terminated | truncated)
        for info, *flags in zip(infos, *(column.tolist() for column in columns), strict=True):
            info |= dict(zip(STEP_KEYS, flags, strict=True))
        for engine, error in result.errors.items():
            for info in infos[engine * self.agents : (engine + 1) * self.agents]:
                info["engine_error"] = error
        for engine, flaw in result.flaws.items():
            for info in infos[engine * self.agents : (engine + 1) * self.agents]:
                info["engine_flaw"] = flaw
        dones = is_over.repeat(self.agents)
        if is_over.any():
            engines, rows = np.flatnonzero(is_over), np.flatnonzero(dones)
            for row in rows:
                infos[row]["terminal_observation"] = observations[row].copy()
            observations[rows] = begin_episodes(self._episodes, self._rngs, engines)
            if self._has_infos:
                begun = self._infos(self._episodes.record())
                for row in rows:
                    self.reset_infos[row] = begun[row]
        return observations, result.rewards.astype(np.float32), dones, infos

    @property
    def can_roll(self) -> bool:
        """Whether `rollout` works: with the engine "native"."""
        return self._episodes.can_roll

    @in_one_thread
    def rollout(self, noise: npt.NDArray[np.float32], policy: PolicyNetwork | None = None) -> Rollout:
        """Make many steps in C++, which gives the same, to the last bit, as `step` with these actions.

        `record` is that of the last step or reset of each engine afterwards.

        Args:
            noise: shape (T, M, 2): added to the policy's actions; the actions themselves without a policy.
            policy: acts upon the observations (`bbrgym.agents.policy.Agent.compiled`).

        Raises:
            gymnasium.error.ResetNeeded: there was no reset.
            ValueError: noise of another shape, or that is not finite; or the policy takes observations of another
                length, or its actions are NaN.
        """
        if not self.can_roll:
            raise ValueError(f"only the engine 'native' makes rollouts, got {self.episode_spec.engine!r}")
        noise = np.asarray(noise, dtype=np.float32)
        if noise.ndim != 3 or not len(noise):
            raise ValueError(f"noise must be finite, of shape (steps, {self.num_envs}, 2), got shape {noise.shape}")
        rollout = roll(self._episodes, self._rngs, noise, policy)
        self._record = self._episodes.record()
        return rollout

    def _infos(self, record: Record) -> list[Info]:
        return record.infos() if self._has_infos else [{} for _ in range(self.num_envs)]

    @in_one_thread
    def close(self) -> None:
        """End the engines; calling it twice is fine."""
        self._episodes.close()

    def get_attr(self, attr_name: str, indices: int | Sequence[int] | None = None) -> list[Any]:
        """Return an attribute of the `EpisodeSpec`, once per environment."""
        value = None if attr_name == "render_mode" else getattr(self.episode_spec, attr_name)
        return [value for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: int | Sequence[int] | None = None) -> None:
        """Raise AttributeError: a specification does not change."""
        raise AttributeError(f"{attr_name!r} cannot be set: make an environment of another EpisodeSpec")

    def env_method(
        self, method_name: str, *method_args: Any, indices: int | Sequence[int] | None = None, **method_kwargs: Any
    ) -> list[Any]:
        """Call a method of the `EpisodeSpec`, once per environment."""
        method = getattr(self.episode_spec, method_name)
        return [method(*method_args, **method_kwargs) for _ in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: type[Any], indices: int | Sequence[int] | None = None) -> list[bool]:
        """Return False for each: there are no wrappers."""
        return [False for _ in self._get_indices(indices)]
