"""A trained policy inside of the engines: what it sees, what it does about it, and when (docs/algorithms/policy.md)."""

import dataclasses
import hashlib
import math
import re
import struct
from contextlib import closing
from pathlib import Path as FilePath
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from ack_path import MS, PACKET, Path, ack_event
from bbr_rounds import PROBE_RTT
from policies import FIXED, PINNED, ByHand, careful_agent, make_agent, networks

from bbrgym import Flow, Scenario, Trace, _controllers, _native, make_engine, simulate
from bbrgym import _testing as cc
from bbrgym.agents.policy import Agent, load_agent, scripted_agent
from bbrgym.baselines.policy_file import MODELS, REFERENCE
from bbrgym.benchmark.plan import Benchmark
from bbrgym.envs.columns import FLOW_COLUMNS
from bbrgym.envs.observation import FEATURES

SEED = 7
PROBE_BW = 2


class TestFeatures:
    def test_a_table_must_have_what_the_features_need(self) -> None:
        columns = ["mode", "took_part", "sent_packets"]
        table = _controllers.PolicyTable(["is_startup"], columns)
        assert table.evaluate(np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 1.0], [1.0, 1.0, 1.0]])).tolist() == [[1], [0], [0]]
        with pytest.raises(ValueError, match="the table must have 3 columns, got 2"):
            table.evaluate(np.zeros((2, 1)))
        with pytest.raises(ValueError, match="unknown feature 'queue'; known: "):
            _controllers.PolicyTable(["queue"], columns)
        with pytest.raises(ValueError, match="the table lacks the column 'lost_packets'"):
            _controllers.PolicyTable(["loss_rate"], columns)
        with pytest.raises(ValueError, match="the table lacks the column 'took_part'"):
            _controllers.PolicyTable(["is_startup"], ["mode"])


class TestNetwork:
    def test_tanh_is_right_everywhere(self) -> None:
        one = dataclasses.replace(
            networks()["one layer"].network,
            layers=((np.array([[1.0], [2.0]], np.float32), np.zeros(2, np.float32)),),
            output="tanh",
        )
        spec = make_agent(observation={"features": ["log_bdp"]}).spec
        network = _controllers.PolicyNetwork(Agent(spec, one).to_bytes())
        for x in [*np.linspace(-12, 12, 4001).tolist(), 1e-30, -1e30, math.inf]:
            found = network.forward(np.array([[x]], np.float32), np.zeros((1, 0), np.float32))
            np.testing.assert_allclose(found, np.tanh([[x, 2 * x]]), rtol=2e-7, atol=1e-8)

    def test_states_are_what_the_actions_are_made_of(self) -> None:
        agent = make_agent(widths=(), lstm=(5, 3), has_skip=True, scale=0.3)
        seen = np.random.default_rng(1).normal(size=(7, 4, agent.network.inputs)).astype(np.float32)
        expected = [agent.predict(observations) for observations in seen]
        states = agent.states(seen)
        assert (states.shape, states.dtype) == ((7, 4, 2 * (5 + 3)), np.float32)
        ((weight, bias),) = agent.network.layers
        assert agent.network.skip is not None
        hidden = states[..., 10:13]  # of the last layer; before it are the first one's hidden and cell state
        actions = hidden @ weight.T + bias + seen @ agent.network.skip.T
        np.testing.assert_allclose(actions.clip(-1, 1), expected, atol=1e-6)
        # What it remembers itself is as it was.
        twin = make_agent(widths=(), lstm=(5, 3), has_skip=True, scale=0.3)
        for observations in seen:
            twin.predict(observations)
        np.testing.assert_array_equal(agent.predict(seen[0]), twin.predict(seen[0]))

    def test_states_of_a_policy_without_a_memory_are_empty_and_bad_observations_are_refused(self) -> None:
        agent = make_agent()
        assert agent.states(np.zeros((3, 2, agent.network.inputs))).shape == (3, 2, 0)
        with pytest.raises(ValueError, match=r"observations must have the shape \(T, N, \d+\), got \(2, 1\)"):
            agent.states(np.zeros((2, 1)))
        with pytest.raises(ValueError, match="has no network"):
            scripted_agent("backlog").states(np.zeros((3, 2, 1)))

    def test_how_often_it_decides(self) -> None:
        fixed = make_agent(env={"step_ms": 12.5, "step_rtts": None}).to_bytes()
        assert cc.policy_interval(fixed, 3 * MS) == 12_500_000
        of_rtts = make_agent(env={"step_ms": None, "step_rtts": 1.5}).to_bytes()
        assert cc.policy_interval(of_rtts, 30 * MS) == 45 * MS
        assert cc.policy_interval(of_rtts, 0) == 1

    def test_a_wrong_shape_is_refused(self) -> None:
        network = _controllers.PolicyNetwork(FIXED)
        assert (network.inputs, network.state_size) == (24, 0)
        for observations, state in (((1, 1), (1, 0)), ((2, 24), (1, 0)), ((1, 24), (1, 1))):
            with pytest.raises(ValueError, match=re.escape(f"(N, 24) and (N, 0), got {observations} and")):
                network.forward(np.zeros(observations, np.float32), np.zeros(state, np.float32))

    def test_flows_of_a_batch_are_independent(self) -> None:
        network = _controllers.PolicyNetwork(networks()["LSTM"].to_bytes())
        seen = np.random.default_rng(SEED).normal(0, 1, (3, 5, network.inputs)).astype(np.float32)
        together = np.zeros((5, network.state_size), np.float32)
        alone = np.zeros((5, 1, network.state_size), np.float32)
        for observations in seen:
            actions = network.forward(observations, together)
            for flow in range(5):
                (action,) = network.forward(observations[flow : flow + 1], alone[flow])
                np.testing.assert_array_equal(actions[flow], action)
        np.testing.assert_array_equal(alone[:, 0], together)


