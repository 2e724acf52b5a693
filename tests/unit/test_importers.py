"""Models of Stable-Baselines3, CleanRL and ONNX as agents: the same actions, and nothing in a file is executed."""

import dataclasses
import json
import re
import shutil
import struct
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import onnx
import onnxruntime  # type: ignore[import-untyped]
import pytest
import torch
from bomb import Bomb
from onnx import TensorProto, helper, numpy_helper
from pages import ROOT, commands
from policies import make_agent, networks
from sb3_contrib import ARS, TRPO, CrossQ, RecurrentPPO
from stable_baselines3 import A2C, DQN, PPO, SAC, TD3
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import FlattenExtractor as OfStableBaselines3
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack
from torch import nn

import bbrgym
from bbrgym import Flow, Scenario, simulate
from bbrgym.agents import importers
from bbrgym.agents.c_header import write_c_header
from bbrgym.agents.card import GIVEN, TRAINED_IN, facts
from bbrgym.agents.export import write_onnx
from bbrgym.agents.importers import import_model
from bbrgym.agents.importers.foreign import ForeignModel
from bbrgym.agents.importers.onnx_graph import OPERATORS
from bbrgym.agents.policy import Agent, load_agent
from bbrgym.baselines.policy_file import Network, StoredPolicy, read_policy
from bbrgym.cli import COMMANDS, main
from bbrgym.envs.distribution import Distribution
from bbrgym.envs.observation import Observation

SCENARIO = {"flows": [{"algorithm": "agent", "rtt_ms": 20}], "rate_mbps": 10, "duration_s": 1}
CONFIG: dict[str, Any] = {
    "scenario": SCENARIO,
    "engine": {"name": "native"},
    "observation": {"features": ["log_rtt_ratio", "loss_rate", "log_backlog"], "history": 2},
    "action": {"cwnd_gain": [0.5, 3.0], "pacing_gain": [0.8, 1.5], "cwnd_scale": "ratio"},
    "env": {"step_ms": 40.0, "step_rtts": None},
}
INPUTS = 6


def environment(config: Mapping[str, Any] = CONFIG) -> gym.Env[Any, Any]:
    spec = bbrgym.envs.EpisodeSpec.from_config(config)
    return gym.make("bbrgym/Bottleneck-v1", **spec.arguments())


def shake(module: nn.Module) -> None:
    """Draw weights of a size that a trained network has: new ones return almost 0."""
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in module.parameters():
            weight.copy_(torch.randn_like(weight) * 0.4)


def observations(count: int = 64) -> np.ndarray[Any, np.dtype[np.float32]]:
    space = bbrgym.envs.EpisodeSpec.from_config(CONFIG).observation.space
    return np.random.default_rng(3).uniform(space.low, space.high, (count, INPUTS)).astype(np.float32)


def run_episode(agent: Agent, folder: Path) -> None:
    """Run the stored agent as a controller, and from outside."""
    agent.save(folder)
    assert read_policy(folder).content_hash == agent.content_hash
    scenario = Scenario(rate_mbps=10, duration_s=1, flows=(Flow("policy", rtt_ms=20, policy=str(folder)),))
    assert simulate(scenario, "native", seed=1).rows["throughput_mbps"].max() > 1
    driven = dataclasses.replace(scenario, flows=(Flow("agent", rtt_ms=20),))
    trace = simulate(driven, "native", seed=1, step_ms=40.0, policy=load_agent(folder).policy(driven))
    assert trace.rows["throughput_mbps"].max() > 1


