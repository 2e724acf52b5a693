"""Rollouts: many steps of many engines with one policy for all agent flows, through the ends of episodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bbrgym._controllers import PolicyNetwork
from bbrgym.envs.episode import Episodes

Renew = Callable[[int, npt.NDArray[np.intp]], None]
"""Called with a step and the flows whose episodes begin before it; it may change the noise from that step on."""


class Rollout(NamedTuple):
    """T steps of M agent flows, those of an engine next to each other.

    Attributes:
        observations: before each step, and after the last, shape (T + 1, M, length of an observation), float32.
        actions: shape (T, M, 2), float32, before they are clipped.
        rewards: shape (T, M), float32.
        took_part: whether the flow took part in the step, shape (T, M).
        dones: where an episode ended, shape (T, M).
        timeouts: where it ended by its time limit alone, shape (T, M).
        terminal_observations: the last ones of the E episodes that ended, in the order of `np.nonzero(dones)`, shape
            (E, length of an observation), float32.
        states: what the policy remembered before the first step (`Episodes.states`), shape (M, size), float32. After
            an episode has ended it begins with zeros.
        errors: why engines failed, whose episodes were cut off.
        failed: where they did, in steps in which their flows took no part, shape (T, M); None if none did.
    """

    observations: npt.NDArray[np.float32]
    actions: npt.NDArray[np.float32]
    rewards: npt.NDArray[np.float32]
    took_part: npt.NDArray[np.bool_]
    dones: npt.NDArray[np.bool_]
    timeouts: npt.NDArray[np.bool_]
    terminal_observations: npt.NDArray[np.float32]
    states: npt.NDArray[np.float32]
    errors: tuple[str, ...] = ()
    failed: npt.NDArray[np.bool_] | None = None


def roll(
    env: Episodes,
    rngs: Sequence[np.random.Generator],
    noise: npt.NDArray[np.float32],
    policy: PolicyNetwork | None = None,
    renew: Renew | None = None,
) -> Rollout:
    """Make many steps in C++, which gives the same, to the last bit, as step by step with these actions.

    Args:
        env: with running episodes, of an engine that can (`Episodes.can_roll`).
        rngs: of each engine, for the episodes that begin.
        noise: shape (T, M, 2): added to the policy's actions; the actions themselves without a policy.
        policy: acts upon the observations; what it remembers begins with each episode.
        renew: see `Renew`.

    Raises:
        gymnasium.error.ResetNeeded: there was no reset.
        ValueError: noise of another shape, or that is not finite; or the policy takes observations of another length,
            or its actions are NaN.
    """
    agents, shape = env.spec.agents, noise.shape[:2]
    states = env.states(0 if policy is None else policy.state_size).copy()
    rollout = env.begin_rollout(noise)
    arrays, seen = rollout.arrays, rollout.arrays.observations
    last = np.zeros_like(seen[1:])  # observations of the episodes that end in a step
    while len(engines := env.run(rollout, policy)):
        flows = _flows_of(engines, agents)
        steps = arrays.next_steps[engines].repeat(agents)
        last[steps - 1, flows] = seen[steps, flows]
        seen[steps, flows] = begin_episodes(env, rngs, engines)
        if renew is not None:
            for step in np.unique(steps):
                renew(int(step), flows[steps == step])
    dones = (rollout.terminated | rollout.truncated).repeat(agents, axis=1)
    return Rollout(
        observations=seen,
        actions=arrays.actions,
        rewards=env.spec.reward.evaluate(rollout.context()).reshape(shape).astype(np.float32),
        took_part=rollout.took_part(),
        dones=dones,
        timeouts=rollout.truncated.repeat(agents, axis=1),
        terminal_observations=last[dones],
        states=states,
    )


def roll_steps(
    env: Episodes,
    rngs: Sequence[np.random.Generator],
    noise: npt.NDArray[np.float32],
    policy: Callable[[npt.NDArray[np.float32], npt.NDArray[np.float32]], npt.NDArray[np.float32]],
    renew: Renew | None = None,
    *,
    state_size: int = 0,
    output: str = "clip",
) -> Rollout:
    """Make many steps one after the other, with any engine.

    Args:
        env: with running episodes; if it is healing, an engine that fails ends its own episode alone.
        rngs: of each engine, for the episodes that begin.
        noise: shape (T, M, 2), added to the policy's actions.
        policy: from observations (M, length), and what it remembers, (M, state_size), to actions (M, 2). It updates
            what it remembers, which begins with zeros in each episode.
        renew: see `Renew`.
        state_size: how much the policy remembers of a flow.
        output: what bounds the sums of actions and noise: `clip` or `tanh`.

    Raises:
        EngineError: an engine failed several times in a row; all episodes are lost.
    """
    agents, shape = env.spec.agents, noise.shape[:2]
    observations = np.zeros((len(noise) + 1, *env.last_observations.shape), np.float32)
    observations[0] = env.last_observations
    actions, rewards = np.zeros_like(noise), np.zeros(shape, np.float32)
    took_part, dones, timeouts, failed = (np.zeros(shape, np.bool_) for _ in range(4))
    terminal: list[npt.NDArray[np.float32]] = []
    errors: list[str] = []
    states = env.states(state_size)
    first_states = states.copy()
    for step in range(len(noise)):
        actions[step] = policy(observations[step], states) + noise[step]
        env.act(np.tanh(actions[step]) if output == "tanh" else actions[step])
        result = env.finish_step()
        is_over = result.terminated | result.truncated
        observations[step + 1], rewards[step] = result.observations, result.rewards
        dones[step], timeouts[step] = is_over.repeat(agents), result.truncated.repeat(agents)
        took_part[step] = result.record.took_part
        failed[step, _flows_of(np.array([*result.errors], np.intp), agents)] = True
        errors += result.errors.values()
        if is_over.any():
            engines, flows = np.flatnonzero(is_over), np.flatnonzero(dones[step])
            terminal.append(result.observations[flows])
            observations[step + 1, flows] = begin_episodes(env, rngs, engines)
            if renew is not None:
                renew(step + 1, flows)
    ended = np.concatenate(terminal) if terminal else observations[0, :0]
    return Rollout(
        observations=observations,
        actions=actions,
        rewards=rewards,
        took_part=took_part,
        dones=dones,
        timeouts=timeouts,
        terminal_observations=ended,
        states=first_states,
        errors=tuple(errors),
        failed=failed if errors else None,
    )


def begin_episodes(
    env: Episodes, rngs: Sequence[np.random.Generator], engines: npt.NDArray[np.intp]
) -> npt.NDArray[np.float32]:
    """Start the next episodes in these engines and return the observations of their flows."""
    try:
        env.begin_resets(engines, [rngs[index] for index in engines], is_autoreset=True)
        return env.finish_resets()
    except BaseException:
        env.abandon()
        raise


def _flows_of(engines: npt.NDArray[np.intp], agents: int) -> npt.NDArray[np.intp]:
    return (engines[:, np.newaxis] * agents + np.arange(agents)).ravel()
