"""Run benchmarks, on one machine or many; they can be killed at any time and resume."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import pandas as pd
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from bbrgym.agents.provenance import command_line, source_tags
from bbrgym.agents.tracking import Tracker, TrackingConfig, is_finished
from bbrgym.benchmark.code import machine, metrics_hash
from bbrgym.benchmark.metrics import RUN_COLUMNS
from bbrgym.benchmark.plan import Benchmark, Run
from bbrgym.benchmark.results import BenchmarkResult, Failure, load_benchmark, read_plan
from bbrgym.benchmark.single_run import EngineFactory, execute, is_sound, load_metrics, measure_run
from bbrgym.benchmark.tables import mean_table
from bbrgym.envs.engine import EngineUnavailableError, make_engine
from bbrgym.envs.trace_file import load_trace
from bbrgym.executors import TaskExecutor, TaskResult, make_executor, run_in_chunks
from bbrgym.extras import require
from bbrgym.files import is_local, open_folder, replace_file, write_json

UNTRACKED: Final = {"backend": "none"}


def read_benchmark(config: Mapping[str, Any], has_report: bool = True) -> tuple[Benchmark, list[Run]]:
    """Return the benchmark of a configuration, and its runs; `run_benchmark` explains arguments and errors."""
    needed = ("pyarrow", "matplotlib", "jinja2") if has_report else ("pyarrow",)
    require("a benchmark", *needed)
    benchmark = Benchmark.from_dict(config)
    return benchmark, benchmark.runs()


def run_benchmark(
    config: Mapping[str, Any],
    directory: Path | str,
    console: Console | None = None,
    *,
    engine_factory: EngineFactory = make_engine,
    beside: Path | None = None,
    command: str | None = None,
    has_report: bool = True,
    log: Path | None = None,
    executor: TaskExecutor | None = None,
) -> BenchmarkResult:
    """Run the missing runs of a benchmark, and write its results and its report.

    A run that fails, or whose process is killed, is reported and tried again next time; the others continue. So is a
    run in real time that was late too often (`Benchmark.retries`): it is in no table, but in `BenchmarkResult.flawed`.

    The directory then holds
        evaluation_scenarios.json    the scenarios by name
        benchmark.json               the plan: configuration, runs and their keys, versions, commit
        runs/<key>/trace.parquet     all rows of a run (`bbrgym.envs.trace_file.load_trace`)
        runs/<key>/metrics.json      its metrics, one row per flow
        runs/<key>/timing.json       how long it took
        failures.json                runs that failed, with their errors
        results.parquet              all metrics, one row per run and flow; rows of late runs have a `flaw`
        report.html                  the report (`bbrgym.benchmark.report.write_report`)

    A run's key is a hash of everything that decides its numbers: scenario, seed, step, engine, warm-up, code, and the
    content of an agent's policy. So only what changed is run again. If only the code of the metrics changed, they are
    computed again from the trace.

    Args:
        config: plain types with the fields of `Benchmark.from_dict`, as in conf/benchmark/default.yaml.
        directory: the benchmark's directory, or its URL (`bbrgym.files.open_folder`); give the same one to resume. All
            workers must see it.
        console: where progress is shown: a bar in a terminal, else a line per run. None is standard output.
        engine_factory: makes the engine, in the worker process.
        beside: a folder with other benchmarks in it or in its folders. Runs that they have are linked, not run.
        command: the command line for the report; None is that of this process.
        has_report: whether to write the report, which takes minutes for dozens of scenarios.
        log: the folder of the tracker's own log; None is the benchmark's directory, or a temporary one if this is a
            URL.
        executor: where the runs execute, started already; it is not shut down. None starts that of the configuration.

    Raises:
        ValueError: the configuration is not valid; nothing has run then.
        ModuleNotFoundError: the extra `report` is not installed; nothing has run then.
        EngineUnavailableError: a machine that executes runs cannot run the engine; the others are not tried.
    """
    directory, console = open_folder(directory), console or Console()
    benchmark, runs = read_benchmark(config, has_report)
    _say_what_leaves(runs, directory, console)
    _write_plan(benchmark, runs, directory, command)
    # Two names may mean one run, for example an agent's path and that of a copy: it runs once.
    wanted = {run.key: run for run in runs}
    measured, linked = _load_finished(wanted.keys(), beside, directory, benchmark.warmup)
    todo = [run for key, run in wanted.items() if key not in measured]
    with _start_log(benchmark, log, directory) as running:
        for key, metrics in measured.items():  # not yet logged: those that are linked, or done when this was killed
            running.log_run(wanted[key], metrics, is_new=False)
        done = len(runs) - len(todo)
        with closing(_execute(benchmark, todo, directory, engine_factory=engine_factory, started=executor)) as results:
            shown = _show_progress(
                results, console, name=benchmark.name, total=len(runs), done=done, linked=len(linked)
            )
            measured |= _collect(shown, directory, running)
        loaded = load_benchmark(directory, measured)
        running.log_results(loaded, _write_results(loaded, has_report))
    return loaded


def _say_what_leaves(runs: Sequence[Run], directory: Path, console: Console) -> None:
    """Say that results of an earlier benchmark in this folder will be replaced, if they are."""
    try:
        earlier = read_plan(directory)["runs"]
    except (OSError, ValueError):
        return
    keys = {run.key for run in runs}
    left = [run for run in earlier if run["key"] not in keys]
    named = {(run.scenario_name, run.competitor, run.seed) for run in runs}
    others = sum((run["scenario"], run["competitor"], run["seed"]) not in named for run in left)
    where = f"of {len(earlier)} runs in the results of this folder"
    said = (
        (
            others,
            f"{where} are not of this benchmark and leave them. With name=NAME a benchmark has a folder of its own.",
        ),
        (len(left) - others, f"{where} were made with other code, scenarios or agents, and are made again."),
    )
    for count, text in said:
        if count:
            console.print(f"{count} {text} The earlier runs stay in runs/.", highlight=False, soft_wrap=True)


def _write_plan(benchmark: Benchmark, runs: Sequence[Run], directory: Path, command: str | None) -> None:
    """Write what will run. No run has failed yet."""
    (directory / "runs").mkdir(parents=True, exist_ok=True)
    plan = {
        "config": benchmark.to_dict(),
        "runs": [run.names() for run in runs],
        "provenance": _provenance(benchmark, command),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write_json(directory / "benchmark.json", plan)
    write_json(directory / "failures.json", [])


def _load_finished(
    wanted: Set[str], beside: Path | None, directory: Path, warmup: float
) -> tuple[dict[str, dict[str, Any]], Set[str]]:
    """Return the metrics of the wanted runs that are done, here or `beside`, by their keys; and the keys of the latter.

    Metrics of other code are computed again.
    """
    measured = _load_runs(wanted, directory)
    linked = {} if beside is None else _link_runs(wanted - measured.keys(), beside, directory)
    measured |= linked
    for key, metrics in measured.items():
        if metrics.get("metrics_hash") != metrics_hash():
            measured[key] = _measure_again(directory / "runs" / key, warmup)
    return measured, linked.keys()


def _collect(results: Iterable[TaskResult[Run]], directory: Path, log: _Log) -> dict[str, dict[str, Any]]:
    """Log what runs, write what fails, and return the metrics of the runs by their keys."""
    measured: dict[str, dict[str, Any]] = {}
    failures: list[Failure] = []
    for result in results:
        if result.error is None:
            measured[result.task.key] = result.value
            log.log_run(result.task, result.value)
        else:
            failures.append(Failure(**result.task.names(), error=result.error))
            write_json(directory / "failures.json", [vars(failure) for failure in failures])
    return measured


def _write_results(result: BenchmarkResult, has_report: bool) -> list[Path]:
    """Write the results and the report, and return all files that a benchmark has as a whole."""
    table = result.directory / "results.parquet"
    marked = result.results if result.flawed.empty else pd.concat([result.results, result.flawed])
    replace_file(table, marked.to_parquet)
    files = [table, result.directory / "benchmark.json"]
    if has_report:
        from bbrgym.benchmark.report import write_report  # imports matplotlib, an optional dependency

        files.append(write_report(result))
    return files


def _execute(
    benchmark: Benchmark,
    todo: Sequence[Run],
    directory: Path,
    engine_factory: EngineFactory,
    started: TaskExecutor | None,
) -> Generator[TaskResult[Run], None, None]:
    """Execute runs on an executor; the value of a result is the run's metrics."""
    if not todo:
        return
    work = partial(
        execute,
        directory=directory.absolute() if is_local(directory) else str(directory),
        engine=dict(benchmark.engine),
        warmup=benchmark.warmup,
        retries=benchmark.retries,
        engine_factory=engine_factory,
    )
    executor = started or make_executor(benchmark.executor)
    try:
        chunk_s = benchmark.executor.chunk_s
        with closing(run_in_chunks(work, todo, executor, cost_s=benchmark.cost_s, chunk_s=chunk_s)) as results:
            for result in results:
                if result.value is not None:  # all others would fail for the same reason
                    raise EngineUnavailableError(result.value)
                if result.error is None:
                    metrics = load_metrics(directory / "runs" / result.task.key)
                    result = dataclasses.replace(result, value=metrics)
                    if metrics is None:
                        error = f"its files are not in {directory}, which all workers must share"
                        result = dataclasses.replace(result, error=error, status="failed")
                yield result
    finally:
        # Nothing runs now, unless this ends early.
        if started is None:
            executor.shutdown(cancel_futures=True)


