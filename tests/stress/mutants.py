"""Change one operator or constant of the controllers' or the transport's C++ at a time: do the tests notice?

    make mutants ARGS="--count 200 --seed 1"

It copies the tracked files, builds the extensions of the copy without optimisation across files, and for each mutant of
a random sample compiles what changed and runs the tests of that file until the first failure. A mutant that does not
compile does not count. One that takes several times as much CPU time as the tests do (an endless loop) is killed.

Survivors are printed. `mutants.json` has those that somebody has looked at and found equivalent: no test can tell them
from the original, so they do not count. At least 90 % of the others must be killed.
"""

import argparse
import hashlib
import importlib
import json
import multiprocessing
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import pytest
from recipe import ROOT, copy_tracked_files

REQUIRED: Final = 0.9
"""The share of mutants that tests must kill."""

JUDGED: Final = Path(__file__).with_suffix(".json")
SOURCES: Final = (
    "baselines/cc/*.cc",
    "baselines/cc/*.h",
    "baselines/cc/policy/*.cc",
    "baselines/cc/policy/*.h",
    "envs/transport/*.cc",
    "envs/transport/*.h",
)
EXTENSIONS: Final = ("_testing", "_native", "_controllers")
"""The extensions that the tests load."""

LIBRARIES: Final = ("gymnasium", "hydra", "hypothesis", "pandas", "pyarrow", "scipy.stats", "torch", "xdist.plugin")
"""What the tests import, which takes longer than most tests: imported once, before the forks that run them."""

_SWAPS: Final = (
    *(
        (f" {a} ", f" {b} ")
        for a, b in (
            ("+", "-"),
            ("-", "+"),
            ("*", "/"),
            ("/", "*"),
            ("<", "<="),
            ("<=", "<"),
            (">", ">="),
            (">=", ">"),
            ("==", "!="),
            ("!=", "=="),
            ("&&", "||"),
            ("||", "&&"),
            ("+=", "-="),
            ("-=", "+="),
        )
    ),
    ("std::min", "std::max"),
    ("std::max", "std::min"),
)
_REMOVE_EDITABLE: Final = "sys.meta_path[:] = [f for f in sys.meta_path if 'Redirecting' not in type(f).__name__]"
_FORK: Final = multiprocessing.get_context("fork")
_NUMBER: Final = re.compile(r"(?<![\w.'])(\d[\d']*)(\.\d+)?(e-?\d+)?([FU]*)(?![\w.'])")
_STATEMENT: Final = re.compile(r"^\s+[a-z_][\w.\[\]>()-]*( [-+*/|]?= |\().*;$")
_TEXT: Final = re.compile(r'"(\\.|[^"\\])*"|\'(\\.|[^\'\\])\'|//.*$')
_SKIPPED: Final = re.compile(r"^\s*(#|//|using |namespace |template|static_assert|throw |friend |return;)|kMagic")


@dataclass(frozen=True)
class Mutant:
    """A changed line (numbers begin with 1), without its indentation; `after` is empty if the statement is removed."""

    file: str
    line: int
    before: str
    after: str

    def applied(self, source: str) -> str:
        """Return the source with the change."""
        lines = source.splitlines(keepends=True)
        old = lines[self.line - 1]
        lines[self.line - 1] = old.replace(old.strip(), self.after) if self.after else "\n"
        return "".join(lines)


def mutants_of(file: str, source: str) -> Iterator[Mutant]:
    """Return all mutants of a source."""
    for number, line in enumerate(source.splitlines(), start=1):
        if _SKIPPED.search(line):
            continue
        # Texts and comments become blanks of the same length, so that positions stay.
        code = _TEXT.sub(lambda match: "\0" * len(match[0]), line)
        changes = []
        for old, new in _SWAPS:
            changes += [(match.start(), match.end(), new) for match in re.finditer(re.escape(old), code)]
        changes += [
            (m.start(), m.end(), "false" if m[0] == "true" else "true") for m in re.finditer(r"\b(true|false)\b", code)
        ]
        changes += [(match.start(), match.end(), "") for match in re.finditer(r"!(?=[a-z_(])", code)]
        changes += [(match.start(), match.end(), _other_number(match)) for match in _NUMBER.finditer(code)]
        for start, end, new in changes:
            yield Mutant(file, number, line.strip(), (line[:start] + new + line[end:]).strip())
        if _STATEMENT.match(code):
            yield Mutant(file, number, line.strip(), "")


def sample(mutants: Iterable[Mutant], count: int, seed: int) -> list[Mutant]:
    """Return a random sample. Each mutant is drawn by its hash, so that a changed source moves few others."""
    ranks: dict[Mutant, bytes] = {}
    seen: Counter[str] = Counter()
    for mutant in mutants:
        key = f"{seed} {mutant.file} {mutant.before} {mutant.after}"
        ranks[mutant] = hashlib.sha256(f"{key} {seen[key]}".encode()).digest()
        seen[key] += 1
    return sorted(ranks, key=ranks.__getitem__)[:count]


