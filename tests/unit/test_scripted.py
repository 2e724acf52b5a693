"""Scripted policies: what the rules compute, and what comes of them in the native engine."""

import numpy as np
import pytest

from bbrgym import Flow, Scenario
from bbrgym.agents.policy import scripted_agent
from bbrgym.agents.scripted import RULES, BacklogRule
from bbrgym.envs.action import Action
from bbrgym.envs.observation import Observation
from bbrgym.envs.trace import simulate

PACKETS = Action(cwnd_gain=(0.25, 8.0), cwnd_scale="packets")
SEED = 1


def gains(rule: BacklogRule, **features: float) -> tuple[float, float]:
    """Return a rule's gains for these features, with all others neutral."""
    seen = rule.observation.neutral.copy()
    last = seen[-len(rule.observation.features) :]
    for name, value in features.items():
        last[rule.observation.features.index(name)] = value
    action = rule.forward(seen[np.newaxis])
    return rule.action.gains(action[0], 10.0 ** features["log_bdp"])


def shares(rule: str, *flows: Flow) -> list[float]:
    """Return each flow's share of the throughput after 10 s, with the rule steering the agent's flows."""
    agent = scripted_agent(rule)
    scenario = Scenario(rate_mbps=20, buffer_bdp=3, duration_s=40, flows=flows)
    trace = simulate(
        scenario, "native", seed=SEED, step_ms=agent.spec.interval_ms(scenario), policy=agent.policy(scenario)
    )
    rates = [flow.throughput_mbps for flow in trace.summary(after_s=10).flows]
    return [rate / sum(rates) for rate in rates]


@pytest.mark.parametrize("rule", RULES.values())
@pytest.mark.parametrize("history", [1, 3])
def test_a_flow_keeps_its_backlog_above_one_bdp(rule: type[BacklogRule], history: int) -> None:
    scripted = rule(Observation(history=history), PACKETS)
    assert gains(scripted, log_bdp=2.0) == (pytest.approx(1.06, rel=1e-5), pytest.approx(1.1))
    assert gains(scripted, log_bdp=1.0) == (pytest.approx(1.6, rel=1e-5), pytest.approx(1.1))


def test_in_packets_the_rule_needs_no_bdp() -> None:
    observation = Observation(("log_rate_decline",))
    scripted = BacklogRule(observation, PACKETS)
    action = scripted.forward(observation.neutral[np.newaxis])
    for bdp in (10.0, 1000.0):
        assert PACKETS.gains(action[0], bdp) == (pytest.approx(1.0 + 6.0 / bdp, rel=1e-5), pytest.approx(1.1))
    with pytest.raises(ValueError, match="'backlog' needs the features log_bdp; 'log_bdp' is missing"):
        BacklogRule(observation, Action())


@pytest.mark.parametrize(("preference", "backlog"), [(0.0, 3), (0.25, 6 / 2**0.5), (0.5, 6), (1.0, 12)])
def test_a_preference_for_its_share_means_more_packets(preference: float, backlog: float) -> None:
    rule = BacklogRule(Observation(("log_rate_decline", "preference")), PACKETS)
    assert rule.backlogs(np.array([[0.0, preference]], dtype=np.float32)) == pytest.approx([backlog])


def test_noise_in_place_of_a_queue_means_more_packets() -> None:
    rule = BacklogRule(Observation(("log_queueing_delay",)), PACKETS, backlog_packets=2, noise_ms=0.3)
    delays_ms = np.array([3.0, 0.3, 0.15, 0.01], dtype=np.float32)
    assert rule.backlogs(np.log10(delays_ms)[:, np.newaxis]) == pytest.approx([2, 2, 2 * 2**0.75, 8], rel=1e-5)
    with pytest.raises(ValueError, match="'log_queueing_delay' is missing"):
        BacklogRule(Observation(("log_bdp",)), PACKETS, noise_ms=0.3)


@pytest.mark.parametrize("rule", RULES)
def test_rules_are_fair_to_their_own_kind_across_rtts(rule: str) -> None:
    both = shares(rule, Flow("agent", rtt_ms=20), Flow("agent", rtt_ms=80, start_s=2))
    assert both == [pytest.approx(0.5, abs=0.1)] * 2


def test_errors_name_what_is_missing_and_what_is_known() -> None:
    with pytest.raises(ValueError, match=r"unknown scripted agent 'greedy'; known: scripted:backlog"):
        scripted_agent("greedy")
    assert BacklogRule(Observation(("log_delivery_rate_ratio", "log_bdp", "log_rate_decline")), PACKETS).inputs == 3
