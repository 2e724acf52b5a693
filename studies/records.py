"""Read what sources claim from YAML: frozen dataclasses, whose fields decide what is checked."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from bbrgym.checks import check_keys, check_name, check_number


def read_record(cls: Any, what: str, plain: Any, keys: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the arguments of a dataclass that a plain mapping gives, checked by the types of the fields.

    A `str` must be a text, a `tuple[str, ...]` a list of texts or one text, another tuple a list, a `float` a finite
    number. Other types are not checked. What is empty or null has the field's default.

    Args:
        cls: the dataclass, of a module with `from __future__ import annotations`.
        what: what the mapping is, for errors: `a figure`.
        plain: the mapping.
        keys: {field: its key in the file}, where they differ.

    Raises:
        ValueError: the message names the bad key or value, and what is valid.
    """
    fields = {(keys or {}).get(field.name, field.name): field for field in dataclasses.fields(cls)}
    check_keys(what, plain, fields)
    arguments = {}
    for key, field in fields.items():
        value = plain.get(key)
        if value is None or value in ("", [], {}):
            if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
                raise ValueError(f"{what} has no {key}")
            continue
        kind = str(field.type).removesuffix(" | None")
        if kind == "tuple[str, ...]" and isinstance(value, str):
            value = [value]
        if kind.startswith("tuple") and not isinstance(value, list | tuple):
            raise ValueError(f"{what} has {key}={value!r}: it must be a list")
        texts = value if kind == "tuple[str, ...]" else [value]
        for text in texts:
            if kind in ("tuple[str, ...]", "str") and not isinstance(text, str):
                raise ValueError(f"{what} has {text!r} in {key}: it must be a text (in quotes, in YAML)")
        if kind == "float":
            check_number(f"{what}: {key}", value)
            value = float(value)
        arguments[field.name] = tuple(value) if kind.startswith("tuple") else value
    return arguments


def check_one_of(what: str, key: str, value: object, known: Iterable[str]) -> None:
    """Check a name.

    Raises:
        ValueError: `a figure: unknown kind 'pie'; known: bars, lines, time`.
    """
    try:
        check_name(key, value, known)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None
