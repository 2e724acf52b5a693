"""Learners that imitate a teacher first: actor, critic, replay buffer, and resuming."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from gymnasium import spaces
from stable_baselines3.common.logger import Logger
from torch.nn.utils import parameters_to_vector
from training import AGENTS, SCENARIO, changed, learn, learn_until_killed, logged, quiet, same, weights

from bbrgym.agents import imitation
from bbrgym.agents.config import GRADIENT_ALGORITHMS
from bbrgym.agents.imitation import Demonstrations, demonstrate, imitate, prepare
from bbrgym.agents.learner import make_model
from bbrgym.agents.scripted import BacklogRule
from bbrgym.agents.train import resume
from bbrgym.agents.wrappers import ScaleReward, StandardiseObservation
from bbrgym.envs.episode import EpisodeSpec
from bbrgym.envs.sb3_env import SharedPolicyVecEnv

OFF_POLICY = [name for name in GRADIENT_ALGORITHMS if "ppo" not in name]
ENTROPIC = ["sac", "tqc", "crossq"]
WITH_TEACHER: dict[str, Any] = {"teacher": "backlog", "prepare_steps": 200}

pytestmark = pytest.mark.usefixtures("no_figures")


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)  # more is slower for networks of this size


def make(algorithm: str, width: int = 32, **arguments: Any) -> tuple[Any, EpisodeSpec]:
    """Return a learner in eight engines with two flows each, and its environment."""
    scenario = SCENARIO | {"rate_mbps": {"log_uniform": [4, 16]}, "duration_s": 3}
    agent = AGENTS[algorithm] | {"gamma": 0.8, "batch_size": 512} | arguments
    # Bounds in which the teacher's actions differ much from path to path.
    action = {"cwnd_gain": [0.25, 4.0], "pacing_gain": [0.75, 1.75], "cwnd_scale": "ratio"}
    config = changed(scenario=scenario, agent=agent, action=action)
    config["agent"]["policy_kwargs"] |= {"net_arch": [width]}
    if algorithm == "recurrent_ppo":
        config["agent"]["policy_kwargs"] |= {"lstm_hidden_size": width}
    spec = EpisodeSpec.from_config(config)
    model = make_model(config["agent"], SharedPolicyVecEnv(spec, 8), seed=1)
    model.set_logger(Logger(folder=None, output_formats=[]))
    return model, spec


def actions_of(model: Any, shown: Demonstrations) -> Any:
    """Return a learner's actions for the teacher's observations, with its memory; shape (t, n, 2)."""
    actions, state = [], None
    starts = np.ones(shown.dones.shape[1], dtype=bool)
    for seen, dones in zip(shown.observations, shown.dones, strict=True):
        action, state = model.predict(
            StandardiseObservation.of(model).standardise(seen), state, starts, deterministic=True
        )
        actions.append(action)
        starts = dones
    return np.array(actions)


def estimates(model: Any, shown: Demonstrations, steps: int) -> Any:
    """Return the critic's values of the first steps; shape (steps, n)."""
    seen = torch.as_tensor(StandardiseObservation.of(model).standardise(shown.observations[:steps]))
    with torch.no_grad():
        if hasattr(model, "replay_buffer"):
            values = model.critic(seen.flatten(0, 1), torch.as_tensor(shown.noisy_actions[:steps]).flatten(0, 1))
            whole = values.flatten(1) if isinstance(values, torch.Tensor) else torch.cat(values, dim=1)
            return whole.mean(dim=1).reshape(seen.shape[:2]).numpy()
        if not hasattr(model, "_last_lstm_states"):
            return model.policy.predict_values(seen.flatten(0, 1)).reshape(seen.shape[:2]).numpy()
        starts = torch.ones(seen.shape[:2])
        starts[1:] = torch.as_tensor(shown.dones[: steps - 1])
        whole = model.policy.predict_values(
            seen.transpose(0, 1).flatten(0, 1), model._last_lstm_states.vf, starts.transpose(0, 1).flatten()
        )
        return whole.reshape(seen.shape[1], steps).numpy().T


