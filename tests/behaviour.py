"""Hash the behaviour of the package, to show that a change of the code leaves it equal to the last bit.

`python tests/behaviour.py` computes a hash of every part and compares it with tests/golden/behaviour.json.
`--write` writes the file instead. `--only trace/native env` takes only the parts whose names begin so.

The parts are traces, environments, trainings, the league and the policies. Values are hashed by their names, and
a column without any value is left out, so columns may move. The hashes of trainings and of the policy depend on the
libraries and the processor: on another machine, first write the file with the code before the change.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import importlib
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import gymnasium
import numpy as np
from rich.console import Console

import bbrgym
from bbrgym import Flow, Rows, Scenario
from bbrgym.envs.episode import EpisodeSpec

ROOT: Final = Path(__file__).resolve().parents[1]
GOLDEN: Final = ROOT / "tests" / "golden" / "behaviour.json"
sys.path.append(str(ROOT))  # for `studies`, which is not installed

# Columns that are younger than the file: left out where they are 0 throughout, so that they move no hash.
YOUNG_LINKS: Final = tuple(
    f"link_{link}_{column}" for link in ("second", "reverse") for column in ("utilisation", "queue_mean_ms", "drops")
)
YOUNG: Final = (
    "marked_packets",
    "link_marks",
    "delta",
    "velocity",
    "standing_rtt_ms",
    "ecn_alpha",
    "app_delay_mean_ms",
    *YOUNG_LINKS,
)
YOUNG_FEATURES: Final = {"preference", "log_least_backlog", "log_standing_rtt_ratio"}
# The same, which have values in the file's scenarios: always left out.
UNHASHED: Final = ("completion_time_ms", "took_part", "has_ended")

# What may move: each new place, then the old one.
PLACES: Final[dict[str, tuple[str, ...]]] = {
    "make_vec_env": ("bbrgym.envs.sb3_env:SharedPolicyVecEnv", "bbrgym.envs.episode:EpisodeSpec.make_vec_env"),
    "features": ("bbrgym.envs.observation:FEATURES",),
    "terms": ("bbrgym.envs.reward:TERMS",),
    "comparators": ("bbrgym.baselines.registry:NS3_COMPARATORS", "bbrgym.baselines.registry:COMPARATORS"),
    "load_agent": ("bbrgym.agents.policy:load_agent",),
    "policy_bytes": ("bbrgym.baselines.policy_file:policy_bytes", "bbrgym.agents.policy:policy_bytes"),
    "reference": ("bbrgym.baselines.policy_file:REFERENCE", "bbrgym.agents.policy:REFERENCE"),
    "compose_league": ("studies.league.suites:compose_league",),
    "run_league": ("studies.league.suites:run_league", "bbrgym.baselines.league_suites:run_league"),
    "scores": ("bbrgym.benchmark.scores:scores", "bbrgym.baselines.league_scores:scores"),
}


def load(name: str) -> Any:
    """The first of the `PLACES` of a name that exists."""
    for place in PLACES[name]:
        module, _, attributes = place.partition(":")
        try:
            return functools.reduce(getattr, attributes.split("."), importlib.import_module(module))
        except (ModuleNotFoundError, AttributeError):
            continue
    raise ImportError(f"none of these exists: {', '.join(PLACES[name])}")


class Digest:
    """A hash of values of any kind."""

    def __init__(self) -> None:
        self._sha = hashlib.sha256()

    def add(self, *values: Any) -> None:
        """Mappings are hashed by their sorted keys. There is one NaN only."""
        for value in values:
            if isinstance(value, Mapping):
                plain = {str(key): entry for key, entry in dict(value).items()}
                young = {key for key in YOUNG if key in plain and not np.any(plain[key])}
                young |= plain.keys() & {*UNHASHED}
                for key in sorted(plain.keys() - young - {f"_{key}" for key in young}):
                    self.add(key, plain[key])
            elif value is None or isinstance(value, str | bytes):
                self._sha.update(repr(value).encode())
            elif isinstance(value, list | tuple) or np.asarray(value).dtype.kind == "O":
                self._sha.update(b"%d;" % len(value))
                self.add(*value)
            else:
                array = np.array(value)
                if array.dtype.kind == "f":
                    array[np.isnan(array)] = np.nan
                array = array.astype(array.dtype.newbyteorder("<"))
                self._sha.update(f"{array.dtype.str}{array.shape}".encode() + array.tobytes())

    def hex(self) -> str:
        """The hash of everything so far."""
        return self._sha.hexdigest()


def scenarios(algorithm: str, scale: float) -> list[Scenario]:
    """Scenarios with losses, jitter, CoDel, changing rates, finite flows and rivals. `scale` multiplies their times."""
    flows = (
        Flow(algorithm, rtt_ms=40, jitter_ms=1),
        Flow(algorithm, rtt_ms=15, start_s=1.3 * scale),
        Flow(algorithm, rtt_ms=25, start_s=2 * scale, size_bytes=round(1_500_000 * scale)),
        Flow("cubic", rtt_ms=30, start_s=3 * scale, stop_s=9 * scale),
    )
    rates = ((4 * scale, 6), (8 * scale, 24))
    lossy = {"buffer_bdp": 1.5, "loss": 0.005, "loss_burst_packets": 3}
    beside_bbr = (Flow(algorithm, rtt_ms=80), Flow("bbr", rtt_ms=30, start_s=0.5, jitter_ms=3))
    codel = {"buffer_bdp": 4, "queue": "codel", "packet_bytes": 1400}
    two = (Flow(algorithm, rtt_ms=20), Flow(algorithm, rtt_ms=90))
    return [
        Scenario(rate_mbps=16, rate_schedule=rates, duration_s=14 * scale, flows=flows, **lossy),
        Scenario(rate_mbps=8, duration_s=12 * scale, flows=beside_bbr, **codel),
        Scenario(rate_mbps=12, buffer_bdp=6, duration_s=26 * scale, flows=two),
        Scenario(rate_mbps=30, buffer_packets=9, loss=0.02, duration_s=10 * scale, flows=(Flow(algorithm),)),
    ]


def gains(flow: int, rows: Rows) -> tuple[float, float]:
    """Gains of agent flows that change in every step."""
    step = round(rows.time_s * 1e3) // 100 + flow
    return 0.5 + step % 7 / 4, 0.8 + step % 5 / 5


def hash_traces(engine: str, algorithm: str, scale: float, **options: Any) -> str:
    """Simulate all scenarios with an algorithm."""
    digest = Digest()
    with closing(bbrgym.make_engine(engine, **options)) as running:
        for seed, scenario in enumerate(scenarios(algorithm, scale), start=1):
            rows = bbrgym.simulate(scenario, running, seed, step_ms=(100, 37)[seed % 2], policy=gains).rows
            digest.add({name: rows[name].to_numpy() for name in rows if rows[name].notna().any()})
    return digest.hex()


ONE_AGENT: Final[dict[str, Any]] = {
    "rate_mbps": {"log_uniform": [4, 24]},
    "buffer_bdp": {"uniform": [0.5, 4]},
    "loss": {"choice": [0.0, 0.01]},
    "duration_s": {"uniform": [2, 4]},
    "flows": {
        "choice": [
            [{"algorithm": "agent", "rtt_ms": {"uniform": [10, 60]}}],
            [{"algorithm": "bbr"}, {"algorithm": "agent", "size_bytes": 400_000, "rtt_ms": 30}],
            [{"algorithm": "agent", "start_s": 0.7, "stop_s": 1.9, "jitter_ms": 2}, {"algorithm": "cubic"}],
        ]
    },
}
THREE_AGENTS: Final[dict[str, Any]] = ONE_AGENT | {
    "rate_schedule": [[1.0, 8.0]],
    "flows": [
        {"algorithm": "agent", "rtt_ms": {"log_uniform": [10, 60]}, "start_s": 0.3, "stop_s": 1.5},
        {"algorithm": {"choice": ["cubic", "bbr2"]}, "rtt_ms": 20},
        {"algorithm": "agent", "rtt_ms": 30, "start_s": {"uniform": [0.0, 1.0]}, "size_bytes": 300_000},
        {"algorithm": "agent", "rtt_ms": 45, "start_s": 1.2},
    ],
}


def specs(scenario: Mapping[str, Any], engine: str) -> list[tuple[EpisodeSpec, dict[str, Any]]]:
    """Two specifications, each with the arguments that make an environment of it.

    One has the defaults, the other all features and terms, a history, steps in RTTs and actions in packets.
    """
    plain = {"scenario": scenario, "engine": {"name": engine}}
    full = {
        "observation": {"features": sorted(set(load("features")) - YOUNG_FEATURES), "history": 3},
        "action": {"cwnd_scale": "packets"},
        "reward": {"terms": {name: 0.5 + 0.25 * rank for rank, name in enumerate(sorted(load("terms")))}},
        "env": {"step_ms": None, "step_rtts": 1.5},
    }
    names = ("scenario", "observation", "action", "reward", "step_ms", "step_rtts", "engine")
    made = [EpisodeSpec.from_config(plain), EpisodeSpec.from_config(plain | full)]
    return [(spec, {name: getattr(spec, name) for name in names}) for spec in made]


def random_actions(rng: np.random.Generator, *shape: int) -> Any:
    """Actions of any size inside of the box."""
    return rng.uniform(-1, 1, (*shape, 2)).astype(np.float32)


def hash_single(engine: str, episodes: int) -> str:
    """Episodes of the Gymnasium environment, the last one with a scenario of its own."""
    digest, rng = Digest(), np.random.default_rng(1)
    given = Scenario(rate_mbps=9, duration_s=2, flows=(Flow("newreno", rtt_ms=15), Flow("agent", rtt_ms=35)))
    for _, arguments in specs(ONE_AGENT, engine):
        with closing(gymnasium.make("bbrgym/Bottleneck-v1", **arguments)) as env:
            for episode in range(episodes):
                options = {"scenario": given} if episode == episodes - 1 else None
                digest.add(*env.reset(seed=5 if episode == 0 else None, options=options))
                is_over = False
                while not is_over:
                    *results, info = env.step(random_actions(rng))
                    digest.add(*results, info)
                    is_over = results[2] or results[3]
    return digest.hex()


def hash_vector(engine: str, mode: str, num_envs: int, steps: int) -> str:
    """Steps of the Gymnasium vector environment."""
    digest, rng = Digest(), np.random.default_rng(2)
    for _, arguments in specs(ONE_AGENT, engine):
        how = {"vectorization_mode": "vector_entry_point", "autoreset_mode": mode, "has_infos": True}
        made = gymnasium.make_vec("bbrgym/Bottleneck-v1", num_envs=num_envs, **how, **arguments)
        with closing(made) as env:
            digest.add(*env.reset(seed=7))
            for _ in range(steps):
                digest.add(*env.step(random_actions(rng, num_envs)))
    return digest.hex()


def hash_parallel(engine: str, episodes: int) -> str:
    """Episodes of the PettingZoo environment, with its state, with neutral and with absent agents."""
    digest, rng = Digest(), np.random.default_rng(3)
    for (_, arguments), inactive_agents in itertools.product(specs(THREE_AGENTS, engine), ("neutral", "absent")):
        with closing(bbrgym.parallel_env(**arguments, inactive_agents=inactive_agents)) as env:
            for episode in range(episodes):
                digest.add(*env.reset(seed=11 if episode == 0 else None))
                while env.agents:
                    digest.add(env.agents, *env.step({agent: random_actions(rng) for agent in env.agents}))
                    state = zip(env.state_columns, env.state().tolist(), strict=True)
                    digest.add({name: value for name, value in state if value and not name.endswith(UNHASHED)})
    return digest.hex()


def hash_sb3(engine: str, n_engines: int, steps: int) -> str:
    """Steps of the Stable-Baselines3 environment."""
    digest, rng = Digest(), np.random.default_rng(4)
    for spec, _ in specs(THREE_AGENTS, engine):
        with closing(load("make_vec_env")(spec, n_engines, has_infos=True)) as env:
            env.seed(13)
            digest.add(env.reset(), env.reset_infos)
            for _ in range(steps):
                digest.add(*env.step(random_actions(rng, env.num_envs)), env.reset_infos)
    return digest.hex()


SMALL: Final = (
    *("engine=native", "tracking=none", "output_dir=run", "seed=3", "train.n_envs=2"),
    *("train.total_steps=1024", "train.eval_every=512", "train.eval_episodes=2"),
)
ON_POLICY: Final = ("agent.n_steps=32", "agent.batch_size=64", "agent.n_epochs=2")
TRAININGS: Final[dict[str, tuple[str, ...]]] = {
    "ppo": ("agent=ppo", *ON_POLICY),
    "ppo-options": ("agent=ppo", *ON_POLICY, "action.cwnd_scale=packets"),
    "sac": ("agent=sac", "agent.learning_starts=200", "agent.batch_size=64"),
}


def hash_training(overrides: tuple[str, ...]) -> str:
    """Train by the command line: the weights of the best and the last agent."""
    digest = Digest()
    with tempfile.TemporaryDirectory() as folder:
        command = [str(Path(sys.executable).with_name("bbrgym")), "train", *SMALL, *overrides]
        done = subprocess.run(command, cwd=folder, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True)
        if done.returncode:
            raise RuntimeError(done.stdout.decode() + done.stderr.decode())
        for name in ("best", "final"):
            with np.load(Path(folder, "run", name, "policy.npz")) as arrays:
                digest.add(name, {key: arrays[key] for key in arrays.files})
    return digest.hex()


# Some scenarios of suites of each kind, with one seed of three: all of the preset, thousands of runs, takes too long.
LEAGUE: Final[dict[str, list[str]]] = {
    "generalisation": ["typical-02", "typical-10", "wide-01", "wide-10"],
    "friendliness": ["cubic-1bdp", "bbr-2bdp"],
    "varying": ["step-down", "cellular-duel"],
    "acw-jain": ["10mbps_rtt50"],
    "acw-utilisation-random-loss": ["1bdp_loss1"],
    "ebcc-exp3-multistream": ["3flows"],
}


def hash_league() -> str:
    """The runs of a small league: their figures and scores to 12 significant digits, without the traces' hashes."""
    config = load("compose_league")(["preset=quick", "benchmark.seeds=[1]"])
    config["league"]["subset"] = LEAGUE
    digest = Digest()
    with tempfile.TemporaryDirectory() as folder:
        league = load("run_league")(config, Path(folder), Console(quiet=True))
        if league.failures:
            raise RuntimeError(f"{league.failures} runs failed")
        for suite, result in sorted(league.results.items()):
            for table in (result.results, load("scores")(result).reset_index()):
                named = table.drop(columns=["key", "trace_hash", "wall_s"], errors="ignore")
                for row in named.sort_values(["scenario", "competitor", "seed"], kind="stable").to_dict("records"):
                    rounded = {k: f"{v:.12g}" if isinstance(v, float) else str(v) for k, v in row.items()}
                    digest.add(suite, rounded)
    return digest.hex()


