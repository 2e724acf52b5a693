"""The study of what is simple in each environment id."""

import math

import pytest

from studies import ids
from studies.ids import Driver

SINGLE = "bbrgym/Single-v1"


def test_the_hash_of_a_result_is_of_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    hashes = {id: Driver(id, "random").code for id in ids.ids()}
    assert len(set(hashes.values())) == len(hashes)
    assert Driver("bbrgym/Bottleneck-v1", "random").code == hashes["bbrgym/Default-v1"]  # another name of it
    assert Driver(SINGLE, "algorithm", ids.POLICY).code != Driver(SINGLE, "algorithm", "bbr").code  # its weights
    monkeypatch.setattr(ids, "EPISODES", 7)
    assert Driver(SINGLE, "random").code != hashes[SINGLE]


def test_more_episodes_judge_where_each_draws_its_scenario() -> None:
    assert {id: ids.episodes(id) > ids.episodes(SINGLE) for id in ("bbrgym/Train-v1", "bbrgym/Web-v1")} == {
        "bbrgym/Train-v1": True,
        "bbrgym/Web-v1": False,
    }


def test_what_is_simple_is_judged_in_the_same_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "EPISODES", 1)
    simple = [Driver(SINGLE, *of) for of in (("constant", "-1,-1"), ("constant", "1,1"), ("random", ""))]
    low, high, random = (ids.work(job) for job in simple)
    (bbr,) = ids.work(Driver(SINGLE, "algorithm", "bbr"))
    assert low[0]["reward"] > bbr["reward"] > random[0]["reward"] > high[0]["reward"]
    assert ids.work(simple[2]) == random


def test_the_best_of_each_kind_is_shown_and_the_shipped_policy_is_no_algorithm() -> None:
    rewards = {
        Driver(SINGLE, "constant", "0,0"): -0.3,
        Driver(SINGLE, "constant", "1,-1"): -0.2,
        Driver(SINGLE, "algorithm", "bbr"): -0.4,
        Driver(SINGLE, "algorithm", "vegas"): -0.1,
        Driver(SINGLE, "algorithm", "policy"): -0.05,
    }
    results = {job.name: [{"reward": reward}] for job, reward in rewards.items()}
    found = ids.simple(SINGLE, results)
    assert (found.bbr, found.constant, found.algorithm) == (-0.4, (-0.2, "1,-1"), (-0.1, "vegas"))
    assert (found.policy, found.zero) == (-0.05, -0.3)
    assert math.isnan(found.random)
    shown = ids.view(results, lambda name, draw: name)
    assert shown["above_all"] == "Single-v1"
    assert "nan" not in str(shown["rewards"])
