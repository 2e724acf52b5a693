"""A Python callable that steers flows: what it may return, and what is said of one that does anything else."""

import contextlib
import math
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bbrgym.benchmark.decider import CallableError, Decider, gains_of
from bbrgym.envs.engine import make_engine
from bbrgym.envs.scenario import Flow, Scenario

MODEL = {"bdp_packets": 20.0, "max_bandwidth_mbps": 10.0}
NO_MODEL = {"bdp_packets": 0.0, "max_bandwidth_mbps": 0.0}


@pytest.mark.parametrize(
    ("chosen", "gains"),
    [
        ((1.2, 1.0), (1.2, 1.0)),
        ([2, 1], (2.0, 1.0)),
        (np.array([1.5, 0.5]), (1.5, 0.5)),
        (np.array([2, 1], dtype=np.float32), (2.0, 1.0)),
        ((np.float32(0.5), np.array(3)), (0.5, 3.0)),
        ((Fraction(1, 2), 1), (0.5, 1.0)),
        ({"cwnd_packets": 40, "pacing_rate_mbps": 9.0}, (2.0, 0.9)),
        ({"cwnd_packets": np.float64(10), "pacing_rate_mbps": np.int64(5)}, (0.5, 0.5)),
    ],
)
def test_gains_or_a_window_and_a_rate(chosen: Any, gains: tuple[float, float]):
    assert gains_of(chosen, MODEL) == pytest.approx(gains)


NO_NUMBERS = [
    math.nan,
    math.inf,
    -math.inf,
    -1,
    0,
    "1.2",
    b"1",
    None,
    True,
    np.True_,
    1j,
    np.complex64(1),
    10**400,
    [1.0],
]
NO_NUMBERS += [np.array([1.0]), np.array([[1.0]]), np.str_("1"), object()]


@pytest.mark.parametrize("value", NO_NUMBERS, ids=lambda value: type(value).__name__)
def test_a_number_is_checked_alike_in_gains_windows_and_rates(value: Any):
    for chosen, name in (
        ((value, 1.0), "cwnd_gain"),
        ((1.0, value), "pacing_gain"),
        ({"cwnd_packets": value, "pacing_rate_mbps": 9.0}, "cwnd_packets"),
        ({"cwnd_packets": 9.0, "pacing_rate_mbps": value}, "pacing_rate_mbps"),
    ):
        with pytest.raises(ValueError, match=rf"{name} must be (a finite number )?> 0, got "):
            gains_of(chosen, MODEL)


