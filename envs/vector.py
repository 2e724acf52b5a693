"""The Gymnasium vector environment: N engines at work at once, driven by one Python process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from bbrgym.envs.action import Action
from bbrgym.envs.bottleneck import DEFAULT_SCENARIO, spec_of_one_agent
from bbrgym.envs.engine import Engine
from bbrgym.envs.episode import AnyScenario, Episode, Info, Outcome
from bbrgym.envs.observation import Observation
from bbrgym.envs.reward import Reward


class BottleneckVectorEnv(VectorEnv[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[Any]]):
    """`num_envs` times `BottleneckEnv`, with one engine each.

    Every request goes to all engines before the first answer is waited for. Engines are processes of their own, so
    they work at the same time without Python processes around them. The trajectories are those of single environments
    that are reset with `seed`, `seed + 1`, …, to the last bit.

        gymnasium.make_vec("bbrgym/Bottleneck-v0", num_envs=4, vectorization_mode="vector_entry_point", scenario=…)

    Args:
        num_envs: how many.
        scenario: see `BottleneckEnv`, as the arguments below.
        observation: what the agents see.
        action: the bounds of their gains.
        reward: what they are rewarded for.
        engine: an engine's name, or a callable that makes one.
        engine_options: arguments for making them.
        step_ms: length of a step, in ms.
        step_rtts: length of a step in base RTTs of the agent's flow, with `step_ms=None`.
        render_mode: only None.
        autoreset_mode: when an environment whose episode ended begins the next one, as Gymnasium defines it: with the
            next step, whose action it ignores and whose reward is 0 ("NextStep"), or with the same, whose last
            observation and info are then `final_obs` and `final_info` ("SameStep").

    Raises:
        ValueError: of any argument, naming the bad value and the good ones.
    """

    def __init__(
        self,
        num_envs: int = 1,
        scenario: AnyScenario = DEFAULT_SCENARIO,
        observation: Observation | None = None,
        action: Action | None = None,
        reward: Reward | None = None,
        engine: str | Callable[..., Engine] = "ns3",
        engine_options: Mapping[str, Any] | None = None,
        step_ms: float | None = 100.0,
        step_rtts: float | None = None,
        render_mode: None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    ) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs={num_envs!r} is not possible: num_envs must be at least 1")
        if render_mode is not None:
            raise ValueError(f"no render_mode {render_mode!r} for the vector environment; known: None")
        mode = autoreset_mode.value if isinstance(autoreset_mode, AutoresetMode) else autoreset_mode
        known = {m.value: m for m in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP)}
        if mode not in known:
            raise ValueError(f"no autoreset_mode {mode!r} here; known: {', '.join(known)}")
        spec = spec_of_one_agent(scenario, observation, action, reward, engine, engine_options, step_ms, step_rtts)
        self.num_envs = num_envs
        self.render_mode = None
        self.metadata = {"render_modes": [], "autoreset_mode": known[mode]}
        self.single_observation_space = spec.observation.space
        self.single_action_space = spec.action.space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._is_same_step = known[mode] is AutoresetMode.SAME_STEP
        self._episodes = [Episode(spec) for _ in range(num_envs)]
        self._rngs = [seeding.np_random()[0] for _ in range(num_envs)]
        self._is_over = np.zeros(num_envs, dtype=np.bool_)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        """Begin an episode everywhere.

        Args:
            seed: `seed + i` seeds environment i; or one seed each; None goes on with their random generators.
            options: of `BottleneckEnv.reset`, the same for all.

        Returns:
            Observations of shape (num_envs, length of an observation), and infos as Gymnasium batches them.

        Raises:
            ValueError: a list of seeds of another length, or an unknown option.
            EngineError: an engine could not begin it.
        """
        seeds = [seed + i for i in range(self.num_envs)] if isinstance(seed, int) else seed
        if seeds is not None:
            if len(seeds) != self.num_envs:
                raise ValueError(
                    f"seed={seed!r} is not possible: there must be {self.num_envs} seeds, one an environment"
                )
            for index, one in enumerate(seeds):
                if one is not None:
                    self._rngs[index] = seeding.np_random(one)[0]
        infos: dict[str, Any] = {}
        observations = np.empty(self.observation_space.shape or (), dtype=np.float32)
        try:
            self._begin_resets(range(self.num_envs), options)
            for index in range(self.num_envs):
                observations[index], info = self._finish_reset(index)
                infos = self._add_info(infos, info, index)
        except BaseException:
            self._abandon()
            raise
        self._is_over[:] = False
        return observations, infos

    def step(
        self, actions: npt.NDArray[np.float32]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], dict[str, Any]]:
        """Simulate a step everywhere.

        Args:
            actions: shape (num_envs, 2).

        Returns:
            Observations, rewards, terminated, truncated, all with num_envs rows, and infos as Gymnasium batches them.

        Raises:
            gymnasium.error.ResetNeeded: there was no reset, or an engine failed since.
            ValueError: an action that is not two numbers.
            EngineError: an engine failed; all episodes are lost, and `reset` begins afresh.
        """
        actions = np.asarray(actions)
        if actions.shape != (self.num_envs, 2) or np.isnan(actions).any():
            raise ValueError(
                f"actions={actions!r} are not possible: they must be numbers of shape ({self.num_envs}, 2)"
            )
        observations = np.empty(self.observation_space.shape or (), dtype=np.float32)
        rewards = np.zeros(self.num_envs)
        terminated, truncated = np.zeros((2, self.num_envs), dtype=np.bool_)
        infos: list[Info] = [{} for _ in range(self.num_envs)]
        finals: dict[int, Outcome] = {}
        # With NEXT_STEP, an environment whose episode ended before is reset instead of stepped.
        resetting = set() if self._is_same_step else set(np.flatnonzero(self._is_over).tolist())
        stepping = [index for index in range(self.num_envs) if index not in resetting]
        try:
            for index in stepping:
                self._episodes[index].begin_step(actions[index : index + 1])
            self._begin_resets(resetting)
            for index in stepping:
                outcome = self._episodes[index].finish_step()
                observations[index], infos[index] = outcome.observations[0], outcome.infos[0]
                rewards[index] = outcome.rewards[0]
                terminated[index], truncated[index] = outcome.terminated, outcome.truncated
                if outcome.is_over and self._is_same_step:
                    finals[index] = outcome
                    self._begin_resets([index])
            for index in (*resetting, *finals):
                observations[index], infos[index] = self._finish_reset(index)
        except BaseException:
            self._abandon()
            raise
        self._is_over = terminated | truncated
        batched: dict[str, Any] = {}
        for index, info in enumerate(infos):
            if index in finals:
                final = finals[index]
                last = {"final_obs": final.observations[0], "final_info": final.infos[0]}
                batched = self._add_info(batched, last, index)
            batched = self._add_info(batched, info, index)
        return observations, rewards, terminated, truncated, batched

    def close_extras(self, **kwargs: Any) -> None:
        """End the engines."""
        for episode in self._episodes:
            episode.close()

    def _begin_resets(
        self, indices: Sequence[int] | set[int] | range, options: Mapping[str, Any] | None = None
    ) -> None:
        for index in indices:
            self._episodes[index].begin_reset(self._rngs[index], options)

    def _finish_reset(self, index: int) -> tuple[npt.NDArray[np.float32], Info]:
        observations, infos = self._episodes[index].finish_reset()
        return observations[0], infos[0]

    def _abandon(self) -> None:
        self._is_over[:] = False
        for episode in self._episodes:
            episode.abandon()
