"""The environments on real engines: vectorised and single ones agree to the last bit, and all forms work."""

from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from marks import needs_ns3
from policies import make_agent
from traces import flow_column

from bbrgym import Flow, Scenario, simulate
from bbrgym.envs.action import CWND_SCALES, Action
from bbrgym.envs.columns import FLOW_COLUMNS
from bbrgym.envs.distribution import Distribution
from bbrgym.envs.episode import policy_of
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.envs.gym_env import BottleneckEnv
from bbrgym.envs.native.engine import NativeEngine
from bbrgym.envs.observation import DEFAULT_FEATURES, FEATURES, Observation
from bbrgym.envs.reward import TERMS, Reward
from bbrgym.envs.sb3_env import SharedPolicyVecEnv
from bbrgym.envs.vector_env import BottleneckVectorEnv

SHORT = Scenario(duration_s=1.0, flows=(Flow("agent", rtt_ms=20.0), Flow("bbr", rtt_ms=50.0)))
LATE = Scenario(
    rate_mbps=20.0,
    duration_s=1.0,
    loss=0.01,
    rate_schedule=((0.6, 10.0),),
    flows=(Flow("bbr", rtt_ms=10.0), Flow("cubic", start_s=0.2, stop_s=0.5), Flow("agent", rtt_ms=20.0, start_s=0.4)),
)
DRAWN = Distribution.from_dict(  # its episodes end by time, by a stop, and by the last byte
    {
        "rate_mbps": {"log_uniform": [6, 24]},
        "duration_s": {"uniform": [0.3, 1.2]},
        "loss": {"choice": [0.0, 0.02]},
        "flows": {
            "choice": [
                [{"algorithm": "agent", "rtt_ms": {"uniform": [10, 60]}, "size_bytes": {"choice": [None, 200_000]}}],
                [{"algorithm": "bbr"}, {"algorithm": "agent", "stop_s": {"choice": [None, 0.6]}, "rtt_ms": 20}],
                [
                    {"algorithm": "bbr2", "rtt_ms": 30, "start_s": 0.1},
                    {"algorithm": "cubic", "rtt_ms": 30},
                    {"algorithm": "agent", "rtt_ms": 25, "start_s": {"uniform": [0.0, 0.2]}},
                ],
            ]
        },
    }
)
PAIR = Scenario(
    duration_s=1.2,
    flows=(
        Flow("agent", rtt_ms=10.0, parameters={"preference": 0.9}),
        Flow("bbr"),
        Flow("agent", rtt_ms=50.0, start_s=0.3, parameters={"preference": 0.1}),
    ),
)
EVERYTHING: dict[str, Any] = {
    "observation": Observation(tuple(FEATURES), history=3),
    "reward": Reward({name: 0.1 * (1 + index) for index, name in enumerate(TERMS)}),
    "action": Action((0.7, 3.0), (0.8, 2.0), cwnd_scale="packets"),
}

EXAMPLES = Path(__file__).parents[2] / "examples"


