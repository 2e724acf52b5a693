"""Proximal policy optimisation for flows that share a link (Schulman et al. 2017, arXiv:1707.06347).

What differs from the plain algorithm:

* Flows come and go, so only steps count in which the flow took part.
* The standard deviation of an action is constant. A learned one shrinks, and then updates of the same size change the
  policy too much.
* The reward of a flow is the mean of all agents' on its link, because an action reaches all of them. The noise of a
  flow is an AR(1) process with the correlation `NOISE_CORRELATION` from step to step, reset at the start of an episode;
  an action's probability is that of its marginal distribution, a normal one. Neither made a measured difference with
  actions in packets (docs/decisions/0011-our-own-ppo.md), so neither is a setting.
* Actor and critic share no parameters, so each learns in a thread of its own. Targets of the critic are normalised by
  the running mean and standard deviation of returns (Yu et al. 2022, arXiv:2103.01955).
* With a memory both are LSTMs that learn from whole segments, the parts of episodes in a rollout. A segment begins with
  what was remembered when the rollout began. For the actor that is the engine's own state, so until the first gradient
  step the ratio of probabilities is 1, up to rounding. Gradients end there.

Importing it loads torch.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from bbrgym.agents.callbacks import Callbacks, Learner, blaming
from bbrgym.agents.checkpoint import TrainingState
from bbrgym.agents.config import PPOConfig
from bbrgym.agents.curriculum import without_curriculum
from bbrgym.agents.decisions import Decisions, SegmentDecisions, Segments, SingleDecisions
from bbrgym.agents.inputs import INPUT_EPISODES, input_rngs, measure_inputs
from bbrgym.agents.policy import Agent
from bbrgym.agents.torch_network import TorchNetwork, policy_with_memory
from bbrgym.agents.tuned_policy import TunedPolicy, check_origin
from bbrgym.baselines.policy_file import Array
from bbrgym.checks import check_integer
from bbrgym.envs.episode import Episodes
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.envs.rollouts import Rollout, roll, roll_steps

NOISE_CORRELATION: Final = 0.95
"""Of the exploration, from step to step: it lasts about 20 steps."""


class PPO(Learner):
    """See `bbrgym.agents.callbacks.Learner`. An iteration is a rollout and the update from it.

    A rollout has `n_steps` steps of all flows. The last one has fewer if fewer are left.

    Everything random follows from the seed and the steps at the last checkpoint, where new episodes begin, so a
    checkpoint needs no generators: it has the networks, their optimisers and what normalises inputs and returns.
    """

    steps = 0

    def __init__(self, config: PPOConfig, spec: EpisodeSpec, engines: int, seed: int) -> None:
        self._config = config
        self._spec = without_curriculum(spec)
        self._seed = seed
        self._engines = engines
        self._flows = engines * spec.agents
        inputs = spec.observation.space.shape[0]
        self._tuned = None if config.tunes is None else TunedPolicy.read(config.tunes, self._spec)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self._actor = _make_actor(config, inputs) if self._tuned is None else _tuned_actor(config, self._tuned)
            self._critic = TorchNetwork(
                inputs,
                1,
                lstm=self._actor.units,
                widths=config.critic_arch,
                activation=config.activation_fn,
            )
        self._env = Episodes(spec, engines, is_healing=True)
        self._output = "clip" if self._tuned is None else self._tuned.network.output
        self._has_memory = self._actor.state_size > 0
        self._optimisers = [
            torch.optim.Adam(network.parameters(), config.learning_rate, fused=True)
            for network in (self._actor, self._critic)
        ]
        self._inputs: tuple[Array, Array] | None = None  # mean and scale
        self._returns = _RunningScale()
        self._iterations = 0

    @property
    def update_steps(self) -> int:
        """See `Learner`."""
        return self._config.n_steps * self._flows

    @property
    def has_learned(self) -> bool:
        """Whether there was an update."""
        return self._iterations > 0

    def learn(self, total_steps: int, callbacks: Callbacks) -> None:
        """See `Learner`."""
        if self._inputs is None:
            # With the failures, so that the episode that made an engine fail is not repeated.
            entropy = [self._seed, callbacks.state.engine_failures]
            rngs = input_rngs(entropy, INPUT_EPISODES)
            self._inputs = measure_inputs(self._spec, rngs)
            if self._tuned is not None:
                self._actor.load(self._actor.network().for_standardised_inputs(*self._inputs))
        self.restart(self._seed, callbacks.state)
        callbacks.on_training_start(self)
        with ThreadPoolExecutor(1) as thread:
            while self.steps < total_steps:
                callbacks.on_rollout_start(self)
                begin_s = time.monotonic()
                left = math.ceil((total_steps - self.steps) / self._flows)
                rollout, noise = self._roll(min(left, self._config.n_steps))
                for error in rollout.errors:
                    callbacks.on_engine_failure(error, self.steps)
                self.steps += rollout.rewards.size
                metrics = self._update(rollout, noise, thread)
                self._iterations += 1
                fps = rollout.rewards.size / (time.monotonic() - begin_s)
                metrics |= {"time/iterations": self._iterations, "time/fps": fps}
                callbacks.log_metrics(metrics, self.steps)
                if not callbacks.on_step(self.steps):
                    break
        callbacks.on_training_end(self)

    def agent(self) -> Agent:
        """Return the actor without its noise."""
        with blaming(learning_rate=self._config.learning_rate):
            network = self._actor.network(self._output)
            network = network if self._inputs is None else network.with_standardised_inputs(*self._inputs)
        return Agent(self._spec, network)

    def restart(self, seed: int, state: TrainingState) -> None:
        """See `Learner`.

        Raises:
            EngineError: an engine could not begin an episode.
        """
        rng = np.random.default_rng([seed, self.steps, state.engine_failures])
        *self._rngs, self._noise_rng, actor_rng, critic_rng = rng.spawn(self._engines + 3)
        self._order_rngs = actor_rng, critic_rng
        self._noise = self._noise_rng.standard_normal((1, self._flows, 2))
        self._critic_states = np.zeros((self._flows, self._critic.state_size), np.float32)
        self._env.begin_resets(np.arange(self._engines), self._rngs)
        self._env.finish_resets()

    def save(self, folder: Path) -> dict[str, Any]:
        """See `Restorable`."""
        torch.save([part.state_dict() for part in self._parts], folder / "ppo.pt")
        assert self._inputs is not None
        np.savez(folder / "inputs.npz", mean=self._inputs[0], scale=self._inputs[1])
        return {"iterations": self._iterations, "returns": list(self._returns), "tunes": self._origin}

    def restore(self, folder: Path, description: Mapping[str, Any]) -> None:
        """See `Restorable`."""
        check_origin(self._origin, description)
        for part, saved in zip(self._parts, torch.load(folder / "ppo.pt", weights_only=True), strict=True):
            part.load_state_dict(saved)
        with np.load(folder / "inputs.npz", allow_pickle=False) as inputs:
            self._inputs = inputs["mean"], inputs["scale"]
        mean, square, rollouts = description["returns"]
        self._returns = _RunningScale(mean=float(mean), square=float(square), rollouts=float(rollouts))
        self.steps, self._iterations = (
            check_integer(name, description[name], at_least=0) for name in ("steps", "iterations")
        )

    def close(self) -> None:
        """See `Learner`."""
        self._env.close()

    @property
    def _origin(self) -> str:
        return "" if self._tuned is None else self._tuned.content_hash

    @property
    def _parts(self) -> tuple[Any, ...]:
        return *self._actor.children(), *self._critic.children(), *self._optimisers

    def _roll(self, steps: int) -> tuple[Rollout, Array]:
        """Return a rollout of so many steps and the noise in its actions, in standard deviations."""
        noise = np.concatenate([self._noise, self._noise_rng.standard_normal((steps, *self._noise.shape[1:]))])
        noise[1:] *= math.sqrt(1.0 - NOISE_CORRELATION**2)
        for before, after in itertools.pairwise(noise):
            after += NOISE_CORRELATION * before
        std = np.float32(self._config.std)
        scaled = std * noise[:-1].astype(np.float32)

        def renew(step: int, flows: npt.NDArray[np.intp]) -> None:
            """Replace the noise of an episode that begins: what another start changes decays step by step."""
            fresh = self._noise_rng.standard_normal((len(flows), 2))
            decay = NOISE_CORRELATION ** np.arange(len(noise) - step)
            noise[step:, flows] += decay[:, np.newaxis, np.newaxis] * (fresh - noise[step, flows])
            scaled[step:, flows] = std * noise[step:-1, flows]

        if self._env.can_roll:
            rollout = roll(self._env, self._rngs, noise=scaled, policy=self.agent().compiled, renew=renew)
        else:
            rollout = roll_steps(
                self._env,
                self._rngs,
                noise=scaled,
                policy=self._act,
                renew=renew,
                state_size=self._actor.state_size,
                output=self._output,
            )
        self._noise = noise[-1:]
        return rollout, noise[:-1].astype(np.float32)

    @torch.no_grad()
    def _act(self, observations: Array, states: Array) -> Array:
        seen = torch.as_tensor(self._standardise(observations))
        if not self._has_memory:
            return self._actor(seen).numpy()  # type: ignore[no-any-return]  # torch has no type there
        actions, after = self._actor.run(seen[:, None], torch.as_tensor(states))
        states[:] = after.numpy()
        return actions[:, 0].numpy()

    def _standardise(self, observations: Array) -> Array:
        assert self._inputs is not None
        mean, scale = self._inputs
        return (observations - mean) * scale

    def _update(self, rollout: Rollout, noise: Array, thread: ThreadPoolExecutor) -> dict[str, float]:
        """Fit actor and critic to a rollout; return what is logged about it."""
        took_part = rollout.took_part
        count = int(np.count_nonzero(took_part))
        if not count:
            if self._has_memory:  # the critic's has seen the rollout
                self._recall(rollout)
            return {}
        rewards = self._rewards(rollout)
        for_actor, for_critic = self._decisions(rollout)  # before the critic remembers the rollout
        values, returns = self._estimate(rollout, rewards)
        advantages = (returns - values)[took_part]
        variance = float(returns[took_part].var())
        self._returns = self._returns.updated(returns[took_part])
        normalised = np.zeros_like(returns)
        normalised[took_part] = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        drawn = _Drawn(
            actions=for_actor.of(rollout.actions),
            deviations=for_actor.of(noise),
            advantages=for_actor.of(normalised),
        )
        targets = for_critic.of((returns - self._returns.mean) / self._returns.std)
        of_critic = thread.submit(self._fit_critic, for_critic, targets, count)
        metrics = self._fit_actor(for_actor, drawn, count)
        return metrics | {
            "rollout/reward": float(rewards[took_part].mean()),
            "train/explained_variance": 1.0 - float(advantages.var()) / variance if variance > 0 else 0.0,
            "train/value_loss": of_critic.result(),
        }

    def _decisions(self, rollout: Rollout) -> tuple[Decisions, Decisions]:
        """Return what the actor and the critic learn from."""
        observations, took_part = self._standardise(rollout.observations[:-1]), rollout.took_part
        if not self._has_memory:
            decisions = SingleDecisions(observations, took_part)
            return decisions, decisions
        segments = Segments.of(rollout.dones)
        return (
            SegmentDecisions(observations, took_part, segments, rollout.states),
            SegmentDecisions(observations, took_part, segments, self._critic_states),
        )

    def _rewards(self, rollout: Rollout) -> Array:
        """Return the mean reward of all agents of each flow's link, shape (T, M)."""
        shape = (len(rollout.rewards), self._engines, -1)
        total = np.where(rollout.took_part, rollout.rewards, 0.0).reshape(shape).sum(axis=2)
        count = rollout.took_part.reshape(shape).sum(axis=2)
        rewards: Array = (total / np.maximum(count, 1)).repeat(self._spec.agents, axis=1).astype(np.float32)
        return rewards

    def _estimate(self, rollout: Rollout, rewards: Array) -> tuple[Array, Array]:
        """Return the critic's values and the returns by GAE (Schulman et al. 2016, arXiv:1506.02438), shape (T, M)."""
        gamma = self._config.gamma
        values, following = (self._recall if self._has_memory else self._look)(rollout)
        is_seen = np.concatenate([rollout.took_part, rollout.took_part[-1:]])
        deltas = rewards + gamma * following - values
        factors = np.float32(gamma * self._config.gae_lambda) * (~rollout.dones & is_seen[1:])
        advantages = np.zeros((len(rewards) + 1, rewards.shape[1]), np.float32)
        for step in reversed(range(len(rewards))):
            advantages[step] = deltas[step] + factors[step] * advantages[step + 1]
        return values, advantages[:-1] + values

    def _look(self, rollout: Rollout) -> tuple[Array, Array]:
        """Return the values of a critic without memory before each step, and of what follows it, shape (T, M)."""
        took_part, is_worth = rollout.took_part, _worth(rollout)
        values = np.zeros((len(took_part) + 1, took_part.shape[1]), np.float32)
        is_seen = np.concatenate([is_worth, took_part[-1:]])
        values[is_seen] = self._evaluate(rollout.observations[is_seen])
        following = values[1:].copy()  # 0 for a flow that has left
        # What a time limit cut off is worth what the critic expects of it.
        following[rollout.dones] = 0.0
        is_cut = rollout.timeouts & took_part
        following[is_cut] = self._evaluate(rollout.terminal_observations[is_cut[rollout.dones]])
        return values[:-1], following

    @torch.no_grad()
    def _recall(self, rollout: Rollout) -> tuple[Array, Array]:
        """Return the values of a critic with memory, as `_look` does, and keep what it remembers after the rollout."""
        took_part, dones = rollout.took_part, rollout.dones
        segments = Segments.of(dones)
        outputs, states = self._critic.run(
            torch.as_tensor(segments.gather(self._standardise(rollout.observations[:-1]))),
            torch.as_tensor(segments.first_states(self._critic_states)),
            torch.as_tensor(segments.lengths),
        )
        values = np.zeros(took_part.shape, np.float32)
        segments.scatter(self._in_units(outputs), into=values)
        values[~_worth(rollout)] = 0.0
        # What follows the last step of a segment: the end of its episode, or the rest of it.
        ends = segments.lasts, segments.flows
        last = rollout.observations[-1][segments.flows]
        is_over = dones[ends]
        place = np.zeros(dones.shape, np.intp)
        place[dones] = np.arange(len(rollout.terminal_observations))
        last[is_over] = rollout.terminal_observations[place[ends][is_over]]
        outputs, _ = self._critic.run(torch.as_tensor(self._standardise(last))[:, None], states)
        following = np.concatenate([values[1:], values[-1:]])  # 0 for a flow that has left
        is_worth = took_part[ends] & (rollout.timeouts[ends] | ~is_over)
        following[ends] = np.where(is_worth, self._in_units(outputs)[:, 0], np.float32(0.0))
        self._critic_states = np.zeros_like(self._critic_states)
        self._critic_states[segments.flows[~is_over]] = states.numpy()[~is_over]
        return values, following

    @torch.no_grad()
    def _evaluate(self, observations: Array) -> Array:
        """Return the critic's values, shape (N,)."""
        return self._in_units(self._critic(torch.as_tensor(self._standardise(observations))))

    def _in_units(self, outputs: torch.Tensor) -> Array:
        """Return outputs of the critic, shape (..., 1), in units of returns, shape (...)."""
        values: Array = outputs[..., 0].numpy()
        return values * self._returns.std + self._returns.mean

    def _fit_actor(self, decisions: Decisions, drawn: _Drawn, count: int) -> dict[str, float]:
        config, actor, optimiser = self._config, self._actor, self._optimisers[0]
        divergences: list[float] = []
        clipped: list[float] = []
        for parts in self._batches(decisions, count, self._order_rngs[0]):
            actions, before, advantages = (decisions.pick(values, parts) for values in drawn)
            deviations = (actions - decisions.outputs(actor, parts)) / config.std
            log_ratio = (before**2 - deviations**2).sum(dim=1) / 2
            ratio = log_ratio.exp()
            bounded = ratio.clamp(1 - config.clip_range, 1 + config.clip_range)
            loss = -torch.min(ratio * advantages, bounded * advantages).mean()
            with torch.no_grad():
                divergences.append(((ratio - 1) - log_ratio).mean().item())  # http://joschu.net/blog/kl-approx.html
                clipped.append((ratio != bounded).float().mean().item())
            if config.target_kl is not None and divergences[-1] > config.target_kl:
                break
            _descend(loss, actor, optimiser, config.max_grad_norm)
        return {
            "train/approx_kl": divergences[-1],
            "train/batches": float(len(divergences)),
            "train/clip_fraction": float(np.mean(clipped)),
        }

    def _fit_critic(self, decisions: Decisions, targets: torch.Tensor, count: int) -> float:
        losses = []
        for parts in self._batches(decisions, count, self._order_rngs[1]):
            errors = decisions.outputs(self._critic, parts)[:, 0] - decisions.pick(targets, parts)
            loss = errors.square().mean()
            _descend(loss, self._critic, self._optimisers[1], self._config.max_grad_norm)
            losses.append(loss.item())
        return float(np.mean(losses))

    def _batches(self, decisions: Decisions, count: int, rng: np.random.Generator) -> list[torch.Tensor]:
        """Return the parts of all batches of an update: in each epoch all of them, in another order.

        Args:
            decisions: to learn from.
            count: how many these are.
            rng: draws the orders.
        """
        batches = min(max(1, round(count / self._config.batch_size)), len(decisions))
        orders = [torch.as_tensor(rng.permutation(len(decisions))) for _ in range(self._config.n_epochs)]
        return [batch for order in orders for batch in order.tensor_split(batches)]


