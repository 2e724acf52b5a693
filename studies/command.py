"""The command lines of the studies that take `key=value`: a console, settings, and one message per error."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from rich.console import Console

from bbrgym.envs.engine import EngineError
from bbrgym.hydra_task import run_explained
from bbrgym.interruption import SAME_COMMAND, run_interruptible
from bbrgym.terminal import make_console


def run_command(
    name: str, manual: str | None, study: Callable[[Sequence[str], Console], None], arguments: Sequence[str]
) -> int:
    """Run a study, which the same command resumes, and print its error, if there is one, as a message.

    Returns:
        The exit status: 0, 1 after an error, 130 after Ctrl-C, 143 after SIGTERM.
    """
    if set(arguments) & {"-h", "--help"}:
        print(manual)
        return 0
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")

    def run() -> int:
        study(arguments, make_console())
        return 0

    return run_interruptible(name, lambda: run_explained(name, run), SAME_COMMAND)


def split_settings(arguments: Sequence[str], defaults: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return a study's own settings, and the other arguments, which are Hydra overrides."""
    own, others = dict(defaults), []
    for override in OverridesParser.create().parse_overrides(list(arguments)):
        if override.is_sweep_override():
            raise ValueError(f"{override.input_line}: give one value, not a sweep")
        if override.key_or_group in own:
            own[override.key_or_group] = override.value()
        else:
            others.append(str(override.input_line))
    return own, others


def check_failures(failures: int) -> None:
    """Raise an EngineError if runs failed."""
    if failures:
        raise EngineError(f"{failures} runs failed; the same command tries these again")