def hash_policy() -> str:
    """What agents predict for given observations, and the reference policy as the engines get it."""
    digest = Digest()
    digest.add(load("policy_bytes")(None))
    for path in (load("reference"), "scripted:backlog"):
        agent, rng = load("load_agent")(path), np.random.default_rng(5)
        space = agent.spec.observation.space
        for _ in range(3):
            seen = rng.uniform(space.low, space.high, (64, *space.shape)).astype(np.float32)
            digest.add(np.asarray(agent.predict(seen), dtype=np.float32))
    return digest.hex()


def all_parts() -> dict[str, Callable[[], str]]:
    """What computes the hash of each part, by its name."""
    names = list(bbrgym.controllers())
    parts: dict[str, Callable[[], str]] = {}
    for name in names:
        parts[f"trace/native/{name}"] = functools.partial(hash_traces, "native", name, 2.0)
    for name in (*names, *load("comparators")):
        parts[f"trace/ns3/{name}"] = functools.partial(hash_traces, "ns3", name, 0.4)
    for name in ("agent", "bbr", "cubic", "policy"):
        parts[f"trace/ns3-quic/{name}"] = functools.partial(hash_traces, "ns3", name, 0.4, transport="quic")
    parts |= {
        "env/single/native": lambda: hash_single("native", 6),
        "env/single/ns3": lambda: hash_single("ns3", 3),
        "env/vector-next/native": lambda: hash_vector("native", "NextStep", 4, 200),
        "env/vector-same/native": lambda: hash_vector("native", "SameStep", 4, 200),
        "env/vector-next/ns3": lambda: hash_vector("ns3", "NextStep", 2, 60),
        "env/parallel/native": lambda: hash_parallel("native", 6),
        "env/sb3/native": lambda: hash_sb3("native", 3, 150),
    }
    parts |= {f"training/{name}": functools.partial(hash_training, TRAININGS[name]) for name in TRAININGS}
    return parts | {"league/quick": hash_league, "policy/actions": hash_policy}


