"""Dates and times of day in files of measurements, as nanoseconds (ISO 8601, and other forms without a doubt).

These are read: `2023-04-12T10:40:20.5Z`, `2023-04-12 10:40:20 CDT`, `2023.04.12_10.40.20`, `20230412T104020+0200`,
`12 Apr 2023 10:40:20`, `Wed Apr 12 10:40:20 UTC 2023`, `10:40:20.5`. Those with a day and a month in numbers before
the year, such as `12/04/2023`, are ambiguous.
"""

from __future__ import annotations

import calendar
import re
from datetime import datetime
from typing import Final, NamedTuple

_MONTHS: Final = tuple(name.lower() for name in calendar.month_name)  # the first one is ""
_MONTH: Final = r"(?P<name>[A-Za-z]{3,9})\.?"
_WEEKDAY: Final = r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,?\s+)?"
_FRACTION: Final = r"(?:[.,](?P<fraction>\d{1,18}))?"
_CLOCK: Final = (
    r"(?P<hour>\d{1,2})(?P<mark>[:.])(?P<minute>\d\d)(?:(?P=mark)(?P<second>\d\d)" + _FRACTION + r")?"
    r"(?:\s*(?P<half>[AaPp][Mm]))?"
)
_ZONE: Final = r"(?:\s*(?P<zone>Z|[A-Z]{3,5}|(?:UTC|GMT)?[+-]\d\d(?::?\d\d)?))?"
_THEN: Final = r"(?:[Tt_]|,?\s+)"

_FORMS: Final = tuple(
    re.compile(form)
    for form in (
        rf"(?P<year>\d{{4}})(?P<dash>[-./])(?P<month>\d\d?)(?P=dash)(?P<day>\d\d?)(?:{_THEN}{_CLOCK}{_ZONE})?",
        rf"(?P<year>\d{{4}})(?P<month>\d\d)(?P<day>\d\d)[Tt](?P<hour>\d\d)(?P<minute>\d\d)(?P<second>\d\d){_FRACTION}{_ZONE}",
        rf"{_WEEKDAY}(?P<day>\d\d?)[\s-]{_MONTH}[\s-](?P<year>\d{{4}}){_THEN}{_CLOCK}{_ZONE}",
        rf"{_WEEKDAY}{_MONTH}\s+(?P<day>\d\d?),?\s+(?P<year>\d{{4}}){_THEN}{_CLOCK}{_ZONE}",
        rf"{_WEEKDAY}{_MONTH}\s+(?P<day>\d\d?)\s+{_CLOCK}{_ZONE}\s+(?P<year>\d{{4}})",
        r"(?P<hour>\d\d?)(?P<mark>:)(?P<minute>\d\d):(?P<second>\d\d)" + _FRACTION + r"(?:\s*(?P<half>[AaPp][Mm]))?",
    )
)
_AMBIGUOUS: Final = re.compile(r"\d{1,2}([-./])\d{1,2}\1(?:\d{4}|\d{2})(?:[Tt_\s,].*)?")


class Moment(NamedTuple):
    """A date and a time, or a time of day.

    Attributes:
        ns: since 1970 in UTC if there is an offset, else on the clock that was read; of a time of day since midnight.
        zone: `UTC` if there is an offset, else the name of the zone, or "".
    """

    ns: int
    zone: str


def is_date(text: str) -> bool:
    """Return whether a text has the form of a date, also of an ambiguous one, or of a time of day."""
    return bool(text[:1].isalnum() and (_AMBIGUOUS.fullmatch(text) or any(form.fullmatch(text) for form in _FORMS)))


def read_date(text: str) -> Moment:
    """Return what a text says.

    Raises:
        ValueError: it is no date, there is no such day or time, or it is ambiguous.
    """
    if _AMBIGUOUS.fullmatch(text):
        raise ValueError(
            f"must be a time whose day and month are beyond doubt, with its year first, 2023-04-12, got {text[:40]!r}"
        )
    for form in _FORMS:
        if found := form.fullmatch(text):
            return _moment(text, found.groupdict())
    raise ValueError(f"must be a number or a time such as 2023-04-12T10:40:20.5Z, got {text[:40]!r}")


def _moment(text: str, parts: dict[str, str | None]) -> Moment:
    month, hour = parts.get("month"), int(parts["hour"] or 0)
    if name := parts.get("name"):
        month = str(next((number for number, whole in enumerate(_MONTHS) if whole.startswith(name.lower())), 0))
    if half := parts.get("half"):
        hour = hour % 12 + (12 if half.lower() == "pm" else 0) if 1 <= hour <= 12 else 99
    try:
        at = datetime(
            int(parts.get("year") or 1970),
            int(month or 1),
            int(parts.get("day") or 1),
            hour,
            int(parts["minute"] or 0),
            int(parts["second"] or 0),
        )
    except ValueError as error:
        raise ValueError(f"must be a time that exists, got {text[:40]!r}: {error}") from error
    days_seconds = (at - datetime(1970, 1, 1)).total_seconds()
    ns = int(days_seconds) * 10**9 + int((parts.get("fraction") or "").ljust(9, "0")[:9])
    zone = parts.get("zone") or ""
    offset = zone.removeprefix("UTC").removeprefix("GMT") if zone else ""
    if zone in ("Z", "UTC", "GMT"):
        return Moment(ns, "UTC")
    if offset[:1] in ("+", "-"):
        digits = offset[1:].replace(":", "").ljust(4, "0")
        seconds = int(digits[:2]) * 3600 + int(digits[2:]) * 60
        return Moment(ns - (seconds if offset[0] == "+" else -seconds) * 10**9, "UTC")
    return Moment(ns, zone)
