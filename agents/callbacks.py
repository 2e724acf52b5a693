"""What happens during learning: evaluations, checkpoints, a time limit, progress, and logging."""

from __future__ import annotations

import logging
import math
import time
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import KVWriter

from bbrgym.agents.actor import export_agent
from bbrgym.agents.checkpoint import TrainingState, restart_from_seed, save_checkpoint
from bbrgym.agents.config import TrainConfig
from bbrgym.agents.policy import Agent
from bbrgym.agents.provenance import source_tags
from bbrgym.agents.tracking import Tracker
from bbrgym.envs.columns import LINK_COLUMNS
from bbrgym.envs.engine import EngineError
from bbrgym.envs.episode import EpisodeSpec
from bbrgym.envs.sb3_env import SharedPolicyVecEnv, check_engines

LOGGER = logging.getLogger(__name__)

EVALUATION_SEED: Final = 2**32
"""Seed of the first evaluation episode. Training seeds are below it, so no episode is in both."""


class EvaluationCallback(BaseCallback):  # type: ignore[misc]  # Stable-Baselines3 is not type-checked, see pyproject.toml
    """Evaluates the agent before the first step, every `eval_every` steps, and at the end, in the same episodes.

    Saves `<directory>/best`, the agent with the highest mean reward of those that have learned, and
    `<directory>/final`, the last one. An agent without a gradient step is no result of the training: it is evaluated,
    but is never the best. The metric `best/reward` is the reward of the best agent so far.

    Args:
        spec: of the environment.
        algorithm: the learner's name.
        training: its `eval_every`, `eval_episodes` and `n_envs` are used.
        directory: the run's folder.
        tracker: gets the metrics.
        console: gets a line per evaluation.
        state: of the training, updated here.
    """

    def __init__(
        self,
        spec: EpisodeSpec,
        algorithm: str,
        training: TrainConfig,
        directory: Path,
        tracker: Tracker,
        console: Console,
        state: TrainingState,
    ) -> None:
        super().__init__()
        self._state = state
        self._spec = spec
        self._algorithm = algorithm
        self._training = training
        self._directory = directory
        self._tracker = tracker
        self._console = console
        self._made_with = {name: value for name, value in source_tags().items() if name != "host"}
        self._env = SharedPolicyVecEnv(spec, min(training.n_envs, training.eval_episodes))

    def close(self) -> None:
        """Close the evaluation engines."""
        self._env.close()

    def _on_rollout_start(self) -> None:
        evaluated_at = self._state.evaluated_at
        if evaluated_at is None or self.model.num_timesteps - evaluated_at >= self._training.eval_every:
            self._evaluate()

    def _on_training_end(self) -> None:
        agent = self._evaluate()
        agent.save(self._directory / "final")

    def _on_step(self) -> bool:
        return True

    def _evaluate(self) -> Agent:
        steps = self.model.num_timesteps
        agent = export_agent(self.model, self._algorithm, self._spec, {})
        self._state.evaluated_at = steps
        reward = None
        try:
            metrics = evaluate_agent(agent, self._env, self._training.eval_episodes)
        except EngineError as error:
            # The same episodes would fail again, so training continues without this evaluation.
            LOGGER.warning("the evaluation after %d steps failed and is skipped: %s", steps, error)
            self._tracker.log_metrics({"eval/engine_failures": 1.0}, steps)
        else:
            reward = metrics["eval/reward"]
            self._tracker.log_metrics(metrics, steps)
        agent.training = {
            **{"algorithm": self._algorithm, "steps": steps, "seed": self.model.seed, "reward": reward},
            "made_with": self._made_with,
        }
        if reward is None:
            return agent
        best = self._state.best_reward
        is_best = self.model._n_updates > 0 and (best is None or reward > best)
        if is_best:
            best = self._state.best_reward = reward
            agent.save(self._directory / "best")
        if best is not None:
            self._tracker.log_metrics({"best/reward": best}, steps)
        self._console.print(
            f"{steps} steps: evaluation reward per decision {reward:.3f}, utilisation "
            f"{metrics['eval/utilisation']:.0%}, queue {metrics['eval/queue_ms']:.1f} ms{', best' if is_best else ''}",
            highlight=False,
            soft_wrap=True,
        )
        return agent


def evaluate_agent(agent: Agent, env: SharedPolicyVecEnv, episodes: int) -> dict[str, float]:
    """Run the first `episodes` evaluation episodes, which are always the same.

    Returns:
        `eval/reward`: mean over episodes and flows of the mean reward per decision; `eval/reward_std`: their standard
        deviation; `eval/utilisation` and `eval/queue_ms`: means over episodes and steps.

    Raises:
        EngineError: an engine failed.
    """
    flows = env.agents
    engines = env.num_envs // flows
    rewards: list[float] = []
    links: list[npt.NDArray[np.float64]] = []
    for first in range(0, episodes, engines):
        env.seed(EVALUATION_SEED + first * flows)
        agent.reset()
        observations = env.reset()
        # Engines beyond the last episode run too, but do not count.
        is_running = np.arange(env.num_envs) < (episodes - first) * flows
        total = np.zeros(env.num_envs)
        count = np.zeros(env.num_envs)
        while is_running.any():
            observations, reward, dones, infos = env.step(agent.predict(observations))
            check_engines(infos)
            total += np.where(is_running, reward, 0.0)
            count += is_running
            links.append(env.record.link[is_running[::flows]])
            is_running &= ~dones
        rewards += (total[count > 0] / count[count > 0]).tolist()
    link = dict(zip(LINK_COLUMNS, np.concatenate(links).mean(axis=0).tolist(), strict=True))
    return {
        "eval/reward": float(np.mean(rewards)),
        "eval/reward_std": float(np.std(rewards)),
        "eval/utilisation": link["utilisation"],
        "eval/queue_ms": link["queue_mean_ms"],
    }


