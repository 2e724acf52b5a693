"""Child processes that never outlive this one, and an executor whose tasks run in them."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from multiprocessing.connection import Connection, wait
from multiprocessing.spawn import get_preparation_data, prepare
from typing import IO, Any, Final

from bbrgym.cores import available_cores
from bbrgym.interruption import deferring_signals

GRACE_S: Final = 15.0
"""Time between SIGTERM and SIGKILL for a process that runs a task: a training writes a checkpoint in it."""

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


class WorkerLostError(RuntimeError):
    """The process or job that ran a task ended before the task did: it was killed, or took too long."""


class ProcessExecutor(ThreadPoolExecutor):
    """Runs functions in Python processes of this machine, each of which a thread here waits for.

    Unlike in `concurrent.futures.ProcessPoolExecutor`, a process that is killed costs its own task only: its future
    raises `WorkerLostError`. One that dies while it has no task costs none. All processes end when this one does, even
    by SIGKILL. Leaving the `with` block by an exception ends them too. docs/decisions/0009-our-own-process-pool.md has
    the alternatives.

    Args:
        workers: how many processes, at least 1; None for one per core.
        timeout_s: limit of a task, which then fails with `WorkerLostError`; None for no limit.
        is_fresh: whether each task gets a process of its own, whose process group is killed after it.
        has_main: whether processes import the main module of this one, which functions of that module need.
        environment: variables that the processes have beside ours.

    Attributes:
        workers: how many processes.
        lost: the errors of futures whose process was lost.
    """

    lost = (WorkerLostError,)

    def __init__(
        self,
        workers: int | None = None,
        *,
        timeout_s: float | None = None,
        is_fresh: bool = False,
        has_main: bool = True,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.workers = workers or available_cores()
        super().__init__(self.workers, thread_name_prefix="ProcessExecutor")
        self._timeout_s, self._is_fresh = timeout_s, is_fresh
        # As a spawned `multiprocessing.Process` gets it: search path, arguments, working directory and main module.
        preparation = get_preparation_data("worker")
        del preparation["authkey"]
        if not has_main:
            preparation = {name: value for name, value in preparation.items() if not name.startswith("init_main")}
        self._preparation = pickle.dumps(preparation)
        self._environment = environment
        self._tasks: weakref.WeakKeyDictionary[Future[Any], _Task] = weakref.WeakKeyDictionary()
        self._idle: list[_Worker] = []
        self._busy: list[_Worker] = []
        self._is_cancelled = False
        self._changed = threading.Condition()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run `fn(*args, **kwargs)` in a process; the function and its arguments can be pickled."""
        task = _Task(pickle.dumps((fn, args, kwargs)))
        future = super().submit(self._run, task)
        self._tasks[future] = task
        return future

    def stop(self, futures: Iterable[Future[Any]]) -> None:
        """Cancel tasks, and end the processes of those that run: these fail with `WorkerLostError`.

        Of tasks that have ended nothing changes, whatever their processes run now.
        """
        for future in futures:
            if not future.cancel() and (task := self._tasks.get(future)) is not None:
                with self._changed:
                    task.is_stopped = True
                    if task.worker in self._busy:
                        task.worker.process.signal(signal.SIGTERM)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes, after the submitted tasks or, with `cancel_futures`, now: also of running tasks."""
        if cancel_futures:
            super().shutdown(wait=False, cancel_futures=True)
            with self._changed:
                self._is_cancelled = True
                self._signal_busy(signal.SIGTERM)
                try:
                    self._changed.wait_for(lambda: not self._busy, GRACE_S)
                finally:
                    self._signal_busy(signal.SIGKILL)
        super().shutdown(wait)
        if wait or cancel_futures:
            for worker in self._idle:
                worker.process.signal(signal.SIGTERM)
            while self._idle:
                self._idle.pop().end()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.shutdown(cancel_futures=kind is not None)

    def _run(self, task: _Task) -> Any:
        """Let a process answer the call of a task; in a thread."""
        try:
            answer = self._ask(task)
        except _NotBegunError:
            answer = None
        value, error = pickle.loads(answer or self._ask(task, is_new=True))
        if error is not None:
            raise error
        return value

    def _ask(self, task: _Task, is_new: bool = False) -> bytes:
        """Return a process's answer to the call of a task.

        Args:
            task: which.
            is_new: whether the process must be new; else it is one that has answered before, if one is idle.

        Raises:
            WorkerLostError: the process ended, took too long, or was stopped; `_NotBegunError` if it had died while it
                was idle.
        """
        with self._changed:
            if self._is_cancelled:
                raise WorkerLostError("its executor has been shut down")
            if task.is_stopped:
                raise WorkerLostError("it has been stopped")
            was_idle = bool(self._idle) and not is_new
            worker = self._idle.pop() if was_idle else _Worker(self._preparation, self._environment)
            self._busy.append(worker)
            task.worker = worker
        answer, ended = None, ""
        try:
            answer = worker.ask(task.call, self._timeout_s)
        finally:
            with self._changed:  # before its process is waited for, whose id may be another's then
                # A process that was stopped is dying, even if it has answered.
                is_reusable = answer is not None and not self._is_fresh and not task.is_stopped
                self._busy.remove(worker)
                task.worker = None
                if is_reusable:
                    self._idle.append(worker)
                self._changed.notify_all()
            if not is_reusable:
                ended = worker.end()
        if answer is None:
            is_without_loss = was_idle and not worker.has_call
            raise (_NotBegunError if is_without_loss else WorkerLostError)(f"its process {ended}")
        return answer

    def _signal_busy(self, number: signal.Signals) -> None:
        for worker in self._busy:
            worker.process.signal(number)


class _NotBegunError(WorkerLostError):
    """The process had ended before it could begin the task, which another process can thus run."""


class _Task:
    """A call, and the process that answers it now."""

    def __init__(self, call: bytes) -> None:
        self.call = call
        self.is_stopped = False
        self.worker: _Worker | None = None


class ChildProcess:
    """A program in a process group of its own, killed with the group when this object or this process ends.

    This also holds if this process is killed by SIGKILL: its guard, a shell, then ends the group, SIGTERM first.

    Args:
        command: program and arguments. Its standard input stays open and empty.
        output: as `stdout` of `subprocess.Popen`, for both outputs; `subprocess.PIPE` keeps the last lines for `tail`.
        pass_fds: as for `subprocess.Popen`.
        grace_s: time between SIGTERM and SIGKILL if this process is killed.
        is_guarded: False for a program that notices by itself that this process was killed.
        environment: variables that it has beside ours.

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
        environment: Mapping[str, str] | None = None,
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
                env=None if environment is None else {**os.environ, **environment},
                start_new_session=is_guarded,
                # In our session the kernel itself ends a stopped process, which can notice nothing, when we are killed:
                # its group is then an orphan, and gets SIGHUP and SIGCONT.
                process_group=None if is_guarded else 0,
            )
            self.guard = _start_guard(self._process.pid, grace_s) if is_guarded else None
            self.pidfd = _open_pid(self._process.pid)
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


