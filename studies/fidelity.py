"""How near `bbr` is to Linux's, in ns-3 and in native: `python studies/fidelity.py [--write FILE]`.

The situations are those for which real Linux was measured (`LINUX`). Every figure is a mean over the seeds, of the
second half of each run. A last table has native's over Linux's.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track

import bbrgym
from bbrgym import Flow, Scenario
from bbrgym.baselines.registry import COMPARATORS
from bbrgym.benchmark.storage import write_block
from bbrgym.envs.scenario import HEADER_BYTES

BEGIN, END = "<!-- begin: studies/fidelity.py -->", "<!-- end: studies/fidelity.py -->"
SEEDS = (1, 2, 3, 4, 5)
ENGINES = {"ns3": "ns-3", "native": "native"}

PAPERS_KERNEL = {"pacing_margin": 0.0, "extra_acked_gain": 0.0}
OFFLOAD = {"burst_packets": 0.0}


@dataclass(frozen=True)
class Variant:
    """What runs in place of Linux's `bbr` and `cubic`."""

    name: str
    bbr: str = "bbr"
    cubic: str = "cubic"
    parameters: tuple[tuple[str, float], ...] = ()
    cubic_parameters: tuple[tuple[str, float], ...] = ()
    jitter_ms: float = 0.0
    pause_ms: float = 0.0  # twice a second the link stands still for so long

    def engines(self) -> list[str]:
        """Those that have its algorithms; what else may differ from Linux is asked of native alone."""
        if self.jitter_ms or self.pause_ms or self.cubic_parameters:
            return ["native"]
        return ["ns3"] if {self.bbr, self.cubic} & set(COMPARATORS) else list(ENGINES)


VARIANTS = (
    Variant("`bbr`"),
    Variant("`bbr`, bursts as with segmentation offload", parameters=tuple(OFFLOAD.items())),
    Variant("`bbr`, such bursts, ACKs up to 0.3 ms late", parameters=tuple(OFFLOAD.items()), jitter_ms=0.3),
    Variant("`bbr`, as in the papers' kernel", parameters=tuple(PAPERS_KERNEL.items())),
    Variant("`bbr`, no pacing margin", parameters=(("pacing_margin", 0.0),)),
    Variant("`bbr`, long-term sampling", parameters=(("long_term_sampling", 1.0),)),
    Variant("`bbr`, link that pauses for 60 ms twice a second", pause_ms=60.0),
    Variant("`bbr` against CUBIC that is paced", cubic_parameters=(("is_paced", 1.0),)),
    Variant("`bbr` against ns-3's CUBIC", cubic="cubic-stock"),
    Variant("`bbr-stock`", bbr="bbr-stock", cubic="cubic-stock"),
)


@dataclass(frozen=True)
class Situation:
    """Two flows for which real Linux was measured: Mbit/s of each, and the standing queue in ms where it is known."""

    rate_mbps: float
    buffer_bdp: float
    duration_s: float
    flows: tuple[tuple[str, float], tuple[str, float]]
    linux_mbps: tuple[float, float]
    linux_queue_ms: float | None
    linux_retransmissions: int | None

    @property
    def name(self) -> str:
        """Of the bottleneck."""
        return f"{self.rate_mbps:g} Mbit/s, {self.buffer_bdp:g} BDP"

    def scenario(self, variant: Variant) -> Scenario:
        """With the variant's algorithms."""
        of_kind = {
            "bbr": Flow(variant.bbr, parameters=dict(variant.parameters), jitter_ms=variant.jitter_ms),
            "cubic": Flow(variant.cubic, parameters=dict(variant.cubic_parameters), jitter_ms=variant.jitter_ms),
        }
        flows = tuple(replace(of_kind[kind], rtt_ms=rtt_ms) for kind, rtt_ms in self.flows)
        scenario = Scenario(
            rate_mbps=self.rate_mbps, buffer_bdp=self.buffer_bdp, duration_s=self.duration_s, flows=flows
        )
        return replace(scenario, rate_schedule=_pauses(scenario, variant.pause_ms))

    def has(self, variant: Variant) -> bool:
        """Whether the variant differs here from `bbr`."""
        is_only_of_cubic = replace(variant, name="", cubic="cubic", cubic_parameters=()) == Variant("")
        is_plain = variant == Variant(variant.name)
        return is_plain or not is_only_of_cubic or any(kind == "cubic" for kind, _ in self.flows)


def _pauses(scenario: Scenario, pause_ms: float) -> tuple[tuple[float, float], ...]:
    """A schedule with which a packet takes so long, once every half second."""
    if not pause_ms:
        return ()
    pause_s = pause_ms / 1000
    slow_mbps = 8e-6 * (scenario.packet_bytes + HEADER_BYTES) / pause_s
    changes = []
    for time_s in np.arange(0.5, scenario.duration_s, 0.5).tolist():
        # Back to full rate before the packet ends, so that it alone is slow.
        changes += [(time_s, slow_mbps), (time_s + pause_s / 2, scenario.rate_mbps)]
    return tuple(changes)


