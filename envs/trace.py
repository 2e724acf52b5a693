"""One run from start to end: `simulate` makes it, `Trace` holds it."""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from bbrgym.checks import check_number
from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.engine import DEFAULT_ENGINE, Engine, Rows, make_engine
from bbrgym.envs.scenario import Scenario

if TYPE_CHECKING:
    import pandas as pd  # imported where tables are made: it takes longer than all the rest of `import bbrgym`

LOGGER: Final = logging.getLogger(__name__)

Policy = Callable[[int, Rows], tuple[float, float]]
"""(flow, rows of the last step) -> (cwnd_gain, pacing_gain)"""


@dataclass(frozen=True)
class FlowSummary:
    """One flow over part of a run.

    Attributes:
        algorithm: the flow's controller.
        rtt_ms: its base RTT in ms.
        active_s: time in which the flow was active, in s.
        throughput_mbps: payload received in order, over this time, in Mbit/s; not what arrives in steps after `stop_s`.
        send_rate_mbps: payload sent, retransmissions included, over the same time.
        arrived_mbps: payload of all data packets that reached the receiver, duplicates included, over the same time.
        inorder_goodput_mbps: payload of the packets that the receiver expected next when they arrived, over the same
            time; packets that wait for a gap to be filled do not count.
        received_bytes: payload received in order.
        rtt_mean_ms: mean RTT, weighted by delivered packets, in ms.
        rtt_p95_ms: 95th percentile over the steps of their mean RTT, in ms.
        rtt_peak_ms: largest of them, in ms.
        sent_packets: data packets sent, retransmissions included.
        retransmissions: retransmitted packets; NaN of a stack whose packets do not tell (`Flow.server`).
        retransmission_rate: retransmitted over sent packets.
        loss_rate: packets marked lost over sent packets.
        marks: packets whose CE marks the receiver reported; NaN for a flow without ECN.
        mark_rate: these over delivered packets.
        app_delay_mean_ms: mean time from the application's write to the delivery in order, in ms; NaN without
            `app_rate_mbps`.
        app_delay_p99_ms: 99th percentile of this time over the messages, each taken at the mean of its step, in ms.
        completion_time_ms: time from the start of a finite flow to its last byte at the receiver, in ms, whenever that
            was; NaN if it is not complete.
        slowdown: `completion_time_ms` over `Scenario.ideal_completion_ms`.
    """

    algorithm: str
    rtt_ms: float
    active_s: float
    throughput_mbps: float
    send_rate_mbps: float
    arrived_mbps: float
    inorder_goodput_mbps: float
    received_bytes: int
    rtt_mean_ms: float
    rtt_p95_ms: float
    rtt_peak_ms: float
    sent_packets: int
    retransmissions: int | float
    retransmission_rate: float
    loss_rate: float
    marks: int | float
    mark_rate: float
    app_delay_mean_ms: float
    app_delay_p99_ms: float
    completion_time_ms: float
    slowdown: float


@dataclass(frozen=True)
class LinkSummary:
    """The bottleneck over part of a run.

    Attributes:
        duration_s: length of the part, in s.
        active_s: time of it in which a flow was active, in s.
        rate_mbps: mean rate of the link, in Mbit/s on the wire.
        utilisation: share of the link's capacity that was used.
        jain: Jain's index (sum x)^2 / (n sum x^2) of the flows' throughputs; 1 is equal shares, 1/n the worst.
        queue_mean_ms: mean queueing delay, in ms.
        queue_p95_ms: 95th percentile over the steps of their mean queueing delay, in ms.
        drops: packets dropped by the queue; NaN where the link is unknown, as between two machines.
        random_losses: packets lost at random on the link; the same.
        marks: packets that the queue marked CE; NaN if no flow has ECN.
    """

    duration_s: float
    active_s: float
    rate_mbps: float
    utilisation: float
    jain: float
    queue_mean_ms: float
    queue_p95_ms: float
    drops: int | float
    random_losses: int | float
    marks: int | float


