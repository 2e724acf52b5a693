"""Mahimahi's packet-delivery traces as rate schedules, and a synthetic one.

A trace (Netravali et al., USENIX ATC 2015) is a text file with a whole number a line: a time in ms at which the link
can deliver 1500 bytes. Times do not fall, the same time n times is n such opportunities, and the trace begins anew at
its last time, for ever. Mahimahi wastes an opportunity that finds no packet; here the opportunities of a while are the
link's rate in that while.
"""

from __future__ import annotations

import importlib.resources
import math
import random
from collections.abc import Callable, Mapping
from importlib.resources.abc import Traversable
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

OPPORTUNITY_BYTES: Final = 1500
"""Of an opportunity: bytes on the wire, as a scenario's rates are."""

LOWEST_RATE_MBPS: Final = 0.01
"""Of a scenario."""

_KEYS: Final = ("file", "bin_ms", "lowest_mbps")
_PACKAGE: Final = "pkg://"
_MOST_BINS: Final = 1_000_000
_LAST_MS: Final = 10**12  # 30 years, whole in float64 with many times to spare


def rate_schedule(
    path: str | PathLike[str], *, duration_s: float, bin_ms: float = 100.0, lowest_mbps: float | None = None
) -> tuple[tuple[float, float], ...]:
    """The rates of a trace, for `Scenario.rate_schedule`.

    A scenario has no rate of 0, so a bin without an opportunity gets `lowest_mbps`. A packet whose sending begins in
    an outage ends with that rate, however much of the outage is left: with 0.01 Mbit/s a packet of 1040 bytes
    occupies the link for 832 ms. The default therefore lets one opportunity through in a bin.

    Args:
        path: the trace; `pkg://package/file` is a file of an installed package (`pkg://bbrgym.conf/…`).
        duration_s: how long the schedule must last, in s; a shorter trace is repeated.
        bin_ms: over how long opportunities are counted, in ms. Shorter ones follow the trace more closely, but one
            opportunity more or less is `12 / bin_ms` Mbit/s.
        lowest_mbps: the least rate, in Mbit/s; `12 / bin_ms` if None.

    Returns:
        Pairs (time in s, rate in Mbit/s), the first at 0, one for each bin whose rate is not that of the bin before.

    Raises:
        ValueError: a bad argument, or a file that is no trace, named with its line.
        OSError: the file cannot be read.
    """
    _check("duration_s", duration_s, "a number above 0, at most 1e6", lambda value: 0 < value <= 1e6)
    _check("bin_ms", bin_ms, "a number in [1, 60000]", lambda value: 1 <= value <= 60_000)
    opportunity_mbps = OPPORTUNITY_BYTES * 8 / 1e3 / bin_ms
    if lowest_mbps is None:
        lowest_mbps = max(opportunity_mbps, LOWEST_RATE_MBPS)
    _check("lowest_mbps", lowest_mbps, "a number in [0.01, 10000]", lambda value: LOWEST_RATE_MBPS <= value <= 10_000)
    bins = math.ceil(duration_s * 1e3 / bin_ms)
    if bins > _MOST_BINS:
        raise ValueError(
            f"bin_ms={bin_ms:g} is not possible: duration_s={duration_s:g} has {bins:,} of them, and {_MOST_BINS:,} "
            "is the most"
        )
    times = read_trace(path)
    edges = bin_ms * np.arange(1, bins + 1, dtype=np.float64)
    rounds, rest = np.divmod(edges, float(times[-1]))
    # A bin is (begin, end], so that a trace whose only line is 1 has one opportunity in each ms.
    until = rounds * times.size + np.searchsorted(times, rest, side="right")
    rates = np.maximum(np.diff(until, prepend=0.0) * opportunity_mbps, lowest_mbps)
    changed = np.flatnonzero(np.diff(rates, prepend=0.0))
    return tuple((float(index * bin_ms / 1e3), float(rates[index])) for index in changed)