class TestBytes:
    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            (b"bbrgympo", b"bbrgymp0", "the bytes are not a policy"),
            (b"bbrgympo\x03", b"bbrgympo\x02", "the version of a policy must be 3 or 4, got 2"),
            (b"loss_rate", b"loss_rage", "unknown feature 'loss_rage'; known: delivery_rate_ratio, "),
            (b"loss_rate", b"loss_r\xe1te", "must be printable ASCII"),
            (b"is_startup", b"cwnd_ratio", "has the feature 'cwnd_ratio' twice"),
            (b"\x0a\0\0\0cwnd", b"\xff\0\0\0cwnd", r"the name of feature 0 of a policy must be in \[1, 64\], got 255"),
        ],
    )
    def test_bytes_that_are_no_policy_are_refused(self, old: bytes, new: bytes, message: str) -> None:
        good = make_agent(observation={"features": ["cwnd_ratio", "loss_rate", "is_startup"]}).to_bytes()
        assert good.count(old) == 1
        with pytest.raises(ValueError, match=message):
            _controllers.PolicyNetwork(good.replace(old, new))

    def test_every_field_has_its_place(self) -> None:
        for name, (offset, form, values) in FIELDS.items():
            assert struct.unpack_from(form, ONE_LSTM.to_bytes(), offset) == values, name

    @pytest.mark.parametrize(
        ("field", "values", "message"),
        [
            ("history", (0,), r"history of a policy must be in \[1, 1000\], got 0"),
            ("bounds", (4.0, 0.5, 0.75, 1.75), "the bounds of cwnd_gain of a policy must be two rising"),
            ("bounds", (0.5, 4.0, 0.75, math.inf), "the bounds of pacing_gain"),
            ("bounds", (0.5, 4.0, math.nan, 1.0), "the bounds of pacing_gain"),
            ("cwnd_scale", (3,), "unknown cwnd_scale 3"),
            *(
                ("interval", values, "must have one interval > 0")
                for values in ((0, 0.0), (2**63, 0.0), (0, -1.0), (0, math.nan), (0, 1e300), (5, 1.0))
            ),
            ("kinds", (2, 0), "unknown activation 2"),
            ("kinds", (0, 7), "unknown output 7"),
            ("first_weight", (math.nan,), "must be finite, got another in layer 0"),
            ("first_weight", (-math.inf,), "must be finite, got another in layer 0"),
            ("layers", (0,), r"the number of layers of a policy must be in \[1, 100\], got 0"),
            ("width", (65_536,), "the policy ends within layer 0"),
            ("width", (2**32 - 1,), "the width of layer 0 .* got 4294967295"),
        ],
    )
    def test_impossible_values_are_refused(self, field: str, values: tuple[float, ...], message: str) -> None:
        data = bytearray(ONE_LSTM.to_bytes())
        offset, form, _ = FIELDS[field]
        struct.pack_into(form, data, offset, *values)
        with pytest.raises(ValueError, match=message):
            _controllers.PolicyNetwork(bytes(data))

    @pytest.mark.parametrize(
        ("field", "values"),
        [("interval", (1, 0.0)), ("interval", (2**62, 0.0)), ("interval", (0, 1e6)), ("interval", (0, 1e-9))],
    )
    def test_the_limits_are_possible(self, field: str, values: tuple[float, ...]) -> None:
        data = bytearray(ONE_LSTM.to_bytes())
        offset, form, _ = FIELDS[field]
        struct.pack_into(form, data, offset, *values)
        _controllers.PolicyNetwork(bytes(data))

    def test_more_weights_than_bytes_are_refused_before_memory_is_taken(self) -> None:
        data = bytearray(ONE_LSTM.to_bytes())
        offset, form, _ = FIELDS["lstm"]
        struct.pack_into(form, data, offset, 1, 65_536)  # 1 MiB of weights of the input, 64 GiB of the state
        with pytest.raises(ValueError, match="the policy ends within LSTM layer 0"):
            _controllers.PolicyNetwork(bytes(data[: offset + 8]) + bytes(4 * 4 * 65_536))

    def test_a_wrong_length_is_refused(self) -> None:
        good = ONE_LSTM.to_bytes()
        with pytest.raises(ValueError, match="8 bytes too many"):
            _controllers.PolicyNetwork(good + bytes(8))
        for end in range(len(good)):
            with pytest.raises(ValueError, match="polic"):
                _controllers.PolicyNetwork(good[:end])
        last = 4 + 4 * (3 * 2 + 2)
        one_layer = bytearray(good[:-last])
        struct.pack_into("<I", one_layer, FIELDS["layers"][0], 1)
        with pytest.raises(ValueError, match="must have 2 outputs, got 3"):
            _controllers.PolicyNetwork(bytes(one_layer))

    def test_a_skip_is_added_to_the_last_layer(self) -> None:
        agent = networks()["LSTM and skip"]
        network = agent.network
        assert network.skip is not None
        without = dataclasses.replace(network, skip=None)
        seen = np.random.default_rng(SEED).uniform(-0.3, 0.3, (20, 1, network.inputs)).astype(np.float32)
        found, plain = agent.predict, Agent(agent.spec, without).predict
        for observations in seen:
            expected = np.clip(plain(observations) + observations @ network.skip.T, -1, 1)
            np.testing.assert_allclose(found(observations), expected, atol=1e-6)

    def test_a_policy_without_skip_has_the_bytes_and_the_hash_that_it_had(self) -> None:
        """They are in the keys of stored runs."""
        assert hashlib.sha256(FIXED).hexdigest() == SHA256_OF_FIXED
        with_skip = make_agent(observation={"features": ["cwnd_ratio"]}, has_skip=True, **PINNED)
        plain = dataclasses.replace(with_skip, network=dataclasses.replace(with_skip.network, skip=None))
        assert with_skip.to_bytes()[8:12] == struct.pack("<I", 4)
        assert with_skip.to_bytes()[12:-8] == plain.to_bytes()[12:]
        assert with_skip.content_hash != plain.content_hash

    def test_a_damaged_skip_is_refused(self) -> None:
        good = make_agent(has_skip=True).to_bytes()
        with pytest.raises(ValueError, match="the policy ends within the skip"):
            _controllers.PolicyNetwork(good[:-4])
        with pytest.raises(ValueError, match="must be finite, got another in the skip"):
            _controllers.PolicyNetwork(good[:-4] + struct.pack("<f", math.nan))
        network = make_agent(has_skip=True).network
        assert network.skip is not None
        with pytest.raises(ValueError, match=r"skip\.weight must have the shape \(2, "):
            dataclasses.replace(network, skip=network.skip[:, :-1])

    @pytest.mark.parametrize("name", networks())
    def test_standardised_inputs_are_folded_into_the_weights(self, name: str) -> None:
        agent = networks()[name]
        random = np.random.default_rng(SEED)
        length = agent.network.inputs
        mean, scale = (
            random.normal(0, 0.1, length).astype(np.float32),
            random.uniform(0.9, 1.1, length).astype(np.float32),
        )
        folded = Agent(agent.spec, agent.network.with_standardised_inputs(mean, scale))
        for observations in random.uniform(-0.3, 0.3, (10, 2, length)).astype(np.float32):
            np.testing.assert_allclose(
                folded.predict(observations), agent.predict((observations - mean) * scale), atol=2e-4
            )


