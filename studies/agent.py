"""Show how the reference policy was trained: `python -m studies.agent [--write docs/results/agent.md]`.

Uses finished trainings: the runs of `bbrgym train experiment=reference` and the sweeps `experiment=sweep/…` of
`SWEEPS`. A missing sweep is left out, and its table on the page stays. The learners' last agents also run in the
league's validation; finished runs are kept.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console

import bbrgym
from bbrgym import Flow, Scenario
from bbrgym.agents.callbacks import evaluate_agent
from bbrgym.agents.card import facts
from bbrgym.agents.policy import Agent, load_agent, scripted_agent
from bbrgym.agents.scripted import RULES
from bbrgym.agents.tracking import read_metrics, read_run
from bbrgym.baselines.policy_file import REFERENCE, StoredPolicy
from bbrgym.benchmark.plots import over_time
from bbrgym.benchmark.statistics import estimate
from bbrgym.benchmark.style import COLOURS, MARKERS, Mark, empty_figure, name_lines, styled
from bbrgym.cli import BENCHMARKS, make_console
from bbrgym.envs.episode import Episodes
from bbrgym.envs.observation import Observation
from bbrgym.envs.reward import Reward
from bbrgym.envs.trace import Trace
from bbrgym.files import write_json, write_text
from bbrgym.interruption import run_interruptible
from studies import page
from studies.league.scores import SCORE, scores, standings
from studies.league.suites import compose_league, run_league

SWEEPS = {
    "algorithms": "learner",
}
"""The heading of the first column, by the sweep's name; the marks on the page have the same names."""
LEARNERS = "algorithms"
"""The sweep whose agents are compared in validation."""
VALIDATION = f"{LEARNERS} validation"
CARD = Path(__file__).parents[1] / "docs" / "policy.md"
LICENCE = "MIT"
"""Of the reference, as of everything here."""
EPISODES = 128
RTTS_MS = (10.0, 50.0)
ARRIVAL_S = 10.0


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


def curves(runs: Mapping[int, Path]) -> dict[str, list[tuple[int, float]]]:
    """Return the reward per decision of each evaluation, by training."""
    return {
        f"seed {seed}": [(step, metrics["eval/reward"]) for step, metrics in evaluations(run).items()]
        for seed, run in runs.items()
    }


@styled
def draw_curves(found: dict[str, list[tuple[int, float]]]) -> Figure:
    """Draw a line per training."""
    figure = empty_figure(3.2)
    axes = figure.subplots()
    for (name, points), colour, marker in zip(found.items(), itertools.cycle(COLOURS), itertools.cycle(MARKERS)):
        steps, rewards = zip(*points, strict=True)
        Mark(colour, marker).line(axes, np.array(steps) / 1e6, rewards, label=name)
    axes.set(xlabel="million decisions", ylabel="reward per decision", title=f"Evaluation, {EPISODES} episodes")
    name_lines(figure)
    return figure


def validate(agent: Agent, reward: Reward) -> dict[str, float]:
    """Evaluate an agent in the reference's evaluation scenarios by this reward, whatever it was trained in."""
    trained = load_agent(REFERENCE).spec
    spec = dataclasses.replace(agent.spec, scenario=trained.scenario, engine=trained.engine, reward=reward)
    with closing(Episodes(spec, EPISODES)) as env:
        return evaluate_agent(agent, env, EPISODES)


def variants(sweep: Path) -> dict[str, list[Path]]:
    """Return the folders of a sweep's finished trainings, by variant."""
    found: dict[str, list[Path]] = {}
    for folder in sorted(sweep.iterdir()):
        if (folder / "final").is_dir() and read_run(folder) is not None:
            overrides = json.loads((folder / "result.json").read_text(encoding="utf-8"))["overrides"]
            name = next(change for change in overrides if change.startswith("name=")).removeprefix("name=")
            found.setdefault(name, []).append(folder)
    return found


