"""Tasks in this process, instead of starting one that imports everything for seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from bbrgym.executors import ExecutorConfig
from bbrgym.processes import TaskResult

Task = TypeVar("Task")


class ExecutorInThisProcess(Executor):
    """Runs a task when it is submitted."""

    workers = 1

    def __init__(self, config: ExecutorConfig | None = None) -> None:
        """Take the place of `bbrgym.executors.make_executor`."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


def run_in_this_process(
    function: Callable[[Task], Any], tasks: Iterable[Task], processes: int, **options: Any
) -> Iterator[TaskResult[Task]]:
    """Take the place of `bbrgym.processes.run_in_processes`."""
    for task in tasks:
        try:
            yield TaskResult(task, function(task))
        except Exception as error:
            yield TaskResult(task, error=f"{type(error).__name__}: {error}", status="failed")
