"""Competitors x scenarios x seeds: a benchmark that can be killed at any time and goes on where it was."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from bbrgym.benchmark.metrics import RUN_COLUMNS, measure
from bbrgym.benchmark.plan import Benchmark, Competitor, Run, code_hash, hash_policies, metrics_hash
from bbrgym.benchmark.storage import load_metrics
from bbrgym.benchmark.tables import overall_table, print_summary, summary_table
from bbrgym.envs.engine import Engine, make_engine
from bbrgym.envs.trace import Trace, simulate
from bbrgym.envs.trace_file import load_trace, save_trace
from bbrgym.files import replace_file, write_json
from bbrgym.processes import TaskResult, run_in_processes

if TYPE_CHECKING:
    from bbrgym.agents.tracking import Tracker

__all__ = [
    "Benchmark",
    "BenchmarkResult",
    "Competitor",
    "Failure",
    "load_benchmark",
    "load_trace",
    "overall_table",
    "print_summary",
    "run_benchmark",
    "summary_table",
]

UNTRACKED: Final = {"backend": "none"}
EngineFactory = Callable[..., Engine]
"""`make_engine`, or another function of an engine's name and options that can be imported by its name."""


def run_benchmark(
    config: Mapping[str, Any],
    directory: Path,
    console: Console | None = None,
    engine_factory: EngineFactory = make_engine,
    beside: Path | None = None,
    command: str | None = None,
    has_report: bool = True,
    sections: ReportSections | None = None,
) -> BenchmarkResult:
    """Run what is not there yet of a benchmark, in parallel processes, and write its results and its report.

    A run that fails, or whose process is killed, is reported and tried again the next time; the others go on.

    The directory then has
        evaluation_scenarios.json    the scenarios by their names
        benchmark.json               what was planned: configuration, runs and their keys, versions, commit
        runs/<key>/trace.parquet     all rows of a run (`load_trace`)
        runs/<key>/metrics.json      its figures, one row a flow
        failures.json                runs that failed, with their errors
        results.parquet              all figures, one row a run and flow
        report.html                  the report (`bbrgym.benchmark.report.write_report`)

    A run's key is a hash of all that decides its numbers: scenario, seed, step, engine, warm-up, code, and the content
    of an agent's policy. So a changed controller, scenario or agent is run again, and what is unchanged is not.
    Figures that other code has made of the same trace are made again from the trace.

    Args:
        config: plain mapping with the fields of `Benchmark.from_dict`, as in conf/benchmark/default.yaml.
        directory: where it goes; give the same one to continue.
        console: where progress is shown: a bar in a terminal, a line a run elsewhere. None is standard output.
        engine_factory: makes the engine, in the worker process.
        beside: a folder with other benchmarks in it, or in its folders. A run that one of them has is not made again:
            its files are linked.
        command: the command line that makes this benchmark, for the report; None is that of this process.
        has_report: whether the report is written; of dozens of scenarios it takes minutes.
        sections: more sections of the report, as `bbrgym.benchmark.report.write_report` takes them.

    Raises:
        ValueError: of the configuration, naming the bad value and the good ones. Nothing has run then.
    """
    console = console or Console()
    benchmark = Benchmark.from_dict(config)
    runs = benchmark.runs()
    (directory / "runs").mkdir(parents=True, exist_ok=True)
    for left_behind in (directory / "runs").glob(".*.partial"):
        shutil.rmtree(left_behind, ignore_errors=True)
    write_json(
        directory / "benchmark.json",
        {
            "config": benchmark.to_dict(),
            "runs": [run.names() for run in runs],
            "provenance": _provenance(benchmark, command),
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
        },
    )  # fmt: skip
    write_json(directory / "failures.json", [])
    # Two names may stand for one run, an agent's path and a copy of it say: it is run once.
    todo = {run.key: run for run in runs if load_metrics(directory / "runs" / run.key) is None}
    taken = _take(todo, beside, directory) if beside is not None else []
    for run in taken:
        del todo[run.key]
    with _tracked(benchmark, directory) as tracker:
        tracker.log_scenarios(
            benchmark.name,
            "evaluation",
            [{"name": name, "scenario": scenario.to_dict()} for name, scenario in benchmark.scenarios.items()],
        )
        _measure_again([run for run in runs if run.key not in todo], benchmark, directory)
        for run in taken:
            _track_run(run, benchmark, directory, tracker)
        failures: list[Failure] = []
        work = partial(_execute, directory=directory, benchmark=benchmark, engine_factory=engine_factory)
        processes = benchmark.processes or os.cpu_count() or 1
        with closing(run_in_processes(work, todo.values(), processes)) as outcomes:
            done = len(runs) - len(todo)
            for outcome in _shown(outcomes, console, benchmark.name, total=len(runs), done=done, taken=len(taken)):
                run = outcome.task
                if outcome.error is not None:
                    failures.append(Failure(**run.names(), error=outcome.error))
                    write_json(directory / "failures.json", [vars(failure) for failure in failures])
                else:
                    _track_run(run, benchmark, directory, tracker)
        result = load_benchmark(directory)
        replace_file(directory / "results.parquet", result.results.to_parquet)
        written = [directory / "results.parquet", directory / "benchmark.json"]
        if has_report:
            # Not before here: matplotlib is needed for nothing else.
            from bbrgym.benchmark.report import write_report

            written.append(write_report(directory, sections))
        tracker.set_tags({"failed_runs": str(len(failures))})
        if not result.results.empty:
            tracker.log_metrics(_tracked_league(result.results))
            tracker.log_table(result.results, "results_table.json")
        for path in written:
            tracker.log_artifact(path)
    return result


