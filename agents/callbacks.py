"""What happens during learning, whatever learns: evaluations, checkpoints, a time limit, and progress."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from gymnasium.utils import seeding
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from bbrgym.agents.checkpoint import Restorable, TrainingState, save_checkpoint
from bbrgym.agents.config import TrainConfig
from bbrgym.agents.curriculum import Curriculum
from bbrgym.agents.policy import Agent
from bbrgym.agents.provenance import source_tags
from bbrgym.agents.tracking import Tracker, read_metrics
from bbrgym.agents.yardsticks import Yardstick
from bbrgym.baselines.policy_file import Network
from bbrgym.envs.columns import LINK_COLUMNS
from bbrgym.envs.engine import EngineError
from bbrgym.envs.episode import Episodes
from bbrgym.envs.episode_spec import EpisodeSpec

LOGGER = logging.getLogger(__name__)

EVALUATION_SEED: Final = 2**32
"""Seed of the first evaluation episode. Training seeds are below it, so no episode is in both.

NumPy takes the seed of an episode as the words `[episode, 1]`, and zeros behind them make no difference. So a generator
of a training with these words has another number than 0 behind them.
"""


class Learner(Restorable, Protocol):
    """Learns a policy; `bbrgym.agents.training_loop` trains with any of them.

    Attributes:
        unit: what it makes as a whole, in words. Its decisions are `steps`, of which there can be more than were asked.
    """

    unit: str = "a step of all flows"

    @property
    def most_steps(self) -> int | None:
        """The steps after which it has learned all that its configuration asks for; None if there are always more."""
        return None

    @property
    def update_steps(self) -> int | None:
        """The decisions of an update, after which it can be evaluated and saved; None if updates differ in them."""
        return None

    @property
    def has_learned(self) -> bool:
        """Whether the policy differs from the one at the start."""
        ...

    def learn(self, total_steps: int, callbacks: Callbacks) -> None:
        """Learn until `total_steps` or `most_steps` have been made in all, or `Callbacks.on_step` says to end.

        It makes the fewest whole `unit`s that are so many steps.

        It calls `on_training_start`, before each rollout `on_rollout_start`, in or after it `on_step`, and
        `on_training_end`. After an EngineError it can be called again.

        Raises:
            EngineError: an engine failed.
        """
        ...

    def agent(self) -> Agent:
        """Return the present policy."""
        ...

    def objective(self) -> dict[str, float]:
        """Return what it maximises, by name, for the present policy, in scenarios that are always the same.

        Empty: it is the reward, which is evaluated for every learner.
        """
        return {}

    def restart(self, seed: int, state: TrainingState) -> None:
        """Seed every random generator from the seed, the steps and the failures so far, and begin new episodes."""
        ...

    def close(self) -> None:
        """End the engines."""
        ...


@contextmanager
def blaming(**settings: float) -> Iterator[None]:
    """Name the settings that are too large if the block makes a policy of weights that are no finite numbers."""
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            yield
    except ValueError as error:
        given = " or ".join(f"agent.{name} (it is {value:g})" for name, value in settings.items())
        raise ValueError(f"the weights have overflowed: give a smaller {given}; {error}") from error


STOP: Final = "stop"
"""A file of this name in a run's folder ends the training as its time limit does; a search stops poor trials so."""


PROCESSOR: Final = "time/processor"
"""Metric of an evaluation: the processor time that the training has taken so far, in s, also before it was resumed."""


def logged_processor_s(directory: Path) -> float:
    """Return the processor time that a training had taken when it logged that for the last time, in s."""
    times_s = [line["metrics"][PROCESSOR] for line in read_metrics(directory) if PROCESSOR in line["metrics"]]
    return times_s[-1] if times_s else 0.0


def processor_s() -> float:
    """Return the processor time of all threads of this process, and of its processes that have ended, in s."""
    ended = os.times()
    return time.process_time() + ended.children_user + ended.children_system


