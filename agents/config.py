"""What a training is configured with, checked before torch is loaded or anything is written."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from bbrgym.agents.scripted import RULES, BacklogRule
from bbrgym.checks import check_keys, check_name, check_number, keep_integers
from bbrgym.envs.action import Action
from bbrgym.envs.observation import Observation
from bbrgym.envs.privileged import Privileged

ALGORITHMS: Final = ("ppo", "recurrent_ppo", "sac", "tqc", "crossq", "td3")
"""The learning algorithms, by the names of conf/agent."""

EXPERIMENT: Final = "train"
"""MLflow's experiment of all training runs."""


@dataclass(frozen=True)
class TrainConfig:
    """Length, parallelism and outputs of a training; conf/train/default.yaml explains the fields.

    Raises:
        ValueError: naming the bad value and the good ones.
    """

    total_steps: int = 300_000
    max_minutes: float | None = None
    n_envs: int = 2
    torch_threads: int = 1
    eval_every: int = 20_000
    eval_episodes: int = 8
    checkpoint_every: int = 20_000
    engine_failures: int = 10
    critic_features: tuple[str, ...] = ()
    teacher: str | None = None
    teacher_options: Mapping[str, float] = field(default_factory=dict)
    prepare_steps: int = 5_000
    resume: str | None = None

    def __post_init__(self) -> None:
        positive = ("total_steps", "n_envs", "torch_threads", "eval_every", "eval_episodes", "checkpoint_every")
        keep_integers(self, *positive, "prepare_steps", prefix="train.", at_least=1)
        keep_integers(self, "engine_failures", prefix="train.", at_least=0)
        check_number("train.max_minutes", self.max_minutes, above=0, or_none=True)
        if not isinstance(self.critic_features, list | tuple):
            raise ValueError(f"train.critic_features must be a list of names, got {self.critic_features!r}")
        object.__setattr__(self, "critic_features", tuple(self.critic_features))
        if self.critic_features:
            Privileged(self.critic_features)
        if self.teacher is not None:
            check_name("train.teacher", self.teacher, RULES)
            fields = dataclasses.fields(RULES[self.teacher])
            known = [f.name for f in fields if f.name not in ("observation", "action")]
            for name, number in self.teacher_options.items():
                check_name("option of train.teacher", name, known)
                check_number(f"train.teacher_options.{name}", number)
        elif self.teacher_options:
            raise ValueError(f"train.teacher_options are of a teacher, and there is none; got {self.teacher_options!r}")

    def make_teacher(self, observation: Observation, action: Action) -> BacklogRule | None:
        """Return the rule that a learner imitates first.

        Raises:
            ValueError: it needs a feature that the observation lacks.
        """
        return None if self.teacher is None else RULES[self.teacher](observation, action, **self.teacher_options)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> TrainConfig:
        """Make one from plain types, as conf/train has them, refusing unknown keys."""
        check_keys("train", plain, [f.name for f in dataclasses.fields(cls)])
        return cls(**plain)
