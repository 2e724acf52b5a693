"""Write the table of clients at the end of docs/recipes.md from the report of its tests; `make clients` does so."""

import platform
import sys
from importlib import metadata
from typing import Final
from xml.etree import ElementTree

from recipe_page import PAGE

from studies.blocks import write_block
from studies.page import cell, table

HEADINGS: Final = ("client", "versions", "what was run", "result")


def main(report: str) -> None:
    """Write the block `clients` of the page.

    Args:
        report: path of pytest's JUnit XML, with the properties of the fixture `recipe`.
    """
    rows = sorted(filter(None, map(_row, ElementTree.parse(report).iter("testcase"))), key=lambda row: row[0].lower())
    packages = ", ".join(f"{package} {metadata.version(package)}" for package in ("gymnasium", "numpy", "torch"))
    write_block(PAGE, "clients", f"Python {platform.python_version()}, {packages}:\n\n{table(HEADINGS, rows)}")


def _row(test: ElementTree.Element) -> tuple[str, ...] | None:
    properties = {node.attrib["name"]: node.attrib["value"] for node in test.iter("property")}
    if "client" not in properties:
        return None
    result = "passed"
    for node in test:
        if node.tag in ("failure", "error", "skipped"):
            result = f"{node.tag}: {node.attrib['message']}"
    return tuple(map(cell, (properties["client"], properties.get("versions", ""), properties["tried"], result)))


if __name__ == "__main__":
    main(sys.argv[1])
