"""Let GEPA write a controller: `search(model, calls)` (docs/discover.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evaluator import FACTS, PROGRAMS, Evaluator
from gepa.optimize_anything import EngineConfig, GEPAConfig, ReflectionConfig, optimize_anything


def search(model: str | Callable[..., str], calls: int, program: str = "five") -> str:
    """Return the best file after so many evaluations; the model is a name of LiteLLM, or answers a prompt."""
    judge = Evaluator()

    def evaluate(text: str) -> tuple[float, dict[str, Any]]:
        feedback = judge.evaluate(text)
        return feedback.value, {"scores": dict(feedback.families), "feedback": str(feedback)}

    engine = EngineConfig(max_metric_calls=calls, cache_evaluation=True)
    config = GEPAConfig(engine=engine, reflection=ReflectionConfig(reflection_lm=model))
    found = optimize_anything(PROGRAMS[program], evaluator=evaluate, objective=FACTS, config=config)
    return str(found.best_candidate)
