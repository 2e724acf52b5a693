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
from matplotlib.figure import Figure

from bbrgym import Flow, Scenario, Trace, make_engine, simulate
from bbrgym.benchmark.code import code_hash
from bbrgym.benchmark.ledger import Rows
from bbrgym.benchmark.style import COLOURS, SMALL, empty_figure, styled
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
    "two BBR, ECN": replace(LINK, flows=(Flow("bbr", 40, ecn="classic"),) * 2),
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

MANY: Final = 50
"""Of drops or marks per run. A ratio of fewer says little."""


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
    """Return the verdict, a figure, and a table with a line per situation, queue and engine: means over the seeds."""
    runs: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for job in jobs():
        runs.setdefault((job.situation, job.queue, job.engine), []).append(results[job.name][0])
    means = {
        names: {column: float(np.mean([run[column] for run in of])) for column in COLUMNS} for names, of in runs.items()
    }
    rows = [
        [*names, *(format(of[column], form) for column, (_, form) in COLUMNS.items())] for names, of in means.items()
    ]
    headings = ["situation", "queue", "engine", *(heading for heading, _ in COLUMNS.values())]
    return {
        "verdict": _verdict(means),
        "figure": figure("engines", lambda: _figure(means)),
        "runs": page.table(headings, rows, range(3, len(headings))),
    }


Means = Mapping[tuple[str, str, str], Mapping[str, float]]
"""`COLUMNS` by situation, queue and engine."""


def _verdict(means: Means) -> str:
    """Return how far native is from ns-3: the median and the largest difference."""
    pairs = [
        (of, means[situation, queue, "ns-3"]) for (situation, queue, engine), of in means.items() if engine == "native"
    ]

    def differences(column: str) -> list[float]:
        return [abs(native[column] - ns3[column]) for native, ns3 in pairs]

    shares, used = 100 * np.array(differences("share")), 100 * np.array(differences("utilisation"))
    mean_ms, p95_ms = differences("queue_ms"), differences("queue_p95_ms")
    many = [
        abs(native[column] / ns3[column] - 1)
        for native, ns3 in pairs
        for column in ("drops", "marks")
        if ns3[column] >= MANY
    ]
    sentences = [
        f"In {len(pairs)} pairs of a situation and a queue, native differs from ns-3 by at most {max(shares):.1f} "
        f"points in the share of the first flow and {max(used):.1f} points in utilisation.",
        f"The mean queue differs by at most {max(mean_ms):.1f} ms, in the median {np.median(mean_ms):.1f} ms; its 95th "
        f"percentile by at most {max(p95_ms):.1f} ms, in the median {np.median(p95_ms):.1f} ms.",
    ]
    if many:
        sentences.append(
            f"Where ns-3 drops or marks {MANY} packets or more, the numbers differ by at most {max(many):.0%}, in the "
            f"median {np.median(many):.0%}."
        )
    return " ".join(sentences)


@styled
def _figure(means: Means) -> Figure:
    """Draw both engines: a row per situation and queue, and a panel for the mean queue, its p95, drops and marks."""
    rows = list(dict.fromkeys((situation, queue) for situation, queue, _ in means))
    panels = {
        "mean queue (ms)": ("queue_ms",),
        "its p95 (ms)": ("queue_p95_ms",),
        "drops and marks": ("drops", "marks"),
    }
    figure = empty_figure(1.0 + 0.24 * len(rows))
    places = [place + 0.6 * (place // len(QUEUES)) for place in range(len(rows))]
    for axes, (title, columns) in zip(figure.subplots(1, len(panels), sharey=True), panels.items(), strict=True):
        for engine, marker, size, colour in (("native", "o", 7.5, COLOURS[0]), ("ns-3", "D", 4.0, COLOURS[1])):
            values = [sum(means[*row, engine][column] for column in columns) for row in rows]
            axes.plot(values, places, marker, color=colour, markersize=size, label=engine, clip_on=False)
        axes.set_title(title)
        if "drops" in columns:
            axes.set_xscale("symlog", linthresh=10)
            axes.set_xticks([0, 10, 100, 1000, 10_000], ["0", "10", "100", "1k", "10k"])
        axes.set_xlim(left=0)
    axes.set_yticks(places, [f"{situation}, {queue}" for situation, queue in rows], fontsize=SMALL)
    axes.set_ylim(places[-1] + 0.6, -0.6)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper left", ncols=2)
    return figure
