"""What the worker processes of a benchmark do. It imports no tables, so that a worker starts quickly."""

from __future__ import annotations

import dataclasses
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from bbrgym.agents.policy import load_agent
from bbrgym.benchmark.code import metrics_hash
from bbrgym.benchmark.metrics import measure
from bbrgym.benchmark.plan import Run
from bbrgym.envs.engine import Engine, EngineUnavailableError, hash_policies, make_engine
from bbrgym.envs.trace import Trace, simulate
from bbrgym.envs.trace_file import save_trace
from bbrgym.files import DAMAGES, open_folder, read_object, replace_file, write_json

EngineFactory = Callable[..., Engine]
"""`make_engine`, or another importable function of an engine's name and options."""


def execute(
    run: Run,
    directory: Path | str,
    engine: Mapping[str, Any],
    warmup: float,
    retries: int,
    engine_factory: EngineFactory,
) -> str | None:
    """Simulate one run and write its files, unless they are there.

    The files are written one by one, each atomically, and metrics.json last: the run exists once this one does. So it
    does not matter where a worker is killed, nor whether two workers execute the same run, whose files are equal. A run
    with a flaw (`Engine.flaw`) is simulated again, up to `retries` times; metrics.json has the flaw of the last one.

    Returns:
        Why no run can be simulated here, as the engine says; None once the run exists.
    """
    folder = open_folder(directory) / "runs" / run.key
    if is_sound(load_metrics(folder)):
        return None
    began = time.perf_counter()
    try:
        trace = _simulate(run, engine, retries, engine_factory)
    except EngineUnavailableError as error:
        return str(error)
    wall_s = round(time.perf_counter() - began, 3)
    trace = dataclasses.replace(trace, engine=engine["name"])
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / "trace.parquet", partial(save_trace, trace))
    # Not in metrics.json, which is the same wherever the run is executed.
    write_json(folder / "timing.json", {"wall_s": wall_s})
    write_json(
        folder / "metrics.json",
        {
            "scenario": run.scenario.to_dict(),
            "agent": run.agent_hash,
            "seed": run.seed,
            "engine": trace.engine,
            "step_ms": run.step_ms,
            "warmup": warmup,
            "trace_hash": trace.hash,
            "flaw": trace.flaw,
            **measure_run(trace, warmup),
        },
    )
    return None


def rows_of(run: Run, engine: Mapping[str, Any], warmup: float, retries: int = 0) -> list[dict[str, Any]]:
    """Simulate one run for a ledger, and return one row per flow: its names, and what `measure` returns.

    Raises:
        EngineError: the engine failed, or cannot run here.
    """
    trace = _simulate(run, engine, retries, make_engine)
    names = {"scenario": run.scenario_name, "competitor": run.competitor, "seed": run.seed, "trace_hash": trace.hash}
    return [{**names, **row} for row in measure(trace, after_s=warmup * run.scenario.duration_s)]


def _simulate(run: Run, engine: Mapping[str, Any], retries: int, engine_factory: EngineFactory) -> Trace:
    """Return the trace of a run; of the last attempt, if all have a flaw."""
    agent = None if run.agent is None else load_agent(run.agent)
    if agent is not None and agent.content_hash != run.agent_hash:
        raise RuntimeError(f"the agent in {run.agent} has changed since the benchmark began")
    if hash_policies(run.scenario) != run.policy_hashes:
        raise RuntimeError("a policy of the scenario has changed since the benchmark began")
    with closing(engine_factory(**engine)) as simulator:

        def attempt() -> Trace:
            policy = None if agent is None else agent.policy(run.scenario)
            return simulate(run.scenario, simulator, seed=run.seed, step_ms=run.step_ms, policy=policy)

        *_, last = attempts(attempt, retries)
    return last


def attempts(attempt: Callable[[], Trace], retries: int) -> Iterator[Trace]:
    """Yield the traces of a run that is repeated up to `retries` times, until one has no flaw (`Engine.flaw`)."""
    for _ in range(1 + retries):
        trace = attempt()
        yield trace
        if trace.flaw is None:
            return


def measure_run(trace: Trace, warmup: float) -> dict[str, Any]:
    """Return the entries of metrics.json that follow from the trace and the code of the metrics."""
    return {"metrics_hash": metrics_hash(), "rows": measure(trace, after_s=warmup * trace.scenario.duration_s)}


def is_sound(metrics: Mapping[str, Any] | None) -> bool:
    """Return whether a run is complete, and without a flaw."""
    return metrics is not None and metrics.get("flaw") is None


def load_metrics(directory: Path) -> dict[str, Any] | None:
    """Return what was measured of a run, from metrics.json in its directory; None if the run is incomplete.

    That is `trace_hash`, `metrics_hash`, `flaw` and `rows`, one per flow, with NaN for null.
    """
    try:
        content = read_object(directory / "metrics.json", rows=list, trace_hash=str)
        rows = [
            # One string per name, however many runs there are.
            {sys.intern(name): math.nan if value is None else value for name, value in row.items()}
            for row in content["rows"]
        ]
        if not rows or not all("flow" in row for row in rows) or not (directory / "trace.parquet").is_file():
            return None
        kept = {name: content.get(name) for name in ("trace_hash", "metrics_hash", "flaw")}
        return {**kept, "rows": rows}
    except DAMAGES:
        return None
