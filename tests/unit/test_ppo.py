"""Proximal policy optimisation (agents/ppo.py), with tiny networks. tests/unit/test_train.py has a learning canary."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from training import PPO as SMALL
from training import SCENARIO, learn, learn_until_killed, logged, quiet, same, weights

from bbrgym.agents.checkpoint import TrainingState
from bbrgym.agents.config import PPOConfig
from bbrgym.agents.inputs import measure_inputs
from bbrgym.agents.policy import Agent
from bbrgym.agents.ppo import NOISE_CORRELATION, PPO
from bbrgym.agents.train import resume
from bbrgym.envs.engine import EngineError
from bbrgym.envs.episode_spec import EpisodeSpec

pytestmark = pytest.mark.usefixtures("no_figures")

LATE: dict[str, Any] = SCENARIO | {"flows": [SCENARIO["flows"][0], SCENARIO["flows"][1] | {"start_s": 0.25}]}


def make_learner(engine: str = "native", scenario: dict[str, Any] = SCENARIO, **changes: Any) -> PPO:
    """Make a learner that can collect its first rollout."""
    spec = EpisodeSpec(scenario, engine=engine)
    learner = PPO(PPOConfig(**(SMALL | changes)), spec, 2, seed=3)
    learner._inputs = measure_inputs(spec, [np.random.default_rng(1)])
    learner.restart(3, TrainingState())
    return learner


def update(learner: PPO, *rollout: Any) -> dict[str, float]:
    with ThreadPoolExecutor(1) as thread:
        return learner._update(*rollout, thread)


def state(learner: PPO) -> dict[str, torch.Tensor]:
    return {**learner._actor.state_dict(), **{f"critic.{k}": v for k, v in learner._critic.state_dict().items()}}


def test_noise_lasts_within_an_episode_and_across_rollouts() -> None:
    """It is the same mixture in every step, so that the standard deviation of an action is `std`."""
    with closing(make_learner(n_steps=7)) as learner:
        parts = [learner._roll(learner._config.n_steps) for _ in range(60)]
    noise = np.concatenate([noise for _, noise in parts])
    goes_on = ~np.concatenate([rollout.dones for rollout, _ in parts])[:-1]
    assert goes_on.mean() == pytest.approx(0.9, abs=0.01)  # episodes have ten steps
    assert np.square(noise).mean() == pytest.approx(1.0, abs=0.25)
    lagged = noise[:-1] * noise[1:]
    assert lagged[goes_on].mean() == pytest.approx(NOISE_CORRELATION, abs=0.25)
    assert abs(lagged[~goes_on].mean()) < 0.25


def test_an_engine_without_rollouts_gives_the_same() -> None:
    found = []
    for engine in ("native", "fake"):
        with closing(make_learner(engine, LATE)) as learner:
            rollout, noise = learner._roll(learner._config.n_steps)
            update(learner, rollout, noise)
            found.append((rollout, noise, state(learner)))
    (rollout, noise, weights), (others, other_noise, other_weights) = found
    np.testing.assert_array_equal(noise, other_noise)
    for name in ("took_part", "dones", "timeouts"):
        np.testing.assert_array_equal(getattr(rollout, name), getattr(others, name))
    np.testing.assert_allclose(rollout.actions, others.actions, atol=1e-3)
    for name in weights:
        np.testing.assert_allclose(weights[name], other_weights[name], atol=1e-2)


def test_only_steps_count_in_which_a_flow_took_part() -> None:
    found = []
    for is_damaged in (False, True):
        with closing(make_learner(scenario=LATE)) as learner:
            rollout, noise = learner._roll(learner._config.n_steps)
            absent = ~rollout.took_part
            assert 0 < absent.sum() < absent.size / 2
            if is_damaged:
                for array in (rollout.observations[:-1], rollout.actions, rollout.rewards, noise):
                    array[absent] = np.nan
            update(learner, rollout, noise)
            found.append(state(learner))
            before = state(learner)
            assert not update(learner, rollout._replace(took_part=np.zeros_like(absent)), noise)
            assert all(torch.equal(before[name], value) for name, value in state(learner).items())
    assert all(torch.equal(found[0][name], value) for name, value in found[1].items())
    assert all(value.isfinite().all() for value in found[0].values())


def test_the_reward_of_a_team_is_the_mean_of_those_who_take_part() -> None:
    with closing(make_learner(scenario=LATE)) as team:
        rollout, _ = team._roll(team._config.n_steps)
        rewards = team._rewards(rollout).reshape(-1, 2, 2)
    own, took_part = rollout.rewards.reshape(-1, 2, 2), rollout.took_part.reshape(-1, 2, 2)
    np.testing.assert_array_equal(rewards[..., 0], rewards[..., 1])
    is_alone = ~took_part[..., 1]
    np.testing.assert_array_equal(rewards[is_alone][:, 0], own[is_alone][:, 0])
    np.testing.assert_allclose(rewards[~is_alone][:, 0], own[~is_alone].mean(axis=1), rtol=1e-6)


def test_returns_by_hand() -> None:
    """Of the flow that leaves nothing follows, and what the time limit cuts off is worth what the critic expects."""
    gamma, trace = 0.9, 0.8
    leaving = SCENARIO | {"flows": [SCENARIO["flows"][0], SCENARIO["flows"][1] | {"stop_s": 0.35}]}
    with closing(make_learner(scenario=leaving, gamma=gamma, gae_lambda=trace, n_steps=12)) as learner:
        rollout, _ = learner._roll(learner._config.n_steps)
        rewards = learner._rewards(rollout)
        values, returns = learner._estimate(rollout, rewards)
        last = learner._evaluate(rollout.terminal_observations)
        after = learner._evaluate(rollout.observations[-1])
    assert rollout.dones[9].all()
    assert rollout.timeouts[9].all()
    for flow in (0, 1):
        took_part = rollout.took_part[:, flow]
        expected = np.zeros(13)
        for step in reversed(range(12)):
            is_end = step == 9 or (step < 11 and not took_part[step + 1])
            following = values[step + 1, flow] if step < 11 else after[flow]
            if step == 9:
                following = last[flow] if took_part[step] else 0.0
            elif is_end:
                following = 0.0
            delta = rewards[step, flow] + gamma * following - values[step, flow]
            expected[step] = delta + (0.0 if is_end else gamma * trace * expected[step + 1])
        found = (returns - values)[:, flow]
        np.testing.assert_allclose(found[took_part], expected[:-1][took_part], atol=1e-5)
    assert rollout.took_part[:, 1].sum() < 10


def test_it_stops_where_the_policy_has_moved_far(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = {}
    for target in (None, 1e-6):
        with closing(make_learner(target_kl=target, n_epochs=5)) as learner:
            batches[target] = update(learner, *learner._roll(learner._config.n_steps))["train/batches"]
    assert batches[None] == 5 * 2
    assert batches[1e-6] == 2


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_an_exported_agent_acts_like_the_actor(activation: str) -> None:
    torch.manual_seed(1)
    with closing(make_learner(activation_fn=activation)) as learner:
        with torch.no_grad():
            for parameter in learner._actor.parameters():
                parameter.mul_(3.0).add_(0.1 * torch.randn_like(parameter))
        agent = learner.agent()
        observations = np.random.default_rng(1).uniform(-2, 2, (80, agent.network.inputs)).astype(np.float32)
        expected = learner._act(observations).clip(-1.0, 1.0)
    assert isinstance(agent, Agent)
    assert np.std(expected) > 0.05
    np.testing.assert_allclose(agent.predict(observations), expected, atol=1e-5)


def test_a_killed_and_resumed_training_logs_the_same(tmp_path: Path) -> None:
    through, stopped = tmp_path / "through", tmp_path / "stopped"
    learn(through, engine={"name": "native"})
    learn_until_killed(stopped, engine={"name": "native"})
    assert resume(stopped, console=quiet()).is_complete
    assert logged(through) == logged(stopped)
    assert same(weights(through), weights(stopped))


# What standardises inputs is measured before learning (agents/inputs.py).

DRAWN: dict[str, Any] = {
    "duration_s": {"uniform": [1.0, 2.0]},
    "flows": [{"algorithm": "agent"}, {"algorithm": "agent", "start_s": 0.5}],
}


def measured(engine: str, **options: Any) -> np.ndarray[Any, Any]:
    spec = EpisodeSpec(DRAWN, engine=engine, engine_options=options)
    return np.stack(measure_inputs(spec, [np.random.default_rng(seed) for seed in range(3)]))


def test_an_engine_without_rollouts_measures_the_same() -> None:
    mean, scale = measured("fake")
    np.testing.assert_array_equal([mean, scale], measured("native"))
    assert np.isfinite(mean).all()
    assert (scale != 1.0).sum() > len(scale) / 2


def test_what_follows_a_failure_does_not_count() -> None:
    assert np.isfinite(measured("fake", fail_at_step=5)).all()
    with pytest.raises(EngineError, match="fails in step 1, as it was told to"):
        measured("fake", fail_at_step=1)
