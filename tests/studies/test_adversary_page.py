"""studies/adversary.py: its table, and the file of what it found, whose held-out part is a suite of the league."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from bbrgym.agents.adversary import Adversary, Candidate, is_held_out
from bbrgym.agents.policy import Agent
from bbrgym.envs.scenario import Scenario
from studies import adversary
from studies.league.suites import LeaguePlan, compose_league


@pytest.fixture(autouse=True)
def _slow_links_are_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(
        self: Adversary, agent: Agent | str, scenarios: Sequence[Scenario], seeds: Sequence[int]
    ) -> list[Candidate]:
        return [Candidate(scenario, 0.5, {"bbr": 0.5 + (50 - scenario.rate_mbps) / 500}) for scenario in scenarios]

    monkeypatch.setattr(Adversary, "measure", measure)


def test_what_it_finds_is_a_table_and_a_suite(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "found.json"
    assert adversary.main(["--evaluations", "24", "--searches", "1", "--keep", "12", "--found", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "| adversary | 1 x 24 |" in printed
    assert "| plain draws | 1 x 24 |" in printed

    found = json.loads(path.read_text())
    assert set(found) == {"training", "held_out"}
    every = found["training"] | found["held_out"]
    assert sorted(every) == [f"found-{number:03d}" for number in range(1, 13)]
    gaps = [every[name]["gap"] for name in sorted(every)]
    assert gaps == sorted(gaps, reverse=True)
    for part, is_out in (("training", False), ("held_out", True)):
        assert all(is_held_out(Scenario.from_dict(one["scenario"])) is is_out for one in found[part].values())

    plan = LeaguePlan.from_config(compose_league([f"league.found={path}", "league.only=[found]"]))
    assert list(plan.suites) == ["found"]
    assert set(plan.suites["found"]["scenarios"]) == set(found["held_out"])


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    path.write_text("[]")
    config = compose_league(["league.only=[varying]"])
    for name, reason in ((path, "another layout"), (tmp_path / "absent.json", "No such file")):
        with pytest.raises(ValueError, match=rf"league\.found: '.*' is no file of studies\.adversary: .*{reason}"):
            LeaguePlan.from_config({**config, "league": {**config["league"], "found": str(name)}})
