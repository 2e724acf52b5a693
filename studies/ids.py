"""What is simple reaches in each environment id: constant actions, random ones, and every algorithm.

All are judged by the mean reward per step in the same episodes. `studies.newcomer` compares trainings with them, and
the pages of the ids show them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

import gymnasium
import numpy as np
import numpy.typing as npt

from bbrgym.baselines import registry
from bbrgym.baselines.policy_file import REFERENCE, read_policy
from bbrgym.benchmark.code import code_hash
from bbrgym.benchmark.ledger import Rows
from bbrgym.envs import environment_ids
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.envs.gym_env import DEFAULT_SCENARIO, one_agent_spec
from bbrgym.envs.reward import Reward
from bbrgym.envs.trace import simulate
from studies import page

EPISODES: Final = 6
"""That judge where all episodes are of one scenario."""
DRAWN_EPISODES: Final = 60
"""The same where each episode draws its scenario: in a few of them luck decides who is better."""
FIRST_EPISODE: Final = 1_000_000
"""Seed of the first episode that judges; trainings have smaller ones."""
GRID: Final = tuple(np.linspace(-1.0, 1.0, 9).tolist())
POLICY: Final = "policy"
"""The shipped policy."""

Act = Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]]


@dataclass(frozen=True)
class Driver:
    """What drives the agent of an id: a constant action, random actions, or an algorithm in its place.

    Attributes:
        id: of the environment.
        kind: `constant`, `random` or `algorithm`.
        what: the action of a constant, the name of an algorithm.
    """

    id: str
    kind: str
    what: str = ""

    @property
    def name(self) -> str:
        """What the ledger calls it."""
        return f"{short(self.id)} {self.kind} {self.what}".strip()

    @property
    def code(self) -> str:
        """The hash of what decides its result."""
        policy = [read_policy(REFERENCE).content_hash] if self.what == POLICY else []
        return code_hash("native", also=json.dumps([environment(self.id), episodes(self.id), FIRST_EPISODE, *policy]))


@dataclass(frozen=True)
class Simple:
    """What is simple in an id: mean rewards per step, NaN where nothing is measured, with what reaches it.

    Attributes:
        bbr: of `bbr` in the agent's place.
        constant: of the best constant action, and the action.
        algorithm: of the best algorithm but for the shipped policy, and its name.
        policy: of the shipped policy.
        zero: of the action 0.
        random: of random actions.
    """

    bbr: float
    constant: tuple[float, str]
    algorithm: tuple[float, str]
    policy: float
    zero: float
    random: float

    @property
    def best(self) -> float:
        """What an agent must be above to be worth its training."""
        return max(self.constant[0], self.algorithm[0])


def short(id: str) -> str:
    """Return an id without `bbrgym/`."""
    return id.removeprefix("bbrgym/")


def ids() -> list[str]:
    """Return the ids that differ: `Bottleneck` is another name of `Default`."""
    return [id for id in environment_ids() if not id.startswith("bbrgym/Bottleneck")]


@cache
def _spec(id: str) -> EpisodeSpec:
    return one_agent_spec(environment_ids()[id].get("scenario", DEFAULT_SCENARIO), "bbr")


@cache
def environment(id: str) -> str:
    """Return what the environment of an id is."""
    return json.dumps(_spec(id).to_config(), sort_keys=True)


def episodes(id: str) -> int:
    """Return how many episodes judge in an id."""
    return DRAWN_EPISODES if _spec(id).distribution.is_drawn else EPISODES


def jobs() -> list[Driver]:
    """Return what is measured, of one id after the other."""
    algorithms = [name for name in registry.controllers() if name != "agent"]
    found = []
    for id in ids():
        found += [Driver(id, "algorithm", name) for name in algorithms] + [Driver(id, "random")]
        found += [Driver(id, "constant", f"{cwnd:g},{pacing:g}") for cwnd in GRID for pacing in GRID]
    return found


def work(job: Driver) -> Rows:
    """Return the mean reward per step."""
    os.environ["OMP_NUM_THREADS"] = "1"
    if job.kind == "algorithm":
        reward = judge_algorithm(job.id, job.what)
    elif job.kind == "random":
        random = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32, seed=1)
        reward = judge(job.id, lambda _: random.sample())
    else:
        action = np.array(job.what.split(","), dtype=np.float32)
        reward = judge(job.id, lambda _: action)
    return [{"reward": reward}]


def judge(id: str, act: Act) -> float:
    """Return the mean reward per step over the episodes that judge."""
    env = gymnasium.make(id)
    rewards = []
    for episode in range(episodes(id)):
        observation, _ = env.reset(seed=FIRST_EPISODE + episode)
        is_over = False
        while not is_over:
            observation, reward, terminated, truncated, _ = env.step(act(observation))
            rewards.append(float(reward))
            is_over = terminated or truncated
    env.close()
    return float(np.mean(rewards))


def judge_algorithm(id: str, name: str) -> float:
    """Return the same of an algorithm in the agent's place."""
    env = gymnasium.make(id)
    rewards = []
    for episode in range(episodes(id)):
        _, info = env.reset(seed=FIRST_EPISODE + episode)
        scenario = env.unwrapped.scenario  # type: ignore[attr-defined]
        (agent,) = scenario.agent_flows
        trace = simulate(scenario.with_agents_as(name), "native", int(info["seed"]), 100.0)
        stop_s = scenario.flows[agent].stop_s
        end = None if stop_s is None else int(np.searchsorted(trace.time_s, stop_s - 1e-9)) + 1
        rewards += Reward().over_steps(trace.scenario, (agent,), trace.flows, trace.link)[:end, 0].tolist()
    env.close()
    return float(np.mean(rewards))


