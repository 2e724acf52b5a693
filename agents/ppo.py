"""PPO that keeps both cores busy: rollouts in C++, and actor and critic side by side. Importing it loads torch."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.type_aliases import RolloutBufferSamples
from stable_baselines3.common.utils import explained_variance
from stable_baselines3.common.vec_env import VecEnv, VecMonitor

from bbrgym.agents.actor import export_agent
from bbrgym.agents.wrappers import ScaleReward, StandardiseObservation
from bbrgym.baselines.policy_file import Array
from bbrgym.envs.sb3_env import Rollout, SharedPolicyVecEnv

_BATCH: Final = 4096
"""Samples that are evaluated at once: what layers return of more does not fit in a core's cache."""


class _Losses(NamedTuple):
    """Of a batch: what is minimised, and what tells how far the policy has moved."""

    policy: float
    entropy: float
    approx_kl: float
    clip_fraction: float
    value: float = 0.0


class FlowBuffer(RolloutBuffer):  # type: ignore[misc]  # see below
    """A rollout buffer that also says in which steps each flow took part.

    Attributes:
        flows: the environments, whose record has it after each step.
        took_part: shape (steps, flows).
    """

    flows: SharedPolicyVecEnv
    took_part: npt.NDArray[np.bool_]
    generator_ready: bool

    def reset(self) -> None:
        """Forget all steps."""
        super().reset()
        self.took_part = np.zeros((self.buffer_size, self.n_envs), np.bool_)

    def add(self, *step: object) -> None:
        """Add the last step of the environments; see `RolloutBuffer`."""
        self.took_part[self.pos] = self.flows.record.took_part
        super().add(*step)

    def samples(self) -> RolloutBufferSamples:
        """Return the steps in which a flow took part. In the others its actions have no effect and its reward is 0."""
        if not self.generator_ready:
            for name in ("observations", "actions", "values", "log_probs", "advantages", "returns", "took_part"):
                setattr(self, name, self.swap_and_flatten(getattr(self, name)))
            self.generator_ready = True
        return self._get_samples(np.flatnonzero(self.took_part))


