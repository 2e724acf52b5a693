"""Check that C++ includes only go down: controllers < link model < transport < engines, and nothing in a circle.

`python tests/check_includes.py` prints every include that breaks a rule and exits with 1 if there is one.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]

BELOW_MODEL: Final = ("baselines/cc", "envs/columns.def", "envs/scenario.def")
BELOW_TRANSPORT: Final = (*BELOW_MODEL, "envs/model")
BELOW_ENGINES: Final = (*BELOW_TRANSPORT, "envs/transport")
MAY_INCLUDE: Final[dict[str, tuple[str, ...]]] = {
    "baselines/cc": (),
    "envs/columns.def": (),
    "envs/scenario.def": (),
    "envs/model": BELOW_MODEL,
    "envs/transport": BELOW_TRANSPORT,
    "envs/native": BELOW_ENGINES,
    "envs/linux": BELOW_ENGINES,
    "ns3_scratch": BELOW_ENGINES,
}
"""What the files of a place may include, beside each other."""

NS3: Final = "ns3_scratch"
"""The only folder that may include ns-3, which is GPL-2.0-only."""

INCLUDE: Final = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)


def find_violations(root: Path) -> list[str]:
    """Return one line for every include that breaks a rule and for every circle."""
    sources = {
        str(file.relative_to(root)): file.read_text(encoding="utf-8")
        for place in MAY_INCLUDE
        for file in [root / place, *sorted((root / place).rglob("*"))]
        if file.is_file() and file.suffix in (".h", ".cc", ".def")
    }
    violations = []
    includes: dict[str, list[str]] = {}
    for name, text in sources.items():
        includes[name] = []
        for given in INCLUDE.findall(text):
            if given.startswith("ns3/"):
                if place_of(name) != NS3:
                    violations.append(f"{name} includes {given}: only {NS3} may include ns-3")
                continue
            beside = str(Path(name).parent / given)
            included = next((file for file in (given, beside) if file in sources), None)
            if included is None:
                if (root / given).exists():
                    violations.append(f"{name} includes {given}, which belongs to no floor")
                continue  # of a library
            includes[name].append(included)
            if place_of(included) not in (place_of(name), *MAY_INCLUDE[place_of(name)]):
                violations.append(f"{name} includes {included}, which is not below it")
    return [*violations, *(f"circle: {' -> '.join(circle)}" for circle in find_circles(includes))]


def place_of(name: str) -> str:
    """Return the key of `MAY_INCLUDE` that a file belongs to."""
    return next(place for place in MAY_INCLUDE if name == place or name.startswith(f"{place}/"))


def find_circles(includes: dict[str, list[str]]) -> Iterator[list[str]]:
    """Yield the circles of includes, each once, from the first file to itself."""
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> Iterator[list[str]]:
        if name in path:
            yield [*path[path.index(name) :], name]
        elif name not in done:
            for included in includes[name]:
                yield from visit(included, [*path, name])
            done.add(name)

    for name in includes:
        yield from visit(name, [])


def main() -> int:
    """Print the violations; return the exit status."""
    violations = find_violations(ROOT)
    print("\n".join(violations), end="\n" if violations else "")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
