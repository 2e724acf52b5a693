"""The search for bad days: what it proposes, what it measures, and what it holds out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
from policies import make_agent

from bbrgym import Scenario, simulate
from bbrgym.agents.adversary import Adversary, Candidate, is_held_out, largest_gaps
from bbrgym.agents.policy import Agent, load_agent
from bbrgym.envs.distribution import Distribution
from bbrgym.envs.engine import make_engine
from bbrgym.envs.sharing import Sharing

PLAIN: dict[str, Any] = {
    "rate_mbps": {"log_uniform": [2.0, 200.0]},
    "queue": {"choice": ["droptail", "codel"]},
    "buffer_packets": {"uniform": [10, 20]},
    "duration_s": 2,
    "flows": {"choice": [[{"rtt_ms": 20}], [{"rtt_ms": 20}, {"rtt_ms": {"uniform": [10, 90]}}]]},
}
DISTRIBUTION = Distribution.from_dict(PLAIN)


def adversary(*baselines: str, threads: int = 2) -> Adversary:
    return Adversary(DISTRIBUTION, baselines, partial(make_engine, "native"), threads)


@pytest.fixture
def slow_links_are_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    """The regret is largest on slow links with CoDel."""

    def measure(
        self: Adversary, agent: Agent | str, scenarios: Sequence[Scenario], seeds: Sequence[int]
    ) -> list[Candidate]:
        return [
            Candidate(scenario, 0.0, {"bbr": (scenario.queue == "codel") - np.log(scenario.rate_mbps / 2)})
            for scenario in scenarios
        ]

    monkeypatch.setattr(Adversary, "measure", measure)


@pytest.mark.usefixtures("slow_links_are_bad")
def test_it_finds_larger_gaps_than_draws_do_and_the_same_ones_again() -> None:
    guided, again, other, drawn = (
        adversary("bbr").search("policy", 112, np.random.default_rng(seed), is_guided)
        for seed, is_guided in ((1, True), (1, True), (2, True), (1, False))
    )
    assert guided == again != other
    assert len(guided) == len(drawn) == 112
    late, draws = (np.mean([candidate.gap for candidate in found[64:]]) for found in (guided, drawn))
    assert late > draws + 1
    assert np.mean([candidate.scenario.queue == "codel" for candidate in guided[64:]]) > 0.6
    # It stays within the distribution.
    assert all(2 <= candidate.scenario.rate_mbps <= 200 for candidate in guided)
    assert {candidate.scenario.buffer_packets for candidate in drawn} == set(range(10, 21))
    assert {len(candidate.scenario.flows) for candidate in guided} == {1, 2}
    assert all(flow.algorithm == "agent" for candidate in guided for flow in candidate.scenario.flows)


def test_the_gap_is_the_fair_power_of_the_best_less_the_agents() -> None:
    agent = make_agent()
    scenarios = [
        Scenario.from_dict({"rate_mbps": rate, "duration_s": 2, "flows": flows})
        for rate, flows in (
            (6, [{"algorithm": "agent", "rtt_ms": 20}, {"algorithm": "cubic", "rtt_ms": 30}]),
            (12, [{"algorithm": "agent", "rtt_ms": 20}] * 2),
        )
    ]
    names = ("cubic", "scripted:backlog")
    found = adversary(*names).measure(agent, scenarios, [5, 6])
    assert found == adversary(*names, threads=1).measure(agent, scenarios, [5, 6])
    for candidate, scenario, seed in zip(found, scenarios, (5, 6), strict=True):

        def fair_power(driver: Agent | str, scenario: Scenario = scenario, seed: int = seed) -> float:
            if isinstance(driver, str):
                trace = simulate(scenario.with_agents_as(driver), "native", seed)
            else:
                trace = simulate(scenario, "native", seed, driver.spec.interval_ms(scenario), driver.policy(scenario))
            return Sharing.of_trace(trace, warmup=0.25).fair_power

        rule = fair_power(load_agent("scripted:backlog"))
        assert candidate.scenario == scenario
        assert candidate.agent == fair_power(agent)
        assert candidate.baselines == {"cubic": fair_power("cubic"), "scripted:backlog": rule}
        assert candidate.gap == max(candidate.baselines.values()) - candidate.agent


def test_the_largest_gaps_are_kept_not_the_worst_scenarios() -> None:
    drawn = Scenario()
    hopeless = Candidate(drawn, -3.0, {"bbr": -3.1, "cubic": -3.0})
    hard = Candidate(drawn, -1.0, {"bbr": -0.9, "cubic": -0.2})
    harder = Candidate(drawn, -2.0, {"bbr": -1.7, "cubic": -2.5})
    easy = Candidate(drawn, -0.5, {"bbr": -0.1, "cubic": -0.6})
    solved = Candidate(drawn, -0.1, {"bbr": -0.09, "cubic": -0.2})
    given = [hopeless, solved, harder, easy, hard]
    assert [each.gap for each in given] == pytest.approx([0.0, 0.01, 0.3, 0.4, 0.8])
    assert [each.best for each in given] == ["cubic", "bbr", "bbr", "bbr", "cubic"]
    assert largest_gaps(given, 2) == [hard, easy]
    assert largest_gaps(given, 5) == [hard, easy, harder, solved]


def test_flows_that_end_by_themselves_are_refused() -> None:
    distribution = Distribution.from_dict({"flows": [{"size_bytes": {"uniform": [1000, 2000]}}]})
    with pytest.raises(ValueError, match="flows must be endless"):
        Adversary(distribution, ("bbr",), partial(make_engine, "native"))


def test_a_fourth_is_held_out_whoever_asks() -> None:
    rng = np.random.default_rng(1)
    drawn = [DISTRIBUTION.sample(rng) for _ in range(200)]
    held_out = [is_held_out(scenario) for scenario in drawn]
    assert 30 < sum(held_out) < 70
    assert held_out == [is_held_out(Scenario.from_dict(scenario.to_dict())) for scenario in drawn]
