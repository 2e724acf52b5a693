"""Train as a newcomer does: what does the first training reach?

Plain Stable-Baselines3, its default hyper-parameters, one environment of `gymnasium.make`, no wrapper: PPO and SAC on
each id with one agent. Beside them: the constant actions of a grid, random actions, and every hand-coded algorithm in
the agent's place. All are judged by the mean reward per decision in the same episodes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final

import gymnasium
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bbrgym.baselines import registry
from bbrgym.benchmark.code import code_hash
from bbrgym.benchmark.ledger import Rows
from bbrgym.benchmark.style import COLOURS, panels, styled
from bbrgym.envs import environment_ids
from bbrgym.envs.gym_env import DEFAULT_SCENARIO, one_agent_spec
from bbrgym.envs.reward import Reward
from bbrgym.envs.trace import simulate
from studies import page

STEPS: Final = {"ppo": 200_000, "sac": 50_000}
"""Decisions of a training of each learner."""
EVALUATIONS: Final = 8
"""Points of a learning curve, besides the one before the training."""
SEEDS: Final = (1, 2, 3, 4, 5)
EPISODES: Final = 6
FIRST_EPISODE: Final = 1_000_000
"""Seed of the first episode that judges; trainings have smaller ones."""
GRID: Final = tuple(np.linspace(-1.0, 1.0, 9).tolist())

Act = Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]]


@dataclass(frozen=True)
class Driver:
    """What drives the agent of an id: a training, a constant action, random actions, or an algorithm in its place.

    Attributes:
        id: of the environment.
        kind: `ppo`, `sac`, `constant`, `random` or `algorithm`.
        what: the seed of a training, the action of a constant, the name of an algorithm.
    """

    id: str
    kind: str
    what: str = ""

    @property
    def name(self) -> str:
        """What the ledger calls it."""
        return f"{self.id.removeprefix('bbrgym/')} {self.kind} {self.what}".strip()

    @property
    def code(self) -> str:
        """The hash of what decides its result."""
        training = [STEPS[self.kind], EVALUATIONS] if self.kind in STEPS else []
        return code_hash("native", also=json.dumps([environment(self.id), EPISODES, FIRST_EPISODE, *training]))

    @property
    def cost(self) -> float:
        """About how long it takes, in episodes."""
        return {"ppo": 1000.0, "sac": 4000.0}.get(self.kind, 1.0)


@cache
def environment(id: str) -> str:
    """Return what the environment of an id is."""
    spec = one_agent_spec(environment_ids()[id].get("scenario", DEFAULT_SCENARIO), "bbr")
    return json.dumps(spec.to_config(), sort_keys=True)


def ids() -> list[str]:
    """Return the ids that are compared: without those of the papers, which have an experiment each.

    `Bottleneck` is another name of `Default`, and `Preferences` differs from `Shared` in what flows prefer.
    """
    return [id for id in environment_ids() if not id.startswith(("bbrgym/Paper", "bbrgym/Bottleneck", "bbrgym/Pref"))]


def jobs() -> list[Driver]:
    """Return what is measured, the longest first; the first seed of all ids comes before the second."""
    algorithms = [name for name in registry.controllers() if name not in ("agent", "policy")]
    found = []
    for id in ids():
        found += [Driver(id, learner, str(seed)) for learner in STEPS for seed in SEEDS]
        found += [Driver(id, "constant", f"{cwnd:g},{pacing:g}") for cwnd in GRID for pacing in GRID]
        found += [Driver(id, "algorithm", name) for name in algorithms] + [Driver(id, "random")]
    return sorted(found, key=lambda job: (-job.cost, job.what))


def work(job: Driver) -> Rows:
    """Return the mean reward per decision; of a training, after so many decisions each."""
    os.environ["OMP_NUM_THREADS"] = "1"
    if job.kind in STEPS:
        return train(job.id, job.kind, int(job.what))
    if job.kind == "algorithm":
        reward = judge_algorithm(job.id, job.what)
    elif job.kind == "random":
        random = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32, seed=1)
        reward = judge(job.id, lambda _: random.sample())
    else:
        action = np.array(job.what.split(","), dtype=np.float32)
        reward = judge(job.id, lambda _: action)
    return [{"decisions": 0, "reward": reward}]


def judge(id: str, act: Act) -> float:
    """Return the mean reward per decision over the episodes that judge."""
    env = gymnasium.make(id)
    rewards = []
    for episode in range(EPISODES):
        observation, _ = env.reset(seed=FIRST_EPISODE + episode)
        over = False
        while not over:
            observation, reward, terminated, truncated, _ = env.step(act(observation))
            rewards.append(float(reward))
            over = terminated or truncated
    env.close()
    return float(np.mean(rewards))


def judge_algorithm(id: str, name: str) -> float:
    """Return the same of an algorithm in the agent's place."""
    env = gymnasium.make(id)
    rewards = []
    for episode in range(EPISODES):
        _, info = env.reset(seed=FIRST_EPISODE + episode)
        scenario = env.unwrapped.scenario  # type: ignore[attr-defined]
        (agent,) = scenario.agent_flows
        trace = simulate(scenario.with_agents_as(name), "native", int(info["seed"]), 100.0)
        stop_s = scenario.flows[agent].stop_s
        end = None if stop_s is None else int(np.searchsorted(trace.time_s, stop_s - 1e-9)) + 1
        rewards += Reward().over_steps(trace.scenario, (agent,), trace.flows, trace.link)[:end, 0].tolist()
    env.close()
    return float(np.mean(rewards))


