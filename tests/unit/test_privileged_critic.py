"""A critic that sees more than its actor: in training only, and nothing of it in what is exported."""

from __future__ import annotations

import functools
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bbrgym.agents.actor import export_agent
from bbrgym.agents.learner import make_model
from bbrgym.agents.policy import load_agent
from bbrgym.agents.train import TrainConfig, resume, train
from bbrgym.agents.wrappers import StandardiseObservation
from bbrgym.envs.distribution import Distribution
from bbrgym.envs.episode import EpisodeSpec
from bbrgym.envs.observation import Observation
from bbrgym.envs.privileged import PRIVILEGED, Privileged
from bbrgym.envs.sb3_env import SharedPolicyVecEnv
from bbrgym.envs.scenario import HEADER_BYTES, Flow, Scenario

PAIR = Scenario(
    duration_s=2.0,
    flows=(Flow("agent", rtt_ms=10.0), Flow("bbr", start_s=0.5), Flow("agent", rtt_ms=50.0, start_s=1.0)),
)
DRAWN = Distribution.from_dict(
    {
        "rate_mbps": {"log_uniform": [6, 24]},
        "duration_s": {"uniform": [0.5, 1.5]},
        "flows": [{"algorithm": "agent"}, {"algorithm": "agent", "start_s": 0.3}],
    }
)
ALL = tuple(PRIVILEGED)
SMALL: dict[str, dict[str, Any]] = {
    "ppo": {"n_steps": 20, "batch_size": 40, "n_epochs": 1, "policy_kwargs": {"net_arch": {"pi": [8], "vf": [8]}}},
    "sac": {"learning_starts": 20, "batch_size": 16, "policy_kwargs": {"net_arch": {"pi": [8], "qf": [8]}}},
}
SMALL |= dict.fromkeys(("tqc", "crossq", "td3"), SMALL["sac"])


