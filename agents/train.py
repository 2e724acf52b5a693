"""Training: an agent learns in the environment of a configuration, and can go on wherever it was stopped."""

from __future__ import annotations

import dataclasses
import logging
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from bbrgym.agents.curriculum import Contest, CurriculumConfig
from bbrgym.agents.policy import ALGORITHMS
from bbrgym.agents.scripted import RULES
from bbrgym.agents.tracking import Tracker, read_metrics, read_run
from bbrgym.baselines.policy_file import FOLDERS
from bbrgym.envs.engine import EngineError
from bbrgym.envs.episode import EpisodeSpec
from bbrgym.envs.privileged import Privileged

if TYPE_CHECKING:
    from stable_baselines3.common.base_class import BaseAlgorithm
    from stable_baselines3.common.callbacks import BaseCallback

    from bbrgym.agents.checkpoint import TrainingState

LOGGER = logging.getLogger(__name__)

EXPERIMENT = "train"
"""MLflow's experiment of all training runs."""


@dataclass(frozen=True)
class TrainConfig:
    """How long, how parallel, and what is kept; conf/train/default.yaml explains the fields.

    Raises:
        ValueError: naming the bad value and the good ones.
    """

    total_steps: int = 300_000
    max_minutes: float | None = None
    n_envs: int = 2
    torch_threads: int = 1
    eval_every: int = 20_000
    eval_episodes: int = 8
    checkpoint_every: int = 20_000
    engine_failures: int = 10
    critic_features: tuple[str, ...] = ()
    teacher: str | None = None
    prepare_steps: int = 5_000
    curriculum: CurriculumConfig | None = None
    resume: str | None = None

    def __post_init__(self) -> None:
        for name in ("total_steps", "n_envs", "torch_threads", "eval_every", "eval_episodes", "checkpoint_every",
                     "prepare_steps"):  # fmt: skip
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"train.{name}={value!r} is not possible: it must be a whole number of at least 1")
        failures = self.engine_failures
        if isinstance(failures, bool) or not isinstance(failures, int) or failures < 0:
            raise ValueError(f"train.engine_failures={failures!r} is not possible: it must be a whole number from 0 on")
        object.__setattr__(self, "critic_features", tuple(self.critic_features))
        if self.critic_features:
            Privileged(self.critic_features)
        if self.curriculum is not None and not isinstance(self.curriculum, CurriculumConfig):
            object.__setattr__(self, "curriculum", CurriculumConfig.from_dict(self.curriculum))
        limit = self.max_minutes
        if limit is not None and not (isinstance(limit, int | float) and 0 < limit < math.inf):
            raise ValueError(f"train.max_minutes={limit!r} is not possible: it must be above 0, or null")
        if self.teacher is not None and self.teacher not in RULES:
            raise ValueError(f"train.teacher={self.teacher!r} is not possible: known: {', '.join(RULES)}, or null")

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> TrainConfig:
        """From plain types, as conf/train has them; an unknown key is refused by name."""
        known = [f.name for f in dataclasses.fields(cls)]
        for key in plain:
            if key not in known:
                raise ValueError(f"train has no key {key!r}; known: {', '.join(known)}")
        return cls(**plain)


@dataclass(frozen=True)
class TrainResult:
    """What a training left.

    Attributes:
        directory: the run's folder: `bbrgym.agents.policy.load_agent` takes it.
        steps: decisions that were learned from, all flows and resumed parts together.
        reward: mean reward per decision of its best evaluation; NaN if every one failed.
        is_complete: `total_steps` were reached; else the time limit was.
    """

    directory: Path
    steps: int
    reward: float
    is_complete: bool


def train(config: Mapping[str, Any], directory: Path, console: Console | None = None) -> TrainResult:
    """Train an agent. Everything that happens follows from the configuration, but for a limit in minutes.

    The directory then has

        best/, final/           the agent that was best in an evaluation, and the last one (`load_agent`)
        checkpoints/            the last two checkpoints, for `resume`
        metrics.jsonl, run.json the log (`bbrgym.agents.tracking`)
        training_curve.png      reward over steps
        curriculum.json         the scenarios that a curriculum has kept
        training_scenarios.json, evaluation_scenarios.json  what it learns in, and the episodes of its evaluations

    When an engine fails, there is a warning, and training goes on with new episodes in all of them, up to
    `train.engine_failures` times.

    At every checkpoint all random generators are seeded again from the seed and the number of steps, and new episodes
    begin. So a training that was killed and resumed has the same weights in the end, to the last bit, as one that ran
    through.

    Args:
        config: plain types, with the keys of `EpisodeSpec.from_config` and `agent`, `train`, `tracking`, `seed`.
        directory: where it goes.
        console: where progress is shown; None is standard output.

    Raises:
        ValueError: of the configuration, naming the bad value and the good ones, and nothing was made then; or
            another process is training in the folder.
        EngineError: engines failed too often. There is a checkpoint of the moment, and the run is marked as failed.
    """
    if (directory / "checkpoints").is_dir():
        raise ValueError(f"'{directory}' holds a training: go on with it (train.resume={directory}), or name another")
    return _train(config, directory, console or Console(), is_resumed=False)


