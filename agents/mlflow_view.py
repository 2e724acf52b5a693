"""How MLflow's lists and pages show the project's experiments and runs: their names and descriptions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bbrgym.agents.provenance import command_line

DESCRIPTION: Final = "mlflow.note.content"
"""Tag of experiments and runs: Markdown."""

FIGURES: Final = {
    "train": (("eval/reward", "{:.3f}"), ("eval/utilisation", "{:.0%}"), ("eval/queue_ms", "{:.1f} ms")),
    "evaluate": (("reward", "{:.3f}"), ("utilisation", "{:.0%}"), ("queue_mean_ms", "{:.1f} ms")),
    "benchmark": (("link_jain", "{:.3f}"), ("link_utilisation", "{:.0%}"), ("link_queue_mean_ms", "{:.1f} ms")),
}
"""The metrics that matter, with their form, by the part of an experiment's name before the slash."""


def run_name(config: Mapping[str, Any], agent: str, seeds: Sequence[int]) -> str:
    """Return the name of a training or an evaluation, which begins with what tells it from others.

    In its configuration, `composition` has the choices and overrides of a command. `agent` is the learning algorithm.
    """
    composition = config.get("composition") or {}
    own = str(config.get("name") or "")
    parts = [
        *([own] if own not in ("", agent, "evaluation") else []),  # the defaults say nothing more
        agent,
        *([composition["choices"]["scenario"]] if composition else []),
        f"seed{'s' if len(seeds) > 1 else ''} {' '.join(map(str, seeds))}",
    ]
    said = ("name", "agent", "agent_path", "scenario", "seed", "seeds", "output_dir", "tracking")
    others = [one for one in composition.get("overrides") or () if one.partition("=")[0] not in said]
    return " ".join(parts) + (f" ({' '.join(others)})" if others else "")


def finished_name(record: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> str:
    """Return the name of a finished run: with the metrics that matter, since MLflow's list has no column for them.

    Those of a training are of its best evaluation after learning began, others are means over the steps. `record` is
    its run.json, `lines` are those of `bbrgym.agents.tracking.read_metrics`.
    """
    kind = record["experiment"].partition("/")[0]
    figures = FIGURES.get(kind, ())
    results = [line["metrics"] for line in lines if kind != "train" or line["step"] > 0]
    rows = [[metrics.get(metric, math.nan) for metric, _ in figures] for metrics in results]
    rows = [row for row in rows if row and all(map(math.isfinite, row))]
    if not rows:
        return str(record["run_name"])
    means = max(rows) if kind == "train" else [sum(column) / len(rows) for column in zip(*rows, strict=True)]
    what, bracket, others = str(record["run_name"]).partition(" (")
    shown = " ".join(form.format(mean) for (_, form), mean in zip(figures, means, strict=True))
    return f"{what}: {shown}{bracket}{others}"


def experiment_description(experiment: str) -> str:
    """Return the description of an experiment."""
    return f"Runs of `bbrgym {experiment.partition('/')[0]}`; docs/tracking.md says what is stored."


def run_description(record: Mapping[str, Any], directory: Path) -> str:
    """Return the description of a run (run.json): what it is, where its files are, and the command that made it."""
    made = command_line()
    parts = [f"**{record['experiment']}**: {record['run_name']}", f"Files: `{directory.resolve()}`"]
    return "\n\n".join([*parts, *([f"Made by `{made}`"] if made else [])])
