"""The learning itself: from a checked configuration to agents and checkpoints in a folder. Importing it loads torch."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from gymnasium.utils import seeding
from rich.console import Console
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import VecMonitor

from bbrgym.agents.callbacks import (
    EVALUATION_SEED,
    CheckpointCallback,
    EngineFailureCallback,
    EvaluationCallback,
    ProgressCallback,
    TimeLimitCallback,
    TrackerWriter,
)
from bbrgym.agents.checkpoint import TrainingState, remove_partial, restart_from_seed, restore_latest, save_checkpoint
from bbrgym.agents.config import EXPERIMENT, TrainConfig
from bbrgym.agents.imitation import prepare
from bbrgym.agents.learner import make_model
from bbrgym.agents.mlflow_view import run_name
from bbrgym.agents.tracking import Tracker, read_metrics, read_run
from bbrgym.baselines.policy_file import FOLDERS
from bbrgym.envs.engine import EngineError
from bbrgym.envs.episode import EpisodeSpec
from bbrgym.envs.sb3_env import SharedPolicyVecEnv
from bbrgym.extras import optional
from bbrgym.overrides import command

LOGGER = logging.getLogger(__name__)


def check_learner(config: Mapping[str, Any], spec: EpisodeSpec, training: TrainConfig) -> None:
    """Make a learner as `run_training` does, and discard it.

    Raises:
        ValueError: the learner refuses its configuration.
    """
    with _environment(spec, training) as env:
        make_model(config["agent"], env, int(config.get("seed", 1)))
    training.make_teacher(spec.observation, spec.action)


def run_training(
    config: Mapping[str, Any],
    spec: EpisodeSpec,
    training: TrainConfig,
    directory: Path,
    console: Console,
    is_resumed: bool,
) -> tuple[int, float | None]:
    """Train, or resume from the newest checkpoint, as `bbrgym.agents.train.train` describes.

    Args:
        config: of which `agent`, `seed` and `tracking` are used here.
        spec: made from it.
        training: made from it.
        directory: the run's folder.
        console: shows progress.
        is_resumed: continue the run in the folder, from its newest checkpoint if it has one.

    Returns:
        The steps made in all, and the reward of the best evaluation, None if there is none.

    Raises:
        ValueError: the learner refuses its configuration, there is nothing left to do, or the folder is in use.
        EngineError: engines failed too often.
    """
    algorithm, seed = config["agent"]["algorithm"], int(config.get("seed", 1))
    with _environment(spec, training) as env:
        model = make_model(config["agent"], env, seed)
        logger = Logger(folder=None, output_formats=[])
        model.set_logger(logger)
        restored = restore_latest(model, directory) if is_resumed else None
        state = restored or TrainingState()
        record = read_run(directory)
        is_finished = record is not None and record["status"] == "FINISHED"  # else it was killed before its end
        if model.num_timesteps >= training.total_steps and is_finished:
            raise ValueError(
                f"train.total_steps must be > {model.num_timesteps}, the steps that '{directory}' already has, "
                f"got {training.total_steps}"
            )
        with (
            _lock(directory),
            Tracker.start(
                *(directory, EXPERIMENT, run_name(config, algorithm, [seed]), config),
                config=config.get("tracking"),
                resume=is_resumed,
            ) as tracker,
            closing(EvaluationCallback(spec, algorithm, training, directory, tracker, console, state)) as evaluation,
            closing(ProgressCallback(training.total_steps, console)) as progress,
        ):
            remove_partial(directory)
            tracker.log_scenarios("training scenarios", "training", spec.distribution.to_dict())
            tracker.log_scenarios(
                "evaluation episodes", "evaluation", _evaluation_episodes(spec, training.eval_episodes)
            )
            logger.output_formats.append(TrackerWriter(tracker, state))
            failures = EngineFailureCallback(training, tracker, state)
            callbacks: list[BaseCallback] = [
                failures,
                evaluation,
                CheckpointCallback(directory, training.checkpoint_every, seed, state),
                TimeLimitCallback(training.max_minutes),
                progress,
            ]
            has_begun = restored is not None
            try:
                while (failed := _learn(model, spec, callbacks, training, seed, state, has_begun)) is not None:
                    has_begun = True
                    failures.log(failed, model.num_timesteps)
                    if state.engine_failures > training.engine_failures:
                        raise EngineError(
                            f"training stopped after {model.num_timesteps} steps and {state.engine_failures} engine "
                            f"failures, the last one: {failed}\n"
                            f"Resume it with `{command('bbrgym train', {'train.resume': directory})} "
                            "train.engine_failures=…`."
                        ) from failed
            except EngineError:  # after an interrupt there may be half an update, which no checkpoint must have
                save_checkpoint(model, directory, state)
                raise
            save_checkpoint(model, directory, state)
            _draw_curve(directory, tracker)
            saved = [directory / folder for folder in FOLDERS if (directory / folder).is_dir()]
            for folder in saved:
                tracker.log_artifact(folder, folder.name)
            tracker.log_agent(saved[0])
    return model.num_timesteps, state.best_reward


def _environment(spec: EpisodeSpec, training: TrainConfig) -> closing[VecMonitor]:
    flows = SharedPolicyVecEnv(spec, training.n_envs, training.critic_features)
    return closing(VecMonitor(flows))


def _learn(
    model: BaseAlgorithm,
    spec: EpisodeSpec,
    callbacks: list[BaseCallback],
    training: TrainConfig,
    seed: int,
    state: TrainingState,
    has_begun: bool,
) -> EngineError | None:
    """Learn until the end, or until an engine fails, whose error is returned."""
    has_replay_buffer = hasattr(model, "replay_buffer")
    try:
        if not state.is_prepared:
            # With the failures, so that the episode that made an engine fail is not repeated.
            teacher = training.make_teacher(spec.observation, spec.action)
            prepare(model, teacher, training.prepare_steps, seed + state.engine_failures)
            model.set_random_seed(seed)
            state.is_prepared = True
        if training.teacher is not None and has_replay_buffer:
            model.learning_starts = 0  # the teacher's steps are in the buffer, so no random actions are needed
        if has_begun:
            restart_from_seed(model, seed, state)
        model.learn(
            training.total_steps - model.num_timesteps,
            callback=callbacks,
            log_interval=4 if has_replay_buffer else 1,  # episodes; rollouts
            reset_num_timesteps=not has_begun,
        )
    except EngineError as error:
        state.engine_failures += 1
        return error
    return None


def _evaluation_episodes(spec: EpisodeSpec, count: int) -> list[dict[str, Any]]:
    """Return the engine seed and the scenario of each evaluation episode, drawn as the environment does."""
    episodes = []
    for episode in range(count):
        rng = seeding.np_random(EVALUATION_SEED + episode * spec.agents)[0]
        scenario = spec.distribution.sample(rng).to_dict()
        episodes.append({"seed": int(rng.integers(1, 2**31)), "scenario": scenario})
    return episodes


@contextmanager
def _lock(directory: Path) -> Iterator[None]:
    """Keep other processes from training in a folder; the lock ends with this process, however it ends."""
    directory.mkdir(parents=True, exist_ok=True)
    lock = FileLock(directory / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ValueError(
            f"another process is training in '{directory}': wait for it to end, or use another folder (output_dir=…)"
        ) from None
    try:
        yield
    finally:
        lock.release()


def _draw_curve(directory: Path, tracker: Tracker) -> None:
    try:
        with optional("the training curve"):
            from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        LOGGER.warning("%s", error)
        return
    # Steps that were repeated after a kill count once, by the later line, which led to the result.
    learned: dict[int, float] = {}
    evaluated: dict[int, float] = {}
    for line in read_metrics(directory):
        metrics = line["metrics"]
        if "rollout/ep_rew_mean" in metrics:
            learned[line["step"]] = metrics["rollout/ep_rew_mean"] / metrics["rollout/ep_len_mean"]
        if "eval/reward" in metrics:
            evaluated[line["step"]] = metrics["eval/reward"]
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for points, style, color, label in (
        (learned, "-", "#0072b2", "training, exploring"),
        (evaluated, "o-", "#d55e00", "evaluation"),
    ):
        axes.plot(sorted(points), [points[step] for step in sorted(points)], style, color=color, label=label)
    axes.set(xlabel="steps (decisions of all flows)", ylabel="mean reward per decision", title=directory.name)
    axes.grid(alpha=0.3)
    axes.legend()
    tracker.log_figure(figure, "training_curve.png")
