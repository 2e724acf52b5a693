"""`hydra/launcher=local`: the jobs of a sweep on this machine, each in a process of its own."""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn, JobStatus, configure_log, filter_overrides, setup_globals
from hydra.errors import CompactHydraException
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

from hydra_plugins.bbrgym._processes import OUTPUT, Ending, Job, read_result, run_jobs

LOGGER = logging.getLogger(__name__)


class LocalLauncher(Launcher):
    """Runs jobs in processes, so many at a time, each in a process group that is killed with it.

    A job's folder in the sweep's is named by a hash of its configuration (as composed, before `${now:…}` and the like
    are filled in). So a job that is done is known again however the sweep was changed around it, and one whose
    configuration changed is another job. The folder has `result.json` (status, overrides, what the task returned) and
    `output.log` (what it printed), beside what the task and Hydra write.

    A job that was killed, or ended at its time limit, is started again; one that raised an exception is not. All others
    go on in any case. What a task returns has to be what JSON has.

    Args:
        n_jobs: how many run at a time; None is one a core.
        timeout_s: of each attempt, after which it gets SIGTERM, and SIGKILL 15 s later; None for none.
        retries: how often a job is started again.
        resume: leave out jobs that are done in the sweep's folder.

    Raises:
        ValueError: naming the bad value and the good ones.
    """

    def __init__(self, n_jobs: int | None, timeout_s: float | None, retries: int, resume: bool) -> None:
        if n_jobs is not None and (isinstance(n_jobs, bool) or not isinstance(n_jobs, int) or n_jobs < 1):
            raise ValueError(f"hydra.launcher.n_jobs={n_jobs!r} is not possible: it must be 1 or more, or null")
        if timeout_s is not None and not (isinstance(timeout_s, int | float) and 0 < timeout_s < math.inf):
            raise ValueError(f"hydra.launcher.timeout_s={timeout_s!r} is not possible: it must be above 0, or null")
        if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
            raise ValueError(f"hydra.launcher.retries={retries!r} is not possible: it must be a whole number from 0 on")
        self._n_jobs = n_jobs or len(os.sched_getaffinity(0))
        self._timeout_s = timeout_s
        self._retries = retries
        self._resume = resume
        self.config: DictConfig | None = None
        self.hydra_context: HydraContext | None = None
        self.task_function: TaskFunction | None = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Take what Hydra gives to every launcher."""
        self.config = config
        self.hydra_context = hydra_context
        self.task_function = task_function

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Run jobs, and print a table of how they ended.

        Args:
            job_overrides: of each job.
            initial_job_idx: `hydra.job.num` of the first.

        Returns:
            What became of each; those that did not make it have an exception that says why, and where its output is.
        """
        assert self.config is not None
        setup_globals()
        configure_log(self.config.hydra.hydra_logging, self.config.hydra.verbose)
        sweep = Path(str(self.config.hydra.sweep.dir))
        configs = [
            self._compose(overrides, number) for number, overrides in enumerate(job_overrides, start=initial_job_idx)
        ]
        folders = [sweep / str(config.hydra.sweep.subdir) for config in configs]
        endings: dict[Path, Ending] = {}
        jobs: dict[Path, Job] = {}
        for folder, config in zip(folders, configs, strict=True):
            result = read_result(folder) if self._resume else None
            if result is not None and result["status"] == "done":
                endings[folder] = Ending("done", 0.0, 0, result["value"])
            elif folder not in jobs:  # two that are the same are one
                jobs[folder] = Job(
                    folder, pickle.dumps((self.hydra_context, self.task_function, config, folder.absolute()))
                )
        known = f"; {len(endings)} are done already" if endings else ""
        LOGGER.info(
            f"{len(jobs)} jobs, {min(self._n_jobs, max(len(jobs), 1))} at a time, in {os.path.relpath(sweep)}{known}"
        )
        titles = dict(zip(folders, _differences(job_overrides), strict=True))
        for job, ending in run_jobs(jobs.values(), self._n_jobs, self._timeout_s, self._retries):
            endings[job.folder] = ending
            LOGGER.info(f"\t{ending.status} after {ending.seconds:.0f} s: {titles[job.folder]}")
        _print_table(titles, endings)
        return [_job_return(config, folder, endings[folder]) for config, folder in zip(configs, folders, strict=True)]

    def _compose(self, overrides: Sequence[str], number: int) -> DictConfig:
        assert self.hydra_context is not None
        assert self.config is not None
        config = self.hydra_context.config_loader.load_sweep_config(self.config, list(overrides))
        with open_dict(config):
            config.hydra.job.num = number
            config.hydra.job.id = config.hydra.sweep.subdir = _hash(config)
        return config


def _differences(job_overrides: Sequence[Sequence[str]]) -> list[str]:
    """Of each job the overrides that not all have."""
    shown = [filter_overrides(overrides) for overrides in job_overrides]
    common = set(shown[0]).intersection(*shown[1:]) if len(shown) > 1 else set()
    return [" ".join(override for override in overrides if override not in common) for overrides in shown]


def _hash(config: DictConfig) -> str:
    task = OmegaConf.to_container(OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"]))
    text = json.dumps([config.hydra.job.name, task], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _job_return(config: DictConfig, folder: Path, ending: Ending) -> JobReturn:
    job = JobReturn(
        overrides=list(config.hydra.overrides.task),
        cfg=OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"]),
        hydra_cfg=OmegaConf.masked_copy(config, ["hydra"]),
        working_dir=os.getcwd(),
        task_name=str(config.hydra.job.name),
    )
    if ending.status == "done":
        job.status, job.return_value = JobStatus.COMPLETED, ending.value
    else:
        job.status = JobStatus.FAILED
        job.return_value = CompactHydraException(f"{ending.error} (its output: {os.path.relpath(folder / OUTPUT)})")
    return job


def _print_table(titles: dict[Path, str], endings: dict[Path, Ending]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("folder", "status", "s", "attempts", "value", "overrides", box=SIMPLE_HEAD)
    for folder, title in titles.items():
        ending = endings[folder]
        value: Any = ending.value
        table.add_row(
            folder.name,
            ending.status if ending.attempts else "done before",
            f"{ending.seconds:.1f}" if ending.attempts else "",
            str(ending.attempts) if ending.attempts else "",
            f"{value:.6g}" if isinstance(value, float) else "" if value is None else escape(str(value)),
            escape(title),
        )
    Console(width=None if os.isatty(1) else 140).print(table)
