"""Optional packages: errors about a missing one name the extra that has it, as pyproject.toml says."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from typing import Final

from bbrgym.addresses import how_to_install

_DISTRIBUTIONS: Final = {"upath": "universal-pathlib", "zmq": "pyzmq", "google.protobuf": "protobuf"}
"""{import name: distribution} of the packages that are called something else."""


def require(purpose: str, *packages: str) -> None:
    """Check that optional packages are installed, without importing them.

    Args:
        purpose: what needs them, for the error: `training`.
        packages: their import names: `torch`.

    Raises:
        ModuleNotFoundError: `training needs torch: pip install 'bbrgym[train]'`.
    """
    for package in packages:
        if importlib.util.find_spec(package) is None:
            raise _missing(purpose, package)


@contextmanager
def optional(purpose: str) -> Iterator[None]:
    """Import optional packages within the block; the error about a missing one is that of `require`."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("bbrgym"):
            raise
        top = error.name.partition(".")[0]
        raise _missing(
            purpose, next((name for name in _DISTRIBUTIONS if name.partition(".")[0] == top), top)
        ) from error


def extra_of(package: str) -> str | None:
    """Return the first extra that has the package of this import name; None if no extra has it."""
    name = _normalised(_DISTRIBUTIONS.get(package, package))
    for requirement in metadata.requires("bbrgym") or ():
        found = re.match(r"([\w.-]+).*;.*extra == ['\"](\w+)['\"]", requirement)
        if found and _normalised(found[1]) == name:
            return found[2]
    return None


def _missing(purpose: str, package: str) -> ModuleNotFoundError:
    extra = extra_of(package)
    what = f"bbrgym[{extra}]" if extra else package
    return ModuleNotFoundError(f"{purpose} needs {package}: {how_to_install(what)}", name=package)


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
