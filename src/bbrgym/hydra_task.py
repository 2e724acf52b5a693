"""Commands that Hydra configures: overrides in, a task that runs once or as the jobs of a sweep."""

from __future__ import annotations

import copy
import itertools
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bbrgym.conf import groups
from bbrgym.envs.engine import EngineError
from bbrgym.files import check_folder
from bbrgym.interruption import raise_if_interrupted
from bbrgym.output import NO_READER, has_no_reader, is_quiet

if TYPE_CHECKING:
    from omegaconf import DictConfig


def run_with_hydra(task: Task, config_name: str, arguments: Sequence[str]) -> int:
    """Compose the configuration and run a task with it, once, or as the jobs of a sweep with --multirun."""
    from bbrgym.agents.sweep import SweepTracking, tracked_sweep
    from bbrgym.overrides import explaining

    callback = f"{SweepTracking.__module__}.{SweepTracking.__qualname__}"
    added = [f"hydra.job.name={task.command}", f"+hydra.callbacks.tracking._target_={callback}"]
    if is_quiet():
        for logging in ("hydra.job_logging", "hydra.hydra_logging"):
            handler = f"{logging}.handlers.console"
            added += [f"{handler}.stream=ext://sys.stderr", f"+{handler}.level=WARNING"]
    try:
        with explaining(config_name, arguments), tracked_sweep(partial(_check, task)):
            try:
                _call_hydra([f"bbrgym {task.command}", *add_overrides(added, arguments)], config_name, task)
            except _Rejected as rejected:
                raise rejected.error from rejected.error.__cause__
    except SystemExit as left:
        if has_no_reader(left):
            raise
        return left.code if isinstance(left.code, int) else int(left.code is not None)
    return 0


def complete_with_hydra(config_name: str, setting: str) -> None:
    """Do what `-sc` and a setting ask Hydra for: `install=bash`, or `query=bash` with a line in COMP_LINE."""
    _call_hydra(["bbrgym", "-sc", setting], config_name, lambda config: None)


def _call_hydra(command_line: list[str], config_name: str, task: Callable[[DictConfig], object]) -> None:
    """Call Hydra with a command line, which it reads from sys.argv; it raises its errors instead of printing them."""
    import hydra

    from bbrgym.overrides import store_papers

    store_papers(command_line)
    arguments, full_error = sys.argv, os.environ.get(_RAISE)
    sys.argv, os.environ[_RAISE] = command_line, "1"
    try:
        hydra.main(config_path="pkg://bbrgym.conf", config_name=config_name, version_base="1.3")(task)()
    finally:
        sys.argv = arguments
        if full_error is None:
            del os.environ[_RAISE]
        else:
            os.environ[_RAISE] = full_error


_RAISE: Final = "HYDRA_FULL_ERROR"
"""The environment variable that makes Hydra raise errors, as "1"."""


def is_debugging() -> bool:
    """Return whether the user wants tracebacks."""
    return any(os.environ.get(name, "0") not in ("", "0") for name in ("BBRGYM_DEBUG", _RAISE))


@dataclass(frozen=True)
class Task:
    """What Hydra runs; it can be pickled, because the jobs of a sweep run in other processes.

    Attributes:
        command: the subcommand.
        function: takes plain containers, and the folder that Hydra made for it. Its result is for a sweeper.
        check: takes the same before there is a folder, or no folder for a job of a sweep, and raises what is wrong.
        is_debugged: whether its errors keep their tracebacks.
    """

    command: str
    function: Callable[[dict[str, Any], Path], float | None]
    check: Callable[[dict[str, Any], Path | None], None]
    is_debugged: bool = field(default_factory=is_debugging)

    def __call__(self, config: DictConfig) -> float | None:
        """Run the function with the configuration that Hydra composed."""
        from hydra.core.hydra_config import HydraConfig
        from hydra.types import RunMode
        from omegaconf import OmegaConf

        from bbrgym.agents.sweep import sweep_run_id, swept_keys

        settings = HydraConfig.get()
        is_job = settings.mode is RunMode.MULTIRUN
        if is_job:
            os.chdir(settings.runtime.cwd)  # a cluster's worker starts elsewhere
        directory = Path(os.path.relpath(settings.runtime.output_dir))
        try:
            if is_job:
                OmegaConf.update(config, "tracking.parent", sweep_run_id(Path(settings.sweep.dir)), force_add=True)
            choices = {group: one for group, one in settings.runtime.choices.items() if one and "/" not in group}
            composition = {
                "choices": choices,
                "overrides": list(settings.overrides.task),
                "swept": swept_keys(Path(settings.sweep.dir)) if is_job else [],
            }
            plain = _plain(self.command, config) | {"output_dir": str(directory), "composition": composition}
            return self.function(plain, directory)
        except Exception as error:
            raise_if_interrupted()
            if has_no_reader(error):
                raise SystemExit(NO_READER) from error
            is_text_enough = isinstance(error, _explained()) and not self.is_debugged
            if is_job or not is_text_enough:  # that of a job comes after the other jobs
                raise
            print(f"bbrgym: {_text(error)}", file=sys.stderr)
            raise SystemExit(1) from error