@contextmanager
def _on_this_machine(path: Path) -> Iterator[Path]:
    """Yield the path of a file, or of a copy of it if it is on storage that is addressed by URL."""
    if is_local(path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="bbrgym-") as folder:
        copy = Path(folder) / path.name
        copy.write_bytes(path.read_bytes())
        yield copy


def _load_runs(keys: Iterable[str], directory: Path) -> dict[str, dict[str, Any]]:
    """Return the metrics of the runs that are done, without a flaw, by their keys."""
    loaded = ((key, load_metrics(directory / "runs" / key)) for key in keys)
    return {key: metrics for key, metrics in loaded if metrics is not None and is_sound(metrics)}


def _link_runs(wanted: Set[str], beside: Path, directory: Path) -> dict[str, dict[str, Any]]:
    """Link the wanted runs that other benchmarks have, and return their metrics by their keys."""
    linked: dict[str, dict[str, Any]] = {}
    for pattern in ("*/runs/*", "*/*/runs/*"):
        for found in beside.glob(pattern):
            key = found.name
            if key not in wanted or key in linked:
                continue
            metrics = load_metrics(found)
            if metrics is None or not is_sound(metrics):
                continue
            folder = directory / "runs" / key
            folder.mkdir(parents=True, exist_ok=True)
            for name in ("trace.parquet", "timing.json", "metrics.json"):  # the last one makes the run exist
                if (found / name).is_file():
                    replace_file(folder / name, partial(_link, found / name))
            linked[key] = metrics
    return linked


