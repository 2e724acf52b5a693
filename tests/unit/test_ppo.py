"""Proximal policy optimisation (agents/ppo.py), with tiny networks. tests/unit/test_train.py has a learning canary."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from policies import make_agent, networks
from training import PPO as SMALL
from training import SCENARIO, learn, learn_until_killed, logged, quiet, same, weights

from bbrgym.agents.c_header import write_c_header
from bbrgym.agents.checkpoint import TrainingState
from bbrgym.agents.config import PPOConfig
from bbrgym.agents.decisions import SegmentDecisions, Segments
from bbrgym.agents.export import write_onnx
from bbrgym.agents.importers import import_model
from bbrgym.agents.inputs import measure_inputs
from bbrgym.agents.policy import Agent, load_agent
from bbrgym.agents.ppo import NOISE_CORRELATION, PPO
from bbrgym.agents.torch_network import TorchNetwork, policy_with_memory
from bbrgym.agents.train import resume
from bbrgym.baselines.policy_file import Network
from bbrgym.envs.engine import EngineError
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.envs.observation import Observation
from bbrgym.envs.rollouts import Rollout

pytestmark = pytest.mark.usefixtures("no_figures")

LATE: dict[str, Any] = SCENARIO | {"flows": [SCENARIO["flows"][0], SCENARIO["flows"][1] | {"start_s": 0.25}]}

LEAVING: dict[str, Any] = SCENARIO | {"flows": [SCENARIO["flows"][0], SCENARIO["flows"][1] | {"stop_s": 0.35}]}
LEAVING_LATER: dict[str, Any] = SCENARIO | {"flows": [SCENARIO["flows"][0], SCENARIO["flows"][1] | {"stop_s": 0.45}]}
DRAWN_PAIR: dict[str, Any] = LATE | {"duration_s": {"uniform": [0.5, 1.2]}}
"""Episodes of different lengths, and a flow that comes late: segments begin and end at different steps."""
MEMORY: dict[str, Any] = {"units": 5, "has_skip": True}


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


@pytest.mark.parametrize("changes", [{}, MEMORY])
def test_an_engine_without_rollouts_gives_the_same(changes: dict[str, Any]) -> None:
    found = []
    for engine in ("native", "fake"):
        with closing(make_learner(engine, LATE, **changes)) as learner:
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


@pytest.mark.parametrize(("scenario", "changes"), [(LATE, {}), (LEAVING_LATER, {}), (LEAVING_LATER, MEMORY)])
def test_only_steps_count_in_which_a_flow_took_part(scenario: dict[str, Any], changes: dict[str, Any]) -> None:
    """A memory also counts what a flow sees before it begins, but nothing after it has left."""
    found = []
    for is_damaged in (False, True):
        with closing(make_learner(scenario=scenario, **changes)) as learner:
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
    with closing(make_learner(scenario=LEAVING, gamma=gamma, gae_lambda=trace, n_steps=12)) as learner:
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


@pytest.mark.parametrize("changes", [{}, MEMORY])
def test_a_failure_cuts_off_what_the_critic_expects(changes: dict[str, Any]) -> None:
    with closing(make_learner(**changes)) as learner:
        rollout, _ = learner._roll(learner._config.n_steps)
        flow, step = 0, 4
        assert rollout.took_part[:6, flow].all()
        assert not rollout.dones[:6, flow].any()
        values, _ = learner._estimate(rollout, learner._rewards(rollout))
        failed = np.zeros_like(rollout.dones)
        failed[step, flow] = True
        cut = rollout._replace(
            took_part=rollout.took_part & ~failed,
            dones=rollout.dones | failed,
            timeouts=rollout.timeouts | failed,
            terminal_observations=np.insert(rollout.terminal_observations, 0, rollout.observations[step, flow], axis=0),
            errors=("it failed",),
            failed=failed,
        )
        learner._critic_states[:] = 0.0
        following = (learner._recall if learner._has_memory else learner._look)(cut)[1]
    assert values[step, flow] != 0.0
    assert following[step - 1, flow] == pytest.approx(values[step, flow], abs=1e-5)


def test_it_stops_where_the_policy_has_moved_far(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = {}
    for target in (None, 1e-6):
        with closing(make_learner(target_kl=target, n_epochs=5)) as learner:
            batches[target] = update(learner, *learner._roll(learner._config.n_steps))["train/batches"]
    assert batches[None] == 5 * 2
    assert batches[1e-6] == 2


def awake(learner: PPO) -> PPO:
    """Return a learner whose networks do something with what they see and remember."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in (*learner._actor.parameters(), *learner._critic.parameters()):
            parameter.add_(0.2 * torch.randn_like(parameter))
    return learner


