"""Every recipe of docs/recipes.md, run with its library."""

import importlib.util
import math
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from recipe_page import Recipe, recipes
from waiting import free_port

from bbrgym.agents.policy import load_agent
from bbrgym.baselines.policy_file import REFERENCE


@pytest.fixture
def recipe(
    request: pytest.FixtureRequest, record_property: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Recipe:
    """The recipe of the test's class, with an empty working directory.

    The class's `packages` must be installed, or its tests are skipped. The properties are for the table at the end of
    the page (`write_clients.py`).
    """
    found = recipes()[request.cls.title]
    record_property("client", found.title)
    record_property("tried", " ".join(request.function.__doc__.split()).rstrip("."))
    for package in request.cls.packages:
        pytest.importorskip({"dm-tree": "tree"}.get(package, package), reason=f"needs {package}: make clients")
    versions = ", ".join(f"{package} {metadata.version(package)}" for package in request.cls.packages)
    record_property("versions", versions)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))  # where RLlib and Minari write their results
    return found


def test_every_section_with_code_is_tested() -> None:
    assert {test.title for test in Client.__subclasses__()} == recipes().keys()


class Client:
    """A library, and the section of the page about it."""

    title: str
    packages: tuple[str, ...]


class TestFastestLoop(Client):
    title = "The fastest loop"
    packages = ("gymnasium",)

    def test_rollout(self, recipe: Recipe) -> None:
        """SharedPolicyVecEnv.rollout with the shipped policy."""
        pytest.importorskip("stable_baselines3", reason="needs stable_baselines3: make clients")
        (rolls,) = recipe.python
        rollout = recipe.run_python(rolls)["rollout"]
        assert rollout.rewards.shape == (256, 16)
        assert np.isfinite(rollout.rewards).all()


class TestGymnasium(Client):
    title = "Gymnasium wrappers"
    packages = ("gymnasium",)

    def test_vector_wrappers(self, recipe: Recipe) -> None:
        """NormalizeObservation and RecordEpisodeStatistics around make_vec."""
        vector, _ = recipe.python
        names = recipe.run_python(vector)
        assert len(names["returns"]) == 6
        assert all(-5 * 400 < value < 0 for value in names["returns"])
        assert names["observations"].shape == (3, 17)

    @pytest.mark.slow
    def test_video_and_tensors(self, recipe: Recipe) -> None:
        """RecordVideo, RecordEpisodeStatistics and NumpyToTorch."""
        torch = pytest.importorskip("torch", reason="needs torch: make clients")
        for module in ("array_api_compat", "moviepy"):
            pytest.importorskip(module, reason="needs array-api-compat and moviepy: make clients")
        _, single = recipe.python
        names = recipe.run_python(single)
        assert isinstance(names["observation"], torch.Tensor)
        assert names["observation"].shape == (17,)
        assert math.isfinite(names["info"]["episode"]["r"])
        (video,) = Path("videos").glob("*.mp4")
        assert video.stat().st_size > 1000


@pytest.mark.slow
class TestStableBaselines3(Client):
    title = "Stable-Baselines3"
    packages = ("stable_baselines3",)

    def test_training_evaluation_and_import(self, recipe: Recipe) -> None:
        """make_vec_env, PPO, save and load, SharedPolicyVecEnv, evaluate_policy, bbrgym import."""
        from stable_baselines3 import PPO

        train, use = recipe.python
        (to_agent,) = recipe.shell
        names = recipe.run_python(train)
        assert names["shared"].num_envs == 4
        assert names["model"].num_timesteps == 256
        assert math.isfinite(names["mean_return"])
        recipe.run_shell(to_agent)
        recipe.run_python(use)
        seen = names["envs"].reset()
        expected = PPO.load("ppo_duel").predict(seen, deterministic=True)[0]
        np.testing.assert_allclose(load_agent("agents/sb3").predict(seen), expected, atol=1e-5)


@pytest.mark.slow
class TestZoo(Client):
    title = "RL Baselines3 Zoo"
    packages = ("rl_zoo3", "stable_baselines3")

    def test_train_and_enjoy(self, recipe: Recipe) -> None:
        """Hyperparameters in YAML; train and enjoy with --gym-packages bbrgym."""
        (commands,) = recipe.shell
        printed = recipe.run_shell(commands)
        assert "Mean reward: -" in printed
        assert list(Path("logs").glob("ppo/*/best_model.zip"))


