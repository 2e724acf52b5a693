"""Checks of plain values: what passes, and what the errors say."""

import argparse
import dataclasses
import json
import math
import re
import typing
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bbrgym import Flow, Scenario
from bbrgym.agents.config import TrainConfig
from bbrgym.checks import check_integer, check_keys, check_name, check_number, check_seeds, integer
from bbrgym.envs.observation import Observation
from bbrgym.executors import EXECUTORS


@pytest.mark.parametrize(
    ("check", "arguments", "bounds", "message"),
    [
        (check_number, ("x", -(10**400)), {"below": 1}, f"x must be a finite number < 1, got -1{'0' * 400}"),
        (
            check_keys,
            ("train", {"step": 1}, ["steps", "seed"]),
            {},
            "train: unknown key 'step' (did you mean 'steps'?); known: steps, seed",
        ),
        (check_keys, ("train", [1], ["steps"]), {}, "train must be a mapping with keys of steps, got [1]"),
        (
            check_name,
            ("algorithm", "bbr9", ["bbr", "cubic"]),
            {},
            "unknown algorithm 'bbr9' (did you mean 'bbr'?); known: bbr, cubic",
        ),
        *[
            (
                check_name,
                ("algorithm", name, ["bbr", "bbr-acw", "f-bbr2", "parking_lot"]),
                {},
                f"unknown algorithm {name!r} (did you mean {meant!r}?); known: bbr, bbr-acw, f-bbr2, parking_lot",
            )
            for name, meant in {
                "BBR": "bbr",
                "bbr_acw": "bbr-acw",
                "BBR ACW": "bbr-acw",
                "F_BBR2": "f-bbr2",
                "Parking-Lot": "parking_lot",
            }.items()
        ],
        (check_name, ("algorithm", "x", ["bbr"]), {}, "unknown algorithm 'x'; known: bbr"),
        (check_number, ("rate_mbps", -1), {"above": 0}, "rate_mbps must be > 0, got -1"),
        (check_number, ("x", math.inf), {"at_least": 0}, "x must be a finite number >= 0, got inf"),
        (check_number, ("x", 0), {"above": 0, "or_none": True}, "x must be > 0 or null, got 0"),
        (check_number, ("warmup", 1.5), {"at_least": 0, "below": 1}, "warmup must be in [0, 1), got 1.5"),
        (check_integer, ("n", 2.5), {"at_least": 1}, "n must be an integer >= 1, got 2.5"),
        (check_integer, ("seed", -1), {"at_least": 0, "below": 2**31}, "seed must be an integer in [0, 2**31), got -1"),
        *[
            (
                check_seeds,
                (seeds,),
                {},
                f"seeds must be a list of different integers >= 0, like [1, 2, 3], got {seeds!r}",
            )
            for seeds in ([], [1, 1], [1, 1.0], [-1], [1.5], [True], "12", 3, None)
        ],
    ],
)
def test_errors_say_what_must_hold_and_what_was_given(
    check: Callable[..., None], arguments: tuple[Any, ...], bounds: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        check(*arguments, **bounds)


def test_an_integral_float_is_an_integer() -> None:
    """YAML reads 1e6 as a float."""
    for value in (1e6, 1000000, np.float64(1e6), np.float32(1e6), np.int64(1000000)):
        found = check_integer("n", value, at_least=1, below=2**31)
        assert (found, type(found)) == (1000000, int)
    assert check_integer("n", 2**64 - 1) == 2**64 - 1
    assert check_integer("n", 10**400) == 10**400
    seeds = check_seeds((1.0, 2e3, np.int64(7)))
    assert (seeds, {type(seed) for seed in seeds}) == ([1, 2000, 7], {int})


@pytest.mark.parametrize("kind", [Scenario, Flow, TrainConfig, Observation, *EXECUTORS.values()])
def test_every_integer_field_takes_an_integral_float_and_keeps_an_integer(kind: Any) -> None:
    hints = typing.get_type_hints(kind)
    names = [f.name for f in dataclasses.fields(kind) if int in (hints[f.name], *typing.get_args(hints[f.name]))]
    assert names
    for name in names:
        default = getattr(kind(), name)
        given = 100 if default is None else default
        made, whole = kind(**{name: float(given)}), kind(**{name: given})
        assert (getattr(made, name), type(getattr(made, name))) == (given, int), name
        assert json.dumps(dataclasses.asdict(made)) == json.dumps(dataclasses.asdict(whole))
        with pytest.raises(ValueError, match=f"{name} must be an integer .*, got 100.5"):
            kind(**{name: 100.5})


def test_integers_of_a_command_line() -> None:
    assert [integer(text) for text in ("100", "1e6", "-3", "2.0", str(2**63))] == [100, 10**6, -3, 2, 2**63]
    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("--bytes", type=integer)
    for text in ("1.5", "many", "inf", ""):
        with pytest.raises(argparse.ArgumentError, match=f"argument --bytes: invalid integer value: '{text}'"):
            parser.parse_args(["--bytes", text])
