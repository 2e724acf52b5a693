"""Child processes and the tasks in them: what becomes of each, and that none is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from stress.resources import children_of
from waiting import is_running, wait_for

from bbrgym.processes import ChildProcess, run_in_processes


def work(task: int, folder: Path | None = None) -> float:
    """Do what the task's number says."""
    if folder is not None:
        print(f"task {task}")
        (folder / f"{os.getpid()}.pid").touch()
        with (folder / "begun").open("a") as file:
            print(task, file=file)
    match task:
        case -9:
            os.kill(os.getpid(), signal.SIGKILL)
        case -7:
            os._exit(7)
        case -60:
            time.sleep(600)
        case -5 if folder is not None and (folder / "begun").read_text().split().count("-5") == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        case -1:
            return lambda: None  # type: ignore[return-value]  # cannot be pickled
    return 1 / task


def children() -> set[int]:
    return set(children_of(os.getpid()))


def test_every_task_has_its_result() -> None:
    before = children()
    results = {result.task: result for result in run_in_processes(work, [1, 2, 0, -9, -7, -1, 3], processes=2)}
    assert {task: (result.status, result.value) for task, result in results.items() if result.error is None} == {
        task: ("done", 1 / task) for task in (1, 2, 3)
    }
    unpicklable = results.pop(-1)
    assert unpicklable.status == "failed"
    assert "pickle" in str(unpicklable.error)
    assert {task: (result.status, result.error) for task, result in results.items() if result.error is not None} == {
        0: ("failed", "ZeroDivisionError: division by zero"),
        -9: ("killed", "its process was killed by SIGKILL"),
        -7: ("killed", "its process exited with status 7"),
    }
    assert children() == before


def test_tasks_with_output_have_a_process_each_and_killed_ones_are_retried(tmp_path: Path) -> None:
    function = partial(work, folder=tmp_path)
    results = run_in_processes(function, [1, -5, -9, 0], 4, retries=1, output=lambda task: tmp_path / f"{task}.log")
    assert {result.task: (result.status, result.attempts) for result in results} == {
        1: ("done", 1), -5: ("done", 2), -9: ("killed", 2), 0: ("failed", 1),
    }  # fmt: skip
    assert len(list(tmp_path.glob("*.pid"))) == 6
    assert (tmp_path / "1.log").read_text() == "task 1\n"
    assert (tmp_path / "-9.log").read_text() == "task -9\n" * 2


def test_a_task_that_takes_too_long_is_stopped_and_retried() -> None:
    (result,) = run_in_processes(work, [-60], processes=1, timeout_s=0.6, retries=1)
    assert (result.status, result.attempts) == ("timeout", 2)
    assert str(result.error).startswith("its process was stopped after ")


def test_closing_the_generator_ends_the_processes() -> None:
    before = children()
    results = run_in_processes(work, [1, -60, -60], processes=2)
    assert next(results).value == 1.0  # both processes run by now, one of them for a minute
    assert len(children() - before) >= 2
    results.close()
    assert children() == before


@pytest.mark.parametrize("grace_s", [0.0, 0.5])
def test_a_child_ends_with_its_killed_parent(grace_s: float, tmp_path: Path) -> None:
    # The child and a child of it ignore SIGTERM.
    child = f"trap '' TERM; sleep 600 & echo $! > {tmp_path}/pid; wait"
    code = (
        "import time; from bbrgym.processes import ChildProcess\n"
        f"child = ChildProcess(['sh', '-c', {child!r}], grace_s={grace_s})\n"
        "print(child.pid, child.guard.pid, flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pids = [int(word) for word in parent.stdout.readline().split()]
    wait_for(lambda: (tmp_path / "pid").is_file() and (tmp_path / "pid").read_text())
    pids.append(int((tmp_path / "pid").read_text()))
    assert all(is_running(pid) for pid in pids)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    wait_for(lambda: not any(is_running(pid) for pid in pids))


def test_a_child_is_killed_with_its_group_and_tells_its_last_words() -> None:
    child = ChildProcess(["sh", "-c", "seq 100; sleep 600 & echo $!; wait"], output=subprocess.PIPE)
    wait_for(lambda: len(child.tail().split()) == 20 and child.tail().split()[-2] == "100")
    grandchild = int(child.tail().split()[-1])
    assert child.end() == child.end() == "was killed by SIGKILL"
    wait_for(lambda: not is_running(grandchild))
    assert child.is_over()
    assert ChildProcess(["sh", "-c", "exit 3"]).end(grace_s=300) == "exited with status 3"
    with pytest.raises(OSError, match="No such file"):
        ChildProcess(["/no/such/program"])


def test_a_signal_while_a_child_starts_leaves_none(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            started.append(self.pid)
            signal.raise_signal(signal.SIGINT)

    started: list[int] = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        monkeypatch.setattr(subprocess, "Popen", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            ChildProcess(["sleep", "600"])
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(started) == 2  # and its guard
    wait_for(lambda: not any(is_running(pid) for pid in started))
