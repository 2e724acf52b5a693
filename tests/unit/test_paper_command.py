"""`bbrgym papers`: lists the figures of papers, runs one, and shows what was published beside what was measured."""

import math
import re
import shlex
from pathlib import Path

import pytest
from in_process import ExecutorInThisProcess
from matplotlib.image import imread

from bbrgym.baselines import registry
from bbrgym.benchmark.claims import Claim
from bbrgym.benchmark.paper_figures import comparison_figure
from bbrgym.benchmark.paper_verdicts import PaperVerdicts, value_verdict
from bbrgym.benchmark.papers import ENGINES, PaperExperiment, figures, page_of
from bbrgym.benchmark.published import PublishedComparison
from bbrgym.benchmark.results import load_benchmark
from bbrgym.cli import main

FIGURE = "acw-latency"
SHORT = ("presets.quick.duration_s=4", "benchmark.seeds=[1]")


@pytest.fixture(autouse=True)
def _in_an_empty_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("bbrgym.benchmark.run.make_executor", ExecutorInThisProcess)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("width", [80, 100, 200])
def test_the_list_has_every_figure_with_its_times(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["papers"]) == 0
    text = capsys.readouterr().out
    assert all(re.search(rf"^{name} .* (s|min|h) .* (s|min|h) *$", text, re.MULTILINE) for name in figures())
    assert all(len(line) <= width for line in text.splitlines())
    assert "Electronics 2021, 10(5), 615" in text
    assert not Path("runs").exists()


def test_a_figure_is_run_printed_with_two_verdicts_and_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["papers", FIGURE, *SHORT]) == 0
    text = capsys.readouterr().out
    assert re.search(
        r"4 runs by native, about \d+ s if .*; by ns3 about \d+ s \(--engine ns3\)", text.replace("\n", " ")
    )
    assert re.search(r"quantity +published +measured +order +value", text)
    assert re.search(r"Verdicts: order: \d of 8 agree; value: \d of 7 agree", text)
    picture = Path("runs/papers") / FIGURE / "native.png"
    assert str(picture) in text
    height, width = imread(picture).shape[:2]
    assert 700 < width < height
    result = load_benchmark(picture.with_suffix(""))
    assert result.plan["provenance"]["command"] == shlex.join(
        ["bbrgym", "papers", FIGURE, "--engine", "native", *SHORT]
    )
    assert main(["papers", FIGURE, "--engine", "native", *SHORT]) == 0
    assert "4 of 4 runs are already done" in capsys.readouterr().out


def test_algorithms_that_only_ns3_has_are_replaced_in_scenarios_and_left_out_as_competitors(
    capsys: pytest.CaptureFixture[str],
) -> None:
    beside = PaperExperiment("fbbr2-vs-cubic-large-buffer", "native")
    assert {flow.algorithm for s in beside.benchmark.scenarios.values() for flow in s.flows[1:]} == {"cubic"}
    assert "cubic in the place of cubic-stock, which only ns-3 has" in beside.changes
    names = {
        engine: {c.name for c in PaperExperiment("ablation/ebcc", engine).benchmark.competitors} for engine in ENGINES
    }
    assert names["ns3"] - names["native"] == {"bbr-stock"}
    assert main(["papers", "ablation/ebcc", "benchmark.seeds=[1]", "benchmark.executor.workers=1"]) == 0
    text = capsys.readouterr().out
    assert "without bbr-stock, which only ns-3 has" in text
    assert Path("runs/papers/ablation/ebcc/native.png").is_file()


def test_every_algorithm_of_ns3_has_one_of_ours_that_replaces_it() -> None:
    assert set(registry.NS3_COMPARATORS) <= set(registry.COUNTERPARTS) <= set(registry.COMPARATORS)
    assert set(registry.COUNTERPARTS.values()) <= set(registry.controllers())


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", figures())
def test_every_figure_can_be_run_in_both_engines(name: str, engine: str) -> None:
    experiment = PaperExperiment(name, engine)
    assert experiment.paper.published
    assert 0 < experiment.seconds() < PaperExperiment(name, engine, is_full=True).seconds()
    assert page_of(name)


