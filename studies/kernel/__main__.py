"""Measure a policy in the kernel's TCP, and write docs/kernel.md: `python -m studies.kernel [--write docs/kernel.md]`.

It runs in real time, for three quarters of an hour, as root on a machine that is otherwise idle: what an ACK and a bit
cost, the duel in four worlds, a lone flow at many rates and RTTs (16 minutes), ten scenarios beside native (11 minutes)
and what a hundred kills leave behind. Elsewhere it says what is missing. `--only PART` measures one part: cost, duel,
lone, scenarios or kills. A run in which packets were late is repeated, up to three times in all; on a busy machine
`--tries 1` takes the first.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from bbrgym import Flow, Scenario, simulate
from bbrgym.baselines.policy_file import KERNEL_REFERENCE, REFERENCE
from bbrgym.baselines.registry import COUNTERPARTS
from bbrgym.benchmark.plots import over_time
from bbrgym.envs.linux import bpf
from bbrgym.envs.linux.engine import LinuxEngine
from bbrgym.envs.scenario import HEADER_BYTES
from bbrgym.envs.trace import Trace
from bbrgym.output import run_program
from studies import blocks, page
from studies.kernel.cost import EVERY_ACK
from studies.speed import cpu_seconds_of

MARK: Final = "studies.kernel"
NATIVE, NS3, UDP, KERNEL = "native", "ns-3", "our UDP", "the kernel's TCP"
BURSTS: Final = "native, bursts"
"""Native with flows of ours that send bursts as the kernel does: of two packets at least, about 1 ms of their rate."""
SECONDS: Final = 20.0
WARMUP: Final = 0.25
"""Share of a run that is not measured."""
SHARE_POINTS, QUEUE_SHARE, QUEUE_MS = 10.0, 0.2, 0.4
"""What counts as equal: shares in points of the link, queues as a part of native's or in ms."""
SEEDS: Final = (1, 2, 3)
"""Of the runs of a scenario in each world."""
TRIES: Final = 3
"""A late run of real time is repeated so often at most."""
MAX_LATENESS_MS: Final = 2.0
KILLS: Final = 100


def _scenario(rate_mbps: float, buffer_bdp: float, *flows: Flow, loss: float = 0.0) -> Scenario:
    return Scenario(rate_mbps=rate_mbps, buffer_bdp=buffer_bdp, duration_s=SECONDS, loss=loss, flows=flows)


def _policy(rtt_ms: float, start_s: float = 0.0) -> Flow:
    return Flow("policy", rtt_ms, start_s=start_s, transport="kernel")


def _shipped(rtt_ms: float) -> Flow:
    """Return a flow of the policy that is shipped for the other transports, on BBR's model."""
    return replace(_policy(rtt_ms), policy=str(REFERENCE), parameters={"is_bbr_model": 1.0})


def _agent(cwnd_gain: float, pacing_gain: float, rtt_ms: float) -> Flow:
    """Return a flow of fixed gains, which shows what the actuator does without a policy."""
    gains = {"is_bbr_model": 1.0, "cwnd_gain": cwnd_gain, "pacing_gain": pacing_gain}
    return Flow("agent", rtt_ms, parameters=gains, transport="kernel")


DUEL: Final = replace(_scenario(20, 2, _policy(40), _policy(40, start_s=5)), duration_s=30.0)
SCENARIOS: Final = (
    _scenario(20, 2, _policy(40)),
    _scenario(50, 1, _policy(20)),
    _scenario(20, 2, _policy(40), loss=0.01),
    _scenario(20, 2, _policy(40), _policy(40, start_s=2)),
    _scenario(40, 2, _policy(20), _policy(80)),
    _scenario(20, 2, _policy(40), Flow("linux-cubic", 40)),
    _scenario(20, 2, _policy(40), Flow("linux-bbr", 40)),
    _scenario(20, 2, _shipped(40), _shipped(40)),
    _scenario(20, 2, _agent(1.1, 1.1, 40)),
    _scenario(40, 2, _agent(1.2, 1.1, 20), _agent(1.2, 1.1, 80)),
)


LONE_RATES_MBPS: Final = (5, 20, 30, 50, 100)
LONE_RTTS_MS: Final = (10, 30, 80)
LONE: Final = tuple(_scenario(rate, 4, _policy(rtt)) for rate in LONE_RATES_MBPS for rtt in LONE_RTTS_MS)
"""A policy that has the link alone."""


