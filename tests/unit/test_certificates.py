"""Certificates: bounds that nothing leaves, properties with both answers, and the command."""

from __future__ import annotations

import dataclasses
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from policies import make_agent, networks

from bbrgym._controllers import PolicyNetwork
from bbrgym.agents.bounds import NetworkBounds
from bbrgym.agents.card import facts
from bbrgym.agents.certificates import (
    PROVED,
    REFUTED,
    UNDECIDED,
    Certificate,
    _values,
    bounds_of,
    certify,
    default_properties,
    observed_box,
)
from bbrgym.agents.policy import Agent
from bbrgym.agents.properties import quantity, read_property
from bbrgym.baselines.policy_file import REFERENCE, Network, StoredPolicy, read_policy
from bbrgym.cli import main
from bbrgym.envs.columns import FLOW_COLUMNS
from bbrgym.envs.episode import Episodes
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.envs.observation import FEATURES, Observation, tabulate
from bbrgym.envs.rollouts import Rollout, roll

LINEAR: dict[str, Any] = {
    "observation": {"features": ["log_backlog", "send_rate_ratio", "log_cwnd_gain", "loss_rate"], "history": 1},
    "action": {"cwnd_gain": [0.5, 8.0], "pacing_gain": [0.8, 1.25], "cwnd_scale": "ratio"},
    "env": {"step_ms": 100.0, "step_rtts": None},
}


def linear(backlog: float = 0.0, last: float = 0.0, shift: float = 0.0, **config: Any) -> StoredPolicy:
    """A policy whose cwnd_gain is 2 to the power of 1 + 2 action, with an action that is a plain sum."""
    weight = np.array([[backlog, 0.0, last, 0.0], [0.0, 0.0, 0.0, 0.0]], np.float32)
    spec = make_agent(**LINEAR | config).spec
    return Agent(spec, Network(((weight, np.array([shift, 0.0], np.float32)),))).stored


def ask(policy: StoredPolicy, text: str, **settings: Any) -> Certificate:
    return certify(policy, read_property(text), **settings)


def small(agent: Agent, factor: float = 0.05) -> Agent:
    """The agent with a last layer, and a skip, that keep most actions from their bounds."""
    network = agent.network
    assert isinstance(network, Network)
    weight, bias = network.layers[-1]
    layers = (*network.layers[:-1], (weight * np.float32(factor), bias * np.float32(factor)))
    skip = None if network.skip is None else network.skip * np.float32(factor / 5)
    return Agent(agent.spec, dataclasses.replace(network, layers=layers, skip=skip))


@pytest.mark.parametrize("kind", list(networks()))
def test_nothing_that_a_network_answers_leaves_its_bounds(kind: str) -> None:
    agent = small(networks()[kind])
    bounds, rng = NetworkBounds(agent.stored.network), np.random.default_rng(1)
    space = agent.spec.observation.space
    low, high = space.low.astype(float), space.high.astype(float)
    memory = bounds.reachable_memory(low, high)
    state = np.zeros((100, agent.compiled.state_size), np.float32)
    for _ in range(15 * bool(bounds.memory)):
        seen = np.where(rng.random((100, len(low))) < 0.5, low, high)
        agent.compiled.forward(seen.astype(np.float32), state)
        assert ((memory.low <= state) & (state <= memory.high)).all()
    is_bounded = False
    for width in (1.0, 0.3, 0.01, 1e-4, 0.0) * 3:
        middle = rng.uniform(low, high)
        box = middle + (low - middle) * width, middle + (high - middle) * width
        lows, highs = (np.hstack([end[np.newaxis], of]) for end, of in zip(box, memory, strict=True))
        points = rng.uniform(*box, (100, len(low)))
        corners = np.where(rng.random(points.shape) < 0.5, *box)
        for of_outputs in np.vstack([np.eye(2), -np.eye(2)]):
            edge = bounds.most(lows, highs, of_outputs, np.zeros(lows.shape[1])).most[0]
            edge = np.tanh(edge) + 1e-6 if agent.stored.network.output == "tanh" else np.clip(edge, -1.0, 1.0)
            for each in (points, corners):
                seen = each.astype(np.float32).clip(box[0] - 1e-6, box[1] + 1e-6).astype(np.float32)
                actions = agent.compiled.forward(seen, state.copy())
                most = (actions @ of_outputs).max()
                # Observations are rounded to single precision, by up to 5e-7 of numbers up to 12.
                assert most <= edge + 1e-5
                is_bounded |= abs(most) < 1.0
    assert is_bounded


