"""Every form of the environment behind one interface, so that storms drive all of them alike."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Final

import gymnasium
import numpy as np
import numpy.typing as npt

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

    _env: Any
    _shape: ClassVar[tuple[int, ...]] = (2,)
    """Of an action."""

    def __init__(self, engine: str, options: Mapping[str, Any]) -> None:
        self._is_real_time = describe_engine(engine).is_real_time
        self._parts: dict[str, Any] = {"engine": engine, "engine_options": dict(options), "step_ms": STEP_MS}
        self._rng = np.random.default_rng(0)
        self._make()

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
    def _make(self) -> None:
        """Set `_env`."""

    def _reset(self, seed: int) -> bytes:
        return _bytes(self._env.reset(seed=seed)[0])

    def step(self) -> bytes:
        """Take a step with the next random action and return what it shows; begin an episode where one has ended."""
        return _bytes(*self._env.step(self._action())[:2])

    def _action(self) -> npt.NDArray[np.float32]:
        return self._rng.uniform(-1, 1, self._shape).astype(np.float32)


def _bytes(*shown: npt.ArrayLike) -> bytes:
    return b"".join(np.asarray(one).tobytes() for one in shown)


class EngineForm(Form):
    """The engine alone."""

    def _make(self) -> None:
        self._env = make_engine(self._parts["engine"], **self._parts["engine_options"])

    def _reset(self, seed: int) -> bytes:
        rows = self._env.reset(ONE, seed)
        return _bytes(rows.flows, rows.link)

    def step(self) -> bytes:
        if self._env.rows().is_over:
            return self._reset(1)
        self._env.steer(0, *self._rng.uniform(0.5, 2.0, 2).tolist())
        rows = self._env.step(STEP_MS)
        return _bytes(rows.flows, rows.link)


class SingleForm(Form):
    """The Gymnasium environment."""

    def _make(self) -> None:
        env = gymnasium.make("bbrgym/Bottleneck-v1", scenario=ONE, disable_env_checker=True, **self._parts)
        self._env = gymnasium.wrappers.Autoreset(env)


class VectorForm(Form):
    """The Gymnasium vector environment: three engines at once."""

    _shape = (3, 2)

    def _make(self) -> None:
        mode = gymnasium.VectorizeMode.VECTOR_ENTRY_POINT
        self._env = gymnasium.make_vec(
            "bbrgym/Bottleneck-v1", num_envs=3, vectorization_mode=mode, scenario=ONE, **self._parts
        )


class VecEnvForm(Form):
    """The VecEnv of Stable-Baselines3: two engines with two agent flows each."""

    _shape = (4, 2)

    def _make(self) -> None:
        from bbrgym.envs.sb3_env import SharedPolicyVecEnv  # imports torch

        self._env = SharedPolicyVecEnv(EpisodeSpec(TWO, **self._parts), 2)

    def _reset(self, seed: int) -> bytes:
        self._env.seed(seed)
        return _bytes(self._env.reset())


class ParallelForm(Form):
    """The parallel environment of PettingZoo."""

    def _make(self) -> None:
        self._env = bbrgym.parallel_env(TWO, **self._parts)

    def _reset(self, seed: int) -> bytes:
        return _bytes(*(seen for _, seen in sorted(self._env.reset(seed=seed)[0].items())))

    def step(self) -> bytes:
        if not self._env.agents:
            return self._reset(1)
        seen, rewards, *_ = self._env.step({agent: self._action() for agent in self._env.agents})
        return _bytes(*(part[name] for name in sorted(seen) for part in (seen, rewards)))


FORMS: Final[dict[str, type[Form]]] = {
    "engine": EngineForm,
    "single": SingleForm,
    "vector": VectorForm,
    "vecenv": VecEnvForm,
    "parallel": ParallelForm,
}
"""All forms by name."""