def sweep_rows(sweep: Path, reward: Reward) -> list[list[str]]:
    """Return a row per variant: means and interval over its seeds of `validate` of the last agents."""
    rows = []
    for name, folders in variants(sweep).items():
        values = [validate(load_agent(folder / "final"), reward) for folder in folders]
        rewards, utilisations, queues_ms = (
            estimate([value[f"eval/{metric}"] for value in values]) for metric in ("reward", "utilisation", "queue_ms")
        )
        cells = [
            *(rewards.text(".3f"), f"{utilisations.value:.1%}", f"{queues_ms.value:.1f}"),
            *(page.duration(float(np.median([training_s(folder) for folder in folders]))), str(len(values))),
        ]
        rows.append((-rewards.value, [page.cell(name), *cells]))
    return [row for _, row in sorted(rows)]


def training_s(run: Path) -> float:
    """Return how long a training took, from its record."""
    record = read_run(run)
    assert record is not None
    begun, ended = (datetime.fromisoformat(record[moment]) for moment in ("started", "ended"))
    return (ended - begun).total_seconds()


def fair_powers(sweep: Path, console: Console) -> dict[str, list[float]]:
    """Return the fair power in validation of the last agent of each training, by variant."""
    found = variants(sweep)
    competitors = [
        {"name": f"{name}-{index}", "algorithm": "policy", "policy": str(folder / "final")}
        for name, folders in found.items()
        for index, folder in enumerate(folders)
    ]
    settings = ["preset=validation", f"name={sweep.name}", "league.only=[generalisation]", "league.yardsticks=[]"]
    config = compose_league(settings)
    config["benchmark"]["competitors"] = ["policy", "bbr2", *competitors]
    powers = standings(scores(run_league(config, BENCHMARKS, console).results["generalisation"]))[SCORE, "iqm"]
    return {
        name: [float(powers[f"{name}-{index}"]) for index in range(len(folders))] for name, folders in found.items()
    }


def validation_table(powers: Mapping[str, Sequence[float]]) -> str:
    """Return a table of fair power in validation, the best variant first."""
    means = {name: float(np.mean(values)) for name, values in powers.items()}
    rows = [
        [page.cell(name), f"{means[name]:.3f}", f"{min(powers[name]):.3f}", f"{max(powers[name]):.3f}"]
        for name in sorted(powers, key=lambda name: -means[name])
    ]
    return page.table(
        ["learner", "fair power in validation, mean of the seeds", "smallest", "largest"], rows, range(1, 4)
    )


def duel(algorithm: str) -> Trace:
    """Simulate a flow of 10 ms that a flow of 50 ms joins after 10 s."""
    flows = (Flow(algorithm, RTTS_MS[0]), Flow(algorithm, RTTS_MS[1], start_s=ARRIVAL_S))
    scenario = Scenario(rate_mbps=40.0, buffer_bdp=4.0, duration_s=30.0, flows=flows)
    return bbrgym.simulate(scenario, engine="native", seed=1, step_ms=50.0)


def sweep_tables(folder: Path, reward: Reward) -> dict[str, str]:
    """Return a table of each sweep that has results in a folder, by name."""
    tables = {}
    for name, first in SWEEPS.items():
        if (folder / name).is_dir() and (rows := sweep_rows(folder / name, reward)):
            metrics = ["reward per decision [95 %]", "utilisation", "queue, ms", "training, median"]
            tables[name] = page.table([first, *metrics, "seeds"], rows, range(1, 6))
    return tables


def with_blocks(document: str, blocks: Mapping[str, str]) -> str:
    """Return a document with each block between its marks; a block's name is empty or that of a sweep.

    Raises:
        ValueError: marks are missing.
    """
    for name, block in blocks.items():
        document = page.with_block(document, f"studies/agent.py {name}".strip(), block)
    return document


