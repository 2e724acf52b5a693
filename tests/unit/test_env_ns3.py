"""The environments on ns-3 itself."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence

from bbrgym.envs.episode import EpisodeSpec, policy_of
from bbrgym.envs.gym_env import BottleneckEnv
from bbrgym.envs.observation import DEFAULT_FEATURES, FEATURES, Observation
from bbrgym.envs.sb3_env import SharedPolicyVecEnv
from bbrgym.envs.scenario import Flow, Scenario
from bbrgym.envs.trace import simulate
from bbrgym.envs.vector_env import BottleneckVectorEnv

pytestmark = pytest.mark.skipif(importlib.util.find_spec("bbrgym._ns3") is None, reason="bbrgym was built without ns-3")

IDS = [name for name in gymnasium.registry if name.startswith("bbrgym/")]
SHORT = Scenario(duration_s=1.5, loss=0.005, flows=(Flow("agent", rtt_ms=20.0), Flow("bbr", rtt_ms=30.0)))
PAIR = Scenario(duration_s=1.5, flows=(Flow("agent", rtt_ms=10.0), Flow("agent", rtt_ms=30.0, start_s=0.3)))


def test_there_are_environments_to_test() -> None:
    assert "bbrgym/Bottleneck-v0" in IDS


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("env_id", IDS)
def test_gymnasiums_checker_has_nothing_to_say(env_id: str) -> None:
    env = gymnasium.make(env_id, scenario=SHORT).unwrapped
    check_env(env, skip_render_check=True)
    env.close()


@pytest.mark.parametrize("env_id", IDS)
def test_a_seed_decides_everything(env_id: str) -> None:
    """Also in another engine, and after other episodes in the same one."""

    def play(env: gymnasium.Env[Any, Any], seed: int) -> Iterator[Any]:
        yield env.reset(seed=seed)
        actions = np.random.default_rng(0)
        over = False
        while not over:
            step = env.step(actions.uniform(-1, 1, 2).astype(np.float32))
            over = step[2] or step[3]
            yield step

    first, second = (gymnasium.make(env_id, scenario=SHORT, disable_env_checker=True) for _ in range(2))
    once = list(play(first, 1))
    assert len(once) == 16
    assert not data_equivalence(once, list(play(second, 2)), exact=True)
    assert data_equivalence(once, list(play(second, 1)), exact=True)
    assert data_equivalence(once, list(play(first, 1)), exact=True)
    first.close()
    second.close()


def test_the_vector_equals_singles() -> None:
    vector = BottleneckVectorEnv(2, SHORT)
    singles = [gymnasium.make("bbrgym/Bottleneck-v0", scenario=SHORT).unwrapped for _ in range(2)]
    observations, _ = vector.reset(seed=5)
    for index, env in enumerate(singles):
        np.testing.assert_array_equal(observations[index], env.reset(seed=5 + index)[0])
    rng = np.random.default_rng(1)
    for _ in range(15):
        actions = rng.uniform(-1, 1, (2, 2)).astype(np.float32)
        observations, rewards, terminated, truncated, _ = vector.step(actions)
        for index, env in enumerate(singles):
            observation, *rest, _ = env.step(actions[index])
            np.testing.assert_array_equal(observations[index], observation)
            assert rest == [rewards[index], terminated[index], truncated[index]]
    assert truncated.all()
    vector.close()
    for env in singles:
        env.close()


def test_the_driver_of_simulate_equals_the_environment() -> None:
    weights = np.random.default_rng(2).normal(size=(len(DEFAULT_FEATURES), 2))

    def predict(observations: Any) -> Any:
        seen.append(observations)
        return np.tanh(observations @ weights).astype(np.float32)

    seen: list[Any] = []
    spec = EpisodeSpec(PAIR)
    vec = SharedPolicyVecEnv(spec)
    vec.seed(1)
    observations = vec.reset()
    seed = vec.reset_infos[0]["seed"]
    dones = np.zeros(2, dtype=np.bool_)
    while not dones.any():
        observations, _, dones, _ = vec.step(predict(observations))
    vec.close()
    in_env, seen = seen, []
    policy = policy_of(predict, spec.observation, spec.action, PAIR)
    simulate(PAIR, "ns3", seed, spec.interval_ms(PAIR), policy)
    np.testing.assert_array_equal(np.array(seen), np.array(in_env))


def test_every_feature_gets_a_value() -> None:
    """A feature that is always neutral needs a column that ns-3 does not fill."""
    observation = Observation(tuple(FEATURES))
    scenario = Scenario(rate_mbps=4.0, buffer_bdp=0.5, duration_s=13.0, loss=0.01, flows=(Flow("agent", rtt_ms=40.0),))
    env = BottleneckEnv(scenario, observation=observation)
    seen = [env.reset(seed=1)[0]]
    truncated = False
    while not truncated:
        observed, _, _, truncated, _ = env.step(np.array([0.5, 0.2], dtype=np.float32))
        seen.append(observed)
    env.close()
    changed = (np.array(seen) != observation.neutral).any(axis=0)
    # The minimum RTT is probed again after ten seconds, in ProbeRTT.
    assert [name for name, has in zip(FEATURES, changed, strict=True) if not has] == []
