import shutil
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from bbrgym.agents.train import check_training
from bbrgym.baselines.policy_file import REFERENCE, read_policy
from studies import learned, learners
from studies.learners import LEARNERS, Job


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_job_trains_in_the_environment_of_the_reference(learner: str) -> None:
    _, _, *overrides = learners.command(Job(learner, 2, 7))
    with initialize_config_module("bbrgym.conf", version_base="1.3"):
        composed = compose("config", [each for each in overrides if not each.startswith("hydra.")])
    config: Any = OmegaConf.to_container(composed, resolve=True)
    check_training(config)
    reference = read_policy(REFERENCE).spec
    assert {group: config[group] for group in ("observation", "action")} == {
        group: reference[group] for group in ("observation", "action")
    }
    assert config["seed"] == 7


def test_short_trainings_come_first_and_one_of_each_learner_before_a_second() -> None:
    found = list(learners.jobs(["ppo", "sac"], [2, 10], [1, 2]))
    assert [(job.minutes, job.seed, job.learner) for job in found] == sorted(
        (job.minutes, job.seed, job.learner) for job in found
    )
    assert len({job.name for job in found}) == 8


def test_an_interrupted_study_measures_the_trainings_that_it_finished(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(learners, "RUNS", tmp_path)
    monkeypatch.setattr(learners, "KEPT", tmp_path / "trainings.parquet")
    monkeypatch.setattr(learned, "COUNT", 2)
    monkeypatch.setattr("sys.argv", ["learners", "--learners", "ppo", "--minutes", "2", "--seeds", "1", "2"])
    for seed in (1, 2):
        read_policy(REFERENCE).save(Job("ppo", 2, seed).path / "final")
    for _ in range(2):
        assert learners.main() == 0
        (row,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ppo")]
        assert "(2)" in row
        shutil.rmtree(tmp_path / Job("ppo", 2, 1).code, ignore_errors=True)


def test_a_training_counts_only_if_it_is_above_all_that_is_not_trained() -> None:
    done = {
        Job("ppo", 10, seed): {"fair_power": power, "steps": 1.0} for seed, power in enumerate((0.5, 0.65, 0.75), 1)
    }
    untrained = {"low": 0.6, "high": 0.7}
    assert "“ppo” 1 of 3" in learners.above(done, untrained)
    rows = learners.table(done, untrained).splitlines()
    assert [row for row in rows if row.startswith(("| low | 0.600", "| high | 0.700"))]
    assert [row for row in rows if row.startswith("| ppo") and "0.633 [0.500 0.750] (3)" in row]