class EngineFailureCallback(BaseCallback):  # type: ignore[misc]  # Stable-Baselines3 is not type-checked, see pyproject.toml
    """Counts the engines that fail in training steps. The environment starts them afresh, and training continues.

    Args:
        training: its `engine_failures` is the limit; the error of one more is raised, uncounted.
        tracker: gets the count.
        state: of the training, updated here.
    """

    def __init__(self, training: TrainConfig, tracker: Tracker, state: TrainingState) -> None:
        super().__init__()
        self._training = training
        self._tracker = tracker
        self._state = state

    def _on_step(self) -> bool:
        flows = self.training_env.unwrapped.agents
        for info in self.locals["infos"][::flows]:
            if "engine_error" in info:
                if self._state.engine_failures >= self._training.engine_failures:
                    raise EngineError(info["engine_error"])
                self._state.engine_failures += 1
                self.log(info["engine_error"], self.num_timesteps)
        return True

    def log(self, error: object, steps: int) -> None:
        """Log a failure that was counted."""
        self._tracker.log_metrics({"time/engine_failures": self._state.engine_failures}, steps)
        LOGGER.warning(
            "an engine failed after %d steps (failure %d, at most %d are allowed): %s",
            *(steps, self._state.engine_failures, self._training.engine_failures, error),
        )


class CheckpointCallback(BaseCallback):  # type: ignore[misc]  # Stable-Baselines3 is not type-checked, see pyproject.toml
    """Saves a checkpoint before the first rollout that begins `every` or more steps after the last one.

    Args:
        directory: the run's folder.
        every: steps.
        seed: of the training.
        state: of the training.
    """

    def __init__(self, directory: Path, every: int, seed: int, state: TrainingState) -> None:
        super().__init__()
        self._directory = directory
        self._every = every
        self._seed = seed
        self._state = state
        self._saved_at = 0

    def _on_training_start(self) -> None:
        self._saved_at = self.model.num_timesteps

    def _on_rollout_start(self) -> None:
        if self.model.num_timesteps - self._saved_at >= self._every:
            self._saved_at = self.model.num_timesteps
            save_checkpoint(self.model, self._directory, self._state)
            restart_from_seed(self.model, self._seed, self._state)

    def _on_step(self) -> bool:
        return True


class TimeLimitCallback(BaseCallback):  # type: ignore[misc]  # Stable-Baselines3 is not type-checked, see pyproject.toml
    """Ends training after `minutes` of wall-clock time; None for no limit."""

    def __init__(self, minutes: float | None) -> None:
        super().__init__()
        self._deadline_s = math.inf if minutes is None else time.monotonic() + 60 * minutes

    def _on_step(self) -> bool:
        return time.monotonic() < self._deadline_s


class ProgressCallback(BaseCallback):  # type: ignore[misc]  # Stable-Baselines3 is not type-checked, see pyproject.toml
    """Shows a progress bar on a terminal."""

    def __init__(self, total_steps: int, console: Console) -> None:
        super().__init__()
        self._bar = Progress(
            TextColumn("training"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("training", total=total_steps)

    def _on_training_start(self) -> None:
        self._bar.start()

    def _on_step(self) -> bool:
        self._bar.update(self._task, completed=self.num_timesteps)
        return True

    def close(self) -> None:
        """Remove the bar from the terminal."""
        self._bar.stop()


class TrackerWriter(KVWriter):  # type: ignore[misc]  # Stable-Baselines3 is not type-checked, see pyproject.toml
    """Passes what Stable-Baselines3 logs to a tracker, under the same names.

    Args:
        tracker: gets the metrics.
        state: of the training: Stable-Baselines3 counts iterations from 1 in every part of a resumed training.
    """

    def __init__(self, tracker: Tracker, state: TrainingState) -> None:
        self._tracker = tracker
        self._state = state

    def write(self, key_values: dict[str, Any], key_excluded: dict[str, Any], step: int = 0) -> None:
        """Log the numbers among the values."""
        numbers = {name: float(v) for name, v in key_values.items() if isinstance(v, int | float | np.number)}
        if "time/iterations" in numbers:
            self._state.iterations += 1
            numbers["time/iterations"] = self._state.iterations
        self._tracker.log_metrics(numbers, step)

    def close(self) -> None:
        """Do nothing: the tracker belongs to the caller."""
