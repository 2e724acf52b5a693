"""Scenarios: what is possible, what is refused and how, and that nothing is lost on the way."""

import dataclasses
import functools
import inspect
import json
import math
import pickle
import random
import typing
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import write_fields
from random_scenarios import random_scenario

from bbrgym import Flow, Scenario, _testing, simulate
from bbrgym.envs import scenario as scenario_module
from bbrgym.envs.action import Action
from bbrgym.envs.distribution import Distribution
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.envs.fields import FLOW_FIELDS, SCENARIO_FIELDS, Field, check_is_of_list
from bbrgym.envs.observation import Observation
from bbrgym.envs.reward import Reward
from bbrgym.envs.scenario import LEFT_OUT


def test_nothing_is_lost_in_plain_types_and_fields_are_left_out_at_their_defaults():
    defaults = {field.name: field.default for cls in (Scenario, Flow) for field in dataclasses.fields(cls)}
    said = set()
    for seed in range(200):
        scenario = random_scenario(random.Random(seed))
        plain = json.loads(json.dumps(scenario.to_dict()))
        assert Scenario.from_dict(plain) == pickle.loads(pickle.dumps(scenario)) == scenario
        assert hash(Scenario.from_dict(plain)) == hash(scenario)
        assert eval(repr(scenario), {"Scenario": Scenario, "Flow": Flow}) == scenario
        assert Scenario.from_dict(plain | {"flows": [scenario.flows[0], *plain["flows"][1:]]}) == scenario
        for one, described in ((scenario, plain), *zip(scenario.flows, plain["flows"], strict=True)):
            fields = {field.name: getattr(one, field.name) for field in dataclasses.fields(one)}
            is_said = {name for name, value in fields.items() if name not in LEFT_OUT or value != defaults[name]}
            assert set(described) == is_said
            said |= is_said
        of_scenario = LEFT_OUT & {field.name for field in dataclasses.fields(Scenario)}
        assert Scenario.from_dict({name: defaults[name] for name in of_scenario} | plain) == scenario
    of_others = {"server", "client", "data_from", "transport"}  # test_linux_commands.py, test_kernel_agent.py
    assert said >= LEFT_OUT - {"policy", "file", "dualpi2_step_ms"} - of_others


LISTS: list[tuple[type, dict[str, Field]]] = [(Flow, FLOW_FIELDS), (Scenario, SCENARIO_FIELDS)]
BOUNDED = [
    pytest.param(kind, name, field, id=f"{kind.__name__}.{name}")
    for kind, fields in LISTS
    for name, field in fields.items()
    if field.bounds
]


@pytest.mark.parametrize(("kind", "name", "field"), BOUNDED)
def test_what_is_beyond_the_bounds_of_the_list_is_refused_by_name(kind: type, name: str, field: Field):
    bounds = field.bounds
    beyond = [bounds[bound] for bound in ("above", "below") if bound in bounds]
    beyond += [bounds["at_least"] - 0.5] if "at_least" in bounds else []
    beyond += [bounds["at_most"] * 1.5] if "at_most" in bounds else []
    assert beyond
    for value in beyond:
        with pytest.raises(ValueError, match=name):
            kind(**{name: ((0.0, value),) if field.kind == "schedule" else value})


@pytest.mark.parametrize(("kind", "fields"), LISTS)
def test_names_that_a_field_can_be_are_its_type(kind: type, fields: dict[str, Field]):
    types = typing.get_type_hints(kind)
    for name, field in fields.items():
        if field.names:
            hint = typing.get_args(types[name])
            names = typing.get_args(hint[0]) if field.is_optional else hint
            assert names == field.names, name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda fields: fields | {"new_ms": fields["rtt_ms"]}, "'new_ms', which Flow .* lacks"),
        (
            lambda fields: {name: one for name, one in fields.items() if name != "ecn"},
            "'ecn', which the built .* lacks",
        ),
        (
            lambda fields: fields | {"rtt_ms": dataclasses.replace(fields["rtt_ms"], default=7.0)},
            "rtt_ms is 7.0 .*50.0",
        ),
        (lambda fields: dict(reversed(fields.items())), "order .*transport, data_from"),
    ],
)
def test_a_field_that_a_list_or_a_dataclass_lacks_is_named(change: Callable[[Any], dict[str, Field]], message: str):
    check_is_of_list(Flow, FLOW_FIELDS)
    with pytest.raises(TypeError, match=message):
        check_is_of_list(Flow, change(FLOW_FIELDS))


