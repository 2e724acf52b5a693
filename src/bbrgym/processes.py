"""Child processes that never outlive this one, and tasks that run in them."""

from __future__ import annotations

import contextlib
import logging
import math
import multiprocessing
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.spawn import get_preparation_data, prepare
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any, Final, Generic, Literal, TypeVar, cast

from bbrgym.interruption import deferring_signals

LOGGER: Final = logging.getLogger(__name__)
Task = TypeVar("Task")

_TAIL_LINES: Final = 20
_TAIL_BYTES: Final = 16_384

_SERVE: Final = "import sys; from bbrgym.processes import _serve; _serve(int(sys.argv[1]))"

_GUARD: Final = """
read -r _
kill -15 "-$1" 2>/dev/null
while [ "$2" -gt 0 ] && kill -0 "-$1" 2>/dev/null; do sleep 0.1; set -- "$1" $(($2 - 1)); done
kill -9 "-$1" 2>/dev/null
"""
"""Shell script with arguments (process group, grace in 0.1 s). Only we hold the other end of its standard input."""


@dataclass(frozen=True)
class TaskResult(Generic[Task]):
    """How a task ended.

    Attributes:
        task: the task.
        value: what its function returned.
        error: why there is no value; None if it is done.
        status: `failed` by an exception of the function, `killed` if its process died, `timeout` if it took too long.
        seconds: duration of the last attempt.
        attempts: how often it was started.
    """

    task: Task
    value: Any = None
    error: str | None = None
    status: Literal["done", "failed", "killed", "timeout"] = "done"
    seconds: float = 0.0
    attempts: int = 1


class WorkerLostError(RuntimeError):
    """The worker that ran a task ended, or was lost, before the task did: it was killed, or its machine died."""


class TaskError(RuntimeError):
    """A task's own exception, if it cannot be pickled: `<type>: <message>`."""


def error_text(error: BaseException) -> str:
    """Return a task's error as text: `EngineError: …`, or why its worker was lost."""
    return str(error) if isinstance(error, WorkerLostError | TaskError) else f"{type(error).__name__}: {error}"


def run_in_processes(
    function: Callable[[Task], Any],
    tasks: Iterable[Task],
    processes: int,
    *,
    timeout_s: float | None = None,
    retries: int = 0,
    grace_s: float = 5.0,
    output: Callable[[Task], Path] | None = None,
) -> Generator[TaskResult[Task], None, None]:
    """Run `function(task)` for every task in up to `processes` Python processes, by a `ProcessExecutor`.

    Args:
        function: can be pickled, as its return values and the tasks can.
        tasks: what to run.
        processes: how many at a time, at least 1.
        timeout_s: as for `ProcessExecutor`.
        retries: as for `ProcessExecutor`.
        grace_s: as for `ProcessExecutor`.
        output: the file that a task's output is appended to. Each task then runs in a process of its own, whose process
            group is killed when the task has ended. None lets the processes inherit our output and run many tasks.

    Yields:
        The result of each task as it ends, in no particular order. Closing the generator ends the processes.
    """
    executor = ProcessExecutor(processes, timeout_s=timeout_s, retries=retries, grace_s=grace_s)
    ended: SimpleQueue[Future[Any]] = SimpleQueue()
    try:
        futures: dict[Future[Any], Task] = {}
        for task in tasks:
            with deferring_signals():  # an exception inside would leave locks taken that the supervisor waits for
                future = executor.submit_with_output(None if output is None else output(task), function, task)
                futures[future] = task
                future.add_done_callback(ended.put)
        for _ in range(len(futures)):
            future = cast(ProcessFuture, ended.get())
            task, error = futures[future], future.exception()
            text = None if error is None else error_text(error)
            value = None if error is not None else future.result()
            yield TaskResult(task, value, text, future.status, future.seconds, future.attempts)
    finally:
        executor.shutdown(cancel_futures=True)


class ProcessFuture(Future[Any]):
    """The future of a task of `ProcessExecutor`, with how it ended: see `TaskResult`."""

    status: Literal["done", "failed", "killed", "timeout"] = "done"
    seconds: float = 0.0
    attempts: int = 1


