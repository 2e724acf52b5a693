"""The search in the weights of a policy (agents/search.py), with few candidates and short episodes."""

import copy
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from policies import make_agent
from training import SCENARIO, Killed, KillingConsole, logged, quiet, run_of, same, weights

from bbrgym import Scenario, simulate
from bbrgym.agents.callbacks import evaluate_agent
from bbrgym.agents.checkpoint_names import saved_steps
from bbrgym.agents.config import SearchConfig
from bbrgym.agents.constants import Constants
from bbrgym.agents.draws import draw_bank
from bbrgym.agents.fitness import CandidateRuns, over_scenarios, relative
from bbrgym.agents.policy import load_agent
from bbrgym.agents.search import WeightSearch
from bbrgym.agents.searched_weights import searched_weights
from bbrgym.agents.tracking import read_metrics
from bbrgym.agents.train import TrainResult, resume, train
from bbrgym.envs.distribution import ABSENT
from bbrgym.envs.episode import Episodes
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.envs.native.engine import NativeEngine
from bbrgym.envs.sharing import Sharing

pytestmark = pytest.mark.usefixtures("no_figures")


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


LONE: dict[str, Any] = {
    "rate_mbps": 12,
    "buffer_bdp": 4,
    "duration_s": 4,
    "flows": [{"algorithm": "agent", "rtt_ms": 20}],
}
CONFIG: dict[str, Any] = {
    "scenario": LONE,
    "engine": {"name": "native", "threads": None},
    "agent": {"algorithm": "cma", "population": 8, "scenarios": 2},
    "seed": 3,
    "train": {"total_steps": 2 * 640, "eval_every": 640, "eval_episodes": 2, "checkpoint_every": 640},
    "tracking": {"backend": "none"},
}


def search(directory: Path, steps: dict[str, Any] | None = None, **changes: Any) -> TrainResult:
    return train(configure(steps, **changes), directory, quiet())


def logged_values(directory: Path, name: str) -> list[float]:
    return [line["metrics"][name] for line in read_metrics(directory) if name in line["metrics"]]