def test_docstrings_say_what_the_list_says():
    source = write_fields.SOURCE.read_text("utf-8")
    assert write_fields.with_docstrings(source) == source, "run `make fields`"
    arguments = inspect.getdoc(Scenario)
    assert arguments is not None
    assert all(f" {name}: " in arguments for name in SCENARIO_FIELDS)


@pytest.mark.parametrize(
    "buffer", [{"buffer_bdp": 0.001}, {"buffer_bdp": 1.7}, {"buffer_bdp": 2.5}, {"buffer_packets": 17}, {}]
)
def test_the_buffer_is_the_same_in_both_languages(buffer: dict[str, Any]):
    scenario = Scenario(rate_mbps=33.3, flows=(Flow(rtt_ms=7.7), Flow(rtt_ms=3.3)), **buffer)
    assert _testing.queue_packets(scenario.to_dict()) == scenario.queue_packets


def test_the_buffer_in_packets():
    assert Scenario(rate_mbps=100, buffer_bdp=5, flows=(Flow(rtt_ms=10), Flow(rtt_ms=50))).queue_packets == 3125
    assert Scenario(rate_mbps=100, flows=(Flow(rtt_ms=50),)).queue_packets == 625
    assert Scenario(buffer_packets=7).queue_packets == 7
    assert Scenario(rate_mbps=0.01, buffer_bdp=0.1).queue_packets == 1


def test_numbers_of_numpy_are_kept_as_pythons():
    flow = Flow("bbr", rtt_ms=np.float32(20), parameters={"cwnd_gain": np.float32(2)})
    scenario = Scenario(rate_mbps=np.float64(10), duration_s=np.int64(3), buffer_packets=np.int32(9), flows=(flow,))
    assert json.loads(json.dumps(scenario.to_dict())) == scenario.to_dict()
    drawn = Distribution.from_dict({"rate_mbps": {"uniform": np.array([1, 2])}, "flows": [{"algorithm": "agent"}]})
    assert json.loads(json.dumps(drawn.to_dict())) == drawn.to_dict()
    assert Action(cwnd_gain=(np.float32(1.5), np.int64(4))) == Action(cwnd_gain=(1.5, 4.0))


def test_the_same_algorithm_on_every_flow():
    scenario = Scenario(flows=(Flow("bbr", rtt_ms=10), Flow("policy", rtt_ms=50.5, policy="runs/train/mine")))
    changed = scenario.with_algorithm("agent", cwnd_gain=3.0)
    assert changed.flows == tuple(Flow("agent", rtt_ms=rtt, parameters={"cwnd_gain": 3.0}) for rtt in (10, 50.5))
    assert changed.agent_flows == (0, 1)
    assert scenario.agent_flows == ()


def test_an_algorithm_in_the_place_of_agents():
    flows = (Flow("cubic"), Flow("agent", rtt_ms=20, start_s=1, parameters={"cwnd_gain": 3.0}), Flow("policy"))
    changed = Scenario(rate_mbps=7, flows=flows).with_agents_as("bbr")
    assert changed == Scenario(rate_mbps=7, flows=(flows[0], Flow("bbr", rtt_ms=20, start_s=1), flows[2]))


