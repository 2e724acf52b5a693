"""Files of a rate or an RTT over time, in the formats of public data sets (docs/traces.md#formats).

A file is text with a sample per line, in columns that tabs, semicolons, commas or blanks separate. Its first line can
name the columns and their units. Or it is the JSON of `irtt client -o`, `iperf3 -J` or `bbrgym send --json`.
"""

from __future__ import annotations

import itertools
import math
from array import array
from collections.abc import Callable, Mapping
from typing import Any, Final

from bbrgym.checks import check_name, check_number
from bbrgym.envs import dates, trace_units
from bbrgym.envs.trace_table import TIME_WORDS, Quantity, Table, check_value, is_number
from bbrgym.envs.trace_units import Unit
from bbrgym.files import DAMAGES, damage

_IRTT_NAMES: Final = ["timestamp", "rtt", "uplink", "downlink"]
"""Of a CSV of LENS, whose times are in ns and whose RTTs are in ms."""

_OF_JSON: Final = ("irtt", "iperf3")
"""The formats that can be JSON."""

_DIRECTIONS: Final = ("sum", "sum_bidir_reverse")
"""The rates that an interval of iperf3 can have, the second one with `--bidir`."""

_MOST_SAMPLES: Final = 1_000_000

_KEYS: Final = ("step_ms", "column", "time_column", "time_unit", "unit", "one_way")
"""Of a trace, which a format may need."""

_PER_S: Final = {"s": 1, "ms": 1e3, "us": 1e6, "ns": 1e9}

_PEEKED: Final = 100
"""Lines that decide whether six columns are `hsdpa`."""


RATE: Final = Quantity(
    "rate",
    unit="Mbit/s",
    units=trace_units.RATES,
    name_of=trace_units.name_of_rate,
    words=("rate", "throughput", "bandwidth", "bw", "goodput", "bitrate", "capacity"),
    bounds={"at_least": 0, "at_most": 10_000},
    formats=("mahimahi", "steps", "series", "pensieve", "hsdpa", "iperf3"),
)
RTT: Final = Quantity(
    "rtt",
    unit="ms",
    units=trace_units.TIMES,
    name_of=trace_units.name_of_time,
    words=("rtt", "delay", "latency", "owd"),
    bounds={"above": 0, "at_most": 10_000},
    formats=("steps", "series", "irtt", "iperf3"),
)


def format_of(trace: Mapping[str, Any], quantity: Quantity) -> str:
    """Return the format of a trace's file: the given one, or what its content shows.

    Raises:
        ValueError: the trace has no file that can be read, or a bad format.
    """
    return _recognised(trace, quantity)[0]


def read(trace: Mapping[str, Any], quantity: Quantity, duration_s: float) -> list[tuple[float, float]]:
    """Return the schedule that a trace's file has.

    Args:
        trace: `file`, and optionally `format`, `from_s` (the file's time at which the scenario begins), and what the
            format needs: `step_ms`, `column`, `time_column`, `time_unit`, `unit`, `one_way`.
        quantity: what the file is about.
        duration_s: of the scenario, in s.

    Returns:
        Pairs of a rising time in s, from 0 to below `duration_s`, and a value in the unit of `quantity`: the changes.

    Raises:
        ValueError: naming the bad entry, or the file, its line and its column.
    """
    kind, table = _recognised(trace, quantity)
    if kind not in quantity.formats:
        raise ValueError(f"{table.path}: a {quantity.name} must not be of the format {kind}")
    reader, keys = _READERS[kind]
    for key in _KEYS:
        if key in trace and key not in keys:
            raise ValueError(f"{quantity.name}_trace must have no {key} with the format {kind}, got {dict(trace)!r}")
    return reader(table, trace, quantity).schedule(table.path, trace.get("from_s", 0), duration_s)


def _recognised(trace: Mapping[str, Any], quantity: Quantity) -> tuple[str, Table]:
    """Return the format of a trace's file, and the file."""
    given = trace.get("format")
    if given is not None:
        check_name(f"{quantity.name}_trace.format", given, quantity.formats)
    table = Table(trace.get("file"), quantity)
    keys = set(_KEYS) & set(trace)
    if given is not None and table.is_json and given not in _OF_JSON:
        raise ValueError(f"{table.path}:1: a file of the format {given} must not be JSON")
    if given is not None:
        kind = str(given)
    elif table.is_json:
        kind = "iperf3" if "intervals" in table.document else "irtt"
    elif table.names == _IRTT_NAMES:
        kind = "irtt"
    elif table.width == 1 or "step_ms" in trace:
        is_plain = not (table.names or {"step_ms", "column", "unit"} & keys)
        kind = "mahimahi" if is_plain and "mahimahi" in quantity.formats else "steps"
    elif table.width == 6 and not table.names and "hsdpa" in quantity.formats and not keys:
        _check_hsdpa(table)
        kind = "hsdpa"
    else:
        kind = "series"
    return kind, table


