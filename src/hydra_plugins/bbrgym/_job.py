"""One job of a sweep, as it runs in a worker's process."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobStatus, run_job, setup_globals
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from bbrgym.files import read_object, write_text

RESULT: Final = "result.json"
"""File in a job's folder, once it has ended by itself: status, overrides, value, error."""

OUTPUT: Final = "output.log"
"""File in a job's folder: what it printed, in all attempts."""


@dataclass(frozen=True)
class SweepJob:
    """What a job runs; its absolute `folder` is its own, and `started_in` is the sweep's working folder."""

    hydra_context: HydraContext
    task_function: TaskFunction
    config: DictConfig
    folder: Path
    started_in: str = field(default_factory=os.getcwd)


def without_hydra(config: DictConfig) -> DictConfig:
    """Return what of a composed configuration the task gets."""
    return OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])


def identity(config: DictConfig, *more: Any) -> str:
    """Return a hash of a job's name and configuration, as composed, before `${now:…}` and the like are resolved.

    Args:
        config: as Hydra composed it. What it says of Hydra itself does not count.
        more: plain values that count, too.
    """
    content = [config.hydra.job.name, OmegaConf.to_container(without_hydra(config)), *more]
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:12]


def run(job: SweepJob) -> Any:
    """Run a job's task, write `RESULT` and `OUTPUT` to its folder, and return what the task returned, as JSON holds it.

    Raises:
        TypeError: the task returned what JSON cannot hold.
        Exception: the task's own.
    """
    os.chdir(job.started_in)
    setup_globals()
    HydraConfig.instance().set_config(job.config)
    with _printing_to(job.folder / OUTPUT):
        ended = run_job(
            hydra_context=job.hydra_context,
            task_function=job.task_function,
            config=job.config,
            job_dir_key="hydra.sweep.dir",
            job_subdir_key="hydra.sweep.subdir",
        )
        result = {"status": "done", "overrides": list(ended.overrides or ()), "value": None, "error": None}
        error: Exception = ended._return_value  # the property would raise it
        if ended.status is JobStatus.COMPLETED:
            try:
                text = json.dumps(result | {"value": ended.return_value}, indent=1, default=_plain)
            except TypeError as not_json:
                error = not_json
            else:
                write_text(job.folder / RESULT, text + "\n")
                return json.loads(text)["value"]
        traceback.print_exception(error)
    result |= {"status": "failed", "error": str(error) or type(error).__name__}
    write_text(job.folder / RESULT, json.dumps(result, indent=1) + "\n")
    raise error


def read_result(folder: Path) -> dict[str, Any] | None:
    """Return `RESULT` of a job's folder; None if there is none or it is damaged."""
    try:
        result = read_object(folder / RESULT, status=str, overrides=list)
    except (OSError, ValueError):
        return None
    return result if "value" in result else None


@contextmanager
def _printing_to(path: Path) -> Iterator[None]:
    """Append what this process and its children print in the block to a file."""
    streams = [(sys.stdout, 1), (sys.stderr, 2)]
    kept = [os.dup(fd) for _, fd in streams]
    with path.open("ab") as file:
        for stream, fd in streams:
            stream.flush()
            os.dup2(file.fileno(), fd)
    try:
        yield
    finally:
        for (stream, fd), before in zip(streams, kept, strict=True):
            stream.flush()
            os.dup2(before, fd)
            os.close(before)


def _plain(value: object) -> Any:
    """Return a NumPy scalar as Python's."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"a job must return what JSON can hold, got {type(value).__name__}")
