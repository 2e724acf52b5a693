"""The report and its plots."""

import html
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pytest
from fake_engine import FakeEngine

from bbrgym import Flow, Scenario, simulate
from bbrgym.benchmark import plots, report, tables
from bbrgym.benchmark.metrics import measure
from bbrgym.benchmark.paper_files import write_paper_files
from bbrgym.benchmark.plan import Benchmark
from bbrgym.benchmark.report import marks_of_report, write_report
from bbrgym.benchmark.results import load_benchmark
from bbrgym.envs.trace_file import save_trace
from bbrgym.files import write_json

CONFIG: dict[str, Any] = {
    "name": "tried",
    "engine": "fake",
    "seeds": [1, 2, 3],
    "scenarios": {
        "duel": {"rate_mbps": 20, "duration_s": 3, "loss": 0.02, "flows": [{"rtt_ms": 10}, {"rtt_ms": 50}]},
        "a & b": {"rate_mbps": 12, "duration_s": 3, "flows": [{"rtt_ms": 30}, {"rtt_ms": 30, "start_s": 1}]},
    },
    "competitors": [
        "bbr",
        "cubic",
        {"name": "<i>calm</i> $\\bad$", "algorithm": "agent", "parameters": {"cwnd_gain": 1.2}},
    ],
}


def make_benchmark(directory: Path, done: slice = slice(None)) -> None:
    """Write a benchmark's directory with the runs `done`."""
    benchmark = Benchmark.from_dict(CONFIG)
    runs = benchmark.runs()
    plan = {
        "config": benchmark.to_dict(),
        "runs": [run.names() for run in runs],
        "provenance": {"command": "bbrgym benchmark", "code": "c0de"},
        "started": "2026-11-21T07:22:51+00:00",
    }
    write_json(directory / "benchmark.json", plan)
    write_json(directory / "failures.json", [])
    for run in runs[done]:
        trace = simulate(run.scenario, FakeEngine(), run.seed)
        place = directory / "runs" / run.key
        place.mkdir(parents=True, exist_ok=True)
        save_trace(trace, place / "trace.parquet")
        rows = measure(trace, after_s=benchmark.warmup * run.scenario.duration_s)
        write_json(place / "metrics.json", {"trace_hash": trace.hash, "rows": rows})


