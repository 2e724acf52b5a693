"""The study of what each learner reaches: its trainings, and the table of those that are measured."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from bbrgym.agents.train import check_training
from bbrgym.baselines.policy_file import REFERENCE, read_policy
from bbrgym.benchmark.ledger import Rows
from studies import learned, learners
from studies.learned import constant
from studies.learners import LEARNERS, Training, Untrained


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_job_trains_in_the_environment_of_the_reference(learner: str) -> None:
    job, before = Training(learner, 2, 7), None
    for (_, _, *overrides), path in zip(learners.commands(job), job.paths, strict=True):
        with initialize_config_module("bbrgym.conf", version_base="1.3"):
            composed = compose("config", [each for each in overrides if not each.startswith("hydra.")])
        config: Any = OmegaConf.to_container(composed, resolve=True)
        begins = config["agent"].get("tunes")
        assert begins == (None if before is None else str(before / "final"))
        if before is not None:
            config["agent"]["tunes"] = str(REFERENCE)  # the stage before has not run here
            config["agent"]["tuned"] = ["skip"]
        check_training(config)
        reference = read_policy(REFERENCE).spec
        assert config["action"] == reference["action"]
        own = [name for name in reference["observation"]["features"] if not name.endswith("_by_preference")]
        assert config["observation"] == {**reference["observation"], "features": own}
        assert config["seed"] == 7
        assert config["train"]["max_minutes"] == 2 / len(learners.stages(job))
        before = path


def test_short_trainings_come_first_and_one_of_each_learner_before_a_second() -> None:
    jobs = learners.jobs()
    found = [(job.minutes, job.seed, list(LEARNERS).index(job.learner)) for job in jobs if isinstance(job, Training)]
    assert found == sorted(found)
    assert len(found) == len(LEARNERS) * len(learners.MINUTES) * len(learners.SEEDS)
    assert len({job.name for job in jobs}) == len(jobs)
    assert len([job for job in jobs if "sac 10 min 1" in job.name]) == 1


def test_the_hash_of_a_training_is_of_its_settings_and_of_the_scenarios_that_judge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trainings = [Training(learner, minutes, 1) for learner in LEARNERS for minutes in learners.MINUTES]
    codes = {job.code for job in trainings}
    assert len(codes) == len(trainings)
    assert Training(trainings[0].learner, trainings[0].minutes, 2).code in codes
    others = learned.draw(learned.CHOOSES, 3)
    monkeypatch.setattr(learners, "judges", lambda: [scenario.to_dict() for scenario in others])
    assert codes.isdisjoint(job.code for job in trainings)


def test_the_hash_of_what_is_simple_is_of_what_flows_run_and_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned, "COUNT", 2)
    codes = {job.name: job.code for job in learners.untrained()}
    assert len(set(codes.values())) == len(codes)
    monkeypatch.setattr(learned, "COUNT", 3)
    assert all(codes[job.name] != job.code for job in learners.untrained())


def test_an_interrupted_study_measures_the_training_that_it_finished(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(learners, "RUNS", tmp_path)
    monkeypatch.setattr(learned, "COUNT", 2)
    job = Training("ppo", 2, 1)
    read_policy(REFERENCE).save(job.paths[-1] / "final")
    (row,) = learners.work(job)
    assert row["steps"] == read_policy(REFERENCE).training["steps"]
    (shipped,) = learners.work(Untrained("policy", {"algorithm": "policy"}, "judges"))
    assert row["fair_power"] == shipped["fair_power"]


def results(trained: Sequence[float], constants: Sequence[float] = (), by_hand: float = 0.6) -> dict[str, Rows]:
    powers = {Training("ppo", 10, seed).name: power for seed, power in enumerate(trained, 1)}
    for packets, power in zip(learned.PACKETS, constants, strict=False):
        powers |= {f"chooses/{constant(packets)}": power, f"judges/{constant(packets)}": power / 2}
    powers["judges/rule"] = by_hand
    return {name: [{"fair_power": power, "steps": 600.0}] for name, power in powers.items()}


def test_a_training_counts_only_if_it_is_above_all_that_is_not_trained() -> None:
    shown = learners.view(results((0.5, 0.65, 0.75), by_hand=0.7), lambda name, draw: name)
    assert "“ppo” 1 of 3" in str(shown["above"])
    rows = str(shown["reached"]).splitlines()
    assert [row for row in rows if row.startswith("| rule | 0.700 | 0.700 |")]
    assert [row for row in rows if row.startswith("| ppo") and "0.633 [0.500 0.750] (3) | 1 |" in row]


def test_the_constant_is_the_one_that_other_scenarios_choose() -> None:
    constants = [0.1 * place for place in range(len(learned.PACKETS))]
    shown = learners.shown_untrained(results((), constants))
    assert shown == {constant(learned.PACKETS[-1]): pytest.approx(0.45), "rule": 0.6}
    assert learners.shown_untrained(results((), constants[:-1])) == {"rule": 0.6}  # not all are measured