REFUSED: dict[type, dict[str, list[Any]]] = {
    Flow: {
        "rtt_ms": [0, None],
        "start_s": [-1],
        "size_bytes": [0, 1.5, 10**400],
        "ecn": ["ect0", False],
        "app_rate_mbps": [0],
        "on_off": ["random"],
        "path": ["third"],
        "jitter_ms": [-1, None],
        "ack_loss": [1],
        "rtt_schedule": [((2.0, 9.0), (1.0, 9.0)), (1, 2)],
        "ack_aggregation_ms": [-1],
        "policy": ["runs/x"],
        "file": ["mine.c"],
        "parameters": [2.0],
        "algorithm": ["bbr9"],
    },
    Scenario: {
        "rate_mbps": [-3, "fast", math.nan],
        "buffer_bdp": [0],
        "buffer_packets": [0],
        "duration_s": [math.inf],
        "packet_bytes": [10, True],
        "loss": [1],
        "queue": ["red", None],
        "codel_target_ms": [0],
        "codel_interval_ms": [math.nan],
        "pie_target_ms": [0],
        "dualpi2_target_ms": [0],
        "dualpi2_step_ms": [-1],
        "dualpi2_coupling": [0.5],
        "ce_threshold_ms": [-1],
        "loss_burst_packets": [0.5, "long"],
        "loss_burst_ms": [0],
        "reordering": [1],
        "reordering_ms": [0],
        "policer_mbps": [0],
        "policer_burst_bytes": [0.5],
        "second_rate_mbps": [0],
        "reverse_buffer_packets": [0],
        "rate_schedule": [((3.0, 1.0), (2.0, 1.0)), ((-1.0, 1.0),), ((0.0, 1.0), (0.0, 2.0))],
        "flows": [("bbr",)],
    },
}
"""Values that a field alone cannot have. YAML reads `off` as False."""


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [(kind, field, value) for kind, fields in REFUSED.items() for field, values in fields.items() for value in values],
)
def test_a_bad_value_is_refused_with_its_field(kind: type, field: str, value: Any):
    with pytest.raises(ValueError, match=field) as error:
        kind(**{field: value})
    shown = value[0] if isinstance(value, tuple) else value
    assert str(shown)[:5] in str(error.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Flow("bbr", parameters={"cwnd_gain": 10**400}), "cwnd_gain .*, got 1000"),
        (lambda: Flow("bbr-stock", parameters={"x": 1}), "bbr-stock takes no parameters, got x"),
        (lambda: Flow("policy", policy=3), "policy must be a path or null, got 3"),
        (lambda: Flow(start_s=5, stop_s=2), "stop_s must be >= start_s=5, got 2"),
        (lambda: Flow(on_s=1, off_s=1), "app_rate_mbps .*on_s=1"),
        (lambda: Flow(app_rate_mbps=1, on_s=1), "off_s .*on_s=1"),
        (lambda: Flow(app_rate_mbps=1, on_s=0, off_s=1), "on_s .*got 0"),
        (lambda: Scenario(rate_schedule=((0, 0),)), r"rate_schedule .*got 0\.0"),
        (lambda: Scenario(second_rate_mbps=1, flows=(Flow(), Flow(path="reverse"))), r"flows\[1\].*reverse_rate_mbps"),
        (lambda: Scenario(reverse_rate_mbps=1, flows=(Flow(path="first"),)), r"flows\[0\].*second_rate_mbps"),
        (lambda: Scenario(buffer_bdp=1, buffer_packets=10), "buffer_bdp and buffer_packets, got 1 and 10"),
        (lambda: Scenario(loss=0.9, loss_burst_packets=4), r"loss must be <= 0\.8 with loss_burst_packets=4, got 0\.9"),
        (lambda: Scenario(loss=0.1, loss_burst_packets=4, loss_burst_ms=30), "loss_burst_ms .*loss_burst_packets=4"),
        (lambda: Scenario(policer_mbps=5, policer_burst_bytes=1039), "policer_burst_bytes .*1040.*got 1039"),
        (lambda: Scenario(flows=()), r"flows .*\[1, 1000\], got 0"),
        *(
            (functools.partial(Scenario, flows=flows), r"flows must be a list, as \[Flow\('bbr', rtt_ms=50\)\], got ")
            for flows in (Flow("bbr"), "bbr", {"algorithm": "bbr"}, 3, None)
        ),
        (lambda: Scenario(flows=["bbr"]), r"flows\[0\] must be a Flow, as Flow\('bbr', rtt_ms=50\) .*, got 'bbr'"),
        (lambda: Scenario(flows=[Flow(), {"algorithm": "bbr"}]), r"flows\[1\] must be a Flow, .*from_dict takes map"),
        (lambda: simulate({"rate_mbps": 3}), "scenario must be a Scenario .*, got {'rate_mbps': 3}"),
        (lambda: Scenario(rate_mbps=2e7), r"rate_mbps must be <= 10000 \(if it is in bit/s, give 20\), got 20000000"),
        (lambda: Flow("BBR"), r"unknown algorithm 'BBR' \(did you mean 'bbr'\?\)"),
        (
            lambda: Flow("bbr", parameters={"Cwnd-Gain": 2}),
            r"'Cwnd-Gain' of algorithm 'bbr' \(did you mean 'cwnd_gain'",
        ),
        (lambda: Scenario(duration_s=5, flows=(Flow(start_s=7),)), r"flows\[0\]\.start_s .*duration_s=5, got 7"),
        ([], r"scenario must be a mapping with keys of rate_mbps, .*, got \[\]"),
        ({"flows": 0.0}, r"flows must be a list, got 0\.0"),
        ({"rate_schedule": [[0, None]]}, r"rate_schedule must be pairs of numbers, got \[\[0"),
        ({"flows": [{"rtt": 3}]}, r"'rtt' \(did you mean 'rtt_ms'\?\); known: algorithm, rtt_ms,"),
        ({"rate_trace": {"file": "a", "synthetic": "cellular"}}, "either a file or synthetic"),
        ({"rate_trace": "a.csv"}, r"rate_trace\.file=a\.csv reads a file"),
        ({"flows": [{"rtt_trace": "a.csv"}]}, r"rtt_trace\.file=a\.csv reads a file"),
        ({"rate_trace": {"file": "a", "seed": 1}}, "no seed beside a file"),
        ({"rate_trace": {"file": "a"}, "rate_schedule": [[1, 2]]}, "one of rate_trace and rate_schedule, got both"),
    ],
)
def test_what_is_not_possible_is_refused_by_name(make: Callable[[], object] | Any, message: str):
    with pytest.raises(ValueError, match=message):
        make() if callable(make) else Scenario.from_dict(make)


