"""Where tasks run: on this machine, or on a Ray, Dask or SLURM cluster, as `concurrent.futures` executors."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from concurrent.futures import wait as wait_for
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, Generic, Protocol, TypeVar

from bbrgym.checks import check_keys, check_name, check_number, keep_integers
from bbrgym.extras import optional
from bbrgym.interruption import deferring_signals, keeping_handlers, shielding_children
from bbrgym.processes import ProcessExecutor, TaskError, TaskResult, WorkerLostError, error_text
from bbrgym.waiting import announcing

Task = TypeVar("Task")


class TaskExecutor(Protocol):
    """A `concurrent.futures.Executor` that knows how many tasks it runs at a time.

    A future whose worker was lost raises `WorkerLostError`; the executor itself does not start its task again.
    """

    @property
    def workers(self) -> int:
        """How many tasks run at a time, now: a cluster may grow."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run `fn(*args, **kwargs)` on a worker, all of which can be pickled."""

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
        executor: where to run it.
        cost_s: estimates the seconds that a task takes; only their ratios matter in the long run.
        chunk_s: what a call of the executor should take.
        retries: how often a task that is alone is started again if its worker was lost. An exception of the function is
            final.

    Yields:
        The result of each task once its chunk has ended, in no particular order. Closing the generator cancels what
        has not begun; `executor.shutdown(cancel_futures=True)` ends the rest.
    """
    waiting = deque((task, cost_s(task)) for task in tasks)
    left_s = sum(cost for _, cost in waiting)
    again: deque[_Chunk[Task]] = deque()
    running: dict[Future[Any], _Chunk[Task]] = {}
    ended: SimpleQueue[Future[Any]] = SimpleQueue()
    estimated_s, measured_s = 0.0, 0.0
    try:
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
            error = future.exception()
            if error is None:
                outcomes = future.result()
                estimated_s += chunk.cost_s
                measured_s += sum(outcome[2] for outcome in outcomes)
                for task, (value, text, seconds) in zip(chunk.tasks, outcomes, strict=True):
                    yield TaskResult(task, value, text, "failed" if text else "done", seconds, chunk.attempt)
            elif not isinstance(error, WorkerLostError):  # as a module that a worker lacks
                for task in chunk.tasks:
                    yield TaskResult(task, None, error_text(error), "failed", 0.0, chunk.attempt)
            elif len(chunk.tasks) > 1:
                again += chunk.halves()
            elif chunk.attempt <= retries:
                again.append(dataclasses.replace(chunk, attempt=chunk.attempt + 1))
            else:
                yield TaskResult(chunk.tasks[0], None, error_text(error), "killed", 0.0, chunk.attempt)
    finally:
        for future in running:
            future.cancel()


@dataclass
class _Chunk(Generic[Task]):
    tasks: list[Task] = field(default_factory=list)
    cost_s: float = 0.0
    attempt: int = 1

    def halves(self) -> list[_Chunk[Task]]:
        middle = len(self.tasks) // 2
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
            text = error_text(error)
        outcomes.append((value, text, round(time.perf_counter() - began, 3)))
    return outcomes


@dataclass(frozen=True)
class ExecutorConfig:
    """Where the tasks of a benchmark run; conf/benchmark/executor explains the fields of each kind.

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
        kind = EXECUTORS[name]
        check_keys(f"executor {name}", options, [f.name for f in dataclasses.fields(kind)])
        return kind(**options)

    def to_dict(self) -> dict[str, Any]:
        """Return plain types, from which `of` makes an equal one."""
        name = next(name for name, kind in EXECUTORS.items() if kind is type(self))
        return {"name": name, **dataclasses.asdict(self)}

    def start(self) -> TaskExecutor:
        """Start the executor, or connect to its cluster.

        Raises:
            ModuleNotFoundError: a package that it needs is not installed.
        """
        raise NotImplementedError


def make_executor(config: ExecutorConfig) -> TaskExecutor:
    """Start an executor, or connect to its cluster: see `ExecutorConfig.start`."""
    with announcing(f"the workers of {type(config).__name__.removesuffix('Config')}"):
        return config.start()


@dataclass(frozen=True)
class LocalConfig(ExecutorConfig):
    """Processes of this machine, as many as `workers`, None for one per core: see `ProcessExecutor`."""

    def start(self) -> TaskExecutor:
        """Return the executor, which starts processes when it has tasks."""
        return ProcessExecutor(self.workers)


