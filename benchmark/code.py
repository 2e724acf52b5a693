"""The code that decides the numbers of a run, as hashes by which finished runs are kept."""

from __future__ import annotations

import functools
import hashlib
import inspect
import platform

import bbrgym
from bbrgym.benchmark import metrics
from bbrgym.cores import available_cores
from bbrgym.envs import trace
from bbrgym.envs.code import code_hash, version_of

__all__ = ["code_hash", "machine", "made_with", "metrics_hash", "version_of"]


@functools.cache
def made_with() -> str:
    """Return in words what results of this process are made with: versions, and the kind of machine."""
    versions = {"NumPy": version_of("numpy"), "ns-3": version_of("ns3")}
    found = [f"{name} {version}" for name, version in versions.items() if version is not None]
    return ", ".join([f"bbrgym {bbrgym.__version__}", f"Python {platform.python_version()}", *found, machine()])


def machine() -> str:
    """Return the kind of machine in words: system, processor, and cores that this process may use."""
    return f"{platform.system()} {platform.machine()}, {available_cores()} cores"


@functools.cache
def metrics_hash() -> str:
    """Return the hash of the code that computes a run's metrics from its trace."""
    digest = hashlib.sha256()
    for module in (metrics, trace):
        digest.update(inspect.getsource(module).encode())
    return digest.hexdigest()[:16]