@pytest.mark.slow
class TestCleanRL(Client):
    title = "CleanRL"
    packages = ("gymnasium", "torch")

    def test_the_changed_places_in_a_loop_like_cleanrls(self, recipe: Recipe) -> None:
        """make_env, the vector environment and the returns, in a loop like that of ppo_continuous_action.py; import."""
        import ppo_loop
        import torch

        (code,) = recipe.python
        changed = SimpleNamespace(**recipe.run_python(code))
        args = SimpleNamespace(env_id="bbrgym:bbrgym/Default-v1", num_envs=2, capture_video=False, gamma=0.99, seed=1)
        agent, returns = ppo_loop.roll_out(args, changed.make_envs(args, "run"), changed.finished_returns)
        assert len(returns) == 4  # 2 x 400 steps, and episodes of 200
        assert all(-5 * 200 < value < 0 for value in returns)
        torch.save(agent.state_dict(), "ppo_loop.cleanrl_model")
        recipe.run_shell("bbrgym import ppo_loop.cleanrl_model agents/cleanrl")
        seen = torch.rand(3, 17)
        expected = agent.actor_mean(seen).detach().numpy().clip(-1, 1)
        np.testing.assert_allclose(load_agent("agents/cleanrl").predict(seen.numpy()), expected, atol=1e-5)


@pytest.mark.slow
class TestRLlib(Client):
    title = "RLlib"
    packages = ("ray", "gymnasium", "dm-tree")

    @pytest.fixture(scope="class", autouse=True)
    def _cluster(self) -> Iterator[None]:
        """Ray; the recipes use it. It gives its node 30 s, which a busy machine may exceed: it may try three times."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("RAY_gcs_server_port_wait_time_s", "300")
            for is_last in (False, False, True) if importlib.util.find_spec("ray") is not None else ():
                import ray

                try:
                    ray.init()
                    break
                except Exception:  # Ray raises no class of its own
                    ray.shutdown()
                    if is_last:
                        raise
            yield
            if "ray" in sys.modules:
                sys.modules["ray"].shutdown()

    def test_one_agent(self, recipe: Recipe) -> None:
        """PPO with a remote runner."""
        code, _ = recipe.python
        result = recipe.run_python(code)["result"]
        assert result["env_runners"]["num_env_steps_sampled"] >= 400
        assert -5 * 200 < result["env_runners"]["episode_return_mean"] < 0

    def test_agents_that_join_and_leave(self, recipe: Recipe) -> None:
        """ParallelPettingZooEnv with the agents of the training scenarios, with a remote runner."""
        _, code = recipe.python
        returns = recipe.run_python(code)["result"]["env_runners"]["agent_episode_returns_mean"]
        assert returns.keys() == {f"flow_{index}" for index in range(8)}
        assert all(math.isfinite(value) and value < 0 for value in returns.values())


@pytest.mark.slow
class TestTorchRL(Client):
    title = "TorchRL"
    packages = ("torchrl", "tensordict")

    def test_environments_of_one_agent(self, recipe: Recipe) -> None:
        """GymEnv with auto_register_info_dict, and GymEnv(num_envs=3)."""
        code, _ = recipe.python
        names = recipe.run_python(code)
        assert names["rollout"].batch_size == (100,)
        assert names["rollouts"].batch_size == (3, 60)
        assert bool(names["rollouts"]["next", "done"].any())
        rtts_ms = names["rollout"]["next", "rtt_mean_ms"]
        assert bool((rtts_ms[1:] >= 50).all())  # nothing is acknowledged in the first step

    def test_agents_that_join_and_leave(self, recipe: Recipe) -> None:
        """PettingZooWrapper with the agents of the training scenarios."""
        _, code = recipe.python
        names = recipe.run_python(code)
        assert names["rollout"]["next", "flow", "reward"].shape == (100, 8, 1)


class TestPettingZoo(Client):
    title = "PettingZoo"
    packages = ("pettingzoo",)

    def test_the_api_and_a_loop(self, recipe: Recipe) -> None:
        """parallel_api_test, and a loop with an agent that joins late and leaves early."""
        loop, _ = recipe.python
        with pytest.warns(UserWarning, match="unknown reset option"):  # which PettingZoo's test gives
            returns = recipe.run_python(loop)["returns"]
        assert returns.keys() == {"flow_0", "flow_1"}
        assert all(value < 0 for value in returns.values())

    @pytest.mark.slow
    def test_supersuit(self, recipe: Recipe) -> None:
        """SuperSuit's vector environment for Stable-Baselines3, with the agents of the training scenarios."""
        pytest.importorskip("supersuit", reason="needs SuperSuit: make clients")
        _, code = recipe.python
        names = recipe.run_python(code)
        assert names["envs"].num_envs == 16  # two environments of eight agents
        assert names["model"].num_timesteps == 1024


