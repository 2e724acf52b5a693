"""`hydra/sweeper=optuna`: Optuna chooses the values, to optimize what the task returns."""

from __future__ import annotations

import logging
import math
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, Override, RangeSweep
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.errors import HydraException
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from bbrgym.checks import check_integer, check_name, check_number
from bbrgym.cores import available_cores
from bbrgym.extras import require
from bbrgym.files import sqlite_url
from bbrgym.waiting import announcing
from hydra_plugins.bbrgym._job import identity

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial


LOGGER = logging.getLogger(__name__)
WATCH_S = 1.0
"""How often a pruner looks at the evaluations of running trainings."""


class OptunaSweeper(Sweeper):
    """Ask Optuna for values, run `n_jobs` jobs at a time, and tell Optuna what they returned.

    The search space is written as Hydra's sweeps, on the command line or in `params`:

        agent.learning_rate=tag(log,interval(1e-4,1e-2))   a number, with `log` on a logarithmic scale
        agent.n_steps=int(interval(32,512))                an integer
        agent.batch_size=range(64,513,64)                  a number in steps, without the end
        agent=ppo,sac   agent.gamma=choice(0.9,0.99)       one of a list

    A key with one value has it in all jobs. The study is kept in `storage`; the same command resumes it, up to
    `n_trials` in total. Trials that were running when it was killed are repeated. The study's name ends with a hash of
    its direction, its search space and the configuration that its jobs share. So one that differs in any of these is
    another study, as `ExecutorLauncher` takes a job whose configuration changes for another job.

    `optimization_results.yaml` in the sweep's folder has the value, parameters and overrides of the best trial.

    conf/hydra/sweeper/optuna.yaml explains the arguments.

    Raises:
        ValueError: an argument is unknown or out of range.
    """

    config: DictConfig
    hydra_context: HydraContext
    launcher: Launcher
    _n_jobs: int

    def __init__(
        self,
        direction: Literal["maximize", "minimize"],
        n_trials: int,
        n_jobs: int | None,
        sampler: str,
        pruner: str,
        seed: int | None,
        max_failure_rate: float,
        storage: str | None,
        study_name: str | None,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        check_name("hydra.sweeper.direction", direction, ("maximize", "minimize"))
        check_name("hydra.sweeper.sampler", sampler, ("tpe", "random"))
        check_number("hydra.sweeper.max_failure_rate", max_failure_rate, at_least=0, at_most=1)
        self._direction = direction
        self._n_trials = check_integer("hydra.sweeper.n_trials", n_trials, at_least=1)
        self._given_jobs = check_integer("hydra.sweeper.n_jobs", n_jobs, at_least=1, or_none=True)
        self._sampler = sampler
        check_name("hydra.sweeper.pruner", pruner, ("none", "median", "hyperband"))
        self._pruner = pruner
        self._seed = check_integer("hydra.sweeper.seed", seed, at_least=0, below=2**32, or_none=True)
        self._max_failures = max_failure_rate * self._n_trials
        if not isinstance(storage, str | None):
            raise ValueError(f"hydra.sweeper.storage must be a path, the URL of a database or null, got {storage!r}")
        self._storage = storage
        self._study_name = study_name
        self.params = {str(key): str(value) for key, value in (params or {}).items()}

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Take what Hydra gives to every sweeper."""
        self.config = config
        self.hydra_context = hydra_context
        workers = config.hydra.launcher.get("workers", 1)  # Hydra's own launcher has none
        self._n_jobs = self._given_jobs or workers or available_cores()
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        """Run the study, whose search space are the overrides that are sweeps; return the best trial's parameters.

        Raises:
            HydraException: too many trials failed, none succeeded, Optuna does not support a sweep, or the database
                cannot be used.
        """
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        params = [f"{name}={value}" for name, value in self.params.items()]
        space, fixed = self._read(parser.parse_overrides([*params, *arguments]))
        import optuna
        from optuna.trial import TrialState

        sweep_dir = Path(str(self.config.hydra.sweep.dir))
        sweep_dir.mkdir(parents=True, exist_ok=True)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        study = self._open_study(space, fixed)
        OmegaConf.save(self.config, sweep_dir / "multirun.yaml")
        first_number = self._first_number(study, sweep_dir)
        for killed in study.get_trials(states=(TrialState.RUNNING,)):
            study.tell(killed.number, state=TrialState.FAIL)
            study.enqueue_trial(killed.params)
        # A resumed study must not draw the values that it began with.
        seed = None if self._seed is None else self._seed + len(study.trials)
        if self._sampler == "tpe":
            study.sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=self._n_jobs > 1)  # spreads a batch
        else:
            study.sampler = optuna.samplers.RandomSampler(seed)
        if self._pruner == "median":
            study.pruner = optuna.pruners.MedianPruner()
        elif self._pruner == "hyperband":
            study.pruner = optuna.pruners.HyperbandPruner()
        LOGGER.info(
            f"Optuna: {self._n_trials} trials, {len(_counted(study))} of them already done, in "
            f"{os.path.relpath(sweep_dir)}, study {study.study_name}"
        )
        while (left := self._n_trials - len(_counted(study))) > 0:
            # Not the trials' numbers: repeated trials are out of order.
            begun = sum(trial.state is not TrialState.WAITING for trial in study.get_trials(deepcopy=False))
            trials = [study.ask(space) for _ in range(min(left, self._n_jobs))]
            batch = [[*fixed, *_overrides(trial.params)] for trial in trials]
            self.validate_batch_is_legal(batch)
            with self._pruning(sweep_dir, {tuple(one): trial for one, trial in zip(batch, trials, strict=True)}):
                jobs = self.launcher.launch(batch, initial_job_idx=first_number + begun)
            for trial, overrides, job in zip(trials, batch, jobs, strict=True):
                if "pruned" in trial.user_attrs:
                    trial.set_user_attr("overrides", overrides)
                    study.tell(trial, state=TrialState.PRUNED)
                else:
                    self._tell(study, trial, overrides, job)
            failed = sum(trial.state is TrialState.FAIL for trial in _counted(study))
            if failed > self._max_failures:
                raise HydraException(
                    f"{failed} of {self._n_trials} trials failed, more than hydra.sweeper.max_failure_rate allows"
                )
        return self._report(study, sweep_dir)

    @contextmanager
    def _pruning(self, sweep_dir: Path, trials: Mapping[tuple[str, ...], Trial]) -> Iterator[None]:
        """Tell Optuna in the block what running trainings reach, and stop those that its pruner gives up."""
        if self._pruner == "none":
            yield
            return
        has_ended = threading.Event()
        watcher = threading.Thread(target=_watch, args=(sweep_dir, trials, has_ended))
        watcher.start()
        try:
            yield
        finally:
            has_ended.set()
            watcher.join()

    def split_arguments(self, overrides: list[Override], max_batch_size: int | None) -> list[list[list[str]]]:
        """Return the overrides of one job, where Hydra's own sweepers return those of all: with the first values."""
        space, fixed = self._read(overrides)
        return [[_first_job(space, fixed)]]

    def _open_study(self, space: Mapping[str, BaseDistribution], fixed: list[str]) -> Study:
        """Return the study of this direction, search space and configuration: a new one, or one that resumes."""
        import optuna

        name = self._study_name
        if name is not None:
            # Not of the fixed overrides alone: they may need what another one chooses.
            config = self.hydra_context.config_loader.load_sweep_config(self.config, _first_job(space, fixed))
            searched = {key: optuna.distributions.distribution_to_json(one) for key, one in space.items()}
            name = f"{name}-{identity(config, searched, self._direction)}"
        storage = self._storage
        url = storage if storage is None or "://" in storage else sqlite_url(Path(storage))
        with _explaining(storage), announcing(f"Optuna's database {_without_password(storage)}"):
            return optuna.create_study(storage=url, study_name=name, direction=self._direction, load_if_exists=True)

    def _first_number(self, study: Study, sweep_dir: Path) -> int:
        """Return the number of a study's first job. Jobs of other sweeps in the folder keep theirs."""
        key = "first_number"
        if key not in study.user_attrs:
            numbers = [int(path.name) for path in sweep_dir.iterdir() if path.name.isdecimal()]
            # A study that is not stored begins at 0 whenever it is repeated.
            study.set_user_attr(key, 0 if self._storage is None else max(numbers, default=-1) + 1)
        return int(study.user_attrs[key])

    def _read(self, overrides: list[Override]) -> tuple[dict[str, BaseDistribution], list[str]]:
        """Return the search space, and the overrides that all jobs have."""
        require("hydra/sweeper=optuna", "optuna")
        # By key, so that later overrides replace earlier ones.
        found = {override.get_key_element(): override for override in overrides}
        space = {key: _distribution(one) for key, one in found.items() if one.is_sweep_override()}
        if not space:
            raise HydraException(
                "the search space is empty: give at least one key=interval(…), key=range(…) or key=a,b"
            )
        return space, [str(one.input_line) for one in found.values() if not one.is_sweep_override()]

    def _tell(self, study: Study, trial: Trial, overrides: list[str], job: JobReturn) -> None:
        from optuna.trial import TrialState

        trial.set_user_attr("overrides", overrides)
        if job.status is JobStatus.COMPLETED:
            try:
                value = float(job.return_value)
            except (TypeError, ValueError):
                value = math.nan
            error = f"the task must return a number that is not NaN, got {job.return_value!r}"
        else:
            value, error = math.nan, str(job._return_value)  # the property would raise it
        if not math.isnan(value):
            study.tell(trial, value)
            return
        LOGGER.warning(f"trial {trial.number} failed: {error}")
        trial.set_user_attr("error", error)
        study.tell(trial, state=TrialState.FAIL)

    def _report(self, study: Study, sweep_dir: Path) -> Any:
        from optuna.trial import TrialState

        if not study.get_trials(states=(TrialState.COMPLETE,)):
            raise HydraException("no trial succeeded")
        best, parser = study.best_trial, OverridesParser.create()
        params = {key: parser.parse_override(f"{key}={value}").value() for key, value in best.params.items()}
        results = {
            "name": "optuna",
            "best_value": best.value,
            "best_params": params,
            "best_trial": best.number,
            "best_overrides": best.user_attrs["overrides"],
        }
        pruned = len(study.get_trials(deepcopy=False, states=(TrialState.PRUNED,)))
        ended = f", {pruned} of them pruned" if pruned else ""
        LOGGER.info(f"Best of {len(study.trials)} trials{ended}: {best.value} with {params}")
        OmegaConf.save(OmegaConf.create(results), sweep_dir / "optimization_results.yaml")
        LOGGER.info(f"Results: {os.path.relpath(sweep_dir / 'optimization_results.yaml')}")
        return params


def _watch(sweep_dir: Path, trials: Mapping[tuple[str, ...], Trial], has_ended: threading.Event) -> None:
    """Report each evaluation of trainings, by their overrides, to their trials until they have ended."""
    from bbrgym.agents.callbacks import STOP  # here, since every command with Hydra imports its plug-ins
    from bbrgym.agents.sweep import job_overrides

    reported = dict.fromkeys(trials, -1)
    is_last = False
    while not is_last:
        is_last = has_ended.wait(WATCH_S)  # trials to come are compared with all evaluations of this one
        for directory in (path.parent for path in sweep_dir.glob("*/run.json")):
            overrides = tuple(job_overrides(directory))
            if (trial := trials.get(overrides)) is None:
                continue
            scores = {step: score for step, score in _evaluations(directory) if step > reported[overrides]}
            for step, score in scores.items():
                trial.report(score, step)
                reported[overrides] = step
            # A pruner also remembers what it was asked about, with which it compares others.
            if scores and trial.should_prune() and not is_last:
                trial.set_user_attr("pruned", True)
                (directory / STOP).touch()


def _evaluations(directory: Path) -> Iterator[tuple[int, float]]:
    """Yield the best score of a training so far at each multiple of `train.eval_every`.

    A pruner compares trainings at the same step, but a learner evaluates where a rollout or a generation ends, which
    depends on what is searched.
    """
    from bbrgym.agents.tracking import read_metrics, read_run

    record = read_run(directory)
    every = ((record or {"params": {}})["params"].get("train") or {}).get("eval_every") or 1
    last = -1
    for line in read_metrics(directory):
        step = line["step"] // every * every
        if "best/score" in line["metrics"] and step > last:
            last = step
            yield step, line["metrics"]["best/score"]


@contextmanager
def _explaining(storage: str | None) -> Iterator[None]:
    """Raise errors about a database in the block as one that says what to change."""
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (SQLAlchemyError, StorageInternalError, RuntimeError, ImportError, OSError) as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        raise HydraException(
            f"hydra.sweeper.storage={_without_password(storage)} cannot be used as Optuna's database ({cause}): give "
            "another hydra.sweep.dir or hydra.sweeper.storage"
        ) from error


def _without_password(storage: str | None) -> str:
    return re.sub(r"(//[^/@]*:)[^/@]*@", r"\1…@", str(storage))


def _first_job(space: Mapping[str, BaseDistribution], fixed: list[str]) -> list[str]:
    """Return the overrides of the job with the first value of everything that is searched."""
    first = {key: vars(one)["low"] if "low" in vars(one) else vars(one)["choices"][0] for key, one in space.items()}
    return [*fixed, *_overrides(first)]


def _counted(study: Study) -> list[FrozenTrial]:
    """Return the trials that ended by themselves."""
    from optuna.trial import TrialState

    ended = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)
    done = study.get_trials(deepcopy=False, states=ended)
    return [trial for trial in done if trial.state is not TrialState.FAIL or "error" in trial.user_attrs]


def _overrides(params: Mapping[str, Any]) -> list[str]:
    return [f"{key}={value}" for key, value in params.items()]


def _distribution(override: Override) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    sweep: Any = override._value
    if isinstance(sweep, ChoiceSweep):
        # As written, so that lists and names of config groups work.
        return CategoricalDistribution(tuple(override.sweep_string_iterator()))
    if isinstance(sweep, IntervalSweep):
        more: dict[str, Any] = {"log": "log" in sweep.tags}
        low, high = sweep.start, sweep.end
    elif isinstance(sweep, RangeSweep):
        numbers = list(sweep.range())
        if not numbers:
            raise HydraException(f"{override.input_line}: the range is empty")
        low, high, more = min(numbers), max(numbers), {"step": abs(sweep.step)}
    else:
        raise HydraException(f"{override.input_line}: Optuna supports interval(…), range(…), choice(…) and lists")
    are_integers = isinstance(low, int) and isinstance(high, int)
    kind: Callable[..., BaseDistribution] = IntDistribution if are_integers else FloatDistribution
    try:
        return kind(low, high, **more)
    except ValueError as error:
        raise HydraException(f"{override.input_line}: {error}") from error
