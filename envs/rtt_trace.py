"""Traces of a flow's base RTT as schedules: a file, a ramp, or a synthetic one.

A file has an RTT in ms per line: the RTT of `step_ms`, after which comes that of the next line. The trace repeats after
its last line. Or each line has a time in s and the RTT in ms from then on, separated by a space or a comma. Times rise,
and the last RTT stays.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Final

import numpy as np

from bbrgym.checks import check_integer, check_keys, check_name, check_number
from bbrgym.envs import redrawn

_MOST_STEPS: Final = 1_000_000


def from_config(trace: Any, duration_s: Any) -> tuple[tuple[float, float], ...]:
    """Return the schedule of a configuration's `rtt_trace`, for `Flow.rtt_schedule`.

    It is one of

        {file: PATH, step_ms: 100}                  a file; without step_ms if its lines have times
        {ramp: [[0, 40], [10, 80]], step_ms: 100}   linear between points of a time in s and an RTT in ms
        {synthetic: leo, seed: 1}                   a synthetic trace

    where `step_ms` is 100 and `seed` is 1 by default.

    Args:
        trace: the mapping.
        duration_s: how long the schedule must last, in s.

    Returns:
        Pairs (time in s, RTT in ms), one for each step whose RTT differs from the step before.

    Raises:
        ValueError: naming the bad entry, or the file and its line.
    """
    kinds = ("file", "ramp", "synthetic")
    check_keys("rtt_trace", trace, (*kinds, "step_ms", "seed"))
    given = [kind for kind in kinds if trace.get(kind) is not None]
    if len(given) != 1:
        raise ValueError(f"rtt_trace must have one of {', '.join(kinds)}, got {trace!r}")
    check_number("duration_s", duration_s, above=0, at_most=1e6)
    if given == ["synthetic"]:
        _check_absent(trace, "step_ms", "synthetic")
        check_name("rtt_trace.synthetic", trace["synthetic"], SYNTHETIC)
        check_integer("rtt_trace.seed", trace.get("seed", 1), at_least=0)
        return _changes(SYNTHETIC[trace["synthetic"]](trace.get("seed", 1), float(duration_s)))
    _check_absent(trace, "seed", given[0])
    step_ms = trace.get("step_ms", 100)
    check_number("rtt_trace.step_ms", step_ms, at_least=1, at_most=60_000)
    if duration_s * 1e3 / step_ms > _MOST_STEPS:
        raise ValueError(f"rtt_trace must have at most {_MOST_STEPS:,} steps, got {duration_s * 1e3 / step_ms:,.0f}")
    if given == ["ramp"]:
        return _changes(_ramp(trace["ramp"], step_ms))
    if not isinstance(trace["file"], str):
        raise ValueError(f"rtt_trace must have a path as file, got {trace!r}")
    try:
        times, rtts = read_trace(trace["file"])
    except OSError as error:
        raise ValueError(f"rtt_trace: '{trace['file']}' cannot be read: {error.strerror or error}") from error
    if times:
        _check_absent(trace, "step_ms", "a file with times")
        return _changes(list(zip(times, rtts, strict=True)))
    steps = math.ceil(duration_s * 1e3 / step_ms)
    return _changes([(step * step_ms / 1e3, rtts[step % len(rtts)]) for step in range(steps)])


def read_trace(path: str | PathLike[str]) -> tuple[list[float], list[float]]:
    """Return the times of a file in s, none if its lines have none, and its RTTs in ms.

    Raises:
        ValueError: it is not a trace; the message names the line.
        OSError: it cannot be read.
    """
    rows: list[list[float]] = []
    for number, line in enumerate(Path(path).read_bytes().splitlines(), start=1):
        try:
            row = [float(part) for part in line.replace(b",", b" ").split()]
        except ValueError:
            row = []
        if not (len(row) in (1, 2) and 0 < row[-1] <= 10_000 and 0 <= row[0] < math.inf):
            shown = line[:40].decode("utf-8", "backslashreplace")
            raise ValueError(
                f"{path}:{number}: a line must be an RTT in (0, 10000] ms, or a time in s and an RTT, got {shown!r}"
            )
        if rows and len(row) != len(rows[0]):
            raise ValueError(f"{path}:{number}: all lines must have a time, or none, got {len(row)} numbers")
        if rows and len(row) == 2 and row[0] <= rows[-1][0]:
            raise ValueError(f"{path}:{number}: times must rise, got {row[0]:g} after {rows[-1][0]:g}")
        rows.append(row)
    if not rows:
        raise ValueError(f"{path}:1: a trace must have at least one line")
    return [row[0] for row in rows if len(row) == 2], [row[-1] for row in rows]


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


def _check_absent(trace: Mapping[str, Any], key: str, kind: str) -> None:
    if key in trace:
        raise ValueError(f"rtt_trace must have no {key} beside {kind}, got {trace!r}")
