"""Rollouts in C++: the same as steps, to the last bit."""

import math
from contextlib import closing
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import pytest
from policies import make_agent
from test_native_vector import DRAWN, EVERYTHING, PAIR

from bbrgym import _native
from bbrgym.agents.policy import Agent
from bbrgym.baselines.policy_file import Network
from bbrgym.envs.episode import Episodes
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.envs.observation import Observation
from bbrgym.envs.rollouts import Rollout, roll, roll_steps
from bbrgym.envs.sb3_env import SharedPolicyVecEnv

STEPS = 20


def actions_of(env: SharedPolicyVecEnv, steps: int = STEPS) -> npt.NDArray[np.float32]:
    """Some of them are out of bounds."""
    return np.random.default_rng(1).uniform(-1.2, 1.2, (steps, env.num_envs, 2)).astype(np.float32)


def assert_same_steps(rollout: Rollout, env: SharedPolicyVecEnv) -> int:
    """Make the steps of a rollout one after the other in an equal environment; return how many episodes ended."""
    ends = 0
    for step, actions in enumerate(rollout.actions):
        observations, rewards, dones, infos = env.step(actions)
        np.testing.assert_array_equal(rollout.observations[step + 1], observations)
        np.testing.assert_array_equal(rollout.rewards[step], rewards)
        np.testing.assert_array_equal(rollout.dones[step], dones)
        for row in np.flatnonzero(dones):
            np.testing.assert_array_equal(rollout.terminal_observations[ends], infos[row]["terminal_observation"])
            assert rollout.timeouts[step, row] == infos[row]["TimeLimit.truncated"]
            ends += 1
    assert ends == len(rollout.terminal_observations)
    return ends


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("scenario", "parts"), [(PAIR, EVERYTHING), (DRAWN, {}), (DRAWN, EVERYTHING)])
def test_a_rollout_is_its_steps(scenario: Any, parts: dict[str, Any], threads: int) -> None:
    """To the last bit, over several episodes, and with steps before, between and after."""
    spec = EpisodeSpec(scenario, engine="native", engine_options={"threads": threads}, **parts)
    with closing(SharedPolicyVecEnv(spec, 3)) as env, closing(SharedPolicyVecEnv(spec, 3)) as twin:
        for each in (env, twin):
            each.seed(3)
            each.reset()
        actions = actions_of(env)
        ends = 0
        for _ in range(2):
            for one in actions[:2]:
                for seen, expected in zip(env.step(one)[:3], twin.step(one)[:3], strict=True):
                    np.testing.assert_array_equal(seen, expected)
            rollout = env.rollout(actions)
            np.testing.assert_array_equal(rollout.actions, actions)
            ends += assert_same_steps(rollout, twin)
            assert env.scenarios == twin.scenarios
        assert ends >= 6
        assert env.record.time_s.shape == (3,)


@pytest.mark.parametrize("output", ["clip", "tanh"])
def test_a_policy_acts_as_outside(output: str) -> None:
    rng = np.random.default_rng(2)
    layers = [(rng.normal(size=shape).astype(np.float32), np.zeros(shape[0], np.float32)) for shape in ((8, 4), (2, 8))]
    spec = EpisodeSpec(DRAWN, observation=Observation(("log_backlog", "loss_rate"), history=2), engine="native")
    agent = Agent(spec, Network(tuple(layers), output=output))
    with closing(SharedPolicyVecEnv(spec, 3)) as env, closing(SharedPolicyVecEnv(spec, 3)) as twin:
        for each in (env, twin):
            each.seed(5)
            each.reset()
        rollout = env.rollout(np.zeros((STEPS, 3, 2), np.float32), agent.compiled)
        bound = np.tanh if output == "tanh" else lambda values: values.clip(-1.0, 1.0)
        for observations, actions in zip(rollout.observations, rollout.actions, strict=False):
            np.testing.assert_allclose(agent.predict(observations), bound(actions), atol=1e-6)
        bounded = [agent.predict(observations) for observations in rollout.observations[:-1]]
        assert assert_same_steps(rollout._replace(actions=np.array(bounded)), twin) > 3


def test_what_a_policy_remembers_begins_with_each_episode_and_stays_between_rollouts() -> None:
    agent = make_agent(lstm=(6,), has_skip=True, scale=0.2, scenario=DRAWN.to_dict())
    memory = agent.compiled
    state = np.zeros((3, memory.state_size), np.float32)
    with closing(SharedPolicyVecEnv(agent.spec, 3)) as env:
        env.seed(5)
        env.reset()
        ends = 0
        for _ in range(2):
            rollout = env.rollout(np.zeros((STEPS, 3, 2), np.float32), memory)
            for observations, actions, dones in zip(rollout.observations, rollout.actions, rollout.dones, strict=False):
                np.testing.assert_array_equal(memory.forward(observations, state), actions.clip(-1.0, 1.0))
                state[dones] = 0.0
                ends += int(dones.sum())
        assert ends > 3