MODELS: dict[str, Callable[[gym.Env[Any, Any]], Any]] = {
    "ppo": lambda env: PPO("MlpPolicy", env, policy_kwargs={"net_arch": [16, 8]}),
    "ppo, relu, separate": lambda env: PPO(
        "MlpPolicy", env, policy_kwargs={"activation_fn": nn.ReLU, "net_arch": {"pi": [16], "vf": [4, 4]}}
    ),
    "ppo, one layer": lambda env: PPO("MlpPolicy", env, policy_kwargs={"net_arch": []}),
    "ppo, gSDE": lambda env: PPO("MlpPolicy", env, use_sde=True, policy_kwargs={"net_arch": [16, 8]}),
    "a2c": lambda env: A2C("MlpPolicy", env, policy_kwargs={"net_arch": [16, 8]}),
    "sac": lambda env: SAC("MlpPolicy", env, buffer_size=9, policy_kwargs={"net_arch": [16, 8]}),
    "sac, tanh": lambda env: SAC("MlpPolicy", env, buffer_size=9, policy_kwargs={"activation_fn": nn.Tanh}),
    "td3": lambda env: TD3("MlpPolicy", env, buffer_size=9, policy_kwargs={"net_arch": [16, 8]}),
    "ppo, trpo": lambda env: TRPO("MlpPolicy", env, policy_kwargs={"net_arch": [16, 8]}),
    "ars": lambda env: ARS("LinearPolicy", env),
    "ars, tanh, biases": lambda env: ARS("LinearPolicy", env, policy_kwargs={"with_bias": True, "squash_output": True}),
    "ars, hidden": lambda env: ARS("MlpPolicy", env, policy_kwargs={"net_arch": [16, 8]}),
    "ars, hidden, clipped": lambda env: ARS(
        "MlpPolicy", env, policy_kwargs={"net_arch": [16, 8], "with_bias": False, "squash_output": False}
    ),
    "ars, no hidden": lambda env: ARS("MlpPolicy", env, policy_kwargs={"net_arch": []}),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_stable_baselines3(name: str, tmp_path: Path) -> None:
    model = MODELS[name](environment())
    shake(model.policy)
    model.save(tmp_path / "model.zip")
    agent = import_model(tmp_path / "model.zip", CONFIG)
    seen = observations()
    np.testing.assert_allclose(agent.predict(seen), model.predict(seen, deterministic=True)[0], atol=2e-5)
    assert np.ptp(agent.predict(seen)) > 0.5
    assert agent.training["algorithm"] == name.split(",")[0].replace("a2c", "ppo")  # one policy
    assert str(agent.training["imported"]).startswith("Stable-Baselines3 2.")
    run_episode(agent, tmp_path / "agent")


def test_a_linear_model_acts_equally_to_the_last_bit(tmp_path: Path) -> None:
    """In numbers whose products and sums are exact, so that rounding hides nothing."""
    draw = np.random.default_rng(1)
    model = ARS("LinearPolicy", environment())
    with torch.no_grad():
        for weight in model.policy.parameters():
            weight.copy_(torch.from_numpy(draw.integers(-16, 17, weight.shape) / 32))
    model.save(tmp_path / "model.zip")
    seen = (np.round(observations() * 16) / 16).astype(np.float32)
    expected = model.predict(seen)[0]
    assert len(np.unique(expected)) > 20
    np.testing.assert_array_equal(import_model(tmp_path / "model.zip", CONFIG).predict(seen), expected)


@pytest.mark.parametrize(("layers", "use_sde"), [(1, False), (2, False), (1, True)])
def test_a_recurrent_model_of_sb3_contrib(layers: int, use_sde: bool, tmp_path: Path) -> None:
    arguments = {"lstm_hidden_size": 8, "n_lstm_layers": layers, "net_arch": [8]}
    model = RecurrentPPO("MlpLstmPolicy", environment(), use_sde=use_sde, policy_kwargs=arguments)
    shake(model.policy)
    model.save(tmp_path / "model.zip")
    agent = import_model(tmp_path / "model.zip", CONFIG)
    state = None
    for seen in observations(40).reshape(10, 4, INPUTS):
        expected, state = model.predict(seen, state, np.zeros(4, bool), deterministic=True)
        np.testing.assert_allclose(agent.predict(seen), expected, atol=2e-5)
    run_episode(agent, tmp_path / "agent")


class CustomPolicy(ActorCriticPolicy):
    """May compute anything."""


def untidy(**arguments: Any) -> Callable[[gym.Env[Any, Any]], Any]:
    return lambda env: PPO("MlpPolicy", env, policy_kwargs=arguments)


class FlattenExtractor(OfStableBaselines3):
    """Scales, with the name of the one that does not."""

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        return super().forward(seen) * 2


def observing(space: gym.Space[Any], **arguments: Any) -> Callable[[gym.Env[Any, Any]], Any]:
    policy = "MultiInputPolicy" if isinstance(space, gym.spaces.Dict) else "MlpPolicy"

    def make(env: gym.Env[Any, Any]) -> Any:
        return PPO(policy, gym.wrappers.TransformObservation(env, lambda _: space.sample(), space), **arguments)

    return make


def acting(space: gym.Space[Any]) -> Callable[[gym.Env[Any, Any]], Any]:
    return lambda env: PPO("MlpPolicy", gym.wrappers.TransformAction(env, lambda _: np.zeros(2), space))


BOX = gym.spaces.Box(-1, 1, (3,))
OTHER_FEATURES = {"features": ["log_queueing_delay", "loss_rate", "log_backlog"], "history": 2}
IMAGES = gym.spaces.Box(0, 255, (36, 36, 1), np.uint8)


def of_images(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    return gym.wrappers.TransformObservation(env, lambda _: IMAGES.sample(), IMAGES)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (untidy(activation_fn=nn.ELU), "ELU; Tanh and ReLU"),
        (lambda env: PPO(CustomPolicy, env), "policy class is of 'test_importers'"),
        (lambda env: PPO("MlpPolicy", gym.wrappers.RescaleAction(env, np.float32(0), np.float32(1))), "actions .* Box"),
        (lambda env: PPO("CnnPolicy", of_images(env)), r"features_extractor\.cnn"),
        (lambda env: SAC("MlpPolicy", env, buffer_size=9, use_sde=True), "gSDE"),
        (lambda env: PPO("MlpPolicy", environment({**CONFIG, "observation": {"history": 2}})), "takes 34 values"),
        (lambda env: DQN("MlpPolicy", "CartPole-v1", buffer_size=9), "no actor with continuous actions"),
        (lambda env: PPO("MlpPolicy", environment({**CONFIG, "observation": OTHER_FEATURES})), "that of log_rtt_ratio"),
        (observing(gym.spaces.Dict(b=BOX, a=BOX)), "observations must be a Box of 6 floats.*, got Dict"),
        (observing(gym.spaces.MultiBinary(INPUTS)), "observations must be a Box of 6 floats.*, got MultiBinary"),
        (observing(gym.spaces.MultiDiscrete([3, 3])), "observations must be a Box of 6 floats.*, got MultiDiscrete"),
        (observing(gym.spaces.Discrete(INPUTS)), "observations must be a Box of 6 floats.*, got Discrete"),
        (observing(gym.spaces.Box(-1, 1, (INPUTS,), np.int32)), "observations must be a Box of float32 .*, got int32"),
        (observing(gym.spaces.Box(-1, 1, (3, 2))), r"shape \(6,\) or \(history, features\) = \(2, 3\), got \(3, 2\)"),
        (observing(gym.spaces.Box(-np.inf, np.inf, (INPUTS,))), "no bounds, .*--statistics"),
        (acting(gym.spaces.MultiBinary(2)), "actions must be a Box of 2 floats.*, got MultiBinary"),
        (acting(gym.spaces.Discrete(2)), "actions must be a Box of 2 floats.*, got Discrete"),
        (acting(gym.spaces.MultiDiscrete([2, 2])), "actions must be a Box of 2 floats.*, got MultiDiscrete"),
        (acting(gym.spaces.Box(-1, 1, (2, 1))), r"actions must be a Box\(-1, 1, \(2,\)\), got shape \(2, 1\)"),
        (untidy(features_extractor_class=FlattenExtractor), r"got <class 'test_importers\.FlattenExtractor'>"),
        (lambda env: CrossQ("MlpPolicy", env, buffer_size=9), "modules that can be imported are stable_baselines3"),
    ],
)
def test_what_a_policy_cannot_be_is_refused(make: Callable[[Any], Any], message: str, tmp_path: Path) -> None:
    make(environment()).save(tmp_path / "model.zip")
    with pytest.raises(ValueError, match=message) as caught:
        import_model(tmp_path / "model.zip", CONFIG)
    assert str(tmp_path / "model.zip") in str(caught.value)