SHA256_OF_FIXED = "abd2fea92d5d89c2b6daf0b590bfe29ec982dca43c19326042e81ab2eb30df1e"
ONE_LSTM = make_agent(widths=(3,), lstm=(4,), observation={"features": ["cwnd_ratio"]}, **PINNED)
FIELDS: dict[str, tuple[int, str, tuple[float, ...]]] = {
    "history": (30, "<I", (1,)),
    "bounds": (34, "<4d", (0.5, 4.0, 0.75, 1.75)),
    "cwnd_scale": (66, "<B", (0,)),
    "model": (67, "<B", (0,)),
    "interval": (68, "<Qd", (100 * MS, 0.0)),
    "kinds": (84, "<BB", (0, 0)),
    "lstm": (86, "<II", (1, 4)),
    "layers": (478, "<I", (2,)),
    "width": (482, "<I", (3,)),
    "first_weight": (486, "<f", (float(ONE_LSTM.stored.network.layers[0][0][0, 0]),)),
}
"""Offset, format and values of some fields in the bytes of `ONE_LSTM`, by docs/algorithms/policy.md."""


def make(agent: Agent | None, **parameters: float) -> cc.PolicyController:
    controller = cc.make(
        "policy",
        parameters,
        packet_bytes=PACKET,
        initial_cwnd=10 * PACKET,
        initial_rtt=40 * MS,
        seed=1,
        policy=agent and agent.to_bytes(),
    )
    assert isinstance(controller, cc.PolicyController)
    return controller


