"""Gymnasium environments over one shared bottleneck: scenarios, observations, actions, rewards, engines."""

from __future__ import annotations

import gymnasium


def register_environments() -> None:
    """Register the environments with Gymnasium (importing `bbrgym` does it); doing it again changes nothing.

    `bbrgym/Bottleneck-v0` is one agent flow: `bbrgym.envs.bottleneck.BottleneckEnv`, and with `gymnasium.make_vec`
    `bbrgym.envs.vector.BottleneckVectorEnv`. Both are loaded when the first one is made.
    """
    if "bbrgym/Bottleneck-v0" not in gymnasium.registry:
        gymnasium.register(
            id="bbrgym/Bottleneck-v0",
            entry_point="bbrgym.envs.bottleneck:BottleneckEnv",
            vector_entry_point="bbrgym.envs.vector:BottleneckVectorEnv",
        )