def in_world(scenario: Scenario, world: str) -> Scenario:
    """Return the scenario with what a world has in place of the kernel's TCP: ours, of the same kind."""
    if world == KERNEL:
        return scenario

    def of(flow: Flow) -> Flow:
        algorithm = COUNTERPARTS.get(flow.algorithm, flow.algorithm)
        policy = (flow.policy or str(KERNEL_REFERENCE)) if flow.algorithm == "policy" else None
        has_bursts = world == BURSTS and flow.transport == "kernel"
        parameters = {**flow.parameters, "burst_packets": 0.0} if has_bursts else flow.parameters
        return replace(flow, algorithm=algorithm, policy=policy, parameters=parameters, transport="ours")

    return replace(scenario, flows=tuple(of(flow) for flow in scenario.flows))


def run(scenario: Scenario, world: str, seed: int = 1, tries: int = TRIES) -> Trace:
    """Run a scenario in a world; a late run of real time is repeated, and the last of these tries counts."""
    given = in_world(scenario, world)
    if world not in (UDP, KERNEL):
        return simulate(given, "ns3" if world == NS3 else "native", seed)
    with contextlib.closing(LinuxEngine(MAX_LATENESS_MS, timeout_s=60, start_limit_s=60)) as engine:
        for _ in range(tries):
            trace = simulate(given, engine, seed)
            if trace.flaw is None:
                break
    return trace


def cost() -> list[str]:
    """Return what an ACK costs, in the programs alone, and what a bit costs the worker of an engine."""
    done = subprocess.run([sys.executable, "-m", "studies.kernel.cost"], capture_output=True, text=True, check=True)
    ns: dict[str, float] = json.loads(done.stdout)
    names = {
        "bbrgym_cubic": "the kernel's CUBIC",
        "bbrgym_bbr": "the kernel's BBR",
        "agent": "agent, gains from user space",
        "policy": "policy in the kernel, a decision per 100 ms",
        EVERY_ACK: "the same, a decision on every ACK",
    }
    per_ack = page.table(["through a BPF program", "ns per ACK"], [[names[it], f"{ns[it]:.0f}"] for it in names], (1,))
    algorithms = {
        "linux-cubic": Flow("linux-cubic", 20),
        "linux-bbr": Flow("linux-bbr", 20),
        "agent": Flow("agent", 20, transport="kernel"),
        "policy": _policy(20),
        "policy over UDP": replace(_policy(20), transport="ours", policy=str(KERNEL_REFERENCE)),
    }
    rows = []
    for name, flow in algorithms.items():
        with contextlib.closing(LinuxEngine(MAX_LATENESS_MS, timeout_s=60, start_limit_s=60)) as engine:
            engine.reset(Scenario(rate_mbps=100, buffer_bdp=1, duration_s=10, packet_bytes=1460, flows=(flow,)), 1)
            engine.step(1000)
            before, received = cpu_seconds_of(engine.pid), 0.0
            for _ in range(8):
                received += engine.step(1000).flow(0)["received_bytes"]
            rows.append([name, f"{(cpu_seconds_of(engine.pid) - before) / (received * 8e-9):.2f}"])
    per_bit = page.table(["100 Mbit/s, 20 ms", "s of a processor per Gbit"], rows, (1,))
    return [
        per_ack,
        f"A decision takes {(ns[EVERY_ACK] - ns['agent']) / 1e3:.1f} us, so ten per second are nothing of a processor. "
        "The whole worker, with the emulator that every packet passes twice:",
        per_bit,
    ]


def duel(path: Path) -> list[str]:
    """Return the figure of two flows of the policy in all four worlds."""
    traces = {world: run(DUEL, world) for world in (NATIVE, NS3, UDP, KERNEL)}
    plain = {world: replace(trace, scenario=in_world(DUEL, NATIVE)) for world, trace in traces.items()}
    figure = over_time(plain, ("throughput_mbps", "link_queue_mean_ms"), names=("first", "second"))
    rows = []
    for world, trace in traces.items():
        summary = trace.summary(after_s=10)
        rates = " / ".join(f"{flow.throughput_mbps:.1f}" for flow in summary.flows)
        flaw = trace.flaw or "-"
        rows.append([world, rates, f"{summary.link.jain:.3f}", f"{summary.link.queue_mean_ms:.1f}", flaw])
    link = page.write_figure(figure, path, "duel")
    return [
        f"![Throughput and queue of two flows, the second from 5 s on, in {', '.join(traces)}]({link})",
        page.table(["after 10 s", "Mbit/s", "Jain", "queue, ms", "flaw"], rows, (2, 3)),
    ]