@dataclass(frozen=True)
class RayConfig(ExecutorConfig):
    """Tasks of Ray, in its own processes.

    Args:
        workers: of the Ray that is started here, None for one per core; of a cluster, as many as it has CPUs.
        address: `local` starts a Ray for this benchmark, on 127.0.0.1 alone; else that of a running cluster, `auto`
            for the one of RAY_ADDRESS or of this machine.
        cpus_per_task: CPUs that a task reserves.
        object_store_mb: memory of the object store of a Ray that is started here. Little passes through it.
    """

    address: str = "local"
    cpus_per_task: float = 1.0
    object_store_mb: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("executor.cpus_per_task", self.cpus_per_task, above=0)
        keep_integers(self, "object_store_mb", prefix="executor.", at_least=75)  # the least that Ray takes

    def start(self) -> TaskExecutor:
        """Start or connect to Ray, or use the Ray that this process is connected to."""
        return _RayExecutor(self)


@dataclass(frozen=True)
class DaskConfig(ExecutorConfig):
    """Tasks of Dask.

    Args:
        workers: of the cluster that is started here, None for one per core; a running one has what it has.
        address: `local` starts a cluster of processes for this benchmark, on 127.0.0.1 alone; else that of a
            scheduler, as `tcp://10.0.0.1:8786`.
    """

    address: str = "local"

    def start(self) -> TaskExecutor:
        """Start or connect to the cluster."""
        return _DaskExecutor(self)


@dataclass(frozen=True)
class SlurmConfig(ExecutorConfig):
    """Jobs of SLURM, by submitit; a chunk is a job.

    Args:
        workers: how many jobs are queued or run at a time, at most twice as many with the ones that wait; None for 32.
        folder: where jobs, their output and results are kept; all machines must see it.
        cluster: `slurm`; `local` runs jobs as processes of this machine, all at once, to try it out.
        parameters: for submitit's `update_parameters`: {timeout_min: 60, slurm_partition: cpu}.
        poll_s: how often to look for results.
    """

    chunk_s: float = 600.0
    folder: str = "runs/slurm"
    cluster: str = "slurm"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    poll_s: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("executor.poll_s", self.poll_s, above=0)
        check_name("executor.cluster", self.cluster, ("slurm", "local"))

    def start(self) -> TaskExecutor:
        """Return the executor, which submits a job per call."""
        return _SlurmExecutor(self)


EXECUTORS: Final[Mapping[str, type[ExecutorConfig]]] = {
    "local": LocalConfig,
    "ray": RayConfig,
    "dask": DaskConfig,
    "slurm": SlurmConfig,
}


class _RayExecutor(Executor):
    def __init__(self, config: RayConfig) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        with optional("executor=ray"):
            import ray

        self._ray = ray
        self._is_ours = not ray.is_initialized()
        if self._is_ours:
            options: dict[str, Any] = {"address": config.address, "log_to_driver": False, "logging_level": "WARNING"}
            if config.address == "local":
                options |= {"num_cpus": config.workers or len(os.sched_getaffinity(0)), "include_dashboard": False}
                options |= {"object_store_memory": config.object_store_mb << 20, "_node_ip_address": "127.0.0.1"}
            with keeping_handlers():
                ray.init(**options)
        errors = ray.exceptions
        self._lost = (errors.WorkerCrashedError, errors.NodeDiedError, errors.ObjectLostError, errors.OutOfMemoryError)
        self._cpus_per_task = config.cpus_per_task
        # `run_in_chunks` decides what runs again.
        self._remote = ray.remote(num_cpus=config.cpus_per_task, max_retries=0)(_call)
        self._running: dict[Future[Any], Any] = {}

    @property
    def workers(self) -> int:
        return max(1, int(self._ray.cluster_resources().get("CPU", 0) / self._cpus_per_task))

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        reference = self._remote.remote(fn, args, kwargs)
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        self._running[future] = reference
        reference.future().add_done_callback(lambda source: self._finish(source, future))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if cancel_futures:
            for reference in list(self._running.values()):
                with contextlib.suppress(Exception):  # it has ended, or its cluster has
                    self._ray.cancel(reference, force=True)
        elif wait:
            wait_for(list(self._running))
        if self._is_ours:
            self._ray.shutdown()

    def _finish(self, source: Future[Any], future: Future[Any]) -> None:
        self._running.pop(future, None)
        error = source.exception()
        if isinstance(error, self._ray.exceptions.RayTaskError):
            future.set_exception(TaskError(str(error).splitlines()[-1]))
        elif isinstance(error, self._lost):
            future.set_exception(WorkerLostError(f"its worker was lost: {_first_line(error)}"))
        else:
            _settle(source, future)


