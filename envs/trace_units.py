"""Units of rates and times as people write them, and numbers in them without a rounding of their own."""

from __future__ import annotations

import math
import re
from typing import Final, NamedTuple


class Unit(NamedTuple):
    """A unit as `factor * 10**exponent` of the one that a scenario has: Mbit/s, or ms.

    Attributes:
        exponent: the power of ten.
        factor: a power of two.
    """

    exponent: int
    factor: int = 1


RATES: Final = {
    "bit/s": Unit(-6),
    "kbit/s": Unit(-3),
    "Mbit/s": Unit(0),
    "Gbit/s": Unit(3),
    "B/s": Unit(-6, 8),
    "kB/s": Unit(-3, 8),
    "MB/s": Unit(0, 8),
    "GB/s": Unit(3, 8),
    "KiB/s": Unit(-6, 8 << 10),
    "MiB/s": Unit(-6, 8 << 20),
    "GiB/s": Unit(-6, 8 << 30),
}
"""By their names in errors."""

TIMES: Final = {"s": Unit(3), "ms": Unit(0), "us": Unit(-3), "ns": Unit(-6)}
"""The same of times."""

_RATE: Final = re.compile(
    r"(?P<prefix>(?:[kKmMgG]i?)?)(?:(?P<bits>b|(?i:bits?))(?:/(?i:s|secs?|seconds?)|ps)"
    r"|(?:B|(?i:bytes?))/(?i:s|secs?|seconds?))"
)
"""`b` and `B` differ. `MBps` is none: some write it for bits, others for bytes."""

_TIME_WORDS: Final = {
    "s": ("s", "sec", "secs", "second", "seconds"),
    "ms": ("ms", "MS", "msec", "msecs", "millis", "millisecond", "milliseconds"),
    "us": ("us", "µs", "μs", "usec", "usecs", "micros", "microsecond", "microseconds"),
    "ns": ("ns", "nsec", "nsecs", "nanos", "nanosecond", "nanoseconds"),
}


def name_of_rate(text: str) -> str | None:
    """Return the name in `RATES` of a unit as people write it; None if it is none.

    Prefixes are of powers of 1000, those with an i of powers of 1024. A lower-case m is mega: no rate is in milli.
    """
    found = _RATE.fullmatch(text)
    if not found:
        return None
    prefix = found["prefix"]
    scale = {"": "", "k": "k", "m": "M", "g": "G"}[prefix[:1].lower()] if "i" not in prefix else prefix[0].upper() + "i"
    name = f"{scale}{'bit' if found['bits'] else 'B'}/s"
    return name if name in RATES else None


def name_of_time(text: str) -> str | None:
    """Return the name in `TIMES` of a unit as people write it; None if it is none."""
    lowered = text if len(text) <= 2 else text.lower()
    return next((name for name, words in _TIME_WORDS.items() if lowered in words), None)


def units_in(text: str) -> list[str]:
    """Return all words of a column's name that can be units: `Mbit/s` and `s` of `rate in Mbit/s`."""
    text = re.sub(r"[\s_]*(?<![A-Za-z])per(?![A-Za-z])[\s_]*", "/", text)
    return [*re.findall("[A-Za-z]+/[A-Za-z]+", text), *re.findall("[A-Za-zµμ]+", text)]


def in_unit(text: str, unit: Unit) -> float:
    """Return the number that is nearest to a decimal number in a unit: `0.14` s are 140.0 ms exactly.

    Raises:
        ValueError: it is no number.
    """
    number = float(text)
    if unit.exponent and math.isfinite(number):
        mantissa, _, power = text.lower().partition("e")
        number = float(f"{mantissa}e{int(power or 0) + unit.exponent}")
    return number * unit.factor