class _Runs:
    """The runs of a scenario in a world, one per seed."""

    def __init__(self, scenario: Scenario, world: str, tries: int) -> None:
        traces = [run(scenario, world, seed, tries) for seed in SEEDS]
        self.shares = np.array([_shares(trace) for trace in traces])
        """In % of the link; shape (seeds, flows)."""
        self.queues_ms = np.array([_queue_ms(trace) for trace in traces])
        late = sum(trace.flaw is not None for trace in traces)
        self.late = f"{late} of {len(SEEDS)}" if late else "-"


def lone(show: Callable[[str], None], tries: int) -> list[str]:
    """Return what a policy has of a link of its own, in native with the kernel's bursts and in the kernel's TCP."""
    worlds = (BURSTS, KERNEL)
    rows = []
    least = []
    for scenario in LONE:
        runs = {world: _Runs(scenario, world, tries) for world in worlds}
        packet_ms = (scenario.packet_bytes + HEADER_BYTES) * 8e-3 / scenario.rate_mbps
        rows.append(
            [
                f"{scenario.rate_mbps:g}",
                f"{scenario.flows[0].rtt_ms:g}",
                *(_median_and_range(runs[world].shares[:, 0], 1) for world in worlds),
                *(_median_and_range(runs[world].queues_ms / packet_ms, 1) for world in worlds),
                runs[KERNEL].late,
            ]
        )
        least.append(np.median(runs[KERNEL].shares[:, 0]))
        show(" | ".join(rows[-1]))
    headings = [
        "Mbit/s",
        "RTT, ms",
        *(f"share, {world}, %" for world in worlds),
        *(f"queue, {world}, packets" for world in worlds),
        "late runs",
    ]
    return [
        f"A lone policy with a buffer of {LONE[0].buffer_bdp:g} BDP has at least {min(least):.1f} % of the link over "
        f"the kernel's TCP. Medians of {len(SEEDS)} runs, and their range:",
        page.table(headings, rows, (0, 1, 2, 3, 4, 5)),
    ]


def scenarios(show: Callable[[str], None], tries: int) -> list[str]:
    """Return the ten scenarios in native, without and with the kernel's bursts, and in the kernel's TCP."""
    worlds = (NATIVE, BURSTS, KERNEL)
    rows = []
    for scenario in SCENARIOS:
        runs = {world: _Runs(scenario, world, tries) for world in worlds}
        rows.append(
            [
                _describe(scenario),
                *(" / ".join(_median_and_range(flow, 0) for flow in runs[world].shares.T) for world in worlds),
                *(_median_and_range(runs[world].queues_ms, 1) for world in worlds),
                *(_missed(runs[KERNEL], runs[world]) for world in worlds[:2]),
                runs[KERNEL].late,
            ]
        )
        show(" | ".join(rows[-1]))
    close = [sum(row[column] == "-" for row in rows) for column in (7, 8)]
    headings = [
        "scenario",
        *(f"shares, {world}, %" for world in worlds),
        *(f"queue, {world}, ms" for world in worlds),
        *(f"misses {world}" for world in worlds[:2]),
        "late runs",
    ]
    return [
        f"In {close[0]} of {len(SCENARIOS)} scenarios the kernel's TCP has shares within {SHARE_POINTS:g} points of "
        f"native's, and a queue within {QUEUE_SHARE:.0%} of native's or within {QUEUE_MS:g} ms; in {close[1]}, of "
        f"native's with bursts as the kernel sends them. Medians of {len(SEEDS)} runs, and their range:",
        page.table(headings, rows, (4, 5, 6)),
    ]


def _describe(scenario: Scenario) -> str:
    loss = f", {scenario.loss:.0%} loss" if scenario.loss else ""

    def name(flow: Flow) -> str:
        if flow.algorithm == "agent":
            return f"agent with gains {flow.parameters['cwnd_gain']:g} and {flow.parameters['pacing_gain']:g}"
        return "shipped policy" if flow.policy else flow.algorithm

    flows = ", ".join(f"{name(flow)} {flow.rtt_ms:g} ms" for flow in scenario.flows)
    return f"{scenario.rate_mbps:g} Mbit/s, {scenario.buffer_bdp:g} BDP{loss}: {flows}"


