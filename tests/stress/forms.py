"""Every form of the environment behind one interface, so that storms and soaks drive all of them alike."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final

import gymnasium
import numpy as np

import bbrgym
from bbrgym import Flow, Scenario
from bbrgym.envs.engine import describe_engine, make_engine
from bbrgym.envs.episode import EpisodeSpec

STEP_MS: Final = 20.0
"""The length of every step."""

ONE: Final = Scenario(
    rate_mbps=8.0, duration_s=0.2, flows=(Flow("agent", rtt_ms=10.0), Flow("bbr", rtt_ms=20.0, jitter_ms=2.0))
)
"""One agent flow and a competitor, for ten steps: short, so that resets are as frequent as in the worst training."""

TWO: Final = Scenario(
    rate_mbps=8.0, duration_s=0.2, loss=0.01, flows=(Flow("agent", rtt_ms=10.0), Flow("agent", rtt_ms=20.0))
)
"""Two agent flows."""


class Form(ABC):
    """A form of the environment over an engine; everything follows from `reset(seed)`.

    Args:
        engine: the engine's name.
        options: the engine's options.
    """

    def __init__(self, engine: str, options: Mapping[str, Any]) -> None:
        self._is_real_time = describe_engine(engine).is_real_time
        self._parts: dict[str, Any] = {"engine": engine, "engine_options": dict(options), "step_ms": STEP_MS}
        self._actions = np.random.default_rng(0)
        self._make()

    def reset(self, seed: int) -> bytes:
        """Start an episode and return what it shows, as bytes."""
        self._actions = np.random.default_rng(seed)
        return self._reset(seed)

    def rollout(self, seed: int, steps: int = 4) -> str:
        """Return a digest of a reset and some steps; in real time, where no two are equal, of their number."""
        shown = [self.reset(seed), *(self.step() for _ in range(steps))]
        return hashlib.sha256(b"%d" % len(shown) if self._is_real_time else b"".join(shown)).hexdigest()[:16]

    @abstractmethod
    def _make(self) -> None: ...

    @abstractmethod
    def _reset(self, seed: int) -> bytes: ...

    @abstractmethod
    def step(self) -> bytes:
        """Take a step with the next random action and return what it shows; begin an episode where one has ended."""

    @abstractmethod
    def close(self) -> None:
        """Close it."""


class EngineForm(Form):
    """The engine alone."""

    def _make(self) -> None:
        self._engine = make_engine(self._parts["engine"], **self._parts["engine_options"])

    def _reset(self, seed: int) -> bytes:
        rows = self._engine.reset(ONE, seed)
        return rows.flows.tobytes() + rows.link.tobytes()

    def step(self) -> bytes:
        if self._engine.rows().is_over:
            return self._reset(1)
        self._engine.steer(0, *self._actions.uniform(0.5, 2.0, 2).tolist())
        rows = self._engine.step(STEP_MS)
        return rows.flows.tobytes() + rows.link.tobytes()

    def close(self) -> None:
        self._engine.close()


class SingleForm(Form):
    """The Gymnasium environment."""

    def _make(self) -> None:
        self._env = gymnasium.make("bbrgym/Bottleneck-v1", scenario=ONE, disable_env_checker=True, **self._parts)
        self._is_over = False

    def _reset(self, seed: int) -> bytes:
        self._is_over = False
        return np.asarray(self._env.reset(seed=seed)[0]).tobytes()

    def step(self) -> bytes:
        if self._is_over:
            return self._reset(1)
        seen, reward, terminated, truncated, _ = self._env.step(self._actions.uniform(-1, 1, 2).astype(np.float32))
        self._is_over = terminated or truncated
        return np.asarray(seen).tobytes() + np.float64(reward).tobytes()

    def close(self) -> None:
        self._env.close()


class VectorForm(Form):
    """The Gymnasium vector environment: three engines at once."""

    def _make(self) -> None:
        self._env = gymnasium.make_vec(
            "bbrgym/Bottleneck-v1",
            num_envs=3,
            vectorization_mode=gymnasium.VectorizeMode.VECTOR_ENTRY_POINT,
            scenario=ONE,
            **self._parts,
        )

    def _reset(self, seed: int) -> bytes:
        return np.asarray(self._env.reset(seed=seed)[0]).tobytes()

    def step(self) -> bytes:
        seen, rewards, *_ = self._env.step(self._actions.uniform(-1, 1, (3, 2)).astype(np.float32))
        return np.asarray(seen).tobytes() + np.asarray(rewards).tobytes()

    def close(self) -> None:
        self._env.close()


class VecEnvForm(Form):
    """The VecEnv of Stable-Baselines3: two engines with two agent flows each."""

    def _make(self) -> None:
        from bbrgym.envs.sb3_env import SharedPolicyVecEnv  # imports torch

        self._env = SharedPolicyVecEnv(EpisodeSpec(TWO, **self._parts), 2)

    def _reset(self, seed: int) -> bytes:
        self._env.seed(seed)
        return self._env.reset().tobytes()

    def step(self) -> bytes:
        seen, rewards, *_ = self._env.step(self._actions.uniform(-1, 1, (4, 2)).astype(np.float32))
        return seen.tobytes() + rewards.tobytes()

    def close(self) -> None:
        self._env.close()


class ParallelForm(Form):
    """The parallel environment of PettingZoo."""

    def _make(self) -> None:
        self._env = bbrgym.parallel_env(TWO, **self._parts)

    def _reset(self, seed: int) -> bytes:
        return b"".join(np.asarray(seen).tobytes() for _, seen in sorted(self._env.reset(seed=seed)[0].items()))

    def step(self) -> bytes:
        if not self._env.agents:
            return self._reset(1)
        actions = {agent: self._actions.uniform(-1, 1, 2).astype(np.float32) for agent in self._env.agents}
        seen, rewards, *_ = self._env.step(actions)
        return b"".join(np.asarray(seen[name]).tobytes() + np.float64(rewards[name]).tobytes() for name in sorted(seen))

    def close(self) -> None:
        self._env.close()


FORMS: Final[dict[str, type[Form]]] = {
    "engine": EngineForm,
    "single": SingleForm,
    "vector": VectorForm,
    "vecenv": VecEnvForm,
    "parallel": ParallelForm,
}
"""All forms by name."""