class Callbacks:
    """Evaluates the agent, saves agents and checkpoints, updates the curriculum, and ends the training in time.

    The agent is evaluated before the first step, every `eval_every` steps, and at the end, in the same episodes.
    `<directory>/best` is the agent with the highest score of those that have learned, `<directory>/final` the last one.
    The score is the mean reward per step, or what the learner maximises instead. An agent that has not learned is
    no result of the training: it is evaluated, but is never the best. The metric `best/score` is that of the best agent
    so far.

    A checkpoint is saved before the first rollout that begins `checkpoint_every` or more steps after the last one.

    Args:
        spec: of the environment.
        algorithm: the learner's name.
        training: what happens when.
        directory: the run's folder.
        seed: of the training.
        tracker: gets the metrics.
        console: gets a line per evaluation, and a progress bar if it is a terminal.
        state: of the training, updated here.
        yardsticks: logged with each evaluation, so that they are lines beside it.
        curriculum: updated when it is due, before a rollout; None for none.
        earlier_steps: of the policy with which the training begins: what it has learned from; None if it is unknown.
        earlier_s: processor time that the training took before it was resumed, in s.

    Attributes:
        score: the metric of the evaluations by which the best agent is chosen.
    """

    def __init__(
        self,
        spec: EpisodeSpec,
        algorithm: str,
        training: TrainConfig,
        directory: Path,
        seed: int,
        tracker: Tracker,
        console: Console,
        state: TrainingState,
        yardsticks: Sequence[Yardstick] = (),
        curriculum: Curriculum | None = None,
        earlier_steps: int | None = 0,
        earlier_s: float = 0.0,
    ) -> None:
        self.score = "eval/reward"
        self.tracker = tracker
        self.state = state
        self.seed = seed
        self._algorithm = algorithm
        self._training = training
        self._directory = directory
        self._console = console
        self._yardsticks = yardsticks
        self._curriculum = curriculum
        self._earlier = {} if earlier_steps == 0 else {"earlier_steps": earlier_steps}
        self._made_with = {name: value for name, value in source_tags().items() if name != "host"}
        self._episodes = Episodes(spec, min(training.n_envs, training.eval_episodes), is_healing=True)
        self._processor_from_s = processor_s() - earlier_s
        self._saved_at = 0
        self._has_begun = False
        self._total_steps = training.total_steps
        minutes = training.max_minutes
        self._deadline_s = math.inf if minutes is None else time.monotonic() + 60 * minutes
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("training", total=training.total_steps)

    def close(self) -> None:
        """Close the evaluation engines, and remove the progress bar from the terminal."""
        self._bar.stop()
        self._episodes.close()

    def on_training_start(self, learner: Learner) -> None:
        """Show progress, and say if the learner cannot evaluate or save as often as it was asked to."""
        self._saved_at = learner.steps
        if not self._has_begun:  # otherwise it begins again after an engine failed
            self._has_begun = True
            self._say_what_comes_late(learner)
        (self._directory / STOP).unlink(missing_ok=True)
        if learner.most_steps is not None:
            self._total_steps = min(self._total_steps, learner.most_steps)
        self._bar.start()

    def on_rollout_start(self, learner: Learner) -> None:
        """Evaluate, and save a checkpoint, if it is time."""
        steps, evaluated_at = learner.steps, self.state.evaluated_at
        if evaluated_at is None or steps - evaluated_at >= self._training.eval_every:
            self._evaluate(learner)
        if self._curriculum is not None and learner.has_learned and self._curriculum.is_due(steps):
            self._break(learner, self._curriculum)
        if steps - self._saved_at >= self._training.checkpoint_every:
            self._saved_at = steps
            self.save(learner)
            learner.restart(self.seed, self.state)

    def save(self, learner: Learner) -> None:
        """Save a checkpoint."""
        self.state.logged_bytes = self.tracker.logged_bytes
        save_checkpoint(learner, self._directory, self.state)

    def _say_what_comes_late(self, learner: Learner) -> None:
        made = learner.update_steps or 0
        asked = {"evaluations": self._training.eval_every, "checkpoints": self._training.checkpoint_every}
        if late := [what for what, every in asked.items() if every < made]:
            self._console.print(
                f"{' and '.join(late)} come after whole updates of {made:,} decisions", highlight=False, soft_wrap=True
            )

    def on_step(self, steps: int) -> bool:
        """Return whether there is time for more, after so many steps, and nobody has asked the training to stop."""
        self._bar.update(self._task, completed=steps, total=max(steps, self._total_steps))
        return self._may_go_on()

    def on_preparation(self, what: str, done: int, total: int) -> bool:
        """Show how far a preparation is, and return whether there is time for more of it."""
        self._bar.update(self._task, description="training" if done >= total else f"{what} {done} of {total}")
        return self._may_go_on()

    def _may_go_on(self) -> bool:
        return time.monotonic() < self._deadline_s and not (self._directory / STOP).exists()

    def on_training_end(self, learner: Learner) -> None:
        """Evaluate and save the last agent, and say why there are more steps than were asked."""
        asked = self._training.total_steps
        if learner.steps > asked:
            self._console.print(
                f"{learner.steps} steps, as {learner.unit} is made as a whole: {asked} were asked",
                highlight=False,
                soft_wrap=True,
            )
        self._evaluate(learner).save(self._directory / "final")

    def on_engine_failure(self, error: object, steps: int) -> None:
        """Count an engine that failed in a step and was started afresh.

        Raises:
            EngineError: there were too many, and this one is not counted.
        """
        if self.state.engine_failures >= self._training.engine_failures:
            raise EngineError(error)
        self.state.engine_failures += 1
        self.log_engine_failure(error, steps)

    def log_engine_failure(self, error: object, steps: int) -> None:
        """Log a failure that was counted."""
        self.tracker.log_metrics({"time/engine_failures": self.state.engine_failures}, steps)
        LOGGER.warning(
            "an engine failed after %d steps (failure %d, at most %d are allowed): %s",
            steps,
            self.state.engine_failures,
            self._training.engine_failures,
            error,
        )

    def log_metrics(self, metrics: Mapping[str, float], steps: int) -> None:
        """Log metrics."""
        self.tracker.log_metrics(metrics, steps)

    def _break(self, learner: Learner, curriculum: Curriculum) -> None:
        """Let a curriculum break the agent."""
        metrics = curriculum.update(learner.agent(), learner.steps)
        self.state.curriculum = curriculum.to_dict()
        self.tracker.log_metrics(metrics, learner.steps)
        self._console.print(
            f"{learner.steps} steps: broken on {metrics['curriculum/found']:.0f} new paths, the largest regret is "
            f"{metrics['curriculum/worst']:.2f}; {metrics['curriculum/held']:.0f} are held",
            highlight=False,
            soft_wrap=True,
        )

    @property
    def _bbr(self) -> str:
        """What bbr reaches, for the progress bar."""
        return "".join(f", bbr {each.reward:.3f}" for each in self._yardsticks if each.kind == "bbr")

    def _evaluate(self, learner: Learner) -> Agent:
        steps = learner.steps
        agent = learner.agent()
        self.state.evaluated_at = steps
        reward = None
        try:
            metrics = evaluate_agent(agent, self._episodes, self._training.eval_episodes)
        except EngineError as error:
            # The same episodes would fail again, so training continues without this evaluation.
            LOGGER.warning("the evaluation after %d steps failed and is skipped: %s", steps, error)
            self.tracker.log_metrics({"eval/engine_failures": 1.0}, steps)
        else:
            reward = metrics["eval/reward"]
            objective = learner.objective()
            yardsticks = {each.metric: each.reward for each in self._yardsticks}
            of_objective = {f"eval/{name}": value for name, value in objective.items()}
            spent = {PROCESSOR: processor_s() - self._processor_from_s}
            self.tracker.log_metrics(metrics | of_objective | yardsticks | spent, steps)
        agent.training = {
            "algorithm": self._algorithm,
            "steps": steps,
            **self._earlier,
            "seed": self.seed,
            "reward": reward,
            "made_with": self._made_with,
        }
        if reward is None:
            return agent
        name, score = next(iter((objective or {"reward per step": reward}).items()))
        self.score = f"eval/{name}" if objective else "eval/reward"
        best = self.state.best_score
        is_best = learner.has_learned and math.isfinite(score) and (best is None or score > best)
        if is_best:
            best = self.state.best_score = score
            agent.save(self._directory / "best")
        if best is not None:
            self.tracker.log_metrics({"best/score": best}, steps)
        self._bar.update(self._task, description=f"training, reward {reward:.3f}{self._bbr}")
        above = " and ".join(each.kind for each in self._yardsticks if reward > each.reward)
        self._console.print(
            f"{steps} steps: evaluation {name.replace('_', ' ')} {score:.3f}"
            f"{f' (reward per step {reward:.3f})' if objective else ''}, utilisation "
            f"{metrics['eval/utilisation']:.0%}, queue {metrics['eval/queue_ms']:.1f} ms{', best' if is_best else ''}"
            f"{f', above {above}' if above else ''}",
            highlight=False,
            soft_wrap=True,
        )
        return agent


