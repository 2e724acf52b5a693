"""Commands that Hydra configures: overrides in, a task that runs once or as the jobs of a sweep."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bbrgym.envs.engine import EngineError
from bbrgym.interruption import raise_if_interrupted

if TYPE_CHECKING:
    from omegaconf import DictConfig


def run_with_hydra(task: Task, config_name: str, arguments: Sequence[str]) -> int:
    """Compose the configuration and run a task with it, once, or as the jobs of a sweep with --multirun."""
    import hydra

    from bbrgym.agents.sweep import SweepTracking, tracked_sweep

    callback = f"{SweepTracking.__module__}.{SweepTracking.__qualname__}"
    added = [f"hydra.job.name={task.command}", f"+hydra.callbacks.tracking._target_={callback}"]
    try:
        with tracked_sweep(), _command_line([f"bbrgym {task.command}", *add_overrides(added, arguments)]):
            hydra.main(config_path="pkg://bbrgym.conf", config_name=config_name, version_base="1.3")(task)()
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else int(left.code is not None)
    return 0


@dataclass(frozen=True)
class Task:
    """What Hydra runs; it can be pickled, because the jobs of a sweep run in other processes.

    Attributes:
        command: the subcommand.
        function: takes plain containers, and the folder that Hydra made for it. Its result is for a sweeper.
    """

    command: str
    function: Callable[[dict[str, Any], Path], float | None]

    def __call__(self, config: DictConfig) -> float | None:
        """Run the function with the configuration that Hydra composed."""
        from hydra.core.hydra_config import HydraConfig
        from hydra.errors import CompactHydraException
        from hydra.types import RunMode
        from omegaconf import OmegaConf

        settings = HydraConfig.get()
        is_job = settings.mode is RunMode.MULTIRUN
        if is_job:
            os.chdir(settings.runtime.cwd)  # a cluster's worker starts elsewhere
        directory = Path(os.path.relpath(settings.runtime.output_dir))
        try:
            if missing := OmegaConf.missing_keys(config):
                raise ValueError(
                    f"missing: {', '.join(f'{key}=…' for key in sorted(missing))} (see bbrgym {self.command} --help)"
                )
            if is_job:
                from bbrgym.agents.sweep import sweep_run_id

                OmegaConf.update(config, "tracking.parent", sweep_run_id(Path(settings.sweep.dir)), force_add=True)
            plain = OmegaConf.to_container(config, resolve=True)
            assert isinstance(plain, dict)
            return self.function(
                {**{str(key): value for key, value in plain.items()}, "output_dir": str(directory)}, directory
            )
        except Exception as error:
            raise_if_interrupted()
            if not is_explained(error):
                raise
            if is_job:
                raise CompactHydraException(str(error)) from error  # Hydra prints it after the other jobs
            print(f"bbrgym: {error}", file=sys.stderr)
            raise SystemExit(1) from error


def add_overrides(added: list[str], arguments: Sequence[str]) -> list[str]:
    """Prepend default overrides, so that the user's own take precedence.

    Hydra's parser needs all overrides next to each other: options may come before or after them.
    """
    is_override = (not a.startswith("-") and ("=" in a or a.startswith("~")) for a in arguments)
    first = next((index for index, found in enumerate(is_override) if found), len(arguments))
    return [*arguments[:first], *added, *arguments[first:]]


@contextmanager
def _command_line(arguments: list[str]) -> Iterator[None]:
    """Set sys.argv, which Hydra reads, within the block."""
    before = sys.argv
    sys.argv = arguments
    try:
        yield
    finally:
        sys.argv = before


def run_explained(name: str, command: Callable[[], int]) -> int:
    """Run a command. An error whose message is all that a user needs is printed as a line; others are raised.

    Args:
        name: of the command, for the line.
        command: returns the exit status.

    Returns:
        The command's exit status, or 1 after such an error.
    """
    try:
        return command()
    except Exception as error:
        raise_if_interrupted()
        if not is_explained(error):
            raise
        print(f"{name}: {error}", file=sys.stderr)
        return 1


def is_explained(error: Exception) -> bool:
    """Return whether the error's message is all that is needed: never for someone who debugs."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    if any(os.environ.get(name, "0") not in ("", "0") for name in ("BBRGYM_DEBUG", "HYDRA_FULL_ERROR")):
        return False
    known = (
        *(ValueError, EngineError, FileNotFoundError, ModuleNotFoundError, ConnectionError),
        *(HydraException, OmegaConfBaseException),
    )
    return isinstance(error, known)
