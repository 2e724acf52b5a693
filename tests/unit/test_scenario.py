"""Scenarios: what is possible, what is refused and how, and that nothing is lost on the way."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from omegaconf import OmegaConf

from bbrgym import Flow, Scenario, _testing, simulate
from bbrgym.envs.distribution import Distribution
from bbrgym.envs.scenario import LEFT_OUT

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


def test_an_integral_float_makes_the_same_scenario():
    whole = {"buffer_packets": 1000, "packet_bytes": 1000, "flows": [{"size_bytes": 1000000}], "duration_s": 1}
    yaml = OmegaConf.create("{buffer_packets: 1e3, packet_bytes: 1e3, flows: [{size_bytes: 1e6}], duration_s: 1}")
    plain: Any = OmegaConf.to_container(yaml)
    assert isinstance(plain["buffer_packets"], float)
    one, other = Scenario.from_dict(whole), Scenario.from_dict(plain)
    assert json.dumps(one.to_dict()) == json.dumps(other.to_dict())
    assert one.digest == other.digest
    assert simulate(one, "native", 1).hash == simulate(other, "native", 1.0).hash  # type: ignore[arg-type]
    drawn = Distribution.from_dict(plain | {"buffer_packets": {"choice": [2e3]}}).sample(np.random.default_rng(1))
    assert (drawn.buffer_packets, type(drawn.buffer_packets)) == (2000, int)


NEW = dataclasses.replace(
    SCENARIO,
    queue="codel",
    codel_target_ms=7.5,
    codel_interval_ms=50,
    pie_target_ms=20,
    dualpi2_target_ms=5,
    dualpi2_step_ms=0.5,
    dualpi2_coupling=3,
    ce_threshold_ms=1.5,
    loss_burst_ms=40,
    second_rate_mbps=7,
    second_buffer_packets=9,
    reverse_rate_mbps=3,
    reverse_buffer_packets=8,
    reordering=0.02,
    reordering_ms=3.5,
    policer_mbps=7.5,
    policer_burst_bytes=20_000,
    flows=(
        dataclasses.replace(
            SCENARIO.flows[0], jitter_ms=2.5, app_rate_mbps=3.5, on_s=1.5, off_s=0.5, on_off="exponential"
        ),
        SCENARIO.flows[1],
        Flow(
            "policy",
            policy="runs/train/mine",
            ecn="l4s",
            rtt_schedule=((1, 20), (2.5, 30.0)),
            ack_loss=0.1,
            ack_aggregation_ms=4.0,
            path="reverse",
        ),
    ),
)
"""With every field that is left out at its default."""


def test_fields_that_are_left_out_at_their_defaults():
    assert set(SCENARIO.to_dict()) | {*SCENARIO.to_dict()["flows"][0]} == {
        *("rate_mbps", "buffer_bdp", "buffer_packets", "duration_s", "packet_bytes", "loss", "rate_schedule", "flows"),
        *("algorithm", "rtt_ms", "start_s", "stop_s", "size_bytes", "parameters"),
    }
    assert set(NEW.to_dict()) | {*NEW.to_dict()["flows"][0]} | {*NEW.to_dict()["flows"][2]} >= LEFT_OUT - {
        "loss_burst_packets"
    }
    assert "jitter_ms" not in NEW.to_dict()["flows"][1]
    assert Scenario.from_dict(json.loads(json.dumps(NEW.to_dict()))) == NEW
    assert pickle.loads(pickle.dumps(NEW)) == NEW
    assert hash(NEW) != hash(SCENARIO)

    defaults = {field.name: field.default for cls in (Scenario, Flow) for field in dataclasses.fields(cls)}
    of_flow = LEFT_OUT & {field.name for field in dataclasses.fields(Flow)}
    said = SCENARIO.to_dict() | {name: defaults[name] for name in LEFT_OUT - of_flow}
    said["flows"] = [flow | {name: defaults[name] for name in of_flow} for flow in said["flows"]]
    assert Scenario.from_dict(said) == SCENARIO
    assert Scenario.from_dict(said).to_dict() == SCENARIO.to_dict()


@pytest.mark.parametrize("cls", [Scenario, Flow])
def test_fields_and_defaults_are_the_same_in_both_languages(cls: type):
    there = _testing.scenario_defaults() if cls is Scenario else _testing.flow_defaults()
    here = {field.name: field.default for field in dataclasses.fields(cls)}
    assert list(there) == list(here)
    here = {name: list(default) if isinstance(default, tuple) else default for name, default in here.items()}
    assert all(there[name] == here[name] for name in LEFT_OUT & set(here))  # the engines are not told of these
    assert {name for name in here if there[name] != here[name]} <= {"flows", "parameters"}


@pytest.mark.parametrize(
    "buffer", [{"buffer_bdp": 0.001}, {"buffer_bdp": 1.7}, {"buffer_bdp": 2.5}, {"buffer_packets": 17}, {}]
)
def test_the_buffer_is_the_same_in_both_languages(buffer: dict[str, Any]):
    scenario = Scenario(rate_mbps=33.3, flows=(Flow(rtt_ms=7.7), Flow(rtt_ms=3.3)), **buffer)
    assert _testing.queue_packets(scenario.to_dict()) == scenario.queue_packets


def test_a_trace_becomes_the_schedule(tmp_path: Path):
    file = tmp_path / "a.trace"
    file.write_text("40\n80\n120\n160\n200\n200\n")
    plain = {"rate_mbps": 5, "duration_s": 0.6, "rate_trace": {"file": str(file), "bin_ms": 100}}
    scenario = Scenario.from_dict(plain)
    assert scenario.rate_schedule == ((0.0, 0.24), (0.1, 0.48), (0.2, 0.24), (0.3, 0.48), (0.4, 0.24), (0.5, 0.48))
    assert scenario == Scenario.from_dict(scenario.to_dict())
    assert str(tmp_path) not in json.dumps(scenario.to_dict())
    assert Scenario.from_dict({"rate_trace": None, "rate_schedule": [[1, 2]]}).rate_schedule == ((1, 2),)
    file.write_text("40\n80\n120\n160\n200\n")
    assert Scenario.from_dict(plain) != scenario


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
    assert [flow.policy for flow in NEW.with_algorithm("bbr").flows] == [None] * 3
    assert SCENARIO.agent_flows == ()


def test_an_algorithm_in_the_place_of_agents():
    flows = (Flow("cubic"), Flow("agent", rtt_ms=20, start_s=1, parameters={"cwnd_gain": 3.0}), Flow("policy"))
    changed = Scenario(rate_mbps=7, flows=flows).with_agents_as("bbr")
    assert changed == Scenario(rate_mbps=7, flows=(flows[0], Flow("bbr", rtt_ms=20, start_s=1), flows[2]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Flow("bbr9"), r"unknown algorithm 'bbr9' \(did you mean 'bbr'\?\); known: agent, bbr, "),
        (lambda: Flow("bbr", parameters={"gain": 1}), "unknown parameter 'gain' of algorithm 'bbr'; known: startup_"),
        (
            lambda: Flow("bbr", parameters={"cwnd_gain": -1}),
            r"parameter cwnd_gain of algorithm 'bbr' must be in \[0\.1, 100\], got -1",
        ),
        (lambda: Flow("bbr-stock", parameters={"x": 1}), "bbr-stock takes no parameters, got x"),
        (
            lambda: Flow("bbr", parameters={"cwnd_gain": 10**400}),
            "parameter cwnd_gain .* must be a finite number, got 1000",
        ),
        (lambda: Flow("bbr", parameters=2.0), r"parameters of algorithm 'bbr' must be a mapping, got 2\.0"),  # type: ignore[arg-type]
        (lambda: Flow(size_bytes=10**400), r"size_bytes must be an integer in \[1, 2\*\*53\) or null, got 1000"),
        (lambda: Scenario.from_dict([]), r"scenario must be a mapping with keys of rate_mbps, .*, got \[\]"),  # type: ignore[arg-type]
        (lambda: Scenario.from_dict({"flows": 0.0}), "flows must be a list, got 0.0"),
        (
            lambda: Scenario.from_dict({"rate_schedule": [[0, None]]}),
            r"rate_schedule must be pairs of numbers, got \[\[0",
        ),
        (lambda: Scenario.from_dict({"rate_schedule": [1]}), r"rate_schedule must be pairs of numbers, got \[1\]"),
        (lambda: Flow(rtt_ms=0), r"rtt_ms must be in \(0, 10000\], got 0"),
        (lambda: Flow(start_s=-1), "start_s must be >= 0, got -1"),
        (lambda: Flow(start_s=5, stop_s=2), "stop_s must be > start_s=5, got 2"),
        (lambda: Flow(size_bytes=0), r"size_bytes must be an integer in \[1, 2\*\*53\) or null, got 0"),
        (lambda: Flow(size_bytes=1.5), r"size_bytes must be an integer in \[1, 2\*\*53\) or null, got 1\.5"),
        (lambda: Flow(ecn="ect0"), "ecn must be classic, l4s or null, got 'ect0'"),  # type: ignore[arg-type]
        (lambda: Flow(ecn=False), "ecn must be classic, l4s or null, got False"),  # type: ignore[arg-type]  # YAML's off
        (lambda: Flow(app_rate_mbps=0), r"app_rate_mbps must be in \[0\.001, 10000\] or null, got 0"),
        (lambda: Flow(on_s=1, off_s=1), "app_rate_mbps must be a rate with on_s=1, got None"),
        (lambda: Flow(app_rate_mbps=1, on_s=1), "off_s must be null if and only if on_s=1 is, got None"),
        (lambda: Flow(app_rate_mbps=1, off_s=1), "off_s must be null if and only if on_s=None is, got 1"),
        (lambda: Flow(app_rate_mbps=1, on_s=0, off_s=1), r"on_s must be in \[0\.001, 1e\+06\] or null, got 0"),
        (lambda: Flow(on_off="random"), "unknown on_off 'random'; known: fixed, exponential"),  # type: ignore[arg-type]
        (lambda: Flow(path="third"), "unknown path 'third'; known: forward, first, second, reverse"),  # type: ignore[arg-type]
        (
            lambda: Scenario(second_rate_mbps=1, flows=(Flow(), Flow(path="reverse"))),
            r"flows\[1\]: path 'reverse' needs reverse_rate_mbps, got null",
        ),
        (
            lambda: Scenario(reverse_rate_mbps=1, flows=(Flow(path="first"),)),
            r"flows\[0\]: path 'first' needs second_rate_mbps, got null",
        ),
        (lambda: Scenario(second_rate_mbps=0), r"second_rate_mbps must be in \[0\.01, 10000\] or null, got 0"),
        (
            lambda: Scenario(reverse_buffer_packets=0),
            r"reverse_buffer_packets must be an integer in \[1, 1e\+07\], got 0",
        ),
        (lambda: Scenario(ce_threshold_ms=-1), r"ce_threshold_ms must be in \[0, 10000\] or null, got -1"),
        (lambda: Flow(jitter_ms=-1), r"jitter_ms must be in \[0, 10000\], got -1"),
        (lambda: Flow(rtt_schedule=((1, 0),)), r"RTTs in rtt_schedule must be in \(0, 10000\], got 0\.0"),
        (lambda: Flow(rtt_schedule=((2, 9), (1, 9))), r"rtt_schedule must be pairs with rising times >= 0, got \[\(2"),
        (lambda: Flow(rtt_schedule=(1, 2)), r"rtt_schedule must be pairs of numbers, got \(1, 2\)"),  # type: ignore[arg-type]
        (lambda: Flow(ack_loss=1), r"ack_loss must be in \[0, 1\), got 1"),
        (lambda: Flow(ack_aggregation_ms=-1), r"ack_aggregation_ms must be in \[0, 10000\], got -1"),
        (lambda: Flow(jitter_ms=None), r"jitter_ms must be a finite number in \[0, 10000\], got None"),
        (
            lambda: Flow("bbr", policy="runs/x"),
            r"policy must be null with algorithm 'bbr' \(only 'policy' runs one\), got 'runs/x'",
        ),
        (lambda: Flow("policy", policy=3), "policy must be a path or null, got 3"),
        (lambda: Flow(rtt_ms=None), r"rtt_ms must be a finite number in \(0, 10000\], got None"),
        (lambda: Scenario(rate_mbps=-3), r"rate_mbps must be in \[0\.01, 10000\], got -3"),
        (lambda: Scenario(rate_mbps="fast"), r"rate_mbps must be a finite number in \[0\.01, 10000\], got 'fast'"),
        (lambda: Scenario(rate_mbps=math.nan), r"rate_mbps must be a finite number in \[0\.01, 10000\], got nan"),
        (lambda: Scenario(buffer_bdp=0), r"buffer_bdp must be in \(0, 10000\] or null, got 0"),
        (lambda: Scenario(buffer_packets=0), r"buffer_packets must be an integer in \[1, 1e\+07\] or null, got 0"),
        (lambda: Scenario(buffer_bdp=1, buffer_packets=10), "give one of buffer_bdp and buffer_packets, got 1 and 10"),
        (lambda: Scenario(duration_s=math.inf), r"duration_s must be a finite number in \(0, 1e\+06\], got inf"),
        (lambda: Scenario(packet_bytes=10), r"packet_bytes must be an integer in \[64, 9000\], got 10"),
        (lambda: Scenario(packet_bytes=True), r"packet_bytes must be an integer in \[64, 9000\], got True"),
        (lambda: Scenario(loss=1), r"loss must be in \[0, 1\), got 1"),
        (lambda: Scenario(queue="red"), "unknown queue 'red'; known: droptail, codel, pie, fq_codel, dualpi2"),
        (lambda: Scenario(queue=None), "unknown queue None; known: droptail, codel, pie, fq_codel, dualpi2"),
        (lambda: Scenario(codel_target_ms=0), r"codel_target_ms must be in \[0\.01, 10000\], got 0"),
        (
            lambda: Scenario(codel_interval_ms=math.nan),
            r"codel_interval_ms must be a finite number in \[0\.1, 100000\], got nan",
        ),
        (lambda: Scenario(pie_target_ms=0), r"pie_target_ms must be in \[0\.01, 10000\], got 0"),
        (lambda: Scenario(dualpi2_target_ms=0), r"dualpi2_target_ms must be in \[0\.01, 10000\], got 0"),
        (lambda: Scenario(dualpi2_step_ms=-1), r"dualpi2_step_ms must be in \[0, 10000\], got -1"),
        (lambda: Scenario(dualpi2_coupling=0.5), r"dualpi2_coupling must be in \[1, 100\], got 0\.5"),
        (lambda: Scenario(loss_burst_packets=0.5), r"loss_burst_packets must be in \[1, 1e\+06\] or null, got 0\.5"),
        (
            lambda: Scenario(loss_burst_packets="long"),
            r"loss_burst_packets must be a finite number in \[1, 1e\+06\] or null, got 'long'",
        ),
        (lambda: Scenario(loss=0.9, loss_burst_packets=4), r"loss must be <= 0\.8 with loss_burst_packets=4, got 0\.9"),
        (lambda: Scenario(loss_burst_ms=0), r"loss_burst_ms must be in \[0\.01, 1e\+06\] or null, got 0"),
        (
            lambda: Scenario(loss=0.1, loss_burst_packets=4, loss_burst_ms=30),
            "loss_burst_ms must be null with loss_burst_packets=4, got 30",
        ),
        (lambda: Scenario(reordering=1), r"reordering must be in \[0, 1\), got 1"),
        (lambda: Scenario(reordering_ms=0), r"reordering_ms must be in \(0, 10000\], got 0"),
        (lambda: Scenario(policer_mbps=0), r"policer_mbps must be in \[0\.01, 10000\] or null, got 0"),
        (lambda: Scenario(policer_burst_bytes=0.5), "policer_burst_bytes must be an integer"),  # type: ignore[arg-type]
        (
            lambda: Scenario(policer_mbps=5, policer_burst_bytes=1039),
            "policer_burst_bytes must be >= 1040, a full packet with its headers, got 1039",
        ),
        (lambda: Scenario(rate_schedule=((3, 1), (2, 1))), "rising times"),
        (lambda: Scenario(rate_schedule=((-1, 1), (2, 1))), "pairs with rising times >= 0, got"),
        (lambda: Scenario(rate_schedule=((0, 1), (0, 2))), "pairs with rising times >= 0, got"),
        (lambda: Scenario(rate_schedule=((0, 0),)), r"rates in rate_schedule must be in \[0\.01, 10000\], got 0\.0"),
        (lambda: Scenario(rate_schedule=((3, -1),)), r"rates in rate_schedule must be in \[0\.01, 10000\], got -1\.0"),
        (lambda: Scenario(flows=()), r"the number of flows must be an integer in \[1, 1000\], got 0"),
        (lambda: Scenario(flows=("bbr",)), r"flows\[0\] must be a Flow, got 'bbr'"),
        (
            lambda: Scenario(duration_s=5, flows=(Flow(start_s=7),)),
            r"flows\[0\]\.start_s must be < duration_s=5, got 7",
        ),
        ({"rate": 3}, r"scenario: unknown key 'rate' \(did you mean 'rate_mbps'\?\); known: rate_mbps,"),
        ({"rate_trace": "a"}, "rate_trace must be a mapping with keys of file, synthetic, seed, bin_ms,"),
        ({"rate_trace": {"file": "a", "bins": 3}}, r"unknown key 'bins' \(did you mean 'bin_ms'\?\); known: file,"),
        ({"rate_trace": {"path": "a"}}, "rate_trace: unknown key 'path'"),
        ({"rate_trace": {"file": "/no"}}, "rate_trace: '/no' cannot be read: No such file"),
        ({"rate_trace": {}}, "must have either a file or synthetic, got {}"),
        ({"rate_trace": {"file": "a", "synthetic": "cellular"}}, "must have either a file or synthetic"),
        ({"rate_trace": {"synthetic": "satellite"}}, "unknown rate_trace.synthetic 'satellite'; known: cellular"),
        ({"rate_trace": {"synthetic": "cellular", "seed": -1}}, "rate_trace.seed must be an integer >= 0, got -1"),
        ({"rate_trace": {"file": "a", "seed": 1}}, "rate_trace must have no seed beside a file"),
        (
            {"rate_trace": {"file": "a"}, "rate_schedule": [[1, 2]]},
            r"give one of rate_trace and rate_schedule, got both: rate_trace=\{'file': 'a'\}",
        ),
        ({"flows": [{"rtt": 3}]}, r"flow: unknown key 'rtt' \(did you mean 'rtt_ms'\?\); known: algorithm, rtt_ms,"),
    ],
)
def test_what_is_not_possible_is_refused_by_name(make: Callable[[], object] | dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        Scenario.from_dict(make) if isinstance(make, dict) else make()


def test_in_words():
    flows = (Flow(rtt_ms=20, start_s=2, stop_s=9, jitter_ms=3), Flow(size_bytes=3_000_000))
    link = {"queue": "codel", "loss": 0.01, "loss_burst_packets": 4, "rate_schedule": ((3, 8),)}
    assert Scenario(buffer_packets=30, flows=flows, **link).describe() == (
        "12 Mbit/s, CoDel (5 ms in 100 ms) buffer of 30 packets, 1.00% random loss in bursts of 4 packets, rate "
        "changes to 8 Mbit/s at 3 s, 30 s; flow 0: 20 ms from 2 s to 9 s, jitter of up to 3 ms; flow 1: 50 ms, 3 MB."
    )
    marking = Scenario(ce_threshold_ms=1, flows=(Flow(ecn="l4s"), Flow(ecn="classic")))
    assert marking.describe() == (
        "12 Mbit/s, droptail buffer of 1 BDP (75 packets), ECN marks above 1 ms, 30 s; "
        "flow 0: 50 ms, l4s ECN; flow 1: 50 ms, classic ECN."
    )
    impaired = Scenario(loss=0.01, loss_burst_ms=30, reordering=0.01, reordering_ms=5, policer_mbps=8)
    assert impaired.describe_link() == (
        "12 Mbit/s, droptail buffer of 1 BDP (75 packets), 1.00% random loss in bursts of 30 ms, "
        "1.00% of packets 5 ms late, policer of 8 Mbit/s with bursts of 100,000 bytes"
    )
    back = Flow(rtt_schedule=((1, 20), (2, 30.5)), jitter_ms=1, ack_loss=0.02, ack_aggregation_ms=4)
    assert back.describe() == (
        "50 ms, RTT changes to 20 ms at 1 s, 30.5 ms at 2 s, jitter of up to 1 ms, 2.00% of ACKs lost, "
        "ACKs together every 4 ms"
    )
    applications = (Flow(app_rate_mbps=4), Flow(app_rate_mbps=4, on_s=1, off_s=0.5, on_off="exponential"))
    assert (
        Scenario(flows=applications)
        .describe()
        .endswith(
            "flow 0: 50 ms, 4 Mbit/s by the application; "
            "flow 1: 50 ms, 4 Mbit/s by the application for 1 s, then 0.5 s off (means)."
        )
    )
    many = Scenario(flows=(Flow(),) * 33).describe()
    assert many.endswith("flow 7: 50 ms; 25 more flows.")
    further = Scenario(second_rate_mbps=9, reverse_rate_mbps=1, reverse_buffer_packets=30, flows=(Flow(path="second"),))
    assert further.describe() == (
        "12 Mbit/s, droptail buffer of 1 BDP (75 packets), second link of 9 Mbit/s, buffer of 100 packets, "
        "reverse link of 1 Mbit/s, buffer of 30 packets, 30 s; flow 0: 50 ms, path second."
    )
    assert (
        Scenario(queue="pie", pie_target_ms=20).describe_link() == "12 Mbit/s, PIE (20 ms) buffer of 1 BDP (75 packets)"
    )
    assert Scenario(queue="fq_codel", buffer_packets=9).describe_link() == (
        "12 Mbit/s, FQ-CoDel (5 ms in 100 ms) buffer of 9 packets"
    )
    assert Scenario(queue="dualpi2", buffer_packets=9).describe_link() == (
        "12 Mbit/s, DualPI2 (15 and 1 ms) buffer of 9 packets"
    )
    varying = Scenario(rate_schedule=tuple((time, 5 + time) for time in range(10)))
    assert varying.describe_link() == (
        "12 Mbit/s, droptail buffer of 1 BDP (75 packets), 10 changes of the rate, 5 to 14 Mbit/s"
    )