@pytest.mark.parametrize("is_full", [False, True])
@pytest.mark.parametrize("name", [FIGURE, "ablation/bbr2"])
def test_what_is_read_without_hydra_is_what_hydra_composes(name: str, is_full: bool) -> None:
    plain = PaperExperiment(name, is_full=is_full)
    composed = PaperExperiment(name, is_full=is_full, settings=["benchmark.step_ms=100"])
    assert plain.benchmark.name == composed.benchmark.name
    assert [run.key for run in plain.benchmark.runs()] == [run.key for run in composed.benchmark.runs()]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["acw-latncy"], "unknown figure 'acw-latncy' (did you mean 'acw-latency'?)"),
        ([FIGURE, "--engine", "linux"], "unknown engine 'linux'; known: native, ns3"),
        ([FIGURE, "benchmark.sedes=[1]"], "Could not override 'benchmark.sedes'"),
        (["benchmark.seeds=[1]"], "name one, as in bbrgym papers acw-jain"),
    ],
)
def test_a_mistake_gets_one_message_and_runs_nothing(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["papers", *arguments]) == 1
    assert message in capsys.readouterr().err
    assert not Path("runs").exists()


def test_a_failed_run_fails_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(run: object, **arguments: object) -> None:
        raise RuntimeError("out of order")

    monkeypatch.setattr("bbrgym.benchmark.run.execute", broken)
    assert main(["papers", FIGURE, *SHORT]) == 1
    assert "4 runs failed" in capsys.readouterr().err


def row(claim: Claim, value: float, agreement: str) -> PublishedComparison:
    ratio = value / claim.value if claim.value else math.nan
    return PublishedComparison(claim, "-", "-", "-", value, ratio, agreement == "yes", agreement, "")


NUMBER = Claim("link_jain", ("s",), "bbr", value=0.9)


@pytest.mark.parametrize(
    ("claim", "value", "agreement", "expected"),
    [
        (NUMBER, 0.95, "1 of 2 pairs", PaperVerdicts("1 of 2 pairs", "yes")),
        (NUMBER, 0.5, "yes", PaperVerdicts("yes", "no")),
        (NUMBER, math.nan, "-", PaperVerdicts("-", "-")),
        (Claim("link_jain", ("s",), "bbr", at_least=0.9), 0.95, "unclear", PaperVerdicts("-", "unclear")),
        (Claim("link_jain", ("s",), order=("bbr", "bbq")), math.nan, "no", PaperVerdicts("no", "-")),
    ],
)
def test_order_and_value_are_two_verdicts(claim: Claim, value: float, agreement: str, expected: PaperVerdicts) -> None:
    assert PaperVerdicts.of(row(claim, value, agreement)) == expected


def test_a_published_zero_has_no_ratio_but_can_be_met() -> None:
    assert value_verdict(0.0, 0.0, math.nan) == "yes"
    assert value_verdict(0.0, 0.1, math.nan) == "no"
    assert value_verdict(50.0, math.inf, math.inf) == "no", "never"


def test_numbers_are_drawn_beside_what_was_published() -> None:
    rows = [
        row(NUMBER, 0.8, "yes"),
        row(Claim("throughput_mbps[0]", ("s",), "bbr", value=5.0), math.inf, "-"),  # never: nothing is drawn
        row(Claim("link_jain", ("s",), order=("bbr", "bbq")), math.nan, "no"),
    ]
    drawn = comparison_figure(rows)
    assert [len(axes.get_yticks()) for axes in drawn.axes] == [1, 1]
    dots = [[line for line in axes.lines if line.get_marker() == "o"] for axes in drawn.axes]
    assert [len(of) for of in dots] == [1, 0]
    with pytest.raises(ValueError, match="published no number"):
        comparison_figure(rows[2:])
