"""Traces of a flow's base RTT as schedules: a file, a ramp, or a synthetic one."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from bbrgym.checks import check_integer, check_keys, check_name, check_number
from bbrgym.envs import redrawn, time_series

_MOST_STEPS: Final = 1_000_000


def from_config(trace: Any, duration_s: Any) -> tuple[tuple[float, float], ...]:
    """Return the schedule of a configuration's `rtt_trace`, for `Flow.rtt_schedule`.

    It is one of

        {file: PATH}                                a file in one of the formats of docs/traces.md#formats
        {ramp: [[0, 40], [10, 80]], step_ms: 100}   linear between points of a time in s and an RTT in ms
        {synthetic: leo, seed: 1}                   a synthetic trace

    where `step_ms` is 100 and `seed` is 1 by default. Files can have `format`, `from_s`, `step_ms`, `column`,
    `time_column`, `time_unit`, `unit`, and `one_way: true` if their delays are one-way: the RTT is twice as long.

    Args:
        trace: the mapping.
        duration_s: how long the schedule must last, in s.

    Returns:
        Pairs (time in s, RTT in ms), one for each change.

    Raises:
        ValueError: naming the bad entry, or the file and its line.
    """
    kinds = ("file", "ramp", "synthetic")
    of_files = ("format", "from_s", "column", "time_column", "time_unit", "unit", "one_way")
    check_keys("rtt_trace", trace, (*kinds, "step_ms", "seed", *of_files))
    given = [kind for kind in kinds if trace.get(kind) is not None]
    if len(given) != 1:
        raise ValueError(f"rtt_trace must have one of {', '.join(kinds)}, got {trace!r}")
    unwanted = {"file": ("seed",), "ramp": ("seed", *of_files), "synthetic": ("step_ms", *of_files)}[given[0]]
    if found := [key for key in unwanted if key in trace]:
        raise ValueError(f"rtt_trace must have no {found[0]} beside {given[0]}, got {trace!r}")
    check_number("duration_s", duration_s, above=0, at_most=1e6)
    if given == ["file"]:
        return tuple(time_series.read(trace, time_series.RTT, duration_s))
    if given == ["synthetic"]:
        check_name("rtt_trace.synthetic", trace["synthetic"], SYNTHETIC)
        seed = check_integer("rtt_trace.seed", trace.get("seed", 1), at_least=0)
        return _changes(SYNTHETIC[trace["synthetic"]](seed, float(duration_s)))
    step_ms = trace.get("step_ms", 100)
    check_number("rtt_trace.step_ms", step_ms, at_least=1, at_most=60_000)
    return _changes(_ramp(trace["ramp"], step_ms))


def leo_trace(seed: int, duration_s: float) -> list[tuple[float, float]]:
    """Return a synthetic trace of the RTT over a constellation in low Earth orbit, as pairs (time in s, RTT in ms).

    Every 15 s the terminal gets another satellite, and the path another shortest RTT. Above it the RTT varies every 100
    ms such that successive RTTs differ by 6.7 ms on average. Both figures are Huston's of Starlink ("A transport
    protocol's view of Starlink", APNIC, 2024). Uniform draws, of 20 to 40 ms for the shortest RTT and of 0 to 19 ms
    above it, keep all below 65 ms, as Starlink says of 99 % of the RTTs in the USA (starlink.com, March 2024). Only
    integers and `random.Random.random` are used, so the trace is the same on every machine.

    Args:
        seed: decides everything.
        duration_s: its length, in s; a longer trace begins as a shorter one.
    """
    rng = random.Random(seed)
    trace: list[tuple[float, float]] = []
    for step in range(math.ceil(duration_s * 10)):
        if step % 150 == 0:
            shortest_ms = 20 + int(rng.random() * 21)
        trace.append((step / 10, float(shortest_ms + int(rng.random() * 20))))
    return trace


SYNTHETIC: Final[Mapping[str, Callable[[int, float], list[tuple[float, float]]]]] = {
    "leo": leo_trace,
    "redrawn": redrawn.rtts,
}
"""The synthetic traces by name: from a seed and a duration in s to pairs (time in s, RTT in ms)."""


def _ramp(points: Any, step_ms: float) -> list[tuple[float, float]]:
    try:
        times, rtts = np.array([(float(time), float(rtt)) for time, rtt in points]).T
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"rtt_trace.ramp must be pairs of a time in s and an RTT in ms, got {points!r}") from None
    if not (times[0] >= 0 and np.isfinite(times).all() and (np.diff(times) > 0).all()):
        raise ValueError(f"rtt_trace.ramp must have rising times >= 0, got {points!r}")
    steps = math.ceil((times[-1] - times[0]) * 1e3 / step_ms)
    if steps > _MOST_STEPS:
        raise ValueError(f"rtt_trace.ramp must have at most {_MOST_STEPS:,} steps, got {steps:,}")
    at = [*(float(times[0]) + step * step_ms / 1e3 for step in range(steps)), float(times[-1])]
    return [(time, float(rtt)) for time, rtt in zip(at, np.interp(at, times, rtts), strict=True)]


def _changes(trace: list[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Return the trace without the steps that change nothing."""
    return tuple(pair for before, pair in zip([(0.0, 0.0), *trace], trace, strict=False) if pair[1] != before[1])