def first_ratio(learner: PPO) -> tuple[Rollout, np.ndarray[Any, Any]]:
    """Return a rollout, and how much more probable each decision is in the network that learns."""
    rollout, noise = learner._roll(learner._config.n_steps)
    decisions, _ = learner._decisions(rollout)
    parts = torch.arange(len(decisions))
    means = decisions.outputs(learner._actor, parts).detach().numpy()
    assert means.std() > 0.05
    actions, before = (decisions.pick(decisions.of(values), parts).numpy() for values in (rollout.actions, noise))
    deviations = (actions - means) / learner._config.std
    return rollout, np.exp((before**2 - deviations**2).sum(axis=1) / 2)


@pytest.mark.parametrize("engine", ["native", "fake"])
@pytest.mark.parametrize("changes", [{}, MEMORY, {"has_skip": True}])
def test_before_the_first_gradient_step_the_ratio_is_one(engine: str, changes: dict[str, Any]) -> None:
    """So the network that learns has what the engine's has in every step of several rollouts: the same memory."""
    with closing(awake(make_learner(engine, DRAWN_PAIR, **changes))) as learner:
        ends = 0
        for _ in range(3):
            rollout, ratio = first_ratio(learner)
            ends += int(rollout.dones.sum())
            assert len(ratio) == rollout.took_part.sum()
            np.testing.assert_allclose(ratio, 1.0, atol=2e-3)
        assert ends > 8


def test_values_of_a_critic_with_memory_are_those_of_each_flow_from_the_start_of_its_episode() -> None:
    """Step by step, through the ends of rollouts and episodes."""
    gamma = 0.9
    with closing(awake(make_learner(scenario=DRAWN_PAIR, gamma=gamma, gae_lambda=0.0, **MEMORY))) as learner:
        critic = learner._critic
        states = torch.zeros(4, critic.state_size)

        @torch.no_grad()
        def value(observations: Any, states: torch.Tensor) -> tuple[Any, torch.Tensor]:
            seen = torch.as_tensor(learner._standardise(observations))
            outputs, after = critic.run(seen[:, None], states)
            return outputs[:, 0, 0].numpy(), after

        ends = 0
        for _ in range(3):
            rollout, _ = learner._roll(learner._config.n_steps)
            rewards = learner._rewards(rollout)
            values, returns = learner._estimate(rollout, rewards)
            terminal = np.zeros_like(rollout.observations[:-1])
            terminal[rollout.dones] = rollout.terminal_observations
            for step, took_part in enumerate(rollout.took_part):
                expected, states = value(rollout.observations[step], states)
                np.testing.assert_allclose(values[step][took_part], expected[took_part], atol=1e-5)
                dones = rollout.dones[step]
                after, _ = value(np.where(dones[:, None], terminal[step], rollout.observations[step + 1]), states)
                np.testing.assert_allclose(
                    returns[step][took_part], (rewards[step] + gamma * after)[took_part], atol=1e-5
                )
                states[torch.as_tensor(dones)] = 0.0
                ends += int(dones.sum())
            np.testing.assert_allclose(learner._critic_states, states, atol=1e-5)
        assert ends > 8


