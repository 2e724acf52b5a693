"""The engine on this machine's network stack, in real time: bounds are wide, and no two runs are compared."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

import pytest

from bbrgym.envs.columns import FLOW_COLUMNS
from bbrgym.envs.engine import EngineUnavailableError
from bbrgym.envs.linux.engine import LinuxEngine
from bbrgym.envs.scenario import Flow, Scenario

SCENARIO = Scenario(
    rate_mbps=5, buffer_bdp=2, duration_s=0.8, flows=(Flow("agent", rtt_ms=20), Flow("cubic", rtt_ms=40))
)


@pytest.fixture(scope="module")
def engine() -> Iterator[LinuxEngine]:
    with contextlib.closing(LinuxEngine(timeout_s=60, start_limit_s=60)) as engine:
        try:
            engine.reset(SCENARIO, 1)
        except EngineUnavailableError as error:
            pytest.skip(str(error))
        yield engine


def test_an_episode_in_real_time(engine: LinuxEngine) -> None:
    rows = engine.reset(SCENARIO, 1)
    assert (rows.time_s, rows.is_over) == (0.0, False)
    received, times = 0.0, []
    while not rows.is_over:
        engine.steer(0, 1.5, 1.1)
        rows = engine.step(200)
        times.append(rows.time_s)
        received += sum(flow[FLOW_COLUMNS.index("received_bytes")] for flow in rows.flows)
        assert rows.link_row()["rate_mbps"] == 5
        assert 0 <= rows.link_row()["utilisation"] <= 1
    assert times == pytest.approx([0.2, 0.4, 0.6, 0.8])
    assert 0 < received <= 5e6 / 8 * 0.8
    for index, base_ms in enumerate((20, 40)):
        assert rows.flow(index)["rtt_last_ms"] >= base_ms
        assert rows.flow(index)["cwnd_packets"] > 0


def test_a_finite_flow_completes_the_episode(engine: LinuxEngine) -> None:
    engine.reset(Scenario(rate_mbps=5, duration_s=30, flows=(Flow("bbr", rtt_ms=10, size_bytes=20_500),)), 1)
    rows = engine.step(30_000)
    assert rows.is_complete
    assert rows.time_s < 30
    assert rows.flow(0)["received_bytes"] == 20_500


def test_a_flow_that_has_not_started_is_inactive(engine: LinuxEngine) -> None:
    engine.reset(Scenario(duration_s=5, flows=(Flow("bbr"), Flow("bbr", start_s=4))), 1)
    late = engine.step(100).flow(1)
    assert (late["is_active"], late["sent_packets"]) == (0, 0)
    assert math.isnan(late["cwnd_packets"])
