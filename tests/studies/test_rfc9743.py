"""studies/rfc9743.py: the page of every algorithm by the criteria of RFC 9743."""

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from in_process import ExecutorInThisProcess
from pages import empty_page

from bbrgym.benchmark.results import BenchmarkResult
from bbrgym.benchmark.statistics import Estimate
from bbrgym.benchmark.suites import Suite
from bbrgym.benchmark.verdicts import Judgement, Verdicts
from studies import rfc9743
from studies.rfc9743 import COMPETITORS, main

BENCHMARK: dict[str, Any] = {
    "name": "rfc9743/all",
    "engine": {"name": "native"},
    "competitors": ["bbr", "newreno"],
    "seeds": [1],
    "suites": {
        "busy": {
            "title": "a busy link",
            "section": "6",
            "criteria": [{"metric": "link_utilisation", "at_least": 0.5, "because": "half of it"}],
            "scenarios": {"slow": {"rate_mbps": 2, "duration_s": 1, "flows": [{"rtt_ms": 20}]}},
        }
    },
}


def test_the_command_writes_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def compose(experiment: str, overrides: list[str]) -> dict[str, Any]:
        assert experiment == "rfc9743"
        assert overrides == ["competitor=all", COMPETITORS, "benchmark.seeds=[1]"]
        return {"benchmark": BENCHMARK}

    monkeypatch.setattr(rfc9743, "compose_experiment", compose)
    monkeypatch.setattr(rfc9743, "BENCHMARKS", tmp_path)
    monkeypatch.setattr("bbrgym.benchmark.run.make_executor", ExecutorInThisProcess)
    path = empty_page("rfc9743.md", tmp_path)
    assert main([f"write={path}", "benchmark.seeds=[1]"]) == 0
    text = path.read_text()
    assert "| section | criterion | bbr | newreno |" in text
    assert "| 6 | a busy link | pass | pass |" in text
    assert "|  | pass | 1 | 1 |" in text
    assert "'benchmark.seeds=[1]'" in text
    assert "Unfinished" not in text


def test_what_fails_has_its_worst_scenario() -> None:
    suite = Suite.from_dict("busy", BENCHMARK["suites"]["busy"])[0]

    def judged(competitor: str, scenario: str, value: float, verdict: Any) -> Judgement:
        measured = Estimate(value, value, value, 1)
        return Judgement(
            suite="busy",
            scenario=f"busy/{scenario}",
            criterion=suite.criteria[0],
            competitor=competitor,
            measured=measured,
            verdict=verdict,
        )

    of_bbr = [("a", 0.4, "fail"), ("b", 0.3, "fail"), ("c", 0.5, "unclear"), ("d", 0.9, "pass")]
    result = BenchmarkResult(
        results=pd.DataFrame(),
        failures=[],
        missing=[],
        directory=Path(),
        plan={"config": BENCHMARK | {"warmup": 0.25}},
    )
    judgements = (judged("cubic", "a", 0.9, "pass"), *(judged("bbr", *found) for found in of_bbr))
    blocks = rfc9743.verdict_blocks(Verdicts(result, {"busy": suite}, ("bbr", "cubic"), judgements))
    assert "| 6 | a busy link | link utilisation | >= 50% | bbr 30.0% (b) |" in blocks[-1].splitlines()
    assert "| 6 | a busy link | **fail** | pass |" in blocks[1]
