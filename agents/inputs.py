"""What standardises the inputs of a learner's networks, measured before it learns."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Final

import numpy as np

from bbrgym.baselines.policy_file import Array
from bbrgym.envs.engine import EngineError
from bbrgym.envs.episode import Episodes
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.envs.observation import standardisation

INPUT_EPISODES: Final = 16
"""How many episodes a learner measures that says nothing else."""


def input_rngs(entropy: Sequence[int], episodes: int) -> list[np.random.Generator]:
    """Return a generator for each episode of `measure_inputs`, by what a learner seeds everything with."""
    # No number is 0: see `bbrgym.agents.callbacks.EVALUATION_SEED`.
    return [np.random.default_rng([*entropy, number]) for number in range(1, episodes + 1)]


def measure_inputs(spec: EpisodeSpec, rngs: Sequence[np.random.Generator]) -> tuple[Array, Array]:
    """Return the mean and the scale of observations (`standardisation`) in episodes with random actions.

    An action is constant in its episode and the same for all flows, so that it shows what a policy leads to. Steps in
    which a flow takes no part do not count, nor does what follows the failure of an engine.

    Args:
        spec: of the environment.
        rngs: of each episode; all run at once.

    Raises:
        EngineError: engines failed before anything was observed.
    """
    count = len(rngs)
    with closing(Episodes(spec, count, is_healing=True)) as env:
        env.begin_resets(np.arange(count), rngs)
        env.finish_resets()
        actions = np.array([rng.uniform(-1.0, 1.0, 2) for rng in rngs], np.float32).repeat(spec.agents, axis=0)
        if not env.can_roll:
            return standardisation(_observe_steps(env, actions))
        rollout = env.begin_rollout(np.tile(actions, (env.most_steps, 1, 1)))
        env.run(rollout)
        return standardisation(rollout.arrays.observations[1:][rollout.took_part()])


def _observe_steps(env: Episodes, actions: Array) -> Array:
    """Return the observations of flows that take part in the running episodes, to their ends."""
    seen: list[Array] = []
    errors: dict[int, str] = {}
    is_running = np.ones(env.count, np.bool_)
    while is_running.any():
        env.act(actions, np.flatnonzero(is_running))
        step = env.finish_step()
        errors |= step.errors
        is_running[[*step.errors]] = False
        seen.append(step.observations[is_running.repeat(env.spec.agents) & step.record.took_part])
        is_running &= ~(step.terminated | step.truncated)
    if errors and not any(map(len, seen)):
        raise EngineError(next(iter(errors.values())))
    return np.concatenate(seen)