@dataclass(frozen=True)
class Failure:
    """A run that has no result, and why."""

    scenario: str
    competitor: str
    seed: int
    key: str
    error: str


@dataclass(frozen=True)
class BenchmarkResult:
    """What a benchmark's directory holds.

    Attributes:
        results: one row a run and flow: `scenario`, `competitor`, `seed`, `key`, `trace_hash`, `wall_s`, and the
            columns of `bbrgym.benchmark.metrics.measure`. Without rows if no run is done.
        failures: the runs that failed.
        missing: the runs that have neither a result nor a failure, for the benchmark was interrupted.
        directory: where it is.
        plan: the content of benchmark.json.
    """

    results: pd.DataFrame
    failures: list[Failure]
    missing: list[dict[str, Any]]
    directory: Path
    plan: dict[str, Any]


ReportSections = Callable[[BenchmarkResult], Sequence[str]]
"""Returns more sections of a benchmark's report, each as HTML, which follow its introduction."""


def load_benchmark(directory: Path) -> BenchmarkResult:
    """What is there of a benchmark, be it finished, running or interrupted.

    Raises:
        FileNotFoundError: the directory has no benchmark.
    """
    path = directory / "benchmark.json"
    if not path.is_file():
        raise FileNotFoundError(f"{directory} holds no benchmark: it has no benchmark.json")
    plan = json.loads(path.read_text())
    failures_path = directory / "failures.json"
    failures = [Failure(**f) for f in json.loads(failures_path.read_text())] if failures_path.is_file() else []
    failed = {failure.key for failure in failures}
    rows: list[dict[str, Any]] = []
    missing = []
    for run in plan["runs"]:
        metrics = load_metrics(directory / "runs" / run["key"])
        if metrics is not None:
            rows += [
                run | {"trace_hash": metrics["trace_hash"], "wall_s": metrics["wall_s"]} | row
                for row in metrics["rows"]
            ]
        elif run["key"] not in failed:
            missing.append(run)
    results = pd.DataFrame(rows) if rows else pd.DataFrame(columns=["scenario", "competitor", "seed", "key"])
    return BenchmarkResult(results, failures, missing, directory, plan)


def _take(wanted: Mapping[str, Run], beside: Path, directory: Path) -> list[Run]:
    """Put those of the wanted runs in place that another benchmark has whole, and say which."""
    taken = {}
    for pattern in ("*/runs/*", "*/*/runs/*"):
        for found in beside.glob(pattern):
            run = wanted.get(found.name)
            if run is None or run.key in taken or load_metrics(found) is None:
                continue
            partial_ = _partial(directory, run)
            partial_.mkdir()
            for name in ("trace.parquet", "metrics.json"):
                try:
                    os.link(found / name, partial_ / name)
                except OSError:  # another file system, or one without links
                    shutil.copy2(found / name, partial_ / name)
            _put_in_place(partial_, directory, run)
            taken[run.key] = run
    return list(taken.values())


def _partial(directory: Path, run: Run) -> Path:
    """Where the files of a run are until they are all there."""
    return directory / "runs" / f".{run.key}.{os.getpid()}.partial"


def _put_in_place(partial_: Path, directory: Path, run: Run) -> None:
    final = directory / "runs" / run.key
    shutil.rmtree(final, ignore_errors=True)  # What is there is not readable, or it would not be wanted again.
    partial_.rename(final)


def _measure_again(runs: Iterable[Run], benchmark: Benchmark, directory: Path) -> None:
    """Bring figures up to date that other code has made of the same trace."""
    for run in runs:
        own = directory / "runs" / run.key
        metrics = load_metrics(own)
        if metrics is not None and metrics.get("metrics_hash") != metrics_hash():
            write_json(own / "metrics.json", metrics | _measured(load_trace(own / "trace.parquet"), benchmark))


def _measured(trace: Trace, benchmark: Benchmark) -> dict[str, Any]:
    rows = measure(trace, after_s=benchmark.warmup * trace.scenario.duration_s)
    return {"metrics_hash": metrics_hash(), "rows": rows}


