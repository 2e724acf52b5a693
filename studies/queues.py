"""Compare the queues of native with ns-3's own: `python -m studies.queues [--write docs/results/queues.md]`.

ns-3 runs native's transport over UDP (`transport=quic`), so what differs comes from the queues alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.progress import track

from bbrgym import Engine, Flow, Scenario, Trace, make_engine, simulate
from bbrgym.envs.scenario import Queue
from bbrgym.interruption import run_interruptible
from studies import page

MARK: Final = "studies/queues.py"
SEEDS: Final = (1, 2, 3)
WARMUP_S: Final = 5.0
STEP_MS: Final = 10.0
ENGINES: Final[dict[str, dict[str, Any]]] = {
    "native": {"name": "native"},
    "ns-3": {"name": "ns3", "transport": "quic"},
}
QUEUES: Final[tuple[Queue, ...]] = ("codel", "pie", "fq_codel")

LINK: Final = Scenario(rate_mbps=20, buffer_bdp=4, duration_s=25)
SITUATIONS: Final = {
    "one CUBIC": replace(LINK, flows=(Flow("cubic", 40),)),
    "one CUBIC, ECN": replace(LINK, flows=(Flow("cubic", 40, ecn="classic"),)),
    "four NewReno, 20 to 80 ms": replace(LINK, flows=tuple(Flow("newreno", rtt_ms) for rtt_ms in (20, 40, 60, 80))),
    "BBR beside CUBIC": replace(LINK, flows=(Flow("bbr", 40), Flow("cubic", 40))),
    "eight CUBIC, 20 packets": replace(LINK, buffer_bdp=None, buffer_packets=20, flows=(Flow("cubic", 40),) * 8),
}
"""20 Mbit/s and a buffer of 4 BDP, unless the name says otherwise."""

HEADINGS: Final = (
    *("situation", "queue", "engine", "share of the first", "utilisation", "queue, ms", "p95, ms", "drops", "marks"),
)


def figures(trace: Trace) -> Sequence[float]:
    """Return the share of the first flow, utilisation, mean and p95 of the delay in ms, drops, and marks."""
    summary = trace.summary(after_s=WARMUP_S)
    link, rates = summary.link, [flow.throughput_mbps for flow in summary.flows]
    marks = np.nan_to_num(link.marks)  # NaN if no flow has ECN: nothing is marked
    return rates[0] / sum(rates), link.utilisation, link.queue_mean_ms, link.queue_p95_ms, link.drops, marks


FORMATS: Final = (".1%", ".1%", ".1f", ".1f", ".0f", ".0f")


def table(
    situations: Mapping[str, Scenario], engines: Mapping[str, Engine], seeds: Sequence[int], console: Console
) -> str:
    """Return a line per situation, queue and engine, with means over the seeds."""
    cases = [(name, queue, engine) for name in situations for queue in QUEUES for engine in engines]

    def rows() -> Iterator[list[str]]:
        for name, queue, engine in track(cases, "queues", console=console):
            scenario = replace(situations[name], queue=queue)
            runs = [figures(simulate(scenario, engines[engine], seed, STEP_MS)) for seed in seeds]
            means = np.mean(np.array(runs), axis=0)
            yield [name, queue, engine, *(format(mean, form) for mean, form in zip(means, FORMATS, strict=True))]

    return page.table(HEADINGS, rows(), range(3, 9))


def main() -> int:
    """Run everything and print the table; with --write, write it into the page."""
    options = page.parser(__doc__, MARK).parse_args()
    with ExitStack() as stack:
        engines = {name: stack.enter_context(closing(make_engine(**spec))) for name, spec in ENGINES.items()}
        text = table(SITUATIONS, engines, SEEDS, Console(stderr=True))
    page.publish(text, MARK, options.write)
    return 0


if __name__ == "__main__":
    sys.exit(run_interruptible("queues", main))