def test_gradients_reach_through_a_segment_and_no_further() -> None:
    dones = np.zeros((6, 2), np.bool_)
    dones[3, 0] = True
    segments = Segments.of(dones)
    assert segments.flows.tolist() == [0, 0, 1]
    assert segments.begins.tolist() == [0, 4, 0]
    assert segments.lengths.tolist() == [4, 2, 6]
    assert segments.lasts.tolist() == [3, 5, 5]
    took_part = np.array([[1, 0], [1, 1], [0, 1], [0, 0], [0, 1], [0, 0]], np.bool_)
    rng = np.random.default_rng(1)
    observations, states = (rng.normal(0, 1, shape).astype(np.float32) for shape in ((6, 2, 3), (2, 8)))
    network = TorchNetwork(3, 2, lstm=(4,))
    decisions = SegmentDecisions(observations, took_part, segments, states)
    assert len(decisions) == 2  # the second segment has no decision
    parts = torch.tensor([1, 0])
    assert decisions.pick(decisions.of(np.arange(12).reshape(6, 2)), parts).tolist() == [3, 5, 9, 0, 2]
    outputs = decisions.outputs(network, parts)
    for flow, steps in ((1, [1, 2, 4]), (0, [0, 1])):
        seen = torch.as_tensor(observations[None, :, flow])
        alone = network(seen, torch.as_tensor(states[flow : flow + 1]))[0, steps]
        torch.testing.assert_close(outputs[:3] if flow else outputs[3:], alone)
    decisions._observations.requires_grad_()
    decisions.outputs(network, parts)[2].sum().backward()
    assert decisions._observations.grad is not None
    reached = decisions._observations.grad.abs().sum(dim=2) > 0
    assert reached.tolist() == [[False] * 5, [True] * 5]


@pytest.mark.parametrize("name", networks())
def test_a_network_in_torch_acts_as_the_policy(name: str) -> None:
    agent = networks()[name]
    assert isinstance(agent.network, Network)
    network = TorchNetwork.of(agent.network)
    arrays = network.network(agent.network.output)
    assert same(arrays.to_arrays(), agent.network.to_arrays())
    assert arrays.kind == agent.network.kind
    seen = np.random.default_rng(1).normal(0, 0.5, (12, 3, agent.network.inputs)).astype(np.float32)
    bound = torch.tanh if agent.network.output == "tanh" else lambda values: values.clamp(-1.0, 1.0)
    states = torch.zeros(3, network.state_size)
    for observations in seen:
        outputs, states = network.run(torch.as_tensor(observations)[:, None], states)
        expected = agent.predict(observations)
        np.testing.assert_allclose(bound(outputs[:, 0]).detach().numpy(), expected, atol=1e-4)


BEGINNINGS: dict[str, dict[str, Any]] = {
    "student": {"widths": (), "lstm": (4,), "has_skip": True},
    "two memories": {"widths": (3,), "lstm": (4, 3)},
    "linear": {"widths": ()},
    "squashed": {"widths": (6,), "activation": "relu", "output": "tanh"},
}


@pytest.mark.parametrize("engine", ["native", "fake"])
@pytest.mark.parametrize("name", BEGINNINGS)
def test_a_training_begins_with_a_policy(name: str, engine: str, tmp_path: Path) -> None:
    """What it does not observe counts nothing, and its actions with noise are those of the engine."""
    features = ["log_bdp", "log_backlog"]
    policy = make_agent(scale=0.3, observation={"features": features, "history": 2}, **BEGINNINGS[name])
    policy.save(tmp_path / "best")
    observation = Observation(("log_backlog", "log_min_rtt", "log_bdp"), 2)
    spec = EpisodeSpec(LATE, engine=engine, observation=observation, action=policy.spec.action)
    config = PPOConfig(**SMALL, has_skip=True, tunes=str(tmp_path))
    with closing(PPO(config, spec, 2, seed=3)) as learner:
        raw = learner.agent()
        callbacks = _Stop()
        learner.learn(1000, callbacks)  # type: ignore[arg-type]
        assert isinstance(callbacks.first, Agent)
        for first in (raw, callbacks.first):
            first.reset()
            policy.reset()
            seen = np.random.default_rng(2).uniform(-0.2, 0.2, (10, 4, 6)).astype(np.float32)
            for one in seen:
                np.testing.assert_allclose(first.predict(one), policy.predict(one[:, [2, 0, 5, 3]]), atol=1e-5)
        changed = learner.agent().stored.network
        _, ratio = first_ratio(learner)
    np.testing.assert_allclose(ratio, 1.0, atol=2e-3)
    assert not same(changed.to_arrays(), callbacks.first.stored.network.to_arrays())
    assert changed.skip is not None
    assert changed.skip.all()
    assert changed.kind == policy.network.kind


