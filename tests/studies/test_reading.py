import numpy as np
import pytest
from policies import make_agent

from bbrgym.agents.policy import Agent, load_agent
from bbrgym.baselines.policy_file import REFERENCE
from bbrgym.envs.scenario import Flow, Scenario
from bbrgym.envs.trace import simulate
from studies import reading


@pytest.fixture(scope="module")
def agent() -> Agent:
    return load_agent(REFERENCE)


def test_the_smallest_copy_has_the_features_that_matter() -> None:
    seen = np.random.default_rng(1).standard_normal((500, 11)).astype(np.float32)
    seen[:, 10] = 0.5  # tells nothing
    actions = 0.2 * seen[:, [7, 3]] + np.float32(0.1)
    found = reading.copies(seen, actions)
    smallest = found["linear, 2 features"]
    assert set(smallest.inputs) == {3, 7}
    assert smallest.explained(seen, actions) == pytest.approx(1.0, abs=1e-3)
    assert 0.5 < found[reading.TREE].explained(seen, actions) < 1.0
    assert tuple(found) == reading.COPIES
    assert [len(found[name].inputs) for name in reading.LINEAR.values()] == list(reading.SIZES)
    assert set(found[reading.ALL].inputs) == set(range(10))


def test_decisions_are_those_of_the_policy() -> None:
    agent = make_agent(observation={"features": ["log_bdp", "log_min_rtt", "is_probe_bw"]})
    scenario = agent.spec.action.on(Scenario(rate_mbps=5.0, duration_s=6.0, flows=(Flow("agent"),)))
    seen, actions = reading.decisions(agent, [scenario])
    assert seen.shape == (len(actions), len(reading.inputs(agent)))
    assert 20 < len(actions) < 60
    np.testing.assert_array_equal(agent.predict(seen), actions)


def test_a_policy_with_memory_begins_each_scenario_anew() -> None:
    agent = make_agent(widths=(), lstm=(4,), observation={"features": ["log_bdp", "log_min_rtt", "is_probe_bw"]})
    scenarios = [
        agent.spec.action.on(Scenario(rate_mbps=rate, duration_s=4.0, flows=(Flow("agent"),) * flows))
        for rate, flows in ((5.0, 1), (9.0, 2), (5.0, 1))
    ]
    seen, actions = reading.decisions(agent, scenarios)
    (seen_first, actions_first), (seen_second, actions_second) = (
        reading.decisions(agent, part) for part in (scenarios[:1], scenarios[:2])
    )
    np.testing.assert_array_equal(actions[: len(actions_first)], actions_first)
    np.testing.assert_array_equal(seen[: len(seen_second)], seen_second)
    assert len(actions) > len(actions_second) > len(actions_first) == len(seen_first) > 0


def test_a_copy_is_described_by_its_weights_or_by_its_tree() -> None:
    seen = np.random.default_rng(1).standard_normal((300, 9)).astype(np.float32)
    actions = np.float32([0.5, -0.25]) * seen[:, [4, 4]]
    names = ["log_bdp", *(f"log_backlog, {steps} steps before" for steps in range(8, 0, -1))]
    rows = {row["copy"]: row for row in reading.described(reading.copies(seen, actions), seen, actions, names)}
    linear = rows["linear, 2 features"]
    assert linear["decisions"] == 300
    assert linear["inputs"][0] == names[4]
    (line,) = [line for line in reading.weights_table(linear).splitlines() if names[4] in line]
    assert line.startswith(f"| `{names[4]}` | +0.500 | -0.250 | log2(")
    assert rows[reading.TREE]["tree"].startswith(f"|--- {names[4]} <=")


def test_what_happened_is_said_of_flows_of_the_policy_in_time_order() -> None:
    events = reading.events()
    for event in events.values():
        assert {flow.algorithm for flow in event.scenario.flows} == {"policy"}
        edges = [edge for span in event.spans_s for edge in span]
        assert edges == sorted(edges)
        assert edges[-1] <= event.scenario.duration_s


def test_what_happened_is_of_its_span(monkeypatch: pytest.MonkeyPatch) -> None:
    flows = (Flow("policy", rtt_ms=20.0), Flow("policy", rtt_ms=20.0, start_s=4.0))
    scenario = Scenario(rate_mbps=8.0, duration_s=8.0, flows=flows)
    event = reading.Event(scenario, [(2.0, 4.0), (6.0, 8.0)])
    monkeypatch.setattr(reading, "events", lambda: {"joins": event})
    alone, both = reading.happened()
    assert alone["throughputs_mbps"] == [pytest.approx(8.0 * 1000 / 1040, rel=0.05)]
    trace = simulate(scenario, "native", 1, 100.0)
    assert both["throughputs_mbps"] == [flow.throughput_mbps for flow in trace.summary(after_s=6.0).flows]
    assert len(both["packets"]) == 2
    assert 0 < both["packets"][0] < 50
    assert 0 < alone["utilisation"] <= 1
