"""How MLflow's UI shows the project's experiments and runs: descriptions, kind, columns, and the metric that counts.

The names of the tags are those that MLflow's UI reads (3.17; `mlflow/server/js/src/experiment-tracking/constants.ts`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bbrgym.agents.provenance import command_line

DESCRIPTION: Final = "mlflow.note.content"
"""Tag of experiments and runs: Markdown."""


@dataclass(frozen=True)
class View:
    """What is shown of an experiment.

    Args:
        title: what it is and what made it, short: the UI shows one line of a description, and of that line in the list
            of experiments the first words.
        content: what its runs are.
        results: what a run's folder has.
        child_results: the same of a run that is a part of another one.
        columns: of the table of runs, by the kind of each: `metrics.…`, `params.…`, `tags.…`.
        metric: the one that runs are compared by; more is better.
    """

    title: str
    content: str
    results: str
    child_results: str | None = None
    columns: tuple[str, ...] = ("tags.seed",)
    metric: str | None = None


VIEWS: Final = {
    "train": View(
        "Trainings by `bbrgym train`",
        "One run each, with its metrics over decisions. The jobs of a sweep are children of its run. The best agent of "
        "a run is its model `agent`.",
        "`training_curve.png`, the agents `best` and `final`, `metrics.jsonl`, checkpoints",
        columns=(
            *("params.agent.algorithm", "tags.seed", "metrics.eval/reward", "metrics.eval/utilisation"),
            *("metrics.eval/queue_ms", "params.train.total_steps", "tags.git.commit"),
        ),
        metric="eval/reward",
    ),
    "evaluate": View(
        "Evaluations by `bbrgym evaluate`",
        "One run per evaluation of a trained agent, with one step per seed.",
        "`results.parquet`, the traces, `throughput.png`, `delay.png`, `control.png`",
        columns=(
            *("params.agent_path", "metrics.reward", "metrics.utilisation", "metrics.jain", "metrics.queue_mean_ms"),
            "tags.agent",
        ),
        metric="reward",
    ),
    "benchmark": View(
        "Benchmark by `bbrgym benchmark`",
        "Competitors x scenarios x seeds. One run is the benchmark, with the means and the report; its children are "
        "the single simulations.",
        "`report.html`, `results.parquet`, `benchmark.json`",
        "the trace, `metrics.json`",
        columns=(
            *("tags.scenario", "tags.competitor", "tags.seed", "metrics.link_jain", "metrics.link_utilisation"),
            *("metrics.link_queue_mean_ms", "tags.failed_runs"),
        ),
        metric="link_jain",
    ),
}
"""By the part of an experiment's name before the slash."""

COLUMNS: Final = "columns"
"""Key of the saved view that has the columns; the UI lists it under "Views"."""

MODEL_TRAINING: Final = "workflowType=machine_learning"
"""In an address: the UI shows its pages for model training. It otherwise begins with those for language models."""


def experiment_tags(name: str, experiment_id: str) -> dict[str, str]:
    """Return the tags of an experiment. Its kind is model training; the UI would otherwise guess language models."""
    view = _view(name)
    columns = f"#/experiments/{experiment_id}/runs?viewStateShareKey={COLUMNS}&{MODEL_TRAINING}"
    keys = [f"{kind}.`{column}`" for kind, _, column in (column.partition(".") for column in view.columns)]
    state = {"selectedColumns": ["attributes.`Created`", *keys]}
    # A view that the UI lists has a name and its state as text. Before 3.17 the UI knew the state alone.
    saved = {"name": "Columns that matter", "createdAt": 0, "state": json.dumps(state), **state}
    tags = {
        DESCRIPTION: (
            f"{view.title} ([columns that matter]({columns}))\n\n{view.content} docs/tracking.md says what is stored."
        ),
        "mlflow.experimentKind": "custom_model_development",
        f"mlflow.sharedViewState.{COLUMNS}": json.dumps(saved),
    }
    if view.metric is not None:
        tags["mlflow.experiment.primaryMetric.name"] = view.metric
        tags["mlflow.experiment.primaryMetric.greaterIsBetter"] = "True"
    return tags


def run_description(record: Mapping[str, Any], directory: Path) -> str:
    """Return the description of a run: what it is, where its files are, and how it was made (in the UI a click away).

    Args:
        record: its run.json.
        directory: its folder.
    """
    agent = record["params"].get("agent")
    algorithm = agent.get("algorithm") if isinstance(agent, Mapping) else None
    parts = [
        f"**{record['experiment']}**: {record['run_name']}",
        *([f"with `{algorithm}`"] if algorithm else []),
        *([f"seed {record['params']['seed']}"] if "seed" in record["params"] else []),
    ]
    made = command_line()
    return "\n\n".join(
        [
            ", ".join(parts),
            f"Files: `{directory.resolve()}` ({_results(record)})",
            *([f"Made by `{made}`"] if made else []),
        ]
    )


def _results(record: Mapping[str, Any]) -> str:
    if "sweeper" in record["tags"]:
        return "one folder per job, `multirun.yaml`"
    view = _view(record["experiment"])
    return view.results if record["parent"] is None else view.child_results or view.results


def _view(experiment: str) -> View:
    return VIEWS.get(experiment.partition("/")[0], View("Runs of bbrgym", "", "`run.json`, `metrics.jsonl`"))
