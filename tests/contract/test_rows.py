"""The columns of envs/columns.def: a policy reads no others, and C++ that leaves one out does not compile."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from bbrgym import _testing as cc
from bbrgym.envs.columns import FLOW_COLUMNS
from bbrgym.envs.observation import GAIN_COLUMNS, PREFERENCE

ROOT = Path(__file__).parents[2]
COMPILER = shutil.which("g++")

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="g++ is not installed")


def test_a_policy_sees_nothing_but_columns() -> None:
    assert set(cc.policy_columns()) <= {*FLOW_COLUMNS, *GAIN_COLUMNS, PREFERENCE}


@needs_compiler
@pytest.mark.parametrize(
    ("entry", "source", "row"),
    [("FLOW_COLUMN", "envs/transport/flow_row.cc", "FlowRow"), ("LINK_COLUMN", "envs/model/bottleneck.cc", "LinkRow")],
)
def test_a_column_without_formula_does_not_compile(entry: str, source: str, row: str, tmp_path: Path) -> None:
    columns = (ROOT / "envs" / "columns.def").read_text()
    added = columns.replace(f"\n{entry}(", f'\n{entry}(new_column, "of no formula")\n{entry}(', 1)
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs" / "columns.def").write_text(added)
    options = ["-std=c++20", "-fsyntax-only", "-Werror=missing-field-initializers", f"-I{tmp_path}", f"-I{ROOT}"]
    assert COMPILER is not None
    command, plain = [COMPILER, *options, ROOT / source], os.environ | {"LC_ALL": "C"}
    errors = subprocess.run(command, env=plain, capture_output=True, text=True).stderr
    assert errors.count("error: ") == 1
    assert f"missing initializer for member 'bbrgym::{row}::new_column'" in errors
