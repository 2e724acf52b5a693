"""Observation, action, reward and distribution, each by itself."""

import math
import pickle
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bbrgym import _controllers, _native
from bbrgym.baselines.policy_file import CWND_SCALES
from bbrgym.envs.action import Action
from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.distribution import Distribution
from bbrgym.envs.engine import Rows
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.envs.ns3gym import server
from bbrgym.envs.observation import FEATURES, GAIN_COLUMNS, PREFERENCE, History, Observation, first_gains, tabulate
from bbrgym.envs.reward import CONDITIONS, TERMS, Reward
from bbrgym.envs.scenario import HEADER_BYTES, Flow, Scenario
from bbrgym.envs.trace import simulate

ONE = Scenario(flows=(Flow("agent", rtt_ms=50.0),))
TWO = Scenario(rate_mbps=10.4, packet_bytes=1000, flows=(Flow("agent", rtt_ms=10.0), Flow("bbr", rtt_ms=50.0)))
PAYLOAD_MBPS = 10.4 * 1000 / (1000 + HEADER_BYTES)  # of TWO: 10


def make_rows(*flows: Mapping[str, float], link: Mapping[str, float] | None = None) -> Rows:
    """Rows with these columns, and NaN in all others."""
    active = {"is_active": 1.0, "sent_packets": 100.0, "delivered_packets": 100.0}
    return Rows(
        time_s=1.0,
        flows=np.array([[(active | dict(flow)).get(column, math.nan) for column in FLOW_COLUMNS] for flow in flows]),
        link=np.array([(link or {"rate_mbps": 10.4}).get(column, math.nan) for column in LINK_COLUMNS]),
        is_over=False,
        is_complete=False,
    )


PIPE = {"delivery_rate_mbps": 8, "max_bandwidth_mbps": 10, "bdp_packets": 60}
FORMULAS: dict[str, tuple[dict[str, float], float]] = {
    "delivery_rate_ratio": ({"delivery_rate_mbps": 8, "max_bandwidth_mbps": 10}, 0.8),
    "log_delivery_rate_ratio": ({"delivery_rate_mbps": 8, "max_bandwidth_mbps": 10}, math.log2(0.8)),
    "send_rate_ratio": ({"send_rate_mbps": 9, "delivery_rate_mbps": 8}, 1.125),
    "queueing_ratio": ({"rtt_mean_ms": 75, "min_rtt_ms": 50}, 0.5),
    "log_rtt_ratio": ({"rtt_mean_ms": 75, "min_rtt_ms": 50}, math.log2(1.5)),
    "rtt_last_ratio": ({"rtt_last_ms": 100, "min_rtt_ms": 50}, 2),
    "log_rtt_last_ratio": ({"rtt_last_ms": 100, "min_rtt_ms": 50}, 1),
    "in_flight_ratio": ({"in_flight_packets": 90, "bdp_packets": 60}, 1.5),
    "cwnd_ratio": ({"cwnd_packets": 90, "bdp_packets": 60}, 1.5),
    "log_in_flight_ratio": ({"in_flight_packets": 90, "bdp_packets": 60}, math.log2(1.5)),
    "log_cwnd_ratio": ({"cwnd_packets": 90, "bdp_packets": 60}, math.log2(1.5)),
    "log_backlog": (PIPE | {"rtt_mean_ms": 75, "min_rtt_ms": 50}, math.log2(1 + 24)),
    "log_least_backlog": (PIPE | {"rtt_min_ms": 75, "min_rtt_ms": 50}, math.log2(1 + 24)),
    "log_standing_rtt_ratio": ({"standing_rtt_ms": 75, "lowest_rtt_ms": 50}, math.log2(1.5)),
    "log_standing_backlog": (PIPE | {"rtt_mean_ms": 75, "lowest_rtt_ms": 25, "min_rtt_ms": 50}, math.log2(1 + 48)),
    "log_stale_rtt_ratio": ({"min_rtt_ms": 75, "lowest_rtt_ms": 50}, math.log2(1.5)),
    "log_rate_decline": ({"highest_bandwidth_mbps": 10, "delivery_rate_mbps": 2}, math.log2(5)),
    "log_queueing_delay": ({"rtt_mean_ms": 75, "min_rtt_ms": 50}, math.log10(25)),
    "log_rtt_spread": ({"rtt_max_ms": 75, "rtt_min_ms": 50}, math.log10(25)),
    "log_jitter": ({"rtt_jitter_ms": 50}, math.log10(50)),
    "log_jitter_backlog": (PIPE | {"rtt_jitter_ms": 25, "min_rtt_ms": 50}, math.log2(1 + 24)),
    "log_spread_backlog": (PIPE | {"rtt_max_ms": 75, "rtt_min_ms": 50, "min_rtt_ms": 50}, math.log2(1 + 24)),
    "loss_rate": ({"lost_packets": 5, "sent_packets": 50}, 0.1),
    "log_loss_rate": ({"lost_packets": 5, "sent_packets": 50}, -1),
    "log_bdp": ({"bdp_packets": 60}, math.log10(60)),
    "log_min_rtt": ({"min_rtt_ms": 50}, math.log10(50)),
    "log_delivery_rate": ({"delivery_rate_mbps": 8}, math.log10(8)),
    "log_max_bandwidth": ({"max_bandwidth_mbps": 8}, math.log10(8)),
    "log_cwnd_gain": ({"steered_cwnd_gain": 3}, math.log2(3)),
    "asinh_excess_window": ({"steered_cwnd_gain": 1.5, "bdp_packets": 60}, math.asinh(30)),
    "log_pacing_gain": ({"steered_pacing_gain": 0.5}, -1),
    "preference": ({"preference": 0.3}, 0.3),
    "is_startup": ({"mode": 0}, 1),
    "is_probe_bw": ({"mode": 2}, 1),
    "is_probe_rtt": ({"mode": 3}, 1),
}
"""Of every feature its columns with values between its bounds, and its value then, computed by hand."""
FORMULAS |= {
    f"{name}_by_preference": (row | {PREFERENCE: 0.75}, (0.75 - 0.25) * value)
    for name, (row, value) in FORMULAS.items()
    if name != PREFERENCE
}


