"""What comes before learning: observations to standardise by, and, if wanted, a teacher to begin from."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import torch
from sb3_contrib import RecurrentPPO
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from stable_baselines3 import SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.vec_env import VecEnv

from bbrgym.agents.learner import Standardised, UnitReturns
from bbrgym.agents.scripted import RULES
from bbrgym.envs.episode import EpisodeSpec

Array = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]

NOISE: Final = 0.15
"""Standard deviation of what is added to a teacher's actions, so that the learner sees how it comes back, too."""


@dataclass(frozen=True)
class Demonstrations:
    """What was seen and done in t steps of n environments.

    Attributes:
        observations: as the environment gives them, shape (t, n, length of an observation).
        following: what was seen after each step, at an episode's end its last observation; likewise.
        actions: the teacher's, without noise, shape (t, n, 2).
        acted: with noise, as they were done, shape (t, n, 2).
        rewards: shape (t, n).
        dones: where an episode ended, shape (t, n).
        timeouts: where it ended by its time alone (`TimeLimit.truncated`), shape (t, n).
    """

    observations: Array
    following: Array
    actions: Array
    acted: Array
    rewards: Array
    dones: Flags
    timeouts: Flags

    def returns(self, gamma: float) -> Array:
        """Discounted sums of the rewards that followed, of the first steps, shape (less than t, n).

        The last ones miss what would have come: beyond a horizon of the discount nothing is missing.
        """
        returns = np.zeros_like(self.rewards)
        following = np.zeros_like(self.rewards[0])
        for index in reversed(range(len(returns))):
            following = self.rewards[index] + gamma * following * ~self.dones[index]
            returns[index] = following
        horizon = min(len(returns) // 2, math.ceil(3.0 / (1.0 - gamma)) if gamma < 1 else 0)
        return returns[: len(returns) - horizon]


def prepare(model: BaseAlgorithm, spec: EpisodeSpec, teacher: str | None, steps: int, seed: int) -> None:
    """Look at the environment for some steps, standardise observations by what was seen, and imitate the teacher.

    Without a teacher actions are drawn evenly.

    Args:
        model: fresh, with a logger. If there is a teacher, its actor is changed, its critic is the teacher's, and its
            replay buffer, if it has one, has as many of the steps as it can.
        spec: of the environment.
        teacher: a rule of `bbrgym.agents.scripted.RULES`, or None.
        steps: decisions of all flows together.
        seed: decides what happens.
    """
    rng = np.random.default_rng(seed)
    inputs = Standardised.of(model)
    acts: Callable[[Array], Array]
    if teacher is None:

        def acts(seen: Array) -> Array:
            return rng.uniform(-1.0, 1.0, (len(seen), 2)).astype(np.float32)

    else:
        rule = RULES[teacher](spec.observation, spec.action)

        def acts(seen: Array) -> Array:
            return rule.forward(seen[:, : rule.inputs], [])[0]

    shown = demonstrate(inputs.venv, acts, steps, rng)
    returns = shown.returns(model.gamma)
    inputs.fit(shown.observations[: len(returns)].reshape(-1, shown.observations.shape[-1]))
    if teacher is None:
        return
    shown = dataclasses.replace(
        shown, observations=inputs.standardise(shown.observations), following=inputs.standardise(shown.following)
    )
    if isinstance(model, OffPolicyAlgorithm):
        imitate(model, shown, returns, rng)
        remember(model, shown)
        judge(model, rng)
    else:
        imitate(model, shown, returns * UnitReturns.of(model).scale, rng)


def demonstrate(env: VecEnv, acts: Callable[[Array], Array], steps: int, rng: np.random.Generator) -> Demonstrations:
    """Act with noise, `NOISE` of a random part of it in each environment.

    Args:
        env: with observations as they are.
        acts: from observations (N, length) to actions (N, 2).
        steps: decisions, at least so many.
        rng: of the noise and the episodes.
    """
    env.seed(int(rng.integers(2**31)))
    seen = env.reset()
    amount = rng.uniform(0.0, 2.0, (env.num_envs, 1))
    rows = []
    for _ in range(-(-steps // env.num_envs)):
        chosen = acts(seen)
        noisy = chosen + NOISE * amount * rng.standard_normal(chosen.shape)
        acted = noisy.clip(-1.0, 1.0).astype(np.float32)
        new, rewards, dones, infos = env.step(acted)
        following, timeouts = new.copy(), np.zeros_like(dones)
        for index in np.flatnonzero(dones):
            following[index] = infos[index]["terminal_observation"]
            timeouts[index] = infos[index]["TimeLimit.truncated"]
        rows.append((seen, following, chosen, acted, rewards, dones, timeouts))
        seen = new
    return Demonstrations(*(np.array(column) for column in zip(*rows, strict=True)))


def remember(model: OffPolicyAlgorithm, shown: Demonstrations) -> None:
    """Have the replay buffer begin with these steps, as if the learner had done them; observations standardised."""
    for index in range(len(shown.rewards)):
        model.replay_buffer.add(
            shown.observations[index],
            shown.following[index],
            shown.acted[index],
            shown.rewards[index],
            shown.dones[index],
            [{"TimeLimit.truncated": is_timeout} for is_timeout in shown.timeouts[index].tolist()],
        )


def judge(model: OffPolicyAlgorithm, rng: np.random.Generator) -> None:
    """Let the critics learn from the replay buffer, as they will do later, while the actor stays as it is.

    Returns say what came of what was done, and little of what would have come of something else: with critics fitted to
    them alone, the actor's first thousand updates lose what it was taught.
    """
    buffer = model.replay_buffer
    model.set_random_seed(int(rng.integers(2**31)))
    model.actor.requires_grad_(False)
    model.train(_EPOCHS * (buffer.size() * buffer.n_envs // model.batch_size + 1), model.batch_size)
    model.actor.requires_grad_(True)


def imitate(model: BaseAlgorithm, shown: Demonstrations, returns: Array, rng: np.random.Generator) -> None:
    """Fit the actor to the teacher's actions, and the critic to the returns, by least squares.

    Args:
        model: a recurrent one sees sequences from the beginning of the episodes on.
        shown: with observations as the learner sees them.
        returns: of its first steps, as the learner sees them.
        rng: of the batches.
    """
    policy = model.policy
    policy.set_training_mode(True)
    if isinstance(model, RecurrentPPO):
        spans = [slice(first, first + _SPAN) for first in range(0, len(returns), _SPAN)] * _EPOCHS
        count, losses = len(spans), _losses_in_sequence(model, shown, returns, spans)
    else:
        count = _EPOCHS * (returns.size // _BATCH + 1)
        batches = (torch.as_tensor(rng.integers(returns.size, size=_BATCH)) for _ in range(count))
        losses = _losses_of_batches(model, shown, returns, batches)
    optimiser = torch.optim.Adam(policy.parameters(), lr=_LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, count)
    for loss in losses:
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no types there
        optimiser.step()
        schedule.step()
    policy.set_training_mode(False)
    if isinstance(model, OffPolicyAlgorithm):
        model.critic_target.load_state_dict(model.critic.state_dict())
    if isinstance(model, TD3):
        model.actor_target.load_state_dict(model.actor.state_dict())
    if isinstance(model, SAC):
        # As wide as it will want to be: log_std + log(2 pi e) / 2 is the entropy of one value, but for tanh's part.
        width = model.target_entropy / model.action_space.shape[0] - 0.5 * math.log(2.0 * math.pi * math.e)
        torch.nn.init.zeros_(model.actor.log_std.weight)
        torch.nn.init.constant_(model.actor.log_std.bias, width)


def _losses_of_batches(
    model: BaseAlgorithm, shown: Demonstrations, returns: Array, batches: Iterator[torch.Tensor]
) -> Iterator[torch.Tensor]:
    seen, wanted, acted = (
        torch.as_tensor(array[: len(returns)]).flatten(0, 1)
        for array in (shown.observations, shown.actions, shown.acted)
    )
    values = torch.as_tensor(returns).flatten()
    for batch in batches:
        if isinstance(model, OffPolicyAlgorithm):
            means = model.policy(seen[batch], deterministic=True)
            estimates = model.critic(seen[batch], acted[batch])
        else:
            means = model.policy.get_distribution(seen[batch]).distribution.mean
            estimates = [model.policy.predict_values(seen[batch])]
        loss = ((means - wanted[batch]) ** 2).mean()
        for estimate in estimates:
            loss = loss + ((estimate[:, 0] - values[batch]) ** 2).mean()
        yield loss


def _losses_in_sequence(
    model: RecurrentPPO, shown: Demonstrations, returns: Array, spans: list[slice]
) -> Iterator[torch.Tensor]:
    """States go on from span to span, gradients do not."""
    starts = np.ones_like(shown.dones)
    starts[1:] = shown.dones[:-1]
    arrays = (shown.observations, shown.actions, starts.astype(np.float32), returns)
    seen, wanted, begins, values = (torch.as_tensor(array[: len(returns)]).transpose(0, 1) for array in arrays)
    lstm = model.policy.lstm_actor
    zeros = torch.zeros(lstm.num_layers, len(seen), lstm.hidden_size)
    states = RNNStates((zeros, zeros), (zeros, zeros))
    for span in spans:
        # It is all zero at the first step, which begins an episode.
        means, estimates, _, states = model.policy(
            seen[:, span].flatten(0, 1), states, begins[:, span].flatten(), deterministic=True
        )
        states = RNNStates(*(tuple(state.detach() for state in pair) for pair in states))
        yield (
            ((means - wanted[:, span].flatten(0, 1)) ** 2).mean()
            + ((estimates[:, 0] - values[:, span].flatten()) ** 2).mean()
        )


_LEARNING_RATE: Final = 2e-3
_EPOCHS: Final = 10
_BATCH: Final = 1024
_SPAN: Final = 16
"""Steps of a sequence through which gradients go."""