@pytest.mark.parametrize(
    "chosen",
    [
        (1.2,),
        (1.2, 1.0, 7),
        [],
        "12",
        b"12",
        1.2,
        None,
        np.array(1.2),
        np.array([1.2, 1.0, 7.0]),
        np.ones((3, 2)),
        {1.2, 1.0},
        {"cwnd_packets": 40.0},
        {"cwnd_packets": 4.0, "pacing_rate_mbps": 9.0, "x": 1},
        {},
        iter((1, 2)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_pair_and_no_window_with_a_rate_is_refused(chosen: Any):
    with pytest.raises(ValueError, match=r"it must be the pair|a mapping must have the keys"):
        gains_of(chosen, MODEL)


@pytest.mark.parametrize("window", [40.0, math.nan, math.inf, 10**400])
@pytest.mark.parametrize("missing", [0.0, math.nan])
def test_a_window_has_the_documented_gains_until_there_is_a_model(window: float, missing: float):
    chosen = {"cwnd_packets": window, "pacing_rate_mbps": 9.0}
    for row in ({**MODEL, "bdp_packets": missing}, {**MODEL, "max_bandwidth_mbps": missing}, NO_MODEL):
        assert gains_of(chosen, row) == (2.0, 1.0)
    with pytest.raises(ValueError, match="pacing_rate_mbps must be a finite number"):
        gains_of({**chosen, "pacing_rate_mbps": "9"}, NO_MODEL)


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Write a module into the current folder, which is new; it is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def write(name: str, text: str) -> None:
        monkeypatch.delitem(sys.modules, name, raising=False)
        Path(f"{name}.py").write_text(text)

    return write


def decide(function: str) -> tuple[float, float]:
    engine = make_engine("native")
    rows = engine.reset(Scenario(flows=(Flow("agent"),)), 1)
    engine.close()
    return Decider(function).policy()(0, rows)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        ("nomodule:fn", r"no callable 'nomodule:fn': ModuleNotFoundError: No module named 'nomodule'$"),
        ("deciders:windw", r"no callable 'deciders:windw': .*did you mean 'window'\?\); it has: window, fails$"),
        ("deciders:NUMBER", "'deciders:NUMBER' must be a callable, got 3"),
        ("broken:fn", r"no callable 'broken:fn': SyntaxError: .*\(broken.py, line 1\)"),
        ("raises:fn", r"no callable 'raises:fn': KeyError: 'nope' at raises.py:2$"),
        ("script:fn", r"no callable 'script:fn': SystemExit: usage at script.py:2$"),
    ],
)
def test_what_cannot_be_imported_is_refused(write: Callable[[str, str], None], function: str, text: str):
    write("deciders", "NUMBER = 3\ndef window(row):\n    pass\ndef fails(row):\n    pass\n")
    write("broken", "def fn(row)\n")
    write("raises", "\n{}['nope']\n")
    write("script", "import sys\nsys.exit('usage')\n")
    with pytest.raises(ValueError, match=text):
        decide(function)


def test_an_error_of_a_callable_has_its_type_and_the_line_of_the_users_file(write: Callable[[str, str], None]):
    write(
        "deciders",
        "import json\n"
        "def key(row):\n    return row['nope']\n"
        "def library(row):\n    return json.loads('{')\n"
        "def silent(row):\n    raise ZeroDivisionError\n"
        "class NoObject:\n    def __init__(self, needed):\n        pass\n",
    )
    for name, text in (
        ("key", r"KeyError: 'nope' at deciders.py:3$"),
        ("library", r"JSONDecodeError: .* at deciders.py:5$"),
        ("silent", r"^ZeroDivisionError at deciders.py:7$"),
        ("NoObject", r"TypeError: .*'needed'"),
    ):
        with pytest.raises(CallableError, match=text):
            decide(f"deciders:{name}")


def test_each_flow_of_each_run_has_an_object_of_its_own(write: Callable[[str, str], None]):
    write(
        "deciders",
        "class Counts:\n    calls = 0\n"
        "    def __call__(self, row):\n        self.calls += 1\n        return 1.0 + self.calls, 1.0\n",
    )
    with contextlib.closing(make_engine("native")) as engine:
        rows = engine.reset(Scenario(flows=(Flow("agent"), Flow("agent"))), 1)
    decider = Decider("deciders:Counts")
    for policy in (decider.policy(), decider.policy()):
        assert [policy(flow, rows)[0] for flow in (0, 1, 1, 0)] == [2.0, 2.0, 3.0, 3.0]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("while True: pass", "a decision took longer than 0.2 s at endless.py:3"),
        ("time.sleep(1000)", "a decision took longer than 0.2 s at endless.py:3"),
        ("sum(range(10**12))", "SIGVTALRM"),  # in C, where Python raises nothing
    ],
)
def test_a_callable_that_never_returns_is_ended_where_it_is(tmp_path: Path, body: str, text: str):
    (tmp_path / "endless.py").write_text(f"import time\ndef decide(row):\n    {body}\n")
    code = (
        "from bbrgym import Flow, Scenario, simulate\n"
        "from bbrgym.benchmark import decider\n"
        "from bbrgym.confinement import TimeLimit\n"
        "decider.DECISION_SECONDS = 0.2\n"
        "policy = decider.Decider('endless:decide', TimeLimit().within).policy()\n"
        "try:\n    simulate(Scenario(flows=(Flow('agent'),)), policy=policy)\n"
        "except BaseException as error:\n    print(decider.describe(error))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert text in (done.stdout if done.returncode == 0 else str(subprocess.CalledProcessError(done.returncode, "")))