def _other_number(match: re.Match[str]) -> str:
    whole, fraction, exponent, suffix = match.groups()
    if fraction is None and exponent is None:
        return f"{int(whole.replace(chr(39), '')) + 1}{suffix}"
    value = float(whole.replace("'", "") + (fraction or "") + (exponent or ""))
    return f"{value * 1.1 if value else 1.0!r}{suffix}"


Attempt = Callable[[Mutant], tuple[str, str]]
"""Tries a mutant; returns `killed`, `survived` or `invalid` (it does not compile), and a remark."""


def score(mutants: Iterable[Mutant], judged: Iterable[Mutant], attempt: Attempt) -> dict[str, list[Mutant]]:
    """Return the mutants by what became of them: survivors that were judged are `equivalent`, wherever they are now."""
    known = {(mutant.file, mutant.before, mutant.after) for mutant in judged}
    found: dict[str, list[Mutant]] = {outcome: [] for outcome in ("killed", "survived", "equivalent", "invalid")}
    for number, mutant in enumerate(mutants, start=1):
        began = time.monotonic()
        outcome, remark = attempt(mutant)
        if outcome == "survived" and (mutant.file, mutant.before, mutant.after) in known:
            outcome = "equivalent"
        found[outcome].append(mutant)
        print(
            f"{number} {outcome} {mutant.file}:{mutant.line} {mutant.before!r} -> {mutant.after!r}: {remark} "
            f"({time.monotonic() - began:.0f} s)",
            flush=True,
        )
    return found


def rate(found: Mapping[str, Sequence[Mutant]]) -> float:
    """Return the share of mutants that are killed, of those that count; 1 if there are none."""
    killed, survived = len(found["killed"]), len(found["survived"])
    return killed / (killed + survived) if killed + survived else 1.0


