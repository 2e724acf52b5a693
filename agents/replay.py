"""The replay buffer of the learners that have one. Importing it loads torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from stable_baselines3.common.buffers import ReplayBuffer

from bbrgym.baselines.policy_file import Array
from bbrgym.envs.info import Info
from bbrgym.envs.sb3_env import STEP_KEYS


class FlowReplayBuffer(ReplayBuffer):  # type: ignore[misc]  # Stable-Baselines3 is not type-checked, see pyproject.toml
    """A replay buffer with the steps in which a flow took part, of all flows in one row.

    In the other steps its actions have no effect and its reward is 0. For a flow that ends before its episode, its last
    step is the end: rewards of 0 follow.

    Args:
        arguments: of `ReplayBuffer`; `buffer_size` counts decisions.
        n_envs: any number of flows.
        options: of `ReplayBuffer`.
    """

    pos: int
    full: bool

    def __init__(self, *arguments: Any, n_envs: int = 1, **options: Any) -> None:
        super().__init__(*arguments, n_envs=1, **options)

    def add(
        self,
        obs: Array,
        next_obs: Array,
        action: Array,
        reward: Array,
        done: npt.NDArray[np.bool_],
        infos: Sequence[Info],
    ) -> None:
        """Add a step of all flows; `SharedPolicyVecEnv` has the infos."""
        is_timeout, took_part, has_ended = (
            np.array([info[key] for info in infos], dtype=np.bool_) for key in STEP_KEYS
        )
        flows = np.flatnonzero(took_part)
        if not len(flows) and not self.size():
            flows = np.arange(1)  # a learner may draw a batch before the first flow begins
        rows = (self.pos + np.arange(len(flows))) % self.buffer_size
        for name, values in (
            ("observations", obs),
            ("next_observations", next_obs),
            ("actions", action),
            ("rewards", reward),
            ("dones", done | has_ended),
            ("timeouts", is_timeout),
        ):
            getattr(self, name)[rows, 0] = values[flows]
        end: int = self.pos + len(flows)
        self.full |= end >= self.buffer_size
        self.pos = end % self.buffer_size
