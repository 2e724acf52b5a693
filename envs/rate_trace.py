"""Traces of the bottleneck's rate as schedules: a file, or a synthetic one."""

from __future__ import annotations

from typing import Any

from bbrgym.checks import check_integer, check_keys, check_name, check_number
from bbrgym.envs import mahimahi, redrawn, time_series


def from_config(trace: Any, duration_s: Any) -> tuple[tuple[float, float], ...]:
    """Return the schedule of a configuration's `rate_trace`, for `Scenario.rate_schedule`.

    It is one of

        {file: PATH}                     a file in one of the formats of docs/traces.md#formats
        {synthetic: cellular, seed: 1}   a synthetic trace (`bbrgym.envs.mahimahi.cellular_trace`)
        {synthetic: redrawn, seed: 1}    rates that are drawn anew at times (`bbrgym.envs.redrawn`)

    and can have `lowest_mbps`, which takes the place of lower rates: a scenario has no rate of 0. Opportunities
    (Mahimahi, cellular) can have `bin_ms`, files `format`, `from_s`, `step_ms`, `column`, `time_column`, `time_unit`
    and `unit`.

    Args:
        trace: the mapping.
        duration_s: how long the schedule must last, in s.

    Returns:
        Pairs (time in s, rate in Mbit/s), one for each change.

    Raises:
        ValueError: naming the bad entry, or the file and its line.
    """
    of_columns = ("step_ms", "column", "time_column", "time_unit", "unit")
    of_files = ("format", "from_s", *of_columns)
    check_keys("rate_trace", trace, ("file", "synthetic", "seed", "bin_ms", "lowest_mbps", *of_files))
    file, synthetic = trace.get("file"), trace.get("synthetic")
    if (file is None) == (synthetic is None):
        raise ValueError(f"rate_trace must have either a file or synthetic, got {trace!r}")
    check_number("duration_s", duration_s, above=0, at_most=1e6)
    if synthetic is not None:
        check_name("rate_trace.synthetic", synthetic, ["cellular", "redrawn"])
        seed = check_integer("rate_trace.seed", trace.get("seed", 1), at_least=0)
        _check_absent(trace, synthetic, *of_files)
        if synthetic == "redrawn":
            _check_absent(trace, synthetic, "bin_ms", "lowest_mbps")
            return tuple(redrawn.rates(seed, duration_s))
        opportunities: Any = mahimahi.cellular_trace(seed)
    else:
        _check_absent(trace, "a file", "seed")
        kind = time_series.format_of(trace, time_series.RATE)
        if kind != "mahimahi":
            _check_absent(trace, f"the format {kind}", "bin_ms")
            lowest_mbps = trace.get("lowest_mbps", mahimahi.LOWEST_RATE_MBPS)
            check_number("rate_trace.lowest_mbps", lowest_mbps, at_least=mahimahi.LOWEST_RATE_MBPS, at_most=10_000)
            schedule = time_series.read(trace, time_series.RATE, duration_s)
            return tuple((time, max(rate, lowest_mbps)) for time, rate in schedule)
        _check_absent(trace, "the format mahimahi", *of_columns)
        opportunities = file
    options = {key: trace[key] for key in ("bin_ms", "lowest_mbps", "from_s") if key in trace}
    return mahimahi.rate_schedule(opportunities, duration_s=duration_s, **options)


def _check_absent(trace: Any, beside: str, *keys: str) -> None:
    if given := [key for key in keys if key in trace]:
        raise ValueError(f"rate_trace must have no {given[0]} beside {beside}, got {trace!r}")
