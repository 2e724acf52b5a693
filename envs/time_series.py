"""Files of a rate or an RTT over time, in the formats of public data sets (docs/traces.md#formats).

A file is text with a sample per line, in columns that tabs, semicolons, commas or blanks separate. Its first line can
name the columns and their units. Or it is the JSON of `irtt client -o`, `iperf3 -J` or `bbrgym send --json`.
"""

from __future__ import annotations

import csv
import itertools
import json
import math
import re
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from bbrgym.checks import check_name, check_number
from bbrgym.envs import dates, trace_units
from bbrgym.envs.text_lines import read_lines
from bbrgym.envs.trace_units import Unit
from bbrgym.files import DAMAGES, damage

_TIME_WORDS: Final = (("time", "timestamp", "t"), ("date", "datetime"))
"""One of them is in the name of the column of times; the second ones count where none of the first is."""

_IRTT_NAMES: Final = ["timestamp", "rtt", "uplink", "downlink"]
"""Of a CSV of LENS, whose times are in ns and whose RTTs are in ms."""

_OF_JSON: Final = ("irtt", "iperf3")
"""The formats that can be JSON."""

_DIRECTIONS: Final = ("sum", "sum_bidir_reverse")
"""The rates that an interval of iperf3 can have, the second one with `--bidir`."""

_MOST_SAMPLES: Final = 1_000_000

_KEYS: Final = ("step_ms", "column", "time_column", "time_unit", "unit", "one_way")
"""Of a trace, which a format may need."""

_AS_IT_IS: Final = Unit(0)
"""Of a number that is in the unit already."""

_PER_S: Final = {"s": 1, "ms": 1e3, "us": 1e6, "ns": 1e9}

_SEPARATORS: Final = {";": "semicolons", "\t": "tabs", ",": "commas", None: "blanks"}

_PEEKED: Final = 100
"""Lines that decide whether six columns are `hsdpa`."""


@dataclass(frozen=True)
class Quantity:
    """What files are about.

    Attributes:
        name: `rate` or `rtt`: the trace is a scenario's `rate_trace` or a flow's `rtt_trace`.
        unit: the scenario's, of `units`.
        units: by their names.
        name_of: returns the name of a unit as people write it, or None.
        words: one of them is in the name of the column.
        bounds: of a value, as for `check_number`.
        formats: those that a file can have.
    """

    name: str
    unit: str
    units: Mapping[str, Unit]
    name_of: Callable[[str], str | None]
    words: tuple[str, ...]
    bounds: Mapping[str, Any]
    formats: tuple[str, ...]


