from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from recipe_page import Recipe
from waiting import free_port

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        sys.version_info >= (3, 12), reason="NumPy 1.23, which ns3-gym's client needs, is for Python 3.11"
    ),
]
PACKAGES: dict[str, str] = {}


def test_stock_client(recipe: Recipe, record_property: Any) -> None:
    """ns3-gym's own Python client against `bbrgym ns3`."""
    install, run = recipe.shell
    repository = "https://github.com/tkn-tub/ns3-gym"
    assert repository in install
    if subprocess.run(["git", "ls-remote", "--exit-code", repository, "HEAD"], capture_output=True).returncode:
        pytest.skip(f"{repository} cannot be reached")
    recipe.run_shell(install)
    commit = recipe.run_shell("git -C ns3-gym log -1 --format=%h")
    port = free_port()
    recipe.files = {name: code.replace("5555", str(port)) for name, code in recipe.files.items()}
    printed = recipe.run_shell(run.replace("5555", str(port)))
    assert '{"time_s": 5.0}' in printed
    record_property("versions", f"ns3gym of app-ns-3.36+ at {commit.strip()}")
