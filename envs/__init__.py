"""Environments over one shared bottleneck: scenarios, observations, actions, rewards, engines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import gymnasium

from bbrgym.envs.engine import register_engine
from bbrgym.envs.episode_spec import AnyScenario, EpisodeSpec
from bbrgym.envs.named import scenario_names

if TYPE_CHECKING:
    from bbrgym.envs.pettingzoo_env import BottleneckParallelEnv


def environment_ids() -> dict[str, dict[str, Any]]:
    """Return the ids of the Gymnasium environments with the arguments that each is made with.

    `bbrgym/Bottleneck-v1` has the default scenario. Each named scenario (`bbrgym.envs.named`) of one agent has an id of
    its own, which is the same task: `duel` is `bbrgym/Duel-v1`, `paper/acw` is `bbrgym/PaperAcw-v1`. So have the
    distributions of several agents; their ids say what drives the agents but the first, `other_agents`.
    """
    ids: dict[str, dict[str, Any]] = {"bbrgym/Bottleneck-v1": {}}
    for name in scenario_names():
        if name in _WITHOUT_ID:
            continue
        words = name.replace("/", "_").replace("-", "_").split("_")
        arguments = {"scenario": name}
        if name in _OF_SEVERAL_AGENTS:
            arguments["other_agents"] = "bbr"
        ids[f"bbrgym/{''.join(word.capitalize() for word in words)}-v1"] = arguments
    return ids


_OF_SEVERAL_AGENTS: Final = ("families", "preferences", "shared", "train")
"""Distributions over scenarios of several agents."""

_WITHOUT_ID: Final = ("families_v2", "pair")
"""Those of several agents without an id: what the shipped policy was trained in; `pair` is `duel` with one agent."""


NS3GYM_ID: Final = "bbrgym/Ns3Gym-v0"
"""The id of `bbrgym.envs.ns3gym.client.Ns3GymEnv`, which runs other people's ns3-gym programs."""


def register_environments() -> None:
    """Register the environments with Gymnasium (importing `bbrgym` does it); doing it again changes nothing.

    Those of `environment_ids` are `bbrgym.envs.gym_env.BottleneckEnv`, and with `gymnasium.make_vec`
    `bbrgym.envs.vector_env.BottleneckVectorEnv`. They are loaded when the first one is made.
    """
    if NS3GYM_ID in gymnasium.registry:
        return
    gymnasium.register(id=NS3GYM_ID, entry_point="bbrgym.envs.ns3gym.client:Ns3GymEnv")
    for id, arguments in environment_ids().items():
        gymnasium.register(
            id=id,
            entry_point="bbrgym.envs.gym_env:BottleneckEnv",
            vector_entry_point="bbrgym.envs.vector_env:BottleneckVectorEnv",
            kwargs=arguments,
        )


def register_engines() -> None:
    """Register the engines (importing `bbrgym` does it). They are loaded when the first one is made."""
    register_engine("native", "bbrgym.envs.native.engine:NativeEngine", "bbrgym.envs.native.engine:NativeBatch")
    register_engine("ns3", "bbrgym.envs.ns3.engine:Ns3Engine")
    register_engine("linux", "bbrgym.envs.linux.engine:LinuxEngine")


def parallel_env(
    scenario: AnyScenario | None = None,
    *,
    render_mode: str | None = None,
    inactive_agents: str = "neutral",
    **parts: Any,
) -> BottleneckParallelEnv:
    """Make the PettingZoo environment of several agent flows, `bbrgym.envs.pettingzoo_env.BottleneckParallelEnv`.

    Args:
        scenario: what is simulated, with at least one flow whose algorithm is `agent`; None is an agent and a BBR flow,
            and another agent whose flow starts later and ends earlier.
        render_mode: None, "human", "ansi" or "rgb_array", as of `BottleneckEnv`.
        inactive_agents: what agents are while their flows are inactive: "neutral" (present, with a neutral observation,
            reward 0 and an ignored action) or "absent".
        parts: the other arguments of `bbrgym.envs.episode_spec.EpisodeSpec`: `observation`, `action`, `reward`,
            `step_ms`, `step_rtts`, `engine`, `engine_options`.

    Raises:
        ModuleNotFoundError: PettingZoo is not installed; the message says what to do.
        ValueError: an argument is bad; the message names the bad value and the good ones.
    """
    # Here, because PettingZoo is an optional dependency.
    from bbrgym.envs.pettingzoo_env import TWO_AGENTS_SCENARIO, BottleneckParallelEnv

    spec = EpisodeSpec(TWO_AGENTS_SCENARIO if scenario is None else scenario, **parts)
    return BottleneckParallelEnv(spec, render_mode, inactive_agents)
