"""Checks of plain values, as they come from YAML, a command line or a caller.

Every error is a ValueError that says what must hold and what was given.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any, Final, Literal, TypedDict, TypeVar, Unpack, overload

_NUMBERS: Final = (float, int, Real)  # NumPy's are Real; the others are found faster
_INTEGERS: Final = (int, Integral)
Record = TypeVar("Record")


def check_keys(what: str, given: object, known: Iterable[str]) -> None:
    """Check that `given`, which errors call `what`, is a mapping whose keys are all `known`.

    Raises:
        ValueError: `train: unknown key 'step' (did you mean 'steps'?); known: steps, seed`.
    """
    names = list(known)
    if not isinstance(given, Mapping):
        raise ValueError(f"{what} must be a mapping with keys of {', '.join(names)}, got {given!r}")
    for key in given:
        try:
            check_name("key", key, names)
        except ValueError as error:
            raise ValueError(f"{what}: {error}") from None


def read_record(kind: type[Record], what: str, given: Any) -> Record:
    """Make a dataclass of a mapping, which errors call `what`, with some of its fields as keys.

    Raises:
        ValueError: a key is unknown, or the dataclass refuses a value.
    """
    check_keys(what, given, [field.name for field in dataclasses.fields(kind)])  # type: ignore[arg-type]
    return kind(**given)


def explains_fields(kind: type[Record]) -> type[Record]:
    """Let a dataclass say which field was meant by a keyword that is none: a decorator above `dataclass`.

    Its TypeError is then `Scenario got an unexpected keyword argument 'rate' (did you mean 'rate_mbps'?); known:
    rate_mbps, duration_s`. It begins as Python's own does, which libraries look for.
    """
    make = kind.__init__
    known = [field.name for field in dataclasses.fields(kind) if field.init]  # type: ignore[arg-type]
    known_set = frozenset(known)

    @functools.wraps(make)
    def make_explained(self: Record, *arguments: Any, **fields: Any) -> None:
        for name in fields.keys() - known_set:
            raise TypeError(
                f"{kind.__name__} got an unexpected keyword argument {name!r}{did_you_mean(name, known)}; "
                f"known: {', '.join(known)}"
            )
        make(self, *arguments, **fields)

    kind.__init__ = make_explained  # type: ignore[assignment]
    return kind


def read_fields(kind: type, what: str, plain: Any, keys: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the arguments of a dataclass that a plain mapping gives, checked by the types of the fields.

    A `str` must be a text, a `tuple[str, ...]` a list of texts or one text, another tuple a list, a `float` a finite
    number. Other types are not checked. What is empty or null has the field's default.

    Args:
        kind: the dataclass, of a module with `from __future__ import annotations`.
        what: what the mapping is, for errors: `a figure`.
        plain: the mapping.
        keys: {field: its key in the mapping}, where they differ.

    Raises:
        ValueError: the message names the bad key or value, and what is valid.
    """
    fields = {(keys or {}).get(field.name, field.name): field for field in dataclasses.fields(kind)}
    check_keys(what, plain, fields)
    arguments = {}
    for key, field in fields.items():
        value = plain.get(key)
        if value is None or value in ("", [], {}):
            if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
                raise ValueError(f"{what} has no {key}")
            continue
        declared = str(field.type).removesuffix(" | None")
        if declared == "tuple[str, ...]" and isinstance(value, str):
            value = [value]
        if declared.startswith("tuple") and not isinstance(value, list | tuple):
            raise ValueError(f"{what} has {key}={value!r}: it must be a list")
        texts = value if declared == "tuple[str, ...]" else [value]
        for text in texts:
            if declared in ("tuple[str, ...]", "str") and not isinstance(text, str):
                raise ValueError(f"{what} has {text!r} in {key}: it must be a text (in quotes, in YAML)")
        if declared == "float":
            check_number(f"{what}: {key}", value)
            value = float(value)
        arguments[field.name] = tuple(value) if declared.startswith("tuple") else value
    return arguments


def check_name(what: str, name: object, known: Iterable[str], *, of: str = "") -> None:
    """Check that `name` is one of the `known` names; errors begin with what it is `of`.

    Raises:
        ValueError: `unknown algorithm 'bbr9' (did you mean 'bbr'?); known: bbr, cubic`;
            `a figure: unknown kind 'pie'; known: bars, lines, time`.
    """
    names = list(known)
    if name not in names:
        raise ValueError(
            f"{of}{': ' if of else ''}unknown {what} {name!r}{did_you_mean(name, names)}; "
            f"known: {', '.join(names) or 'none'}"
        )


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return ` (did you mean 'bbr'?)` for the known name that is closest to another name; nothing if none is close."""
    close = close_name(str(name), known)
    return "" if close is None else f" (did you mean {close!r}?)"


def close_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is closest to another name, whatever their case, hyphens, underscores and blanks."""
    of_folded = {_folded(one): one for one in reversed([*known])}
    close = difflib.get_close_matches(_folded(name), of_folded, n=1)
    return of_folded[close[0]] if close else None


def _folded(name: str) -> str:
    return name.casefold().replace("_", "-").replace(" ", "-")


def is_number(value: object) -> bool:
    """Return whether `value` is a finite number (of Python or NumPy) and not a bool."""
    if not isinstance(value, _NUMBERS) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond all floats
        return False


def as_python(number: Any) -> Any:
    """Return a number of NumPy as Python's; any other value as it is."""
    return number.item() if getattr(number, "ndim", None) == 0 else number


