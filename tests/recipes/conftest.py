"""What the tests of recipes share."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from recipe_page import Recipe, recipes


@pytest.fixture
def recipe(
    request: pytest.FixtureRequest, record_property: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Recipe:
    """The recipe of the test's module, with an empty working directory.

    The module's `PACKAGES`, {distribution: module}, must be installed, or its tests are skipped. The properties are for
    the table at the end of the page (`write_clients.py`).
    """
    packages: dict[str, str] = request.module.PACKAGES
    found = recipes()[request.module.__name__]
    record_property("client", found.title)
    record_property("tried", " ".join(request.function.__doc__.split()).rstrip("."))
    for package, module in packages.items():
        pytest.importorskip(module, reason=f"needs {package}: make clients")
    record_property("versions", ", ".join(f"{package} {metadata.version(package)}" for package in packages))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))  # where RLlib and Minari write their results
    return found
