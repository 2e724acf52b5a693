"""How fast is a plain loop, and what makes it faster? `python -m studies.loops [--write docs/recipes.md]`.

Steps per second of all environments together, on bbrgym/Duel-v1, from one environment to whole rollouts in C++, and of
Stable-Baselines3's PPO with its default settings, with torch's default number of threads and with one. Each is a
process of its own; --busy keeps every core busy with another process meanwhile. --only NAME measures one way and prints
its number.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import gymnasium
import numpy as np
import numpy.typing as npt

import bbrgym
from bbrgym.envs.episode_spec import EpisodeSpec
from bbrgym.output import run_program
from studies import blocks, page

MARK: Final = "studies/loops.py"
SCENARIO: Final = "duel"
ID: Final = "bbrgym/Duel-v1"
COUNT: Final = 16
"""Environments at once."""
LENGTH: Final = 256
"""Steps of each environment in a rollout."""
TRAINED: Final = 1024
"""Steps of a training."""
LEAST_S: Final = 2.0
"""A measurement is as long."""


def pace(advance: Callable[[], int]) -> float:
    """Return the steps per second of a function that makes some steps and returns how many."""
    advance()
    steps, began = 0, time.monotonic()
    while (passed := time.monotonic() - began) < LEAST_S:
        steps += advance()
    return steps / passed


def one() -> float:
    """Step one environment of `gymnasium.make`."""
    env = gymnasium.make(ID)
    env.reset(seed=1)
    action = np.zeros(2, np.float32)

    def advance() -> int:
        for _ in range(100):
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        return 100

    return pace(advance)


def pace_of_steps(step: Callable[[npt.NDArray[np.float32]], object]) -> float:
    """Return the steps per second of `COUNT` environments that make a step at once."""
    actions = np.zeros((COUNT, 2), np.float32)

    def advance() -> int:
        for _ in range(20):
            step(actions)
        return 20 * COUNT

    return pace(advance)


def vector() -> float:
    """Step a vector environment."""
    envs = gymnasium.make_vec(ID, num_envs=COUNT, vectorization_mode="vector_entry_point")
    envs.reset(seed=1)
    return pace_of_steps(envs.step)


def shared() -> float:
    """Step the VecEnv for Stable-Baselines3."""
    # Here, because it takes seconds.
    from bbrgym.envs.sb3_env import SharedPolicyVecEnv

    envs = SharedPolicyVecEnv(EpisodeSpec(SCENARIO, engine="native"), COUNT)
    envs.seed(1)
    envs.reset()
    return pace_of_steps(envs.step)


def rollout(has_network: bool) -> float:
    """Make whole rollouts in C++, with given actions or with the shipped policy's network."""
    from bbrgym.agents.policy import load_agent
    from bbrgym.baselines.policy_file import REFERENCE
    from bbrgym.envs.sb3_env import SharedPolicyVecEnv

    agent = load_agent(REFERENCE)
    spec = EpisodeSpec(SCENARIO, engine="native")
    if has_network:
        spec = EpisodeSpec(SCENARIO, engine="native", observation=agent.spec.observation, action=agent.spec.action)
    envs = SharedPolicyVecEnv(spec, COUNT)
    envs.seed(1)
    envs.reset()
    noise = np.zeros((LENGTH, COUNT, 2), np.float32)

    def advance() -> int:
        envs.rollout(noise, agent.compiled if has_network else None)
        return LENGTH * COUNT

    return pace(advance)


def learn(threads: int, count: int) -> float:
    """Train with Stable-Baselines3's PPO and return its steps per second.

    Args:
        threads: of torch; 0 for its default.
        count: how many environments; 1 is one of `gymnasium.make`, several are a `SharedPolicyVecEnv`.
    """
    import torch
    from stable_baselines3 import PPO

    from bbrgym.envs.sb3_env import SharedPolicyVecEnv

    if threads:
        torch.set_num_threads(threads)
    several = EpisodeSpec(SCENARIO, engine="native")
    env = gymnasium.make(ID) if count == 1 else SharedPolicyVecEnv(several, count)
    model = PPO("MlpPolicy", env, n_steps=TRAINED // count, seed=1, device="cpu")
    began = time.monotonic()
    model.learn(TRAINED)
    return TRAINED / (time.monotonic() - began)


WAYS: Final[Mapping[str, Callable[[], float]]] = {
    "PPO of Stable-Baselines3, one environment, torch's default threads": lambda: learn(0, 1),
    "the same with `torch.set_num_threads(1)`": lambda: learn(1, 1),
    f"the same with `SharedPolicyVecEnv` of {COUNT}, torch's default threads": lambda: learn(0, COUNT),
    f"the same with `SharedPolicyVecEnv` of {COUNT} and one thread": lambda: learn(1, COUNT),
    "one environment, given actions": one,
    f"`make_vec` of {COUNT}, given actions": vector,
    f"`SharedPolicyVecEnv` of {COUNT}, `step`": shared,
    f"`SharedPolicyVecEnv` of {COUNT}, `rollout` with given actions": lambda: rollout(has_network=False),
    f"`SharedPolicyVecEnv` of {COUNT}, `rollout` with the shipped policy": lambda: rollout(has_network=True),
}
"""What is measured: training first, then the environments alone."""


@contextmanager
def busy(is_busy: bool) -> Iterator[None]:
    """Keep a process busy on every core meanwhile."""
    count = (os.cpu_count() or 1) if is_busy else 0
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def measure(way: str) -> float:
    """Return the steps per second of a way, in a process of its own with the default settings of a shell."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    command = [sys.executable, "-m", "studies.loops", "--only", way]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return float(done.stdout)


def main() -> int:
    """Measure, and print the table; with --write, write it into the page."""
    parser = blocks.parser(__doc__, MARK)
    parser.add_argument("--only", choices=list(WAYS), metavar="NAME", help="measure one way in this process")
    parser.add_argument("--busy", action="store_true", help="keep every core busy with another process")
    options = parser.parse_args()
    if options.only:
        print(WAYS[options.only]())
        return 0
    load = os.getloadavg()[0]
    with busy(options.busy):
        paces = {way: measure(way) for way in WAYS}
    rows = [[way, f"{steps:,.0f}"] for way, steps in paces.items()]
    beside = ", with a busy process for each core beside it" if options.busy else ""
    said = (
        f"bbrgym {bbrgym.__version__} on {os.cpu_count()} cores{beside}; the load average before was {load:.1f} "
        "(other processes that wanted a core)."
    )
    blocks.publish(f"{page.table(['loop', 'steps per second'], rows, [1])}\n\n{said}", MARK, options.write)
    return 0


if __name__ == "__main__":
    sys.exit(run_program("loops", main))
