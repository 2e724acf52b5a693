"""Damage inputs at random: bytes, and values of JSON."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any, Final


def damage_bytes(data: bytes, rng: random.Random) -> bytes:
    """Flip bits, overwrite, cut, repeat or insert bytes."""
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        at, length = rng.randrange(len(data) + 1), rng.choice([1, 1, 2, 4, 8, 64])
        filling = rng.choice([b"\0", b"\xff", b"\x7f", b"\x80", rng.randbytes(1)]) * length
        head, cut, tail = data[:at], data[at : at + length], data[at + length :]
        kind = rng.randrange(6)
        if kind == 0 and cut:
            data = head + bytes([cut[0] ^ 1 << rng.randrange(8)]) + cut[1:] + tail
        elif kind == 1:
            data = head + filling + tail
        elif kind == 2:
            data = head
        elif kind == 3:
            data = head + tail
        elif kind == 4:
            data = head + filling + cut + tail
        else:
            data = head + cut * rng.choice([2, 100]) + tail
    return data


_VALUES: Final[list[Any]] = [
    None, True, False, 0, 1, -1, 2, 10**6, 2**31, 2**63, 2**64, -(2**63), 10**400, 0.0, -0.0, 0.5, 1e-300, 1e300, -1e-9,
    float("nan"), float("inf"), float("-inf"), "", "1", "nan", "bbr", "agent", "policy", "x" * 300, "\0", "\ud800", "/",
    [], [[]], [1], [[0, 1], [1, 2]], [[1, 2], [0, 1]], [[0]], {}, {"": None}, {"a": {"a": {}}}, "scripted:backlog",
]  # fmt: skip


def damage_json(data: bytes, rng: random.Random) -> bytes:
    """Replace, remove, copy or add values in JSON text."""
    content = json.loads(data)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        places = list(_places(content))
        if not places:
            break
        holder, key = rng.choice(places)
        value = copy.deepcopy(rng.choice(_VALUES))
        old = holder[key]
        kind = rng.randrange(6)
        if kind == 0:
            del holder[key]
        elif kind == 1 and isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[rng.randrange(len(holder))]))
        elif kind == 1:
            holder[rng.choice(["", "a", str(key).upper(), *holder])] = value
        elif kind == 2 and isinstance(old, int | float) and not isinstance(old, bool):
            holder[key] = rng.choice([-old, old + 1, old * 10**6, str(old), [old]])
        elif kind == 3:
            holder[key] = copy.deepcopy(rng.choice([h[k] for h, k in places]))
        else:
            holder[key] = value
    return json.dumps(content).encode()


def _places(content: Any) -> Iterator[tuple[Any, Any]]:
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in items:
        yield content, key
        yield from _places(value)