class ProcessExecutor(Executor):
    """Runs functions in Python processes of this machine, as `concurrent.futures.ProcessPoolExecutor` does.

    Unlike there, a process that is killed costs its own task only: its future raises `WorkerLostError`. All processes
    end when this one does, even by SIGKILL. Leaving the `with` block by an exception ends them too.

    Args:
        workers: how many processes, at least 1; None for one per core.
        timeout_s: limit of one attempt; None for no limit.
        retries: how often a task is started again if its process was killed or timed out. An exception of the function
            is final.
        grace_s: time between SIGTERM and SIGKILL for a process that must end.

    Attributes:
        workers: how many processes.
    """

    def __init__(
        self, workers: int | None = None, *, timeout_s: float | None = None, retries: int = 0, grace_s: float = 5.0
    ) -> None:
        self.workers = workers or len(os.sched_getaffinity(0))
        self._timeout_s, self._retries, self._grace_s = timeout_s, retries, grace_s
        # As a spawned `multiprocessing.Process` gets it: search path, arguments, working directory and main module.
        preparation = get_preparation_data("worker")
        del preparation["authkey"]
        self._preparation = pickle.dumps(preparation)
        self._waiting: deque[_Job] = deque()
        self._lock = threading.Lock()
        self._is_open, self._is_cancelled = True, False
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_writer.setblocking(False)
        self._supervisor: threading.Thread | None = None

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> ProcessFuture:
        """Run `fn(*args, **kwargs)` in a process, all of which can be pickled."""
        return self.submit_with_output(None, fn, *args, **kwargs)

    def submit_with_output(
        self, output: Path | None, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> ProcessFuture:
        """Run `fn` in a process of its own, whose output is appended to a file; None is as `submit`."""
        job = _Job(ProcessFuture(), pickle.dumps((fn, args, kwargs)), output)
        with self._lock:
            if not self._is_open:
                raise RuntimeError("cannot submit a task after shutdown")
            self._waiting.append(job)
            if self._supervisor is None:
                self._supervisor = threading.Thread(target=self._supervise, name="ProcessExecutor", daemon=True)
                self._supervisor.start()
        self._wake()
        return job.future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes, after the submitted tasks or, with `cancel_futures`, now: also of running tasks."""
        with self._lock:
            self._is_open = False
            self._is_cancelled |= cancel_futures
            supervisor = self._supervisor
        self._wake()
        if wait and supervisor is not None:
            supervisor.join()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.shutdown(cancel_futures=kind is not None)

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # it is full of calls already, or its reader has ended
            self._wake_writer.send(b"x")

    def _supervise(self) -> None:
        """Give the tasks to processes until shutdown; the supervising thread, which alone starts and ends them."""
        idle: list[_Worker] = []
        busy: list[_Worker] = []
        try:
            while self._begin_jobs(idle, busy):
                soonest = min((worker.deadline for worker in busy), default=math.inf)
                limit = None if math.isinf(soonest) else max(0.0, soonest - time.monotonic())
                ready = wait([self._wake_reader, *(source for worker in busy for source in worker.sources())], limit)
                if self._wake_reader in ready:
                    self._wake_reader.recv(4096)
                for worker in list(busy):
                    if not worker.is_finished():
                        continue
                    busy.remove(worker)
                    if worker.is_reusable:
                        idle.append(worker)
                    self._finish(worker.job)
        finally:
            with self._lock:
                self._is_open = False
                left = [*(worker.job for worker in busy), *self._waiting]
                self._waiting.clear()
            workers = [*idle, *busy]
            for worker in workers:
                worker.process.signal(signal.SIGTERM)
            deadline = time.monotonic() + self._grace_s
            for worker in workers:
                worker.end(max(0.0, deadline - time.monotonic()))
            for job in left:
                if not job.future.cancel() and not job.future.done():
                    job.future.status = "killed"
                    job.future.set_exception(WorkerLostError("its process was ended with the executor"))
            self._wake_reader.close()
            self._wake_writer.close()

    def _begin_jobs(self, idle: list[_Worker], busy: list[_Worker]) -> bool:
        """Start waiting tasks where there is room; return False once nothing is left to supervise."""
        while len(busy) < self.workers:
            with self._lock:
                if self._is_cancelled:
                    return False
                job = self._waiting.popleft() if self._waiting else None
                if job is None:
                    return self._is_open or bool(busy)
            if job.future.running() or job.future.set_running_or_notify_cancel():
                try:
                    is_known = idle and job.output is None
                    worker = idle.pop() if is_known else _Worker(self._preparation, job.output, self._grace_s)
                except OSError as error:  # a process cannot be started
                    job.future.status = "failed"
                    job.future.set_exception(error)
                    continue
                busy.append(worker)
                worker.begin(job, self._timeout_s)
        return not self._is_cancelled

    def _finish(self, job: _Job) -> None:
        future = job.future
        if future.status in ("killed", "timeout") and future.attempts <= self._retries:
            where = "" if job.output is None else f"{job.output.parent.name}: "
            LOGGER.warning(f"{where}{job.error}; starting it again")
            future.attempts += 1
            with self._lock:
                self._waiting.appendleft(job)
        elif job.error is not None:
            future.set_exception(job.error)
        else:
            future.set_result(job.value)


class ChildProcess:
    """A program in a process group of its own, killed with the group when this object or this process ends.

    This also holds if this process is killed by SIGKILL: its guard, a shell, then ends the group, SIGTERM first.

    Args:
        command: program and arguments. Its standard input stays open and empty.
        output: as `stdout` of `subprocess.Popen`, for both outputs; `subprocess.PIPE` keeps the last lines for `tail`.
        pass_fds: as for `subprocess.Popen`.
        grace_s: time between SIGTERM and SIGKILL if this process is killed.
        is_guarded: False for a program that notices by itself that this process was killed.

    Raises:
        OSError: the program cannot be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        output: int | IO[bytes] | None = None,
        pass_fds: Sequence[int] = (),
        grace_s: float = 0.0,
        is_guarded: bool = True,
    ) -> None:
        self._owner = os.getpid()
        self._printed = bytearray()
        with deferring_signals():  # an exception between the program's start and the last line would leave it behind
            self._process = subprocess.Popen(
                command,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=None if output is None else subprocess.STDOUT,
                pass_fds=pass_fds,
                start_new_session=is_guarded,
                # In our session the kernel itself ends a stopped process, which can notice nothing, when we are killed:
                # its group is then an orphan, and gets SIGHUP and SIGCONT.
                process_group=None if is_guarded else 0,
            )
            self.guard = _start_guard(self._process.pid, grace_s) if is_guarded else None
            self.pidfd = os.pidfd_open(self._process.pid)
            self.output_fd = None if self._process.stdout is None else self._process.stdout.fileno()
            self.fds = [self.pidfd] if self.output_fd is None else [self.pidfd, self.output_fd]
            """What becomes readable when it ends, and when it prints."""
            if self.output_fd is not None:
                os.set_blocking(self.output_fd, False)
            self._finalizer = weakref.finalize(self, _end_group, self._owner, self._process, self.guard, self.pidfd)

    @property
    def pid(self) -> int:
        """Its process id, which is also that of its process group."""
        return self._process.pid

    def is_over(self) -> bool:
        """Return whether it has ended."""
        return not self._finalizer.alive or bool(wait([self.pidfd], 0))

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to its process group."""
        if self._finalizer.alive and os.getpid() == self._owner:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def read_output(self) -> bool:
        """Read what it printed; return False once it has closed its output."""
        if self.output_fd is None or not self._finalizer.alive:
            return False
        for _ in range(16):  # bounded, for a process may print faster than we read
            try:
                chunk = os.read(self.output_fd, 65_536)
            except BlockingIOError:
                break
            if not chunk:
                return False
            self._printed += chunk
            del self._printed[:-_TAIL_BYTES]
        return True

    def tail(self, lines: int = _TAIL_LINES) -> str:
        """Return the last lines that it printed, at most this many."""
        self.read_output()
        return "\n".join(self._printed.decode(errors="replace").splitlines()[-lines:])

    def end(self, grace_s: float = 0.0) -> str:
        """Wait up to `grace_s` for it to end, then kill its process group. Calling it again is harmless.

        Returns:
            How it ended: `was killed by SIGABRT`, `exited with status 1`.
        """
        if os.getpid() != self._owner:
            return "belongs to another process"  # this is a fork
        deadline = time.monotonic() + grace_s
        sources = list(self.fds)
        while self._finalizer.alive and (left := deadline - time.monotonic()) > 0:
            ready = wait(sources, left)
            if self.output_fd in ready and not self.read_output():
                sources.remove(self.output_fd)
            if self.pidfd in ready:
                break
        self.read_output()
        self._finalizer()
        code = self._process.returncode
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with status {code}"


@dataclass
class _Job:
    """A task of `ProcessExecutor`."""

    future: ProcessFuture
    call: bytes
    """The function and its arguments, pickled."""
    output: Path | None
    value: Any = None
    error: Exception | None = None


class _Worker:
    """A Python process that runs one task after the other, or one only if it has an `output`."""

    def __init__(self, preparation: bytes, output: Path | None, grace_s: float) -> None:
        self.is_reusable = output is None
        self._grace_s = grace_s
        ours, theirs = socket.socketpair()
        with theirs, contextlib.nullcontext() if output is None else output.open("ab") as file:
            self.process = ChildProcess(
                [sys.executable, "-P", "-u", "-c", _SERVE, str(theirs.fileno())], file, [theirs.fileno()], grace_s
            )
        self._connection = Connection(ours.detach())
        self._send(preparation)

    def begin(self, job: _Job, timeout_s: float | None) -> None:
        self.job = job
        self._answer: tuple[Any, Exception | None] | None = None
        self._is_connected, self._was_told_to_end = True, False
        self._started = time.monotonic()
        self.deadline = math.inf if timeout_s is None else self._started + timeout_s
        self._send(job.call)

    def sources(self) -> list[Connection | int]:
        """Return what to wait for: its answer, its end."""
        return [self._connection, self.process.pidfd] if self._is_connected else [self.process.pidfd]

    def is_finished(self) -> bool:
        """Return whether the task has ended, and put into the job how."""
        if self._is_connected and self._connection.poll():
            try:
                self._answer = self._connection.recv()
                if self.is_reusable:
                    self._record("")
                    return True
                self.deadline = time.monotonic() + self._grace_s  # to end by itself
            except (EOFError, OSError):
                pass  # it died, or is dying
            except Exception as error:  # an answer that cannot be unpickled here
                self._answer = (None, TaskError(f"{type(error).__name__}: {error}"))
                if self.is_reusable:
                    self._record("")
                    return True
                self.deadline = time.monotonic() + self._grace_s
            self._connection.close()
            self._is_connected = False
        elif self.process.is_over():
            self.is_reusable = False
            self._record(self.process.end())
            return True
        if time.monotonic() >= self.deadline:
            self.process.signal(signal.SIGKILL if self._was_told_to_end else signal.SIGTERM)
            self.deadline = time.monotonic() + self._grace_s
            self._was_told_to_end = True
        return False

    def end(self, grace_s: float) -> None:
        self._connection.close()
        self.process.end(grace_s)

    def _record(self, how_it_ended: str) -> None:
        job, future = self.job, self.job.future
        future.seconds = round(time.monotonic() - self._started, 3)
        job.value, job.error = self._answer or (None, WorkerLostError(f"its process {how_it_ended}"))
        if self._answer is not None and job.error is None:
            future.status = "done"
        elif self._was_told_to_end:
            future.status = "timeout"
            job.error = WorkerLostError(f"its process was stopped after {future.seconds:.0f} s")
        else:
            future.status = "killed" if self._answer is None else "failed"

    def _send(self, pickled: bytes) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # It is dead: `is_finished` says so.
            self._connection.send_bytes(pickled)


def _serve(fd: int) -> None:
    """Run the tasks that come in; the main function of a worker's process."""
    os.set_inheritable(fd, False)
    connection = Connection(fd)
    # Importing the main module must not start processes again: multiprocessing refuses while this is set.
    this_process = multiprocessing.current_process()
    this_process._inheriting = True  # type: ignore[attr-defined]
    prepare(connection.recv())
    del this_process._inheriting  # type: ignore[attr-defined]
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            call = connection.recv_bytes()
            try:
                function, args, kwargs = pickle.loads(call)
                answer = pickle.dumps((function(*args, **kwargs), None))
            except Exception as error:
                answer = _pickled_error(error)
            connection.send_bytes(answer)


def _pickled_error(error: Exception) -> bytes:
    try:
        answer = pickle.dumps((None, error))
        pickle.loads(answer)  # some exceptions fail only here
    except Exception:
        answer = pickle.dumps((None, TaskError(f"{type(error).__name__}: {error}")))
    return answer


def _start_guard(group: int, grace_s: float) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["/bin/sh", "-c", _GUARD, "guard", str(group), str(round(grace_s * 10))],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _end_group(owner: int, process: subprocess.Popen[bytes], guard: subprocess.Popen[bytes] | None, pidfd: int) -> None:
    if os.getpid() != owner:
        return  # this is a fork
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # its id cannot be another's before wait()
    if guard is not None:
        guard.kill()
    for one in filter(None, (guard, process)):
        one.wait()
        for stream in (one.stdin, one.stdout):
            if stream is not None:
                stream.close()
    os.close(pidfd)
