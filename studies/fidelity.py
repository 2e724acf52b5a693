"""Compare `bbr` in ns-3 and in native with Linux: `python -m studies.fidelity [--write docs/results/fidelity.md]`.

The situations are those in which real Linux was measured (`LINUX`). Values are means over the seeds, of the second half
of each run. A second table compares variants of `bbr` in native with Linux, to find the cause of a difference.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
from rich.console import Console
from rich.progress import track

import bbrgym
from bbrgym import Flow, Scenario
from bbrgym.baselines.registry import COMPARATORS
from bbrgym.envs.scenario import HEADER_BYTES
from bbrgym.interruption import run_interruptible
from studies import page

MARK = "studies/fidelity.py"
SEEDS = (1, 2, 3, 4, 5)
ENGINES = {"ns3": "ns-3", "native": "native"}

PAPERS_KERNEL = (("pacing_margin", 0.0), ("extra_acked_gain", 0.0))
OFFLOAD = (("burst_packets", 0.0),)


@dataclass(frozen=True)
class Variant:
    """The algorithms that stand for Linux's `bbr` and `cubic`."""

    name: str
    bbr: str = "bbr"
    cubic: str = "cubic"
    parameters: tuple[tuple[str, float], ...] = ()
    cubic_parameters: tuple[tuple[str, float], ...] = ()
    jitter_ms: float = 0.0
    pause_ms: float = 0.0  # how long the link stands still, twice a second

    def engines(self) -> list[str]:
        """Return where it runs: `bbr` in both engines, ns-3's own in ns-3, and other variants in native."""
        if self == Variant(self.name):
            return list(ENGINES)
        return ["ns3"] if {self.bbr, self.cubic} & set(COMPARATORS) else ["native"]


VARIANTS = (
    Variant("`bbr`"),
    Variant("`bbr`, bursts as with segmentation offload", parameters=OFFLOAD),
    Variant("`bbr`, such bursts, ACKs up to 0.3 ms late", parameters=OFFLOAD, jitter_ms=0.3),
    Variant("`bbr`, as in the papers' kernel", parameters=PAPERS_KERNEL),
    Variant("`bbr`, no pacing margin", parameters=(("pacing_margin", 0.0),)),
    Variant("`bbr`, long-term sampling", parameters=(("long_term_sampling", 1.0),)),
    Variant("`bbr`, link that pauses for 60 ms twice a second", pause_ms=60.0),
    Variant("`bbr` against CUBIC that is paced", cubic_parameters=(("is_paced", 1.0),)),
    Variant("`bbr-stock`", bbr="bbr-stock", cubic="cubic-stock"),
)


@dataclass(frozen=True)
class Situation:
    """Two flows for which real Linux was measured: Mbit/s of each, and the standing queue in ms if it is known."""

    rate_mbps: float
    buffer_bdp: float
    duration_s: float
    flows: tuple[tuple[str, float], tuple[str, float]]
    linux_mbps: tuple[float, float]
    linux_queue_ms: float | None
    linux_retransmissions: int | None

    @property
    def name(self) -> str:
        """The bottleneck and the flows."""
        (kind_a, rtt_a), (kind_b, rtt_b) = self.flows
        return f"{self.rate_mbps:g} Mbit/s, {self.buffer_bdp:g} BDP, {kind_a} {rtt_a:g} ms and {kind_b} {rtt_b:g} ms"

    def scenario(self, variant: Variant) -> Scenario:
        """Return the scenario with the variant's algorithms."""
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
        """Return whether the variant differs from `bbr` in this situation."""
        is_only_of_cubic = replace(variant, name="", cubic="cubic", cubic_parameters=()) == Variant("")
        is_plain = variant == Variant(variant.name)
        return is_plain or not is_only_of_cubic or any(kind == "cubic" for kind, _ in self.flows)


