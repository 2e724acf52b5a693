"""Rewards of one's own, infos with details, and the code of docs/rewards.md."""

import re
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import bbrgym
from bbrgym.envs.engine import Rows
from bbrgym.envs.reward import Reward
from bbrgym.envs.scenario import Flow, Scenario

PAGE = Path(__file__).parents[2] / "docs" / "rewards.md"
THREE = Scenario(
    rate_mbps=20,
    duration_s=2,
    flows=(Flow("bbr"), Flow("agent", rtt_ms=20), Flow("cubic", start_s=1)),
    packet_bytes=960,
)


def steps(env: gymnasium.Env[Any, Any], count: int = 20) -> list[tuple[float, dict[str, Any]]]:
    env.reset(seed=1)
    found = []
    for _ in range(count):
        _, reward, _, _, info = env.step(np.zeros(2, np.float32))
        found.append((float(reward), info))
    return found


def test_details_are_the_parts_of_the_reward() -> None:
    weights = {"alpha_fair": 1.0, "delay": 0.3, "loss": 0.0, "utilisation": 2.0}
    plain = gymnasium.make("bbrgym/Default-v1", scenario=THREE, reward={"terms": weights})
    detailed = gymnasium.make("bbrgym/Default-v1", scenario=THREE, reward=Reward(weights), has_details=True)
    trace = bbrgym.simulate(THREE)
    for place, ((reward, info), (expected, without)) in enumerate(zip(steps(detailed), steps(plain), strict=True)):
        assert reward == expected
        assert info.keys() - without.keys() == {"reward_terms", "fair_share_mbps", "rates_mbps"}
        assert info["reward_terms"].keys() == {"alpha_fair", "delay", "utilisation"}
        assert sum(info["reward_terms"].values()) == pytest.approx(reward)
        assert info["rates_mbps"].shape == (3,)
        assert info["rates_mbps"][1] == info["delivery_rate_mbps"]
        flows = 2 if place < len(trace.time_s) / 2 else 3
        assert info["fair_share_mbps"] == pytest.approx(20 * 0.96 / flows)


def test_a_callable_gives_the_reward_of_each_step() -> None:
    seen: list[tuple[Rows, Scenario]] = []

    def reward(rows: Rows, scenario: Scenario) -> float:
        seen.append((rows, scenario))
        return rows.link_row()["queue_mean_ms"]

    env = gymnasium.make("bbrgym/Default-v1", scenario=THREE, reward=reward, has_details=True)
    found = steps(env)
    assert [one for one, _ in found] == [info["link_queue_mean_ms"] for _, info in found]
    assert len({one for one, _ in found}) > 10
    assert [rows.time_s for rows, _ in seen] == pytest.approx(np.arange(1, 21) / 10)
    assert all(rows.flows.shape[0] == 3 and scenario == THREE for rows, scenario in seen)
    assert found[0][1]["reward_terms"] == {}


@pytest.mark.parametrize("given", [float("nan"), None, "much"])
def test_a_reward_must_be_a_number(given: Any) -> None:
    env = gymnasium.make("bbrgym/Default-v1", reward=lambda rows, scenario: given).unwrapped
    env.reset(seed=1)
    with pytest.raises(ValueError, match="the reward that the function returns must be a finite number"):
        env.step(np.zeros(2, np.float32))


def test_other_forms_refuse_a_callable() -> None:
    def reward(rows: Rows, scenario: Scenario) -> float:
        return 0.0

    for make in (
        lambda: gymnasium.make_vec("bbrgym/Duel-v1", vectorization_mode="vector_entry_point", reward=reward),
        lambda: bbrgym.parallel_env(reward=reward),
    ):
        with pytest.raises(ValueError, match="a Python callable is for a single environment only"):
            make()


def test_the_code_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 5
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks:
        exec(block, names)  # each continues the one before
    assert "alpha_fair" in capsys.readouterr().out
    assert names["model"].num_timesteps == 64
    env = names["ShortQueue"](gymnasium.make("bbrgym/Duel-v1"))
    observation, _ = env.reset(seed=1)
    assert env.observation_space.contains(observation)
