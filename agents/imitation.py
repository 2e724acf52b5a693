"""What happens before learning: statistics to standardise observations by, and optionally imitation of a teacher."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from sb3_contrib import TQC, CrossQ, RecurrentPPO
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv

from bbrgym.agents.scripted import BacklogRule
from bbrgym.agents.wrappers import ScaleReward, StandardiseObservation
from bbrgym.baselines.policy_file import Array
from bbrgym.envs.sb3_env import STEP_KEYS, check_engines

Flags = npt.NDArray[np.bool_]

NOISE: Final = 0.15
"""Standard deviation of the noise on a teacher's actions, so that the learner also sees how the teacher recovers."""


@dataclass(frozen=True)
class Demonstrations:
    """Transitions of t steps in n environments.

    Attributes:
        observations: as the environment returns them, shape (t, n, length of an observation).
        next_observations: those after each step, at an episode's end its last one; same shape.
        actions: the teacher's, without noise, shape (t, n, 2).
        noisy_actions: the executed ones, shape (t, n, 2).
        rewards: shape (t, n).
        dones: where an episode ended, shape (t, n).
        timeouts: where it ended by its time limit alone (`TimeLimit.truncated`), shape (t, n).
        took_part: whether the flow took part in the step, shape (t, n).
        has_ended: whether the flow has ended, with its episode or before, shape (t, n).
    """

    observations: Array
    next_observations: Array
    actions: Array
    noisy_actions: Array
    rewards: Array
    dones: Flags
    timeouts: Flags
    took_part: Flags
    has_ended: Flags

    def returns(self, gamma: float) -> Array:
        """Return the discounted sums of future rewards for the first steps, shape (less than t, n).

        The last steps are left out: what would have come after them is missing, up to a horizon of the discount.
        """
        returns = np.zeros_like(self.rewards)
        following = np.zeros_like(self.rewards[0])
        for index in reversed(range(len(returns))):
            following = self.rewards[index] + gamma * following * ~self.dones[index]
            returns[index] = following
        horizon = min(len(returns) // 2, math.ceil(3.0 / (1.0 - gamma)) if gamma < 1 else 0)
        return returns[: len(returns) - horizon]


def prepare(model: BaseAlgorithm, teacher: BacklogRule | None, steps: int, seed: int) -> None:
    """Collect some steps, fit the standardisation of observations to them, and imitate the teacher.

    Without a teacher, actions are drawn uniformly and nothing is imitated.

    Args:
        model: fresh, with a logger. With a teacher, its actor and critic are fitted to the teacher, and its replay
            buffer, if it has one, is filled with the steps.
        teacher: it sees the observations before they are standardised.
        steps: decisions of all flows together.
        seed: decides everything random.
    """
    rng = np.random.default_rng(seed)
    inputs = StandardiseObservation.of(model)
    act: Callable[[Array], Array]
    if teacher is None:

        def act(observations: Array) -> Array:
            return rng.uniform(-1.0, 1.0, (len(observations), 2)).astype(np.float32)

    else:

        def act(observations: Array) -> Array:
            return teacher.forward(observations[:, : teacher.inputs])

    shown = demonstrate(inputs.venv, act, steps, rng)
    returns = shown.returns(model.gamma)
    inputs.fit(shown.observations[: len(returns)].reshape(-1, shown.observations.shape[-1]))
    if teacher is None:
        return
    shown = dataclasses.replace(
        shown,
        observations=inputs.standardise(shown.observations),
        next_observations=inputs.standardise(shown.next_observations),
    )
    if isinstance(model, OffPolicyAlgorithm):
        imitate(model, shown, returns, rng)
        fill_replay_buffer(model, shown)
        train_critics(model, rng)
    else:
        imitate(model, shown, returns * ScaleReward.of(model).scale, rng)


def demonstrate(env: VecEnv, act: Callable[[Array], Array], steps: int, rng: np.random.Generator) -> Demonstrations:
    """Act with noise, of a standard deviation drawn per environment from [0, 2 `NOISE`].

    Args:
        env: with observations that are not standardised.
        act: from observations (N, length) to actions (N, 2).
        steps: decisions to collect at least.
        rng: of the noise and the episodes.

    Raises:
        EngineError: an engine failed.
    """
    env.seed(int(rng.integers(2**31)))
    observations = env.reset()
    amount = rng.uniform(0.0, 2.0, (env.num_envs, 1))
    rows = []
    for _ in range(-(-steps // env.num_envs)):
        actions = act(observations)
        noisy = actions + NOISE * amount * rng.standard_normal(actions.shape)
        executed = noisy.clip(-1.0, 1.0).astype(np.float32)
        new, rewards, dones, infos = env.step(executed)
        check_engines(infos)
        following = new.copy()
        for index in np.flatnonzero(dones):
            following[index] = infos[index]["terminal_observation"]
        flags = (np.array([info[key] for info in infos], np.bool_) for key in STEP_KEYS)
        rows.append((observations, following, actions, executed, rewards, dones, *flags))
        observations = new
    return Demonstrations(*(np.array(column) for column in zip(*rows, strict=True)))


def fill_replay_buffer(model: OffPolicyAlgorithm, shown: Demonstrations) -> None:
    """Store the steps in the replay buffer, as if the learner had made them; observations standardised."""
    for index in range(len(shown.rewards)):
        columns = (flags[index].tolist() for flags in (shown.timeouts, shown.took_part, shown.has_ended))
        model.replay_buffer.add(
            shown.observations[index],
            shown.next_observations[index],
            shown.noisy_actions[index],
            shown.rewards[index],
            shown.dones[index],
            [dict(zip(STEP_KEYS, values, strict=True)) for values in zip(*columns, strict=True)],
        )


def train_critics(model: OffPolicyAlgorithm, rng: np.random.Generator) -> None:
    """Train the critics from the replay buffer by the learner's own updates, with the actor frozen.

    Returns say what the executed actions led to, and little about other actions: with critics fitted to returns alone,
    the actor's first thousand updates lose what it was taught.
    """
    buffer = model.replay_buffer
    model.set_random_seed(int(rng.integers(2**31)))
    model.actor.requires_grad_(False)
    frozen = copy.deepcopy(model.actor.state_dict())
    model.train(_EPOCHS * (buffer.size() * buffer.n_envs // model.batch_size + 1), model.batch_size)
    model.actor.load_state_dict(frozen)  # the statistics of batch normalisation have no gradients
    model.actor.requires_grad_(True)


def imitate(model: BaseAlgorithm, shown: Demonstrations, returns: Array, rng: np.random.Generator) -> None:
    """Fit the actor to the teacher's actions, and the critic to the returns, by least squares.

    Args:
        model: a recurrent one sees sequences from the beginning of the episodes on.
        shown: with observations as the learner sees them.
        returns: of the first steps, as the learner sees them.
        rng: draws the batches.
    """
    policy = model.policy
    policy.set_training_mode(True)
    if isinstance(model, RecurrentPPO):
        segments = [slice(first, first + _SEGMENT) for first in range(0, len(returns), _SEGMENT)] * _EPOCHS
        count, losses = len(segments), _losses_in_sequence(model, shown, returns, segments)
    else:
        # PPO computes advantages from the values of the other steps, too.
        is_seen = shown.took_part[: len(returns)] | (not isinstance(model, OffPolicyAlgorithm))
        seen = np.flatnonzero(is_seen)
        count = _EPOCHS * (len(seen) // _BATCH + 1)
        batches = (torch.as_tensor(seen[rng.integers(len(seen), size=_BATCH)]) for _ in range(count))
        losses = _losses_of_batches(model, shown, returns, batches)
        if isinstance(model, CrossQ):
            # Behind batch normalisation only this bias, which learns slowly, can move the mean action.
            mean = shown.actions[: len(returns)][is_seen].mean(axis=0).clip(-_MOST_MEAN, _MOST_MEAN)
            model.actor.mu.bias.data = torch.as_tensor(np.arctanh(mean))
    optimiser = torch.optim.Adam(policy.parameters(), lr=_LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, count)
    for loss in losses:
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no types there
        optimiser.step()
        schedule.step()
    policy.set_training_mode(False)
    for name in ("actor", "critic"):
        if hasattr(model, f"{name}_target"):
            getattr(model, f"{name}_target").load_state_dict(getattr(model, name).state_dict())
    if hasattr(model, "target_entropy"):
        # Start at the target entropy: log_std + log(2 pi e) / 2 is the entropy of one action, up to tanh's part.
        width = model.target_entropy / model.action_space.shape[0] - 0.5 * math.log(2.0 * math.pi * math.e)
        torch.nn.init.zeros_(model.actor.log_std.weight)
        torch.nn.init.constant_(model.actor.log_std.bias, width)


def _losses_of_batches(
    model: BaseAlgorithm, shown: Demonstrations, returns: Array, batches: Iterator[torch.Tensor]
) -> Iterator[torch.Tensor]:
    observations, actions, executed = (
        torch.as_tensor(array[: len(returns)]).flatten(0, 1)
        for array in (shown.observations, shown.actions, shown.noisy_actions)
    )
    values = torch.as_tensor(returns).flatten()
    for batch in batches:
        if isinstance(model, OffPolicyAlgorithm):
            means = model.policy(observations[batch], deterministic=True)
            estimates = model.critic(observations[batch], executed[batch])
            if isinstance(model, TQC):  # the mean of each critic's quantiles
                estimates = estimates.mean(dim=2, keepdim=True).unbind(dim=1)
        else:
            means = model.policy.get_distribution(observations[batch]).distribution.mean
            estimates = [model.policy.predict_values(observations[batch])]
        loss = ((means - actions[batch]) ** 2).mean()
        for estimate in estimates:
            loss = loss + ((estimate[:, 0] - values[batch]) ** 2).mean()
        yield loss


def _losses_in_sequence(
    model: RecurrentPPO, shown: Demonstrations, returns: Array, segments: list[slice]
) -> Iterator[torch.Tensor]:
    """Yield the loss of each segment. Recurrent state carries over between segments; gradients are truncated."""
    starts = np.ones_like(shown.dones)
    starts[1:] = shown.dones[:-1]
    arrays = (shown.observations, shown.actions, starts.astype(np.float32), returns)
    observations, actions, begins, values = (torch.as_tensor(array[: len(returns)]).transpose(0, 1) for array in arrays)
    lstm = model.policy.lstm_actor
    zeros = torch.zeros(lstm.num_layers, len(observations), lstm.hidden_size)
    states = RNNStates((zeros, zeros), (zeros, zeros))
    for segment in segments:
        # The first step begins an episode, which resets the state in every epoch.
        means, estimates, _, states = model.policy(
            observations[:, segment].flatten(0, 1), states, begins[:, segment].flatten(), deterministic=True
        )
        states = RNNStates(*(tuple(state.detach() for state in pair) for pair in states))
        yield (
            ((means - actions[:, segment].flatten(0, 1)) ** 2).mean()
            + ((estimates[:, 0] - values[:, segment].flatten()) ** 2).mean()
        )


_LEARNING_RATE: Final = 2e-3
_EPOCHS: Final = 10
_BATCH: Final = 1024
_MOST_MEAN: Final = 0.995
"""Of a mean action before the fit: tanh reaches 1 at infinity only."""
_SEGMENT: Final = 16
"""Steps of a sequence through which gradients are propagated."""