def configure(steps: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """Return `CONFIG` with changes, of `agent` and `train` by key."""
    config = copy.deepcopy(CONFIG)
    config["agent"] |= changes.pop("agent", {})
    config["train"] |= steps or {}
    return config | changes


def test_a_search_finds_better_weights_from_a_random_start(tmp_path: Path) -> None:
    # In the middle of these actions a queue fills the buffer.
    action = {"cwnd_gain": [1.0, 16.0], "pacing_gain": [0.8, 3.2], "cwnd_scale": "ratio"}
    steps = {"total_steps": 15 * 640, "eval_every": 10**9, "checkpoint_every": 10**9}
    result = search(tmp_path, steps, action=action)
    assert (result.steps, result.is_complete) == (15 * 640, True)
    medians = logged_values(tmp_path, "search/fitness_median")
    assert len(medians) == 15
    assert np.mean(medians[-3:]) > np.mean(medians[:3]) + 0.2
    first, last = logged_values(tmp_path, "eval/reward")
    assert last > first
    assert run_of(tmp_path)["status"] == "FINISHED"
    assert load_agent(tmp_path).training["algorithm"] == "cma"


@pytest.mark.parametrize(
    "agent",
    [
        {},
        {"net_arch": [6], "diagonal_above": 10, "fitness": "reward"},
        {"relative_to": "constants", "bank": 3, "constants": 3, "tail_weight": 0.5},
    ],
)
def test_a_killed_and_resumed_search_logs_the_same_and_ends_with_the_same_weights(
    tmp_path: Path, agent: dict[str, Any]
) -> None:
    through, stopped, other = (tmp_path / name for name in ("through", "stopped", "other"))
    steps = {"total_steps": 4 * 640}
    search(through, steps, agent=agent)
    with pytest.raises(Killed):
        train(configure(steps, agent=agent), stopped, KillingConsole(4))
    assert saved_steps(stopped) == [2 * 640, 640]
    assert resume(stopped, console=quiet()).steps == 4 * 640
    assert logged(stopped) == logged(through)
    assert same(weights(stopped), weights(through))
    search(other, steps, agent=agent, seed=4)
    assert not same(weights(other), weights(through))


PARTS = {
    "last": {"layer.1.weight", "layer.1.bias"},
    "skip": {"skip.weight", "layer.1.bias"},  # which keeps it centred
    "layers": {"layer.0.weight", "layer.0.bias", "layer.1.weight", "layer.1.bias"},
    "gates": {"lstm.0.input", "lstm.0.state", "lstm.0.bias"},
    "biases": {"lstm.0.bias", "layer.0.bias", "layer.1.bias"},
    "added": {"skip.weight"},
}


@pytest.mark.parametrize("tuned", [*PARTS, "all"])
@pytest.mark.parametrize("has_skip", [True, False])
def test_a_search_that_tunes_a_policy_changes_what_it_is_told_to(tmp_path: Path, tuned: str, has_skip: bool) -> None:
    features = ["log_backlog", "log_bdp"]
    policy = make_agent(widths=(3,), lstm=(4,), scale=0.3, has_skip=has_skip, observation={"features": features})
    policy.save(tmp_path / "best")
    observed = ["log_bdp", "log_min_rtt", "log_backlog"]
    config = SearchConfig(population=4, scenarios=1, tunes=str(tmp_path), tuned=[tuned])  # type: ignore[arg-type]
    spec = EpisodeSpec.from_config(configure(observation={"features": observed}))
    with closing(WeightSearch(config, spec, seed=1)) as search:
        first = search.agent()
        weights = searched_weights(config, spec)
        inputs = np.array([0.5, 1.0, 2.0], np.float32), np.array([1.0, 2.0, 3.0], np.float32)
        changed = weights.network(np.random.default_rng(1).normal(0, 1, weights.size), inputs)
    seen = np.random.default_rng(2).uniform(-0.2, 0.2, (10, 1, 3)).astype(np.float32)
    for one in seen:
        np.testing.assert_allclose(first.predict(one), policy.predict(one[:, [2, 0]]), atol=1e-6)
    before, after = first.stored.network.to_arrays(), changed.to_arrays()
    assert before.keys() == after.keys()
    assert ("skip.weight" in after) == (has_skip or tuned in ("skip", "added", "all"))
    expected = PARTS.get(tuned, before.keys())
    assert {name for name in after if not np.array_equal(after[name], before[name])} == expected
    if tuned == "added":
        np.testing.assert_array_equal(after["skip.weight"][:, [0, 2]], before["skip.weight"][:, [0, 2]])


def test_weights_of_added_features_are_scaled_as_in_the_search_that_made_the_reference(tmp_path: Path) -> None:
    make_agent(widths=(3,), observation={"features": ["log_backlog"]}).save(tmp_path)
    config = SearchConfig(tunes=str(tmp_path), tuned=("added",))
    observation = {"features": ["log_bdp", "log_backlog", "log_min_rtt"]}
    weights = searched_weights(config, EpisodeSpec.from_config(configure(observation=observation)))
    numbers = np.random.default_rng(1).normal(0, 1, weights.size)
    scale = np.array([0.3, 1.0, 3.7], np.float32)
    network = weights.network(numbers, (np.ones(3, np.float32), scale))
    expected = numbers.reshape(3, 2) * scale[[0, 2]] / np.sqrt(2)
    np.testing.assert_array_equal(network.layers[0][0][:, [0, 2]], expected.astype(np.float32))


def test_on_an_executor_a_search_is_the_same(tmp_path: Path) -> None:
    for name, executor in (("here", None), ("there", {"name": "local", "workers": 2, "chunk_s": 0.1})):
        search(tmp_path / name, agent={"executor": executor})
    assert logged(tmp_path / "there") == logged(tmp_path / "here")
    assert same(weights(tmp_path / "there"), weights(tmp_path / "here"))


def test_a_tuned_policy_can_be_resumed_and_must_be_the_same(tmp_path: Path) -> None:
    policy = make_agent(lstm=(4,), has_skip=True, scale=0.2)
    policy.save(tmp_path / "best")
    agent, steps = {"tunes": str(tmp_path / "best")}, {"total_steps": 3 * 640}
    search(tmp_path / "run", agent=agent)
    search(tmp_path / "through", steps, agent=agent)
    assert load_agent(tmp_path / "run" / "final").training["earlier_steps"] is None, "what it began with says nothing"
    resume(tmp_path / "run", {"train.total_steps": 3 * 640}, quiet())
    assert same(weights(tmp_path / "run"), weights(tmp_path / "through"))
    make_agent(lstm=(4,), has_skip=True, scale=0.2, seed=2).save(tmp_path / "best")
    with pytest.raises(ValueError, match=r"no checkpoint .* can be read"):
        resume(tmp_path / "run", {"train.total_steps": 4 * 640}, quiet())


def test_fitness_looks_at_bad_days() -> None:
    outcomes = np.array([[0.5, 0.9], [0.7, 0.9], [0.6, 0.1], [0.6, 0.9]])
    for tail, weight, expected in (
        (0.1, 0.0, [0.6, 0.7]),
        (0.1, 1.0, [1.1, 0.8]),
        (0.5, 0.5, [0.6 + 0.5 * 0.55, 0.7 + 0.5 * 0.5]),
        (1.0, 1.0, [1.2, 1.4]),
    ):
        config = SearchConfig(tail=tail, tail_weight=weight)
        np.testing.assert_allclose(over_scenarios(outcomes, config), expected)
    best = np.array([[0.5], [0.001]])
    np.testing.assert_allclose(relative(np.array([[0.4, 0.6], [0.0, 0.05]]), best), [[0.8, 1.2], [0.0, 0.5]])


def test_relative_fitness_is_that_of_the_best_constant() -> None:
    spec = EpisodeSpec.from_config(configure())
    config = SearchConfig(population=4, scenarios=2, constants=3, relative_to="constants", tail_weight=0.5)
    scenarios, seeds = draw_bank(spec, seed=1, count=2)
    best = Constants(spec, config).best(scenarios, seeds)
    policies = [make_agent(seed=seed).to_bytes() for seed in range(4)]
    with closing(CandidateRuns(spec, config, 8)) as runs:
        found, _ = runs.measure(policies, scenarios, seeds, best)
        ratios = runs.outcomes(policies, scenarios, seeds)[..., 0] / best[:, np.newaxis]
    np.testing.assert_allclose(found, ratios.mean(axis=0) + 0.5 * ratios.min(axis=0))


def test_a_search_that_adds_features_to_a_policy_leaves_everything_else_of_it(tmp_path: Path) -> None:
    make_agent(observation={"features": ["log_backlog", "log_bdp"]}).save(tmp_path / "final")
    first = weights(tmp_path)
    observation = {"features": ["log_bdp", "log_bdp_by_preference", "log_backlog"]}
    agent = {"tunes": str(tmp_path / "final"), "tuned": ["added"]}
    search(tmp_path / "run", agent=agent, observation=observation)
    second = weights(tmp_path / "run")
    added = second.pop("layer.0.weight")
    assert np.array_equal(added[:, [2, 0]], first.pop("layer.0.weight"))
    assert added[:, 1].all()
    assert same(first, second)


@pytest.mark.parametrize(
    ("features", "reason"),
    [
        (["log_bdp"], "log_backlog, which observation.features lacks"),
        (["log_bdp", "log_backlog"], "a feature .* that the policy lacks"),
    ],
)
def test_features_that_cannot_be_added(tmp_path: Path, features: list[str], reason: str) -> None:
    make_agent(observation={"features": ["log_backlog", "log_bdp"]}).save(tmp_path)
    agent = {"tunes": str(tmp_path), "tuned": ["added"]}
    with pytest.raises(ValueError, match=reason):
        search(tmp_path / "run", agent=agent, observation={"features": features})


@pytest.mark.parametrize("fitness", ["fair_power", "held_power"])
def test_a_candidate_in_the_engine_is_the_exported_agent(fitness: str, tmp_path: Path) -> None:
    """Also beside competitors, one of which leaves before anything is measured, and with what its flows have."""
    flows = [
        {"algorithm": "bbr", "rtt_ms": 30, "stop_s": 0.5},
        {"algorithm": "agent", "rtt_ms": 20, "jitter_ms": 1.0, "parameters": {"preference": 0.7}},
        {"algorithm": "cubic", "rtt_ms": 30, "start_s": 0.5},
        {"algorithm": "agent", "rtt_ms": 50, "start_s": 1.0, "stop_s": 3.5},
    ]
    scenario = Scenario.from_dict({**SCENARIO, "duration_s": 4, "loss": 0.01, "flows": flows})
    spec = EpisodeSpec(scenario)
    agents = [make_agent(seed=seed) for seed in (1, 2)]
    config = SearchConfig(population=4, scenarios=2, warmup=0.25, fitness=fitness)
    with closing(CandidateRuns(spec, config, 8)) as runs:
        faster = Scenario.from_dict({**scenario.to_dict(), "rate_mbps": 24})
        found, decisions = runs.measure([agent.to_bytes() for agent in agents * 2], [scenario, faster], [5, 6])
    expected = np.zeros(4)
    for index, agent in enumerate(agents):
        agent.save(tmp_path / str(index))
        for each, seed in ((scenario, 5), (faster, 6)):
            plain = each.to_dict()
            for flow in (1, 3):
                plain["flows"][flow] |= {"algorithm": "policy", "policy": str(tmp_path / str(index))}
            trace = simulate(Scenario.from_dict(plain), seed=seed, step_ms=1000.0)  # as long as the warm-up
            sharing = Sharing.of_trace(trace, 0.25)
            # The mean of what both agents' preferences make of the delay.
            power = sharing.fair_power_at((9.0 ** (0.5 - 2 * 0.7) + 1) / 2)
            least = min(1.0, sharing.shares[[0, 2]].min()) if fitness == "held_power" else 1.0
            expected[index::2] += power * least / 2
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert found[0] != found[1]
    assert decisions == 4 * 2 * 2 * 40


@pytest.mark.parametrize("fitness", ["fair_power", "held_power"])
def test_a_drawn_scenario_without_a_flow_after_the_warm_up_has_no_fair_power(fitness: str) -> None:
    early = Scenario.from_dict({**SCENARIO, "flows": [flow | {"stop_s": 0.1} for flow in SCENARIO["flows"]]})
    config = SearchConfig(population=4, scenarios=1, fitness=fitness)
    with closing(CandidateRuns(EpisodeSpec(SCENARIO), config, 1)) as runs:
        found, _ = runs.measure([make_agent().to_bytes()], [early], [5])
    assert found.tolist() == [0.0]
    sharing = Sharing.of_trace(simulate(early.with_algorithm("bbr")), config.warmup)
    assert (sharing.fair_power, sharing.jain, sharing.utilisation, sharing.delay) == (0.0, 0.0, 0.0, 0.0)


def test_a_call_may_have_fewer_runs_than_the_most() -> None:
    spec = EpisodeSpec(SCENARIO)
    scenarios, policies = [Scenario.from_dict(SCENARIO)] * 2, [make_agent(seed=seed).to_bytes() for seed in (1, 2)]
    with closing(CandidateRuns(spec, SearchConfig(population=4, scenarios=2), 4)) as runs:
        both, decisions = runs.measure(policies, scenarios, [5, 5])
        one, fewer = runs.measure(policies, scenarios[:1], [5])
    assert one.tolist() == both.tolist()
    assert 2 * fewer == decisions


def test_the_reward_of_candidates_is_that_of_the_environment(tmp_path: Path) -> None:
    agent = make_agent()
    spec = EpisodeSpec(SCENARIO)
    with closing(CandidateRuns(spec, SearchConfig(population=4, scenarios=1, fitness="reward"), 4)) as runs:
        found, _ = runs.measure([agent.to_bytes()] * 4, [Scenario.from_dict(SCENARIO)], [5])
    agent.save(tmp_path / "agent")
    plain = copy.deepcopy(SCENARIO)
    for flow in plain["flows"]:
        flow |= {"algorithm": "policy", "policy": str(tmp_path / "agent")}
    scenario = Scenario.from_dict(plain)
    trace = simulate(scenario, seed=5)
    rewards = spec.reward.over_steps(scenario, (0, 1), trace.flows, trace.link)
    np.testing.assert_allclose(found, rewards.mean(), rtol=1e-9)


def test_an_evaluation_is_the_same_in_one_call_and_step_by_step() -> None:
    agent = make_agent(scenario=SCENARIO)
    flows = [SCENARIO["flows"][0], SCENARIO["flows"][1] | {"stop_s": {"uniform": [0.2, 0.6]}}]
    scenario = SCENARIO | {"rate_mbps": {"uniform": [6, 24]}, "duration_s": {"choice": [1, 2]}, "flows": flows}
    engines: tuple[Any, Any] = ("native", NativeEngine)  # the second one has no rollouts
    found = []
    for engine in engines:
        with closing(Episodes(EpisodeSpec(scenario, engine=engine), 2, is_healing=True)) as env:
            found.append(evaluate_agent(agent, env, 5))
            assert env.can_roll == (engine == "native")
    assert found[0] == found[1]


def test_agents_that_are_absent_do_not_count_in_an_evaluation() -> None:
    agent = make_agent(scenario=SCENARIO)
    flow = {"algorithm": "agent", "rtt_ms": 20}
    found = []
    for flows in ([flow], [flow, {**ABSENT}, {**ABSENT}]):
        spec = EpisodeSpec({"rate_mbps": 12, "duration_s": 2, "flows": flows}, engine="native")
        with closing(Episodes(spec, 1)) as env:
            found.append(evaluate_agent(agent, env, 1))
    assert found[1] == pytest.approx(found[0], rel=0.1)  # their RTT moves the link by some milliseconds


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"agent": {"population": 3}}, "agent.population must be"),
        ({"agent": {"net_arch": [0]}}, "agent.net_arch must be"),
        ({"engine": {"name": "fake"}}, "agent 'cma' needs the engine 'native', got 'fake'"),
        ({"agent": {"tuned": ["first"]}}, "unknown agent.tuned 'first'; known: last, skip, "),
        ({"agent": {"tuned": "last"}}, "agent.tuned must be a list of last, "),
        ({"agent": {"relative_to": "constants", "bank": 1}}, "agent.bank must be >= agent.scenarios=2, got 1"),
        (
            {"scenario": {"flows": [{"algorithm": "agent"}, {"size_bytes": {"choice": [None, 9]}}]}},
            "fair_power needs endless flows, .*: use agent.fitness=reward",
        ),
        (
            {"scenario": {"duration_s": 4, "flows": [{"algorithm": "agent", "stop_s": 1}]}},
            r"no flow sends after the warm-up: warmup=0\.4 .*last stop_s is 1:",
        ),
    ],
)
def test_a_bad_configuration_is_refused_before_anything_is_made(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        search(tmp_path / "run", **changes)
    assert not (tmp_path / "run").exists()


def test_a_search_does_not_load_torch(tmp_path: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from bbrgym.agents.train import train
train({configure()!r}, Path({str(tmp_path / "run")!r}))
assert not {{"torch", "stable_baselines3"}} & sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