def observed(name: str, row: Mapping[str, float]) -> float:
    """A feature of an active flow with nothing but these columns."""
    active = {"is_active": 1.0, "sent_packets": 0.0, "delivered_packets": 0.0} | dict(row)
    flow, gains = (np.array([active.get(column, math.nan) for column in of]) for of in (FLOW_COLUMNS, GAIN_COLUMNS))
    table = tabulate(flow[np.newaxis], gains[:, np.newaxis], active.get(PREFERENCE, math.nan))
    return float(Observation((name,)).evaluate(table)[0, 0])


def observe(history: History, rows: Rows, gains: tuple[float, float]) -> Any:
    """The observation of flow 0 after one step more."""
    table = tabulate(rows.flows[:1], np.array(gains)[:, np.newaxis])
    return history.add(history.observation.evaluate(table))[0]


def reward_of(reward: Reward, scenario: Scenario, flow: int, rows: Rows) -> float:
    return float(reward.over_steps(scenario, (flow,), rows.flows[np.newaxis], rows.link[np.newaxis])[0, 0])


def test_a_flow_takes_part_in_a_step_while_it_is_active() -> None:
    """Acknowledgements after its end are no part of it."""
    rows = np.zeros((2, 4, len(FLOW_COLUMNS)))
    columns = ("is_active", "sent_packets", "delivered_packets")
    for flow, column in enumerate(columns):
        rows[0, flow, FLOW_COLUMNS.index(column)] = 0.5
    rows[1] = math.nan
    rows[1, 0] = 1.0
    expected = np.array([[True, False, False, False], [True, False, False, False]])
    found = _native.took_part(rows)
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == np.bool_
    np.testing.assert_array_equal(_native.took_part(rows[:, ::2]), expected[:, ::2])
    assert _native.took_part(rows[0, 3]).shape == ()
    assert _native.took_part(rows[:0]).shape == (0, 4)
    with pytest.raises(ValueError, match="rows must have the shape"):
        _native.took_part(rows[..., 1:])


def test_the_mean_reward_of_a_flow_is_over_the_steps_in_which_it_takes_part() -> None:
    flows = (Flow("agent"), Flow("agent", start_s=1.0), Flow("agent", start_s=1.9))
    scenario = Scenario(duration_s=2, flows=flows)
    trace = simulate(scenario)
    rows, link = trace.flows[:15], trace.link[:15]
    steps = Reward().over_steps(scenario, (0, 1, 2), rows, link)
    means = Reward().mean_over_steps(scenario, (0, 1, 2), rows, link)
    np.testing.assert_allclose(means, [steps[:, 0].mean(), steps[10:, 1].mean(), np.nan])
    assert means[1] < steps[:, 1].mean(), "other steps would count as the best reward"


