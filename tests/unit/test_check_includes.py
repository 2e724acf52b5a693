"""The check of C++ includes finds what breaks its rules."""

from __future__ import annotations

from pathlib import Path

import pytest
from check_includes import ROOT, find_violations


def test_this_repository_breaks_no_rule() -> None:
    assert find_violations(ROOT) == []


@pytest.mark.parametrize(
    ("files", "violations"),
    [
        ({"envs/native/a.cc": "baselines/cc/b.h", "baselines/cc/b.h": "vector"}, []),
        (
            {"baselines/cc/a.h": "envs/model/b.h", "envs/model/b.h": ""},
            ["baselines/cc/a.h includes envs/model/b.h, which is not below it"],
        ),
        (
            {"envs/transport/a.h": "tests/cc/b.h", "tests/cc/b.h": ""},
            ["envs/transport/a.h includes tests/cc/b.h, which belongs to no floor"],
        ),
        (
            {"envs/model/a.h": "ns3/socket.h"},
            ["envs/model/a.h includes ns3/socket.h: only ns3_scratch may include ns-3"],
        ),
        (
            {"ns3_scratch/a.h": "b.h", "ns3_scratch/b.h": "ns3_scratch/a.h"},
            ["circle: ns3_scratch/a.h -> ns3_scratch/b.h -> ns3_scratch/a.h"],
        ),
    ],
)
def test_what_breaks_a_rule_is_found(files: dict[str, str], violations: list[str], tmp_path: Path) -> None:
    for name, included in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f'#pragma once\n#include "{included}"\n')
    assert find_violations(tmp_path) == violations
