"""`hydra/sweeper=optuna`: Optuna chooses the values, to optimize what the task returns."""

from __future__ import annotations

import itertools
import logging
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, Override, RangeSweep
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.errors import CompactHydraException, HydraException
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from bbrgym.checks import check_integer, check_name, check_number
from bbrgym.extras import require
from bbrgym.files import sqlite_url
from bbrgym.waiting import announcing

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

LOGGER = logging.getLogger(__name__)

SAMPLERS = ("tpe", "random", "grid")
DIRECTIONS = ("maximize", "minimize")


class OptunaSweeper(Sweeper):
    """Ask Optuna for values, run `n_jobs` jobs at a time, and tell Optuna what they returned.

    The search space is written as Hydra's sweeps, on the command line or in `params`:

        agent.learning_rate=tag(log,interval(1e-4,1e-2))   a number, with `log` on a logarithmic scale
        agent.n_steps=int(interval(32,512))                an integer
        agent.batch_size=range(64,513,64)                  a number in steps, without the end
        agent=ppo,sac   agent.gamma=choice(0.9,0.99)       one of a list

    A key with one value has it in all jobs. The study is kept in `storage`; the same command resumes it, up to
    `n_trials` in total. Trials that were running when it was killed are repeated.

    The results go to `optimization_results.yaml` in the sweep's folder: value, parameters and overrides of the best
    trial; for several directions, of each trial that no other trial dominates.

    Args:
        direction: `maximize` or `minimize`, or a list of them if the task returns several values.
        n_trials: number of trials, including failed ones.
        n_jobs: how many trials the launcher gets at a time. It waits for all of them.
        sampler: `tpe` (tree-structured Parzen estimator), `random` or `grid` (every combination once).
        seed: seed of the sampler; None for a fresh one each time.
        max_failure_rate: share of `n_trials` that may fail before the sweep ends with an error.
        storage: path of Optuna's SQLite database, or the URL of a database; None does not store the study.
        study_name: the study's name in the database.
        params: `{key: sweep}`, more of the search space; the command line takes precedence.

    Raises:
        ValueError: an argument is unknown or out of range.
    """

    def __init__(
        self,
        direction: str | Sequence[str],
        n_trials: int,
        n_jobs: int,
        sampler: str,
        seed: int | None,
        max_failure_rate: float,
        storage: str | None,
        study_name: str | None,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        self._directions = [direction] if isinstance(direction, str) else [str(one) for one in direction]
        for one in self._directions:
            check_name("hydra.sweeper.direction", one, DIRECTIONS)
        check_name("hydra.sweeper.sampler", sampler, SAMPLERS)
        check_number("hydra.sweeper.max_failure_rate", max_failure_rate, at_least=0, at_most=1)
        self._n_trials = check_integer("hydra.sweeper.n_trials", n_trials, at_least=1)
        self._n_jobs = check_integer("hydra.sweeper.n_jobs", n_jobs, at_least=1)
        self._sampler = sampler
        self._seed = check_integer("hydra.sweeper.seed", seed, at_least=0, below=2**32, or_none=True)
        self._max_failures = max_failure_rate * self._n_trials
        self._storage = storage if storage is None or "://" in storage else sqlite_url(Path(storage))
        self._study_name = study_name
        self._params = {str(key): str(value) for key, value in (params or {}).items()}
        self.config: DictConfig | None = None
        self.hydra_context: HydraContext | None = None
        self.launcher: Launcher | None = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Take what Hydra gives to every sweeper."""
        self.config = config
        self.hydra_context = hydra_context
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        """Run the study.

        Args:
            arguments: overrides; those that are sweeps are the search space.

        Returns:
            The best trial's parameters, or a list of them for several directions.

        Raises:
            HydraException: too many trials failed, none succeeded, or the sampler does not support a sweep.
        """
        try:
            require("hydra/sweeper=optuna", "optuna")
        except ModuleNotFoundError as error:
            raise CompactHydraException(str(error)) from error  # Hydra prints it without a traceback
        import optuna
        from optuna.study import StudyDirection
        from optuna.trial import TrialState

        assert self.config is not None
        assert self.launcher is not None
        sweep_dir = Path(str(self.config.hydra.sweep.dir))
        sweep_dir.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(self.config, sweep_dir / "multirun.yaml")
        space, fixed = self._read(arguments)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        with announcing(f"Optuna's database {self._storage}"):
            study = optuna.create_study(
                storage=self._storage,
                study_name=self._study_name,
                directions=[StudyDirection[one.upper()] for one in self._directions],
                load_if_exists=True,
            )
        self._requeue(study)
        study.sampler = self._make_sampler(len(study.trials))
        planned = self._n_trials
        if self._sampler == "grid":
            grid = [dict(zip(space, point, strict=True)) for point in itertools.product(*map(_values, space.values()))]
            for params in grid:
                study.enqueue_trial(params, skip_if_exists=True)
            planned = min(planned, len(grid))
        LOGGER.info(
            f"Optuna: {planned} trials, {len(_counted(study))} of them already done, in {os.path.relpath(sweep_dir)}"
        )
        while (left := planned - len(_counted(study))) > 0:
            # Not the trials' numbers: repeated trials are out of order.
            begun = sum(trial.state is not TrialState.WAITING for trial in study.get_trials(deepcopy=False))
            trials = [study.ask(space) for _ in range(min(left, self._n_jobs))]
            batch = [[*fixed, *_overrides(trial.params)] for trial in trials]
            self.validate_batch_is_legal(batch)
            jobs = self.launcher.launch(batch, initial_job_idx=begun)
            for trial, overrides, job in zip(trials, batch, jobs, strict=True):
                self._tell(study, trial, overrides, job)
            failed = sum(trial.state is TrialState.FAIL for trial in _counted(study))
            if failed > self._max_failures:
                raise HydraException(
                    f"{failed} of {planned} trials failed, more than hydra.sweeper.max_failure_rate allows"
                )
        return self._report(study, sweep_dir)

    def _read(self, arguments: list[str]) -> tuple[dict[str, BaseDistribution], list[str]]:
        """Return the search space, and the overrides that all jobs have."""
        assert self.hydra_context is not None
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        # By key, so that later overrides replace earlier ones.
        found = {
            override.get_key_element(): override
            for override in parser.parse_overrides([*(f"{k}={v}" for k, v in self._params.items()), *arguments])
        }
        space = {key: _distribution(one) for key, one in found.items() if one.is_sweep_override()}
        if not space:
            raise HydraException(
                "the search space is empty: give at least one key=interval(…), key=range(…) or key=a,b"
            )
        return space, [str(one.input_line) for one in found.values() if not one.is_sweep_override()]

    def _make_sampler(self, known: int) -> BaseSampler:
        from optuna.samplers import RandomSampler, TPESampler

        # A resumed study must not draw the values that it began with.
        seed = None if self._seed is None else self._seed + known
        if self._sampler == "tpe":
            return TPESampler(seed=seed, constant_liar=self._n_jobs > 1)  # spreads the trials of a batch
        return RandomSampler(seed)  # unused by a grid, whose trials are all queued

    def _requeue(self, study: Study) -> None:
        """Mark the trials that a killed sweep left running as failed, and queue their values first."""
        from optuna.trial import TrialState

        for trial in study.get_trials(states=(TrialState.RUNNING,)):
            study.tell(trial.number, state=TrialState.FAIL)
            study.enqueue_trial(trial.params)

    def _tell(self, study: Study, trial: Trial, overrides: list[str], job: JobReturn) -> None:
        from optuna.trial import TrialState

        trial.set_user_attr("overrides", overrides)
        error: str | None = None
        values: list[float] = []
        if job.status is JobStatus.COMPLETED:
            returned = job.return_value
            given = list(returned) if isinstance(returned, Sequence) and not isinstance(returned, str) else [returned]
            try:
                values = [float(value) for value in given]
            except (TypeError, ValueError):
                error = f"the task must return a number, got {returned!r}"
            if error is None and (len(values) != len(self._directions) or any(map(math.isnan, values))):
                error = f"the task must return {len(self._directions)} numbers that are not NaN, got {returned!r}"
        else:
            error = str(job._return_value)  # the property would raise it
        if error is None:
            study.tell(trial, values)
            return
        LOGGER.warning(f"trial {trial.number} failed: {error}")
        trial.set_user_attr("error", error)
        study.tell(trial, state=TrialState.FAIL)

    def _report(self, study: Study, sweep_dir: Path) -> Any:
        from optuna.trial import TrialState

        if not study.get_trials(states=(TrialState.COMPLETE,)):
            raise HydraException("no trial succeeded")
        solutions = [_solution(trial) for trial in study.best_trials]
        if len(self._directions) == 1:
            results = {"name": "optuna", **_solution(study.best_trial)}
            LOGGER.info(f"Best of {len(study.trials)} trials: {results['best_value']} with {results['best_params']}")
        else:
            results = {"name": "optuna", "solutions": solutions}
            LOGGER.info(f"{len(solutions)} of {len(study.trials)} trials are not dominated by another")
        OmegaConf.save(OmegaConf.create(results), sweep_dir / "optimization_results.yaml")
        LOGGER.info(f"Results: {os.path.relpath(sweep_dir / 'optimization_results.yaml')}")
        return results["best_params"] if len(self._directions) == 1 else [one["best_params"] for one in solutions]


def _counted(study: Study) -> list[FrozenTrial]:
    """Return the trials that ended by themselves."""
    from optuna.trial import TrialState

    done = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.FAIL))
    return [trial for trial in done if trial.state is TrialState.COMPLETE or "error" in trial.user_attrs]


def _distribution(override: Override) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    sweep = override._value
    if isinstance(sweep, IntervalSweep):
        assert sweep.start is not None
        assert sweep.end is not None
        is_log = "log" in sweep.tags
        if isinstance(sweep.start, int) and isinstance(sweep.end, int):
            return IntDistribution(sweep.start, sweep.end, log=is_log)
        return FloatDistribution(sweep.start, sweep.end, log=is_log)
    if isinstance(sweep, RangeSweep):
        numbers = list(sweep.range())
        if not numbers:
            raise HydraException(f"{override.input_line}: the range is empty")
        step = abs(sweep.step)
        if isinstance(step, int) and all(isinstance(number, int) for number in numbers):
            return IntDistribution(min(numbers), max(numbers), step=step)
        return FloatDistribution(float(min(numbers)), float(max(numbers)), step=float(step))
    if isinstance(sweep, ChoiceSweep):
        # As written, so that lists and names of config groups work.
        return CategoricalDistribution(tuple(override.sweep_string_iterator()))
    raise HydraException(f"{override.input_line}: Optuna supports interval(…), range(…), choice(…) and lists")


def _values(distribution: BaseDistribution) -> list[Any]:
    """Return all values of a distribution."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(distribution, CategoricalDistribution):
        return list(distribution.choices)
    if isinstance(distribution, IntDistribution):
        return list(range(distribution.low, distribution.high + 1, distribution.step))
    if isinstance(distribution, FloatDistribution) and distribution.step is not None:
        count = round((distribution.high - distribution.low) / distribution.step)
        return [distribution.low + index * distribution.step for index in range(count + 1)]
    raise HydraException("a grid does not support interval(…): use range(…) or choice(…)")


def _overrides(params: Mapping[str, Any]) -> list[str]:
    return [f"{key}={value}" for key, value in params.items()]


def _solution(trial: FrozenTrial) -> dict[str, Any]:
    parser = OverridesParser.create()
    return {
        **({"best_value": trial.value} if len(trial.values) == 1 else {"best_values": trial.values}),
        "best_params": {key: parser.parse_override(f"{key}={value}").value() for key, value in trial.params.items()},
        "best_trial": trial.number,
        "best_overrides": trial.user_attrs["overrides"],
    }
