"""Ctrl-C and SIGTERM in commands; marked slow, in every command (`tests/interrupt.py`)."""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest

from bbrgym import interruption
from bbrgym.interruption import (
    SAME_COMMAND,
    deferring_signals,
    keeping_handlers,
    raise_if_interrupted,
    resumed_by,
    run_interruptible,
    shielding_children,
)

pytest.importorskip("psutil")
from interrupt import CASES, SIGNALS, interrupt

BOTH = pytest.mark.parametrize(
    ("number", "status", "line"), [(signal.SIGINT, 130, "it: interrupted\n"), (signal.SIGTERM, 143, "it: terminated\n")]
)


class Left(BaseException):
    """Takes the place of the end of the process."""


@pytest.fixture
def leaves(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    statuses: list[int] = []

    def leave(status: int) -> NoReturn:
        statuses.append(status)
        raise Left

    monkeypatch.setattr(interruption.os, "_exit", leave)
    return statuses


def raising(number: int) -> int:
    signal.raise_signal(number)
    return 0


def converting(number: int) -> int:
    try:
        signal.raise_signal(number)
    except BaseException as error:
        raise RuntimeError("a library's own error") from error
    return 0


def swallowing(number: int) -> int:
    try:
        signal.raise_signal(number)
    except BaseException:
        return 7
    return 0


@BOTH
@pytest.mark.parametrize("command", [raising, converting, swallowing])
def test_a_command_ends_with_one_line(
    number: int, status: int, line: str, command: Callable[[int], int], capfd: pytest.CaptureFixture[str]
) -> None:
    before = [signal.getsignal(one) for one in SIGNALS]
    assert run_interruptible("it", lambda: command(number)) == status
    assert capfd.readouterr() == ("", line)
    assert [signal.getsignal(one) for one in SIGNALS] == before


def test_without_a_signal_nothing_changes() -> None:
    assert run_interruptible("it", lambda: 3) == 3
    with pytest.raises(KeyError):
        run_interruptible("it", lambda: {}["x"])
    with pytest.raises(SystemExit):
        run_interruptible("it", lambda: sys.exit(2))


@BOTH
def test_an_error_that_comes_of_a_signal_can_become_the_signal_again(number: int, status: int, line: str) -> None:
    expected = KeyboardInterrupt if number == signal.SIGINT else SystemExit

    def command() -> int:
        raise_if_interrupted()
        try:
            converting(number)
        except RuntimeError:
            with pytest.raises(expected):
                raise_if_interrupted()
        return 0

    assert run_interruptible("it", command) == status
    raise_if_interrupted()


@BOTH
def test_a_second_signal_changes_nothing_and_a_third_ends_it(
    number: int, status: int, line: str, leaves: list[int], capfd: pytest.CaptureFixture[str]
) -> None:
    seen = []

    def command() -> int:
        try:
            return raising(number)
        finally:
            signal.raise_signal(signal.SIGINT)
            seen.append("ended in order")
            with pytest.raises(Left):
                signal.raise_signal(signal.SIGINT)

    assert run_interruptible("it", command) == status
    assert (seen, leaves) == (["ended in order"], [status])
    assert capfd.readouterr().err == 2 * line  # here the third does not really end it


def test_a_second_signal_counts_where_the_first_was_swallowed(capfd: pytest.CaptureFixture[str]) -> None:
    assert run_interruptible("it", lambda: swallowing(signal.SIGINT) and raising(signal.SIGINT)) == 130
    assert capfd.readouterr().err == "it: interrupted\n"


def test_the_line_says_how_the_work_is_resumed(capfd: pytest.CaptureFixture[str]) -> None:
    def command(*blocks: str) -> int:
        with resumed_by("what has ended"):
            pass
        with contextlib.ExitStack() as stack:
            for text in blocks:
                stack.enter_context(resumed_by(text))
            return raising(signal.SIGINT)

    for blocks, end in (((), ""), (("outer",), "; outer"), (("outer", "inner"), "; outer")):
        assert run_interruptible("it", partial(command, *blocks)) == 130
        assert capfd.readouterr().err == f"it: interrupted{end}\n"
    assert run_interruptible("it", command, lambda: "what was saved by then") == 130
    assert capfd.readouterr().err == "it: interrupted; what was saved by then\n"
    assert run_interruptible("it", partial(command, "inner"), SAME_COMMAND) == 130
    assert capfd.readouterr().err == "it: interrupted; the same command resumes it\n"


def test_an_import_is_not_cut_off_by_an_exception(
    tmp_path: Path, leaves: list[int], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "interrupted_import.py").write_text("import signal; signal.raise_signal(signal.SIGINT)")
    monkeypatch.syspath_prepend(tmp_path)

    def command() -> int:
        with pytest.raises(Left):
            __import__("interrupted_import")
        return 0

    assert run_interruptible("it", command) == 130
    assert leaves == [130]
    assert capfd.readouterr().err.startswith("it: interrupted\n")


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in a background job
    try:
        assert run_interruptible("it", lambda: raising(signal.SIGINT)) == 0
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("error", [None, OSError("the disk is full")])
def test_a_deferred_signal_comes_after_the_block(error: OSError | None) -> None:
    done = []

    def block() -> None:
        with deferring_signals():
            signal.raise_signal(signal.SIGINT)
            done.append(True)
            if error is not None:
                raise error

    with pytest.raises(KeyboardInterrupt):
        block()
    assert done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_that_a_library_installs_is_replaced_again() -> None:
    def library(number: int, frame: object) -> NoReturn:
        sys.exit(number)  # as Ray's does

    def command() -> int:
        with keeping_handlers():
            signal.signal(signal.SIGTERM, library)
            signal.raise_signal(signal.SIGTERM)
        return 0

    before = signal.getsignal(signal.SIGTERM)
    assert run_interruptible("it", command) == 143
    assert signal.getsignal(signal.SIGTERM) is before


def test_shielded_children_ignore_ctrl_c() -> None:
    kill_itself = [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGINT); print('left')"]
    with shielding_children():
        assert subprocess.check_output(kill_itself) == b"left\n"
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


EVERYTHING = [
    pytest.param(name, moment, number, marks=[] if (name, moment) == ("export", "onnx") else pytest.mark.slow)
    for name, case in CASES.items()
    for moment in case.moments
    for number in SIGNALS
]


@pytest.mark.parametrize(("name", "moment", "number"), EVERYTHING)
def test_every_command_ends_with_one_line_whenever_it_is_interrupted(
    name: str, moment: str, number: signal.Signals, tmp_path: Path
) -> None:
    assert interrupt(CASES[name], number, moment, tmp_path) == []