@pytest.mark.parametrize("engine", ["fake", "native"])
@pytest.mark.parametrize("scenario", [PAIR, DRAWN], ids=["pair", "distribution"])
def test_they_stand_behind_what_the_actor_sees(scenario: Any, engine: Any) -> None:
    """Terminal observations too; the actor's part and everything else is as without them."""
    spec = EpisodeSpec(scenario, observation=Observation(history=2), engine=engine)
    plain, more = SharedPolicyVecEnv(spec, 2), SharedPolicyVecEnv(spec, 2, ALL, has_infos=True)
    own = spec.observation.space.shape[0]
    assert more.observation_space.shape == (own + len(ALL),)
    plain.seed(3)
    more.seed(3)
    seen = more.reset()
    np.testing.assert_array_equal(seen[:, :own], plain.reset())
    assert (seen[:, own + ALL.index("link_queue")] == 0.0).all()
    rng = np.random.default_rng(1)
    ends = 0
    for _ in range(60):
        actions = rng.uniform(-1, 1, (4, 2)).astype(np.float32)
        seen, rewards, dones, infos = more.step(actions)
        others = plain.step(actions)
        np.testing.assert_array_equal(seen[:, :own], others[0])
        np.testing.assert_array_equal(rewards, others[1])
        np.testing.assert_array_equal(dones, others[2])
        for row in range(4):
            last = infos[row]["terminal_observation"] if dones[row] else seen[row]
            assert last in more.observation_space
            facts = dict(zip(ALL, last[own:].tolist(), strict=True))
            info, drawn = infos[row], more.record.scenarios[row // 2]
            of_engine = infos[row // 2 * 2 : row // 2 * 2 + 2]
            assert facts["log_link_rate"] == pytest.approx(np.log10(drawn.rate_mbps), abs=1e-4)
            assert facts["utilisation"] == pytest.approx(info["link_utilisation"], abs=1e-6)
            longest_ms = max(flow.rtt_ms for flow in drawn.flows)
            assert facts["link_queue"] == pytest.approx(min(10.0, info["link_queue_mean_ms"] / longest_ms), rel=1e-5)
            assert facts["log_longest_rtt"] == pytest.approx(np.log10(longest_ms))
            assert facts["log_base_rtt"] == pytest.approx(np.log10(drawn.flows[info["flow_index"]].rtt_ms))
            assert facts["is_active"] == pytest.approx(info["is_active"])
            if len(drawn.flows) == 2:
                active = sum(
                    flow["is_active"] + flow["sent_packets"] + flow["delivered_packets"] > 0 for flow in of_engine
                )
                assert facts["log_flows"] == pytest.approx(np.log2(active))
                payload = drawn.packet_bytes / (drawn.packet_bytes + HEADER_BYTES)
                share = info["delivery_rate_mbps"] / (info["link_rate_mbps"] * payload / active)
                assert facts["log_share"] == pytest.approx(np.clip(np.log2(max(share, 1e-9)), -5, 5), abs=1e-4)
            if dones[row]:
                np.testing.assert_array_equal(last[:own], others[3][row]["terminal_observation"])
                ends += 1
    assert ends > 3


@pytest.mark.parametrize("algorithm", sorted(SMALL))
class TestLearners:
    def model(self, algorithm: str, features: tuple[str, ...] = ALL, steps: int = 60) -> Any:
        env = SharedPolicyVecEnv(EpisodeSpec(PAIR, engine="fake"), 1, features)
        return make_model({"algorithm": algorithm, "device": "cpu", **SMALL[algorithm]}, env, seed=1).learn(steps)

    def test_the_critic_sees_them_and_the_actor_does_not(self, algorithm: str) -> None:
        model = self.model(algorithm)
        own = Observation().space.shape[0]
        act = functools.partial(model.predict, deterministic=True)
        seen = np.random.default_rng(1).normal(size=(5, own + len(ALL))).astype(np.float32)
        other = seen.copy()
        other[:, own:] += 1.0
        np.testing.assert_array_equal(act(seen)[0], act(other)[0])

        def values(observations: Any) -> Any:
            x = torch.as_tensor(observations)
            with torch.no_grad():
                if algorithm == "ppo":
                    return model.policy.predict_values(x).numpy()
                return model.critic(x, torch.zeros(5, 2))[0].numpy()

        assert (values(seen) != values(other)).all()
        for column in range(own):  # nor did the actor lose one of its own
            changed = seen.copy()
            changed[:, column] += 1.0
            assert not np.array_equal(act(seen)[0], act(changed)[0])

    def test_the_exported_agent_has_nothing_of_them(self, algorithm: str) -> None:
        model = self.model(algorithm)
        own = Observation().space.shape[0]
        rng = np.random.default_rng(1)
        inputs = StandardiseObservation.of(model)
        seen = rng.uniform(0, 1, (200, own + len(ALL))).astype(np.float32)
        inputs.fit(seen)
        agent = export_agent(model, algorithm, EpisodeSpec(PAIR, engine="fake"), {})
        assert agent.network.inputs == own
        np.testing.assert_allclose(
            agent.predict(seen[:, :own]), model.predict(inputs.standardise(seen), deterministic=True)[0], atol=1e-5
        )

    def test_without_them_nothing_changes(self, algorithm: str) -> None:
        model = self.model(algorithm, (), steps=0)
        assert type(model.policy).__module__.startswith(("stable_baselines3.", "sb3_contrib."))

    def test_two_trainings_are_equal(self, algorithm: str) -> None:
        one, other = (self.model(algorithm).policy.parameters() for _ in range(2))
        assert all(torch.equal(mine, yours) for mine, yours in zip(one, other, strict=True))


@pytest.mark.usefixtures("no_figures")
@pytest.mark.parametrize("algorithm", sorted(SMALL))
def test_a_training_with_a_teacher_and_its_resumption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    config: dict[str, Any] = {
        "scenario": PAIR.to_dict(),
        "engine": {"name": "fake"},
        "agent": {"algorithm": algorithm, "device": "cpu", **SMALL[algorithm]},
        "train": {"total_steps": 80, "n_envs": 1, "eval_every": 40, "eval_episodes": 1, "checkpoint_every": 40}
        | {"teacher": "backlog", "prepare_steps": 100, "critic_features": ["log_flows", "link_queue"]},
        "tracking": {"backend": "none"},
        "seed": 1,
    }
    train(config, tmp_path / "run")
    resume(tmp_path / "run", {"train.total_steps": 160})
    agent = load_agent(tmp_path / "run")
    spec = EpisodeSpec.from_config(config)
    assert agent.network.inputs == spec.observation.space.shape[0]
    with closing(SharedPolicyVecEnv(spec, 1)) as env:  # as anybody without the privilege
        assert agent.predict(env.reset()).shape == (2, 2)


def test_what_cannot_be() -> None:
    with pytest.raises(ValueError, match=r"unknown critic feature 'fair_share' .*; known: log_link_rate, "):
        TrainConfig(critic_features=("fair_share",))
    with pytest.raises(ValueError, match="at least one name and none twice"):
        Privileged(("log_flows", "log_flows"))
    with pytest.raises(ValueError, match="unknown critic feature 'x'"):
        SharedPolicyVecEnv(EpisodeSpec(PAIR, engine="fake"), 1, ("x",))
    env = SharedPolicyVecEnv(EpisodeSpec(PAIR, engine="fake"), 1, ALL)
    with pytest.raises(
        ValueError, match=r"train\.critic_features needs an agent of ppo, sac, tqc, crossq, td3, got 'recurrent_ppo'"
    ):
        make_model({"algorithm": "recurrent_ppo", "device": "cpu"}, env, seed=1)
