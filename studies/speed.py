"""Measure how fast the gym is: `python -m studies.speed` (`--quick` for a first look).

Every value is a median of samples that take turns: both sides of a ratio alternate every few ms or s (A B A B …), and
everything runs in every repetition. A machine that slows down slows down both sides. Times of one machine say little
about another: compare the ratios, and the values of ns3-gym on the same kind of machine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import platform
import sys
import tempfile
import time
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

from bbrgym import EngineError, Flow, Rows, Scenario, _testing, make_engine
from bbrgym.agents.policy import load_agent
from bbrgym.agents.provenance import source_tags
from bbrgym.agents.tracking import read_metrics
from bbrgym.baselines.policy_file import REFERENCE, policy_bytes
from bbrgym.benchmark.plan import version_of
from bbrgym.envs.action import Action
from bbrgym.envs.columns import FLOW_COLUMNS
from bbrgym.envs.engine import EngineUnavailableError
from bbrgym.envs.episode import EpisodeSpec
from bbrgym.envs.linux.engine import LinuxEngine
from bbrgym.envs.ns3.engine import Ns3Engine
from bbrgym.envs.sb3_env import SharedPolicyVecEnv
from bbrgym.files import write_json
from bbrgym.interruption import raise_if_interrupted, run_interruptible
from studies import page
from studies.experiments import compose_experiment

MARK: Final = "studies/speed.py"
Sample = TypeVar("Sample")


@dataclass(frozen=True)
class Effort:
    """How much a run measures.

    Args:
        repetitions: of all measurements.
        limit_s: no repetition starts that would probably end later, in s from the start.
        budget_s: duration of a measurement in a repetition, in s, without preparation; at least one sample is taken.
        resets: per repetition of a running worker, and a tenth as many of a new one.
        congested: length of the runs with two flows, as a fraction of their full length.
        scale: the same of native's runs with many flows and packets.
        linux_s: duration of each run of the Linux engine, in real time.
    """

    repetitions: int
    limit_s: float
    budget_s: float
    resets: int
    congested: float
    scale: float
    linux_s: float


FULL: Final = Effort(5, 280.0, 2.0, resets=50, congested=1.0, scale=1.0, linux_s=1.0)
QUICK: Final = Effort(2, 18.0, 0.3, resets=20, congested=0.2, scale=0.1, linux_s=0.4)

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
"""cwnd_gain and pacing_gain of agent flows, which keep the link busy. (The action (0, 0) is a window of one BDP, with
which the bandwidth estimate only falls, and an idle link costs nothing.)"""
_ENDLESS_S: Final = 1e6
"""Episodes are left before they end."""


@dataclass(frozen=True)
class Cell:
    """The place of a value in the tables, and which percentile of its samples it is."""

    table: str
    row: str
    column: str
    percentile: float = 50.0


PACKETS: Final = "Cost of a data packet: two BBR flows (100 Mbit/s, 10 and 50 ms RTT, engine alone)"
FLOWS_COST: Final = "Cost of a data packet among n flows (native, BBR, 2 Mbit/s and 20 to 40 ms each, 1 BDP)"
STEPS: Final = "Steps per second of one agent flow (50 ms RTT, buffer of 1 BDP)"
VECTOR: Final = f"Steps per second of {VECTOR_SIZE} environments in native, in total"
ROLLOUTS: Final = f"Steps per second of {VECTOR_SIZE} environments in native, in whole rollouts"
TRAINING: Final = "Decisions per second of a training with PPO (`experiment=demo agent=ppo`)"
WORKERS: Final = "Steps per second of a vector environment in ns-3 (12 Mbit/s, steps of 100 ms)"
RESETS: Final = "Resets in ms"
POLICY: Final = "A decision of the reference policy (in an engine)"
LINUX: Final = "What the Linux engine holds: BBR over UDP (20 ms RTT, buffer of 2 BDP)"
TRANSPORT: Final = "Empty steps per second in ns-3: the protocol alone"


def steps_row(engine: str, rate_mbps: float, step_ms: float) -> str:
    """Return the name of a row in the table of steps."""
    return f"{ENGINES[engine]}, {rate_mbps:g} Mbit/s, {step_ms:g} ms"


NS3_GYM_STEPS: Final = dict(zip(RATES_MBPS, (760.0, 147.0, 53.0), strict=True))
"""Steps per second of its example rl-tcp at the same rates, in steps of 100 ms, in another scenario."""
ANCHORS: Final[dict[Cell, tuple[float, ...]]] = {
    **{
        Cell(STEPS, steps_row(engine, rate, 100.0), "environment"): (steps,)
        for engine in ENGINES
        for rate, steps in NS3_GYM_STEPS.items()
    },
    # It starts a process for every episode, so all of ours have the same anchor.
    **{
        Cell(RESETS, row, "median"): (240.0, 310.0)
        for row in ("ns-3, same worker", "ns-3, new worker", "native, environment")
    },
    # With the protobuf that it pins (pure Python) and with the current one.
    Cell(TRANSPORT, "one worker", "steps/s"): (4_900.0, 19_000.0),
}
"""What ns3-gym reaches in the same task: one value, or several for different ways to measure it."""

CONGESTED_ROWS: Final = {
    "buffer of 5 BDP": (5.0, 0.0, 5.0),
    "buffer of 1 BDP": (1.0, 0.0, 5.0),
    "buffer of 5 BDP, 1 % random loss": (5.0, 0.01, 3.0),
}
"""{row: (buffer in BDP, random loss, s)}; losses are expensive in ns-3."""

LINUX_ROWS: Final = {"one flow, 1448-byte packets": (1, 1448), "four flows, 1000-byte packets": (4, 1000)}
"""{row: (flows, payload of a packet)}"""
LINUX_RATES_MBPS: Final = (50.0, 100.0, 200.0, 300.0, 500.0, 800.0, 1200.0)
_BUSY: Final = 0.9
"""A rate that is held is used to this fraction."""

GOALS: Final[dict[Cell, tuple[float, str]]] = {
    **{Cell(PACKETS, row, "ns-3 / native"): (200.0, "at least 200") for row in CONGESTED_ROWS},
    **{
        Cell(STEPS, steps_row("native", rate, 100.0), "environment"): (times * steps, f"{times} times ns3-gym")
        for (rate, steps), times in zip(NS3_GYM_STEPS.items(), (30, 80, 120), strict=True)
    },
    Cell(VECTOR, "12 Mbit/s, 10 ms", "2 threads"): (300_000.0, "300,000 with 2 threads"),
    Cell(ROLLOUTS, "12 Mbit/s, 10 ms, given actions", "2 threads"): (1e6, "1,000,000 with 2 threads"),
    Cell(TRAINING, "two threads", "PPO"): (100_000.0, "100,000"),
    Cell(RESETS, "native, environment", "median"): (-0.1, "at most 0.1"),
    Cell(POLICY, "columns to gains", "µs"): (-10.0, "at most 10"),
    Cell(LINUX, "one flow, 1448-byte packets", "Mbit/s"): (500.0, "500"),
    Cell(LINUX, "four flows, 1000-byte packets", "Mbit/s"): (100.0, "100"),
}
"""What native was built to reach, and its text; a negative value is a time that must not be exceeded."""

Samples = dict[Cell, list[float]]
Measurement = Callable[[int], Samples]
"""seed -> samples; one call per repetition."""


@dataclass(frozen=True)
class Report:
    """The samples of all measurements."""

    machine: dict[str, str]
    """Where it ran, {what: value}."""
    started: str
    """Start time in ISO 8601."""
    samples: Samples
    error: str = ""
    """Why it stopped early; empty if it did not."""

    def tables(self) -> str:
        """Return the tables and the machine for the page."""
        blocks = [f"Measured on {self.started[:10]}."]
        for title in dict.fromkeys(cell.table for cell in self.samples):
            head, *rows = self._table(title)
            blocks += [f"### {title}", page.table(head, rows, range(1, len(head)))]
        blocks += ["### Machine", "\n".join(f"* {what}: {value}" for what, value in self.machine.items())]
        return "\n\n".join(blocks)

    def _table(self, title: str) -> list[list[str]]:
        """Return the rows of a table; the first one has the headings."""
        samples = {cell: values for cell, values in self.samples.items() if cell.table == title}
        columns = list(dict.fromkeys(cell.column for cell in samples))
        rows: dict[str, dict[str, str]] = {cell.row: dict.fromkeys(columns, "") for cell in samples}
        for cell, values in samples.items():
            rows[cell.row][cell.column] = _text(cell, values)
        for cell in samples.keys() & ANCHORS.keys():
            rows[cell.row]["ns3-gym"] = " to ".join(f"{value:,.0f}" for value in ANCHORS[cell])
            rows[cell.row]["times faster"] = times_faster(cell, samples[cell])
        for cell in samples.keys() & GOALS.keys():
            rows[cell.row]["goal"] = _goal(cell, samples[cell])
        head = [*columns, *(n for n in ("ns3-gym", "times faster", "goal") if any(n in row for row in rows.values()))]
        return [["", *head], *([name, *(row.get(column, "") for column in head)] for name, row in rows.items())]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print and write; return 1 if it stopped early, with what was measured until then."""
    parser = page.parser(__doc__, MARK)
    parser.add_argument("--quick", action="store_true", help="a first look: below 20 s instead of 4 minutes")
    parser.add_argument("--runs", type=Path, default=Path("runs/bench"), help="folder of the JSON files")
    options = parser.parse_args(argv)
    options.runs.mkdir(parents=True, exist_ok=True)
    report = run(QUICK if options.quick else FULL)
    text = report.tables()
    print(text)
    file = options.runs / f"{report.started.replace(':', '')}.json"
    samples = [dataclasses.asdict(cell) | {"samples": values} for cell, values in report.samples.items()]
    write_json(file, dataclasses.asdict(dataclasses.replace(report, samples={})) | {"samples": samples})
    print(f"\nsamples: {file}")
    if report.error:
        raise_if_interrupted()
        print(f"stopped early: {report.error}", file=sys.stderr)
        return 1
    if options.write is not None:
        page.write_block(options.write, MARK, text)
    return 0