class Workshop:
    """A copy of the repository in which mutants are built and tested.

    Args:
        folder: where the copy will be.
        files: those that are mutated; the tests of their originals must pass.

    Raises:
        SystemExit: the original does not compile, or its tests fail.
    """

    def __init__(self, folder: Path, files: Iterable[str]) -> None:
        self._copy, self._build, self._output = folder / "bbrgym", folder / "build", folder / "output.txt"
        copy_tracked_files(self._copy)
        # In other processes of the tests, runs after the finder of the editable install has been put in place.
        (folder / "sitecustomize.py").write_text(f"import sys\n{_REMOVE_EDITABLE}\n")
        self._environment = {"PYTHONPATH": f"{folder}:{self._copy}/src", "CCACHE_BASEDIR": str(folder)}
        self._environment |= {"CCACHE_NOHASHDIR": "1", "OMP_NUM_THREADS": "1"}
        if error := self._configure() or self._make():
            raise SystemExit(f"the original does not compile:\n{error}")
        for extension in self._build.glob("_*.so"):
            (self._copy / "src" / "bbrgym" / extension.name).symlink_to(extension)
        self._environment["CCACHE_DISABLE"] = "1"  # no mutant is built twice
        os.environ["OMP_NUM_THREADS"] = "1"
        for library in LIBRARIES:
            importlib.import_module(library)
        before_s = _children_cpu_s()
        tests = {test for file in files for test in tests_of(file) if test.endswith(".py")}
        if failed := self._test(sorted(tests), None):
            raise SystemExit(f"tests of the original fail:\n{failed}")
        self._cpu_s = _children_cpu_s() - before_s
        print(f"tests of the original take {self._cpu_s:.0f} s of CPU time", flush=True)

    def attempt(self, mutant: Mutant) -> tuple[str, str]:
        """Build and test a mutant."""
        path = self._copy / mutant.file
        source = path.read_text()
        path.write_text(mutant.applied(source))
        try:
            if error := self._make():
                return "invalid", error.splitlines()[-1]
            # For some of the tests only, but mutants may be slow where the original is not.
            failed = self._test(tests_of(mutant.file), round(5 + self._cpu_s))
            return ("killed", failed) if failed else ("survived", "")
        finally:
            path.write_text(source)

    def _configure(self) -> str:
        """Configure the build: as that of the checkout, but without ns-3 and without optimisation across files."""
        cmake = self._copy / "CMakeLists.txt"
        cmake.write_text(cmake.read_text().replace("RESULT CMAKE_INTERPROCEDURAL_OPTIMIZATION", "RESULT HAS_LTO"))
        nanobind = subprocess.check_output([sys.executable, "-m", "nanobind", "--cmake_dir"], text=True).strip()
        settings = {
            "CMAKE_BUILD_TYPE": "Release",
            "CMAKE_CXX_FLAGS_RELEASE": "-O1 -DNDEBUG",
            "CMAKE_CXX_COMPILER_LAUNCHER": shutil.which("ccache") or "",
            "Python_EXECUTABLE": sys.executable,
            "nanobind_DIR": nanobind,
            "BBRGYM_TESTING": "ON",
            "BBRGYM_NS3_DIR": "",
        }
        defined = [f"-D{name}={value}" for name, value in settings.items()]
        return self._run("cmake", "-S", str(self._copy), "-B", str(self._build), "-G", "Ninja", *defined)

    def _make(self) -> str:
        """Build what has changed and return the first error."""
        return self._run("ninja", "-C", str(self._build), *EXTENSIONS)

    def _run(self, *command: str) -> str:
        done = subprocess.run(
            command, env=os.environ | self._environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        errors = [line for line in done.stdout.splitlines() if "error" in line.lower()]
        return "" if done.returncode == 0 else (errors or [done.stdout[-400:]])[0]

    def _test(self, tests: Sequence[str], cpu_limit_s: int | None) -> str:
        """Run tests to the first failure and return what failed."""
        # A fork of this process, which has imported all libraries.
        process = _FORK.Process(target=self._test_here, args=(tests, cpu_limit_s))
        process.start()
        process.join(600)
        if process.is_alive():
            process.kill()
            process.join()
            return "took too long"
        if process.exitcode == 0:
            return ""
        failed = [line for line in self._output.read_text().splitlines() if line.startswith(("FAILED", "ERROR"))]
        return failed[0][:100] if failed else f"status {process.exitcode}"

    def _test_here(self, tests: Sequence[str], cpu_limit_s: int | None) -> None:
        """Run tests in this process, with limits and with the copy's package, and exit."""
        if cpu_limit_s is not None:
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_limit_s, cpu_limit_s))
        resource.setrlimit(resource.RLIMIT_AS, (8 * 2**30, 8 * 2**30))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        output = os.open(self._output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(self._copy)
        os.environ.update(self._environment)
        exec(_REMOVE_EDITABLE)
        sys.path.insert(0, str(self._copy / "src"))
        options = ["-x", "-q", "-n0", "-p", "no:cacheprovider", "--tb=line", "-m", "not slow"]
        sys.exit(pytest.main([*options, *tests]))


def tests_of(file: str) -> tuple[str, ...]:
    """Return the arguments of pytest for a mutant of a file: the tests that look at it, the likeliest to fail first."""
    stem, contract = Path(file).stem, "tests/contract/test_controllers.py"
    runs = "tests/unit/test_native_engine.py::test_random_runs_have_their_golden_hash"
    own = f"tests/unit/test_{stem}.py"
    if file.startswith("envs/transport/"):
        first = own if (ROOT / own).is_file() else "tests/unit/test_transport.py"
        others = (
            "tests/unit/test_transport.py",
            "tests/contract/test_rows.py",
            "tests/unit/test_native_engine.py",
            "tests/unit/test_application.py",
        )
        return tuple(dict.fromkeys((first, *others)))
    if file.startswith("baselines/cc/policy"):
        return "tests/unit/test_policy.py", "tests/unit/test_env_parts.py", "tests/unit/test_export.py"
    if stem == "agent":
        return own, contract, runs, "-k", "agent or not test_controllers"
    of_stem = [test for test in (own, f"tests/unit/test_{stem}_cases.py") if (ROOT / test).is_file()]
    if stem not in ("bbr", "bbr2", "bbr3") and of_stem:  # an algorithm that shares no tests with others
        return *of_stem, contract, runs, "-k", f"{stem.replace('_', '-')} or not test_controllers"
    names = dict.fromkeys((stem, "estimators", "bbr", "bbr2", "bbr3", "bbr3_cases", "cubic", "agent", "transport"))
    shared = [f"tests/unit/test_{name}.py" for name in names]
    return (*(test for test in shared if (ROOT / test).is_file()), contract, runs)


def load_judged() -> list[Mutant]:
    """Return the mutants that are equivalent to the original."""
    return [Mutant(entry["file"], 0, entry["before"], entry["after"]) for entry in json.loads(JUDGED.read_text())]


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    """Try a sample of mutants and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="default: 200")
    parser.add_argument("--seed", type=int, default=1, help="default: 1")
    parser.add_argument("--files", default="", help="only files with this in their path")
    options = parser.parse_args()
    files = sorted({path for pattern in SOURCES for path in ROOT.glob(pattern) if path.name != "module.cc"})
    names = [str(path.relative_to(ROOT)) for path in files]
    mutants = [
        mutant for name in names if options.files in name for mutant in mutants_of(name, (ROOT / name).read_text())
    ]
    drawn = sample(mutants, options.count, options.seed)
    print(f"mutants: seed {options.seed}, {len(drawn)} of {len(mutants)}")
    with tempfile.TemporaryDirectory(prefix="bbrgym-mutants-") as folder:
        workshop = Workshop(Path(folder), [mutant.file for mutant in drawn])
        found = score(drawn, load_judged(), workshop.attempt)
    print(
        f"\n{', '.join(f'{outcome} {len(of_outcome)}' for outcome, of_outcome in found.items())}; killed "
        f"{rate(found):.1%} (at least {REQUIRED:.0%})"
    )
    for mutant in found["survived"]:
        print(json.dumps(asdict(mutant)))
    print(f"seed {options.seed}")
    return rate(found) < REQUIRED


if __name__ == "__main__":
    sys.exit(main())
