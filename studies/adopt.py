"""Make the last agent of a training the reference: `python -m studies.adopt RUN`.

It writes agents/reference and the table of its card, docs/policy.md. It also draws the learning curves of all
trainings of the experiment `reference` in a folder into docs/results/learned/curves.png, and prints what the page says
of them.
"""

from __future__ import annotations

import itertools
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure

from bbrgym.agents.card import facts
from bbrgym.agents.policy import load_agent
from bbrgym.agents.tracking import read_metrics, read_run
from bbrgym.baselines.policy_file import FOLDERS, REFERENCE, find_policy, read_policy
from bbrgym.benchmark.style import COLOURS, MARKERS, Mark, empty_figure, name_lines, styled
from bbrgym.files import write_json
from bbrgym.interruption import run_interruptible
from studies import blocks, page

CARD: Final = page.RESULTS.parent / "policy.md"
LICENCE: Final = "MIT"
"""Of the reference, as of everything here."""


def adopt(run: Path, folder: Path = REFERENCE, card_page: Path = CARD) -> None:
    """Replace the reference by the last agent of a training, its record in `mlflow.json` and its facts on the card."""
    record = read_run(run)
    if record is None:
        raise ValueError(f"'{run}' holds no training: it has no run.json")
    tags = {name: value for name, value in record["tags"].items() if name not in ("host", "folder", "command")}
    params = record["params"]
    commands = commands_of(record)
    if (tunes := params["agent"].get("tunes")) is not None:
        record["run_name"] = record["run_name"].replace(tunes, _anonymous(tunes))
        params["agent"]["tunes"] = _anonymous(tunes)
    agent = load_agent(run / "final")
    made_with = {name: value for name, value in tags.items() if name != "seed"}
    agent.training = {**agent.training, "made_with": made_with, "licence": LICENCE}
    agent.save(folder)
    rows = [[name, page.cell(text)] for name, text in facts(agent.stored).items()]
    blocks.write_block(card_page, "agents/reference", page.table(["the policy's file", ""], rows))
    summary = {
        "commands": commands,
        "experiment": record["experiment"],
        "run_id": record["run_id"],
        "run_name": record["run_name"],
        "status": record["status"],
        "started": record["started"],
        "ended": record["ended"],
        "tags": tags,
        "params": {name: params[name] for name in ("agent", "train", "seed")},  # the policy's file has its environment
        "evaluations": [{"step": step, **metrics} for step, metrics in evaluations(run).items()],
    }
    write_json(folder / "mlflow.json", summary)


def commands_of(record: Mapping[str, Any]) -> list[str]:
    """Return the commands of a training and of those whose policies it tunes, the first one first.

    They name no folder of the machine: the policy of the command before is in `RUN`.
    """
    params = record["params"]
    command = f"bbrgym train experiment={params['name']} seed={params['seed']}"
    if (tunes := params["agent"].get("tunes")) is None:
        return [command]
    folder = find_policy(tunes)
    before = read_run(folder) or read_run(folder.parent)
    if before is None:  # the folder of a policy alone, for example the one that is replaced
        first = [f"bbrgym train experiment=reference seed={read_policy(folder).training['seed']}"]
    else:
        first = commands_of(before)
    return [*first, f"{command} agent.tunes={_anonymous(tunes)}"]


def _anonymous(tunes: str) -> str:
    name = find_policy(tunes).name
    return f"RUN/{name if name in FOLDERS else FOLDERS[-1]}"


def evaluations(run: Path) -> dict[int, dict[str, float]]:
    """Return the metrics of each evaluation by its step; of repeated evaluations, the last."""
    found = {line["step"]: line["metrics"] for line in read_metrics(run) if "eval/reward" in line["metrics"]}
    return dict(sorted(found.items()))


def trainings(folder: Path, name: str = "reference") -> dict[int, Path]:
    """Return the last training of this name of each seed in a folder, by seed."""
    found: list[tuple[str, int, Path]] = []
    for run in folder.iterdir() if folder.is_dir() else ():
        record = read_run(run)
        if record is not None and record["params"].get("name") == name:
            found.append((record["started"], record["params"]["seed"], run))
    return dict(sorted({seed: run for _, seed, run in sorted(found)}.items()))


def ends(runs: Mapping[int, Path]) -> str:
    """Return what the page says of the trainings."""
    last = [list(evaluations(run).values())[-1]["eval/fair_power"] for run in runs.values()]
    said = ", ".join(f"{power:.3f}" for power in last)
    return f"Trainings from {len(runs)} random starts end at a fair power of {said} in their evaluations."


@styled
def curves(runs: Mapping[int, Path]) -> Figure:
    """Draw the fair power of each training's agent over its decisions."""
    figure = empty_figure(3.2)
    axes = figure.subplots()
    for (seed, run), colour, marker in zip(runs.items(), itertools.cycle(COLOURS), itertools.cycle(MARKERS)):
        powers = {step: metrics["eval/fair_power"] for step, metrics in evaluations(run).items()}
        Mark(colour, marker).line(axes, np.array([*powers]) / 1e6, [*powers.values()], label=f"seed {seed}")
    axes.set(xlabel="million decisions", ylabel="fair power", title="Evaluation")
    name_lines(figure)
    return figure


def main(arguments: Sequence[str] | None = None) -> int:
    """Adopt a training, and say what others like it reached."""
    parser = ArgumentParser("python -m studies.adopt", description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of the training")
    parser.add_argument("--runs", default="runs/train", type=Path, help="folder of all trainings (%(default)s)")
    options = parser.parse_args(arguments)
    try:
        adopt(options.run)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    if runs := trainings(options.runs):
        page.write_figure(curves(runs), page.RESULTS / "learned.md", "curves")
        print(ends(runs))
    return 0


if __name__ == "__main__":
    sys.exit(run_interruptible("adopt", main))
