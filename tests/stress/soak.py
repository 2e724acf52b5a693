"""Make, reset, step and close environments for minutes: what this process and its workers hold must not grow.

    make soak ARGS="--minutes 10 --seed 1"

In each round every form of the environment is made over every engine, used for an episode and more, and closed (or
dropped without being closed, half of the time). One more of each stays open for all rounds. After a warm-up, a fifth
of the time, the memory of this process and of the workers may grow by `GROWTH_MB` at most (by the median slope of all
pairs of rounds), and the numbers of descriptors, threads, processes and temporary files not at all.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from scipy.stats import theilslopes

from stress.forms import FORMS, Form
from stress.resources import KINDS, Held, Watch, children_of, resident_mb

ENGINES: Final[dict[str, dict[str, float]]] = {"native": {}, "ns3": {"timeout_s": 60.0}}
STEPS: Final = 12
"""More than an episode has."""

GROWTH_MB: Final = 4.0
"""Allocators keep a few MB more or less. Over the 200 rounds of ten minutes this is 2 kB per environment."""

_SETTLE_S: Final = 30.0
"""How long sockets and processes may take to go on a busy machine."""


Sample = tuple[float, float, Held]
"""After a round: the memory of this process and of its workers in MB, and what is held."""


def soak(
    forms: Mapping[str, type[Form]],
    engines: Sequence[str],
    watch: Watch,
    rng: random.Random,
    is_over: Callable[[int], bool],
    settle_s: float = _SETTLE_S,
) -> list[Sample]:
    """Run rounds until `is_over(rounds)` and return a sample of each.

    `rng` chooses seeds, and which environments are dropped without being closed; `settle_s` is how long descriptors and
    processes may take to go.
    """
    others = set(children_of(os.getpid()))
    kept = [form(engine, ENGINES[engine]) for form in forms.values() for engine in engines]
    samples: list[Sample] = []
    try:
        while not is_over(len(samples)):
            for env in kept:
                _use(env, rng)
            for form, engine in itertools.product(forms.values(), engines):
                env = form(engine, ENGINES[engine])
                _use(env, rng)
                if rng.random() < 0.5:
                    env.close()
                del env
            gc.collect()
            if samples:
                watch.left(samples[-1][2], settle_s)  # sockets close in the background
            workers = [pid for pid in children_of(os.getpid()) if pid not in others]
            samples.append((resident_mb(os.getpid()), sum(map(resident_mb, workers)), watch.held()))
    finally:
        for env in kept:
            env.close()
    return samples


def _use(env: Form, rng: random.Random) -> None:
    env.reset(rng.randrange(2**31))
    for _ in range(STEPS):
        env.step()


def judge(samples: Sequence[Sample]) -> list[str]:
    """Print slopes and return what grows."""
    measured = samples[len(samples) // 5 :]
    rounds = len(measured) - 1
    this_mb, workers_mb, held = zip(*measured, strict=True)
    found = []
    for what, values in {"memory of this process": this_mb, "memory of its workers": workers_mb}.items():
        slope_mb = theilslopes(values).slope if rounds else 0.0  # the median slope of all pairs
        print(f"{what}: {values[0]:.1f} to {values[-1]:.1f} MB, {1e3 * slope_mb:+.2f} kB per round, "
              f"{slope_mb * rounds:+.2f} MB in all, limit {GROWTH_MB:+.1f} MB")  # fmt: skip
        if slope_mb * rounds > GROWTH_MB:
            found.append(f"the {what} grew by {slope_mb * rounds:.1f} MB in {rounds} rounds")
    # What one round has not yet closed, the next one has; what is there for good is a leak.
    for kind in KINDS:
        counts = [count if isinstance(count, int) else len(count) for count in (getattr(one, kind) for one in held)]
        print(f"{kind}: {counts[0]} to {counts[-1]}")
        if kind != "shared_memory" and min(counts[len(counts) // 2 :]) > max(counts[: max(1, len(counts) // 4)]):
            found.append(f"{kind} grew from {counts[0]} to {counts[-1]}")
    return found


def main() -> int:
    """Run a soak and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="default: 10")
    parser.add_argument("--seed", type=int, default=1, help="default: 1")
    options = parser.parse_args()
    print(f"soak: seed {options.seed}, {options.minutes:g} minutes")
    with tempfile.TemporaryDirectory(prefix="bbrgym-soak-") as folder:
        watch = Watch(Path(folder))
        before = watch.held()
        end = time.monotonic() + 60 * options.minutes
        rng = random.Random(options.seed)
        samples = soak(FORMS, list(ENGINES), watch, rng, lambda rounds: rounds > 9 and time.monotonic() > end)
        found = judge(samples)
        # Libraries keep the descriptors and threads that the first round has given them.
        libraries = replace(before, descriptors=samples[0][2].descriptors, threads=samples[0][2].threads)
        more, _ = watch.left(libraries, _SETTLE_S)
        found += [f"at the end there were {kind} left: {what}" for kind, what in more.items()]
    print(f"seed {options.seed}, {len(samples)} rounds of {2 * len(ENGINES) * len(FORMS)} environments")
    for what in found:
        print(f"VIOLATION {what}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
