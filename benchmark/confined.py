"""Measure runs in a confined fork of this process, which runs nobody else's code itself.

It has one thread: it is a process of a sandbox (`bbrgym.benchmark.sandbox`). A fork has no means but its reply, as
JSON in a pipe. SIGTERM ends this process at once, with its fork.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import select
import signal
import sysconfig
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, Final

import bbrgym
from bbrgym.baselines.controller_file import line_of
from bbrgym.benchmark.decider import Decider, describe
from bbrgym.benchmark.run_facts import measure_facts
from bbrgym.benchmark.score_measures import measure_rows, measure_sharing, measure_trace
from bbrgym.confinement import TimeLimit, confine, end_with_parent, forbid_calls
from bbrgym.envs.scenario import Flow, Scenario

MEASURES: Final = {
    "sharing": measure_sharing,
    "rows": measure_rows,
    "trace": measure_trace,
    "facts": measure_facts,
}
"""What a job can measure, by the name that it has in `bbrgym.benchmark.sandbox.ConfinedJob`."""

WALL: Final = 2.5
"""How much longer than its processor time a fork may take: on a busy machine it has to wait, and it may sleep."""

_MOST_REPLY_BYTES: Final = 64 * 2**20

_END_SECONDS: Final = 0.5
"""How long a fork may take to end after its reply."""


@cache
def warm_up() -> None:
    """Import and allocate all that a run needs, which a confined fork cannot."""
    scenario = Scenario(rate_mbps=1, duration_s=0.2, flows=(Flow("bbr"),))
    for measure in MEASURES.values():
        measure([scenario], [1], 0.25)


def run_confined(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run a job in a fork of this process.

    Args:
        request: `bbrgym.benchmark.sandbox.ConfinedJob.to_dict`.

    Returns:
        The fields of `bbrgym.benchmark.sandbox.Reply`.
    """
    warm_up()
    children: list[int] = []

    def end_both(number: int, frame: FrameType | None) -> None:
        for child in children:
            os.kill(child, signal.SIGKILL)
        os._exit(128 + number)

    before = signal.signal(signal.SIGTERM, end_both)
    try:
        return _answer(request, children)
    finally:
        signal.signal(signal.SIGTERM, before)


def _answer(request: Mapping[str, Any], children: list[int]) -> dict[str, Any]:
    began = time.monotonic()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _run(request, writer)
    children.append(child)
    os.close(writer)
    try:
        reply, is_late = _read(reader, began + WALL * request["seconds"])
        if is_late:
            os.kill(child, signal.SIGXCPU)  # it then reports where it is, if it can
            reply, _ = _read(reader, time.monotonic() + _END_SECONDS)
    finally:
        os.close(reader)
        status = _end(child)
        children.clear()  # its id may soon be another's
    if (fault := _fault(reply, request)) is not None:
        found = {"error": fault}
    elif is_late:
        found = {"error": _too_long(request)}
    else:
        found = _parse(reply) if reply else {"error": _cause(status, request)}
    return {
        "error": None,
        "is_refused": False,
        "results": [],
        "missing": [],
        **found,
        "seconds": time.monotonic() - began,
    }


def _end(child: int) -> int:
    """Return the status with which a fork ends; it is killed if it does not end soon, although it has replied."""
    deadline = time.monotonic() + _END_SECONDS
    while time.monotonic() < deadline:
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            break
        time.sleep(0.001)
    else:
        os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def _read(reader: int, deadline: float) -> tuple[bytes, bool]:
    """Return what a fork writes until it closes its end, and whether it is late."""
    parts: list[bytes] = []
    size = 0
    while (left := deadline - time.monotonic()) > 0 and size < _MOST_REPLY_BYTES:
        if not select.select([reader], [], [], left)[0]:
            continue
        part = os.read(reader, 2**20)
        if not part:
            return b"".join(parts), False
        parts.append(part)
        size += len(part)
    return b"", True


