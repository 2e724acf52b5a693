"""What a command prints: text, nothing but warnings and errors, or one JSON object at its end."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout
from contextvars import ContextVar
from typing import Any, Final, TextIO

from bbrgym.files import json_text

OPTIONS: Final = {
    "--json": "print one JSON object at the end; the rest goes to standard error",
    "--quiet": "print only warnings and errors",
}
"""The options of `printing`, and what they do."""

_JSON: ContextVar[TextIO | None] = ContextVar("_JSON", default=None)
_IS_QUIET: ContextVar[bool] = ContextVar("_IS_QUIET", default=False)


@contextmanager
def printing(options: set[str]) -> Iterator[None]:
    """Print in the block as some of `OPTIONS` say."""
    with ExitStack() as stack:
        tokens = _JSON.set(sys.stdout if "--json" in options else None), _IS_QUIET.set("--quiet" in options)
        if "--quiet" in options:
            stack.enter_context(redirect_stdout(stack.enter_context(open(os.devnull, "w", encoding="utf-8"))))
        elif "--json" in options:
            stack.enter_context(redirect_stdout(sys.stderr))
        try:
            yield
        finally:
            _JSON.reset(tokens[0])
            _IS_QUIET.reset(tokens[1])


def tell(text: str, facts: Mapping[str, Any]) -> None:
    """Print the end of a command: as text, and with --json also as an object of plain types."""
    print(text)
    if (stream := _JSON.get()) is not None:
        print(json_text(facts), file=stream, flush=True)


def is_json() -> bool:
    """Return whether `tell` prints facts."""
    return _JSON.get() is not None


def is_quiet() -> bool:
    """Return whether only warnings and errors are printed."""
    return _IS_QUIET.get()