class RolloutPPO(PPO):  # type: ignore[misc]  # Stable-Baselines3 is not type-checked, see pyproject.toml
    """Stable-Baselines3's PPO, with the same numbers for the same seed up to rounding, on two cores.

    Where the engine can (`SharedPolicyVecEnv.can_roll`), the actor acts inside its batch. The noise on the actions is
    drawn before, and values and probabilities are computed afterwards, for all steps at once. Callbacks get one
    `on_step` per rollout.

    It learns from the steps in which a flow took part, in batches of equal size. In an update, actor and critic, which
    share no parameters, have a thread each. Their gradients depend on nothing of each other, so this changes no number.
    """

    _last_episode_starts: npt.NDArray[np.bool_]

    def _setup_model(self) -> None:
        self.rollout_buffer_class = FlowBuffer
        super()._setup_model()

    def collect_rollouts(
        self, env: VecEnv, callback: BaseCallback, rollout_buffer: FlowBuffer, n_rollout_steps: int
    ) -> bool:
        """Fill the buffer; see `OnPolicyAlgorithm`. Return False if a callback ends the training."""
        flows: SharedPolicyVecEnv = env.unwrapped
        rollout_buffer.flows = flows
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
    def _fill(self, buffer: FlowBuffer, rollout: Rollout) -> None:
        inputs, gamma = StandardiseObservation.of(self), self.gamma
        observations = inputs.standardise(rollout.observations)
        rewards = rollout.rewards * ScaleReward.of(self).scale
        # What a time limit cut off is worth what the critic expects of it.
        timed_out = rollout.timeouts[rollout.dones]
        cut_off = inputs.standardise(rollout.terminal_observations[timed_out])
        rewards[rollout.timeouts] += gamma * self.policy.predict_values(torch.as_tensor(cut_off))[:, 0].numpy()
        seen, actions = (torch.as_tensor(array).flatten(0, 1) for array in (observations[:-1], rollout.actions))
        samples = (slice(first, first + _BATCH) for first in range(0, len(seen), _BATCH))
        parts = [self.policy.evaluate_actions(seen[some], actions[some])[:2] for some in samples]
        values, log_probs = map(torch.cat, zip(*parts, strict=True))
        buffer.observations[:] = observations[:-1]
        buffer.actions[:] = rollout.actions
        buffer.rewards[:] = rewards
        buffer.took_part[:] = rollout.took_part
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

    def train(self) -> None:
        """Update the policy from the buffer; see `PPO`. Samples are gathered once per epoch, in the same order."""
        samples = self.rollout_buffer.samples()
        if not len(samples.actions):
            return
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        clip_range = self.clip_range(self._current_progress_remaining)
        clip_range_vf = None if self.clip_range_vf is None else self.clip_range_vf(self._current_progress_remaining)
        losses: list[_Losses] = []
        is_diverging = False
        with ThreadPoolExecutor(1) as thread:
            for _ in range(self.n_epochs):
                epoch = len(losses)
                order = torch.as_tensor(np.random.permutation(len(samples.actions)))
                count = max(1, round(len(order) / self.batch_size))
                batches = zip(*(tensor[order].tensor_split(count) for tensor in samples), strict=True)
                for parts in batches:
                    # Copied, because how the library of linear algebra rounds depends on where an array begins.
                    batch = RolloutBufferSamples(*(part.clone() for part in parts))
                    self.policy.optimizer.zero_grad()
                    of_critic = thread.submit(self._differentiate_critic, batch, clip_range_vf)
                    of_actor = self._differentiate_actor(batch, clip_range)
                    losses.append(of_actor._replace(value=of_critic.result()))
                    is_diverging = self.target_kl is not None and losses[-1].approx_kl > 1.5 * self.target_kl
                    if is_diverging:
                        break
                    torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
                    self.policy.optimizer.step()
                self._n_updates += 1
                if is_diverging:
                    break
        self._log(losses, losses[epoch:], clip_range, clip_range_vf)
        values, returns = samples.old_values.numpy(), samples.returns.numpy()
        self.logger.record("train/explained_variance", explained_variance(values, returns))

    def _differentiate_actor(self, batch: RolloutBufferSamples, clip_range: float) -> _Losses:
        distribution = self.policy.get_distribution(batch.observations)
        advantages = batch.advantages
        if self.normalize_advantage and len(advantages) > 1:
            advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        log_ratio = distribution.log_prob(batch.actions) - batch.old_log_prob
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1 - clip_range, 1 + clip_range)
        policy_loss = -torch.min(advantages * ratio, advantages * clipped).mean()
        entropy_loss = -distribution.entropy().mean()
        (policy_loss + self.ent_coef * entropy_loss).backward()
        with torch.no_grad():
            return _Losses(
                policy=policy_loss.item(),
                entropy=entropy_loss.item(),
                approx_kl=((ratio - 1) - log_ratio).mean().item(),  # http://joschu.net/blog/kl-approx.html
                clip_fraction=((ratio - 1).abs() > clip_range).float().mean().item(),
            )

    def _differentiate_critic(self, batch: RolloutBufferSamples, clip_range: float | None) -> float:
        values = self.policy.predict_values(batch.observations).flatten()
        if clip_range is not None:
            values = batch.old_values + (values - batch.old_values).clamp(-clip_range, clip_range)
        loss = torch.nn.functional.mse_loss(batch.returns, values)
        (self.vf_coef * loss).backward()
        return loss.item()

    def _log(self, losses: list[_Losses], epoch: list[_Losses], clip_range: float, clip_range_vf: float | None) -> None:
        record = self.logger.record
        last = losses[-1]
        record("train/entropy_loss", np.mean([loss.entropy for loss in losses]))
        record("train/policy_gradient_loss", np.mean([loss.policy for loss in losses]))
        record("train/value_loss", np.mean([loss.value for loss in losses]))
        record("train/approx_kl", np.mean([loss.approx_kl for loss in epoch]))
        record("train/clip_fraction", np.mean([loss.clip_fraction for loss in losses]))
        record("train/loss", last.policy + self.ent_coef * last.entropy + self.vf_coef * last.value)
        record("train/std", self.policy.log_std.exp().mean().item())
        record("train/n_updates", self._n_updates, exclude="tensorboard")
        record("train/clip_range", clip_range)
        if clip_range_vf is not None:
            record("train/clip_range_vf", clip_range_vf)