class TestObservation:
    @pytest.mark.parametrize("name", sorted(FORMULAS.keys() | FEATURES.keys()))
    def test_formulas_and_what_they_are_without_a_value(self, name: str) -> None:
        row, expected = FORMULAS[name]
        feature = FEATURES[name]
        assert feature.columns == tuple(row)
        assert observed(name, row) == pytest.approx(expected, rel=1e-6)
        for column in row:
            assert observed(name, row | {column: math.nan}) == feature.neutral
            for extreme in (0.0, 1e-9, 1e9, -1.0):
                assert feature.low <= observed(name, row | {column: extreme}) <= feature.high
        if column == PREFERENCE and len(row) > 1:
            assert observed(name, row | {PREFERENCE: 0.25}) == 0.0
        elif len(row) > 1 and name not in ("log_queueing_delay", "log_rtt_spread"):  # a divisor or its factor
            assert observed(name, row | {column: 0.0}) == feature.neutral

    @settings(max_examples=50)
    @given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=60, max_size=60))
    def test_is_inside_the_space_whatever_the_row(self, values: list[float]) -> None:
        specification = Observation(tuple(FEATURES))
        row = dict(zip(FLOW_COLUMNS, values, strict=False)) | {"is_active": 1.0}
        observed = observe(History(specification, 1), make_rows(row), (values[-1], values[-2]))
        assert specification.space.contains(observed)

    def test_is_neutral_without_values_and_without_a_part_in_the_step(self) -> None:
        specification = Observation(tuple(FEATURES))
        away = {"is_active": 0.0, "sent_packets": 0.0, "delivered_packets": 0.0, "mode": 2.0, "min_rtt_ms": 50.0}
        # A mode that is not known is none of the modes, which is what neutral says too.
        nan = dict.fromkeys(FLOW_COLUMNS, math.nan) | {"is_active": 1.0}
        for row, gains in ((nan, (math.nan, math.nan)), (away, (2.0, 1.0))):
            observed = observe(History(specification, 1), make_rows(row), gains)
            np.testing.assert_array_equal(observed, specification.neutral)
        assert specification.space.contains(specification.neutral)

    def test_history_has_the_latest_last_and_arrays_are_fresh(self) -> None:
        history = History(Observation(("loss_rate", "log_pacing_gain"), history=3), 1)
        first = observe(history, make_rows({"lost_packets": 10.0, "sent_packets": 100.0}), (2.0, 2.0))
        second = observe(history, make_rows({"lost_packets": 20.0, "sent_packets": 100.0}), (2.0, 1.0))
        np.testing.assert_allclose(first, [0, 0, 0, 0, 0.1, 1], rtol=1e-6)
        np.testing.assert_allclose(second, [0, 0, 0.1, 1, 0.2, 0], rtol=1e-6)
        assert not np.shares_memory(first, second)

    def test_first_gains_are_the_flows_parameters(self) -> None:
        assert first_gains(ONE, 0) == (2.0, 1.0)
        steered = Scenario(flows=(Flow("agent", parameters={"cwnd_gain": 1.5}),))
        assert first_gains(steered, 0) == (1.5, 1.0)


class TestAction:
    def test_the_ends_and_the_middle(self) -> None:
        action = Action(cwnd_gain=(0.5, 4.0), pacing_gain=(0.5, 2.0), cwnd_scale="ratio")
        assert action.gains([-1, -1]) == (0.5, 0.5)
        assert action.gains([1, 1]) == (4.0, 2.0)
        assert action.gains([0, 0]) == pytest.approx((math.sqrt(2), 1.0))
        assert action.gains([-7, math.inf]) == (0.5, 2.0)

    @given(st.floats(-1, 1), st.floats(-1, 1))
    def test_the_inverse(self, cwnd: float, pacing: float) -> None:
        for action in (Action((0.25, 8.0), (0.3, 3.0), cwnd_scale="ratio"), Action()):
            np.testing.assert_allclose(action.action(*action.gains((cwnd, pacing))), (cwnd, pacing), atol=1e-6)

    def test_the_action_0_is_bbr_while_it_cruises(self) -> None:
        assert Action().gains((0.0, 0.0)) == pytest.approx((2.0, 1.1))

    def test_packets_above_one_bdp(self) -> None:
        action = Action(cwnd_gain=(0.5, 4.0), cwnd_scale="packets")
        for bdp in (10.0, 1000.0):
            assert action.gains([0.25, 0.0], bdp) == pytest.approx((1 + math.sinh(2.0) / bdp, 1.1))
        assert action.gains([1, 0], 2000.0)[0] == pytest.approx(1 + 1490.479 / 2000)
        assert action.gains([1, 0], 100.0)[0] == 4.0
        assert action.gains([-1, 0], 100.0)[0] == 0.5
        assert action.gains([0.5, 0], math.nan)[0] == 1.0
        assert action.gains([0.5, 0], 0.0)[0] == 4.0

    @given(st.floats(-0.4, 0.4), st.floats(-1, 1), st.floats(100, 10_000))
    def test_the_inverse_in_packets(self, cwnd: float, pacing: float, bdp: float) -> None:
        action = Action((0.01, 100.0), (0.3, 3.0), cwnd_scale="packets")
        found = action.action(*action.gains((cwnd, pacing), bdp), bdp)
        np.testing.assert_allclose(found, (cwnd, pacing), atol=1e-5)


