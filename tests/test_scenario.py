"""Scenarios: what is possible, what is refused and how, and that nothing is lost on the way."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Callable

import pytest

from bbrgym import Flow, Scenario

SCENARIO = Scenario(
    rate_mbps=20.5,
    buffer_bdp=2.5,
    duration_s=40,
    packet_bytes=1448,
    loss=0.01,
    rate_schedule=((3, 10), (5.5, 30.0)),
    flows=(Flow("bbr", rtt_ms=10, parameters={"cwnd_gain": 1.5}), Flow("cubic", 50.5, 1.0, 9.0, 12345)),
)


def test_to_plain_types_and_back():
    assert Scenario.from_dict(json.loads(json.dumps(SCENARIO.to_dict()))) == SCENARIO
    assert pickle.loads(pickle.dumps(SCENARIO)) == SCENARIO
    assert hash(SCENARIO) == hash(Scenario.from_dict(SCENARIO.to_dict()))


def test_the_buffer_in_packets():
    assert Scenario(rate_mbps=100, buffer_bdp=5, flows=(Flow(rtt_ms=10), Flow(rtt_ms=50))).queue_packets == 3125
    assert Scenario(rate_mbps=100, flows=(Flow(rtt_ms=50),)).queue_packets == 625
    assert Scenario(buffer_packets=7).queue_packets == 7
    assert Scenario(rate_mbps=0.01, buffer_bdp=0.1).queue_packets == 1


def test_the_same_algorithm_on_every_flow():
    changed = SCENARIO.with_algorithm("agent", cwnd_gain=3.0)
    assert [flow.algorithm for flow in changed.flows] == ["agent", "agent"]
    assert [flow.rtt_ms for flow in changed.flows] == [10, 50.5]
    assert changed.agent_flows == (0, 1)
    assert SCENARIO.agent_flows == ()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Flow("bbr9"), r"no algorithm 'bbr9' \(did you mean 'bbr'\?\); known: agent, bbr, "),
        (lambda: Flow("bbr", parameters={"gain": 1}), "algorithm 'bbr' has no parameter 'gain'; known: startup_gain, "),
        (lambda: Flow("bbr", parameters={"cwnd_gain": -1}), r"cwnd_gain=-1 of algorithm 'bbr' .* in \[0\.1, 100\]"),
        (lambda: Flow("bbr-stock", parameters={"x": 1}), "has no parameter 'x'; known: none"),
        (lambda: Flow(rtt_ms=0), "rtt_ms=0 is not possible"),
        (lambda: Flow(start_s=-1), "start_s=-1 is not possible"),
        (lambda: Flow(start_s=5, stop_s=2), "stop_s=2 is not possible: .* after the flow's start_s=5"),
        (lambda: Flow(size_bytes=0), "size_bytes=0 is not possible"),
        (lambda: Flow(size_bytes=1.5), "size_bytes=1.5 is not possible: size_bytes must be a whole number, or none"),
        (lambda: Flow(rtt_ms=None), "rtt_ms=None is not possible: rtt_ms must be a number"),
        (lambda: Scenario(rate_mbps=-3), r"rate_mbps=-3 is not possible: rate_mbps must be in \[0.01, 10000\]"),
        (lambda: Scenario(rate_mbps="fast"), "rate_mbps='fast' is not possible: rate_mbps must be a number"),
        (lambda: Scenario(rate_mbps=math.nan), "rate_mbps=nan is not possible"),
        (lambda: Scenario(buffer_bdp=0), "buffer_bdp=0 is not possible: buffer_bdp must be above 0"),
        (lambda: Scenario(buffer_packets=0), "buffer_packets=0 is not possible"),
        (lambda: Scenario(buffer_bdp=1, buffer_packets=10), "both given: give one"),
        (lambda: Scenario(duration_s=math.inf), "duration_s=inf is not possible"),
        (lambda: Scenario(packet_bytes=10), "packet_bytes=10 is not possible"),
        (lambda: Scenario(packet_bytes=True), "packet_bytes=True is not possible"),
        (lambda: Scenario(loss=1), "loss=1 is not possible"),
        (lambda: Scenario(rate_schedule=((3, 1), (2, 1))), "rising times"),
        (lambda: Scenario(rate_schedule=((3, -1),)), "rate_schedule=-1.0 is not possible"),
        (lambda: Scenario(flows=()), "flows=0 is not possible"),
        (lambda: Scenario(flows=("bbr",)), r"flows\[0\]='bbr' is not possible: flows\[0\] must be a Flow"),
        (lambda: Scenario(duration_s=5, flows=(Flow(start_s=7),)), r"flows\[0\].start_s=7 .* before duration_s=5"),
        (lambda: Scenario.from_dict({"rate": 3}), "a scenario has no field 'rate'; known: rate_mbps, "),
        (lambda: Scenario.from_dict({"flows": [{"rtt": 3}]}), "a flow has no field 'rtt'; known: algorithm, rtt_ms"),
    ],
)
def test_what_is_not_possible_is_refused_by_name(make: Callable[[], object], message: str):
    with pytest.raises(ValueError, match=message):
        make()