class TestVector:
    @pytest.mark.parametrize(
        ("scenario", "arguments", "mode"),  # any two values meet once
        [
            (LATE, {"step_ms": 50.0}, AutoresetMode.NEXT_STEP),
            (LATE, {"step_ms": None, "step_rtts": 1.5, **EVERYTHING}, AutoresetMode.SAME_STEP),
            (DRAWN, {"step_ms": 50.0}, AutoresetMode.SAME_STEP),
            (DRAWN, {"step_ms": None, "step_rtts": 1.5, **EVERYTHING}, AutoresetMode.NEXT_STEP),
        ],
        ids=["late-plain-next", "late-everything-same", "drawn-plain-same", "drawn-everything-next"],
    )
    def test_equals_singles(self, scenario: Any, arguments: dict[str, Any], mode: AutoresetMode) -> None:
        """Compare all outputs over several episodes: of a batch, of separate engines, and of single environments."""
        count = 3
        form = partial(BottleneckVectorEnv, count, scenario, autoreset_mode=mode, has_infos=True, **arguments)
        batch, apart = form(engine="native"), form(engine=NativeEngine)
        singles = SyncVectorEnv(
            [lambda: BottleneckEnv(scenario, engine="native", **arguments)] * count, autoreset_mode=mode
        )
        for space in ("observation_space", "action_space"):
            assert getattr(batch, space) == getattr(singles, space)
        assert batch.metadata["autoreset_mode"] == singles.metadata["autoreset_mode"]
        rng = np.random.default_rng(1)
        for seed in (7, [3, 2, 1], None):
            outputs = [env.reset(seed=seed) for env in (batch, apart, singles)]
            assert_same(*outputs)
            ends = 0
            for _ in range(36):
                actions = rng.uniform(-1.2, 1.2, (count, 2)).astype(np.float32)
                steps = [env.step(actions) for env in (batch, apart, singles)]
                assert_same(*steps)
                assert steps[0][0] in batch.observation_space
                ends += int((steps[0][2] | steps[0][3]).sum())
            assert ends >= count
        for env in (batch, apart, singles):
            env.close()

    def test_files_of_a_scenario_are_read_when_an_episode_starts(self, tmp_path: Path) -> None:
        source = tmp_path / "mine.c"
        flows = (Flow("agent"), Flow("policy", policy=str(tmp_path)), Flow("file", file=str(source)))
        scenario = Scenario(duration_s=2.0, flows=flows)
        envs = BottleneckVectorEnv(2, scenario, engine="native"), BottleneckEnv(scenario, engine=NativeEngine)
        found = []
        for seed, name in ((1, "aimd"), (2, "aimd"), (2, "vegas"), (1, "aimd")):
            make_agent(seed=seed).save(tmp_path)
            source.write_text((EXAMPLES / f"{name}.c").read_text())
            for env in envs:
                env.reset(seed=5)
                for _ in range(10):
                    env.step(np.zeros(env.action_space.shape, np.float32))
            windows = [env._episodes.last_rows(0).flows[1:, FLOW_COLUMNS.index("cwnd_packets")] for env in envs]
            np.testing.assert_array_equal(*windows)
            found.append(windows[0].tolist())
        for env in envs:
            env.close()
        assert found[0] == found[3]
        assert found[0] != found[1] != found[2]

    def test_outputs_are_not_changed_by_later_steps(self) -> None:
        env = BottleneckVectorEnv(3, SHORT, engine="native", has_infos=True)
        env.reset(seed=1)
        kept = [env.step(np.zeros((3, 2), np.float32)) for _ in range(25)]
        env.reset(seed=1)
        for earlier in kept:
            assert_same(earlier, env.step(np.zeros((3, 2), np.float32)))


class TestStableBaselines3:
    @pytest.mark.parametrize(
        ("scenario", "agents"), [(PAIR, 2), (SHORT, 1), (DRAWN, 1)], ids=["pair", "short", "drawn"]
    )
    def test_engines_do_not_see_each_other(self, scenario: Any, agents: int) -> None:
        arguments = {"step_ms": 50.0, **EVERYTHING}
        together = SharedPolicyVecEnv(EpisodeSpec(scenario, engine="native", **arguments), 3, has_infos=True)
        alone = EpisodeSpec(scenario, engine=NativeEngine, **arguments)
        apart = [SharedPolicyVecEnv(alone, has_infos=True) for _ in range(3)]
        together.seed(10)
        for index, env in enumerate(apart):
            env.seed(10 + agents * index)
        assert_same(together.reset(), np.concatenate([env.reset() for env in apart]))
        assert_same(together.reset_infos, [info for env in apart for info in env.reset_infos])
        rng = np.random.default_rng(1)
        for _ in range(60):
            actions = rng.uniform(-1, 1, (3, agents, 2)).astype(np.float32)
            *numbers, infos = together.step(actions.reshape(-1, 2))
            steps = [env.step(action) for env, action in zip(apart, actions, strict=True)]
            assert_same(numbers, [np.concatenate(parts) for parts in list(zip(*steps, strict=True))[:3]])
            assert_same(infos, [info for step in steps for info in step[3]])
            assert_same(together.reset_infos, [info for env in apart for info in env.reset_infos])
        if scenario is PAIR:
            assert [info["flow_index"] for info in infos] == [0, 2] * 3

    def test_a_second_step_before_the_first_is_finished(self) -> None:
        env = SharedPolicyVecEnv(EpisodeSpec(SHORT, engine="native"), 2, has_infos=True)
        env.reset()
        env.step_async(np.zeros((2, 2), np.float32))
        with pytest.raises(RuntimeError, match="is pending"):
            env.step_async(np.zeros((2, 2), np.float32))
        assert [info["time_s"] for info in env.step_wait()[3]] == [0.1, 0.1]
        with pytest.raises(RuntimeError, match="without a pending reset or step"):
            env.step_wait()