@pytest.mark.parametrize(  # every pair of choices
    ("lstm", "env", "cwnd_scale"),
    [
        ((), {"step_ms": 30.0, "step_rtts": None}, "ratio"),
        ((), {"step_ms": None, "step_rtts": 2.0}, "packets"),
        ((8,), {"step_ms": 30.0, "step_rtts": None}, "packets"),
        ((8,), {"step_ms": None, "step_rtts": 2.0}, "ratio"),
    ],
)
def test_observations_and_gains_follow_from_the_acks(
    lstm: tuple[int, ...], env: dict[str, Any], cwnd_scale: str
) -> None:
    observation = {"features": list(FEATURES), "history": 3}
    action = {"cwnd_gain": [0.25, 4.0], "pacing_gain": [0.75, 1.75], "cwnd_scale": cwnd_scale}
    agent = make_agent(lstm=lstm, scale=0.1, observation=observation, action=action, env=env)
    controller = make(agent)
    path = Path(controller, rate_mbps=10, rtt_ms=40, buffer_packets=60, lose=lambda number: number % 400 == 399)
    by_hand = ByHand(agent, controller)
    in_force = by_hand.gains
    gains = set()

    def on_ack(ack: cc.AckEvent) -> None:
        nonlocal in_force
        metrics = controller.metrics()
        if metrics["mode"] == PROBE_BW:
            assert (metrics["cwnd_gain"], metrics["pacing_gain"]) == pytest.approx(in_force, rel=1e-6)
            gains.add(metrics["cwnd_gain"])
        by_hand.on_ack(ack)
        in_force = by_hand.gains

    path.on_ack = on_ack
    path.run_until(8_000)
    assert len(by_hand.times) > 90
    assert len(gains) > 50