class _Stop:
    """Callbacks of a training of one rollout."""

    first: Agent | None = None

    def __init__(self) -> None:
        self.state = TrainingState()

    def on_training_start(self, learner: PPO) -> None:
        self.first = learner.agent()

    def on_rollout_start(self, learner: PPO) -> None: ...

    def on_training_end(self, learner: PPO) -> None: ...

    def log_metrics(self, metrics: dict[str, float], steps: int) -> None: ...

    def on_step(self, steps: int) -> bool:
        return False


def test_a_policy_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    policy = make_agent(lstm=(4,), observation={"features": ["log_backlog"]})
    policy.save(tmp_path / "policy")
    tunes = {"tunes": str(tmp_path / "policy")}
    for agent, changes, says in (
        (tunes, {}, "the policy observes log_backlog, which observation.features lacks"),
        (tunes | {"units": 32}, {"features": ["log_backlog"]}, "agent.units must be 0 or 4 .*, got 32"),
        ({"tunes": str(tmp_path / "nobody")}, {}, "no trained agent in '.*nobody'"),
    ):
        observation = {"observation": {"features": ["log_bdp"]} | changes}
        with pytest.raises((ValueError, FileNotFoundError), match=says):
            learn(tmp_path / "run", engine={"name": "native"}, agent=SMALL | agent, **observation)
    assert not (tmp_path / "run").exists()


def test_a_training_that_tunes_a_policy_is_resumed_with_the_same_one(tmp_path: Path) -> None:
    make_agent(lstm=(4,), widths=(), has_skip=True, scale=0.2).save(tmp_path / "best")
    agent = SMALL | {"tunes": str(tmp_path / "best")}
    learn(tmp_path / "through", engine={"name": "native"}, agent=agent)
    learn_until_killed(tmp_path / "run", engine={"name": "native"}, agent=agent)
    shutil.copytree(tmp_path / "run", tmp_path / "other")
    resume(tmp_path / "run", console=quiet())
    assert same(weights(tmp_path / "run"), weights(tmp_path / "through"))
    assert logged(tmp_path / "run") == logged(tmp_path / "through")
    make_agent(lstm=(4,), widths=(), has_skip=True, scale=0.2, seed=2).save(tmp_path / "best")
    with pytest.raises(ValueError, match=r"no checkpoint .* can be read"):
        resume(tmp_path / "other", console=quiet())


def test_a_policy_with_memory_is_exported(tmp_path: Path) -> None:
    """It can be read, tuned and written as a C header and as ONNX, and has the shape of a student of agent=distil."""
    learn(tmp_path / "run", engine={"name": "native"}, agent=SMALL | MEMORY)
    agent = load_agent(tmp_path / "run" / "final")
    arrays = agent.stored.network.to_arrays()
    student = policy_with_memory(agent.network.inputs, 5, has_skip=True).network().to_arrays()
    assert {name: array.shape for name, array in arrays.items()} == {
        name: array.shape for name, array in student.items()
    }
    write_onnx(agent.stored, tmp_path / "policy.onnx")
    write_c_header(agent.stored, tmp_path / "policy.h")
    assert "lstm" in (tmp_path / "policy.h").read_text(encoding="utf-8")
    read = import_model(tmp_path / "policy.onnx", agent.spec.to_config())
    assert same(read.stored.network.to_arrays(), arrays)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_an_exported_agent_acts_like_the_actor(activation: str) -> None:
    torch.manual_seed(1)
    with closing(make_learner(activation_fn=activation)) as learner:
        with torch.no_grad():
            for parameter in learner._actor.parameters():
                parameter.mul_(3.0).add_(0.1 * torch.randn_like(parameter))
        agent = learner.agent()
        observations = np.random.default_rng(1).uniform(-2, 2, (80, agent.network.inputs)).astype(np.float32)
        expected = learner._act(observations, np.zeros((80, 0), np.float32)).clip(-1.0, 1.0)
    assert isinstance(agent, Agent)
    assert np.std(expected) > 0.05
    np.testing.assert_allclose(agent.predict(observations), expected, atol=1e-5)


@pytest.mark.parametrize("changes", [{}, MEMORY])
def test_a_killed_and_resumed_training_logs_the_same(changes: dict[str, Any], tmp_path: Path) -> None:
    through, stopped = tmp_path / "through", tmp_path / "stopped"
    learn(through, engine={"name": "native"}, agent=SMALL | changes)
    learn_until_killed(stopped, engine={"name": "native"}, agent=SMALL | changes)
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