class TestEverywhere:
    @pytest.mark.parametrize(
        ("engine", "cwnd_scale"),
        [*(("native", scale) for scale in CWND_SCALES), pytest.param("ns3", "ratio", marks=needs_ns3)],
    )
    def test_the_driver_of_simulate_equals_the_environment(self, engine: str, cwnd_scale: str) -> None:
        """The same observations, actions and rows, whichever of the two runs the agent."""
        weights = np.random.default_rng(2).normal(size=(2 * len(DEFAULT_FEATURES), 2))

        def predict(observations: Any) -> Any:
            seen.append(observations)
            return np.tanh(observations @ weights).astype(np.float32)

        seen: list[Any] = []
        spec = EpisodeSpec(
            PAIR, engine=engine, action=Action(cwnd_scale=cwnd_scale), observation=Observation(history=2)
        )
        rows = []
        with closing(SharedPolicyVecEnv(spec, has_infos=True)) as vec:
            vec.seed(1)
            observations = vec.reset()
            seed = vec.reset_infos[0]["seed"]
            dones = np.zeros(2, dtype=np.bool_)
            while not dones.any():
                observations, _, dones, infos = vec.step(predict(observations))
                rows.append([info["throughput_mbps"] for info in infos])
        in_env, seen = seen, []
        policy = policy_of(predict, spec.observation, spec.action, PAIR)
        trace = simulate(PAIR, engine, seed=seed, step_ms=spec.interval_ms(PAIR), policy=policy)
        np.testing.assert_array_equal(np.array(seen), np.array(in_env))
        np.testing.assert_array_equal(flow_column(trace, "throughput_mbps")[:, PAIR.agent_flows], np.array(rows))

    @pytest.mark.parametrize("engine", ["native", pytest.param("ns3", marks=needs_ns3)])
    def test_every_feature_gets_a_value(self, engine: str) -> None:
        """A feature that is always neutral needs a column that the engine does not fill."""
        observation = Observation(tuple(FEATURES))
        # The minimum RTT is probed again after ten seconds, in ProbeRTT. CUBIC keeps the queue from draining.
        flow = Flow("agent", rtt_ms=40.0, parameters={"preference": 0.2})
        scenario = Scenario(
            rate_mbps=4.0, buffer_bdp=2.0, loss=0.001, duration_s=13.0, flows=(flow, Flow("cubic", 40.0))
        )
        with closing(BottleneckEnv(scenario, engine=engine, observation=observation)) as env:
            seen = [env.reset(seed=1)[0]]
            truncated = False
            while not truncated:
                observed, _, _, truncated, _ = env.step(np.array([0.0, 0.2], dtype=np.float32))
                seen.append(observed)
        changed = (np.array(seen) != observation.neutral).any(axis=0)
        assert [name for name, has in zip(FEATURES, changed, strict=True) if not has] == []


def assert_same(first: Any, *others: Any) -> None:
    for other in others:
        assert data_equivalence(first, other, exact=True), f"{first} != {other}"
