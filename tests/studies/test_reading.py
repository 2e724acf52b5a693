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
    assert tuple(found) == reading.COPIES
    assert [len(found[name].inputs) for name in reading.LINEAR.values()] == list(reading.SIZES)
    assert set(found[reading.ALL].inputs) == set(range(10))


def test_decisions_are_those_of_the_policy(agent: Agent) -> None:
    scenario = agent.spec.action.on(Scenario(rate_mbps=5.0, duration_s=6.0, flows=(Flow("agent"),)))
    seen, actions = reading.decisions(agent, [scenario])
    assert seen.shape == (len(actions), len(reading.inputs(agent)))
    assert 20 < len(actions) < 60
    agent.reset()
    np.testing.assert_array_equal(agent.predict(seen[:1]), actions[:1])


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


def test_every_event_is_one_of_the_policys() -> None:
    for scenario in reading.events().values():
        assert {flow.algorithm for flow in scenario.flows} == {"policy"}
