"""Files of a rate or an RTT over time, in the formats of public data sets (docs/traces.md#formats).

A file is text with a sample per line, in columns that tabs, semicolons, commas or blanks separate. Its first line can
name the columns and their units. Or it is the JSON of `irtt client -o`. Both can be compressed by gzip.
"""

from __future__ import annotations

import gzip
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Final

from bbrgym.checks import check_name, check_number
from bbrgym.files import DAMAGES, damage

_TIME_UNITS: Final = {"s": 1, "sec": 1, "seconds": 1, "ms": 1e3, "msec": 1e3, "us": 1e6, "ns": 1e9}
_TIME_WORDS: Final = ("time", "timestamp", "t")
_IRTT_NAMES: Final = ["timestamp", "rtt", "uplink", "downlink"]
"""Of a CSV of LENS, whose times are in ns and whose RTTs are in ms."""

_MOST_SAMPLES: Final = 1_000_000


@dataclass(frozen=True)
class Quantity:
    """What files are about.

    Attributes:
        name: `rate` or `rtt`: the trace is a scenario's `rate_trace` or a flow's `rtt_trace`.
        unit: the scenario's.
        units: as they are spelled, and how many of them are one of that unit.
        words: one of them is in the name of the column.
        bounds: of a value, as for `check_number`.
        formats: those that a file can have.
    """

    name: str
    unit: str
    units: Mapping[str, float]
    words: tuple[str, ...]
    bounds: Mapping[str, Any]
    formats: tuple[str, ...]


RATE: Final = Quantity(
    "rate",
    "Mbit/s",
    {"Mbit/s": 1, "Mb/s": 1, "Mbps": 1, "mbps": 1, "kbit/s": 1e3, "kb/s": 1e3, "kbps": 1e3, "Kbps": 1e3,
     "Gbit/s": 1e-3, "Gbps": 1e-3, "bit/s": 1e6, "bps": 1e6, "B/s": 125_000, "kB/s": 125, "MB/s": 0.125},
    ("rate", "throughput", "bandwidth", "bw", "goodput", "bitrate", "capacity"),
    {"at_least": 0, "at_most": 10_000},
    ("mahimahi", "steps", "series", "pensieve", "hsdpa"),
)  # fmt: skip
RTT: Final = Quantity(
    "rtt",
    "ms",
    {unit: per_s / 1e3 for unit, per_s in _TIME_UNITS.items()},
    ("rtt", "delay", "latency", "owd"),
    {"above": 0, "at_most": 10_000},
    ("steps", "series", "irtt"),
)


def format_of(trace: Mapping[str, Any], quantity: Quantity) -> str:
    """Return the format of a trace's file: the given one, or what its content shows.

    Raises:
        ValueError: the trace has no file that can be read, or a bad format.
    """
    given = trace.get("format")
    if given is not None:
        check_name(f"{quantity.name}_trace.format", given, quantity.formats)
        return str(given)
    table = _Table(trace.get("file"), quantity)
    if table.is_json or table.names == _IRTT_NAMES:
        return "irtt"
    if table.width == 1 or "step_ms" in trace:
        is_plain = not (table.names or {"step_ms", "unit"} & set(trace))
        return "mahimahi" if is_plain and "mahimahi" in quantity.formats else "steps"
    return "hsdpa" if table.width == 6 and not table.names else "series"


def read(trace: Mapping[str, Any], quantity: Quantity, duration_s: float) -> list[tuple[float, float]]:
    """Return the schedule that a trace's file has.

    Args:
        trace: `file`, and optionally `format`, `from_s` (the file's time at which the scenario begins), and what the
            format needs: `step_ms`, `time_unit`, `unit`, `one_way`.
        quantity: what the file is about.
        duration_s: of the scenario, in s.

    Returns:
        Pairs of a rising time in s, from 0 to below `duration_s`, and a value in the unit of `quantity`: the changes.

    Raises:
        ValueError: naming the bad entry, or the file, its line and its column.
    """
    kind = format_of(trace, quantity)
    if kind not in quantity.formats:
        raise ValueError(f"{trace['file']}: a {quantity.name} must not be of the format {kind}")
    reader, keys = _READERS[kind]
    for key in ("step_ms", "time_unit", "unit", "one_way"):
        if key in trace and key not in keys:
            raise ValueError(f"{quantity.name}_trace must have no {key} with the format {kind}, got {dict(trace)!r}")
    table = _Table(trace["file"], quantity)
    return reader(table, trace, quantity).schedule(table.path, trace.get("from_s", 0), duration_s)


