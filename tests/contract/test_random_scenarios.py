"""Random scenarios of every kind: each engine gets through all of them, and the rows are possible."""

import contextlib
import random

import pytest
from marks import needs_ns3
from random_scenarios import assert_adds_up, assert_possible, random_scenario

from bbrgym import make_engine, simulate


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("name", "runs"), [("native", 20), pytest.param("ns3", 5, marks=needs_ns3)])
def test_random_scenarios_are_possible(name: str, runs: int, seed: int) -> None:
    rng = random.Random(seed)
    with contextlib.closing(make_engine(name)) as engine:
        for run in range(runs):
            scenario, step_ms = random_scenario(rng, name), rng.choice([5, 50, 377])
            print(seed, run, step_ms, scenario)
            hashes = set()
            for _ in range(2 if name == "native" else 1):
                gains = random.Random(run)
                policy = lambda flow, rows, gains=gains: (gains.uniform(0.1, 9), gains.uniform(0.1, 5))  # noqa: E731
                trace = simulate(scenario, engine, seed=run, step_ms=step_ms, policy=policy)
                hashes.add(trace.hash)
            assert len(hashes) == 1
            assert_possible(trace)
            if name == "native":
                assert_adds_up(trace)
