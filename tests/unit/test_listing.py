"""`bbrgym list`, and `latest` in place of a training."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from training import SMALL

from bbrgym import controllers
from bbrgym.agents.saved_runs import latest_training, trainings
from bbrgym.cli import COMMANDS, main
from bbrgym.envs import environment_ids
from bbrgym.envs.observation import FEATURES
from bbrgym.envs.reward import TERMS
from bbrgym.listing import KINDS

pytestmark = pytest.mark.usefixtures("in_new_folder", "no_figures")


def listed(kind: str, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    assert main(["list", kind, "--json"]) == 0
    found: dict[str, list[dict[str, str]]] = json.loads(capsys.readouterr().out)
    return {row["name"]: row["text"] for row in found[kind]}


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("controllers", controllers()),
        ("ids", environment_ids()),
        ("features", FEATURES),
        ("rewards", TERMS),
        ("scenarios", ["duel", "train", "paper/acw"]),
        ("experiments", ["demo", "rfc9743", "paper/acw-jain"]),
    ],
)
def test_names_are_listed_with_a_line_each(
    kind: str, names: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = listed(kind, capsys)
    assert found.keys() >= set(names)
    assert [name for name, text in found.items() if not text.strip()] == []
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["list", kind]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    assert set(names) <= {line.split()[0] for line in lines if line.strip()}


def test_an_unknown_kind_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "controler"]) == 1
    assert f"unknown kind 'controler' (did you mean 'controllers'?); known: {', '.join(KINDS)}" in (
        capsys.readouterr().err
    )


def test_latest_is_the_newest_training(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for command in (
        ["evaluate", "agent_path=latest"],
        ["export", "latest", "mine.h"],
        ["certify", "latest"],
        ["break", "latest"],
        ["train", "train.resume=latest"],
    ):
        assert main(command) == (2 if COMMANDS[command[0]].has_verdict else 1)
        assert "in 'runs/train' or 'runs/multirun': run `bbrgym train`" in capsys.readouterr().err
    assert listed("runs", capsys) == {}
    assert main(["list", "runs"]) == 0
    assert capsys.readouterr().out.startswith("None in runs yet: bbrgym train")
    assert main(["train", *SMALL, "output_dir=runs/train/first"]) == 0
    for name, status, ended in (("newer", "FINISHED", "3"), ("newest", "KILLED", "4"), ("sweep", "FINISHED", "5")):
        shutil.copytree("runs/train/first", f"runs/train/{name}")
        path = Path("runs/train", name, "run.json")
        record = json.loads(path.read_text())
        record |= {"status": status, "ended": f"300{ended}-01-01T00:00:00+00:00"}
        record["tags"] |= {"sweeper": "basic"} if name == "sweep" else {}
        path.write_text(json.dumps(record))
    assert [path.name for path in trainings()] == ["newest", "newer", "first"]
    assert latest_training() == Path("runs/train/newer")
    assert latest_training(is_to_resume=True) == Path("runs/train/newest")
    capsys.readouterr()
    assert main(["export", "latest", "mine.h"]) == 0
    assert capsys.readouterr().err == "latest: runs/train/newer\n"
    given = ["agent_path=latest", "scenario=single", "scenario.duration_s=2", "seeds=[1]", "tracking=none", "--json"]
    assert main(["evaluate", *given]) == 0
    assert "latest: runs/train/newer\n" in capsys.readouterr().err
    assert main(["evaluate", *given, "agent_path=runs/train/first", "output_dir=runs/evaluate/of_first"]) == 0
    capsys.readouterr()
    found = listed("runs", capsys)
    assert list(found)[:3] == [f"runs/train/{name}" for name in ("newest", "newer", "first")]
    assert "killed 3004-01-01" in found["runs/train/newest"]
    assert "score" in found["runs/train/first"]
    agents = {text.split()[-1] for name, text in found.items() if name.startswith("runs/evaluate/")}
    assert agents == {"runs/train/newer", "runs/train/first"}
    for line, expected in (
        ("bbrgym evaluate agent_path=runs/train/fi", ["agent_path=runs/train/first"]),
        ("bbrgym benchmark benchmark.agent=l", ["benchmark.agent=latest"]),
        ("bbrgym export runs/train/newest", ["runs/train/newest"]),
        ("bbrgym certify runs/train/newest", ["runs/train/newest"]),
        ("bbrgym score cub", ["cubic"]),
        ("bbrgym break cub", ["cubic"]),
        ("bbrgym list run", ["runs"]),
    ):
        monkeypatch.setitem(os.environ, "COMP_LINE", line)
        assert main(["-sc", "query=bash"]) == 0
        assert capsys.readouterr().out.split() == expected
