"""The Gymnasium vector environment: N simulations at once, in the engine's batch form."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.utils import seeding
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import batch_space

from bbrgym.checks import check_integer, check_name
from bbrgym.envs.engine import OneThread, in_one_thread
from bbrgym.envs.episode import Episodes, StepResult
from bbrgym.envs.episode_spec import AnyScenario
from bbrgym.envs.gym_env import DEFAULT_SCENARIO, HasSpec, one_agent_options, one_agent_spec
from bbrgym.envs.info import Info, Record
from bbrgym.envs.render import agent_text, check_render_mode, draw_agent
from bbrgym.envs.scenario import Scenario

try:
    from gymnasium.vector import AutoresetMode
except ImportError as missing:
    raise ImportError(
        f"the vector environment needs gymnasium>=1.1, got {gymnasium.__version__}; with that, use Gymnasium's own: "
        'gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make("bbrgym/Bottleneck-v1")] * 4)'
    ) from missing


class BottleneckVectorEnv(HasSpec, VectorEnv[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[Any]]):
    """`num_envs` environments like `BottleneckEnv`, computed together.

    Observations, rewards and ends of episodes are computed for all environments at once, and the engines work at the
    same time. With "native" one batch of simulations runs on several threads (`engine_options={"threads": …}`). With
    "ns3" each environment has its own process, and every request is sent to all of them before the first answer is
    waited for. The trajectories are bit-identical to those of single environments that are reset with `seed`,
    `seed + 1`, …. The attribute `scenarios` has the episodes' scenarios.

    An engine that fails ends the episode of its own environment alone: it is truncated, with the last observation, a
    reward of 0 and the reason in `infos["engine_error"]` (in `final_info` with "SameStep"), and its autoreset starts
    the engine afresh.

        gymnasium.make_vec("bbrgym/Bottleneck-v1", num_envs=4, vectorization_mode="vector_entry_point", scenario=…)

    Args:
        num_envs: how many.
        scenario: as of `BottleneckEnv`.
        render_mode: None, "ansi" or "rgb_array", as of `BottleneckEnv`.
        autoreset_mode: when an environment whose episode has ended starts the next one, as Gymnasium defines it: in the
            next step, which ignores the action and has reward 0 ("NextStep"), or in the same step, whose last
            observation and info are then `final_obs` and `final_info` ("SameStep"); or only when it is told to
            ("Disabled"), by `reset(options={"reset_mask": mask})`.
        has_infos: whether infos have what those of `BottleneckEnv` have, batched as in Gymnasium's own vector
            environments: `infos["rtt_mean_ms"]` has shape (num_envs,). Without, they have only `final_obs` and
            `final_info`.
        max_episode_steps: truncate episodes after this many steps, as Gymnasium's `TimeLimit` does; None: do not.
        other_agents: as of `BottleneckEnv`.
        parts: as of `BottleneckEnv`.

    Raises:
        ValueError: an argument is bad; the message names the bad value and the good ones.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012  # declared so in VectorEnv
        "render_modes": ["ansi", "rgb_array"],
        "render_fps": 10,
    }

    def __init__(
        self,
        num_envs: int = 1,
        scenario: AnyScenario = DEFAULT_SCENARIO,
        *,
        render_mode: str | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        has_infos: bool = False,
        max_episode_steps: int | None = None,
        other_agents: str | None = "bbr",
        **parts: Any,
    ) -> None:
        self.closed = True  # Gymnasium before 1.3 closes it when it is deleted, even if making it failed
        num_envs = check_integer("num_envs", num_envs, at_least=1)
        check_integer("max_episode_steps", max_episode_steps, at_least=1, or_none=True)
        check_render_mode(render_mode, self.metadata["render_modes"])
        mode = autoreset_mode.value if isinstance(autoreset_mode, AutoresetMode) else autoreset_mode
        known = {m.value: m for m in AutoresetMode}
        check_name("autoreset_mode", mode, known)
        spec = one_agent_spec(scenario, other_agents, **parts)
        self._other_agents = other_agents
        self.num_envs = num_envs
        self.render_mode = render_mode
        self.autoreset_mode = known[mode]
        self.metadata = self.metadata | {"autoreset_mode": known[mode]}
        self.single_observation_space = spec.observation.space
        self.single_action_space = spec.action.space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._has_infos = has_infos
        self._one_thread = OneThread()
        self._episodes = Episodes(spec, num_envs, is_healing=True)
        self._rngs = [seeding.np_random()[0] for _ in range(num_envs)]
        self._is_over = np.zeros(num_envs, dtype=np.bool_)
        self._max_steps = math.inf if max_episode_steps is None else max_episode_steps
        self._steps = np.zeros(num_envs, dtype=np.int64)
        # Per environment: of the whole episode if it is to be drawn, else of the last step.
        self._drawn: list[list[Info]] = [[] for _ in range(num_envs)]
        self.closed = False

    @property
    def scenarios(self) -> tuple[Scenario, ...]:
        """The scenarios of the episodes, one per environment.

        Raises:
            gymnasium.error.ResetNeeded: there was no reset.
        """
        return self._episodes.scenarios

    @in_one_thread
    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.float32], dict[str, Any]]:
        """Start an episode in every environment.

        Args:
            seed: `seed + i` for environment i; or a list with one seed (or None) for each; None keeps their random
                generators.
            options: as of `BottleneckEnv.reset`, the same for all; and `reset_mask`, an array of num_envs bools, to
                reset only these. The others continue; their observations are the last ones, and they have no infos.

        Returns:
            Observations of shape (num_envs, length of an observation), and infos as Gymnasium batches them.

        Raises:
            gymnasium.error.ResetNeeded: `reset_mask` leaves out an environment that was never reset.
            ValueError: a list of seeds of another length, a bad `reset_mask`, or an unknown option.
            EngineError: engines could not start it; the message says which, and why. Those that died before are
                started afresh.
        """
        seeds: Sequence[int | None] | None = [seed + i for i in range(self.num_envs)] if isinstance(seed, int) else seed
        if seeds is None:
            seeds = [None] * self.num_envs
        elif len(seeds) != self.num_envs:
            raise ValueError(f"seed must have {self.num_envs} seeds, one per environment, got {seed!r}")
        mask, given = self._reset_mask(one_agent_options(options, self._other_agents))
        chosen = np.flatnonzero(mask)
        for index in chosen.tolist():
            if (one := seeds[index]) is not None:
                self._rngs[index] = seeding.np_random(one)[0]
        try:
            rngs = [self._rngs[index] for index in chosen]
            self._episodes.begin_resets(chosen, rngs, [given] * len(chosen))
            self._episodes.finish_resets()
        except BaseException:
            self._abandon()
            raise
        self._is_over[chosen] = False
        self._steps[chosen] = 0
        record = self._episodes.record()
        self._keep_for_render(record, chosen.tolist(), chosen)
        return self._episodes.last_observations.copy(), self._infos(record, mask)

    @in_one_thread
    def step(
        self, actions: npt.NDArray[np.float32]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], dict[str, Any]]:
        """Simulate a step in every environment.

        Args:
            actions: shape (num_envs, 2). Those of environments that start their next episode are ignored ("NextStep"),
                and may be NaN.

        Returns:
            Observations, rewards, terminated, truncated, all with num_envs rows, and infos as Gymnasium batches them.

        Raises:
            gymnasium.error.ResetNeeded: there was no reset, or none since an engine failed.
            ValueError: an action that is not two numbers; the message names the first environment whose action is NaN.
            EngineError: an engine failed five times in a row; all episodes are lost, and `reset` starts afresh.
        """
        infos: dict[str, Any] = {}
        # With NEXT_STEP, an environment whose episode ended before is reset instead of stepped.
        resetting = begun = np.flatnonzero(self._is_over)
        if len(resetting) and self.autoreset_mode is AutoresetMode.DISABLED:
            raise gymnasium.error.ResetNeeded(
                f"environments {resetting.tolist()} have ended: call reset(options={{'reset_mask': …}}) before step"
            )
        self._act(actions, resetting)
        try:
            if len(resetting):
                self._begin_resets(resetting)
            result = self._episodes.finish_step()
            observations, record = result.observations, result.record
            self._steps += 1
            self._steps[begun] = 0
            truncated = result.truncated | (self._steps >= self._max_steps)
            is_over = result.terminated | truncated
            if self.autoreset_mode is AutoresetMode.SAME_STEP:
                begun = np.flatnonzero(is_over)
                self._steps[begun] = 0
                if len(begun):
                    infos = self._final_infos(result, is_over)
                    self._begin_resets(begun)
                    observations[begun] = self._episodes.finish_resets()
                    record = self._episodes.record()
            else:
                self._is_over = is_over
                infos = self._reasons(result)
        except BaseException:
            self._abandon()
            raise
        self._keep_for_render(record, range(self.num_envs), begun)
        return observations, result.rewards, result.terminated, truncated, infos | self._infos(record)

    def render(self) -> tuple[Any, ...] | None:
        """Return a line of text ("ansi") or a picture of shape (400, 600, 3), uint8 ("rgb_array") per environment.

        Without a `render_mode`, and before the first reset, return None. After a step that started a new episode
        ("SameStep"), its environment shows the new one.
        """
        if self.render_mode is None or not all(self._drawn):
            return None
        if self.render_mode == "ansi":
            return tuple(agent_text(infos[-1]) for infos in self._drawn)
        return tuple(
            draw_agent(infos, scenario.duration_s) for infos, scenario in zip(self._drawn, self.scenarios, strict=True)
        )

    @in_one_thread
    def close_extras(self, **kwargs: Any) -> None:
        """End the engines."""
        self._episodes.close()

    def _reset_mask(self, options: Mapping[str, Any] | None) -> tuple[npt.NDArray[np.bool_], Mapping[str, Any] | None]:
        """Return which environments a reset is for, and its other options."""
        everything = np.ones(self.num_envs, dtype=np.bool_)
        if not isinstance(options, Mapping) or "reset_mask" not in options:
            return everything, options
        mask = options["reset_mask"]
        is_good = isinstance(mask, np.ndarray) and mask.shape == everything.shape and mask.dtype == np.bool_
        if not is_good or not mask.any():
            raise ValueError(
                f"options['reset_mask'] must be an array of {self.num_envs} bools, not all of them False, got {mask!r}"
            )
        if not (mask | self._episodes.has_begun).all():
            raise gymnasium.error.ResetNeeded("options['reset_mask'] leaves out an environment that was never reset")
        return mask, {name: value for name, value in options.items() if name != "reset_mask"}

    def _act(self, actions: npt.NDArray[np.float32], resetting: npt.NDArray[np.intp]) -> None:
        """Begin a step with these actions in the environments that are not reset."""
        stepped, used = None, np.asarray(actions, dtype=np.float64)
        has_good_shape = used.shape == self.action_space.shape
        if len(resetting):
            stepped = np.flatnonzero(~self._is_over)
            if has_good_shape:
                used = used.copy()
                used[resetting] = 0.0  # they are ignored, and may be NaN
        try:
            self._episodes.act(used, stepped)
        except ValueError:
            bad = np.flatnonzero(np.isnan(used).any(axis=-1))
            if not (has_good_shape and len(bad)):
                raise
            more = f", and NaN for {len(bad) - 1} more" if len(bad) > 1 else ""
            raise ValueError(
                f"actions must be numbers in [-1, 1], got {used[bad[0]].tolist()} for environment {bad[0]}{more}"
            ) from None

    def _begin_resets(self, indices: npt.NDArray[np.intp]) -> None:
        self._episodes.begin_resets(indices, [self._rngs[index] for index in indices], is_autoreset=True)

    def _final_infos(self, result: StepResult, is_over: npt.NDArray[np.bool_]) -> dict[str, Any]:
        observations = np.full(self.num_envs, None, dtype=object)
        for index in np.flatnonzero(is_over):
            observations[index] = result.observations[index].copy()
        return {
            "final_obs": observations,
            "_final_obs": is_over,
            "final_info": self._infos(result.record, is_over) | self._reasons(result),
            "_final_info": is_over,
        }

    def _reasons(self, result: StepResult) -> dict[str, Any]:
        infos: dict[str, Any] = {}
        for name, reasons in (("engine_error", result.errors), ("engine_flaw", result.flaws)):
            if reasons:
                texts = np.full(self.num_envs, None, dtype=object)
                texts[[*reasons]] = [*reasons.values()]
                infos |= {name: texts, f"_{name}": texts != None}  # noqa: E711  # element by element
        return infos

    def _infos(self, record: Record, engines: npt.NDArray[np.bool_] | None = None) -> dict[str, Any]:
        if not self._has_infos:
            return {}
        return record.batch(None if engines is None or engines.all() else engines)

    def _keep_for_render(self, record: Record, changed: Iterable[int], begun: npt.NDArray[np.intp]) -> None:
        """Keep what `render` needs of a step or reset.

        Args:
            record: of all environments.
            changed: the environments that were stepped or reset.
            begun: those of them that began an episode.
        """
        if self.render_mode is None:
            return
        infos, has_begun = record.infos(), set(begun.tolist())
        for index in changed:
            if self.render_mode == "ansi" or index in has_begun:
                self._drawn[index].clear()
            self._drawn[index].append(infos[index])

    def _abandon(self) -> None:
        self._is_over[:] = False
        self._episodes.abandon()
