"""A file of measurements as a table: its lines, the names and units of its columns, and its numbers by line and column.

The first line can name the columns; its separator is then that of all lines. Or the file is JSON.
"""

from __future__ import annotations

import csv
import itertools
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from bbrgym.checks import check_name, check_number
from bbrgym.envs import dates, trace_units
from bbrgym.envs.text_lines import read_lines
from bbrgym.envs.trace_units import Unit
from bbrgym.files import DAMAGES, damage

TIME_WORDS: Final = (("time", "timestamp", "t"), ("date", "datetime"))
"""One of them is in the name of the column of times; the second ones count where none of the first is."""

_AS_IT_IS: Final = Unit(0)
"""Of a number that is in the unit already."""

_MOST_HEADER_LINES: Final = 1000
"""Within quotes; more are quotes that do not end."""

_SEPARATORS: Final = {";": "semicolons", "\t": "tabs", ",": "commas", None: "blanks"}


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


class Table:
    """The lines of a file, and the names of its columns. It reads the file once, from its beginning to its end.

    Attributes:
        path: the file's, as it was given.
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
        parts, quotes = [first], first.count('"')
        while quotes % 2 and len(parts) < _MOST_HEADER_LINES:  # a line break within quotes
            if (more := next(self._lines, None)) is None:
                break
            parts.append(more)
            quotes += more.count('"')
        first = "\n".join(parts)
        separator = _separator_of_header(first)
        header = first.strip().lstrip("#").strip()
        _, names = next(_split(self.path, iter([header]), separator, 1), (1, []))
        if any(is_number(name) or dates.is_date(name) for name in names):
            self._separator = _separator_of_numbers(first)
            lines = map(str.strip, itertools.chain([first], self._lines))
            self._records = _split(self.path, lines, self._separator, 1)
            self.width = len(self.peek(1)[0][1])
            return
        self._separator = separator
        self._records = _split(self.path, self._lines, separator, 1 + len(parts))
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
        hint = f": a decimal comma must be a point, {point[:40]}" if "," in text and is_number(point) else ""
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
            check_value(f"{self.where}: column {column + 1},", value, self._quantity)
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
        without = ", or step_ms if lines have no times" if words[0] is TIME_WORDS[0] else ""
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
    unquoted = re.sub('"[^"]*"', "", line.strip())
    if found := re.search("[;\t]", unquoted):
        return found[0]
    return "," if "," in unquoted else None


def _separator_of_numbers(line: str) -> str | None:
    """Return what separates the columns where the first line is one of numbers, None for blanks.

    Commas do, unless one is in a number: two numbers with a blank between them are then in one of the parts.
    """
    separator = _separator_of_header(line)
    parts = re.sub('"[^"]*"', "", line).split(separator)
    is_within = separator == "," and any(len(part.split()) > 1 and all(map(is_number, part.split())) for part in parts)
    return None if is_within else separator


def is_number(text: str) -> bool:
    """Return whether a text is a number, also NaN or an infinite one."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text  # which Python allows


def check_value(what: str, value: float, quantity: Quantity) -> None:
    """Check that a value, which errors call `what`, is within the bounds of a quantity."""
    check_number(f"{what} the {quantity.name} in {quantity.unit},", value, **quantity.bounds)