@pytest.mark.parametrize("kind", ["tanh", "relu, squashed", "one layer", "layers and skip"])
def test_bounds_are_as_tight_as_the_box(kind: str) -> None:
    agent = small(networks()[kind])
    bounds, space = NetworkBounds(agent.stored.network), agent.spec.observation.space
    middle = (space.low.astype(float) + space.high) / 2
    points = np.float32(middle)[np.newaxis].astype(float)
    outputs = np.array([1.0, 0.0])
    edges = [side * bounds.most(points, points, side * outputs, np.zeros(points.shape[1])).most[0] for side in (-1, 1)]
    assert edges[0] <= edges[1] <= edges[0] + 1e-3


def test_a_bound_is_proved_and_reached() -> None:
    # Nothing but the backlog counts: 2 ** (1 + 2 (0.5 - backlog / 12)), from 2 ** 2 down to 2 ** 0.
    policy = linear(backlog=-1 / 12, shift=0.5)
    most, least = ask(policy, "cwnd_gain <= ?"), ask(policy, "cwnd_gain >= ?")
    assert (most.verdict, least.verdict) == (PROVED, PROVED)
    assert (most.bound, most.reached) == pytest.approx((4.0, 4.0), rel=1e-3)
    assert (least.bound, least.reached) == pytest.approx((1.0, 1.0), rel=1e-3)
    assert most.bound is not None
    assert most.reached is not None
    assert most.bound >= most.reached
    assert not most.is_of_action
    assert ask(policy, "pacing_gain <= 1.1").verdict == PROVED
    assert ask(linear(shift=2.0), "cwnd_gain <= 8").is_of_action


def test_a_condition_narrows_the_box() -> None:
    policy = linear(backlog=-1 / 12, shift=0.5)
    assert ask(policy, "backlog >= 63 -> cwnd_gain <= ?").bound == pytest.approx(2.0, rel=1e-3)
    assert ask(policy, "log_backlog >= 6 -> cwnd_gain <= ?").bound == pytest.approx(2.0, rel=1e-3)
    assert ask(policy, "backlog = 0, loss_rate = 0 -> cwnd_gain >= ?").bound == pytest.approx(4.0, rel=1e-3)
    assert ask(policy, "backlog <= 1 -> cwnd_gain >= 3").verdict == PROVED
    assert ask(policy, "backlog <= 63 -> cwnd_gain >= 3").verdict == REFUTED


def test_the_weakest_condition_is_found() -> None:
    found = ask(linear(backlog=-1 / 12, shift=0.5), "backlog >= ? -> cwnd_gain <= 2")
    assert found.verdict == PROVED
    number = found.stated.conditions[0].number
    assert isinstance(number, float)
    assert 63 <= number < 80
    assert ask(linear(shift=0.5), "backlog >= ? -> cwnd_gain <= 2").verdict == REFUTED
    assert ask(linear(backlog=1 / 12), "backlog <= ? -> cwnd_gain <= 3").stated.conditions[0].number < 16  # type: ignore[operator]


@pytest.mark.parametrize("scale", ["ratio", "excess", "packets"])
def test_the_last_choice_is_what_a_feature_tells(scale: str) -> None:
    names = ["log_backlog", "send_rate_ratio", "log_cwnd_gain", "loss_rate"]
    action = {"cwnd_gain": [1.25, 16.0], "pacing_gain": [0.8, 1.25], "cwnd_scale": scale}
    feature = "log_cwnd_gain"
    if scale == "packets":
        feature = "asinh_excess_window"
        names[2] = feature
    slope = {"ratio": 2 / np.log2(16 / 1.25), "excess": 0.2, "packets": 1 / 8}[scale]
    config = {"observation": {"features": names, "history": 1}, "action": action}
    # It repeats its last choice, less so if there is a queue: the window shrinks, or stays.
    offset = {"ratio": -1 - slope * np.log2(1.25), "excess": -1.0, "packets": 0.0}[scale]
    shrinks = linear(backlog=-0.5, last=slope, shift=offset + 0.3, **config)
    assert ask(shrinks, "backlog >= ? -> cwnd_gain <= last").verdict == PROVED
    grows = linear(backlog=0.5, last=slope, shift=offset + 0.3, **config)
    found = ask(grows, "backlog >= 3 -> cwnd_gain <= last")
    assert found.verdict == REFUTED
    agent = Agent(make_agent(**LINEAR | config).spec, grows.network)
    action_now = agent.predict([found.observation])[0, 0]
    last = found.observation[2]
    gains = agent.spec.action
    if scale == "packets":
        assert np.sinh(8 * action_now) > np.sinh(last)
    else:
        assert gains.gains([action_now, 0.0])[0] > 2**last
    assert (found.bound, found.reached) == (None, None)