RTTS = (("bbr", 10.0), ("bbr", 50.0))
RIVALS = (("bbr", 60.0), ("cubic", 60.0))
LINUX = (
    Situation(100, 5, 40, RTTS, (6.8, 85.9), 34, 0),
    Situation(100, 1, 40, RTTS, (5.8, 86.4), 30, 2762),
    Situation(20, 5, 60, RTTS, (1.9, 16.8), 54, None),
    Situation(12, 1, 60, RIVALS, (9.3, 0.5), None, None),
    Situation(12, 4, 60, RIVALS, (4.2, 7.1), None, None),
)
"""Linux 6.18 TCP through a user-space bottleneck on one machine: 1000-byte packets, second half, one run each, whose
shares repeat within about 15 % of the smaller flow and its queue within 10 %."""


def measure(situation: Situation, variant: Variant, engine: str, seed: int) -> tuple[float, float, float, float]:
    """Mbit/s of both flows and the mean queue in ms of the second half, and the run's retransmissions.

    NaN for the queue of a link that pauses: its delay is counted at the rate of the moment.
    """
    trace = bbrgym.simulate(situation.scenario(variant), engine, seed)
    half = trace.summary(after_s=situation.duration_s / 2)
    retransmissions = sum(flow.retransmissions for flow in trace.summary().flows)
    queue_ms = np.nan if variant.pause_ms else half.link.queue_mean_ms
    return (half.flows[0].throughput_mbps, half.flows[1].throughput_mbps, queue_ms, retransmissions)


def tables(console: Console) -> Iterator[str]:
    """One Markdown table a situation, as they are done, and one of all with native beside Linux."""
    beside_linux = ["### Native beside Linux\n", BESIDE_LINUX, "|---|---|---|---|---|---|"]
    with ThreadPoolExecutor(2) as pool:  # ns-3 runs in processes of its own, and native without Python's lock
        for situation in track(LINUX, "situations", console=console):
            variants = [(v, engine) for v in VARIANTS if situation.has(v) for engine in v.engines()]
            futures = {(v, e, s): pool.submit(measure, situation, v, e, s) for v, e in variants for s in SEEDS}
            (kind_a, rtt_a), (kind_b, rtt_b) = situation.flows
            lines = [
                f"### {situation.name}: {kind_a} {rtt_a:g} ms and {kind_b} {rtt_b:g} ms\n",
                f"| | engine | {kind_a} {rtt_a:g} ms, Mbit/s | {kind_b} {rtt_b:g} ms, Mbit/s | share of the first "
                "| queue, ms | retransmissions |",
                "|---|---|---|---|---|---|---|",
                _row(
                    "Linux 6.18",
                    "-",
                    [(*situation.linux_mbps, situation.linux_queue_ms, situation.linux_retransmissions)],
                ),
            ]
            lines += [_row(v.name, ENGINES[e], [futures[v, e, s].result() for s in SEEDS]) for v, e in variants]
            yield "\n".join(lines) + "\n"
            setting = f"{situation.name}, {kind_a} and {kind_b}"
            beside_linux += [
                _difference_row(setting, v.name, situation, [futures[v, e, s].result() for s in SEEDS])
                for v, e in variants
                if e == "native"
            ]
    yield "\n".join(beside_linux) + "\n"


BESIDE_LINUX = "| | | first flow | second flow | queue | retransmissions |"


def _difference_row(
    setting: str, name: str, situation: Situation, runs: list[tuple[float, float, float, float]]
) -> str:
    linux = (*situation.linux_mbps, situation.linux_queue_ms, situation.linux_retransmissions)
    cells = [difference(ours, theirs) for ours, theirs in zip(np.mean(runs, axis=0), linux, strict=True)]
    return f"| {setting} | {name} | " + " | ".join(cells) + " |"


def _row(name: str, engine: str, runs: list[tuple[float, float, float | None, float | None]]) -> str:
    share = [100 * first / (first + second) for first, second, _, _ in runs]
    cells = [cell([run[0] for run in runs], 1), cell([run[1] for run in runs], 1), cell([*share], 1) + " %"]
    cells += [cell([run[2] for run in runs], 0), cell([run[3] for run in runs], 0)]
    return f"| {name} | {engine} | " + " | ".join(cells) + " |"


def difference(ours: float, theirs: float | None) -> str:
    """Of ours from theirs in per cent of theirs, or a dash where there is none."""
    if theirs is None or np.isnan(ours) or (not theirs and ours):
        return "-"
    return f"{100 * (ours / theirs - 1) if theirs else 0.0:+.0f} %"


def cell(values: Sequence[float | None], digits: int) -> str:
    """Mean (smallest to largest) of those that are known, or a dash."""
    known = [value for value in values if value is not None and not np.isnan(value)]
    if not known:
        return "-"
    mean = f"{np.mean(known):,.{digits}f}"
    return mean if len(known) == 1 else f"{mean} ({min(known):,.{digits}f} to {max(known):,.{digits}f})"


def main() -> int:
    """Run everything and print it; with --write, put the tables between the marks of a document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, metavar="FILE", help="document to put the tables into")
    document: Path | None = parser.parse_args().write
    if document is not None and not (
        document.exists() and BEGIN in document.read_text() and END in document.read_text()
    ):
        parser.error(f"{document} has no lines {BEGIN} and {END} to write between")
    console, started = Console(stderr=True), time.monotonic()
    done = []
    for table in tables(console):
        done.append(table)
        print(table, flush=True)
    console.print(f"{time.monotonic() - started:.0f} s")
    if document is not None:
        write_block(document, "\n" + "\n".join(done), BEGIN, END)
    return 0


if __name__ == "__main__":
    sys.exit(main())
