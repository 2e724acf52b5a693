"""The student of a teacher that is a search (agents/distil.py, agents/constants.py), with few scenarios and units."""

import copy
import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from training import Killed, KillingConsole, logged, quiet, run_of, same, weights

from bbrgym.agents import constants, fitness, lessons
from bbrgym.agents.checkpoint_names import saved_steps
from bbrgym.agents.config import DistilConfig, FitnessConfig
from bbrgym.agents.constants import Constants
from bbrgym.agents.distil import Distillation
from bbrgym.agents.draws import bank_rng, draw_bank
from bbrgym.agents.fitness import CandidateRuns, each_outcome
from bbrgym.agents.policy import load_agent
from bbrgym.agents.torch_network import policy_with_memory
from bbrgym.agents.tracking import read_metrics
from bbrgym.agents.train import TrainResult, resume, train
from bbrgym.baselines.policy_file import Network, StoredPolicy
from bbrgym.checks import read_record
from bbrgym.envs.distribution import ABSENT
from bbrgym.envs.episode import Episodes
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.envs.scenario import Flow, Scenario
from bbrgym.envs.sharing import FairShares
from bbrgym.files import user_cache

pytestmark = pytest.mark.usefixtures("no_figures")

LINK: dict[str, Any] = {
    "rate_mbps": {"log_uniform": [4, 24]},
    "buffer_bdp": 4,
    "duration_s": 3,
    "flows": [
        {"algorithm": "agent", "rtt_ms": 20, "jitter_ms": {"choice": [0.0, 10.0]}},
        {"algorithm": "agent", "rtt_ms": 30, "start_s": 1.0, "stop_s": {"choice": [1.2, None]}},
    ],
}
ACTION: dict[str, Any] = {"cwnd_gain": [0.25, 64.0], "pacing_gain": [0.8, 1.3], "cwnd_scale": "packets"}
CONFIG: dict[str, Any] = {
    "scenario": LINK,
    "action": ACTION,
    "engine": {"name": "native", "threads": None},
    "agent": {
        "algorithm": "distil",
        "scenarios": 6,
        "constants": 4,
        "units": 6,
        "rounds": 2,
        "improvements": 0,
        "epochs": 2,
    },
    "seed": 3,
    "train": {"total_steps": 10**9, "eval_every": 1, "eval_episodes": 2, "checkpoint_every": 1},
    "tracking": {"backend": "none"},
}
ROUND = 6 * 2 * 30
"""Decisions of a round."""


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def configure(steps: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """Return `CONFIG` with changes, of `agent` and `train` by key."""
    config = copy.deepcopy(CONFIG)
    config["agent"] |= changes.pop("agent", {})
    config["train"] |= steps or {}
    return config | changes


def learn(directory: Path, steps: dict[str, Any] | None = None, **changes: Any) -> TrainResult:
    return train(configure(steps, **changes), directory, quiet())


def constants_of(**options: Any) -> tuple[Constants, EpisodeSpec]:
    spec = EpisodeSpec.from_config(CONFIG)
    return Constants(spec, FitnessConfig(**{"constants": 3, **options})), spec


class TestConstants:
    def test_a_row_has_what_each_constant_reaches(self) -> None:
        grid, spec = constants_of()
        scenarios, seeds = draw_bank(spec, seed=3, count=3)
        table = grid.table(scenarios, seeds)
        assert grid.actions == pytest.approx(np.linspace(0.06, 0.82, 3))
        inputs = spec.observation.space.shape[0]
        for column, action in enumerate(grid.actions):
            bias = np.array([action, spec.action.action(2.0, 1.1)[1]], np.float32)
            policy = StoredPolicy(spec.to_config(), Network(((np.zeros((2, inputs), np.float32), bias),))).to_bytes()
            with closing(CandidateRuns(spec, FitnessConfig(), 3)) as runs:
                found = runs.outcomes([policy], scenarios, seeds)[:, 0]
            np.testing.assert_array_equal(table[:, :, column], found)
        np.testing.assert_array_equal(grid.best(scenarios, seeds), table[:, 0].max(axis=1))
        assert len(np.unique(table)) == 9

    def test_on_an_executor_it_is_the_same_table(self) -> None:
        grid, spec = constants_of()
        scenarios, seeds = draw_bank(spec, seed=3, count=4)
        there, _ = constants_of(executor={"name": "local", "workers": 2})
        table = there.table(scenarios, seeds)
        for path in user_cache(constants.FOLDER).glob("*/*.json"):
            path.unlink()
        np.testing.assert_array_equal(grid.table(scenarios, seeds), table)

    def test_what_is_known_is_kept_until_something_that_decides_it_changes(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        grid, spec = constants_of()
        scenarios, seeds = draw_bank(spec, seed=3, count=3)
        table = grid.table(scenarios, seeds)
        run = []

        def outcomes(spec: Any, config: Any, policies: Any, scenarios: Any, seeds: Any, windows: int) -> Any:
            run.extend(scenarios)
            yield from ((index, np.full((3, windows), 0.5)) for index in range(len(scenarios)))

        monkeypatch.setattr(constants, "each_outcome", outcomes)
        np.testing.assert_array_equal(grid.table(scenarios, seeds), table)
        assert run == []
        for other in ({"warmup": 0.5}, {"fitness": "held_power"}, {"pacing_gain": 1.0}, {"action_range": [0.1, 0.5]}):
            assert (constants_of(**other)[0].table(scenarios[:1], seeds[:1]) == 0.5).all()
        assert len(run) == 4
        assert (grid.table(scenarios[:1], [7]) == 0.5).all()
        damaged = sorted(user_cache(constants.FOLDER).glob("*/*.json"))
        for path in damaged:
            path.write_text("[0.1", encoding="utf-8")
        assert (grid.table(scenarios, seeds) == 0.5).all()
        repaired = [path for path in damaged if path.read_text(encoding="utf-8") != "[0.1"]
        assert [json.loads(path.read_text(encoding="utf-8")) for path in repaired] == [[0.5] * 3] * 3

    def test_a_table_that_was_stopped_keeps_what_it_has(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(fitness, "_AT_ONCE", 3)
        grid, spec = constants_of()
        scenarios, seeds = draw_bank(spec, seed=3, count=3)
        table = grid.table(scenarios, seeds, lambda count: count < 2)
        assert np.isnan(table[:, 0]).any(axis=1).tolist() == [False, False, True]
        counts: list[int] = []
        np.testing.assert_array_equal(
            grid.table(scenarios, seeds, lambda count: counts.append(count) is None)[:2], table[:2]
        )
        assert counts == [2, 3]


class TestWindows:
    @pytest.mark.parametrize("measure", ["fair_power", "reward"])
    def test_the_windows_of_a_run_make_the_whole(self, measure: str) -> None:
        """One window has what the run has; what happens late in a run is in its late windows alone."""
        spec = replace(EpisodeSpec.from_config(CONFIG), observation=constants._BLIND)
        flows = [{"algorithm": "agent", "rtt_ms": 20}] * 2
        scenario = Scenario.from_dict({"rate_mbps": 8, "duration_s": 3, "rate_schedule": [[2.0, 2.0]], "flows": flows})
        config = FitnessConfig(fitness=measure, warmup=0.0)
        policies = [
            StoredPolicy(spec.to_config(), constants._constant(action, 0.2)).to_bytes() for action in (0.2, 0.7)
        ]
        whole, same, thirds = (
            dict(each_outcome(spec, config, policies, [scenario], [1], windows))[0] for windows in (1, 1, 3)
        )
        np.testing.assert_array_equal(whole, same)
        assert thirds.shape == (2, 3)
        if measure == "reward":
            np.testing.assert_allclose(thirds.mean(axis=1), whole[:, 0])
        assert thirds[1, 2] < thirds[0, 2]  # much in the queue of a link that has become slow
        assert (thirds[:, 2] < thirds[:, 1]).all()

    @pytest.mark.parametrize("measure", ["fair_power", "held_power", "reward"])
    def test_agents_that_are_absent_do_not_count(self, measure: str) -> None:
        spec = replace(EpisodeSpec.from_config(CONFIG), observation=constants._BLIND)
        policy = StoredPolicy(spec.to_config(), constants._constant(0.5, 0.2)).to_bytes()
        polite = Flow("agent", rtt_ms=20.0, parameters={"preference": 0.0})
        of_runs = []
        for flows in ((polite,), (polite, Flow(**ABSENT), Flow(**ABSENT))):
            scenario = Scenario(rate_mbps=8.0, duration_s=3.0, flows=flows)
            config = FitnessConfig(fitness=measure, warmup=0.0)
            of_runs.append(dict(each_outcome(spec, config, [policy], [scenario], [1], 3))[0])
        np.testing.assert_allclose(*of_runs, rtol=0.01)  # their RTT moves the link by some milliseconds

    def test_a_flow_that_is_absent_counts_in_no_window(self) -> None:
        scenario = Scenario.from_dict({"duration_s": 9.0, "flows": [{}, {"start_s": 6.0}]})
        first, last = (FairShares.of(scenario, *part) for part in ((0.0, 1 / 3), (2 / 3, 1.0)))
        assert np.isnan(first.mbps).tolist() == [False, True]
        assert first.mbps[0] == pytest.approx(2 * last.mbps[0])
        assert first.capacity_mbit == pytest.approx(last.capacity_mbit)


class TestLessons:
    def test_the_network_acts_as_the_student(self) -> None:
        torch.manual_seed(1)
        student = policy_with_memory(17, 5, has_skip=True)
        student.begin_with((0.1, 0.25))
        assert student.skip is not None
        torch.nn.init.normal_(student.skip.weight, std=0.1)
        seen = np.random.default_rng(1).normal(0, 0.5, (1, 20, 17)).astype(np.float32)
        expected = student(torch.as_tensor(seen))[0].detach().numpy()
        agent = load_agent("scripted:backlog")  # of the default observation
        compiled = type(agent)(agent.spec, student.network()).compiled
        state = np.zeros((1, compiled.state_size), np.float32)
        found = np.concatenate([compiled.forward(seen[:, step], state) for step in range(20)])
        np.testing.assert_allclose(found, expected.clip(-1, 1), atol=1e-5)

    def test_between_two_actions_the_table_is_linear(self) -> None:
        values, grid = torch.tensor([0.0, 1.0, 0.5]), torch.tensor([0.0, 0.2, 0.6])
        actions = torch.tensor([-1.0, 0.0, 0.1, 0.2, 0.3, 0.6, 1.0])
        found = lessons.interpolated(values.expand(7, 3), grid, actions)
        np.testing.assert_allclose(found, [0.0, 0.0, 0.5, 1.0, 0.875, 0.5, 0.5], atol=1e-6)

    def test_a_sequence_begins_with_its_flow(self) -> None:
        observations = np.arange(5 * 3, dtype=np.float32).reshape(5, 3, 1)
        took_part = np.array([[1, 0, 0], [1, 0, 1], [1, 1, 1], [0, 1, 0]], np.bool_)
        actions = observations[:4, :, 0] / 10
        delivered = np.full((4, 3), 2.0)
        scenarios = np.array([7, 8, 9])
        lengths = np.array([4, 4, 4])
        seen = lessons.sequences(observations, actions, delivered, took_part, scenarios, lengths)
        assert (seen.scenarios.tolist(), seen.first.tolist()) == ([7, 8, 9], [0, 2, 1])
        assert seen.took_part.tolist() == [
            [True, True, True, False],
            [True, True, False, False],
            [True, True, False, False],
        ]
        assert seen.observations[:, :2, 0].tolist() == [[0, 3], [7, 10], [5, 8]]
        np.testing.assert_allclose(seen.actions[:, :2], seen.observations[:, :2, 0] / 10)
        assert seen.rates[:, 0].tolist() == [1.5, 1.0, 1.0]
        few = lessons.sequences(observations, actions, delivered, took_part & (np.arange(3) == 1), scenarios, lengths)
        assert few.scenarios.tolist() == [8]

    def test_how_long_a_flow_takes_part_counts_in_its_own_episode(self) -> None:
        """However long the episodes beside it are."""
        took_part = np.zeros((100, 3), np.bool_)
        took_part[10:30, 0] = took_part[10:30, 1] = took_part[:, 2] = True
        seen = lessons.sequences(
            observations=np.zeros((101, 3, 1), np.float32),
            actions=np.zeros((100, 3), np.float32),
            delivered=np.ones((100, 3)),
            took_part=took_part,
            scenarios=np.arange(3),
            lengths=np.array([30, 100, 100]),
        )
        assert seen.scenarios.tolist() == [0, 2]

    def test_the_rate_of_a_flow_is_that_of_the_steps_around(self) -> None:
        times = np.arange(100.0)
        found = lessons._averaged(np.stack([times, np.ones(100)], axis=1))
        half = lessons.RATE_STEPS // 2
        np.testing.assert_allclose(found[half:-half, 0], times[half:-half])
        np.testing.assert_allclose(found[[0, -1], 0], [half / 2, 99 - half / 2])
        np.testing.assert_allclose(found[:, 1], 1.0)

    def test_the_regret_of_a_link_is_that_of_its_flows_together(self) -> None:
        """Two flows that overlap in one step: the mean of their actions counts there, and how evenly they share."""
        seen = lessons.Seen(
            observations=np.zeros((2, 3, 1), np.float32),
            took_part=np.array([[1, 1, 0], [1, 1, 0]], np.bool_),
            actions=np.zeros((2, 3), np.float32),
            rates=np.ones((2, 3), np.float32),
            scenarios=np.array([0, 0]),
            first=np.array([0, 1]),
        )
        grid = torch.tensor([0.0, 1.0])
        cwnd = lessons.Table(grid, torch.tensor([[[1.0, 0.0]]]))  # less is better
        queued = lessons.Table(grid, torch.log(torch.tensor([[[1.0, 3.0]]])))
        lesson = lessons.Lesson(seen, torch.tensor([3]), cwnd, queued=queued)

        def regret(lesson: lessons.Lesson, *actions: float) -> float:
            chosen = torch.tensor(actions)[:, None, None].expand(2, 3, 2)
            _, found = lesson.loss(lambda _: chosen, np.arange(2), no_inputs)  # type: ignore[arg-type]
            return found

        no_inputs = np.zeros(1, np.float32), np.ones(1, np.float32)
        assert regret(lesson, 0.0, 0.0) == pytest.approx(0.0, abs=1e-5)
        jain = (1 + 3) ** 2 / (2 * (1 + 9))
        # Steps: the first alone, both, the second alone.
        assert regret(lesson, 0.0, 1.0) == pytest.approx(((1 - 1) + (1 - 0.5 * jain) + (1 - 0)) / 3, abs=1e-5)
        # Beside a teacher that shares just so, nothing is lost by it.
        base = np.zeros((2, 3, 2), np.float32)
        base[1] = 1.0
        moves = lessons.Table(torch.tensor([-1.0, 0.0, 1.0]), torch.tensor([[[0.5, 1.0, 0.5]]]))
        beside = replace(lesson, cwnd=moves, base=base)
        assert regret(beside, 0.0, 1.0) == pytest.approx(0.0, abs=1e-5)
        assert regret(beside, 0.5, 0.5) < regret(replace(beside, queued=None), 0.5, 0.5)
        # The second had three times as much although both did the same, so it should do less.
        uneven = replace(
            lesson,
            cwnd=lessons.Table(grid, torch.ones(1, 1, 2)),
            seen=seen._replace(rates=np.array([[1, 1, 1], [3, 3, 3]], np.float32), actions=np.ones((2, 3), np.float32)),
        )
        assert regret(uneven, 1.0, 0.0) == pytest.approx(0.0, abs=1e-5)
        assert regret(uneven, 0.5, 0.5) == pytest.approx((1 - jain) / 3, abs=1e-5)


class TestTraining:
    def test_it_learns_what_the_teachers_know(self, tmp_path: Path) -> None:
        agent = {"scenarios": 24, "constants": 8, "windows": 1, "rounds": 1, "improvements": 1, "epochs": 20}
        result = learn(tmp_path, agent={**agent, "batch_size": 8, "learning_rate": 0.01})
        assert (result.steps, result.is_complete) == (2 * 24 * 2 * 30, True)
        found: dict[str, list[float]] = {"distil/regret": [], "eval/fair_power": []}
        for line in read_metrics(tmp_path):
            for name in found.keys() & line["metrics"].keys():
                found[name].append(line["metrics"][name])
        regrets, powers = found.values()
        assert len(regrets) == 40
        for of_round in (regrets[:20], regrets[20:]):
            assert np.mean(of_round[-2:]) < 0.75 * of_round[0]
        assert powers[0] < powers[1] < powers[2]
        assert run_of(tmp_path)["status"] == "FINISHED"
        agent = load_agent(tmp_path)
        assert agent.training["algorithm"] == "distil"
        assert isinstance(agent.network, Network)
        assert agent.network.lstm[0][1].shape == (24, 6)
        assert agent.network.skip is not None

    def test_a_killed_and_resumed_training_logs_the_same_and_ends_with_the_same_weights(self, tmp_path: Path) -> None:
        through, stopped, other = (tmp_path / name for name in ("through", "stopped", "other"))
        agent = {"rounds": 1, "improvements": 2}
        learn(through, agent=agent)
        with pytest.raises(Killed):
            train(configure(agent=agent), stopped, KillingConsole(3))
        assert saved_steps(stopped) == [ROUND]
        assert resume(stopped, console=quiet()).steps == 3 * ROUND
        times = ("time/epoch", "time/teacher")
        of_both = [
            {key: value for key, value in logged(folder).items() if key[1] not in times}
            for folder in (stopped, through)
        ]
        assert of_both[0] == of_both[1]
        assert same(weights(stopped), weights(through))
        learn(other, agent=agent, seed=4)
        assert not same(weights(other), weights(through))
        with pytest.raises(ValueError, match="is complete: there is nothing left to learn"):
            resume(through, console=quiet())

    @pytest.mark.parametrize("agent", [{}, {"rounds": 1, "improvements": 1}])
    def test_one_that_was_stopped_within_a_round_goes_on_there(self, tmp_path: Path, agent: dict[str, Any]) -> None:
        learn(tmp_path / "through", agent=agent)
        part = learn(tmp_path / "part", {"total_steps": ROUND + 1}, agent=agent)
        assert (part.steps, part.is_complete) == (ROUND + ROUND // 2, True)
        result = resume(tmp_path / "part", {"train.total_steps": 10**9}, quiet())
        assert (result.steps, result.is_complete) == (2 * ROUND, True)
        assert same(weights(tmp_path / "part"), weights(tmp_path / "through"))

    def test_the_agent_is_the_mean_of_the_students_after_the_last_improvements(self, tmp_path: Path) -> None:
        def weights_after(improvements: int) -> dict[str, Any]:
            folder = tmp_path / str(improvements)
            learn(folder, agent={"rounds": 1, "improvements": improvements})
            return load_agent(folder / "final").network.to_arrays()

        one, two, three, _ = map(weights_after, (1, 2, 3, 4))
        with np.load(sorted((tmp_path / "4" / "checkpoints").iterdir())[-1] / "rounds.npz") as rounds:
            # The student after an improvement drives the next one.
            students = [{name: rounds[f"{number}/{name}"] for name in one} for number in (2, 3, 4)]
        assert same(one, students[0])
        assert same(two, students[1])
        for name, mean in three.items():
            np.testing.assert_allclose(mean, (students[1][name] + students[2][name]) / 2, rtol=1e-6, atol=1e-7)
        assert not same(three, students[2])

    @pytest.mark.parametrize("duration_s", [3, {"choice": [2, 3, 4]}])
    def test_its_steps_are_the_decisions_in_the_scenarios_of_all_rounds(self, duration_s: Any) -> None:
        config = configure(scenario={**LINK, "duration_s": duration_s}, agent={"improvements": 2})
        spec = EpisodeSpec.from_config(config)
        learner = Distillation(read_record(DistilConfig, "agent", config["agent"]), spec, seed=3)
        first, second, third = (
            sum(2 * 10 * scenario.duration_s for scenario in draw_bank(spec, 3, 6, place)[0]) for place in (0, 6, 12)
        )
        assert learner.most_steps == 2 * first + second + third

    def test_a_limit_of_time_also_ends_the_teaching(self, tmp_path: Path) -> None:
        result = learn(tmp_path, {"max_minutes": 1e-9})
        assert (result.steps, result.is_complete) == (0, False)
        assert (tmp_path / "final").is_dir()

    def test_evaluations_can_look_at_bad_days(self, tmp_path: Path) -> None:
        agent = {"relative_to": "constants", "tail_weight": 0.5, "rounds": 1, "epochs": 1}
        learn(tmp_path, agent=agent)
        found: dict[str, float] = {}
        for line in read_metrics(tmp_path):
            found |= line["metrics"]
        mean, tail = found["eval/relative_fair_power_mean"], found["eval/relative_fair_power_tail"]
        assert found["eval/relative_fair_power"] == pytest.approx(mean + 0.5 * tail)
        assert tail < mean
        assert found["eval/fair_power"] < mean
        assert found["best/score"] == found["eval/relative_fair_power"]

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"agent": {"units": 0}}, "agent.units must be"),
            ({"agent": {"windows": 0}}, "agent.windows must be"),
            ({"agent": {"improvements": -1}}, "agent.improvements must be"),
            ({"agent": {"action_range": [0.5, 0.2]}}, "agent.action_range must be two rising numbers"),
            ({"agent": {"pacing_gain": 2.0}}, r"agent.pacing_gain must be .*1\.3"),
            ({"agent": {"fitness": "reward", "relative_to": "constants"}}, "agent.relative_to needs a fitness"),
            ({"agent": {"executor": "cloud"}}, "unknown executor 'cloud'"),
            ({"engine": {"name": "fake"}}, "agent 'distil' needs the engine 'native', got 'fake'"),
        ],
    )
    def test_a_bad_configuration_is_refused_before_anything_is_made(
        self, tmp_path: Path, changes: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(ValueError, match=message):
            learn(tmp_path / "run", **changes)
        assert not (tmp_path / "run").exists()


def test_the_bank_of_a_seed_is_that_of_its_episodes() -> None:
    """What constants reach there is known of the scenarios that the student sees."""
    spec = EpisodeSpec.from_config(CONFIG)
    scenarios, seeds = draw_bank(spec, seed=3, count=2)
    assert draw_bank(spec, seed=3, count=3)[0][:2] == scenarios
    assert draw_bank(spec, seed=4, count=2)[0] != scenarios
    with closing(Episodes(spec, 2)) as env:
        env.begin_resets(np.arange(2), [bank_rng(3, index) for index in range(2)])
        env.finish_resets()
        assert list(env.scenarios) == scenarios
        assert [int(seed) for seed in env._seeds] == seeds
