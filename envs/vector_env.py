"""The Gymnasium vector environment: N simulations at once, driven by one Python process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from bbrgym.envs.action import Action
from bbrgym.envs.engine import Engine
from bbrgym.envs.episode import AnyScenario, Episodes, Outcome
from bbrgym.envs.gym_env import DEFAULT_SCENARIO, spec_of_one_agent
from bbrgym.envs.observation import Observation
from bbrgym.envs.reward import Reward


class BottleneckVectorEnv(VectorEnv[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[Any]]):
    """`num_envs` times `BottleneckEnv`, computed together.

    Observations, rewards and ends of episodes are computed for all environments at once, and so do the engines work.
    With "native" one batch of simulations runs on several threads (`engine_options={"threads": …}`). With "ns3" each
    environment has a process of its own, and every request goes to all of them before the first answer is waited for.
    Either way the trajectories are those of single environments that are reset with `seed`, `seed + 1`, …, to the last
    bit. Infos are batched as Gymnasium does it; their rows (`flow`, `link`) are made when they are looked at.

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
        self._episodes = Episodes(spec, num_envs)
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
        try:
            self._episodes.begin_resets(np.arange(self.num_envs), self._rngs, [options] * self.num_envs)
            observations = self._episodes.finish_resets()
        except BaseException:
            self._abandon()
            raise
        self._is_over[:] = False
        return observations, self._episodes.record().batch()

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
        infos: dict[str, Any] = {}
        # With NEXT_STEP, an environment whose episode ended before is reset instead of stepped.
        resetting = np.flatnonzero(self._is_over)
        self._episodes.begin_step(actions, np.flatnonzero(~self._is_over) if len(resetting) else None)
        try:
            if len(resetting):
                self._begin_resets(resetting)
            outcome = self._episodes.finish_step()
            observations, record = outcome.observations, outcome.record
            is_over = outcome.terminated | outcome.truncated
            if self._is_same_step:
                ended = np.flatnonzero(is_over)
                if len(ended):
                    infos = self._final_infos(outcome, is_over)
                    self._begin_resets(ended)
                    observations[ended] = self._episodes.finish_resets()
                    record = self._episodes.record()
            else:
                self._is_over = is_over
        except BaseException:
            self._abandon()
            raise
        return observations, outcome.rewards, outcome.terminated, outcome.truncated, infos | record.batch()

    def close_extras(self, **kwargs: Any) -> None:
        """End the engines."""
        self._episodes.close()

    def _begin_resets(self, indices: npt.NDArray[np.intp]) -> None:
        self._episodes.begin_resets(indices, [self._rngs[index] for index in indices])

    def _final_infos(self, outcome: Outcome, is_over: npt.NDArray[np.bool_]) -> dict[str, Any]:
        observations = np.full(self.num_envs, None, dtype=object)
        for index in np.flatnonzero(is_over):
            observations[index] = outcome.observations[index].copy()
        return {
            "final_obs": observations,
            "_final_obs": is_over,
            "final_info": outcome.record.batch(is_over),
            "_final_info": is_over,
        }

    def _abandon(self) -> None:
        self._is_over[:] = False
        self._episodes.abandon()