def from_config(trace: Any, duration_s: Any) -> tuple[tuple[float, float], ...]:
    """`rate_schedule` of a configuration's `rate_trace`: `{file: …, bin_ms: 100, lowest_mbps: null}`.

    Raises:
        ValueError: naming the bad entry, or the file and its line.
    """
    if not isinstance(trace, Mapping) or not isinstance(trace.get("file"), str):
        raise ValueError(f"rate_trace={trace!r} is not possible: give {{file: …, bin_ms: 100}}")
    for key in trace:
        if key not in _KEYS:
            raise ValueError(f"rate_trace has no key {key!r}; known: {', '.join(_KEYS)}")
    options = {key: trace[key] for key in _KEYS[1:] if key in trace}
    try:
        return rate_schedule(trace["file"], duration_s=duration_s, **options)
    except OSError as error:
        raise ValueError(f"rate_trace: '{trace['file']}' cannot be read: {error.strerror or error}") from error


def read_trace(path: str | PathLike[str]) -> npt.NDArray[np.int64]:
    """The times of a trace.

    Args:
        path: as of `rate_schedule`.

    Returns:
        Shape (opportunities,), times in ms that do not fall; the last one is above 0.

    Raises:
        ValueError: it is no trace, named with its line.
        OSError: it cannot be read.
    """
    times: list[int] = []
    for number, line in enumerate(_file(path).read_bytes().splitlines(), start=1):
        text = line.strip()
        if not (text.isdigit() and len(text) <= 13 and int(text) <= _LAST_MS):
            shown = line[:40].decode("utf-8", "backslashreplace")
            raise ValueError(f"{path}:{number}: {shown!r} is not possible: a line must be a whole number of ms, "
                             f"at most {_LAST_MS:.0e}")  # fmt: skip
        if times and int(text) < times[-1]:
            raise ValueError(f"{path}:{number}: {int(text)} is not possible after {times[-1]}: times must not fall")
        times.append(int(text))
    if not times or times[-1] == 0:
        raise ValueError(
            f"{path}:{len(times) or 1}: there is no time above 0: the last one is when the trace begins anew"
        )
    return np.array(times, dtype=np.int64)


def cellular_trace(seed: int, duration_s: int = 30) -> list[int]:
    """A synthetic trace that varies as cellular links do; `conf/scenario/cellular.trace` is `cellular_trace(1)`.

    Every 100 ms the rate goes up or down by up to 1.2 Mbit/s, between 0.6 and 12 Mbit/s, with equal probabilities. At 1
    of 100 such times it fades away for 0.3 to 0.9 s. Only whole numbers and `random.Random.random` are used: it is the
    same everywhere.

    Args:
        seed: decides everything.
        duration_s: when it begins anew, in s; at least 1.

    Returns:
        The times of its opportunities, in ms.
    """
    lowest, highest, most = 5, 100, 10  # opportunities in 100 ms: 0.6 and 12 Mbit/s, and the largest change
    rng = random.Random(seed)
    times: list[int] = []
    level, faded = 50, 0
    for begin in range(0, duration_s * 1000, 100):
        level += int(rng.random() * (2 * most + 1)) - most
        level = min(max(level, lowest), highest)
        if faded == 0 and rng.random() < 0.01:
            faded = 3 + int(rng.random() * 7)
        if faded > 0 and begin + 100 < duration_s * 1000:  # the trace ends with an opportunity
            faded -= 1
            continue
        times += [begin + 100 * (index + 1) // level for index in range(level)]
    return times


def _file(path: str | PathLike[str]) -> Traversable:
    text = str(path)
    if not text.startswith(_PACKAGE):
        return Path(path)
    package, _, inside = text.removeprefix(_PACKAGE).partition("/")
    try:
        return importlib.resources.files(package).joinpath(inside)
    except (ModuleNotFoundError, ValueError, TypeError) as error:
        raise ValueError(f"'{text}' is not possible: there is no package {package!r}") from error


def _check(name: str, value: Any, good: str, is_good: Callable[[Any], bool]) -> None:
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not (is_number and is_good(value)):
        raise ValueError(f"{name}={value!r} is not possible: {name} must be {good}")
