"""An agent: an environment's specification and what decides in it, a trained network or a scripted rule."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bbrgym._controllers import PolicyNetwork
from bbrgym.agents.scripted import RULES, BacklogRule
from bbrgym.baselines.policy_file import SCRIPTED, Array, Network, StoredPolicy, content_hash, read_policy
from bbrgym.envs.episode import policy_of
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.envs.scenario import Scenario
from bbrgym.envs.trace import Policy
from bbrgym.files import DAMAGES, damage


def load_agent(path: Path | str) -> Agent:
    """Load an agent. Nothing in its files is executed.

    Args:
        path: as for `bbrgym.baselines.policy_file.read_policy`, or `scripted:<name>` (`bbrgym.agents.scripted.RULES`).

    Raises:
        FileNotFoundError: there is no agent at `path`.
        ValueError: its files are of another version, damaged, or do not belong together.
    """
    if str(path).startswith(SCRIPTED):
        return scripted_agent(str(path).removeprefix(SCRIPTED))
    stored = read_policy(path)
    try:
        return Agent(EpisodeSpec.from_config(stored.spec), stored.network, stored.training)
    except DAMAGES as error:
        raise ValueError(f"'{path}' holds no agent that can be loaded: {damage(error)}") from error


def scripted_agent(name: str, spec: EpisodeSpec | None = None) -> Agent:
    """Return the agent that follows a rule.

    Args:
        name: of `bbrgym.agents.scripted.RULES`.
        spec: of the environment; None has the default observation and action and steps of 100 ms.

    Raises:
        ValueError: there is no such rule, or it needs a feature that is not observed.
    """
    if name not in RULES:
        raise ValueError(f"unknown scripted agent {name!r}; known: {', '.join(SCRIPTED + known for known in RULES)}")
    spec = spec or EpisodeSpec({"flows": [{"algorithm": "agent"}]})
    return Agent(spec, RULES[name](spec.observation, spec.action), {"algorithm": f"{SCRIPTED}{name}"})


@dataclass
class Agent:
    """A trained policy or a scripted rule that steers any number of flows from outside, side by side.

    Args:
        spec: the environment in which it was trained. Its observation, action and step are what the agent works with;
            its scenario, reward and engine only say where it comes from.
        network: the weights, or a rule in their place.
        training: where it comes from, as `StoredPolicy.training`.

    Raises:
        ValueError: the network does not fit the observation or the action.
    """

    spec: EpisodeSpec
    network: Network | BacklogRule
    training: Mapping[str, Any] = field(default_factory=dict)
    _state: Array | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        length = int(np.prod(self.spec.observation.space.shape))
        if (self.network.inputs, self.network.outputs) != (length, 2):
            raise ValueError(
                f"the network takes {self.network.inputs} values and returns {self.network.outputs}, but observations "
                f"have {length} and actions 2"
            )

    def predict(self, observations: npt.ArrayLike) -> Array:
        """Return the most likely actions: what Stable-Baselines3 predicts with `deterministic=True`, up to rounding.

        A recurrent agent remembers what it saw since `reset`, separately for each row of the observations.

        Args:
            observations: shape (N, length of an observation).

        Returns:
            Actions in [-1, 1], shape (N, 2), float32.

        Raises:
            ValueError: another shape, or another N than before without a `reset` in between.
        """
        seen = np.ascontiguousarray(observations, dtype=np.float32)
        if seen.ndim != 2 or seen.shape[1] != self.network.inputs:
            raise ValueError(f"observations must have the shape (N, {self.network.inputs}), got {seen.shape}")
        if isinstance(self.network, BacklogRule):
            return self.network.forward(seen)
        if self._state is None or not self.compiled.state_size:
            self._state = np.zeros((len(seen), self.compiled.state_size), np.float32)
        elif len(self._state) != len(seen):
            raise ValueError(f"{len(seen)} observations after {len(self._state)}: reset between episodes")
        return self.compiled.forward(seen, self._state)

    def states(self, observations: npt.ArrayLike) -> Array:
        """Return what a recurrent agent remembers after each of T observations of N flows, from a new episode on.

        It is what decides the actions of `predict`, to the last bit. What the agent itself remembers stays as it is.

        Args:
            observations: shape (T, N, length of an observation).

        Returns:
            Hidden and cell state of each LSTM layer in turn, shape (T, N, size), float32; size 0 without an LSTM.

        Raises:
            ValueError: another shape, or it is a scripted agent, which has no network.
        """
        compiled = self.compiled
        seen = np.ascontiguousarray(observations, dtype=np.float32)
        if seen.ndim != 3 or seen.shape[2] != self.network.inputs:
            raise ValueError(f"observations must have the shape (T, N, {self.network.inputs}), got {seen.shape}")
        state = np.zeros((seen.shape[1], compiled.state_size), np.float32)
        states = np.empty((len(seen), *state.shape), np.float32)
        for step, observation in enumerate(seen):
            compiled.forward(observation, state)
            states[step] = state
        return states

    @cached_property
    def compiled(self) -> PolicyNetwork:
        """The network in C++, the code that runs it in the engines too.

        Raises:
            ValueError: it is a scripted agent, which has no network.
        """
        return PolicyNetwork(self.to_bytes())

    def reset(self) -> None:
        """Begin new episodes: forget what was observed."""
        self._state = None

    def policy(self, scenario: Scenario) -> Policy:
        """Return the driver of all agent flows in one run of `bbrgym.simulate`.

        Steps should be of `spec.interval_ms(scenario)`, as in training.
        """
        # A copy, which has a memory of its own.
        return policy_of(dataclasses.replace(self).predict, self.spec.observation, self.spec.action, scenario)

    @property
    def content_hash(self) -> str:
        """SHA-256 of everything that decides its gains: weights, observation and action."""
        return content_hash(self.spec.policy_config(), self.network.kind, self.network.to_arrays())

    @property
    def stored(self) -> StoredPolicy:
        """The trained policy, for files and for C++.

        Raises:
            ValueError: it is a scripted agent, which has no network.
        """
        if not isinstance(self.network, Network):
            name = self.training.get("algorithm", self.network.kind)
            raise ValueError(f"the scripted agent {name!r} has no network: it cannot be saved or exported")
        return StoredPolicy(self.spec.to_config(), self.network, self.training)

    def to_bytes(self) -> bytes:
        """Return the policy as C++ runs it (`StoredPolicy.to_bytes`).

        Raises:
            ValueError: it is a scripted agent, which has no network.
        """
        return self.stored.to_bytes()

    def save(self, folder: Path) -> None:
        """Write `agent.json` and `policy.npz`, replacing the folder as a whole.

        Raises:
            ValueError: it is a scripted agent, which has no network.
        """
        self.stored.save(folder)
