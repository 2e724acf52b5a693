"""Every engine's rows have exactly the columns of envs/columns.def, and a transport cannot leave one out."""

from __future__ import annotations

import contextlib
import importlib.util
import math
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from bbrgym import Flow, Scenario, make_engine
from bbrgym import _testing as cc
from bbrgym.envs.columns import FLOW_COLUMNS, LINK_COLUMNS
from bbrgym.envs.observation import GAIN_COLUMNS

ROOT = Path(__file__).parents[2]
COMPILER = shutil.which("g++")

needs_ns3 = pytest.mark.skipif(importlib.util.find_spec("bbrgym._ns3") is None, reason="bbrgym was built without ns-3")
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="g++ is not installed")


@pytest.mark.parametrize(
    ("engine", "options"),
    [
        ("native", {}),
        pytest.param("ns3", {"transport": "tcp"}, marks=needs_ns3),
        pytest.param("ns3", {"transport": "quic"}, marks=needs_ns3),
    ],
)
def test_rows_have_a_value_for_every_measured_column(engine: str, options: dict[str, str]) -> None:
    scenario = Scenario(duration_s=3, flows=(Flow("bbr", rtt_ms=20), Flow("cubic", rtt_ms=30)))
    with contextlib.closing(make_engine(engine, **options)) as running:
        running.reset(scenario, 1)
        rows = running.step(2000)
    assert (rows.flows.shape, rows.link.shape) == ((2, len(FLOW_COLUMNS)), (len(LINK_COLUMNS),))
    of_controllers = cc.metrics().keys()
    assert list(FLOW_COLUMNS)[-len(of_controllers) :] == list(of_controllers)
    missing = {column for column, value in rows.flow(0).items() if math.isnan(value)} - of_controllers
    assert not missing
    assert not any(math.isnan(value) for value in rows.link_row().values())


def test_a_policy_sees_nothing_but_columns() -> None:
    assert set(cc.policy_columns()) <= {*FLOW_COLUMNS, *GAIN_COLUMNS}


@needs_compiler
@pytest.mark.parametrize(
    ("entry", "source", "row"),
    [
        ("FLOW_COLUMN", "envs/transport/flow_row.cc", "FlowRow"),
        ("LINK_COLUMN", "envs/model/bottleneck.cc", "LinkRow"),
    ],
)
def test_a_column_without_formula_does_not_compile(entry: str, source: str, row: str, tmp_path: Path) -> None:
    def compile_with(columns: str) -> str:
        (tmp_path / "envs").mkdir(exist_ok=True)
        (tmp_path / "envs" / "columns.def").write_text(columns)
        options = ["-std=c++20", "-fsyntax-only", "-Werror=missing-field-initializers", f"-I{tmp_path}", f"-I{ROOT}"]
        assert COMPILER is not None
        command, plain = [COMPILER, *options, ROOT / source], os.environ | {"LC_ALL": "C"}
        return subprocess.run(command, env=plain, capture_output=True, text=True).stderr

    columns = (ROOT / "envs" / "columns.def").read_text()
    assert compile_with(columns) == ""
    added = columns.replace(f"\n{entry}(", f'\n{entry}(new_column, "of no formula")\n{entry}(', 1)
    assert f"missing initializer for member 'bbrgym::{row}::new_column'" in compile_with(added)