@pytest.mark.parametrize("space", ["observation_space", "action_space"])
@pytest.mark.parametrize("name", [":type:", "dtype", "_shape", "low", "high"])
def test_a_space_that_a_file_does_not_spell_out_is_refused(space: str, name: str, tmp_path: Path) -> None:
    PPO("MlpPolicy", environment()).save(tmp_path / "whole.zip")
    with zipfile.ZipFile(tmp_path / "whole.zip") as whole, zipfile.ZipFile(tmp_path / "model.zip", "w") as less:
        for entry in whole.namelist():
            content = whole.read(entry)
            if entry == "data":
                data = json.loads(content)
                del data[space][name]
                content = json.dumps(data).encode()
            less.writestr(entry, content)
    import_model(tmp_path / "whole.zip", CONFIG)
    with pytest.raises(ValueError, match=f"its {space.partition('_')[0]}s must|of its {space.partition('_')[0]}s must"):
        import_model(tmp_path / "model.zip", CONFIG)


def test_of_long_observations_both_ends_are_compared(tmp_path: Path) -> None:
    """Of more than 1000 values, the file has the bounds of the first and the last three."""

    def config(*features: str) -> dict[str, Any]:
        return {**CONFIG, "observation": {"features": list(features), "history": 600}}

    given = config("log_rtt_ratio", "loss_rate")
    model = PPO("MlpPolicy", environment(given), policy_kwargs={"net_arch": [4]})
    model.save(tmp_path / "model.zip")
    space = model.observation_space
    assert isinstance(space, gym.spaces.Box)
    seen = np.random.default_rng(3).uniform(space.low, space.high, (4, 1200)).astype(np.float32)
    agent = import_model(tmp_path / "model.zip", given)
    np.testing.assert_allclose(agent.predict(seen), model.predict(seen, deterministic=True)[0], atol=2e-5)
    with pytest.raises(ValueError, match=r"bound of its observation 0 .* that of loss_rate"):
        import_model(tmp_path / "model.zip", config("loss_rate", "log_rtt_ratio"))


@pytest.mark.parametrize("is_flat", [True, False])
def test_stacked_frames_are_a_history(is_flat: bool, tmp_path: Path) -> None:
    single = {**CONFIG, "observation": {**CONFIG["observation"], "history": 1}}
    stacked: Any = VecFrameStack(DummyVecEnv([lambda: environment(single)]), 2)
    if not is_flat:
        stacked = DummyVecEnv([lambda: gym.wrappers.FrameStackObservation(environment(single), 2)])
    model = PPO("MlpPolicy", stacked)
    shake(model.policy)
    model.save(tmp_path / "model.zip")
    with pytest.raises(ValueError, match=r"takes 6 values, but observations have 3: .* give observation\.history=2"):
        import_model(tmp_path / "model.zip", single)
    agent = import_model(tmp_path / "model.zip", CONFIG)

    history = environment()
    stacked.seed(1)
    stacked.reset()
    history.reset(seed=1)
    for step in range(20):
        action = np.random.default_rng(step).uniform(-1, 1, 2).astype(np.float32)
        frames, seen = stacked.step([action])[0], history.step(action)[0]
        np.testing.assert_array_equal(frames.reshape(INPUTS), seen)
        expected = model.predict(frames, deterministic=True)[0]
        np.testing.assert_allclose(agent.predict(seen[np.newaxis]), expected, atol=2e-5)


def test_gymnasiums_normalisation_of_a_model_of_stable_baselines3(tmp_path: Path) -> None:
    env = gym.wrappers.NormalizeObservation(environment())
    model = PPO("MlpPolicy", env, n_steps=64, batch_size=64, policy_kwargs={"net_arch": [8]})
    model.learn(64)
    shake(model.policy)
    model.save(tmp_path / "model.zip")
    mean, var = env.obs_rms.mean, env.obs_rms.var
    np.savez(tmp_path / "statistics.npz", mean=mean, var=var, epsilon=1e-8, clip=1e9)  # it does not clip
    agent = import_model(tmp_path / "model.zip", CONFIG, tmp_path / "statistics.npz")
    seen = (mean + np.sqrt(var) * np.random.default_rng(3).uniform(-2, 2, (64, INPUTS))).astype(np.float32)
    expected = model.predict(((seen - mean) / np.sqrt(var + 1e-8)).astype(np.float32), deterministic=True)[0]
    np.testing.assert_allclose(agent.predict(seen), expected, atol=2e-4)


class CleanRlPpo(nn.Module):
    """The layers and names of CleanRL's ppo_continuous_action."""

    def __init__(self) -> None:
        super().__init__()
        self.critic = nn.Sequential(nn.Linear(INPUTS, 8), nn.Tanh(), nn.Linear(8, 1))
        self.actor_mean = nn.Sequential(
            nn.Linear(INPUTS, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 2)
        )
        self.actor_logstd = nn.Parameter(torch.zeros(1, 2))

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        return torch.clip(self.actor_mean(seen), -1, 1)


class CleanRlOffPolicy(nn.Module):
    """The layers and names of CleanRL's sac_continuous_action and td3_continuous_action."""

    def __init__(self, mean: str, scale: float = 1.0) -> None:
        super().__init__()
        self.mean = mean
        for name, inputs, outputs in (("fc1", INPUTS, 16), ("fc2", 16, 16), (mean, 16, 2)):
            self.add_module(name, nn.Linear(inputs, outputs))
        if mean == "fc_mean":
            self.fc_logstd = nn.Linear(16, 2)
        self.register_buffer("action_scale", torch.full((1, 2), scale))
        self.register_buffer("action_bias", torch.zeros(2))

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.get_submodule(self.mean)(torch.relu(self.fc2(torch.relu(self.fc1(seen))))))


