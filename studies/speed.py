"""Measure how fast the gym is: `python -m studies.speed` prints it (`--quick` for a first look).

Every value is a median of samples that take turns: both sides of a ratio alternate every few ms or s (A B A B …), and
everything runs in every repetition. A machine that slows down slows down both sides. Times of one machine say little
about another: compare the ratios, and the values of ns3-gym on the same kind of machine.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import sys
import tempfile
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import gymnasium
import numpy as np
from google.protobuf.internal import api_implementation
from rich.console import Console
from rich.progress import track

from bbrgym import Flow, Scenario, make_engine
from bbrgym import Rows as EngineRows
from bbrgym._testing import policy_time_ns
from bbrgym.agents.policy import load_agent
from bbrgym.agents.provenance import source_tags
from bbrgym.baselines.policy_file import LINEAR_REFERENCE, REFERENCE, policy_bytes, read_policy
from bbrgym.benchmark.code import code_hash, machine, version_of
from bbrgym.benchmark.ledger import Rows
from bbrgym.benchmark.run import run_benchmark
from bbrgym.envs.action import Action
from bbrgym.envs.columns import FLOW_COLUMNS
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.envs.ns3.engine import Ns3Engine
from bbrgym.envs.sb3_env import SharedPolicyVecEnv
from bbrgym.envs.scenario import known_units
from bbrgym.executors import EXECUTORS, ExecutorConfig, make_executor
from bbrgym.output import run_program
from studies import page

MACHINE: Final = "Machine"
"""The table of what the values depend on."""
DAY: Final = "measured on"
Sample = TypeVar("Sample")


@dataclass(frozen=True)
class Effort:
    """How much a run measures.

    Args:
        repetitions: of all measurements.
        limit_s: no repetition starts that would probably end later, in s from the start.
        budget_s: duration of a measurement in a repetition, in s, without preparation; at least one sample is taken.
        scale: length of the runs as a fraction of their full length.
    """

    repetitions: int
    limit_s: float
    budget_s: float
    scale: float


FULL: Final = Effort(5, 280.0, 2.0, scale=1.0)
QUICK: Final = Effort(2, 18.0, 0.3, scale=0.1)

RATES_MBPS: Final = (12.0, 48.0, 100.0)
STEPS_MS: Final = (100.0, 10.0)
FLOWS: Final = (1, 3, 10, 30, 100, 300, 1000)
VECTOR_SIZE: Final = 64
ENGINES: Final = {"ns3": "ns-3", "native": "native"}
_CHUNK_PACKETS: Final = {"ns3": 2_000, "native": 40_000}
"""Data packets per sample: long compared with the clock's resolution, short compared with changes of load."""
_STARTUP_MS: Final = 1_000.0
"""Samples begin after BBR's Startup and Drain."""
GAINS: Final = (1.41, 1.15)
"""cwnd_gain and pacing_gain of agent flows, which keep the link busy. (With a window of one BDP the
bandwidth estimate only falls, and an idle link costs nothing.)"""
_ENDLESS_S: Final = 1e6
"""Episodes are left before they end."""
CONGESTED_ROWS: Final = {
    "buffer of 5 BDP": (5.0, 0.0, 5.0),
    "buffer of 1 BDP": (1.0, 0.0, 5.0),
    "buffer of 5 BDP, 1 % random loss": (5.0, 0.01, 3.0),
}
"""{row: (buffer in BDP, random loss, s)}; losses are expensive in ns-3."""
BENCHMARK: Final[dict[str, Any]] = {
    "name": "speed",
    "engine": "native",
    "scenarios": {
        "three": {"rate_mbps": 100, "duration_s": 60, "flows": [{"rtt_ms": 20}, {"rtt_ms": 40}, {"rtt_ms": 60}]}
    },
    "competitors": ["bbr", "cubic", "bbr2", "newreno"],
}
"""What the executors run, with as many seeds as the effort has. A run takes a tenth of a second."""
BENCHMARK_SEEDS: Final = 12


@dataclass(frozen=True)
class Cell:
    """The place of a value in the tables."""

    table: str
    row: str
    column: str