@pytest.mark.parametrize("failing", [False, True])
def test_step_by_step_it_is_the_same_rollout(failing: bool) -> None:
    """With the noise of the episodes that begin, and the episodes of engines that fail cut off."""
    options = {"fail_at_step": 7} if failing else {}
    found = []
    for engine, given in (("native", {}), ("fake", options)):
        with closing(Episodes(EpisodeSpec(PAIR, engine=engine, engine_options=given), 2, is_healing=True)) as env:
            rngs = [np.random.default_rng(seed) for seed in (3, 4)]
            env.begin_resets(np.arange(2), rngs)
            env.finish_resets()
            noise = np.zeros((STEPS, 4, 2), np.float32)
            begun: list[tuple[int, int]] = []

            def renew(step: int, flows: npt.NDArray[np.intp]) -> None:
                begun.extend((step, flow) for flow in flows)  # noqa: B023  called right here
                noise[step:, flows] += 0.1  # noqa: B023

            if env.can_roll:
                rollout = roll(env, rngs, noise, policy=None, renew=renew)
            else:
                rollout = roll_steps(env, rngs, noise, policy=lambda seen, _: np.zeros_like(seen[:, :2]), renew=renew)
            found.append((rollout, noise, sorted(begun)))
    (expected, _, _), (rollout, noise, begun) = found
    if failing:
        assert rollout.errors == ("the fake engine fails in step 7, as it was told to",) * 4
        assert np.flatnonzero(rollout.timeouts[:, 0]).tolist() == [6, 13]
        assert not rollout.took_part[[6, 13]].any()
    else:
        for one, other in zip(expected, rollout, strict=True):
            np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(found[0][1], noise)
        assert begun == found[0][2] == [(step + 1, flow) for step, flow in np.argwhere(rollout.dones)]


def test_what_a_rollout_cannot_do_is_refused() -> None:
    with closing(SharedPolicyVecEnv(EpisodeSpec(PAIR, engine="fake"), 2)) as env:
        env.reset()
        with pytest.raises(ValueError, match="only the engine 'native' makes rollouts, got 'fake'"):
            env.rollout(actions_of(env))
    spec = EpisodeSpec(PAIR, engine="native")
    with closing(SharedPolicyVecEnv(spec, 2)) as env:
        actions = actions_of(env)
        with pytest.raises(gymnasium.error.ResetNeeded):
            env.rollout(actions)
        env.reset()
        for bad in (actions[:, :3], actions[0], np.full_like(actions, np.nan), actions[:0], [[[0, 0]]]):
            with pytest.raises(ValueError, match=r"noise must be finite, of shape \(steps, 4, 2\), got"):
                env.rollout(bad)
        other = Agent(EpisodeSpec(PAIR, observation=Observation(("loss_rate",))), _network(1, 0.0))
        with pytest.raises(ValueError, match="the policy must take 17 values, and takes 1"):
            env.rollout(actions, other.compiled)
        overflowing = Agent(spec, _network(17, 3e38))
        with pytest.raises(ValueError, match="the policy's actions must be numbers, got NaN"):
            env.rollout(actions, overflowing.compiled)
        with pytest.raises(gymnasium.error.ResetNeeded):
            env.rollout(actions)
        env.reset()
        assert np.isfinite(env.rollout(actions).observations).all()


def _network(inputs: int, weight: float) -> Network:
    """Its sums overflow to infinity and minus infinity with a large weight."""
    layer = np.tile(np.array([weight, -weight], np.float32), (2, inputs))[:, :inputs]
    return Network(((layer, np.zeros(2, np.float32)), (np.ones((2, 2), np.float32), np.zeros(2, np.float32))))


def test_arrays_of_another_shape_are_refused() -> None:
    spec = EpisodeSpec(PAIR, engine="native")
    batch = _native.Batch(1, 3)
    batch.reset(0, _native.Scenario(PAIR.to_dict()), 1)
    rows = [np.zeros((4, 1, *shape)) for shape in (batch.flow_rows.shape[1:], batch.link_rows.shape[1:], ())]
    arrays = [
        np.array([100_000_000]),
        np.array([0, 2]),
        np.zeros(1, np.int64),
        np.zeros(2),
        np.ones((2, 2)),
        np.zeros((2, 0), np.float32),
        np.zeros((5, 2, 17), np.float32),
        np.zeros((4, 2, 2), np.float32),
        np.zeros((4, 2, 2), np.float32),
        *rows,
        np.zeros((4, 1), np.uint8),
        np.zeros((4, 1), np.uint8),
    ]

    def run(index: int | None = None, other: Any = None) -> None:
        given = [other if number == index else array for number, array in enumerate(arrays)]
        batch.run(spec.observation.table, spec.action.gain_map, None, *given)

    for index, array in enumerate(arrays):
        with pytest.raises(ValueError, match=r"must have the shape \("):
            run(index, np.repeat(array, 2, axis=0))
    for flow, error in ((1, "of algorithm 'bbr'"), (3, r"\[0, 3\), got 3")):
        with pytest.raises((ValueError, IndexError), match=error):
            run(1, np.array([0, flow]))
    with pytest.raises(ValueError, match="next_steps must be >= 0"):
        run(2, np.array([-1]))
    run()
    assert arrays[2].tolist() == [4]
    assert rows[2].ravel().tolist() == pytest.approx([0.1, 0.2, 0.3, 0.4])


def test_steps_that_are_not_made_have_actions_of_0(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what memory happens to hold, which may be NaN."""
    monkeypatch.setattr(np, "empty_like", lambda array: np.full_like(array, math.nan))
    scenario = {"duration_s": {"choice": [0.5, 1.0, 2.0]}, "flows": [{"algorithm": "agent", "rtt_ms": 20}]}
    with closing(Episodes(EpisodeSpec(scenario, engine="native"), 8)) as env:
        env.begin_resets(np.arange(8), [np.random.default_rng([seed, 1]) for seed in range(8)])
        env.finish_resets()
        rollout = env.begin_rollout(np.full((env.most_steps, 8, 2), 0.5, np.float32))
        env.run(rollout)
    is_made = np.arange(env.most_steps)[:, np.newaxis] < rollout.arrays.next_steps
    assert not is_made.all()
    actions = rollout.arrays.actions
    assert (actions[is_made] == 0.5).all()
    assert (actions[~is_made] == 0.0).all()
