"""The fields of scenarios and flows: defaults, bounds and meaning. The list itself is `envs/scenario.def`."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from bbrgym import _native
from bbrgym.checks import Bounds, as_python, bounds_text, check_integer, check_name, check_number


@dataclass(frozen=True)
class Field:
    """A field of a scenario or of a flow, as envs/scenario.def has it.

    Args:
        default: its value if a scenario does not say it.
        kind: what its values are: a number, an integer, one of `names`, a schedule (pairs of a time in s and a number),
            or something else, which has a check of its own.
        is_optional: whether None is a value.
        bounds: the bounds of the number, or of the numbers of the schedule.
        names: the names that it can be.
        meaning: what it is, with its unit.
    """

    default: Any
    kind: Literal["number", "integer", "name", "schedule", ""]
    is_optional: bool
    bounds: Bounds
    names: tuple[str, ...]
    meaning: str

    @classmethod
    def of(cls, entry: tuple[Any, Any, bool, Mapping[str, float], str, str]) -> Field:
        """Make a field of an entry of `_native.scenario_fields` or `_native.flow_fields`."""
        default, kind, is_optional, numbers, names, meaning = entry
        in_kind = {name: int(bound) if bound.is_integer() else bound for name, bound in numbers.items()}
        return cls(
            default=tuple(default) if isinstance(default, list) else default,
            kind=kind,
            is_optional=is_optional,
            bounds=Bounds(**in_kind),  # type: ignore[typeddict-item]
            names=tuple(names.split(", ")) if names else (),
            meaning=meaning,
        )

    def range(self) -> str:
        """Return the values that it can have in words, as errors say them: `in [0.01, 10000] or null`; "" for any."""
        text = ", ".join(self.names) or bounds_text(**self.bounds)
        return f"{text} or null" if text and self.is_optional else text

    def checked(self, name: str, value: Any) -> Any:
        """Return a value as the field keeps it: an integer as int, a schedule as a tuple of pairs of floats.

        Raises:
            ValueError: naming the bad value and the good ones.
        """
        if self.kind == "number":
            check_number(name, value, or_none=self.is_optional, **self.bounds)
            return as_python(value)
        if self.kind == "integer":
            return check_integer(name, value, or_none=self.is_optional, **self.bounds)  # type: ignore[call-overload]
        if self.kind == "schedule":
            return _schedule(name, value, self.bounds)
        if self.kind == "name" and not self.is_optional:
            check_name(name, value, self.names)
        elif self.kind == "name" and value not in (*self.names, None):
            raise ValueError(f"{name} must be {self.range()}, got {value!r}")
        return value


SCENARIO_FIELDS: Final = {name: Field.of(entry) for name, entry in _native.scenario_fields().items()}
"""The fields of a scenario by name, in their order."""

FLOW_FIELDS: Final = {name: Field.of(entry) for name, entry in _native.flow_fields().items()}
"""The fields of a flow by name, in their order."""

_OWN_DEFAULTS: Final = ("parameters", "flows")
"""Fields whose default the dataclass makes itself: engines are always told of them."""


def check_fields(record: Any, fields: Mapping[str, Field]) -> None:
    """Check the fields of a frozen dataclass one by one, and store their values as the fields keep them.

    Raises:
        ValueError: naming the bad value and the good ones.
    """
    kind = type(record)
    for name, field in fields.items():
        value = getattr(record, name)
        if field.kind and value is not getattr(kind, name):  # a default is good
            kept = field.checked(name, value)
            if kept is not value:
                object.__setattr__(record, name, kept)


def check_is_of_list(kind: type, fields: Mapping[str, Field]) -> None:
    """Check that a dataclass has the fields of envs/scenario.def, in their order and with their defaults.

    Raises:
        TypeError: naming the field that one of them lacks or has otherwise.
    """
    there = f"{kind.__name__} (envs/scenario.py)"
    here = {field.name: field.default for field in dataclasses.fields(kind)}
    for name, field in fields.items():
        if name not in here:
            raise TypeError(f"envs/scenario.def has the field {name!r}, which {there} lacks: add it there")
        if name not in _OWN_DEFAULTS and here[name] != field.default:
            raise TypeError(f"{name} is {field.default!r} by default in envs/scenario.def, {here[name]!r} in {there}")
    for name in here:
        if name not in fields:
            raise TypeError(
                f"{there} has the field {name!r}, which the built envs/scenario.def lacks: add it and build"
            )
    if list(here) != list(fields):
        raise TypeError(f"{there} must have its fields in the order of envs/scenario.def: {', '.join(fields)}")


def _schedule(name: str, schedule: Any, bounds: Bounds) -> tuple[tuple[float, float], ...]:
    """Return a schedule's pairs of a time and a value as floats."""
    try:
        pairs = tuple((float(time), float(value)) for time, value in schedule)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} must be pairs of numbers, got {schedule!r}") from None
    times = [time for time, _ in pairs]
    is_in_range = all(0 <= time < math.inf for time in times)
    is_rising = all(time < later for time, later in itertools.pairwise(times))
    if not (is_in_range and is_rising):
        raise ValueError(f"{name} must be pairs with rising times >= 0, got {list(pairs)!r}")
    for _, value in pairs:
        check_number(f"values in {name}", value, **bounds)
    return pairs
