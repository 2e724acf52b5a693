"""Child processes and the tasks in them: what becomes of each, and that none is left."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from stress.resources import children_of
from waiting import HANG_S, is_running, wait_for

from bbrgym.executors import run_in_chunks
from bbrgym.processes import ChildProcess, ProcessExecutor, WorkerLostError, _Worker


def work(task: int, folder: Path) -> float:
    """Do what the task's number says, after leaving a child that ignores SIGTERM."""
    with (folder / "begun").open("a") as file:
        print(task, os.getpid(), file=file)
    subprocess.Popen(["sh", "-c", "trap '' TERM; sleep 600"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    match task:
        case -9:
            os.kill(os.getpid(), signal.SIGKILL)
        case -7:
            os._exit(7)
        case -60:
            time.sleep(600)
        case -1:
            return lambda: None  # type: ignore[return-value]  # cannot be pickled
    return 1 / task


def until_told(folder: Path) -> int:
    """Say that this has begun, wait until told to end, and return the process."""
    (folder / "begun").touch()
    wait_for((folder / "end").exists)
    return os.getpid()


def children() -> set[int]:
    return set(children_of(os.getpid()))


def test_a_fresh_process_and_its_group_end_with_their_task(tmp_path: Path) -> None:
    before = children()
    tasks = [1, 2, 0, -9, -7, -1]
    with ProcessExecutor(2, is_fresh=True) as executor:
        done = run_in_chunks(partial(work, folder=tmp_path), tasks, executor, chunk_s=0, retries=1)
        results = {result.task: result for result in done}
    assert {task: (result.status, result.value, result.attempts) for task, result in results.items()} == {
        1: ("done", 1.0, 1),
        2: ("done", 0.5, 1),
        0: ("failed", None, 1),
        -9: ("killed", None, 2),
        -7: ("killed", None, 2),
        -1: ("failed", None, 1),
    }
    assert [results[task].error for task in (0, -9, -7)] == [
        "ZeroDivisionError: division by zero",
        "its process was killed by SIGKILL",
        "its process exited with status 7",
    ]
    processes = [int(line.split()[1]) for line in (tmp_path / "begun").read_text().splitlines()]
    assert len(set(processes)) == len(processes) == len(tasks) + 2
    wait_for(lambda: not any(is_group_left(pid) for pid in processes))
    assert children() == before


def is_group_left(group: int) -> bool:
    states = [path.read_text().rpartition(")")[2].split() for path in Path("/proc").glob("[0-9]*/stat")]
    return any(int(state[2]) == group and state[0] != "Z" for state in states)


def test_a_task_that_takes_too_long_is_stopped_and_retried(tmp_path: Path) -> None:
    with ProcessExecutor(1, timeout_s=0.6) as executor:
        (result,) = run_in_chunks(partial(work, folder=tmp_path), [-60], executor)
    assert (result.status, result.attempts) == ("killed", 2)
    assert result.error == "its process was stopped after 0.6 s"


def test_shutdown_ends_running_tasks(tmp_path: Path) -> None:
    before = children()
    executor = ProcessExecutor(2)
    futures = [executor.submit(work, task, tmp_path) for task in (1, -60, -60, -60)]
    assert futures[0].result() == 1.0
    wait_for(lambda: (tmp_path / "begun").read_text().count("-60") == 2)
    executor.shutdown(cancel_futures=True)
    assert children() == before
    assert isinstance(futures[1].exception(), WorkerLostError)
    assert futures[3].cancelled()
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(abs, 1)


def test_a_task_that_is_stopped_ends_with_its_process_and_the_others_go_on(tmp_path: Path) -> None:
    with ProcessExecutor(2, environment={"GIVEN": "a"}, has_main=False) as executor:
        futures = [executor.submit(work, task, tmp_path) for task in (-60, -60, 1)]
        wait_for(lambda: (tmp_path / "begun").exists() and (tmp_path / "begun").read_text().count("-60") == 2)
        executor.stop(futures[:1])
        assert isinstance(futures[0].exception(), WorkerLostError)
        assert futures[2].result() == 1.0  # in a new process, beside the task that goes on
        assert not futures[1].done()
        assert executor.submit(os.getenv, "GIVEN").result() == "a"
        waiting = executor.submit(work, -60, tmp_path)
        more = executor.submit(abs, -1)
        executor.stop([waiting, futures[1]])
        assert more.result() == 1
        assert waiting.cancelled() or isinstance(waiting.exception(), WorkerLostError)


def test_stopping_a_task_that_has_ended_leaves_alone_what_its_process_runs_now(tmp_path: Path) -> None:
    with ProcessExecutor(1, has_main=False) as executor:
        ended = executor.submit(os.getpid)
        process = ended.result()
        running = executor.submit(until_told, tmp_path)
        wait_for((tmp_path / "begun").exists)
        executor.stop([ended])
        (tmp_path / "end").touch()
        assert running.result() == process


def test_a_process_that_is_stopped_while_it_answers_gets_no_other_task(monkeypatch: pytest.MonkeyPatch) -> None:
    ask, submitted = _Worker.ask, threading.Event()

    def ask_and_stop(worker: _Worker, call: bytes, limit_s: float | None) -> bytes | None:
        answer = ask(worker, call, limit_s)
        assert submitted.wait(HANG_S)
        executor.stop([future])
        return answer

    with ProcessExecutor(1, has_main=False) as executor:
        with monkeypatch.context() as patched:
            patched.setattr(_Worker, "ask", ask_and_stop)
            future = executor.submit(os.getpid)
            submitted.set()
            process = future.result()
        wait_for(lambda: not is_running(process))
        assert executor.submit(os.getpid).result() != process


@pytest.mark.parametrize("seed", range(2))
def test_processes_that_die_while_they_are_idle_cost_no_task(seed: int) -> None:
    rng = random.Random(seed)
    before = children()
    with ProcessExecutor(2, has_main=False) as executor:
        for _ in range(2):
            numbers = [rng.randrange(100) for _ in range(3)]
            assert list(executor.map(abs, numbers)) == numbers
            wait_for(lambda: not executor._busy)
            for worker in rng.sample(executor._idle, rng.randint(1, len(executor._idle))):
                os.kill(worker.process.pid, signal.SIGKILL)
                wait_for(worker.process.is_over)
    assert children() == before


@pytest.mark.parametrize("when", ["before it is sent", "before it is read", "also the new process"])
def test_a_process_that_dies_before_it_reads_a_task_costs_none_but_only_once(
    when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, killed = _Worker._send, []

    def kill(worker: _Worker) -> None:
        os.kill(worker.process.pid, signal.SIGKILL)
        wait_for(worker.process.is_over)
        killed.append(worker.process.pid)

    def send_and_kill(worker: _Worker, pickled: bytes) -> bool:
        if when == "before it is sent" and not killed:
            kill(worker)
        is_sent = send(worker, pickled)
        if when == "also the new process" or (when == "before it is read" and not killed):
            kill(worker)
        return is_sent

    with ProcessExecutor(1, has_main=False) as executor:
        process = executor.submit(os.getpid).result()
        os.kill(process, signal.SIGSTOP)  # so that it reads nothing
        monkeypatch.setattr(_Worker, "_send", send_and_kill)
        future = executor.submit(os.getpid)
        if when == "also the new process":
            assert str(future.exception()) == "its process was killed by SIGKILL"
        else:
            assert future.result() != process
        assert killed[0] == process
        monkeypatch.undo()
        assert executor.submit(abs, -1).result() == 1


def test_a_task_that_kills_its_process_runs_once_also_in_one_that_was_idle(tmp_path: Path) -> None:
    with ProcessExecutor(1, has_main=False) as executor:
        process = executor.submit(os.getpid).result()
        assert str(executor.submit(work, -9, tmp_path).exception()) == "its process was killed by SIGKILL"
        assert executor.submit(os.getpid).result() != process
    assert (tmp_path / "begun").read_text() == f"-9 {process}\n"


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
