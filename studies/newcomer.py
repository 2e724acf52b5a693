"""What does a newcomer's first training reach? `python -m studies.newcomer [--write docs/results/newcomer.md]`.

Plain Stable-Baselines3, its default hyper-parameters, one environment of `gymnasium.make`, no wrapper: PPO and SAC on
each id with one agent. Beside them: the constant actions of a grid, random actions, and every hand-coded algorithm in
the agent's place. All are judged by the mean reward per decision in the same episodes. Results of the same code in the
same environment are kept beside the page, so the same command resumes.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import gymnasium
import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from rich.console import Console
from rich.progress import track

from bbrgym.baselines import registry
from bbrgym.benchmark.code import code_hash
from bbrgym.benchmark.style import COLOURS, panels, styled
from bbrgym.cores import available_cores
from bbrgym.envs import environment_ids
from bbrgym.envs.gym_env import DEFAULT_SCENARIO, one_agent_spec
from bbrgym.envs.reward import Reward
from bbrgym.envs.trace import simulate
from bbrgym.interruption import SAME_COMMAND, run_interruptible
from bbrgym.processes import ProcessExecutor
from studies import page
from studies.kept import finished, keep

MARK: Final = "studies/newcomer.py"
KEPT: Final = Path("docs/results/newcomer/jobs.parquet")
"""One row per job: its `reward`, and of a training the `curve` as pairs of decisions and reward, and `steps_per_s`."""
STEPS: Final = {"ppo": 200_000, "sac": 50_000}
EVALUATIONS: Final = 8
"""Points of a learning curve."""
SEEDS: Final = (1, 2, 3, 4, 5)
EPISODES: Final = 6
FIRST_EPISODE: Final = 1_000_000
"""Seed of the first episode that judges; trainings have smaller ones."""
GRID: Final = tuple(np.linspace(-1.0, 1.0, 9).tolist())

Act = Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]]


@dataclass(frozen=True)
class Job:
    """A training, a constant action, random actions, or an algorithm on an id.

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
        """What it is called in the file of results."""
        return f"{self.id.removeprefix('bbrgym/')} {self.kind} {self.what}".strip()

    @property
    def code(self) -> str:
        """A hash of the code and of the environment."""
        return environment_hash(self.id)

    @property
    def cost(self) -> float:
        """About how long it takes, in episodes."""
        return {"ppo": 1000.0, "sac": 4000.0}.get(self.kind, 1.0)


@cache
def environment_hash(id: str) -> str:
    """Return a hash of the code and of what the environment of an id is."""
    spec = one_agent_spec(environment_ids()[id].get("scenario", DEFAULT_SCENARIO), "bbr")
    return code_hash("native", also=json.dumps(spec.to_config(), sort_keys=True))


def ids() -> list[str]:
    """Return the ids that are compared: without those of the papers, which have an experiment each.

    `Bottleneck` is another name of `Default`, and `Preferences` differs from `Shared` in what flows prefer.
    """
    return [id for id in environment_ids() if not id.startswith(("bbrgym/Paper", "bbrgym/Bottleneck", "bbrgym/Pref"))]


def jobs(chosen: Sequence[str], learners: Sequence[str], seeds: Sequence[int]) -> list[Job]:
    """Return all jobs, the longest first; the first seed of all ids comes before the second."""
    algorithms = [name for name in registry.controllers() if name not in ("agent", "policy")]
    found = []
    for id in chosen:
        found += [Job(id, learner, str(seed)) for learner in learners for seed in seeds]
        found += [Job(id, "constant", f"{cwnd:g},{pacing:g}") for cwnd in GRID for pacing in GRID]
        found += [Job(id, "algorithm", name) for name in algorithms] + [Job(id, "random")]
    return sorted(found, key=lambda job: (-job.cost, job.what))


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


def train(id: str, learner: str, seed: int) -> dict[str, Any]:
    """Train as a newcomer does, and return the learning curve and the decisions per second."""
    # Here, because it takes seconds.
    import stable_baselines3
    import torch

    torch.set_num_threads(1)
    env = gymnasium.make(id)
    model = getattr(stable_baselines3, learner.upper())("MlpPolicy", env, seed=seed, device="cpu")
    curve = [(0, judge(id, lambda seen: model.predict(seen, deterministic=True)[0]))]
    spent = 0.0
    for part in range(EVALUATIONS):
        began = time.perf_counter()
        model.learn(STEPS[learner] * (part + 1) // EVALUATIONS - model.num_timesteps, reset_num_timesteps=part == 0)
        spent += time.perf_counter() - began
        curve.append((model.num_timesteps, judge(id, lambda seen: model.predict(seen, deterministic=True)[0])))
    env.close()
    return {"reward": curve[-1][1], "curve": curve, "steps_per_s": model.num_timesteps / spent}


def run(job: Job) -> dict[str, Any]:
    """Run a job, and return what is kept of it."""
    os.environ["OMP_NUM_THREADS"] = "1"
    if job.kind in STEPS:
        return train(job.id, job.kind, int(job.what))
    if job.kind == "algorithm":
        return {"reward": judge_algorithm(job.id, job.what)}
    if job.kind == "random":
        random = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32, seed=1)
        return {"reward": judge(job.id, lambda _: random.sample())}
    action = np.array(job.what.split(","), dtype=np.float32)
    return {"reward": judge(job.id, lambda _: action)}


