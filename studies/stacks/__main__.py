"""Measure the stacks that are installed here across the Linux engine's bottleneck (docs/stacks.md).

Each stack runs alone and beside the kernel's CUBIC, for a few seconds of real time each. The table has what crossed the
link, as the emulator measured it. A run that the engine's rules call late is repeated once, and then says so.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bbrgym.baselines.registry import LINUX_PREFIX, linux_controls
from bbrgym.envs.engine import EngineError
from bbrgym.envs.linux.engine import LinuxEngine
from bbrgym.envs.linux.qlog import add_qlog, find_qlog, read_qlog
from bbrgym.envs.scenario import Flow, Scenario
from bbrgym.envs.trace import Trace, simulate
from bbrgym.output import run_program
from studies import blocks, page

MARK: Final = "studies.stacks"
RATE_MBPS: Final = 10.0
RTT_MS: Final = 40.0
SECONDS: Final = 10.0
AFTER_S: Final = 3.0
"""Start-up, which is measured no more: of an interpreter, of TLS, and slow start."""
MAX_LATENESS_MS: Final = 5.0
"""An eighth of the RTT."""
TRIES: Final = 2
BUFFER_BDP: Final = 2.0
LOG: Final = "aioquic.qlog"
HEADS: Final = (
    "stack",
    "Mbit/s",
    "link used",
    "queue, ms",
    "lost",
    "resent",
    "beside cubic, Mbit/s",
    "Jain",
    "took, s",
    "flaw",
)


@dataclass(frozen=True)
class Stack:
    """One stack with one congestion control.

    Attributes:
        name: what the table calls it.
        flow: its flow.
        has_log: whether it writes qlog into the folder that `stacks` was given.
    """

    name: str
    flow: Flow
    has_log: bool = False


def stacks(folder: Path) -> list[Stack]:
    """Return the stacks that are installed here."""
    found = [Stack("bbrgym over UDP, cubic", Flow("cubic", RTT_MS))]
    controls = [name for name in ("cubic", "reno", "bbr") if name in linux_controls()]
    found += [Stack(f"kernel TCP, {name}", Flow(f"{LINUX_PREFIX}{name}", RTT_MS)) for name in controls]
    if iperf3 := shutil.which("iperf3"):
        found += [Stack(f"iperf3 (kernel TCP), {name}", _iperf3(iperf3, name)) for name in controls]
    if importlib.util.find_spec("aioquic"):
        found += [Stack(f"aioquic, {name}", aioquic(name, folder), has_log=True) for name in ("cubic", "reno")]
    # Debian's servers are in /usr/sbin.
    client, server = (shutil.which(name) or shutil.which(f"/usr/sbin/{name}") for name in ("gtlsclient", "gtlsserver"))
    openssl = shutil.which("openssl")
    if client and server and openssl:
        _certify(openssl, folder)
        names = ("cubic", "reno", "bbr")
        found += [Stack(f"ngtcp2, {name}", _ngtcp2(client, server, name, folder), has_log=True) for name in names]
    return found


def aioquic(control: str, folder: Path, rtt_ms: float = RTT_MS) -> Flow:
    """Return a flow of aioquic, whose client sends and writes `LOG` into the folder."""
    module = (sys.executable, "-m", "studies.stacks.aioquic_bulk")
    return Flow(
        "command",
        rtt_ms,
        server=(*module, "server", "{address}", "{port}"),
        client=(*module, "client", "{address}", "{port}", "{seconds}", control, str(folder / LOG)),
    )


def measure(stack: Stack, rival: Flow | None, logs: Path) -> tuple[Trace, float]:
    """Run a stack, alone or beside a rival, and return the least late run, and how long all runs took, in s."""
    flows = (stack.flow,) if rival is None else (stack.flow, rival)
    scenario = Scenario(rate_mbps=RATE_MBPS, buffer_bdp=BUFFER_BDP, duration_s=SECONDS, packet_bytes=1460, flows=flows)
    began = time.monotonic()
    best: Trace | None = None
    for _ in range(TRIES):
        with contextlib.closing(LinuxEngine(max_lateness_ms=MAX_LATENESS_MS, timeout_s=30)) as engine:
            trace = simulate(scenario, engine, step_ms=100)
        if stack.has_log:
            with contextlib.suppress(FileNotFoundError):
                trace = add_qlog(trace, 0, read_qlog(find_qlog(logs)))
        for path in logs.glob("*.*qlog"):
            path.unlink()
        if best is None or trace.timing["late_p999_ms"] < best.timing["late_p999_ms"]:
            best = trace
        if best.flaw is None:
            break
    assert best is not None
    return best, time.monotonic() - began


def row(stack: Stack, logs: Path) -> list[str]:
    """Measure a stack and return its row of the table."""
    try:
        alone, alone_took_s = measure(stack, None, logs)
        beside, beside_took_s = measure(stack, Flow(f"{LINUX_PREFIX}cubic", RTT_MS), logs)
    except (EngineError, ValueError) as error:
        return [stack.name, page.cell(f"failed: {error}"), *[""] * (len(HEADS) - 2)]
    summary, shared = alone.summary(after_s=AFTER_S), beside.summary(after_s=AFTER_S)
    flow = summary.flows[0]
    rates = [each.throughput_mbps for each in shared.flows]
    flaws = [
        f"{name}: {trace.timing['late_p999_ms']:.1f} ms late" + _missed(trace)
        for name, trace in (("alone", alone), ("beside", beside))
        if trace.flaw is not None
    ]
    return [
        stack.name,
        f"{flow.throughput_mbps:.2f}",
        f"{summary.link.utilisation:.0%}",
        f"{summary.link.queue_mean_ms:.1f}",
        _share(flow.loss_rate),
        _share(flow.retransmission_rate),
        f"{rates[0]:.2f} / {rates[1]:.2f}",
        f"{shared.link.jain:.2f}",
        f"{alone_took_s + beside_took_s:.0f}",
        "; ".join(flaws) or "-",
    ]


def table(rows: Iterable[list[str]], took_s: float) -> str:
    """Return the block of the page."""
    scenario = (
        f"{RATE_MBPS:g} Mbit/s, RTT {RTT_MS:g} ms, droptail buffer of {BUFFER_BDP:g} BDP, {SECONDS:g} s of which the "
        f"first {AFTER_S:g} are not counted; one run each. All of it took {page.duration(took_s)}."
    )
    return f"{page.table(HEADS, list(rows))}\n\n{scenario}"


def main() -> int:
    """Measure, print the table and write it into a page; return the exit status."""
    arguments = blocks.parser(__doc__, MARK)
    arguments.add_argument("--only", default="", metavar="TEXT", help="measure only stacks with this in their name")
    given = arguments.parse_args()
    began = time.monotonic()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for stack in stacks(Path(folder)):
            if given.only in stack.name:
                rows.append(row(stack, Path(folder)))
                print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    blocks.publish(table(rows, time.monotonic() - began), MARK, given.write)
    return 0


def _share(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2%}"


def _missed(trace: Trace) -> str:
    return f", {missed:.0f} steps missed" if (missed := trace.timing["missed_steps"]) else ""


def _iperf3(program: str, control: str) -> Flow:
    client = (program, "-c", "{address}", "-p", "{port}", "-t", "{seconds}", "-C", control)
    return Flow("command", RTT_MS, server=(program, "-s", "-1", "-p", "{port}"), client=client)


def _ngtcp2(client: str, server: str, control: str, folder: Path) -> Flow:
    keys = (str(folder / "key.pem"), str(folder / "certificate.pem"))
    return Flow(
        "command",
        RTT_MS,
        server=(server, "-q", f"--cc={control}", f"--qlog-dir={folder}", "{address}", "{port}", *keys),
        client=(client, "-q", "{address}", "{port}", "https://{address}:{port}/20000000"),
        data_from="server",
    )


def _certify(openssl: str, folder: Path) -> None:
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1"]
    command += ["-subj", "/CN=localhost", "-keyout", str(folder / "key.pem"), "-out", str(folder / "certificate.pem")]
    subprocess.run(command, check=True, capture_output=True)


if __name__ == "__main__":
    sys.exit(run_program("stacks", main))
