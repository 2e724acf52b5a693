"""A Python callable that steers flows: it is imported, called with rows, and what it returns is checked."""

from __future__ import annotations

import difflib
import importlib
import math
import os
import reprlib
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from numbers import Real
from pathlib import Path
from typing import Any, Final

import bbrgym
from bbrgym.checks import check_number
from bbrgym.confinement import NeverReturnsError
from bbrgym.envs.columns import FLOW_COLUMNS
from bbrgym.envs.engine import Rows
from bbrgym.envs.trace import Policy

IMPORT_SECONDS: Final = 10.0
DECISION_SECONDS: Final = 2.0
"""How much processor time it may take to import the callable's module or to make its object, and to decide once."""

GAINS: Final = ("cwnd_gain", "pacing_gain")
AMOUNTS: Final = {"cwnd_packets": "bdp_packets", "pacing_rate_mbps": "max_bandwidth_mbps"}
"""What a callable may return, and the columns that have the model of the path."""

WITHOUT_MODEL: Final = (2.0, 1.0)
"""The gains of a window and a rate as long as the flow has no model of its path."""

Limit = Callable[[float, str], AbstractContextManager[None]]
"""`bbrgym.confinement.TimeLimit.within`."""


class Decider:
    """A Python callable by its name.

    Args:
        function: `module:name`, which is looked up from the current folder first. A class is made anew for each flow of
            a run, so that it can remember.
        limit: what ends it if it does not return; by default nothing does.

    Raises:
        ValueError: there is no such callable, or its module cannot be imported.
    """

    def __init__(self, function: str, limit: Limit = lambda seconds, what: nullcontext()) -> None:
        self._limit = limit
        module, _, name = function.partition(":")
        if "" not in sys.path:
            sys.path.insert(0, "")
        try:
            with limit(IMPORT_SECONDS, f"importing {module!r}"):
                imported = importlib.import_module(module)
        except MemoryError:
            raise
        except BaseException as error:  # also what a script does that ends itself
            raise ValueError(f"there is no callable {function!r}: {describe(error)}") from error
        if not hasattr(imported, name):
            raise ValueError(f"there is no callable {function!r}: {_lacks(imported, name)}")
        self._found = getattr(imported, name)
        if not callable(self._found):
            raise ValueError(f"{function!r} must be a callable, got {reprlib.repr(self._found)}")

    def policy(self) -> Policy:
        """Return the `policy` of one run of `simulate`.

        The callable gets the flow's row of the last step, {column: value} (`bbrgym.envs.columns`), and `flow` and
        `time_s`, before each step. `gains_of` says what it may return.

        Returns:
            The policy. It raises ValueError for anything else that the callable returns, and CallableError for what the
            callable raises.
        """
        made: dict[int, Callable[[dict[str, float]], Any]] = {}

        def policy(flow: int, rows: Rows) -> tuple[float, float]:
            row = dict(zip(FLOW_COLUMNS, rows.flows[flow].tolist(), strict=True))
            try:
                if flow not in made:
                    with self._limit(IMPORT_SECONDS, "making an object"):
                        made[flow] = self._found() if isinstance(self._found, type) else self._found
                with self._limit(DECISION_SECONDS, "a decision"):
                    chosen = made[flow]({**row, "flow": flow, "time_s": rows.time_s})
            except MemoryError:
                raise
            except Exception as error:
                raise CallableError(describe(error)) from error
            try:
                return gains_of(chosen, row)
            except ValueError as error:
                shown = reprlib.repr(chosen)
                raise ValueError(f"flows[{flow}]: the callable chose {shown} at {rows.time_s:g} s: {error}") from error

        return policy


class CallableError(Exception):
    """A callable has raised an error: `describe` says which, and where."""


def gains_of(chosen: Any, row: Mapping[str, float]) -> tuple[float, float]:
    """Return the gains that a callable chose.

    Args:
        chosen: a pair (cwnd_gain, pacing_gain), or a mapping with `cwnd_packets` and `pacing_rate_mbps`. Numbers can be
            of Python or NumPy, or an array of them. A window and a rate are divided by what the flow's model has.
        row: the flow's row. Without a model in it, a window and a rate become the gains `WITHOUT_MODEL`, even if they
            are not finite, as what follows from an empty row is not.

    Raises:
        ValueError: it is something else, or a number is not finite or not above 0.
    """
    if isinstance(chosen, Mapping):
        if set(chosen) != set(AMOUNTS):
            raise ValueError(f"a mapping must have the keys {' and '.join(AMOUNTS)}")
        amounts = {name: _number(name, chosen[name]) for name in AMOUNTS}
        model = {name: row[column] for name, column in AMOUNTS.items()}
        if not all(value > 0 for value in model.values()):
            return WITHOUT_MODEL
        cwnd_gain, pacing_gain = (_checked(name, value) / model[name] for name, value in amounts.items())
        return cwnd_gain, pacing_gain
    values = list(_entries(chosen))
    if len(values) != len(GAINS):
        raise ValueError(f"it must be the pair {' and '.join(GAINS)}, or a mapping with {' and '.join(AMOUNTS)}")
    cwnd_gain, pacing_gain = (_checked(name, _number(name, value)) for name, value in zip(GAINS, values, strict=True))
    return cwnd_gain, pacing_gain


def describe(error: BaseException) -> str:
    """Return an error in somebody else's code in words, with its place: `KeyError: 'nope' at mine.py:7`."""
    if isinstance(error, CallableError):
        return str(error)
    kind = [] if isinstance(error, NeverReturnsError) else [type(error).__name__]
    where = _place(error)
    return ": ".join(filter(None, [*kind, str(error)])) + (f" at {where}" if where else "")


def _entries(chosen: Any) -> Iterator[Any]:
    """Yield the entries of a sequence or an array; none of what has no order, and at most three."""
    if isinstance(chosen, str | bytes) or not hasattr(chosen, "__getitem__"):
        return
    try:
        for place in range(min(len(chosen), len(GAINS) + 1)):
            yield chosen[place]
    except Exception:  # of a class of theirs
        return


def _number(name: str, value: Any) -> float:
    """Return a real number as a float, whatever it is."""
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()  # of NumPy or PyTorch
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ValueError(f"{name} must be a finite number > 0, got {reprlib.repr(value)}")
    try:
        return float(value)
    except OverflowError:  # an integer beyond all floats
        return math.inf


def _checked(name: str, value: float) -> float:
    check_number(name, value, above=0)
    return value


def _lacks(module: Any, name: str) -> str:
    names = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
    own = [key for key in names if getattr(getattr(module, key), "__module__", None) == module.__name__] or names
    close = difflib.get_close_matches(name, own, n=1)
    hint = f" (did you mean {close[0]!r}?)" if close else ""
    return f"{module.__name__!r} has no {name!r}{hint}; it has: {', '.join(own) or 'no callables'}"


def _place(error: BaseException) -> str:
    """Return the file and the line of an error: the innermost of the current folder, or else of all but our own."""
    ours = (str(Path(bbrgym.__file__).parent), str(importlib.__file__), "<frozen importlib")
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(ours)]
    here = Path.cwd()
    libraries = [Path(sys.prefix), Path(sys.base_prefix)]
    for frame in reversed(frames):
        path = Path(os.path.abspath(frame.filename))
        if path.is_relative_to(here) and not any(path.is_relative_to(one) for one in libraries):
            return f"{path.relative_to(here)}:{frame.lineno}"
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
