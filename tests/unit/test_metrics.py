"""The metrics of a run."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from fake_engine import FakeEngine

from bbrgym import Flow, Scenario, Trace, simulate
from bbrgym.benchmark import metrics
from bbrgym.benchmark.metrics import FLOW_METRICS, METRICS, convergence_time, equilibrium_time, find_metric, measure
from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS


def trace_of(throughputs: Sequence[Sequence[float]], flows: tuple[Flow, ...], step_ms: float = 500.0) -> Trace:
    """Make a trace of throughputs in Mbit/s, one list per flow, one entry per step; 0 is an inactive flow."""
    rates = np.array(throughputs, dtype=float).T
    steps = len(rates)
    rows = np.full((steps, len(flows), len(FLOW_COLUMNS)), math.nan)
    rows[:, :, FLOW_COLUMNS.index("received_bytes")] = rates * 1e6 / 8 * step_ms / 1e3
    rows[:, :, FLOW_COLUMNS.index("is_active")] = rates > 0
    for column in ("sent_packets", "delivered_packets", "retransmitted_packets", "lost_packets"):
        rows[:, :, FLOW_COLUMNS.index(column)] = 1.0
    return Trace(
        scenario=Scenario(duration_s=steps * step_ms / 1e3, flows=flows),
        seed=1,
        engine="by hand",
        step_ms=step_ms,
        time_s=np.arange(1, steps + 1) * step_ms / 1e3,
        flows=rows,
        link=np.ones((steps, len(LINK_COLUMNS))),
    )


TWO = (Flow(), Flow())


@pytest.mark.parametrize(
    ("throughputs", "flows", "expected_s"),
    [
        pytest.param(
            [[9, 9, 5, 5, 9, 9, 5, 5, 5, 5], [1, 1, 5, 5, 1, 1, 4, 6, 5, 5]], TWO, 3.0, id="first lasting fair window"
        ),
        pytest.param(
            [[9, 9, 9, 9, 9, 9, 5, 5, 5, 5], [0, 0, 0, 0, 1, 1, 5, 5, 5, 5]], (Flow(), Flow(start_s=2.0)), 1.0,
            id="from the start of the last flow",
        ),
        pytest.param([[5, 5, 9, 9], [5, 5, 1, 1]], TWO, math.nan, id="no lasting fairness"),
        pytest.param([[5, 5, 5, 5]], (Flow(),), math.nan, id="one flow"),
        pytest.param(
            [[3, 3, 3, 3, 5, 5], [3, 3, 3, 3, 5, 5], [3, 3, 3, 3, 0, 0]], (Flow(), Flow(), Flow(stop_s=2.0)), 0.0,
            id="a flow that ended does not count",
        ),
    ],
)  # fmt: skip
def test_convergence_time(throughputs: list[list[float]], flows: tuple[Flow, ...], expected_s: float) -> None:
    assert convergence_time(trace_of(throughputs, flows)) == pytest.approx(expected_s, nan_ok=True)


def test_threshold_for_two_flows_is_delta_fairness() -> None:
    delta = math.sqrt(1 / 0.9 - 1)
    for shift, converges in ((-0.01, True), (0.01, False)):
        share = (1 + delta + shift) / 2
        is_fair = not math.isnan(convergence_time(trace_of([[share] * 4, [1 - share] * 4], TWO)))
        assert is_fair is converges


def test_equilibrium_compares_the_two_halves_from_the_newcomers_start() -> None:
    flows = (Flow(), Flow(), Flow(start_s=10.0), Flow(start_s=11.0))
    # Windows of 5 s from 10 s on: 18 to 2, 18 to 2 again, and 10 to 10, however unequal within a half.
    first, second = [9] * 4 + [8] * 4 + [1] * 2, [9] * 4 + [10] * 4 + [9] * 2
    third, fourth = [0] * 4 + [1] * 4 + [8] * 2, [0] * 4 + [0.5, 1, 1, 1] + [2] * 2
    trace = trace_of([first, second, third, fourth], flows, step_ms=2500)
    assert equilibrium_time(trace) == 10.0
    assert math.isnan(equilibrium_time(trace, jain=1.0, window_s=7.5))
    assert math.isnan(convergence_time(trace))
    odd = trace_of([[5] * 10] * 3, (Flow(),) * 3, step_ms=5000)
    assert math.isnan(equilibrium_time(odd))


@pytest.mark.parametrize("arguments", [{"jain": 0.0}, {"jain": 1.1}, {"window_s": 0.0}, {"window_s": math.inf}])
def test_bad_thresholds_are_refused(arguments: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(arguments))):
        convergence_time(trace_of([[1, 1], [1, 1]], TWO), **arguments)


def test_measure_has_one_row_per_flow_that_agrees_with_the_summary() -> None:
    scenario = Scenario(rate_mbps=20, duration_s=8, loss=0.01, flows=(Flow(rtt_ms=10), Flow(rtt_ms=50, start_s=1)))
    trace = simulate(scenario, FakeEngine(), seed=3)
    rows = measure(trace, after_s=3.0)
    summary = trace.summary(after_s=3.0)
    assert [row["flow"] for row in rows] == [0, 1]
    for row, flow in zip(rows, summary.flows, strict=True):
        assert {name: row[name] for name in vars(flow)} == vars(flow)
        assert row["link_utilisation"] == summary.link.utilisation
        assert set(row) == set(metrics.MEASURED)
        assert set(metrics.RUN_COLUMNS) <= set(row)
    assert sum(row["share"] for row in rows) == pytest.approx(1.0)


def test_the_summary_covers_the_steps_after_the_warm_up() -> None:
    trace = trace_of([[2, 4, 6, 8], [0, 0, 1, 1]], (Flow(), Flow(start_s=1.0)))
    for column, values in {
        "send_rate_mbps": [9, 9, 6, 8],
        "arrived_bytes": [9, 9, 300_000, 500_000],
        "inorder_bytes": [9, 9, 100_000, 200_000],
        "rtt_mean_ms": [900, 900, 50, 70],
    }.items():
        trace.flows[:, 0, FLOW_COLUMNS.index(column)] = values
    flow = trace.summary(after_s=1.0).flows[0]
    assert (flow.throughput_mbps, flow.send_rate_mbps, flow.received_bytes) == (7.0, 7.0, 875_000)
    assert (flow.arrived_mbps, flow.inorder_goodput_mbps) == pytest.approx((6.4, 2.4))
    assert (flow.rtt_mean_ms, flow.rtt_peak_ms, flow.sent_packets) == (60.0, 70.0, 2)
    link = trace.summary(after_s=1.0).link
    assert (link.duration_s, link.rate_mbps) == (1.0, 1.0)


def test_measure_refuses_a_warm_up_that_leaves_nothing() -> None:
    trace = simulate(Scenario(duration_s=2), FakeEngine())
    with pytest.raises(ValueError, match="after_s must be < 2, the end of the run, got 5"):
        measure(trace, after_s=5.0)


def test_every_metric_is_described_and_found_by_its_column() -> None:
    assert find_metric("link_jain") is METRICS["link_jain"]
    assert find_metric("share[12]") is FLOW_METRICS["share"]
    assert [find_metric(name) for name in ("share", "share[x]", "link_jain[0]", "jain")] == [None] * 4
    assert METRICS["rtt_mean_ms"].axis == "mean RTT (ms)"
    assert METRICS["rtt_mean_ms"].description == "mean RTT, mean of the flows, in ms"
    assert all(metric.label and metric.meaning for metric in (*METRICS.values(), *FLOW_METRICS.values()))