@pytest.mark.parametrize("algorithm", GRADIENT_ALGORITHMS)
def test_actor_and_critic_are_fitted_to_the_teacher(algorithm: str) -> None:
    # With more, the values of SAC and its kin include entropy.
    model, spec = make(algorithm, **({"ent_coef": 0.001} if algorithm in ENTROPIC else {}))
    inputs = StandardiseObservation.of(model)
    rule = BacklogRule(spec.observation, spec.action, backlog_packets=12)
    # The means of CrossQ's batch normalisation follow slowly.
    prepare(model, rule, {"recurrent_ppo": 3000, "crossq": 24000}.get(algorithm, 12000), seed=1)
    # Episodes that were not part of the demonstrations.
    shown = demonstrate(inputs.venv, lambda seen: rule.forward(seen[:, : rule.inputs]), 1600, np.random.default_rng(2))
    untrained, _ = make(algorithm)
    StandardiseObservation.of(untrained).fit(shown.observations.reshape(-1, rule.inputs))
    errors = [np.sqrt(np.mean((actions_of(each, shown) - shown.actions) ** 2)) for each in (model, untrained)]
    assert errors[0] < 0.07
    assert errors[1] > 0.2
    returns = shown.returns(0.8) * (1.0 if algorithm in OFF_POLICY else ScaleReward.of(model).scale)
    missed = [np.mean((estimates(each, shown, len(returns)) - returns) ** 2) for each in (model, untrained)]
    assert missed[0] < 0.75 * np.var(returns)
    assert missed[1] > np.var(returns)


@pytest.mark.parametrize("algorithm", OFF_POLICY)
def test_the_replay_buffer_equals_what_the_learner_would_store(algorithm: str) -> None:
    model, spec = make(algorithm)
    rule = BacklogRule(spec.observation, spec.action)
    prepare(model, rule, 800, seed=4)
    mine = model.replay_buffer
    assert (mine.pos, mine.full) == (800, False)
    other, _ = make(algorithm)
    inputs = StandardiseObservation.of(other)
    inputs.mean, inputs.scale = StandardiseObservation.of(model).mean, StandardiseObservation.of(model).scale
    env = other.get_env()
    env.seed(int(np.random.default_rng(4).integers(2**31)))
    other._last_obs = env.reset()
    for actions in mine.actions[:800].reshape(50, 16, 2):
        other._store_transition(other.replay_buffer, actions, *env.step(actions))
    for name in ("observations", "next_observations", "actions", "rewards", "dones", "timeouts"):
        np.testing.assert_array_equal(getattr(mine, name), getattr(other.replay_buffer, name), err_msg=name)
    assert mine.dones.sum() == mine.timeouts.sum() == 16  # an episode has 30 steps
    # The executed actions differ from the teacher's by noise.
    seen = mine.observations[:800, 0] / inputs.scale + inputs.mean
    assert 0.05 < np.std(mine.actions[:800, 0] - rule.forward(seen)) < 0.3


@pytest.mark.parametrize("algorithm", OFF_POLICY)
def test_a_small_replay_buffer_keeps_the_last_steps(algorithm: str) -> None:
    small, spec = make(algorithm, buffer_size=320)
    whole, _ = make(algorithm)
    for model in (small, whole):
        prepare(model, BacklogRule(spec.observation, spec.action), 800, seed=4)
    assert (small.replay_buffer.pos, small.replay_buffer.full) == (160, True)
    kept = np.roll(small.replay_buffer.rewards, -160, axis=0)
    np.testing.assert_array_equal(kept, whole.replay_buffer.rewards[480:800])


