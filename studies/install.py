"""What does an installation from a wheel take? `python -m studies.install [--write docs/install.md]`.

Builds the wheel without ns-3, installs it with some extras in empty environments, and runs a benchmark or a training in
each. Torch is the version of constraints.txt, of which pip here has a build for CPUs. `--python PATH` does so with
another interpreter, and may be repeated; of all but the first only the benchmark runs.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bbrgym.output import run_program
from studies import blocks, page

MARK: Final = "studies/install.py"
ROOT: Final = Path(__file__).parents[1]
SIMULATION: Final = ("python", "-c", "import bbrgym as b; b.simulate(b.Scenario(flows=(b.Flow('policy'),))).summary()")
BENCHMARK: Final = (
    "bbrgym",
    "benchmark",
    "experiment=rtt_fairness",
    "engine=native",
    "benchmark.competitors=[bbr,cubic,policy]",
    "benchmark.seeds=[1]",
)
TRAINING: Final = ("bbrgym", "train", "train.total_steps=20000", "train.eval_every=20000")
TRIED: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "": ("a simulation", SIMULATION),
    "[report]": ("a benchmark and its report", BENCHMARK),
    "[train,report]": ("a training", TRAINING),
}
"""What each choice of extras is installed for, and a command that shows it."""
REPEATED: Final = "[report]"
"""What further interpreters are tried with."""


def build_wheel(folder: Path, python: str) -> Path:
    """Build the wheel of this checkout as one is published: without the module that links to ns-3."""
    options = ["--no-deps", "--wheel-dir", str(folder)]
    # In a build folder of its own: an editable installation keeps its settings in the usual one.
    settings = {"build-dir": str(folder / "build"), "cmake.define.BBRGYM_NS3_DIR": ""}
    options += [f"--config-settings={name}={value}" for name, value in settings.items()]
    subprocess.run([python, "-m", "pip", "wheel", "--quiet", *options, str(ROOT)], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def measure(wheel: Path, python: str, extras: str) -> list[str]:
    """Install a wheel in an empty environment of an interpreter and try it there; return a row of the table.

    Raises:
        subprocess.CalledProcessError: pip or the command failed.
    """
    purpose, (program, *arguments) = TRIED[extras]
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "venv")
        subprocess.run([python, "-m", "venv", home], check=True)
        empty, packages = size_mb(home), count_packages(home)
        began = time.monotonic()
        constraints = ["--constraint", str(ROOT / "constraints.txt")]
        subprocess.run([home / "bin" / "pip", "install", "--quiet", *constraints, f"{wheel}{extras}"], check=True)
        seconds = time.monotonic() - began
        size, count = size_mb(home) - empty, count_packages(home) - packages  # before Python compiles modules
        subprocess.run([home / "bin" / program, *arguments], check=True, cwd=folder, stdout=subprocess.DEVNULL)
    version = subprocess.run([python, "--version"], check=True, capture_output=True, text=True).stdout.split()[-1]
    return [f"`pip install 'bbrgym{extras}'`", version, str(count), f"{size:,.0f}", f"{seconds:.0f}", purpose]


def size_mb(folder: Path) -> float:
    """Return how many MB the files of a folder have."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def count_packages(home: Path) -> int:
    """Return how many distributions an environment has."""
    return len(list(home.glob("lib/python*/site-packages/*.dist-info")))


def main() -> int:
    """Measure, and print the table; with --write, write it into the page."""
    parser = blocks.parser(__doc__, MARK)
    parser.add_argument("--python", action="append", metavar="PATH", help="an interpreter to try, instead of this one")
    options = parser.parse_args()
    rows: list[list[str]] = []
    for python in options.python or [sys.executable]:
        with tempfile.TemporaryDirectory() as folder:
            wheel = build_wheel(Path(folder), python)
            said = f"The wheel has {wheel.stat().st_size / 1e6:.1f} MB."
            rows += [measure(wheel, python, extras) for extras in ([REPEATED] if rows else TRIED)]
    table = page.table(["", "Python", "packages", "MB", "s, with downloads", "then ran"], rows, range(2, 5))
    blocks.publish(f"{said}\n\n{table}", MARK, options.write)
    return 0


if __name__ == "__main__":
    sys.exit(run_program("install", main))