class _Samples:
    """Samples, each of which holds from its time to that of the next one.

    Attributes:
        times: in s, rising.
        values: in the unit of the quantity.
        end: when the last one ends and the first one follows again, in s; None if the last one stays.
    """

    def __init__(self, times: array[float] | None = None, values: array[float] | None = None) -> None:
        self.times = array("d") if times is None else times
        self.values = array("d") if values is None else values
        self.end: float | None = None

    def add(self, where: str | Table, time: float, value: float) -> None:
        if self.times and time <= self.times[-1]:
            place = where if isinstance(where, str) else where.where
            raise ValueError(f"{place}: times must rise, got {time:.12g} s after {self.times[-1]:.12g} s")
        self.times.append(time)
        self.values.append(value)

    def from_first(self) -> _Samples:
        """Return them with the time of the first one as 0."""
        first = self.times[0]
        moved = _Samples(array("d", (time - first for time in self.times)), self.values)
        moved.end = self.end and self.end - first
        return moved

    def schedule(self, path: str, from_s: float, duration_s: float) -> list[tuple[float, float]]:
        check_number("from_s", from_s, at_least=0)
        first, last = self.times[0], self.times[-1] if self.end is None else self.end
        if first >= from_s + duration_s or from_s > last:
            raise ValueError(
                f"{path} is from {first:.12g} to {last:.12g} s, so that from_s={from_s:.12g} and duration_s="
                f"{duration_s:g} must overlap it: from_s={first:.12g} begins with its first sample"
            )
        repetitions = 1 if self.end is None else math.ceil((from_s + duration_s) / self.end)
        if repetitions > 1 and repetitions * len(self.times) > _MOST_SAMPLES:
            raise ValueError(f"{path}: its repetitions must have at most {_MOST_SAMPLES:,} samples")
        changes: list[tuple[float, float]] = []
        for repetition in range(repetitions):
            for time, value in zip(self.times, self.values, strict=True):
                at = round(time + repetition * (self.end or 0.0) - from_s, 9)
                if at <= 0:
                    changes = [(0.0, value)]  # the last one before the scenario holds at its beginning
                elif at < duration_s and (not changes or changes[-1][1] != value):
                    changes.append((at, value))
        return changes


def _unit(table: Table, column: int, trace: Mapping[str, Any], quantity: Quantity) -> Unit:
    """Return the unit of the values of a column."""
    is_one_way = trace.get("one_way", False)
    if not isinstance(is_one_way, bool):
        raise ValueError(f"{quantity.name}_trace.one_way must be true or false, got {is_one_way!r}")
    key = f"{quantity.name}_trace.unit"
    name = table.unit(column, name_of=quantity.name_of, known=quantity.units, key=key, given=trace.get("unit"))
    unit = quantity.units[name or quantity.unit]
    return Unit(unit.exponent, unit.factor * 2) if is_one_way else unit


def _steps(table: Table, trace: Mapping[str, Any], quantity: Quantity) -> _Samples:
    """Read a value per line, which holds for `step_ms`."""
    step_ms = trace.get("step_ms", 100)
    check_number(f"{quantity.name}_trace.step_ms", step_ms, at_least=1, at_most=60_000)
    given = trace.get("column")
    has_columns = table.names or given is not None
    column = table.column("column", given, quantity.words) if has_columns else 0
    unit = _unit(table, column, trace, quantity)
    rows = table.rows(table.width if has_columns else 1)
    values = array("d", (table.value(columns, column, unit) for columns in rows))
    samples = _Samples(array("d", (index * step_ms / 1e3 for index in range(len(values)))), values)
    samples.end = len(values) * step_ms / 1e3
    return samples