@pytest.mark.parametrize(
    ("module", "is_tuple", "algorithm"),
    [
        (CleanRlPpo(), False, "ppo"),
        (CleanRlOffPolicy("fc_mean"), False, "sac"),
        (CleanRlOffPolicy("fc_mu"), True, "td3"),
    ],
)
def test_an_agent_of_cleanrl(module: nn.Module, is_tuple: bool, algorithm: str, tmp_path: Path) -> None:
    shake(module)
    path = tmp_path / "agent.cleanrl_model"
    torch.save((module.state_dict(), {}, {}) if is_tuple else module.state_dict(), path)
    agent = import_model(path, CONFIG)
    seen = observations()
    expected = module(torch.from_numpy(seen)).detach().numpy()
    np.testing.assert_allclose(agent.predict(seen), expected, atol=2e-5)
    assert (agent.training["imported"], agent.training["algorithm"]) == ("CleanRL", algorithm)
    run_episode(agent, tmp_path / "agent")


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (CleanRlOffPolicy("fc_mean", scale=2.0).state_dict(), "action_scale 1 and action_bias 0"),
        ({k: v for k, v in CleanRlOffPolicy("fc_mu").state_dict().items() if k != "action_scale"}, "got None and"),
        (nn.Sequential(nn.Linear(6, 2)).state_dict(), "none of CleanRL's continuous agents"),
        (CleanRlPpo().state_dict() | {"embedding.weight": torch.zeros(2)}, "does not have: embedding.weight"),
        ({k: v for k, v in CleanRlPpo().state_dict().items() if "mean.2" not in k}, r"layers at \[0, 4\]"),
        ({k: v for k, v in CleanRlOffPolicy("fc_mean").state_dict().items() if k != "fc2.bias"}, "it has no fc2.bias"),
        ([1, 2], "it is no state_dict"),
    ],
)
def test_other_weights_are_refused(weights: Any, message: str, tmp_path: Path) -> None:
    torch.save(weights, tmp_path / "x.pt")
    with pytest.raises(ValueError, match=message):
        import_model(tmp_path / "x.pt", CONFIG)


def test_statistics_of_a_normalisation_are_folded_into_the_weights(tmp_path: Path) -> None:
    module = CleanRlPpo()
    shake(module)
    torch.save(module.state_dict(), tmp_path / "x.pt")
    mean = np.random.default_rng(1).normal(size=INPUTS)
    var = np.full(INPUTS, 4.0)
    statistics = tmp_path / "statistics.npz"
    np.savez(statistics, mean=mean, var=var, epsilon=1e-8, clip=10.0)
    agent = import_model(tmp_path / "x.pt", CONFIG, statistics)
    seen = observations()
    normalised = np.clip((seen - mean) / np.sqrt(var + 1e-8), -10, 10).astype(np.float32)
    expected = module(torch.from_numpy(normalised)).detach().numpy()
    np.testing.assert_allclose(agent.predict(seen), expected, atol=2e-5)

    np.savez(statistics, mean=mean, var=np.full(INPUTS, 1e-4))
    with pytest.raises(ValueError, match=r"clipped to 10, and log_rtt_ratio"):
        import_model(tmp_path / "x.pt", CONFIG, statistics)
    import_model(tmp_path / "x.pt", CONFIG, statistics, ignores_clipping=True)

    np.savez(statistics, mean=np.tile(mean[:3], 2), var=var, clip=1e9)
    whole = import_model(tmp_path / "x.pt", CONFIG, statistics)
    np.savez(statistics, mean=mean[:3], var=var[:3], clip=1e9)  # of a frame, before two were stacked
    assert import_model(tmp_path / "x.pt", CONFIG, statistics).content_hash == whole.content_hash
    for bad, message in (
        ({"mean": mean[:2], "var": var}, r"'mean' of shape \(6,\), got shape \(2,\)"),
        ({"mean": mean, "var": np.where(var > 0, np.nan, 0)}, r"'var' of shape \(6,\), got \[nan nan"),
    ):
        np.savez(statistics, **bad)
        with pytest.raises(ValueError, match=message):
            import_model(tmp_path / "x.pt", CONFIG, statistics)
    statistics.write_bytes(statistics.read_bytes()[:-9])
    with pytest.raises(ValueError, match=r"numpy\.savez"):
        import_model(tmp_path / "x.pt", CONFIG, statistics)


@pytest.mark.parametrize(
    ("bounds", "clip", "message"),
    [
        ((9.95, 10.004, 10.002), 10.0, r"clipped to 10, and loss_rate \(up to 10\.004 in frames 2, 3 of 3\) can"),
        ((9.95, 9.95, 10.5), 10.0, r"clipped to 10, and loss_rate \(up to 10\.5 in frame 3 of 3\) can"),
        ((10.9999, 11.0001, 10), 10.99995, r"clipped to 10\.99995, and loss_rate \(up to 11 in frame 2 of 3\) can"),
        ((12.34567,), 10.0, r"clipped to 10, and loss_rate \(up to 12\.3\) can exceed"),
    ],
)
def test_what_was_clipped_is_said_with_digits_that_show_it(
    bounds: tuple[float, ...], clip: float, message: str, tmp_path: Path
) -> None:
    """Frames have other bounds if whole observations were normalised; 10.004 and 10 are not the same."""
    config = {**CONFIG, "observation": {"features": ["log_rtt_ratio", "loss_rate"], "history": len(bounds)}}
    space = bbrgym.envs.EpisodeSpec.from_config(config).observation.space
    var = np.full((len(bounds), 2), 1e6)
    var[:, 1] = (space.high[1] / np.array(bounds)) ** 2
    np.savez(tmp_path / "statistics.npz", mean=np.zeros(var.size), var=var.ravel(), epsilon=0.0, clip=clip)
    write_onnx(
        make_agent(**{name: config[name] for name in ("observation", "action", "env")}).stored, tmp_path / "x.onnx"
    )
    with pytest.raises(ValueError, match=message):
        import_model(tmp_path / "x.onnx", config, tmp_path / "statistics.npz")