def _execute(run: Run, directory: Path, benchmark: Benchmark, engine_factory: EngineFactory) -> None:
    """In a worker process: simulate one run and put its files in place, all or none."""
    policy = None
    if run.agent is not None:
        from bbrgym.agents.policy import load_agent

        agent = load_agent(run.agent)
        if agent.content_hash != run.agent_hash:
            raise RuntimeError(f"the agent in {run.agent} has changed since the benchmark began")
        policy = agent.policy(run.scenario)
    if hash_policies(run.scenario) != run.policy_hashes:
        raise RuntimeError("a policy of the scenario has changed since the benchmark began")
    began = time.perf_counter()
    options = dict(benchmark.engine)
    name = options.pop("name")
    engine = engine_factory(name, **options)
    try:
        trace = simulate(run.scenario, engine, run.seed, run.step_ms, policy)
    finally:
        engine.close()
    trace = dataclasses.replace(trace, engine=name)
    metrics = {
        "scenario": run.scenario.to_dict(),
        "agent": run.agent_hash,
        "seed": run.seed,
        "engine": name,
        "step_ms": run.step_ms,
        "warmup": benchmark.warmup,
        "trace_hash": trace.hash,
        "wall_s": round(time.perf_counter() - began, 3),
        **_measured(trace, benchmark),
    }
    partial_ = _partial(directory, run)
    partial_.mkdir()
    save_trace(trace, partial_ / "trace.parquet")
    write_json(partial_ / "metrics.json", metrics)
    _put_in_place(partial_, directory, run)


def _shown(
    outcomes: Iterable[TaskResult[Run]], console: Console, name: str, total: int, done: int, taken: int
) -> Iterable[TaskResult[Run]]:
    """The outcomes, with progress on the console as they pass."""
    if taken:
        console.print(f"{taken} runs taken from benchmarks beside this one")
    if done > taken:
        console.print(f"{done - taken} of {total} runs are there already")
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    began = time.perf_counter()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task(name, total=total, completed=done)
        for count, outcome in enumerate(outcomes, start=done + 1):
            run = outcome.task
            label = f"{run.scenario_name}, {run.competitor}, seed {run.seed}"
            if outcome.error is not None:
                console.print(f"[red]failed[/red] {label}: ", end="")
                console.print(outcome.error, markup=False, highlight=False)
            elif not console.is_terminal:
                console.print(f"{count}/{total} {label} ({time.perf_counter() - began:.0f} s)", highlight=False)
            progress.update(bar, advance=1, description=f"{name}: {label}")
            yield outcome


def _tracked(benchmark: Benchmark, directory: Path) -> Tracker:
    from bbrgym.agents.tracking import Tracker

    params = benchmark.to_dict()
    tracking = params.pop("tracking") or UNTRACKED
    return Tracker.start(directory, _experiment(benchmark), benchmark.name, params, config=tracking)


def _experiment(benchmark: Benchmark) -> str:
    return f"benchmark/{benchmark.name}"


def _track_run(run: Run, benchmark: Benchmark, directory: Path, tracker: Tracker) -> None:
    from bbrgym.agents.tracking import Tracker

    own = directory / "runs" / run.key
    metrics = load_metrics(own)
    assert metrics is not None
    values = {name: metrics["rows"][0][name] for name in RUN_COLUMNS} | {
        f"flow{row['flow']}/{name}": value
        for row in metrics["rows"]
        for name, value in row.items()
        if name not in ("flow", "algorithm", *RUN_COLUMNS)
    }
    with Tracker.start(
        own,
        experiment=_experiment(benchmark),
        run_name=f"{run.scenario_name}/{run.competitor}/{run.seed}",
        params={"scenario": run.scenario.to_dict(), "seed": run.seed},
        tags={"scenario": run.scenario_name, "competitor": run.competitor, "trace_hash": metrics["trace_hash"]},
        parent=tracker.run_id,
        config=benchmark.tracking or UNTRACKED,
    ) as child:
        child.log_metrics(values)


def _tracked_league(results: pd.DataFrame) -> dict[str, float]:
    means = summary_table(results).xs("mean", axis=1, level="statistic")
    return {
        f"{scenario}/{competitor}/{metric}".replace("[", ".").replace("]", ""): float(mean)
        for scenario in means.index.unique("scenario")
        for competitor, row in means.loc[scenario].iterrows()
        for metric, mean in row.items()
    }


def _provenance(benchmark: Benchmark, command: str | None) -> dict[str, str]:
    """What made the results: the command, and what could change the numbers."""
    from bbrgym.agents.provenance import source_tags

    # A report goes to other people, whom the host's name does not concern.
    tags = {name: value for name, value in source_tags().items() if name != "host"}
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    code = code_hash(benchmark.engine["name"])
    return {"command": command or _command(), "code": code, **tags, "machine": machine}


def _command() -> str:
    """The command line of this process, if it is one that makes a benchmark; else the lines of Python that do."""
    for index, argument in enumerate(sys.orig_argv):
        if Path(argument).name == "bbrgym":
            return shlex.join(["bbrgym", *sys.orig_argv[index + 1 :]])
    return (
        "import json, pathlib, bbrgym.benchmark.run as benchmark\n"
        'directory = pathlib.Path("…")  # of this report\n'
        'config = json.loads((directory / "benchmark.json").read_text())["config"]\n'
        "benchmark.run_benchmark(config, directory)"
    )
