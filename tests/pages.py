"""Pages of docs/results for tests: their marks without what is between them."""

from pathlib import Path

RESULTS = Path(__file__).parents[1] / "docs" / "results"


def empty_page(page: str, folder: Path) -> Path:
    """Write a file with the marks of a page, and nothing between them."""
    lines = (RESULTS / page).read_text(encoding="utf-8").splitlines()
    path = folder / page
    path.write_text("\n".join(line for line in lines if line.startswith(("<!-- begin: ", "<!-- end: "))))
    return path
