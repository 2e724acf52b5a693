"""The experiments of the papers, all of them in one go."""

from __future__ import annotations

import io
from importlib.util import find_spec
from pathlib import Path

import pytest
from fake_engine import FakeEngine
from rich.console import Console

from bbrgym import Engine, Scenario
from bbrgym.benchmark.results import load_benchmark
from studies.papers.__main__ import main
from studies.papers.run import experiments, print_papers, run_papers

# Two experiments of one paper with the same runs, made short.
PAIR = ["acw-rttfair-throughput-1bdp", "acw-latency"]
SHORT = ["engine.name=fake", "presets.quick.duration_s=2", "presets.quick.seeds=[1]", "benchmark.processes=2"]


def make_fake(name: str, **options: object) -> Engine:
    assert name == "fake"
    return FakeEngine()


class _Cursed(FakeEngine):
    """Fails with bbq."""

    def begin_reset(self, scenario: Scenario, seed: int) -> None:
        if scenario.flows[0].algorithm == "bbq":
            self.fail_at_step = 1
        super().begin_reset(scenario, seed)


def make_cursed(name: str, **options: object) -> Engine:
    return _Cursed()


def quiet() -> Console:
    return Console(file=io.StringIO(), width=120)


def said(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_experiments_are_papers_and_then_ablations() -> None:
    names = experiments()
    assert set(PAIR) <= {name.removeprefix("paper/") for name in names}
    groups = [name.split("/")[0] for name in names]
    assert groups == sorted(groups, reverse=True)
    assert set(groups) == {"paper", "ablation"}


def test_a_run_that_two_experiments_have_is_made_once(tmp_path: Path) -> None:
    console = quiet()
    first, second = run_papers(tmp_path, only=PAIR, overrides=SHORT, console=console, engine_factory=make_fake)
    assert [result.experiment for result in (first, second)] == [
        "paper/acw-latency",
        "paper/acw-rttfair-throughput-1bdp",
    ]
    assert first.directory == tmp_path / "paper-quick" / "acw-latency"
    assert "4 of 4 runs linked from other benchmarks" in said(console)
    traces = [sorted((result.directory / "runs").glob("*/trace.parquet")) for result in (first, second)]
    assert len(traces[0]) == 4
    assert all(a.samefile(b) for a, b in zip(*traces, strict=True))
    assert all(row.measured != "-" for result in (first, second) for row in result.rows)
    command = load_benchmark(first.directory).plan["provenance"]["command"]
    assert command.startswith("bbrgym benchmark experiment=paper/acw-latency preset=quick engine.name=fake")
    print_papers([first, second], console)
    (line,) = (
        line
        for line in map(str.strip, said(console).splitlines())
        if line.startswith("paper/acw-rttfair-throughput-1bdp  ")
    )
    assert line.endswith("paper-quick/acw-rttfair-throughput-1bdp")
    assert f"Reports: {tmp_path}/…/report.html" in said(console).replace("\n", "")

    again = quiet()
    run_papers(tmp_path, only=PAIR[:1], overrides=SHORT, console=again, engine_factory=make_fake)
    assert "4 of 4 runs are already done" in said(again)


def test_failures_do_not_end_the_rest(tmp_path: Path) -> None:
    results = run_papers(tmp_path, only=PAIR, overrides=SHORT, console=quiet(), engine_factory=make_cursed)
    assert [[failure.competitor for failure in result.failures] for result in results] == [["bbq"], ["bbq"]]
    console = quiet()
    print_papers(results, console)
    (line,) = (line for line in map(str.strip, said(console).splitlines()) if line.startswith("paper/acw-latency "))
    rows = results[0].rows
    agree, disagree = (sum(row.agrees is agrees for row in rows) for agrees in (True, False))
    unclear = sum(row.agreement == "unclear" for row in rows)
    assert sum(row.agreement == "-" for row in rows) >= 1  # those of bbq
    assert line.split()[1:6] == [str(n) for n in (agree, disagree, unclear, len(rows) - agree - disagree - unclear, 1)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["only=[acw-latncy]"], "unknown experiment 'acw-latncy' (did you mean 'acw-latency'?); known: acd-sim"),
        (["only=[]"], "only must name at least one experiment, got []"),
        (["preset=long"], "preset must be one of quick, full, got 'long'"),
        (["preset=quick,full"], "preset=quick,full: give one value, not a sweep"),
        (["only=acw-latency", "benchmark.procs=1"], "Could not override 'benchmark.procs'"),
        (["only=acw-latency", "benchmark.processes=0"], "processes must be an integer >= 1 or null, got 0"),
    ],
)
def test_a_mistake_gets_one_message_and_runs_nothing(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 1
    assert message in capsys.readouterr().err
    assert not Path("runs").exists()


@pytest.mark.skipif(find_spec("bbrgym._ns3") is None, reason="built without ns-3")
def test_from_the_command_line_to_the_page(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["only=acw-latency", "write=page.md", *SHORT[1:]]) == 0
    text = capsys.readouterr().out
    assert "  paper-quick/acw-latency " in text
    assert "What was published" in Path("runs/benchmark/paper-quick/acw-latency/report.html").read_text()
    assert "Page: page.md" in text
    assert "acw-latency" in Path("page.md").read_text()
    # Runs that fail are told by the exit status.
    assert main(["only=acw-latency", *SHORT[1:], "engine.timeout_s=1e-6", "presets.quick.seeds=[7]"]) == 1
    assert "4 runs failed" in capsys.readouterr().err