def test_a_pickle_in_a_file_does_not_run(tmp_path: Path) -> None:
    proof = tmp_path / "attacked"
    torch.save({"actor_mean.0.weight": Bomb(proof)}, tmp_path / "x.pt")
    with pytest.raises(ValueError, match="its pickle holds more than tensors, and is not read"):
        import_model(tmp_path / "x.pt", CONFIG)

    model = PPO("MlpPolicy", environment(), policy_kwargs={"net_arch": [16, 8]})
    model.tensorboard_log = Bomb(proof)  # any attribute is pickled into `data`
    model.save(tmp_path / "data.zip")
    assert not proof.exists()
    import_model(tmp_path / "data.zip", CONFIG)
    assert not proof.exists()

    with zipfile.ZipFile(tmp_path / "data.zip") as good, zipfile.ZipFile(tmp_path / "weights.zip", "w") as bad:
        for name in good.namelist():
            bad.writestr(name, (tmp_path / "x.pt").read_bytes() if name == "policy.pth" else good.read(name))
    with pytest.raises(ValueError, match="its pickle holds more than tensors"):
        import_model(tmp_path / "weights.zip", CONFIG)
    assert not proof.exists()
    PPO.load(tmp_path / "data.zip", device="cpu")  # which shows that the attack works
    assert proof.exists()


@pytest.mark.parametrize("name", networks())
def test_what_export_wrote_comes_back_as_it_was(name: str, tmp_path: Path) -> None:
    agent = networks()[name]
    agent.training = {"algorithm": "ppo", "seed": 3}
    write_onnx(agent.stored, tmp_path / "x.onnx")
    back = import_model(tmp_path / "x.onnx", {"scenario": SCENARIO})  # its settings are in the file
    assert back.content_hash == agent.content_hash
    assert {"algorithm": "ppo", "seed": 3}.items() < back.training.items()
    assert back.spec.step_ms == agent.spec.step_ms
    assert import_model(tmp_path / "x.onnx", {}).content_hash == agent.content_hash
    with pytest.raises(ValueError, match=r"its file says env\.step_ms=.*, so it cannot be 33"):
        import_model(tmp_path / "x.onnx", {"env": {"step_ms": 33.0}})
    with pytest.raises(ValueError, match=r"unknown key 'observatoin' \(did you mean 'observation'\?\)"):
        import_model(tmp_path / "x.onnx", {"observatoin": {"history": 3}})


