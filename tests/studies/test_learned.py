"""The study of what the shipped policy learned: its jobs, and what its page says of their results."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from policies import make_agent

from bbrgym.agents.policy import load_agent
from bbrgym.baselines.policy_file import REFERENCE
from bbrgym.envs.scenario import Flow, Scenario
from studies import learned
from studies.learned import Behaviour, FairPower, Reading
from studies.reading import ALL, COPIES, LINEAR, TREE

SCENARIO = Scenario(rate_mbps=5.0, duration_s=4.0, flows=(Flow("agent"), Flow("cubic", start_s=1.0)))


@pytest.fixture
def fresh() -> Iterator[None]:
    """Forget what decides, which a test changes."""
    learned._decides.cache_clear()
    yield
    learned._decides.cache_clear()


def code(flow: dict[str, Any], scenario: Scenario = SCENARIO, seed: int = 1) -> str:
    return FairPower("any", scenario, flow, seed).code


def test_the_hash_of_a_run_is_of_what_its_flows_run_where() -> None:
    flows = [*learned.competitors().values(), *({"driver": name} for name in (learned.IN_PYTHON, *COPIES))]
    flows += [learned.fixed(packets) for packets in learned.PACKETS]
    codes = [code(flow) for flow in flows]
    codes += [code(flows[0], seed=2), code(flows[0], replace(SCENARIO, rate_mbps=6.0))]
    assert len(set(codes)) == len(codes)
    assert FairPower("another", SCENARIO, flows[0], 1).code == codes[0]


def test_another_policy_is_measured_again_with_its_copies(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    of_policy: list[dict[str, Any]] = [{"algorithm": "policy"}, {"driver": learned.IN_PYTHON}, {"driver": TREE}]
    before, reading, cubic = [code(flow) for flow in of_policy], Reading().code, code({"algorithm": "cubic"})
    agent = load_agent(REFERENCE)
    other = replace(agent, spec=replace(agent.spec, action=replace(agent.spec.action, pacing_gain=(0.9, 1.2))))
    monkeypatch.setattr(learned, "_reference", lambda: other)
    learned._decides.cache_clear()
    assert set(before).isdisjoint(code(flow) for flow in of_policy)
    assert Reading().code != reading
    assert code({"algorithm": "cubic"}) == cubic


def test_the_hash_of_the_small_policy_is_of_its_weights_wherever_it_is(
    fresh: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def code_of_small() -> str:
        learned._decides.cache_clear()
        return code(learned.competitors()[learned.SMALL])

    there = code_of_small()
    monkeypatch.setattr(learned, "LINEAR_REFERENCE", shutil.copytree(learned.LINEAR_REFERENCE, tmp_path / "copy"))
    assert code_of_small() == there
    make_agent().save(tmp_path / "copy")
    assert code_of_small() != there


def test_a_scenario_has_the_kind_of_what_is_uncertain_in_it() -> None:
    flow = Flow("agent")
    absent = Flow("agent", stop_s=0.0)
    one = Scenario(rate_mbps=5.0, duration_s=30.0, flows=(flow, absent, absent, absent, absent, absent))
    kinds = {
        learned.PLAIN: one,
        learned.CROWD: replace(one, flows=(flow,) * 5),
        learned.FAST: replace(one, duration_s=10.0),
        learned.UNEVEN: replace(one, flows=(replace(flow, ack_aggregation_ms=3.0), absent)),
        learned.MOVING: replace(one, flows=(replace(flow, rtt_schedule=((2.0, 70.0),)), absent)),
        learned.CHANGING: replace(one, rate_schedule=((2.0, 7.0),)),
        learned.LOSSY: replace(one, loss=0.02),
    }
    assert {name: learned.kind(scenario) for name, scenario in kinds.items()} == {name: name for name in kinds}
    assert set(kinds) == set(learned.WIDER)


def test_the_small_policy_drives_its_flows() -> None:
    flows = learned.competitors()
    powers = {name: learned.fair_power(SCENARIO, flows[name], 1) for name in (learned.POLICY, learned.SMALL)}
    assert 0 < powers[learned.SMALL] != powers[learned.POLICY]


def test_what_the_policy_does_is_measured_again_with_another_policy(
    fresh: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Behaviour().code
    other = make_agent()
    monkeypatch.setattr(learned, "_reference", lambda: other)
    learned._decides.cache_clear()
    assert Behaviour().code != before


def test_more_leaves_read_the_copies_again(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, driven = Reading().code, code({"driver": TREE})
    monkeypatch.setattr(learned, "LEAVES", 17)
    learned._decides.cache_clear()
    assert Reading().code != reading
    assert code({"driver": TREE}) != driven


def test_a_copy_that_does_what_the_policy_does_reaches_what_it_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = load_agent(REFERENCE)
    monkeypatch.setattr(learned, "_copies", lambda: {TREE: agent})
    scenario = agent.spec.action.on(SCENARIO)
    powers = [learned.fair_power(scenario, {"driver": name}, 1) for name in (TREE, learned.IN_PYTHON, learned.RULE)]
    assert powers[0] == powers[1] != powers[2]


@pytest.mark.filterwarnings("ignore:Mean of empty slice", "ignore:invalid value encountered")  # kinds with no scenario
def test_the_page_compares_the_policy_with_what_is_simple(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned, "COUNT", 3)
    reached = {
        "chooses/constant, 4 packets": [0.6, 0.6, 0.6],
        "judges/constant, 4 packets": [0.3, 0.5, 0.4],
        "judges/constant, 6 packets": [0.9, 0.1, 0.1],
        "judges/policy": [0.6, 0.25, 0.8],
        "judges/bbr-backlog": [0.61, 0.2, 0.2],
        "judges/vegas": [0.5, 0.45, 0.45],
        "judges/linear": [0.2, 0.2, 0.3],
        f"judges/{LINEAR[3]}": [0.7, 0.7, 0.7],
        "chooses wider/constant, 9 packets": [0.3, 0.3, 0.3],
        "judges wider/policy": [0.2, 0.3, 0.4],
    }
    jobs = [job for job in learned.jobs() if isinstance(job, FairPower)]
    results: dict[str, Any] = {}
    for job in jobs:
        of, _, number = job.name.rpartition("/")
        results[job.name] = [{"fair_power": reached.get(of, [0.1, 0.1, 0.1])[int(number) - 1]}]
    copy = {"decisions": 7.0, "explained": 0.5, "inputs": ["log_bdp"], "weights": [[0.1], [0.2]], "bias": [0.0, 1.0]}
    results["copies"] = [{**copy, "copy": name, "tree": "|--- leaf"} for name in COPIES]
    span = {"event": "jitter", "from_s": 10.0, "to_s": 40.0, "utilisation": 0.5, "queue_ms": 1.25}
    results["behaviour"] = [{**span, "throughputs_mbps": [4.0, 5.5], "packets": [2.0, 3.0]}]
    shown = learned.view(results, lambda name, draw: name)
    assert (shown["best"], shown["above_constant"], shown["above_hand_made"], shown["worst"]) == (1, 2, 2, "0.25")
    rows = {row.split(" | ")[0]: row for row in str(shown["comparison"]).splitlines()}
    means = {name: rows[f"| {name}"].split(" | ")[1].split(" [")[0] for name in ("policy", learned.ORACLE)}
    assert means == {"policy": "0.550", learned.ORACLE: "0.600"}
    assert "0.400 [" in rows["| constant, 4 packets"]
    assert "| vegas" in rows
    assert rows["| policy"].endswith("| 1 |")
    assert "0.233 [" in rows["| linear"]
    # In each scenario the best of all but the policy, here with the constant of 6 packets: 0.9, 0.5 and 0.45.
    assert rows[f"| {learned.YARDSTICK}"].split(" | ")[1].startswith("0.617 [")
    assert rows["| policy"].split(" | ")[-2] == f"{(0.6 / 0.9 + 0.25 / 0.5 + 0.8 / 0.45) / 3:.3f}"
    wider = {row.split(" | ")[0]: row for row in str(shown["wider"]).splitlines()}
    assert wider["| policy"].split(" | ")[1].startswith("0.300 [")
    assert "| constant, 9 packets" in wider
    assert "| jitter | 10 to 40 | 4.0 and 5.5 | 50% | 1.2 | 2.0 and 3.0 |" in str(shown["happened"])
    assert shown["small_weights"] == 16
    assert (shown["smallest"], shown["decisions"], shown["tree"]) == (LINEAR[3], 7, "|--- leaf")
    assert "| linear, all 1 features | 0.50 | 0.100 |" in str(shown["copies"])
    assert ALL not in str(shown["copies"])