@pytest.mark.parametrize("first_rtt_ms", [40, 0])
def test_intervals_without_an_ack_lead_to_one_decision(first_rtt_ms: float) -> None:
    """The first interval begins with the first packet: an RTT before its ACK, or else the RTT of the handshake."""
    controller = make(make_agent(env={"step_ms": 100.0, "step_rtts": None}))
    times, seen = [], controller.observation
    for now_ms in (40, 90, 99, 104, 150, 199, 210, 555, 560, 599, 600, 601):
        rtt_ms = first_rtt_ms if now_ms == 40 else 40
        controller.on_ack(ack_event(now_ms * MS, rtt_ms, delivered=now_ms * PACKET, sent=2 * now_ms * PACKET))
        if controller.observation != seen:
            times.append(now_ms)
            seen = controller.observation
    assert times == [104, 210, 555, 600]


def test_it_cannot_be_steered_and_without_a_policy_keeps_its_gains() -> None:
    assert not make(careful_agent()).steer(3.0, 1.5)
    controller = make(None, cwnd_gain=1.5, pacing_gain=1.2)
    assert controller.observation == []
    path = Path(controller)
    path.run_until(3000)
    assert not controller.steer(3.0, 1.5)
    path.run_until(3100)
    assert (controller.metrics()["cwnd_gain"], controller.metrics()["pacing_gain"]) == (1.5, 1.2)


@pytest.mark.parametrize("model", MODELS)
def test_its_flow_has_the_model_of_its_training(model: str) -> None:
    path = Path(make(make_agent(action={"model": model})))
    path.run_until(3_000)
    seen = path.watch(18_000)
    packets = seen[seen["mode"] == PROBE_RTT]["cwnd"].min() / PACKET
    assert (packets == 4) == (model == "bbr"), "the default's ProbeRTT keeps more in flight"


def test_it_sees_the_preference_of_its_flow_from_the_first_decision_on() -> None:
    agent = make_agent(observation={"features": ["preference"]})
    gains = []
    for parameters, preference in (({}, 0.25), ({"preference": 0.5}, 0.5)):
        controller = make(agent, is_always_steered=1, **parameters)
        assert controller.observation == [preference]
        Path(controller).run_until(100)
        gains.append((controller.metrics()["cwnd_gain"], controller.metrics()["pacing_gain"]))
        (action,) = agent.predict(np.array([[preference]], dtype=np.float32))
        assert gains[-1] == pytest.approx(agent.spec.action.gains(action))
    assert gains[0] != gains[1]


# In the engines.

DUEL = Scenario(rate_mbps=12, buffer_bdp=4, duration_s=20, flows=(Flow("policy", rtt_ms=30), Flow("cubic", rtt_ms=30)))


