"""The study of a newcomer's first training: what is measured, and the table of it."""

import sys
from types import SimpleNamespace

import pytest

from studies import newcomer
from studies.newcomer import Driver

SINGLE, LOSSY = "bbrgym/Single-v1", "bbrgym/Lossy-v1"


def test_the_hash_of_a_result_is_of_its_environment() -> None:
    hashes = {id: Driver(id, "random").code for id in newcomer.ids()}
    assert len(set(hashes.values())) == len(hashes)
    assert Driver("bbrgym/Bottleneck-v1", "random").code == hashes["bbrgym/Default-v1"]  # another name of it


def test_the_hash_of_a_training_is_of_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    ppo, sac, constant = Driver(SINGLE, "ppo", "1"), Driver(SINGLE, "sac", "1"), Driver(SINGLE, "constant", "0,0")
    before = ppo.code, sac.code, constant.code
    assert len(set(before)) == 3
    monkeypatch.setitem(newcomer.STEPS, "ppo", 300_000)
    assert ppo.code != before[0]
    assert (sac.code, constant.code) == before[1:]
    monkeypatch.setattr(newcomer, "EPISODES", 7)
    assert {ppo.code, sac.code, constant.code}.isdisjoint(before)


def test_names_choose_a_learner_and_a_seed_and_the_longest_come_first() -> None:
    jobs = newcomer.jobs()
    assert len({job.name for job in jobs}) == len(jobs)
    for text, kind in (("sac 1", "sac"), ("ppo 3", "ppo")):
        assert [job.id for job in jobs if text in job.name] == newcomer.ids()
        assert {job.kind for job in jobs if text in job.name} == {kind}
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
    rows = newcomer.work(Driver(SINGLE, "sac", "7"))
    assert rows == [{"decisions": decisions, "reward": 7 + decisions} for decisions in (0, 6, 13, 20)]


def test_what_is_simple_is_judged_in_the_same_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newcomer, "EPISODES", 1)
    simple = [Driver(SINGLE, *of) for of in (("constant", "-1,-1"), ("constant", "1,1"), ("random", ""))]
    (low, high, random), (bbr,) = (
        [newcomer.work(job) for job in simple],
        newcomer.work(Driver(SINGLE, "algorithm", "bbr")),
    )
    assert low[0]["reward"] > bbr["reward"] > random[0]["reward"] > high[0]["reward"]
    assert newcomer.work(simple[2]) == random


def test_a_learner_is_above_what_is_simple_in_the_mean_of_its_seeds() -> None:
    rewards = {
        Driver(SINGLE, "ppo", "1"): -0.1,
        Driver(SINGLE, "ppo", "2"): -0.3,
        Driver(SINGLE, "constant", "0,0"): -0.25,
        Driver(SINGLE, "algorithm", "bbr"): -0.4,
        Driver(LOSSY, "ppo", "1"): -0.3,
        Driver(LOSSY, "constant", "0,0"): -0.5,
        Driver(LOSSY, "algorithm", "vegas"): -0.2,
    }
    results = {job.name: [{"decisions": 0, "reward": reward}] for job, reward in rewards.items()}
    results[Driver(SINGLE, "ppo", "1").name].insert(0, {"decisions": 0, "reward": -9.0})  # before the training
    shown = newcomer.view(results, lambda name, draw: name)
    assert shown["above"] == "ppo in 1 of 2 ids"
    (row,) = [line for line in str(shown["rewards"]).splitlines() if line.startswith("| Single-v1")]
    assert "-0.200 [-0.300] (2)" in row
    assert "-0.250 (0,0)" in row
