"""Every form of the environment says at the end of an episode why its numbers cannot be trusted (`Engine.flaw`)."""

import contextlib
from typing import Any

import gymnasium
import numpy as np
import pytest

import bbrgym
from bbrgym import Flow, Scenario
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.envs.native.engine import NativeEngine

SCENARIO = Scenario(duration_s=0.3, flows=(Flow("agent"), Flow("bbr")))
TWO = Scenario(duration_s=0.3, flows=(Flow("agent"), Flow("agent")))


class Flawed(NativeEngine):
    """A native engine that says that it was late."""

    is_flawed = True

    @property
    def flaw(self) -> str | None:
        return "late" if self.is_flawed else None


class Sound(Flawed):
    is_flawed = False


@pytest.mark.parametrize("engine", [Flawed, Sound, "native"])
def test_the_last_info_of_an_episode_has_its_flaw(engine: Any) -> None:
    expected = ["late"] if engine is Flawed else []
    with contextlib.closing(gymnasium.make("bbrgym/Bottleneck-v1", scenario=SCENARIO, engine=engine)) as env:
        env.reset(seed=1)
        infos = [env.step(np.zeros(2, dtype=np.float32))[-1] for _ in range(3)]
    assert [info["engine_flaw"] for info in infos if "engine_flaw" in info] == expected
    assert "engine_flaw" not in infos[0]


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_the_vector_form_has_it_of_each_environment(mode: str) -> None:
    with contextlib.closing(
        gymnasium.make_vec(
            "bbrgym/Bottleneck-v1", 2, "vector_entry_point", scenario=SCENARIO, engine=Flawed, autoreset_mode=mode
        )
    ) as envs:
        envs.reset(seed=1)
        infos = [envs.step(np.zeros((2, 2), dtype=np.float32))[-1] for _ in range(3)]
    assert "engine_flaw" not in infos[0]
    last = infos[-1]["final_info"] if mode == "SameStep" else infos[-1]
    assert last["engine_flaw"].tolist() == ["late", "late"]
    assert last["_engine_flaw"].tolist() == [True, True]


def test_the_forms_with_several_agents_have_it_of_each_agent() -> None:
    sb3_env = pytest.importorskip("bbrgym.envs.sb3_env")
    shared = sb3_env.SharedPolicyVecEnv(EpisodeSpec(TWO, engine=Flawed), 2)
    shared.reset()
    infos = [shared.step(np.zeros((4, 2), dtype=np.float32))[-1] for _ in range(3)]
    shared.close()
    assert [["engine_flaw" in info for info in step] for step in infos] == [[False] * 4, [False] * 4, [True] * 4]
    pytest.importorskip("pettingzoo")
    parallel = bbrgym.parallel_env(TWO, engine=Flawed)
    parallel.reset(seed=1)
    steps = [
        parallel.step({agent: np.zeros(2, dtype=np.float32) for agent in parallel.possible_agents})[-1]
        for _ in range(3)
    ]
    parallel.close()
    assert [[info.get("engine_flaw") for info in step.values()] for step in steps] == [[None] * 2] * 2 + [["late"] * 2]
