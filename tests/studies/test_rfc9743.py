"""studies/rfc9743.py: the page of every algorithm by the criteria of RFC 9743."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from in_process import ExecutorInThisProcess
from pages import empty_page

from studies import rfc9743
from studies.rfc9743 import COMPETITORS, main

BENCHMARK: dict[str, Any] = {
    "name": "rfc9743/all",
    "engine": "native",
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
    assert "'benchmark.seeds=[1]'" in text
    assert "All pass." in text
    assert "Unfinished" not in text
    assert "Not run" not in text