class TestReward:
    FULL = {"delivery_rate_mbps": 5.0, "rtt_mean_ms": 10.0, "lost_packets": 0.0}  # noqa: RUF012  # never changed

    def reward(self, terms: dict[str, float], link: Mapping[str, float] | None = None, **first: float) -> float:
        rows = make_rows(self.FULL | first, self.FULL | {"rtt_mean_ms": 50.0}, link=link)
        return reward_of(Reward(terms), TWO, 0, rows)

    def test_formulas(self) -> None:
        assert self.reward({"throughput": 1}) == pytest.approx(0.5)
        assert self.reward({"throughput": 1}, delivery_rate_mbps=20.0) == 1.0
        assert self.reward({"log_throughput": 1}, delivery_rate_mbps=2.5) == pytest.approx(math.log(0.5))
        assert self.reward({"log_throughput": 1}, delivery_rate_mbps=0.0) == pytest.approx(math.log(0.05))
        assert self.reward({"log_throughput": 1}, delivery_rate_mbps=9.0) == 0.0
        assert self.reward({"delay": 1}, rtt_mean_ms=35.0) == pytest.approx(-0.5)  # 25 ms of the longest RTT, 50 ms
        assert self.reward({"delay": 1}, rtt_mean_ms=math.nan) == 0.0
        assert self.reward({"delay": 1}, rtt_mean_ms=5000.0) == -4.0
        assert self.reward({"loss": 2}, lost_packets=25.0) == pytest.approx(-0.5)
        assert self.reward({"loss": 1}, lost_packets=3.0, sent_packets=0.0) == -1.0
        assert self.reward({"fairness": 1}) == pytest.approx(1.0)
        assert self.reward({"fairness": 1}, delivery_rate_mbps=0.0) == pytest.approx(0.5)
        assert self.reward({"utilisation": 1}, link={"rate_mbps": 10.4, "utilisation": 0.75}) == 0.75
        assert self.reward({"utilisation": 1}, link={"rate_mbps": 10.4}) == 0.0  # NaN

    @pytest.mark.parametrize(("preference", "delay"), [(0.0, -0.3), (0.25, -0.1), (1.0, -0.1 / 27)])
    def test_the_flows_preference_weighs_delay(self, preference: float, delay: float) -> None:
        factor = re.search(r"times (\d+)\^\(1/2 - 2 p\)", TERMS["delay"].meaning)
        assert factor is not None
        assert delay == pytest.approx(-0.1 * int(factor[1]) ** (1 / 2 - 2 * preference))
        flow = replace(TWO.flows[0], parameters={"preference": preference})
        rows = make_rows(self.FULL | {"rtt_mean_ms": 15.0}, self.FULL)
        assert reward_of(Reward({"delay": 1}), replace(TWO, flows=(flow, TWO.flows[1])), 0, rows) == pytest.approx(
            delay
        )

    def test_the_fair_share_is_of_the_flows_in_the_step(self) -> None:
        away = {"is_active": 0.0, "sent_packets": 0.0, "delivered_packets": 0.0, "delivery_rate_mbps": 0.0}
        rows = make_rows(self.FULL, self.FULL | away)
        assert reward_of(Reward({"log_throughput": 1}), TWO, 0, rows) == pytest.approx(math.log(0.5))
        assert reward_of(Reward({"log_throughput": 1}), TWO, 1, rows) == 0.0
        assert reward_of(Reward({"fairness": 1}), TWO, 0, rows) == 1.0

    def test_the_best_is_a_full_fair_link_without_queue(self) -> None:
        best = self.reward(dict(Reward().terms))
        assert best == pytest.approx(0.0)
        for worse in ({"delivery_rate_mbps": 4.0}, {"rtt_mean_ms": 11.0}, {"lost_packets": 1.0}):
            assert self.reward(dict(Reward().terms), None, **worse) < best - 0.002
        # Nor does it pay to take what is another's.
        assert self.reward(dict(Reward().terms), delivery_rate_mbps=9.0) == pytest.approx(best)

    @settings(max_examples=50)
    @given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=60, max_size=60))
    def test_is_bounded_whatever_the_rows(self, values: list[float]) -> None:
        row = dict(zip(FLOW_COLUMNS, values, strict=False)) | {"is_active": 1.0}
        with np.errstate(all="ignore"):
            for name, term in TERMS.items():
                reward = reward_of(Reward({name: 1.0}), TWO, 0, make_rows(row, row))
                assert min(term.low, 0.0) <= reward <= max(term.high, 0.0)

    def test_what_ns3gym_serves_is_the_mean_over_agents(self) -> None:
        both = Scenario(rate_mbps=10.4, flows=(Flow("agent", rtt_ms=50.0), Flow("bbr"), Flow("agent", rtt_ms=50.0)))
        flows = zip((0.5, 2.25, 0.25), (50.0, 50.0, 60.0), strict=True)
        rows = make_rows(
            *(
                {"lost_packets": 0.0, "delivery_rate_mbps": share * PAYLOAD_MBPS / 3, "rtt_mean_ms": rtt_ms}
                for share, rtt_ms in flows
            )
        )
        link = sum(map(math.log, (0.5, 2.25, 0.25))) / 3
        for scenario, count in ((both, 2), (both.with_algorithm("bbr"), 3)):
            expected = link - Reward().terms["delay"] * 0.2 / count
            assert server._reward(scenario, rows) == pytest.approx(expected)

    def test_alpha_fair_is_best_where_a_full_link_is_shared_equally(self) -> None:
        """At most 0, there and nowhere else; and it pays for using what another flow cannot use."""

        def value(*shares: float) -> float:
            flows = [{"delivery_rate_mbps": share * PAYLOAD_MBPS, "rtt_mean_ms": 50.0} for share in shares]
            scenario = Scenario(rate_mbps=10.4, flows=(Flow("agent", rtt_ms=50.0),) * len(shares))
            return reward_of(Reward({"alpha_fair": 1.0}), scenario, 0, make_rows(*flows))

        assert value(0.5, 0.5) == pytest.approx(0.0)
        assert value(1.0) == pytest.approx(0.0)
        assert value(0.6, 0.4) == pytest.approx((math.log(1.2) + math.log(0.8)) / 2)
        assert value(0.6, 0.4) < 0
        assert value(0.45, 0.45) == pytest.approx(math.log(0.9))
        assert value(0.8, 0.2) > value(0.5, 0.2)
        assert value(1.0, 0.001) == pytest.approx((math.log(2) + math.log(0.05)) / 2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Observation(("queue",)), r"'queue'; known: delivery_rate_ratio, "),
        (lambda: Observation(("loss_rate", "loss_rate")), "none twice"),
        (lambda: Observation(()), "at least one"),
        (lambda: Observation(history=0), "history"),
        *[(lambda bad=bad: Action().gains(bad), "two numbers") for bad in ([1.0, math.nan], [1.0], [[1.0, 1.0]], 1.0)],
        *[
            (lambda bad=bad: Action(pacing_gain=bad), "pacing_gain must be two rising bounds > 0")
            for bad in ((2.0, 1.0), (0.0, 1.0), (1.0,), "ab")
        ],
        (lambda: Action(cwnd_gain=(1.0, 4.0)), r"cwnd_scale='excess', got \(1.0, 4.0\)"),
        (lambda: Action(cwnd_scale="packets").all_gains([[0.5, 0.0]]), "bdp_packets"),
        (lambda: Action(cwnd_scale="bytes"), "'bytes'"),
        (lambda: Reward({"thruput": 1.0}), "'thruput'"),
        (lambda: Reward({"delay": -0.5}), r"terms.delay .*got -0.5"),
        (lambda: Reward({"delay": 0.0}), "must have a weight > 0"),
    ],
)
def test_what_does_not_exist_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