def train(id: str, learner: str, seed: int) -> Rows:
    """Train as a newcomer does, and return the learning curve."""
    # Here, because it takes seconds.
    import stable_baselines3
    import torch

    torch.set_num_threads(1)
    env = gymnasium.make(id)
    model = getattr(stable_baselines3, learner.upper())("MlpPolicy", env, seed=seed, device="cpu")

    def judged() -> dict[str, Any]:
        reward = judge(id, lambda seen: model.predict(seen, deterministic=True)[0])
        return {"decisions": model.num_timesteps, "reward": reward}

    curve = [judged()]
    for part in range(EVALUATIONS):
        model.learn(STEPS[learner] * (part + 1) // EVALUATIONS - model.num_timesteps, reset_num_timesteps=part == 0)
        curve.append(judged())
    env.close()
    return curve


def view(results: Mapping[str, Rows], figure: page.AddFigure) -> Mapping[str, object]:
    """Return the table of what is measured, in how many ids each learner is above what is simple, and the curves."""
    found = {job: results[job.name] for job in jobs() if job.name in results}
    rewards, above = table(ids(), {job: rows[-1]["reward"] for job, rows in found.items()})
    return {"rewards": rewards, "above": above, "curves": figure("curves", partial(curves, ids(), found))}


def table(chosen: Sequence[str], rewards: Mapping[Driver, float]) -> tuple[str, str]:
    """Return the table of rewards, and in how many ids each learner is above what is simple."""
    rows = []
    above: dict[str, list[bool]] = {learner: [] for learner in STEPS}
    for id in chosen:
        of = {job: reward for job, reward in rewards.items() if job.id == id}
        constant, algorithm, random = (_best(of, kind) for kind in ("constant", "algorithm", "random"))
        cells = []
        for learner in STEPS:
            found = [reward for job, reward in of.items() if job.kind == learner]
            cells.append(f"{np.mean(found):.3f} [{min(found):.3f}] ({len(found)})" if found else "")
            if found:
                above[learner].append(float(np.mean(found)) > max(constant[0], algorithm[0]))
        bbr = of.get(Driver(id, "algorithm", "bbr"), np.nan)
        zero = of.get(Driver(id, "constant", "0,0"), np.nan)
        rows.append(
            [
                id.removeprefix("bbrgym/"),
                *cells,
                f"{constant[0]:.3f} ({constant[1]})",
                f"{algorithm[0]:.3f} ({algorithm[1]})",
                f"{bbr:.3f}",
                f"{zero:.3f}",
                f"{random[0]:.3f}",
            ]
        )
    learners = [f"{learner}, mean [worst] (seeds)" for learner in STEPS]
    headings = ["id", *learners, "best constant", "best algorithm", "bbr", "action 0", "random"]
    summary = ", ".join(f"{learner} in {sum(ids)} of {len(ids)} ids" for learner, ids in above.items() if ids)
    return page.table(headings, rows, range(1, len(headings))), summary or "nothing was trained"


def _best(rewards: Mapping[Driver, float], kind: str) -> tuple[float, str]:
    found = [(reward, job.what) for job, reward in rewards.items() if job.kind == kind]
    return max(found, default=(np.nan, ""))


@styled
def curves(chosen: Sequence[str], results: Mapping[Driver, Rows]) -> Figure:
    """Return the learning curves of each id, one line per seed, beside `bbr`."""
    figure, grid = panels(len(chosen), 3, 1.8, room=0.3)
    named: dict[str, Line2D] = {}
    for axes, id in zip(grid, chosen, strict=True):
        axes.set(title=id.removeprefix("bbrgym/").removesuffix("-v1"), xlabel="thousand decisions")
        for colour, learner in zip(COLOURS, STEPS, strict=False):
            for job, rows in results.items():
                if (job.id, job.kind) == (id, learner):
                    steps, rewards = np.array([(row["decisions"], row["reward"]) for row in rows]).T
                    (named[learner],) = axes.plot(steps / 1000, rewards, color=colour, linewidth=0.8)
        if bbr := results.get(Driver(id, "algorithm", "bbr")):
            named["bbr"] = axes.axhline(bbr[0]["reward"], color="black", linestyle="--")
    figure.supylabel("mean reward per decision", fontsize=10)
    figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=len(named) or 1)
    return figure
