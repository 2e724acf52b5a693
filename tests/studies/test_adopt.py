"""A policy becomes the reference: its record, and what the trainings like it reached."""

import json
import re
import shutil
from pathlib import Path

import pytest
from policies import make_agent
from training import quiet

from bbrgym.agents.tracking import read_run
from bbrgym.agents.train import train
from bbrgym.baselines.policy_file import REFERENCE
from studies.adopt import adopt, commands_of, curves, ends, evaluations, main, trainings


def test_the_record_of_a_reference_names_no_folder_of_the_machine_that_trained_it(tmp_path: Path) -> None:
    first = make_agent(observation={"features": ["log_bdp"]})
    first.training = {"seed": 7}
    first.save(tmp_path / "first")
    config = {
        "name": "preferences",
        "scenario": {"rate_mbps": 12, "duration_s": 2, "flows": [{"algorithm": "agent", "rtt_ms": 20}]},
        "observation": {"features": ["log_bdp", "log_backlog"]},
        "agent": {"algorithm": "cma", "population": 4, "scenarios": 1, "tunes": str(tmp_path / "first")},
        "seed": 3,
        "train": {"total_steps": 80, "eval_every": 80, "eval_episodes": 1, "checkpoint_every": 80},
        "tracking": {"backend": "none"},
    }
    train(config, tmp_path / "second", quiet())
    card, reference = tmp_path / "card.md", tmp_path / "reference"
    card.write_text("<!-- begin: agents/reference -->\n<!-- end: agents/reference -->\n")
    adopt(tmp_path / "second", reference, card)
    record = (reference / "mlflow.json").read_text()
    assert str(tmp_path) not in record + card.read_text() + (reference / "agent.json").read_text()
    assert json.loads(record)["commands"] == [
        "bbrgym train experiment=reference seed=7",
        "bbrgym train experiment=preferences seed=3 agent.tunes=RUN/final",
    ]
    assert json.loads(record)["params"]["agent"]["tunes"] == "RUN/final"
    train(config | {"agent": config["agent"] | {"tunes": str(tmp_path / "second")}}, tmp_path / "third", quiet())
    of_third = read_run(tmp_path / "third")
    assert of_third is not None
    assert commands_of(of_third) == [
        *json.loads(record)["commands"],
        "bbrgym train experiment=preferences seed=3 agent.tunes=RUN/best",
    ]
    shutil.rmtree(tmp_path / "third")
    runs = trainings(tmp_path, "preferences")
    assert runs == {3: tmp_path / "second"}
    powers = [metrics["eval/fair_power"] for metrics in evaluations(runs[3]).values()]
    assert f"from 1 random starts end at a fair power of {powers[-1]:.3f} " in ends(runs)
    (axes,) = curves(runs).axes
    assert axes.lines[0].get_ydata().tolist() == powers


def test_a_folder_without_a_training_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([str(tmp_path / "none")])
    assert "none' holds no training" in capsys.readouterr().err


def test_the_commands_of_the_reference_name_experiments() -> None:
    for command in json.loads((REFERENCE / "mlflow.json").read_text())["commands"]:
        (name,) = re.findall(r" experiment=(\w+)", command)
        assert (Path(__file__).parents[2] / f"conf/experiment/{name}.yaml").is_file(), command