PACKETS: Final = "Cost of a data packet: two BBR flows (100 Mbit/s, 10 and 50 ms RTT, engine alone)"
FLOWS_COST: Final = "Cost of a data packet among n flows (native, BBR, 2 Mbit/s and 20 to 40 ms each, 1 BDP)"
STEPS: Final = "Steps per second of one agent flow (50 ms RTT, buffer of 1 BDP)"
VECTOR: Final = f"Steps per second of {VECTOR_SIZE} environments in native (12 Mbit/s, steps of 10 ms), in total"
RESETS: Final = "Resets in ms"
POLICY: Final = "A decision of a policy in an engine, from columns to gains"
SHIPPED: Final = "shipped policy"
SMALL: Final = "agents/linear, 7 features and no memory"
EFFICIENCY: Final = "A benchmark of native runs on several workers"


def steps_row(engine: str, rate_mbps: float, step_ms: float) -> str:
    """Return the name of a row in the table of steps."""
    return f"{ENGINES[engine]}, {rate_mbps:g} Mbit/s, {step_ms:g} ms"


ANCHORS: Final[dict[Cell, tuple[float, ...]]] = {
    # Its example rl-tcp, in steps of 100 ms, in another scenario.
    **{
        Cell(STEPS, steps_row(engine, rate, 100.0), "environment"): (steps,)
        for engine in ENGINES
        for rate, steps in zip(RATES_MBPS, (760.0, 147.0, 53.0), strict=True)
    },
    # It starts a process for every episode, so all of ours have the same anchor.
    **{
        Cell(RESETS, row, "ms"): (240.0, 310.0)
        for row in ("ns-3, environment", "ns-3, new environment", "native, environment")
    },
}
"""What ns3-gym reaches in the same task: one value, or several for different ways to measure it."""

Samples = dict[Cell, list[float]]
Measurement = Callable[[int], Samples]
"""seed -> samples; one call per repetition."""


@dataclass(frozen=True)
class SpeedRun:
    """All measurements, with executors on this machine."""

    name: str = "speed"

    @property
    def code(self) -> str:
        """The hash of the engines and the policies that are measured."""
        policies = (REFERENCE, LINEAR_REFERENCE)
        return code_hash("native", "ns3", also="".join(read_policy(folder).content_hash for folder in policies))


def jobs() -> list[SpeedRun]:
    """Return the one job: its measurements take turns, so they belong together."""
    return [SpeedRun()]


def work(job: SpeedRun) -> Rows:
    """Measure everything."""
    return measure(FULL, measurements(FULL, ["local"]))


