"""The study of a newcomer's first training: what is measured, and the table of it."""

import sys
from types import SimpleNamespace

import pytest

from studies import newcomer
from studies.ids import Simple
from studies.newcomer import Training

SINGLE, LOSSY = "bbrgym/Single-v1", "bbrgym/Lossy-v1"


def test_the_hash_of_a_training_is_of_its_environment_and_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    ppo, sac = Training(SINGLE, "ppo", 1), Training(SINGLE, "sac", 1)
    before = ppo.code, sac.code, Training(LOSSY, "ppo", 1).code
    assert len(set(before)) == 3
    monkeypatch.setitem(newcomer.STEPS, "ppo", 300_000)
    assert ppo.code != before[0]
    assert sac.code == before[1]
    monkeypatch.setattr("studies.ids.EPISODES", 7)
    assert {ppo.code, sac.code}.isdisjoint(before)


def test_names_choose_a_learner_and_a_seed_and_the_longest_come_first() -> None:
    jobs = newcomer.jobs()
    assert len({job.name for job in jobs}) == len(jobs)
    for text, learner in (("sac 1", "sac"), ("ppo 3", "ppo")):
        assert [job.id for job in jobs if text in job.name] == newcomer.ids()
        assert {job.learner for job in jobs if text in job.name} == {learner}
    costs = [job.cost for job in jobs]
    assert costs == sorted(costs, reverse=True)


def test_a_training_returns_its_learning_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    class Model:
        """A learner of Stable-Baselines3, whose import takes seconds; the more it learns the higher are its actions."""

        num_timesteps = 0

        def __init__(self, policy: str, env: object, seed: int, device: str) -> None:
            self.seed = seed

        def learn(self, steps: int, reset_num_timesteps: bool) -> None:
            self.num_timesteps = steps + (0 if reset_num_timesteps else self.num_timesteps)

        def predict(self, seen: object, deterministic: bool) -> tuple[int, None]:
            return self.seed + self.num_timesteps, None

    monkeypatch.setitem(sys.modules, "stable_baselines3", SimpleNamespace(SAC=Model))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(set_num_threads=lambda threads: None))
    monkeypatch.setattr(newcomer, "judge", lambda id, act: act(None))
    monkeypatch.setattr(newcomer, "EVALUATIONS", 3)
    monkeypatch.setitem(newcomer.STEPS, "sac", 20)
    rows = newcomer.work(Training(SINGLE, "sac", 7))
    assert rows == [{"decisions": steps, "reward": 7 + steps} for steps in (0, 6, 13, 20)]


def test_a_search_is_judged_as_the_other_learners(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(newcomer.STEPS, "cma", 1)
    monkeypatch.setattr("studies.ids.EPISODES", 1)
    (row,) = newcomer.work(Training(SINGLE, "cma", 1))
    assert row["decisions"] > 0
    assert -2 < row["reward"] < 0


def test_a_learner_is_above_what_is_simple_on_average_over_its_seeds() -> None:
    trainings = {Training(SINGLE, "ppo", 1): -0.1, Training(SINGLE, "ppo", 2): -0.3, Training(LOSSY, "ppo", 1): -0.3}
    rows = {job: [{"reward": -0.9}, {"reward": reward}] for job, reward in trainings.items()}
    ends = {id: newcomer.ends_of(id, rows) for id in (SINGLE, LOSSY)}
    simple = {
        SINGLE: Simple(-0.4, (-0.25, "0,0"), (-0.4, "bbr"), -0.5, -0.25, -0.9),
        LOSSY: Simple(-0.6, (-0.5, "0,0"), (-0.2, "vegas"), -0.5, -0.5, -0.9),
    }
    assert newcomer.above(simple, ends) == "ppo in 1 of 2 ids"
    (row,) = [line for line in newcomer.table(simple, ends).splitlines() if line.startswith("| Single-v1")]
    assert "-0.200 [-0.300] (2)" in row
    assert "-0.250 (0,0)" in row
    assert "`ppo` is above" in newcomer.verdict(simple[SINGLE], ends[SINGLE])
    assert "above `vegas`" in newcomer.verdict(simple[LOSSY], ends[LOSSY])
    assert "above the constant action (0,0)" in newcomer.verdict(simple[SINGLE], {"ppo": [-0.25]})
    assert newcomer.verdict(simple[SINGLE], {}) == ""