@dataclass
class _Samples:
    """Samples, each of which holds from its time to that of the next one.

    Attributes:
        times: in s, rising.
        values: in the unit of the quantity.
        end: when the last one ends and the first one follows again, in s; None if the last one stays.
    """

    times: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    end: float | None = None

    def add(self, where: str, time: float, value: float) -> None:
        if self.times and time <= self.times[-1]:
            raise ValueError(f"{where}: times must rise, got {time:.12g} s after {self.times[-1]:.12g} s")
        self.times.append(time)
        self.values.append(value)

    def from_first(self) -> _Samples:
        """Return them with the time of the first one as 0."""
        first = self.times[0]
        return _Samples([time - first for time in self.times], self.values, self.end and self.end - first)

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
    """The lines of a file, and the names of its columns.

    Attributes:
        text: all of it.
        is_json: whether it is JSON, which has no columns.
        names: None if the first line has none.
        width: the number of columns.
    """

    def __init__(self, path: Any, quantity: Quantity) -> None:
        self.path, self.text = path, _text(path, quantity)
        self.is_json = self.text.lstrip().startswith("{")
        self._lines = list(enumerate(self.text.rstrip().split("\n"), start=1))
        first = self._lines[0][1]
        names = _columns(_separator(first, is_header=True), first.lstrip("#"))
        self.names = None if any(map(_is_number, names)) or not first else names
        if self.names:
            del self._lines[0]
        if not self.is_json and not (first and self._lines):
            raise ValueError(f"{path}:1: a file must have at least one line of numbers")
        self._separator = _separator(self._lines[0][1] if self._lines else "")
        self.width = len(self.names or _columns(self._separator, first))

    def rows(self, width: int) -> Iterator[tuple[str, list[str]]]:
        """Yield the place of each line and its columns."""
        for number, line in self._lines:
            columns = _columns(self._separator, line)
            if len(columns) != width:
                raise ValueError(
                    f"{self.path}:{number}: a line must have {width} column(s), got {len(columns)} in {line[:40]!r} "
                    "(a decimal comma must be a point)"
                )
            yield f"{self.path}:{number}", columns

    def find(self, words: tuple[str, ...]) -> int:
        """Return the column whose name has one of the words."""
        found = [i for i, name in enumerate(self.names or ()) if set(re.findall("[a-z]+", name.lower())) & set(words)]
        if len(found) != 1:
            raise ValueError(
                f"{self.path}:1: the name of one column must have one of {', '.join(words)}, got "
                f"{', '.join(self.names or ())}"
            )
        return found[0]

    def unit(self, column: int, units: Mapping[str, float], key: str, given: object, default: str | None) -> float:
        """Return the value of `units` for a column, whose unit its name says or the configuration (`key`, `given`)."""
        if given is not None:
            check_name(key, given, units)
        name = self.names[column] if self.names else ""
        stated = {
            units[word] for form in ("[A-Za-z]+/s", "[A-Za-z]+") for word in re.findall(form, name) if word in units
        }
        stated |= {units[str(given)]} if given is not None else set()
        if not stated and not self.names and default is not None:
            return units[default]
        if len(stated) != 1:
            raise ValueError(
                f"{self.path}:1: the unit of column {column + 1} {name!r} must be said once, by its name or {key}: "
                f"{', '.join(units)}"
            )
        return stated.pop()


def _separator(line: str, is_header: bool = False) -> str | None:
    """Return what separates the columns, None for blanks. A comma within a number does only if nothing else does."""
    text = line.strip()
    if found := re.search("[;\t]", text):
        return found[0]
    return "," if "," in text and (is_header or re.search(r",\s|\s,", text) or not re.search(r"\s", text)) else None


def _columns(separator: str | None, line: str) -> list[str]:
    return [part.strip() for part in line.strip().split(separator)]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text  # which Python allows


def _number(where: str, columns: list[str], column: int) -> float:
    text = columns[column]
    if not _is_number(text):
        point = text.replace(",", ".")
        hint = f": a decimal comma must be a point, {point}" if _is_number(point) else ""
        raise ValueError(f"{where}: column {column + 1} must be a number, got {text[:40]!r}{hint}")
    return float(text)


def _time(where: str, columns: list[str], column: int, per_s: float) -> float:
    time = _number(where, columns, column) / per_s
    if not 0 <= time < math.inf:
        check_number(f"{where}: column {column + 1}, a time in s,", time, at_least=0)
    return time


def _value(where: str, columns: list[str], column: int, divisor: float, quantity: Quantity) -> float:
    value = _number(where, columns, column) / divisor
    if not 0 < value <= quantity.bounds["at_most"]:  # which is faster
        check_number(f"{where}: column {column + 1}, the {quantity.name} in {quantity.unit},", value, **quantity.bounds)
    return value


def _divisor(table: _Table, column: int, trace: Mapping[str, Any], quantity: Quantity) -> float:
    """Return what the values of a column must be divided by."""
    is_one_way = trace.get("one_way", False)
    if not isinstance(is_one_way, bool):
        raise ValueError(f"{quantity.name}_trace.one_way must be true or false, got {is_one_way!r}")
    divisor = table.unit(column, quantity.units, f"{quantity.name}_trace.unit", trace.get("unit"), quantity.unit)
    return divisor / 2 if is_one_way else divisor