def test_a_last_choice_is_one_that_the_bounds_of_the_gain_allow() -> None:
    # It always asks for 5 packets, of which a gain of at most 2 allows one BDP.
    names = ["log_backlog", "log_bdp", "asinh_excess_window", "loss_rate"]
    action = {"cwnd_gain": [0.5, 2.0], "pacing_gain": [0.8, 1.25], "cwnd_scale": "packets"}
    policy = linear(shift=0.2875, observation={"features": names, "history": 1}, action=action)
    found = ask(policy, "backlog >= 3 -> cwnd_gain <= last")
    assert found.verdict == REFUTED
    last = 1.0 + np.sinh(found.observation[2]) / 10.0 ** found.observation[1]
    assert 0.5 - 1e-3 <= last < found.decision["cwnd_gain"] <= 2.0
    # With one packet of BDP at most, all that it asks for is cut to a gain of 2, and so was the last choice.
    assert ask(policy, "bdp <= 1, excess_window >= 1 -> cwnd_gain <= last").verdict == UNDECIDED


def test_what_refutes_a_property_is_an_observation_of_the_real_policy() -> None:
    agent = small(make_agent(seed=3, widths=(8, 8), **LINEAR), factor=0.5)
    policy = agent.stored
    bound = ask(policy, "backlog >= 15 -> cwnd_gain <= ?")
    assert bound.reached is not None
    found = ask(policy, f"backlog >= 15 -> cwnd_gain <= {bound.reached * 0.99}")
    assert found.verdict == REFUTED
    seen = np.array([found.observation], np.float32)
    assert agent.spec.observation.space.contains(seen[0])
    assert seen[0, 0] >= 4.0
    decided = agent.spec.action.gains(agent.predict(seen)[0])[0]
    assert decided > bound.reached * 0.99
    assert found.decision["cwnd_gain"] == pytest.approx(decided)
    assert set(found.example) <= {quantity(FEATURES[name]) for name in policy.spec["observation"]["features"]}


def test_a_memory_is_run_from_its_beginning() -> None:
    agent = small(make_agent(seed=2, widths=(4,), lstm=(4,), **LINEAR), factor=1.0)
    bound = ask(agent.stored, "cwnd_gain <= ?", boxes=2000)
    assert bound.reached is not None
    assert bound.bound is not None
    assert bound.reached <= bound.bound
    found = ask(agent.stored, f"cwnd_gain <= {bound.reached * 0.99}")
    assert found.verdict == REFUTED
    agent.reset()
    for _ in range(30):
        agent.predict([found.before])
    assert agent.spec.action.gains(agent.predict([found.observation])[0])[0] > bound.reached * 0.99
    rng = np.random.default_rng(1)
    space = agent.spec.observation.space
    agent.reset()
    for _ in range(50):
        seen = np.where(rng.random((50, 4)) < 0.5, space.low, space.high)
        assert (agent.spec.action.all_gains(agent.predict(seen))[0] <= bound.bound).all()


def test_a_budget_that_is_spent_leaves_it_undecided() -> None:
    policy = small(make_agent(seed=3, widths=(8, 8), **LINEAR), factor=0.3).stored
    bound = ask(policy, "cwnd_gain <= ?", boxes=50_000)
    assert bound.reached is not None
    found = ask(policy, f"cwnd_gain <= {bound.reached * 1.0001}", boxes=1)
    assert found.verdict == UNDECIDED
    assert found.bound is not None
    assert found.bound >= bound.reached


