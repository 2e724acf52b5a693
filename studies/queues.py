"""Compare the queues of native with ns-3's own.

ns-3 runs native's transport over UDP (`transport=quic`), so what differs comes from the queues alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from bbrgym import Flow, Scenario, Trace, make_engine, simulate
from bbrgym.benchmark.code import code_hash
from bbrgym.benchmark.ledger import Rows
from bbrgym.envs.scenario import Queue
from studies import page

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

COLUMNS: Final = {
    "share": ("share of the first", ".1%"),
    "utilisation": ("utilisation", ".1%"),
    "queue_ms": ("queue, ms", ".1f"),
    "queue_p95_ms": ("p95, ms", ".1f"),
    "drops": ("drops", ".0f"),
    "marks": ("marks", ".0f"),
}
"""What is measured, with its heading and form."""


@dataclass(frozen=True)
class QueueRun:
    """A run: of a situation with a queue discipline in an engine."""

    situation: str
    queue: Queue
    engine: str
    seed: int

    @property
    def scenario(self) -> Scenario:
        """What is simulated."""
        return replace(SITUATIONS[self.situation], queue=self.queue)

    @property
    def name(self) -> str:
        """What the ledger calls it."""
        return f"{self.situation}/{self.queue}/{self.engine}/{self.seed}"

    @property
    def code(self) -> str:
        """The hash of what decides its result."""
        return code_hash(ENGINES[self.engine], also=json.dumps([self.scenario.to_dict(), WARMUP_S, STEP_MS]))


def jobs() -> list[QueueRun]:
    """Return every situation with every queue, engine and seed."""
    return [
        QueueRun(situation, queue, engine, seed)
        for situation in SITUATIONS
        for queue in QUEUES
        for engine in ENGINES
        for seed in SEEDS
    ]


def work(job: QueueRun) -> Rows:
    """Simulate and measure."""
    with closing(make_engine(**ENGINES[job.engine])) as engine:
        return [figures(simulate(job.scenario, engine, job.seed, STEP_MS))]


def figures(trace: Trace) -> dict[str, float]:
    """Return `COLUMNS` of a run."""
    summary = trace.summary(after_s=WARMUP_S)
    link, rates = summary.link, [flow.throughput_mbps for flow in summary.flows]
    return {
        "share": rates[0] / sum(rates),
        "utilisation": link.utilisation,
        "queue_ms": link.queue_mean_ms,
        "queue_p95_ms": link.queue_p95_ms,
        "drops": link.drops,
        "marks": float(np.nan_to_num(link.marks)),  # NaN if no flow has ECN: nothing is marked
    }


def view(results: Mapping[str, Rows], figure: page.AddFigure) -> Mapping[str, object]:
    """Return the table: a line per situation, queue and engine, with means over the seeds."""
    runs: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for job in jobs():
        runs.setdefault((job.situation, job.queue, job.engine), []).append(results[job.name][0])
    rows = [
        [*names, *(format(np.mean([run[column] for run in of]), form) for column, (_, form) in COLUMNS.items())]
        for names, of in runs.items()
    ]
    headings = ["situation", "queue", "engine", *(heading for heading, _ in COLUMNS.values())]
    return {"runs": page.table(headings, rows, range(3, len(headings)))}