@pytest.fixture(scope="module")
def careful(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("policies") / "careful"
    careful_agent().save(folder)
    return str(folder)


def with_policy(scenario: Scenario, policy: str | None) -> Scenario:
    first, *others = scenario.flows
    return dataclasses.replace(scenario, flows=(dataclasses.replace(first, policy=policy), *others))


def column(trace: Trace, name: str) -> npt.NDArray[np.float64]:
    values: npt.NDArray[np.float64] = trace.flows[:, 0, FLOW_COLUMNS.index(name)]
    return values


@pytest.mark.parametrize("competitor", ["cubic", "bbr", "policy"])
def test_it_performs_like_the_agent_steered_from_python(careful: str, competitor: str) -> None:
    agent = load_agent(careful)
    calm = {"is_bbr_model": 1}  # beside BBR, small differences grow with the default model
    mine = Flow("policy", rtt_ms=30, policy=careful, parameters=calm)
    other = mine if competitor == "policy" else Flow(competitor, rtt_ms=30)
    scenario = dataclasses.replace(DUEL, flows=(mine, other))
    steered = Flow("agent", rtt_ms=30, parameters=calm)
    driven = dataclasses.replace(DUEL, flows=(steered, steered if other is mine else other))
    figures = []
    for seed in range(4):  # against BBR, queues vary between seeds
        inside = simulate(scenario, "native", seed=seed, step_ms=100.0)
        outside = simulate(driven, "native", seed=seed, step_ms=100.0, policy=agent.policy(driven))
        summaries = [trace.summary(after_s=5) for trace in (inside, outside)]
        figures.append([[*(f.throughput_mbps for f in s.flows), s.link.queue_mean_ms] for s in summaries])
    found, expected = np.mean(figures, axis=0)
    np.testing.assert_allclose(found[:2], expected[:2], atol=0.03 * scenario.rate_mbps / 1.04)
    np.testing.assert_allclose(found[2], expected[2], rtol=0.05, atol=0.3)
    assert np.ptp(column(inside, "cwnd_gain")) > 0.2, "it reacts to something"


def test_the_model_of_its_training_is_that_of_flows_that_it_steers(tmp_path: FilePath) -> None:
    agent = careful_agent(action=PINNED["action"] | {"model": "bbr"})
    agent.save(tmp_path / "x")
    inside = simulate(with_policy(DUEL, str(tmp_path / "x")), "native", SEED)
    scenario = dataclasses.replace(
        DUEL, flows=(Flow("agent", rtt_ms=30), Flow("agent", rtt_ms=30, parameters={"is_bbr_model": 0}))
    )
    with pytest.raises(ValueError, match="model='bbr'"):
        agent.policy(scenario)
    driven = agent.spec.action.on(scenario)
    outside = simulate(driven, "native", seed=SEED, step_ms=100.0, policy=agent.policy(driven))
    for trace in (inside, outside):
        probing = np.where(column(trace, "mode") == PROBE_RTT, column(trace, "cwnd_packets"), math.inf)
        assert probing.min() == 4, "BBR's window in ProbeRTT"
    assert driven.flows[1].parameters == {"is_bbr_model": 0}


def test_the_reference_policy_is_the_default() -> None:
    trace = simulate(DUEL, "native", SEED)
    assert trace.hash == simulate(with_policy(DUEL, str(REFERENCE)), "native", SEED).hash
    low, high = load_agent(REFERENCE).spec.action.cwnd_gain
    steered = column(trace, "cwnd_gain")[column(trace, "mode") == PROBE_BW]
    assert len(steered) > 50
    assert ((low <= steered) & (steered <= high)).all()


@pytest.mark.parametrize("flows", [8, 16])
def test_a_crowd_of_the_shipped_policy_that_starts_at_once_leaves_the_queue(flows: int) -> None:
    crowd = Scenario(rate_mbps=20, buffer_bdp=1, duration_s=20, flows=(Flow("policy", rtt_ms=40),) * flows)
    ours, bbr = (simulate(each, seed=SEED).summary(after_s=10) for each in (crowd, crowd.with_algorithm("bbr")))
    assert ours.link.queue_mean_ms < bbr.link.queue_mean_ms / 2
    assert ours.link.drops < bbr.link.drops / 10
    assert ours.link.utilisation > 0.9


def test_changed_files_are_read_again(tmp_path: FilePath) -> None:
    careful_agent().save(tmp_path / "x")
    scenario = with_policy(DUEL, str(tmp_path / "x"))
    with closing(make_engine("native")) as engine:
        first = simulate(scenario, engine, SEED).hash
        make_agent(seed=3).save(tmp_path / "x")
        assert simulate(scenario, engine, SEED).hash != first


@pytest.mark.parametrize("transport", ["tcp", "quic"])
def test_it_performs_the_same_in_ns3(careful: str, transport: str) -> None:
    pytest.importorskip("bbrgym._ns3", reason="ns-3 is not installed")
    flows = (Flow("policy", rtt_ms=30, policy=careful), Flow("da-bbr", rtt_ms=30))  # whose shares no chance decides
    scenario = dataclasses.replace(DUEL, flows=flows)
    with closing(make_engine("ns3", transport=transport)) as ns3:
        there, here = simulate(scenario, ns3, SEED), simulate(scenario, "native", SEED)
        short = dataclasses.replace(scenario, duration_s=4)
        first, again, of_reference = (simulate(s, ns3, SEED).hash for s in (short, short, with_policy(short, None)))
    found, expected = there.summary(after_s=5), here.summary(after_s=5)
    capacity = scenario.rate_mbps / 1.04
    assert found.flows[0].throughput_mbps == pytest.approx(expected.flows[0].throughput_mbps, abs=0.08 * capacity)
    assert found.link.queue_mean_ms == pytest.approx(expected.link.queue_mean_ms, rel=0.1, abs=2.0)
    assert first == again
    assert first != of_reference


def test_engines_say_which_policy_is_missing(tmp_path: FilePath) -> None:
    scenario = with_policy(DUEL, str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match=r"no trained agent in '.*nowhere': there is no such folder"):
        simulate(scenario, "native")
    plain = Scenario().to_dict()
    plain["flows"][0]["policy"] = FIXED
    batch = _native.Batch(1, 2)
    for given, message in (
        (DUEL.to_dict(), "a flow of algorithm 'policy' needs a policy"),
        (scenario.to_dict(), "the policy of a flow must be bytes"),
        (plain, "a flow of algorithm 'bbr' cannot have a policy: only 'policy' runs one"),
    ):
        with pytest.raises(ValueError, match=message):
            batch.reset(0, _native.Scenario(given), 1)


# In benchmarks.


def test_the_key_of_a_run_depends_on_the_policys_content(careful: str, tmp_path: FilePath) -> None:
    def keys(policy: str | None) -> list[str]:
        competitor = {"name": "mine", "algorithm": "policy", "policy": policy}
        scenarios = {"duel": DUEL.with_algorithm("bbr").to_dict()}
        config = {"scenarios": scenarios, "competitors": [competitor, "bbr"], "engine": "native", "seeds": [1]}
        benchmark = Benchmark.from_dict(config | {"roles": [0]})
        assert Benchmark.from_dict(benchmark.to_dict()) == benchmark
        mine, bbr = benchmark.runs()
        assert mine.scenario.flows[0].policy == policy
        return [mine.key, bbr.key]

    copy = tmp_path / "copy"
    load_agent(careful).save(copy)
    before = keys(str(copy))
    assert before == keys(careful)
    assert before[0] != keys(None)[0]
    careful_agent(env={"step_ms": 50.0, "step_rtts": None}).save(copy)
    assert keys(str(copy))[0] != before[0], "how often it decides decides, too"
    assert keys(str(copy))[1] == before[1]
