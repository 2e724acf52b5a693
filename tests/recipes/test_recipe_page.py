"""Every recipe of docs/recipes.md has its tests."""

from __future__ import annotations

from pathlib import Path

from recipe_page import recipes


def test_every_section_with_code_has_a_test_module() -> None:
    modules = {path.stem for path in Path(__file__).parent.glob("test_*.py")} - {Path(__file__).stem}
    assert modules == recipes().keys()