def _fault(reply: bytes, request: Mapping[str, Any]) -> str | None:
    """Return what `fault_report.c` has written in the place of results, in words; None if it has not."""
    if not (found := re.fullmatch(rb'\{"signal": (\d{1,3}), "place": (\d{1,18})\}', reply)):
        return None
    try:
        number = signal.Signals(int(found[1]))
    except ValueError:
        return None
    line = line_of(request["library"], int(found[2])) if request["library"] else None
    return _cause_of_signal(number, request) + ("" if line is None else f", in line {line}")


def _parse(reply: bytes) -> dict[str, Any]:
    try:
        found = json.loads(reply)
        lists = {name: list(found[name]) for name in ("results", "missing")}
        return {"error": found["error"], "is_refused": bool(found["is_refused"]), **lists}
    except (ValueError, KeyError, TypeError):
        return {"error": "wrote something else than its results to the pipe of the results"}


def _cause(status: int, request: Mapping[str, Any]) -> str:
    if not os.WIFSIGNALED(status):
        return f"ended its process with the exit status {os.waitstatus_to_exitcode(status)}"
    return _cause_of_signal(signal.Signals(os.WTERMSIG(status)), request)


def _cause_of_signal(number: signal.Signals, request: Mapping[str, Any]) -> str:
    if number == signal.SIGSYS:
        return (
            "made a system call that a controller may not make: it opened a file or a socket, started a process, sent "
            "a signal, or called abort()"
        )
    if number in (signal.SIGXCPU, signal.SIGVTALRM):
        return _too_long(request)
    if number == signal.SIGKILL:
        return "closed the pipe of its results, or was killed by the system"
    return f"crashed ({number.name})"


def _too_long(request: Mapping[str, Any]) -> str:
    return f"took longer than {request['seconds']:g} s: an endless loop, or far too many packets"


def _run(request: Mapping[str, Any], writer: int) -> None:
    """Confine this process, measure, write the reply and end."""
    found: dict[str, Any] = {"error": None, "is_refused": False, "results": [], "missing": []}
    try:
        end_with_parent()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _close_all_but(writer)
        found["missing"] = _confine(request, writer)
        scenarios = [Scenario.from_dict(plain) for plain in request["scenarios"]]
        measure = MEASURES[request["measure"]]
        function = request["function"]
        decider = None if function is None else Decider(function, TimeLimit().within)
        found["results"] = measure(scenarios, request["seeds"], request["warmup"], decider)
    except MemoryError:
        found["error"] = f"needs more memory than {request['mebibytes']} MiB"
    except ValueError as error:
        found["error"], found["is_refused"] = str(error), True
    except BaseException as error:  # the text of the score, whatever it is
        found["error"] = describe(error)
    try:
        rest = memoryview(json.dumps(found).encode())
        while rest:
            rest = rest[os.write(writer, rest) :]
    finally:
        os._exit(0)


def _close_all_but(writer: int) -> None:
    """Leave no descriptor of the process to its fork but this one: another leads to who reads our answers."""
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != writer:
            with contextlib.suppress(OSError):  # that of the list itself, which is closed already
                os.close(int(name))


def _confine(request: Mapping[str, Any], writer: int) -> list[str]:
    """Confine this process as its code needs: `none` is the project's own, `c` a shared object, `python` a callable.

    Where code in C faults or takes too long is written to `writer`.
    """
    kind = request["confinement"]
    if kind == "none":
        return []
    if kind == "python":
        os.chdir(request["folder"])
        return confine(request["mebibytes"], round(request["seconds"]), [Path("/")])
    library = Path(request["library"])
    readable = [library.parent, *map(Path, ("/lib", "/lib64", "/usr/lib", "/etc/ld.so.cache"))]
    readable += [Path(sysconfig.get_path("stdlib")), Path(bbrgym.__file__).parent]
    missing = confine(request["mebibytes"], round(request["seconds"]), readable)
    missing += forbid_calls(is_loading=True)
    # Loaded for good: later loads find it by its name, without opening a file.
    loaded = ctypes.CDLL(str(library), mode=os.RTLD_NOW)
    if report := getattr(loaded, "bbrgym_report_faults", None):  # a shared object of somebody else has none
        report(writer)
    forbid_calls(is_loading=False)
    return missing
