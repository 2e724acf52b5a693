"""The metrics of a run: what each means, and how it is measured."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from bbrgym.checks import check_number
from bbrgym.envs.columns import FLOW_COLUMNS
from bbrgym.envs.trace import FlowSummary, Trace, jain_index


@dataclass(frozen=True)
class Metric:
    """What a reader needs to know of a metric, and how the flows' values make the run's.

    Attributes:
        label: a few words, for an axis or a heading.
        unit: `ms`; empty for counts and ratios.
        meaning: a line, without the unit.
        is_more_better: None if more is neither good nor bad.
        form: how its values are written, for `statistics.number_text`.
        over_flows: how a run's value follows from the rows of `measure`; `rate` is the sum of what flows moved in their
            active times over the time in which any was active; `run` is equal in all rows, None is of several columns.
    """

    label: str
    unit: str
    meaning: str
    is_more_better: bool | None
    form: str = ""
    over_flows: Literal["sum", "rate", "mean", "max", "run"] | None = None

    @property
    def axis(self) -> str:
        """`mean RTT (ms)`."""
        return f"{self.label} ({self.unit})" if self.unit else self.label

    @property
    def description(self) -> str:
        """`mean RTT, mean of the flows, in ms`."""
        return f"{self.meaning}, in {self.unit}" if self.unit else self.meaning


SIZE_CLASSES: Final[dict[str, tuple[float, float]]] = {
    "": (0, math.inf),
    "small": (0, 1e5),
    "medium": (1e5, 1e7),
    "large": (1e7, math.inf),
}
"""Finite flows by size: above and up to so many bytes, the classes of pFabric (Alizadeh et al., SIGCOMM 2013)."""


def _completion_metrics(size_class: str) -> Iterator[tuple[str, Metric]]:
    """Yield the metrics of the flows of a class, which all finite flows of a run have together."""
    prefix, of = (f"{size_class}_", f", {size_class} flows") if size_class else ("", "")
    low, high = SIZE_CLASSES[size_class]
    bounds = []
    if low > 0:
        bounds.append(f"> {low / 1e3:g} kB")
    if high < math.inf:
        bounds.append(f"<= {high / 1e3:g} kB")
    flows = f"finite flows of {' and '.join(bounds)}" if bounds else "finite flows"
    yield (
        f"{prefix}completed",
        Metric(
            label=f"completed flows{of}",
            unit="",
            meaning=f"share of the {flows} that completed in the episode",
            is_more_better=True,
            form=".1%",
            over_flows="run",
        ),
    )
    for name, label, unit, form in (("fct", "flow completion time", "ms", ".1f"), ("slowdown", "slowdown", "", ".2f")):
        what = label if name == "fct" else "flow completion time over the least possible on the empty path"
        suffix = f"_{unit}" if unit else ""
        yield (
            f"{prefix}{name}_mean{suffix}",
            Metric(
                label=f"mean {label}{of}",
                unit=unit,
                meaning=f"mean {what}, {flows} that completed",
                is_more_better=False,
                form=form,
                over_flows="run",
            ),
        )
        for percent, word in ((50, "median"), (99, "99th percentile of the")):
            meaning = f"{'median' if percent == 50 else '99th percentile'} of the {what}, {flows}; Kaplan-Meier"
            yield (
                f"{prefix}{name}_p{percent}{suffix}",
                Metric(
                    label=f"{word} {label}{of}",
                    unit=unit,
                    meaning=meaning,
                    is_more_better=False,
                    form=form,
                    over_flows="run",
                ),
            )


METRICS: Final[dict[str, Metric]] = {
    "throughput_mbps": Metric(
        "throughput", "Mbit/s", "payload received in order by all flows, over the time in which any was active", True,
        over_flows="rate",
    ),
    "throughput_ratio": Metric(
        "throughput, last flow over first", "", "throughput of the last flow over that of the first", None
    ),
    "link_jain": Metric(
        "Jain's fairness index", "", "Jain's fairness index of the flows' throughputs", True, ".2f", "run"
    ),
    "link_utilisation": Metric(
        "link utilisation", "", "share of the link's capacity that was used", True, ".1%", "run"
    ),
    "application_utilisation": Metric(
        "utilisation by application data", "", "payload received in order over what the link can carry in that time",
        True, ".1%",
    ),
    "link_queue_mean_ms": Metric("mean queueing delay", "ms", "mean queueing delay", False, ".1f", "run"),
    "link_queue_p95_ms": Metric(
        "95th percentile of the queueing delay", "ms", "95th percentile over the steps of the queueing delay",
        False, ".1f", "run",
    ),
    "queue_ratio": Metric(
        "mean queueing delay over the longest base RTT", "", "mean queueing delay over the longest base RTT",
        False, ".2f",
    ),
    "link_drops": Metric(
        "packets dropped by the queue", "", "packets dropped by the queue", False, over_flows="run"
    ),
    "rtt_mean_ms": Metric("mean RTT", "ms", "mean RTT, mean of the flows", False, ".1f", "mean"),
    "rtt_p95_ms": Metric(
        "95th percentile of the RTT", "ms", "95th percentile over the steps of their mean RTT, mean of the flows",
        False, ".1f", "mean",
    ),
    "rtt_peak_ms": Metric("peak RTT", "ms", "largest mean RTT of a step of any flow", False, ".1f", "max"),
    "retransmissions": Metric(
        "retransmitted packets", "", "retransmitted packets, sum of the flows", False, over_flows="sum"
    ),
    "retransmissions_per_s": Metric(
        "retransmissions", "packets/s", "retransmitted packets over the measured time, sum of the flows", False
    ),
    "retransmission_rate": Metric(
        "retransmitted over sent packets", "", "retransmitted over sent packets, mean of the flows",
        False, ".2%", "mean",
    ),
    "loss_rate": Metric(
        "packets marked lost over sent packets", "",
        "packets that the sender marked lost over sent packets, mean of the flows", False, ".2%", "mean",
    ),
    "true_loss": Metric(
        "packets lost in the network over sent packets", "",
        "packets dropped by the queue or lost on the link over sent packets, all flows together", False, ".2%",
    ),
    "send_rate_mbps": Metric(
        "sending rate", "Mbit/s", "payload sent by all flows, retransmissions included, over the same time", None,
        over_flows="rate",
    ),
    "arrived_mbps": Metric(
        "arrival rate at the receivers, duplicates included", "Mbit/s",
        "payload of all data packets that reached the receivers, duplicates included, over the same time", True,
        over_flows="rate",
    ),
    "inorder_goodput_mbps": Metric(
        "goodput of packets that arrive in order", "Mbit/s",
        "payload of the data packets that the receiver expected next on arrival, over the same time", True,
        over_flows="rate",
    ),
    "inorder_loss": Metric(
        "arrivals that are not in order", "", "1 - inorder_goodput_mbps / arrived_mbps", False, ".2%"
    ),
    "marks": Metric(
        "CE-marked packets", "", "packets whose CE marks the receivers reported, sum of the flows with ECN", None,
        over_flows="sum",
    ),
    "mark_rate": Metric(
        "CE-marked over delivered packets", "", "CE-marked over delivered packets, mean of the flows with ECN", None,
        ".2%", "mean",
    ),
    "link_marks": Metric("packets marked by the queue", "", "packets marked CE by the queue", None, over_flows="run"),
    "app_delay_mean_ms": Metric(
        "mean application delay", "ms",
        "mean time from the application's write to the delivery in order, mean of the flows with app_rate_mbps",
        False, ".1f", "mean",
    ),
    "app_delay_p99_ms": Metric(
        "99th percentile of the application delay", "ms",
        "99th percentile of this time over the messages (each at the mean of its step), mean of the flows",
        False, ".1f", "mean",
    ),
    **{name: metric for size_class in SIZE_CLASSES for name, metric in _completion_metrics(size_class)},
    "convergence_s": Metric(
        "convergence time", "s", "time from the last flow's start to a lasting fair share (NaN if never)",
        False, ".1f", "run",
    ),
    "converged": Metric(
        "share of the runs that converge", "", "1 if there is a convergence time, 0 if not; NaN for one flow", True
    ),
    "equilibrium_s": Metric(
        "time to equilibrium", "s",
        "time to lastingly equal shares of the two halves of the flows, from the first start in the second half (NaN "
        "if never)", False, ".1f", "run",
    ),
}  # fmt: skip
"""The metrics of a run: columns of `tables.run_table`."""

FLOW_METRICS: Final[dict[str, Metric]] = {
    "throughput_mbps": Metric("throughput", "Mbit/s", "payload received in order", True),
    "share": Metric("share of the throughput", "", "throughput over the sum of all flows' throughputs", None, ".1%"),
    "rtt_mean_ms": Metric("mean RTT", "ms", "mean RTT", False, ".1f"),
}
"""Metrics that each flow i has besides, as the column `<metric>[i]` of `tables.run_table`."""

MOST_FLOWS_ALONE: Final = 32
"""So many flows have such columns: a workload can have a thousand, whose metrics together say more."""

COMPLETION: Final = tuple(name for size_class in SIZE_CLASSES for name, _ in _completion_metrics(size_class))
"""The metrics of finite flows."""

OPTIONAL: Final = frozenset({"marks", "mark_rate", "link_marks", "app_delay_mean_ms", "app_delay_p99_ms", *COMPLETION})
"""Metrics of runs with ECN, with `app_rate_mbps`, or with finite flows; tables leave them out if no run has them."""

RUN_COLUMNS: Final = (
    "link_duration_s",
    "link_active_s",
    "link_rate_mbps",
    "link_utilisation",
    "link_jain",
    "link_queue_mean_ms",
    "link_queue_p95_ms",
    "link_drops",
    "link_random_losses",
    "link_marks",
    "convergence_s",
    "equilibrium_s",
    *COMPLETION,
)
"""The columns of `measure` that belong to the run and are equal in all its rows: fields of `LinkSummary`, and times."""

MEASURED: Final = ("flow", *(f.name for f in dataclasses.fields(FlowSummary)), "share", *RUN_COLUMNS)
"""All columns of `measure`."""


def find_metric(name: str) -> Metric | None:
    """Return the metric of a column of `tables.run_table`, as `link_jain` or `share[1]`; None if there is none."""
    if name.endswith("]"):
        base, _, index = name[:-1].partition("[")
        return FLOW_METRICS.get(base) if index.isdecimal() else None
    return METRICS.get(name)


def measure(trace: Trace, after_s: float = 0.0) -> list[dict[str, Any]]:
    """Return what was measured in a run, one row per flow.

    Args:
        trace: the run.
        after_s: end of the warm-up, in s, which is not measured. Convergence, equilibrium and the
            completion of flows are of the whole run.

    Returns:
        One row per flow, with the columns `MEASURED`: its index `flow`, the fields of `FlowSummary`, `share`, and
        `RUN_COLUMNS`, of which a run without finite flows lacks those of `COMPLETION`.

    Raises:
        ValueError: `after_s` leaves no step.
    """
    summary = trace.summary(after_s)
    total_mbps = float(np.nansum([flow.throughput_mbps for flow in summary.flows]))
    link = {f"link_{name}": value for name, value in vars(summary.link).items()}
    times = {"convergence_s": convergence_time(trace), "equilibrium_s": equilibrium_time(trace)}
    times |= completion(trace)
    return [
        {"flow": index, **vars(flow), **link}
        | {"share": flow.throughput_mbps / total_mbps if total_mbps > 0 else math.nan, **times}
        for index, flow in enumerate(summary.flows)
    ]


def completion(trace: Trace) -> dict[str, float]:
    """Return the metrics of finite flows, by the names in `COMPLETION`; {} if there are none.

    A flow counts from its start, whenever that is. One that is not complete at the end of the episode counts in the
    share of completed ones, not in a mean. In a percentile it is longer than its time until then, by the estimator of
    Kaplan and Meier (J. Amer. Statist. Assoc. 53, 1958): such flows have no time of their own, but raise the
    percentiles, which have no value (NaN) where the flows that completed do not reach them.
    """
    flows = [index for index, flow in enumerate(trace.scenario.flows) if flow.size_bytes is not None]
    if not flows:
        return {}
    sizes = np.array([trace.scenario.flows[index].size_bytes for index in flows], dtype=np.float64)
    ideal_ms = np.array([trace.scenario.ideal_completion_ms(index) for index in flows])
    fct_ms = trace.flows[-1, flows, FLOW_COLUMNS.index("completion_time_ms")]
    is_complete = ~np.isnan(fct_ms)
    ages_ms = np.array([(trace.time_s[-1] - trace.scenario.flows[index].start_s) * 1e3 for index in flows])
    times_ms = np.where(is_complete, fct_ms, ages_ms)
    metrics = {}
    for size_class, (low, high) in SIZE_CLASSES.items():
        of_class = (sizes > low) & (sizes <= high)
        complete = is_complete[of_class]
        prefix = f"{size_class}_" if size_class else ""
        metrics[f"{prefix}completed"] = float(complete.mean()) if len(complete) else math.nan
        for name, times in (("fct_{}_ms", times_ms), ("slowdown_{}", times_ms / ideal_ms)):
            times = times[of_class]
            mean = float(times[complete].mean()) if complete.any() else math.nan
            metrics[prefix + name.format("mean")] = mean
            for percent in (50, 99):
                metrics[prefix + name.format(f"p{percent}")] = censored_percentile(times, complete, percent)
    return metrics


def censored_percentile(times: npt.NDArray[np.float64], is_event: npt.NDArray[np.bool_], percent: float) -> float:
    """Return the least time by which `percent` of the events have happened, by Kaplan and Meier's estimate.

    Args:
        times: shape (n,); of an event, or until when there was none.
        is_event: shape (n,).
        percent: in (0, 100].

    Returns:
        NaN if the estimate does not reach the percentage.
    """
    order = np.lexsort((~is_event, times))  # events before those that end at the same time without one
    at_risk = np.arange(len(times), 0, -1)
    survival = np.cumprod(1 - is_event[order] / at_risk)
    reached = np.flatnonzero(survival <= 1 - percent / 100 + 1e-12)
    return float(times[order][reached[0]]) if len(reached) else math.nan


def convergence_time(trace: Trace, jain: float = 0.9, window_s: float = 1.0) -> float:
    """Return how long the flows need to share the link fairly, in s from the start of the last flow.

    It is the first time from which Jain's index of the throughputs is at least `jain` in every following window of
    `window_s`, as long as two or more flows are active. The windows are consecutive, from the last flow's start; a flow
    counts in the windows in which it is active throughout. For two flows it is the delta-fair convergence time of RFC
    5166 section 2.4 (Bansal et al., SIGCOMM 2001) with delta = sqrt(1 / jain - 1), 1/3 for 0.9, but from the state that
    the simulation is in instead of a prescribed one, and fairness must last.

    Args:
        trace: the run.
        jain: the index that counts as fair, in (0, 1].
        window_s: length of a window in s; at least one step is used.

    Returns:
        The time in s; NaN if the flows never converge, and for fewer than two flows.

    Raises:
        ValueError: `jain` or `window_s` is out of range.
    """
    flows = trace.scenario.flows
    each = [[index] for index in range(len(flows))]
    last_start_s = max(flow.start_s for flow in flows)
    return _time_to_fairness(trace, each, origin_s=last_start_s, jain=jain, window_s=window_s)


def equilibrium_time(trace: Trace, jain: float = 0.95, window_s: float = 5.0) -> float:
    """Return how long the second half of the flows, the newcomers, needs to get as much as the first half, in s.

    It is `convergence_time` of the two halves' sums, in the order of the scenario's flows, from the first start in the
    second half. A half is active while any of its flows is.

    Args:
        trace: the run.
        jain: the index of the two sums that counts as equal, in (0, 1].
        window_s: length of a window in s; at least one step is used.

    Returns:
        The time in s; NaN if the halves never get equal, and for an odd number of flows.

    Raises:
        ValueError: `jain` or `window_s` is out of range.
    """
    flows = trace.scenario.flows
    half = len(flows) // 2
    halves = [] if len(flows) % 2 else [[*range(half)], [*range(half, len(flows))]]
    first_start_s = min(flow.start_s for flow in flows[half:])
    return _time_to_fairness(trace, halves, origin_s=first_start_s, jain=jain, window_s=window_s)


def _time_to_fairness(
    trace: Trace, groups: Sequence[Sequence[int]], origin_s: float, jain: float, window_s: float
) -> float:
    check_number("jain", jain, above=0, at_most=1)
    check_number("window_s", window_s, above=0)
    if len(groups) < 2:
        return math.nan
    window_steps = max(1, round(window_s * 1e3 / trace.step_ms))
    starts_s = np.concatenate(([0.0], trace.time_s[:-1]))
    first_step = int(np.searchsorted(starts_s, origin_s - 1e-9))
    flows_active = trace.flows[:, :, FLOW_COLUMNS.index("is_active")] > 0
    flows_received = trace.flows[:, :, FLOW_COLUMNS.index("received_bytes")]
    is_active = np.stack([flows_active[:, group].any(axis=1) for group in groups], axis=1)
    received_bytes = np.stack([flows_received[:, group].sum(axis=1) for group in groups], axis=1)
    converged_s = math.nan
    # A window that the run ends in is left out: it is too short to judge.
    for begin in range(first_step, len(starts_s) - window_steps + 1, window_steps):
        window = slice(begin, begin + window_steps)
        counted = is_active[window].all(axis=0)
        if counted.sum() < 2:
            continue  # the last flow has not sent its first packet, or all flows but one have ended
        if not jain_index(received_bytes[window][:, counted].sum(axis=0)) >= jain:
            converged_s = math.nan
        elif math.isnan(converged_s):
            converged_s = float(starts_s[begin] - origin_s)
    return converged_s
