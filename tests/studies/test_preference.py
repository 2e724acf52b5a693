"""studies/preference.py: which algorithms lie beyond the front of the policy's preferences, and the page."""

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bbrgym.benchmark.statistics import Estimate
from studies import preference
from studies.page import figures_of
from studies.preference import MixedRun, Point, beyond, jobs, pair_runs, summary, view, work

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


def test_the_page_has_the_points_of_each_engine_and_flows_with_different_preferences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preference, "compose_experiment", lambda experiment, overrides: {"benchmark": BENCHMARK})
    monkeypatch.setattr(preference, "ENGINES", {"native": ()})
    monkeypatch.setattr(preference, "MIXED", ((0.0, 1.0),))
    monkeypatch.setattr(preference, "MIXED_SEEDS", range(1, 3))
    monkeypatch.setattr(preference, "MIXED_LINK", preference.Scenario(rate_mbps=4, duration_s=2))
    for function in (jobs, pair_runs, preference._experiment):
        monkeypatch.setattr(preference, function.__name__, function.__wrapped__)
    names = [job.name for job in preference.jobs()]
    assert names[::4] == ["native/cubic/1bdp/cubic", "native/kind/1bdp/cubic", "mixed/0, 1/1"]
    results = {job.name: work(job) for job in preference.jobs()}
    made: Any = view(results, figures_of(tmp_path / "x.md", is_written=True))
    assert made["native"]["seeds"] == 1
    assert made["native"]["summary"].startswith("At some preference")
    assert (tmp_path / made["native"]["figure"]).is_file()
    found = re.search(r"^\| bbr \| (\S+), (\S+) ms \|", made["native"]["table"], re.MULTILINE)
    assert found is not None
    assert 0 < float(found[1]) < 1
    assert float(found[2]) > 0
    mixed = re.search(r"^\| 0, 1 \| (\S+) ", made["mixed"], re.MULTILINE)
    assert mixed is not None
    assert 0 < float(mixed[1]) < 1


@pytest.mark.parametrize(
    "change",
    [
        lambda run: dataclasses.replace(run, preferences=(0.0, 0.5)),
        lambda run: dataclasses.replace(run, preferences=(0.0, 1.0, 1.0)),
    ],
)
def test_the_hash_of_a_run_is_of_its_preferences(change: Callable[[MixedRun], MixedRun]) -> None:
    run = MixedRun((0.0, 1.0), 1)
    assert change(run).code != run.code
    assert change(run).name != run.name
