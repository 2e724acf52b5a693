"""Flows whose ends are two commands: what their fields may hold."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final, Literal, get_args

from bbrgym.baselines.registry import COMMAND
from bbrgym.checks import check_name

DataFrom = Literal["client", "server"]
"""Which of a flow's two commands sends the data."""

PLACES: Final = ("address", "port", "seconds", "bytes")
"""What is replaced in arguments, in braces: the server's address and port, how long the client may take, in whole
seconds (rounded up), and the flow's `size_bytes`."""

_IN_BRACES: Final = re.compile(r"(?<!\$)\{([a-z_]+)\}")  # `${name}` is a shell's


def check_commands(algorithm: str, commands: dict[str, Any], data_from: str, size_bytes: int | None, ecn: Any) -> None:
    """Check the fields of a flow that say what its ends run."""
    check_name("data_from", data_from, get_args(DataFrom))
    for name, given in commands.items():
        if isinstance(given, str) or not isinstance(given, Sequence) or not all(isinstance(it, str) for it in given):
            raise ValueError(f"{name} must be a list of strings, the program and its arguments, got {given!r}")
        if (algorithm == COMMAND) != bool(given):
            must = "have a program" if algorithm == COMMAND else f"be empty with algorithm {algorithm!r}"
            raise ValueError(f"{name} must {must} (only flows 'command' run one), got {list(given)}")
        for argument in given:
            if "\0" in argument:
                raise ValueError(f"{name} must not have null characters, got {argument!r}")
            for place in _IN_BRACES.findall(argument):
                check_name(f"place in {name}", f"{{{place}}}", [f"{{{known}}}" for known in PLACES])
                if place == "bytes" and size_bytes is None:
                    raise ValueError(f"{name} has {{bytes}}, so size_bytes must be a number, got null")
        commands[name] = tuple(given)
    if algorithm == COMMAND and ecn is not None:
        raise ValueError(f"ecn of a flow 'command' must be null (its packets carry what its stack sets), got {ecn!r}")
