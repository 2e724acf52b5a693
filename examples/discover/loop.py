"""A loop of one's own, with an environment as Gymnasium's: an action is a C file (docs/discover.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evaluator import FACTS, PROGRAMS, Evaluator


class WritingEnv:
    """A step judges a file: the observation is the feedback as a text, the reward the score. It never terminates."""

    def __init__(self, evaluator: Evaluator, program: str = "bare") -> None:
        self.evaluator, self.program = evaluator, PROGRAMS[program]

    def reset(self) -> tuple[str, dict[str, Any]]:
        """Judge the program that a search begins with."""
        observation, _, _, _, infos = self.step(self.program)
        return observation, infos

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Judge a file; infos have the feedback as data."""
        feedback = self.evaluator.evaluate(action)
        return str(feedback), feedback.value, False, False, {"feedback": feedback}


def search(model: Callable[[str], str], candidates: int, env: WritingEnv) -> str:
    """Return the best of so many files; the model answers a prompt with a file."""
    (seen, infos), best = env.reset(), env.program
    most = infos["feedback"].value
    for _ in range(candidates):
        text = model(f"{FACTS}\n\nThe best file until now:\n{best}\n{seen}\n\nWrite a better one, and nothing else.")
        observation, reward, _, _, _ = env.step(text)
        if reward > most:
            best, seen, most = text, observation, reward
    return best
