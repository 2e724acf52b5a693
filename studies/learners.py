"""Train each learner for two and for ten minutes, and compare it with what is simple.

Every training starts from random weights, on the scenarios, features and actions of the shipped policy, with two
cores to itself: trainings run one after the other, and nothing else should run. Some have two stages, each of half
the time. The last agent then drives all agent flows of the scenarios that judge the reference in `studies.learned`, and
so does what is simple.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from bbrgym.agents.policy import load_agent
from bbrgym.benchmark.code import code_hash
from bbrgym.benchmark.experiments import compose_experiment
from bbrgym.benchmark.ledger import Rows
from studies import page
from studies.learned import (
    BY_HAND,
    COUNT,
    JUDGES,
    PACKETS,
    WARMUP,
    FairPower,
    best_constant,
    constant,
    draw,
    fair_power,
    fixed,
    runs,
)
from studies.study import PROGRAM

RUNS: Final = Path("runs/learners")
TASK: Final = "recogniser_task"
"""The experiment that has the features and actions of the reference."""
DISTIL: Final = ("agent=distil", "agent.scenarios={scenarios}", "agent.improvements=100")
SCENARIOS_PER_MINUTE: Final = 200
"""Of a stage that distils: the tables of its first scenarios then take a third of its time."""
LEARNERS: Final[Mapping[str, Sequence[Sequence[str]]]] = {
    "cma, linear": [["agent=cma"]],
    "cma, 8 tanh": [["agent=cma", "agent.population=24", "agent.net_arch=[8]"]],
    "ppo": [["agent=ppo"]],
    "ppo with memory": [["agent=ppo", "agent.units=32", "agent.has_skip=true"]],
    "sac": [["agent=sac"]],
    "distil": [DISTIL],
    "distil, then cma": [DISTIL, ["agent=cma", "agent.population=24"]],
}
"""Overrides of each stage of a learner. A later stage tunes what the stage before it has made."""
MINUTES: Final = (2, 10)
SEEDS: Final = (1, 2, 3, 4, 5)
NEVER: Final = 10**12


@dataclass(frozen=True)
class Training:
    """A training: of a learner of `LEARNERS`, for some minutes, with a seed."""

    learner: str
    minutes: int
    seed: int

    @property
    def name(self) -> str:
        """What the ledger calls it."""
        return f"{self.learner} {self.minutes} min {self.seed}"

    @property
    def code(self) -> str:
        """The hash of what decides its result."""
        return code_hash("native", also=json.dumps([*stages(self), task(), judges(), WARMUP]))

    @property
    def folder(self) -> Path:
        """Where it leaves its files."""
        return RUNS / self.code / self.name.replace(", ", "-").replace(" ", "-")

    @property
    def paths(self) -> list[Path]:
        """The folder of each stage's run."""
        return [self.folder / str(place) for place, _ in enumerate(stages(self))]


@dataclass(frozen=True)
class Untrained:
    """What is simple, in all scenarios of a role (`studies.learned.ROLES`)."""

    competitor: str
    flow: Mapping[str, Any]
    role: str

    @property
    def name(self) -> str:
        """What the ledger calls it."""
        return f"{self.role}/{self.competitor}"

    @property
    def cases(self) -> Sequence[FairPower]:
        """What is simulated."""
        return runs(self.role, {self.competitor: self.flow})

    @property
    def code(self) -> str:
        """The hash of what decides its result."""
        return code_hash("native", also=json.dumps([case.code for case in self.cases]))


def jobs() -> list[Training | Untrained]:
    """Return what is simple, then the trainings: the short ones first, and the first seed of all before the second."""
    trainings = [Training(name, length, seed) for length in MINUTES for seed in SEEDS for name in LEARNERS]
    return [*untrained(), *trainings]


def untrained() -> list[Untrained]:
    """Return what is simple; which constant is shown, the scenarios decide that judge nothing."""
    constants = {constant(packets): fixed(packets) for packets in PACKETS}
    choosing = [Untrained(name, flow, "chooses") for name, flow in constants.items()]
    return choosing + [Untrained(name, flow, "judges") for name, flow in {**constants, **BY_HAND}.items()]


def work(job: Training | Untrained) -> Rows:
    """Return the fair power, as the mean over the scenarios, and the decisions of the training."""
    if isinstance(job, Untrained):
        return [{"fair_power": mean_power(job.cases), "steps": 0}]
    finals = [path / "final" for path in job.paths]
    # With a cache of its own: no training gets what another one has simulated.
    own = {**os.environ, "XDG_CACHE_HOME": str((job.folder / "cache").resolve())}
    for final, command in zip(finals, commands(job), strict=True):
        if not (final / "agent.json").is_file():
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=own)
    agent = finals[-1]
    flow = {"algorithm": "policy", "policy": str(agent)}
    return [
        {
            "fair_power": mean_power(runs("judges", {job.name: flow})),
            "steps": sum(load_agent(final).training["steps"] for final in finals),
        },
    ]


