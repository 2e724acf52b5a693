"""The metrics of a run."""

import math
from collections.abc import Sequence
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest
from fake_engine import FakeEngine

from bbrgym import Flow, Scenario, Trace, simulate
from bbrgym.benchmark import metrics
from bbrgym.benchmark.metrics import (
    COMPLETION,
    censored_percentile,
    completion,
    convergence_time,
    equilibrium_time,
    measure,
)
from bbrgym.benchmark.tables import run_table
from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.scenario import Path
from bbrgym.envs.trace import weighted_percentile


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


def test_the_throughput_of_a_run_is_of_the_time_in_which_any_flow_was_active() -> None:
    trace = trace_of([[0, 8, 8, 4, 4], [0, 0, 0, 4, 4]], TWO)
    results = pd.DataFrame(measure(trace)).assign(scenario="s", competitor="bbr", seed=1)
    row = run_table(results).iloc[0]
    assert (row["throughput_mbps[0]"], row["throughput_mbps[1]"]) == (6.0, 4.0)
    assert row["throughput_mbps"] == pytest.approx(8.0), "and not the 10 of their sum"


@pytest.mark.parametrize(
    ("throughputs", "flows", "expected_s"),
    [
        pytest.param(
            [[9, 9, 5, 5, 9, 9, 5, 5, 5, 5], [1, 1, 5, 5, 1, 1, 4, 6, 5, 5]], TWO, 3.0, id="first lasting fair window"
        ),
        pytest.param(
            [[9, 9, 9, 9, 9, 9, 5, 5, 5, 5], [0, 0, 0, 0, 1, 1, 5, 5, 5, 5]],
            (Flow(), Flow(start_s=2.0)),
            1.0,
            id="from the start of the last flow",
        ),
        pytest.param([[5, 5, 9, 9], [5, 5, 1, 1]], TWO, math.nan, id="no lasting fairness"),
        pytest.param([[5, 5, 5, 5]], (Flow(),), math.nan, id="one flow"),
        pytest.param(
            [[3, 3, 3, 3, 5, 5], [3, 3, 3, 3, 5, 5], [3, 3, 3, 3, 0, 0]],
            (Flow(), Flow(), Flow(stop_s=2.0)),
            0.0,
            id="a flow that ended does not count",
        ),
    ],
)
def test_convergence_time(throughputs: list[list[float]], flows: tuple[Flow, ...], expected_s: float) -> None:
    assert convergence_time(trace_of(throughputs, flows)) == pytest.approx(expected_s, nan_ok=True)


def test_a_summary_begins_within_the_run() -> None:
    trace = trace_of([[5, 5, 5, 5]], (Flow(),), step_ms=1000)
    assert trace.summary(after_s=3.0).link.duration_s == 1.0
    bad: list[tuple[Any, str]] = [(3.5, r"in \[0, 3\], .*got 3\.5"), (-1, "got -1"), ("1", "a finite number, got '1'")]
    for after_s, text in bad:
        with pytest.raises(ValueError, match=f"after_s must be .*{text}"):
            trace.summary(after_s=after_s)


def test_a_flow_that_has_stopped_has_no_more_throughput_than_its_link() -> None:
    """What waits in the queue then still arrives, but is not of its time."""
    flows = (Flow("cubic", stop_s=3.0), Flow("cubic", start_s=1.0, stop_s=3.0))
    trace = simulate(Scenario(rate_mbps=2, buffer_packets=1000, duration_s=10, flows=flows))
    for after_s in (0.0, 2.0, 2.9, 3.0):
        found = [flow.throughput_mbps for flow in trace.summary(after_s=after_s).flows]
        assert np.nansum(found) < 2.0
    assert math.isnan(trace.summary(after_s=3.0).flows[0].throughput_mbps)
    assert trace.summary(after_s=3.0).flows[0].received_bytes > 100_000


def test_traces_are_equal_if_their_trajectories_are() -> None:
    trace, same, other = (trace_of([[5, last]], (Flow(),)) for last in (5, 5, 4))
    assert trace == same
    assert trace != other
    assert len({trace, same, other}) == 2


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


def test_measure_has_one_row_per_flow_that_agrees_with_the_summary() -> None:
    scenario = Scenario(rate_mbps=20, duration_s=8, loss=0.01, flows=(Flow(rtt_ms=10), Flow(rtt_ms=50, start_s=1)))
    trace = simulate(scenario, FakeEngine(), seed=3)
    rows = measure(trace, after_s=3.0)
    summary = trace.summary(after_s=3.0)
    assert [row["flow"] for row in rows] == [0, 1]
    for row, flow in zip(rows, summary.flows, strict=True):
        assert {name: repr(row[name]) for name in vars(flow)} == {name: repr(at) for name, at in vars(flow).items()}
        assert row["link_utilisation"] == summary.link.utilisation
        assert set(row) == set(metrics.MEASURED) - {*metrics.COMPLETION}
        assert set(metrics.RUN_COLUMNS) - {*metrics.COMPLETION} <= set(row)
    assert sum(row["share"] for row in rows) == pytest.approx(1.0)
    with pytest.raises(ValueError, match=r"after_s must be in \[0, 7\.9\]"):
        measure(trace, after_s=8.0)


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


