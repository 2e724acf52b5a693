"""Tasks in this process, instead of starting one that imports everything for seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from bbrgym.processes import TaskResult

Task = TypeVar("Task")


def run_in_this_process(
    function: Callable[[Task], Any], tasks: Iterable[Task], processes: int, **options: Any
) -> Iterator[TaskResult[Task]]:
    """Take the place of `bbrgym.processes.run_in_processes`."""
    for task in tasks:
        try:
            yield TaskResult(task, function(task))
        except Exception as error:
            yield TaskResult(task, error=f"{type(error).__name__}: {error}", status="failed")