def onnx_file(
    path: Path,
    nodes: list[Any],
    constants: dict[str, Any],
    output: str,
    kind: int = TensorProto.FLOAT,
    shape: tuple[int, ...] = (INPUTS,),
) -> Path:
    graph = helper.make_graph(
        nodes=nodes,
        name="other",
        inputs=[helper.make_tensor_value_info("obs", kind, ["N", *shape])],
        outputs=[helper.make_tensor_value_info(output, TensorProto.FLOAT, ["N", 2])],
        initializer=[numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


RANDOM = np.random.default_rng(5)
CONSTANTS: dict[str, Any] = {
    "mean": RANDOM.normal(size=INPUTS),
    "deviation": RANDOM.uniform(1, 2, INPUTS),
    "w1": RANDOM.normal(size=(INPUTS, 8)) * 0.3,
    "b1": RANDOM.normal(size=8),
    "w2": RANDOM.normal(size=(2, 8)) * 0.3,
    "b2": RANDOM.normal(size=2),
    "half": 0.5,
    "-1": -1.0,
    "1": 1.0,
    "2": 2.0,
}
CONSTANTS = {name: np.float32(value) for name, value in CONSTANTS.items()}
HIDDEN = [
    helper.make_node("Sub", ["obs", "mean"], ["centred"]),
    helper.make_node("Div", ["centred", "deviation"], ["scaled"]),
    helper.make_node("MatMul", ["scaled", "w1"], ["product"]),
    helper.make_node("Add", ["b1", "product"], ["sum"]),
]
LAST = [
    helper.make_node("Gemm", ["hidden", "w2", "b2"], ["raw"], transB=1),
    helper.make_node("Mul", ["raw", "half"], ["mean_action"]),
]


@pytest.mark.parametrize(
    ("activation", "end", "output"),
    [
        ("Relu", [], "mean_action"),  # nothing bounds it: clipped, as the environment would
        ("Tanh", [helper.make_node("Clip", ["mean_action", "-1", "1"], ["action"])], "action"),
        ("Relu", [helper.make_node("Tanh", ["mean_action"], ["action"])], "action"),
    ],
)
def test_a_chain_of_affine_operators_in_onnx(activation: str, end: list[Any], output: str, tmp_path: Path) -> None:
    nodes = [*HIDDEN, helper.make_node(activation, ["sum"], ["hidden"]), *LAST, *end]
    path = onnx_file(tmp_path / "x.onnx", nodes, CONSTANTS, output)
    agent = import_model(path, CONFIG)
    seen = observations()
    (expected,) = onnxruntime.InferenceSession(str(path)).run([output], {"obs": seen})
    np.testing.assert_allclose(agent.predict(seen), np.clip(expected, -1, 1), atol=2e-5)
    assert np.ptp(agent.predict(seen)) > 0.3
    run_episode(agent, tmp_path / "agent")


@pytest.mark.parametrize(
    ("nodes", "output", "message"),
    [
        ([*HIDDEN, helper.make_node("Sigmoid", ["sum"], ["hidden"]), *LAST], "raw", "operator Sigmoid"),
        ([*HIDDEN, helper.make_node("Relu", ["sum"], ["action"])], "action", "no fully connected layer leads to"),
        ([*HIDDEN, helper.make_node("Mul", ["sum", "product"], ["action"])], "action", "Mul .* combines 2 values"),
        ([*HIDDEN, helper.make_node("Cast", ["sum"], ["hidden"], to=TensorProto.INT64), *LAST], "raw", "Cast .*type 7"),
    ],
)
def test_other_operators_in_onnx_are_refused(nodes: list[Any], output: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        import_model(onnx_file(tmp_path / "x.onnx", nodes, CONSTANTS, output), CONFIG)


WHOLE = [
    helper.make_node("Constant", [], ["mean"], value=numpy_helper.from_array(CONSTANTS["mean"].astype(np.float32))),
    helper.make_node("Transpose", ["w2"], ["w2 transposed"], perm=[1, 0]),
    helper.make_node("Identity", ["obs"], ["same"]),
    helper.make_node("Cast", ["same"], ["exact"], to=TensorProto.FLOAT),
    helper.make_node("Flatten", ["exact"], ["flat"], axis=1),
    *(helper.make_node(node.op_type, [{"obs": "flat"}.get(n, n) for n in node.input], node.output) for node in HIDDEN),
    helper.make_node("Relu", ["sum"], ["activated"]),
    helper.make_node("Dropout", ["activated", "half"], ["kept"]),
    helper.make_node("Unsqueeze", ["kept", "axis"], ["deep"]),
    helper.make_node("Squeeze", ["deep", "axis"], ["shallow"]),
    helper.make_node("Reshape", ["shallow", "shape"], ["hidden"], allowzero=0),
    helper.make_node("Gemm", ["hidden", "w2 transposed", "b2"], ["raw"], alpha=1.0, beta=1.0, transA=0, transB=0),
    helper.make_node("Mul", ["raw", "half"], ["mean_action"]),
    helper.make_node("Tanh", ["mean_action"], ["bounded"]),
    helper.make_node("Clip", ["bounded", "-1", "1"], ["action"]),
]
"""A chain with every operator that is read."""
WHOLE_CONSTANTS = {
    **{name: value for name, value in CONSTANTS.items() if name != "mean"},
    "axis": np.array([1]),
    "shape": np.array([-1, 8]),
}


def test_the_chain_with_every_operator_is_read(tmp_path: Path) -> None:
    assert {node.op_type for node in WHOLE} == set(OPERATORS)
    path = onnx_file(tmp_path / "x.onnx", WHOLE, WHOLE_CONSTANTS, "action")
    seen = observations()
    (expected,) = onnxruntime.InferenceSession(str(path)).run(["action"], {"obs": seen})
    np.testing.assert_allclose(import_model(path, CONFIG).predict(seen), expected, atol=2e-5)


def test_observations_of_integers_or_in_another_order_in_onnx_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.onnx"
    for kind in (TensorProto.INT64, TensorProto.BOOL, TensorProto.FLOAT16):
        with pytest.raises(ValueError, match="its input 'obs' must be of float or double"):
            import_model(onnx_file(path, WHOLE, WHOLE_CONSTANTS, "action", kind=kind), CONFIG)
    with pytest.raises(ValueError, match=r"\(history, features\) = \(2, 3\), got \(3, 2\)"):
        import_model(onnx_file(path, WHOLE, WHOLE_CONSTANTS, "action", shape=(3, 2)), CONFIG)
    seen = observations()
    onnx_file(path, WHOLE, WHOLE_CONSTANTS, "action", shape=(2, 3))
    flat = import_model(onnx_file(tmp_path / "flat.onnx", WHOLE, WHOLE_CONSTANTS, "action"), CONFIG)
    np.testing.assert_array_equal(import_model(path, CONFIG).predict(seen), flat.predict(seen))


def damaged_arrays(array: Any) -> list[Any]:
    """Other types, shapes and values in place of an array."""
    others = [np.array([]), np.array([1.0, 2.0]), np.array([[1.0]]), np.array("a", object), np.nan, np.complex64(1)]
    if array.ndim:
        flat = array.reshape(-1)
        others += [
            *(array.astype(kind) for kind in (np.int64, np.float16, bool)),
            array.T,
            array[np.newaxis],
            array[:0],
        ]
        others += [flat, flat[:1], np.concatenate([flat] * 2), array * 0, array * np.float32(np.nan), array * 1e38]
    return others


def damaged_operators(operator: str) -> Iterator[tuple[Any, dict[str, Any]]]:
    """The nodes and the constants of `WHOLE` with each input and attribute of an operator damaged.

    What it can have is ONNX's own schema. Each is left out, empty, unknown, or of another type, shape or value.
    """
    schema = onnx.defs.get_schema(operator, 17)
    index, good = next((index, node) for index, node in enumerate(WHOLE) if node.op_type == operator)
    good_inputs, good_attributes = list(good.input), {entry.name: entry for entry in good.attribute}

    def nodes(inputs: list[str] = good_inputs, attributes: Any = good_attributes, outputs: Any = good.output) -> Any:
        made = helper.make_node(operator, inputs, outputs)
        made.attribute.extend(attributes.values())
        return [*WHOLE[:index], made, *WHOLE[index + 1 :]]

    for place in range(len(schema.inputs) + 1):
        yield nodes(good_inputs[:place]), WHOLE_CONSTANTS
        inputs = [*good_inputs, *[""] * (place + 1 - len(good_inputs))]
        for name in ("", "unknown", "obs", "action", "w1", "half", "shape", *good_inputs):
            yield nodes([*inputs[:place], name, *inputs[place + 1 :]]), WHOLE_CONSTANTS
    for name in set(good_inputs) & set(WHOLE_CONSTANTS):
        for array in damaged_arrays(np.asarray(WHOLE_CONSTANTS[name])):
            yield nodes(), {**WHOLE_CONSTANTS, name: array}
    tensors = [numpy_helper.from_array(np.zeros((3, 0), np.float32)), TensorProto(data_type=99, dims=[-1])]
    values = [0, 1, -1, 7, 0.0, -2.5, float("nan"), "a", [1], [0, 1], [1, 1], [0.5], ["a"], *tensors]
    for name in (*schema.attributes, "min", "max", "value_other"):
        yield nodes(attributes={k: entry for k, entry in good_attributes.items() if k != name}), WHOLE_CONSTANTS
        for value in values:
            yield nodes(attributes=good_attributes | {name: helper.make_attribute(name, value)}), WHOLE_CONSTANTS
    yield nodes(outputs=[]), WHOLE_CONSTANTS
    yield nodes(outputs=["other", *good.output]), WHOLE_CONSTANTS


@pytest.mark.parametrize("operator", OPERATORS)
def test_whatever_an_operator_lacks_is_said_in_words(operator: str, tmp_path: Path) -> None:
    refusals = read = 0
    for nodes, constants in damaged_operators(operator):
        onnx_file(tmp_path / "x.onnx", nodes, constants, "action")
        try:
            import_model(tmp_path / "x.onnx", CONFIG)
            read += 1
        except ValueError:
            refusals += 1
    assert min(refusals, read) > 0


@pytest.mark.parametrize(
    ("inputs", "bounds"), [(["bounded", "", "1"], "[-inf, 1.0]"), (["bounded", "-1", "2"], "[-1.0, 2.0]")]
)
def test_other_bounds_of_a_clip_are_refused(inputs: list[str], bounds: str, tmp_path: Path) -> None:
    clip = helper.make_node("Clip", inputs, ["action"])
    path = onnx_file(tmp_path / "x.onnx", [*WHOLE[:-1], clip], WHOLE_CONSTANTS, "action")
    with pytest.raises(ValueError, match=re.escape(bounds)):
        import_model(path, CONFIG)


def test_a_constant_is_transposed_as_its_operator_says(tmp_path: Path) -> None:
    """A permutation that changes nothing, of a weight whose shape does not show it."""
    constants = CONSTANTS | {"w2": RANDOM.normal(size=(2, 2)).astype(np.float32), "w1": CONSTANTS["w1"][:, :2]}
    constants["b1"] = CONSTANTS["b1"][:2]
    same = helper.make_node("Transpose", ["w2"], ["w2 as it was"], perm=[0, 1])
    last = helper.make_node("MatMul", ["hidden", "w2 as it was"], ["action"])
    nodes = [*HIDDEN, helper.make_node("Relu", ["sum"], ["hidden"]), same, last]
    path = onnx_file(tmp_path / "x.onnx", nodes, constants, "action")
    seen = observations()
    (expected,) = onnxruntime.InferenceSession(str(path)).run(["action"], {"obs": seen})
    np.testing.assert_allclose(import_model(path, CONFIG).predict(seen), np.clip(expected, -1, 1), atol=2e-5)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.onnx", b"\0", "it is no ONNX model"),
        ("x.onnx", b"\x3a\x0d\x2a\x0b\x10\1\x22\4\0\0\0\0\x42\1\xff", "its graph has no output"),  # a name in no UTF-8
        ("x.zip", b"PK\6\7" + struct.pack("<LQL", 0, 0, 2) + b"PK\5\6" + b"\0" * 18, "damaged: .* multiple disks"),
        ("x.zip", b"PK\5\6" + b"\0" * 18, "it is a zip file, but neither of Stable-Baselines3"),
    ],
)
def test_damaged_files_are_refused(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    """`make fuzz` tries many more."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        import_model(tmp_path / name, CONFIG)


def test_an_lstm_of_another_graph_is_refused(tmp_path: Path) -> None:
    write_onnx(make_agent(lstm=(8,)).stored, tmp_path / "x.onnx")
    model = onnx.load(tmp_path / "x.onnx")
    next(node for node in model.graph.node if node.op_type == "Sigmoid").op_type = "HardSigmoid"
    onnx.save(model, tmp_path / "x.onnx")
    with pytest.raises(ValueError, match="its LSTM or skip was not written by bbrgym export"):
        import_model(tmp_path / "x.onnx", {"scenario": SCENARIO})


OWN = {"scenario": {**SCENARIO, "rate_mbps": 7}, "reward": {"terms": {"utilisation": 2.0}}, "engine": {"name": "ns3"}}


def known(policy: StoredPolicy) -> list[str]:
    """Return what the card of an imported policy knows of its training."""
    card = facts(policy)
    unknown = f"unknown (imported from {policy.training['imported']})"
    return [group for group, name in TRAINED_IN.items() if card[name] != unknown]


@pytest.mark.parametrize("given", [(), ("reward",), ("scenario", "reward", "engine")])
def test_what_a_model_was_trained_for_is_not_made_up(given: tuple[str, ...], tmp_path: Path) -> None:
    torch.save(CleanRlPpo().state_dict(), tmp_path / "x.pt")
    observed = {group: CONFIG[group] for group in ("observation", "action", "env")}
    config = {**observed, **{group: OWN[group] for group in given}}
    agent = import_model(tmp_path / "x.pt", config)
    agent.save(tmp_path / "agent")
    policy = read_policy(tmp_path / "agent")
    assert known(policy) == list(given)
    assert agent.spec.distribution == Distribution.of(config.get("scenario", "default"))
    write_c_header(policy, tmp_path / "mine.h")
    write_onnx(policy, tmp_path / "mine.onnx")
    metadata = {entry.key: entry.value for entry in onnx.load(tmp_path / "mine.onnx").metadata_props}
    for text in ((tmp_path / "mine.h").read_text(), metadata["card"]):
        assert text.count("unknown (imported from CleanRL)") == 3 - len(given)
        for group, value in (("reward", "utilisation 2"), ("engine", "ns3"), ("scenario", "SHA-256 ")):
            assert (re.search(f'{TRAINED_IN[group]}"?: "?{value}', text) is not None) == (group in given)
    # An import of what was exported knows no more, whatever the file says of it.
    assert known(import_model(tmp_path / "mine.onnx", {}).stored) == []


@pytest.mark.usefixtures("in_new_folder")
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ([], []),
        (["action.pacing_gain=[1,1.5]"], []),
        (["engine=native"], ["engine"]),
        (["reward.terms.delay=0.5", "scenario=train"], ["scenario", "reward"]),
        (["scenario=duel"], ["scenario"]),
    ],
)
def test_what_a_command_names_is_given(
    settings: list[str], expected: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pretend_to_read(monkeypatch, 1, "model.zip")
    assert main(["import", "model.zip", "mine", *settings]) == 0, capsys.readouterr().err
    assert known(read_policy("mine")) == expected


@pytest.mark.parametrize("given", [None, "reward", 3, {"reward": True}])
def test_an_agent_that_was_imported_earlier_loads_and_knows_nothing(given: Any, tmp_path: Path) -> None:
    """Its agent.json has a scenario, a reward and an engine, and no list of what was given; or a damaged one."""
    agent = make_agent()
    training = {"algorithm": "ppo", "imported": "Stable-Baselines3 2.7.0", "sha256": "ab"}
    agent.training = training if given is None else {**training, GIVEN: given}
    agent.save(tmp_path / "old")
    assert known(load_agent(tmp_path / "old").stored) == []
    assert known(read_policy(tmp_path / "old")) == []
    run_as_stored(tmp_path / "old")
    agent.training = {"algorithm": "ppo"}  # of `bbrgym train`
    assert facts(agent.stored)["engine in training"] == "native"


def run_as_stored(folder: Path) -> None:
    scenario = Scenario(rate_mbps=10, duration_s=1, flows=(Flow("policy", rtt_ms=20, policy=str(folder)),))
    assert simulate(scenario, "native", seed=1).rows["throughput_mbps"].max() > 0


def is_import(words: list[str]) -> bool:
    return words[0] == "import" and words[1:2] != ["MODEL"]


EXAMPLES = {" ".join(words): words for _, words in commands() if is_import(words)}
SETTINGS = [entry.split(" ")[0] for entry in COMMANDS["import"].settings]


@pytest.mark.usefixtures("in_new_folder")
@pytest.mark.parametrize(
    "words", [*EXAMPLES.values(), ["import", "model.zip", "mine", *(one for one in SETTINGS if "…" not in one)]]
)
def test_the_examples_of_the_pages_and_of_the_help_import(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a model of the size that they say."""
    given = dict(word.split("=", 1) for word in words if "=" in word)
    pretend_to_read(monkeypatch, int(given.get("observation.history", "1")), words[1])
    assert main(words) == 0, capsys.readouterr().err
    stored = read_policy(next(word for word in words[2:] if "=" not in word))
    for key, value in given.items():
        group, _, name = key.partition(".")
        if group in ("observation", "action", "env"):
            assert stored.spec[group][name] == (value if value.isalpha() else json.loads(value))


def pretend_to_read(monkeypatch: pytest.MonkeyPatch, history: int, model: str) -> None:
    """Have a model of the default features of some steps, and statistics of one step."""
    features = len(Observation().features)
    network = Network(((np.zeros((2, features * history), np.float32), np.zeros(2, np.float32)),))
    monkeypatch.setattr(importers, "_read", lambda _: ForeignModel(network, "another library"))
    Path(model).parent.mkdir(parents=True, exist_ok=True)
    Path(model).write_bytes(b"")
    np.savez("statistics.npz", mean=np.zeros(features), var=np.full(features, 1e6))


@pytest.mark.usefixtures("in_new_folder")
def test_the_example_in_python_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "import.md").read_text()
    (code,) = (block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "import_model" in block)
    pretend_to_read(monkeypatch, 3, "model.zip")
    exec(code, {})
    (example,) = (words for words in EXAMPLES.values() if "observation.history=3" in words and words[1] == "model.zip")
    pretend_to_read(monkeypatch, 3, "model.zip")
    assert main([*example[:2], "same", *example[3:]]) == 0
    assert read_policy("agents/mine").spec == read_policy("same").spec


@pytest.mark.usefixtures("in_new_folder")
def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    spec = {**CONFIG, "observation": {"history": 2}}
    model = PPO("MlpPolicy", environment(spec), policy_kwargs={"net_arch": [16, 8]})
    model.save("model.zip")
    assert main(["evaluate", "agent_path=model.zip"]) == 1
    assert "make one with `bbrgym import model.zip FOLDER`" in capsys.readouterr().err
    assert main(["import", "model.zip", "mine"]) == 1
    assert "the network takes 34 values" in capsys.readouterr().err
    settings = ["observation.history=2", "action.cwnd_gain=[1.5,3]", "env.step_ms=40"]
    for _ in range(2):  # again into its own folder, whose other files stay
        assert main(["import", "model.zip", "mine", *settings]) == 0
        assert "17 features x 2 steps, cwnd_gain (1.5, 3.0)" in capsys.readouterr().out
        Path("mine/notes").mkdir(exist_ok=True)
        Path("mine/notes/one.txt").write_text("one")
    assert Path("mine/notes/one.txt").read_text() == "one"
    Path("run").mkdir()
    Path("run/run.json").write_text("{}")
    shutil.copytree("mine", "run/best")
    stored = read_policy("mine")
    assert stored.spec["env"] == {"step_ms": 40.0, "step_rtts": None}
    assert json.loads(Path("mine/agent.json").read_text())["training"]["imported"].startswith("Stable-Baselines3")
    Path("full").mkdir()
    for wrong, message in (
        (["model.zip", "full"], "'full' exists"),
        (["model.zip", "run/best"], "'run/best' is of the training in 'run'"),
        (["nothing.zip", "x"], "no file 'nothing.zip'"),
        (["model.zip", "x", "history"], "key=value, got 'history'"),
        (["model.zip", "x", "observation.histroy=2"], "unknown key 'histroy' in observation"),
        (["mine/agent.json", "x"], "a zip of Stable-Baselines3"),
    ):
        assert main(["import", *wrong]) == 1
        error = capsys.readouterr().err
        assert message in error
        assert "Traceback" not in error