def resume(directory: Path, changes: Mapping[str, Any] | None = None, console: Console | None = None) -> TrainResult:
    """Go on with a training that was stopped, killed, or is to last longer.

    Args:
        directory: the training's folder.
        changes: of its configuration, `{"train.total_steps": 500000}`; only keys that begin with `train.`.
        console: where progress is shown; None is standard output.

    Raises:
        ValueError: there is nothing to go on with, or a change that is not possible.
        EngineError: an engine failed, as in `train`.
    """
    record = read_run(directory)
    if record is None or record.get("experiment") != EXPERIMENT:
        raise ValueError(f"'{directory}' holds no training: it has no run.json of one")
    config = record["params"]
    config["train"] |= {"resume": None}
    for name, value in (changes or {}).items():
        group, _, key = name.partition(".")
        if group != "train" or not key:
            raise ValueError(f"{name} cannot change in a training that goes on: only train.… can")
        config["train"][key] = value
    return _train(config, directory, console or Console(), is_resumed=True)


def _train(config: Mapping[str, Any], directory: Path, console: Console, is_resumed: bool) -> TrainResult:
    # Everything that can be wrong is looked at before torch is loaded and anything is written.
    spec = EpisodeSpec.from_config(config)
    training = TrainConfig.from_dict(config.get("train") or {})
    agent = config.get("agent") or {}
    if agent.get("algorithm") not in ALGORITHMS:
        raise ValueError(f"no learning algorithm {agent.get('algorithm')!r}; known: {', '.join(ALGORITHMS)}")
    seed = config.get("seed", 1)
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**31:
        raise ValueError(f"seed={seed!r} is not possible: it must be a whole number in [0, 2^31)")
    curriculum = training.curriculum
    contest = None if curriculum is None else Contest(curriculum, spec, training.n_envs)
    _prepare_threads(training.torch_threads)
    # torch comes with these.
    from stable_baselines3.common.logger import Logger
    from stable_baselines3.common.vec_env import VecMonitor

    from bbrgym.agents.callbacks import Checkpoints, Evaluations, Looks, ProgressBar, TimeLimit, TrackerWriter
    from bbrgym.agents.checkpoint import TrainingState, restore_latest, save_checkpoint
    from bbrgym.agents.learner import make_model

    with closing(VecMonitor(spec.make_vec_env(training.n_envs, training.critic_features))) as env:
        model = make_model(agent, env, seed)
        state = restore_latest(model, directory / "checkpoints") if is_resumed else TrainingState()
        if model.num_timesteps >= training.total_steps:
            raise ValueError(
                f"'{directory}' has {model.num_timesteps} steps already: give a train.total_steps above that"
            )
        with (
            _sole_training(directory),
            Tracker.start(
                directory, EXPERIMENT, directory.name, config, config=config.get("tracking"), resume=is_resumed
            ) as tracker,
            closing(Evaluations(spec, agent["algorithm"], training, directory, tracker, console, state)) as evaluations,
            closing(ProgressBar(training.total_steps, console)) as progress,
        ):
            tracker.log_scenarios("training scenarios", "training", spec.distribution.to_dict())
            tracker.log_scenarios(
                "evaluation episodes", "evaluation", _evaluation_episodes(spec, training.eval_episodes)
            )
            model.set_logger(Logger(folder=None, output_formats=[TrackerWriter(tracker)]))
            looks = []
            if contest is not None:
                looks.append(Looks(contest, agent["algorithm"], env.unwrapped, directory, seed, tracker, state))
            callbacks = [
                evaluations,
                *looks,  # before the checkpoints, which have what they keep
                Checkpoints(directory, training.checkpoint_every, seed, state),
                TimeLimit(training.max_minutes),
                progress,
            ]
            try:
                while (failed := _learn(model, spec, callbacks, training, seed, state, is_resumed)) is not None:
                    is_resumed = True
                    tracker.log_metrics({"time/engine_failures": state.engine_failures}, model.num_timesteps)
                    if state.engine_failures > training.engine_failures:
                        raise EngineError(
                            f"training stopped after {model.num_timesteps} steps and {state.engine_failures} failures "
                            f"of engines, the last of which is: {failed}\n"
                            f"Go on with `bbrgym train train.resume={directory} train.engine_failures=…`."
                        ) from failed
                    LOGGER.warning(
                        "an engine failed after %d steps (failure %d of at most %d); new episodes begin: %s",
                        *(model.num_timesteps, state.engine_failures, training.engine_failures, failed),
                    )
            except (EngineError, KeyboardInterrupt, SystemExit):
                save_checkpoint(model, directory / "checkpoints", state)
                raise
            save_checkpoint(model, directory / "checkpoints", state)
            _draw_curve(directory, tracker)
            kept = [directory / folder for folder in FOLDERS if (directory / folder).is_dir()]
            for folder in kept:
                tracker.log_artifact(folder, folder.name)
            tracker.log_agent(kept[0])
    return TrainResult(
        directory=directory,
        steps=model.num_timesteps,
        reward=math.nan if state.best_reward is None else state.best_reward,
        is_complete=model.num_timesteps >= training.total_steps,
    )


