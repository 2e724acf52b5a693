"""The learning itself: from a checked configuration to agents and checkpoints in a folder."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from rich.console import Console

from bbrgym.agents.callbacks import PROCESSOR, Callbacks, Learner, evaluation_draws, logged_processor_s
from bbrgym.agents.checkpoint import TrainingState, remove_partial, restore_latest
from bbrgym.agents.config import EXPERIMENT, CurriculumConfig, DistilConfig, PPOConfig, SearchConfig, TrainConfig
from bbrgym.agents.curriculum import Breaks, Curriculum
from bbrgym.agents.provenance import run_name
from bbrgym.agents.tracking import Tracker, forget_metrics, read_run
from bbrgym.agents.yardsticks import Measure, Yardstick
from bbrgym.baselines.policy_file import FOLDERS, decisions_of, read_policy
from bbrgym.checks import read_record
from bbrgym.envs.engine import EngineError
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.extras import optional
from bbrgym.overrides import command

LOGGER = logging.getLogger(__name__)


def check_learner(config: Mapping[str, Any], spec: EpisodeSpec, training: TrainConfig) -> None:
    """Make a learner as `run_training` does, and discard it."""
    make_learner(config, spec, training).close()


def make_learner(config: Mapping[str, Any], spec: EpisodeSpec, training: TrainConfig) -> Learner:
    """Make a learner; the caller closes it.

    Raises:
        ValueError: the learner refuses its configuration.
    """
    agent, seed = config["agent"], int(config.get("seed", 1))
    if agent["algorithm"] == "cma":
        from bbrgym.agents.search import WeightSearch

        return WeightSearch(SearchConfig(**agent), spec, seed)
    _prepare_threads(training.torch_threads)
    if agent["algorithm"] == "distil":
        from bbrgym.agents.distil import Distillation

        return Distillation(DistilConfig(**agent), spec, seed)
    if agent["algorithm"] == "sac":
        from bbrgym.agents.sac import SACLearner

        return SACLearner(agent, spec, training.n_envs, seed)
    from bbrgym.agents.ppo import PPO

    return PPO(PPOConfig(**agent), spec, training.n_envs, seed)


def _prepare_threads(threads: int) -> None:
    """Keep torch from spinning on cores that the engines need, which slows training many times over."""
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))  # read when torch is loaded
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    import torch

    torch.set_num_threads(threads)


def run_training(
    config: Mapping[str, Any],
    spec: EpisodeSpec,
    training: TrainConfig,
    directory: Path,
    console: Console,
    is_resumed: bool,
    measure: Measure | None = None,
    breaks: Breaks | None = None,
) -> tuple[int, float | None, bool, Sequence[Yardstick]]:
    """Train, or resume from the newest checkpoint, as `bbrgym.agents.train.train` describes.

    Returns:
        The steps made in all, the score of the best evaluation, None if there is none, whether the training is
        complete, and the yardsticks.

    Raises:
        ValueError: the learner refuses its configuration, there is nothing left to do, or the folder is in use.
        EngineError: engines failed too often.
    """
    algorithm, tunes = config["agent"]["algorithm"], config["agent"].get("tunes")
    seed = int(config.get("seed", 1))
    curriculum = _make_curriculum(config, spec, breaks)
    learned = spec if curriculum is None else curriculum.on(spec)
    with closing(make_learner(config, learned, training)) as learner, _lock(directory):
        state = (restore_latest(learner, directory) if is_resumed else None) or TrainingState(logged_bytes=0)
        if curriculum is not None and state.curriculum is not None:
            curriculum.restore(state.curriculum)
        record = read_run(directory)
        is_finished = record is not None and record["status"] == "FINISHED"  # else it was killed before its end
        if _has_ended(learner) and is_finished:
            raise ValueError(f"the training in '{directory}' is complete: there is nothing left to learn")
        if learner.steps >= training.total_steps and is_finished:
            raise ValueError(
                f"train.total_steps must be > {learner.steps}, the steps that '{directory}' already has, "
                f"got {training.total_steps}"
            )
        forget_metrics(directory, state.logged_bytes, learner.steps, still=(PROCESSOR,) if is_resumed else ())
        with (
            Tracker.start(
                directory,
                experiment=EXPERIMENT,
                run_name=run_name(config, algorithm, [seed]),
                params=config,
                config=config.get("tracking"),
                resume=is_resumed,
            ) as tracker,
            ExitStack() as stack,
        ):
            yardsticks = _measure(measure, spec, training.eval_episodes, console)
            callbacks = stack.enter_context(
                closing(
                    Callbacks(
                        spec,
                        algorithm=algorithm,
                        training=training,
                        directory=directory,
                        seed=seed,
                        tracker=tracker,
                        console=console,
                        state=state,
                        yardsticks=yardsticks,
                        curriculum=curriculum,
                        earlier_steps=0 if tunes is None else decisions_of(read_policy(tunes).training),
                        earlier_s=logged_processor_s(directory),
                    )
                )
            )
            remove_partial(directory)
            tracker.log_scenarios("training scenarios", "training", spec.distribution.to_dict())
            tracker.log_scenarios(
                "evaluation episodes", "evaluation", evaluation_episodes(spec, training.eval_episodes)
            )
            try:
                while (failed := _learn(learner, training.total_steps, callbacks)) is not None:
                    callbacks.log_engine_failure(failed, learner.steps)
                    if state.engine_failures > training.engine_failures:
                        raise EngineError(
                            f"training stopped after {learner.steps} steps and {state.engine_failures} engine "
                            f"failures, the last one: {failed}\n"
                            f"Resume it with `{command('bbrgym train', {'train.resume': directory})} "
                            "train.engine_failures=…`."
                        ) from failed
            except EngineError:  # after an interrupt there may be half an update, which no checkpoint must have
                callbacks.save(learner)
                raise
            callbacks.save(learner)
            _draw_curve(directory, tracker, callbacks.score, yardsticks)
            saved = [directory / folder for folder in FOLDERS if (directory / folder).is_dir()]
            for folder in saved:
                tracker.log_artifact(folder, folder.name)
            tracker.log_agent(saved[0])
        is_complete = _has_ended(learner) or learner.steps >= training.total_steps
    return learner.steps, state.best_score, is_complete, yardsticks


def _make_curriculum(config: Mapping[str, Any], spec: EpisodeSpec, breaks: Breaks | None) -> Curriculum | None:
    if not config.get("curriculum"):
        return None
    if breaks is None:
        raise ValueError(
            "a curriculum needs what breaks the agent: give breaks=bbrgym.benchmark.breaking.curriculum.Breaker()"
        )
    chosen = read_record(CurriculumConfig, "curriculum", config["curriculum"])
    return Curriculum(chosen, spec, breaks, int(config.get("seed", 1)))


def _measure(measure: Measure | None, spec: EpisodeSpec, episodes: int, console: Console) -> Sequence[Yardstick]:
    """Return the yardsticks, and print them; none if there is no measure, or if it fails."""
    if measure is None:
        return ()
    try:
        found = measure(spec, episodes)
    except (EngineError, OSError, ValueError) as error:
        LOGGER.warning("there are no yardsticks for this training: %s", error)
        return ()
    if found:
        console.print(
            f"yardsticks, reward per step in the {episodes} evaluation episodes: "
            + ", ".join(each.text for each in found),
            highlight=False,
            soft_wrap=True,
        )
    return found


def _has_ended(learner: Learner) -> bool:
    """Return whether a learner has learned all that its configuration asks for."""
    return learner.most_steps is not None and learner.steps >= learner.most_steps


def _learn(learner: Learner, total_steps: int, callbacks: Callbacks) -> EngineError | None:
    """Learn until the end, or until an engine fails, whose error is returned."""
    try:
        learner.learn(total_steps, callbacks)
    except EngineError as error:
        callbacks.state.engine_failures += 1
        return error
    return None


def evaluation_episodes(spec: EpisodeSpec, count: int) -> list[dict[str, Any]]:
    """Return the engine seed and the scenario of each evaluation episode, drawn as the environment does."""
    episodes = []
    for episode in range(count):
        scenario, seed = spec.draw(evaluation_draws(spec, episode))
        episodes.append({"seed": seed, "scenario": scenario.to_dict()})
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


def _draw_curve(directory: Path, tracker: Tracker, score: str, yardsticks: Sequence[Yardstick]) -> None:
    try:
        with optional("the training curve"):
            from bbrgym.agents.training_curve import draw_training_curve
    except ModuleNotFoundError as error:
        LOGGER.warning("%s", error)
        return
    tracker.log_figure(draw_training_curve(directory, score, yardsticks), "training_curve.png")