def evaluation_draws(spec: EpisodeSpec, episode: int) -> np.random.Generator:
    """Return what an evaluation episode is drawn with: always the same."""
    return seeding.np_random(EVALUATION_SEED + episode * spec.agents)[0]


def evaluate_agent(agent: Agent, env: Episodes, episodes: int) -> dict[str, float]:
    """Run the first `episodes` evaluation episodes, which are always the same.

    Args:
        agent: what acts.
        env: whose engines that fail do not lose the episodes of the others (`is_healing`).
        episodes: how many.

    Returns:
        `eval/reward`: mean over episodes and flows of the mean reward per step in which the flow took part;
        `eval/reward_std`: their standard deviation; `eval/utilisation` and `eval/queue_ms`: means over episodes and
        steps.

    Raises:
        EngineError: an engine failed.
    """
    flows, engines = env.spec.agents, env.count
    rewards: list[float] = []
    links: list[npt.NDArray[np.float64]] = []
    for first in range(0, episodes, engines):
        draws = [evaluation_draws(env.spec, first + engine) for engine in range(engines)]
        env.begin_resets(np.arange(engines), draws)
        # Engines beyond the last episode run too, but do not count.
        is_running = np.arange(engines) < episodes - first
        total = np.zeros(engines * flows)
        count = np.zeros(engines * flows)
        for step in _steps(agent, env, env.finish_resets()):
            are_running = is_running.repeat(flows)
            counted = are_running & step.took_part
            total += np.where(counted, step.rewards.astype(np.float32), 0.0)
            count += counted
            links.append(step.link[is_running])
            is_running = is_running & ~step.is_over
            if not is_running.any():
                break
        rewards += (total[count > 0] / count[count > 0]).tolist()
    link = dict(zip(LINK_COLUMNS, np.concatenate(links).mean(axis=0).tolist(), strict=True))
    return {
        "eval/reward": float(np.mean(rewards)),
        "eval/reward_std": float(np.std(rewards)),
        "eval/utilisation": link["utilisation"],
        "eval/queue_ms": link["queue_mean_ms"],
    }


