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
        content: what its runs are.
        results: what a run's folder has.
        columns: of the table of runs, by the kind of each: `metrics.…`, `params.…`, `tags.…`.
        metric: the one that runs are compared by; more is better.
    """

    content: str
    results: str
    columns: tuple[str, ...] = ("tags.seed",)
    metric: str | None = None


VIEWS: Final = {
    "train": View(
        "Trainings: one run each, with its metrics over decisions. The jobs of a sweep are children of its run. "
        "The best agent of a run is its model `agent`.",
        "`training_curve.png`, the agents `best` and `final`, `metrics.jsonl`, checkpoints",
        (
            *("params.agent.algorithm", "tags.seed", "metrics.eval/reward", "metrics.eval/utilisation"),
            *("metrics.eval/queue_ms", "params.train.total_steps", "tags.git.commit"),
        ),
        "eval/reward",
    ),
    "evaluate": View(
        "Evaluations of trained agents: one run each, with one step per seed.",
        "`results.parquet`, the traces, `throughput.png`, `delay.png`, `control.png`",
        (
            *("params.agent_path", "metrics.reward", "metrics.utilisation", "metrics.jain", "metrics.queue_mean_ms"),
            "tags.agent",
        ),
        "reward",
    ),
    "benchmark": View(
        "A benchmark: competitors x scenarios x seeds. One run is the benchmark, with the means; its children are the "
        "single simulations.",
        "`report.html`, `results.parquet`, `benchmark.json`; in a child's folder its trace and `metrics.json`",
        (
            *("tags.scenario", "tags.competitor", "tags.seed", "metrics.link_jain", "metrics.link_utilisation"),
            *("metrics.link_queue_mean_ms", "tags.failed_runs"),
        ),
        "link_jain",
    ),
}
"""By the part of an experiment's name before the slash."""

COLUMNS: Final = "columns"
"""Name of the shared view that has the columns."""


def experiment_tags(name: str, experiment_id: str) -> dict[str, str]:
    """Return the tags of an experiment. Its kind is model training; the UI would otherwise guess language models."""
    view = _view(name)
    described = (
        f"{view.content}\n\n[Runs with the columns that matter]"
        f"(#/experiments/{experiment_id}/runs?viewStateShareKey={COLUMNS}). docs/tracking.md says what is stored."
    )
    keys = [f"{kind}.`{column}`" for kind, _, column in (column.partition(".") for column in view.columns)]
    tags = {
        DESCRIPTION: described,
        "mlflow.experimentKind": "custom_model_development",
        f"mlflow.sharedViewState.{COLUMNS}": json.dumps({"selectedColumns": ["attributes.`Created`", *keys]}),
    }
    if view.metric is not None:
        tags["mlflow.experiment.primaryMetric.name"] = view.metric
        tags["mlflow.experiment.primaryMetric.greaterIsBetter"] = "True"
    return tags


def run_description(record: Mapping[str, Any], directory: Path) -> str:
    """Return the description of a run: what it is, how it was made, and where its files are.

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
            *([f"Made by `{made}`"] if made else []),
            f"Files: `{directory.resolve()}` ({_view(record['experiment']).results})",
        ]
    )


def _view(experiment: str) -> View:
    return VIEWS.get(experiment.partition("/")[0], View("Runs of bbrgym.", "`run.json`, `metrics.jsonl`"))
