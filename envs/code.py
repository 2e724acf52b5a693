"""The code that decides what happens in engines, as a hash by which finished runs are kept."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import bbrgym
from bbrgym.envs.engine import describe_engine

CONTROLLERS: Final = "bbrgym._controllers"


def code_hash(*engines: Mapping[str, Any] | str, also: str = "") -> str:
    """Return the hash of the code that decides what happens in engines.

    It covers the sources of the compiled modules without comments, and the versions of what an engine simulates with
    (ns-3). It is the same in every checkout and wheel of the same code.

    Args:
        engines: names, or mappings with a name and options as `make_engine` takes them.
        also: what else decides the numbers, as a text.
    """
    digest = hashlib.sha256(also.encode())
    configs = [{"name": one} if isinstance(one, str) else one for one in engines]
    described = [describe_engine(**config) for config in configs]
    for module in dict.fromkeys([CONTROLLERS, *(name for one in described for name in one.extensions)]):
        digest.update(_module_hash(module).encode())
    for distribution in dict.fromkeys(name for one in described for name in one.distributions):
        digest.update(str(version_of(distribution)).encode())
    return digest.hexdigest()[:16]


def version_of(distribution: str) -> str | None:
    """Return the version of an installed distribution, None if it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


@functools.cache
def _module_hash(module: str) -> str:
    """Return the hash of a module's sources; of its file, if it is a module of somebody else's engine."""
    package, _, name = module.rpartition(".")
    if package == bbrgym.__name__:
        return _source_hashes()[name]
    specification = importlib.util.find_spec(module)
    if specification is None or specification.origin is None:
        return "missing"
    return hashlib.sha256(Path(specification.origin).read_bytes()).hexdigest()


@functools.cache
def _source_hashes() -> dict[str, str]:
    """Return {module: hash of its sources}, which the build has written beside the modules."""
    specification = importlib.util.find_spec(CONTROLLERS)
    assert specification is not None
    assert specification.origin is not None
    found: dict[str, str] = json.loads(Path(specification.origin).with_name("sources.json").read_text(encoding="utf-8"))
    return found
