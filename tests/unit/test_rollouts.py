"""Rollouts in C++: the same as steps, to the last bit, and the same learner as in PyTorch, up to rounding."""

from __future__ import annotations

import copy
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import pytest
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import CallbackList
from stable_baselines3.common.vec_env import VecMonitor
from test_native_vector import DRAWN, EVERYTHING, PAIR
from training import PPO as SMALL
from training import learn, learn_until_killed, logged, quiet, same, weights

from bbrgym import Flow, Scenario, _native
from bbrgym.agents.learner import make_model
from bbrgym.agents.policy import Agent
from bbrgym.agents.train import resume
from bbrgym.agents.wrappers import StandardiseObservation
from bbrgym.baselines.policy_file import Network
from bbrgym.envs.distribution import Distribution
from bbrgym.envs.episode import EpisodeSpec
from bbrgym.envs.observation import Observation
from bbrgym.envs.privileged import PRIVILEGED
from bbrgym.envs.sb3_env import Rollout, SharedPolicyVecEnv

STEPS = 20
NONE = CallbackList([])


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
    critic = tuple(PRIVILEGED) if scenario is PAIR else ()
    with (
        closing(SharedPolicyVecEnv(spec, 3, critic)) as env,
        closing(SharedPolicyVecEnv(spec, 3, critic)) as twin,
    ):
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


@dataclass
class Recorded:
    """A policy's `forward` that acts as in a rollout, after a comparison with what the policy would have done."""

    model: BaseAlgorithm
    actions: list[npt.NDArray[np.float32]]

    def __call__(self, observations: torch.Tensor) -> tuple[torch.Tensor, ...]:
        actions = torch.as_tensor(self.actions.pop(0))
        own, _, _ = type(self.model.policy).forward(self.model.policy, observations)
        torch.testing.assert_close(own, actions, rtol=0, atol=2e-6)
        values, log_probs, _ = self.model.policy.evaluate_actions(observations, actions)
        return actions, values, log_probs


def make_models(scenario: Scenario | Distribution = DRAWN, **agent: Any) -> list[BaseAlgorithm]:
    """Make two equal learners that have begun to learn."""
    spec = EpisodeSpec(scenario, observation=Observation(history=2), engine="native")
    models = []
    for _ in range(2):
        env = VecMonitor(SharedPolicyVecEnv(spec, 3))
        model = make_model(SMALL | {"n_steps": STEPS, "batch_size": 15, **agent}, env, seed=4)
        inputs = StandardiseObservation.of(model)
        inputs.mean[:], inputs.scale[:] = 0.3, 1.7
        NONE.init_callback(model)
        model._setup_learn(10_000, None)
        models.append(model)
    return models


def test_the_learner_collects_the_same_in_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stable-Baselines3's own loop, with the same seed, fills its buffer with the same, up to rounding."""
    models = make_models()
    model, twin = models
    for seed in range(2):
        torch.manual_seed(seed)
        assert model.collect_rollouts(model.env, NONE, model.rollout_buffer, STEPS)
        torch.manual_seed(seed)
        with monkeypatch.context() as in_torch:
            in_torch.setattr(SharedPolicyVecEnv, "can_roll", False)
            in_torch.setattr(twin.policy, "forward", Recorded(twin, [*model.rollout_buffer.actions]))
            assert twin.collect_rollouts(twin.env, NONE, twin.rollout_buffer, STEPS)
        for name in ("observations", "actions", "episode_starts", "took_part"):
            np.testing.assert_array_equal(getattr(model.rollout_buffer, name), getattr(twin.rollout_buffer, name))
        for name in ("rewards", "values", "log_probs", "advantages", "returns"):
            found, expected = getattr(model.rollout_buffer, name), getattr(twin.rollout_buffer, name)
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(model._last_obs, twin._last_obs)
        np.testing.assert_array_equal(model._last_episode_starts, twin._last_episode_starts)
        assert model.num_timesteps == twin.num_timesteps
        episodes = [[(episode["r"], episode["l"]) for episode in one.ep_info_buffer] for one in models]
        assert episodes[0] == episodes[1]
        assert episodes[0]
    for one in models:
        one.env.close()