def main() -> int:
    """Compute the hashes, and write or compare them."""
    parser = argparse.ArgumentParser(description="Hash the behaviour of the package and compare it.")
    parser.add_argument("--write", action="store_true", help="write the hashes instead of comparing")
    parser.add_argument("--only", nargs="+", default=[""], metavar="PART", help="only parts whose names begin so")
    options = parser.parse_args()
    golden = json.loads(GOLDEN.read_text(encoding="utf-8")) if GOLDEN.is_file() else {}
    parts, hashes, differs = all_parts(), {}, False
    for name in [*parts, *sorted(golden.keys() - parts.keys())]:
        if not name.startswith(tuple(options.only)):
            continue
        began = time.perf_counter()
        if name in parts:
            hashes[name] = parts[name]()
        is_same = hashes.get(name) == golden.get(name)
        differs |= not is_same
        word = "written" if options.write else "ok" if is_same else "DIFFERS"
        print(f"{word:<8} {name} ({time.perf_counter() - began:.1f} s)", flush=True)
    if options.write:
        kept = {name: value for name, value in golden.items() if not name.startswith(tuple(options.only))}
        GOLDEN.write_text(json.dumps(kept | hashes, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        return 0
    return int(differs)


if __name__ == "__main__":
    sys.exit(main())
