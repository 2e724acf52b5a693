"""The study of `bbrgym break`: planted defects are found, and their twins are correct."""

import json
from pathlib import Path
from typing import Any

import pytest

from bbrgym.benchmark.breaking.judging import Judge, Trial
from bbrgym.envs.scenario import Flow, Scenario
from studies import breaking


@pytest.mark.parametrize("defect", ["RATE_WITHOUT_RTT", "NO_PACING", "BYTES_IN_32_BITS"])
def test_a_planted_defect_is_found(defect: str):
    found = breaking.hunt(defect, candidates=48, shrinks=False)
    assert found["found"], found


@pytest.mark.parametrize("defect", breaking.DEFECTS)
def test_a_defect_changes_what_is_compiled(defect: str, tmp_path: Path):
    source = breaking.DEFECTS[defect].source
    assert f"DEFECT_{defect}" in (breaking.SOURCES / f"{source}.c").read_text()
    planted, twin = (breaking.candidate(source, one, tmp_path) for one in (defect, None))
    assert planted.competitor.file != twin.competitor.file


@pytest.mark.parametrize("source", ["model", "loss"])
def test_a_correct_twin_fills_a_plain_link(source: str, tmp_path: Path):
    judge = Judge(breaking.candidate(source, None, tmp_path), breaking.LIMITS)
    trial = Trial(Scenario(rate_mbps=20, buffer_bdp=1, duration_s=15, flows=(Flow("agent", rtt_ms=40),)), 1)
    broken = {name for name, verdict in judge.judge([trial])[0].items() if verdict.is_broken}
    assert broken <= {"regret"}  # who answers losses fills the buffer
    assert judge.own([trial])[0]["utilisation"] > 0.9


def test_the_page_has_a_line_for_every_defect_and_known_failure():
    shown = {"property": "regret", "path": "one flow", "outcome": "7 % of the link", "value": 0.5, "twin": -0.1}
    sizes = {"flows_before": 2, "fields_before": 9, "flows_after": 1, "fields_after": 4}
    missed: dict[str, Any] = {"found": False, "seconds": 60.2, "paths": 900}
    there = {"ns3": "stays", "linux": float("nan")}  # of an algorithm that no kernel has
    failures = [{"property": "starved", "path": f"{count} flows", "outcome": "nothing"} for count in range(5)]
    rows = {}
    for place, job in enumerate(breaking.jobs()):
        row = missed if place % 3 == 0 else {"found": True, "seconds": 3.0, "paths": 48, **shown, **sizes, **there}
        if job.kind == "any":
            found = [] if job.what == "cubic" else failures
            row = {"seconds": 60.0, "first_s": 2.0 if found else None, "failures": json.dumps(found)}
        rows[job.name] = [row]
    view = breaking.view(rows, lambda name, draw: name)
    assert str(view["defects"]).count("\n") >= len(breaking.DEFECTS) + 1
    assert str(view["known"]).count("\n") >= len(breaking.KNOWN) + 1
    assert str(view["any"]).count("starved") == breaking.WORST * (len(breaking.CONTROLLERS) - 1)
    assert "| nan |" not in str(view["known"])
    assert view["left"] == 0
    assert view["searched"] == sum(bool(rows[f"search {name}"][0]["found"]) for name in breaking.DEFECTS)
    assert len({job.code for job in breaking.jobs()}) == len(rows)
