"""`hydra/launcher=local` and others: the jobs of a sweep on an executor, as the runs of a benchmark."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from hydra.core.utils import JobReturn, JobStatus, configure_log, filter_overrides, setup_globals
from hydra.errors import CompactHydraException
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

from bbrgym.checks import check_integer
from bbrgym.executors import ExecutorConfig, TaskResult, make_executor, run_in_chunks
from hydra_plugins.bbrgym._job import OUTPUT, RESULT, SweepJob, identity, read_result, run, without_hydra

LOGGER: Final = logging.getLogger(__name__)


class ExecutorLauncher(Launcher):
    """Run the jobs of a sweep on an executor, several at a time, each in a process of its own (not with Dask).

    A job's folder in the sweep's folder is named by a hash of the job's configuration, as composed, before `${now:…}`
    and the like are resolved. So a finished job is recognized however the sweep around it changes, and a job whose
    configuration changes is another job. The folder holds `result.json` (status, overrides, what the task returned) and
    `output.log` (what it printed), next to what the task and Hydra write.

    A job whose process was lost or took too long is started again; one that raised an exception is not. The other jobs
    go on in any case. A task must return what JSON can hold.

    conf/hydra/launcher explains the arguments; a bad one raises ValueError.
    """

    config: DictConfig
    hydra_context: HydraContext
    task_function: TaskFunction

    def __init__(self, retries: int, resume: bool, **executor: Any) -> None:
        self._executor = ExecutorConfig.of(executor)
        self._retries = check_integer("hydra.launcher.retries", retries, at_least=0)
        self._resume = resume

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Take what Hydra gives to every launcher."""
        self.config = config
        self.hydra_context = hydra_context
        self.task_function = task_function

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run the jobs with these overrides, and print a table of their results.

        Returns:
            One return per job. A job that is not done returns an exception that says why and where its output is.
        """
        setup_globals()
        configure_log(self.config.hydra.hydra_logging, self.config.hydra.verbose)
        sweep = Path(str(self.config.hydra.sweep.dir)).absolute()
        configs = [
            self._compose(overrides, number) for number, overrides in enumerate(job_overrides, start=initial_job_idx)
        ]
        folders = [sweep / str(config.hydra.sweep.subdir) for config in configs]
        results: dict[Path, TaskResult[SweepJob]] = {}
        jobs: dict[Path, SweepJob] = {}
        for folder, config in zip(folders, configs, strict=True):
            job = SweepJob(self.hydra_context, self.task_function, config, folder)
            before = read_result(folder) if self._resume else None
            if before is not None and before["status"] == "done":
                results[folder] = TaskResult(job, before["value"], attempts=0)
            elif folder not in jobs:  # two jobs with one configuration are one
                folder.mkdir(parents=True, exist_ok=True)
                (folder / RESULT).unlink(missing_ok=True)
                jobs[folder] = job
        done = f"; {len(results)} are done already" if results else ""
        LOGGER.info(f"{len(jobs)} jobs in {os.path.relpath(sweep)}{done}")
        titles = dict(zip(folders, _differences(job_overrides), strict=True))
        if jobs:
            self._run(jobs, titles, results)
        _print_table(titles, results)
        return [_job_return(config, folder, results[folder]) for config, folder in zip(configs, folders, strict=True)]

    def _run(
        self, jobs: dict[Path, SweepJob], titles: dict[Path, str], results: dict[Path, TaskResult[SweepJob]]
    ) -> None:
        executor = make_executor(self._executor, is_fresh=True)
        try:
            with closing(run_in_chunks(run, jobs.values(), executor, chunk_s=0, retries=self._retries)) as finished:
                for result in finished:
                    results[result.task.folder] = result
                    LOGGER.info(f"\t{result.status} after {result.seconds:.0f} s: {titles[result.task.folder]}")
        finally:
            executor.shutdown(cancel_futures=True)

    def _compose(self, overrides: Sequence[str], number: int) -> DictConfig:
        config = self.hydra_context.config_loader.load_sweep_config(self.config, list(overrides))
        with open_dict(config):
            config.hydra.job.num = number
            config.hydra.job.id = config.hydra.sweep.subdir = identity(config)
        return config


def _differences(job_overrides: Sequence[Sequence[str]]) -> list[str]:
    """Return for each job the overrides that not all jobs have."""
    shown = [filter_overrides(overrides) for overrides in job_overrides]
    common = set(shown[0]).intersection(*shown[1:]) if len(shown) > 1 else set()
    return [" ".join(override for override in overrides if override not in common) for overrides in shown]


def _job_return(config: DictConfig, folder: Path, result: TaskResult[SweepJob]) -> JobReturn:
    is_done = result.status == "done"
    job = JobReturn(
        overrides=list(config.hydra.overrides.task),
        cfg=without_hydra(config),
        hydra_cfg=OmegaConf.masked_copy(config, ["hydra"]),
        working_dir=os.getcwd(),
        task_name=str(config.hydra.job.name),
        status=JobStatus.COMPLETED if is_done else JobStatus.FAILED,
    )
    output = os.path.relpath(folder / OUTPUT)
    job.return_value = result.value if is_done else CompactHydraException(f"{result.error} (its output: {output})")
    return job


def _print_table(titles: dict[Path, str], results: dict[Path, TaskResult[SweepJob]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("folder", "status", "s", "attempts", "value", "overrides", box=SIMPLE_HEAD)
    for folder, title in titles.items():
        result = results[folder]
        value: Any = result.value
        row = ["done before", "", ""]
        if result.attempts:
            row = [result.status, f"{result.seconds:.1f}", str(result.attempts)]
        shown = "" if value is None else escape(str(value))
        if isinstance(value, float):
            shown = f"{value:.6g}"
        table.add_row(folder.name, *row, shown, escape(title))
    Console(width=None if os.isatty(1) else 140).print(table)