def run(effort: Effort) -> Report:
    """Repeat all measurements in turn.

    An error of the engine or an interrupt ends it early; the report has the samples until then.
    """
    started, begin = datetime.now(UTC).isoformat(timespec="seconds"), time.perf_counter()
    load_before = os.getloadavg()[0]
    samples: Samples = {}
    error = ""
    done = 0
    measuring = measurements(effort)
    try:
        for repetition in range(1, effort.repetitions + 1):
            if done and (time.perf_counter() - begin) * repetition / done > effort.limit_s:
                break
            console = Console(stderr=True)
            for measure in track(measuring, f"repetition {repetition}", console=console, transient=True):
                for cell, values in measure(repetition).items():
                    samples.setdefault(cell, []).extend(values)
            done = repetition
    except (EngineError, KeyboardInterrupt) as stop:
        error = str(stop) or "interrupted"
    machine = describe_machine() | {
        "load average": f"{load_before:.2f} before, {os.getloadavg()[0]:.2f} after",
        "repetitions": f"{done} in {time.perf_counter() - begin:.0f} s",
    }
    return Report(machine=machine, started=started, samples=samples, error=error)


def measurements(effort: Effort) -> list[Measurement]:
    """Return all measurements in the order of the tables."""
    congested = [partial(measure_packets, effort, row) for row in CONGESTED_ROWS]
    steps = [
        partial(measure_steps, effort, engine, rate, step)
        for engine in ENGINES
        for rate in RATES_MBPS
        for step in STEPS_MS
    ]
    others = [
        measure_vector,
        measure_rollouts,
        measure_training,
        measure_workers,
        measure_resets,
        measure_policy,
        measure_transport,
        measure_linux,
    ]
    return [*congested, partial(measure_flows, effort), *steps, *(partial(measure, effort) for measure in others)]