def table(chosen: Sequence[str], results: Mapping[Job, Mapping[str, Any]]) -> tuple[str, str]:
    """Return the table of finished jobs, and in how many ids each learner is above what is simple."""
    rows = []
    above: dict[str, list[bool]] = {learner: [] for learner in STEPS}
    for id in chosen:
        of = {job: result["reward"] for job, result in results.items() if job.id == id}
        best = partial(_best, of)
        constant, algorithm = best("constant"), best("algorithm")
        cells = []
        for learner in STEPS:
            found = [reward for job, reward in of.items() if job.kind == learner]
            cells.append(f"{np.mean(found):.3f} [{min(found):.3f}] ({len(found)})" if found else "")
            if found:
                above[learner].append(float(np.mean(found)) > max(constant[0], algorithm[0]))
        bbr = of.get(Job(id, "algorithm", "bbr"), np.nan)
        zero = of.get(Job(id, "constant", "0,0"), np.nan)
        rows.append([
            id.removeprefix("bbrgym/"), *cells, f"{constant[0]:.3f} ({constant[1]})",
            f"{algorithm[0]:.3f} ({algorithm[1]})", f"{bbr:.3f}", f"{zero:.3f}", f"{best('random')[0]:.3f}",
        ])  # fmt: skip
    headings = [*(f"{learner}, mean [worst] (seeds)" for learner in STEPS), "best constant", "best algorithm", "bbr"]
    summary = ", ".join(f"{learner} in {sum(ids)} of {len(ids)} ids" for learner, ids in above.items() if ids)
    return page.table(["id", *headings, "action 0", "random"], rows, range(1, 7 + len(STEPS))), (
        f"Above the best constant and every algorithm, in the mean of the seeds: {summary or 'nothing was trained'}."
    )


def _best(rewards: Mapping[Job, float], kind: str) -> tuple[float, str]:
    found = [(reward, job.what) for job, reward in rewards.items() if job.kind == kind]
    return max(found, default=(np.nan, ""))


@styled
def curves(chosen: Sequence[str], results: Mapping[Job, Mapping[str, Any]]) -> Figure:
    """Return the learning curves of each id, one line per seed, beside `bbr`."""
    figure, grid = panels(len(chosen), 3, 1.8, room=0.3)
    named: dict[str, Line2D] = {}
    for axes, id in zip(grid, chosen, strict=True):
        axes.set(title=id.removeprefix("bbrgym/").removesuffix("-v1"), xlabel="thousand decisions")
        for colour, learner in zip(COLOURS, STEPS, strict=False):
            for job, result in results.items():
                if (job.id, job.kind) == (id, learner):
                    steps, rewards = np.array([*result["curve"]]).T
                    (named[learner],) = axes.plot(steps / 1000, rewards, color=colour, linewidth=0.8)
        if bbr := results.get(Job(id, "algorithm", "bbr")):
            named["bbr"] = axes.axhline(bbr["reward"], color="black", linestyle="--")
    figure.supylabel("mean reward per decision", fontsize=10)
    figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=len(named) or 1)
    return figure


def main() -> int:
    """Run what is missing, and print the table of all that is finished; with --write, write it and the curves."""
    parser = page.parser(__doc__, MARK)
    parser.add_argument("--ids", nargs="+", default=ids(), choices=list(environment_ids()), metavar="ID")
    parser.add_argument("--learners", nargs="*", default=list(STEPS), choices=list(STEPS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--workers", type=int, default=available_cores())
    options = parser.parse_args()
    wanted = jobs(options.ids, options.learners, options.seeds)
    done = finished(KEPT, wanted)
    missing = [job for job in wanted if job not in done]
    with ProcessExecutor(options.workers) as pool:
        begun = {pool.submit(run, job): job for job in missing}
        for future in track(as_completed(begun), "jobs", total=len(begun), console=Console(stderr=True)):
            keep(KEPT, begun[future], future.result())
    results = finished(KEPT, jobs(options.ids, list(STEPS), SEEDS))
    text, summary = table(options.ids, results)
    if options.write is not None:
        link = page.write_figure(curves(options.ids, results), options.write, "curves")
        summary += f"\n\n![Learning curves; dashed: bbr]({link})"
    page.publish(f"{text}\n\n{summary}", MARK, options.write)
    return 0


if __name__ == "__main__":
    sys.exit(run_interruptible("newcomer", main, SAME_COMMAND))
