"""Where tasks run: on this machine, or on a Ray, Dask or SLURM cluster, as `concurrent.futures` executors."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import pickle
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, Generic, Literal, Protocol, TypeVar

from bbrgym.checks import check_name, check_number, keep_integers, read_record
from bbrgym.cores import available_cores
from bbrgym.extras import optional
from bbrgym.interruption import deferring_signals, keeping_handlers, shielding_children
from bbrgym.processes import ProcessExecutor, WorkerLostError
from bbrgym.waiting import announcing

LOGGER: Final = logging.getLogger(__name__)
Task = TypeVar("Task")


@dataclass(frozen=True)
class TaskResult(Generic[Task]):
    """How a task ended.

    Attributes:
        task: the task.
        value: what its function returned.
        error: why there is no value; None if it is done.
        status: `failed` by an exception of the function, `killed` if its worker was lost.
        seconds: duration of the last attempt; 0 if its worker was lost.
        attempts: how often it was started.
    """

    task: Task
    value: Any = None
    error: str | None = None
    status: Literal["done", "failed", "killed"] = "done"
    seconds: float = 0.0
    attempts: int = 1


class TaskExecutor(Protocol):
    """A `concurrent.futures.Executor` that knows how many tasks it runs at a time. It starts no task twice."""

    @property
    def workers(self) -> int:
        """How many tasks run at a time, now: a cluster may grow."""

    @property
    def lost(self) -> tuple[type[BaseException], ...]:
        """The errors of futures whose worker was lost."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run `fn(*args, **kwargs)` on a worker; the function and its arguments can be pickled."""

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the workers that it started, after the submitted tasks or, with `cancel_futures`, now."""


def run_in_chunks(
    function: Callable[[Task], Any],
    tasks: Iterable[Task],
    executor: TaskExecutor,
    *,
    cost_s: Callable[[Task], float] = lambda task: 1.0,
    chunk_s: float = 10.0,
    retries: int = 1,
) -> Generator[TaskResult[Task], None, None]:
    """Run `function(task)` for every task, several in each call of the executor, in about their order.

    A chunk gets tasks for about `chunk_s` seconds. Their costs are estimates at first, and are corrected by what is
    measured; the first chunks, which correct them, are a tenth of that, and the last ones get smaller, so that all
    workers end at about the same time. A chunk whose worker was lost is halved until the task that costs workers is
    alone. So a task may run again after it was done: it should notice this, and be quick.

    Args:
        function: can be pickled, as its return values and the tasks can.
        tasks: what to run.
        executor: where to run it. What is submitted when the generator is closed goes on until its shutdown.
        cost_s: estimates the seconds that a task takes; only their ratios matter in the long run.
        chunk_s: what a call of the executor should take; 0 for one task in each.
        retries: how often a task that is alone is started again if its worker was lost. An exception of the function is
            final.

    Yields:
        The result of each task once its chunk has ended, in no particular order.
    """
    waiting = deque((task, cost_s(task)) for task in tasks)
    left_s = sum(cost for _, cost in waiting)
    again: deque[_Chunk[Task]] = deque()
    running: dict[Future[Any], _Chunk[Task]] = {}
    ended: SimpleQueue[Future[Any]] = SimpleQueue()
    estimated_s, measured_s = 0.0, 0.0
    while waiting or again or running:
        at_a_time = 2 * executor.workers  # one that runs and one that waits for each worker
        while (waiting or again) and len(running) < at_a_time:
            if again:
                chunk = again.popleft()
            else:
                factor = measured_s / estimated_s if measured_s else 1.0
                wanted_s = min((chunk_s if measured_s else chunk_s / 10) / factor, left_s / at_a_time)
                chunk = _Chunk()
                while waiting and (not chunk.tasks or chunk.cost_s + waiting[0][1] <= wanted_s):
                    task, cost = waiting.popleft()
                    chunk.tasks.append(task)
                    chunk.cost_s += cost
                    left_s -= cost
            with deferring_signals():  # an exception inside would leave locks taken that other threads wait for
                future = executor.submit(_run_chunk, function, chunk.tasks)
                running[future] = chunk
                future.add_done_callback(ended.put)
        future = ended.get()
        chunk = running.pop(future)
        error = WorkerLostError("the task was cancelled") if future.cancelled() else future.exception()
        if error is None:
            outcomes = future.result()
            estimated_s += chunk.cost_s
            measured_s += sum(outcome[2] for outcome in outcomes)
            for task, (value, text, seconds) in zip(chunk.tasks, outcomes, strict=True):
                yield TaskResult(
                    task,
                    value=value,
                    error=text,
                    status="failed" if text else "done",
                    seconds=seconds,
                    attempts=chunk.attempt,
                )
            continue
        is_lost = isinstance(error, (WorkerLostError, *executor.lost))
        text = (str(error).strip().splitlines() or [""])[0] if is_lost else f"{type(error).__name__}: {error}"
        if is_lost and (len(chunk.tasks) > 1 or chunk.attempt <= retries):
            LOGGER.info("%s; tasks that start again: %d", text, len(chunk.tasks))
            again += chunk.parts()
        else:  # its worker was lost too often, or lacks a module
            for task in chunk.tasks:
                yield TaskResult(
                    task,
                    value=None,
                    error=text,
                    status="killed" if is_lost else "failed",
                    seconds=0.0,
                    attempts=chunk.attempt,
                )


@dataclass
class _Chunk(Generic[Task]):
    tasks: list[Task] = field(default_factory=list)
    cost_s: float = 0.0
    attempt: int = 1

    def parts(self) -> list[_Chunk[Task]]:
        """Return its halves, or a second attempt if it has one task."""
        middle = len(self.tasks) // 2
        if middle == 0:
            return [_Chunk(self.tasks, self.cost_s, self.attempt + 1)]
        return [_Chunk(part, self.cost_s / 2) for part in (self.tasks[:middle], self.tasks[middle:])]


def _run_chunk(function: Callable[[Any], Any], tasks: Sequence[Any]) -> list[tuple[Any, str | None, float]]:
    """Return for each task its value, its error, and its seconds; on a worker."""
    outcomes: list[tuple[Any, str | None, float]] = []
    for task in tasks:
        began = time.perf_counter()
        value, text = None, None
        try:
            value = function(task)
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
        outcomes.append((value, text, round(time.perf_counter() - began, 3)))
    return outcomes


@dataclass(frozen=True)
class ExecutorConfig:
    """Where the runs of a benchmark or the jobs of a sweep run; conf/benchmark/executor explains each kind.

    Args:
        workers: how many tasks run at a time; None for what the kind says.
        chunk_s: seconds of work in a call: see `run_in_chunks`.

    Raises:
        ValueError: a value is not valid.
    """

    workers: int | None = None
    chunk_s: float = 10.0

    def __post_init__(self) -> None:
        keep_integers(self, "workers", prefix="executor.", at_least=1, or_none=True)
        check_number("executor.chunk_s", self.chunk_s, above=0)

    @classmethod
    def of(cls, plain: str | Mapping[str, Any] | None) -> ExecutorConfig:
        """Make one of its name, or of a mapping with `name` and the fields of that kind; None is `local`.

        Raises:
            ValueError: a key is unknown, or a value is not valid.
        """
        options = {"name": plain} if isinstance(plain, str) else dict(plain or {})
        name = options.pop("name", "local")
        check_name("executor", name, EXECUTORS)
        return read_record(EXECUTORS[name], f"executor {name}", options)

    def to_dict(self) -> dict[str, Any]:
        """Return plain types, from which `of` makes an equal one."""
        name = next(name for name, kind in EXECUTORS.items() if kind is type(self))
        return {"name": name, **dataclasses.asdict(self)}


def make_executor(config: ExecutorConfig, is_fresh: bool = False) -> TaskExecutor:
    """Start an executor, or connect to its cluster; `is_fresh`: each call gets its own process, except with Dask.

    Raises:
        ModuleNotFoundError: a package that it needs is not installed.
        ConnectionError: its cluster cannot be reached.
    """
    with announcing(f"the workers of {type(config).__name__.removesuffix('Config')}"):
        match config:
            case LocalConfig():
                return ProcessExecutor(config.workers, timeout_s=config.timeout_s, is_fresh=is_fresh)
            case RayConfig():
                return _RayExecutor(config, is_fresh)
            case DaskConfig():
                return _DaskExecutor(config)
            case SlurmConfig():
                return _SlurmExecutor(config)
    raise TypeError(f"{type(config).__name__} is not the configuration of an executor")


@dataclass(frozen=True)
class LocalConfig(ExecutorConfig):
    """Processes of this machine, by `ProcessExecutor`.

    Args:
        timeout_s: limit of a call; its processes then get SIGTERM, and SIGKILL 15 s later. None for no limit.
    """

    timeout_s: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("executor.timeout_s", self.timeout_s, above=0, or_none=True)


@dataclass(frozen=True)
class RayConfig(ExecutorConfig):
    """Tasks of Ray, in its own processes; a Ray that this process is connected to already is used."""

    chunk_s: float = 20.0
    address: str = "local"
    cpus_per_task: float = 1.0
    object_store_mb: int = 100  # little passes through it

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("executor.cpus_per_task", self.cpus_per_task, above=0)
        keep_integers(self, "object_store_mb", prefix="executor.", at_least=75)  # the least that Ray takes


@dataclass(frozen=True)
class DaskConfig(ExecutorConfig):
    """Tasks of Dask."""

    chunk_s: float = 20.0
    address: str = "local"


@dataclass(frozen=True)
class SlurmConfig(ExecutorConfig):
    """Jobs of SLURM, by submitit; a chunk is a job.

    Args:
        folder: of submitit's files; in it, %j stands for the number of a job.
    """

    workers: int | None = 32
    chunk_s: float = 600.0
    folder: str = "runs/slurm"
    cluster: str = "slurm"
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"timeout_min": 60, "cpus_per_task": 1, "mem_gb": 2})
    poll_s: float = 5.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("executor.poll_s", self.poll_s, above=0)
        check_name("executor.cluster", self.cluster, ("slurm", "local"))
        if "%a" in self.folder:
            raise ValueError(f"executor.folder must not have %a, which only arrays of jobs have, got {self.folder!r}")


EXECUTORS: Final[Mapping[str, type[ExecutorConfig]]] = {
    "local": LocalConfig,
    "ray": RayConfig,
    "dask": DaskConfig,
    "slurm": SlurmConfig,
}


class ThreadExecutor(ThreadPoolExecutor):
    """Runs tasks in threads of this process, for what is a worker itself; one at a time by default."""

    lost: Final[tuple[type[BaseException], ...]] = ()

    def __init__(self, workers: int = 1) -> None:
        super().__init__(workers)
        self.workers: Final = workers


class _RayExecutor(Executor):
    def __init__(self, config: RayConfig, is_fresh: bool) -> None:
        self._running: dict[Future[Any], Any] = {}
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # Else Ray replaces 127.0.0.1 by this machine's network address: its local instance would listen there, and a
        # cluster at 127.0.0.1 would not be found. Ray reads this when it is imported.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        with optional("executor=ray"):
            import ray

        self._ray = ray
        self._is_ours = not ray.is_initialized()
        if self._is_ours:
            options: dict[str, Any] = {"address": config.address, "log_to_driver": False, "logging_level": "WARNING"}
            if config.address == "local":
                options |= {"num_cpus": config.workers or available_cores(), "include_dashboard": False}
                options |= {"object_store_memory": config.object_store_mb << 20, "_node_ip_address": "127.0.0.1"}
            with keeping_handlers():
                ray.init(**options)
        errors = ray.exceptions
        self.lost = (errors.WorkerCrashedError, errors.NodeDiedError, errors.ObjectLostError, errors.OutOfMemoryError)
        self._cpus_per_task = config.cpus_per_task
        # `run_in_chunks` decides what runs again.
        decorate = ray.remote(num_cpus=config.cpus_per_task, max_retries=0, max_calls=int(is_fresh))
        self._call = decorate(_call)

    @property
    def workers(self) -> int:
        return max(1, int(self._ray.cluster_resources().get("CPU", 0) / self._cpus_per_task))

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        reference = self._call.remote(fn, args, kwargs)
        future: Future[Any] = reference.future()
        self._running[future] = reference
        future.add_done_callback(self._running.pop)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if wait and not cancel_futures:
            wait_for(list(self._running))
        for reference in list(self._running.values()):
            with contextlib.suppress(Exception):  # it has ended, or its cluster has
                self._ray.cancel(reference, force=True)
        if self._is_ours:
            self._ray.shutdown()


def _call(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return fn(*args, **kwargs)


class _DaskExecutor(Executor):
    def __init__(self, config: DaskConfig) -> None:
        with optional("executor=dask"):
            import cloudpickle
            import dask
            from distributed import Client, KilledWorker, LocalCluster

        self._dumps = cloudpickle.dumps
        self.lost = (KilledWorker,)
        self._cluster = None
        if config.address == "local":
            workers = config.workers or available_cores()
            resource_tracker.ensure_running()  # as Dask's processes need it; its start would end the shielding
            settings = {
                # `run_in_chunks` decides what runs again; a lost worker must cost no task that waits for it.
                "distributed.scheduler.allowed-failures": 0,
                "distributed.scheduler.worker-saturation": 1.0,
                # Else Dask uses 16 % of a core when nothing runs, instead of 5 %.
                "distributed.worker.profile.enabled": False,
                "distributed.admin.tick.interval": "1s",
                "distributed.admin.system-monitor.interval": "10s",
            }
            with shielding_children(), dask.config.set(settings):
                self._cluster = LocalCluster(
                    n_workers=workers,
                    threads_per_worker=1,
                    host="127.0.0.1",
                    dashboard_address="127.0.0.1:0",
                    worker_dashboard_address="127.0.0.1:0",
                    silence_logs=40,
                )
        try:
            self._client = Client(self._cluster or config.address)
        except OSError as error:
            raise ConnectionError(f"executor.address={config.address}: {error}") from error
        self._executor = self._client.get_executor(pure=False)

    @property
    def workers(self) -> int:
        return max(1, sum(int(threads) for threads in self._client.nthreads().values()))

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        # Dask would take a function within the arguments for a task of its own.
        future: Future[Any] = self._executor.submit(_call_pickled, self._dumps((fn, args, kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        with contextlib.suppress(Exception):  # the cluster may be gone
            self._executor.shutdown(wait=wait and not cancel_futures)
        with contextlib.suppress(TimeoutError):  # a busy machine; what is left ends with this process
            self._client.close()
            if self._cluster is not None:
                self._cluster.close()


def _call_pickled(call: bytes) -> Any:
    return _call(*pickle.loads(call))


class _SlurmExecutor(ThreadPoolExecutor):
    """Jobs, each of which a thread here waits for."""

    lost = (WorkerLostError,)

    def __init__(self, config: SlurmConfig) -> None:
        with optional("executor=slurm"):
            import submitit

        self.workers = config.workers or 32
        super().__init__(2 * self.workers)
        self._failed = submitit.core.utils.FailedJobError
        self._poll_s = config.poll_s
        self._folder = Path(config.folder).absolute()
        self._is_local = config.cluster == "local"
        try:
            self._executor = submitit.AutoExecutor(self._folder, cluster=config.cluster)
        except RuntimeError as error:
            raise ConnectionError(f"executor.cluster={config.cluster}: {error}") from error
        self._executor.update_parameters(**config.parameters)
        self._jobs: list[Any] = []
        self._is_over = threading.Event()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self._is_local and _has_tag(self._folder):
            # A controller of submitit needs this folder, too, although it writes to that of the job.
            self._folder.mkdir(parents=True, exist_ok=True)
        with shielding_children():
            job = self._executor.submit(fn, *args, **kwargs)
        self._jobs.append(job)
        return super().submit(self._wait, job)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if cancel_futures:
            self._is_over.set()
        super().shutdown(wait or cancel_futures, cancel_futures=cancel_futures)
        if cancel_futures:
            for job in self._jobs:
                _end_job(job)
        unnamed = self._folder
        with contextlib.suppress(OSError):  # it has files, or there is none
            while self._is_local and _has_tag(unnamed):
                unnamed.rmdir()
                unnamed = unnamed.parent

    def _wait(self, job: Any) -> Any:
        while not job.done():
            if self._is_over.wait(self._poll_s):
                raise WorkerLostError("its executor has been shut down")
        self._jobs.remove(job)
        error = job.exception()
        if error is not None and not isinstance(error, self._failed):
            raise WorkerLostError(f"job {job.job_id} was lost: {error}")
        return job.result()  # or its error


def _has_tag(folder: Path) -> bool:
    """Return whether a name in a path stands for those of jobs."""
    return any(tag in str(folder) for tag in ("%j", "%t", "%A"))


def _end_job(job: Any) -> None:
    """End a job. submitit lets one on this machine outlive us, and its task ignores SIGTERM."""
    controller = getattr(job, "_process", None)
    if controller is None:
        job.cancel(check=False)
    elif controller.poll() is None:
        controller.send_signal(signal.SIGSTOP)  # so that it starts no task now
        tasks = Path(f"/proc/{controller.pid}/task/{controller.pid}/children").read_text(encoding="ascii")
        for task in map(int, tasks.split()):
            os.kill(task, signal.SIGKILL)
        controller.kill()
        controller.wait()
