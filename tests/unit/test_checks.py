"""Checks of plain values: what passes, and what the errors say."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest

from bbrgym.checks import check_integer, check_keys, check_name, check_number, check_seeds


@pytest.mark.parametrize(
    ("check", "arguments", "bounds"),
    [
        (check_keys, ("train", {"steps": 1}, ["steps", "seed"]), {}),
        (check_name, ("algorithm", "bbr", ["bbr", "cubic"]), {}),
        (check_number, ("x", 0.5), {"above": 0, "below": 1}),
        (check_number, ("x", 1), {"at_least": 1, "at_most": 1}),
        (check_number, ("x", None), {"above": 0, "or_none": True}),
        (check_number, ("x", -3.0), {}),
        (check_integer, ("x", 2**31 - 1), {"at_least": 0, "below": 2**31}),
        (check_integer, ("x", None), {"or_none": True}),
        (check_seeds, ("seeds", (0, 7)), {}),
    ],
)
def test_good_values_pass(check: Callable[..., None], arguments: tuple[Any, ...], bounds: dict[str, Any]) -> None:
    check(*arguments, **bounds)


@pytest.mark.parametrize(
    ("check", "arguments", "bounds", "message"),
    [
        (check_number, ("x", -(10**400)), {"below": 1}, f"x must be a finite number < 1, got -1{'0' * 400}"),
        (check_keys, ("train", {"step": 1}, ["steps", "seed"]), {},
         "train: unknown key 'step' (did you mean 'steps'?); known: steps, seed"),
        (check_keys, ("train", {7: 1}, ["steps"]), {}, "train: unknown key 7; known: steps"),
        (check_keys, ("train", [1], ["steps"]), {}, "train must be a mapping with keys of steps, got [1]"),
        (check_name, ("algorithm", "bbr9", ["bbr", "cubic"]), {},
         "unknown algorithm 'bbr9' (did you mean 'bbr'?); known: bbr, cubic"),
        (check_name, ("algorithm", ["x"], []), {}, "unknown algorithm ['x']; known: none"),
        (check_number, ("rate_mbps", -1), {"above": 0}, "rate_mbps must be > 0, got -1"),
        (check_number, ("x", math.nan), {"above": 0}, "x must be a finite number > 0, got nan"),
        (check_number, ("x", math.inf), {"at_least": 0}, "x must be a finite number >= 0, got inf"),
        (check_number, ("x", "3"), {}, "x must be a finite number, got '3'"),
        (check_number, ("x", True), {"below": 2}, "x must be a finite number < 2, got True"),
        (check_number, ("x", 0), {"above": 0, "or_none": True}, "x must be > 0 or null, got 0"),
        (check_number, ("warmup", 1.5), {"at_least": 0, "below": 1}, "warmup must be in [0, 1), got 1.5"),
        (check_number, ("x", 1.5), {"above": 0, "at_most": 1}, "x must be in (0, 1], got 1.5"),
        (check_integer, ("n", 0), {"at_least": 1}, "n must be an integer >= 1, got 0"),
        (check_integer, ("n", 2.0), {"at_least": 1}, "n must be an integer >= 1, got 2.0"),
        (check_integer, ("n", False), {}, "n must be an integer, got False"),
        (check_integer, ("seed", -1), {"at_least": 0, "below": 2**31},
         "seed must be an integer in [0, 2**31), got -1"),
        *[
            (check_seeds, ("seeds", seeds), {},
             f"seeds must be a list of different integers >= 0, like [1, 2, 3], got {seeds!r}")
            for seeds in ([], [1, 1], [-1], [True], "12", 3, None)
        ],
    ],
)  # fmt: skip
def test_errors_say_what_must_hold_and_what_was_given(
    check: Callable[..., None], arguments: tuple[Any, ...], bounds: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        check(*arguments, **bounds)