def report(runs: Mapping[int, Path], reward: Reward) -> tuple[str, dict[str, Figure]]:
    """Return the text on the reference, and the figures by name."""
    reference = load_agent(REFERENCE)
    training = reference.training
    checked = validate(reference, reward)
    said = [
        f"The reference: seed {training.get('seed')}, {training.get('steps', 0):,} decisions; in evaluation reward "
        f"{checked['eval/reward']:.3f} per decision, utilisation {checked['eval/utilisation']:.1%}, queue "
        f"{checked['eval/queue_ms']:.1f} ms."
    ]
    # A rule may need features that the reference lacks.
    spec = dataclasses.replace(reference.spec, observation=Observation())
    for name in RULES:
        scripted = validate(scripted_agent(name, spec), reward)
        said.append(
            f"The rule `{name}`: {scripted['eval/reward']:.3f}, {scripted['eval/utilisation']:.1%}, "
            f"{scripted['eval/queue_ms']:.1f} ms."
        )
    lines = [" ".join(said)]
    columns = ("delivery_rate_mbps", "cwnd_gain", "pacing_gain", "link_queue_mean_ms")
    figures = {"duel": over_time({name: duel(name) for name in ("bbr", "policy")}, columns, window_s=0.0)}
    if found := {name: points for name, points in curves(runs).items() if points}:
        figures["training"] = draw_curves(found)
        last = [points[-1][1] for points in found.values()]
        lines += [
            "",
            f"Last evaluation of each of {len(found)} trainings: {estimate(last).text('.3f')}, from "
            f"{min(last):.3f} to {max(last):.3f}.",
        ]
    return "\n".join(lines), figures


def card(policy: StoredPolicy) -> str:
    """Return the block of the model card that a policy's file decides."""
    return page.table(["the policy's file", ""], [[name, page.cell(text)] for name, text in facts(policy).items()])


def adopt(run: Path, folder: Path = REFERENCE, card_page: Path = CARD) -> None:
    """Replace the reference by the last agent of a training, its record in `mlflow.json` and its facts on the card.

    Takes the last agent, not the best by evaluation: the learning rate ends at 0, and a few costly episodes dominate
    the mean reward of an evaluation.

    Raises:
        FileNotFoundError: the training has no agent.
        ValueError: `run` has no training.
    """
    record = read_run(run)
    if record is None:
        raise ValueError(f"'{run}' holds no training: it has no run.json")
    tags = {name: value for name, value in record["tags"].items() if name != "host"}
    agent = load_agent(run / "final")
    made_with = {name: value for name, value in tags.items() if name != "seed"}
    agent.training = {**agent.training, "made_with": made_with, "licence": LICENCE}
    agent.save(folder)
    page.write_block(card_page, "agents/reference", card(agent.stored))
    params = record["params"]
    summary = {
        "command": f"bbrgym train experiment=reference seed={params['seed']}",
        **{name: record[name] for name in ("experiment", "run_id", "run_name", "status", "started", "ended")},
        "tags": tags,
        "params": {name: params[name] for name in ("observation", "action", "reward", "env", "agent", "train", "seed")},
        "evaluations": [{"step": step, **metrics} for step, metrics in evaluations(run).items()],
    }
    write_json(folder / "mlflow.json", summary)


def main(arguments: list[str]) -> int:
    """Print the text and tables; with --write, write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", default="runs/train", type=Path, help="folder of the trainings")
    parser.add_argument("--sweeps", default="runs/multirun", type=Path, help="folder with a folder per sweep")
    parser.add_argument("--write", type=Path, metavar="FILE", help="page to write the tables and figures into")
    parser.add_argument("--adopt", type=Path, metavar="RUN", help="first make a training's last agent the reference")
    options = parser.parse_args(arguments)
    if options.adopt is not None:
        adopt(options.adopt)
    reward = load_agent(REFERENCE).spec.reward
    text, figures = report(trainings(options.runs), reward)
    blocks = {"": text, **sweep_tables(options.sweeps, reward)}
    if LEARNERS in blocks:
        blocks[VALIDATION] = validation_table(fair_powers(options.sweeps / LEARNERS, make_console()))
    print("\n\n".join(blocks.values()))
    if options.write is not None:
        written = with_blocks(options.write.read_text(encoding="utf-8"), blocks)
        for name, figure in figures.items():
            page.write_figure(figure, options.write, name)
        write_text(options.write, written)
    return 0


if __name__ == "__main__":
    sys.exit(run_interruptible("agent", lambda: main(sys.argv[1:])))
