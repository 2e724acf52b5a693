"""Ctrl-C and SIGTERM: a command ends in order, with one line and exit status 130 or 143.

The line says how the work is resumed, if it can be (`resumed_by`). In a command a signal raises KeyboardInterrupt or
SystemExit(143) in the main thread. A second one changes nothing while the first one's exception is handled, so that it
cuts off no clean-up. A third one ends the command at once, as SIGKILL does: child processes end with it, and files are
replaced as a whole. So does the first one during an import, because extension modules crash when an exception cuts off
their start. While a command starts, before `run_interruptible`, Python's own handlers are in place.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, NoReturn, TypeAlias

TERMINATED: Final = 128 + signal.SIGTERM
"""Exit status of what SIGTERM ended, as shells report it."""

SAME_COMMAND: Final = "the same command resumes it"
"""What `resumed_by` takes for work that its own command resumes."""

Resumption: TypeAlias = str | Callable[[], str]

_WORDS: Final = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}


class _Command:
    """The command that runs in this process, if any.

    Attributes:
        name: for its message; empty if none runs.
        resumption: how its work is resumed, for its message.
        pid: of the process that it runs in; a fork of it has nothing to end in order.
        received: the first signal that it got.
        count: how many it got.
    """

    def __init__(self, name: str = "", resumption: Resumption = "") -> None:
        self.name = name
        self.resumption = resumption
        self.pid = os.getpid()
        self.received: signal.Signals | None = None
        self.count = 0

    def handle(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self.pid:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        self.received = self.received or signal.Signals(number)
        self.count += 1
        if self.count > 2 or _is_importing(frame):
            if os.isatty(1):
                os.write(1, b"\x1b[?25h")  # a progress bar hides the cursor
            os._exit(self.report())
        if self.count == 1 or not _is_handling_a_signal():
            self.raise_received()

    def raise_received(self) -> NoReturn:
        if self.received == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(TERMINATED)

    def report(self) -> int:
        """Print the message and return the exit status."""
        assert self.received is not None
        resumption = self.resumption if isinstance(self.resumption, str) else self.resumption()
        hint = f"; {resumption}" if resumption else ""
        # Not by sys.stderr: the handler may have interrupted a write to it.
        os.write(2, f"{self.name}: {_WORDS[self.received]}{hint}\n".encode(errors="replace"))
        return 128 + self.received


_command = _Command()


def run_interruptible(name: str, command: Callable[[], int], resumption: Resumption = "") -> int:
    """Run a command, which Ctrl-C and SIGTERM end in order, and return its exit status.

    It is 130 after Ctrl-C and 143 after SIGTERM, whatever the command did then. `name` and `resumption` (see
    `resumed_by`) are for the message.
    """
    global _command
    if not _is_main_thread() or _command.name:
        return command()
    this = _command = _Command(name, resumption)
    try:
        with _restoring_handlers() as numbers:
            for number in numbers:
                if signal.getsignal(number) is not signal.SIG_IGN:  # as those of a background job are
                    signal.signal(number, this.handle)
            try:
                status = command()
            except BaseException as error:
                if this.received is None and not isinstance(error, KeyboardInterrupt):
                    raise
                this.received = this.received or signal.SIGINT
        return status if this.received is None else this.report()
    finally:
        _command = _Command()


@contextmanager
def resumed_by(text: Resumption) -> Iterator[None]:
    """Say how to resume the work of the block, in the line that ends a command: a clause, such as `SAME_COMMAND`.

    Where the clause depends on what was saved, `text` is what returns it then.

    In a block within another one the clause of the outer one counts.
    """
    before = _command.resumption
    _command.resumption = before or text
    yield  # an exception may be a signal's, which is reported later
    if _command.received is None:
        _command.resumption = before


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Let a block end in order: SIGTERM raises SystemExit(143) in it, as Ctrl-C raises KeyboardInterrupt.

    Unless the program around it handles SIGTERM already.
    """
    with _restoring_handlers() as numbers:
        if signal.SIGTERM in numbers and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _terminate)
        yield


@contextmanager
def ending_at_once() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end the process in the block at once, in which somebody else's C code may never return."""
    with _restoring_handlers() as numbers:
        for number in numbers:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        yield


@contextmanager
def keeping_handlers() -> Iterator[None]:
    """Restore the signal handlers after the block: `ray.init` installs its own, which abort the process.

    A SIGTERM that such a handler gets in the block raises SystemExit(143), as ours do.
    """
    with _restoring_handlers():
        try:
            yield
        except SystemExit as error:
            if error.code != signal.SIGTERM:  # which is the status that Ray's handler exits with
                raise
            _command.received = _command.received or signal.SIGTERM
            raise SystemExit(TERMINATED) from error


@contextmanager
def deferring_signals() -> Iterator[None]:
    """Deliver SIGINT and SIGTERM after the block, which their exceptions must not cut off; in the main thread."""
    arrived: list[int] = []
    try:
        with _restoring_handlers() as numbers:
            for number in numbers:
                signal.signal(number, lambda one, _: arrived.append(one))
            yield
    finally:
        for one in arrived:
            signal.raise_signal(one)


@contextmanager
def shielding_children() -> Iterator[None]:
    """Let processes that start in the block, or from threads that do, ignore Ctrl-C; they must end with this one.

    A terminal sends Ctrl-C to all processes of its foreground, and others' programs answer it with tracebacks.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def raise_if_interrupted() -> None:
    """Raise a signal's exception again. Call it with any other exception, which may be what a library made of it."""
    if _command.received is not None:
        _command.raise_received()


@contextmanager
def _restoring_handlers() -> Iterator[list[signal.Signals]]:
    """Restore the signals' handlers after the block, which gets the signals; none outside the main thread."""
    handlers = {number: signal.getsignal(number) for number in _WORDS} if _is_main_thread() else {}
    # Python cannot restore what was not installed from it.
    handlers = {number: handler for number, handler in handlers.items() if handler is not None}
    try:
        yield [*handlers]
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None


def _is_handling_a_signal() -> bool:
    """Return whether `except`, `finally` or `with` handles a signal's exception, or one that came of it."""
    error = sys.exc_info()[1]
    while error is not None and not isinstance(error, KeyboardInterrupt | SystemExit):
        error = error.__context__
    return error is not None


def _terminate(number: int, frame: FrameType | None) -> None:
    raise SystemExit(TERMINATED)