def written(directory: Path) -> str:
    return write_report(load_benchmark(directory)).read_text()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A report with runs over time of the first scenario alone: a figure takes a third of a second."""
    directory = tmp_path_factory.mktemp("report")
    make_benchmark(directory)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "MOST_SCENARIOS_OVER_TIME", 1)
        return written(directory)


def test_notes_below_tables_are_sentences(page: str) -> None:
    notes = [note for note in re.findall(r'<p class="quiet">(.*?)</p>', page, re.DOTALL) if "n: runs" in note]
    assert notes
    for note in notes:
        assert note.endswith("."), note


def test_report_loads_nothing_from_elsewhere(page: str) -> None:
    class Loads(HTMLParser):
        def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
            assert tag not in ("link", "iframe", "img", "image"), tag
            for name, value in attributes:
                if name in ("href", "src", "xlink:href"):
                    assert value is not None
                    assert value.startswith("#"), f"<{tag} {name}={value!r}>"

    Loads().feed(page)
    assert not re.findall(r"url\((?!#)", page)
    assert "@import" not in page
    assert not re.search(r"fetch\(|XMLHttpRequest|import\(", page)
    assert ("&lt;i&gt;calm&lt;/i&gt;" in page, "<i>calm" in page) == (True, False)


def test_every_figure_is_well_formed_and_has_a_text_alternative(page: str) -> None:
    figures = re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL)
    assert len(figures) == 2 * 3 + 1 + 2 * len(CONFIG["competitors"])
    for figure in figures:
        root = ElementTree.fromstring(figure)
        assert root.get("role") == "img"
        assert root.get("aria-label")
        assert root.get("viewBox")
        assert root.get("width") is None


def colours_of(figure: str) -> set[str]:
    return set(re.findall(r"#[0-9a-f]{6}", figure))


def test_a_competitor_has_one_colour_in_all_figures_of_a_report(page: str) -> None:
    result_marks = marks_of_report(Benchmark.from_dict(CONFIG).to_dict())
    colours = {html.escape(name): mark.colour.lower() for name, mark in result_marks.items()}
    assert len(set(colours.values())) == len(CONFIG["competitors"])
    figures = re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL)
    for name, own in colours.items():
        (delay,) = (one for one in figures if f"queueing delay over time, {name}," in one)
        others = set(colours.values()) - {own, "#000000"}  # axes are black
        assert own in colours_of(delay)
        assert not others & colours_of(delay)
        assert all(own in colours_of(figure) for figure in figures[:2])


def test_an_agent_that_runs_another_algorithm_keeps_its_own_colour() -> None:
    scenario = Scenario(duration_s=3, rate_mbps=5, flows=(Flow("bbr", rtt_ms=20), Flow("cubic", rtt_ms=20)))
    trace = simulate(scenario, FakeEngine())
    assert plots.flow_names(trace, "slow", roles=[0]) == ["slow", "cubic"]
    assert plots.flow_names(trace, "slow") == ["bbr", "cubic"]


@pytest.fixture
def lone(tmp_path: Path) -> Path:
    """The folder of a benchmark of single flows, of which two are the same algorithm."""
    config = CONFIG | {
        "scenarios": {"alone": {"rate_mbps": 12, "duration_s": 3, "flows": [{"rtt_ms": 30}]}},
        "competitors": ["bbr", {"name": "twin", "algorithm": "bbr"}, "cubic"],
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "CONFIG", config)
        make_benchmark(tmp_path)
    return tmp_path


def test_a_report_of_single_flows_has_no_jain_and_no_shares(lone: Path) -> None:
    page = written(lone)
    assert "Jain" not in page.partition("<h2>Metrics</h2>")[0]
    assert "share of the throughput" not in page
    write_paper_files(load_benchmark(lone))
    assert [path.name for path in (lone / "paper").glob("*.pdf")] == ["01-alone-delay.pdf"]
    assert "Jain" not in (lone / "paper" / "01-alone.tex").read_text()


def test_a_report_begins_with_what_it_shows_and_says_what_is_identical(lone: Path, page: str) -> None:
    assert "bbr and twin are identical in all runs." in written(lone)
    assert "identical in all runs" not in page
    headline = re.search(r'class="headline">(.*?)</p>', page, flags=re.DOTALL)
    assert headline is not None
    assert headline[1].startswith("Of 3 competitors in 2 scenarios, ")
    assert "is number" not in headline[1]


def test_a_report_says_which_place_an_agent_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = {"name": "agent", "algorithm": "agent", "parameters": {"cwnd_gain": 1.2}}
    monkeypatch.setitem(globals(), "CONFIG", CONFIG | {"competitors": ["bbr", "cubic", agent]})
    make_benchmark(tmp_path)
    result = load_benchmark(tmp_path)
    order = [*dict.fromkeys(tables.overall_table(result.results).index)]
    place = order.index("agent") + 1
    assert f" agent is number {place} of 3, sorted by " in report.headline(result, ["duel", "a & b"])


def test_paper_files_have_the_numbers_of_the_report(tmp_path: Path) -> None:
    make_benchmark(tmp_path, done=slice(0))
    with pytest.raises(ValueError, match="no finished run"):
        write_paper_files(load_benchmark(tmp_path))
    make_benchmark(tmp_path)
    result = load_benchmark(tmp_path)
    folder = write_paper_files(result)
    summary = pd.read_csv(folder / "summary.csv", index_col=["scenario", "competitor"])
    assert len(summary) == 2 * len(CONFIG["competitors"])
    one = result.results[(result.results["scenario"] == "duel") & (result.results["competitor"] == "bbr")]
    assert summary.loc[("duel", "bbr"), "link_jain mean"] == pytest.approx(
        one.groupby("seed")["link_jain"].first().mean()
    )
    tex = (folder / "02-a-b.tex").read_text()
    assert "\\toprule" in tex
    heads = tex[tex.index("\\toprule") :].partition("\\midrule")[0]
    assert all(head in heads for head in ("flow 0 (Mbit/s)", "flow 1 (Mbit/s)", "queue p95 (ms)", "RTT p95 (ms)"))
    (row,) = (line for line in (folder / "01-duel.tex").read_text().splitlines() if line.startswith("bbr &"))
    assert len(row.split(" & ")) == heads.count(" & ") + 1
    assert r"\$\textbackslash bad\$" in tex
    pdfs = sorted(path.name for path in folder.glob("*.pdf"))
    assert pdfs == [f"{stem}-{plot}.pdf" for stem in ("01-duel", "02-a-b") for plot in ("delay", "jain", "shares")]


def test_report_of_an_interrupted_and_partly_failed_benchmark_is_reproducible(tmp_path: Path) -> None:
    failure = {"scenario": "duel", "competitor": "cubic", "seed": 1, "error": "EngineError: <died> & gone"}
    make_benchmark(tmp_path, done=slice(1))
    plan = json.loads((tmp_path / "benchmark.json").read_text())
    write_json(tmp_path / "failures.json", [failure | {"key": plan["runs"][1]["key"]}])
    pages = [written(tmp_path) for _ in range(2)]
    assert pages[0] == pages[1]
    for text in (
        "1 of 18 runs are done",
        "EngineError: &lt;died&gt; &amp; gone",
        "16 runs are missing",
        "No run of this scenario is done.",
    ):
        assert text in pages[0], text