def _series(table: Table, trace: Mapping[str, Any], quantity: Quantity) -> _Samples:
    """Read a time and a value per line, which holds from then on."""
    key, given = f"{quantity.name}_trace.time_unit", trace.get("time_unit")
    column, time_column = trace.get("column"), trace.get("time_column")
    of_time, of_value, width = 0, 1, table.width
    if table.names or time_column is not None:
        of_time = table.column("time_column", time_column, *TIME_WORDS)
    if table.names or column is not None:
        of_value = table.column("column", column, quantity.words)
    elif time_column is None:
        width = 2
    ((number, first),) = table.peek(1)
    clock, per_s = None, 1.0
    if of_time < len(first) and not is_number(first[of_time]) and (table.names or dates.is_date(first[of_time])):
        if given is not None and dates.is_date(first[of_time]):
            raise ValueError(f"{table.path}:{number}: there must be no {key}, as column {of_time + 1} has dates")
        clock = _Clock(of_time)
    elif not table.names and given is None:
        raise ValueError(
            f"{table.path}:1: the columns have no names, so give {key} of the first one, "
            f"{', '.join(trace_units.TIMES)} (a decimal comma must be a point)"
        )
    else:
        time_unit = table.unit(of_time, name_of=trace_units.name_of_time, known=trace_units.TIMES, key=key, given=given)
        per_s = _PER_S[str(time_unit)]
    unit = _unit(table, of_value, trace, quantity)
    samples = _Samples()
    for columns in table.rows(width):
        time = clock.read(table, columns) if clock else table.time(columns, of_time, per_s)
        value = table.value(columns, of_value, unit)
        if clock and samples.times and time == samples.times[-1]:
            samples.values[-1] = value  # a clock of seconds can show one several times: the last value stays
        else:
            samples.add(table, time, value)
    return samples


class _Clock:
    """Reads a column of dates as seconds since the first one."""

    def __init__(self, column: int) -> None:
        self._column = column
        self._first: dates.Moment | None = None

    def read(self, table: Table, columns: list[str]) -> float:
        try:
            moment = dates.read_date(columns[self._column].strip())
        except ValueError as error:
            raise ValueError(f"{table.where}: column {self._column + 1} {error}") from None
        if self._first is None:
            self._first = moment
        if moment.zone != self._first.zone:
            raise ValueError(
                f"{table.where}: column {self._column + 1} must be in one time zone, got {moment.zone or 'none'!r} "
                f"after {self._first.zone or 'none'!r}"
            )
        return (moment.ns - self._first.ns) / 1e9


def _pensieve(table: Table, trace: Mapping[str, Any], quantity: Quantity) -> _Samples:
    """Read a time in s and a rate in Mbit/s per line, which holds since the line before, as in Pensieve's simulator."""
    read = _series(table, {"time_unit": "s"}, quantity)
    if len(read.times) < 2:
        raise ValueError(f"{table.path}:1: a file of the format pensieve must have at least two lines")
    samples = _Samples(read.times[:-1], read.values[1:])
    samples.end = read.times[-1]
    return samples.from_first()


def _hsdpa(table: Table, trace: Mapping[str, Any], quantity: Quantity) -> _Samples:
    """Read six columns per line, of which 2 is a time in ms, 5 the bytes and 6 the ms since the line before."""
    samples = _Samples()
    for columns in table.rows(6):
        samples.end, elapsed_ms = table.time(columns, 1, 1e3), table.number(columns, 5)
        check_number(f"{table.where}: column 6, a time in s,", elapsed_ms / 1e3, above=0, at_most=samples.end)
        size = table.number(columns, 4)
        if not size.is_integer():
            raise ValueError(f"{table.where}: column 5 must be a whole number of bytes, got {columns[4][:40]!r}")
        rate = size * 8 / (elapsed_ms * 1e3)
        check_value(f"{table.where}: columns 5 and 6,", rate, quantity)
        samples.add(table, samples.end - elapsed_ms / 1e3, rate)
    return samples.from_first()


def _check_hsdpa(table: Table) -> None:
    """Check that six columns without names look like those of `hsdpa`, so that nothing else is taken for it."""
    rows = []
    for _, columns in table.peek(_PEEKED):
        if len(columns) != 6 or not all(map(is_number, columns)):
            break  # which is refused by its number later, unless it is the first one
        rows.append([float(text) for text in columns])
    pairs = list(itertools.pairwise(rows))
    is_whole = all(value >= 0 and value.is_integer() for row in rows for value in (row[1], row[4], row[5]))
    is_place = all(abs(row[2]) <= 90 and abs(row[3]) <= 180 for row in rows)
    is_rising = all(before[0] <= after[0] and before[1] < after[1] for before, after in pairs)
    agreeing = sum(abs(after[1] - before[1] - after[5]) <= 1 + 0.1 * after[5] for before, after in pairs)
    if not (rows and is_whole and is_place and is_rising and agreeing >= len(pairs) / 2):
        raise ValueError(
            f"{table.path}:1: six columns without names must be those of hsdpa: Unix time, rising ms, latitude, "
            "longitude, whole bytes, ms since the line before; else name them in a first line, or give column and "
            "time_unit, or format: hsdpa"
        )


