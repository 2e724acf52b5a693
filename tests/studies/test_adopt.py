"""A policy becomes the reference: its record, and what the trainings like it reached."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from policies import make_agent
from training import quiet

from bbrgym.agents.callbacks import PROCESSOR
from bbrgym.agents.train import train
from bbrgym.baselines.policy_file import REFERENCE, read_policy
from bbrgym.benchmark.experiments import compose_experiment
from studies.adopt import Training, adopt, alike, command_of, curves, ends, evaluations, main, stages, trainings_to

pytestmark = pytest.mark.usefixtures("no_figures")

SCENARIO = {"rate_mbps": 12, "duration_s": 2, "flows": [{"algorithm": "agent", "rtt_ms": 20}]}
SEARCH: dict[str, Any] = {"algorithm": "cma", "population": 4, "scenarios": 1}
DISTIL: dict[str, Any] = {"algorithm": "distil", "scenarios": 2, "constants": 3, "units": 3, "rounds": 1, "epochs": 1}
EVALUATIONS = {"eval_every": 80, "eval_episodes": 1, "checkpoint_every": 80}
FEATURES = ["log_bdp", "log_backlog"]


def learn(folder: Path, name: str, agent: dict[str, Any], tunes: Path | None = None, **changes: Any) -> Path:
    """Train for a moment; return the folder."""
    config = {
        "name": name,
        "scenario": SCENARIO,
        "observation": {"features": FEATURES},
        "action": {"cwnd_gain": [0.25, 64.0], "pacing_gain": [0.8, 1.3], "cwnd_scale": "packets"},
        "engine": {"name": "native"},
        "agent": agent if tunes is None else {**agent, "tunes": str(tunes)},
        "seed": 3,
        "train": {"total_steps": 80, **EVALUATIONS},
        "tracking": {"backend": "none"},
        **changes,
    }
    train(config, folder, quiet())
    return folder


def copied(run: Path, to: Path, seed: int, **agent: Any) -> None:
    """Copy a training as one of another seed and other settings of its learner."""
    shutil.copytree(run, to)
    record = json.loads((run / "run.json").read_text())
    record["params"] |= {"seed": seed, "agent": {**record["params"]["agent"], **agent}}
    (to / "run.json").write_text(json.dumps(record))


@pytest.fixture
def card(tmp_path: Path) -> Path:
    page = tmp_path / "card.md"
    page.write_text("<!-- begin: agents/reference -->\n<!-- end: agents/reference -->\n")
    return page


def test_the_record_of_a_reference_has_all_trainings_that_lead_to_it_and_no_folder(
    tmp_path: Path, card: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    runs = tmp_path / "runs"
    student = learn(runs / "student", "recogniser", DISTIL, seed=7)
    tuned = learn(runs / "tuned", "preferences", SEARCH, tunes=student)
    again = learn(runs / "again", "preferences", SEARCH, tunes=tuned / "final", seed=4)
    reference = tmp_path / "reference"
    adopt(again, reference, card)
    texts = [(reference / name).read_text() for name in ("mlflow.json", "agent.json")] + [card.read_text()]
    assert str(tmp_path) not in "".join(texts)
    record = json.loads(texts[0])
    found = record["trainings"]
    settings = "train.total_steps=80 train.eval_every=80 train.eval_episodes=1 train.checkpoint_every=80"
    assert [training["command"] for training in found] == [
        f"bbrgym train experiment=recogniser {settings} seed=7",
        f"bbrgym train experiment=preferences {settings} seed=3 agent.tunes=RUN/best",
        f"bbrgym train experiment=preferences {settings} seed=4 agent.tunes=RUN/final",
    ]
    assert [training["seed"] for training in found] == [7, 3, 4]
    steps = [read_policy(run / "final").training["steps"] for run in (student, tuned, again)]
    assert [training["decisions"] for training in found] == steps
    spent_s = [list(evaluations(run).values())[-1][PROCESSOR] for run in (student, tuned, again)]
    assert all(each > 0 for each in spent_s)
    assert [training["processor_minutes"] for training in found] == [pytest.approx(s / 60, abs=0.01) for s in spent_s]
    assert all(0 <= training["minutes"] < 60 for training in found)
    assert record["params"]["agent"]["tunes"] == "RUN/final"
    for number, training in enumerate(found, start=1):
        assert f"| training {number} of 3 | `{training['command']}`; {training['decisions']:,} decisions; " in texts[2]

    # The curve goes through all of them; another seed has another one.
    assert stages(again) == [student, tuned, again]
    copied(tuned, runs / "other", seed=5)
    copied(tuned, runs / "without its student", seed=6, tunes=str(tmp_path / "lost"))
    assert alike(tuned, runs) == {3: [student, tuned], 5: [student, runs / "other"]}
    of_again = alike(again, runs)
    assert of_again == {4: [student, tuned, again]}
    powers = [metrics["eval/fair_power"] for run in of_again[4] for metrics in evaluations(run).values()]
    assert ends(of_again) == [
        {"seed": 4, "fair_power": powers[-1], "processor_minutes": pytest.approx(sum(spent_s) / 60, abs=0.06)}
    ]
    (axes,) = curves(of_again).axes
    (line,) = axes.lines
    spent = list(line.get_xdata())
    assert list(line.get_ydata()) == powers
    assert spent == sorted(spent)
    assert spent[-1] == pytest.approx(sum(spent_s) / 60)

    # A reference can be tuned, too, and `best` can be adopted.
    beyond = learn(tmp_path / "beyond", "preferences", SEARCH, tunes=reference, seed=8)
    assert [training.command for training in trainings_to(beyond)[:-1]] == [each["command"] for each in found]
    adopt(beyond / "best", reference, card)
    record = json.loads((reference / "mlflow.json").read_text())
    assert (len(record["trainings"]), record["agent"]) == (4, "best")
    assert read_policy(reference).content_hash == read_policy(beyond / "best").content_hash


def test_what_comes_after_in_other_scenarios_is_not_part_of_a_curve(tmp_path: Path) -> None:
    first = learn(tmp_path / "first", "recogniser", SEARCH)
    other = learn(tmp_path / "second", "preferences", SEARCH, tunes=first, scenario={**SCENARIO, "rate_mbps": 9})
    assert stages(other) == [first]
    assert alike(other, tmp_path) == {3: [first]}


def test_the_command_of_a_training_has_its_overrides_and_those_of_its_resumption() -> None:
    config = compose_experiment("recogniser", ["agent.units=8"])
    given = ["experiment=recogniser", "agent.units=8", "scenario.rate_mbps={uniform: [2, 9]}", "train.max_minutes=5"]
    incidental = ["seed=2", "tracking=none", "tracking.root=/there", "output_dir=/there", "+hydra.verbose=true"]
    record = {
        "params": {
            "name": "recogniser",
            "seed": 2,
            "agent": config["agent"],
            "train": {**config["train"], "max_minutes": 5, "eval_every": 7, "resume": "/there"},
            "composition": {"overrides": [*given, *incidental]},
        }
    }
    assert command_of(record) == (
        "bbrgym train experiment=recogniser agent.units=8 'scenario.rate_mbps={uniform: [2, 9]}' train.max_minutes=5 "
        "train.eval_every=7 seed=2"
    )
    record["params"]["train"]["max_minutes"] = None  # it was resumed without a limit
    assert command_of(record).endswith(" train.max_minutes=null train.eval_every=7 seed=2")


def test_a_policy_of_an_unknown_training_cannot_be_what_the_reference_begins_with(tmp_path: Path, card: Path) -> None:
    make_agent(observation={"features": FEATURES}, action={"cwnd_scale": "packets"}).save(tmp_path / "alone")
    alone = read_policy(tmp_path / "alone")
    action = dict(alone.spec["action"])
    run = learn(tmp_path / "run", "preferences", SEARCH, tunes=tmp_path / "alone", action=action)
    with pytest.raises(ValueError, match="it is not known how that one was trained"):
        adopt(run, tmp_path / "reference", card)
    assert not (tmp_path / "reference").exists()
    assert alike(run, tmp_path) == {3: [run]}
    shutil.rmtree(tmp_path / "alone")
    with pytest.raises(FileNotFoundError, match="no trained agent in"):
        adopt(run, tmp_path / "reference", card)


def test_a_folder_without_a_training_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("none", "none/best"):
        with pytest.raises(SystemExit):
            main([str(tmp_path / name)])
        assert "none' holds no training" in capsys.readouterr().err


def test_the_commands_of_the_reference_name_experiments() -> None:
    trainings = [Training(**each) for each in json.loads((REFERENCE / "mlflow.json").read_text())["trainings"]]
    for training in trainings:
        (name,) = re.findall(r" experiment=(\w+)", training.command)
        assert (Path(__file__).parents[2] / f"conf/experiment/{name}.yaml").is_file(), training.command
        assert f"seed={training.seed}" in training.command
