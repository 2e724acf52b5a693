"""PPO that collects its rollouts in C++ where the engine can. Importing it loads torch."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv, VecMonitor

from bbrgym.agents.actor import export_agent
from bbrgym.agents.wrappers import ScaleReward, StandardiseObservation
from bbrgym.baselines.policy_file import Array
from bbrgym.envs.sb3_env import Rollout, SharedPolicyVecEnv


class RolloutPPO(PPO):  # type: ignore[misc]  # Stable-Baselines3 is not type-checked, see pyproject.toml
    """Stable-Baselines3's PPO, whose actor acts inside the engine's batch where the engine can (`can_roll`).

    With the same seed it is the same learner up to rounding: the noise on the actions has the same draws, and values
    and probabilities are computed afterwards, for all steps at once. Callbacks get one `on_step` per rollout.
    """

    _last_episode_starts: npt.NDArray[np.bool_]

    def collect_rollouts(
        self, env: VecEnv, callback: BaseCallback, rollout_buffer: RolloutBuffer, n_rollout_steps: int
    ) -> bool:
        """Fill the buffer; see `OnPolicyAlgorithm`. Return False if a callback ends the training."""
        flows: SharedPolicyVecEnv = env.unwrapped
        if not flows.can_roll:
            return bool(super().collect_rollouts(env, callback, rollout_buffer, n_rollout_steps))
        self.policy.set_training_mode(False)
        rollout_buffer.reset()
        callback.on_rollout_start()
        actor = export_agent(self, "ppo", flows.episode_spec, {}).compiled
        rollout = flows.rollout(self._noise(n_rollout_steps, env.num_envs), actor)
        self.num_timesteps += rollout.rewards.size
        infos: list[dict[str, object]] = []  # the engine does not fail
        callback.update_locals({"infos": infos})
        if not callback.on_step():
            return False
        self._count_episodes(rollout)
        self._fill(rollout_buffer, rollout)
        callback.on_rollout_end()
        return True

    @torch.no_grad()
    def _noise(self, steps: int, flows: int) -> Array:
        """Return what exploration adds to the actions, in the draws of step after step."""
        draws = [torch.normal(torch.zeros(flows, 2), torch.ones(flows, 2)) for _ in range(steps)]
        noise: Array = (torch.stack(draws) * self.policy.log_std.exp()).numpy()
        return noise

    @torch.no_grad()
    def _fill(self, buffer: RolloutBuffer, rollout: Rollout) -> None:
        inputs, gamma = StandardiseObservation.of(self), self.gamma
        observations = inputs.standardise(rollout.observations)
        rewards = rollout.rewards * ScaleReward.of(self).scale
        # What a time limit cut off is worth what the critic expects of it.
        timed_out = rollout.timeouts[rollout.dones]
        cut_off = inputs.standardise(rollout.terminal_observations[timed_out])
        rewards[rollout.timeouts] += gamma * self.policy.predict_values(torch.as_tensor(cut_off))[:, 0].numpy()
        seen, actions = torch.as_tensor(observations[:-1]), torch.as_tensor(rollout.actions)
        values, log_probs, _ = self.policy.evaluate_actions(seen.flatten(0, 1), actions.flatten(0, 1))
        buffer.observations[:] = observations[:-1]
        buffer.actions[:] = rollout.actions
        buffer.rewards[:] = rewards
        buffer.episode_starts[0], buffer.episode_starts[1:] = self._last_episode_starts, rollout.dones[:-1]
        buffer.values[:] = values.reshape(rewards.shape)
        buffer.log_probs[:] = log_probs.reshape(rewards.shape)
        buffer.pos, buffer.full = buffer.buffer_size, True
        self._last_obs, self._last_episode_starts = observations[-1], rollout.dones[-1]
        last_values = self.policy.predict_values(torch.as_tensor(self._last_obs))
        buffer.compute_returns_and_advantage(last_values, self._last_episode_starts)

    def _count_episodes(self, rollout: Rollout) -> None:
        """Log the episodes that ended, as `VecMonitor` does in steps."""
        monitor = self.env
        while not isinstance(monitor, VecMonitor):
            monitor = monitor.venv
        for rewards, dones in zip(rollout.rewards, rollout.dones, strict=True):
            monitor.episode_returns += rewards
            monitor.episode_lengths += 1
            ended = np.flatnonzero(dones)
            self.ep_info_buffer.extend(
                {"r": monitor.episode_returns[row], "l": monitor.episode_lengths[row]} for row in ended
            )
            monitor.episode_returns[ended] = 0
            monitor.episode_lengths[ended] = 0
