"""Tasks in this process, instead of starting one that imports everything for seconds."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

from bbrgym.executors import ExecutorConfig


class ExecutorInThisProcess(Executor):
    """Runs a task when it is submitted."""

    workers = 1
    lost = ()

    def __init__(self, config: ExecutorConfig | None = None, is_fresh: bool = False) -> None:
        """Take the place of `bbrgym.executors.make_executor`."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future
