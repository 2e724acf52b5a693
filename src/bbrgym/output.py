"""What a command prints: text, nothing but warnings and errors, or one JSON object at its end; and to whom."""

from __future__ import annotations

import codecs
import ctypes
import io
import logging
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout
from contextvars import ContextVar
from typing import Any, Final, TextIO

from bbrgym.files import json_text
from bbrgym.interruption import run_interruptible

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


@contextmanager
def diverting_c() -> Iterator[None]:
    """Let what C code prints in the block go to standard error, so that it is not in a program's JSON."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        ctypes.CDLL(None).fflush(None)
        os.dup2(kept, 1)
        os.close(kept)


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


NO_READER: Final = 128 + signal.SIGPIPE
"""Exit status of a command whose output nobody reads to its end, as shells report it: `bbrgym … | head`."""

_PLAIN: Final = {"…": "...", "µ": "u", "─": "-"}


def run_program(name: str, command: Callable[[], int], resumption: str = "") -> int:
    """Run the command of a program, and return its exit status; the arguments are those of `run_interruptible`.

    It ends in order after Ctrl-C and SIGTERM, and with `NO_READER` if nobody reads what it prints.
    """
    prepare_output()
    try:
        status = run_interruptible(name, command, resumption)
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit) as error:
        if not has_no_reader(error):
            raise
        discard_output()
        return NO_READER
    return status


def prepare_output() -> None:
    """Let a command print in any encoding, and log errors end it where nobody reads what it logs.

    What the encoding of the terminal lacks is printed in plain characters.
    """
    codecs.register_error("bbrgym-plain", _in_plain_characters)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not stream.encoding.lower().startswith("utf"):
            stream.reconfigure(errors="bbrgym-plain")
    logging.StreamHandler.handleError = _handle_log_error  # type: ignore[method-assign, assignment]


def _handle_log_error(handler: logging.Handler, record: logging.LogRecord) -> None:
    """Raise what a print would raise, instead of printing a traceback per message."""
    error = sys.exc_info()[1]
    if error is not None and has_no_reader(error):
        raise error
    logging.Handler.handleError(handler, record)


def _in_plain_characters(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_PLAIN.get(one, "?") for one in error.object[error.start : error.end]), error.end


def has_no_reader(error: BaseException) -> bool:
    """Return whether an error is that the reader of this process's output has gone, and not of another pipe."""
    if isinstance(error, SystemExit):  # what Rich makes of it
        return isinstance(error.__context__, BrokenPipeError)
    return isinstance(error, BrokenPipeError) and any(map(_is_abandoned, _OUTPUTS))


def discard_output() -> None:
    """Let what is left of the output go nowhere, so that its end raises nothing more."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in filter(_is_abandoned, _OUTPUTS):
        os.dup2(nowhere, descriptor)
    os.close(nowhere)


_OUTPUTS: Final = (1, 2)
"""The descriptors of standard output and error, to which Python's streams need not lead."""


def _is_abandoned(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, 0)  # errors are always reported
    return any(events & select.POLLERR for _, events in poll.poll(0))
