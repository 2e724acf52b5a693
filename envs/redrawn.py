"""Rates and RTTs that are drawn anew every ten seconds: a published test of learned controllers.

The draws are those of github.com/giacomoni/mininettestbed, experiments/responsiveness_bw_rtt.py, with the same seed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

Pairs = list[tuple[float, float]]

PERIOD_S = 10
"""How long a rate and an RTT last."""


def rates(seed: int, duration_s: float) -> Pairs:
    """Return pairs of a time in s and a rate of 1 to 100 Mbit/s, for `Scenario.rate_schedule`."""
    return [(time, rate) for time, rate, _ in _draws(seed, duration_s)]


def rtts(seed: int, duration_s: float) -> Pairs:
    """Return pairs of a time in s and an RTT of 20 to 200 ms, for `Flow.rtt_schedule`."""
    return [(time, rtt) for time, _, rtt in _draws(seed, duration_s)]


def _draws(seed: int, duration_s: float) -> Iterator[tuple[float, float, float]]:
    # The program runs in Python 2.7, whose randint(a, b) is a + int(random() (b - a + 1)).
    rng = random.Random(seed)
    for step in range(math.ceil(duration_s / PERIOD_S)):
        rate, rtt = 1 + int(rng.random() * 100), 20 + int(rng.random() * 181)
        yield float(step * PERIOD_S), float(rate), float(rtt)
