"""Let OpenEvolve write a controller: `search(model, candidates, address)` (docs/discover.md)."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from evaluator import FACTS, PROGRAMS, Evaluator, hidden_seed, without_marks
from openevolve import run_evolution
from openevolve.config import Config, EvaluatorConfig, LLMConfig, LLMModelConfig, PromptConfig
from openevolve.evaluation_result import EvaluationResult

judge = cache(Evaluator)


def evaluate(path: str) -> EvaluationResult:
    """Return the scores of a file, and the feedback; OpenEvolve calls it in processes of its own."""
    feedback = judge().evaluate(Path(path).read_text())
    return EvaluationResult({"combined_score": feedback.value, **feedback.families}, {"feedback": str(feedback)})


def search(model: str, candidates: int, address: str = "https://api.openai.com/v1", program: str = "five") -> str:
    """Return the best of so many files; the address is that of an interface like OpenAI's."""
    hidden_seed()
    key = os.environ.get("OPENAI_API_KEY", "none")
    config = Config(language="c", file_suffix=".c", diff_based_evolution=False)
    config.llm = LLMConfig(models=[LLMModelConfig(name=model)], api_base=address, api_key=key)
    config.prompt = PromptConfig(system_message=FACTS)
    config.evaluator = EvaluatorConfig(cascade_evaluation=False)  # the evaluator has its own
    return without_marks(run_evolution(PROGRAMS[program], __file__, config, candidates).best_code)