@pytest.mark.slow
class TestTianshou(Client):
    title = "Tianshou"
    packages = ("tianshou",)

    def test_training(self, recipe: Recipe) -> None:
        """PPO with collectors over DummyVectorEnv."""
        (code,) = recipe.python
        result = recipe.run_python(code)["result"]
        assert result.train_step == 400
        assert result.train_episode == 2  # of 200 steps
        assert -5 * 200 < result.best_reward < 0


@pytest.mark.slow
class TestMinari(Client):
    title = "Minari"
    packages = ("minari", "jax", "h5py")

    def test_record_and_load(self, recipe: Recipe) -> None:
        """DataCollector(record_infos=True), load_dataset, recover_environment."""
        (code,) = recipe.python
        names = recipe.run_python(code)
        episodes = list(names["dataset"])
        assert [len(episode) for episode in episodes] == [200, 200]
        for seed, episode in enumerate(episodes):
            observation, _ = names["same"].reset(seed=seed)
            np.testing.assert_array_equal(episode.observations[0], observation)
            for action, reward, after in zip(episode.actions, episode.rewards, episode.observations[1:], strict=True):
                observation, own, *_ = names["same"].step(action)
                np.testing.assert_array_equal(after, observation)
                assert reward == own
            assert episode.infos["time_s"].shape == (201,)


@pytest.mark.slow
class TestMLflow(Client):
    title = "MLflow"
    packages = ("mlflow",)

    def test_client_and_pyfunc_model(self, recipe: Recipe) -> None:
        """search_runs and get_metric_history on the database of a training; the pyfunc model."""
        (train,), (read,) = recipe.shell, recipe.python
        recipe.run_shell(train)
        names = recipe.run_python(read)
        assert len(names["runs"]) == 1
        assert names["history"][-1].value == names["runs"].loc[0, "metrics.eval/reward"]
        assert names["actions"].shape == (3, 2)
        assert abs(names["actions"]).max() <= 1


class TestOnnxRuntime(Client):
    title = "ONNX Runtime"
    packages = ("onnxruntime", "onnx")

    def test_inference(self, recipe: Recipe) -> None:
        """InferenceSession of the shipped policy, against Agent.predict."""
        (export,), (infer,) = recipe.shell, recipe.python
        recipe.run_shell(export)
        names = recipe.run_python(infer)
        agent = load_agent(REFERENCE)
        for _ in range(1 + names["step"]):
            expected = agent.predict(names["observations"])
        np.testing.assert_allclose(names["actions"], expected, atol=1e-5)
        assert names["meaning"]["observation"]


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info >= (3, 12), reason="NumPy 1.23, which ns3-gym's client needs, is for Python 3.11")
class TestNs3Gym(Client):
    title = "ns3-gym"
    packages = ()

    def test_stock_client(self, recipe: Recipe, record_property: Any) -> None:
        """ns3-gym's own Python client against `bbrgym ns3`."""
        install, run = recipe.shell
        repository = "https://github.com/tkn-tub/ns3-gym"
        assert repository in install
        if subprocess.run(["git", "ls-remote", "--exit-code", repository, "HEAD"], capture_output=True).returncode:
            pytest.skip(f"{repository} cannot be reached")
        recipe.run_shell(install)
        commit = recipe.run_shell("git -C ns3-gym log -1 --format=%h")
        port = free_port()
        recipe.files = {name: code.replace("5555", str(port)) for name, code in recipe.files.items()}
        printed = recipe.run_shell(run.replace("5555", str(port)))
        assert '{"time_s": 5.0}' in printed
        record_property("versions", f"ns3gym of app-ns-3.36+ at {commit.strip()}")
