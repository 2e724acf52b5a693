"""What a training is compared with: what is reached in its evaluation episodes without any training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from bbrgym.envs.episode_spec import EpisodeSpec


@dataclass(frozen=True)
class Yardstick:
    """Something simple in the place of the agent.

    Attributes:
        kind: `bbr`, `best constant` or `best algorithm`.
        what: the name of the algorithm, or the action.
        reward: mean reward per step in the evaluation episodes, as `eval/reward` is.
    """

    kind: str
    what: str
    reward: float

    @property
    def metric(self) -> str:
        """Its name in the log of a training, beside `eval/reward`."""
        return f"eval/{self.kind.replace(' ', '_')}"

    @property
    def text(self) -> str:
        """Return `best algorithm -0.147 (copa)`."""
        return f"{self.kind} {self.reward:.3f}" + (f" ({self.what})" if self.what != self.kind else "")


Measure: TypeAlias = Callable[[EpisodeSpec, int], Sequence[Yardstick]]
"""Returns the yardsticks of an environment in so many evaluation episodes; [] where they take too long."""
