"""The page on the papers' experiments."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from pages import empty_page
from paper_experiment import PAPER, claims_of, make_experiment

from bbrgym.benchmark.results import load_benchmark
from studies.papers.page import write_page
from studies.papers.report import paper_sections

ACD = {
    "published": [
        {"metric": "inorder_loss", "scenario": "lossy", "competitor": "bbr", "is": "above", "value": 0.4},
        {"metric": "rtt_mean_ms[0]", "scenario": "lossy", "competitor": "bbr", "value": 35},
    ],
    "figures": [{"title": "Figure 1: windows", "kind": "time", "y": ["cwnd_packets"], "scenario": "clean"}],
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Experiments: complete, unfinished, begun, not begun, and an ablation."""
    root = tmp_path_factory.mktemp("runs")
    make_experiment(root / "paper-quick" / "calm-one")
    # The first three runs are the same as those of calm-one.
    make_experiment(root / "paper-quick" / "calm-two", done=slice(3), paper=PAPER | ACD)
    make_experiment(root / "paper-quick" / "calm-begun", done=slice(0))
    make_experiment(root / "ablation-quick" / "calm-one", roles=[0])
    return root


def directories(runs: Path) -> list[Path]:
    papers = [runs / "paper-quick" / name for name in ("calm-one", "calm-two", "calm-begun", "calm-none")]
    return [*papers, runs / "ablation-quick" / "calm-one"]


