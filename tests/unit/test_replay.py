"""The replay buffer of flows, and what the environment says about their steps."""

from typing import Any

import numpy as np
from training import SAC

from bbrgym.agents.replay import FlowReplayBuffer
from bbrgym.agents.sac import make_model
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.envs.sb3_env import SharedPolicyVecEnv

SCENARIO: dict[str, Any] = {
    "rate_mbps": 12,
    "duration_s": 4,
    "flows": [
        {"algorithm": "agent", "rtt_ms": 20},
        {"algorithm": "agent", "rtt_ms": 20, "start_s": 0.95},
        {"algorithm": "agent", "rtt_ms": 20, "stop_s": 2.05},
    ],
}


def make_env(engines: int = 1) -> SharedPolicyVecEnv:
    env = SharedPolicyVecEnv(EpisodeSpec(SCENARIO, engine="native"), engines)
    env.seed(1)
    return env


def test_infos_say_whether_a_flow_took_part_and_has_ended() -> None:
    env = make_env()
    env.reset()
    infos = [env.step(np.zeros((3, 2), np.float32))[3] for _ in range(40)]
    took_part, has_ended = (
        np.array([[info[key] for info in step] for step in infos]) for key in ("took_part", "has_ended")
    )
    assert took_part[:, 0].all()
    assert took_part[:, 1].tolist() == [False] * 9 + [True] * 31
    assert took_part[:21, 2].all()
    assert not took_part[23:, 2].any()  # the last packets are still delivered after its stop
    assert has_ended[:, 2].tolist() == [False] * 20 + [True] * 20
    assert has_ended[:, :2].sum() == has_ended[-1, :2].sum() == 2


def test_a_learner_keeps_only_steps_in_which_a_flow_took_part() -> None:
    env = make_env(2)
    model = make_model(SAC | {"learning_starts": 10_000}, env, seed=1)
    model.learn(6 * 40)
    buffer = model.replay_buffer
    kept = slice(buffer.pos)
    assert isinstance(buffer, FlowReplayBuffer)
    assert 2 * (40 + 31 + 21) <= buffer.pos <= 2 * (40 + 31 + 23)
    assert not buffer.full
    assert (buffer.rewards[kept] != 0).mean() > 0.9
    # Two flows of each engine end with the episode, by its time limit, and the third one before it, for good.
    assert buffer.timeouts[kept].sum() == 4
    assert buffer.dones[kept].sum() > 4
    samples = buffer.sample(1000)
    assert samples.observations.shape == (1000, env.observation_space.shape[0])
    assert samples.dones.sum() > 0


def test_an_empty_buffer_takes_any_step() -> None:
    """A learner may draw a batch before the first flow begins."""
    env = make_env()
    buffer = FlowReplayBuffer(4, env.observation_space, env.action_space, "cpu", n_envs=3)
    seen = np.ones((3, *env.observation_space.shape), np.float32)

    def add(*took_part: bool) -> None:
        infos = [{"took_part": part, "has_ended": False, "TimeLimit.truncated": False} for part in took_part]
        buffer.add(
            obs=seen,
            next_obs=seen,
            action=np.zeros((3, 2)),
            reward=np.arange(3.0),
            done=np.zeros(3, np.bool_),
            infos=infos,
        )

    add(False, False, False)
    add(False, False, False)
    assert buffer.size() == len(buffer.sample(1).rewards) == 1
    add(False, True, True)
    assert buffer.rewards[:, 0].tolist() == [0.0, 1.0, 2.0, 0.0]
    add(True, True, False)
    assert (buffer.full, buffer.pos) == (True, 1)
    assert buffer.rewards[:, 0].tolist() == [1.0, 1.0, 2.0, 0.0]