def _call(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return fn(*args, **kwargs)


def _call_pickled(call: bytes) -> Any:
    fn, args, kwargs = pickle.loads(call)
    return fn(*args, **kwargs)


class _DaskExecutor(Executor):
    def __init__(self, config: DaskConfig) -> None:
        with optional("executor=dask"):
            import cloudpickle
            import dask
            from distributed import Client, KilledWorker, LocalCluster

        self._dumps = cloudpickle.dumps
        self._lost = KilledWorker
        self._cluster = None
        if config.address == "local":
            workers = config.workers or len(os.sched_getaffinity(0))
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
                    silence_logs=40,
                )
        self._client = Client(self._cluster or config.address)
        self._executor = self._client.get_executor(pure=False)
        self._running: set[Future[Any]] = set()

    @property
    def workers(self) -> int:
        return max(1, sum(int(threads) for threads in self._client.nthreads().values()))

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        self._running.add(future)
        # Dask would take a function within the arguments for a task of its own.
        source = self._executor.submit(_call_pickled, self._dumps((fn, args, kwargs)))
        source.add_done_callback(lambda source: self._finish(source, future))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if wait and not cancel_futures:
            wait_for(list(self._running))
        with contextlib.suppress(Exception):  # the cluster may be gone
            self._executor.shutdown(wait=False)
        with contextlib.suppress(TimeoutError):  # a busy machine; what is left ends with this process
            self._client.close()
            if self._cluster is not None:
                self._cluster.close()

    def _finish(self, source: Future[Any], future: Future[Any]) -> None:
        self._running.discard(future)
        if source.cancelled():
            future.set_exception(WorkerLostError("its worker was lost: Dask cancelled the task"))
        elif isinstance(error := source.exception(), self._lost):
            future.set_exception(WorkerLostError(f"its worker was lost: {_first_line(error)}"))
        else:
            _settle(source, future)


class _SlurmExecutor(Executor):
    def __init__(self, config: SlurmConfig) -> None:
        with optional("executor=slurm"):
            import submitit

        self._submitit = submitit
        self._local_jobs = contextlib.ExitStack()
        if config.cluster == "local":
            self._local_jobs.enter_context(ending_local_jobs())
        self.workers = config.workers or 32
        self._poll_s = config.poll_s
        self._executor = submitit.AutoExecutor(Path(config.folder).absolute(), cluster=config.cluster)
        self._executor.update_parameters(**config.parameters)
        self._jobs: dict[Future[Any], Any] = {}
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="SlurmExecutor", daemon=True)
        self._watcher.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        job = self._executor.submit(fn, *args, **kwargs)
        with self._lock:
            self._jobs[future] = job
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if wait and not cancel_futures:
            wait_for(list(self._jobs))
        self._is_over.set()
        self._watcher.join()
        for job in self._jobs.values():
            job.cancel(check=False)
        self._local_jobs.close()

    def _watch(self) -> None:
        while not self._is_over.wait(self._poll_s):
            with self._lock:
                jobs = list(self._jobs.items())
            for future, job in jobs:
                if self._is_over.is_set():
                    return
                if not job.done():
                    continue
                with self._lock:
                    del self._jobs[future]
                error = job.exception()
                if error is None:
                    future.set_result(job.result())
                elif isinstance(error, self._submitit.core.utils.FailedJobError):
                    future.set_exception(TaskError(f"job {job.job_id}: {error}"))
                else:
                    future.set_exception(WorkerLostError(f"job {job.job_id} was lost: {_first_line(error)}"))


@contextlib.contextmanager
def ending_local_jobs() -> Iterator[None]:
    """Let the jobs that submitit starts on this machine in the block end with it, and ignore Ctrl-C.

    submitit lets them outlive the process that submitted them: its tasks ignore SIGTERM.
    """
    from submitit.local import local

    started: list[subprocess.Popen[bytes]] = []
    start_controller = local.start_controller

    def start(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        with shielding_children():
            started.append(start_controller(*args, **options))
        return started[-1]

    local.start_controller = start
    try:
        yield
    finally:
        local.start_controller = start_controller
        for controller in started:
            if controller.poll() is None:
                controller.send_signal(signal.SIGSTOP)  # so that it starts no task now
                tasks = Path(f"/proc/{controller.pid}/task/{controller.pid}/children").read_text(encoding="ascii")
                for task in map(int, tasks.split()):
                    os.kill(task, signal.SIGKILL)
                controller.kill()
                controller.wait()


def _settle(source: Future[Any], future: Future[Any]) -> None:
    error = source.exception()
    if error is None:
        future.set_result(source.result())
    else:
        future.set_exception(error)


def _first_line(error: object) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
