"""What does an installation from a wheel take? `python -m studies.install [--write docs/install.md]`.

Builds the wheel without ns-3, installs it with some extras in empty environments, and runs a benchmark or a training in
each. Torch is the version of constraints.txt, of which pip here has a build for CPUs.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bbrgym.interruption import run_interruptible
from studies import page

MARK: Final = "studies/install.py"
ROOT: Final = Path(__file__).parents[1]
SIMULATION: Final = ("python", "-c", "import bbrgym as b; b.simulate(b.Scenario(flows=(b.Flow('policy'),))).summary()")
BENCHMARK: Final = (
    *("bbrgym", "benchmark", "experiment=rtt_fairness", "engine=native"),
    *("benchmark.competitors=[bbr,cubic,policy]", "benchmark.seeds=[1]"),
)
TRAINING: Final = ("bbrgym", "train", "train.total_steps=20000", "train.eval_every=20000")
TRIED: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "": ("a simulation", SIMULATION),
    "[report]": ("a benchmark and its report", BENCHMARK),
    "[train,report]": ("a training", TRAINING),
}
"""What each choice of extras is installed for, and a command that shows it."""


def build_wheel(folder: Path) -> Path:
    """Build the wheel of this checkout as one is published: without the module that links to ns-3."""
    options = ["--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    # In a build folder of its own: an editable installation keeps its settings in the usual one.
    settings = {"build-dir": str(folder / "build"), "cmake.define.BBRGYM_NS3_DIR": ""}
    options += [f"--config-settings={name}={value}" for name, value in settings.items()]
    subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", *options, str(ROOT)], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def measure(wheel: Path, extras: str, purpose: str, command: tuple[str, ...]) -> list[str]:
    """Install a wheel in an empty environment and run a command there; return a row of the table.

    Raises:
        subprocess.CalledProcessError: pip or the command failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "venv")
        venv.create(home, with_pip=True)
        empty, packages = size_mb(home), count_packages(home)
        began = time.monotonic()
        constraints = ["--constraint", str(ROOT / "constraints.txt")]
        subprocess.run([home / "bin" / "pip", "install", "--quiet", *constraints, f"{wheel}{extras}"], check=True)
        seconds = time.monotonic() - began
        size, count = size_mb(home) - empty, count_packages(home) - packages  # before Python compiles modules
        program, *arguments = command
        subprocess.run([home / "bin" / program, *arguments], check=True, cwd=folder, stdout=subprocess.DEVNULL)
    return [f"`pip install 'bbrgym{extras}'`", str(count), f"{size:,.0f}", f"{seconds:.0f}", purpose]


def size_mb(folder: Path) -> float:
    """Return how many MB the files of a folder have."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def count_packages(home: Path) -> int:
    """Return how many distributions an environment has."""
    return len(list(home.glob("lib/python*/site-packages/*.dist-info")))


def main() -> int:
    """Measure, and print the table; with --write, write it into the page."""
    options = page.parser(__doc__, MARK).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wheel = build_wheel(Path(folder))
        said = f"The wheel has {wheel.stat().st_size / 1e6:.1f} MB."
        rows = [measure(wheel, extras, *tried) for extras, tried in TRIED.items()]
    table = page.table(["", "packages", "MB", "s, with downloads", "then ran"], rows, range(1, 4))
    page.publish(f"{said}\n\n{table}", MARK, options.write)
    return 0


if __name__ == "__main__":
    sys.exit(run_interruptible("install", main))