@pytest.fixture(scope="module")
def docs(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    docs = tmp_path_factory.mktemp("docs")
    write_page(directories(runs), empty_page("papers.md", docs), runs / "claims")
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


def test_what_is_missing_is_said_to_be(page: str) -> None:
    assert "Unfinished: 3 of 12 runs are done." in section(page, "calm-two")
    assert "Unfinished: 3 of 12 runs are done." in row_of(page, "[calm-two]")[6]
    assert "Unfinished: 0 of 12 runs are done." in section(page, "calm-begun")
    for text in (section(page, "calm-none"), row_of(page, "[calm-none]")[6]):
        assert "Missing: not run yet (`bbrgym benchmark experiment=paper/calm-none preset=quick`)." in text


def test_the_page_has_the_marks_and_its_links_lead_somewhere(page: str, docs: Path) -> None:
    headings = re.findall(r"^#+ (.*)$", page, flags=re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    inner = set(re.findall(r"\]\(#([^)]*)\)", page))
    assert {"calm-one", "calm-none"} <= inner <= {*slugs, "metrics-with-misleading-names"}
    images = re.findall(r"!\[[^\]]*\]\(([^)]*)\)", page)
    assert images == [f"papers/{name}.png" for name in ("calm-one", "calm-two", "ablation-calm-one")]
    assert sorted(images) == sorted(f"papers/{path.name}" for path in (docs / "papers").iterdir())
    assert "**On \\<calm> \\| a study of \\*calmness\\***" in page


def test_equal_results_make_equal_files(docs: Path, runs: Path, tmp_path: Path) -> None:
    copied = tmp_path / "elsewhere"
    shutil.copytree(runs, copied)
    write_page(directories(copied), empty_page("papers.md", tmp_path), copied / "claims")
    for path in [docs / "papers.md", *(docs / "papers").iterdir()]:
        assert (tmp_path / path.relative_to(docs)).read_bytes() == path.read_bytes()


def test_page_says_how_it_was_made_but_not_when(page: str) -> None:
    assert row_of(page, "hash of the code")[1] == "c0de"
    assert row_of(page, "ns-3")[1] == "3.44"
    assert "Preset quick, seeds 1, 2: 20 runs" in page
    # Each took 0.5 s. 12 of calm-one, and 8 of the ablation: its 4 of bbr, whose rival is bbr, are among those.
    assert "20 runs, 10.0 s of wall time" in page
    assert "2026" not in page
    assert "abc123" not in page


def test_reasons_are_given_or_said_to_be_unknown(page: str) -> None:
    shown = section(page, "calm-one")
    assert "* link_jain of bbr, lossy: no index \\| is above \\<i>1\\</i>." in shown
    assert "* The cause is not isolated yet: link_jain of calm, clean." in shown


def test_settings_in_one_line(page: str) -> None:
    assert (
        "Settings: 20 Mbit/s; 2 flows; RTT ratio 5; longest RTT 50 ms; buffer of 1 BDP; "
        "0.1, 5 % random loss; "
        "3 s, the first 25 % not measured; seeds 1, 2; engine fake.\n"
    ) in section(page, "calm-one")


def test_an_ablation_has_a_table_of_its_competitors(page: str) -> None:
    shown = page.split("ablations -->")[1]
    assert "| competitor | algorithm | clean | lossy |" in shown
    assert re.search(
        r"^\| calm \| `agent` with `cwnd_gain=1.05`, `pacing_gain=0.7` \| [01]\.\d\d, [\d.]+ ms \|", shown, re.M
    )
    assert "| bbr | `bbr` |" in shown
    assert "experiment=ablation/calm-one preset=quick" in shown


def test_misleading_metrics_stand_beside_plain_ones(page: str) -> None:
    assert "its goodput (Mbit/s)" not in section(page, "calm-one")
    shown = section(page, "calm-two")
    assert "| received by the application (Mbit/s) | its loss | lost in the network / sent |" in shown
    assert "| scenario | competitor | RTT of flow 0 (ms) | queueing delay (ms) |" in shown


def test_different_code_is_pointed_out(runs: Path, page: str, tmp_path: Path) -> None:
    assert "The results are of different code" not in page
    make_experiment(tmp_path / "paper-quick" / "other", done=slice(0), code="01d")
    shutil.copytree(runs / "claims", tmp_path / "claims", dirs_exist_ok=True)
    chosen = [runs / "paper-quick" / "calm-one", tmp_path / "paper-quick" / "other"]
    write_page(chosen, empty_page("papers.md", tmp_path), tmp_path / "claims")
    text = (tmp_path / "papers.md").read_text()
    assert "**The results are of different code**" in text
    assert row_of(text, "hash of the code")[1] == "01d, c0de"


@pytest.mark.parametrize(
    ("directories_of", "message"),
    [
        (lambda root: [root / "paper-quick" / "x", root / "paper-full" / "x"], "two of the directories are of 'x'"),
        (lambda root: [root / "plain-quick" / "plain"], "'plain/plain' is not the experiment of a paper"),
    ],
)
def test_what_is_not_a_page_is_refused(directories_of: Any, message: str, tmp_path: Path) -> None:
    make_experiment(tmp_path / "plain-quick" / "plain", done=slice(0), paper=None)
    with pytest.raises(ValueError, match=message):
        write_page(directories_of(tmp_path), tmp_path / "page.md", tmp_path / "claims")


def section_of(directory: Path) -> str:
    """Return the paper's section of a benchmark's report."""
    (section,) = paper_sections(load_benchmark(directory), claims_of(directory))
    return section


@pytest.fixture(scope="module")
def paper_section(runs: Path) -> str:
    return section_of(runs / "paper-quick" / "calm-one")


def test_a_report_has_the_paper_its_figures_and_what_it_published(paper_section: str) -> None:
    places = [
        paper_section.index(text)
        for text in (
            "On &lt;calm&gt; | a study of *calmness*",
            "J. Calm 1(1), 2020, section 5, figure 1",
            '<a href="https://example.org/calm" rel="noreferrer">',
            "a &lt;b&gt;droptail&lt;/b&gt; queue",
            "the paper is silent: a test has no more",
            'aria-label="Figure 1: throughput"',
            "One run, seed 1.",
            'aria-label="Figure 2: Jain&#x27;s index"',
            "Means over the seeds with 95 % bootstrap intervals",
            'aria-label="Figure 3: of each flow"',
            "Published and measured",
        )
    ]
    assert places == sorted(places)


def test_published_entries_stand_beside_what_was_measured(paper_section: str) -> None:
    table = paper_section.split("Published and measured")[1].split("</table>")[0]
    rows = re.findall(r"<tr.*?</tr>", table, flags=re.DOTALL)
    shown = [re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", row)).strip() for row in rows[1:]]
    assert len(shown) == len(PAPER["published"]) + 2  # and the reasons of the two that disagree
    assert re.fullmatch(r"link_jain of bbr, clean above 0.01 0\.\d+ \[0\.\d+ 0\.\d+\] yes \d+\.\d\d", shown[0])
    assert re.fullmatch(r"link_jain of calm, clean above 2 \| 2 [01]\.\d+ \[[01]\.\d+ [01]\.\d+\] no 0\.\d\d", shown[1])
    # Nobody knows why: that is said, with the numbers.
    measured = shown[1].split("| 2 ")[1].split(" no")[0]
    assert shown[2] == f"Measured {measured} instead of above 2; the cause is not isolated yet."
    assert shown[4] == "no index | is above &lt;i&gt;1&lt;/i&gt;"
    assert re.search(r" - \d+\.\d\d$", shown[5])  # A number that nothing can be compared with has its ratio.
