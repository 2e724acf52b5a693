"""Let ShinkaEvolve write a controller: `search(model, candidates, folder)` (docs/discover.md)."""

from __future__ import annotations

import sys
from pathlib import Path

from evaluator import FACTS, PROGRAMS, Evaluator, hidden_seed, without_marks
from shinka.core import EvolutionConfig, ShinkaEvolveRunner
from shinka.core.wrap_eval import save_json_results
from shinka.database import DatabaseConfig
from shinka.launch import LocalJobConfig


def search(model: str, candidates: int, folder: str, program: str = "five") -> str:
    """Return the best of so many files; the model is a name, or `local/NAME@http://HOST:PORT/v1`."""
    hidden_seed()
    config = EvolutionConfig(task_sys_msg=FACTS, num_generations=candidates, results_dir=folder, llm_models=[model])
    config.language, config.patch_types, config.patch_type_probs = "cpp", ["full"], [1.0]
    config.init_program_path, config.embedding_model, config.use_text_feedback = None, None, True
    text = f"// EVOLVE-BLOCK-START\n{PROGRAMS[program]}// EVOLVE-BLOCK-END\n"
    job = LocalJobConfig(eval_program_path=__file__)
    ShinkaEvolveRunner(config, job, DatabaseConfig(), max_evaluation_jobs=2, init_program_str=text).run()
    return without_marks(Path(folder, "best", "main.cpp").read_text())


if __name__ == "__main__":  # ShinkaEvolve calls it for each file: --program_path FILE --results_dir FOLDER
    feedback = Evaluator().evaluate(Path(sys.argv[2]).read_text())
    scores = {"combined_score": feedback.value, "public": dict(feedback.families), "text_feedback": str(feedback)}
    save_json_results(sys.argv[4], scores, correct=not feedback.error, error=feedback.error or None)
