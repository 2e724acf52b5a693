"""What all tests share: engines, settings, and one MLflow database."""

import contextlib
import copy
import gc
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import fake_engine  # noqa: F401  registers the engine
import pytest
from filelock import FileLock
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hypothesis import settings

from bbrgym import Engine, _testing, make_engine  # noqa: F401  _testing turns nanobind's leak warnings off
from bbrgym.agents.mlflow_store import store_uri
from bbrgym.agents.tracking import Tracker

# Before PyTorch and MLflow are imported, here and in child processes. Networks of this size gain nothing from threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
# Ray reads these when it is imported, by whichever test comes first. With a token its ports serve nobody else.
os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}

# A shell starts a background job with Ctrl-C ignored, which child processes inherit: tests of Ctrl-C would hang.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("tests", derandomize=True, deadline=None)
settings.load_profile("tests")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave what tests import out of collections of garbage, of which each full one would take half a second."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="module")
def native() -> Iterator[Engine]:
    """The native engine."""
    with contextlib.closing(make_engine("native")) as engine:
        yield engine


@pytest.fixture(scope="session", autouse=True)
def _configuration_is_parsed_once() -> Iterator[None]:
    """Parse each file of the package's configuration once: Hydra does so for every job, for half of its time."""
    Plugins.instance()  # registers the sources of configurations
    package = SourcesRegistry.instance().resolve("pkg")
    parse = package._read_config  # type: ignore[attr-defined]
    parsed: dict[str, ConfigResult] = {}

    def read(source: ConfigSource, file: Any) -> ConfigResult:
        key = f"{source.provider} {file}"
        if key not in parsed:
            parsed[key] = parse(source, file)
        return copy.deepcopy(parsed[key])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(package, "_read_config", read)
        yield


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw no figures of runs: one takes as long as the whole training of a test."""
    monkeypatch.setattr(Tracker, "log_figure", lambda *_: None)


@pytest.fixture(scope="session")
def mlflow_database(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """A new MLflow database to copy, which takes seconds to create. Two processes raced to create it.

    It is one for all workers of a test run.
    """
    base = tmp_path_factory.getbasetemp()
    # Its name has characters that mean something in URLs.
    root = (base if worker_id == "master" else base.parent) / "mlflow? 50%20 #1 'é' {x}"
    database = root / "runs" / "mlflow.db"
    with FileLock(f"{root}.lock"):
        if not database.exists():
            code = "import sys; from bbrgym.agents.mlflow_store import store_uri; store_uri(sys.argv[1])"
            command = [sys.executable, "-c", code, str(root)]
            with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as other:
                store_uri(root)
                _, errors = other.communicate()
            assert other.returncode == 0, errors
    return database


@pytest.fixture
def in_new_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working directory, and commands that print messages instead of tracebacks."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BBRGYM_DEBUG", raising=False)
    monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)
