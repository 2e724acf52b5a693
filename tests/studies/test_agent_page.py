"""studies/agent.py: the tables of the sweeps, and where they go on the page."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from policies import make_agent
from rich.console import Console

from bbrgym.envs.reward import Reward
from studies import agent as page
from studies import page as write
from studies.league.suites import compose_league


def put_run(folder: Path, name: str, seed: int) -> None:
    """What a job of a sweep leaves, as far as it is read."""
    make_agent(seed=seed).save(folder / "final")
    times = {"started": "2026-01-01T10:00:00+00:00", "ended": f"2026-01-01T10:0{seed % 2}:30+00:00"}
    (folder / "run.json").write_text(json.dumps({"params": {}, **times}))
    (folder / "result.json").write_text(json.dumps({"overrides": [f"seed={seed}", f"name={name}", "agent=sac"]}))


@pytest.fixture
def sweeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rewards = {}
    for index, name in enumerate(("ppo", "sac")):
        for seed in (1, 2):
            folder = tmp_path / "algorithms" / f"{name}-{seed}"
            put_run(folder, name, seed=10 * index + seed)
            rewards[make_agent(seed=10 * index + seed).content_hash] = -0.3 + 0.1 * index + 0.01 * seed

    def validate(agent: Any, reward: Reward) -> dict[str, float]:
        rest = {"eval/utilisation": 0.5, "eval/queue_ms": 20.0}
        return {"eval/reward": rewards[agent.content_hash], **rest}

    monkeypatch.setattr(page, "validate", validate)
    return tmp_path


def test_a_sweep_that_has_results_has_a_table(sweeps: Path) -> None:
    tables = page.sweep_tables(sweeps, Reward())
    assert list(tables) == ["algorithms"]
    heading, _, *rows = tables["algorithms"].splitlines()
    assert heading.startswith("| learner | reward per decision [95 %] |")
    assert [row.split(" | ")[0] for row in rows] == ["| sac", "| ppo"]  # the best one first
    assert rows[0].split(" | ")[1].startswith("-0.185 [")
    assert rows[0].endswith("| 50.0% | 20.0 | 1 min 00 s | 2 |")


def test_the_validation_of_learners(sweeps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = {"rate_mbps": 10, "duration_s": 2, "flows": [{"rtt_ms": 20}]}

    def compose(settings: list[str]) -> dict[str, Any]:
        config = compose_league(settings)
        config["league"]["generalisation"]["draws"] = {"one": {"count": 1, "seed": 1, "scenario": one}}
        return config

    monkeypatch.setattr(page, "compose_league", compose)
    monkeypatch.setattr(page, "BENCHMARKS", tmp_path / "benchmark")
    powers = page.fair_powers(sweeps / "algorithms", Console(file=io.StringIO()))
    assert {name: len(values) for name, values in powers.items()} == {"ppo": 2, "sac": 2}
    assert all(0 < value <= 1 for values in powers.values() for value in values)
    _, _, *rows = page.validation_table({"ppo": [0.5, 0.6], "sac": [0.7, 0.9]}).splitlines()
    assert rows == ["| sac | 0.800 | 0.700 | 0.900 |", "| ppo | 0.550 | 0.500 | 0.600 |"]


def test_a_table_goes_between_its_own_marks_and_others_stay(sweeps: Path) -> None:
    def marked(name: str, text: str) -> str:
        return f"<!-- begin: studies/agent.py{name} -->\n{text}\n<!-- end: studies/agent.py{name} -->\n"

    names = ("", " algorithms", " algorithms validation")
    document = "".join(f"About{name}\n{marked(name, f'old{name}')}" for name in names)
    tables = page.sweep_tables(sweeps, Reward())
    written = page.with_blocks(document, {"": "new", **tables})
    new = ("new", tables["algorithms"], "old algorithms validation")
    assert written == "".join(f"About{name}\n{marked(name, text)}" for name, text in zip(names, new, strict=True))
    with pytest.raises(ValueError, match=r"must have one line <!-- begin: studies/agent\.py algorithms -->"):
        page.with_blocks(marked("", "old"), {"algorithms": "new"})


def test_a_curve_is_of_the_last_training_of_its_seed(tmp_path: Path) -> None:
    for name, seed, started, folder in (
        ("reference", 2, "2026-01-01T10", "c"),
        ("reference", 1, "2026-01-01T12", "a"),
        ("reference", 1, "2026-01-01T11", "b"),
        ("demo", 3, "2026-01-01T13", "d"),
    ):
        (tmp_path / folder).mkdir()
        record = {"params": {"name": name, "seed": seed}, "started": started}
        (tmp_path / folder / "run.json").write_text(json.dumps(record))
        (tmp_path / folder / "metrics.jsonl").write_text(
            json.dumps({"step": 5, "metrics": {"eval/reward": -seed}}) + "\n"
        )
    (tmp_path / "empty").mkdir()
    assert page.trainings(tmp_path) == {1: tmp_path / "a", 2: tmp_path / "c"}
    assert page.curves(page.trainings(tmp_path)) == {"seed 1": [(5, -1)], "seed 2": [(5, -2)]}
    assert page.trainings(tmp_path / "nowhere") == {}


def test_the_page_has_the_marks_of_the_sweeps() -> None:
    document = (Path(__file__).parents[2] / "docs" / "results" / "agent.md").read_text(encoding="utf-8")
    names = [*page.SWEEPS, page.VALIDATION]
    written = page.with_blocks(document, {"": "text", **dict.fromkeys(names, "a table")})
    assert written.count("\na table\n") == len(names)


def test_the_reference_has_the_summary_of_its_training(tmp_path: Path) -> None:
    run, folder = tmp_path / "run", tmp_path / "reference"
    agent = make_agent(seed=4)
    agent.save(run / "final")
    params = dict.fromkeys(("observation", "action", "reward", "env", "agent", "train", "tracking")) | {"seed": 7}
    record = dict.fromkeys(("experiment", "run_id", "run_name", "status", "started", "ended"), "x")
    (run / "run.json").write_text(json.dumps(record | {"params": params, "tags": {"host": "h", "torch": "2"}}))
    lines = [{"step": 0, "metrics": {"eval/reward": -1.0}}, {"step": 5, "metrics": {"train/loss": 2.0}}]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    card = tmp_path / "policy.md"
    card.write_text("About\n<!-- begin: agents/reference -->\nold\n<!-- end: agents/reference -->\n")
    page.adopt(run, folder, card)
    adopted = page.load_agent(folder)
    assert adopted.content_hash == agent.content_hash
    assert adopted.training == {"made_with": {"torch": "2"}, "licence": "MIT"}
    assert card.read_text() == (
        f"About\n<!-- begin: agents/reference -->\n{page.card(adopted.stored)}\n<!-- end: agents/reference -->\n"
    )
    summary = json.loads((folder / "mlflow.json").read_text())
    assert summary["command"] == "bbrgym train experiment=reference seed=7"
    assert summary["tags"] == {"torch": "2"}
    assert summary["evaluations"] == [{"step": 0, "eval/reward": -1.0}]
    with pytest.raises(ValueError, match="holds no training"):
        page.adopt(tmp_path, folder, card)


def test_what_ships_is_what_its_summary_says() -> None:
    summary = json.loads((page.REFERENCE / "mlflow.json").read_text())
    training = page.load_agent(page.REFERENCE).training
    assert summary["params"]["seed"] == training["seed"]
    assert summary["tags"] == {**training["made_with"], "seed": str(training["seed"])}
    last = summary["evaluations"][-1]
    assert (last["step"], last["eval/reward"]) == (training["steps"], training["reward"])


def test_the_model_card_says_what_the_reference_is() -> None:
    document = page.CARD.read_text(encoding="utf-8")
    reference = page.load_agent(page.REFERENCE).stored
    assert write.with_block(document, "agents/reference", page.card(reference)) == document
    rows = dict(row.strip("| ").split(" | ", 1) for row in page.card(reference).splitlines()[2:])
    assert rows["seed"] == str(reference.training["seed"])
    assert rows["content hash"] == reference.content_hash
    assert rows["licence"] == "MIT"