class _Worker:
    """A Python process that answers calls.

    Attributes:
        has_call: whether it has, or may have, read the last call. Linux knows when it has not.
    """

    def __init__(self, preparation: bytes, environment: Mapping[str, str] | None) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-P", "-u", "-c", _SERVE, str(theirs.fileno())]
            self.process = ChildProcess(command, pass_fds=[theirs.fileno()], grace_s=GRACE_S, environment=environment)
        self._connection = Connection(ours.detach())
        self.has_call = False
        self._send(preparation)

    def ask(self, call: bytes, limit_s: float | None) -> bytes | None:
        """Return the answer to a call; None if the process died.

        Raises:
            WorkerLostError: it took too long, and has got SIGTERM.
        """
        self.has_call = not self.process.is_over() and self._send(call)
        ready = wait([self._connection, self.process.pidfd], limit_s)
        if not ready:
            self.process.signal(signal.SIGTERM)
            raise WorkerLostError(f"its process was stopped after {limit_s:g} s")
        try:
            if self._connection in ready:
                return self._connection.recv_bytes()
        except ConnectionResetError:  # it ended with something of the call unread
            self.has_call = False
        except (EOFError, OSError):  # it is dead, or dying
            pass
        return None

    def end(self) -> str:
        """Let the process end, kill its group, and return how it ended."""
        self._connection.close()
        return self.process.end(GRACE_S)

    def _send(self, pickled: bytes) -> bool:
        """Send something; return False if the process is dead."""
        try:
            self._connection.send_bytes(pickled)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True


def _serve(fd: int) -> None:
    """Answer the calls that come in; the main function of a worker's process."""
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
                try:
                    answer = pickle.dumps((None, error))
                    pickle.loads(answer)  # some exceptions fail only here
                except Exception:
                    answer = pickle.dumps((None, RuntimeError(f"{type(error).__name__}: {error}")))
            connection.send_bytes(answer)


def _open_pid(pid: int) -> int:
    """Return a descriptor that becomes readable when a child process ends."""
    if sys.platform == "darwin":
        queue = select.kqueue()
        queue.control([select.kevent(pid, select.KQ_FILTER_PROC, select.KQ_EV_ADD, select.KQ_NOTE_EXIT)], 0)
        return os.dup(queue.fileno())
    return os.pidfd_open(pid)


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
