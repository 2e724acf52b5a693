"""The forms of the environment: the core, Gymnasium, vector, Stable-Baselines3, driver."""

import contextlib
import json
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from fake_engine import FakeEngine
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import TimeAwareObservation
from marks import needs_ns3
from omegaconf import OmegaConf
from test_ns3gym_client import SIMULATION

import bbrgym
from bbrgym.envs import NS3GYM_ID, environment_ids
from bbrgym.envs.action import Action
from bbrgym.envs.distribution import Distribution
from bbrgym.envs.engine import EngineError
from bbrgym.envs.episode import policy_of
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.envs.gym_env import DEFAULT_SCENARIO, BottleneckEnv
from bbrgym.envs.info import INFO_KEYS
from bbrgym.envs.named import named_scenario, scenario_names
from bbrgym.envs.observation import FEATURES, Observation
from bbrgym.envs.pettingzoo_env import BottleneckParallelEnv
from bbrgym.envs.reward import TERMS, Reward
from bbrgym.envs.sb3_env import SharedPolicyVecEnv
from bbrgym.envs.scenario import Flow, Scenario
from bbrgym.envs.trace import simulate
from bbrgym.envs.vector_env import BottleneckVectorEnv

ID = "bbrgym/Bottleneck-v1"
IDS = [id for id in gymnasium.registry if id.startswith("bbrgym/")]
SHORT = Scenario(duration_s=1.0, flows=(Flow("agent", rtt_ms=20.0), Flow("bbr", rtt_ms=50.0)))
PAIR = Scenario(duration_s=2.0, flows=(Flow("agent", rtt_ms=10.0), Flow("bbr"), Flow("agent", rtt_ms=50.0)))
BRIEF = Scenario(duration_s=0.2, flows=SHORT.flows)
DRAWN = Distribution.from_dict(
    {
        "rate_mbps": {"log_uniform": [6, 24]},
        "duration_s": {"uniform": [0.5, 1.5]},
        "loss": 0.01,
        "flows": [{"algorithm": "agent", "rtt_ms": {"uniform": [10, 60]}}],
    }
)


EVERY_OPTION: dict[str, Any] = {
    "scenario": DRAWN.to_dict(),
    "observation": Observation(tuple(FEATURES), history=3),
    "action": Action((1.1, 2.0), (0.9, 1.1)),
    "reward": Reward(dict.fromkeys(TERMS, 0.1)),
    "step_ms": None,
    "step_rtts": 2.0,
}
DEFAULTS: dict[str, Any] = {"scenario": SHORT, "engine": FakeEngine}
ZERO = np.zeros(2, dtype=np.float32)


def is_of_ns3(id: str) -> bool:
    return id != NS3GYM_ID and gymnasium.spec(id).kwargs.get("engine", EpisodeSpec.engine) == "ns3"


def make(**arguments: Any) -> gymnasium.Env[Any, Any]:
    return gymnasium.make(ID, **DEFAULTS | arguments)


@pytest.mark.parametrize(
    ("make_form", "actions"),
    [(BottleneckEnv.from_spec, ZERO), (BottleneckParallelEnv, {"flow_0": ZERO})],
    ids=["single", "parallel"],
)
def test_an_engines_failure_ends_the_episode_and_not_the_environment(
    make_form: Callable[[EpisodeSpec], Any], actions: Any
) -> None:
    """tests/contract/test_failures.py has what happens in environments of several engines."""
    env = make_form(EpisodeSpec(SHORT, engine=lambda: FakeEngine(fail_at_step=2)))
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(actions)
    for _ in range(2):
        env.reset()
        env.step(actions)
        with pytest.raises(EngineError, match="step 2"):
            env.step(actions)
        assert not (isinstance(env, BottleneckParallelEnv) and env.agents)
        with pytest.raises(gymnasium.error.ResetNeeded):
            env.step(actions)
    env.close()
    env.close()