def _shares(trace: Trace) -> np.ndarray:
    """Return what each flow has of the link's rate, in %."""
    summary = trace.summary(after_s=WARMUP * SECONDS)
    payload = trace.scenario.packet_bytes / (trace.scenario.packet_bytes + HEADER_BYTES)
    return np.array([100 * flow.throughput_mbps / (trace.scenario.rate_mbps * payload) for flow in summary.flows])


def _queue_ms(trace: Trace) -> float:
    return float(trace.summary(after_s=WARMUP * SECONDS).link.queue_mean_ms)


def _median_and_range(values: np.ndarray, digits: int) -> str:
    median, least, most = (f"{it:.{digits}f}" for it in (np.median(values), values.min(), values.max()))
    return median if least == most else f"{median} ({least} to {most})"


def _missed(runs: _Runs, to: _Runs) -> str:
    """Return what of one world's runs is not close to another's, by the medians."""
    queue, to_queue = np.median(runs.queues_ms), np.median(to.queues_ms)
    missed = {
        "shares": (np.abs(np.median(runs.shares, axis=0) - np.median(to.shares, axis=0)) > SHARE_POINTS).any(),
        "queue": abs(queue - to_queue) > max(QUEUE_SHARE * to_queue, QUEUE_MS),
    }
    return ", ".join(name for name, is_missed in missed.items() if is_missed) or "-"


_VICTIM: Final = """
from studies.kernel.__main__ import DUEL, LinuxEngine
engine = LinuxEngine(timeout_s=60, start_limit_s=60)
engine.reset(DUEL, 1)
print(engine.pid, flush=True)
engine.step(30_000)
"""


def kills() -> list[str]:
    """Kill engines, and in turn their workers, in the middle of an episode, and return what is left of them."""
    before = _left()
    for number in range(KILLS):
        command = [sys.executable, "-c", _VICTIM]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as parent:
            assert parent.stdout is not None
            worker = int(parent.stdout.readline())
            gone = os.pidfd_open(worker)
            os.kill(worker if number % 2 else parent.pid, signal.SIGKILL)
            parent.kill()
        select.select([gone], [], [])
        os.close(gone)
    return [f"After {KILLS} kills of an engine or its worker: {_left()} (before: {before})."]


def _left() -> str:
    """Return what the kernel has of such programs, in words, when it has had the time to free them."""
    time.sleep(10.0)
    counts = {}
    for kind, command in {
        "congestion controls": "cat /proc/sys/net/ipv4/tcp_available_congestion_control | tr ' ' '\n' | grep ^bbrgym_",
        "struct_ops": "bpftool struct_ops list",
        "links": "bpftool link list | grep struct_ops",
        "maps": "bpftool map list | grep -E 'name (agent|inputs|policies|states) '",
        "programs": "bpftool prog list | grep -E ' (agent|pass)_'",
        "network namespaces": "lsns -t net -n",
    }.items():
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
        counts[kind] = len(done.stdout.splitlines())
    return ", ".join(f"{count} {kind}" for kind, count in counts.items())


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and write the page with --write."""
    made = blocks.parser(__doc__, f"{MARK} cost")
    parts = ("cost", "duel", "lone", "scenarios", "kills")
    made.add_argument("--only", choices=parts)
    made.add_argument("--tries", type=int, choices=range(1, TRIES + 1), default=TRIES, help="of a run that is late")
    chosen = made.parse_args(arguments)
    reason = bpf.missing()
    if reason is None and chosen.only in (None, "cost") and shutil.which("bpftool") is None:
        reason = "the cost of an ACK needs bpftool: apt-get install bpftool"
    if reason:
        print(f"Nothing is measured: {reason}", file=sys.stderr)
        return 1
    path = chosen.write or Path("docs/kernel.md")

    def show(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    measure: dict[str, Callable[[], list[str]]] = {
        "cost": cost,
        "duel": lambda: duel(path),
        "lone": lambda: lone(show, chosen.tries),
        "scenarios": lambda: scenarios(show, chosen.tries),
        "kills": kills,
    }
    for part in parts if chosen.only is None else (chosen.only,):
        blocks.publish("\n\n".join(measure[part]()), f"{MARK} {part}", chosen.write)
    return 0


if __name__ == "__main__":
    sys.exit(run_program("kernel", main))