class TestDistribution:
    TRAIN = {  # noqa: RUF012  # never changed
        "rate_mbps": {"log_uniform": [5, 50]},
        "buffer_packets": {"uniform": [10, 12]},
        "loss": {"choice": [0.0, 0.01]},
        "flows": [
            {"algorithm": "agent", "rtt_ms": {"uniform": [10, 100]}, "parameters": {"cwnd_gain": {"uniform": [1, 2]}}},
            {"algorithm": {"choice": ["bbr", "cubic"]}, "start_s": {"uniform": [0, 5]}},
        ],
    }

    def test_samples_are_in_bounds_and_reach_everything(self) -> None:
        distribution = Distribution.from_dict(self.TRAIN)
        rng = np.random.default_rng(1)
        samples = [distribution.sample(rng) for _ in range(300)]
        assert {s.buffer_packets for s in samples} == {10, 11, 12}
        assert {s.loss for s in samples} == {0.0, 0.01}
        assert {s.flows[1].algorithm for s in samples} == {"bbr", "cubic"}
        assert all(10 <= s.flows[0].rtt_ms <= 100 and 0 <= s.flows[1].start_s <= 5 for s in samples)
        assert all(1 <= s.flows[0].parameters["cwnd_gain"] <= 2 for s in samples)
        rates = np.array([s.rate_mbps for s in samples])
        assert rates.min() >= 5
        assert rates.max() <= 50
        assert np.median(np.log(rates)) == pytest.approx(np.log(np.sqrt(5 * 50)), abs=0.2)

    def test_a_seed_decides_and_neither_the_order_of_keys_nor_a_round_trip(self) -> None:
        turned = {key: self.TRAIN[key] for key in reversed(self.TRAIN)}
        a, b = (Distribution.from_dict(plain).sample(np.random.default_rng(3)) for plain in (self.TRAIN, turned))
        assert a == b
        again = Distribution.from_dict(self.TRAIN)
        assert Distribution.from_dict(again.to_dict()) == pickle.loads(pickle.dumps(again)) == again
        assert again.example == again.example
        assert a != again.sample(np.random.default_rng(4))

    def test_a_scenario_is_the_distribution_that_gives_itself(self) -> None:
        rng = np.random.default_rng(1)
        before = rng.bit_generator.state
        assert Distribution.of(TWO).sample(rng) == TWO
        assert rng.bit_generator.state == before
        assert Distribution.of(TWO).agents == 1

    def test_choices_can_be_whole_and_nested(self) -> None:
        agent = {"algorithm": "agent", "rtt_ms": {"uniform": [10, 20]}}
        other = {"algorithm": "bbr", "rtt_ms": {"choice": [1, {"uniform": [2, 3]}]}}
        distribution = Distribution.from_dict({"flows": {"choice": [[agent], [agent, other]]}})
        rng = np.random.default_rng(1)
        assert {len(distribution.sample(rng).flows) for _ in range(20)} == {1, 2}

    @pytest.mark.parametrize(
        ("plain", "message"),
        [
            (
                {
                    "duration_s": {"choice": [30, 5, 20]},
                    "flows": [{"algorithm": "agent"}, {"start_s": {"choice": [0, 10, 1]}}],
                },
                r"flows\[1\].start_s must be < duration_s=5, got 10",
            ),
            (
                {
                    "policer_mbps": {"choice": [None, 5]},
                    "policer_burst_bytes": {"uniform": [1000, 100_000]},
                    "packet_bytes": {"uniform": [100, 9000]},
                    "flows": [{"algorithm": "agent"}],
                },
                "policer_burst_bytes must be >= 9040",
            ),
            (
                {"rate_schedule": [[{"choice": [5, 25]}, 4], [{"choice": [30, 20]}, 8]], "flows": [{}]},
                "rising times",
            ),
            (
                {"flows": [{"rtt_schedule": [[{"uniform": [1, 6]}, 10], [7, 10], [{"uniform": [4, 8]}, 20]]}]},
                "rising times",
            ),
            (
                {
                    "duration_s": {"choice": [30, 5]},
                    "workload": {"load": 0.3, "sizes": "web-search", "start_s": {"choice": [0, 10]}},
                    "flows": [{}],
                },
                "workload.start_s must be in",
            ),
            (
                {
                    "rate_mbps": {"uniform": [1, 50]},
                    "workload": {"load": {"uniform": [0.1, 2]}, "sizes": "fixed", "mean_bytes": 10_000},
                    "flows": [{}],
                },
                "workload must have at most",
            ),
        ],
    )
    def test_values_that_are_good_alone_and_bad_together_are_refused(self, plain: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            Distribution.from_dict(plain)

    def test_equal_distributions_have_equal_hashes(self) -> None:
        whole, real = (
            {"rate_mbps": {"uniform": low}, "flows": [{"algorithm": "agent"}]} for low in ([5, 50], [5.0, 50.0])
        )
        assert len({Distribution.from_dict(whole), Distribution.from_dict(real)}) == 1

    def test_lists_of_flows_with_fewer_agents_than_others_get_absent_ones(self) -> None:
        agent, rival = {"algorithm": "agent"}, {"algorithm": "cubic"}
        lists = [[agent], [agent, rival], [rival, agent, agent, agent]]
        distribution = Distribution.from_dict({"flows": {"choice": lists}})
        assert (distribution.agents, distribution.max_flows) == (3, 4)
        assert Distribution.from_dict(distribution.to_dict()) == distribution
        rng = np.random.default_rng(1)
        samples = {distribution.sample(rng) for _ in range(30)}
        present = {tuple(flow.algorithm for flow in one.flows if flow.stop_s is None) for one in samples}
        assert present == {tuple(flow["algorithm"] for flow in flows) for flows in lists}
        assert all(len(one.agent_flows) == 3 for one in samples)
        assert {flow.algorithm for one in samples for flow in one.flows if flow.is_absent} == {"agent"}
        alone = distribution.with_one_agent("bbr")
        flows = {flow for one in (alone.sample(rng) for _ in range(30)) for flow in one.flows}
        assert (alone.agents, alone.max_flows, {flow for flow in flows if flow.is_absent}) == (1, 4, set())

    def test_whole_scenarios_can_be_chosen(self) -> None:
        """With what each has: traces, a workload, flows of a size."""
        agent = {"algorithm": "agent"}
        steady = {"rate_mbps": 5.0, "duration_s": 12.0, "flows": [agent]}
        ramp = {"rate_mbps": 6.0, "flows": [agent | {"rtt_trace": {"ramp": [[0.0, 20.0], [10.0, 40.0]]}}]}
        distribution = Distribution.from_dict({"choice": [steady, ramp]})
        rng = np.random.default_rng(1)
        drawn = {scenario.rate_mbps: scenario for scenario in (distribution.sample(rng) for _ in range(20))}
        assert drawn == {each["rate_mbps"]: Scenario.from_dict(each) for each in (steady, ramp)}
        assert len(drawn[6.0].flows[0].rtt_schedule) > 5
        assert (distribution.duration_s, distribution.has_finite_flows) == (None, False)
        for more in ({"flows": [agent | {"size_bytes": 9}]}, {"workload": {"load": 0.2, "sizes": "web-page"}}):
            assert Distribution.from_dict({"choice": [steady, steady | more]}).has_finite_flows

    def test_flows_and_scenarios_count_as_their_mappings(self) -> None:
        flows = [Flow("agent", rtt_ms=7.0), Flow("cubic", stop_s=9.0)]
        whole = Scenario(rate_mbps=9.0, flows=(Flow("agent"),))
        made = {"choice": [whole, {"loss": {"uniform": [0, 0.1]}, "flows": {"choice": [flows, flows[:1]]}}]}
        plain = [flow.to_dict() for flow in flows]
        loss = {"uniform": [0, 0.1]}
        written = {"choice": [whole.to_dict(), {"loss": loss, "flows": {"choice": [plain, plain[:1]]}}]}
        assert Distribution.from_dict(made) == Distribution.from_dict(written)

    def test_the_second_version_of_the_families_has_ten_of_the_same_weight(self) -> None:
        families = Distribution.of("families_v2")
        assert (len(families.plain["choice"]), families.agents, families.has_finite_flows) == (10, 16, False)
        rng = np.random.default_rng(1)
        drawn = [families.sample(rng) for _ in range(200)]
        rates = [scenario.rate_mbps for scenario in drawn]
        assert min(rates) < 3
        assert max(rates) > 200
        active = {sum(not flow.is_absent for flow in scenario.flows) for scenario in drawn}
        assert {1, 2, 3, 4, 10, 16} <= active
        assert any(scenario.policer_mbps for scenario in drawn)
        assert any(scenario.loss_burst_ms for scenario in drawn)
        assert {flow.algorithm for scenario in drawn for flow in scenario.flows} == {"agent"}

    @pytest.mark.parametrize("of_flow", [False, True])
    def test_traces_are_read_once(self, of_flow: bool, tmp_path: Path) -> None:
        def distribution(**drawn: Any) -> Distribution:
            flow = {"algorithm": "agent"}
            return Distribution.from_dict({"flows": [flow | drawn]} if of_flow else {"flows": [flow]} | drawn)

        quantity = "rtt" if of_flow else "rate"
        for name, value in (("a", 30), ("b", 40)):
            (tmp_path / name).write_text(f"{value}\n")
        traces = [{"file": str(tmp_path / name), "step_ms": 100} for name in "ab"]
        one = distribution(**{f"{quantity}_trace": traces[0]})
        assert one == distribution(**{f"{quantity}_schedule": [[0, 30]]})
        some = distribution(**{f"{quantity}_trace": {"choice": [*traces, None]}})
        for name in "ab":
            (tmp_path / name).unlink()
        again, rng = Distribution.from_dict(some.to_dict()), np.random.default_rng(1)
        drawn = [again.sample(rng) for _ in range(30)]
        found = {s.flows[0].rtt_schedule if of_flow else s.rate_schedule for s in drawn}
        assert found == {((0, 30),), ((0, 40),), ()}

    @pytest.mark.parametrize(
        ("bad", "message"),
        [
            ({"rate_trace": {"file": {"uniform": [1, 2]}}}, r"rate_trace .*got \{'uniform': \[1, 2\]\}"),
            ({"rate_trace": {"choice": []}}, r"rate_trace\.choice .*at least one value, got \[\]"),
            ({"loss": {"uniform": [0.0, 0.6]}, "loss_burst_packets": {"uniform": [1, 4]}}, r"loss .*0\.5 .*got 0\.6"),
            ({"rate": 12}, r"'rate' \(did you mean 'rate_mbps'\?\); known: rate_mbps,"),
            ({"flows": [{"algorithm": {"choice": ["bbr", "bbr9"]}}]}, "unknown algorithm 'bbr9'"),
            ({"flows": [{"algorithm": "agent"}, {"rtt_ms": {"choice": [9, -1]}}]}, "rtt_ms .*got -1"),
            ({"flows": 3}, "a list of mappings"),
            ({"rate_mbps": {"uniform": [5, 5]}}, r"rate_mbps\.uniform .*got \[5, 5\]"),
            ({"rate_mbps": {"log_uniform": [0, 5]}}, r"rate_mbps\.log_uniform .*> 0"),
            ({"duration_s": {"uniform": [2, 9]}, "flows": [{"start_s": {"uniform": [0, 3]}}]}, r"start_s .*got 3\.0"),
            ({"flows": [{"algorithm": {"choice": ["agent", "bbr"]}}]}, "number of agent flows, got 0 or 1"),
            ({"flows": {"choice": [[{"algorithm": "agent"}], [{}]]}}, "number of agent flows, got 0 or 1"),
            ([1], "a mapping of its fields"),
            ({"rate_mbps": {"unifrm": [1, 2]}}, r"rate_mbps: unknown kind of draw 'unifrm' \(did you mean 'uniform'"),
            ({"flows": [{"rtt_ms": {"normal": [5, 1]}}]}, r"flows\.0\.rtt_ms: unknown kind of draw 'normal'"),
        ],
    )
    def test_bad_entries_are_refused_by_name(self, bad: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            Distribution.from_dict(bad)


@pytest.mark.parametrize("cwnd_scale", CWND_SCALES)
def test_actions_and_gains_beyond_the_bounds_count_as_the_bounds(cwnd_scale: str) -> None:
    gain_map = _controllers.GainMap((1.25, 4.0), (0.75, 1.75), CWND_SCALES.index(cwnd_scale))
    bdp = np.full(2, 1e4)  # so large that no packets lead to the bounds of cwnd_gain
    bounds = np.array([[1.0, 1.0], [-1.0, -1.0]])
    assert (gain_map.gains(1.5 * bounds, bdp) == gain_map.gains(bounds, bdp)).all()
    small = np.full(2, 1.0)
    assert gain_map.actions(np.array([[9.0, 0.1], [9.0, 0.1]]), small)[:, 1].tolist() == [1.0, -1.0]
    if cwnd_scale != "packets":
        assert gain_map.actions(np.array([[9.0, 0.1], [9.0, 0.1]]), small).tolist() == bounds.tolist()


def test_drawn_scenarios_have_the_model_that_the_actions_scale() -> None:
    for model, parameters in (("bbr", {"is_bbr_model": 1.0}), ("default", {})):
        drawn = EpisodeSpec(TWO, action=Action(model=model)).sample(np.random.default_rng(1))
        assert [drawn.flows[flow].parameters for flow in drawn.agent_flows] == [parameters] * len(drawn.agent_flows)


class TestAgentSteps:
    """What Python hands to C++ (envs/native/agent_steps.h): two links with three flows, of which one is the agent's."""

    def arrays(self) -> dict[str, Any]:
        spec = EpisodeSpec(TWO)
        return {
            "features": spec.observation.table,
            "reward": spec.reward.compiled,
            "flow_rows": np.ones((2, 3, len(FLOW_COLUMNS))),
            "link_rows": np.ones((2, len(LINK_COLUMNS))),
            "flows": np.array([0, 2]),
            "gains": np.ones((2, 2)),
            "preferences": np.ones(2),
            "conditions": np.ones((2, len(CONDITIONS))),
            "rows": np.zeros((2, len(FLOW_COLUMNS))),
            "observations": np.tile(spec.observation.neutral, (2, 1)),
            "rewards": np.zeros(2),
        }

    @pytest.mark.parametrize("name", ["link_rows", "gains", "preferences", "conditions", "rows", "rewards"])
    def test_refuses_arrays_that_do_not_fit(self, name: str) -> None:
        arrays = self.arrays()
        with pytest.raises(ValueError, match=f"{name} must have the shape"):
            _native.AgentSteps(**arrays | {name: arrays[name][..., 1:].copy()})
        with pytest.raises(TypeError):
            _native.AgentSteps(**arrays | {name: arrays[name].astype(np.float32)})  # it would write to a copy

    def test_refuses_what_does_not_exist(self) -> None:
        arrays = self.arrays()
        for link in (-1, 2):
            with pytest.raises(IndexError, match=f"there is no link {link}"):
                _native.AgentSteps(**arrays).read(np.array([link]))
        for flow in (-1, 3):
            with pytest.raises(IndexError, match=f"a link has no flow {flow}"):
                _native.AgentSteps(**arrays | {"flows": np.array([0, flow])}).read()
        with pytest.raises(ValueError, match="unknown formula 'speed'; known: throughput, "):
            _native.Reward([("speed", 1.0)])
