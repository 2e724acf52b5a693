"""Workloads: how many flows arrive, when, and of which sizes (docs/scenarios.md#workloads)."""

import contextlib
import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest
from marks import needs_ns3
from traces import flow_column, link_column

from bbrgym import Flow, Scenario, make_engine, simulate
from bbrgym.envs.distribution import Distribution
from bbrgym.envs.workload import MEAN_BYTES, SIZES, WEB_SEARCH, draw_sizes, mean_wire_bytes

SHORT = {"arrivals_per_s": 5, "sizes": "fixed", "mean_bytes": 20_000, "flow": {"algorithm": "cubic", "rtt_ms": 20}}


def made(workload: dict[str, Any], **scenario: Any) -> Scenario:
    return Scenario.from_dict({"duration_s": 100, "workload": workload} | scenario)


def starts(scenario: Scenario) -> np.ndarray[Any, Any]:
    return np.array([flow.start_s for flow in scenario.flows])


def test_flows_arrive_as_a_poisson_process() -> None:
    gaps = np.concatenate([np.diff(starts(made(SHORT | {"seed": seed})), prepend=0) for seed in range(10)])
    count = len(gaps)
    assert count / 10 == pytest.approx(500, abs=3 * np.sqrt(500 / 10))
    # Exponential gaps: the mean is the standard deviation, and one gap says nothing of the next.
    assert gaps.mean() == pytest.approx(0.2, rel=3 / np.sqrt(count))
    assert gaps.std() == pytest.approx(0.2, rel=4 / np.sqrt(count))
    assert abs(np.corrcoef(gaps[:-1], gaps[1:])[0, 1]) < 3 / np.sqrt(count)
    assert np.exp(-1) == pytest.approx((gaps > 0.2).mean(), abs=0.02)


def test_rate_and_duration_change_neither_the_order_nor_the_sizes() -> None:
    pareto = SHORT | {"sizes": "pareto", "shape": 1.5}
    slow, fast = made(pareto), made(pareto | {"arrivals_per_s": 10}, duration_s=90)
    assert len(fast.flows) > len(slow.flows)
    assert starts(fast)[:400] * 2 == pytest.approx(starts(slow)[:400])
    pairs = list(zip(slow.flows, fast.flows, strict=False))
    assert all(one.size_bytes == two.size_bytes for one, two in pairs)
    assert len({flow.size_bytes for flow in slow.flows}) > 400


@pytest.mark.parametrize("sizes", SIZES)
def test_the_mean_size_is_the_published_or_the_given_one(sizes: str) -> None:
    mean, shape = (MEAN_BYTES[sizes], None) if sizes in MEAN_BYTES else (80_000, 2.5)
    drawn = draw_sizes(sizes, (np.arange(200_000) + 0.5) / 200_000, mean, shape)
    assert drawn.mean() == pytest.approx(mean, rel=0.003)
    assert drawn.min() >= 1


def test_the_published_table_of_the_web_search_cluster() -> None:
    """1,711,250 bytes is what users of the table give as its mean; over half of the flows are below 100 kB."""
    area = sum((b - a) * (x + y) / 2 for (x, a), (y, b) in itertools.pairwise(WEB_SEARCH))
    assert area == pytest.approx(MEAN_BYTES["web-search"])
    shares = [share for _, share in WEB_SEARCH]
    drawn = draw_sizes("web-search", np.array(shares[:-1]), 0, None)
    assert drawn.tolist() == [1, *(size for size, _ in WEB_SEARCH[1:-1])]
    sizes = draw_sizes("web-search", np.linspace(0, 1, 10_001)[:-1], 0, None)
    assert (sizes <= 80_000).mean() == pytest.approx(0.53, abs=0.001)


def test_the_published_distribution_of_web_pages() -> None:
    """The median of the log-normal distribution is mean / sqrt(1 + (deviation / mean)^2), 4213 bytes.

    0.31 % of it is below 100 bytes and drawn anew, hardly anything above 2 MB.
    """
    drawn = draw_sizes("web-page", np.linspace(0, 1, 10_001)[:-1], 0, None)
    assert drawn.min() == 100
    assert 200_000 < drawn.max() <= 2_000_000
    assert (drawn <= 4213).mean() == pytest.approx((0.5 - 0.0031) / (1 - 0.0031), abs=0.0005)


