"""The process of one job: `python -m hydra_plugins.bbrgym._worker FD`, with what to do in the file FD."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import time
import traceback
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobStatus, run_job, setup_globals
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from hydra_plugins.bbrgym._processes import GRACE_S, write_result


def run(hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig, folder: Path) -> bool:
    """Run a task as a job of a sweep, and write what it gave to its folder.

    Returns:
        Whether it did without an exception.
    """
    setup_globals()
    HydraConfig.instance().set_config(config)
    job = run_job(
        hydra_context=hydra_context,
        task_function=task_function,
        config=config,
        job_dir_key="hydra.sweep.dir",
        job_subdir_key="hydra.sweep.subdir",
    )
    result = {"overrides": list(job.overrides or ()), "value": None, "error": None}
    if job.status is JobStatus.COMPLETED:
        try:
            write_result(folder, {"status": "done", **result, "value": job.return_value})
        except TypeError as not_json:
            job.status, job.return_value = JobStatus.FAILED, not_json
        else:
            return True
    error = job._return_value  # the property would raise it
    traceback.print_exception(error)
    write_result(folder, {"status": "failed", **result, "error": str(error) or type(error).__name__})
    return False


def _end_with_parent() -> None:
    """End this process and its group when the sweep's process is gone, which holds the other end of standard input."""

    def watch() -> None:
        os.read(0, 1)
        os.killpg(0, signal.SIGTERM)
        time.sleep(GRACE_S)
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, name="end with parent", daemon=True).start()


def main() -> int:
    """Run the job; the exit status is 0 if it is done."""
    _end_with_parent()
    with os.fdopen(int(sys.argv[1]), "rb") as file:
        sys.path[:] = pickle.load(file)  # the task may be of a module that only the sweep's process knows where to find
        arguments = pickle.load(file)
    return 0 if run(*arguments) else 1


if __name__ == "__main__":
    sys.exit(main())