class Bounds(TypedDict, total=False):
    """Bounds of a number."""

    above: float
    at_least: float
    below: float
    at_most: float


def check_number(name: str, value: object, *, or_none: bool = False, **bounds: Unpack[Bounds]) -> None:
    """Check that `value` is a finite number (of Python or NumPy), not a bool, within the bounds.

    Raises:
        ValueError: `rate_mbps must be > 0, got -1`; `warmup must be in [0, 1), got 1.5`.
    """
    if or_none and value is None:
        return
    kind = "" if is_number(value) else "a finite number"
    _check_range(name, value, is_kind=not kind, kind=kind, or_none=or_none, **bounds)


@overload
def check_integer(name: str, value: object, *, or_none: Literal[True], **bounds: Unpack[Bounds]) -> int | None: ...
@overload
def check_integer(name: str, value: object, *, or_none: Literal[False] = False, **bounds: Unpack[Bounds]) -> int: ...
def check_integer(name: str, value: Any, *, or_none: bool = False, **bounds: Unpack[Bounds]) -> int | None:
    """Return `value` as an int. It must be a whole number (of Python or NumPy), not a bool, within the bounds.

    YAML has `1e6` as a float, which is an integer here.

    Raises:
        ValueError: `n_envs must be an integer >= 1, got 0`; `seed must be an integer in [0, 2**31), got -1`.
    """
    if or_none and value is None:
        return None
    is_integer = isinstance(value, _INTEGERS) or (is_number(value) and value == int(value))
    is_integer = is_integer and not isinstance(value, bool)
    _check_range(name, value, is_kind=is_integer, kind="an integer", or_none=or_none, **bounds)
    return int(value)


def integer(text: str) -> int:
    """Return the integer that a command line's argument says, as `100` or `1e6`; the `type` of an argparse argument.

    Raises:
        ValueError: it is no integer.
    """
    return int(text) if text.lstrip("+-").isdecimal() else check_integer("the argument", float(text))


def read_parameters(settings: Iterable[str]) -> dict[str, float]:
    """Return the parameters of an algorithm that a command line gives as `name=number`.

    Raises:
        ValueError: one is no such setting, or is given twice.
    """
    found: dict[str, float] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not (name and equals):
            raise ValueError(f"give parameters as name=number, got {setting!r}")
        if name in found:
            raise ValueError(f"parameter {name} must be given once, got {found[name]:g} and {text}")
        try:
            found[name] = float(text)
        except ValueError:
            raise ValueError(f"parameter {name} must be a number, got {text!r}") from None
        check_number(f"parameter {name}", found[name])
    return found


def read_groups(settings: Iterable[str], groups: Iterable[str]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return the values that a command line gives as `GROUP.NAME=VALUE`, in YAML, by group, and its other settings.

    `GROUP=TEXT` is the `name` of a group.

    Raises:
        ValueError: a value is no YAML.
    """
    import yaml  # which most commands do not need

    found: dict[str, dict[str, Any]] = {group: {} for group in groups}
    rest = []
    for setting in settings:
        key, equals, text = setting.partition("=")
        group, dot, name = key.partition(".")
        if group not in found or not equals or (dot and not name):
            rest.append(setting)
        elif not dot:
            found[group]["name"] = text
        else:
            try:
                found[group][name] = yaml.safe_load(text)
            except yaml.YAMLError as error:
                raise ValueError(f"{setting}: {error}") from error
    return found, rest


def keep_integers(record: object, *names: str, prefix: str = "", **bounds: Any) -> None:
    """Check fields of a frozen dataclass by `check_integer`, and store them as int; errors name them after a prefix."""
    for name in names:
        object.__setattr__(record, name, check_integer(prefix + name, getattr(record, name), **bounds))


def check_seeds(value: object) -> list[int]:
    """Return the seeds of a list or tuple, at least one, which must be different integers >= 0."""
    try:
        seeds = [check_integer("seeds", seed, at_least=0) for seed in value] if isinstance(value, list | tuple) else []
    except ValueError:
        seeds = []
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds must be a list of different integers >= 0, like [1, 2, 3], got {value!r}")
    return seeds


def _check_range(
    name: str,
    value: Any,
    is_kind: bool,
    kind: str,
    or_none: bool,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
) -> None:
    if (
        is_kind
        and (above is None or value > above)
        and (at_least is None or value >= at_least)
        and (below is None or value < below)
        and (at_most is None or value <= at_most)
    ):
        return
    bounds = bounds_text(above=above, at_least=at_least, below=below, at_most=at_most)
    expected = " ".join(filter(None, (kind, bounds))) + (" or null" if or_none else "")
    raise ValueError(f"{name} must be {expected}, got {value!r}")


def bounds_text(
    above: float | None = None, at_least: float | None = None, below: float | None = None, at_most: float | None = None
) -> str:
    """Return bounds in words, as errors say them: `in [0, 1)`, `> 0`; "" if there are none."""
    lower = ("(", ">", above) if above is not None else ("[", ">=", at_least)
    upper = (")", "<", below) if below is not None else ("]", "<=", at_most)
    if lower[2] is not None and upper[2] is not None:
        return f"in {lower[0]}{_show(lower[2])}, {_show(upper[2])}{upper[0]}"
    return "".join(f"{sign} {_show(bound)}" for _, sign, bound in (lower, upper) if bound is not None)


def _show(bound: float) -> str:
    is_power_of_two = isinstance(bound, int) and bound >= 2**16 and bound & (bound - 1) == 0
    return f"2**{int(bound).bit_length() - 1}" if is_power_of_two else f"{bound:g}"
