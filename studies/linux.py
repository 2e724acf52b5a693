"""Compare native with a real Linux kernel: `python -m studies.linux [--measure] [--write docs/results/fidelity.md]`.

The situations are those of studies/fidelity.py, and one of them with a bottleneck that sleeps now and then. The runs
of Linux are in studies/linux.json. `--measure` measures them again on this machine (as root: two network namespaces
with studies/linux_bottleneck.cc between them), one run at a time, and repeats runs whose bottleneck was late. Native is
always simulated anew.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.progress import track

from bbrgym.envs.scenario import HEADER_BYTES
from bbrgym.files import write_text
from bbrgym.interruption import run_interruptible
from studies import page
from studies.fidelity import LINUX, OFFLOAD, SEEDS, Situation, Variant, cell, difference
from studies.fidelity import measure as simulate

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCE: Final = ROOT / "studies" / "linux_bottleneck.cc"
PROGRAM: Final = ROOT / "build" / "linux_bottleneck"
MEASURED: Final = ROOT / "studies" / "linux.json"
TUN: Final = Path("/dev/net/tun")
SETTINGS: Final = Path("/proc/sys/net")
STATUS: Final = Path("/proc/self/status")
MARK: Final = "studies/linux.py"

TOO_LATE_MS: Final = 25.0
MOST_REPEATS: Final = 5

Run = dict[str, Any]
"""The output of the program for one run, with the kernel's release reduced to its numbers."""


WITH_BURSTS: Final = Variant("`burst_packets: 0`", parameters=OFFLOAD)


@dataclass(frozen=True)
class Case:
    """A measurement of Linux, how often it is repeated, and the variant of native beside it."""

    situation: Situation
    runs: int
    pause: tuple[float, float] | None = None
    """How long the bottleneck sleeps, and the mean time from one sleep to the next, in ms."""
    native: Variant = WITH_BURSTS

    @property
    def name(self) -> str:
        """A unique name."""
        return self.situation.name + (f", pauses of {self.pause[0]:g} ms" if self.pause else "")

    def arguments(self) -> list[str]:
        """Return the arguments of the program."""
        scenario = self.situation.scenario(Variant(""))
        options = [f"--packet-bytes={scenario.packet_bytes}"]
        if self.pause:
            options += [f"--pause-ms={self.pause[0]:g}", f"--pause-every-ms={self.pause[1]:g}"]
        flows = [f"{kind}:{rtt_ms:g}" for kind, rtt_ms in self.situation.flows]
        numbers = (scenario.rate_mbps, scenario.queue_packets, scenario.duration_s)
        return [*options, *(f"{number:g}" for number in numbers), *flows]


# Runs against CUBIC vary more, so there are more of them. A pausing link of native keeps its queue, while the queue of
# the sleeping program drains: pauses of 50 ms twice a second leave about as much of the link unused.
CASES: Final = (
    *(Case(situation, 5 if "cubic" in dict(situation.flows) else 3) for situation in LINUX),
    Case(
        next(s for s in LINUX if (s.rate_mbps, s.buffer_bdp) == (12, 1)),
        runs=3,
        pause=(100.0, 500.0),
        native=replace(WITH_BURSTS, name=f"{WITH_BURSTS.name}, pauses of 50 ms", pause_ms=50.0),
    ),
)


def missing() -> list[str]:
    """Return what measuring needs and this machine or user lacks."""
    known = SETTINGS / "ipv4" / "tcp_available_congestion_control"
    has = known.read_text().split() if known.exists() else []
    discipline = SETTINGS / "core" / "default_qdisc"
    needs = {
        "root, for network namespaces and devices in them": _has_capabilities(),
        f"{TUN}": TUN.exists(),
        "g++": shutil.which("g++") is not None,
        "a net.core.default_qdisc other than fq, which paces CUBIC": not discipline.exists()
        or discipline.read_text().strip() != "fq",
        **{f"{kind} in the kernel (modprobe tcp_{kind})": kind in has for kind in ("bbr", "cubic")},
    }
    return [need for need, is_met in needs.items() if not is_met]


def _has_capabilities() -> bool:
    """Return whether the process has CAP_NET_ADMIN and CAP_SYS_ADMIN, which a container may lack."""
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", STATUS.read_text(), re.MULTILINE) if STATUS.exists() else None
    return found is not None and all(int(found[1], 16) >> capability & 1 for capability in (12, 21))


def build() -> None:
    """Compile the bottleneck, unless it is newer than its source."""
    if PROGRAM.exists() and PROGRAM.stat().st_mtime > SOURCE.stat().st_mtime:
        return
    PROGRAM.parent.mkdir(exist_ok=True)
    subprocess.run(
        ["g++", "-std=c++20", "-O2", "-Wall", "-Wextra", "-pthread", "-o", PROGRAM, SOURCE], check=True, cwd=ROOT
    )


def run_once(case: Case) -> Run:
    """Measure 40 or 60 s of Linux.

    Raises:
        RuntimeError: the program failed, with its message.
    """
    done = subprocess.run(
        [PROGRAM, *case.arguments()], capture_output=True, text=True, timeout=case.situation.duration_s + 60
    )
    if done.returncode != 0:
        raise RuntimeError(f"{case.name}: {done.stderr.strip() or f'ended with {done.returncode}'}")
    run: Run = json.loads(done.stdout)
    return {**run, "kernel": re.sub(r"[^\d.].*", "", run["kernel"])}  # without a distribution's suffix


