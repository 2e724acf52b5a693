"""Search the five parameters of five.c with CMA-ES: `python examples/search.py [seconds]`.

Every candidate runs in the same 16 scenarios. The result is then compared with every published algorithm in scenarios
that the search has not seen. Needs `cma`, which is in the extra `train`.
"""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path

import cma
import numpy as np

import bbrgym
from bbrgym.benchmark.candidate import Candidate
from bbrgym.benchmark.score import yardsticks

FILE = str(Path(__file__).parent / "five.c")
BOUNDS = {"target": (0.5, 50.0), "step": (0.02, 1.0), "start": (0.05, 1.0), "loss": (0.3, 1.0), "pacing": (0.8, 3.0)}
"""As in five.c."""

LEARNS, JUDGES = 0, 1
"""Seeds of the scenarios."""


def parameters_of(point: np.ndarray) -> dict[str, float]:
    """Return the parameters at a point of the unit cube: logarithmic between their bounds."""
    places = np.clip(point, 0.0, 1.0)
    return {
        name: float(low * (high / low) ** place)
        for (name, (low, high)), place in zip(BOUNDS.items(), places, strict=True)
    }


def search(seconds: float) -> dict[str, float]:
    """Return the best parameters that are found in this time."""
    candidate = Candidate.of(FILE)
    options = {"bounds": [0.0, 1.0], "seed": 1, "popsize": 10, "verbose": -9}
    strategy = cma.CMAEvolutionStrategy([0.5] * len(BOUNDS), 0.25, options)
    ends = time.monotonic() + seconds
    while time.monotonic() < ends and not strategy.stop():
        points = strategy.ask()
        began = time.monotonic()
        fitness = [bbrgym.score(candidate, parameters_of(point), seed=LEARNS) for point in points]
        strategy.tell(points, [-value for value in fitness])
        each = (time.monotonic() - began) / len(points)
        print(f"generation {strategy.countiter}: best {max(fitness):.3f}, {each:.2f} s per candidate", flush=True)
    return parameters_of(strategy.result.xfavorite)


def main() -> None:
    """Search, and compare."""
    found = search(float(sys.argv[1]) if len(sys.argv) > 1 else 60.0)
    scores = {"five.c, searched": bbrgym.score(FILE, found, scenarios=98, seed=JUDGES)}
    scores["five.c, as it is"] = bbrgym.score(FILE, scenarios=98, seed=JUDGES)
    for one in yardsticks():
        scores[one.name] = bbrgym.score(one.algorithm, one.parameters, scenarios=98, seed=JUDGES)
    for name, value in sorted(scores.items(), key=lambda entry: -entry[1]):
        print(f"{value:.3f}  {name}")
    settings = [f"{name}={value:.3g}" for name, value in found.items()]
    print(shlex.join(["bbrgym", "score", FILE, *settings]))


if __name__ == "__main__":
    main()