@pytest.mark.parametrize(
    ("make_form", "actions"),
    [
        (BottleneckEnv.from_spec, ZERO),
        (BottleneckParallelEnv, {"flow_0": ZERO}),
        (
            lambda spec: BottleneckVectorEnv(2, BRIEF, engine=FakeEngine),
            np.zeros((2, 2), np.float32),
        ),
        (lambda spec: SharedPolicyVecEnv(spec, n_engines=2), np.zeros((2, 2), np.float32)),
    ],
    ids=["single", "parallel", "vector", "SB3"],
)
def test_a_draw_that_fails_ends_the_episodes_and_not_the_environment(
    make_form: Callable[[EpisodeSpec], Any], actions: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = make_form(EpisodeSpec(BRIEF, engine=FakeEngine))

    def fail(self: Distribution, rng: np.random.Generator) -> Scenario:
        raise ValueError("nothing to draw")

    env.reset()
    env.step(actions)
    with monkeypatch.context() as patch:
        patch.setattr(Distribution, "sample", fail)
        with pytest.raises(ValueError, match="nothing to draw"):
            env.reset()
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(actions)
    pickle.dumps(env._episodes)  # which a running one refuses
    env.reset()
    env.step(actions)
    env.close()


class TestBottleneckEnv:
    @pytest.mark.filterwarnings("error")
    @pytest.mark.parametrize(
        ("arguments", "render_mode"),
        [({}, None), ({"scenario": DRAWN}, "ansi"), (EVERY_OPTION, "rgb_array"), ({}, "human")],
        ids=["default", "drawn", "every", "human"],
    )
    def test_gymnasiums_checker_has_nothing_to_say(self, arguments: dict[str, Any], render_mode: str | None) -> None:
        check_env(make(**arguments, render_mode=render_mode).unwrapped)

    @pytest.mark.filterwarnings("error")
    def test_stable_baselines3s_checker_has_nothing_to_say(self) -> None:
        from stable_baselines3.common.env_checker import check_env as check_for_sb3

        env = make(observation=Observation(tuple(FEATURES), history=2), render_mode="rgb_array").unwrapped
        check_for_sb3(env, warn=True, skip_render_check=False)

    @pytest.mark.parametrize(
        ("flow", "is_complete", "duration_s"),
        [
            (Flow("agent"), False, 2.0),
            (Flow("agent", stop_s=0.5), False, 0.5),
            (Flow("agent", size_bytes=300_000), True, 0.7),
        ],
        ids=["time limit", "stop", "completion"],
    )
    def test_only_completion_of_the_agents_flow_terminates(
        self, flow: Flow, is_complete: bool, duration_s: float
    ) -> None:
        env = make(scenario=Scenario(duration_s=2.0, flows=(flow, Flow("bbr")))).unwrapped
        *_, (terminated, truncated, info) = play(env)
        assert (terminated, truncated) == (is_complete, not is_complete)
        assert info["time_s"] == pytest.approx(duration_s)
        assert not is_complete or duration_s - 0.1 < info["completion_time_ms"] / 1000 <= duration_s
        with pytest.raises(gymnasium.error.ResetNeeded):
            env.step(ZERO)

    def test_info_has_the_raw_rows_of_a_step_in_rtts(self) -> None:
        env = make(step_ms=None, step_rtts=2.5)
        _, info = env.reset(seed=1)
        assert info["time_s"] == 0.0
        assert info["rtt_mean_ms"] == 0.0  # it has no value yet
        info = env.step(ZERO)[4]
        assert info["time_s"] == pytest.approx(0.05)
        assert info["rtt_mean_ms"] >= 20.0
        assert info["link_rate_mbps"] == pytest.approx(12.0)
        assert tuple(info) == INFO_KEYS
        assert (info["scenario_hash"], info["flow_index"]) == (SHORT.digest, 0)
        assert env.get_wrapper_attr("scenario") == SHORT

    def test_options(self) -> None:
        env = make()
        other = Scenario(duration_s=3.0, flows=(Flow("agent"),))
        for options, scenario in (({"scenario": other}, other), ({"scenario": other.to_dict()}, other), (None, SHORT)):
            _, info = env.reset(seed=1, options=options)
            assert info["scenario_hash"] == scenario.digest
            assert env.get_wrapper_attr("scenario") == scenario
        with pytest.raises(ValueError, match=r"unknown reset option 'scenarios' .*; known: scenario"):
            env.reset(options={"scenarios": other})
        with pytest.raises(ValueError, match="must have 1 agent flows, got 0"):
            env.reset(options={"scenario": SHORT.with_algorithm("bbr")})

    def test_a_bad_action_changes_nothing(self) -> None:
        env = make()
        env.reset(seed=1)
        bad: list[Any] = [[np.nan, 0.0], np.array([np.nan, 0.0]), [0.0], 0.5, "x", ["a", "b"], {}, None]
        for action in bad:
            with pytest.raises(ValueError, match=rf"^action must be two numbers .*got {re.escape(repr(action))}"):
                env.unwrapped.step(action)
        assert env.step(ZERO)[4]["time_s"] == pytest.approx(0.1)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"scenario": PAIR, "other_agents": None}, r"got 2 \(agent, bbr, agent\).*SharedPolicyVecEnv"),
            ({"scenario": SHORT.with_algorithm("bbr")}, "algorithm 'agent', got: bbr, bbr"),
            ({"scenario": {"flows": [{"algorithm": "agent", "parameters": 5}]}}, "parameters .*'agent' .*got 5"),
            ({"observation": {"features": "loss_rate"}}, "observation.features .*got 'loss_rate'"),
            ({"action": [1, 2]}, r"action must be a mapping .*, got \[1, 2\]"),
            ({"reward": {"terms": 3}}, "reward.terms must be a mapping .*, got 3"),
            ({"engine": 5}, "engine must be a name or .*, got 5"),
            ({"step_rtts": 2.0}, "give one"),
        ],
    )
    def test_bad_arguments_are_refused_by_name(self, arguments: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            BottleneckEnv(**DEFAULTS | arguments)

    def test_the_default_scenario_is_that_of_the_configuration(self) -> None:
        assert Distribution.from_dict(named_scenario("default")).example == DEFAULT_SCENARIO

    def test_close_closes_the_engine_and_is_idempotent(self) -> None:
        engines: list[FakeEngine] = []

        def make_engine() -> FakeEngine:
            engines.append(FakeEngine())
            return engines[-1]

        env = BottleneckEnv(SHORT, engine=make_engine)
        env.close()
        env.reset(seed=1)
        env.close()
        env.close()
        assert [engine.is_closed for engine in engines] == [True]
        env.reset(seed=1)
        assert len(engines) == 2


class TestVector:
    @pytest.mark.filterwarnings("error")
    @pytest.mark.parametrize(("render_mode", "autoreset_mode"), [("ansi", "NextStep"), ("rgb_array", "SameStep")])
    def test_renders_what_the_singles_do(self, render_mode: str, autoreset_mode: str) -> None:
        arguments = {"scenario": BRIEF, "engine": FakeEngine, "render_mode": render_mode}
        vector = BottleneckVectorEnv(2, autoreset_mode=autoreset_mode, **arguments)
        singles = [gymnasium.make(ID, **arguments) for _ in range(2)]
        assert vector.render() is None
        vector.reset(seed=1)
        for seed, single in enumerate(singles, start=1):
            single.reset(seed=seed)
        for step in range(4):  # an episode has two
            vector.step(np.zeros((2, 2), np.float32))
            for single in singles:
                if step == 2 and autoreset_mode == "NextStep":
                    single.reset()
                else:
                    single.step(ZERO)
                if step % 2 and autoreset_mode == "SameStep":
                    single.reset()
        frames = vector.render()
        assert frames is not None
        for frame, single in zip(frames, singles, strict=True):
            np.testing.assert_array_equal(frame, single.render())

    def test_pictures_have_the_colours_of_pages(self) -> None:
        env = gymnasium.make(ID, scenario=BRIEF, engine=FakeEngine, render_mode="rgb_array")
        env.reset(seed=1)
        env.step(ZERO)
        env.step(ZERO)
        frame = env.render()
        assert isinstance(frame, np.ndarray)
        assert frame.shape == (400, 600, 3)
        seen = {tuple(colour) for colour in np.unique(frame.reshape(-1, 3), axis=0).tolist()}
        assert {(0x00, 0x72, 0xB2), (0xD0, 0xD0, 0xD0)} <= seen  # a flow, and the queue

    @pytest.mark.parametrize("seed", [1, 2])
    def test_the_actions_of_environments_that_are_reset_may_be_nan_and_others_may_not(self, seed: int) -> None:
        given, expected = (BottleneckVectorEnv(3, DRAWN, engine=FakeEngine) for _ in range(2))
        rng = np.random.default_rng(seed)
        for env in (given, expected):
            env.reset(seed=seed)
        is_over, resets = np.zeros(3, np.bool_), 0
        for _ in range(40):
            actions = rng.uniform(-1, 1, (3, 2)).astype(np.float32)
            ignored = np.where(is_over[:, np.newaxis], np.float32(np.nan), actions)
            if not is_over.all():
                bad = int(rng.choice(np.flatnonzero(~is_over)))
                wrong = ignored.copy()
                wrong[bad, rng.integers(2)] = np.nan
                message = (
                    rf"actions must be numbers .*, got {re.escape(str(wrong[bad].tolist()))} for environment {bad}$"
                )
                with pytest.raises(ValueError, match=message):
                    given.step(wrong)  # which changes nothing
            steps = given.step(ignored), expected.step(actions)
            assert data_equivalence(*steps, exact=True)
            resets += int(is_over.sum())
            is_over = steps[0][2] | steps[0][3]
        assert resets > 3
        expected.reset()
        with pytest.raises(ValueError, match=r"got \[nan, nan\] for environment 0, and NaN for 2 more$"):
            expected.step(np.full((3, 2), np.nan, np.float32))

    def test_all_engines_work_at_once(self) -> None:
        calls: list[str] = []

        class Watched(FakeEngine):
            def begin_step(self, duration_ms: float) -> None:
                calls.append("begin")
                super().begin_step(duration_ms)

            def finish_step(self) -> Any:
                calls.append("finish")
                return super().finish_step()

        vector = BottleneckVectorEnv(3, SHORT, engine=Watched)
        vector.reset(seed=1)
        vector.step(np.zeros((3, 2), np.float32))
        assert calls == ["begin"] * 3 + ["finish"] * 3

    @pytest.mark.parametrize(
        ("use", "message"),
        [
            (lambda: BottleneckVectorEnv(0, SHORT, engine=FakeEngine), "num_envs .*got 0"),
            (lambda: BottleneckVectorEnv(2, SHORT, autoreset_mode="Never"), "'Never'"),
            (lambda: BottleneckVectorEnv(2, SHORT, render_mode="human"), "'human'"),
            (lambda: BottleneckVectorEnv(2, SHORT, engine=FakeEngine).reset(seed=[1]), "seed must have 2 seeds"),
            (lambda: BottleneckVectorEnv(2, SHORT, engine=FakeEngine).step(np.zeros((1, 2))), "numbers of shape"),
            (lambda: BottleneckVectorEnv(2, SHORT, engine=FakeEngine).step(np.full((1, 2), np.nan)), "of shape"),
        ],
    )
    def test_bad_arguments(self, use: Callable[[], Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            use()


class TestStableBaselines3:
    @pytest.mark.parametrize("scenario", [SHORT, DRAWN], ids=["scenario", "distribution"])
    def test_with_one_agent_it_equals_the_singles(self, scenario: Any) -> None:
        from stable_baselines3.common.vec_env import DummyVecEnv

        spec = EpisodeSpec(scenario, engine=FakeEngine)
        ours = SharedPolicyVecEnv(spec, 2, has_infos=True)
        theirs = DummyVecEnv([lambda: BottleneckEnv.from_spec(spec)] * 2)
        rng = np.random.default_rng(1)
        ours.seed(3)
        theirs.seed(3)
        np.testing.assert_array_equal(ours.reset(), theirs.reset())
        assert data_equivalence(ours.reset_infos, theirs.reset_infos, exact=True)
        ends = 0
        for _ in range(40):
            actions = rng.uniform(-1, 1, (2, 2)).astype(np.float32)
            mine, yours = ours.step(actions), theirs.step(actions)
            assert all(info.pop("took_part") for info in mine[3])
            assert [info.pop("has_ended") for info in mine[3]] == mine[2].tolist()
            for a, b in zip(mine, yours, strict=True):
                assert_same(a, b)
            ends += int(mine[2].sum())
        assert ends > 3

    def test_what_stable_baselines3_asks(self) -> None:
        vec = SharedPolicyVecEnv(EpisodeSpec(PAIR, engine=FakeEngine))
        assert vec.get_attr("agents") == [2, 2]
        assert vec.env_method("interval_ms", PAIR, indices=0) == [100.0]
        assert vec.env_is_wrapped(gymnasium.Wrapper) == [False, False]
        assert not vec.has_attr("nothing")
        with pytest.raises(AttributeError, match="another EpisodeSpec"):
            vec.set_attr("agents", 3)
        with pytest.raises(ValueError, match="n_engines must be an integer >= 1, got 0"):
            SharedPolicyVecEnv(EpisodeSpec(PAIR, engine=FakeEngine), 0)
        with pytest.raises(ValueError, match="must be numbers of shape"):
            vec.step(np.full((2, 2), np.nan))
        with pytest.raises(ValueError, match=r"spec must be an EpisodeSpec, .*got 'duel'"):
            SharedPolicyVecEnv("duel", 2)  # type: ignore[arg-type]

    @pytest.mark.parametrize("ask", [lambda vec: vec.set_options({"speed": 1}), lambda vec: vec.seed(-1)])
    def test_options_and_seeds_are_for_one_reset_also_if_it_fails(self, ask: Callable[[Any], object]) -> None:
        vec = SharedPolicyVecEnv(EpisodeSpec(PAIR, engine=FakeEngine))
        ask(vec)
        with pytest.raises((ValueError, gymnasium.error.Error)):
            vec.reset()
        assert len(vec.reset()) == 2


class TestSpec:
    def test_round_trip_through_the_configuration(self) -> None:
        spec = EpisodeSpec(
            DRAWN,
            observation=Observation(("loss_rate",), history=2),
            action=Action((1.5, 2), (0.5, 3)),
            reward=Reward({"delay": 2}),
            step_ms=None,
            step_rtts=1.5,
            engine_options={"timeout_s": 3.0},
        )
        again = EpisodeSpec.from_config(json.loads(json.dumps(spec.to_config())))
        assert again == spec
        assert again != EpisodeSpec(DRAWN)
        assert pickle.loads(pickle.dumps(spec)) == spec
        with pytest.raises(ValueError, match="engine must be a name"):
            EpisodeSpec(DRAWN, engine=FakeEngine).to_config()

    def test_the_defaults_of_the_configuration_are_those_of_the_code(self) -> None:
        config = {
            "scenario": named_scenario("default"),
            **{group: conf(f"{group}/default") for group in ("observation", "action", "reward")},
            "env": conf("env/bottleneck"),
            "engine": conf("engine/native"),
            "agent": "of others",
        }
        options = {name: value for name, value in conf("engine/native").items() if name != "name"}
        assert EpisodeSpec.from_config(config) == EpisodeSpec(DEFAULT_SCENARIO, engine_options=options)

    @pytest.mark.parametrize(
        ("config", "message"),
        [
            ({}, "no 'scenario'"),
            ({"scenario": {}, "env": {"step": 1}}, "env: unknown key 'step' .*; known: step_ms, step_rtts"),
            ({"scenario": {}, "action": [1]}, "action must be a mapping"),
        ],
    )
    def test_bad_configurations(self, config: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            EpisodeSpec.from_config(config)


class TestIds:
    @pytest.mark.filterwarnings("error")
    @pytest.mark.parametrize("id", [pytest.param(id, marks=needs_ns3 if is_of_ns3(id) else ()) for id in IDS])
    def test_every_id_runs_plain_and_vectorised_with_many_seeds(self, id: str, tmp_path: Path) -> None:
        (program := tmp_path / "simulation.py").write_text(SIMULATION)
        arguments = {"command": [sys.executable, str(program)]} if id == NS3GYM_ID else {}
        seeds = 40 if gymnasium.spec(id).kwargs.get("engine") == "native" else 2  # the others start processes
        vector = gymnasium.make_vec(id, num_envs=2, **arguments)
        env = gymnasium.make(id, **arguments)
        again = gymnasium.make(EnvSpec.from_json(env.spec.to_json()))  # type: ignore[union-attr]
        assert again.spec == env.spec
        for seed in range(0, seeds, 2):
            together = vector.reset(seed=seed)[0]
            for index, single in enumerate((env, again)):
                observation = single.reset(seed=seed + index)[0]
                assert data_equivalence(observation, together[index], exact=True)
                assert np.isfinite(single.step(single.action_space.sample())[1])
            assert np.isfinite(vector.step(vector.action_space.sample())[1]).all()
        vector_again = gymnasium.make_vec(EnvSpec.from_json(vector.spec.to_json()))  # type: ignore[union-attr]
        assert (vector_again.num_envs, vector_again.spec) == (2, vector.spec)
        for made in (env, vector, again, vector_again):
            made.close()

    @pytest.mark.filterwarnings("error")
    @pytest.mark.parametrize("name", scenario_names())
    def test_every_named_scenario_runs_in_every_form(self, name: str) -> None:
        arguments: dict[str, Any] = {"scenario": name, "engine": "native"}
        options = {"scenario": name}
        for env in (gymnasium.make(ID, **arguments), gymnasium.make_vec(ID, num_envs=2, **arguments)):
            env.reset(seed=1, options=options)
            assert np.isfinite(env.step(env.action_space.sample())[1]).all()
        with contextlib.closing(SharedPolicyVecEnv(EpisodeSpec(**arguments), 2)) as shared:
            shared.set_options(options)
            shared.reset()
            assert np.isfinite(shared.step(np.zeros((shared.num_envs, 2), np.float32))[1]).all()
        with contextlib.closing(bbrgym.parallel_env(**arguments)) as parallel:
            parallel.reset(seed=1, options=options)
            assert np.isfinite([*parallel.step(dict.fromkeys(parallel.agents, ZERO))[1].values()]).all()

    @pytest.mark.filterwarnings("error")
    @pytest.mark.parametrize(
        ("arguments", "steps"),
        [
            ({}, 10),
            ({"step_ms": None, "step_rtts": 2.5}, 20),
            ({"scenario": {"choice": [SHORT.to_dict(), BRIEF.to_dict() | {"duration_s": 1}]}}, 10),
            ({"scenario": {**DRAWN.to_dict(), "duration_s": 0.75}}, 8),
            ({"scenario": {**DRAWN.to_dict(), "duration_s": 0.75}, "step_ms": None, "step_rtts": 2.5}, None),
            ({"scenario": DRAWN}, None),
        ],
    )
    def test_the_specification_has_the_steps_of_an_episode(self, arguments: dict[str, Any], steps: int | None) -> None:
        arguments = {"scenario": SHORT, "engine": "native", **arguments}
        env = gymnasium.make(ID, **arguments)
        vector = gymnasium.make_vec(ID, num_envs=2, **arguments)
        assert (env.spec.max_episode_steps, vector.spec.max_episode_steps) == (steps, steps)  # type: ignore[union-attr]
        again = gymnasium.make(EnvSpec.from_json(env.spec.to_json()))  # type: ignore[union-attr]
        for spec in (env.spec, EnvSpec.from_json(vector.spec.to_json())):  # type: ignore[union-attr]
            assert gymnasium.make_vec(spec, num_envs=2).spec == vector.spec
        assert again.spec == env.spec
        assert gymnasium.spec(ID).max_episode_steps is None  # a limit of the id would hold for all its scenarios
        if steps is not None:
            timed = TimeAwareObservation(again, normalize_time=True)
            assert [len(list(play(made))) for made in (env, again, timed)] == [steps] * 3
            assert timed.observation(env.observation_space.sample())[-1] == 1

    @pytest.mark.parametrize("autoreset_mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
    def test_a_limit_of_the_steps_is_that_of_gymnasium(self, autoreset_mode: AutoresetMode) -> None:
        """Some episodes end before it."""
        scenario = {**DRAWN.to_dict(), "duration_s": {"uniform": [0.3, 1.0]}}
        arguments = {"scenario": scenario, "engine": "native", "num_envs": 3, "max_episode_steps": 6}
        ours = gymnasium.make_vec(ID, autoreset_mode=autoreset_mode, **arguments)
        vector_kwargs = {"autoreset_mode": autoreset_mode}
        theirs = gymnasium.make_vec(ID, vectorization_mode="sync", vector_kwargs=vector_kwargs, **arguments)
        assert_same(ours.reset(seed=3)[0], theirs.reset(seed=3)[0])
        for _ in range(30):
            actions = ours.action_space.sample()
            assert_same(list(ours.step(actions)[:4]), list(theirs.step(actions)[:4]))
        assert ours.spec.max_episode_steps == 6  # type: ignore[union-attr]
        with pytest.raises(ValueError, match="max_episode_steps must be an integer >= 1 or null, got 0"):
            gymnasium.make_vec(ID, max_episode_steps=0, engine="native")

    def test_a_specification_with_objects_is_stored_in_plain_types(self) -> None:
        given = {
            "scenario": DRAWN,
            "observation": Observation(("loss_rate",), history=2),
            "action": Action((1.5, 2.0)),
            "reward": Reward({"delay": 2}),
            "step_ms": np.float64(50.0),
            "engine": "native",
        }
        env = gymnasium.make(ID, **given)
        spec = env.spec
        assert spec is not None
        again = gymnasium.make(EnvSpec.from_json(spec.to_json()))
        assert again.spec == spec
        assert again.unwrapped._episodes.spec == EpisodeSpec(**given) == env.unwrapped._episodes.spec  # type: ignore[attr-defined]
        vector = gymnasium.make_vec(ID, num_envs=2, autoreset_mode=AutoresetMode.SAME_STEP, **given)
        vector_again = gymnasium.make_vec(EnvSpec.from_json(vector.spec.to_json()))  # type: ignore[union-attr]
        assert vector_again.metadata == vector.metadata

    def test_an_id_is_the_scenario_of_its_name_or_says_what_else_it_is(self) -> None:
        assert {*environment_ids(), NS3GYM_ID} == set(IDS)
        names = [arguments["scenario"] for arguments in environment_ids().values() if arguments]
        for arguments in environment_ids().values():
            agents = Distribution.of(arguments.get("scenario", "default")).agents
            assert arguments.get("other_agents") == ("bbr" if agents > 1 else None)
        assert set(scenario_names()) - set(names) == {"families_v2", "pair"}
        assert Distribution.of("pair").with_one_agent("bbr") == Distribution.of("duel")

    def test_only_the_first_agent_stays_one(self) -> None:
        agents = [{"algorithm": "agent", "parameters": {"preference": p}} for p in (0.0, {"uniform": [0.5, 1.0]}, 1.0)]
        drawn = {"flows": {"choice": [[{"algorithm": "cubic"}, *agents], [{"choice": agents}] * 3]}}
        for options in ({}, {"other_agents": "cubic"}):
            env, other = BottleneckEnv(drawn, engine="native", **options), options.get("other_agents", "bbr")
            seen = set()
            for seed in range(20):
                env.reset(seed=seed, options={"scenario": drawn} if seed % 2 else None)
                seen.add(tuple(flow.algorithm for flow in env.scenario.flows))
                assert all(not flow.parameters for flow in env.scenario.flows if flow.algorithm != "agent")
            assert seen == {("cubic", "agent", other, other), ("agent", other, other)}
            assert env.spec is None  # Gymnasium did not make it
        for refused in (
            lambda: BottleneckEnv("pair", other_agents=None, engine="native"),
            lambda: BottleneckEnv.from_spec(EpisodeSpec("pair", engine="native")),
        ):
            with pytest.raises(ValueError, match="other_agents='bbr'"):
                refused()


class TestDisabledAutoreset:
    def test_it_equals_gymnasiums(self) -> None:
        """Episodes of different lengths; every reset is for the ended environments."""
        arguments = {"scenario": DRAWN, "engine": "native"}
        ours = gymnasium.make_vec(ID, num_envs=3, autoreset_mode=AutoresetMode.DISABLED, has_infos=True, **arguments)
        how = {"vectorization_mode": "sync", "vector_kwargs": {"autoreset_mode": AutoresetMode.DISABLED}}
        theirs = gymnasium.make_vec(ID, num_envs=3, **how, **arguments)
        assert ours.unwrapped.autoreset_mode is AutoresetMode.DISABLED  # type: ignore[attr-defined]
        assert_same(list(ours.reset(seed=3)), list(theirs.reset(seed=3)))
        resets = 0
        for _ in range(40):
            actions = np.full((3, 2), 0.3, dtype=np.float32)
            mine, yours = ours.step(actions), theirs.step(actions)
            assert_same(list(mine), list(yours))
            over = mine[2] | mine[3]
            if over.any():
                with pytest.raises(gymnasium.error.ResetNeeded, match="reset_mask"):
                    ours.step(actions)
                outputs = [env.reset(options={"reset_mask": over.copy()}) for env in (ours, theirs)]
                assert_same(*map(list, outputs))
                resets += 1
        assert resets > 3
        for env in (ours, theirs):
            env.close()

    def test_bad_masks(self) -> None:
        vector = BottleneckVectorEnv(2, SHORT, engine="native", autoreset_mode="Disabled")
        with pytest.raises(gymnasium.error.ResetNeeded, match="never reset"):
            vector.reset(options={"reset_mask": np.array([True, False])})
        for bad in ([True, False], np.array([True]), np.array([1, 0]), np.array([False, False])):
            with pytest.raises(ValueError, match="must be an array of 2 bools, not all of them False"):
                vector.reset(options={"reset_mask": bad})


@pytest.mark.parametrize("form", [BottleneckEnv, BottleneckVectorEnv, SharedPolicyVecEnv])
def test_a_running_environment_cannot_be_pickled(form: Any) -> None:
    if form is SharedPolicyVecEnv:
        env = form(EpisodeSpec(SHORT, engine="native"))
    else:
        env = form(scenario=SHORT, engine="native")
    pickle.loads(pickle.dumps(env)).reset()
    env.reset()
    with pytest.raises(TypeError, match="a running environment cannot be pickled"):
        pickle.dumps(env)
    env.close()
    pickle.loads(pickle.dumps(env)).reset()


def test_a_policy_of_simulate_is_for_one_run() -> None:
    policy = policy_of(lambda o: np.zeros((len(o), 2)), Observation(), Action(), SHORT)
    simulate(SHORT, FakeEngine(), policy=policy)
    with pytest.raises(ValueError, match="one run"):
        simulate(SHORT, FakeEngine(), policy=policy)


def test_importing_it_is_light() -> None:
    code = (
        "import sys, bbrgym, bbrgym.envs.episode, bbrgym.envs.gym_env, bbrgym.envs.vector_env\n"
        "heavy = {'torch', 'mlflow', 'matplotlib', 'pandas', 'stable_baselines3', 'pettingzoo'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_gymnasium_without_autoreset_modes_has_all_but_the_vector_form() -> None:
    code = (
        "import gymnasium, gymnasium.vector; del gymnasium.vector.AutoresetMode\n"  # as before 1.1
        "import bbrgym\n"
        "env = gymnasium.make('bbrgym/Bottleneck-v1', engine='native'); env.reset(seed=1); env.close()\n"
        "try: import bbrgym.envs.vector_env\n"
        "except ImportError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("the vector environment needs gymnasium>=1.1, got 1.")


def play(env: gymnasium.Env[Any, Any], action: Callable[[], Any] = lambda: ZERO) -> Any:
    """The terminated, truncated and info of every step of an episode."""
    env.reset(seed=1)
    over = False
    while not over:
        *_, terminated, truncated, info = env.step(action())
        over = terminated or truncated
        yield terminated, truncated, info


def assert_same(a: Any, b: Any) -> None:
    if isinstance(a, np.ndarray):
        assert a.dtype == b.dtype
    assert data_equivalence(a, b, exact=True), f"{a} != {b}"


def conf(path: str) -> Any:
    """What a file of the configuration has, in plain types."""
    with as_file(files("bbrgym.conf") / f"{path}.yaml") as file:
        return OmegaConf.to_container(OmegaConf.load(file))
