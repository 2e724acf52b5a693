"""studies/preference.py: which algorithms lie beyond the front of the policy's preferences, and the page."""

import re
from pathlib import Path
from typing import Any

import pytest
from in_process import ExecutorInThisProcess
from pages import empty_page

from bbrgym.benchmark.statistics import Estimate
from studies import preference
from studies.preference import Point, beyond, main, summary

LINK = {
    "rate_mbps": 4,
    "buffer_bdp": 1,
    "duration_s": 2,
    "flows": [{"rtt_ms": 20}, {"rtt_ms": 20, "algorithm": "cubic"}],
}
BENCHMARK: dict[str, Any] = {
    "name": "preference",
    "engine": "native",
    "scenarios": {"1bdp": LINK},
    "competitors": [
        "cubic",
        "bbr",
        {"name": "policy 0", "algorithm": "policy", "parameters": {"preference": 0}},
        {"name": "policy 1", "algorithm": "policy", "parameters": {"preference": 1}},
    ],
    "seeds": [1],
}


def point(share: float, queue_ms: float) -> Point:
    return Point(
        share=Estimate(share, share, share, 1),
        queue_ms=Estimate(queue_ms, queue_ms, queue_ms, 1),
    )


def test_a_point_is_beyond_if_no_preference_has_its_share_and_its_queue() -> None:
    policy = {"policy 0": point(0.1, 1.0), "policy 1": point(0.5, 8.0)}
    others = {
        "polite": point(0.1, 2.0),
        "greedy": point(0.9, 8.0),  # half of the link is enough
        "short": point(0.2, 4.0),
        "idle": point(0.0, 0.5),
    }
    assert beyond({"1bdp": others | policy}) == {"1bdp": ["short", "idle"]}
    assert "in 2 of 4 points. Beyond it: 1bdp: short, idle." in summary({"1bdp": others | policy})
    assert summary({"1bdp": {"polite": others["polite"]} | policy}).endswith("in 1 of 1 points.")


def test_the_command_writes_the_page_of_the_engines_that_have_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def compose(experiment: str, overrides: list[str]) -> dict[str, Any]:
        assert (experiment, overrides) == ("preference", ["benchmark.seeds=[1]"])
        return {"benchmark": BENCHMARK, "engine": {"name": "native"}}

    monkeypatch.setattr(preference, "compose_experiment", compose)
    monkeypatch.setattr(preference, "BENCHMARKS", tmp_path)
    monkeypatch.setattr(preference, "MIXED", ((0.0, 1.0),))
    monkeypatch.setattr(preference, "MIXED_LINK", preference.Scenario(rate_mbps=4, duration_s=2))
    monkeypatch.setattr("bbrgym.benchmark.run.make_executor", ExecutorInThisProcess)
    path = empty_page("preference.md", tmp_path)
    assert main([f"write={path}", "benchmark.seeds=[1]"]) == 0
    text = path.read_text()
    assert "begin: studies/preference.py ns3 -->\n<!-- end" in text
    assert (tmp_path / "preference" / "native.png").is_file()
    found = re.search(r"^\| bbr \| (\S+), (\S+) ms \|", text, re.MULTILINE)
    assert found is not None
    assert 0 < float(found[1]) < 1
    assert float(found[2]) > 0
    assert "At some preference" in capsys.readouterr().out