def _link(file: Path, to: Path) -> None:
    try:
        os.link(file, to)
    except (OSError, TypeError):  # another file system, one without links, or a URL
        to.write_bytes(file.read_bytes())


def _measure_again(folder: Path, warmup: float) -> dict[str, Any]:
    """Compute the metrics of a run again, from its trace, and return them."""
    content = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    write_json(folder / "metrics.json", content | measure_run(load_trace(folder / "trace.parquet"), warmup))
    metrics = load_metrics(folder)
    assert metrics is not None
    return metrics


def _show_progress(
    results: Iterable[TaskResult[Run]], console: Console, name: str, total: int, done: int, linked: int
) -> Iterator[TaskResult[Run]]:
    """Pass the results on, and show the progress."""
    if linked:
        console.print(f"{linked} of {total} runs linked from other benchmarks")
    if done > linked:
        console.print(f"{done - linked} of {total} runs are already done")
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    began = time.perf_counter()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task(name, total=total, completed=done)
        for count, result in enumerate(results, start=done + 1):
            run = result.task
            label = f"{run.scenario_name}, {run.competitor}, seed {run.seed}"
            if result.error is not None:
                console.print("failed", style="red", end=" ")
                console.print(f"{label}: {result.error}", markup=False, highlight=False)
            elif not console.is_terminal:
                # Not by the console, which takes longer than all else that is done here for a run.
                print(f"{count}/{total} {label} ({time.perf_counter() - began:.0f} s)", file=console.file, flush=True)
            progress.update(bar, advance=1, description=f"{name}: {label}")
            yield result