RATE: Final = Quantity(
    "rate",
    "Mbit/s",
    trace_units.RATES,
    trace_units.name_of_rate,
    ("rate", "throughput", "bandwidth", "bw", "goodput", "bitrate", "capacity"),
    {"at_least": 0, "at_most": 10_000},
    ("mahimahi", "steps", "series", "pensieve", "hsdpa", "iperf3"),
)
RTT: Final = Quantity(
    "rtt",
    "ms",
    trace_units.TIMES,
    trace_units.name_of_time,
    ("rtt", "delay", "latency", "owd"),
    {"above": 0, "at_most": 10_000},
    ("steps", "series", "irtt", "iperf3"),
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


def _recognised(trace: Mapping[str, Any], quantity: Quantity) -> tuple[str, _Table]:
    """Return the format of a trace's file, and the file."""
    given = trace.get("format")
    if given is not None:
        check_name(f"{quantity.name}_trace.format", given, quantity.formats)
    table = _Table(trace.get("file"), quantity)
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

    def add(self, where: str | _Table, time: float, value: float) -> None:
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


class _Table:
    """The lines of a file, and the names of its columns. It reads the file once, from its beginning to its end.

    Attributes:
        is_json: whether it is JSON, which has no columns.
        names: None if the first line has none.
        width: the number of columns.
    """

    def __init__(self, path: Any, quantity: Quantity) -> None:
        self.path, self._quantity, self._number = path, quantity, 1
        self._lines = _open(path, quantity)
        first = next(self._lines, "")
        self._records: Iterator[tuple[int, list[str]]] = iter(())
        self.names: list[str] | None = None
        self.width, self._first = 0, first
        self._separator: str | None = None
        self.is_json = first.lstrip().startswith("{")
        if not self.is_json:
            self._read_header(first)

    def _read_header(self, first: str) -> None:
        extent = 1
        while first.count('"') % 2 and len(first) < csv.field_size_limit():  # a line break within quotes
            if (more := next(self._lines, None)) is None:
                break
            first, extent = f"{first}\n{more}", extent + 1
        separator = _separator_of_header(first)
        header = first.strip().lstrip("#").strip()
        _, names = next(_split(self.path, iter([header]), separator, 1), (1, []))
        if any(_is_number(name) or dates.is_date(name) for name in names):
            self._separator = _separator_of_numbers(first)
            lines = map(str.strip, itertools.chain([first], self._lines))
            self._records = _split(self.path, lines, self._separator, 1)
            self.width = len(self.peek(1)[0][1])
            return
        self._separator = separator
        self._records = _split(self.path, self._lines, separator, 1 + extent)
        if not (names and self.peek(1)):
            raise ValueError(f"{self.path}:1: a file must have at least one line of numbers")
        is_one_column = separator is None and len(self.peek(1)[0][1]) == 1
        self.names = [" ".join(header.split())] if is_one_column else [" ".join(name.split()) for name in names]
        self.width = len(self.names)

    @cached_property
    def document(self) -> dict[str, Any]:
        """The JSON that the file is; the events of `iperf3 --json-stream` become one document."""
        text = "\n".join(itertools.chain([self._first], self._lines))
        decoder, blanks = json.JSONDecoder(), re.compile(r"\s*")
        documents: list[Any] = []
        at = blanks.match(text).end()  # type: ignore[union-attr]
        try:
            while at < len(text):
                found, at = decoder.raw_decode(text, at)
                documents.append(found)
                at = blanks.match(text, at).end()  # type: ignore[union-attr]
            if "event" in documents[0]:
                return {"intervals": [one["data"] for one in documents if one["event"] == "interval"]}
        except DAMAGES as error:
            raise ValueError(f"{self.path}: this is no JSON of irtt or iperf3: {damage(error)}") from error
        if len(documents) > 1:
            raise ValueError(f"{self.path}: a file must have the JSON of one measurement, got {len(documents)}")
        if not {"intervals", "round_trips"} & documents[0].keys():
            raise ValueError(f"{self.path}: this is no JSON of irtt or iperf3: it has no 'round_trips'")
        return dict(documents[0])

    def peek(self, count: int) -> list[tuple[int, list[str]]]:
        """Return the next lines, at most so many, which `rows` yields, too."""
        found = list(itertools.islice(self._records, count))
        self._records = itertools.chain(found, self._records)
        return found

    def rows(self, width: int) -> Iterator[list[str]]:
        """Yield the columns of each line, which `where` names meanwhile."""
        for number, columns in self._records:
            self._number = number
            if len(columns) == width + 1 and not columns[-1]:
                del columns[-1]  # the line ends with a separator
            if len(columns) != width:
                line = (self._separator or " ").join(columns)
                raise ValueError(
                    f"{self.where}: a line must have {width} column(s), got {len(columns)} in {line[:40]!r}, which "
                    f"{_SEPARATORS[self._separator]} separate (a decimal comma must be a point)"
                )
            yield columns

    @property
    def where(self) -> str:
        """The place of the line of `rows`."""
        return f"{self.path}:{self._number}"

    def number(self, columns: list[str], column: int, unit: Unit = _AS_IT_IS) -> float:
        """Return the number of a column of the line."""
        text = columns[column].strip()
        try:
            if "_" not in text:  # which Python allows
                return trace_units.in_unit(text, unit)
        except ValueError:
            pass
        point = text.replace(",", ".")
        hint = f": a decimal comma must be a point, {point[:40]}" if "," in text and _is_number(point) else ""
        raise ValueError(f"{self.where}: column {column + 1} must be a number, got {text[:40]!r}{hint}")

    def time(self, columns: list[str], column: int, per_s: float) -> float:
        """Return the time of a column of the line, in s."""
        time = self.number(columns, column) / per_s
        if not 0 <= time < math.inf:
            check_number(f"{self.where}: column {column + 1}, a time in s,", time, at_least=0)
        return time

    def value(self, columns: list[str], column: int, unit: Unit = _AS_IT_IS) -> float:
        """Return the value of a column of the line, in the scenario's unit."""
        value = self.number(columns, column, unit)
        if not 0 < value <= self._quantity.bounds["at_most"]:  # which is faster
            _check_value(f"{self.where}: column {column + 1},", value, self._quantity)
        return value

    def column(self, key: str, given: object, *words: tuple[str, ...]) -> int:
        """Return the index of a column.

        Args:
            key: of the trace, which can have the column.
            given: its value: the column's name, or its number from 1 on; None if the name must have a word.
            words: one of them must be in its name; further tuples count where none of the first ones is.
        """
        key = f"{self._quantity.name}_trace.{key}"
        if isinstance(given, int) and not isinstance(given, bool):
            check_number(key, given, at_least=1, at_most=self.width)
            return given - 1
        if given is not None:
            check_name(key, given, self.names or [])
            found = [index for index, name in enumerate(self.names or ()) if name == given]
        for some in words if given is None else ():
            found = [i for i, name in enumerate(self.names or ()) if set(re.findall("[a-z]+", name.lower())) & {*some}]
            if found:
                break
        if len(found) == 1:
            return found[0]
        names = self.names or []
        if found:
            raise ValueError(
                f"{self.path}:1: the columns {' and '.join(names[index] for index in found)} are alike: give one as "
                f"{key}, by its name or its number ({' or '.join(str(index + 1) for index in found)})"
            )
        without = ", or step_ms if lines have no times" if words[0] is _TIME_WORDS[0] else ""
        raise ValueError(
            f"{self.path}:1: the name of one column must have one of {', '.join(words[0])}, or give it as {key}"
            f"{without}, got {', '.join(names)}"
        )

    def unit(
        self, column: int, name_of: Callable[[str], str | None], known: Mapping[str, Unit], key: str, given: object
    ) -> str | None:
        """Return the name of a column's unit, which its name says or the configuration (`key`, `given`).

        None if the columns have no names and nothing is given.
        """
        stated = set()
        if given is not None:
            stated = {name_of(given) if isinstance(given, str) else None}
            if None in stated:
                check_name(key, given, known)
        name = self.names[column] if self.names else ""
        stated |= {found for word in trace_units.units_in(name) if (found := name_of(word))}
        if not stated and not self.names:
            return None
        if len(stated) != 1:
            raise ValueError(
                f"{self.path}:1: the unit of column {column + 1} {name!r} must be said once, by its name or {key}: "
                f"{', '.join(known)}"
            )
        return stated.pop()


def _open(path: Any, quantity: Quantity) -> Iterator[str]:
    """Yield the lines of a trace's file."""
    what = f"{quantity.name}_trace"
    if not isinstance(path, str):
        raise ValueError(f"{what} must have a path as file, got {path!r}")
    try:
        yield from read_lines(path)
    except OSError as error:
        raise ValueError(f"{what}: '{path}' cannot be read: {error.strerror or error}") from error


def _split(path: str, lines: Iterator[str], separator: str | None, number: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of each line, the first of which is `number`, and its columns, with quotes as in RFC 4180."""
    if separator is None:
        lines = (" ".join(line.split()) for line in lines)
    reader = csv.reader(lines, delimiter=separator or " ", skipinitialspace=separator is not None, strict=True)
    before, blank = 0, 0
    try:
        for columns in reader:
            at, before = number + before, reader.line_num
            if not any(columns):
                blank = blank or at
                continue
            if blank:
                raise ValueError(f"{path}:{blank}: a line between others must not be blank")
            yield at, columns
    except csv.Error as error:
        raise ValueError(f"{path}:{number + before}: {error}") from error


def _separator_of_header(line: str) -> str | None:
    """Return what separates the names of the columns, and the columns of all lines; None for blanks."""
    found = re.search("[;\t]", unquoted := re.sub('"[^"]*"', "", line.strip()))
    return found[0] if found else "," if "," in unquoted else None


def _separator_of_numbers(line: str) -> str | None:
    """Return what separates the columns where the first line is one of numbers, None for blanks.

    Commas do, unless one is in a number: two numbers with a blank between them are then in one of the parts.
    """
    separator = _separator_of_header(line)
    parts = re.sub('"[^"]*"', "", line).split(separator)
    is_within = separator == "," and any(len(part.split()) > 1 and all(map(_is_number, part.split())) for part in parts)
    return None if is_within else separator


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text  # which Python allows


def _check_value(what: str, value: float, quantity: Quantity) -> None:
    check_number(f"{what} the {quantity.name} in {quantity.unit},", value, **quantity.bounds)


def _unit(table: _Table, column: int, trace: Mapping[str, Any], quantity: Quantity) -> Unit:
    """Return the unit of the values of a column."""
    is_one_way = trace.get("one_way", False)
    if not isinstance(is_one_way, bool):
        raise ValueError(f"{quantity.name}_trace.one_way must be true or false, got {is_one_way!r}")
    key = f"{quantity.name}_trace.unit"
    name = table.unit(column, quantity.name_of, quantity.units, key, trace.get("unit"))
    unit = quantity.units[name or quantity.unit]
    return Unit(unit.exponent, unit.factor * 2) if is_one_way else unit


def _steps(table: _Table, trace: Mapping[str, Any], quantity: Quantity) -> _Samples:
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


def _series(table: _Table, trace: Mapping[str, Any], quantity: Quantity) -> _Samples:
    """Read a time and a value per line, which holds from then on."""
    key, given = f"{quantity.name}_trace.time_unit", trace.get("time_unit")
    column, time_column = trace.get("column"), trace.get("time_column")
    of_time, of_value, width = 0, 1, table.width
    if table.names or time_column is not None:
        of_time = table.column("time_column", time_column, *_TIME_WORDS)
    if table.names or column is not None:
        of_value = table.column("column", column, quantity.words)
    elif time_column is None:
        width = 2
    ((number, first),) = table.peek(1)
    clock, per_s = None, 1.0
    if of_time < len(first) and not _is_number(first[of_time]) and (table.names or dates.is_date(first[of_time])):
        if given is not None and dates.is_date(first[of_time]):
            raise ValueError(f"{table.path}:{number}: there must be no {key}, as column {of_time + 1} has dates")
        clock = _Clock(of_time)
    elif not table.names and given is None:
        raise ValueError(
            f"{table.path}:1: the columns have no names, so give {key} of the first one, "
            f"{', '.join(trace_units.TIMES)} (a decimal comma must be a point)"
        )
    else:
        per_s = _PER_S[str(table.unit(of_time, trace_units.name_of_time, trace_units.TIMES, key, given))]
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

    def read(self, table: _Table, columns: list[str]) -> float:
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


def _pensieve(table: _Table, trace: Mapping[str, Any], quantity: Quantity) -> _Samples:
    """Read a time in s and a rate in Mbit/s per line, which holds since the line before, as in Pensieve's simulator."""
    read = _series(table, {"time_unit": "s"}, quantity)
    if len(read.times) < 2:
        raise ValueError(f"{table.path}:1: a file of the format pensieve must have at least two lines")
    samples = _Samples(read.times[:-1], read.values[1:])
    samples.end = read.times[-1]
    return samples.from_first()


def _hsdpa(table: _Table, trace: Mapping[str, Any], quantity: Quantity) -> _Samples:
    """Read six columns per line, of which 2 is a time in ms, 5 the bytes and 6 the ms since the line before."""
    samples = _Samples()
    for columns in table.rows(6):
        samples.end, elapsed_ms = table.time(columns, 1, 1e3), table.number(columns, 5)
        check_number(f"{table.where}: column 6, a time in s,", elapsed_ms / 1e3, above=0, at_most=samples.end)
        size = table.number(columns, 4)
        if not size.is_integer():
            raise ValueError(f"{table.where}: column 5 must be a whole number of bytes, got {columns[4][:40]!r}")
        rate = size * 8 / (elapsed_ms * 1e3)
        _check_value(f"{table.where}: columns 5 and 6,", rate, quantity)
        samples.add(table, samples.end - elapsed_ms / 1e3, rate)
    return samples.from_first()


def _check_hsdpa(table: _Table) -> None:
    """Check that six columns without names look like those of `hsdpa`, so that nothing else is taken for it."""
    rows = []
    for _, columns in table.peek(_PEEKED):
        if len(columns) != 6 or not all(map(_is_number, columns)):
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


def _irtt(table: _Table, trace: Mapping[str, Any], quantity: Quantity) -> _Samples:
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


def _iperf3(table: _Table, trace: Mapping[str, Any], quantity: Quantity) -> _Samples:
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
            _check_value(f"{where}:", mean, quantity)
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


_Reader = Callable[[_Table, Mapping[str, Any], Quantity], _Samples]
_READERS: Final[Mapping[str, tuple[_Reader, tuple[str, ...]]]] = {
    "steps": (_steps, ("step_ms", "column", "unit", "one_way")),
    "series": (_series, ("column", "time_column", "time_unit", "unit", "one_way")),
    "pensieve": (_pensieve, ()),
    "hsdpa": (_hsdpa, ()),
    "irtt": (_irtt, ()),
    "iperf3": (_iperf3, ("column",)),
}
"""By format: its reader, and the keys of a trace that it needs."""