@pytest.mark.parametrize(
    "agent",
    [
        {},
        {"clip_range_vf": 0.1, "normalize_advantage": False, "ent_coef": 0.01, "batch_size": 20},
        {"target_kl": 1e-6, "policy_kwargs": {"net_arch": [8, 8], "activation_fn": "relu"}},
    ],
    ids=["plain", "options", "target_kl"],
)
def test_an_update_is_that_of_stable_baselines3(agent: dict[str, Any]) -> None:
    """In weights to the last bit, and in what is logged, if all flows take part in all steps."""
    models = make_models(Scenario(duration_s=1.2, flows=(Flow("agent"), Flow("cubic"))), **agent)
    for seed in range(2):
        for model, train in zip(models, (type(models[0]).train, PPO.train), strict=True):
            model.env.seed(seed)
            model._last_obs = model.env.reset()
            torch.manual_seed(seed)
            assert model.collect_rollouts(model.env, NONE, model.rollout_buffer, STEPS)
            np.random.seed(seed)  # the buffer shuffles with it
            train(model)
        for found, expected in zip(*(model.policy.parameters() for model in models), strict=True):
            torch.testing.assert_close(found, expected, rtol=0, atol=0)
        found, expected = (model.logger.name_to_value for model in models)
        assert found == pytest.approx(expected, abs=1e-6)
        assert len(found) > 8
    assert models[0]._n_updates == models[1]._n_updates == (2 if "target_kl" in agent else 4)
    for one in models:
        one.env.close()


def test_an_update_uses_the_steps_in_which_a_flow_took_part() -> None:
    """What the buffer has of the others changes nothing; without any, there is no update."""
    models = make_models()
    for model in models:
        torch.manual_seed(1)
        assert model.collect_rollouts(model.env, NONE, model.rollout_buffer, STEPS)
    took_part = models[0].rollout_buffer.took_part.copy()
    assert 0 < np.count_nonzero(~took_part) < took_part.size / 2
    assert not models[0].rollout_buffer.rewards[~took_part].any()
    for name in ("observations", "actions", "values", "log_probs", "advantages", "returns"):
        getattr(models[0].rollout_buffer, name)[~took_part] = np.nan
    for model in models:
        np.random.seed(1)
        model.train()
    first, second = (model.policy.state_dict() for model in models)
    assert same(first, second)
    before = copy.deepcopy(first)
    assert models[0].collect_rollouts(models[0].env, NONE, models[0].rollout_buffer, STEPS)
    models[0].rollout_buffer.took_part[:] = False
    models[0].train()
    assert same(models[0].policy.state_dict(), before)
    for model in models:
        model.env.close()


def test_a_killed_and_resumed_training_logs_the_same(tmp_path: Path) -> None:
    through, stopped = tmp_path / "through", tmp_path / "stopped"
    learn(through, engine={"name": "native"})
    learn_until_killed(stopped, engine={"name": "native"})
    assert resume(stopped, console=quiet()).is_complete
    assert logged(through) == logged(stopped)
    assert same(weights(through), weights(stopped))


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
        for bad in (actions[:, :3], actions[0], np.full_like(actions, np.nan)):
            with pytest.raises(ValueError, match=r"noise must be finite, of shape \(steps, 4, 2\), got"):
                env.rollout(bad)
        other = Agent(EpisodeSpec(PAIR, observation=Observation(("loss_rate",))), _network(1, 0.0))
        with pytest.raises(ValueError, match="the policy must take 17 values and have no LSTM"):
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
        *(np.array([100_000_000]), np.array([0, 2]), np.zeros(1, np.int64), np.zeros(2), np.ones((2, 2))),
        *(np.zeros((5, 2, 17), np.float32), np.zeros((4, 2, 2), np.float32), np.zeros((4, 2, 2), np.float32)),
        *(*rows, np.zeros((4, 1), np.uint8), np.zeros((4, 1), np.uint8)),
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