def _pauses(scenario: Scenario, pause_ms: float) -> tuple[tuple[float, float], ...]:
    """Return a schedule in which one packet takes this long, every half second."""
    if not pause_ms:
        return ()
    pause_s = pause_ms / 1000
    slow_mbps = 8e-6 * (scenario.packet_bytes + HEADER_BYTES) / pause_s
    changes = []
    for time_s in np.arange(0.5, scenario.duration_s, 0.5).tolist():
        # The full rate returns before the packet ends, so that no other packet is slow.
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
"""Linux 6.18 TCP through a user-space bottleneck on one machine: 1000-byte packets, second half, one run each. Repeated
runs vary by about 15 % in the smaller flow and by 10 % in the queue."""


def measure(situation: Situation, variant: Variant, engine: str, seed: int) -> tuple[float, float, float, float]:
    """Return Mbit/s of both flows and the mean queue in ms of the second half, and the run's retransmissions.

    The queue of a link that pauses is NaN: its delay is computed from the current rate.
    """
    trace = bbrgym.simulate(situation.scenario(variant), engine, seed)
    half = trace.summary(after_s=situation.duration_s / 2)
    retransmissions = sum(flow.retransmissions for flow in trace.summary().flows)
    queue_ms = np.nan if variant.pause_ms else half.link.queue_mean_ms
    return (half.flows[0].throughput_mbps, half.flows[1].throughput_mbps, queue_ms, retransmissions)


def tables(console: Console) -> str:
    """Return a table of `bbr` in both engines beside Linux, and one of all variants in native over Linux."""
    beside: list[list[str]] = []
    over_linux: list[list[str]] = []
    with ThreadPoolExecutor(2) as pool:  # ns-3 has its own processes, and native releases Python's lock
        for situation in track(LINUX, "situations", console=console):
            variants = [(v, engine) for v in VARIANTS if situation.has(v) for engine in v.engines()]
            futures = {(v, e, s): pool.submit(measure, situation, v, e, s) for v, e in variants for s in SEEDS}
            linux = (*situation.linux_mbps, situation.linux_queue_ms, situation.linux_retransmissions)
            beside.append([situation.name, "Linux 6.18", *_cells([linux])])
            for variant, engine in variants:
                runs = [futures[variant, engine, seed].result() for seed in SEEDS]
                if engine == "ns3" or variant == VARIANTS[0]:
                    beside.append(["", f"{variant.name}, {ENGINES[engine]}", *_cells(runs)])
                if engine == "native":
                    cells = map(difference, np.mean(runs, axis=0), linux)
                    over_linux.append([situation.name, variant.name, *cells])
    units = ["first flow, Mbit/s", "second flow, Mbit/s", "share of the first", "queue, ms", "retransmissions"]
    columns = ["first flow", "second flow", "queue", "retransmissions"]
    return "\n\n".join(
        [
            page.table(["situation", "", *units], beside, range(2, 7)),
            "### Variants in native, relative to Linux",
            page.table(["situation", "", *columns], over_linux, range(2, 6)),
        ]
    )


def _cells(runs: Sequence[tuple[float, float, float | None, float | None]]) -> list[str]:
    share = [100 * first / (first + second) for first, second, _, _ in runs]
    first, second, queue_ms, retransmissions = zip(*runs, strict=True)
    return [cell(first, 1), cell(second, 1), cell(share, 1) + " %", cell(queue_ms, 0), cell(retransmissions, 0)]


def difference(ours: float, theirs: float | None) -> str:
    """Return how much ours differs from theirs, in per cent of theirs, or a dash without one of them."""
    if theirs is None or np.isnan(ours) or (not theirs and ours):
        return "-"
    return f"{100 * (ours / theirs - 1) if theirs else 0.0:+.0f} %"


def cell(values: Sequence[float | None], digits: int) -> str:
    """Return the mean (smallest to largest) of the known values, or a dash."""
    known = [value for value in values if value is not None and not np.isnan(value)]
    if not known:
        return "-"
    mean = f"{np.mean(known):,.{digits}f}"
    return mean if len(known) == 1 else f"{mean} ({min(known):,.{digits}f} to {max(known):,.{digits}f})"


def main() -> int:
    """Run everything and print the tables; with --write, write them into the page."""
    options = page.parser(__doc__, MARK).parse_args()
    page.publish(tables(Console(stderr=True)), MARK, options.write)
    return 0


if __name__ == "__main__":
    sys.exit(run_interruptible("fidelity", main))