@pytest.mark.parametrize(
    ("kind", "name", "meant"),
    [
        (Scenario, "rate", "rate_mbps"),
        (Scenario, "Duration", "duration_s"),
        (Flow, "rtt", "rtt_ms"),
        (Observation, "feature", "features"),
        (Action, "cwnd-gain", "cwnd_gain"),
        (Reward, "term", "terms"),
        (EpisodeSpec, "step", "step_ms"),
    ],
)
def test_a_keyword_that_is_no_field_is_answered_with_the_right_one(kind: type, name: str, meant: str):
    message = (
        rf"{kind.__name__} got an unexpected keyword argument '{name}' \(did you mean '{meant}'\?\); known: .*{meant}"
    )
    with pytest.raises(TypeError, match=message):
        kind(**{name: 20})


@pytest.mark.parametrize(
    ("fields", "flow", "meant"),
    [
        ({"rate_mbps": 20}, {"rtt_ms": 0.04}, r"flows\[0\]\.rtt_ms=0\.04 .*in s, give rtt_ms=40\."),
        ({"rate_mbps": 100}, {"rtt_ms": 0.04}, r"in s, give rtt_ms=40\."),
        ({"duration_s": 20000}, {}, r"duration_s=20000 is 5\.56 hours.*in ms, give duration_s=20\."),
    ],
)
def test_values_that_look_like_another_unit_are_warned_of_once(
    fields: dict[str, Any], flow: dict[str, Any], meant: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(scenario_module, "_warned", set())
    with pytest.warns(UserWarning, match=meant) as warned:
        assert len([Scenario(**fields, flows=(Flow(**flow),)) for _ in range(3)]) == 3
    assert [one.filename for one in warned] == [__file__]


def test_measured_values_are_not_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenario_module, "_warned", set())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with scenario_module.known_units():
            Scenario(duration_s=100_000, flows=(Flow(rtt_ms=0.04),))
    with pytest.warns(UserWarning, match=r"rtt_ms=0\.04"):
        Scenario(flows=(Flow(rtt_ms=0.04),))


@pytest.mark.parametrize(
    ("fields", "flow"),
    [
        ({"rate_mbps": 10_000}, {"rtt_ms": 0.04}),  # a data centre
        ({"rate_mbps": 1}, {"rtt_ms": 5}),
        ({"rate_mbps": 20}, {"rtt_ms": 0.001}),  # no propagation delay
        ({"duration_s": 3600}, {}),
    ],
)
def test_values_that_can_be_meant_are_not_warned_of(
    fields: dict[str, Any], flow: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(scenario_module, "_warned", set())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Scenario(**fields, flows=(Flow(**flow),))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"queue": "codel", "loss": 0.01, "reordering": 0.01, "policer_mbps": 8}, ["CoDel (5 ms", "1.00%", "8 Mbit/s"]),
        (
            {"rate_schedule": ((3, 8),), "second_rate_mbps": 9, "reverse_rate_mbps": 1},
            ["8 Mbit/s at 3 s", "9 M", "1 M"],
        ),
        ({"flows": (Flow(start_s=2, stop_s=9, ecn="l4s"), Flow(size_bytes=3_000_000))}, ["2 s to 9 s", "l4s", "3 MB"]),
        ({"flows": (Flow(rtt_schedule=((1, 20),), jitter_ms=1, ack_loss=0.02),)}, ["20 ms at 1 s", "1 ms", "2.00%"]),
        ({"flows": (Flow(),) * 33}, ["25 more flows."]),
        (
            {"rate_schedule": tuple((time, 9 + time % 2) for time in range(7))},
            ["9 to 10 Mbit/s, ", "1 BDP at 12 Mbit/s"],
        ),
    ],
)
def test_in_words(fields: dict[str, Any], words: list[str]):
    text = Scenario(**fields).describe()
    assert [word for word in words if word not in text] == []
