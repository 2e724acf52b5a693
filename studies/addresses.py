"""Check the public addresses: `python -m studies.addresses [--write] [--complete]`.

`src/bbrgym/addresses.toml` has them. This prints which are missing, and fails if a file differs from what it takes from
there.

    --write      write the addresses into these files
    --complete   fail if an address is missing: before a release
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from bbrgym.addresses import addresses
from bbrgym.files import write_text
from bbrgym.output import run_program
from studies.blocks import with_block
from studies.page import table

ROOT: Final = Path(__file__).parents[1]
MARK: Final = "addresses (src/bbrgym/addresses.toml)"
TITLES: Final = {"repository": "Source", "package": "Package", "site": "Documentation", "playground": "Playground"}

Addresses = Mapping[str, str]


def links(public: Addresses) -> str:
    """Return the line of links with which a page begins; empty if nothing is public."""
    return " · ".join(f"[{TITLES[name]}]({address})" for name, address in public.items() if address)


def citation(public: Addresses) -> str:
    """Return the BibTeX entry of the project, as CITATION.cff has it."""
    fields = {}
    for line in (ROOT / "CITATION.cff").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(": ")
        fields[name] = value.strip('"')
    entry = {
        "title": f"{{{fields['title']}}}",
        "author": "{{The bbrgym authors}}",
        "year": f"{{{fields['date-released'][:4]}}}",
        "version": f"{{{fields['version']}}}",
    }
    if url := public["repository"] or public["site"]:
        entry["url"] = f"{{{url}}}"
    body = "".join(f"  {name} = {value},\n" for name, value in entry.items())
    return f"```bibtex\n@software{{bbrgym,\n{body}}}\n```"


def installs(public: Addresses) -> str:
    """Return the ways to install it; a checkout is the first while no package index has it."""
    checkout = ["everything, from a checkout: ns-3, training, tracking, tests", "`make setup`"]
    library = "a library, from a wheel: native simulation, environments, scoring; on Linux also `engine=linux`"
    if public["package"]:
        first = [[library, "`pip install bbrgym`"], checkout]
    else:
        first = [checkout, [f"{library}. No package index has it yet: build it in a checkout", "`pip install .`"]]
    ns3 = ["the same with ns-3", "[from source](#with-ns-3)"]
    container = ["everything in a container", "`docker build -t bbrgym .` ([Dockerfile](../Dockerfile))"]
    return table(["for", "command"], [*first, ns3, container])


def urls(public: Addresses) -> str:
    """Return the addresses for pyproject.toml."""
    lines = [f'{TITLES[name]} = "{address}"' for name, address in public.items() if address and name != "package"]
    return "\n".join(["[project.urls]", *lines]) if lines else ""


def of_citation(public: Addresses) -> str:
    """Return the addresses for CITATION.cff."""
    keys = {"repository": "repository-code", "site": "url", "package": "repository-artifact"}
    return "\n".join(f"{keys[name]}: {address}" for name, address in public.items() if address and name in keys)


WRITTEN: Final[Mapping[str, Mapping[str, Callable[[Addresses], str]]]] = {
    "README.md": {"addresses": links, "citation": citation},
    "docs/index.md": {"addresses": links, "citation": citation},
    "docs/install.md": {"ways to install": installs},
    "pyproject.toml": {MARK: urls},
    "CITATION.cff": {MARK: of_citation},
}
"""The blocks of files that have addresses, and what writes each."""


def written(path: str, public: Addresses, root: Path = ROOT) -> str:
    """Return a file with its blocks as the addresses say.

    Raises:
        ValueError: the file lacks the marks of a block.
    """
    text = (root / path).read_text(encoding="utf-8")
    for name, block in WRITTEN[path].items():
        if path.endswith(".md"):
            text = with_block(text, name, block(public))
        else:
            text = with_block(text, name, block(public), begin="# begin: {name}", end="# end: addresses")
    return text


def main(arguments: list[str] | None = None) -> int:
    """Check or write; return 1 if a file differs, or if an address is missing and all must be there."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--complete", action="store_true")
    options = parser.parse_args(arguments)
    public = addresses()
    different = []
    for path in WRITTEN:
        text = written(path, public)
        if text != (ROOT / path).read_text(encoding="utf-8"):
            different.append(path)
            if options.write:
                write_text(ROOT / path, text)
    missing = [name for name, address in public.items() if not address]
    print(f"addresses that are missing in src/bbrgym/addresses.toml: {', '.join(missing) or 'none'}")
    if different:
        done = "written" if options.write else "differ from it, so run `python -m studies.addresses --write`"
        print(f"{', '.join(different)}: {done}")
    return int(bool(different and not options.write) or bool(missing and options.complete))


if __name__ == "__main__":
    sys.exit(run_program("addresses", main))