@pytest.mark.parametrize("algorithm", OFF_POLICY)
def test_critics_are_trained_with_the_actor_frozen(monkeypatch: pytest.MonkeyPatch, algorithm: str) -> None:
    model, spec = make(algorithm)
    networks = [name for name in ("actor", "critic", "critic_target", "actor_target") if hasattr(model, name)]
    found: list[dict[str, Any]] = []

    def note() -> None:
        arrays = {name: [*getattr(model, name).parameters(), *getattr(model, name).buffers()] for name in networks}
        found.append({name: parameters_to_vector(tensors).tolist() for name, tensors in arrays.items()})

    train_critics = imitation.train_critics
    monkeypatch.setattr(imitation, "train_critics", lambda *given: (note(), train_critics(*given), note()))
    prepare(model, BacklogRule(spec.observation, spec.action), 200, seed=1)
    before, after = found

    assert before["critic"] == before.get("critic_target", before["critic"])
    assert before["critic"] != after["critic"]
    if algorithm != "crossq":  # which has no targets
        assert before["critic_target"] != after["critic_target"]
    assert before["actor"] == after["actor"] == before.get("actor_target", before["actor"])
    assert all(parameter.requires_grad for parameter in model.actor.parameters())


@pytest.mark.parametrize("algorithm", ENTROPIC)
def test_it_starts_at_its_target_entropy(algorithm: str) -> None:
    model, spec = make(algorithm, target_entropy=-5.0)
    prepare(model, BacklogRule(spec.observation, spec.action), 800, seed=1)
    seen = torch.zeros(2000, spec.observation.space.shape[0])
    with torch.no_grad():
        _, log_prob = model.actor.action_log_prob(seen)
        narrowed = torch.log(1.0 - model.actor(seen, deterministic=True) ** 2).sum(dim=1).mean()
    assert -log_prob.mean() - narrowed == pytest.approx(-5.0, abs=0.1)


def test_a_recurrent_learner_learns_to_remember(monkeypatch: pytest.MonkeyPatch) -> None:
    """The teacher repeats its observation of two steps before, and marks the start of an episode."""
    monkeypatch.setattr(imitation, "_LEARNING_RATE", 0.01)  # so that half as many steps are enough
    model, spec = make("recurrent_ppo")
    rng = np.random.default_rng(1)
    steps = 250
    observations = rng.uniform(-1, 1, (steps, 16, spec.observation.space.shape[0])).astype(np.float32)
    dones = rng.uniform(size=(steps, 16)) < 0.03
    starts = np.concatenate([np.ones((1, 16), dtype=bool), dones[:-1]])
    actions = np.zeros((steps, 16, 2), np.float32)
    actions[2:, :, 0] = np.where(starts[2:] | starts[1:-1], 0.0, observations[:-2, :, 0])
    actions[:, :, 1] = starts
    nothing = np.zeros((steps, 16), np.float32)
    shown = Demonstrations(observations, observations, actions, actions, nothing, dones, dones, dones, dones)
    imitate(model, shown, nothing, rng)
    errors = actions_of(model, shown) - actions
    assert np.std(actions[:, :, 0]) > 0.5
    assert np.sqrt(np.mean(errors[:, :, 0] ** 2)) < 0.25
    assert np.sqrt(np.mean(errors[starts] ** 2)) < 0.25


@pytest.mark.parametrize("algorithm", OFF_POLICY)
def test_with_a_teacher_no_action_is_drawn_at_random(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    monkeypatch.setattr(spaces.Box, "sample", Mock(side_effect=AssertionError("drawn at random")))
    agent = AGENTS[algorithm]
    with pytest.raises(AssertionError, match="drawn at random"):
        learn(tmp_path / "without", {"total_steps": 64}, agent=agent)
    learn(tmp_path / "with", WITH_TEACHER | {"total_steps": 64}, agent=agent)


@pytest.mark.parametrize("algorithm", ["ppo", "sac"])  # without and with a replay buffer
def test_a_killed_training_is_not_prepared_again(tmp_path: Path, algorithm: str) -> None:
    through, stopped = tmp_path / "through", tmp_path / "stopped"
    learn(through, WITH_TEACHER, agent=AGENTS[algorithm])
    learn_until_killed(stopped, WITH_TEACHER, agent=AGENTS[algorithm])
    resume(stopped, console=quiet())
    assert logged(through) == logged(stopped)
    assert same(weights(through), weights(stopped))
