import numpy as np
import pytest

from bbrgym.agents.policy import Agent, load_agent
from bbrgym.baselines.policy_file import REFERENCE
from bbrgym.envs.scenario import Flow, Scenario
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
    assert [len(found[f"linear, {size} features"].inputs) for size in reading.SIZES] == list(reading.SIZES)
    assert set(found["linear, all 10 features"].inputs) == set(range(10))


def test_decisions_are_those_of_the_policy(agent: Agent) -> None:
    scenario = agent.spec.action.on(Scenario(rate_mbps=5.0, duration_s=6.0, flows=(Flow("agent"),)))
    seen, actions = reading.decisions(agent, [scenario])
    assert seen.shape == (len(actions), len(reading.inputs(agent)))
    assert 20 < len(actions) < 60
    agent.reset()
    np.testing.assert_array_equal(agent.predict(seen[:1]), actions[:1])


def test_a_copy_that_does_what_the_policy_does_reaches_what_it_reaches(agent: Agent) -> None:
    class Same:
        predict = staticmethod(agent.predict)

    scenario = agent.spec.action.on(Scenario(rate_mbps=5.0, duration_s=4.0, flows=(Flow("agent"),)))
    agent.reset()
    assert reading.fair_power(Same(), scenario, 1) == reading.fair_power(None, scenario, 1)  # type: ignore[arg-type]


def test_every_event_is_one_of_the_policys() -> None:
    for scenario in reading.events().values():
        assert {flow.algorithm for flow in scenario.flows} == {"policy"}
