"""Does an agent learn more if it is broken while it learns? The same training with a curriculum and without.

Trainings have the same steps, settings and seeds. Their last agents are judged in scenarios of the training's
distribution, in those of a wider one, and by `bbrgym break` with another seed and another box.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure

from bbrgym.agents.policy import load_agent
from bbrgym.agents.tracking import read_metrics
from bbrgym.benchmark.breaking.find import find
from bbrgym.benchmark.breaking.judging import Judge
from bbrgym.benchmark.breaking.properties import PROPERTIES
from bbrgym.benchmark.breaking.space import Space
from bbrgym.benchmark.candidate import Candidate
from bbrgym.benchmark.code import code_hash
from bbrgym.benchmark.ledger import Rows
from bbrgym.benchmark.style import COLOURS, empty_figure, styled
from bbrgym.envs.distribution import Distribution
from bbrgym.envs.scenario import Scenario
from studies import page
from studies.breaking import search_sources
from studies.learned import fair_power
from studies.study import PROGRAM

RUNS: Final = Path("runs/curriculum")
SEEDS: Final = (1, 2, 3)
KINDS: Final = {"plain": (), "curriculum": ("curriculum=break", "curriculum.every=800000")}
"""Overrides of each kind of training."""
SETTINGS: Final = (
    "agent=cma",
    "scenario=shared",
    "train.total_steps=3200000",
    "train.eval_every=800000",
    "train.checkpoint_every=800000",
)
"""Overrides of every training: 3.2 million decisions, and three searches where there is a curriculum."""
ROLES: Final = {"its own": "shared", "wider": "train"}
"""The distributions of scenarios that judge."""
SCENARIOS: Final = 120
"""Of each distribution."""
TAIL: Final = 0.1
"""The part of the scenarios that is the worst."""
SCENARIO_SEED: Final = 2**33
"""Draws the scenarios that judge: no training and no evaluation has it."""
BOX: Final[Mapping[str, Any]] = {"rate_mbps": [0.5, 300], "rtt_ms": [5, 400], "buffer_bdp": [0.2, 6], "flows": [1, 4]}
"""Of the paths that break the agents: another one than the curriculum's."""
BREAK_SEED: Final = 12345
CANDIDATES: Final = 96
"""Paths that are judged to break an agent."""


@dataclass(frozen=True)
class Training:
    """A training of a kind of `KINDS`, and what its agent is worth."""

    kind: str
    seed: int

    @property
    def name(self) -> str:
        """What the ledger calls it."""
        return f"{self.kind} {self.seed}"

    @property
    def code(self) -> str:
        """The hash of what decides its result."""
        judged = [[scenario.to_dict() for scenario in scenarios(name)] for name in ROLES.values()]
        decisive = [settings(self), judged, BOX, BREAK_SEED, CANDIDATES, search_sources()]
        return code_hash("native", also=json.dumps(decisive))

    @property
    def path(self) -> Path:
        """The folder of its run."""
        return RUNS / self.code / self.name.replace(" ", "-")


def jobs() -> list[Training]:
    """Return what is measured: both kinds with a seed, then with the next one."""
    return [Training(kind, seed) for seed in SEEDS for kind in KINDS]


def settings(job: Training) -> list[str]:
    """Return the overrides of a training, but for its folder."""
    return [*SETTINGS, *KINDS[job.kind], f"seed={job.seed}"]


def command(job: Training) -> list[str]:
    """Return the command that trains."""
    return [PROGRAM, "train", *settings(job), "tracking=none", f"output_dir={job.path}"]


@cache
def scenarios(name: str) -> Sequence[Scenario]:
    """Return the scenarios of a distribution that judge."""
    rng = np.random.default_rng(SCENARIO_SEED)
    return tuple(Distribution.of(name).sample(rng) for _ in range(SCENARIOS))


