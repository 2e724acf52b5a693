"""Tasks over worker processes, of which any may be killed without harm to the others."""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, TypeVar

Task = TypeVar("Task")


@dataclass(frozen=True)
class Outcome(Generic[Task]):
    """What became of a task: its `value`, or the `error` that ended it."""

    task: Task
    value: Any = None
    error: str | None = None


def run_in_processes(
    function: Callable[[Task], Any], tasks: Iterable[Task], processes: int
) -> Generator[Outcome[Task], None, None]:
    """Run `function(task)` for every task in up to `processes` fresh Python processes.

    `concurrent.futures` gives up on all tasks when one worker is killed, and cannot say whose it was. Here that one
    task has an error, and a new worker takes the rest.

    Args:
        function: importable by its name; its value and the tasks can be pickled.
        tasks: what to run.
        processes: how many at a time, at least 1.

    Yields:
        The outcome of each task as it ends, in no certain order. Closing the generator ends the workers.
    """
    waiting = deque(tasks)
    idle: list[_Worker] = []
    busy: dict[Connection, tuple[_Worker, Task]] = {}
    try:
        while waiting or busy:
            while waiting and len(busy) < processes:
                worker = idle.pop() if idle else _Worker(function)
                task = waiting.popleft()
                busy[worker.connection] = (worker, task)
                worker.send(task)
            for ready in wait(list(busy)):
                assert isinstance(ready, Connection)
                worker, task = busy.pop(ready)
                try:
                    value, error = ready.recv()
                except (EOFError, OSError):
                    yield Outcome(task, error=worker.end())
                else:
                    idle.append(worker)
                    yield Outcome(task, value, error)
    finally:
        for worker in [*idle, *(worker for worker, _ in busy.values())]:
            worker.end()


class _Worker:
    def __init__(self, function: Callable[[Any], Any]) -> None:
        # spawn: the parent may have threads (MLflow, rich), with which a fork can hang.
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(function, theirs), daemon=True)
        self._process.start()
        # Only the worker holds its end now, so that its death is an end of file here.
        theirs.close()

    def send(self, task: object) -> None:
        with contextlib.suppress(OSError):  # It is dead: reading from it will say so.
            self.connection.send(task)

    def end(self) -> str:
        """End the process if it runs, and say how it ended."""
        self.connection.close()
        self._process.join(timeout=0.2)
        if self._process.is_alive():
            self._process.terminate()
            self._process.join(timeout=5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        code = self._process.exitcode or 0
        return (
            f"its process was ended by {signal.Signals(-code).name}" if code < 0 else f"its process exited with {code}"
        )


def _work(function: Callable[[Any], Any], connection: Connection) -> None:
    # Ctrl-C reaches every process of the terminal: the parent decides what ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        answer: tuple[Any, str | None]
        try:
            answer = (function(task), None)
        except Exception as error:
            answer = (None, f"{type(error).__name__}: {error}")
        try:
            connection.send(answer)
        except BrokenPipeError:
            return  # The parent was killed.
