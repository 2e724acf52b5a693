"""Ctrl-C and SIGTERM: a command ends with one line and exit status 130 or 143, whenever they come.

The line says how the work is resumed, if it can be (`resumed_by`).

A signal handler that raises an exception wherever the program happens to be is not enough. Libraries turn an exception
in the middle of their import into another one, or swallow it, and so does Hydra while it opens a file; a second Ctrl-C
would cut off the clean-up that the first one began; and what comes before the first or after the last line of a command
would print a traceback. So

* while a command starts and after it has ended, and during imports as long as nothing is in progress, it ends at once;
* during other imports the signal waits until they are done; Hydra's opening of a file counts as an import;
* otherwise it raises KeyboardInterrupt or SystemExit(143) once, in the main thread. A second signal changes nothing. A
  third one ends the command at once, like SIGKILL: child processes end with it, and files are replaced as a whole.

`bbrgym/__init__.py` imports this module first, so it imports nothing that takes time.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import PurePath
from types import FrameType
from typing import Any, Final, NoReturn

TERMINATED: Final = 128 + signal.SIGTERM
"""Exit status of what SIGTERM ended, as shells report it."""

SAME_COMMAND: Final = "the same command resumes it"
"""What `resumed_by` takes for work that its own command resumes."""

_WORDS: Final = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
_RETRY_S: Final = 0.05
"""How often a signal that waits for an import is tried again."""


class _Interruption:
    """What this process knows about signals. Its attributes are reset by each command.

    Attributes:
        name: of the command, for its message.
        resumption: how its work is resumed, for its message.
        pid: of the process that handles signals here; its forks do not.
        received: the first signal.
        repeated: how many came after it.
        is_reported: the message is printed.
        is_running: a command's own code runs.
        in_progress: how many blocks are to end in order.
    """

    def __init__(self) -> None:
        self.name = ""
        self.pid = os.getpid()
        self.is_running = False
        self.in_progress = 0
        self.begin(self.name)

    def begin(self, name: str, resumption: str = "") -> None:
        self.name = name
        self.resumption = resumption
        self.received: signal.Signals | None = None
        self.repeated = 0
        self.is_reported = False

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal, as the module describes; in the main thread."""
        if os.getpid() != self.pid:  # a fork, which has nothing to end in order
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        if self.received is not None:
            self.repeated += 1
            if self.is_running and self.repeated == 1:
                return
            self.exit_now()
        is_importing = _is_importing(frame)
        if self.is_running and is_importing and self.in_progress:
            self.send_again(number)
            return
        self.received = signal.Signals(number)
        if not self.is_running or is_importing:
            self.exit_now()
        self.raise_again()

    def raise_again(self) -> NoReturn:
        if self.received == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(TERMINATED)

    def report(self) -> int:
        """Print the message, once, and return the exit status."""
        assert self.received is not None
        if not self.is_reported:
            self.is_reported = True
            # Not by sys.stderr: the handler may have interrupted a write to it.
            hint = f"; {self.resumption}" if self.resumption else ""
            os.write(2, f"{self.name}: {_WORDS[self.received]}{hint}\n".encode(errors="replace"))
        return 128 + self.received

    def exit_now(self) -> NoReturn:
        with contextlib.suppress(Exception):  # it may be closed, or in the middle of a write
            sys.stdout.flush()
        status = 1
        with contextlib.suppress(OSError):
            if os.isatty(1):
                os.write(1, b"\x1b[?25h")  # a progress bar hides the cursor
            status = self.report()
        os._exit(status)

    def send_again(self, number: int) -> None:
        timer = threading.Timer(_RETRY_S, self._send, (number,))
        timer.daemon = True
        timer.start()

    def _send(self, number: int) -> None:
        if not self.is_reported:  # else another signal has ended the command, and this one would find no handler
            os.kill(self.pid, number)


_THIS: Final = _Interruption()


