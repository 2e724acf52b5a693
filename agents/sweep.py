"""Sweeps: an MLflow run of their own above the runs of their jobs, and jobs that resume after a kill."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from bbrgym.agents.checkpoint_names import saved_steps
from bbrgym.agents.config import TrainConfig
from bbrgym.agents.curriculum import Breaks
from bbrgym.agents.provenance import override_key, short_overrides
from bbrgym.agents.tracking import Tracker, TrackingConfig, read_metrics, read_run
from bbrgym.agents.train import TrainResult, is_run_of, resume, train
from bbrgym.agents.yardsticks import Measure
from bbrgym.checks import read_record
from bbrgym.interruption import SAME_COMMAND, resumed_by
from bbrgym.overrides import command, value_of

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class _Enclosing:
    stack: ExitStack
    check: Callable[[DictConfig], None]


_ENCLOSING: ContextVar[_Enclosing | None] = ContextVar("_ENCLOSING", default=None)


@contextmanager
def tracked_sweep(check: Callable[[DictConfig], None]) -> Iterator[None]:
    """Enclose a call of Hydra: the run of a sweep that it starts ends with the block, as `Tracker` describes.

    Args:
        check: called with the configuration of a run or a sweep before anything is written. Hydra goes on after an
            Exception, but not after another BaseException.
    """
    with ExitStack() as stack:
        token = _ENCLOSING.set(_Enclosing(stack, check))
        try:
            yield
        finally:
            _ENCLOSING.reset(token)


class SweepTracking(Callback):
    """Hydra callback that checks a run or a sweep, and tracks a sweep, before any of its jobs begins.

    So the store and its schema exist when all jobs open it at once. The run is named by the overrides. It has the tags
    `sweeper`, `launcher` and `overrides`, and finally the metrics `jobs` and `jobs_finished`. A later sweep in the
    same folder continues its run.

    The sweep's folder is made absolute, because the workers of a cluster start in folders of their own.
    """

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Check the run, before Hydra makes its folder."""
        if (enclosing := _ENCLOSING.get()) is not None:
            enclosing.check(config)

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Check the sweep, and start its run."""
        enclosing = _ENCLOSING.get()
        if enclosing is not None:
            enclosing.check(config)
            enclosing.stack.enter_context(resumed_by(_resumption(config)))
        directory = Path(str(config.hydra.sweep.dir)).absolute()
        config.hydra.sweep.dir = str(directory)
        # Launchers compose the configuration of each job from the overrides.
        config.hydra.overrides.hydra.append(f"hydra.sweep.dir={value_of(str(directory))}")
        if enclosing is not None and config.get("tracking") is not None:
            _track(config, directory, enclosing.stack)

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Say which training was the best."""
        if config.hydra.job.name == "train":
            _print_best(Path(str(config.hydra.sweep.dir)), config.hydra.sweeper.get("direction", "maximize"))


def _resumption(config: DictConfig) -> str:
    """Return how the sweep is resumed: by the same command, if that has the same folder at every start."""
    sweep = config.hydra.sweep
    is_dated = "${now:" in str(OmegaConf.to_container(sweep, resolve=False))
    if not is_dated:
        return SAME_COMMAND
    folder = command("", {"hydra.sweep.dir": os.path.relpath(str(sweep.dir))}).strip()
    return f"the same command with {folder} resumes it"


def _track(config: DictConfig, directory: Path, stack: ExitStack) -> None:
    """Start the run of a sweep, which ends with the stack."""
    store = TrackingConfig.of({str(key): value for key, value in config.tracking.items()})
    choices = config.hydra.runtime.choices
    overrides = list(config.hydra.overrides.task)
    swept = _swept(config)
    tracker = stack.enter_context(
        Tracker.start(
            directory,
            str(config.hydra.job.name),  # the experiment of its jobs' runs
            f"sweep {short_overrides(swept or overrides)}",
            {"overrides": overrides, "swept": [override_key(one) for one in swept]},
            tags={
                "sweeper": str(choices["hydra/sweeper"]),
                "launcher": str(choices["hydra/launcher"]),
                "overrides": " ".join(overrides),
            },
            config=store,
            resume=True,
        )
    )
    stack.callback(tracker.end_children)  # what is left in MLflow alone
    stack.callback(_end_jobs, tracker, store)