def _steps(table: _Table, trace: Mapping[str, Any], quantity: Quantity) -> _Samples:
    """Read a value per line, which holds for `step_ms`."""
    step_ms = trace.get("step_ms", 100)
    check_number(f"{quantity.name}_trace.step_ms", step_ms, at_least=1, at_most=60_000)
    column = table.find(quantity.words) if table.names else 0
    divisor = _divisor(table, column, trace, quantity)
    rows = table.rows(table.width if table.names else 1)
    values = [_value(where, columns, column, divisor, quantity) for where, columns in rows]
    return _Samples([index * step_ms / 1e3 for index in range(len(values))], values, len(values) * step_ms / 1e3)


def _series(table: _Table, trace: Mapping[str, Any], quantity: Quantity) -> _Samples:
    """Read a time and a value per line, which holds from then on."""
    key, given = f"{quantity.name}_trace.time_unit", trace.get("time_unit")
    if not table.names and given is None:
        raise ValueError(
            f"{table.path}:1: the columns have no names, so give {key} of the first one, {', '.join(_TIME_UNITS)} (a "
            "decimal comma must be a point)"
        )
    of_time, of_value = (table.find(_TIME_WORDS), table.find(quantity.words)) if table.names else (0, 1)
    per_s = table.unit(of_time, _TIME_UNITS, key, given, None)
    divisor = _divisor(table, of_value, trace, quantity)
    samples = _Samples()
    for where, columns in table.rows(table.width if table.names else 2):
        time = _time(where, columns, of_time, per_s)
        samples.add(where, time, _value(where, columns, of_value, divisor, quantity))
    return samples


def _pensieve(table: _Table, trace: Mapping[str, Any], quantity: Quantity) -> _Samples:
    """Read a time in s and a rate in Mbit/s per line, which holds since the line before, as in Pensieve's simulator."""
    read = _series(table, {"time_unit": "s"}, quantity)
    if len(read.times) < 2:
        raise ValueError(f"{table.path}:1: a file of the format pensieve must have at least two lines")
    return _Samples(read.times[:-1], read.values[1:], read.times[-1]).from_first()


def _hsdpa(table: _Table, trace: Mapping[str, Any], quantity: Quantity) -> _Samples:
    """Read six columns per line, of which 2 is a time in ms, 5 the bytes and 6 the ms since the line before."""
    samples = _Samples()
    for where, columns in table.rows(6):
        samples.end, elapsed_s = _time(where, columns, 1, 1e3), _time(where, columns, 5, 1e3)
        check_number(f"{where}: column 6, a time in s,", elapsed_s, above=0, at_most=samples.end)
        samples.add(where, samples.end - elapsed_s, _value(where, columns, 4, elapsed_s * 1e6 / 8, quantity))
    return samples.from_first()


def _irtt(table: _Table, trace: Mapping[str, Any], quantity: Quantity) -> _Samples:
    """Read the RTTs of `irtt`, as its JSON or as a CSV of LENS. What is lost has none."""
    samples = _Samples()
    if not table.is_json:
        for where, columns in table.rows(len(_IRTT_NAMES)):
            if _number(where, columns, 1) > 0:  # 0 and -1 are losses
                samples.add(where, _time(where, columns, 0, 1e9), _value(where, columns, 1, 1, quantity))
    else:
        try:
            trips = [
                (number, trip["timestamps"]["client"]["send"], trip["delay"]["rtt"])
                for number, trip in enumerate(json.loads(table.text)["round_trips"])
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


_Reader = Callable[[_Table, Mapping[str, Any], Quantity], _Samples]
_READERS: Final[Mapping[str, tuple[_Reader, tuple[str, ...]]]] = {
    "steps": (_steps, ("step_ms", "unit", "one_way")),
    "series": (_series, ("time_unit", "unit", "one_way")),
    "pensieve": (_pensieve, ()),
    "hsdpa": (_hsdpa, ()),
    "irtt": (_irtt, ()),
}
"""By format: its reader, and the keys of a trace that it needs."""


def _text(path: Any, quantity: Quantity) -> str:
    what = f"{quantity.name}_trace"
    if not isinstance(path, str):
        raise ValueError(f"{what} must have a path as file, got {path!r}")
    try:
        content = read_bytes(path)
    except OSError as error:
        raise ValueError(f"{what}: '{path}' cannot be read: {error.strerror or error}") from error
    return content.decode("utf-8-sig", "backslashreplace")  # a line that is no text is refused by its number


def read_bytes(path: str | PathLike[str]) -> bytes:
    """Return the content of a file, decompressed if it is one of gzip.

    Raises:
        OSError: it cannot be read.
    """
    content = Path(path).read_bytes()
    if not content.startswith(b"\x1f\x8b"):
        return content
    try:
        return gzip.decompress(content)
    except DAMAGES as error:
        raise OSError(f"its gzip is damaged: {damage(error)}") from error
