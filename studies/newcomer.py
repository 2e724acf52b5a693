"""Train as a newcomer does: what does the first training reach?

Plain Stable-Baselines3, its default hyper-parameters, one environment of `gymnasium.make`, no wrapper: PPO and SAC on
each id with one agent. Beside them the search of `bbrgym train agent=cma` for the reward, with the settings of
`SEARCH`. All are judged by the mean reward per step in the same episodes, as what is simple is in `studies.ids`.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import gymnasium
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from rich.console import Console

from bbrgym.agents.policy import load_agent
from bbrgym.agents.train import train
from bbrgym.benchmark.code import code_hash
from bbrgym.benchmark.ledger import Rows
from bbrgym.benchmark.style import COLOURS, panels, styled
from studies import page
from studies.ids import FIRST_EPISODE, Simple, environment, episodes, judge, short, simple
from studies.ids import ids as every_id
from studies.study import Study

STEPS: Final = {"ppo": 200_000, "sac": 50_000, "cma": 3_000_000}
"""Steps of a training of each learner."""
SEARCH: Final = {"algorithm": "cma", "fitness": "reward", "scenarios": 4}
"""Settings of the search. Few scenarios make many generations of few decisions (docs/search.md)."""
COMMAND: Final = "bbrgym train agent=cma " + " ".join(
    f"agent.{name}={value}" for name, value in SEARCH.items() if name != "algorithm"
)
"""What searches with these settings."""
DRAWN: Final = ("ppo", "sac")
"""Learners with learning curves."""
EVALUATIONS: Final = 8
"""Points of a learning curve, besides the one before the training."""
SEEDS: Final = (1, 2, 3, 4, 5)


@dataclass(frozen=True)
class Training:
    """A training of a learner in an environment, with a seed.

    Attributes:
        id: of the environment.
        learner: of `STEPS`.
        seed: of the training.
    """

    id: str
    learner: str
    seed: int

    @property
    def name(self) -> str:
        """What the ledger calls it."""
        return f"{short(self.id)} {self.learner} {self.seed}"

    @property
    def code(self) -> str:
        """The hash of what decides its result."""
        judged = [environment(self.id), episodes(self.id), FIRST_EPISODE]
        settings = [SEARCH] if self.learner == "cma" else []
        return code_hash("native", also=json.dumps([*judged, STEPS[self.learner], EVALUATIONS, *settings]))

    @property
    def cost(self) -> float:
        """About how long it takes, in episodes."""
        return {"ppo": 1000.0, "sac": 4000.0, "cma": 500.0}[self.learner]


def ids() -> list[str]:
    """Return the ids that are compared: without those of the papers, which have an experiment each.

    `Preferences` differs from `Shared` in what flows prefer.
    """
    return [id for id in every_id() if not id.startswith(("bbrgym/Paper", "bbrgym/Pref"))]


def jobs() -> list[Training]:
    """Return what is measured, the longest first; the first seed of all ids comes before the second."""
    found = [Training(id, learner, seed) for id in ids() for learner in STEPS for seed in SEEDS]
    return sorted(found, key=lambda job: (-job.cost, job.seed))


def work(job: Training) -> Rows:
    """Train as a newcomer does, and return the learning curve; of a search, its end."""
    os.environ["OMP_NUM_THREADS"] = "1"
    if job.learner == "cma":
        return [searched(job)]
    # Here, because it takes seconds.
    import stable_baselines3
    import torch

    torch.set_num_threads(1)
    env = gymnasium.make(job.id)
    model = getattr(stable_baselines3, job.learner.upper())("MlpPolicy", env, seed=job.seed, device="cpu")

    def judged() -> dict[str, Any]:
        reward = judge(job.id, lambda seen: model.predict(seen, deterministic=True)[0])
        return {"decisions": model.num_timesteps, "reward": reward}

    curve = [judged()]
    for part in range(EVALUATIONS):
        model.learn(STEPS[job.learner] * (part + 1) // EVALUATIONS - model.num_timesteps, reset_num_timesteps=part == 0)
        curve.append(judged())
    env.close()
    return curve


def searched(job: Training) -> dict[str, Any]:
    """Return what the last agent of a search for the reward reaches."""
    steps = STEPS[job.learner]
    config = {
        **json.loads(environment(job.id)),
        "agent": SEARCH,
        "seed": job.seed,
        "train": {"total_steps": steps, "eval_every": steps, "eval_episodes": 1, "checkpoint_every": steps},
        "tracking": {"backend": "none"},
    }
    with tempfile.TemporaryDirectory(prefix="bbrgym-") as folder:
        train(config, Path(folder) / "run", Console(quiet=True))
        agent = load_agent(Path(folder) / "run" / "final")
    reward = judge(job.id, lambda seen: agent.predict(seen[np.newaxis])[0])
    return {"decisions": agent.training["steps"], "reward": reward}


def view(results: Mapping[str, Rows], figure: page.AddFigure) -> Mapping[str, object]:
    """Return the table of what is measured, where learners are above what is simple, and the curves."""
    kept = Study("ids").results()
    baselines = {id: simple(id, kept) for id in ids()}
    found = {job: results[job.name] for job in jobs() if job.name in results}
    ends = {id: ends_of(id, found) for id in ids()}
    return {
        "rewards": table(baselines, ends),
        "above": above(baselines, ends),
        "below": {
            short(id): verdict(baselines[id], of_id)
            for id, of_id in ends.items()
            if of_id and not is_above(baselines[id], of_id)
        },
        "command": COMMAND,
        "steps": {learner: f"{steps:,}" for learner, steps in STEPS.items()},
        "curves": figure("curves", partial(curves, baselines, found)),
    }


def ends_of(id: str, trainings: Mapping[Training, Rows]) -> dict[str, list[float]]:
    """Return what each learner reaches in an id, by the names of those that are measured: a reward per seed."""
    ends: dict[str, list[float]] = {}
    for job, rows in trainings.items():
        if job.id == id:
            ends.setdefault(job.learner, []).append(rows[-1]["reward"])
    return {learner: ends[learner] for learner in STEPS if learner in ends}


def above(baselines: Mapping[str, Simple], ends: Mapping[str, Mapping[str, Sequence[float]]]) -> str:
    """Return in how many ids each learner is above what is simple, in the mean of its seeds."""
    texts = []
    for learner in STEPS:
        found = {id: {learner: of_id[learner]} for id, of_id in ends.items() if learner in of_id}
        if found:
            count = sum(is_above(baselines[id], alone) for id, alone in found.items())
            texts.append(f"{learner} in {count} of {len(found)} ids")
    return ", ".join(texts) or "nothing was trained"


def best(ends: Mapping[str, Sequence[float]]) -> tuple[float, str]:
    """Return the best mean over seeds, and the learner that reaches it."""
    return max((float(np.mean(found)), learner) for learner, found in ends.items())


def is_above(untrained: Simple, ends: Mapping[str, Sequence[float]]) -> bool:
    """Return whether the best mean over seeds is above what is simple."""
    return best(ends)[0] > untrained.best


def verdict(untrained: Simple, ends: Mapping[str, Sequence[float]]) -> str:
    """Return what the best training of an id says, in words; nothing if none is measured."""
    if not ends:
        return ""
    _, learner = best(ends)
    if is_above(untrained, ends):
        return f"`{learner}` is above everything that is simple."
    if untrained.constant[0] >= untrained.algorithm[0]:
        return (
            f"No training is above the constant action ({untrained.constant[1]}); `{learner}` comes closest. The id "
            "shows how soon and how surely a learner finds a constant."
        )
    return f"No training is above `{untrained.algorithm[1]}`; `{learner}` comes closest. Something is left to learn."


def table(baselines: Mapping[str, Simple], ends: Mapping[str, Mapping[str, Sequence[float]]]) -> str:
    """Return the table of rewards."""
    rows = []
    for id, reached in baselines.items():
        cells = []
        for learner in STEPS:
            found = ends[id].get(learner, [])
            cells.append(f"{np.mean(found):.3f} [{min(found):.3f}] ({len(found)})" if found else "")
        untrained = [f"{reward:.3f} ({what})" for reward, what in (reached.constant, reached.algorithm)]
        others = [f"{reward:.3f}" for reward in (reached.bbr, reached.zero, reached.random)]
        rows.append([short(id), *cells, *untrained, *others])
    learners = [f"{learner}, mean [worst] (seeds)" for learner in STEPS]
    headings = ["id", *learners, "best constant", "best algorithm", "bbr", "action 0", "random"]
    return page.table(headings, rows, range(1, len(headings)))


@styled
def curves(baselines: Mapping[str, Simple], results: Mapping[Training, Rows]) -> Figure:
    """Return the learning curves of each id, one line per seed, beside `bbr`."""
    figure, grid = panels(len(baselines), 3, 1.8, room=0.3)
    named: dict[str, Line2D] = {}
    for axes, (id, reached) in zip(grid, baselines.items(), strict=True):
        axes.set(title=short(id).removesuffix("-v1"), xlabel="thousand steps")
        for colour, learner in zip(COLOURS, DRAWN, strict=False):
            for job, rows in results.items():
                if (job.id, job.learner) == (id, learner):
                    steps, rewards = np.array([(row["decisions"], row["reward"]) for row in rows]).T
                    (named[learner],) = axes.plot(steps / 1000, rewards, color=colour, linewidth=0.8)
        if np.isfinite(reached.bbr):
            named["bbr"] = axes.axhline(reached.bbr, color="black", linestyle="--")
    figure.supylabel("mean reward per step", fontsize=10)
    figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=len(named) or 1)
    return figure
