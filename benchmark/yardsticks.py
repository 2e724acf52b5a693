"""The yardsticks of a training: bbr, the best constant action and the best algorithm in its evaluation episodes."""

from __future__ import annotations

import inspect
import itertools
import json
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import numpy as np
from rich.console import Console
from rich.progress import track

from bbrgym.agents import callbacks
from bbrgym.agents.callbacks import evaluate_agent
from bbrgym.agents.policy import Agent
from bbrgym.agents.training_loop import evaluation_episodes
from bbrgym.agents.yardsticks import Yardstick
from bbrgym.baselines import registry
from bbrgym.baselines.policy_file import Network
from bbrgym.benchmark.code import code_hash
from bbrgym.benchmark.ledger import CacheLedger, Entry
from bbrgym.envs.columns import FLOW_COLUMNS
from bbrgym.envs.engine import identity_of
from bbrgym.envs.episode import Episodes
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.envs.scenario import Scenario
from bbrgym.envs.trace import Trace, simulate

STEP: Final = 0.5
"""Between the constant actions that are tried first. Those around the best one follow, half as far from it."""

Action = tuple[float, float]


@dataclass(frozen=True)
class _Environment:
    """A job of the ledger: an environment and how many episodes."""

    name: str
    code: str


def measure_yardsticks(spec: EpisodeSpec, episodes: int, console: Console | None = None) -> list[Yardstick]:
    """Return what bbr, the best constant action and the best algorithm reach in the evaluation episodes of a training.

    It takes some ten seconds. The user's cache keeps the result of each scenario, action, reward, step and code.

    Args:
        spec: of the environment. Other engines than "native" take minutes: they have no yardsticks.
        episodes: how many, as `train.eval_episodes`.
        console: shows the progress; None for none.

    Raises:
        EngineError: an engine failed.
    """
    if spec.engine != "native":
        return []
    ledger = CacheLedger("yardsticks")
    drawn = [(Scenario.from_dict(each["scenario"]), int(each["seed"])) for each in evaluation_episodes(spec, episodes)]
    job = _Environment("yardsticks", _hash(spec, drawn))
    if (kept := ledger.load([job])) and (found := _read(kept[job.name].rows)):
        return found
    algorithms = [name for name in registry.controllers() if name not in ("agent", "policy")]
    coarse = np.arange(-1, 1 + STEP / 2, STEP).tolist()
    grid = list(itertools.product(coarse, coarse))
    every: list[str | Action] = [*algorithms, *grid]
    shown = track(
        every,
        "yardsticks of this scenario",
        console=console,
        transient=True,
        disable=console is None or not console.is_terminal,
    )
    of_algorithms: dict[str, float] = {}
    of_actions: dict[Action, float] = {}
    with closing(Episodes(spec, episodes, is_healing=True)) as env:
        for one in shown:
            if isinstance(one, str):
                of_algorithms[one] = _judge_algorithm(spec, one, drawn)
            else:
                of_actions[one] = _judge_action(spec, one, env, episodes)
        best = max(of_actions, key=of_actions.__getitem__)
        for offset in itertools.product((-STEP / 2, 0.0, STEP / 2), repeat=2):
            near = (best[0] + offset[0], best[1] + offset[1])
            if near not in of_actions and max(map(abs, near)) <= 1:
                of_actions[near] = _judge_action(spec, near, env, episodes)
    best, name = max(of_actions, key=of_actions.__getitem__), max(of_algorithms, key=of_algorithms.__getitem__)
    found = [
        Yardstick("bbr", "bbr", of_algorithms["bbr"]),
        Yardstick("best constant", f"{best[0]:g},{best[1]:g}", of_actions[best]),
        Yardstick("best algorithm", name, of_algorithms[name]),
    ]
    ledger.keep({job.name: Entry(job.code, [vars(each) for each in found])})
    return found


def _hash(spec: EpisodeSpec, drawn: Sequence[tuple[Scenario, int]]) -> str:
    """Return the hash of what decides the yardsticks; what an agent observes is no part of it."""
    plain = {name: value for name, value in spec.to_config().items() if name != "observation"}
    episodes = [[identity_of(scenario), seed] for scenario, seed in drawn]
    sources = [inspect.getsource(module) for module in (sys.modules[__name__], callbacks)]
    return code_hash("native", also=json.dumps([plain, episodes, sources], sort_keys=True))


def _read(rows: list[dict[str, object]]) -> list[Yardstick]:
    """Return what the cache has; [] if it is damaged."""
    try:
        return [Yardstick(str(row["kind"]), str(row["what"]), float(str(row["reward"]))) for row in rows]
    except (KeyError, ValueError):
        return []


def _judge_action(spec: EpisodeSpec, action: Action, env: Episodes, episodes: int) -> float:
    """Return what an action reaches that never changes."""
    inputs = int(np.prod(spec.observation.space.shape))
    network = Network(layers=((np.zeros((2, inputs), np.float32), np.array(action, np.float32)),))
    return evaluate_agent(Agent(spec, network), env, episodes)["eval/reward"]


def _judge_algorithm(spec: EpisodeSpec, name: str, drawn: list[tuple[Scenario, int]]) -> float:
    """Return what an algorithm reaches in the place of every agent."""
    rewards: list[float] = []
    for scenario, seed in drawn:
        trace = simulate(scenario.with_agents_as(name), "native", seed, spec.interval_ms(scenario))
        end = _last_step(trace, scenario)
        # By the agents' preferences, which algorithms do not have.
        means = spec.reward.mean_over_steps(scenario, scenario.agent_flows, trace.flows[:end], trace.link[:end])
        rewards += means[~np.isnan(means)].tolist()
    return float(np.mean(rewards))


def _last_step(trace: Trace, scenario: Scenario) -> int:
    """Return after how many steps the episode is over: when all agents have stopped or delivered their bytes."""
    flows = list(scenario.agent_flows)
    column = {name: trace.flows[:, flows, FLOW_COLUMNS.index(name)] for name in ("received_bytes", "is_active")}
    stops = [np.inf if scenario.flows[flow].stop_s is None else scenario.flows[flow].stop_s for flow in flows]
    sizes = [np.inf if (size := scenario.flows[flow].size_bytes) is None else size for flow in flows]
    received = np.nan_to_num(column["received_bytes"]).cumsum(axis=0)
    is_over = (received >= np.array(sizes)) & (column["is_active"] < 1)
    is_over |= trace.time_s[:, np.newaxis] >= np.array(stops, dtype=np.float64) - 1e-9
    ended = np.flatnonzero(is_over.all(axis=1))
    return int(ended[0]) + 1 if len(ended) else len(trace.time_s)
