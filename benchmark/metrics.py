"""What a run amounts to: one row a flow, with the figures of the whole run beside it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from bbrgym.envs.columns import FLOW_COLUMNS
from bbrgym.envs.trace import FlowSummary, Trace, jain_index

RUN_METRICS: Final[dict[str, str]] = {
    "link_duration_s": "how long was measured, in s",
    "link_rate_mbps": "mean rate of the link, in Mbit/s on the wire",
    "link_utilisation": "share of the link's capacity that was used",
    "link_jain": "Jain's fairness index of the flows' throughputs",
    "link_queue_mean_ms": "mean queueing delay, in ms",
    "link_queue_p95_ms": "95th percentile over the steps of the queueing delay, in ms",
    "link_drops": "packets dropped by the queue",
    "link_random_losses": "packets lost at random on the link",
    "convergence_s": "time to a lasting fair share, in s from the last flow's start; NaN if never",
    "equilibrium_s": "time to lastingly equal shares of the two halves of the flows, in s from the first start in the "
    "second half; NaN if never",
}
"""The columns of `measure` that belong to the run: equal in all its rows."""

MEASURED: Final = ("flow", *(f.name for f in dataclasses.fields(FlowSummary)), "share", *RUN_METRICS)
"""All columns of `measure`."""


def measure(trace: Trace, after_s: float = 0.0) -> list[dict[str, Any]]:
    """The figures of a run, one row a flow.

    Args:
        trace: the run.
        after_s: where the warm-up ends, in s; the figures are of what follows. Convergence and equilibrium are of
            the whole run.

    Returns:
        A row a flow with its index `flow`, the fields of `FlowSummary`, `share` (its throughput over the sum of all
        flows'), and `RUN_METRICS`.

    Raises:
        ValueError: no step begins that late.
    """
    frame = trace.summary(after_s).to_frame().reset_index()
    total_mbps = float(frame["throughput_mbps"].sum())
    frame["share"] = frame["throughput_mbps"] / total_mbps if total_mbps > 0 else math.nan
    frame["convergence_s"] = convergence_time(trace)
    frame["equilibrium_s"] = equilibrium_time(trace)
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]


def convergence_time(trace: Trace, jain: float = 0.9, window_s: float = 1.0) -> float:
    """How long the flows need to share the link fairly, in s from the start of the last flow.

    It is the first time from which Jain's index of the throughputs in every following window of `window_s` stays at
    `jain` or above, for as long as two flows or more are active. The windows follow each other from the last flow's
    start; a flow counts in the windows in which it is active throughout. For two flows it is the delta-fair
    convergence time of RFC 5166 section 2.4 (Bansal et al., SIGCOMM 2001) with delta = sqrt(1 / jain - 1), 1/3 for
    0.9, from the state that the simulation is in instead of a prescribed one, and with the demand that it lasts.

    Args:
        trace: the run.
        jain: the index that counts as fair, in (0, 1].
        window_s: length of a window in s; at least one step is taken.

    Returns:
        The time in s; NaN if it never is so, and with fewer than two flows.

    Raises:
        ValueError: of a threshold or a window that is not possible.
    """
    flows = trace.scenario.flows
    each = [[index] for index in range(len(flows))]
    return _time_to_fairness(trace, each, max(flow.start_s for flow in flows), jain, window_s)


def equilibrium_time(trace: Trace, jain: float = 0.95, window_s: float = 5.0) -> float:
    """How long the second half of the flows, the newcomers, needs to get as much as the first, in s.

    It is `convergence_time` of the sums of the two halves, in the order of the scenario's flows, from the first start
    in the second half. A half is active while any of its flows is.

    Args:
        trace: the run.
        jain: the index of the two sums that counts as equal, in (0, 1].
        window_s: length of a window in s; at least one step is taken.

    Returns:
        The time in s; NaN if it never is so, and with an odd number of flows.

    Raises:
        ValueError: of a threshold or a window that is not possible.
    """
    flows = trace.scenario.flows
    half = len(flows) // 2
    halves = [] if len(flows) % 2 else [[*range(half)], [*range(half, len(flows))]]
    return _time_to_fairness(trace, halves, min(flow.start_s for flow in flows[half:]), jain, window_s)


def _time_to_fairness(
    trace: Trace, groups: Sequence[Sequence[int]], origin_s: float, jain: float, window_s: float
) -> float:
    if not 0 < jain <= 1:
        raise ValueError(f"jain={jain!r} is not possible: jain must be in (0, 1]")
    if not 0 < window_s < math.inf:
        raise ValueError(f"window_s={window_s!r} is not possible: window_s must be above 0")
    if len(groups) < 2:
        return math.nan
    steps_a_window = max(1, round(window_s * 1e3 / trace.step_ms))
    starts_s = np.concatenate(([0.0], trace.time_s[:-1]))
    first_step = int(np.searchsorted(starts_s, origin_s - 1e-9))
    flows_active = trace.flows[:, :, FLOW_COLUMNS.index("is_active")] > 0
    flows_received = trace.flows[:, :, FLOW_COLUMNS.index("received_bytes")]
    is_active = np.stack([flows_active[:, group].any(axis=1) for group in groups], axis=1)
    received_bytes = np.stack([flows_received[:, group].sum(axis=1) for group in groups], axis=1)
    converged_s = math.nan
    # The last window is left out when the run ends in the middle of it: too short to judge.
    for begin in range(first_step, len(starts_s) - steps_a_window + 1, steps_a_window):
        window = slice(begin, begin + steps_a_window)
        counted = is_active[window].all(axis=0)
        if counted.sum() < 2:
            # Before the last of them has sent its first packet, or after all but one have ended.
            continue
        if not jain_index(received_bytes[window][:, counted].sum(axis=0)) >= jain:
            converged_s = math.nan
        elif math.isnan(converged_s):
            converged_s = float(starts_s[begin] - origin_s)
    return converged_s