def _plain(command: str, config: DictConfig) -> dict[str, Any]:
    from omegaconf import OmegaConf

    from bbrgym.overrides import read_environment

    config = copy.deepcopy(config)
    read_environment(config)
    if missing := OmegaConf.missing_keys(config):
        raise ValueError(f"missing: {', '.join(f'{key}=…' for key in sorted(missing))} (see bbrgym {command} --help)")
    plain = OmegaConf.to_container(config, resolve=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


class _Rejected(BaseException):
    """Carries an error of a check through Hydra, which goes on after an Exception."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def _check(task: Task, config: DictConfig) -> None:
    """Check a run or a sweep before anything is written."""
    from hydra.types import RunMode
    from omegaconf import OmegaConf

    try:
        if config.hydra.mode is RunMode.MULTIRUN:
            folder = Path(str(config.hydra.sweep.dir))
            _check_folder(task, folder, "hydra.sweep.dir", is_of_sweep=True)
            _check_jobs(folder, config)
            _check_sweep(task, config)
        else:
            directory = Path(os.path.relpath(str(OmegaConf.select(config, "hydra.run.dir"))))
            _check_folder(task, directory, "output_dir", is_of_sweep=False)
            _check_run(task, config, directory)
    except Exception as error:
        raise_if_interrupted()
        raise _Rejected(error) from error


def _check_folder(task: Task, directory: Path, setting: str, is_of_sweep: bool) -> None:
    """Check that a folder has no run of another kind, whose record this one would continue or replace."""
    from bbrgym.agents.tracking import read_run

    record = read_run(directory)
    if record is None:
        return
    experiment = str(record.get("experiment")).partition("/")[0]
    was_of_sweep = "sweeper" in (record.get("tags") or {})
    if (experiment, was_of_sweep) != ("train" if task.command == "demo" else task.command, is_of_sweep):
        kind = "a sweep" if was_of_sweep else "a run"
        raise ValueError(f"'{directory}' holds {kind} of `bbrgym {experiment}`: choose another folder by {setting}=…")


def _check_jobs(folder: Path, config: DictConfig) -> None:
    """Check that a folder has no jobs of another sweep, which these would replace where folders are their numbers."""
    from bbrgym.agents.tracking import read_run

    choices = config.hydra.runtime.choices
    if not choices["hydra/launcher"] == choices["hydra/sweeper"] == "basic":
        return  # folders of jobs are named by their configurations, or a study goes on
    before = ((read_run(folder) or {}).get("params") or {}).get("overrides")
    if before is not None and list(before) != (now := list(config.hydra.overrides.task)):
        raise ValueError(
            f"'{folder}' holds the jobs of another sweep, of {' '.join(before)}, and not of {' '.join(now)}: choose "
            "another folder by hydra.sweep.dir=…"
        )


def _check_run(task: Task, config: DictConfig, directory: Path | None) -> None:
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import open_dict, read_write

    config = copy.deepcopy(config)
    with read_write(config.hydra.runtime), open_dict(config.hydra.runtime):
        config.hydra.runtime.output_dir = str(directory)
    HydraConfig.instance().set_config(config)  # for ${hydra:…}
    with read_write(config), open_dict(config):
        del config["hydra"]
    task.check(_plain(task.command, config), directory)
    if directory is not None:
        check_folder(directory, "choose another folder with output_dir=FOLDER")


def _check_sweep(task: Task, config: DictConfig) -> None:
    """Check a sweep: its sweeper and launcher, that its jobs can be composed, and that not all of them are rejected."""
    from hydra._internal.callbacks import Callbacks
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.plugins import Plugins
    from hydra.errors import InstantiationException
    from hydra.types import HydraContext
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    from bbrgym.overrides import check_values, read_environment

    folder = Path(os.path.relpath(str(OmegaConf.select(config, "hydra.sweep.dir"))))
    check_folder(folder, "choose another folder with hydra.sweep.dir=FOLDER")
    for plugin in ("launcher", "sweeper"):
        read_environment(config.hydra[plugin])
    loader = GlobalHydra.instance().config_loader()
    # A sweeper is made with callbacks, here without any, and Hydra makes them under a private name only.
    context = HydraContext(config_loader=loader, callbacks=Callbacks())
    sweeper: Any
    try:  # with its launcher
        sweeper = Plugins.instance().instantiate_sweeper(config=config, hydra_context=context, task_function=task)
    except InstantiationException as error:
        raise error.__cause__ or error from None
    is_known = hasattr(sweeper, "split_arguments")  # Hydra's, or one of this package
    params = sweeper.params.items() if is_known else ()
    given = [*(f"{key}={value}" for key, value in params), *config.hydra.overrides.task]
    overrides = OverridesParser.create(config_loader=loader).parse_overrides(given)
    for override in overrides:
        check_values(override, loader.get_group_options(override.key_or_group))
    if not is_known:
        return
    rejection: Exception | None = None
    is_accepted = False
    composed: set[str] = set()
    for job in itertools.chain.from_iterable(sweeper.split_arguments(overrides, None)):
        # Whether a job can be composed depends on its keys, and on what it chooses from groups.
        parts = {one if (key := one.partition("=")[0]).lstrip("+") in groups() else key for one in job}
        if is_accepted and parts <= composed:
            continue
        composed |= parts
        one = loader.load_sweep_config(config, job)
        if not is_accepted:
            try:
                _check_run(task, one, None)
            except (ValueError, OmegaConfBaseException) as error:
                rejection = rejection or error
                continue
            except Exception:  # a machine that runs jobs may have what this one lacks
                pass
            is_accepted = True
    if rejection is not None and not is_accepted:
        raise rejection


def add_overrides(added: list[str], arguments: Sequence[str]) -> list[str]:
    """Prepend default overrides, so that the user's own take precedence.

    Hydra's parser needs all overrides next to each other: options may come before or after them.
    """
    is_override = (not a.startswith("-") and ("=" in a or a.startswith("~")) for a in arguments)
    first = next((index for index, found in enumerate(is_override) if found), len(arguments))
    return [*arguments[:first], *added, *arguments[first:]]


def run_explained(command: Callable[[], int], status: int = 1) -> int:
    """Run a command and return its exit status: `status` after an error whose message is all that is needed.

    The message is printed. Other errors are raised.
    """
    try:
        return command()
    except Exception as error:
        raise_if_interrupted()
        if has_no_reader(error) or is_debugging() or not isinstance(error, _explained()):
            raise
        print(f"bbrgym: {_text(error)}", file=sys.stderr)
        return status


def _text(error: Exception) -> str:
    """Return the message of an error; an OSError of the system names a file and what is wrong with it."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror is not None:
        return f"'{error.filename}': {error.strerror}"
    return str(error)


def _explained() -> tuple[type[Exception], ...]:
    """Return the errors whose message is all that is needed, unless the user debugs."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    return (
        ValueError,
        EngineError,
        FileNotFoundError,
        ModuleNotFoundError,
        ConnectionError,
        PermissionError,
        FileExistsError,
        NotADirectoryError,
        IsADirectoryError,
        HydraException,
        OmegaConfBaseException,
    )
