"""The experiments of the papers, all of them in one go."""

import re
from pathlib import Path

import fake_engine
import pytest
from fake_engine import FakeEngine
from in_process import ExecutorInThisProcess
from pages import empty_page

from bbrgym import Scenario
from bbrgym.benchmark.results import load_benchmark
from studies.papers.__main__ import main
from studies.papers.published import VERDICTS, compare, paper_of

# Two experiments of one paper with the same runs, and an ablation, made short.
FIRST, SECOND, ABLATION = "acw-latency", "acw-rttfair-throughput-1bdp", "ablation/bbr-acw"
SHORT = ["engine.name=fake", "presets.quick.duration_s=2", "presets.quick.seeds=[1]"]


class _Cursed(FakeEngine):
    """Fails with bbq."""

    def begin_reset(self, scenario: Scenario, seed: int) -> None:
        if scenario.flows[0].algorithm == "bbq":
            self.fail_at_step = 1
        super().begin_reset(scenario, seed)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Run everything in this process, and write empty reports."""
    monkeypatch.setattr("bbrgym.benchmark.run.make_executor", ExecutorInThisProcess)
    monkeypatch.setattr("bbrgym.benchmark.report.write_report", lambda result: result.directory / "benchmark.json")
    monkeypatch.chdir(tmp_path)


def line_of(text: str, experiment: str) -> list[str]:
    """Return the cells of an experiment's line in the printed table."""
    (cells,) = (line.split() for line in text.splitlines() if line.split()[:1] == [experiment] and "(" not in line)
    return cells


def test_from_the_command_line_to_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    empty_page("papers.md", Path())
    assert main([f"only=[{SECOND},{FIRST},{ABLATION}]", "write=papers.md", *SHORT]) == 0
    text = capsys.readouterr().out
    # A run that two experiments have is made once.
    assert f"paper/{FIRST} (1 of 3)" in text
    assert "4 of 4 runs linked from other benchmarks" in text
    directories = [Path("runs/benchmark/paper-quick") / name for name in (FIRST, SECOND)]
    traces = [sorted(directory.glob("runs/*/trace.parquet")) for directory in directories]
    assert len(traces[0]) == 4
    assert all(a.samefile(b) for a, b in zip(*traces, strict=True))
    for directory in directories:
        result = load_benchmark(directory)
        assert all(row.measured != "-" for row in compare(paper_of(result), result.results))
        assert line_of(text, f"paper/{directory.name}")[-1] == f"paper-quick/{directory.name}"
        command = result.plan["provenance"]["command"]
        assert command.startswith(f"bbrgym benchmark experiment=paper/{directory.name} preset=quick engine.name=fake")
    assert "Reports: runs/benchmark/…/report.html" in text
    assert "Page: papers.md" in text
    page = Path("papers.md").read_text()
    slugs = {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in re.findall("^#+ (.*)$", page, re.M)}
    assert {FIRST, SECOND} < set(re.findall(r"\]\(#([^)]*)\)", page)) <= slugs
    images = [f"{name}.png" for name in (FIRST, SECOND, ABLATION.replace("/", "-"))]
    assert re.findall(r"\]\(papers/([^)]*)\)", page) == images
    assert sorted(images) == sorted(path.name for path in Path("papers").iterdir())
    assert "| bbr-acw | `bbr-acw` |" in page
    assert "nan" not in page

    assert main([f"only={FIRST}", *SHORT]) == 0
    assert "4 of 4 runs are already done" in capsys.readouterr().out


def test_failures_do_not_end_the_rest(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake_engine, "FakeEngine", _Cursed)
    empty_page("papers.md", Path())
    assert main([f"only=[{FIRST},{SECOND}]", "write=papers.md", *SHORT]) == 1
    printed = capsys.readouterr()
    assert "2 runs failed" in printed.err
    for name in (FIRST, SECOND):
        result = load_benchmark(Path("runs/benchmark/paper-quick") / name)
        assert [failure.competitor for failure in result.failures] == ["bbq"]
        rows = compare(paper_of(result), result.results)
        verdicts = [row.verdict for row in rows]
        assert "not judged" in verdicts  # those of bbq
        counts = [str(verdicts.count(verdict)) for verdict in VERDICTS]
        assert line_of(printed.out, f"paper/{name}")[1:6] == [*counts, "1"]
    assert Path("papers.md").read_text().count("**1 of 4 runs failed.**") == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["only=[acw-latncy]"], "unknown experiment 'paper/acw-latncy' (did you mean 'paper/acw-latency'?)"),
        (["only=[]"], "only must name at least one experiment, got []"),
        (["preset=long"], "preset must be one of quick, full, got 'long'"),
        (["preset=quick,full"], "preset=quick,full: give one value, not a sweep"),
        (["only=acw-latency", "benchmark.procs=1"], "Could not override 'benchmark.procs'"),
    ],
)
def test_a_mistake_gets_one_message_and_runs_nothing(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    assert message in capsys.readouterr().err
    assert not Path("runs").exists()