def finite(fct_ms: Sequence[float], sizes: Sequence[int]) -> Trace:
    """Make a trace of 10 s in which flow i starts at i s; NaN does not complete."""
    flows = tuple(Flow(rtt_ms=10, start_s=i, size_bytes=size) for i, size in enumerate(sizes))
    trace = trace_of([[1] * 10] * len(flows), flows, step_ms=1000)
    trace.flows[-1, :, FLOW_COLUMNS.index("completion_time_ms")] = fct_ms
    return trace


def test_completion_of_flows_by_size() -> None:
    sizes = [1000, 100_000, 100_001, 10_000_000, 10_000_001]
    values = completion(finite([20, 140, 190, 8000, math.nan], sizes))
    assert tuple(values) == COMPLETION
    assert values["completed"] == 0.8
    assert values["fct_mean_ms"] == (20 + 140 + 190 + 8000) / 4
    assert (values["small_fct_mean_ms"], values["small_fct_p50_ms"], values["small_fct_p99_ms"]) == (80, 20, 140)
    assert (values["medium_completed"], values["medium_fct_p99_ms"]) == (1, 8000)
    # The last one has sent for 6 s: longer than three of the others, so it counts above these.
    assert (values["fct_p50_ms"], values["fct_p99_ms"]) == (190, 8000)
    assert values["large_completed"] == 0
    assert math.isnan(values["large_fct_mean_ms"])
    assert math.isnan(values["large_fct_p50_ms"])
    # The handshake and half an RTT, and 100 packets of 1040 bytes at 12 Mbit/s for the second.
    assert values["small_slowdown_p50"] == pytest.approx(20 / (15 + 1.04 * 8 / 12))
    assert values["small_slowdown_p99"] == pytest.approx(140 / (15 + 104 * 8 / 12))
    none = completion(finite([math.nan] * 2, [1000, 1000]))
    assert none["completed"] == 0
    assert [name for name in COMPLETION if not math.isnan(none[name])] == ["completed", "small_completed"]
    assert completion(trace_of([[5] * 4], (Flow(),))) == {}


def test_percentiles_with_unfinished_flows_are_those_of_kaplan_and_meier() -> None:
    """Freireich et al., Blood 21, 1963: the textbooks' example, with a median remission of 23 weeks."""
    ended = [6, 6, 6, 7, 10, 13, 16, 22, 23]
    unfinished = [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35]
    times = np.array([*ended, *unfinished], dtype=float)
    is_event = np.arange(len(times)) < len(ended)
    assert censored_percentile(times, is_event, 50) == 23
    assert censored_percentile(times, is_event, 14) == 6  # 3 of 21
    assert censored_percentile(times, is_event, 15) == 7
    assert math.isnan(censored_percentile(times, is_event, 60))
    everything = np.arange(1.0, 101)
    for percent in (1, 50, 99, 100):
        assert censored_percentile(everything, everything > 0, percent) == percent
    assert math.isnan(censored_percentile(np.empty(0), np.empty(0, dtype=bool), 50))


def test_the_least_completion_time_uses_the_largest_rate() -> None:
    flows = (Flow(rtt_ms=40, size_bytes=1500), Flow())
    scenario = Scenario(rate_mbps=8, rate_schedule=((1, 16), (2, 4)), flows=flows)
    assert scenario.ideal_completion_ms(0) == pytest.approx(60 + (1500 + 80) * 8 / 16e3)
    assert math.isnan(scenario.ideal_completion_ms(1))
    never = Scenario(rate_mbps=100, rate_schedule=((0, 4), (2, 8)), flows=flows)
    assert never.ideal_completion_ms(0) == pytest.approx(60 + (1500 + 80) * 8 / 8e3), "it never has `rate_mbps`"
    slow = Scenario(rate_mbps=8, flows=(Flow(rtt_ms=40, size_bytes=3500, app_rate_mbps=0.8),))
    assert slow.ideal_completion_ms(0) == pytest.approx(60 + 3000 * 8 / 0.8e3 + 540 * 8 / 8e3)
    varying = Scenario(rate_mbps=8, flows=(Flow(rtt_ms=40, rtt_schedule=((1, 20), (2, 60)), size_bytes=1000),))
    assert varying.ideal_completion_ms(0) == pytest.approx(30 + 1040 * 8 / 8e3)
    flows = tuple(Flow(rtt_ms=40, size_bytes=1000, path=path) for path in get_args(Path))
    links = Scenario(rate_mbps=8, second_rate_mbps=4, reverse_rate_mbps=2, flows=flows)
    rates = {flow.path: 8.32 / (links.ideal_completion_ms(index) - 60) for index, flow in enumerate(flows)}
    assert rates == pytest.approx({"forward": 4, "first": 8, "second": 4, "reverse": 2})


def test_a_weighted_percentile() -> None:
    values, weights = np.array([3.0, 1.0, math.nan, 2.0]), np.array([1.0, 98.0, 0.0, 1.0])
    assert [weighted_percentile(values, weights, percent) for percent in (98, 98.5, 99, 99.5)] == [1, 2, 2, 3]
    assert math.isnan(weighted_percentile(values, weights * 0, 50))
