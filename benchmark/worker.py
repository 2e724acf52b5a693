"""What the worker processes of a benchmark do. It imports no tables, so that a worker starts quickly."""

from __future__ import annotations

import dataclasses
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bbrgym.agents.policy import load_agent
from bbrgym.benchmark.metrics import measure
from bbrgym.benchmark.plan import Benchmark, Run, hash_policies, metrics_hash
from bbrgym.envs.engine import Engine
from bbrgym.envs.trace import Trace, simulate
from bbrgym.envs.trace_file import save_trace
from bbrgym.files import write_json

EngineFactory = Callable[..., Engine]
"""`make_engine`, or another importable function of an engine's name and options."""


def execute(run: Run, directory: Path, benchmark: Benchmark, engine_factory: EngineFactory) -> None:
    """Simulate one run and write its files."""
    policy = None
    if run.agent is not None:
        agent = load_agent(run.agent)
        if agent.content_hash != run.agent_hash:
            raise RuntimeError(f"the agent in {run.agent} has changed since the benchmark began")
        policy = agent.policy(run.scenario)
    if hash_policies(run.scenario) != run.policy_hashes:
        raise RuntimeError("a policy of the scenario has changed since the benchmark began")
    began = time.perf_counter()
    engine = engine_factory(**benchmark.engine)
    try:
        trace = simulate(run.scenario, engine, run.seed, run.step_ms, policy)
    finally:
        engine.close()
    wall_s = round(time.perf_counter() - began, 3)
    trace = dataclasses.replace(trace, engine=benchmark.engine["name"])
    temporary = temporary_folder(directory, run)
    save_trace(trace, temporary / "trace.parquet")
    write_json(
        temporary / "metrics.json",
        {
            "scenario": run.scenario.to_dict(),
            "agent": run.agent_hash,
            "seed": run.seed,
            "engine": trace.engine,
            "step_ms": run.step_ms,
            "warmup": benchmark.warmup,
            "trace_hash": trace.hash,
            "wall_s": wall_s,
            **measure_run(trace, benchmark),
        },
    )
    put_in_place(temporary, directory, run)


def measure_run(trace: Trace, benchmark: Benchmark) -> dict[str, Any]:
    """Return the entries of metrics.json that follow from the trace and the code of the metrics."""
    rows = measure(trace, after_s=benchmark.warmup * trace.scenario.duration_s)
    return {"metrics_hash": metrics_hash(), "rows": rows}


def temporary_folder(directory: Path, run: Run) -> Path:
    """Make the folder for the files of a run until they are complete."""
    folder = directory / "runs" / f".{run.key}.{os.getpid()}.partial"
    folder.mkdir()
    return folder


def put_in_place(temporary: Path, directory: Path, run: Run) -> None:
    """Move a complete run to its place."""
    final = directory / "runs" / run.key
    shutil.rmtree(final, ignore_errors=True)  # an incomplete run
    temporary.rename(final)