def mean_power(cases: Sequence[FairPower]) -> float:
    """Return the mean fair power of runs."""
    return float(np.mean([fair_power(case.scenario, case.flow, case.seed) for case in cases]))


def stages(job: Training) -> list[list[str]]:
    """Return the overrides of each stage of a training, but for its seed and its folders."""
    own = LEARNERS[job.learner]
    minutes = job.minutes / len(own)
    return [
        [
            f"experiment={TASK}",
            "scenario=families",
            *(override.format(scenarios=round(SCENARIOS_PER_MINUTE * minutes)) for override in overrides),
            *(f"train.{name}={NEVER}" for name in ("total_steps", "eval_every", "checkpoint_every")),
            f"train.max_minutes={minutes:g}",
        ]
        for overrides in own
    ]


@cache
def task() -> Sequence[Any]:
    """Return what all learners observe and do, as plain types."""
    composed = compose_experiment(TASK)
    return [composed["observation"], composed["action"]]


@cache
def judges() -> Sequence[Mapping[str, Any]]:
    """Return the scenarios that judge, as plain types."""
    return [scenario.to_dict() for scenario in draw(JUDGES, COUNT)]


def commands(job: Training) -> list[list[str]]:
    """Return the command of each stage."""
    made: list[list[str]] = []
    for place, (overrides, path) in enumerate(zip(stages(job), job.paths, strict=True)):
        begins = [f"agent.tunes={job.paths[place - 1] / 'final'}"] if place else []
        where = ["tracking=none", f"hydra.run.dir={path}"]
        made.append([PROGRAM, "train", *overrides, *begins, f"seed={job.seed}", *where])
    return made


def view(results: Mapping[str, Rows], figure: page.AddFigure) -> Mapping[str, object]:
    """Return the table of what is measured, and how many trainings are above all that is not trained."""
    simple, trained = shown_untrained(results), {}
    for job in jobs():
        if isinstance(job, Training) and job.name in results:
            trained[job] = results[job.name][0]
    return {"minutes": MINUTES[-1], "reached": table(trained, simple), "above": above(trained, simple)}


def shown_untrained(results: Mapping[str, Rows]) -> dict[str, float]:
    """Return the fair power of what is simple, as far as it is measured, with the best constant first."""
    powers = {job.name: results[job.name][0]["fair_power"] for job in untrained() if job.name in results}
    means = {packets: powers.get(f"chooses/{constant(packets)}") for packets in PACKETS}
    known = {packets: mean for packets, mean in means.items() if mean is not None}
    chosen = [constant(best_constant(known))] if len(known) == len(PACKETS) else []
    return {name: powers[f"judges/{name}"] for name in (*chosen, *BY_HAND) if f"judges/{name}" in powers}


def of_learner(
    trained: Mapping[Training, Mapping[str, float]], learner: str, minutes: int
) -> list[Mapping[str, float]]:
    """Return the results of a learner's trainings of one length."""
    return [row for job, row in trained.items() if (job.learner, job.minutes) == (learner, minutes)]


def table(trained: Mapping[Training, Mapping[str, float]], simple: Mapping[str, float]) -> str:
    """Return the fair power of what is not trained, and below it the mean that trainings reach."""
    rows = [[name, *[f"{power:.3f}"] * len(MINUTES), ""] for name, power in simple.items()]
    for learner in LEARNERS:
        cells, paces = [], []
        for minutes in MINUTES:
            of = of_learner(trained, learner, minutes)
            reached = [row["fair_power"] for row in of]
            paces += [row["steps"] / (60 * minutes) for row in of]
            cells.append(f"{np.mean(reached):.3f} [{min(reached):.3f} {max(reached):.3f}] ({len(of)})" if of else "")
        rows.append([learner, *cells, f"{np.median(paces):,.0f}" if paces else ""])
    heads = [f"{minutes} minutes, mean [worst best] (seeds)" for minutes in MINUTES]
    return page.table(["", *heads, "steps per second"], rows, range(1, 2 + len(heads)))


def above(trained: Mapping[Training, Mapping[str, float]], simple: Mapping[str, float]) -> str:
    """Return how many of each learner's longest trainings are above all that is not trained."""
    best, counts = max(simple.values(), default=np.nan), []
    for learner in LEARNERS:
        of = of_learner(trained, learner, MINUTES[-1])
        counts.append(f"“{learner}” {sum(row['fair_power'] > best for row in of)} of {len(of)}")
    return ", ".join(counts)
