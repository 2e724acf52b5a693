"""The study of papers: figures share runs, and a figure is of older code until all of its runs are measured."""

import re
from pathlib import Path

import numpy as np
import pytest

from bbrgym.benchmark.ledger import Rows
from bbrgym.benchmark.metrics import MEASURED, RUN_COLUMNS
from bbrgym.benchmark.published import VERDICTS
from studies import page, papers
from studies.study import Study

FIGURE, ABLATION = "acw-latency", "ablation/bbr-acw"


def made_up(*names: str) -> dict[str, Rows]:
    """Return made-up results of all runs of some figures."""
    random = np.random.default_rng(7)
    results: dict[str, Rows] = {}
    for job in papers.jobs():
        if set(names) & set(job.figures):
            run = {name: 1.0 + random.random() for name in RUN_COLUMNS}
            rows = [
                {
                    **{name: 1.0 + random.random() for name in MEASURED},
                    **run,
                    "flow": index,
                    "algorithm": flow.algorithm,
                }
                for index, flow in enumerate(job.run.scenario.flows)
            ]
            kept = [{column: row[column] for column in papers.COLUMNS} for row in rows]
            results[job.name] = [{"trace": str(len(results)), **row} for row in kept]
    return results


def no_figure(name: str, draw: object) -> str:
    return f"papers/{name}.png"


def test_a_run_of_several_figures_is_one_job() -> None:
    jobs = papers.jobs()
    assert len({job.run.key for job in jobs}) == len({job.name for job in jobs}) == len({job.code for job in jobs})
    assert (
        len(jobs) == len({job.code for job in jobs}) < sum(len(papers._runs_of(name)) for name in papers.experiments())
    )
    shared = {job.figures for job in jobs if FIGURE in job.figures}
    assert any("acw-rttfair-throughput-1bdp" in figures for figures in shared)
    assert all(FIGURE in job.name for job in jobs if FIGURE in job.figures), "so that --only finds them"


def test_the_hash_of_a_run_is_of_what_is_kept_too(monkeypatch: pytest.MonkeyPatch) -> None:
    job = papers.jobs()[0]
    before = job.code
    monkeypatch.setattr(papers, "COLUMNS", papers.COLUMNS[:-1])
    assert job.code != before


@pytest.mark.parametrize("name", papers.experiments())
def test_what_is_kept_is_enough_for_every_figure(name: str) -> None:
    results = made_up(name)
    measured = papers.results_of(name, results)
    assert measured is not None
    section = papers.Section.of(papers.experiments()[name], measured)
    assert not section.is_older
    assert [entry.what for entry in section.entries if entry.measured == "-"] == []
    assert bool(section.variants) == ("/" in name)
    assert "nan" not in section.table + section.variants


def test_a_figure_is_of_older_code_until_all_of_its_runs_are_measured() -> None:
    results = made_up(FIGURE)
    found = papers.sections(results)
    assert [name for name, section in found.items() if not section.is_older and name == FIGURE] == [FIGURE]
    missing = next(job.name for job in papers.jobs() if FIGURE in job.figures)
    del results[missing]
    assert papers.sections(results)[FIGURE].is_older
    shown = papers.view(results, no_figure)
    assert FIGURE in str(shown["older"])


def test_a_figure_that_nobody_measured_is_on_no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "load_older", lambda study: {"runs": "", "figures": {}})
    shown = papers.view(made_up(FIGURE), no_figure)
    assert FIGURE not in shown["missing"]
    assert ABLATION in shown["missing"]
    assert list(papers.parts(made_up(ABLATION), no_figure)) == ["bbr-acw"]


def test_every_figure_has_an_address_on_the_page_of_its_paper() -> None:
    root = page.RESULTS
    for name in papers.experiments():
        file, _, anchor = papers.address_of(name).partition("#")
        headings = re.findall(r"^## (.*)$", (root / file).read_text("utf-8"), re.MULTILINE)
        assert anchor in [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]


def test_nothing_that_was_measured_is_lost() -> None:
    study = Study("papers")
    results = {name: entry.rows for name, entry in study.ledger.load(papers.jobs()).items()}
    found = papers.sections(results)
    assert set(found) == set(papers.experiments())
    for name, section in found.items():
        assert len(section.entries) == len(papers.experiments()[name].paper.published)
        assert {entry.verdict for entry in section.entries} <= set(VERDICTS)


def test_older_code_is_forgotten_once_every_figure_is_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(page, "RESULTS", tmp_path)
    shown = papers.view(made_up(*papers.experiments()), no_figure)
    assert (shown["older"], shown["missing"]) == ([], [])