class _Step(NamedTuple):
    """One step of N engines with K agent flows each: shapes (N x K,) twice, (N, `LINK_COLUMNS`) and (N,)."""

    rewards: npt.NDArray[np.float64]
    took_part: npt.NDArray[np.bool_]
    link: npt.NDArray[np.float64]
    is_over: npt.NDArray[np.bool_]


def _steps(agent: Agent, env: Episodes, observations: npt.NDArray[np.float32]) -> Iterator[_Step]:
    """Yield the steps of an agent in episodes that have begun; what follows the end of an episode means nothing."""
    agent.reset()
    if env.can_roll and isinstance(agent.network, Network):
        rollout = env.begin_rollout(np.zeros((env.most_steps, len(observations), 2), np.float32))
        env.run(rollout, agent.compiled)
        rewards = env.spec.reward.evaluate(rollout.context()).reshape(-1, len(observations))
        is_over = rollout.terminated | rollout.truncated
        yield from map(_Step, rewards, rollout.took_part(), rollout.arrays.link, is_over)
        return
    while True:
        env.act(agent.predict(observations), np.flatnonzero(env.is_running))
        result = env.finish_step()
        if result.errors:
            raise EngineError(next(iter(result.errors.values())))
        observations = result.observations
        is_over = result.terminated | result.truncated
        yield _Step(result.rewards, result.record.took_part, result.record.link, is_over)
