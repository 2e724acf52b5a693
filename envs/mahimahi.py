"""Mahimahi's packet-delivery traces as rate schedules, and a synthetic one.

A trace (Netravali et al., USENIX ATC 2015) is a text file with an integer per line: a time in ms at which the link can
deliver 1500 bytes. Times do not fall; n equal lines are n such opportunities; the trace repeats from its last time on.
Mahimahi wastes an opportunity that finds no packet; here the opportunities of an interval are the link's rate in it.
"""

from __future__ import annotations

import math
import random
from array import array
from collections.abc import Sequence
from os import PathLike
from typing import Final

import numpy as np
import numpy.typing as npt

from bbrgym.checks import check_number
from bbrgym.envs.text_lines import read_lines

OPPORTUNITY_BYTES: Final = 1500
"""Bytes of an opportunity, on the wire, like a scenario's rates."""

LOWEST_RATE_MBPS: Final = 0.01
"""The lowest rate of a scenario."""

_MOST_BINS: Final = 1_000_000
_LAST_MS: Final = 10**12  # 30 years, still exact in float64


def rate_schedule(
    trace: str | PathLike[str] | Sequence[int] | npt.NDArray[np.int64],
    *,
    duration_s: float,
    bin_ms: float = 100.0,
    lowest_mbps: float | None = None,
    from_s: float = 0.0,
) -> tuple[tuple[float, float], ...]:
    """Return the rates of a trace, for `Scenario.rate_schedule`.

    A scenario has no rate of 0, so a bin without an opportunity gets `lowest_mbps`. A packet whose transmission starts
    in an outage ends with that rate, even after the outage: with 0.01 Mbit/s a packet of 1040 bytes occupies the link
    for 832 ms. The default therefore lets one opportunity through per bin.

    Args:
        trace: path of the trace, or its times in ms, which must be as those of a file.
        duration_s: how long the schedule must last, in s; a shorter trace is repeated.
        bin_ms: over how long opportunities are counted, in ms. Shorter bins follow the trace more closely, but one
            opportunity more or less is `12 / bin_ms` Mbit/s.
        lowest_mbps: the lowest rate, in Mbit/s; `12 / bin_ms` if None.
        from_s: the trace's time at which the schedule begins, in s; the trace repeats before it, too.

    Returns:
        Pairs (time in s, rate in Mbit/s), the first at 0, one for each bin whose rate differs from the bin before.

    Raises:
        ValueError: a bad argument, or not a trace; the message names the bad time, and the line of a file.
        OSError: the file cannot be read.
    """
    check_number("duration_s", duration_s, above=0, at_most=1e6)
    check_number("bin_ms", bin_ms, at_least=1, at_most=60_000)
    opportunity_mbps = OPPORTUNITY_BYTES * 8 / 1e3 / bin_ms
    if lowest_mbps is None:
        lowest_mbps = max(opportunity_mbps, LOWEST_RATE_MBPS)
    check_number("lowest_mbps", lowest_mbps, at_least=LOWEST_RATE_MBPS, at_most=10_000)
    check_number("from_s", from_s, at_least=0, at_most=_LAST_MS / 1e3)
    bins = math.ceil(duration_s * 1e3 / bin_ms)
    if bins > _MOST_BINS:
        raise ValueError(
            f"duration_s={duration_s:g} must have at most {_MOST_BINS:,} bins of bin_ms={bin_ms:g}, got {bins:,}"
        )
    times = read_trace(trace) if isinstance(trace, str | PathLike) else _check_times(trace)
    edges = round(from_s * 1e3, 6) + bin_ms * np.arange(bins + 1, dtype=np.float64)
    rounds, rest = np.divmod(edges, float(times[-1]))
    # A bin is (begin, end], so that a trace whose only line is 1 has one opportunity in each ms.
    until = rounds * times.size + np.searchsorted(times, rest, side="right")
    if from_s == 0:
        until[0] = 0  # what the trace has at 0 is in its first bin
    rates = np.maximum(np.diff(until) * opportunity_mbps, lowest_mbps)
    changed = np.flatnonzero(np.diff(rates, prepend=0.0))
    return tuple((float(index * bin_ms / 1e3), float(rates[index])) for index in changed)


def read_trace(path: str | PathLike[str]) -> npt.NDArray[np.int64]:
    """Return the times of a trace.

    Args:
        path: as of `rate_schedule`.

    Returns:
        Shape (opportunities,), times in ms that do not fall; the last one is > 0.

    Raises:
        ValueError: it is not a trace; the message names the line.
        OSError: it cannot be read.
    """
    times = array("q")
    last = 0
    for number, line in enumerate(read_lines(path), start=1):
        text = line.strip()
        if not (text.isdecimal() and len(text) <= 13 and int(text) <= _LAST_MS):
            raise ValueError(
                f"{path}:{number}: a line must be an integer of ms in [0, {_LAST_MS:.0e}], got {line[:40]!r}"
            )
        time = int(text)
        if time < last:
            raise ValueError(f"{path}:{number}: times must not fall, got {time} after {last}")
        times.append(time)
        last = time
    if last == 0:
        raise ValueError(f"{path}:{len(times) or 1}: the last time must be > 0: the trace repeats from there")
    return np.frombuffer(times, dtype=np.int64)


def _check_times(trace: Sequence[int] | npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the times of a trace as an array, after the checks of `read_trace`.

    Raises:
        ValueError: they are no trace; the message names the first bad time.
    """
    given = np.asarray(trace)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iuf"):
        raise ValueError(f"trace must be a path or the times of a trace, integers of ms, got {trace!r}")
    is_time = (given >= 0) & (given <= _LAST_MS) & (given == np.floor(given))
    if not is_time.all():
        bad = int(is_time.argmin())
        raise ValueError(f"trace[{bad}] must be an integer of ms in [0, {_LAST_MS:.0e}], got {given[bad]}")
    times = given.astype(np.int64)
    if (falls := np.flatnonzero(times[1:] < times[:-1])).size:
        bad = int(falls[0]) + 1
        raise ValueError(f"trace[{bad}]: times must not fall, got {times[bad]} after {times[bad - 1]}")
    if not times.size or times[-1] == 0:
        last = times[-1] if times.size else "no times"
        raise ValueError(f"trace: the last time must be > 0, got {last}: the trace repeats from there")
    return times


def cellular_trace(seed: int) -> list[int]:
    """Return a synthetic trace of 30 s that varies as cellular links do.

    Every 100 ms the rate goes up or down by up to 1.2 Mbit/s, between 0.6 and 12 Mbit/s, with equal probabilities. At 1
    of 100 such times it fades away for 0.3 to 0.9 s. Only integers and `random.Random.random` are used, so the trace is
    the same on every machine.

    Args:
        seed: decides everything.

    Returns:
        The times of its opportunities, in ms.
    """
    duration_ms = 30_000
    lowest, highest, most = 5, 100, 10  # opportunities in 100 ms: 0.6 and 12 Mbit/s, and the largest change
    rng = random.Random(seed)
    times: list[int] = []
    level, faded = 50, 0
    for begin in range(0, duration_ms, 100):
        level += int(rng.random() * (2 * most + 1)) - most
        level = min(max(level, lowest), highest)
        if faded == 0 and rng.random() < 0.01:
            faded = 3 + int(rng.random() * 7)
        if faded > 0 and begin + 100 < duration_ms:  # the trace ends with an opportunity
            faded -= 1
            continue
        times += [begin + 100 * (index + 1) // level for index in range(level)]
    return times