@dataclass(frozen=True)
class _Log:
    """The tracked run of a benchmark, with one child per run of it."""

    benchmark: Benchmark
    folder: Path
    tracker: Tracker
    is_tracked: bool

    def log_run(self, run: Run, metrics: Mapping[str, Any], is_new: bool = True) -> None:
        folder = self.folder / "runs" / run.key
        if not self.is_tracked or (not is_new and is_finished(folder)):
            return
        first = metrics["rows"][0]
        values = {name: first[name] for name in RUN_COLUMNS if name in first} | {
            f"flow{row['flow']}/{name}": value
            for row in metrics["rows"]
            for name, value in row.items()
            if name not in ("flow", "algorithm", *RUN_COLUMNS)
        }
        with Tracker.start(
            folder,
            experiment=f"benchmark/{self.benchmark.name}",
            run_name=f"{run.scenario_name}/{run.competitor}/{run.seed}",
            params={"scenario": run.scenario.to_dict(), "seed": run.seed},
            tags={"scenario": run.scenario_name, "competitor": run.competitor, "trace_hash": metrics["trace_hash"]},
            parent=self.tracker.run_id,
            config=self.benchmark.tracking or UNTRACKED,
        ) as child:
            child.log_metrics(values)

    def log_results(self, result: BenchmarkResult, files: Sequence[Path]) -> None:
        self.tracker.set_tags({"failed_runs": str(len(result.failures))})
        if self.is_tracked and not result.results.empty:  # takes longer than all else, for thousands of runs
            self.tracker.log_metrics(_means(result.results))
            self.tracker.log_table(result.results, "results_table.json")
        for path in files:
            with _on_this_machine(path) as file:
                self.tracker.log_artifact(file)


@contextmanager
def _start_log(benchmark: Benchmark, folder: Path | None, directory: Path) -> Iterator[_Log]:
    """Start tracking a benchmark; its own log is in a folder, by default in its directory if this is local."""
    params = benchmark.to_dict()
    tracking = params.pop("tracking") or UNTRACKED
    with ExitStack() as stack:
        if folder is None and is_local(directory):
            folder = directory
        elif folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bbrgym-")))
        name = benchmark.name
        tracker = stack.enter_context(Tracker.start(folder, f"benchmark/{name}", name, params, config=tracking))
        stack.callback(tracker.end_children)  # of which an interrupt may have left one
        tracker.log_scenarios(
            name,
            "evaluation",
            [{"name": name, "scenario": scenario.to_dict()} for name, scenario in benchmark.scenarios.items()],
        )
        yield _Log(benchmark, folder, tracker, TrackingConfig.of(benchmark.tracking).backend != "none")


def _means(results: pd.DataFrame) -> dict[str, float]:
    return {
        f"{scenario}/{competitor}/{metric.replace('[', '.').replace(']', '')}": mean
        for scenario, of_scenario in mean_table(results).items()
        for competitor, means in of_scenario.items()
        for metric, mean in means.items()
    }


def _provenance(benchmark: Benchmark, command: str | None) -> dict[str, str]:
    """Return the command, and what could change the numbers."""
    # Without the host's name: a report may be passed on.
    tags = {name: value for name, value in source_tags().items() if name != "host"}
    return {"command": command or _command(), "code": benchmark.code_hash(), **tags, "machine": machine()}


def _command() -> str:
    """Return this process's command line if it is a `bbrgym` command, else Python that repeats the benchmark."""
    return command_line() or (
        "import json, pathlib\n"
        "from bbrgym.benchmark.run import run_benchmark\n"
        'directory = pathlib.Path("…")  # of this report\n'
        'config = json.loads((directory / "benchmark.json").read_text())["config"]\n'
        "run_benchmark(config, directory)"
    )
