"""Properties that a policy can be asked for: `CONDITION, CONDITION -> CLAIM` (docs/certificates.md)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from bbrgym import _controllers
from bbrgym.checks import check_name
from bbrgym.envs.observation import Feature

QUANTITIES: Final = ("cwnd_gain", "excess_packets", "pacing_gain")
"""What a claim can be about; `excess_packets` is what the window asked for has above one BDP."""
LAST: Final = "last"
"""In place of a number: what the policy chose last."""
SOUGHT: Final = "?"
"""In place of a number: the best one that can be proved."""

BY_PREFERENCE: Final = "_by_preference"
"""How the names of features end that are multiplied by the preference less its default."""


@dataclass(frozen=True)
class Comparison:
    """`name >= number`, `<=` or `=`.

    Attributes:
        name: of a quantity or a feature.
        sign: `>=`, `<=` or `=`.
        number: it may be `LAST`; None where it is sought.
    """

    name: str
    sign: str
    number: float | str | None

    def __str__(self) -> str:
        number = SOUGHT if self.number is None else self.number
        return f"{self.name} {self.sign} {number if isinstance(number, str) else f'{number:.4g}'}"


@dataclass(frozen=True)
class Property:
    """A claim, under all of the conditions."""

    conditions: tuple[Comparison, ...]
    claim: Comparison

    def __str__(self) -> str:
        conditions = ", ".join(map(str, self.conditions))
        return f"{conditions} -> {self.claim}" if conditions else str(self.claim)


def read_property(text: str) -> Property:
    """Read `CONDITION, CONDITION -> CLAIM`, or a claim alone.

    A condition compares a feature with a number (`log_backlog >= 4`), or what it is the logarithm of
    (`backlog >= 15`). A claim compares one of `QUANTITIES` with a number or with `last`. One number may be `?`.

    Raises:
        ValueError: it is none.
    """
    before, arrow, after = text.rpartition("->")
    conditions = read_conditions(before) if arrow else ()
    claim = _read_comparison(after)
    check_name("quantity of a claim", claim.name, QUANTITIES)
    if claim.sign == "=":
        raise ValueError(f"a claim must have <= or >=, got '{claim}'")
    if [one.number for one in (*conditions, claim)].count(None) > 1:
        raise ValueError(f"a property can have one '{SOUGHT}', got {text!r}")
    return Property(conditions, claim)


def read_conditions(text: str) -> tuple[Comparison, ...]:
    """Read `CONDITION, CONDITION`.

    Raises:
        ValueError: it is none.
    """
    conditions = tuple(map(_read_comparison, text.split(",")))
    for condition in conditions:
        if condition.number == LAST:
            raise ValueError(f"only a claim can have '{LAST}', got '{condition}'")
    return conditions


_COMPARISON: Final = re.compile(r"\s*(\w+)\s*(<=|>=|=)\s*(\S+)\s*")


def _read_comparison(text: str) -> Comparison:
    found = _COMPARISON.fullmatch(text)
    if found is None:
        raise ValueError(
            "a property must be like 'cwnd_gain <= 4' or 'backlog >= 20, loss_rate = 0 -> cwnd_gain <= 2', with "
            f"<=, >= or =, got {text.strip()!r}"
        )
    name, sign, number = found.groups()
    if number == LAST:
        return Comparison(name, sign, LAST)
    if number == SOUGHT:
        if sign == "=":
            raise ValueError(f"'{SOUGHT}' needs <= or >=, got {text.strip()!r}")
        return Comparison(name, sign, None)
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{name} must be compared with a number, '{SOUGHT}' or '{LAST}', got {number!r}")
    return Comparison(name, sign, value)


class Scale(NamedTuple):
    """What a feature makes of its quantity.

    Attributes:
        prefix: how its name begins, before the quantity's.
        of: the feature, before it is clipped, of the quantity.
        back: the quantity of the feature.
    """

    prefix: str
    of: Callable[[float], float]
    back: Callable[[float], float]


def scale(feature: Feature) -> Scale:
    """Return what a feature makes of its quantity, by the outermost function of its formula."""
    if not feature.name.endswith(BY_PREFERENCE):
        for begin, found in _SCALES.items():
            if f"return {begin}" in feature.code and feature.name.startswith(found.prefix):
                return found
    return Scale("", float, float)


_SCALES: Final = {
    "Log2(1.0 + ": Scale("log_", lambda x: _controllers.log2(1.0 + x), lambda y: 2.0**y - 1.0),
    "Log2(": Scale("log_", _controllers.log2, lambda y: 2.0**y),
    "Log10(": Scale("log_", _controllers.log10, lambda y: 10.0**y),
    "Asinh(": Scale("asinh_", _controllers.asinh, math.sinh),
}
"""By how a formula begins."""


def quantity(feature: Feature) -> str:
    """Return the name of what a feature is the logarithm of; its own name if of nothing."""
    return feature.name.removeprefix(scale(feature).prefix)