class _Drawn(NamedTuple):
    """What the actor did, in the form of `Decisions`."""

    actions: torch.Tensor
    deviations: torch.Tensor  # from their means when they were drawn, in standard deviations
    advantages: torch.Tensor  # normalised


class _RunningScale(NamedTuple):
    """Mean and standard deviation of the returns so far; late ones weigh more."""

    mean: float = 0.0
    square: float = 0.0
    rollouts: float = 0.0

    @property
    def std(self) -> float:
        return math.sqrt(max(self.square - self.mean**2, 1e-8)) if self.rollouts else 1.0

    def updated(self, returns: Array) -> _RunningScale:
        weight = max(1.0 / (self.rollouts + 1.0), 0.05)
        mean, square = float(returns.mean(dtype=np.float64)), float(np.square(returns, dtype=np.float64).mean())
        return _RunningScale(
            self.mean + weight * (mean - self.mean), self.square + weight * (square - self.square), self.rollouts + 1.0
        )


def _make_actor(config: PPOConfig, inputs: int) -> TorchNetwork:
    """Return the actor at its random start: its first actions are close to the middle."""
    if config.units:
        actor = policy_with_memory(inputs, config.units, has_skip=config.has_skip)
    else:
        actor = TorchNetwork(
            inputs, 2, widths=config.net_arch, activation=config.activation_fn, has_skip=config.has_skip
        )
        actor.shrink_outputs()
    actor.begin_with((0.0, 0.0))
    return actor


def _tuned_actor(config: PPOConfig, policy: TunedPolicy) -> TorchNetwork:
    """Return the network of a trained policy.

    Raises:
        ValueError: the configuration asks for another memory.
    """
    actor = TorchNetwork.of(policy.with_skip() if config.has_skip else policy.network)
    if config.units not in (0, *actor.units):
        known = " or ".join(map(str, dict.fromkeys((0, *actor.units))))
        raise ValueError(f"agent.units must be {known} for the policy at agent.tunes, got {config.units}")
    return actor


def _worth(rollout: Rollout) -> npt.NDArray[np.bool_]:
    """Return before which steps a flow's observation has a value: it took part, or would have without a failure."""
    return rollout.took_part if rollout.failed is None else rollout.took_part | rollout.failed


def _descend(loss: torch.Tensor, network: nn.Module, optimiser: torch.optim.Optimizer, max_norm: float) -> None:
    optimiser.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]  # torch has no types there
    nn.utils.clip_grad_norm_(network.parameters(), max_norm)
    optimiser.step()