def _irtt(table: Table, trace: Mapping[str, Any], quantity: Quantity) -> _Samples:
    """Read the RTTs of `irtt`, as its JSON or as a CSV of LENS. What is lost has none."""
    samples = _Samples()
    if not table.is_json:
        for columns in table.rows(len(_IRTT_NAMES)):
            if table.number(columns, 1) > 0:  # 0 and -1 are losses
                samples.add(table, table.time(columns, 0, 1e9), table.value(columns, 1))
    else:
        try:
            trips = [
                (number, trip["timestamps"]["client"]["send"], trip["delay"]["rtt"])
                for number, trip in enumerate(table.document["round_trips"])
                if "rtt" in trip["delay"]
            ]
            sent = [clocks.get("monotonic", clocks.get("wall")) for _, clocks, _ in trips]
        except DAMAGES as error:
            raise ValueError(f"{table.path}: this is no JSON of irtt: {damage(error)}") from error
        for (number, _, rtt), time in zip(trips, sent, strict=True):
            where = f"{table.path}: round_trips[{number}]"
            check_number(f"{where}: its time in ns", time, at_least=0)
            check_number(f"{where}: its RTT in ns", rtt, above=0, at_most=1e10)
            samples.add(where, time / 1e9, rtt / 1e6)
    if not samples.times:
        raise ValueError(f"{table.path}: a file of the format irtt must have at least one RTT")
    return samples.from_first()


def _iperf3(table: Table, trace: Mapping[str, Any], quantity: Quantity) -> _Samples:
    """Read the intervals of iperf3's JSON: what all streams of a direction carried, or the mean of their RTTs."""
    if not table.is_json:
        raise ValueError(f"{table.path}:1: a file of the format iperf3 must be its JSON: iperf3 -J")
    try:
        intervals = [
            (
                f"{table.path}: intervals[{number}]",
                (interval["sum"]["start"], interval["sum"]["end"]),
                {name: interval[name]["bits_per_second"] for name in _DIRECTIONS if name in interval},
                [stream["rtt"] for stream in interval["streams"] if stream.get("rtt")],
            )
            for number, interval in enumerate(table.document["intervals"])
            if not interval["sum"].get("omitted")
        ]
    except DAMAGES as error:
        raise ValueError(f"{table.path}: this is no JSON of iperf3: {damage(error)}") from error
    directions = [name for name in _DIRECTIONS if any(name in rates for _, _, rates, _ in intervals)]
    direction = trace.get("column")
    if direction is not None:
        check_name(f"{quantity.name}_trace.column", direction, directions)
    elif quantity is RATE and len(directions) > 1:
        raise ValueError(f"{table.path}: {' and '.join(directions)} are alike: give one as rate_trace.column")
    what, unit = ("bits per second", 1e6) if quantity is RATE else ("RTT in us", 1e3)
    samples = _Samples()
    for where, (start, end), rates, rtts in intervals:
        check_number(f"{where}: its start in s", start, at_least=0)
        check_number(f"{where}: its end in s", end, at_least=start)
        values = [rates.get(direction or "sum")] if quantity is RATE else rtts
        for value in values:
            check_number(f"{where}: its {what}", value, at_least=0)
        if values and end > start:
            mean = sum(values) / len(values) / unit
            check_value(f"{where}:", mean, quantity)
            samples.add(where, float(start), mean)
        if samples.times:
            samples.end = float(end)
    if not samples.times:
        said = table.document.get("error")
        raise ValueError(
            f"{table.path}: a file of the format iperf3 must have at least one interval with its {quantity.name}"
            f"{f', it says {said!r}' if said else ''}"
        )
    return samples.from_first()


_Reader = Callable[[Table, Mapping[str, Any], Quantity], _Samples]
_READERS: Final[Mapping[str, tuple[_Reader, tuple[str, ...]]]] = {
    "steps": (_steps, ("step_ms", "column", "unit", "one_way")),
    "series": (_series, ("column", "time_column", "time_unit", "unit", "one_way")),
    "pensieve": (_pensieve, ()),
    "hsdpa": (_hsdpa, ()),
    "irtt": (_irtt, ()),
    "iperf3": (_iperf3, ("column",)),
}
"""By format: its reader, and the keys of a trace that it needs."""