def measure_policy(effort: Effort, seed: int) -> Samples:
    """Measure what each decision costs a flow of algorithm `policy`."""
    del seed  # a network is deterministic
    policy = policy_bytes(None)
    _testing.policy_time_ns(policy, 1_000)
    samples = _repeat(lambda: _testing.policy_time_ns(policy, 2_000) / 1e3, effort.budget_s / 10)
    return {Cell(POLICY, "columns to gains", "µs"): samples}


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
) -> Iterator[tuple[Callable[[], Any], Callable[[], Rows]]]:
    """Yield functions that make a step of the same episode in an environment and in its engine `name`."""
    scenario = _one_agent(rate_mbps)
    action = Action().action(*GAINS)
    env = gymnasium.make("bbrgym/Bottleneck-v1", scenario=scenario, step_ms=step_ms, engine=name)
    with contextlib.closing(env), contextlib.closing(make_engine(name)) as engine:
        _, info = env.reset(seed=seed)
        engine.reset(scenario, info["seed"])
        engine.steer(0, *Action().gains(action))

        yield lambda: env.step(action), lambda: engine.step(step_ms)


def measure_resets(effort: Effort, seed: int) -> Samples:
    """Measure `reset` in the middle of an episode, and for ns-3 the creation and first reset of an environment."""
    scenario = _one_agent(12.0)

    def resets_ms(reset: Callable[[], object], step: Callable[[], object]) -> list[float]:
        reset()
        taken = []
        for _ in range(effort.resets):
            for _ in range(5):  # so that packets and events must be cleared
                step()
            taken.append(1e3 * _seconds(reset))
        return taken

    rows: dict[str, list[float]] = {}
    action = Action().action(*GAINS)
    for engine, row in (("ns3", "ns-3, same worker"), ("native", "native, environment")):
        env: gymnasium.Env[Any, Any] = gymnasium.make("bbrgym/Bottleneck-v1", scenario=scenario, engine=engine)
        with contextlib.closing(env):
            env.reset(seed=seed)
            rows[row] = resets_ms(env.reset, partial(env.step, action))
    with contextlib.closing(make_engine("native")) as native:
        rows["native, engine alone"] = resets_ms(partial(native.reset, scenario, seed), partial(native.step, 100.0))
    new = rows["ns-3, new worker"] = []
    for _ in range(max(1, effort.resets // 10)):
        begin = time.perf_counter()
        env = gymnasium.make("bbrgym/Bottleneck-v1", scenario=scenario, engine="ns3")
        with contextlib.closing(env):
            env.reset(seed=seed)
            new.append(1e3 * (time.perf_counter() - begin))
    return {
        Cell(RESETS, row, column, percentile): values
        for row, values in sorted(rows.items(), reverse=True)
        for column, percentile in (("median", 50.0), ("95th percentile", 95.0))
    }


def measure_transport(effort: Effort, seed: int) -> Samples:
    """Measure steps in which nothing happens: requests, rows and switches between processes."""
    idle = Scenario(duration_s=_ENDLESS_S, flows=(Flow("agent", start_s=_ENDLESS_S / 2),))
    steps = 500
    with contextlib.closing(make_engine("ns3")) as engine:
        engine.reset(idle, seed)
        rates = _repeat(lambda: steps / _seconds(lambda: engine.step(1e-3), steps), effort.budget_s)
    return {Cell(TRANSPORT, "one worker", "steps/s"): rates}


def measure_linux(effort: Effort, seed: int) -> Samples:
    """Measure the highest rate at which the link of the Linux engine is busy and punctual; nothing where it cannot run.

    Punctual is a run without a flaw: 99.9 % of the packets leave within the engine's bound.
    """
    samples: Samples = {}
    with contextlib.suppress(EngineUnavailableError), contextlib.closing(LinuxEngine()) as engine:
        for row, (flows, packet_bytes) in LINUX_ROWS.items():
            held = dict.fromkeys(("Mbit/s", "packets/s", "p99.9 late, ms"), 0.0)
            for rate_mbps in LINUX_RATES_MBPS:
                scenario = Scenario(
                    rate_mbps=rate_mbps,
                    buffer_bdp=2.0,
                    duration_s=effort.linux_s,
                    packet_bytes=packet_bytes,
                    flows=tuple(Flow("bbr", rtt_ms=20.0) for _ in range(flows)),
                )
                engine.reset(scenario, seed)
                steps = [engine.step(effort.linux_s * 500) for _ in range(2)]
                if engine.flaw is not None or steps[-1].link_row()["utilisation"] < _BUSY:
                    break
                packets_per_s = _sent_packets(steps) / effort.linux_s
                late_ms = engine.timing["late_p999_ms"]
                held = {"Mbit/s": rate_mbps, "packets/s": packets_per_s, "p99.9 late, ms": late_ms}
            samples |= {Cell(LINUX, row, column): [value] for column, value in held.items()}
    return samples


def measure_workers(effort: Effort, seed: int) -> Samples:
    """Measure a vector environment of ns-3 with two workers and with one."""
    steps = _chunk_steps(12.0, 100.0, "ns3")
    pairs = _vector_pairs(effort, seed, steps, 100.0, *({"num_envs": workers, "engine": "ns3"} for workers in (1, 2)))
    return _one_and_two(WORKERS, "all environments together", "worker", pairs, steps, 2 * steps)


def measure_vector(effort: Effort, seed: int) -> Samples:
    """Measure many environments of native in one process, with one thread and with two."""
    steps = max(10, round(200 * effort.scale))
    many = {"num_envs": VECTOR_SIZE, "engine": "native"}
    pairs = _vector_pairs(effort, seed, steps, 10.0, *(many | {"engine_options": {"threads": n}} for n in (1, 2)))
    return _one_and_two(VECTOR, "12 Mbit/s, 10 ms", "thread", pairs, VECTOR_SIZE * steps, VECTOR_SIZE * steps)


def measure_rollouts(effort: Effort, seed: int) -> Samples:
    """Measure rollouts in C++ with one thread and with two: with given actions, and with the reference policy."""
    steps = max(10, round(200 * effort.scale))
    agent = load_agent(REFERENCE)
    samples: Samples = {}
    for row, policy in {"given actions": None, "reference policy": agent.compiled}.items():
        noise = np.tile(Action().action(*GAINS), (steps, VECTOR_SIZE, 1))
        calls = []
        with contextlib.ExitStack() as stack:
            for threads in (1, 2):
                options = {"threads": threads}
                spec = EpisodeSpec(
                    _one_agent(12.0), agent.spec.observation, step_ms=10.0, engine="native", engine_options=options
                )
                env = SharedPolicyVecEnv(spec, VECTOR_SIZE)
                stack.callback(env.close)
                env.seed(seed)
                env.reset()
                env.rollout(noise[:1].repeat(round(_STARTUP_MS / 10.0), axis=0))
                calls.append(partial(env.rollout, noise if policy is None else 0.0 * noise, policy))
            one, two = calls
            pairs = _alternate(one, two, 1, effort.budget_s)
        total = VECTOR_SIZE * steps
        samples |= _one_and_two(ROLLOUTS, f"12 Mbit/s, 10 ms, {row}", "thread", pairs, total, total)
    return samples


def _one_and_two(
    table: str, row: str, worker: str, pairs: Sequence[tuple[float, float]], one: int, two: int
) -> Samples:
    """Return what one worker and two make per s, and their ratio, if pairs of s are what so many steps take them."""
    cell = partial(Cell, table, row)
    return {
        cell(f"1 {worker}"): [one / one_s for one_s, _ in pairs],
        cell(f"2 {worker}s"): [two / two_s for _, two_s in pairs],
        cell(f"2 {worker}s / 1"): [two * one_s / (one * two_s) for one_s, two_s in pairs],
    }


def measure_training(effort: Effort, seed: int) -> Samples:
    """Measure a training with PPO, with evaluations at its beginning and end."""
    # Here, because it loads torch, which takes seconds.
    from bbrgym.agents.train import train

    config = compose_experiment("demo", ["agent=ppo", f"seed={seed}", "tracking=none", "train.eval_episodes=1"])
    config["train"] |= {"max_minutes": None, "total_steps": max(1, round(2e6 * effort.scale))}
    with tempfile.TemporaryDirectory() as folder:
        train(config, Path(folder), Console(quiet=True))
        rates = [line["metrics"]["time/fps"] for line in read_metrics(Path(folder)) if "time/fps" in line["metrics"]]
    return {Cell(TRAINING, "two threads", "PPO"): rates}


def _vector_pairs(
    effort: Effort, seed: int, steps: int, step_ms: float, *kinds: Mapping[str, Any]
) -> list[tuple[float, float]]:
    """Return the s that `steps` steps take after Startup, in two kinds of vector environments that alternate."""
    actions = Action().action(*GAINS)
    calls = []
    with contextlib.ExitStack() as stack:
        for kind in kinds:
            envs = gymnasium.make_vec(
                "bbrgym/Bottleneck-v1",
                vectorization_mode="vector_entry_point",
                scenario=_one_agent(12.0),
                step_ms=step_ms,
                **kind,
            )
            stack.callback(envs.close)
            envs.reset(seed=seed)
            calls.append(partial(envs.step, np.tile(actions, (kind["num_envs"], 1))))
            _seconds(calls[-1], round(_STARTUP_MS / step_ms))
        first, second = calls
        return _alternate(first, second, steps, effort.budget_s)


def measure_packets(effort: Effort, row: str, seed: int) -> Samples:
    """Measure what a packet of two BBR flows costs in both engines, without an environment: native, ns-3, native."""
    del seed  # the same work in every repetition
    buffer_bdp, loss, duration_s = CONGESTED_ROWS[row]
    scenario = Scenario(
        rate_mbps=100.0,
        buffer_bdp=buffer_bdp,
        loss=loss,
        duration_s=effort.congested * duration_s,
        flows=(Flow("bbr", rtt_ms=10.0), Flow("bbr", rtt_ms=50.0)),
    )
    runs_of_native = [_native_run(scenario, 1, effort.budget_s / 10)]
    steps: list[Rows] = []
    with contextlib.closing(Ns3Engine()) as engine:
        engine.reset(scenario, 1)  # starts the worker, which is not part of the run
        worker_s, own_s = _cpu_s(engine.pid), time.process_time()
        rows = engine.reset(scenario, 1)
        while not rows.is_over:
            rows = engine.step(100.0)  # as in the environment and in `simulate`
            steps.append(rows)
        own_s = time.process_time() - own_s
        cpu_s = max(_cpu_s(engine.pid) - worker_s, 1 / os.sysconf("SC_CLK_TCK")) + own_s  # the worker's clock ticks
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


def describe_machine() -> dict[str, str]:
    """Return what the values depend on, {what: value}."""
    packages = ("bbrgym", "ns3", "numpy", "gymnasium", "pyzmq", "protobuf")
    versions = ", ".join(f"{name} {version_of(name) or 'not installed'}" for name in packages)
    tags = source_tags()
    modified = "-dirty" if tags.get("git.dirty") == "true" else ""
    return {
        "processor": f"{_processor()}, {len(os.sched_getaffinity(0))} cores",
        "system": f"{platform.system()} {platform.machine()}, {platform.python_implementation()} {tags['python']}",
        "versions": f"{versions} ({api_implementation.Type()})",  # "upb" is C, "python" much slower
        "commit": tags.get("git.commit", "unknown")[:12] + modified,
    }


def _native_run(scenario: Scenario, seed: int, budget_s: float, step_ms: float = 100.0) -> tuple[float, float]:
    """Return data packets and CPU s of a run in native with its reset, averaged over the runs within the budget."""
    steps: list[Rows] = []
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


def _sent_packets(steps: Sequence[Rows]) -> float:
    column = FLOW_COLUMNS.index("sent_packets")
    return sum(float(rows.flows[:, column].sum()) for rows in steps)


def _cpu_s(pid: int | None) -> float:
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


def _value(cell: Cell, values: list[float]) -> float:
    return float(np.percentile(values, cell.percentile))


def _text(cell: Cell, values: list[float]) -> str:
    text = _number(_value(cell, values), digits=3)
    if cell.table == RESETS:
        return text  # which have a percentile beside the median
    low, middle, high = np.percentile(values, (25, 50, 75))
    spread = (high - low) / 2 / middle if middle > 0 else 0.0
    return f"{text} ±{spread:.0%}" if spread >= 0.005 else text


def times_faster(cell: Cell, values: list[float]) -> str:
    """Return how many times faster than ns3-gym the samples of a cell are; below 1 they are slower."""
    ours = _value(cell, values)
    ratios = sorted(value / ours if cell.table == RESETS else ours / value for value in ANCHORS[cell])
    return " to ".join(_number(ratio, digits=2) for ratio in ratios)


def _goal(cell: Cell, values: list[float]) -> str:
    goal, words = GOALS[cell]
    is_reached = _value(cell, values) >= goal if goal > 0 else _value(cell, values) <= -goal
    return f"{words}: {'reached' if is_reached else 'missed'}"


def _number(value: float, digits: int) -> str:
    before_point = int(np.floor(np.log10(value))) + 1 if value > 0 else 1
    return f"{value:,.{max(0, digits - before_point)}f}"


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


if __name__ == "__main__":
    sys.exit(run_interruptible("speed", main))
