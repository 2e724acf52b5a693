"""Prove the example of a new algorithm in CONTRIBUTING.md: apply it to a clean copy, build it and test it.

`python tests/recipe.py` copies the tracked files to a temporary folder, adds the files of the example as they stand in
CONTRIBUTING.md, builds the copy without ns-3, writes the golden trace, and runs the tests that a new algorithm can
affect. At the end, nothing may have changed but the parts that CONTRIBUTING.md names. It needs no network.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
NAME: Final = "fixed"
EXPECTED: Final = {
    " M baselines/cc/controllers.def",
    f"?? baselines/cc/{NAME}.cc",
    f"?? baselines/cc/{NAME}.h",
    f"?? docs/algorithms/{NAME}.md",
    f"?? tests/golden/{NAME}.json",
    f"?? tests/unit/test_{NAME}.py",
}
TESTS: Final = (
    f"tests/unit/test_{NAME}.py",
    "tests/contract/test_controllers.py",
    "tests/unit/test_conf.py",
    "tests/unit/test_scenario.py",
    "tests/unit/test_env_parts.py",
)


def main() -> None:
    """Run all steps; a failing one ends the program with its output."""
    with tempfile.TemporaryDirectory(prefix="bbrgym-example-") as folder:
        copy = Path(folder) / "bbrgym"
        copy_tracked_files(copy)
        new = apply_example(copy)
        of_python = [name for name in new if name.endswith(".py")]
        of_cpp = [name for name in new if name.endswith((".h", ".cc"))]
        python, bin_folder = make_environment(copy), Path(sys.executable).parent
        run("check the format of Python", copy, bin_folder / "ruff", "format", "--check", *of_python)
        run("lint", copy, bin_folder / "ruff", "check", *of_python)
        run("check the format of C++", copy, bin_folder / "clang-format", "--dry-run", "--Werror", *of_cpp)
        run(
            "build",
            copy,
            python,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--no-build-isolation",
            "--no-index",
            "--editable",
            ".",
        )
        run("write the golden trace", copy, python, "tests/golden_traces.py")
        run(f"test {', '.join(TESTS)}", copy, python, "-m", "pytest", "-q", "-n0", *TESTS)
        check_changes(copy)
    print(f"The example works: {NAME} took {len(EXPECTED)} parts, and nothing else changed.")


def copy_tracked_files(copy: Path) -> None:
    """Copy the tracked files as they are now, links as links, into a new Git repository."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    count = 0
    for name in filter(None, names.split("\0")):
        source, target = ROOT / name, copy / name
        if source.is_symlink() or source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
            count += 1
    print(f"* copy {count} tracked files to {copy}")
    run("make a Git repository of them", copy, "git", "init", "--quiet")
    run("add them", copy, "git", "add", "--all", "--force")
    author = ("-c", "user.name=example", "-c", "user.email=example@localhost", "-c", "commit.gpgsign=false")
    run("commit them", copy, "git", *author, "commit", "--quiet", "--no-verify", "--message", "The checkout")


def apply_example(copy: Path) -> list[str]:
    """Write the files of the example and return their names.

    A line "`path`" before a block of code is a new file, "At the end of `path`" an addition to a file.
    """
    text = (copy / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text[text.index("### Example: ") :].split("\n## ")[0]
    blocks = re.findall(r"^(At the end of )?`([^`\n]+)`\n\n```\w+\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    for addition, name, code in blocks:
        path = copy / name
        if bool(addition) != path.is_file():
            raise SystemExit(f"CONTRIBUTING.md: {name} {'does not exist' if addition else 'exists already'}")
        with path.open("a", encoding="utf-8") as file:
            file.write(code)
        print(f"* {'append to' if addition else 'write'} {name}: {code.count(chr(10))} lines", flush=True)
    return [name for _, name, _ in blocks]


def make_environment(copy: Path) -> Path:
    """Make a virtual environment on top of the packages of this one and return its Python."""
    print("* make a virtual environment", flush=True)
    venv.create(copy / ".venv", with_pip=False)
    # Plain paths: the .pth files in these folders, such as the one of this checkout's editable install, do not apply.
    packages = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    site = next((copy / ".venv" / "lib").glob("python3*/site-packages"))
    (site / "packages.pth").write_text("\n".join(packages) + "\n", encoding="utf-8")
    return copy / ".venv" / "bin" / "python"


def check_changes(copy: Path) -> None:
    """Compare what Git shows as changed with the parts that CONTRIBUTING.md names."""
    status = subprocess.run(
        ["git", "-c", "core.quotePath=false", "status", "--porcelain", "--untracked-files=all"],
        cwd=copy,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    changes = set(status.splitlines())
    if changes != EXPECTED:
        raise SystemExit(f"expected changes:\n  {sorted(EXPECTED)}\ngot:\n  {sorted(changes)}")


def run(what: str, folder: Path, *command: str | Path) -> None:
    """Run one step, quietly unless it fails."""
    print(f"* {what}", end=" ", flush=True)
    begin = time.monotonic()
    env = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        # Without ns-3 the build takes a third of the time.
        "SKBUILD_CMAKE_DEFINE": "BBRGYM_NS3_DIR=;BBRGYM_TESTING=ON",
    }
    done = subprocess.run(
        list(map(str, command)), cwd=folder, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    print(f"({time.monotonic() - begin:.0f} s)", flush=True)
    if done.returncode != 0:
        raise SystemExit(f"{done.stdout}\nfailed: {' '.join(map(str, command))}")
    if "pytest" in command:
        print(f"  {done.stdout.strip().splitlines()[-1]}")


if __name__ == "__main__":
    main()
