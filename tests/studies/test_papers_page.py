"""The page on the papers' experiments."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
from pages import empty_page
from paper_experiment import claims_of, make_experiment

from bbrgym.benchmark.results import Failure, load_benchmark
from studies.papers.page import write_page
from studies.papers.published import compare, paper_of
from studies.papers.run import Experiment


@pytest.fixture(scope="module")
def experiments(tmp_path_factory: pytest.TempPathFactory) -> list[Experiment]:
    """Experiments: complete, with failed runs, and an ablation."""
    root = tmp_path_factory.mktemp("runs")
    make_experiment(root / "paper-quick" / "calm-one")
    make_experiment(root / "paper-quick" / "calm-two", done=slice(3))
    make_experiment(root / "ablation-quick" / "calm-one", roles=[0])
    return [of(root / name) for name in ("paper-quick/calm-one", "paper-quick/calm-two", "ablation-quick/calm-one")]


def of(directory: Path) -> Experiment:
    result = load_benchmark(directory)
    failures = [Failure(**run, error="died") for run in result.missing]
    result = dataclasses.replace(result, failures=failures, missing=[])
    paper = paper_of(result, claims_of(directory))
    group = directory.parent.name.partition("-")[0]
    return Experiment(group, directory.name, result, paper, compare(paper, result.results))


@pytest.fixture(scope="module")
def docs(experiments: list[Experiment], tmp_path_factory: pytest.TempPathFactory) -> Path:
    docs = tmp_path_factory.mktemp("docs")
    write_page(experiments, empty_page("papers.md", docs))
    return docs


@pytest.fixture(scope="module")
def page(docs: Path) -> str:
    return (docs / "papers.md").read_text()


def section(page: str, heading: str) -> str:
    return page.split(f"\n### {heading}\n")[1].split("\n### ")[0]


def row_of(page: str, first: str) -> list[str]:
    """The cells of the table's row whose first cell begins so."""
    (line,) = [line for line in page.splitlines() if line.startswith(f"| {first}")]
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def test_summary_counts_what_agrees(page: str) -> None:
    # Of five entries: one bound is kept, two are not, and two numbers have none to be compared with.
    assert row_of(page, "[calm-one](#calm-one) ")[2:6] == ["1", "2", "0", "2"]
    assert "published above 3" in row_of(page, "[calm-one](#calm-one) ")[6]


def test_failures_are_said(page: str) -> None:
    assert "**9 of 12 runs failed.**" in section(page, "calm-two")
    assert "9 of 12 runs failed." in row_of(page, "[calm-two]")[6]


def test_the_page_has_the_marks_and_its_links_lead_somewhere(page: str, docs: Path) -> None:
    headings = re.findall(r"^#+ (.*)$", page, flags=re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    inner = set(re.findall(r"\]\(#([^)]*)\)", page))
    assert {"calm-one", "calm-two"} <= inner <= slugs
    images = re.findall(r"!\[[^\]]*\]\(([^)]*)\)", page)
    assert images == [f"papers/{name}.png" for name in ("calm-one", "calm-two", "ablation-calm-one")]
    assert sorted(images) == sorted(f"papers/{path.name}" for path in (docs / "papers").iterdir())
    assert "[J. Calm 1(1), 2020](https://example.org/calm), section 5, figure 1" in page


def test_equal_results_make_equal_files(docs: Path, experiments: list[Experiment], tmp_path: Path) -> None:
    write_page(experiments, empty_page("papers.md", tmp_path))
    for path in [docs / "papers.md", *(docs / "papers").iterdir()]:
        assert (tmp_path / path.relative_to(docs)).read_bytes() == path.read_bytes()


def test_reasons_are_given_or_said_to_be_unknown(page: str) -> None:
    shown = section(page, "calm-one")
    assert "* link_jain of bbr, lossy: no index \\| is above \\<i>1\\</i>." in shown
    assert "* The cause is not isolated yet: link_jain of calm, clean." in shown