def test_preferences_fix_the_features_that_depend_on_them() -> None:
    names = ["log_backlog", "send_rate_ratio_by_preference", "preference", "is_probe_bw"]
    weight = np.array([[0.0, 0.2, 0.1, 0.0], [0.0, 0.0, 0.0, 0.0]], np.float32)
    spec = make_agent(**LINEAR | {"observation": {"features": names, "history": 1}}).spec
    policy = Agent(spec, Network(((weight, np.zeros(2, np.float32)),))).stored
    edges = {preference: ask(policy, "cwnd_gain <= ?", preference=preference).bound for preference in (0.25, 1.0, None)}
    # At 0.25 the feature by preference is 0, at 1 it is at most 4 x 0.75.
    for preference, action in {0.25: 0.025, 1.0: 0.7, None: 0.7}.items():
        assert edges[preference] == pytest.approx(2 ** (1 + 2 * action), rel=1e-3)


def moody_paths(preference: float) -> dict[str, Any]:
    """Paths on which rates and RTTs rise above, and fall below, what the flow's model of the path has."""
    flow = {
        "algorithm": "agent",
        "parameters": {"preference": preference},
        "rtt_ms": {"log_uniform": [2, 200]},
        "rtt_trace": {"choice": [None, {"synthetic": "leo", "seed": 1}, {"synthetic": "redrawn", "seed": 2}]},
        "jitter_ms": {"choice": [0, 5, 50]},
        "ack_aggregation_ms": {"choice": [0, 20]},
        "app_rate_mbps": {"choice": [None, 1.0]},
    }
    return {
        "rate_mbps": {"log_uniform": [1, 100]},
        "duration_s": 15,
        "loss": {"choice": [0.0, 0.01, 0.1]},
        "buffer_bdp": {"log_uniform": [0.2, 8]},
        "rate_trace": {"choice": [None, {"synthetic": "redrawn", "seed": 3}]},
        "flows": [flow, {"algorithm": "cubic", "start_s": {"uniform": [0, 10]}}],
    }


def runs(spec: EpisodeSpec, policy: StoredPolicy, scale: float, count: int = 48) -> Rollout:
    """Run a policy with random numbers of this scale beside its actions."""
    with closing(Episodes(spec, count)) as env:
        rngs = [np.random.default_rng([1, number]) for number in range(count)]
        env.begin_resets(np.arange(count), rngs)
        env.finish_resets()
        noise = np.random.default_rng(1).uniform(-scale, scale, (env.most_steps, count, 2)).astype(np.float32)
        return roll(env, rngs, noise, PolicyNetwork(policy.to_bytes()))


@pytest.mark.parametrize("preference", [0.0, 0.25, 1.0])
def test_no_run_leaves_the_box_of_its_preference(preference: float) -> None:
    spec = EpisodeSpec(moody_paths(preference), observation={"features": list(FEATURES), "history": 2})
    still = Network(((np.zeros((2, 2 * len(FEATURES)), np.float32), np.zeros(2, np.float32)),))
    found = runs(spec, StoredPolicy(spec.to_config(), still), scale=1.0)
    seen = found.observations[:-1][found.took_part].astype(float)
    ends = np.array([_values(feature, preference) for feature in FEATURES.values()] * 2)
    is_outside = (seen < ends[:, 0] - 1e-6) | (seen > ends[:, 1] + 1e-6)
    assert {name for name, out in zip([*FEATURES] * 2, is_outside.any(axis=0), strict=True) if out} == set()
    # Of both signs, although the plain feature has one.
    decline = seen[:, len(FEATURES) + list(FEATURES).index("log_rate_decline_by_preference")]
    assert decline.min() < 0 < decline.max() or preference == 0.25


@pytest.mark.parametrize("preference", [0.0, 1.0])
def test_no_row_leaves_the_box_of_its_preference(preference: float) -> None:
    rng = np.random.default_rng(1)
    rows = 10.0 ** rng.uniform(-3, 4, (5000, len(FLOW_COLUMNS)))
    rows *= rng.random(rows.shape) < 0.9  # and zeros
    place = {name: at for at, name in enumerate(FLOW_COLUMNS)}
    rows[:, place["rtt_max_ms"]] += rows[:, place["rtt_min_ms"]]
    observation = Observation(tuple(FEATURES))
    seen = observation.evaluate(tabulate(rows, 10.0 ** rng.uniform(-2, 2, (2, 5000)), preference))
    ends = np.array([_values(feature, preference) for feature in FEATURES.values()])
    is_inside = (seen >= ends[:, 0] - 1e-6) & (seen <= ends[:, 1] + 1e-6)
    assert [name for name, inside in zip(FEATURES, is_inside.all(axis=0), strict=True) if not inside] == []


