"""Executors: one protocol for this machine, Ray, Dask and SLURM, and chunks of tasks that survive lost workers."""

import concurrent.futures.thread
import contextlib
import hashlib
import io
import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, as_completed
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import executor_tasks
import pytest
from executor_tasks import divide, divide_once_killed, process_id
from in_process import ExecutorInThisProcess
from rich.console import Console
from test_benchmark import CONFIG

from bbrgym.benchmark.results import BenchmarkResult
from bbrgym.benchmark.run import run_benchmark
from bbrgym.executors import ExecutorConfig, TaskExecutor, ThreadExecutor, make_executor, run_in_chunks
from bbrgym.processes import ProcessExecutor

CLUSTERS = [
    pytest.param({"name": "ray", "workers": 2}, marks=pytest.mark.slow, id="ray"),
    pytest.param({"name": "dask", "workers": 2}, marks=pytest.mark.slow, id="dask"),
]
EXECUTORS = [
    pytest.param({"name": "local", "workers": 2}, id="local"),
    *CLUSTERS,
    pytest.param(
        {"name": "slurm", "workers": 2, "cluster": "local", "poll_s": 0.2}, marks=pytest.mark.slow, id="slurm"
    ),
]

MANY = [pytest.param({"name": name, "workers": 4}, marks=pytest.mark.slow, id=f"{name}-4") for name in ("ray", "dask")]

PACKAGES = {"local": "concurrent.futures", "ray": "ray", "dask": "distributed", "slurm": "submitit"}


@contextlib.contextmanager
def started(plain: dict[str, Any]) -> Iterator[TaskExecutor]:
    pytest.importorskip(PACKAGES[plain["name"]])
    executor = make_executor(ExecutorConfig.of(plain))
    try:
        yield executor
    finally:
        executor.shutdown(cancel_futures=True)


@pytest.fixture(autouse=True)
def _workers_find_the_tests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tests = Path(__file__).parents[1]
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(tests), str(tests / "unit"), os.environ.get("PYTHONPATH", "")])
    )
    monkeypatch.chdir(tmp_path)


def test_only_the_folders_of_jobs_are_left(tmp_path: Path) -> None:
    """submitit replaces %j by the number of a job."""
    with started({"name": "slurm", "workers": 1, "cluster": "local", "poll_s": 0.1, "folder": "jobs/%j/files"}) as one:
        assert one.submit(divide, 2).result() == 0.5
    (folder,) = (tmp_path / "jobs").iterdir()
    assert folder.name.isdecimal()
    assert list((folder / "files").glob("*_result.pkl"))
    with pytest.raises(ValueError, match="must not have %a"):
        ExecutorConfig.of({"name": "slurm", "folder": "jobs/%A_%a"})