def view(results: Mapping[str, Rows], figure: page.AddFigure) -> Mapping[str, object]:
    """Return the tables."""
    return {"tables": text_of(results[SpeedRun().name])}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = ArgumentParser("python -m studies.speed", description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a first look: below 20 s instead of 4 minutes")
    parser.add_argument("--executors", nargs="+", default=["local"], choices=list(EXECUTORS))
    options = parser.parse_args(argv)
    effort = QUICK if options.quick else FULL
    print(text_of(measure(effort, measurements(effort, options.executors))))
    return 0


def measure(effort: Effort, measuring: Sequence[Measurement]) -> Rows:
    """Repeat all measurements in turn.

    Returns:
        One row per value, with its `table`, `row`, `column` and `text`; the table `MACHINE` has what they depend on.
    """
    started, begin = datetime.now(UTC), time.perf_counter()
    load_before = os.getloadavg()[0]
    samples: Samples = {}
    done = 0
    with known_units():  # episodes without an end
        for repetition in range(1, effort.repetitions + 1):
            if done and (time.perf_counter() - begin) * repetition / done > effort.limit_s:
                break
            console = Console(stderr=True)
            for one in track(measuring, f"repetition {repetition}", console=console, transient=True):
                for cell, values in one(repetition).items():
                    samples.setdefault(cell, []).extend(values)
            done = repetition
    machine = {
        DAY: f"{started:%Y-%m-%d}",
        **describe_machine(),
        "load average": f"{load_before:.2f} before, {os.getloadavg()[0]:.2f} after",
        "repetitions": f"{done} in {time.perf_counter() - begin:.0f} s",
    }
    return [
        *values_of(samples),
        *({"table": MACHINE, "row": what, "column": "", "text": value} for what, value in machine.items()),
    ]


def values_of(samples: Samples) -> Rows:
    """Return the values of the cells and of ns3-gym beside them, row by row."""
    texts: dict[tuple[str, str], dict[str, str]] = {}
    for cell, values in samples.items():
        texts.setdefault((cell.table, cell.row), {})[cell.column] = _text(values)
    for cell in samples.keys() & ANCHORS.keys():
        texts[cell.table, cell.row] |= {
            "ns3-gym": " to ".join(f"{value:,.0f}" for value in ANCHORS[cell]),
            "times faster": times_faster(cell, samples[cell]),
        }
    return [
        {"table": table, "row": row, "column": column, "text": text}
        for (table, row), of_row in texts.items()
        for column, text in of_row.items()
    ]


def text_of(rows: Rows) -> str:
    """Return a heading and a table for each table among the values, and what they depend on."""
    tables: dict[str, dict[str, dict[str, str]]] = {}
    for row in rows:
        tables.setdefault(row["table"], {}).setdefault(row["row"], {})[row["column"]] = row["text"]
    machine = {what: value[""] for what, value in tables.pop(MACHINE).items()}
    blocks = [f"Measured on {machine.pop(DAY)}."]
    for title, of_table in tables.items():
        columns = list(dict.fromkeys(column for of_row in of_table.values() for column in of_row))
        lines = [[name, *(of_row.get(column, "") for column in columns)] for name, of_row in of_table.items()]
        blocks += [f"### {title}", page.table(["", *columns], lines, range(1, 1 + len(columns)))]
    facts = "\n".join(f"* {what}: {value}" for what, value in machine.items())
    return "\n\n".join([*blocks, f"### {MACHINE}", facts])


def measurements(effort: Effort, executors: Sequence[str]) -> list[Measurement]:
    """Return all measurements in the order of the tables."""
    congested = [partial(measure_packets, effort, row) for row in CONGESTED_ROWS]
    steps = [
        partial(measure_steps, effort, engine, rate, step)
        for engine in ENGINES
        for rate in RATES_MBPS
        for step in STEPS_MS
    ]
    others = (measure_vector, measure_resets, measure_policy)
    return [
        *congested,
        partial(measure_flows, effort),
        *steps,
        *(partial(measure, effort) for measure in others),
        *(partial(measure_executor, effort, name) for name in executors),
    ]


def measure_policy(effort: Effort, seed: int) -> Samples:
    """Measure what each decision costs a flow of algorithm `policy`: with the shipped policy, and with a small one."""
    policies = {SHIPPED: policy_bytes(None), SMALL: policy_bytes(LINEAR_REFERENCE)}
    for policy in policies.values():
        policy_time_ns(policy, 1_000)
    turns = _repeat(
        lambda: {row: policy_time_ns(policy, 2_000) / 1e3 for row, policy in policies.items()}, effort.budget_s / 5
    )
    samples: Samples = {}
    for row in policies:
        cell = partial(Cell, POLICY, row)
        samples |= {
            cell("µs"): [turn[row] for turn in turns],
            cell(f"relative to the {SHIPPED}"): [turn[row] / turn[SHIPPED] for turn in turns],
        }
    return samples


def measure_flows(effort: Effort, seed: int) -> Samples:
    """Measure what a packet costs among few and many flows in native."""
    samples: Samples = {}
    alone_ns = math.nan
    for count in FLOWS:
        scenario = Scenario(
            rate_mbps=2.0 * count,
            duration_s=20.0 * effort.scale,
            flows=tuple(Flow("bbr", rtt_ms=20.0 + 20.0 * index / count) for index in range(count)),
        )
        packets, taken_s = _native_run(scenario, seed, effort.budget_s / len(FLOWS), step_ms=1_000.0)
        packet_ns = 1e9 * taken_s / packets
        alone_ns = packet_ns if count == 1 else alone_ns
        cell = partial(Cell, FLOWS_COST, f"{count:,} flow{'s' if count > 1 else ''}")
        samples |= {
            cell("packets per run"): [packets],
            cell("ns CPU per packet"): [packet_ns],
            cell("relative to one flow"): [packet_ns / alone_ns],
        }
    return samples


def measure_steps(effort: Effort, engine: str, rate_mbps: float, step_ms: float, seed: int) -> Samples:
    """Measure steps of the environment, and of an engine that does the same work."""
    steps = _chunk_steps(rate_mbps, step_ms, engine)
    with same_episode(rate_mbps, step_ms, seed, engine) as (step_env, step_engine):
        for step in (step_env, step_engine):
            _seconds(step, round(_STARTUP_MS / step_ms))
        pairs = _alternate(step_env, step_engine, steps, effort.budget_s)
    cell = partial(Cell, STEPS, steps_row(engine, rate_mbps, step_ms))
    return {
        cell("environment"): [steps / env_s for env_s, _ in pairs],
        cell("engine alone"): [steps / engine_s for _, engine_s in pairs],
        cell("env / engine"): [engine_s / env_s for env_s, engine_s in pairs],
    }


@contextlib.contextmanager
def same_episode(
    rate_mbps: float, step_ms: float, seed: int, name: str = "ns3"
) -> Iterator[tuple[Callable[[], Any], Callable[[], EngineRows]]]:
    """Yield functions that make a step of the same episode in an environment and in its engine `name`."""
    scenario = _one_agent(rate_mbps)
    action = Action().action(*GAINS)
    env = gymnasium.make("bbrgym/Bottleneck-v1", scenario=scenario, step_ms=step_ms, engine=name)
    with contextlib.closing(env), contextlib.closing(make_engine(name)) as engine:
        _, info = env.reset(seed=seed)
        engine.reset(scenario, info["seed"])
        engine.steer(0, *Action().gains(action))

        yield lambda: env.step(action), lambda: engine.step(step_ms)


def measure_vector(effort: Effort, seed: int) -> Samples:
    """Measure many environments of native in one process, with one thread and with two.

    Each step by step; and whole rollouts in C++, with given actions and with the shipped policy.
    """
    steps, warmup_steps = max(10, round(200 * effort.scale)), round(_STARTUP_MS / 10.0)
    agent, scenario = load_agent(REFERENCE), _one_agent(12.0)
    actions = np.tile(Action().action(*GAINS), (VECTOR_SIZE, 1))
    given = np.tile(actions, (steps, 1, 1))
    rows: dict[str, list[Callable[[], object]]] = {}
    samples: Samples = {}
    with contextlib.ExitStack() as stack:
        for threads in (1, 2):
            native: dict[str, Any] = {"engine": "native", "engine_options": {"threads": threads}, "step_ms": 10.0}
            envs = stack.enter_context(
                contextlib.closing(
                    gymnasium.make_vec(
                        "bbrgym/Bottleneck-v1", VECTOR_SIZE, "vector_entry_point", scenario=scenario, **native
                    )
                )
            )
            envs.reset(seed=seed)
            _seconds(partial(envs.step, actions), warmup_steps)
            batch = SharedPolicyVecEnv(EpisodeSpec(scenario, agent.spec.observation, **native), VECTOR_SIZE)
            stack.callback(batch.close)
            batch.seed(seed)
            batch.reset()
            batch.rollout(actions[np.newaxis].repeat(warmup_steps, axis=0))
            calls: dict[str, Callable[[], object]] = {
                "step by step": partial(_seconds, partial(envs.step, actions), steps),
                "rollouts, given actions": partial(batch.rollout, given),
                "rollouts, shipped policy": partial(batch.rollout, 0.0 * given, agent.compiled),
            }
            for row, call in calls.items():
                rows.setdefault(row, []).append(call)
        for row, (one, two) in rows.items():
            pairs = _alternate(one, two, 1, effort.budget_s)
            cell = partial(Cell, VECTOR, row)
            samples |= {
                cell("1 thread"): [VECTOR_SIZE * steps / one_s for one_s, _ in pairs],
                cell("2 threads"): [VECTOR_SIZE * steps / two_s for _, two_s in pairs],
                cell("2 threads / 1"): [one_s / two_s for one_s, two_s in pairs],
            }
    return samples


def measure_packets(effort: Effort, row: str, seed: int) -> Samples:
    """Measure what a packet of two BBR flows costs in both engines, without an environment: native, ns-3, native."""
    del seed  # the same work in every repetition
    buffer_bdp, loss, duration_s = CONGESTED_ROWS[row]
    scenario = Scenario(
        rate_mbps=100.0,
        buffer_bdp=buffer_bdp,
        loss=loss,
        duration_s=effort.scale * duration_s,
        flows=(Flow("bbr", rtt_ms=10.0), Flow("bbr", rtt_ms=50.0)),
    )
    runs_of_native = [_native_run(scenario, 1, effort.budget_s / 10)]
    steps: list[EngineRows] = []
    with contextlib.closing(Ns3Engine()) as engine:
        engine.reset(scenario, 1)  # starts the worker, which is not part of the run
        worker_s, own_s = cpu_seconds_of(engine.pid), time.process_time()
        rows = engine.reset(scenario, 1)
        while not rows.is_over:
            rows = engine.step(100.0)  # as in the environment and in `simulate`
            steps.append(rows)
        own_s = time.process_time() - own_s
        used_s = cpu_seconds_of(engine.pid) - worker_s
        cpu_s = max(used_s, 1 / os.sysconf("SC_CLK_TCK")) + own_s  # the worker's clock ticks
    runs_of_native.append(_native_run(scenario, 1, effort.budget_s / 10))
    ns3_ns = 1e9 * cpu_s / _sent_packets(steps)
    native_ns = 1e9 * float(np.mean([taken_s / packets for packets, taken_s in runs_of_native]))
    cell = partial(Cell, PACKETS, row)
    return {
        cell("ns-3, ns CPU"): [ns3_ns],
        cell("native, ns CPU"): [native_ns],
        cell("ns-3 / native"): [ns3_ns / native_ns],
        cell("ns-3, simulated s/s"): [scenario.duration_s / cpu_s],
    }


def measure_resets(effort: Effort, seed: int) -> Samples:
    """Measure `reset` in the middle of an episode, and for ns-3 the creation and first reset of an environment."""
    scenario = _one_agent(12.0)
    make = partial(gymnasium.make, "bbrgym/Bottleneck-v1", scenario=scenario)
    samples: Samples = {}
    for name, title in ENGINES.items():
        with contextlib.closing(make(engine=name)) as env:
            env.reset(seed=seed)
            step = partial(env.step, Action().action(*GAINS))
            samples[Cell(RESETS, f"{title}, environment", "ms")] = _resets_ms(env.reset, step, effort)
    with contextlib.closing(make_engine("native")) as native:
        reset, advance = partial(native.reset, scenario, seed), partial(native.step, 100.0)
        samples[Cell(RESETS, "native, engine alone", "ms")] = _resets_ms(reset, advance, effort)

    def start() -> None:
        with contextlib.closing(make(engine="ns3")) as env:
            env.reset(seed=seed)

    samples[Cell(RESETS, "ns-3, new environment", "ms")] = _repeat(lambda: 1e3 * _seconds(start), effort.budget_s / 4)
    return samples


def _resets_ms(reset: Callable[[], object], step: Callable[[], object], effort: Effort) -> list[float]:
    reset()

    def sample() -> float:
        _seconds(step, 5)  # so that packets and events must be cleared
        return 1e3 * _seconds(reset)

    return _repeat(sample, effort.budget_s / 4)


def measure_executor(effort: Effort, name: str, seed: int) -> Samples:
    """Measure a benchmark on one worker and on two, each started for it: after start-up, and with it."""
    times = {}
    for workers in (1, 2):
        config = {"name": name, "workers": workers, "chunk_s": 2.0}
        begin = time.perf_counter()
        executor = make_executor(ExecutorConfig.of(config))
        try:
            # Each worker imports everything in its first run.
            _run_benchmark(
                [10_000 * seed + place for place in range(2 * workers)], config | {"chunk_s": 0.001}, executor
            )
            started = time.perf_counter()
            _run_benchmark(range(1, 1 + math.ceil(BENCHMARK_SEEDS * effort.scale)), config, executor)
            times[workers] = time.perf_counter() - started, time.perf_counter() - begin
        finally:
            executor.shutdown(cancel_futures=True)
    samples: Samples = {}
    for workers, (work_s, whole_s) in times.items():
        cell = partial(Cell, EFFICIENCY, f"{name}, {workers} worker{'s' if workers > 1 else ''}")
        samples |= {
            cell("s"): [work_s],
            cell("efficiency"): [times[1][0] / (workers * work_s)],
            cell("with start-up"): [times[1][1] / (workers * whole_s)],
        }
    return samples


def _run_benchmark(seeds: Sequence[int], config: Mapping[str, Any], executor: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        plan = {**BENCHMARK, "seeds": list(seeds), "executor": dict(config)}
        quiet = Console(file=io.StringIO())
        result = run_benchmark(plan, Path(folder), quiet, command="studies.speed", has_report=False, executor=executor)
    if result.failures or result.missing:
        raise RuntimeError(f"{len(result.failures)} runs failed: {result.failures[:1]}")


def describe_machine() -> dict[str, str]:
    """Return what the values depend on, {what: value}."""
    packages = ("bbrgym", "ns3", "numpy", "gymnasium", "pyzmq", "protobuf")
    versions = ", ".join(f"{name} {version_of(name) or 'not installed'}" for name in packages)
    tags = source_tags()
    return {
        "machine": machine(),
        "versions": f"Python {tags['python']}, {versions} ({api_implementation.Type()})",  # "upb" is C, "python" slow
        "commit": tags.get("git.commit", "unknown")[:12] + ("-dirty" if tags.get("git.dirty") == "true" else ""),
    }


def _native_run(scenario: Scenario, seed: int, budget_s: float, step_ms: float = 100.0) -> tuple[float, float]:
    """Return data packets and CPU s of a run in native with its reset, averaged over the runs within the budget."""
    steps: list[EngineRows] = []
    runs = 0
    with contextlib.closing(make_engine("native")) as engine:
        begin = time.process_time()
        while runs == 0 or time.process_time() < begin + budget_s:
            runs += 1
            rows = engine.reset(scenario, seed)
            while not rows.is_over:
                rows = engine.step(step_ms)
                steps.append(rows)
        taken_s = time.process_time() - begin
    return _sent_packets(steps) / runs, taken_s / runs


def _sent_packets(steps: Sequence[EngineRows]) -> float:
    column = FLOW_COLUMNS.index("sent_packets")
    return sum(float(rows.flows[:, column].sum()) for rows in steps)


def cpu_seconds_of(pid: int | None) -> float:
    """Return the CPU s that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")  # utime and stime: proc_pid_stat(5)


def _one_agent(rate_mbps: float) -> Scenario:
    return Scenario(rate_mbps=rate_mbps, buffer_bdp=1.0, duration_s=_ENDLESS_S, flows=(Flow("agent", rtt_ms=50.0),))


def _chunk_steps(rate_mbps: float, step_ms: float, engine: str) -> int:
    chunk_ms = _CHUNK_PACKETS[engine] * _one_agent(rate_mbps).packet_bytes * 8 / (rate_mbps * 1e3)
    return max(1, round(chunk_ms / step_ms))


def _alternate(
    first: Callable[[], object], second: Callable[[], object], times: int, budget_s: float
) -> list[tuple[float, float]]:
    """Return the s that `times` calls of the first and then of the second take, until the budget is spent."""
    return _repeat(lambda: (_seconds(first, times), _seconds(second, times)), budget_s)


def _repeat(sample: Callable[[], Sample], budget_s: float) -> list[Sample]:
    """Return samples until the budget is spent, at least one."""
    end = time.perf_counter() + budget_s
    samples = [sample()]
    while time.perf_counter() < end:
        samples.append(sample())
    return samples


def _seconds(do: Callable[[], object], times: int = 1) -> float:
    begin = time.perf_counter()
    for _ in range(times):
        do()
    return time.perf_counter() - begin


def _text(values: list[float]) -> str:
    low, middle, high = np.percentile(values, (25, 50, 75))
    spread = (high - low) / 2 / middle if middle > 0 else 0.0
    return _number(middle, digits=3) + (f" ±{spread:.0%}" if spread >= 0.005 else "")


def times_faster(cell: Cell, values: list[float]) -> str:
    """Return how many times faster than ns3-gym the samples of a cell are; below 1 they are slower."""
    ours = float(np.median(values))
    ratios = sorted(value / ours if cell.table == RESETS else ours / value for value in ANCHORS[cell])
    return " to ".join(_number(ratio, digits=2) for ratio in ratios)


def _number(value: float, digits: int) -> str:
    before_point = int(np.floor(np.log10(value))) + 1 if value > 0 else 1
    return f"{value:,.{max(0, digits - before_point)}f}"


if __name__ == "__main__":
    sys.exit(run_program("speed", main))