def test_what_is_proved_for_a_preference_holds_in_runs() -> None:
    # The window is larger than usual only where the flow gets more than its highest bandwidth.
    features = ["log_rate_decline_by_preference"]
    spec = EpisodeSpec(moody_paths(1.0), observation={"features": features, "history": 1})
    policy = StoredPolicy(
        spec.to_config(), Network(((np.array([[-0.5], [0.0]], np.float32), np.zeros(2, np.float32)),))
    )
    proved = ask(policy, "cwnd_gain <= ?", preference=1.0)
    found = runs(spec, policy, scale=0.0)
    chosen = spec.action.all_gains(found.actions[found.took_part])[0].max()
    assert proved.bound is not None
    assert not proved.is_of_action
    assert spec.action.all_gains(np.zeros((1, 2)))[0, 0] < chosen <= proved.bound


def test_a_flow_has_the_neutral_preference_in_its_first_step() -> None:
    names = ["log_backlog", "send_rate_ratio", "preference", "is_probe_bw"]
    weight = np.array([[0.0, 0.0, -0.8, 0.0], [0.0, 0.0, 0.0, 0.0]], np.float32)
    spec = make_agent(**LINEAR | {"observation": {"features": names, "history": 1}}).spec
    policy = Agent(spec, Network(((weight, np.zeros(2, np.float32)),))).stored
    assert ask(policy, "cwnd_gain <= ?", preference=1.0).bound == pytest.approx(2 ** (1 - 2 * 0.8 * 0.25), rel=1e-3)
    assert ask(policy, "cwnd_gain >= ?", preference=1.0).bound == pytest.approx(2 ** (1 - 2 * 0.8), rel=1e-3)
    assert ask(policy, "preference = 1 -> cwnd_gain <= ?", preference=1.0).bound == pytest.approx(0.66, rel=1e-3)


def test_a_gain_above_one_bdp_of_packets_needs_a_bdp() -> None:
    names = ["log_backlog", "log_bdp", "log_cwnd_gain", "loss_rate"]
    action = {"cwnd_gain": [0.25, 64.0], "pacing_gain": [0.8, 1.25], "cwnd_scale": "packets"}
    policy = linear(shift=0.2875, observation={"features": names, "history": 1}, action=action)  # 5 packets
    assert ask(policy, "excess_packets <= ?").bound == pytest.approx(np.sinh(2.3), rel=1e-3)
    assert ask(policy, "cwnd_gain <= ?").bound == 64.0
    assert ask(policy, "bdp >= 10 -> cwnd_gain <= ?").bound == pytest.approx(1 + np.sinh(2.3) / 10, rel=1e-3)
    assert ask(policy, "bdp <= 10 -> cwnd_gain >= ?").bound == pytest.approx(1.0, rel=1e-3)  # without an estimate


def test_what_is_observed_is_part_of_what_features_can_have() -> None:
    policy = read_policy(REFERENCE)
    low, high = observed_box(policy, 2)
    names = policy.spec["observation"]["features"]
    for place, name in enumerate(names):
        assert FEATURES[name].low - 1e-6 <= low[place] <= high[place] <= FEATURES[name].high + 1e-6
    narrow = ask(policy, "pacing_gain >= ?", preference=0.25, observed=(low, high))
    wide = ask(policy, "pacing_gain >= ?", preference=0.25)
    assert narrow.bound is not None
    assert wide.bound is not None
    assert narrow.bound >= wide.bound


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("cwnd_gain", "must be like"),
        ("backlog >= 3", "unknown quantity of a claim 'backlog'"),
        ("cwnd_gain = 3", "must have <= or >="),
        ("cwnd_gain <= many", "'many'"),
        ("cwnd_gain <= nan", "'nan'"),
        ("backlog = ? -> cwnd_gain <= 3", "needs <= or >="),
        ("backlog >= ? -> cwnd_gain <= ?", "one '?'"),
        ("backlog >= last -> cwnd_gain <= 3", "only a claim"),
        ("rtt >= 3 -> cwnd_gain <= 3", "observes no 'rtt'"),
        ("backlog >= 3, backlog <= 2 -> cwnd_gain <= 3", "no observation fulfils"),
        ("excess_packets <= 3", "cwnd_scale=packets"),
        ("pacing_gain <= last", "log_pacing_gain"),
    ],
)
def test_a_bad_property_is_explained(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says.replace("?", r"\?")):
        ask(linear(), text)