def _swept(config: DictConfig) -> list[str]:
    """Return the overrides that are sweeps, of the sweeper's configuration and of the command line."""
    parser = OverridesParser.create()
    params = config.hydra.sweeper.get("params") or {}
    given = [*(f"{key}={value}" for key, value in params.items()), *config.hydra.overrides.task]
    # By key, so that the command line takes precedence.
    sweeps = {override_key(one): one for one in given if parser.parse_override(one).is_sweep_override()}
    return list(sweeps.values())


def _print_best(directory: Path, direction: str) -> None:
    """Print which training in a sweep's folder has the best score, and how to evaluate it."""
    scores = {path.parent: best_score(path.parent) for path in directory.glob("*/run.json")}
    scores = {job: score for job, score in scores.items() if not math.isnan(score)}
    if not scores:
        return
    best = (min if direction == "minimize" else max)(scores, key=lambda job: scores[job])
    overrides = {job: job_overrides(job) for job in scores}
    own = [one for one in overrides[best] if any(one not in others for others in overrides.values())]
    print(
        f"best: {scores[best]:.3f} of {len(scores)} trainings{', with ' * bool(own)}{short_overrides(own, most=60)}\n"
        f"  {command('bbrgym evaluate', {'agent_path': os.path.relpath(best)})}"
    )


def job_overrides(directory: Path) -> list[str]:
    """Return the overrides that a run was made with, as its record has them."""
    record = read_run(directory)
    composition = None if record is None else record["params"].get("composition")
    return list((composition or {}).get("overrides") or [])


def best_score(directory: Path) -> float:
    """Return the score of a training's best agent; NaN if it has none."""
    scores = [line["metrics"]["best/score"] for line in read_metrics(directory) if "best/score" in line["metrics"]]
    return float(scores[-1]) if scores else math.nan


def _end_jobs(tracker: Tracker, store: TrackingConfig) -> None:
    """Count the jobs of a sweep, and end the runs of those that were killed."""
    records = {path.parent: read_run(path.parent) for path in tracker.directory.glob("*/run.json")}
    statuses = [record["status"] for record in records.values() if record is not None]
    tracker.log_metrics({"jobs": len(statuses), "jobs_finished": statuses.count("FINISHED")})
    for directory, record in records.items():
        if record is not None and record["status"] == "RUNNING":
            _end_run(directory, record, store, "KILLED")


def _end_run(directory: Path, record: Mapping[str, Any], store: TrackingConfig, status: str) -> None:
    """End the run of a process that was killed before it could."""
    kept = {key: record[key] for key in ("experiment", "run_name", "params", "tags")}
    Tracker.start(directory, **kept, config=store, resume=True).finish(status, "its process was killed")


def swept_keys(directory: Path) -> list[str]:
    """Return the keys of the settings that the sweep in this folder varies; [] if it is not tracked."""
    record = read_run(directory)
    return [] if record is None else list(record["params"].get("swept") or ())


def sweep_run_id(directory: Path) -> str | None:
    """Return the run id of the sweep in this folder; None if it is not tracked."""
    record = read_run(directory)
    return None if record is None else str(record["run_id"])


def train_in_sweep(
    config: Mapping[str, Any],
    directory: Path,
    console: Console | None = None,
    measure: Measure | None = None,
    breaks: Breaks | None = None,
) -> TrainResult:
    """Train as a job of a sweep, which may have been killed and restarted.

    Args:
        config: as for `bbrgym.agents.train.train`.
        directory: the run's folder. A complete training with the same configuration is not repeated, and a stopped one
            is resumed from its checkpoint.
        console: shows progress; None is standard output.
        measure: as for `bbrgym.agents.train.train`.
        breaks: likewise.

    Raises:
        ValueError: a bad configuration, or the folder has a training with another one.
        EngineError: engines failed too often.
    """
    record = read_run(directory)
    if record is None or not is_run_of(record, config):
        return train(config, directory, console, measure, breaks)
    total_steps = read_record(TrainConfig, "train", config.get("train") or {}).total_steps
    saved = max(saved_steps(directory), default=0)
    is_done = record["status"] == "FINISHED"
    if not is_done and saved < total_steps:
        return resume(directory, None, console, measure=measure, breaks=breaks)
    if not is_done:  # killed between its last checkpoint and its end
        _end_run(directory, record, TrackingConfig.of(config.get("tracking")), "FINISHED")
    return TrainResult(
        directory=directory,
        steps=saved,
        score=best_score(directory),
        is_complete=saved >= total_steps,
    )