@pytest.mark.parametrize("config", [{"name": "slurm"}, {"name": "dask", "address": "tcp://127.0.0.1:1"}])
def test_a_cluster_that_cannot_be_reached_is_named(config: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(PACKAGES[config["name"]])
    monkeypatch.setenv("PATH", "")  # no srun
    if config["name"] == "dask":
        import dask

        monkeypatch.setitem(dask.config.config["distributed"]["comm"]["timeouts"], "connect", "0.1s")
    with pytest.raises(ConnectionError, match=r"executor\.(cluster=slurm|address=tcp://127\.0\.0\.1:1): "):
        make_executor(ExecutorConfig.of(config))


@pytest.mark.parametrize("config", EXECUTORS)
def test_an_executor_is_one_of_concurrent_futures(config: dict[str, Any]) -> None:
    with started(config) as executor:
        assert executor.workers == 2
        futures = {executor.submit(divide, number): number for number in (1, 2, 4)}
        assert {futures[future]: future.result() for future in as_completed(futures)} == {1: 1.0, 2: 0.5, 4: 0.25}
        assert executor.submit(process_id).result() != os.getpid()
        error = executor.submit(divide, 0).exception()
        assert "division by zero" in str(error)
        assert not isinstance(error, executor.lost)
        with pytest.raises(executor.lost):
            executor.submit(divide, -signal.SIGKILL).result()
        assert executor.submit(divide, 8).result() == 0.125


@pytest.mark.parametrize("config", EXECUTORS)
def test_a_lost_worker_costs_time_but_no_task(config: dict[str, Any], tmp_path: Path) -> None:
    tasks = [1, 2, 3, -9, 5, 0, 6, -15, 7, 8]
    with started(config) as executor:
        work = partial(divide_once_killed, folder=tmp_path)
        results = {result.task: result for result in run_in_chunks(work, tasks, executor, chunk_s=1000)}
    assert {task: result.value for task, result in results.items() if task} == {
        task: 1 / task for task in tasks if task
    }
    assert (results[0].status, results[0].error) == ("failed", "ZeroDivisionError: division by zero")


LISTENING = """
import contextlib, psutil, sys
from bbrgym.executors import ExecutorConfig, make_executor
if __name__ == "__main__":
    executor = make_executor(ExecutorConfig.of({"name": sys.argv[1], "workers": 2}))
    executor.submit(abs, -1).result()
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            sockets = process.net_connections("inet")
            print(*(socket.laddr.ip for socket in sockets if socket.status == "LISTEN"))
    executor.shutdown()
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ray", "dask"])
def test_a_local_cluster_listens_on_this_machine_only(tmp_path: Path, name: str) -> None:
    """In a process of its own: Ray reads its settings when it is imported."""
    pytest.importorskip("psutil")
    pytest.importorskip({"dask": "distributed"}.get(name, name))
    (tmp_path / "script.py").write_text(LISTENING)
    done = subprocess.run([sys.executable, "script.py", name], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"127.0.0.1", "::ffff:127.0.0.1"}
    assert len(done.stdout.split()) > 3


def test_a_task_that_kills_every_worker_is_found_in_its_chunk() -> None:
    with ProcessExecutor(2) as executor:
        results = {result.task: result for result in run_in_chunks(divide, [1, 2, -9, 4, 5, 8], executor, chunk_s=1000)}
    killed = results.pop(-9)
    assert (killed.status, killed.attempts, killed.error) == ("killed", 2, "its process was killed by SIGKILL")
    assert {task: result.value for task, result in results.items()} == {task: 1 / task for task in (1, 2, 4, 5, 8)}


class _Recorder(ExecutorInThisProcess):
    """Records the sizes of chunks, and lets a task take a given time."""

    def __init__(self, workers: int, seconds: float) -> None:
        super().__init__()
        self.workers, self.seconds, self.sizes = workers, seconds, list[int]()

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        function, tasks = args
        self.sizes.append(len(tasks))
        future: Future[Any] = Future()
        future.set_result([(function(task), None, self.seconds) for task in tasks])
        return future


def test_chunks_take_the_time_that_is_measured_and_the_last_ones_less() -> None:
    recorder = _Recorder(workers=4, seconds=0.1)  # ten times as quick as estimated
    done = [result.task for result in run_in_chunks(abs, range(10_000), recorder, chunk_s=20.0)]
    assert sorted(done) == list(range(10_000))
    probes, rest = recorder.sizes[:8], recorder.sizes[8:]
    assert probes == [2] * 8  # a tenth of the time, as nothing is measured yet
    assert max(rest) in range(199, 202)  # 20 s
    assert rest[-1] < 20
    assert len(recorder.sizes) < 150


def test_an_interrupt_at_any_line_leaves_no_lock_that_a_worker_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    libraries = {module.__file__ for module in (concurrent.futures._base, concurrent.futures.thread, threading)}
    try:
        for chosen in itertools.count():
            if not _is_interrupted(chosen, libraries):
                break
    finally:
        signal.signal(signal.SIGINT, before)
    assert chosen > 50


def _is_interrupted(chosen: int, files: set[str | None]) -> bool:
    """Raise SIGINT before a line, counted over those of some files; return False if there are not so many."""
    lines = itertools.count()

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if event == "line" and frame.f_code.co_filename in files and next(lines) == chosen:
            sys.settrace(None)
            signal.raise_signal(signal.SIGINT)
        return trace

    executor = ThreadExecutor(2)
    tasks = run_in_chunks(abs, range(4), executor)
    is_interrupted = False
    sys.settrace(trace)
    try:
        assert sum(result.value for result in tasks) == 6
    except KeyboardInterrupt:
        is_interrupted = True
    finally:
        sys.settrace(None)
        tasks.close()
    shutdown = threading.Thread(target=partial(executor.shutdown, cancel_futures=True), daemon=True)
    shutdown.start()
    shutdown.join(60)
    assert not shutdown.is_alive(), f"a worker waits for a lock after SIGINT at line {chosen}"
    return is_interrupted


def test_an_error_that_is_nobodys_loss_is_not_tried_again() -> None:
    class Broken(ExecutorInThisProcess):
        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
            calls.append(args)
            future: Future[Any] = Future()
            future.set_exception(ModuleNotFoundError("No module named 'bbrgym'"))
            return future

    calls: list[Any] = []
    results = list(run_in_chunks(abs, [1, 2, 3], Broken(), chunk_s=1000))
    assert {result.error for result in results} == {"ModuleNotFoundError: No module named 'bbrgym'"}
    assert len(results) == 3
    assert sum(len(tasks) for _, tasks in calls) == 3


def test_a_process_that_cannot_start_fails_its_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with ProcessExecutor(1) as executor:
        assert isinstance(executor.submit(abs, -1).exception(), FileNotFoundError)


# Benchmarks


BENCHMARK: dict[str, Any] = CONFIG | {
    "competitors": ["bbr", "cubic", "bbr2"],
    "seeds": [1, 2, 3, 4],
    "engine": "native",
}


def run(executor: dict[str, Any], directory: Path, killed_after: int | None = None) -> BenchmarkResult:
    factory: Any = executor_tasks.make_engine
    if killed_after is not None:
        (directory / "engines").mkdir(parents=True)
        factory = partial(executor_tasks.make_engine_killed_once, folder=directory / "engines", after=killed_after)
    console = Console(file=io.StringIO())
    return run_benchmark(
        BENCHMARK | {"executor": executor}, directory, console, engine_factory=factory, command="test", has_report=False
    )


def content(directory: Path) -> dict[str, str]:
    """Return hashes of the results and of each run's trace and metrics."""
    files = [
        directory / "results.parquet",
        *directory.glob("runs/*/trace.parquet"),
        *directory.glob("runs/*/metrics.json"),
    ]
    return {str(file.relative_to(directory)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.fixture(scope="module")
def in_this_process(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    directory = tmp_path_factory.mktemp("reference")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bbrgym.benchmark.run.make_executor", ExecutorInThisProcess)
        assert run({"name": "local"}, directory).failures == []
    return content(directory)


@pytest.mark.parametrize("config", [*EXECUTORS, *MANY])
def test_results_are_the_same_bytes_everywhere_also_after_a_kill(
    config: dict[str, Any], tmp_path: Path, in_this_process: dict[str, str]
) -> None:
    pytest.importorskip(PACKAGES[config["name"]])
    result = run(config | {"chunk_s": 0.5}, tmp_path, killed_after=5)
    assert (tmp_path / "engines" / "killed").is_file()
    assert (result.failures, result.missing) == ([], [])
    assert len(in_this_process) == 1 + 2 * 24
    assert content(tmp_path) == in_this_process