def simple(id: str, results: Mapping[str, Rows]) -> Simple:
    """Return what is simple in an id, of the rows of this study by the names of its jobs."""
    rewards = {job: results[job.name][0]["reward"] for job in jobs() if job.id == id and job.name in results}

    def best(kind: str) -> tuple[float, str]:
        found = [(reward, job.what) for job, reward in rewards.items() if job.kind == kind and job.what != POLICY]
        return max(found, default=(np.nan, ""))

    return Simple(
        bbr=rewards.get(Driver(id, "algorithm", "bbr"), np.nan),
        constant=best("constant"),
        algorithm=best("algorithm"),
        policy=rewards.get(Driver(id, "algorithm", POLICY), np.nan),
        zero=rewards.get(Driver(id, "constant", "0,0"), np.nan),
        random=best("random")[0],
    )


def _shown(reward: float, what: str) -> str:
    """Return a reward and what reaches it; nothing if it is not measured."""
    return f"{reward:.3f} {f'({what})' if what else ''}".strip() if np.isfinite(reward) else ""


def view(results: Mapping[str, Rows], _figure: page.AddFigure) -> Mapping[str, object]:
    """Return the table of what is simple, and where the shipped policy is above all of it."""
    found = {id: simple(id, results) for id in ids()}
    rows = []
    for id, reached in found.items():
        rewards = [
            (reached.bbr, ""),
            reached.constant,
            reached.algorithm,
            *((reward, "") for reward in (reached.policy, reached.zero, reached.random)),
        ]
        rows.append([short(id), *(_shown(reward, what) for reward, what in rewards)])
    headings = ["id", "bbr", "best constant", "best algorithm", "shipped policy", "action 0", "random"]
    above_bbr = [short(id) for id, reached in found.items() if reached.policy > reached.bbr]
    above_all = [short(id) for id, reached in found.items() if reached.policy > reached.best]
    return {
        "rewards": page.table(headings, rows, range(1, len(headings))),
        "count": len(found),
        "fixed": EPISODES,
        "drawn": DRAWN_EPISODES,
        "above_bbr": len(above_bbr),
        "above_all": ", ".join(above_all) or "none",
    }
