"""`make setup` and the versions of Python, with fakes: which is refused, and when .venv is made anew."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RANGE = re.fullmatch(
    r">=3\.(\d+),<3\.(\d+)", tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
)
assert RANGE is not None
FIRST, END = map(int, RANGE.groups())
VERSIONS = [f"3.{minor}" for minor in range(FIRST, END)]

TOOLS = ("sh", "make", "sed", "rm", "mkdir", "cp", "touch", "find")
FAKE = """#!/bin/sh
case "$1 $2" in
  "-c import pip"*) [ -e "{has_pip}" ] ;;
  "-c "*) echo "{version} {command}" ;;
  "-m venv")
    mkdir -p "$3/bin"
    echo "version = {version}" > "$3/pyvenv.cfg"
    cp "$0" "$3/bin/python"
    echo "#!$PWD/$3/bin/python" > "$3/bin/pip" ;;
  "-m pip") echo "{version}" >> "{log}" ;;
esac
"""

HASH_SOURCES = "src/hash_sources.py"


class Checkout:
    """What `make setup` needs of a checkout, and a PATH with the wanted interpreters only."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "checkout"
        self.bin = folder / "bin"
        self.log = folder / "log"
        self.has_pip = folder / "has_pip"
        self.has_pip.touch()
        for name in (".ci", "baselines/cc", "envs", "ns3_scratch", "tests/cc"):
            (self.folder / name).mkdir(parents=True)
        for name in ("Makefile", ".ci/make_venv", "pyproject.toml", "constraints.txt", "CMakeLists.txt", HASH_SOURCES):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.folder / name)
        self.bin.mkdir()
        for tool in TOOLS:
            found = shutil.which(tool)
            if found is None:
                pytest.skip(f"{tool} is missing")
            (self.bin / tool).symlink_to(found)

    def add(self, name: str, version: str) -> None:
        """Put an interpreter on the PATH."""
        command = self.bin / name
        command.write_text(FAKE.format(version=version, command=command, log=self.log, has_pip=self.has_pip))
        command.chmod(0o755)

    def make(self, *arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        # Without the flags of a `make test` that runs this.
        clean = {name: value for name, value in os.environ.items() if name not in ("PYTHON", "MAKEFLAGS", "MAKELEVEL")}
        command = [str(self.bin / "make"), *arguments, "setup"]
        clean |= {"PATH": str(self.bin), **(env or {})}
        return subprocess.run(command, cwd=self.folder, env=clean, capture_output=True, text=True)

    def installed(self) -> list[str]:
        """Return the versions of the interpreters that pip ran in since the last call."""
        versions = self.log.read_text().split() if self.log.is_file() else []
        self.log.unlink(missing_ok=True)
        return sorted(set(versions))

    def version(self) -> str:
        return (self.folder / ".venv" / "pyvenv.cfg").read_text().split()[-1]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


OLD, NEW, NEXT = f"3.{FIRST - 1}.2", f"{VERSIONS[-1]}.1", f"3.{END}.0"
OTHER = f"{VERSIONS[0]}.4"


@pytest.mark.parametrize(
    ("name", "version"), [("python3.9", "3.9.2"), ("python2", "2.7.18"), ("python3", OLD), ("python3", NEXT)]
)
def test_an_unsupported_python_is_named_first(checkout: Checkout, name: str, version: str) -> None:
    checkout.add(name, version)
    made = checkout.make(f"PYTHON={name}")
    assert made.returncode != 0
    line = made.stderr.splitlines()[0]
    for known in VERSIONS:
        assert known in line
    assert f"{name} is Python {version}" in line
    assert not (checkout.folder / ".venv").exists()
    assert checkout.installed() == []


@pytest.mark.parametrize("name", ["python3.99", "/no/python3", "python3"])
def test_a_python_that_does_not_exist_is_named_first(checkout: Checkout, name: str) -> None:
    checkout.add("python3.9", "3.9.2")
    made = checkout.make(f"PYTHON={name}")
    assert made.returncode != 0
    line = made.stderr.splitlines()[0]
    assert all(known in line for known in VERSIONS)
    assert f"no command {name}" in line


def test_a_command_that_is_no_python_is_named_first(checkout: Checkout) -> None:
    made = checkout.make("PYTHON=touch")
    assert made.returncode != 0
    assert "touch does not start Python" in made.stderr.splitlines()[0]


def test_a_supported_python_of_the_path_is_proposed(checkout: Checkout) -> None:
    checkout.add("python3", OLD)
    checkout.add(f"python{VERSIONS[1]}", f"{VERSIONS[1]}.3")
    assert f"make PYTHON=python{VERSIONS[1]} setup" in checkout.make().stderr.splitlines()[0]


def test_the_supported_versions_are_those_of_pyproject(checkout: Checkout) -> None:
    path = checkout.folder / "pyproject.toml"
    path.write_text(path.read_text().replace(f'"{RANGE[0]}"', '">=3.21,<3.24"'))
    checkout.add("python3", NEW)
    assert "Python 3.21, 3.22 or 3.23," in checkout.make().stderr.splitlines()[0]
    checkout.add("python3.23", "3.23.0")
    assert checkout.make("PYTHON=python3.23").returncode == 0


def test_a_second_setup_does_nothing(checkout: Checkout) -> None:
    checkout.add("python3", NEW)
    assert checkout.make().returncode == 0
    assert checkout.installed() == [NEW]
    for arguments in ((), ("PYTHON=python3",)):
        assert checkout.make(*arguments).returncode == 0
        assert checkout.installed() == []


def test_an_environment_of_an_unsupported_python_is_made_anew(checkout: Checkout) -> None:
    checkout.add("python3", OLD)
    checkout.add("mine", NEW)
    subprocess.run([checkout.bin / "python3", "-m", "venv", ".venv"], cwd=checkout.folder, check=True)
    (checkout.folder / ".venv" / ".setup").touch()
    assert checkout.make().returncode != 0
    assert checkout.version() == OLD  # there is nothing to make it with
    made = checkout.make("PYTHON=mine")
    assert made.returncode == 0
    assert f".venv is made anew with Python {NEW}: its Python is {OLD}" in made.stdout
    assert checkout.version() == NEW
    assert checkout.installed() == [NEW]


@pytest.mark.parametrize("is_in_environment", [False, True])
def test_the_python_that_was_asked_for_replaces_another(checkout: Checkout, is_in_environment: bool) -> None:
    checkout.add("python3", NEW)
    checkout.add("other", OTHER)
    checkout.make()
    checkout.installed()
    made = checkout.make(env={"PYTHON": "other"}) if is_in_environment else checkout.make("PYTHON=other")
    assert made.returncode == 0
    assert checkout.version() == OTHER
    assert checkout.installed() == [OTHER]
    # It stays when nobody asks for one, although python3 is another.
    (checkout.folder / "pyproject.toml").touch()
    assert checkout.make().returncode == 0
    assert checkout.version() == OTHER
    assert set(checkout.installed()) <= {OTHER}


def test_an_environment_stays_when_an_unsupported_python_is_asked_for(checkout: Checkout) -> None:
    checkout.add("python3", NEW)
    checkout.add("old", OLD)
    checkout.make()
    made = checkout.make("PYTHON=old")
    assert made.returncode != 0
    assert f"old is Python {OLD}" in made.stderr.splitlines()[0]
    assert checkout.version() == NEW


@pytest.mark.parametrize("damage", ["python", "dangling", "pip", "settings", "moved", "copied"])
def test_a_broken_environment_is_made_anew(checkout: Checkout, damage: str) -> None:
    checkout.add("python3", NEW)
    checkout.make()
    checkout.installed()
    venv = checkout.folder / ".venv"
    if damage == "python":
        (venv / "bin" / "python").unlink()
    elif damage == "dangling":
        (venv / "bin" / "python").unlink()
        (venv / "bin" / "python").symlink_to("/no/python3")
    elif damage == "pip":
        (venv / "bin" / "pip").unlink()
    elif damage == "settings":
        (venv / "pyvenv.cfg").unlink()
    elif damage == "moved":
        checkout.folder = checkout.folder.rename(checkout.folder.with_name("moved"))
    else:
        checkout.folder = Path(shutil.copytree(checkout.folder, checkout.folder.with_name("copy"), symlinks=True))
    made = checkout.make()
    assert made.returncode == 0
    assert "made anew" in made.stdout
    assert checkout.installed() == [NEW]
    assert len(checkout.make().stdout.splitlines()) == 1  # says what comes next, and does nothing


def test_an_environment_without_pip_is_made_anew(checkout: Checkout) -> None:
    checkout.add("python3", NEW)
    checkout.make()
    checkout.has_pip.unlink()  # as after `python3 -m venv` where ensurepip is another package
    assert "it has no pip" in checkout.make().stdout


def test_a_real_environment_is_kept() -> None:
    """The script finds no fault with the environment that runs this, if `make setup` made it."""
    if not (ROOT / ".venv" / ".setup").is_file():
        pytest.skip("`make setup` did not make this environment")
    ran = subprocess.run([ROOT / ".ci" / "make_venv", ".venv", "/no/python"], cwd=ROOT, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")


def test_documents_and_workflows_name_the_supported_versions() -> None:
    listed, span = f"{', '.join(VERSIONS[:-1])} %s {VERSIONS[-1]}", f"{VERSIONS[0]} to {VERSIONS[-1]}"
    for name, text in {
        "README.md": f"Python {listed % 'or'}",
        "CONTRIBUTING.md": f"Python {span}",
        "docs/start.md": f"Python {span}",
        "docs/install.md": f"Python {listed % 'and'}",
        "CMakeLists.txt": f"find_package(Python {VERSIONS[0]} ",
        ".github/workflows/ci.yml": "[" + ", ".join(f'"{version}"' for version in VERSIONS) + "]",
        "pyproject.toml": "cp31{" + ",".join(version[-1] for version in VERSIONS) + "}-",
    }.items():
        assert text in (ROOT / name).read_text(), name