def _evaluation_episodes(spec: EpisodeSpec, count: int) -> list[dict[str, Any]]:
    """The episodes that every evaluation has: the engine's seed and the scenario, drawn as the environment does."""
    from gymnasium.utils import seeding

    from bbrgym.agents.callbacks import EVALUATION_SEED

    episodes = []
    for episode in range(count):
        rng = seeding.np_random(EVALUATION_SEED + episode * spec.agents)[0]
        scenario = spec.distribution.sample(rng).to_dict()
        episodes.append({"seed": int(rng.integers(1, 2**31)), "scenario": scenario})
    return episodes


def _learn(
    model: BaseAlgorithm,
    spec: EpisodeSpec,
    callbacks: list[BaseCallback],
    training: TrainConfig,
    seed: int,
    state: TrainingState,
    is_anew: bool,
) -> EngineError | None:
    """Learn until the end, or until an engine fails: that failure is returned."""
    from bbrgym.agents.checkpoint import begin_anew
    from bbrgym.agents.imitation import prepare

    try:
        if not state.is_prepared:
            # After a failure not what failed once more.
            prepare(model, spec, training.teacher, training.prepare_steps, seed + state.engine_failures)
            model.set_random_seed(seed)
            state.is_prepared = True
        if training.teacher is not None and hasattr(model, "replay_buffer"):
            model.learning_starts = 0  # the replay buffer has something, and the actor knows better than to act evenly
        if is_anew:
            begin_anew(model, seed, state)
        model.learn(
            training.total_steps - model.num_timesteps,
            callback=callbacks,
            log_interval=4 if hasattr(model, "replay_buffer") else 1,  # episodes; rollouts
            reset_num_timesteps=not is_anew,
        )
    except EngineError as error:
        state.engine_failures += 1
        return error
    return None


@contextmanager
def _sole_training(directory: Path) -> Iterator[None]:
    """Keep other processes from training in a folder; it is free again when this process has ended, however it did."""
    from filelock import FileLock, Timeout

    directory.mkdir(parents=True, exist_ok=True)
    lock = FileLock(directory / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ValueError(
            f"another process is training in '{directory}': wait for its end, or name another folder (output_dir=…)"
        ) from None
    try:
        yield
    finally:
        lock.release()


def _prepare_threads(threads: int) -> None:
    """Keep torch from spinning on cores that the engines need: measured, it costs up to a factor of ten."""
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))  # read when torch is loaded
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        import torch
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"training needs {error.name}: pip install 'bbrgym[train]'", name=error.name
        ) from error
    torch.set_num_threads(threads)


def _draw_curve(directory: Path, tracker: Tracker) -> None:
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        LOGGER.warning("no training curve: matplotlib is not installed (pip install 'bbrgym[report]')")
        return
    # A step that was done again after a kill counts once: the later line is the one that led to the result.
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
    axes.plot(
        sorted(learned), [learned[step] for step in sorted(learned)], color="#0072b2", label="training, exploring"
    )
    axes.plot(
        sorted(evaluated), [evaluated[step] for step in sorted(evaluated)], "o-", color="#d55e00", label="evaluation"
    )
    axes.set(xlabel="steps (decisions of all flows)", ylabel="mean reward per decision", title=directory.name)
    axes.grid(alpha=0.3)
    axes.legend()
    tracker.log_figure(figure, "training_curve.png")
