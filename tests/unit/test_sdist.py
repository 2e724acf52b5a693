"""The source distribution: all that a wheel is made of, and no part of what only a checkout can use."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLAYGROUND = Path("build/playground/index.html")
"""The page of `bbrgym lab`, which both have if it was built (docs/playground.md)."""
LINKS = {path.name: path for path in (ROOT / "src" / "bbrgym").iterdir() if path.is_symlink()}


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    build = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (path,) = folder.iterdir()
    return path


def test_sdist_has_the_files_of_the_package_and_no_others(sdist: Path) -> None:
    list_files = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"]
    files = subprocess.run(list_files, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    expected = {"PKG-INFO", "CMakeLists.txt", "pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE", "NOTICE"}
    expected |= {str(PLAYGROUND)} if (ROOT / PLAYGROUND).is_file() else set()
    for file in map(Path, filter(None, files)):
        if (ROOT / file).is_file() and file.parts[0] in {"src", "ns3_scratch", *LINKS}:
            expected.add(str(Path("src", "bbrgym", file) if file.parts[0] in LINKS else file))
    with tarfile.open(sdist) as archive:
        found = {str(Path(*Path(member.name).parts[1:])) for member in archive if member.isfile()}
    assert found == expected


@pytest.mark.slow
@pytest.mark.timeout(3600)  # It compiles all modules, with one processor core that may have other work.
def test_a_wheel_that_is_built_from_the_sdist_works(sdist: Path, tmp_path: Path) -> None:
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(tmp_path)]
    subprocess.run([*build, "--config-settings=cmake.define.BBRGYM_NS3_DIR=", str(sdist)], check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    script = (
        "import bbrgym; print(bbrgym.__file__); "
        "from bbrgym import lab; print((lab.PAGE / 'index.html').is_file()); "
        "print(bbrgym.simulate(bbrgym.Scenario(duration_s=1, flows=(bbrgym.Flow('bbr'),)), 'native').summary())"
    )
    # The folder comes before the installed package, and -S leaves out the hook of an editable installation.
    paths = [str(tmp_path / "site"), *(path for path in sys.path if path.endswith("site-packages"))]
    ran = subprocess.run(
        [sys.executable, "-S", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert ran.stdout.startswith(str(tmp_path / "site"))
    assert ran.stdout.splitlines()[1] == str((ROOT / PLAYGROUND).is_file())