def work(job: Training) -> Rows:
    """Train, and return what the last agent is worth: a row per distribution, with the curve and the failures."""
    began = time.monotonic()
    if not (job.path / "final" / "agent.json").is_file():
        subprocess.run(command(job), check=True, stdout=subprocess.DEVNULL)
    trained_s = time.monotonic() - began
    agent = job.path / "final"
    flow = {"algorithm": "policy", "policy": str(agent)}
    powers = {
        role: [fair_power(scenario, flow, number + 1) for number, scenario in enumerate(scenarios(name))]
        for role, name in ROLES.items()
    }
    shared = {"steps": load_agent(agent).training["steps"], "seconds": trained_s, **failures(agent)}
    shared["curve"] = json.dumps(curve(job.path))
    return [{"role": role, "powers": json.dumps(of_role), **shared} for role, of_role in powers.items()]


def failures(agent: Path) -> dict[str, Any]:
    """Return how many failures break an agent, by name, and the worst regret."""
    judge = Judge(Candidate.of(str(agent)), {name: one.limit for name, one in PROPERTIES.items()})
    found = find(judge, Space.read(changes=BOX), BREAK_SEED, candidates=CANDIDATES)
    broken = [(name, entry.verdict.value) for name, entry in found.failures]
    worst = max((value for name, value in broken if name == "regret"), default=0.0)
    return {"failures": len(broken), "worst_regret": worst}


def curve(run: Path) -> list[tuple[int, float]]:
    """Return the largest regret of each search of a training, by its steps."""
    lines = read_metrics(run)
    found = {
        line["step"]: line["metrics"]["curriculum/worst"] for line in lines if "curriculum/worst" in line["metrics"]
    }
    return sorted(found.items())


def view(results: Mapping[str, Rows], figure: page.AddFigure) -> Mapping[str, object]:
    """Return the table of what agents are worth, of each seed and as means, and the curve of the worst path."""
    found = {job: results[job.name] for job in jobs() if job.name in results}
    return {
        "worth": table(found),
        "measured": len(found),
        "trainings": len(jobs()),
        "curves": figure("curves", partial(curves, found)) if found else "",
        "scenarios": SCENARIOS,
        "candidates": CANDIDATES,
        "overrides": " ".join(SETTINGS),
        "added": " ".join(KINDS["curriculum"]),
    }


def table(found: Mapping[Training, Rows]) -> str:
    """Return a row per training, and one per kind with the mean over its seeds."""
    rows = []
    for kind in KINDS:
        numbers = []
        for job, of_job in found.items():
            if job.kind != kind:
                continue
            numbers.append(_numbers(of_job))
            rows.append([job.name, *_cells(numbers[-1])])
        if len(numbers) > 1:
            rows.append([f"**{kind}, mean**", *_cells([float(np.mean(each)) for each in zip(*numbers, strict=True)])])
    heads = [f"{role}: {what}" for role in ROLES for what in ("mean", "worst tenth")]
    return page.table(["", *heads, "failures", "largest regret", "minutes"], rows, range(1, 4 + len(heads)))


def _numbers(rows: Rows) -> list[float]:
    numbers = []
    for row in rows:
        powers = np.sort(json.loads(row["powers"]))
        numbers += [float(powers.mean()), float(powers[: max(1, round(TAIL * len(powers)))].mean())]
    return [*numbers, float(rows[0]["failures"]), float(rows[0]["worst_regret"]), rows[0]["seconds"] / 60]


def _cells(numbers: Sequence[float]) -> list[str]:
    *powers, count, regret, minutes = numbers
    return [*(f"{power:.3f}" for power in powers), f"{count:.3g}", f"{regret:.2f}", f"{minutes:.1f}"]


@styled
def curves(found: Mapping[Training, Rows]) -> Figure:
    """Return the largest regret of each search, one line per training with a curriculum."""
    figure = empty_figure(2.6)
    axes = figure.subplots()
    with_one = [(job, json.loads(rows[0]["curve"])) for job, rows in found.items() if job.kind == "curriculum"]
    for colour, (job, points) in zip(COLOURS, with_one, strict=False):
        if points:
            steps, worst = np.array(points).T
            axes.plot(steps / 1e6, worst, "o-", color=colour, label=f"seed {job.seed}")
    axes.set(xlabel="million decisions", ylabel="largest regret of a search", ylim=(0, 1))
    if any(points for _, points in with_one):
        axes.legend(frameon=False)
    return figure
