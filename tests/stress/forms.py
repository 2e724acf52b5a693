"""An engine alone and a vector environment of several behind one interface, so that storms drive both alike."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Final

import gymnasium
import numpy as np
import numpy.typing as npt

from bbrgym import Flow, Scenario
from bbrgym.envs.engine import describe_engine, make_engine

STEP_MS: Final = 20.0
"""The length of every step."""

ONE: Final = Scenario(
    rate_mbps=8.0, duration_s=0.2, flows=(Flow("agent", rtt_ms=10.0), Flow("bbr", rtt_ms=20.0, jitter_ms=2.0))
)
"""One agent flow and a competitor, for ten steps: short, so that resets are as frequent as in the worst training."""


class Form(ABC):
    """A form of the environment over an engine; everything follows from `reset(seed)`.

    tests/contract/test_failures.py has what a failing engine does to the other forms.

    Args:
        engine: the engine's name.
        options: the engine's options.
    """

    _env: Any

    def __init__(self, engine: str, options: Mapping[str, Any]) -> None:
        self._is_real_time = describe_engine(engine).is_real_time
        self._rng = np.random.default_rng(0)
        self._make(engine, dict(options))

    def reset(self, seed: int) -> bytes:
        """Start an episode and return what it shows, as bytes."""
        self._rng = np.random.default_rng(seed)
        return self._reset(seed)

    def rollout(self, seed: int, steps: int = 4) -> str:
        """Return a digest of a reset and some steps; in real time, where no two are equal, of their number."""
        shown = [self.reset(seed), *(self.step() for _ in range(steps))]
        return hashlib.sha256(b"%d" % len(shown) if self._is_real_time else b"".join(shown)).hexdigest()[:16]

    def close(self) -> None:
        """Close it."""
        self._env.close()

    @abstractmethod
    def _make(self, engine: str, options: dict[str, Any]) -> None:
        """Set `_env`."""

    @abstractmethod
    def _reset(self, seed: int) -> bytes: ...

    @abstractmethod
    def step(self) -> bytes:
        """Take a step with the next random action and return what it shows; begin an episode where one has ended."""


def _bytes(*shown: npt.ArrayLike) -> bytes:
    return b"".join(np.asarray(one).tobytes() for one in shown)


class EngineForm(Form):
    """The engine alone."""

    def _make(self, engine: str, options: dict[str, Any]) -> None:
        self._env = make_engine(engine, **options)

    def _reset(self, seed: int) -> bytes:
        rows = self._env.reset(ONE, seed)
        return _bytes(rows.flows, rows.link)

    def step(self) -> bytes:
        if self._env.rows().is_over:
            return self._reset(1)
        self._env.steer(0, *self._rng.uniform(0.5, 2.0, 2).tolist())
        rows = self._env.step(STEP_MS)
        return _bytes(rows.flows, rows.link)


class VectorForm(Form):
    """The Gymnasium vector environment: three engines at once."""

    def _make(self, engine: str, options: dict[str, Any]) -> None:
        parts = {"scenario": ONE, "engine": engine, "engine_options": options, "step_ms": STEP_MS}
        mode = gymnasium.VectorizeMode.VECTOR_ENTRY_POINT
        self._env = gymnasium.make_vec("bbrgym/Bottleneck-v1", num_envs=3, vectorization_mode=mode, **parts)

    def _reset(self, seed: int) -> bytes:
        return _bytes(self._env.reset(seed=seed)[0])

    def step(self) -> bytes:
        return _bytes(*self._env.step(self._rng.uniform(-1, 1, (3, 2)).astype(np.float32))[:2])


FORMS: Final[dict[str, type[Form]]] = {"engine": EngineForm, "vector": VectorForm}