@dataclass(frozen=True)
class Summary:
    """Summary of part of a run: `flows[i]` and `link`."""

    flows: tuple[FlowSummary, ...]
    link: LinkSummary

    def to_frame(self) -> pd.DataFrame:
        """Return one row per flow, with the link's values repeated as `link_…`."""
        import pandas as pd

        link = {f"link_{name}": value for name, value in vars(self.link).items()}
        frame = pd.DataFrame([vars(flow) | link for flow in self.flows])
        return frame.rename_axis("flow")


@dataclass(frozen=True, eq=False)
class Trace:
    """All rows of one run. Two traces are equal if their trajectories are bit-identical, as their `hash` says.

    Attributes:
        scenario: what was simulated.
        seed: with which seed.
        engine: by which engine.
        step_ms: length of a step, in ms.
        time_s: shape (steps,), end of each step in s.
        flows: shape (steps, flows, number of `FLOW_COLUMNS`).
        link: shape (steps, number of `LINK_COLUMNS`).
        timing: `Engine.timing` of the whole run; {} in simulated time.
        flaw: `Engine.flaw` of the whole run.
    """

    scenario: Scenario
    seed: int
    engine: str
    step_ms: float
    time_s: npt.NDArray[np.float64]
    flows: npt.NDArray[np.float64]
    link: npt.NDArray[np.float64]
    timing: Mapping[str, float] = field(default_factory=dict)
    flaw: str | None = None

    def __eq__(self, other: object) -> bool:
        return self.hash == other.hash if isinstance(other, Trace) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.hash)

    def __repr__(self) -> str:
        """Return what was simulated and what each flow got, in a few lines of text."""
        rows = [_HEADINGS, *self._flow_cells()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n  ".join([f"Trace: {self._describe()}", self.scenario.describe_link(), *lines, *self._left_out()])

    def _repr_html_(self) -> str:
        """Return the same as a table, for notebooks."""
        rows = [f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in self._flow_cells()]
        head = "".join(f"<th>{name}</th>" for name in _HEADINGS)
        notes = [f"Trace: {self._describe()}", self.scenario.describe_link(), *self._left_out()]
        return (
            f"<div>{'<br>'.join(map(escape, notes))}</div>"
            f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
        )

    def _describe(self) -> str:
        end_s = float(self.time_s[-1]) if len(self.time_s) else 0.0
        text = f"{self.engine}, seed {self.seed}, {end_s:.4g} s in {len(self.time_s)} steps of {self.step_ms:g} ms"
        return text if self.flaw is None else f"{text}; flaw: {self.flaw}"

    def _flow_cells(self) -> list[tuple[str, ...]]:
        """Return the first flows with their means over the whole run, as texts."""
        if not len(self.time_s):
            return []
        return [
            (
                str(index),
                flow.algorithm,
                f"{flow.rtt_ms:g} ms",
                "-" if math.isnan(flow.throughput_mbps) else f"{flow.throughput_mbps:.3g} Mbit/s",
                "-" if math.isnan(flow.rtt_mean_ms) else f"{flow.rtt_mean_ms:.3g} ms",
            )
            for index, flow in enumerate(self.summary().flows[:_MOST_SHOWN])
        ]

    def _left_out(self) -> list[str]:
        more = len(self.scenario.flows) - _MOST_SHOWN
        return [f"and {more} more flows"] if more > 0 else []

    @cached_property
    def rows(self) -> pd.DataFrame:
        """One row per step and flow: `time_s`, `flow`, `algorithm`, every flow column, and the link's as `link_…`."""
        import pandas as pd

        return pd.DataFrame(self.columns())

    def columns(self) -> dict[str, npt.ArrayLike]:
        """Return the columns of `rows` by name."""
        steps, flows, _ = self.flows.shape
        return {
            "time_s": np.repeat(self.time_s, flows),
            "flow": np.tile(np.arange(flows), steps),
            "algorithm": [flow.algorithm for flow in self.scenario.flows] * steps,
            **dict(zip(FLOW_COLUMNS, self.flows.reshape(steps * flows, -1).T, strict=True)),
            **{
                f"link_{name}": np.repeat(values, flows) for name, values in zip(LINK_COLUMNS, self.link.T, strict=True)
            },
        }

    @cached_property
    def hash(self) -> str:
        """SHA-256 of every number in the trace: equal if and only if the trajectories are bit-identical."""
        digest = hashlib.sha256()
        for array in (self.time_s, self.flows, self.link):
            # A single NaN: its sign and payload are not part of the trajectory.
            digest.update(np.where(np.isnan(array), np.nan, array).astype("<f8").tobytes())
        return digest.hexdigest()

    def summary(self, after_s: float = 0.0) -> Summary:
        """Return the summary of the steps that start at `after_s` or later.

        Raises:
            ValueError: no step starts that late, or it is negative.
        """
        check_number("after_s", after_s)
        starts = np.concatenate(([0.0], self.time_s[:-1]))
        durations = self.time_s - starts
        kept = starts >= after_s - 1e-9
        if after_s < 0 or not kept.any():
            last_s = float(starts[-1])
            raise ValueError(
                f"after_s must be in [0, {last_s:.12g}], up to the start of the last step, got {after_s:.12g}"
            )
        durations, rows, link = durations[kept], self.flows[kept], self.link[kept]
        column = FLOW_COLUMNS.index
        is_active = rows[:, :, column("is_active")]
        flows = []
        for index, flow in enumerate(self.scenario.flows):
            row = rows[:, index]
            active_s = float((durations * is_active[:, index]).sum())
            # What arrives in steps after its end is not of this time.
            counted = row[starts[kept] < (math.inf if flow.stop_s is None else flow.stop_s)]
            sent = row[:, column("sent_packets")].sum()
            received = row[:, column("received_bytes")].sum()
            delivered, rtt = row[:, column("delivered_packets")], row[:, column("rtt_mean_ms")]
            has_rtt = ~np.isnan(rtt) & (delivered > 0)
            mean_ms = p95_ms = peak_ms = math.nan
            if has_rtt.any():
                mean_ms = float(np.average(rtt[has_rtt], weights=delivered[has_rtt]))
                p95_ms = float(np.percentile(rtt[has_rtt], 95))
                peak_ms = float(rtt[has_rtt].max())
            retransmitted = row[:, column("retransmitted_packets")].sum()
            marked = math.nan if flow.ecn is None else row[:, column("marked_packets")].sum()
            delay = row[:, column("app_delay_mean_ms")]
            messages = np.where(np.isnan(delay), 0.0, row[:, column("received_bytes")])
            completion_ms = float(self.flows[-1, index, column("completion_time_ms")])
            flows.append(
                FlowSummary(
                    algorithm=flow.algorithm,
                    rtt_ms=flow.rtt_ms,
                    active_s=active_s,
                    throughput_mbps=_ratio(counted[:, column("received_bytes")].sum() * 8e-6, active_s),
                    send_rate_mbps=_ratio((durations * row[:, column("send_rate_mbps")]).sum(), active_s),
                    arrived_mbps=_ratio(counted[:, column("arrived_bytes")].sum() * 8e-6, active_s),
                    inorder_goodput_mbps=_ratio(counted[:, column("inorder_bytes")].sum() * 8e-6, active_s),
                    received_bytes=int(received),
                    rtt_mean_ms=mean_ms,
                    rtt_p95_ms=p95_ms,
                    rtt_peak_ms=peak_ms,
                    sent_packets=int(sent),
                    retransmissions=_count(retransmitted),
                    retransmission_rate=_ratio(retransmitted, sent),
                    loss_rate=_ratio(row[:, column("lost_packets")].sum(), sent),
                    marks=marked if math.isnan(marked) else round(marked),
                    mark_rate=_ratio(marked, delivered.sum()),
                    app_delay_mean_ms=_ratio(np.nansum(delay * messages), messages.sum()),
                    app_delay_p99_ms=weighted_percentile(delay, messages, 99),
                    completion_time_ms=completion_ms,
                    slowdown=completion_ms / self.scenario.ideal_completion_ms(index),
                )
            )
        of_link = LINK_COLUMNS.index
        capacity = durations * link[:, of_link("rate_mbps")]
        queue_ms = link[:, of_link("queue_mean_ms")]
        return Summary(
            flows=tuple(flows),
            link=LinkSummary(
                duration_s=float(durations.sum()),
                active_s=float((durations * is_active.any(axis=1)).sum()),
                rate_mbps=_ratio(capacity.sum(), durations.sum()),
                utilisation=_ratio((link[:, of_link("utilisation")] * capacity).sum(), capacity.sum()),
                jain=jain_index(np.array([flow.throughput_mbps for flow in flows])),
                queue_mean_ms=float(np.average(queue_ms, weights=durations)),
                queue_p95_ms=float(np.percentile(queue_ms, 95)),
                drops=_count(link[:, of_link("drops")].sum()),
                random_losses=_count(link[:, of_link("random_losses")].sum()),
                marks=_count(link[:, of_link("marks")].sum() if self.scenario.has_ecn else math.nan),
            ),
        )


_HEADINGS: Final = ("flow", "algorithm", "base RTT", "throughput", "mean RTT")
_MOST_SHOWN: Final = 8
"""Flows in the text of a trace."""


def jain_index(throughputs: npt.NDArray[np.float64]) -> float:
    """Return Jain's fairness index (sum x)^2 / (n sum x^2) in [1/n, 1]; NaN if nothing was sent (Jain et al. 1984)."""
    x = np.asarray(throughputs, dtype=np.float64)
    x = x[~np.isnan(x)]
    return _ratio(x.sum() ** 2, x.size * (x**2).sum())


def weighted_percentile(values: npt.NDArray[np.float64], weights: npt.NDArray[np.float64], percent: float) -> float:
    """Return the least value with at least `percent` of the weight at or below it; NaN without weight.

    Values without weight can be NaN.
    """
    values, weights = values[weights > 0], weights[weights > 0]
    if not len(values):
        return math.nan
    order = np.argsort(values)
    reached = np.cumsum(weights[order]) >= weights.sum() * percent / 100 * (1 - 1e-12)
    return float(values[order][np.argmax(reached)])


def simulate(
    scenario: Scenario,
    engine: str | Engine = DEFAULT_ENGINE,
    seed: int = 1,
    step_ms: float = 100.0,
    policy: Policy | None = None,
) -> Trace:
    """Run a scenario from start to end.

    Args:
        scenario: what to simulate.
        engine: an engine's name, or an engine, which is left open.
        seed: decides everything random in the run.
        step_ms: length of a step (one row per flow), in ms.
        policy: chooses the gains of every active `agent` flow before every step; None leaves them at their defaults.

    Returns:
        The trace: `rows`, `summary(after_s=…)`, `hash`. If it has a flaw, that is also logged as a warning.

    Raises:
        ValueError: an argument is bad.
        EngineError: the engine failed.
    """
    if not isinstance(scenario, Scenario):
        raise ValueError(f"scenario must be a Scenario (Scenario.from_dict makes one of a mapping), got {scenario!r}")
    check_number("step_ms", step_ms, above=0)
    running = make_engine(engine) if isinstance(engine, str) else engine
    try:
        rows = running.reset(scenario, seed)
        steps: list[Rows] = []
        while not rows.is_over:
            if policy is not None:
                for flow in scenario.agent_flows:
                    running.steer(flow, *policy(flow, rows))
            rows = running.step(step_ms)
            steps.append(rows)
        timing, flaw = dict(running.timing), running.flaw
    finally:
        if isinstance(engine, str):
            running.close()
    if flaw is not None:
        LOGGER.warning("seed %d: %s", seed, flaw)
    return Trace(
        scenario=scenario,
        seed=int(seed),
        engine=engine if isinstance(engine, str) else type(engine).__name__,
        step_ms=step_ms,
        time_s=np.array([step.time_s for step in steps]),
        flows=np.stack([step.flows for step in steps]),
        link=np.stack([step.link for step in steps]),
        timing=timing,
        flaw=flaw,
    )


def _count(total: float) -> int | float:
    return math.nan if math.isnan(total) else int(total)


def _ratio(numerator: float, denominator: float) -> float:
    return float(numerator / denominator) if denominator else float("nan")
