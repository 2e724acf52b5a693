"""Write the committed type stubs of the extension modules; with --check, fail if one is out of date."""

import argparse
import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path

from nanobind.stubgen import StubGen

ROOT = Path(__file__).parents[1]
MODULES = ("_controllers", "_linux", "_native", "_ns3")  # _testing has no users but tests and a study


def stub_of(module: str) -> str:
    """Return the formatted stub of an extension as it is built now."""
    generator = StubGen(importlib.import_module(f"bbrgym.{module}"))
    generator.put(importlib.import_module(f"bbrgym.{module}"))
    formatted = subprocess.run(
        [sys.executable, "-m", "ruff", "format", "--stdin-filename", f"{module}.pyi", "-"],
        input=generator.get(),
        capture_output=True,
        text=True,
        check=True,
    )
    return formatted.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a stub is out of date")
    check = parser.parse_args().check
    outdated = []
    for module in MODULES:
        if importlib.util.find_spec(f"bbrgym.{module}") is None:
            print(f"{module} is not built here: its stub is left as it is")
            continue
        path, stub = ROOT / "src" / "bbrgym" / f"{module}.pyi", stub_of(module)
        if check:
            outdated += [] if path.exists() and path.read_text() == stub else [path.name]
        else:
            path.write_text(stub)
    if outdated:
        print(f"out of date: {', '.join(outdated)}; run `make stubs`")
    return 1 if outdated else 0


if __name__ == "__main__":
    sys.exit(main())