def run_interruptible(name: str, command: Callable[[], int], resumption: str = "") -> int:
    """Run a command, which Ctrl-C and SIGTERM end in order, and return its exit status.

    It is 130 after Ctrl-C and 143 after SIGTERM, whatever the command did then. `name` and `resumption` (see
    `resumed_by`) are for the message.
    """
    if not _is_main_thread() or _THIS.is_running:
        return command()
    _THIS.begin(name, resumption)
    unraisable = sys.unraisablehook
    status = None
    with _restoring_handlers():
        _install()
        sys.unraisablehook = partial(_send_what_was_swallowed, unraisable)
        _THIS.is_running = True
        try:
            status = command()
            _THIS.is_running = False
        except BaseException as error:
            if _THIS.received is None and not isinstance(error, KeyboardInterrupt):
                raise
            _THIS.received = _THIS.received or signal.SIGINT
        finally:
            _THIS.is_running = False
            sys.unraisablehook = unraisable
    if _THIS.received is not None:
        return _THIS.report()
    assert status is not None
    return status


@contextmanager
def resumed_by(text: str) -> Iterator[None]:
    """Say how to resume the work of the block, in the line that ends a command: a clause, such as `SAME_COMMAND`.

    In a block within another one the clause of the outer one counts.
    """
    before = _THIS.resumption
    _THIS.resumption = before or text
    yield  # an exception may be a signal's, which is reported later
    if _THIS.received is None:
        _THIS.resumption = before


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Let a block end in order: SIGTERM raises SystemExit(143) in it, as Ctrl-C raises KeyboardInterrupt.

    Unless the program around it handles SIGTERM already.
    """
    is_unhandled = _is_main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if is_unhandled:
        signal.signal(signal.SIGTERM, _terminate)
    _THIS.in_progress += 1
    try:
        yield
    finally:
        _THIS.in_progress -= 1
        if is_unhandled:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


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
            _THIS.received = _THIS.received or signal.SIGTERM
            raise SystemExit(TERMINATED) from error


@contextmanager
def deferring_signals() -> Iterator[None]:
    """Deliver SIGINT and SIGTERM after the block, which their exceptions must not cut off; in the main thread.

    The third one ends a command at once, as elsewhere.
    """
    arrived: list[int] = []

    def defer(number: int, _: FrameType | None) -> None:
        arrived.append(number)
        if len(arrived) > 2 and _THIS.is_running:
            _THIS.received = _THIS.received or signal.Signals(number)
            _THIS.exit_now()

    try:
        with _restoring_handlers() as before:
            for number in before:
                signal.signal(number, defer)
            yield
    finally:
        for number in arrived:
            signal.raise_signal(number)


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
    if _THIS.is_running and _THIS.received is not None:
        _THIS.raise_again()


def _handle_from_the_start() -> None:
    """Handle signals from now on if this process is a command: `bbrgym …` or `python -m bbrgym.cli|studies.…`."""
    started = sys.argv[0] if getattr(sys, "argv", None) else ""
    if started == "-m":  # Python is about to import the module's packages
        module = sys.orig_argv[sys.orig_argv.index("-m") + 1]
        package, _, name = module.partition(".")
        if package not in ("bbrgym", "studies"):
            return
        _THIS.begin("bbrgym" if package == "bbrgym" else name)
    elif PurePath(started).name == "bbrgym":
        _THIS.begin("bbrgym")
    else:
        return
    _install()


def _install() -> None:
    """Handle the signals that are not ignored, as those of a background job are."""
    for number in _WORDS:
        if signal.getsignal(number) not in (None, signal.SIG_IGN):  # None: not installed from Python
            signal.signal(number, _THIS.handle)


@contextmanager
def _restoring_handlers() -> Iterator[list[int]]:
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
    while frame is not None:
        file = frame.f_code.co_filename
        # The second one closes in `finally` what it may not have opened, so that its caller sees another error.
        if file.startswith("<frozen importlib") or file.endswith("/importlib_resources_config_source.py"):
            return True
        frame = frame.f_back
    return False


def _send_what_was_swallowed(otherwise: Callable[[Any], object], given: Any) -> None:
    """Send a signal again whose exception was raised where Python ignores it, in a `__del__` for example."""
    if _THIS.received is not None and isinstance(given.exc_value, KeyboardInterrupt | SystemExit):
        number, _THIS.received = _THIS.received, None
        _THIS.send_again(number)
    else:
        otherwise(given)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise SystemExit(TERMINATED)


_handle_from_the_start()