def measure(console: Console) -> dict[str, list[Run]]:
    """Measure Linux in all cases in turn, by name.

    Runs in which a packet left the bottleneck more than `TOO_LATE_MS` late are repeated once, the latest first and at
    most `MOST_REPEATS` of them. The more punctual of the two counts.
    """
    build()
    turns = [case for i in range(max(case.runs for case in CASES)) for case in CASES if i < case.runs]
    measured: dict[str, list[Run]] = {case.name: [] for case in CASES}

    def run(case: Case) -> Run:
        done = run_once(case)
        console.print(f"{case.name}: {json.dumps(done)}", soft_wrap=True, highlight=False)
        return done

    for case in track(turns, "runs of Linux", console=console):
        measured[case.name].append(run(case))
    late = [(r["late_worst_ms"], case, i) for case in CASES for i, r in enumerate(measured[case.name])]
    late = sorted((one for one in late if one[0] > TOO_LATE_MS), key=lambda one: -one[0])[:MOST_REPEATS]
    for _, case, i in track(late, "late ones", console=console):
        measured[case.name][i] = min(measured[case.name][i], run(case), key=lambda r: r["late_worst_ms"])
    return measured


def table(measured: dict[str, list[Run]]) -> str:
    """Return a table of Linux, native, and native relative to Linux in every case."""
    runs = [run for case in CASES for run in measured[case.name]]
    (kernel,) = {run["kernel"] for run in runs}
    headings = ["situation", "", "runs", "first flow, Mbit/s", "second flow, Mbit/s", "queue, ms", "retransmissions",
                "link unused"]  # fmt: skip
    rows = []
    for case in CASES:
        linux = [_figures(run) for run in measured[case.name]]
        native = [_native_figures(case, seed) for seed in SEEDS]
        rows += [
            _row(case.name, f"Linux {kernel}", linux),
            _row("", f"native, {case.native.name}", native),
            _difference_row(linux, native),
        ]
    means = [run["late_mean_ms"] for run in runs]
    worst = [run["late_worst_ms"] for run in runs]
    return (
        f"{page.table(headings, rows, range(2, 8))}\n\n"
        f"Packets left the bottleneck {min(means):.2f} to {max(means):.2f} ms late on average in a run, and at most "
        f"{max(worst):.0f} ms late (median over the runs: {np.median(worst):.0f} ms)."
    )


Figures = tuple[float, float, float, float, float]
"""Mbit/s of both flows, mean queue in ms, retransmissions, unused fraction of the link."""


def _figures(run: Run) -> Figures:
    first, second = run["flows"]
    retransmissions = first["retransmissions"] + second["retransmissions"]
    return (first["mbps"], second["mbps"], run["queue_ms"], retransmissions, run["unused"])


def _native_figures(case: Case, seed: int) -> Figures:
    first, second, queue_ms, retransmissions = simulate(case.situation, case.native, "native", seed)
    packet_bytes = case.situation.scenario(case.native).packet_bytes
    carried_mbps = (first + second) * (packet_bytes + HEADER_BYTES) / packet_bytes  # retransmissions are few
    return (first, second, queue_ms, retransmissions, max(0.0, 1 - carried_mbps / case.situation.rate_mbps))


def _row(name: str, what: str, runs: Sequence[Sequence[float]]) -> list[str]:
    mbps_a, mbps_b, queue_ms, retransmissions, unused = zip(*runs, strict=True)
    cells = [cell(mbps_a, 1), cell(mbps_b, 1), cell(queue_ms, 0), cell(retransmissions, 0)]
    cells.append(cell([100 * share for share in unused], 1) + " %")
    return [name, what, str(len(runs)), *cells]


def _difference_row(linux: Sequence[Sequence[float]], native: Sequence[Sequence[float]]) -> list[str]:
    # Not of the unused fractions, which are small differences themselves.
    cells = map(difference, np.mean(native, axis=0)[:4], np.mean(linux, axis=0)[:4])
    return ["", "native relative to Linux", "", *cells, ""]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; with --measure, from new runs of Linux; with --write, write it into the page."""
    parser = page.parser(__doc__, MARK)
    parser.add_argument("--measure", action="store_true", help="measure Linux (as root, 25 minutes) and keep the runs")
    chosen = parser.parse_args(arguments)
    console = Console(stderr=True)
    if chosen.measure:
        if needs := missing():
            console.print("Linux cannot be measured here. It needs " + "; ".join(needs) + ".", soft_wrap=True)
            return 1
        try:
            measured = measure(console)
        except RuntimeError as error:
            console.print(f"Linux was not measured: {error}", soft_wrap=True, markup=False)
            return 1
        write_text(MEASURED, _json(measured))
    else:
        measured = json.loads(MEASURED.read_text())
    text = table(measured)
    page.publish(text, MARK, chosen.write)
    return 0


def _json(measured: dict[str, list[Run]]) -> str:
    """Return JSON with one run per line."""
    of_case = (
        f"{json.dumps(name)}: [\n" + ",\n".join(map(json.dumps, runs)) + "\n]" for name, runs in measured.items()
    )
    return "{\n" + ",\n".join(of_case) + "\n}\n"


if __name__ == "__main__":
    sys.exit(run_interruptible("linux", main))