def test_sums_that_overflow_prove_nothing() -> None:
    policy = linear(backlog=3e38)
    with pytest.raises(ValueError, match="can overflow"):
        ask(policy, "cwnd_gain <= 3")
    assert "can overflow" in facts(policy)["proved"]


def test_usual_properties_are_of_what_a_policy_observes() -> None:
    texts = [str(each) for each in default_properties(read_policy(REFERENCE))]
    assert texts[:4] == [str(each) for each in bounds_of(read_policy(REFERENCE))]
    assert texts[0].startswith("excess_packets")
    assert texts[4].endswith("cwnd_gain <= last")
    blind = linear(observation={"features": ["log_bdp", "loss_rate", "log_min_rtt", "is_probe_bw"], "history": 1})
    assert [str(each) for each in default_properties(blind)] == [str(each) for each in bounds_of(blind)]


def test_the_model_card_has_what_is_proved_and_refuted() -> None:
    policy = linear(backlog=-1 / 12, shift=0.5)
    found = [certify(policy, asked, preference=0.25) for asked in default_properties(policy)]
    card = facts(policy)
    for verdict in (PROVED, REFUTED):
        stated = [str(one.stated) for one in found if one.verdict == verdict]
        assert stated
        assert all(text in card[verdict] for text in stated)
    refuted = next(one for one in found if one.verdict == REFUTED)
    assert all(f"{name} {value:.4g}" in card[REFUTED] for name, value in refuted.example.items())


def test_the_command_prints_what_is_proved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "agent"
    linear(backlog=-1 / 12, shift=0.5).save(folder)
    assert main(["certify", str(folder), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["verdict"] for one in told["certificates"]][:2] == [PROVED, PROVED]
    assert told["is_enough"]
    holds, fails = "backlog >= 63 -> cwnd_gain <= 2.01", "backlog >= 63 -> cwnd_gain <= 1.5"
    assert main(["certify", str(folder), "--property", holds]) == 0
    assert main(["certify", str(folder), "--property", holds, "--property", fails]) == 1
    assert "Refuted: backlog >= 63 -> cwnd_gain <= 1.5" in capsys.readouterr().out
    assert main(["certify", str(folder), "--property", fails, "--where", "backlog >= 4000"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("4000") == 1  # in the last line
    assert "where backlog >= 4000" in printed


def test_usual_properties_that_nothing_fulfils_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "agent"
    linear(backlog=-1 / 12, shift=0.5).save(folder)
    assert main(["certify", str(folder), "--where", "backlog <= 3, backlog >= 1", "--json"]) == 0
    told = capsys.readouterr()
    assert told.err.count("Left out") == 2
    stated = [one["stated"] for one in json.loads(told.out)["certificates"]]
    assert len(stated) == 5
    assert stated[-1].startswith("backlog >= 3")


def test_a_table_fits_a_narrow_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["certify", str(REFERENCE), "--boxes", "200"]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere"], "no trained agent in 'nowhere'"),
        (["scripted:backlog"], "has no network"),
        ([str(REFERENCE), "--preference", "2"], "--preference must be"),
        ([str(REFERENCE), "--preference", "high"], "'high'"),
        ([str(REFERENCE), "--boxes", "0"], "--boxes must be"),
        ([str(REFERENCE), "--episodes", "0"], "--episodes must be"),
        ([str(REFERENCE), "--property", "backlog"], "must be like"),
        ([str(REFERENCE), "--where", "backlog"], "must be like"),
        ([str(REFERENCE), "--where", "backlog >= 3 -> cwnd_gain <= 2"], "must be"),
        ([str(REFERENCE), "--where", "backlog >= ?"], "--where must have numbers"),
        ([str(REFERENCE), "--property", "cwnd_gain <= 2", "--where", "bdp <= 2, bdp >= 3"], "no observation"),
    ],
)
def test_bad_input_is_explained(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certify", *arguments]) == 2
    assert says in capsys.readouterr().err
