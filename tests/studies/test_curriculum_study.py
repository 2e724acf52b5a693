"""The study of the curriculum: both kinds of training differ in nothing else, and the page shows what came of them."""

import json
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from bbrgym.agents.train import check_training
from bbrgym.baselines.policy_file import REFERENCE
from bbrgym.benchmark.breaking.space import Space
from studies import curriculum
from studies.curriculum import Training


def composed(job: Training) -> dict[str, Any]:
    with initialize_config_module("bbrgym.conf", version_base="1.3"):
        config: Any = OmegaConf.to_container(compose("config", curriculum.settings(job)), resolve=True)
    return {key: value for key, value in config.items() if key not in ("output_dir", "hydra")}


def test_trainings_differ_in_their_curriculum_alone() -> None:
    plain, broken = composed(Training("plain", 2)), composed(Training("curriculum", 2))
    check_training(broken)
    assert not plain.get("curriculum")
    assert broken.pop("curriculum")["every"] > 0
    plain.pop("curriculum", None)
    assert plain == broken
    assert len({job.code for job in curriculum.jobs()}) == len(curriculum.jobs())


def test_agents_are_broken_in_another_box_than_the_curriculum_has() -> None:
    usual, other = Space.read(), Space.read(changes=curriculum.BOX)
    assert usual.ranges != other.ranges


def test_an_agent_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curriculum, "CANDIDATES", 4)
    monkeypatch.setattr(curriculum, "ROLES", {"its own": "single"})
    monkeypatch.setattr(curriculum, "SCENARIOS", 2)
    monkeypatch.setattr(curriculum, "BOX", {"rate_mbps": [2, 4], "duration_s": [5, 6]})
    monkeypatch.setattr(curriculum, "RUNS", tmp_path)
    curriculum.scenarios.cache_clear()
    job = Training("plain", 1)
    folder = job.path / "final"
    folder.mkdir(parents=True)
    for name in ("agent.json", "policy.npz"):
        (folder / name).write_bytes((REFERENCE / name).read_bytes())
    (row,) = curriculum.work(job)
    curriculum.scenarios.cache_clear()
    powers = json.loads(row["powers"])
    assert len(powers) == 2
    assert all(0 < power <= 1 for power in powers)
    assert row["failures"] >= 0
    assert json.loads(row["curve"]) == []


def test_the_page_shows_each_training_and_the_means() -> None:
    rows = {
        job.name: [
            {
                "role": role,
                "powers": json.dumps([0.1 * job.seed, *[0.9] * 9]),
                "steps": 1,
                "seconds": 60.0,
                "failures": 3 * job.seed,
                "worst_regret": 0.5,
                "curve": "[[800000, 0.6], [1600000, 0.4]]" if job.kind == "curriculum" else "[]",
            }
            for role in curriculum.ROLES
        ]
        for job in curriculum.jobs()
    }
    view = curriculum.view(rows, lambda name, draw: (draw(), name)[1])
    lines = str(view["worth"]).splitlines()
    assert len(lines) == 2 + len(rows) + len(curriculum.KINDS)
    mean = next(line for line in lines if "curriculum, mean" in line)
    assert "| 0.830 | 0.200 |" in mean
    assert "| 6 | 0.50 | 1.0 |" in mean
    assert curriculum.view({}, lambda name, draw: name)["measured"] == 0