@pytest.mark.parametrize("packet_bytes", [100, 1000, 9000])
@pytest.mark.parametrize("sizes", SIZES)
def test_the_mean_on_the_wire_is_that_of_the_sizes(sizes: str, packet_bytes: int) -> None:
    mean, shape = (MEAN_BYTES[sizes], None) if sizes in MEAN_BYTES else (2500, 2.5)
    drawn = draw_sizes(sizes, np.random.default_rng(1).random(200_000), mean, shape)
    headers = 40 * (np.ceil(drawn / packet_bytes) + 1)
    # The few largest sizes of a sample move its mean, but hardly the headers beside them.
    expected = headers.mean() + 40 / packet_bytes * (mean - drawn.mean())
    on_the_wire = mean_wire_bytes(sizes, mean, shape, packet_bytes=packet_bytes, header_bytes=40)
    assert on_the_wire - mean == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("size_bytes", [100, 1500, 10_000, 100_000])
@pytest.mark.parametrize(
    ("engine", "options", "handshake_bytes"),
    [
        ("native", {}, 40),
        pytest.param("ns3", {"transport": "quic"}, 42, marks=needs_ns3),  # PPP
        pytest.param("ns3", {"transport": "tcp"}, 92, marks=needs_ns3),  # an ACK besides
    ],
)
def test_the_load_is_the_utilisation(
    engine: str, options: dict[str, str], handshake_bytes: int, size_bytes: int
) -> None:
    """200 flows are expected in 2 s; all of them end."""
    wire_bytes = size_bytes + 40 * (1 + math.ceil(size_bytes / 1000))
    rate_mbps = 200 * wire_bytes * 8e-6 / 2 / 0.4
    load = {"load": 0.4, "sizes": "fixed", "mean_bytes": size_bytes, "stop_s": 2, "flow": {"rtt_ms": 20}}
    scenario = made(load, rate_mbps=rate_mbps, duration_s=5, buffer_packets=10_000)
    count = len(scenario.flows)
    assert count == pytest.approx(200, abs=3 * np.sqrt(200))
    with contextlib.closing(make_engine(engine, **options)) as running:
        trace = simulate(scenario, running)
    assert flow_column(trace, "received_bytes").sum() == count * size_bytes
    measured = link_column(trace, "utilisation") @ np.diff(trace.time_s, prepend=0) * rate_mbps * 1e6 / 8 / count
    assert measured - handshake_bytes + 40 == pytest.approx(wire_bytes, rel=0.02)


def test_the_scenario_holds_the_flows_after_those_that_are_given() -> None:
    given = [{"algorithm": "agent", "rtt_ms": 30}]
    scenario = made(SHORT | {"start_s": 20, "stop_s": 60, "flow": {"ecn": "l4s", "rtt_ms": 5}}, flows=given)
    assert scenario.flows[0] == Flow("agent", rtt_ms=30)
    assert len(scenario.flows) > 100
    assert set(map(type, scenario.to_dict())) == {str}
    assert "workload" not in scenario.to_dict()
    assert Scenario.from_dict(scenario.to_dict()) == scenario
    for flow in scenario.flows[1:]:
        assert 20 <= flow.start_s < 60
        assert dataclasses.replace(flow, start_s=0) == Flow(rtt_ms=5, size_bytes=20_000, ecn="l4s")
    assert made(SHORT, flows=[]) == made(SHORT)
    assert made(None, flows=given).flows == scenario.flows[:1]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("workload", "message"),
    [
        (3, "workload must be a mapping with keys of load, arrivals_per_s, sizes"),
        (SHORT | {"mean_bytes": None}, "workload.mean_bytes must be given"),
        (SHORT | {"load": 0.5}, "workload must have either load or arrivals_per_s"),
        (SHORT | {"flow": {"size_bytes": 3}}, "workload.flow must not have size_bytes"),
        (SHORT | {"flow": {"algorithm": "agent"}}, "workload.flow.algorithm must not be agent"),
        (SHORT | {"arrivals_per_s": 20}, "workload must have at most 1000 flows, got about 2000"),
    ],
)
def test_what_is_not_possible_is_refused_by_name(workload: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(workload)


def test_a_distribution_draws_the_workload_of_every_episode() -> None:
    workload = SHORT | {"arrivals_per_s": {"uniform": [1, 3]}, "seed": {"uniform": [0, 10**6]}}
    plain = {"duration_s": 10, "flows": [{"algorithm": "agent"}], "workload": workload}
    distribution = Distribution.from_dict(plain)
    assert distribution == Distribution.from_dict(distribution.to_dict())
    rng = np.random.default_rng(1)
    drawn = [distribution.sample(rng) for _ in range(20)]
    counts = {len(scenario.flows) for scenario in drawn}
    assert len(counts) > 5
    assert max(counts) <= distribution.max_flows
    assert all(scenario.agent_flows == (0,) for scenario in drawn)
    fixed = Distribution.from_dict(plain | {"workload": SHORT})
    assert fixed.max_flows == len(fixed.example.flows) > 1
