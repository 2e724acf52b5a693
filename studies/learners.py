"""What does each learner reach in two and in ten minutes? `make learners`, or `python -m studies.learners`.

Every training starts from random weights, on the scenarios, features and actions of the reference policy, with two
cores to itself: trainings run one after the other, and nothing else should run. Its last agent then drives all agent
flows of the scenarios that judge the reference in `studies.learned`, and so does what is simple. What the same code
reached with the same settings is kept beside the page, so the same command resumes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from rich.console import Console
from rich.progress import track

from bbrgym.agents.policy import load_agent
from bbrgym.baselines.policy_file import REFERENCE
from bbrgym.benchmark.code import code_hash
from bbrgym.interruption import SAME_COMMAND, run_interruptible
from studies import page
from studies.kept import finished, keep
from studies.learned import BY_HAND, CONSTANT, COUNT, JUDGES, best_constant, draw, fixed, measure

MARK: Final = "studies/learners.py"
RUNS: Final = Path("runs/learners")
KEPT: Final = Path("docs/results/learners/trainings.parquet")
"""One row per training: `fair_power`, and `steps` in decisions."""
LEARNERS: Final = {
    "cma, linear": ["agent=cma"],
    "cma, 8 tanh": ["agent=cma", "agent.population=24", "agent.net_arch=[8]"],
    "ppo": ["agent=ppo"],
    "sac": ["agent=sac"],
}
"""Overrides of each learner's defaults."""
MINUTES: Final = (2, 10)
SEEDS: Final = (1, 2, 3, 4, 5)
NEVER: Final = 10**12


@dataclass(frozen=True)
class Job:
    """A training: of a learner of `LEARNERS`, for some minutes, with a seed."""

    learner: str
    minutes: int
    seed: int

    @property
    def name(self) -> str:
        """What it is called in files."""
        return f"{self.learner.replace(', ', '-').replace(' ', '-')}-{self.minutes}min-{self.seed}"

    @property
    def code(self) -> str:
        """A hash of the code and of its settings."""
        return code_hash("native", also=json.dumps(settings(self)))

    @property
    def path(self) -> Path:
        """The folder of its run."""
        return RUNS / self.code / self.name


def jobs(learners: Sequence[str], minutes: Sequence[int], seeds: Sequence[int]) -> Iterator[Job]:
    """Yield all jobs: the short ones first, and the first seed of all before the second."""
    return (Job(name, length, seed) for length in minutes for seed in seeds for name in learners)


def settings(job: Job) -> list[str]:
    """Return the overrides of a training, but for its seed and its folder."""
    spec = load_agent(REFERENCE).spec.to_config()
    observation, action = spec["observation"], spec["action"]
    return [
        *LEARNERS[job.learner],
        "scenario=families",
        f"observation.features=[{','.join(observation['features'])}]",
        f"observation.history={observation['history']}",
        *(f"action.{name}={value}" for name, value in action.items()),
        *(f"train.{name}={NEVER}" for name in ("total_steps", "eval_every", "checkpoint_every")),
        f"train.max_minutes={job.minutes}",
    ]


def command(job: Job) -> list[str]:
    """Return the command that trains."""
    program = str(Path(sys.executable).with_name("bbrgym"))
    return [program, "train", *settings(job), f"seed={job.seed}", "tracking=none", f"hydra.run.dir={job.path}"]


def run(job: Job) -> dict[str, float]:
    """Train, and return the decisions and the fair power that the last agent reaches: the mean over scenarios."""
    agent = job.path / "final"
    if not (agent / "agent.json").is_file():
        subprocess.run(command(job), check=True, stdout=subprocess.DEVNULL)
    powers = measure({job.name: {"algorithm": "policy", "policy": str(agent)}}, draw(JUDGES, COUNT))
    return {"fair_power": float(powers[job.name].mean()), "steps": load_agent(agent).training["steps"]}


def simple() -> dict[str, float]:
    """Return the fair power of what is simple: the mean over the same scenarios."""
    packets = best_constant()
    flows = {f"{CONSTANT}, {packets:g} packets": fixed(packets), **BY_HAND}
    return {name: float(powers.mean()) for name, powers in measure(flows, draw(JUDGES, COUNT)).items()}


def results(done: Mapping[Job, Mapping[str, float]], learner: str, minutes: int) -> list[Mapping[str, float]]:
    """Return the results of a learner's finished trainings of one length."""
    return [result for job, result in done.items() if (job.learner, job.minutes) == (learner, minutes)]


def table(done: Mapping[Job, Mapping[str, float]], untrained: Mapping[str, float]) -> str:
    """Return the fair power of what is not trained, and below it the mean that finished trainings reach."""
    rows = [[name, *[f"{power:.3f}"] * len(MINUTES), ""] for name, power in untrained.items()]
    for learner in LEARNERS:
        cells, paces = [], []
        for minutes in MINUTES:
            of = results(done, learner, minutes)
            reached = [result["fair_power"] for result in of]
            paces += [result["steps"] / (60 * minutes) for result in of]
            cells.append(f"{np.mean(reached):.3f} [{min(reached):.3f} {max(reached):.3f}] ({len(of)})" if of else "")
        rows.append([learner, *cells, f"{np.median(paces):,.0f}" if paces else ""])
    heads = [f"{minutes} minutes, mean [worst best] (seeds)" for minutes in MINUTES]
    return page.table(["", *heads, "decisions per second"], rows, range(1, 2 + len(heads)))


def above(done: Mapping[Job, Mapping[str, float]], untrained: Mapping[str, float]) -> str:
    """Return how many of each learner's longest trainings are above all that is not trained."""
    best, counts = max(untrained.values()), []
    for learner in LEARNERS:
        of = results(done, learner, MINUTES[-1])
        counts.append(f"“{learner}” {sum(result['fair_power'] > best for result in of)} of {len(of)}")
    return f"Trainings of {MINUTES[-1]} minutes that are above all that is not trained: {', '.join(counts)}."


def main() -> int:
    """Train what is missing, and print the table of all that is finished; with --write, write it into the page."""
    parser = page.parser(__doc__, MARK)
    parser.add_argument("--learners", nargs="+", default=list(LEARNERS), choices=list(LEARNERS))
    parser.add_argument("--minutes", nargs="+", type=int, default=list(MINUTES), choices=MINUTES)
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    options = parser.parse_args()
    wanted = list(jobs(options.learners, options.minutes, options.seeds))
    done = finished(KEPT, wanted)
    for job in track([job for job in wanted if job not in done], "trainings", console=Console(stderr=True)):
        keep(KEPT, job, run(job))
    done, untrained = finished(KEPT, jobs(list(LEARNERS), MINUTES, SEEDS)), simple()
    page.publish(f"{table(done, untrained)}\n\n{above(done, untrained)}", MARK, options.write)
    return 0


if __name__ == "__main__":
    sys.exit(run_interruptible("learners", main, SAME_COMMAND))
